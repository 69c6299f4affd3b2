/*-------------------------------------------------------------------------
 *
 * store_control.c
 *		The control row: whose messages these are, and whether they are paused.
 *
 * It is read with each claim, in the claim's snapshot.  By a statement that cost a
 * third of the claim of one row (measured).  So the row that was loaded last is kept as
 * it is stored: one with the same bytes says the same, and else the statement is run.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/genam.h"
#include "access/htup_details.h"
#include "access/table.h"
#include "catalog/pg_type.h"
#include "store.h"
#include "store_internal.h"
#include "utils/memutils.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"
#include "utils/timestamp.h"

enum
{
	CONTROL_PAUSED = 1,
	CONTROL_ADOPTED_AT,
	CONTROL_SYSTEM,
	CONTROL_DATABASE,
	CONTROL_ENVIRONMENT,
	CONTROL_TIMELINE,
	CONTROL_ORIGINS
};

/* In a context of their own. */
static struct
{
	MemoryContext cxt;
	HeapTuple	row;			/* NULL: none was loaded */
	OutboxControl control;		/* what it says */
} loaded;

static void
load_identity(OutboxIdentity *recorded)
{
	bool		no_server;
	bool		no_database;
	Datum		server = outbox_store_get(0, CONTROL_SYSTEM, &no_server);
	Datum		database = outbox_store_get(0, CONTROL_DATABASE, &no_database);
	Datum	   *elems;
	bool	   *nulls;
	int			n;

	if (!no_server && !no_database)
		recorded->origin = outbox_origin_of(DatumGetUInt64(server), DatumGetObjectId(database));
	recorded->environment = outbox_store_get_text(CONTROL_ENVIRONMENT);
	recorded->timeline = DatumGetInt64(outbox_store_get(0, CONTROL_TIMELINE, NULL));
	n = outbox_store_get_array(CONTROL_ORIGINS, INT8OID, &elems, &nulls);
	recorded->adopted = palloc(sizeof(int64) * Max(n, 1));
	for (int i = 0; i < n; i++)
		if (!nulls[i])
			recorded->adopted[recorded->nadopted++] = DatumGetInt64(elems[i]);
}

/* In the snapshot in which the row was read.  Returns false if there is none. */
static bool
load_by_statement(OutboxControl *control)
{
	static OutboxStatement statement = {
		"SELECT coalesce(paused, true), adopted_at::pg_catalog.timestamptz,"
		" system_identifier::pg_catalog.int8, database_oid::pg_catalog.oid,"
		" coalesce(environment, '')::pg_catalog.text,"
		" coalesce(timeline, 1)::pg_catalog.int8,"
		" coalesce(adopted_origins, '{}')::pg_catalog.int8[]"
		" FROM outbox_internal.outbox_control",
		SPI_OK_SELECT, .read_only = true
	};

	outbox_store_run(&statement, NULL);
	/* Without its row nobody says whose database this is: rather be silent. */
	memset(control, 0, sizeof(*control));
	control->paused = true;
	if (SPI_processed == 0)
		return false;
	control->paused = DatumGetBool(outbox_store_get(0, CONTROL_PAUSED, NULL));
	control->adopted_at = DatumGetTimestampTz(outbox_store_get(0, CONTROL_ADOPTED_AT, NULL));
	load_identity(&control->recorded);
	return true;
}

/* Do two rows of the table have the same values? */
static bool
same_values(HeapTuple a, HeapTuple b)
{
	const size_t head = offsetof(HeapTupleHeaderData, t_bits);

	return a->t_len == b->t_len &&
		HeapTupleHeaderGetNatts(a->t_data) == HeapTupleHeaderGetNatts(b->t_data) &&
		memcmp((char *) a->t_data + head, (char *) b->t_data + head,
			   a->t_len - head) == 0;
}

/*
 * Reads the row in the active snapshot.  True: it is the one that was loaded last; else
 * *row is a copy of it, NULL: there is none, or the extension is not attached.
 */
static bool
is_loaded(HeapTuple *row)
{
	Oid			relid = outbox_store_control_relid();
	Relation	rel;
	SysScanDesc scan;
	HeapTuple	found;
	bool		same;

	*row = NULL;
	if (!OidIsValid(relid))
		return false;
	rel = table_open(relid, AccessShareLock);
	scan = systable_beginscan(rel, InvalidOid, false, GetActiveSnapshot(), 0, NULL);
	found = systable_getnext(scan);
	same = found != NULL && loaded.row != NULL && same_values(found, loaded.row);
	if (!same)
		*row = heap_copytuple(found);
	systable_endscan(scan);
	table_close(rel, NoLock);
	return same;
}

static void
remember(HeapTuple row, const OutboxControl *control)
{
	MemoryContext old;
	OutboxIdentity *recorded = &loaded.control.recorded;

	if (loaded.cxt == NULL)
		loaded.cxt = AllocSetContextCreate(TopMemoryContext, "outbox control row",
										   ALLOCSET_SMALL_SIZES);
	loaded.row = NULL;
	MemoryContextReset(loaded.cxt);
	old = MemoryContextSwitchTo(loaded.cxt);
	loaded.control = *control;
	recorded->environment = pstrdup(recorded->environment);
	recorded->adopted = memcpy(palloc(sizeof(int64) * Max(recorded->nadopted, 1)),
							   recorded->adopted, sizeof(int64) * recorded->nadopted);
	loaded.row = heap_copytuple(row);
	MemoryContextSwitchTo(old);
}

void
outbox_store_forget_control(void)
{
	loaded.row = NULL;
}

void
outbox_store_load_control(OutboxControl *control)
{
	HeapTuple	row;

	if (is_loaded(&row))
		*control = loaded.control;
	else if (load_by_statement(control) && row != NULL)
		remember(row, control);
}
