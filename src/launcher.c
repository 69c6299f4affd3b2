/*-------------------------------------------------------------------------
 *
 * launcher.c
 *		The launcher: which databases have relay workers.
 *
 * One static process, connected to no database, that starts when recovery is
 * over (so also at a promotion).  It knows a database because it found it when
 * it started, or because a transaction that enqueued there, or created the
 * extension, reported it; whether the extension is there only a worker can see,
 * so the first worker of a database is also the probe.
 *
 * A database's life, in manage_database():
 *
 *		known --> worker 0 starts --ready--> all its workers run
 *		             |  extension absent        |  a worker ends
 *		             v                          v
 *		          forgotten               started again, after a backoff if
 *		                                  it crashed
 *
 * Workers are BGW_NEVER_RESTART: after a crash of the server the postmaster
 * must not start them beside those that a new launcher starts.  The launcher
 * itself never exits with 0, which would be for good.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/heapam.h"
#include "access/htup_details.h"
#include "access/tableam.h"
#include "access/xact.h"
#include "backoff.h"
#include "catalog/pg_database.h"
#include "clock.h"
#include "common/pg_prng.h"
#include "launcher.h"
#include "miscadmin.h"
#include "pgstat.h"
#include "postmaster/bgworker.h"
#include "postmaster/interrupt.h"
#include "relay.h"
#include "settings.h"
#include "shared.h"
#include "storage/ipc.h"
#include "storage/latch.h"
#include "storage/procarray.h"
#include "tcop/tcopprot.h"
#include "utils/guc.h"
#include "utils/memutils.h"
#include "utils/snapmgr.h"

#define RESTART_MS			1000	/* first wait after a crash */
#define RESTART_MAX_MS		60000
#define LONG_LIFE_MS		60000	/* after so long the waits start over */
#define NO_WORKER_MS		5000	/* try again for a worker process */
#define MAX_WAIT_MS			60000
#define MAX_PROBES			2	/* workers that start at the same time */

typedef struct WorkerEntry
{
	BackgroundWorkerHandle *handle; /* NULL: not running */
	OutboxSlot *slot;
	uint64		generation;
	OutboxMonoTime started_at;
} WorkerEntry;

typedef struct DatabaseEntry
{
	Oid			dboid;
	int			nworkers;		/* by which its keys are divided now */
	bool		regrouping;		/* all leave, to come back as nworkers */
	bool		absent;			/* has no extension: to be forgotten */
	uint32		failures;		/* crashes in a row */
	OutboxMonoTime retry_at;
	WorkerEntry workers[OUTBOX_MAX_WORKERS];
} DatabaseEntry;

static MemoryContext launcher_cxt;
static List *databases = NIL;

/* ------------------------------------------------------------- the databases */

static DatabaseEntry *
find_database(Oid dboid)
{
	ListCell   *cell;

	foreach(cell, databases)
	{
		DatabaseEntry *db = lfirst(cell);

		if (db->dboid == dboid)
			return db;
	}
	return NULL;
}

static void
add_database(Oid dboid)
{
	MemoryContext old;
	DatabaseEntry *db = find_database(dboid);

	if (db != NULL)
	{
		/* Perhaps the extension was created a moment ago. */
		db->absent = false;
		return;
	}
	old = MemoryContextSwitchTo(launcher_cxt);
	db = palloc0(sizeof(DatabaseEntry));
	db->dboid = dboid;
	db->nworkers = outbox_workers;
	databases = lappend(databases, db);
	MemoryContextSwitchTo(old);
}

/*
 * Calls visit for every database that can be connected to and is no template,
 * in which nothing should be kept open.
 */
static void
scan_databases(void (*visit) (Oid dboid, void *arg), void *arg)
{
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
			visit(form->oid, arg);
	}
	table_endscan(scan);
	table_close(rel, AccessShareLock);
	CommitTransactionCommand();
	MemoryContextSwitchTo(old);
}

static void
visit_add(Oid dboid, void *arg)
{
	(void) arg;
	add_database(dboid);
}

typedef struct Exists
{
	Oid			dboid;
	bool		exists;
} Exists;

static void
visit_compare(Oid dboid, void *arg)
{
	Exists	   *exists = arg;

	if (exists->dboid == dboid)
		exists->exists = true;
}

static bool
database_exists(Oid dboid)
{
	Exists		exists = {dboid, false};

	scan_databases(visit_compare, &exists);
	return exists.exists;
}

/*
 * Databases that a transaction reported, or whose hold has ended: they are
 * looked at now, unless their workers keep crashing.
 */
static void
take_requests(void)
{
	Oid			dboids[OUTBOX_MAX_REQUESTS];
	bool		lost;
	int			count = outbox_shared_take_requests(dboids, &lost);

	for (int i = 0; i < count; i++)
	{
		DatabaseEntry *db = find_database(dboids[i]);

		add_database(dboids[i]);
		if (db != NULL && db->failures == 0)
			db->retry_at = OUTBOX_MONO_UNSET;
	}
	if (lost)
		scan_databases(visit_add, NULL);
}

/* --------------------------------------------------------------- the workers */

static void
report_no_worker(void)
{
	if (outbox_shared->out_of_workers)
		return;
	outbox_shared->out_of_workers = true;
	ereport(LOG,
			(errcode(ERRCODE_CONFIGURATION_LIMIT_EXCEEDED),
			 errmsg("outbox could not start a relay worker: no worker process is free"),
			 errhint("You may need to increase \"max_worker_processes\". The launcher tries again by itself.")));
}

/* Returns false when no worker process or slot is free. */
static bool
start_worker(DatabaseEntry *db, int number)
{
	WorkerEntry *entry = &db->workers[number];
	BackgroundWorker worker;
	OutboxWorkerArgs args;
	MemoryContext old;
	bool		registered;

	entry->slot = outbox_slot_assign(db->dboid, number, db->nworkers,
									 &entry->generation);
	if (entry->slot == NULL)
		return false;

	memset(&args, 0, sizeof(args));
	args.dboid = db->dboid;
	args.slot = (int) (entry->slot - outbox_shared->slots);
	args.generation = entry->generation;

	memset(&worker, 0, sizeof(worker));
	worker.bgw_flags = BGWORKER_SHMEM_ACCESS |
		BGWORKER_BACKEND_DATABASE_CONNECTION;
	worker.bgw_start_time = BgWorkerStart_RecoveryFinished;
	worker.bgw_restart_time = BGW_NEVER_RESTART;
	snprintf(worker.bgw_library_name, sizeof(worker.bgw_library_name),
			 "outbox");
	snprintf(worker.bgw_function_name, sizeof(worker.bgw_function_name),
			 CppAsString(outbox_relay_main));
	snprintf(worker.bgw_name, BGW_MAXLEN, "outbox relay %d of database %u",
			 number, db->dboid);
	snprintf(worker.bgw_type, BGW_MAXLEN, "outbox relay");
	worker.bgw_notify_pid = MyProcPid;
	memcpy(worker.bgw_extra, &args, sizeof(args));

	old = MemoryContextSwitchTo(launcher_cxt);
	registered = RegisterDynamicBackgroundWorker(&worker, &entry->handle);
	MemoryContextSwitchTo(old);
	if (!registered)
	{
		(void) outbox_slot_free(entry->slot, entry->generation);
		entry->handle = NULL;
		return false;
	}
	entry->started_at = outbox_mono_now();
	return true;
}

static void
worker_ended(DatabaseEntry *db, int number)
{
	WorkerEntry *entry = &db->workers[number];
	OutboxExit	reason = entry->slot->exit_reason;

	/* The extension may have been created again while the worker left. */
	if (outbox_slot_free(entry->slot, entry->generation) &&
		reason == OUTBOX_EXIT_ABSENT)
		reason = OUTBOX_EXIT_RESTART;
	pfree(entry->handle);
	entry->handle = NULL;
	switch (reason)
	{
		case OUTBOX_EXIT_ABSENT:
			db->absent = true;
			break;
		case OUTBOX_EXIT_RESTART:
		case OUTBOX_EXIT_STOPPED:
			db->failures = 0;
			break;
		case OUTBOX_EXIT_CRASHED:
			if (outbox_mono_reached(outbox_mono_plus(entry->started_at,
													 LONG_LIFE_MS),
									outbox_mono_now()))
				db->failures = 0;
			db->failures++;
			db->retry_at =
				outbox_mono_after(outbox_backoff_ms(RESTART_MS, RESTART_MAX_MS,
													db->failures,
													pg_prng_uint32(&pg_global_prng_state)));
			/* Dropped, or not open to connections any more. */
			if (!database_exists(db->dboid))
				db->absent = true;
			break;
	}
}

/* Notices workers that ended; returns how many run. */
static int
reap_workers(DatabaseEntry *db)
{
	int			running = 0;

	for (int i = 0; i < OUTBOX_MAX_WORKERS; i++)
	{
		pid_t		pid;

		if (db->workers[i].handle == NULL)
			continue;
		if (GetBackgroundWorkerPid(db->workers[i].handle, &pid) == BGWH_STOPPED)
			worker_ended(db, i);
		else
			running++;
	}
	return running;
}

static int
count_probes(void)
{
	int			count = 0;
	ListCell   *cell;

	foreach(cell, databases)
	{
		DatabaseEntry *db = lfirst(cell);

		if (db->workers[0].handle != NULL && !db->workers[0].slot->ready)
			count++;
	}
	return count;
}

/*
 * All workers of a database divide its keys by the same number, so a change of
 * outbox.workers sends all of them home before the first of the new ones comes.
 */
static void
regroup(DatabaseEntry *db, int running)
{
	WorkerEntry *first = &db->workers[0];

	if (db->regrouping && running == 0)
		db->regrouping = false;
	if (db->regrouping || first->handle == NULL || !first->slot->ready ||
		first->slot->wanted_workers == db->nworkers)
		return;
	db->nworkers = first->slot->wanted_workers;
	db->regrouping = true;
	(void) outbox_shared_tell_workers(db->dboid, OUTBOX_NEWS_RESTART);
}

static void
start_missing(DatabaseEntry *db)
{
	for (int i = 0; i < db->nworkers; i++)
	{
		if (db->workers[i].handle != NULL)
			continue;
		/* The first one finds out whether there is anything to do. */
		if (i > 0 && (db->workers[0].handle == NULL ||
					  !db->workers[0].slot->ready))
			return;
		if (i == 0 && count_probes() >= MAX_PROBES)
			return;
		/* Dropped while its workers were away, or closed to connections. */
		if (i == 0 && !database_exists(db->dboid))
		{
			db->absent = true;
			outbox_shared_wake_launcher();
			return;
		}
		if (!start_worker(db, i))
		{
			report_no_worker();
			db->retry_at = outbox_mono_after(NO_WORKER_MS);
			return;
		}
		outbox_shared->out_of_workers = false;
	}
}

/* Returns true when the database is to be forgotten. */
static bool
manage_database(DatabaseEntry *db, OutboxMonoTime now)
{
	int			running = reap_workers(db);

	if (db->absent)
	{
		if (running > 0)
			(void) outbox_shared_tell_workers(db->dboid, OUTBOX_NEWS_STOP);
		return running == 0;
	}
	if (outbox_hold_exists(db->dboid))
	{
		(void) outbox_shared_tell_workers(db->dboid, OUTBOX_NEWS_STOP);
		db->retry_at = outbox_mono_after(NO_WORKER_MS);
		return false;
	}
	regroup(db, running);
	if (!db->regrouping && outbox_mono_reached(db->retry_at, now))
		start_missing(db);
	return false;
}

/* Milliseconds until some database has to be looked at again. */
static long
manage_databases(void)
{
	OutboxMonoTime now = outbox_mono_now();
	OutboxMonoTime next = outbox_mono_plus(now, MAX_WAIT_MS);
	ListCell   *cell;

	foreach(cell, databases)
	{
		DatabaseEntry *db = lfirst(cell);

		if (manage_database(db, now))
		{
			databases = foreach_delete_current(databases, cell);
			pfree(db);
			continue;
		}
		if (!outbox_mono_reached(db->retry_at, now))
			outbox_mono_earlier(&next, db->retry_at);
	}
	return (long) outbox_mono_ms_until(next, outbox_mono_now());
}

/* ------------------------------------------------------------- the process */

/*
 * Workers of a launcher that was terminated.  We have no handle for them, and
 * two workers must never share a number, so they go before the first of ours
 * comes.  Their databases are found again by the scan.
 */
static void
send_old_workers_home(void)
{
	bool		reported = false;
	OutboxMonoTime report_at = outbox_mono_after(10 * 1000);

	for (;;)
	{
		int			running = 0;

		for (int i = 0; i < outbox_shared->nslots; i++)
		{
			OutboxSlot *slot = &outbox_shared->slots[i];

			if (!slot->in_use)
				continue;
			if (slot->pid == 0 || BackendPidGetProc(slot->pid) == NULL)
			{
				(void) outbox_slot_free(slot, slot->generation);
				continue;
			}
			(void) outbox_shared_tell_workers(slot->dboid, OUTBOX_NEWS_STOP);
			running++;
		}
		if (running == 0)
			return;
		if (!reported && outbox_mono_reached(report_at, outbox_mono_now()))
		{
			ereport(LOG,
					(errmsg("outbox launcher waits for %d relay workers of its predecessor to leave",
							running)));
			reported = true;
		}
		(void) WaitLatch(MyLatch,
						 WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH,
						 100, PG_WAIT_EXTENSION);
		ResetLatch(MyLatch);
		CHECK_FOR_INTERRUPTS();
	}
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
	pqsignal(SIGHUP, SignalHandlerForConfigReload);
	BackgroundWorkerUnblockSignals();
	/* Shared catalogs only. */
	BackgroundWorkerInitializeConnection(NULL, NULL, 0);
	outbox_shared->launcher_procno = outbox_my_procno();

	launcher_cxt = AllocSetContextCreate(TopMemoryContext, "outbox launcher",
										 ALLOCSET_DEFAULT_SIZES);
	MemoryContextSwitchTo(launcher_cxt);
	send_old_workers_home();
	scan_databases(visit_add, NULL);
	for (;;)
	{
		long		timeout;

		take_requests();
		timeout = manage_databases();
		(void) WaitLatch(MyLatch,
						 WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH,
						 Max(timeout, 10), PG_WAIT_EXTENSION);
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
