/*-------------------------------------------------------------------------
 *
 * encode.c
 *		From a message to AMQP properties, headers and body.
 *
 * Called by broker_publish.c for each message, outside any transaction: only
 * server functions that need no catalog are used here (see encode.h about
 * client_encoding).
 *
 * The rules that matter to the protocol were checked at enqueue.  They are
 * checked again, because librabbitmq finds an argument error only after it has
 * sent the method frame, which costs the connection.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "lib/stringinfo.h"
#include "utils/timestamp.h"

#include "encode.h"
#include "encode_json.h"
#include "settings.h"
#include "traceparent.h"

#define HEADER_AGGREGATE_ID		"aggregate_id"
#define HEADER_AGGREGATE_TYPE	"aggregate_type"
#define HEADER_ATTEMPTS			"x-outbox-attempts"
#define HEADER_FIRST_ENQUEUED	"x-first-enqueued"
#define HEADER_TRACEPARENT		"traceparent"

/* Of these, at most. */
#define MAX_OWN_HEADERS			4

/* Every property that is a short string, and who may set it. */
typedef struct ShortString
{
	const char *name;			/* key in the column properties, or NULL */
	amqp_flags_t flag;
	size_t		offset;			/* in amqp_basic_properties_t */
} ShortString;

#define SHORT_STRING(field, FLAG) \
	{#field, AMQP_BASIC_##FLAG##_FLAG, offsetof(amqp_basic_properties_t, field)},

static const ShortString ShortStrings[] = {
	OUTBOX_STRING_PROPERTIES(SHORT_STRING)
	{NULL, AMQP_BASIC_MESSAGE_ID_FLAG, offsetof(amqp_basic_properties_t, message_id)}
};

static amqp_bytes_t *
short_string(amqp_basic_properties_t *properties, const ShortString *spec)
{
	return (amqp_bytes_t *) ((char *) properties + spec->offset);
}

static bool
key_is(const amqp_bytes_t *key, const char *name)
{
	return key->len == strlen(name) && memcmp(key->bytes, name, key->len) == 0;
}

/*
 * What tells an attempt from the one before, which the broker has refused (one of
 * several queues may have taken it all the same).  What goes out again because its
 * confirm was lost is the same in every byte.
 */
static void
set_attempt(const OutboxMessage *message, amqp_table_t *table)
{
	amqp_field_value_t *value;

	if (message->attempts == 0)
		return;
	value = outbox_encode_own_header(table, HEADER_ATTEMPTS);
	value->kind = AMQP_FIELD_KIND_I64;
	value->value.i64 = message->attempts;
	/* as text, since AMQP's own timestamps are whole seconds */
	outbox_encode_own_text(table, HEADER_FIRST_ENQUEUED,
						   outbox_rfc3339(message->created_at));
}

/*
 * With outbox.trace_spans sending is a span: the consumer's parent is that, and
 * its parent the producer's, in the row's header.  What is not sampled has none,
 * as nobody would be told of it.
 */
static void
set_span(const OutboxMessage *message, amqp_table_t *table)
{
	OutboxTraceparent parent;
	amqp_field_value_t *value;
	int			i = 0;

	if (!outbox_trace_spans)
		return;
	while (i < table->num_entries &&
		   !key_is(&table->entries[i].key, HEADER_TRACEPARENT))
		i++;
	if (i == table->num_entries)
		return;
	value = &table->entries[i].value;
	if (value->kind != AMQP_FIELD_KIND_UTF8 ||
		outbox_traceparent_parse(value->value.bytes.bytes,
								 value->value.bytes.len, &parent) != NULL ||
		(parent.flags & OUTBOX_TRACE_SAMPLED) == 0)
		return;
	outbox_trace_span_id(message->id.data, parent.parent_id);
	value->value.bytes.bytes = palloc(OUTBOX_TRACEPARENT_LEN + 1);
	value->value.bytes.len = OUTBOX_TRACEPARENT_LEN;
	outbox_traceparent_format(&parent, value->value.bytes.bytes);
}

static const char *
encode_headers(const OutboxMessage *message, int reserve, amqp_basic_properties_t *p)
{
	amqp_table_t *table = &p->headers;
	JsonbIterator *it = NULL;
	JsonbValue	item;
	int			npairs = 0;

	if (message->headers != NULL)
	{
		it = JsonbIteratorInit(&message->headers->root);
		if (JsonbIteratorNext(&it, &item, false) != WJB_BEGIN_OBJECT)
			return "headers is not a JSON object";
		npairs = item.val.object.nPairs;
	}

	table->num_entries = 0;
	table->entries = palloc0(sizeof(amqp_table_entry_t) *
							 (npairs + MAX_OWN_HEADERS + reserve));
	if (it != NULL)
	{
		const char *reason = outbox_encode_pairs(&it, table);

		if (reason != NULL)
			return reason;
	}
	outbox_encode_own_text(table, HEADER_AGGREGATE_ID, message->aggregate_id);
	outbox_encode_own_text(table, HEADER_AGGREGATE_TYPE, message->aggregate_type);
	set_attempt(message, table);
	set_span(message, table);
	if (table->num_entries > 0)
		p->_flags |= AMQP_BASIC_HEADERS_FLAG;
	return NULL;
}

static bool
all_digits(const amqp_bytes_t *text)
{
	const char *chars = text->bytes;
	size_t		i;

	for (i = 0; i < text->len; i++)
	{
		if (chars[i] < '0' || chars[i] > '9')
			return false;
	}
	return text->len > 0;
}

static const char *
set_priority(const JsonbValue *item, amqp_basic_properties_t *p)
{
	amqp_field_value_t number;

	if (item->type != jbvNumeric ||
		outbox_encode_number(item->val.numeric, &number) != NULL ||
		number.kind != AMQP_FIELD_KIND_I64 ||
		number.value.i64 < 0 || number.value.i64 > OUTBOX_PRIORITY_MAX)
		return "property \"priority\" is not a number from 0 to 255";
	p->priority = (uint8_t) number.value.i64;
	p->_flags |= AMQP_BASIC_PRIORITY_FLAG;
	return NULL;
}

/* Sets a property that the user named; numbers are welcome as strings are. */
static const char *
set_property(const amqp_bytes_t *key, const JsonbValue *item,
			 amqp_basic_properties_t *p)
{
	size_t		i;

	if (key_is(key, "priority"))
		return set_priority(item, p);

	for (i = 0; i < lengthof(ShortStrings); i++)
	{
		const ShortString *spec = &ShortStrings[i];
		amqp_bytes_t *target = short_string(p, spec);

		if (spec->name == NULL || !key_is(key, spec->name))
			continue;
		if (item->type == jbvString)
			*target = outbox_encode_utf8(item->val.string.val, item->val.string.len);
		else if (item->type == jbvNumeric)
			*target = outbox_encode_text(outbox_encode_digits(item->val.numeric));
		else
			return psprintf("property \"%s\" is not a string", spec->name);
		if (spec->flag == AMQP_BASIC_EXPIRATION_FLAG &&
			(!all_digits(target) || target->len > OUTBOX_EXPIRATION_DIGITS))
			return "property \"expiration\" is not a number of milliseconds";
		p->_flags |= spec->flag;
		return NULL;
	}
	return "properties has an unknown key";
}

static const char *
encode_properties(const Jsonb *properties, amqp_basic_properties_t *p)
{
	JsonbIterator *it;
	JsonbIteratorToken token;
	JsonbValue	item;

	if (properties == NULL)
		return NULL;
	it = JsonbIteratorInit(unconstify(JsonbContainer *, &properties->root));
	if (JsonbIteratorNext(&it, &item, true) != WJB_BEGIN_OBJECT)
		return "properties is not a JSON object";
	while ((token = JsonbIteratorNext(&it, &item, true)) != WJB_END_OBJECT)
	{
		amqp_bytes_t key;
		const char *reason;

		Assert(token == WJB_KEY);
		key = outbox_encode_utf8(item.val.string.val, item.val.string.len);
		(void) JsonbIteratorNext(&it, &item, true);
		if (item.type == jbvNull)
			continue;			/* as if it were not there */
		reason = set_property(&key, &item, p);
		if (reason != NULL)
			return reason;
	}
	return NULL;
}

static amqp_bytes_t
uuid_text(const pg_uuid_t *id)
{
	static const char hex[] = "0123456789abcdef";
	char	   *text = palloc(2 * UUID_LEN + 5);
	char	   *out = text;
	int			i;

	for (i = 0; i < UUID_LEN; i++)
	{
		if (i == 4 || i == 6 || i == 8 || i == 10)
			*out++ = '-';
		*out++ = hex[id->data[i] >> 4];
		*out++ = hex[id->data[i] & 0x0f];
	}
	*out = '\0';
	return outbox_encode_text(text);
}

/* The second in which it is, also before 2000, where division rounds up. */
static int64
unix_seconds(TimestampTz time)
{
	int64		seconds = time / USECS_PER_SEC;

	if (time % USECS_PER_SEC < 0)
		seconds--;
	return seconds + (POSTGRES_EPOCH_JDATE - UNIX_EPOCH_JDATE) * (int64) SECS_PER_DAY;
}

/* What the message itself says; the user's properties may change some of it. */
static void
set_defaults(const OutboxMessage *message, amqp_basic_properties_t *p)
{
	p->message_id = uuid_text(&message->id);
	p->type = outbox_encode_text(message->event_type);
	p->content_type = outbox_encode_text(message->payload != NULL ?
								"application/json" :
								"application/octet-stream");
	p->delivery_mode = AMQP_DELIVERY_PERSISTENT;
	p->_flags = AMQP_BASIC_MESSAGE_ID_FLAG | AMQP_BASIC_TYPE_FLAG |
		AMQP_BASIC_CONTENT_TYPE_FLAG | AMQP_BASIC_DELIVERY_MODE_FLAG;

	/* AMQP's timestamp is unsigned and has no infinity */
	if (!TIMESTAMP_NOT_FINITE(message->created_at))
	{
		int64		created_s = unix_seconds(message->created_at);

		if (created_s >= 0)
		{
			p->timestamp = (uint64_t) created_s;
			p->_flags |= AMQP_BASIC_TIMESTAMP_FLAG;
		}
	}
}

/* Checks the short strings and adds everything up. */
static const char *
measure(OutboxEncoded *out)
{
	amqp_basic_properties_t *p = &out->properties;
	size_t		i;

	out->header_size = OUTBOX_CONTENT_HEADER;
	for (i = 0; i < lengthof(ShortStrings); i++)
	{
		const ShortString *spec = &ShortStrings[i];
		amqp_bytes_t *text = short_string(p, spec);

		if ((p->_flags & spec->flag) == 0)
			continue;
		if (text->len > OUTBOX_SHORT_STRING_MAX)
			return psprintf("property \"%s\" is longer than 255 bytes",
							spec->name ? spec->name : "message_id");
		out->header_size += 1 + text->len;
	}
	if (p->_flags & AMQP_BASIC_HEADERS_FLAG)
		out->header_size += outbox_encode_table_size(&p->headers);
	if (p->_flags & AMQP_BASIC_DELIVERY_MODE_FLAG)
		out->header_size += 1;
	if (p->_flags & AMQP_BASIC_PRIORITY_FLAG)
		out->header_size += 1;
	if (p->_flags & AMQP_BASIC_TIMESTAMP_FLAG)
		out->header_size += 8;
	return NULL;
}

static void
encode_body(const OutboxMessage *message, amqp_bytes_t *body)
{
	StringInfoData json;

	if (message->payload == NULL)
	{
		body->bytes = unconstify(char *, message->body);
		body->len = message->body_len;
		return;
	}
	initStringInfo(&json);
	outbox_encode_json(&json, message->payload);
	*body = outbox_encode_utf8(json.data, json.len);
}

/* *formatted: of a format other than plain. */
static const char *
encode_header(const OutboxMessage *message, const OutboxFormat *format,
			  OutboxFormatted *formatted, OutboxEncoded *out)
{
	const void *content_type;
	const char *reason;

	memset(out, 0, sizeof(*out));
	set_defaults(message, &out->properties);
	content_type = out->properties.content_type.bytes;
	reason = encode_properties(message->properties, &out->properties);
	if (reason == NULL)
		reason = encode_headers(message, format != NULL ? OUTBOX_FORMAT_HEADERS : 0,
								&out->properties);
	if (reason == NULL && format != NULL)
		reason = outbox_encode_format(message, format,
									  out->properties.content_type.bytes != content_type,
									  &out->properties, formatted);
	if (reason == NULL)
		reason = measure(out);
	return reason;
}

const char *
outbox_encode_header(const OutboxMessage *message, const OutboxFormat *format,
					 MemoryContext scratch, OutboxEncoded *out)
{
	MemoryContext old = MemoryContextSwitchTo(scratch);
	OutboxFormatted formatted;
	const char *reason = encode_header(message, format, &formatted, out);

	MemoryContextSwitchTo(old);
	return reason;
}

const char *
outbox_encode(const OutboxMessage *message, const OutboxFormat *format,
			  MemoryContext scratch, OutboxEncoded *out)
{
	MemoryContext old = MemoryContextSwitchTo(scratch);
	OutboxFormatted formatted;
	const char *reason = encode_header(message, format, &formatted, out);

	if (reason == NULL)
	{
		encode_body(message, &out->body);
		if (format != NULL)
			out->body.bytes = outbox_format_body(&formatted, out->body.bytes,
												 &out->body.len);
	}
	MemoryContextSwitchTo(old);
	return reason;
}
