/*-------------------------------------------------------------------------
 *
 * format_dotnet.c
 *		Messages for MassTransit, NServiceBus and CAP.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "encode_json.h"
#include "format_internal.h"
#include "format_text.h"
#include "rfc3339.h"

/* -------------------------------------------------------------- MassTransit */

/* Names of types are URNs; a name that is none gets what theirs begin with. */
static void
put_message_types(StringInfo json, const char *const *names, int n)
{
	appendStringInfoString(json, ", \"messageType\": [");
	for (int i = 0; i < n; i++)
	{
		const char *urn = strncmp(names[i], "urn:", 4) == 0 ? names[i] :
			psprintf("urn:message:%s", names[i]);

		if (i > 0)
			appendStringInfoString(json, ", ");
		outbox_encode_json_string(json, urn, strlen(urn));
	}
	appendStringInfoChar(json, ']');
}

/*
 * The envelope.  Its ids have to be GUIDs: correlation_id goes in if it is one.  What
 * the application's headers are to MassTransit is in it, too; those of AMQP are the
 * transport's, and of them it reads the trace context alone, by a name of its own.
 */
const char *
outbox_format_masstransit(const OutboxFormat *format,
						  const OutboxFormatMessage *message, OutboxFormatted *out)
{
	static const char *const addresses[OUTBOX_MASSTRANSIT_ADDRESSES] = {
		"sourceAddress", "destinationAddress", "responseAddress", "faultAddress"
	};
	const char *reason = outbox_format_needs_payload(format, message);
	const char *guid = message->correlation_id != NULL &&
		outbox_is_uuid(message->correlation_id) ? message->correlation_id : NULL;
	const char *const *names;
	int			n;
	StringInfoData json;

	if (reason != NULL)
		return reason;
	if (outbox_is_json_null(message->payload))
		return "payload must not be null in the format masstransit";
	names = outbox_format_types(format, message, &n);
	initStringInfo(&json);
	appendStringInfoChar(&json, '{');
	outbox_format_put_member(&json, "messageId", message->id);
	outbox_format_put_member(&json, "correlationId", guid);
	outbox_format_put_member(&json, "conversationId", guid != NULL ? guid : message->id);
	for (int i = 0; i < OUTBOX_MASSTRANSIT_ADDRESSES; i++)
		outbox_format_put_member(&json, addresses[i], format->addresses[i]);
	put_message_types(&json, names, n);
	outbox_format_put_member(&json, "sentTime", outbox_rfc3339(message->created_at));
	appendStringInfoString(&json, ", \"headers\": ");
	if (message->headers != NULL)
		outbox_format_put_json(&json, message->headers);
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

/* -------------------------------------------------------------- NServiceBus */

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
enclosed_types(const char *const *names, int n)
{
	StringInfoData list;

	initStringInfo(&list);
	for (int i = 0; i < n; i++)
		appendStringInfo(&list, "%s%s", i > 0 ? ";" : "", names[i]);
	return list.data;
}

/* Everything is in the headers.  It reads those of the trace by W3C's names. */
const char *
outbox_format_nservicebus(const OutboxFormat *format,
						  const OutboxFormatMessage *message, OutboxFormatted *out)
{
	const char *conversation = message->correlation_id != NULL ?
		message->correlation_id : message->id;
	int			n;
	const char *const *names = outbox_format_types(format, message, &n);

	outbox_format_add_header(out, "NServiceBus.MessageId", message->id);
	outbox_format_add_header(out, "NServiceBus.EnclosedMessageTypes",
							 enclosed_types(names, n));
	outbox_format_add_header(out, "NServiceBus.MessageIntent", format->intent);
	outbox_format_add_header(out, "NServiceBus.ConversationId", conversation);
	outbox_format_add_header(out, "NServiceBus.CorrelationId", conversation);
	outbox_format_add_header(out, "NServiceBus.TimeSent",
							 time_sent(message->created_at));
	outbox_format_add_header(out, "NServiceBus.ContentType",
							 message->content_type != NULL ? message->content_type :
							 message->payload != NULL ? "application/json" :
							 "application/octet-stream");
	outbox_format_add_header(out, "NServiceBus.OriginatingEndpoint", format->endpoint);
	return NULL;
}

/* ---------------------------------------------------------------------- CAP */

/* With some of its headers it takes a message for one that has failed or is delayed. */
const char *
outbox_format_cap_header(const char *name, size_t len)
{
	static const char *const refused[] = {
		"cap-exception", "cap-exec-instance-id", "cap-delaytime", "cap-msg-group", NULL
	};

	return outbox_format_is_one_of(name, len, refused) ?
		"headers must not have cap-exception, cap-exec-instance-id, cap-delaytime or cap-msg-group, which CAP's consumer sets" : NULL;
}

/* Everything is in the headers, and the body is the JSON of what is consumed. */
const char *
outbox_format_cap(const OutboxFormat *format, const OutboxFormatMessage *message,
				  OutboxFormatted *out)
{
	const char *reason = outbox_format_needs_payload(format, message);
	int			n;

	outbox_format_add_header(out, "cap-msg-id", message->id);
	outbox_format_add_header(out, "cap-msg-name",
							 outbox_format_types(format, message, &n)[0]);
	outbox_format_add_header(out, "cap-msg-type", message->event_type);
	outbox_format_add_header(out, "cap-senttime", outbox_rfc3339(message->created_at));
	outbox_format_add_header(out, "cap-corr-id", message->correlation_id != NULL ?
							 message->correlation_id : message->id);
	outbox_format_add_header(out, "cap-corr-seq", "0");
	return reason;
}
