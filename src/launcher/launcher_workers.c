/*-------------------------------------------------------------------------
 *
 * launcher_workers.c
 *		Starting and ending the workers of a database.
 *
 * Worker 0 is the first to start, and finds out whether the extension is there.
 * One that ends is started again, after a backoff if it crashed.
 *
 * Workers are BGW_NEVER_RESTART: after a crash of the server the postmaster
 * must not start them beside those that a new launcher starts.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "backoff.h"
#include "common/pg_prng.h"
#include "compat.h"
#include "launcher_internal.h"
#include "miscadmin.h"
#include "rows_written.h"
#include "settings.h"
#include "shared.h"
#include "stats.h"
#include "utils/memutils.h"
#include "worker_limit.h"

#define RESTART_MS			1000	/* first wait after a crash */
#define RESTART_MAX_MS		60000
#define LONG_LIFE_MS		60000	/* after so long the waits start over */
#define LOCKED_MS			1000	/* look again for a lock on the database */
#define NO_WORKER_MS		5000	/* try again for a worker process */
#define MAX_PROBES			2	/* first looks for the extension, at the same
								 * time */
#define PROBE_MS			5000	/* one that takes longer does not count */

static void
describe_worker(BackgroundWorker *worker, const OutboxWorkerArgs *args)
{
	memset(worker, 0, sizeof(*worker));

	/*
	 * ddl.c has stopped the workers before DROP DATABASE and the like look
	 * for others; should that have failed, the server does it, as SIGTERM.
	 */
	worker->bgw_flags = BGWORKER_SHMEM_ACCESS |
		BGWORKER_BACKEND_DATABASE_CONNECTION | COMPAT_BGWORKER_INTERRUPTIBLE;
	worker->bgw_start_time = BgWorkerStart_RecoveryFinished;
	worker->bgw_restart_time = BGW_NEVER_RESTART;
	snprintf(worker->bgw_library_name, sizeof(worker->bgw_library_name),
			 "outbox");
	snprintf(worker->bgw_function_name, sizeof(worker->bgw_function_name),
			 CppAsString(outbox_relay_main));
	snprintf(worker->bgw_type, BGW_MAXLEN, "outbox relay");
	memcpy(worker->bgw_extra, args, sizeof(*args));
}

int
outbox_database_running(const DatabaseEntry *db)
{
	int			running = 0;

	for (int i = 0; i < OUTBOX_MAX_WORKERS; i++)
		if (db->workers[i].handle != NULL)
			running++;
	return running;
}

int
outbox_workers_left(void)
{
	return outbox_worker_limit() - outbox_slots_in_use();
}

/* Returns false when no worker process is free, or none is for us. */
static bool
start_worker(DatabaseEntry *db, int number)
{
	WorkerEntry *entry = &db->workers[number];
	BackgroundWorker worker;
	OutboxWorkerArgs args;
	MemoryContext old;
	bool		registered;

	outbox_shared->at_limit = outbox_workers_left() <= 0;
	if (outbox_shared->at_limit)
		return false;
	entry->slot = outbox_slot_assign(db->dboid, number, db->nworkers,
									 &entry->generation);
	if (entry->slot == NULL)
		return false;

	memset(&args, 0, sizeof(args));
	args.dboid = db->dboid;
	args.slot = (int) (entry->slot - outbox_shared->slots);
	args.generation = entry->generation;
	args.told = entry->told;
	args.twin_told = entry->twin_told;
	describe_worker(&worker, &args);
	snprintf(worker.bgw_name, BGW_MAXLEN, "outbox relay %d of database %u",
			 number, db->dboid);
	worker.bgw_notify_pid = MyProcPid;

	old = MemoryContextSwitchTo(outbox_launcher_cxt);
	registered = RegisterDynamicBackgroundWorker(&worker, &entry->handle);
	MemoryContextSwitchTo(old);
	if (!registered)
	{
		(void) outbox_slot_free(entry->slot, entry->generation);
		entry->handle = NULL;
		return false;
	}
	entry->started_at = outbox_mono_now();

	/*
	 * It sees at least what was counted by now; and what it knew of work
	 * before is over.
	 */
	if (number == 0)
	{
		db->written = outbox_rows_written(db->dboid);
		db->work_at = OUTBOX_MONO_UNSET;
	}
	return true;
}

/*
 * The server does not say how many processes are free, so one is asked for,
 * that finds no slot to attach to and leaves at once.
 */
bool
outbox_worker_process_is_free(void)
{
	BackgroundWorker worker;
	OutboxWorkerArgs args;

	if (outbox_workers_left() <= 0)
		return false;
	memset(&args, 0, sizeof(args));
	args.slot = -1;
	describe_worker(&worker, &args);
	snprintf(worker.bgw_name, BGW_MAXLEN, "outbox relay, a look for a free process");
	return RegisterDynamicBackgroundWorker(&worker, NULL);
}

/*
 * Several that crash at the same time, or while one is waited for, do so for the
 * same reason and count once: a group of eight must not wait for a minute.
 */
static void
worker_crashed(DatabaseEntry *db, const WorkerEntry *entry)
{
	OutboxMonoTime now = outbox_mono_now();

	if (db->failures > 0 && !outbox_mono_reached(db->retry_at, now))
		return;
	if (outbox_mono_reached(outbox_mono_plus(entry->started_at, LONG_LIFE_MS),
							now))
		db->failures = 0;
	db->failures++;
	db->retry_at =
		outbox_mono_after(outbox_backoff_ms(RESTART_MS, RESTART_MAX_MS,
											db->failures,
											pg_prng_uint32(&pg_global_prng_state)));
}

/*
 * No extension, dropped, or not open to connections.  What is committed while other workers
 * still run is told to them, and not to us; so worker 0 looks once more when they have left.
 */
static void
database_gone(DatabaseEntry *db)
{
	if (outbox_database_running(db) == 0)
		outbox_database_set_state(db, DATABASE_ABSENT);
	else if (db->state == DATABASE_STARTING || db->state == DATABASE_RUNNING)
		outbox_database_set_state(db, DATABASE_REGROUPING);
}

static void
worker_ended(DatabaseEntry *db, int number)
{
	WorkerEntry *entry = &db->workers[number];
	OutboxExit	reason = entry->slot->exit_reason;
	bool		unread;
	bool		knows;

	unread = outbox_slot_free(entry->slot, entry->generation);
	/* The extension may have been created again while the worker left. */
	if (unread && reason == OUTBOX_EXIT_ABSENT)
		reason = OUTBOX_EXIT_RESTART;
	db->found = (db->found || entry->slot->ready) && reason != OUTBOX_EXIT_ABSENT;
	knows = !unread && reason == OUTBOX_EXIT_YIELDED;
	outbox_turn_left(db, knows ? entry->slot->rest_ms : 0,
					 knows && entry->slot->rests);
	entry->told = reason == OUTBOX_EXIT_YIELDED ?
		entry->slot->told : OUTBOX_TOLD_NOTHING;
	entry->twin_told = entry->slot->twin_told;
	pfree(entry->handle);
	entry->handle = NULL;
	switch (reason)
	{
		case OUTBOX_EXIT_ABSENT:
			database_gone(db);
			break;
		case OUTBOX_EXIT_RESTART:
		case OUTBOX_EXIT_STOPPED:
		case OUTBOX_EXIT_YIELDED:
			db->failures = 0;
			break;
		case OUTBOX_EXIT_CRASHED:
			worker_crashed(db, entry);
			if (outbox_database_exists(db->dboid))
				outbox_stats_crashed(db->dboid);
			else
				database_gone(db);
			break;
	}
}

/* Notices workers that ended; returns how many run. */
static int
reap_workers(DatabaseEntry *db)
{
	for (int i = 0; i < OUTBOX_MAX_WORKERS; i++)
	{
		pid_t		pid;

		if (db->workers[i].handle == NULL)
			continue;
		if (GetBackgroundWorkerPid(db->workers[i].handle, &pid) == BGWH_STOPPED)
			worker_ended(db, i);
	}
	return outbox_database_running(db);
}

/*
 * Until when the first worker of a database counts as one that starts.  A database
 * whose name is being changed, say, keeps it waiting in its start for as long as
 * somebody likes, which must not keep other databases waiting.
 */
static OutboxMonoTime
probe_end(const DatabaseEntry *db)
{
	const WorkerEntry *first = &db->workers[0];

	if (first->handle == NULL || first->slot->ready || db->found)
		return OUTBOX_MONO_UNSET;
	return outbox_mono_plus(first->started_at, PROBE_MS);
}

/* How many start now; *next: when the first of them does not count any more. */
static int
count_probes(OutboxMonoTime now, OutboxMonoTime *next)
{
	int			count = 0;
	ListCell   *cell;

	*next = OUTBOX_MONO_UNSET;
	foreach(cell, outbox_databases)
	{
		OutboxMonoTime end = probe_end(lfirst(cell));

		if (outbox_mono_reached(end, now))
			continue;
		outbox_mono_earlier(next, end);
		count++;
	}
	return count;
}

OutboxMonoTime
outbox_probes_check(OutboxMonoTime now)
{
	OutboxMonoTime next;

	(void) count_probes(now, &next);
	return next;
}

static int
wanted_workers(DatabaseEntry *db, int running)
{
	WorkerEntry *first = &db->workers[0];

	if (first->handle != NULL && first->slot->ready)
		return outbox_turn_room(db, first->slot->wanted_workers);
	/* The others share its keys, too, if there is no process for the first. */
	if (first->handle == NULL && running > 0)
		return outbox_turn_room(db, db->nworkers);
	return db->nworkers;
}

/*
 * All workers of a database divide its keys by the same number, so a change of
 * that number, because of outbox.workers or for want of processes, sends all of
 * them home before the first of the new ones comes.
 */
static void
regroup(DatabaseEntry *db, int running)
{
	int			wanted;

	/* One that makes room is regrouped when it is back. */
	if (db->state != DATABASE_STARTING && db->state != DATABASE_RUNNING)
		return;
	wanted = wanted_workers(db, running);
	if (wanted == db->nworkers)
		return;
	db->nworkers = wanted;
	outbox_database_set_state(db, DATABASE_REGROUPING);
}

/* Until the first worker has found the extension it is alone. */
static void
start_missing(DatabaseEntry *db)
{
	OutboxMonoTime probes_end;

	for (int i = 0; i < db->nworkers; i++)
	{
		if (db->workers[i].handle != NULL)
			continue;
		if (i > 0 && (db->workers[0].handle == NULL ||
					  !db->workers[0].slot->ready))
			return;
		if (i == 0 && !db->found &&
			count_probes(outbox_mono_now(), &probes_end) >= MAX_PROBES)
			return;
		/* Dropped while its workers were away, or closed to connections. */
		if (i == 0 && !outbox_database_exists(db->dboid))
		{
			database_gone(db);
			outbox_shared_wake_launcher();
			return;
		}

		/*
		 * It would take a process, and wait in its start for as long as the
		 * lock is held.
		 */
		if (i == 0 && outbox_database_is_locked(db->dboid))
		{
			db->retry_at = outbox_mono_after(LOCKED_MS);
			return;
		}
		if (!start_worker(db, i))
		{
			int			running = outbox_database_running(db);

			outbox_turn_no_process(db, running);
			if (running == 0)
				db->retry_at = outbox_mono_after(NO_WORKER_MS);
			else
				outbox_shared_wake_launcher();	/* to regroup at once */
			return;
		}
		/* One that joins others shares their turn. */
		if (db->state == DATABASE_AWAY || db->state == DATABASE_WAITING)
		{
			outbox_database_set_state(db, DATABASE_STARTING);
			outbox_turn_started(db);
		}
	}
}

void
outbox_database_start(DatabaseEntry *db, OutboxMonoTime now)
{
	if (db->state <= DATABASE_RUNNING &&
		outbox_mono_reached(db->retry_at, now) &&
		!outbox_turn_rests(db, now) &&
		!outbox_old_workers_exist(db->dboid))
		start_missing(db);
}

bool
outbox_database_check(DatabaseEntry *db, OutboxMonoTime now)
{
	int			running = reap_workers(db);
	bool		held = outbox_hold_exists(db->dboid);

	if (db->state == DATABASE_ABSENT)
		return running == 0;
	/* A process is of no use to one that is kept away. */
	if (running == 0 && (held || db->state != DATABASE_WAITING))
		outbox_database_set_state(db, DATABASE_AWAY);
	if (held)
	{
		(void) outbox_shared_tell_workers(db->dboid, OUTBOX_SIGNAL_STOP);
		db->retry_at = outbox_mono_after(NO_WORKER_MS);
		return false;
	}
	outbox_turn_begin(db, now);
	regroup(db, running);
	return false;
}
