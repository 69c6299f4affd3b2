/*-------------------------------------------------------------------------
 *
 * monitor.c
 *		Functions behind the views: claims, rows that are locked or cannot be read,
 *		processes that do nothing.
 *
 * Only the current database's slots are shown.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/multixact.h"
#include "access/subtrans.h"
#include "access/table.h"
#include "admin_internal.h"
#include "catalog/pg_am.h"
#include "catalog/pg_type.h"
#include "own_version.h"
#include "settings.h"
#include "storage/bufmgr.h"
#include "storage/proc.h"
#include "storage/procarray.h"
#include "utils/array.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"
#include "utils/wait_event.h"

PG_FUNCTION_INFO_V1(outbox_version);
PG_FUNCTION_INFO_V1(outbox_worker_restart);
PG_FUNCTION_INFO_V1(outbox_claims);
PG_FUNCTION_INFO_V1(outbox_locked_claims);
PG_FUNCTION_INFO_V1(outbox_row_lockers);
PG_FUNCTION_INFO_V1(outbox_unreadable_rows);
PG_FUNCTION_INFO_V1(outbox_silent_processes);

Datum
outbox_version(PG_FUNCTION_ARGS)
{
	(void) fcinfo;
	PG_RETURN_TEXT_P(cstring_to_text(outbox_library_version()));
}

Datum
outbox_worker_restart(PG_FUNCTION_ARGS)
{
	(void) fcinfo;
	if (outbox_shared == NULL)
		PG_RETURN_INT32(0);
	PG_RETURN_INT32(outbox_shared_tell_workers(MyDatabaseId,
											   OUTBOX_SIGNAL_RESTART));
}

Datum
outbox_claims(PG_FUNCTION_ARGS)
{
	InitMaterializedSRF(fcinfo, 0);
	for (int i = 0; i < slot_count(); i++)
	{
		OutboxSlot *slot = &outbox_shared->slots[i];

		if (!slot->in_use || slot->dboid != MyDatabaseId)
			continue;
		for (int j = 0; j < OUTBOX_MAX_CLAIMS; j++)
		{
			uint64		claim = pg_atomic_read_u64(&slot->claims[j]);
			ResultRow	row = {0};

			if (claim == 0)
				continue;
			put_int64(&row, OUTBOX_CLAIM_HASH(claim));
			put(&row, BoolGetDatum(OUTBOX_CLAIM_IN_FLIGHT(claim)));
			return_next(fcinfo, &row);
		}
	}
	return (Datum) 0;
}

/* ------------------------------------------------------------- locked rows */

/*
 * Rows of this database that its workers have found locked; whether they still are,
 * and by whom, outbox_locked_rows() finds out.
 */
Datum
outbox_locked_claims(PG_FUNCTION_ARGS)
{
	InitMaterializedSRF(fcinfo, 0);
	for (int i = 0; i < slot_count(); i++)
	{
		OutboxSlot *slot = lock_slot(i);
		OutboxLockedId locked[2 * OUTBOX_LOCKED_IDS];
		int32		unsettled;
		int			worker;

		if (slot == NULL)
			continue;
		worker = slot->worker;
		memcpy(locked, slot->locked, sizeof(locked));
		SpinLockRelease(&slot->mutex);
		unsettled = (int32) pg_atomic_read_u32(&slot->counters.locked);
		for (int j = 0; j < (int) lengthof(locked); j++)
		{
			ResultRow	row = {0};

			if (!outbox_mono_is_set(locked[j].seen))
				continue;
			put_int32(&row, worker);
			put(&row, UUIDPGetDatum(&locked[j].id));
			put_int64(&row, locked[j].seq);
			put_time(&row, locked[j].since);
			put_int32(&row, locked[j].in_flight);
			put_int32(&row, unsettled);
			put(&row, BoolGetDatum(unsettled >= OUTBOX_LOCKED_MAX + outbox_window));
			return_next(fcinfo, &row);
		}
	}
	return (Datum) 0;
}

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
 * outbox_row_lockers(regclass, tid): who has a row locked.  The server shows only who
 * waits for it; who has it is in the row itself, as a transaction or as a list of them (a
 * multixact), and SQL sees the number and not which of the two it is.  NULL when nobody has locked it, or it is not
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

/* ------------------------------------------------ rows that cannot be read */

/* Rows of this database that its workers have set aside. */
Datum
outbox_unreadable_rows(PG_FUNCTION_ARGS)
{
	OutboxUnreadableId *rows = palloc(sizeof(OutboxUnreadableId) * OUTBOX_UNREADABLE_SHOWN);

	InitMaterializedSRF(fcinfo, 0);
	for (int i = 0; i < slot_count(); i++)
	{
		OutboxSlot *slot = lock_slot(i);
		int			count;
		int			worker;

		if (slot == NULL)
			continue;
		worker = slot->worker;
		count = slot->unreadable_count;
		if (count > 0)
			memcpy(rows, slot->unreadable, sizeof(slot->unreadable));
		SpinLockRelease(&slot->mutex);
		for (int j = 0; j < Min(count, OUTBOX_UNREADABLE_SHOWN); j++)
		{
			ResultRow	row = {0};

			put_int32(&row, worker);
			put_int64(&row, rows[j].seq);
			put(&row, UUIDPGetDatum(&rows[j].id));
			put_time(&row, rows[j].since);
			put(&row, CStringGetTextDatum(rows[j].text));
			put(&row, CStringGetTextDatum(rows[j].sqlstate));
			put_int32(&row, count);
			return_next(fcinfo, &row);
		}
	}
	return (Datum) 0;
}

/* ---------------------------------------- processes of ours that do nothing */

/*
 * A process that is stopped, loops, or hangs in a library cannot say so.  Whoever
 * reads the views judges by its heartbeat (shared.h), and by how long a worker has
 * left alone what commits have told it: told_at is unset for who was not told anything.
 * Returns when it is late; unset: never.
 */
static OutboxMonoTime
late_at(pg_atomic_uint64 *beat, OutboxMonoTime told_at)
{
	OutboxMonoTime late = {(int64) pg_atomic_read_u64(beat)};

	if (outbox_mono_is_set(told_at))
		outbox_mono_earlier(&late, outbox_mono_plus(told_at, OUTBOX_SILENCE_MS));
	return late;
}

OutboxMonoTime
outbox_worker_late_at(OutboxSlot *slot)
{
	/* Commits need not wake it, which is then not to come sooner. */
	return late_at(&slot->beat, slot->wakeups_off ? OUTBOX_MONO_UNSET : slot->told_at);
}

bool
outbox_is_silent(OutboxMonoTime late)
{
	return outbox_mono_is_set(late) && outbox_mono_reached(late, outbox_mono_now());
}

static void
return_silence(FunctionCallInfo fcinfo, const char *subject, int pid, OutboxMonoTime late)
{
	PGPROC	   *proc = pid == 0 ? NULL : BackendPidGetProc(pid);
	uint32		waits = proc == NULL ? 0 : proc->wait_event_info;
	ResultRow	row = {0};

	/* A commit that waits for a standby is told as such. */
	if (proc == NULL || !outbox_is_silent(late) || waits == WAIT_EVENT_SYNC_REP)
		return;
	put_text(&row, subject);
	put_int32(&row, pid);
	put_time(&row, GetCurrentTimestamp() -
			 outbox_mono_passed(outbox_mono_plus(late, -OUTBOX_SILENCE_MS)));
	put_text(&row, waits == 0 ? NULL : psprintf("%s %s", pgstat_get_wait_event_type(waits),
												 pgstat_get_wait_event(waits)));
	return_next(fcinfo, &row);
}

static void
return_launcher(FunctionCallInfo fcinfo)
{
	int			procno = outbox_shared->launcher_procno;
	OutboxMonoTime told_at;

	if (procno < 0)
		return;
	told_at.us = (int64) pg_atomic_read_u64(&outbox_shared->launcher_told);
	return_silence(fcinfo, "launcher", GetPGProcByNumber(procno)->pid,
				   late_at(&outbox_shared->launcher_beat, told_at));
}

/* The launcher, and the workers of this database. */
Datum
outbox_silent_processes(PG_FUNCTION_ARGS)
{
	InitMaterializedSRF(fcinfo, 0);
	if (outbox_shared != NULL)
		return_launcher(fcinfo);
	for (int i = 0; i < slot_count(); i++)
	{
		OutboxSlot *slot = lock_slot(i);
		OutboxMonoTime late;
		int			worker;
		int			pid;

		if (slot == NULL)
			continue;
		worker = slot->worker;
		pid = slot->pid;
		late = outbox_worker_late_at(slot);
		SpinLockRelease(&slot->mutex);
		return_silence(fcinfo, psprintf("worker %d", worker), pid, late);
	}
	return (Datum) 0;
}
