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

/* What they are called in the table. */
#define OUTBOX_FORMAT_KINDS (OUTBOX_FORMAT_LARAVEL + 1)
extern const char *const outbox_format_kinds[OUTBOX_FORMAT_KINDS];

/* A template with what the message has. */
extern char *outbox_format_render(const char *template,
								  const OutboxFormatMessage *message);

/* The names of its type, at least one; each may be the empty string. */
extern const char *const *outbox_format_types(const OutboxFormat *format,
											  const OutboxFormatMessage *message,
											  int *n);

/* The header traceparent, if it is one; else NULL. */
extern const char *outbox_format_traceparent(const OutboxFormatMessage *message);

/* A NULL text is no header. */
extern void outbox_format_add_header(OutboxFormatted *out, const char *name,
									 const char *text);

/* ', "name": "text"' as JSON; nothing for a NULL text. */
extern void outbox_format_put_member(StringInfo json, const char *name,
									 const char *text);

/* Appends a JSON value as UTF-8. */
extern void outbox_format_put_json(StringInfo json, const Jsonb *value);

/*
 * What the formats ask whose body is a JSON document around the payload: NULL, or why
 * that cannot be.
 */
extern const char *outbox_format_needs_payload(const OutboxFormat *format,
											   const OutboxFormatMessage *message);

/* The kinds, in functions like outbox_format_message() and ..._check_header(). */
extern const char *outbox_format_cloudevents(const OutboxFormat *format,
											 const OutboxFormatMessage *message,
											 OutboxFormatted *out);
extern const char *outbox_format_cloudevents_header(const OutboxFormat *format,
													const char *name, size_t len,
													bool is_string);
extern const char *outbox_format_masstransit(const OutboxFormat *format,
											 const OutboxFormatMessage *message,
											 OutboxFormatted *out);
extern const char *outbox_format_nservicebus(const OutboxFormat *format,
											 const OutboxFormatMessage *message,
											 OutboxFormatted *out);
extern const char *outbox_format_cap(const OutboxFormat *format,
									 const OutboxFormatMessage *message,
									 OutboxFormatted *out);
extern const char *outbox_format_cap_header(const char *name, size_t len);
extern const char *outbox_format_celery(const OutboxFormat *format,
										const OutboxFormatMessage *message,
										OutboxFormatted *out);
extern const char *outbox_format_celery_header(const char *name, size_t len);
extern const char *outbox_format_laravel(const OutboxFormat *format,
										 const OutboxFormatMessage *message,
										 OutboxFormatted *out);
extern const char *outbox_format_laravel_header(const char *name, size_t len);

/* Is it one of these, which end with NULL? */
extern bool outbox_format_is_one_of(const char *name, size_t len,
									const char *const *names);

#endif							/* OUTBOX_FORMAT_INTERNAL_H */
