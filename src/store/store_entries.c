/*-------------------------------------------------------------------------
 *
 * store_entries.c
 *		Entries of the index outbox_ready, of deleted rows, too.
 *
 * While a transaction keeps vacuum from removing what was published, a statement that
 * finds nothing may pass a million entries of deleted rows.  And billions of numbers
 * may have no entry.  So who reads a long range asks first how far so many entries
 * go.  The table is not looked at, and the number is only a bound: nothing depends on
 * an index that has been dropped, or is another one.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/genam.h"
#include "access/itup.h"
#include "access/relscan.h"
#include "access/skey.h"
#include "access/stratnum.h"
#include "access/table.h"
#include "catalog.h"
#include "catalog/pg_opfamily.h"
#include "columns.h"
#include "compat.h"
#include "miscadmin.h"
#include "store.h"
#include "utils/fmgroids.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"

typedef struct Entries
{
	Relation	rel;
	Relation	index;
	IndexScanDesc scan;
} Entries;

/* Returns false, with nothing open, when there is no such index. */
static bool
begin_entries(Entries *entries, int64 from)
{
	Relation	rel = table_open(outbox_store_relid(), AccessShareLock);
	Relation	index = outbox_open_index(rel, "outbox_ready", COL_SEQ, 0);
	ScanKeyData key;

	/* In another family's order the entries would not be those of a range. */
	if (index != NULL && index->rd_opfamily[0] != INTEGER_BTREE_FAM_OID)
	{
		index_close(index, NoLock);
		index = NULL;
	}
	if (index == NULL)
	{
		table_close(rel, NoLock);
		return false;
	}
	entries->rel = rel;
	entries->index = index;
	entries->scan = compat_index_beginscan(rel, index, SnapshotAny, 1);
	entries->scan->xs_want_itup = true;
	/* Very many of these take their time, too. */
	entries->scan->ignore_killed_tuples = false;
	ScanKeyInit(&key, 1, BTGreaterEqualStrategyNumber, F_INT8GE, Int64GetDatum(from));
	index_rescan(entries->scan, &key, 1, NULL, 0);
	return true;
}

static bool
next_entry(Entries *entries, ScanDirection direction, int64 *seq)
{
	bool		isnull;

	if (index_getnext_tid(entries->scan, direction) == NULL)
		return false;
	*seq = DatumGetInt64(index_getattr(entries->scan->xs_itup, 1,
									   entries->scan->xs_itupdesc, &isnull));
	return true;
}

static void
end_entries(Entries *entries)
{
	index_endscan(entries->scan);
	index_close(entries->index, NoLock);
	table_close(entries->rel, NoLock);
}

int64
outbox_store_reach(int64 lo, int64 hi, int *n)
{
	Entries		entries;
	int64		reached = lo;
	int64		seq = lo;
	bool		more = true;

	/* Then the LIMIT of the statement is the only bound. */
	if (!begin_entries(&entries, lo))
		return hi;
	while (*n > 0 && (more = next_entry(&entries, ForwardScanDirection, &seq)) && seq <= hi)
	{
		CHECK_FOR_INTERRUPTS();
		reached = seq;
		(*n)--;
	}
	end_entries(&entries);
	return more && seq <= hi ? reached : hi;
}

int64
outbox_store_last_entry(void)
{
	Entries		entries;
	int64		seq = 0;

	if (!begin_entries(&entries, 1))
		return PG_INT64_MAX;
	(void) next_entry(&entries, BackwardScanDirection, &seq);
	end_entries(&entries);
	return seq;
}
