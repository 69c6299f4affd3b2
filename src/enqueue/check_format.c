/*-------------------------------------------------------------------------
 *
 * check_format.c
 *		Can a message be sent in the format of its route?
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "enqueue_internal.h"
#include "message.h"
#include "utils/builtins.h"
#include "utils/uuid.h"

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

static const char *
id_text(const pg_uuid_t *id)
{
	static const pg_uuid_t nil;

	/* It has to have one; that is said where it is stored. */
	return outbox_id_text(id != NULL ? id : &nil);
}

const char *
outbox_format_reason(const OutboxFields *fields, const OutboxRoute *route,
					 OutboxFormatted *formatted)
{
	OutboxFormatMessage message = {
		.id = id_text(fields->id),
		.event_type = outbox_utf8_or_null(fields->event_type),
		.aggregate_type = outbox_utf8_or_null(fields->aggregate_type),
		.aggregate_id = outbox_utf8_or_null(fields->aggregate_id),
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
outbox_check_format(const OutboxFields *fields, const OutboxRoute *route,
					OutboxFormatted *formatted)
{
	const char *reason = outbox_format_reason(fields, route, formatted);

	if (reason != NULL)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg_internal("%s", reason),
				 errdetail("Route \"%s\" has the format %s.", route->name,
						   outbox_format_name(route->format))));
	return outbox_format_header_size(formatted);
}
