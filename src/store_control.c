/*-------------------------------------------------------------------------
 *
 * store_control.c
 *		The control row: paused, and whose database this is.
 *
 * It is read with every claim (see check_control() in relay_round.c) and changes
 * hardly ever.  So its values are kept with the TID and the xmin of the version
 * they came from: as long as a snapshot still sees that version there, they are
 * what the statement would return.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/table.h"
#include "access/tableam.h"
#include "access/xlog.h"
#include "catalog/pg_type.h"
#include "miscadmin.h"
#include "origin.h"
#include "store.h"
#include "store_internal.h"
#include "storage/bufmgr.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/memutils.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"
#include "utils/timestamp.h"

#define CONTROL_PAUSED		1
#define CONTROL_SYSTEM		2
#define CONTROL_DATABASE	3
#define CONTROL_ADOPTED_AT	4
#define CONTROL_ORIGINS		5
#define CONTROL_TID			6
#define CONTROL_XMIN		7
#define CONTROL_SQL \
	"SELECT paused, system_identifier, database_oid, adopted_at," \
	" adopted_origins, ctid, xmin FROM %s.outbox_control"

static struct
{
	Oid			relid;			/* InvalidOid: nothing is kept */
	ItemPointerData tid;
	TransactionId xmin;
	OutboxControl control;
	MemoryContext cxt;			/* of control.origins */
} kept;

static Datum
get_column(int column)
{
	bool		isnull;

	return SPI_getbinval(SPI_tuptable->vals[0], SPI_tuptable->tupdesc, column,
						 &isnull);
}

/* Does the latest snapshot see the version that the kept values are from? */
static bool
still_there(void)
{
	Relation	rel;
	TupleTableSlot *slot;
	Snapshot	snapshot;
	bool		found;

	if (!OidIsValid(kept.relid) || kept.relid != outbox_store_control_relid())
		return false;
	rel = table_open(kept.relid, AccessShareLock);
	slot = table_slot_create(rel, NULL);
	snapshot = RegisterSnapshot(GetLatestSnapshot());
	/* After TRUNCATE its block is not there. */
	found = ItemPointerGetBlockNumber(&kept.tid) < RelationGetNumberOfBlocks(rel) &&
		table_tuple_fetch_row_version(rel, &kept.tid, snapshot, slot);
	if (found)
	{
		bool		isnull;

		found = DatumGetTransactionId(slot_getsysattr(slot,
													  MinTransactionIdAttributeNumber,
													  &isnull)) == kept.xmin;
	}
	UnregisterSnapshot(snapshot);
	ExecDropSingleTupleTableSlot(slot);
	table_close(rel, AccessShareLock);
	return found;
}

static void
load_origins(OutboxControl *control)
{
	Datum	   *elems;
	bool	   *nulls;
	int			n;

	deconstruct_array(DatumGetArrayTypeP(get_column(CONTROL_ORIGINS)), INT8OID,
					  sizeof(int64), FLOAT8PASSBYVAL, TYPALIGN_DOUBLE, &elems,
					  &nulls, &n);
	control->origins = MemoryContextAlloc(kept.cxt, sizeof(int64) * Max(n, 1));
	for (int i = 0; i < n; i++)
		if (!nulls[i])
			control->origins[control->norigins++] = DatumGetInt64(elems[i]);
}

/*
 * A database whose recorded identity is not its own was copied from another
 * one, whose relay publishes the same messages (DESIGN.md section 9).
 */
static void
load(void)
{
	static OutboxStatement statement;
	OutboxControl *control = &kept.control;

	kept.relid = InvalidOid;
	if (kept.cxt == NULL)
		kept.cxt = AllocSetContextCreate(TopMemoryContext, "outbox control",
										 ALLOCSET_SMALL_SIZES);
	MemoryContextReset(kept.cxt);
	outbox_store_execute(outbox_store_plan(&statement,
										   psprintf(CONTROL_SQL,
													outbox_store_schema()),
										   0, NULL),
						 NULL, NULL, SPI_OK_SELECT);
	/* Without its row nobody says whose database this is: rather be silent. */
	memset(control, 0, sizeof(*control));
	control->paused = control->copy = true;
	if (SPI_processed == 0)
		return;
	control->paused = DatumGetBool(get_column(CONTROL_PAUSED));
	control->copy =
		(uint64) DatumGetInt64(get_column(CONTROL_SYSTEM)) != GetSystemIdentifier() ||
		DatumGetObjectId(get_column(CONTROL_DATABASE)) != MyDatabaseId;
	control->adopted_at = DatumGetTimestampTz(get_column(CONTROL_ADOPTED_AT));
	load_origins(control);
	kept.tid = *(ItemPointer) DatumGetPointer(get_column(CONTROL_TID));
	kept.xmin = DatumGetTransactionId(get_column(CONTROL_XMIN));
	kept.relid = outbox_store_control_relid();
}

void
outbox_store_load_control(OutboxControl *control)
{
	if (!still_there())
		load();
	*control = kept.control;
}

bool
outbox_store_accepts(const OutboxControl *control, int64 origin)
{
	if (origin == outbox_own_origin())
		return true;
	for (int i = 0; i < control->norigins; i++)
		if (control->origins[i] == origin)
			return true;
	return false;
}
