/*-------------------------------------------------------------------------
 *
 * message.h
 *		Plain structs that travel between the stages of the relay.
 *
 * The store fills them from rows, and the broker puts them on the wire.
 *
 *-------------------------------------------------------------------------
 */
#ifndef OUTBOX_MESSAGE_H
#define OUTBOX_MESSAGE_H

#include "datatype/timestamp.h"
#include "fmgr.h"
#include "storage/itemptr.h"
#include "utils/fmgrprotos.h"
#include "utils/jsonb.h"
#include "utils/uuid.h"

/*
 * One claimed row, in a single chunk of memory with its strings, jsonb values and body.
 * Strings are NUL-terminated UTF-8, as AMQP and JSON ask for; the jsonb values have the
 * database's encoding.
 */
typedef struct OutboxMessage
{
	int64		seq;			/* order of enqueue */
	pg_uuid_t	id;				/* the AMQP message_id */
	ItemPointerData tid;		/* where the row was when it was claimed */
	int64		key_hash;		/* of the key; 0 when aggregate_id is NULL */
	int32		attempts;		/* failed attempts so far */
	TimestampTz created_at;
	TimestampTz available_at;	/* 0 when the row had NULL */
	TimestampTz ready_at;		/* since when it could have been published */
	const char *route;
	const char *event_type;
	const char *aggregate_type; /* NULL when the row had NULL */
	const char *aggregate_id;	/* NULL when the row had NULL */
	const char *routing_key;	/* NULL: the route's template decides */
	Jsonb	   *payload;		/* exactly one of payload and body is set */
	const char *body;
	size_t		body_len;		/* bytes of body; 0 when payload is set */
	Jsonb	   *headers;		/* NULL or an object */
	Jsonb	   *properties;		/* NULL or an object */
	int64		origin;			/* where it was enqueued, see origin.h */
	size_t		size;			/* bytes of this chunk, for the byte limits */
} OutboxMessage;

/* An id as text. */
static inline char *
outbox_id_text(const pg_uuid_t *id)
{
	return DatumGetCString(DirectFunctionCall1(uuid_out, UUIDPGetDatum(id)));
}

#endif							/* OUTBOX_MESSAGE_H */
