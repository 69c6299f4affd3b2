/*-------------------------------------------------------------------------
 *
 * format_jobs.c
 *		Jobs for Celery and Laravel: the type is what runs, the payload what with.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "format_internal.h"

/* ------------------------------------------------------------------- Celery */

/* What every task has behind its arguments: nothing is to follow it. */
#define CELERY_EMBED \
	"{\"callbacks\": null, \"errbacks\": null, \"chain\": null, \"chord\": null}]"

/*
 * Each header becomes an attribute of the task's request, also where it is not meant
 * to; compression says what the body is to be unpacked with.
 */
const char *
outbox_format_celery_header(const char *name, size_t len)
{
	static const char *const refused[] = {
		"args", "kwargs", "callbacks", "errbacks", "chain", "chord", "reply_to",
		"correlation_id", "delivery_info", "properties", "headers", "hostname",
		"retries", "timelimit", "stamped_headers", "stamps", "taskset", "utc",
		"compression", "called_directly", "is_eager", "replaced_task_nesting", NULL
	};

	return outbox_format_is_one_of(name, len, refused) ?
		"headers have a name that Celery takes for a part of the task or of its body" : NULL;
}

/* The body is [args, kwargs, embed] of version 2 of its protocol. */
static void
put_arguments(const OutboxFormat *format, const Jsonb *payload, OutboxFormatted *out)
{
	if (format->one_argument || JB_ROOT_IS_SCALAR(payload))
	{
		out->prefix = "[[";
		out->suffix = "], {}, " CELERY_EMBED;
	}
	else if (JB_ROOT_IS_ARRAY(payload))
	{
		out->prefix = "[";
		out->suffix = ", {}, " CELERY_EMBED;
	}
	else
	{
		out->prefix = "[[], ";
		out->suffix = ", " CELERY_EMBED;
	}
}

const char *
outbox_format_celery(const OutboxFormat *format, const OutboxFormatMessage *message,
					 OutboxFormatted *out)
{
	const char *reason = outbox_format_needs_payload(format, message);
	int			n;

	if (reason != NULL)
		return reason;
	outbox_format_add_header(out, "lang", "py");
	outbox_format_add_header(out, "task", outbox_format_types(format, message, &n)[0]);
	outbox_format_add_header(out, "id", message->id);
	outbox_format_add_header(out, "root_id", message->id);
	/* Its name is compared, so that nothing may stand behind it. */
	out->content_type = "application/json";
	out->content_encoding = "utf-8";
	if (message->correlation_id == NULL)
		out->correlation_id = message->id;
	put_arguments(format, message->payload, out);
	return NULL;
}

/* ------------------------------------------------------------------ Laravel */

/* Its table counts the attempts. */
const char *
outbox_format_laravel_header(const char *name, size_t len)
{
	static const char *const refused[] = {"laravel", NULL};

	return outbox_format_is_one_of(name, len, refused) ?
		"headers must not have laravel, in which Laravel's queue counts attempts" : NULL;
}

/*
 * A job of a class and method of the consumer's, as serialized objects are for PHP
 * alone to make.  What runs is the type; people see it without the method.
 */
const char *
outbox_format_laravel(const OutboxFormat *format, const OutboxFormatMessage *message,
					  OutboxFormatted *out)
{
	const char *reason = outbox_format_needs_payload(format, message);
	const char *job;
	int			n;
	StringInfoData json;

	if (reason != NULL)
		return reason;
	job = outbox_format_types(format, message, &n)[0];
	initStringInfo(&json);
	appendStringInfoChar(&json, '{');
	outbox_format_put_member(&json, "uuid", message->id);
	outbox_format_put_member(&json, "id", message->id);
	outbox_format_put_member(&json, "displayName", pnstrdup(job, strcspn(job, "@")));
	outbox_format_put_member(&json, "job", job);
	appendStringInfoString(&json,
						   ", \"maxTries\": null, \"maxExceptions\": null, \"failOnTimeout\": false"
						   ", \"backoff\": null, \"timeout\": null, \"data\": ");
	out->prefix = json.data;
	out->suffix = "}";
	out->content_type = "application/json";
	if (message->correlation_id == NULL)
		out->correlation_id = message->id;
	return NULL;
}
