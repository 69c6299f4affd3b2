/*-------------------------------------------------------------------------
 *
 * launcher.c
 *		The launcher: which databases have relay workers.
 *
 * One static process, connected to no database, that starts when recovery is
 * over (so also at a promotion).  It never exits with 0, which would be for
 * good.
 *
 * Databases that can be connected to are found at the start, and later because a
 * transaction that enqueued there, or created the extension, reported its own.
 * Whether the extension is there only a worker can see, so the first worker of a
 * database is also the probe.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/heapam.h"
#include "access/htup_details.h"
#include "access/tableam.h"
#include "access/xact.h"
#include "catalog/pg_database.h"
#include "compat.h"
#include "launcher.h"
#include "launcher_internal.h"
#include "miscadmin.h"
#include "own_version.h"
#include "pgstat.h"
#include "postmaster/interrupt.h"
#include "settings.h"
#include "storage/ipc.h"
#include "storage/latch.h"
#include "storage/lock.h"
#include "storage/procarray.h"
#include "tcop/tcopprot.h"
#include "test_point.h"
#include "utils/guc.h"
#include "utils/memutils.h"
#include "utils/snapmgr.h"
#include "utils/wait_event.h"
#include "wait_event.h"

#define MAX_WAIT_MS			60000
#define LOOK_MS			100
/* One that stays longer is looked at less often, and reported. */
#define PATIENCE_MS		10000
#define LOOK_LATER_MS	1000

MemoryContext outbox_launcher_cxt;
List	   *outbox_databases = NIL;

/* --------------------------------------------------------------- databases */

static DatabaseEntry *
find_database(Oid dboid)
{
	ListCell   *cell;

	foreach(cell, outbox_databases)
	{
		DatabaseEntry *db = lfirst(cell);

		if (db->dboid == dboid)
			return db;
	}
	return NULL;
}

#ifdef USE_ASSERT_CHECKING
/* The diagram is in launcher_internal.h. */
static bool
may_become(DatabaseState from, DatabaseState to)
{
	switch (to)
	{
		case DATABASE_WAITING:
			return from == DATABASE_AWAY;
		case DATABASE_AWAY:
			return from != DATABASE_ABSENT;
		case DATABASE_STARTING:
			return from == DATABASE_AWAY || from == DATABASE_WAITING;
		case DATABASE_RUNNING:
			return from == DATABASE_STARTING;
		case DATABASE_YIELDING:
			return from == DATABASE_STARTING || from == DATABASE_RUNNING;
		case DATABASE_REGROUPING:
			return from == DATABASE_STARTING || from == DATABASE_RUNNING ||
				from == DATABASE_ABSENT;
		case DATABASE_ABSENT:
			return true;
	}
	return false;
}
#endif

/* The only writer of db->state. */
void
outbox_database_set_state(DatabaseEntry *db, DatabaseState state)
{
	if (db->state == state)
		return;
	Assert(may_become(db->state, state));
	db->state = state;
	db->since = outbox_mono_now();
	if (state == DATABASE_YIELDING)
		(void) outbox_shared_tell_workers(db->dboid, OUTBOX_SIGNAL_YIELD);
	else if (state == DATABASE_REGROUPING)
		(void) outbox_shared_tell_workers(db->dboid, OUTBOX_SIGNAL_RESTART);
	else if (state == DATABASE_ABSENT)
		(void) outbox_shared_tell_workers(db->dboid, OUTBOX_SIGNAL_STOP);
}

static void
add_database(Oid dboid)
{
	MemoryContext old;
	DatabaseEntry *db = find_database(dboid);

	if (db != NULL)
	{
		/* Perhaps the extension was created a moment ago. */
		if (db->state == DATABASE_ABSENT)
			outbox_database_set_state(db, DATABASE_REGROUPING);
		return;
	}
	old = MemoryContextSwitchTo(outbox_launcher_cxt);
	db = palloc0(sizeof(DatabaseEntry));
	db->dboid = dboid;
	db->state = DATABASE_AWAY;
	db->since = outbox_mono_now();
	db->nworkers = outbox_workers;
	outbox_databases = lappend(outbox_databases, db);
	MemoryContextSwitchTo(old);
}

/*
 * Adds every database that can be connected to and is no template, in which nothing
 * should be kept open.  Returns whether dboid is one of them; with it, adds none.
 */
static bool
scan_databases(Oid dboid)
{
	bool		found = false;
	Relation	rel;
	TableScanDesc scan;
	HeapTuple	tuple;
	MemoryContext old = CurrentMemoryContext;

	StartTransactionCommand();
	(void) GetTransactionSnapshot();
	rel = table_open(DatabaseRelationId, AccessShareLock);
	scan = table_beginscan_catalog(rel, 0, NULL);
	while ((tuple = heap_getnext(scan, ForwardScanDirection)) != NULL)
	{
		Form_pg_database form = (Form_pg_database) GETSTRUCT(tuple);

		/* A negative limit other than -1 marks an interrupted DROP. */
		if (form->datallowconn && !form->datistemplate &&
			form->datconnlimit >= -1)
		{
			found |= form->oid == dboid;
			if (!OidIsValid(dboid))
				add_database(form->oid);
		}
	}
	table_endscan(scan);
	table_close(rel, AccessShareLock);
	CommitTransactionCommand();
	MemoryContextSwitchTo(old);
	return found;
}

bool
outbox_database_exists(Oid dboid)
{
	return scan_databases(dboid);
}

bool
outbox_database_is_locked(Oid dboid)
{
	MemoryContext old = CurrentMemoryContext;
	LOCKTAG		tag;
	bool		locked;

	StartTransactionCommand();
	SET_LOCKTAG_OBJECT(tag, InvalidOid, DatabaseRelationId, dboid, 0);
	locked = LockAcquire(&tag, RowExclusiveLock, false, true) == LOCKACQUIRE_NOT_AVAIL;
	CommitTransactionCommand();
	MemoryContextSwitchTo(old);
	return locked && !OUTBOX_TEST_OMITS("lock");
}

/* There may be work, or is some: it is looked at now, unless its workers keep crashing. */
static void
ask_for(DatabaseEntry *db, bool work)
{
	db->work_at = OUTBOX_MONO_UNSET;
	if (work && !outbox_mono_is_set(db->asked_at) && db->state <= DATABASE_AWAY)
		db->asked_at = outbox_mono_now();
	if (db->failures == 0)
		db->retry_at = outbox_mono_now();
}

/* Databases that a transaction reported, or whose hold has ended. */
static void
take_requests(void)
{
	OutboxRequest requests[OUTBOX_MAX_REQUESTS];
	bool		lost;
	bool		work;
	int			count = outbox_shared_take_requests(requests, &lost, &work);

	for (int i = 0; i < count; i++)
	{
		DatabaseEntry *db = find_database(requests[i].dboid);

		add_database(requests[i].dboid);
		if (db != NULL)
			ask_for(db, requests[i].work);
	}
	if (lost)
	{
		ListCell   *cell;

		(void) scan_databases(InvalidOid);
		/* It may have been of any that is known. */
		foreach(cell, outbox_databases)
			ask_for(lfirst(cell), work);
	}
}

/* ------------------------------------------ workers of a launcher before this */

/*
 * Workers that a launcher finds which was started after another one.  We have no handle
 * for them, and two workers must never share a number in one database: they are told to
 * leave, and none of ours starts in their database before their processes are gone.  One
 * may be stuck, in its start (behind an ALTER DATABASE that is not committed) or in a
 * statement, for as long as somebody likes; other databases do not wait for it.
 */
static bool any_left;
static bool reported;
static uint64 last_old;			/* generations up to this are not ours */
static OutboxMonoTime since;

static bool
is_old(const OutboxSlot *slot)
{
	return slot->in_use && slot->generation <= last_old;
}

static void
init_old_workers(void)
{
	last_old = outbox_shared->last_generation;
	since = outbox_mono_now();
	any_left = true;
}

bool
outbox_old_workers_exist(Oid dboid)
{
	for (int i = 0; any_left && i < outbox_shared->nslots; i++)
		if (is_old(&outbox_shared->slots[i]) &&
			outbox_shared->slots[i].dboid == dboid)
			return true;
	return false;
}

static void
report(Oid dboid)
{
	ereport(LOG,
			(errmsg("outbox launcher waits for a relay worker of its predecessor in database %u to leave",
					dboid),
			 errdetail("No other worker starts in that database before.")));
	reported = true;
}

static OutboxMonoTime
check_old_workers(OutboxMonoTime now)
{
	bool		late = outbox_mono_reached(outbox_mono_plus(since, PATIENCE_MS),
										   now);

	if (!any_left)
		return OUTBOX_MONO_UNSET;
	any_left = false;
	for (int i = 0; i < outbox_shared->nslots; i++)
	{
		OutboxSlot *slot = &outbox_shared->slots[i];

		if (!is_old(slot))
			continue;
		/* Who has not attached yet never will: the slot is not its own then. */
		if (slot->pid == 0 || BackendPidGetProc(slot->pid) == NULL)
		{
			(void) outbox_slot_free(slot, slot->generation);
			continue;
		}
		(void) outbox_shared_tell_workers(slot->dboid, OUTBOX_SIGNAL_STOP);
		any_left = true;
		if (late && !reported)
			report(slot->dboid);
	}
	return any_left ? outbox_mono_plus(now, late ? LOOK_LATER_MS : LOOK_MS) :
		OUTBOX_MONO_UNSET;
}

/* ------------------------------------------------------------- the process */

/* Milliseconds until some database has to be looked at again. */
static long
manage_databases(void)
{
	OutboxMonoTime now = outbox_mono_now();
	OutboxMonoTime next = outbox_mono_plus(now, MAX_WAIT_MS);
	ListCell   *cell;

	outbox_mono_earlier(&next, check_old_workers(now));
	foreach(cell, outbox_databases)
	{
		DatabaseEntry *db = lfirst(cell);

		if (!outbox_database_check(db, now))
			continue;
		outbox_databases = foreach_delete_current(outbox_databases, cell);
		pfree(db);
	}
	outbox_turns_sort();
	foreach(cell, outbox_databases)
		outbox_database_start(lfirst(cell), now);
	outbox_mono_earlier(&next, outbox_turns_check(now));
	outbox_mono_earlier(&next, outbox_probes_check(now));
	foreach(cell, outbox_databases)
	{
		DatabaseEntry *db = lfirst(cell);

		if (!outbox_mono_reached(db->retry_at, now))
			outbox_mono_earlier(&next, db->retry_at);
		if (!outbox_mono_reached(db->room_until, now))
			outbox_mono_earlier(&next, db->room_until);
	}
	return (long) outbox_mono_ms_until(next, outbox_mono_now());
}

static void
launcher_exit(int code, Datum arg)
{
	(void) code;
	(void) arg;
	outbox_shared->launcher_procno = -1;
}

void
outbox_launcher_main(Datum main_arg)
{
	(void) main_arg;
	before_shmem_exit(launcher_exit, (Datum) 0);
	pqsignal(SIGTERM, die);
	/* pg_cancel_backend() has no statement to end, and would end all workers. */
	pqsignal(SIGINT, COMPAT_SIG_IGN);
	pqsignal(SIGHUP, SignalHandlerForConfigReload);
	BackgroundWorkerUnblockSignals();
	/* A SIGHUP in the moment of the start is lost: until here it was ignored. */
	ProcessConfigFile(PGC_SIGHUP);
	/* Shared catalogs only. */
	BackgroundWorkerInitializeConnection(NULL, NULL, 0);
	outbox_override_settings(NULL);
	/* It has nothing else to do than what it waits for. */
	SetConfigOption("lock_timeout", "0", PGC_SUSET, PGC_S_OVERRIDE);
	outbox_beat(&outbox_shared->launcher_beat, 0);
	outbox_shared->launcher_procno = outbox_my_procno();

	SetConfigOption("application_name",
					psprintf("outbox launcher (%s)", outbox_library_version()),
					PGC_USERSET, PGC_S_OVERRIDE);
	outbox_launcher_cxt = AllocSetContextCreate(TopMemoryContext, "outbox launcher",
										 ALLOCSET_DEFAULT_SIZES);
	MemoryContextSwitchTo(outbox_launcher_cxt);
	init_old_workers();
	(void) scan_databases(InvalidOid);
	for (;;)
	{
		long		timeout;

		pgstat_report_activity(STATE_RUNNING, "outbox launcher: starting relay workers");
		/* Before it looks: what comes from here on is for the next turn. */
		pg_atomic_write_u64(&outbox_shared->launcher_told, 0);
		take_requests();
		OUTBOX_TEST_POINT("launch");
		timeout = manage_databases();
		pgstat_report_activity(STATE_IDLE, NULL);
		outbox_beat(&outbox_shared->launcher_beat, Max(timeout, 10));
		(void) WaitLatch(MyLatch,
						 WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH,
						 Max(timeout, 10),
						 outbox_wait_event(OUTBOX_WAIT_LAUNCHER));
		outbox_beat(&outbox_shared->launcher_beat, 0);
		ResetLatch(MyLatch);
		/* An ordinary stop is not worth a FATAL in the log. */
		if (ProcDiePending)
			proc_exit(1);
		CHECK_FOR_INTERRUPTS();
		if (ConfigReloadPending)
		{
			ConfigReloadPending = false;
			ProcessConfigFile(PGC_SIGHUP);
		}
	}
}

void
outbox_launcher_register(void)
{
	BackgroundWorker worker;

	memset(&worker, 0, sizeof(worker));
	worker.bgw_flags = BGWORKER_SHMEM_ACCESS |
		BGWORKER_BACKEND_DATABASE_CONNECTION;
	worker.bgw_start_time = BgWorkerStart_RecoveryFinished;
	worker.bgw_restart_time = 5;
	snprintf(worker.bgw_library_name, sizeof(worker.bgw_library_name),
			 "outbox");
	snprintf(worker.bgw_function_name, sizeof(worker.bgw_function_name),
			 CppAsString(outbox_launcher_main));
	snprintf(worker.bgw_name, BGW_MAXLEN, "outbox launcher");
	snprintf(worker.bgw_type, BGW_MAXLEN, "outbox launcher");
	RegisterBackgroundWorker(&worker);
}
