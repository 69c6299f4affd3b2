/*-------------------------------------------------------------------------
 *
 * launcher.c
 *		What the launcher decides when workers end, without processes.
 *
 * launcher_workers.c is included as it is; the rest of the launcher, the server and
 * time are here.
 *
 *-------------------------------------------------------------------------
 */
#include "launcher_workers.c"

#include "launcher_server.h"

#define WORKERS		8
#define JITTER_MAX	5 / 4

MemoryContext outbox_launcher_cxt;
List	   *outbox_databases;
int			max_worker_processes = 2 * WORKERS;
int			outbox_max_workers;

static bool unread;				/* something has come for a worker that left */
static bool stopped[WORKERS];
static OutboxSlot slots[WORKERS];
static char handles[WORKERS];

void
pfree(void *pointer)
{
}

BgwHandleStatus
GetBackgroundWorkerPid(BackgroundWorkerHandle *handle, pid_t *pid)
{
	return stopped[(char *) handle - handles] ? BGWH_STOPPED : BGWH_STARTED;
}

bool
RegisterDynamicBackgroundWorker(BackgroundWorker *worker, BackgroundWorkerHandle **handle)
{
	return false;
}

OutboxSlot *
outbox_slot_assign(Oid dboid, int worker, int nworkers, uint64 *generation)
{
	return NULL;
}

void
outbox_stats_crashed(Oid dboid)
{
	(void) dboid;
}

bool
outbox_slot_free(OutboxSlot *slot, uint64 generation)
{
	return unread;
}

int
outbox_shared_tell_workers(Oid dboid, int signals)
{
	return 0;
}

void
outbox_shared_wake_launcher(void)
{
}

bool
outbox_old_workers_exist(Oid dboid)
{
	return false;
}

bool
outbox_database_exists(Oid dboid)
{
	return true;
}

bool
outbox_database_is_locked(Oid dboid)
{
	return false;
}

void
outbox_database_set_state(DatabaseEntry *db, DatabaseState state)
{
	db->state = state;
}

void
outbox_turn_no_process(DatabaseEntry *db, int running)
{
}

void
outbox_turn_begin(DatabaseEntry *db, OutboxMonoTime now)
{
}

void
outbox_turn_left(DatabaseEntry *db, int rest_ms, bool rests)
{
}

bool
outbox_turn_rests(DatabaseEntry *db, OutboxMonoTime now)
{
	return false;
}

int64
outbox_rows_written(Oid dboid)
{
	return -1;
}

int
outbox_turn_room(DatabaseEntry *db, int wanted)
{
	return wanted;
}

/* -------------------------------------------------------------------- tests */

static void
all_run(DatabaseEntry *db)
{
	if (db->nworkers == 0)
		memset(db, 0, sizeof(*db));
	db->dboid = 5;
	db->state = DATABASE_RUNNING;
	db->nworkers = WORKERS;
	for (int i = 0; i < WORKERS; i++)
	{
		stopped[i] = false;
		slots[i].ready = true;
		slots[i].wanted_workers = WORKERS;
		db->workers[i].handle = (BackgroundWorkerHandle *) &handles[i];
		db->workers[i].slot = &slots[i];
		db->workers[i].started_at = outbox_mono_now();
	}
}

static void
end(DatabaseEntry *db, int i, OutboxExit reason)
{
	stopped[i] = true;
	slots[i].exit_reason = reason;
	(void) outbox_database_check(db, outbox_mono_now());
}

static int64
wait_ms(const DatabaseEntry *db)
{
	return (db->retry_at.us - now_us) / 1000;
}

static void
test_crashes(void)
{
	DatabaseEntry db = {0};

	all_run(&db);
	for (int i = 0; i < WORKERS; i++)
	{
		end(&db, i, OUTBOX_EXIT_CRASHED);
		now_us += 1000;
	}
	check(db.failures == 1, "eight workers that crash together count as one crash");
	check(wait_ms(&db) <= RESTART_MS * JITTER_MAX, "and come back after the first wait");

	now_us = db.retry_at.us;
	all_run(&db);
	end(&db, 0, OUTBOX_EXIT_CRASHED);
	check(db.failures == 2 && wait_ms(&db) == 2 * RESTART_MS * JITTER_MAX - 1,
		  "a crash after that wait is the next one, and the wait doubles");

	for (int i = 0; i < 20; i++)
	{
		now_us = db.retry_at.us;
		all_run(&db);
		end(&db, 0, OUTBOX_EXIT_CRASHED);
	}
	check(wait_ms(&db) == RESTART_MAX_MS, "it has a limit");

	now_us = db.retry_at.us;
	all_run(&db);
	now_us += LONG_LIFE_MS * INT64CONST(1000);
	end(&db, 0, OUTBOX_EXIT_CRASHED);
	check(wait_ms(&db) <= RESTART_MS * JITTER_MAX, "after a long life the waits start over");

	now_us = db.retry_at.us;
	all_run(&db);
	end(&db, 0, OUTBOX_EXIT_RESTART);
	check(db.failures == 0 && outbox_mono_reached(db.retry_at, outbox_mono_now()),
		  "one that was told to leave comes back at once");
}

static void
test_absent(void)
{
	DatabaseEntry db = {0};

	all_run(&db);
	for (int i = 0; i < WORKERS; i++)
		end(&db, i, OUTBOX_EXIT_ABSENT);
	check(db.state == DATABASE_ABSENT, "without the extension the database is forgotten");

	memset(&db, 0, sizeof(db));
	all_run(&db);
	for (int i = 0; i < WORKERS - 1; i++)
		end(&db, i, OUTBOX_EXIT_ABSENT);
	check(db.state == DATABASE_REGROUPING, "not before the last worker has left");
	unread = true;
	end(&db, WORKERS - 1, OUTBOX_EXIT_ABSENT);
	unread = false;
	check(db.state == DATABASE_AWAY && outbox_mono_reached(db.retry_at, outbox_mono_now()),
		  "created again while the last one left: it comes back at once");
}

int
main(void)
{
	int			failed;

	test_crashes();
	test_absent();
	failed = done();
	if (failed == 0)
		printf("sim: %d decisions of the launcher, all promises kept\n", checks_run);
	return failed;
}
