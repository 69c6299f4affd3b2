/*-------------------------------------------------------------------------
 *
 * format_internal.h
 *		What the files of the formats share; format*.c only.
 *
 *-------------------------------------------------------------------------
 */
#ifndef OUTBOX_FORMAT_INTERNAL_H
#define OUTBOX_FORMAT_INTERNAL_H

#include "format.h"
#include "lib/stringinfo.h"

/*
 * What names of attributes begin with in headers: as the binding to AMQP says, with
 * ':' as all SDKs read it, or with '_' for JMS; and as Knative's for RabbitMQ says.
 */
#define OUTBOX_CLOUDEVENTS_PREFIXES "cloudEvents:", "cloudEvents_", "ce-"

/* A template with what the message has. */
extern char *outbox_format_render(const char *template,
								  const OutboxFormatMessage *message);

/* The names of its type, at least one; each may be the empty string. */
extern const char *const *outbox_format_types(const OutboxFormat *format,
											  const OutboxFormatMessage *message,
											  int *n);

/* A NULL text is no header. */
extern void outbox_format_add_header(OutboxFormatted *out, const char *name,
									 const char *text);

/* ', "name": "text"' as JSON; nothing for a NULL text. */
extern void outbox_format_put_member(StringInfo json, const char *name,
									 const char *text);

/* The kinds, in functions like outbox_format_message() and ..._check_header(). */
extern const char *outbox_format_cloudevents(const OutboxFormat *format,
											 const OutboxFormatMessage *message,
											 OutboxFormatted *out);
extern const char *outbox_format_cloudevents_header(const OutboxFormat *format,
													const char *name, size_t len,
													bool is_string);

#endif							/* OUTBOX_FORMAT_INTERNAL_H */
