/*-------------------------------------------------------------------------
 *
 * numbering.c
 *		Numbers of messages that consumers can check order and gaps by.
 *
 * A message gets its number once, when it enters its route, in its headers: so it keeps
 * that when it is sent once more, replayed with its id, or published by another relay.  A
 * message that goes to another route gets the number of a new message there.
 *
 * The last number of a key is in a row of outbox_key_number, which stays locked until the
 * transaction ends: a rollback gives the number back, and two messages of a key become
 * visible in the order of their numbers.  seq is drawn under the same lock, since that is
 * the order in which they are published; what the row's default has drawn is dropped.
 *
 * INSERT ... ON CONFLICT DO NOTHING looks for the id only after the row trigger.  So that
 * it leaves no gap, the id is looked up here, under the key's lock: another transaction with
 * the same id and key has been waited for.  Should the message be removed before the server
 * looks, the row is stored without a number, and the transaction fails at its end.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/genam.h"
#include "access/table.h"
#include "access/tableam.h"
#include "access/xact.h"
#include "catalog.h"
#include "catalog/pg_type.h"
#include "commands/sequence.h"
#include "compat.h"
#include "enqueue_internal.h"
#include "message.h"
#include "own_relations.h"
#include "storage/lmgr.h"
#include "utils/builtins.h"
#include "utils/fmgroids.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/snapmgr.h"

#define NUMBER_SQL \
	"INSERT INTO outbox_internal.outbox_key_number AS n (route, key_hash, last) VALUES ($1, $2, 1)" \
	" ON CONFLICT (route, key_hash) DO UPDATE SET last = n.last + 1" \
	" RETURNING last, nextval($3)"
#define GIVE_BACK_SQL \
	"UPDATE outbox_internal.outbox_key_number SET last = last - 1 WHERE route = $1 AND key_hash = $2"

int64
outbox_draw_seq(void)
{
	return nextval_internal(outbox_relation(OUTBOX_REL_SEQ), false);
}

/* As the unique index says it, which is not asked for what ON CONFLICT leaves out. */
static void
refuse_other_route(Relation rel, const pg_uuid_t *id)
{
	ereport(ERROR,
			(errcode(ERRCODE_UNIQUE_VIOLATION),
			 errmsg("duplicate key value violates unique constraint \"%s\"", "outbox_pkey"),
			 errdetail("Key (id)=(%s) already exists.", outbox_id_text(id)),
			 errtableconstraint(rel, "outbox_pkey")));
}

/*
 * Finds the row of that id, committed or not; the ids of transactions that have inserted or
 * removed it, and have not ended, are in dirty.
 */
static bool
find_row(Relation rel, const pg_uuid_t *id, SnapshotData *dirty, TupleTableSlot *slot)
{
	Relation	index = outbox_open_index(rel, "outbox_pkey", COL_ID, 0);
	IndexScanDesc scan;
	ScanKeyData key;
	bool		found;

	if (index == NULL)
		return false;
	InitDirtySnapshot(*dirty);
	scan = compat_index_beginscan(rel, index, dirty, 1);
	ScanKeyInit(&key, 1, BTEqualStrategyNumber, F_UUID_EQ, UUIDPGetDatum(id));
	index_rescan(scan, &key, 1, NULL, 0);
	found = index_getnext_slot(scan, ForwardScanDirection, slot);
	index_endscan(scan);
	index_close(index, NoLock);
	return found;
}

/*
 * Does the route have a message of that id?  Waits as the unique index does, but not for
 * who removes a message of another route: the key would wait for a role that may not use
 * that route.
 */
static bool
has_message(Relation rel, const char *route, const pg_uuid_t *id)
{
	TupleTableSlot *slot = table_slot_create(rel, NULL);
	SnapshotData dirty;
	bool		found;

	while ((found = find_row(rel, id, &dirty, slot)))
	{
		bool		isnull;
		Datum		its_route = slot_getattr(slot, COL_ROUTE, &isnull);
		TransactionId changing = TransactionIdIsValid(dirty.xmin) ? dirty.xmin : dirty.xmax;

		if (!TransactionIdIsValid(dirty.xmin) &&
			(isnull || strcmp(TextDatumGetCString(its_route), route) != 0))
			refuse_other_route(rel, id);
		if (!TransactionIdIsValid(changing))
			break;
		XactLockTableWait(changing, rel, &slot->tts_tid, XLTW_InsertIndex);
	}
	ExecDropSingleTupleTableSlot(slot);
	return found;
}

/* ---------------------------------------------------- rows without a number */

/* A row of this transaction that has no number, as its id was there. */
typedef struct Unnumbered
{
	Oid			relid;			/* the table outbox */
	pg_uuid_t	id;
	int64		seq;
} Unnumbered;

static List *unnumbered = NIL;	/* in TopTransactionContext */

static bool
is_stored(const Unnumbered *row)
{
	Relation	rel = try_table_open(row->relid, AccessShareLock);
	TupleTableSlot *slot;
	SnapshotData dirty;
	bool		isnull;
	bool		stored;

	if (rel == NULL)
		return false;
	slot = table_slot_create(rel, NULL);
	stored = find_row(rel, &row->id, &dirty, slot) &&
		DatumGetInt64(slot_getattr(slot, COL_SEQ, &isnull)) == row->seq;
	ExecDropSingleTupleTableSlot(slot);
	table_close(rel, NoLock);
	return stored;
}

/* No lock keeps a message that is there: its settling must not wait. */
static void
check_unnumbered(XactEvent event, void *arg)
{
	ListCell   *cell;

	(void) arg;
	if (event == XACT_EVENT_COMMIT || event == XACT_EVENT_PREPARE || event == XACT_EVENT_ABORT)
		unnumbered = NIL;
	else if (event == XACT_EVENT_PRE_COMMIT || event == XACT_EVENT_PRE_PREPARE)
	{
		foreach(cell, unnumbered)
		{
			const Unnumbered *row = lfirst(cell);

			if (is_stored(row))
				ereport(ERROR,
						(errcode(ERRCODE_T_R_SERIALIZATION_FAILURE),
						 errmsg("message \"%s\" was removed while it was inserted once more",
								outbox_id_text(&row->id)),
						 errhint("Try the transaction again.")));
		}
	}
}

static void
remember_unnumbered(Relation rel, const pg_uuid_t *id, int64 seq)
{
	static bool registered = false;
	MemoryContext old = MemoryContextSwitchTo(TopTransactionContext);
	Unnumbered *row = palloc(sizeof(Unnumbered));

	if (!registered)
		RegisterXactCallback(check_unnumbered, NULL);
	registered = true;
	*row = (Unnumbered) {RelationGetRelid(rel), *id, seq};
	unnumbered = lappend(unnumbered, row);
	MemoryContextSwitchTo(old);
}

static void
run(OutboxKeptPlan *kept, const char *sql, int nargs, Datum *values, int expected)
{
	static Oid	types[] = {TEXTOID, INT8OID, REGCLASSOID};
	int			result = outbox_kept_plan_execute(kept, sql, nargs, types, values, NULL, false);

	if (result != expected)
	{
		/* A rule's doing; the server would keep what it has made of it. */
		outbox_kept_plan_forget(kept);
		elog(ERROR, "could not number a message: %s", SPI_result_code_string(result));
	}
}

bool
outbox_number_key(Relation rel, const char *route, int64 key_hash, const pg_uuid_t *id,
				  int64 *number, int64 *seq)
{
	static OutboxKeptPlan count;
	static OutboxKeptPlan give_back;
	Datum		values[3];
	int64		row_seq = *seq;
	bool		isnull;
	bool		counted;
	OutboxActing acting;

	values[0] = CStringGetTextDatum(route);
	values[1] = Int64GetDatum(key_hash);
	values[2] = ObjectIdGetDatum(outbox_relation(OUTBOX_REL_SEQ));
	SPI_connect();
	outbox_act_begin(&acting, rel->rd_rel->relowner, false);
	run(&count, NUMBER_SQL, 3, values, SPI_OK_INSERT_RETURNING);
	if (SPI_processed != 1)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("the message has no number on route \"%s\"", route),
				 errdetail("A trigger on the table \"outbox_key_number\" has left its row out."),
				 errhint("Drop that trigger, or set sequence of the route to NULL.")));
	*number = DatumGetInt64(SPI_getbinval(SPI_tuptable->vals[0], SPI_tuptable->tupdesc, 1, &isnull));
	if (!isnull)
		*seq = DatumGetInt64(SPI_getbinval(SPI_tuptable->vals[0], SPI_tuptable->tupdesc, 2, &isnull));
	if (isnull)
		elog(ERROR, "a number of the table \"outbox_key_number\" is null");
	counted = id == NULL || !has_message(rel, route, id);
	if (!counted)
	{
		run(&give_back, GIVE_BACK_SQL, 2, values, SPI_OK_UPDATE);
		remember_unnumbered(rel, id, row_seq);
	}
	outbox_act_end(&acting);
	SPI_finish();
	return counted;
}

bool
outbox_key_is_being_numbered(const char *route, int64 key_hash)
{
	Relation	rel = table_open(outbox_relation(OUTBOX_REL_KEY_NUMBER),
								 AccessShareLock);
	Relation	index = outbox_open_index(rel, "outbox_key_number_pkey", 1, 2);
	SnapshotData dirty;
	ScanKeyData keys[2];
	SysScanDesc scan;
	bool		busy = false;

	InitDirtySnapshot(dirty);
	ScanKeyEntryInitialize(&keys[0], 0, 1, BTEqualStrategyNumber, InvalidOid,
						   TupleDescAttr(RelationGetDescr(rel), 0)->attcollation,
						   F_TEXTEQ, CStringGetTextDatum(route));
	ScanKeyInit(&keys[1], 2, BTEqualStrategyNumber, F_INT8EQ,
				Int64GetDatum(key_hash));
	scan = systable_beginscan(rel, index == NULL ? InvalidOid : RelationGetRelid(index),
							  index != NULL, &dirty, lengthof(keys), keys);
	while (HeapTupleIsValid(systable_getnext(scan)))
		if (TransactionIdIsValid(dirty.xmin) || TransactionIdIsValid(dirty.xmax))
			busy = true;
	systable_endscan(scan);
	if (index != NULL)
		index_close(index, NoLock);
	table_close(rel, NoLock);
	return busy;
}

/* The headers with those of object, which replace theirs. */
static Jsonb *
with(Jsonb *headers, const char *object)
{
	Datum		own = outbox_json_object(object);

	if (headers == NULL)
		return DatumGetJsonbP(own);
	return DatumGetJsonbP(DirectFunctionCall2(jsonb_concat, JsonbPGetDatum(headers), own));
}

Jsonb *
outbox_numbered_headers(Jsonb *headers, int64 seq, int64 number)
{
	return with(headers, number == 0 ?
				psprintf("{\"x-outbox-seq\": " INT64_FORMAT "}", seq) :
				psprintf("{\"x-outbox-seq\": " INT64_FORMAT ", \"x-outbox-key-seq\": " INT64_FORMAT "}",
						 seq, number));
}

static const char *const names[] = {"x-outbox-seq", "x-outbox-key-seq"};

/* The value of that name as JSON; NULL: there is none. */
static Jsonb *
number_of(const Jsonb *headers, const char *name)
{
	JsonbValue	value;

	if (headers == NULL || !JB_ROOT_IS_OBJECT(headers) ||
		getKeyJsonValueFromContainer(unconstify(JsonbContainer *, &headers->root), name,
									 strlen(name), &value) == NULL)
		return NULL;
	return JsonbValueToJsonb(&value);
}

bool
outbox_has_number(const Jsonb *headers)
{
	return number_of(headers, names[0]) != NULL;
}

Jsonb *
outbox_unnumbered_headers(Jsonb *headers)
{
	const Jsonb *before = headers;

	for (int i = 0; i < (int) lengthof(names); i++)
		if (number_of(headers, names[i]) != NULL)
			headers = DatumGetJsonbP(DirectFunctionCall2(jsonb_delete,
														 JsonbPGetDatum(headers),
														 CStringGetTextDatum(names[i])));
	return headers == before || JB_ROOT_COUNT(headers) > 0 ? headers : NULL;
}

Jsonb *
outbox_keep_numbers(Jsonb *headers, const Jsonb *old)
{
	for (int i = 0; i < (int) lengthof(names); i++)
	{
		Jsonb	   *number = number_of(old, names[i]);

		if (number != NULL && number_of(headers, names[i]) == NULL)
			headers = with(headers, psprintf("{\"%s\": %s}", names[i],
											 JsonbToCString(NULL, &number->root,
															VARSIZE(number))));
	}
	return headers;
}

void
outbox_refuse_numbers(const Jsonb *headers, const Jsonb *old)
{
	for (int i = 0; i < (int) lengthof(names); i++)
	{
		Jsonb	   *number = number_of(headers, names[i]);
		Jsonb	   *before = number_of(old, names[i]);

		if (number != NULL &&
			(before == NULL || compareJsonbContainers(&number->root, &before->root) != 0))
			ereport(ERROR,
					(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
					 errmsg("headers must not contain %s", names[i]),
					 errdetail("Consumers tell the order of messages by this number, so that only outbox gives it."),
					 errhint("Set \"sequence\" of the route to have its messages numbered.")));
	}
}
