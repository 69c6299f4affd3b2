/*-------------------------------------------------------------------------
 *
 * store_message.c
 *		From a row in a slot to a message in one chunk of memory.
 *
 * Called by the executor for each row of a claim, in a scratch context that the
 * caller resets.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/commit_ts.h"
#include "compat.h"
#include "key.h"
#include "mb/pg_wchar.h"
#include "store.h"
#include "store_internal.h"
#include "utils/builtins.h"
#include "utils/memutils.h"
#include "utils/timestamp.h"


/* A value on its way into a message's chunk. */
typedef struct Part
{
	const void *data;			/* NULL: absent */
	size_t		len;
} Part;

static Part
text_part(TupleTableSlot *slot, int column)
{
	Part		part = {NULL, 0};
	text	   *value;
	char	   *str;

	if (slot->tts_isnull[column])
		return part;
	value = DatumGetTextPP(slot->tts_values[column]);
	str = VARDATA_ANY(value);
	part.len = VARSIZE_ANY_EXHDR(value);
	part.data = str;
	if (GetDatabaseEncoding() != PG_UTF8)
	{
		char	   *utf8 = pg_server_to_any(str, (int) part.len, PG_UTF8);

		if (utf8 != str)
		{
			part.data = utf8;
			part.len = strlen(utf8);
		}
	}
	return part;
}

static Part
jsonb_part(TupleTableSlot *slot, int column)
{
	Part		part = {NULL, 0};

	if (!slot->tts_isnull[column])
	{
		part.data = DatumGetJsonbP(slot->tts_values[column]);
		part.len = VARSIZE(part.data);
	}
	return part;
}

static Part
bytes_part(TupleTableSlot *slot, int column)
{
	Part		part = {NULL, 0};

	if (!slot->tts_isnull[column])
	{
		bytea	   *value = DatumGetByteaPP(slot->tts_values[column]);

		part.data = VARDATA_ANY(value);
		part.len = VARSIZE_ANY_EXHDR(value);
	}
	return part;
}

/* Copies a part to *p and moves it on; strings get their NUL. */
static char *
put_part(char **p, Part part, bool string)
{
	char	   *start = *p;

	if (part.data == NULL)
		return NULL;
	memcpy(start, part.data, part.len);
	if (string)
		start[part.len] = '\0';
	*p += string ? part.len + 1 : MAXALIGN(part.len);
	return start;
}

int64
outbox_store_key_hash(TupleTableSlot *slot, int route_column, int type_column,
					  int id_column)
{
	if (slot->tts_isnull[id_column])
		return 0;
	return outbox_hash_key(DatumGetTextPP(slot->tts_values[route_column]),
						   slot->tts_isnull[type_column] ? NULL :
						   DatumGetTextPP(slot->tts_values[type_column]),
						   DatumGetTextPP(slot->tts_values[id_column]));
}

/* In this order: what must be aligned comes first. */
#define NPARTS			9
#define PART_PAYLOAD	0
#define PART_HEADERS	1
#define PART_PROPERTIES 2
#define PART_BODY		3
#define PART_STRINGS	4		/* the rest */

static void
put_parts(OutboxMessage *message, const Part *parts)
{
	char	   *p = (char *) message + MAXALIGN(sizeof(OutboxMessage));

	message->payload = (Jsonb *) put_part(&p, parts[PART_PAYLOAD], false);
	message->headers = (Jsonb *) put_part(&p, parts[PART_HEADERS], false);
	message->properties = (Jsonb *) put_part(&p, parts[PART_PROPERTIES], false);
	message->body = put_part(&p, parts[PART_BODY], false);
	message->body_len = parts[PART_BODY].len;
	message->route = put_part(&p, parts[PART_STRINGS], true);
	message->event_type = put_part(&p, parts[PART_STRINGS + 1], true);
	message->aggregate_type = put_part(&p, parts[PART_STRINGS + 2], true);
	message->aggregate_id = put_part(&p, parts[PART_STRINGS + 3], true);
	message->routing_key = put_part(&p, parts[PART_STRINGS + 4], true);
	Assert((size_t) (p - (char *) message) <= message->size);
}

void
outbox_store_require(TupleTableSlot *slot, const int *columns, int n)
{
	for (int i = 0; i < n; i++)
		if (slot->tts_isnull[columns[i]])
			ereport(ERROR,
					(errcode(ERRCODE_NOT_NULL_VIOLATION),
					 errmsg("a message in the table \"outbox\" has no %s",
							NameStr(TupleDescAttr(slot->tts_tupleDescriptor,
												  columns[i])->attname)),
					 errhint("Give it a value or delete the row, and restore the column's NOT NULL.")));
}

/*
 * When the transaction committed that wrote a row, where the server keeps that;
 * many rows have the same.
 */
static TimestampTz
committed_at(TransactionId xid, TimestampTz otherwise)
{
	static TransactionId last_xid = InvalidTransactionId;
	static TimestampTz last = 0;

	if (!track_commit_timestamp || !TransactionIdIsNormal(xid))
		return otherwise;
	if (xid != last_xid)
	{
		if (!TransactionIdGetCommitTsData(xid, &last, NULL))
			last = 0;
		last_xid = xid;
	}
	return last == 0 ? otherwise : last;
}

/* A failed attempt has written its row anew; what counts is the first one. */
static TimestampTz
ready_at(const OutboxMessage *message, TransactionId xid)
{
	if (message->attempts > 0)
		return message->created_at;
	return Max(committed_at(xid, message->created_at), message->available_at);
}

/* Called in the scratch context; the message goes to cxt. */
OutboxMessage *
outbox_store_message(TupleTableSlot *slot, MemoryContext cxt)
{
	static const int required[] = {
		CLAIM_SEQ, CLAIM_ID, CLAIM_ROUTE, CLAIM_EVENT_TYPE, CLAIM_CREATED_AT,
		CLAIM_ATTEMPTS, CLAIM_ORIGIN
	};
	Part		parts[NPARTS];
	size_t		size = MAXALIGN(sizeof(OutboxMessage));
	OutboxMessage *message;

	outbox_store_require(slot, required, lengthof(required));
	parts[PART_PAYLOAD] = jsonb_part(slot, CLAIM_PAYLOAD);
	parts[PART_HEADERS] = jsonb_part(slot, CLAIM_HEADERS);
	parts[PART_PROPERTIES] = jsonb_part(slot, CLAIM_PROPERTIES);
	parts[PART_BODY] = bytes_part(slot, CLAIM_BODY);
	parts[PART_STRINGS] = text_part(slot, CLAIM_ROUTE);
	parts[PART_STRINGS + 1] = text_part(slot, CLAIM_EVENT_TYPE);
	parts[PART_STRINGS + 2] = text_part(slot, CLAIM_AGGREGATE_TYPE);
	parts[PART_STRINGS + 3] = text_part(slot, CLAIM_AGGREGATE_ID);
	parts[PART_STRINGS + 4] = text_part(slot, CLAIM_ROUTING_KEY);
	for (int i = 0; i < NPARTS; i++)
		size += i < PART_STRINGS ? MAXALIGN(parts[i].len) : parts[i].len + 1;

	message = MemoryContextAllocHuge(cxt, size);
	message->size = size;
	message->seq = DatumGetInt64(slot->tts_values[CLAIM_SEQ]);
	message->id = *DatumGetUUIDP(slot->tts_values[CLAIM_ID]);
	message->tid = *(ItemPointer) DatumGetPointer(slot->tts_values[CLAIM_TID]);
	message->key_hash = outbox_store_key_hash(slot, CLAIM_ROUTE,
											  CLAIM_AGGREGATE_TYPE,
											  CLAIM_AGGREGATE_ID);
	message->attempts = DatumGetInt32(slot->tts_values[CLAIM_ATTEMPTS]);
	message->created_at = DatumGetTimestampTz(slot->tts_values[CLAIM_CREATED_AT]);
	message->available_at = slot->tts_isnull[CLAIM_AVAILABLE_AT] ? 0 :
		DatumGetTimestampTz(slot->tts_values[CLAIM_AVAILABLE_AT]);
	message->ready_at =
		ready_at(message, DatumGetTransactionId(slot->tts_values[CLAIM_XMIN]));
	message->origin = DatumGetInt64(slot->tts_values[CLAIM_ORIGIN]);
	put_parts(message, parts);
	return message;
}

char *
outbox_store_utf8(TupleTableSlot *slot, int column)
{
	Part		part = text_part(slot, column);

	return part.data == NULL ? NULL : pnstrdup(part.data, part.len);
}
