/*-------------------------------------------------------------------------
 *
 * nservicebus.c
 *		Messages for NServiceBus: everything is in the headers.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "encode_json.h"
#include "format_def.h"
#include "format_text.h"

typedef struct Options
{
	const char *intent;
	const char *endpoint;		/* NULL: not said */
} Options;

static const Options defaults = {.intent = "Publish"};

static const char *const intents[] = {"Publish", "Send", NULL};

/* 2026-11-22 23:59:59:123456 Z, as all of its versions read it. */
static const char *
time_sent(TimestampTz time)
{
	char	   *text = outbox_rfc3339(time);

	if (text == NULL)
		return NULL;
	text[10] = ' ';
	text[19] = ':';
	text[26] = '\0';
	return psprintf("%s Z", text);
}

static const char *
enclosed_types(const OutboxFormatType *type)
{
	StringInfoData list;

	initStringInfo(&list);
	for (int i = 0; i < type->nnames; i++)
		appendStringInfo(&list, "%s%s", i > 0 ? ";" : "", type->names[i]);
	return list.data;
}

/* It reads the headers of the trace by W3C's names. */
static const char *
format_message(const void *opts, const OutboxFormatMessage *message,
			   const OutboxFormatType *type, OutboxFormatted *out)
{
	const Options *options = opts;
	const char *conversation = message->correlation_id != NULL ?
		message->correlation_id : message->id;

	outbox_format_add_header(out, "NServiceBus.MessageId", message->id);
	outbox_format_add_header(out, "NServiceBus.EnclosedMessageTypes",
							 enclosed_types(type));
	outbox_format_add_header(out, "NServiceBus.MessageIntent", options->intent);
	outbox_format_add_header(out, "NServiceBus.ConversationId", conversation);
	outbox_format_add_header(out, "NServiceBus.CorrelationId", conversation);
	outbox_format_add_header(out, "NServiceBus.TimeSent",
							 time_sent(message->created_at));
	outbox_format_add_header(out, "NServiceBus.ContentType",
							 outbox_format_content_type(message));
	outbox_format_add_header(out, "NServiceBus.OriginatingEndpoint", options->endpoint);
	return NULL;
}

const OutboxFormatDef outbox_format_nservicebus = {
	.name = "nservicebus",
	.max_names = 100,
	.options = {
		{"intent", offsetof(Options, intent), "Publish or Send", intents},
		{"endpoint", offsetof(Options, endpoint),
			"a string that is not empty and has no control characters",
		.is_valid = outbox_is_attribute_text}
	},
	.defaults = &defaults,
	.size = sizeof(Options),
	.message = format_message
};
