/*-------------------------------------------------------------------------
 *
 * encode.c
 *		From a message to AMQP properties, headers and body.
 *
 * Called by broker_publish.c for each message, outside any transaction: only
 * server functions that need no catalog are used here (see broker_internal.h about
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

#include "broker_internal.h"
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

	if (!outbox_trace_spans)
		return;
	value = outbox_encode_find(table, HEADER_TRACEPARENT);
	if (value == NULL || value->kind != AMQP_FIELD_KIND_UTF8 ||
		outbox_traceparent_parse(value->value.bytes.bytes,
								 value->value.bytes.len, &parent) != NULL ||
		(parent.flags & OUTBOX_TRACE_SAMPLED) == 0)
		return;
	outbox_trace_span_id(message->id.data, parent.parent_id);
	value->value.bytes.bytes = palloc(OUTBOX_TRACEPARENT_LEN + 1);
	value->value.bytes.len = OUTBOX_TRACEPARENT_LEN;
	outbox_traceparent_format(&parent, value->value.bytes.bytes);
}

/* Looks at all of it before, as the server's iterator trusts each length. */
static JsonbIterator *
iterate(const Jsonb *value)
{
	(void) outbox_json_text_size(value, SIZE_MAX);
	return JsonbIteratorInit(unconstify(JsonbContainer *, &value->root));
}

static const char *
set_headers(const OutboxMessage *message, int reserve, amqp_basic_properties_t *p)
{
	amqp_table_t *table = &p->headers;
	JsonbIterator *it = NULL;
	JsonbValue	item;
	int			npairs = 0;

	if (message->headers != NULL)
	{
		it = iterate(message->headers);
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

/* Sets a property that the user named. */
static const char *
set_property(const amqp_bytes_t *key, const JsonbValue *item,
			 amqp_basic_properties_t *p)
{
	size_t		i;

	if (outbox_encode_is(key, "priority"))
		return set_priority(item, p);

	for (i = 0; i < lengthof(ShortStrings); i++)
	{
		const ShortString *spec = &ShortStrings[i];
		amqp_bytes_t *target = short_string(p, spec);

		if (spec->name == NULL || !outbox_encode_is(key, spec->name))
			continue;
		if (item->type != jbvString)
			return psprintf("property \"%s\" is not a string", spec->name);
		*target = outbox_encode_utf8(item->val.string.val, item->val.string.len);
		if (spec->flag == AMQP_BASIC_EXPIRATION_FLAG &&
			(!all_digits(target) || target->len > OUTBOX_EXPIRATION_DIGITS))
			return "property \"expiration\" is not a number of milliseconds";
		p->_flags |= spec->flag;
		return NULL;
	}
	return "properties has an unknown key";
}

static const char *
set_properties(const Jsonb *properties, amqp_basic_properties_t *p)
{
	JsonbIterator *it;
	JsonbIteratorToken token;
	JsonbValue	item;

	if (properties == NULL)
		return NULL;
	it = iterate(properties);
	if (JsonbIteratorNext(&it, &item, true) != WJB_BEGIN_OBJECT)
		return "properties is not a JSON object";
	while ((token = JsonbIteratorNext(&it, &item, true)) != WJB_END_OBJECT)
	{
		amqp_bytes_t key;
		const char *reason;

		Assert(token == WJB_KEY);
		key = outbox_encode_utf8(item.val.string.val, item.val.string.len);
		(void) JsonbIteratorNext(&it, &item, true);
		reason = set_property(&key, &item, p);
		if (reason != NULL)
			return reason;
	}
	return NULL;
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
	p->message_id = outbox_encode_text(outbox_id_text(&message->id));
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

static const char *
check_short_strings(amqp_basic_properties_t *p)
{
	for (int i = 0; i < (int) lengthof(ShortStrings); i++)
	{
		const ShortString *spec = &ShortStrings[i];

		if ((p->_flags & spec->flag) != 0 &&
			short_string(p, spec)->len > OUTBOX_SHORT_STRING_MAX)
			return psprintf("property \"%s\" is longer than 255 bytes",
							spec->name ? spec->name : "message_id");
	}
	return NULL;
}

static void
encode_body(const OutboxMessage *message, const OutboxFormatted *formatted,
			amqp_bytes_t *body)
{
	StringInfoData json;

	if (message->payload == NULL)
	{
		body->bytes = unconstify(char *, message->body);
		body->len = message->body_len;
	}
	else
	{
		initStringInfo(&json);
		outbox_encode_json(&json, message->payload);
		*body = outbox_encode_utf8(json.data, json.len);
	}
	if (formatted != NULL)
		body->bytes = outbox_format_body(formatted, body->bytes, &body->len);
}

/* ------------------------------------------------------------ a route's format */

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
	amqp_field_value_t *value = outbox_encode_find(table, name);

	return value != NULL && value->kind == AMQP_FIELD_KIND_UTF8 ?
		text_of(&value->value.bytes) : NULL;
}

static void
replace_property(amqp_basic_properties_t *p, amqp_flags_t flag,
				 amqp_bytes_t *target, const char *value)
{
	if (value == NULL)
		return;
	*target = outbox_encode_text(value);
	p->_flags |= flag;
}

/*
 * Puts what the format says into properties that are complete without one, with
 * room for OUTBOX_FORMAT_HEADERS more headers.  What the format asks of the message
 * is taken from them, so that the user's count, and the span of outbox.trace_spans.
 * content_type: the user has set that.
 */
static const char *
apply_format(const OutboxMessage *message, const OutboxFormat *format,
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
	replace_property(p, AMQP_BASIC_CONTENT_TYPE_FLAG, &p->content_type,
					 formatted->content_type);
	replace_property(p, AMQP_BASIC_CONTENT_ENCODING_FLAG, &p->content_encoding,
					 formatted->content_encoding);
	replace_property(p, AMQP_BASIC_CORRELATION_ID_FLAG, &p->correlation_id,
					 formatted->correlation_id);
	return NULL;
}

/* ---------------------------------------------------------------------- all of it */

/* Returns why not; *formatted: of a format other than plain. */
static const char *
encode_properties(const OutboxMessage *message, const OutboxFormat *format,
				  OutboxFormatted *formatted, amqp_bytes_t *space)
{
	amqp_basic_properties_t p;
	const void *content_type;
	const char *reason;
	int			len;

	memset(&p, 0, sizeof(p));
	set_defaults(message, &p);
	content_type = p.content_type.bytes;
	reason = set_properties(message->properties, &p);
	if (reason == NULL)
		reason = set_headers(message, format != NULL ? OUTBOX_FORMAT_HEADERS : 0,
							 &p);
	if (reason == NULL && format != NULL)
		reason = apply_format(message, format,
							  p.content_type.bytes != content_type, &p, formatted);
	if (p.headers.num_entries > 0)
		p._flags |= AMQP_BASIC_HEADERS_FLAG;
	if (reason == NULL)
		reason = check_short_strings(&p);
	if (reason != NULL)
		return reason;
	len = amqp_encode_properties(AMQP_BASIC_CLASS, &p, *space);
	if (len < 0)
		return "headers and properties do not fit into one frame of the broker";
	space->len = len;
	return NULL;
}

const char *
outbox_encode(const OutboxMessage *message, const OutboxFormat *format,
			  MemoryContext scratch, amqp_bytes_t *properties, amqp_bytes_t *body)
{
	MemoryContext old = MemoryContextSwitchTo(scratch);
	OutboxFormatted formatted;
	const char *reason = encode_properties(message, format, &formatted, properties);

	if (reason == NULL && body != NULL)
		encode_body(message, format != NULL ? &formatted : NULL, body);
	MemoryContextSwitchTo(old);
	return reason;
}
