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
#include "storage/itemptr.h"
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
	int64		origin;			/* where it was enqueued, see identity.h */
	size_t		size;			/* bytes of this chunk, for the byte limits */
} OutboxMessage;

/*
 * Of available_at.  0 stands for none, so that the first microsecond of the year 2000, which is
 * that, counts as the one before.  Where rows are compared with it, it stays what it is.
 */
static inline TimestampTz
outbox_due_time(TimestampTz at)
{
	return at == 0 ? -1 : at;
}

/* An id as text.  Each message that is sent needs it, and uuid_out() is slower. */
static inline char *
outbox_id_text(const pg_uuid_t *id)
{
	static const char digits[] = "0123456789abcdef";
	char	   *text = palloc(2 * UUID_LEN + 5);
	char	   *out = text;

	for (int i = 0; i < UUID_LEN; i++)
	{
		if (i == 4 || i == 6 || i == 8 || i == 10)
			*out++ = '-';
		*out++ = digits[id->data[i] >> 4];
		*out++ = digits[id->data[i] & 0x0f];
	}
	*out = '\0';
	return text;
}

/*
 * A key is (route, aggregate_type, aggregate_id).  By this hash keys are divided
 * among workers and found in indexes, where the route is compared too: an aggregate_id can
 * be chosen for any hash.  The SQL function outbox_key_hash() gives the same.
 * aggregate_type may be NULL.
 */
extern int64 outbox_hash_key(const text *route, const text *aggregate_type,
							 const text *aggregate_id);

#endif							/* OUTBOX_MESSAGE_H */
