/*-------------------------------------------------------------------------
 *
 * laravel.c
 *		Jobs for Laravel: the type is what runs, the payload what with.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "format_def.h"

static const char *const refused[] = {"laravel", NULL};

/*
 * A job of a class and method of the consumer's, as serialized objects are for PHP
 * alone to make.  What runs is the type; people see it without the method.
 */
static const char *
format_message(const void *options, const OutboxFormatMessage *message,
			   const OutboxFormatType *type, OutboxFormatted *out)
{
	const char *job = type->names[0];
	StringInfoData json;

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

const OutboxFormatDef outbox_format_laravel = {
	.name = "laravel",
	.names_code = true,
	.needs_payload = true,
	.max_names = 1,
	.message = format_message,
	.refused = refused,
	.refused_reason = "headers must not have laravel, in which Laravel's queue counts attempts"
};
