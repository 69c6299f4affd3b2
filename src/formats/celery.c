/*-------------------------------------------------------------------------
 *
 * celery.c
 *		Tasks for Celery: the type is what runs, the payload what with.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "format_def.h"

typedef struct Options
{
	bool		one_argument;	/* the payload is one, and not all of them */
} Options;

static const Options defaults;

static const char *
set_payload(void *field, const JsonbValue *value)
{
	static const char *const ways[] = {"arguments", "argument", NULL};
	const char *way = outbox_format_choice(value, ways);

	*(bool *) field = way == ways[1];
	return way == NULL ? "arguments or argument" : NULL;
}

/* What every task has behind its arguments: nothing is to follow it. */
#define CELERY_EMBED \
	"{\"callbacks\": null, \"errbacks\": null, \"chain\": null, \"chord\": null}]"

/*
 * Each header becomes an attribute of the task's request, also where it is not meant
 * to; compression says what the body is to be unpacked with.
 */
static const char *
check_header(const void *options, const char *name, size_t len, bool is_string)
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
put_arguments(const Options *options, const Jsonb *payload, OutboxFormatted *out)
{
	if (options->one_argument || JB_ROOT_IS_SCALAR(payload))
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
	.options = {{"payload", offsetof(Options, one_argument), set_payload}},
	.defaults = &defaults,
	.size = sizeof(Options),
	.message = format_message,
	.header = check_header
};
