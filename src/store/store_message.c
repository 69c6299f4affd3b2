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
#include "mb/pg_wchar.h"
#include "message.h"
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

/* ------------------------------------------------------ the row at hand */

/* What is known of the row whose values are being read, should one be unreadable. */
static OutboxUnreadableRow reading;
static Part reading_route;		/* data is NULL: route or key could not be
								 * read */
static bool is_reading = false;

static void
begin_reading(TupleTableSlot *slot)
{
	reading.row.seq = DatumGetInt64(slot->tts_values[CLAIM_SEQ]);
	reading.row.id = *DatumGetUUIDP(slot->tts_values[CLAIM_ID]);
	reading.row.keyed = !slot->tts_isnull[CLAIM_AGGREGATE_ID];
	reading.tid = *(ItemPointer) DatumGetPointer(slot->tts_values[CLAIM_TID]);
	reading_route.data = NULL;
	is_reading = true;
	reading.row.key_hash = outbox_store_key_hash(slot, CLAIM_ROUTE,
												 CLAIM_AGGREGATE_TYPE,
												 CLAIM_AGGREGATE_ID);
	reading_route = text_part(slot, CLAIM_ROUTE);
}

OutboxUnreadableRow *
outbox_store_unreadable(void)
{
	OutboxUnreadableRow *row;

	if (!is_reading)
		return NULL;
	row = palloc(sizeof(OutboxUnreadableRow));
	*row = reading;
	row->row.route = reading_route.data == NULL ? NULL :
		pnstrdup(reading_route.data, reading_route.len);
	return row;
}

void
outbox_store_message_abort(void)
{
	is_reading = false;
}

/* -------------------------------------------------------------- the message */

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

/* A failed attempt has written its row again; what counts is the first one. */
static TimestampTz
ready_at(const OutboxMessage *message, TransactionId xid)
{
	if (message->attempts > 0)
		return message->created_at;
	return Max(committed_at(xid, message->created_at), message->available_at);
}

static TimestampTz
available_at(TupleTableSlot *slot)
{
	return slot->tts_isnull[CLAIM_AVAILABLE_AT] ? 0 :
		DatumGetTimestampTz(slot->tts_values[CLAIM_AVAILABLE_AT]);
}

#define REQUIRED(NAME, name, TYPE, type, null, value, set_by, archive, relay) \
	OUTBOX_IF_REQUIRED_##null(OUTBOX_IF_READ_##relay(CLAIM_##NAME,))

/* Called in the scratch context. */
OutboxMessage *
outbox_store_message(TupleTableSlot *slot, const OutboxClaim *claim)
{
	static const int required[] = {
		OUTBOX_MESSAGE_COLUMNS(REQUIRED, REQUIRED)
	};
	Part		parts[NPARTS];
	size_t		size = MAXALIGN(sizeof(OutboxMessage));
	OutboxMessage *message;

	outbox_store_require(slot, required, lengthof(required));
	if (claim->known != NULL &&
		claim->known(DatumGetInt64(slot->tts_values[CLAIM_SEQ]),
					 DatumGetUUIDP(slot->tts_values[CLAIM_ID]),
					 available_at(slot), claim->arg))
		return NULL;
	begin_reading(slot);
	parts[PART_PAYLOAD] = jsonb_part(slot, CLAIM_PAYLOAD);
	parts[PART_HEADERS] = jsonb_part(slot, CLAIM_HEADERS);
	parts[PART_PROPERTIES] = jsonb_part(slot, CLAIM_PROPERTIES);
	parts[PART_BODY] = bytes_part(slot, CLAIM_BODY);
	parts[PART_STRINGS] = reading_route;
	parts[PART_STRINGS + 1] = text_part(slot, CLAIM_EVENT_TYPE);
	parts[PART_STRINGS + 2] = text_part(slot, CLAIM_AGGREGATE_TYPE);
	parts[PART_STRINGS + 3] = text_part(slot, CLAIM_AGGREGATE_ID);
	parts[PART_STRINGS + 4] = text_part(slot, CLAIM_ROUTING_KEY);
	for (int i = 0; i < NPARTS; i++)
		size += i < PART_STRINGS ? MAXALIGN(parts[i].len) : parts[i].len + 1;

	message = MemoryContextAllocHuge(claim->cxt, size);
	message->size = size;
	message->seq = reading.row.seq;
	message->id = reading.row.id;
	message->tid = reading.tid;
	message->key_hash = reading.row.key_hash;
	message->attempts = DatumGetInt32(slot->tts_values[CLAIM_ATTEMPTS]);
	message->created_at = DatumGetTimestampTz(slot->tts_values[CLAIM_CREATED_AT]);
	message->available_at = slot->tts_isnull[CLAIM_AVAILABLE_AT] ? 0 :
		outbox_due_time(available_at(slot));
	message->ready_at =
		ready_at(message, DatumGetTransactionId(slot->tts_values[CLAIM_XMIN]));
	message->origin = DatumGetInt64(slot->tts_values[CLAIM_ORIGIN]);
	put_parts(message, parts);
	is_reading = false;
	return message;
}

char *
outbox_store_utf8(TupleTableSlot *slot, int column)
{
	Part		part = text_part(slot, column);

	return part.data == NULL ? NULL : pnstrdup(part.data, part.len);
}
