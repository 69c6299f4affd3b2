/*-------------------------------------------------------------------------
 *
 * celery.c
 *		Tasks for Celery: the type is what runs, the payload what with.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "format_def.h"

/* What the payload is. */
static const char *const ways[] = {"arguments", "argument", NULL};

typedef struct Options
{
	const char *payload;		/* one of ways; NULL: the first */
} Options;

static const Options defaults;

/* What every task has behind its arguments: nothing is to follow it. */
#define CELERY_EMBED \
	"{\"callbacks\": null, \"errbacks\": null, \"chain\": null, \"chord\": null}]"

/*
 * Each header becomes an attribute of the task's request, also where it is not meant
 * to; compression says what the body is to be unpacked with.
 */
static const char *const refused[] = {
	"args", "kwargs", "callbacks", "errbacks", "chain", "chord", "reply_to",
	"correlation_id", "delivery_info", "properties", "headers", "hostname",
	"retries", "timelimit", "stamped_headers", "stamps", "taskset", "utc",
	"compression", "called_directly", "is_eager", "replaced_task_nesting", NULL
};

/* The body is [args, kwargs, embed] of version 2 of its protocol. */
static void
put_arguments(const Options *options, const Jsonb *payload, OutboxFormatted *out)
{
	if (options->payload == ways[1] || JB_ROOT_IS_SCALAR(payload))
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

static const char *
format_message(const void *options, const OutboxFormatMessage *message,
			   const OutboxFormatType *type, OutboxFormatted *out)
{
	outbox_format_add_header(out, "lang", "py");
	outbox_format_add_header(out, "task", type->names[0]);
	outbox_format_add_header(out, "id", message->id);
	outbox_format_add_header(out, "root_id", message->id);
	/* Its name is compared, so that nothing may stand behind it. */
	out->content_type = "application/json";
	out->content_encoding = "utf-8";
	if (message->correlation_id == NULL)
		out->correlation_id = message->id;
	put_arguments(options, message->payload, out);
	return NULL;
}

const OutboxFormatDef outbox_format_celery = {
	.name = "celery",
	.names_code = true,
	.needs_payload = true,
	.max_names = 1,
	.options = {{"payload", offsetof(Options, payload), "arguments or argument", ways}},
	.defaults = &defaults,
	.size = sizeof(Options),
	.message = format_message,
	.refused = refused,
	.refused_reason = "headers have a name that Celery takes for a part of the task or of its body"
};
