/*-------------------------------------------------------------------------
 *
 * cap.c
 *		Messages for CAP: everything is in the headers, and the body is the JSON of what
 *		is consumed.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "encode_json.h"
#include "format_def.h"

/* With some of its headers it takes a message for one that has failed or is delayed. */
static const char *const refused[] = {
	"cap-exception", "cap-exec-instance-id", "cap-delaytime", "cap-msg-group", NULL
};

static const char *
format_message(const void *options, const OutboxFormatMessage *message,
			   const OutboxFormatType *type, OutboxFormatted *out)
{
	outbox_format_add_header(out, "cap-msg-id", message->id);
	outbox_format_add_header(out, "cap-msg-name", type->names[0]);
	outbox_format_add_header(out, "cap-msg-type", message->event_type);
	outbox_format_add_header(out, "cap-senttime", outbox_rfc3339(message->created_at));
	outbox_format_add_header(out, "cap-corr-id", message->correlation_id != NULL ?
							 message->correlation_id : message->id);
	outbox_format_add_header(out, "cap-corr-seq", "0");
	return NULL;
}

const OutboxFormatDef outbox_format_cap = {
	.name = "cap",
	.needs_payload = true,
	.max_names = 1,
	.message = format_message,
	.refused = refused,
	.refused_reason = "headers must not have cap-exception, cap-exec-instance-id, cap-delaytime or cap-msg-group, which CAP's consumer sets"
};
