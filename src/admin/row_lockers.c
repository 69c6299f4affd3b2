/*-------------------------------------------------------------------------
 *
 * row_lockers.c
 *		Which transactions have a row locked.
 *
 * The server shows who waits for a row, and not who has it: that is in the row
 * itself, as a transaction or as a list of them (a multixact).  SQL sees the number
 * and not which of the two it is.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "access/multixact.h"
#include "access/subtrans.h"
#include "access/table.h"
#include "catalog/pg_am.h"
#include "catalog/pg_type.h"
#include "fmgr.h"
#include "storage/bufmgr.h"
#include "storage/procarray.h"
#include "utils/array.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"

PG_FUNCTION_INFO_V1(outbox_row_lockers);

/* Adds the transaction that a user sees, if it still runs. */
static void
add_locker(TransactionId xid, ArrayBuildState **lockers)
{
	if (!TransactionIdIsInProgress(xid))
		return;
	/* A savepoint's; older ones than all that run are not in pg_subtrans. */
	if (!TransactionIdPrecedes(xid, TransactionXmin))
		xid = SubTransGetTopmostTransaction(xid);
	*lockers = accumArrayResult(*lockers, TransactionIdGetDatum(xid), false,
								XIDOID, CurrentMemoryContext);
}

/* The page is share-locked. */
static void
look_at_row(HeapTupleHeader row, ArrayBuildState **lockers)
{
	TransactionId xmax = HeapTupleHeaderGetRawXmax(row);
	MultiXactMember *members;
	int			n;

	if ((row->t_infomask & HEAP_XMAX_INVALID) != 0 ||
		!TransactionIdIsValid(xmax))
		return;
	if ((row->t_infomask & HEAP_XMAX_IS_MULTI) == 0)
	{
		add_locker(xmax, lockers);
		return;
	}
	n = GetMultiXactIdMembers(xmax, &members,
							  HEAP_LOCKED_UPGRADED(row->t_infomask),
							  HEAP_XMAX_IS_LOCKED_ONLY(row->t_infomask));
	for (int i = 0; i < n; i++)
		add_locker(members[i].xid, lockers);
}

/*
 * outbox_row_lockers(regclass, tid): NULL when nobody has locked it, or it is not
 * there any more.  The caller must have a right on the table; only functions of the
 * extension may call it.
 */
Datum
outbox_row_lockers(PG_FUNCTION_ARGS)
{
	Relation	rel = try_table_open(PG_GETARG_OID(0), AccessShareLock);
	ItemPointer tid = (ItemPointer) DatumGetPointer(PG_GETARG_DATUM(1));
	BlockNumber block = ItemPointerGetBlockNumberNoCheck(tid);
	OffsetNumber offset = ItemPointerGetOffsetNumberNoCheck(tid);
	ArrayBuildState *lockers = NULL;

	/* Dropped since the caller has found it. */
	if (rel == NULL)
		PG_RETURN_NULL();
	if (rel->rd_rel->relkind == RELKIND_RELATION &&
		rel->rd_rel->relam == HEAP_TABLE_AM_OID &&
		block < RelationGetNumberOfBlocks(rel))
	{
		Buffer		buffer = ReadBuffer(rel, block);
		Page		page;

		LockBuffer(buffer, BUFFER_LOCK_SHARE);
		page = BufferGetPage(buffer);
		if (offset >= FirstOffsetNumber &&
			offset <= PageGetMaxOffsetNumber(page))
		{
			ItemId		item = PageGetItemId(page, offset);

			if (ItemIdIsNormal(item))
				look_at_row((HeapTupleHeader) PageGetItem(page, item), &lockers);
		}
		UnlockReleaseBuffer(buffer);
	}
	table_close(rel, AccessShareLock);
	if (lockers == NULL)
		PG_RETURN_NULL();
	PG_RETURN_DATUM(makeArrayResult(lockers, CurrentMemoryContext));
}
