/*-------------------------------------------------------------------------
 *
 * encode_format.c
 *		Properties and headers of a route's format.
 *
 * What the format asks of the message is taken from the properties and headers as
 * they go out, so that the user's count, and the span of outbox.trace_spans.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "encode.h"

static const char *
text_of(const amqp_bytes_t *bytes)
{
	return pnstrdup(bytes->bytes, bytes->len);
}

/* A property that the user has set. */
static const char *
property_of(const amqp_basic_properties_t *p, amqp_flags_t flag,
			const amqp_bytes_t *value)
{
	return (p->_flags & flag) != 0 ? text_of(value) : NULL;
}

static const char *
header_of(const amqp_table_t *table, const char *name)
{
	for (int i = 0; i < table->num_entries; i++)
	{
		const amqp_table_entry_t *entry = &table->entries[i];

		if (entry->key.len == strlen(name) &&
			memcmp(entry->key.bytes, name, entry->key.len) == 0)
			return entry->value.kind == AMQP_FIELD_KIND_UTF8 ?
				text_of(&entry->value.value.bytes) : NULL;
	}
	return NULL;
}

static void
set_property(amqp_basic_properties_t *p, amqp_flags_t flag, amqp_bytes_t *target,
			 const char *value)
{
	if (value == NULL)
		return;
	*target = outbox_encode_text(value);
	p->_flags |= flag;
}

const char *
outbox_encode_format(const OutboxMessage *message, const OutboxFormat *format,
					 bool content_type, amqp_basic_properties_t *p,
					 OutboxFormatted *formatted)
{
	OutboxFormatMessage asked = {
		.id = text_of(&p->message_id),
		.event_type = message->event_type,
		.aggregate_type = message->aggregate_type,
		.aggregate_id = message->aggregate_id,
		.created_at = message->created_at,
		.payload = message->payload,
		.headers = message->headers,
		.content_type = content_type ? text_of(&p->content_type) : NULL,
		.content_encoding = property_of(p, AMQP_BASIC_CONTENT_ENCODING_FLAG,
										&p->content_encoding),
		.correlation_id = property_of(p, AMQP_BASIC_CORRELATION_ID_FLAG,
									  &p->correlation_id),
		.traceparent = header_of(&p->headers, "traceparent"),
		.tracestate = header_of(&p->headers, "tracestate")
	};
	const char *reason = outbox_format_message(format, &asked, formatted);

	if (reason != NULL)
		return reason;
	for (int i = 0; i < formatted->nheaders; i++)
		outbox_encode_own_text(&p->headers, formatted->headers[i].name,
							   formatted->headers[i].text);
	if (p->headers.num_entries > 0)
		p->_flags |= AMQP_BASIC_HEADERS_FLAG;
	set_property(p, AMQP_BASIC_CONTENT_TYPE_FLAG, &p->content_type,
				 formatted->content_type);
	set_property(p, AMQP_BASIC_CONTENT_ENCODING_FLAG, &p->content_encoding,
				 formatted->content_encoding);
	set_property(p, AMQP_BASIC_CORRELATION_ID_FLAG, &p->correlation_id,
				 formatted->correlation_id);
	return NULL;
}
