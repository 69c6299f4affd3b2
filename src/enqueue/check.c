/*-------------------------------------------------------------------------
 *
 * check.c
 *		What a message must be, checked at enqueue.
 *
 * The broker answers a bad message by closing the channel, which makes all other messages
 * in flight uncertain, and librabbitmq notices some only after it has sent half a
 * message.  So all of it is refused here, where the application can still do something
 * about it.  The limits are those of AMQP 0-9-1 and of RabbitMQ 3.10.  All sizes are
 * bytes in UTF-8, the encoding on the wire.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <math.h>

#include "amqp_limits.h"
#include "catalog/namespace.h"
#include "compat.h"
#include "encode_json.h"
#include "enqueue_internal.h"
#include "format.h"
#include "mb/pg_wchar.h"
#include "message.h"
#include "miscadmin.h"
#include "settings.h"
#include "utils/builtins.h"
#include "utils/numeric.h"

/*
 * Content type, delivery mode, message id, timestamp, aggregate headers' own; of a
 * later attempt x-outbox-attempts and x-first-enqueued.
 */
#define PROPERTY_RESERVE		(1 + 24 + 1 + 37 + 8 + 64 + 27 + 49)

#define MAX_EXPIRATION			PG_UINT32_MAX	/* RabbitMQ's timer */

/* The smallest double has 767 significant digits behind 323 zeros. */
#define MAX_NUMBER_TEXT			1100

/* How deep headers may nest; the object itself is depth 1. */
#define OUTBOX_MAX_HEADER_DEPTH 8

#define PROPERTY_NAME(name, FLAG) #name,
#define LISTED(name, flag)	", " #name

static const char *const string_properties[] = {
	OUTBOX_STRING_PROPERTIES(PROPERTY_NAME)
};

/* The conversion's own errors do not know what the text is. */
static void
name_argument(void *arg)
{
	errcontext("converting %s to UTF-8", (const char *) arg);
}

/* Length in UTF-8; raises an error when the text has none. */
static size_t
utf8_length(const char *argument, const char *str, size_t len)
{
	ErrorContextCallback context;
	char	   *utf8;
	size_t		result;

	if (GetDatabaseEncoding() == PG_UTF8)
		return len;
	context.callback = name_argument;
	context.arg = unconstify(char *, argument);
	context.previous = error_context_stack;
	error_context_stack = &context;
	utf8 = pg_server_to_any(str, (int) len, PG_UTF8);
	error_context_stack = context.previous;
	if (utf8 == str)
		return len;
	result = strlen(utf8);
	pfree(utf8);
	return result;
}

/* The same; an error, too, if it is no short string of AMQP. */
static size_t
short_length(const char *argument, const char *str, size_t len)
{
	len = utf8_length(argument, str, len);
	if (len > OUTBOX_SHORT_STRING_MAX)
		ereport(ERROR,
				(errcode(ERRCODE_STRING_DATA_RIGHT_TRUNCATION),
				 errmsg("%s is too long", argument),
				 errdetail("It has %zu bytes in UTF-8; AMQP allows %d.",
						   len, OUTBOX_SHORT_STRING_MAX)));
	return len;
}

/* 0 for NULL. */
static size_t
check_short_string(const char *argument, const text *value)
{
	return value == NULL ? 0 :
		short_length(argument, VARDATA_ANY(value), VARSIZE_ANY_EXHDR(value));
}

static bool
is_string(const JsonbValue *value, const char *string)
{
	return value->val.string.len == strlen(string) &&
		memcmp(value->val.string.val, string, strlen(string)) == 0;
}

/* False for NULL; an error if it is no object. */
static bool
is_object(const char *argument, const Jsonb *value)
{
	if (value != NULL && !JB_ROOT_IS_OBJECT(value))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("%s must be a JSON object", argument)));
	return value != NULL;
}

/* ----------------------------------------------------------------- headers */

static size_t container_size(JsonbContainer *container, int depth);

/*
 * A number is an AMQP long if it is an integer that fits, else a double.  One of
 * more digits than any double needs would cost the relay more than a message
 * does, for nothing.
 */
static void
check_header_number(Numeric number)
{
	char	   *str = numeric_normalize(number);

	if (strlen(str) > MAX_NUMBER_TEXT || isinf(strtod(str, NULL)))
		ereport(ERROR,
				(errcode(ERRCODE_NUMERIC_VALUE_OUT_OF_RANGE),
				 errmsg("headers contain a number that is out of range"),
				 errdetail("AMQP headers hold integers of 64 bits and numbers of double precision."),
				 errhint("Send it as a string.")));
	pfree(str);
}

/* Bytes of one field value, its type octet included. */
static size_t
value_size(const JsonbValue *value, int depth)
{
	switch (value->type)
	{
		case jbvNull:
			return 1;
		case jbvBool:
			return 2;
		case jbvNumeric:
			check_header_number(value->val.numeric);
			return 9;
		case jbvString:
			return 5 + utf8_length("headers", value->val.string.val,
								   value->val.string.len);
		case jbvBinary:
			return 5 + container_size(value->val.binary.data, depth + 1);
		default:
			elog(ERROR, "unexpected jsonb value type: %d", (int) value->type);
	}
	return 0;
}

static int
compare_names(const ListCell *a, const ListCell *b)
{
	return strcmp(lfirst(a), lfirst(b));
}

/*
 * EUC_JP has several codes for some characters, which are one in UTF-8.  A table
 * of AMQP has each name once; of two, a consumer would see one.
 */
static void
check_names(List *names)
{
	list_sort(names, compare_names);
	for (int i = 1; i < list_length(names); i++)
		if (strcmp(list_nth(names, i - 1), list_nth(names, i)) == 0)
			ereport(ERROR,
					(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
					 errmsg("two names in headers are the same in UTF-8"),
					 errdetail("The encoding of the database has two codes for a character of them.")));
	list_free(names);
}

static size_t
container_size(JsonbContainer *container, int depth)
{
	bool		ambiguous = GetDatabaseEncoding() != PG_UTF8 &&
		GetDatabaseEncoding() != PG_SQL_ASCII;
	List	   *names = NIL;
	JsonbIterator *it;
	JsonbIteratorToken token;
	JsonbValue	value;
	size_t		total = 0;

	check_stack_depth();
	if (depth > OUTBOX_MAX_HEADER_DEPTH)
		ereport(ERROR,
				(errcode(ERRCODE_PROGRAM_LIMIT_EXCEEDED),
				 errmsg("headers are nested too deep"),
				 errdetail("At most %d levels are allowed.",
						   OUTBOX_MAX_HEADER_DEPTH)));

	it = JsonbIteratorInit(container);
	while ((token = JsonbIteratorNext(&it, &value, true)) != WJB_DONE)
	{
		if (token == WJB_KEY)
		{
			total += 1 + short_length("a name in headers", value.val.string.val,
									  value.val.string.len);
			if (depth == 1 && (is_string(&value, "CC") || is_string(&value, "BCC")))
				ereport(ERROR,
						(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
						 errmsg("headers must not contain CC or BCC"),
						 errdetail("RabbitMQ would send the message to these routing keys as well, past its route."),
						 errhint("Enqueue one message for each routing key.")));
			/* Two names may be the same in UTF-8. */
			if (ambiguous)
				names = lappend(names, outbox_format_utf8(value.val.string.val,
														  value.val.string.len));
		}
		else if (token == WJB_VALUE || token == WJB_ELEM)
			total += value_size(&value, depth);
	}
	check_names(names);
	return total;
}

/* -------------------------------------------------------------- properties */

static void
check_expiration(const char *str, size_t len)
{
	bool		bad = len == 0 || len > OUTBOX_EXPIRATION_DIGITS;

	for (size_t i = 0; i < len && !bad; i++)
		bad = str[i] < '0' || str[i] > '9';
	if (bad || strtoull(pnstrdup(str, len), NULL, 10) > MAX_EXPIRATION)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("property expiration must be a string of digits"),
				 errdetail("It is a number of milliseconds from 0 to %u.",
						   (unsigned) MAX_EXPIRATION)));
}

static size_t
check_string_property(const char *name, const JsonbValue *value)
{
	char	   *argument = psprintf("property %s", name);
	const char *str = value->val.string.val;
	size_t		len;

	if (value->type != jbvString)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("%s must be a string", argument)));
	len = short_length(argument, str, value->val.string.len);
	if (strcmp(name, "expiration") == 0)
		check_expiration(str, value->val.string.len);
	if (strcmp(name, "reply_to") == 0 &&
		strncmp(pnstrdup(str, value->val.string.len), "amq.rabbitmq.reply-to", 21) == 0)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("property reply_to must not name a direct reply queue"),
				 errdetail("Direct reply-to needs a consumer on the publishing connection, and the relay has none.")));
	return 1 + len;
}

static size_t
check_priority(const JsonbValue *value)
{
	char	   *str;
	char	   *end;
	long		priority;

	if (value->type == jbvNumeric)
	{
		str = numeric_normalize(value->val.numeric);
		priority = strtol(str, &end, 10);
		if (*end == '\0' && priority >= 0 && priority <= OUTBOX_PRIORITY_MAX)
			return 1;
	}
	ereport(ERROR,
			(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
			 errmsg("property priority must be an integer from 0 to 255")));
	return 0;
}

static size_t
check_property(const char *name, const JsonbValue *value)
{
	if (strcmp(name, "priority") == 0)
		return check_priority(value);
	for (int i = 0; i < (int) lengthof(string_properties); i++)
		if (strcmp(name, string_properties[i]) == 0)
			return check_string_property(name, value);
	ereport(ERROR,
			(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
			 errmsg("unknown property \"%s\"", name),
			 errdetail("message_id, timestamp and delivery_mode are set by the relay; user_id would be refused by the broker."),
			 errhint("Valid properties are priority" OUTBOX_STRING_PROPERTIES(LISTED) ".")));
	return 0;
}

static size_t
check_properties(Jsonb *properties)
{
	JsonbIterator *it;
	JsonbIteratorToken token;
	JsonbValue	value;
	char	   *name = NULL;
	size_t		total = 0;

	it = JsonbIteratorInit(&properties->root);
	while ((token = JsonbIteratorNext(&it, &value, true)) != WJB_DONE)
	{
		if (token == WJB_KEY)
			name = pnstrdup(value.val.string.val, value.val.string.len);
		else if (token == WJB_VALUE)
			total += check_property(name, &value);
	}
	return total;
}

/* -------------------------------------------------------------------- body */

/*
 * The text of a JSON value is what is sent.  Its size is counted before the row
 * is accepted, as nothing else limits it: 400 bytes of jsonb can become 65 MB.
 */
static size_t
payload_size(Jsonb *payload)
{
	size_t		limit = (size_t) outbox_max_message_size;
	size_t		size = outbox_json_text_size(payload, limit);

	if (size <= limit && GetDatabaseEncoding() != PG_UTF8)
	{
		char	   *str = JsonbToCString(NULL, &payload->root, (int) size);

		size = utf8_length("payload", str, strlen(str));
		pfree(str);
	}
	return size;
}

/* Bytes of the body; formatted: NULL for plain. */
static size_t
body_size(const OutboxFields *fields, const OutboxFormatted *formatted)
{
	size_t		size = fields->payload != NULL ? payload_size(fields->payload) :
		VARSIZE_ANY_EXHDR(fields->body);

	return formatted != NULL ? outbox_format_body_size(formatted, size) : size;
}

static void
check_body(const OutboxFields *fields, const OutboxFormatted *formatted)
{
	size_t		size = body_size(fields, formatted);

	if (size > (size_t) outbox_max_message_size)
		ereport(ERROR,
				(errcode(ERRCODE_PROGRAM_LIMIT_EXCEEDED),
				 errmsg("%s is too large", fields->payload != NULL ? "payload" : "body"),
				 formatted != NULL && formatted->prefix != NULL ?
				 errdetail("With what the format of its route puts around it, it has %zu bytes or more; \"outbox.max_message_size\" is %d.",
						   size, outbox_max_message_size) :
				 fields->payload == NULL ?
				 errdetail("It has %zu bytes; \"outbox.max_message_size\" is %d.",
						   size, outbox_max_message_size) :
				 errdetail("Its text has %zu bytes or more; \"outbox.max_message_size\" is %d.",
						   size, outbox_max_message_size),
				 errhint("Store the content elsewhere and send a reference to it.")));
}

/* ------------------------------------------------------------------- format */

static char *
utf8_or_null(const text *value)
{
	return value == NULL ? NULL :
		outbox_format_utf8(VARDATA_ANY(value), VARSIZE_ANY_EXHDR(value));
}

/* A string of an object; NULL: it has none of that name. */
static const char *
member(const Jsonb *object, const char *name)
{
	JsonbValue	value;

	if (object == NULL ||
		getKeyJsonValueFromContainer(unconstify(JsonbContainer *, &object->root), name,
									 strlen(name), &value) == NULL ||
		value.type != jbvString)
		return NULL;
	return outbox_format_utf8(value.val.string.val, value.val.string.len);
}

/*
 * Why the route's format, which is not plain, cannot carry the message, in words that
 * begin with the argument; NULL: it can, and *formatted is filled.
 */
static const char *
format_reason(const OutboxFields *fields, const OutboxRoute *route,
			  OutboxFormatted *formatted)
{
	static const pg_uuid_t nil;
	OutboxFormatMessage message = {
		/* It has to have one; that is said where it is stored. */
		.id = outbox_id_text(fields->id != NULL ? fields->id : &nil),
		.event_type = utf8_or_null(fields->event_type),
		.aggregate_type = utf8_or_null(fields->aggregate_type),
		.aggregate_id = utf8_or_null(fields->aggregate_id),
		.created_at = fields->created_at,
		.payload = fields->payload,
		.headers = fields->headers,
		.content_type = member(fields->properties, "content_type"),
		.content_encoding = member(fields->properties, "content_encoding"),
		.correlation_id = member(fields->properties, "correlation_id"),
		.traceparent = member(fields->headers, "traceparent"),
		.tracestate = member(fields->headers, "tracestate")
	};

	return outbox_format_message(route->format, &message, formatted);
}

size_t
outbox_payload_size(const OutboxFields *fields, const OutboxRoute *route)
{
	OutboxFormatted formatted;

	/* What the format cannot carry is refused as such. */
	if (route->format != NULL && format_reason(fields, route, &formatted) != NULL)
		return 0;
	return body_size(fields, route->format != NULL ? &formatted : NULL);
}

/* --------------------------------------------------------------- the whole */

static size_t
rendered_size(const OutboxFields *fields, const OutboxRoute *route)
{
	char		buf[OUTBOX_SHORT_STRING_MAX + 1];

	return outbox_route_render(pg_server_to_any(route->routing_key,
												(int) strlen(route->routing_key),
												PG_UTF8),
							   utf8_or_null(fields->event_type),
							   utf8_or_null(fields->aggregate_type),
							   utf8_or_null(fields->aggregate_id), buf,
							   sizeof(buf));
}

/* The rendered routing key must fit, whatever the parts are. */
static void
check_routing_key(const OutboxFields *fields, const OutboxRoute *route)
{
	size_t		len = check_short_string("routing_key", fields->routing_key);

	/* The most common template needs no rendering to know that it fits. */
	if (fields->routing_key != NULL || strcmp(route->routing_key, "{event_type}") == 0)
		return;
	len = rendered_size(fields, route);
	if (len > OUTBOX_SHORT_STRING_MAX)
		ereport(ERROR,
				(errcode(ERRCODE_STRING_DATA_RIGHT_TRUNCATION),
				 errmsg("routing key of route \"%s\" would be too long",
						route->name),
				 errdetail("Its template \"%s\" gives %zu bytes; AMQP allows %d.",
						   route->routing_key, len, OUTBOX_SHORT_STRING_MAX)));
}

static bool
has_utf8(const char *str, int len)
{
	int			encoding = GetDatabaseEncoding();
	char	   *utf8;

	if (encoding == PG_UTF8)
		return true;
	if (encoding == PG_SQL_ASCII)
		return pg_verify_mbstr(PG_UTF8, str, len, true);
	utf8 = palloc((Size) len * MAX_CONVERSION_GROWTH + 1);
	return pg_do_encoding_conversion_buf(FindDefaultConversionProc(encoding, PG_UTF8),
										 encoding, PG_UTF8,
										 (unsigned char *) unconstify(char *, str), len,
										 (unsigned char *) utf8,
										 len * MAX_CONVERSION_GROWTH + 1, true) == len;
}

/* A format, or a template, may fail for another reason; enqueue gives that. */
static const char *
route_key_reason(const OutboxFields *fields, const OutboxRoute *route)
{
	OutboxFields no_key = *fields;
	OutboxFormatted formatted;
	const char *reason;

	no_key.aggregate_type = NULL;
	no_key.aggregate_id = NULL;
	if (fields->routing_key == NULL &&
		rendered_size(fields, route) > OUTBOX_SHORT_STRING_MAX &&
		rendered_size(&no_key, route) <= OUTBOX_SHORT_STRING_MAX)
		return psprintf("The routing key of route \"%s\" would be too long; AMQP allows %d bytes.",
						route->name, OUTBOX_SHORT_STRING_MAX);
	if (route->format == NULL)
		return NULL;
	reason = format_reason(fields, route, &formatted);
	if (reason == NULL || format_reason(&no_key, route, &formatted) != NULL)
		return NULL;
	return psprintf("Route \"%s\" has the format %s: %s.", route->name,
					outbox_format_name(route->format), reason);
}

const char *
outbox_key_reason(const OutboxFields *fields, const OutboxRoute *route)
{
	const char *str = VARDATA_ANY(fields->aggregate_id);
	int			len = VARSIZE_ANY_EXHDR(fields->aggregate_id);
	size_t		size;

	if (len == 0)
		return "It is empty.";
	if (!has_utf8(str, len))
		return "It has no form in UTF-8.";
	size = utf8_length("aggregate_id", str, len);
	if (size > OUTBOX_SHORT_STRING_MAX)
		return psprintf("It has %zu bytes in UTF-8; AMQP allows %d.", size,
						OUTBOX_SHORT_STRING_MAX);
	return route_key_reason(fields, route);
}

/* Fills *formatted, and returns how many bytes its headers and properties take. */
static size_t
check_format(const OutboxFields *fields, const OutboxRoute *route,
			 OutboxFormatted *formatted)
{
	const char *reason = format_reason(fields, route, formatted);

	if (reason != NULL)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg_internal("%s", reason),
				 errdetail("Route \"%s\" has the format %s.", route->name,
						   outbox_format_name(route->format))));
	return outbox_format_header_size(formatted);
}

/*
 * If a job of the relay inserts a message that the route's format of today cannot
 * carry, the message fails, and not the job.
 */
void
outbox_check_fields(const OutboxFields *fields, const OutboxRoute *route)
{
	const OutboxFormat *format = fields->accepted ? NULL : route->format;
	OutboxFormatted formatted;
	size_t		header_bytes;

	if (fields->event_type == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
				 errmsg("event_type must not be null")));
	if (VARSIZE_ANY_EXHDR(fields->event_type) == 0)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("event_type must not be empty")));
	if (fields->aggregate_id != NULL &&
		VARSIZE_ANY_EXHDR(fields->aggregate_id) == 0)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("aggregate_id must not be empty"),
				 errhint("Use NULL for a message that has no key.")));

	header_bytes = check_short_string("event_type", fields->event_type);
	header_bytes += check_short_string("aggregate_type", fields->aggregate_type);
	header_bytes += check_short_string("aggregate_id", fields->aggregate_id);
	check_routing_key(fields, route);
	if (is_object("headers", fields->headers))
		header_bytes += 4 + container_size(&fields->headers->root, 1);
	if (is_object("properties", fields->properties))
		header_bytes += check_properties(fields->properties);
	header_bytes += OUTBOX_CONTENT_HEADER + PROPERTY_RESERVE;
	if ((fields->payload == NULL) == (fields->body == NULL))
		ereport(ERROR,
				(errcode(fields->payload == NULL ?
						 ERRCODE_NULL_VALUE_NOT_ALLOWED :
						 ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("exactly one of payload and body must be given"),
				 errhint("For a JSON message without content use 'null'::jsonb or '{}'.")));
	if (format != NULL)
		header_bytes += check_format(fields, route, &formatted);
	if (header_bytes > OUTBOX_FRAME_MAX - OUTBOX_FRAME_OVERHEAD)
		ereport(ERROR,
				(errcode(ERRCODE_PROGRAM_LIMIT_EXCEEDED),
				 errmsg("headers are too large"),
				 errdetail("With the properties they take %zu bytes; one AMQP frame holds %d.",
						   header_bytes, OUTBOX_FRAME_MAX - OUTBOX_FRAME_OVERHEAD),
				 errhint("Put the content into the payload.")));
	check_body(fields, format != NULL ? &formatted : NULL);
}

/*
 * A route that the relay cannot read, because it has no form in UTF-8, would
 * hold up all routes of the database.
 */
void
outbox_check_route(const text *name, const text *exchange,
				   const text *exchange_type, const text *routing_key)
{
	check_short_string("name", name);
	check_short_string("exchange", exchange);
	check_short_string("exchange_type", exchange_type);
	check_short_string("routing_key", routing_key);
}
