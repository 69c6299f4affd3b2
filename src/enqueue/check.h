/*-------------------------------------------------------------------------
 *
 * check.h
 *		What a message and a route must be, checked when they are written.
 *
 *-------------------------------------------------------------------------
 */
#ifndef OUTBOX_CHECK_H
#define OUTBOX_CHECK_H

#include "datatype/timestamp.h"
#include "route.h"
#include "utils/jsonb.h"
#include "utils/uuid.h"

/* How deep headers may nest; the object itself is depth 1. */
#define OUTBOX_MAX_HEADER_DEPTH 8

/* A message as SQL values; NULL where the column is. */
typedef struct OutboxFields
{
	text	   *event_type;
	text	   *aggregate_type;
	text	   *aggregate_id;
	text	   *routing_key;
	Jsonb	   *payload;
	bytea	   *body;
	Jsonb	   *headers;
	Jsonb	   *properties;
	const pg_uuid_t *id;		/* what formats put into the message, too */
	TimestampTz created_at;
	bool		accepted;		/* before, when its route may have had another format */
} OutboxFields;

/*
 * Raises an error that names the argument when RabbitMQ or the protocol would
 * refuse the message, or when it breaks a rule of this extension.
 */
extern void outbox_check_fields(const OutboxFields *fields,
								const OutboxRoute *route);

/*
 * Why such a message cannot have its aggregate_id, which is not NULL: a sentence; NULL:
 * it can.
 */
extern const char *outbox_key_reason(const OutboxFields *fields,
									 const OutboxRoute *route);

/* Bytes of its body, which is a payload; somewhere above outbox.max_message_size if more. */
extern size_t outbox_payload_size(const OutboxFields *fields,
								  const OutboxRoute *route);

/* A copy in UTF-8, NULL for NULL. */
extern char *outbox_utf8_or_null(const text *value);

/* The like for the columns of outbox_route; NULL where the column is. */
extern void outbox_check_route(const text *name, const text *exchange,
							   const text *exchange_type,
							   const text *routing_key);

#endif							/* OUTBOX_CHECK_H */
