/*-------------------------------------------------------------------------
 *
 * masstransit.c
 *		Messages for MassTransit: its envelope around the payload.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "encode_json.h"
#include "format_def.h"
#include "format_text.h"
#include "mb/pg_wchar.h"

static const char *const addresses[] = {
	"sourceAddress", "destinationAddress", "responseAddress", "faultAddress"
};

#define ADDRESS(i, name) \
	{name, offsetof(Options, addresses[i]), \
		"an absolute URI (RFC 3986) like rabbitmq://host/vhost/exchange", \
		.is_valid = outbox_is_absolute_uri}

typedef struct Options
{
	const char *addresses[lengthof(addresses)]; /* NULL: none */
} Options;

static const Options defaults;

/* Names of types are URNs; a name that is none gets what theirs begin with. */
static void
put_message_types(StringInfo json, const OutboxFormatType *type)
{
	appendStringInfoString(json, ", \"messageType\": [");
	for (int i = 0; i < type->nnames; i++)
	{
		const char *urn = strncmp(type->names[i], "urn:", 4) == 0 ?
			type->names[i] : psprintf("urn:message:%s", type->names[i]);

		if (i > 0)
			appendStringInfoString(json, ", ");
		outbox_encode_json_string(json, urn, strlen(urn));
	}
	appendStringInfoChar(json, ']');
}

/* Appends a JSON value as UTF-8. */
static void
put_json(StringInfo json, const Jsonb *value)
{
	StringInfoData text;

	initStringInfo(&text);
	outbox_encode_json(&text, value);
	appendStringInfoString(json, pg_server_to_any(text.data, text.len, PG_UTF8));
}

/*
 * The envelope.  Its ids have to be GUIDs: correlation_id goes in if it is one.  What
 * the application's headers are to MassTransit is in it, too; those of AMQP are the
 * transport's, and of them it reads the trace context alone, by a name of its own.
 */
static const char *
format_message(const void *opts, const OutboxFormatMessage *message,
			   const OutboxFormatType *type, OutboxFormatted *out)
{
	const Options *options = opts;
	const char *guid = message->correlation_id != NULL &&
		outbox_is_uuid(message->correlation_id) ? message->correlation_id : NULL;
	StringInfoData json;

	if (outbox_is_json_null(message->payload))
		return "payload must not be null in the format masstransit";
	initStringInfo(&json);
	appendStringInfoChar(&json, '{');
	outbox_format_put_member(&json, "messageId", message->id);
	outbox_format_put_member(&json, "correlationId", guid);
	outbox_format_put_member(&json, "conversationId", guid != NULL ? guid : message->id);
	for (int i = 0; i < (int) lengthof(addresses); i++)
		outbox_format_put_member(&json, addresses[i], options->addresses[i]);
	put_message_types(&json, type);
	outbox_format_put_member(&json, "sentTime", outbox_rfc3339(message->created_at));
	appendStringInfoString(&json, ", \"headers\": ");
	if (message->headers != NULL)
		put_json(&json, message->headers);
	else
		appendStringInfoString(&json, "{}");
	appendStringInfoString(&json, ", \"message\": ");
	out->prefix = json.data;
	out->suffix = "}";
	out->content_type = "application/vnd.masstransit+json";
	outbox_format_add_header(out, "MT-Activity-Id",
							 outbox_format_traceparent(message));
	return NULL;
}

const OutboxFormatDef outbox_format_masstransit = {
	.name = "masstransit",
	.needs_payload = true,
	.max_names = 100,
	.options = {
		ADDRESS(0, "sourceAddress"),
		ADDRESS(1, "destinationAddress"),
		ADDRESS(2, "responseAddress"),
		ADDRESS(3, "faultAddress")
	},
	.defaults = &defaults,
	.size = sizeof(Options),
	.message = format_message
};
