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

#include "amqp_limits.h"
#include "catalog/namespace.h"
#include "compat.h"
#include "encode_json.h"
#include "enqueue_internal.h"
#include "format.h"
#include "mb/pg_wchar.h"
#include "message.h"
#include "settings.h"
#include "utils/builtins.h"

/*
 * Content type, delivery mode, message id, timestamp, aggregate headers' own; of a
 * later attempt x-outbox-attempts and x-first-enqueued.
 */
#define PROPERTY_RESERVE		(1 + 24 + 1 + 37 + 8 + 64 + 27 + 49)

/* The conversion's own errors do not know what the text is. */
static void
name_argument(void *arg)
{
	errcontext("converting %s to UTF-8", (const char *) arg);
}

size_t
outbox_utf8_length(const char *argument, const char *str, size_t len)
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

size_t
outbox_short_length(const char *argument, const char *str, size_t len)
{
	len = outbox_utf8_length(argument, str, len);
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
		outbox_short_length(argument, VARDATA_ANY(value), VARSIZE_ANY_EXHDR(value));
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

		size = outbox_utf8_length("payload", str, strlen(str));
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
outbox_payload_size(const OutboxFields *fields, const OutboxRoute *route, bool longest)
{
	OutboxFormatted formatted;
	OutboxFields stored = *fields;

	/* The row trigger's, which a format may put into the body. */
	stored.headers = outbox_trace_headers(stored.headers);
	if (longest && route->numbering != OUTBOX_NUMBER_NONE)
		stored.headers = outbox_numbered_headers(stored.headers, PG_INT64_MAX, PG_INT64_MAX);
	/* What the format cannot carry is refused as such. */
	if (route->format != NULL && format_reason(&stored, route, &formatted) != NULL)
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
	size = outbox_utf8_length("aggregate_id", str, len);
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
		header_bytes += 4 + outbox_check_headers(fields->headers);
	if (is_object("properties", fields->properties))
		header_bytes += outbox_check_properties(fields->properties);
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
