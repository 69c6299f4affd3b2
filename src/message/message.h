/*-------------------------------------------------------------------------
 *
 * message.h
 *		Plain structs that travel between the stages of the relay.
 *
 * store.c fills them from rows, relay.c decides about them, broker.c and
 * encode.c put them on the wire.  No SPI and no AMQP type appears here.
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
 * One claimed row.  A message is a single chunk of memory: the strings, the
 * jsonb values and the body follow the struct and die with it.
 *
 * All strings are NUL-terminated UTF-8 whatever the database's encoding is,
 * because that is what AMQP short strings and JSON bodies are defined to be;
 * the jsonb values still hold the database's encoding.
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
