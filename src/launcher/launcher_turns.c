/*-------------------------------------------------------------------------
 *
 * launcher_turns.c
 *		Whose turn it is when there are fewer workers than databases want.
 *
 * Background workers are a resource of the whole server (max_worker_processes), of
 * which all databases together may have so many (outbox.max_workers), and a database
 * that has the extension needs one.  When none is left, the databases take turns:
 * for each that waits another one makes room.  What is free goes by turns to one that
 * a transaction has asked for and to one that only looks whether it can publish, of each
 * to the one that has waited longest.  To come back costs a worker's start, which reads all that is there,
 * so the database leaves first that needs its workers least:
 *
 *		rests	has published nothing for 10 s, or not yet: leaves when it has run
 *				for 0.3 s
 *		works	has published within 10 s, or reads what is there: keeps its workers
 *				while another one rests or starts; else it leaves when it has idled
 *				for 0.3 s, or has had its turn of 3 s
 *
 * and of several the one that has idled longest.  So a few busy databases keep their
 * workers while all others take turns with what is left, and where too many are busy
 * these take turns themselves.
 *
 * A database that has left because it has nothing to do misses nothing: a
 * transaction that enqueues there finds no worker to tell, and tells the launcher
 * (outbox_shared_announce()); when a retry or a scheduled message will be due, the
 * worker said when it left.  Rows that no trigger announces (a subscription's, for
 * instance) are looked for each minute, if the server has counted a row that was
 * written in that database since its last worker began.  With hundreds of databases
 * the starts for a look at nothing would be most of what an idle server does.
 *
 * A database that has some of its workers and cannot have all of them makes do:
 * those that it has share all keys (its room), until there is a process for one
 * more.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "launcher_internal.h"
#include "miscadmin.h"
#include "rows_written.h"
#include "utils/timestamp.h"

/* How long a database keeps its workers while others wait. */
#define TURN_MS			3000
/* The same when it has nothing to do: time for a look at everything. */
#define IDLE_TURN_MS	300
/* One that has published within this time works, see above. */
#define WORKS_MS		10000
/* While somebody waits: nobody says when he begins to idle, so look so often. */
#define CHECK_MS		100
/* A database without a worker: was it written to? */
#define REST_LOOK_MS			60000
/* What it may take before its turn, to start and to connect: steps of 3 s. */
#define START_MS		10000
/*
 * What it may take to leave.  One that is stuck, in a statement or a connect, and
 * does not read what it is told, must not be what the others wait for.
 */
#define YIELD_MS		5000
/* A worker that has not attached to its database after so long is terminated while others wait. */
#define HANG_MS			30000
/*
 * A group of workers that was too large for the room looks for more so often.  To
 * grow, all of them leave and come back, within half a second, and once more if
 * the room turns out to be too small again: a small part of this time.
 */
#define ROOM_MS			10000
/* The same line again after so long, while it lasts or comes back. */
#define REPORT_MS		(10 * 60000)

static OutboxMonoTime report_at;

static void
report_no_process(void)
{
	if (!outbox_mono_reached(report_at, outbox_mono_now()))
		return;
	report_at = outbox_mono_after(REPORT_MS);
	ereport(LOG,
			(errcode(ERRCODE_CONFIGURATION_LIMIT_EXCEEDED),
			 outbox_shared->at_limit ?
			 errmsg("outbox could not start a relay worker: \"outbox.max_workers\" allows no more") :
			 errmsg("outbox could not start a relay worker: no worker process is free"),
			 errdetail("The workers that a database has share all of its keys; databases without a worker take turns of %d seconds.",
					   TURN_MS / 1000),
			 errhint("%s The launcher tries again by itself.",
					 outbox_workers_advice())));
}

void
outbox_turn_no_process(DatabaseEntry *db, int running)
{
	report_no_process();
	if (running == 0)
	{
		outbox_database_set_state(db, DATABASE_WAITING);
		return;
	}
	/* Its keys must not wait for workers that cannot come: fewer share them. */
	db->room = running;
	db->room_until = outbox_mono_after(ROOM_MS);
}

/*
 * Whether it can use its database or not; one that is stuck in its start does not.  One
 * that leaves is told nothing more: for who has not read all is started again.
 */
static bool
takes_inbox(const WorkerEntry *entry)
{
	return entry->handle != NULL &&
		entry->slot->state > OUTBOX_WORKER_STARTING &&
		entry->slot->state < OUTBOX_WORKER_STOPPING;
}

/*
 * Starting and connecting are not part of its turn: whose broker is far away would
 * else be sent home each time before it has sent a message.
 */
void
outbox_turn_begin(DatabaseEntry *db, OutboxMonoTime now)
{
	const WorkerEntry *first = &db->workers[0];

	if (db->state != DATABASE_STARTING || !takes_inbox(first))
		return;
	if (first->slot->state != OUTBOX_WORKER_CONNECTING ||
		outbox_mono_reached(outbox_mono_plus(db->since, START_MS), now))
		outbox_database_set_state(db, DATABASE_RUNNING);
}

void
outbox_turn_left(DatabaseEntry *db, int rest_ms, bool rests)
{
	ListCell   *cell;

	/* It may come back when the first of its workers knows of work. */
	if (db->state == DATABASE_YIELDING)
	{
		TimestampTz due_at = TimestampTzPlusMilliseconds(GetCurrentTimestamp(), rest_ms);

		db->rests &= rests;
		outbox_mono_earlier(&db->work_at, outbox_mono_after(rest_ms));
		if (db->due_at == 0 || due_at < db->due_at)
			db->due_at = due_at;
		outbox_mono_earlier(&db->retry_at, outbox_mono_after(Min(rest_ms, REST_LOOK_MS)));
	}
	/* There is a process for somebody. */
	foreach(cell, outbox_databases)
	{
		DatabaseEntry *other = lfirst(cell);

		if (other->state == DATABASE_WAITING)
			other->retry_at = OUTBOX_MONO_UNSET;
	}
}

bool
outbox_turn_rests(DatabaseEntry *db, OutboxMonoTime now)
{
	if (db->state != DATABASE_AWAY || outbox_mono_reached(db->work_at, now) ||
		GetCurrentTimestamp() >= db->due_at ||
		db->written != outbox_rows_written(db->dboid))
		return false;
	db->retry_at = db->work_at;
	outbox_mono_earlier(&db->retry_at, outbox_mono_plus(now, REST_LOOK_MS));
	return true;
}

int
outbox_turn_room(DatabaseEntry *db, int wanted)
{
	if (wanted <= db->room)
		db->room_until = OUTBOX_MONO_UNSET;
	if (!outbox_mono_is_set(db->room_until))
		return wanted;
	if (!outbox_mono_reached(db->room_until, outbox_mono_now()))
		return db->room;
	/* Not before there is a process for one more, which nobody waits for. */
	if (outbox_shared->out_of_workers || !outbox_worker_process_is_free())
	{
		db->room_until = outbox_mono_after(ROOM_MS);
		return db->room;
	}
	db->room_until = OUTBOX_MONO_UNSET;
	return wanted;
}

/* ------------------------------------------------------------------- turns */

/* Had a transaction asked for the last one that got a process? */
static bool asked_was_last;

/* The one that only looks, and is next all the same; NULL: none. */
static const DatabaseEntry *looks_next;

void
outbox_turn_started(DatabaseEntry *db)
{
	asked_was_last = outbox_mono_is_set(db->asked_at);
	db->asked_at = OUTBOX_MONO_UNSET;
}

/*
 * Where a transaction has asked for a worker there is work.  All others only look: at a
 * server's start each one, and again and again those that cannot publish.
 */
static int
rank(const DatabaseEntry *db)
{
	if (db == looks_next)
		return 0;
	if (outbox_mono_is_set(db->asked_at))
		return 1;
	return db->state == DATABASE_WAITING ? 2 : 3;
}

/* Of those that have the same rank, or the same state, the one comes first that has had it longest. */
static int
compare_turns(const ListCell *a, const ListCell *b)
{
	const DatabaseEntry *left = lfirst(a);
	const DatabaseEntry *right = lfirst(b);

	if (left->state <= DATABASE_AWAY && right->state <= DATABASE_AWAY)
	{
		if (rank(left) != rank(right))
			return rank(left) - rank(right);
		if (outbox_mono_before(left->asked_at, right->asked_at))
			return -1;
		if (outbox_mono_before(right->asked_at, left->asked_at))
			return 1;
	}
	if (left->state != right->state)
		return (int) left->state - (int) right->state;
	return outbox_mono_before(left->since, right->since) ? -1 :
		outbox_mono_before(right->since, left->since) ? 1 : 0;
}

void
outbox_turns_sort(void)
{
	ListCell   *cell;

	looks_next = NULL;
	foreach(cell, outbox_databases)
	{
		DatabaseEntry *db = lfirst(cell);

		if (asked_was_last && db->state == DATABASE_WAITING &&
			!outbox_mono_is_set(db->asked_at) &&
			(looks_next == NULL || outbox_mono_before(db->since, looks_next->since)))
			looks_next = db;
	}
	list_sort(outbox_databases, compare_turns);
}

/* When it published last, or read for that, in this turn; unset: it has not. */
static OutboxMonoTime
published_at(const DatabaseEntry *db, OutboxMonoTime now)
{
	OutboxMonoTime last = OUTBOX_MONO_UNSET;

	for (int i = 0; i < OUTBOX_MAX_WORKERS; i++)
	{
		const OutboxSlot *slot = db->workers[i].slot;

		if (db->workers[i].handle == NULL)
			continue;
		if (slot->state == OUTBOX_WORKER_PUBLISHING || slot->reading)
			return now;
		if (outbox_mono_before(last, slot->published_at))
			last = slot->published_at;
	}
	return last;
}

static OutboxMonoTime
idle_since(const DatabaseEntry *db, OutboxMonoTime now)
{
	OutboxMonoTime last = published_at(db, now);

	return outbox_mono_before(last, db->since) ? db->since : last;
}

static bool
works(const DatabaseEntry *db, OutboxMonoTime now)
{
	OutboxMonoTime last = published_at(db, now);

	return outbox_mono_is_set(last) &&
		!outbox_mono_reached(outbox_mono_plus(last, WORKS_MS), now);
}

static bool
hangs_in_start(const DatabaseEntry *db, OutboxMonoTime now)
{
	const WorkerEntry *first = &db->workers[0];

	return first->handle != NULL && first->slot->state == OUTBOX_WORKER_STARTING &&
		outbox_mono_reached(outbox_mono_plus(first->started_at, HANG_MS), now);
}

/* One that starts does not hear that it is to leave, and is left the time to. */
static bool
may_yield(const DatabaseEntry *db, OutboxMonoTime now)
{
	switch (db->state)
	{
		case DATABASE_STARTING:
			return hangs_in_start(db, now);
		case DATABASE_RUNNING:
			return db->workers[0].handle == NULL || takes_inbox(&db->workers[0]) ||
				hangs_in_start(db, now);
		default:
			return false;
	}
}

/*
 * Has one workers that does not work, or has not shown yet whether it will?  One that
 * makes room already counts until it has: of several that wait, one comes in its place
 * after the other.
 */
static bool
one_rests(OutboxMonoTime now)
{
	ListCell   *cell;

	foreach(cell, outbox_databases)
	{
		DatabaseEntry *db = lfirst(cell);
		bool		soon = !outbox_mono_reached(outbox_mono_plus(db->since, YIELD_MS), now);

		if ((soon && db->state == DATABASE_STARTING) ||
			((may_yield(db, now) || (soon && db->state == DATABASE_YIELDING)) &&
			 !works(db, now)))
			return true;
	}
	return false;
}

static bool
turn_is_over(const DatabaseEntry *db, OutboxMonoTime now)
{
	if (works(db, now) && one_rests(now))
		return false;
	return outbox_mono_reached(outbox_mono_plus(idle_since(db, now), IDLE_TURN_MS), now) ||
		outbox_mono_reached(outbox_mono_plus(db->since, TURN_MS), now);
}

/* The next to make room: of those that may, the one that has idled longest. */
static DatabaseEntry *
next_to_yield(OutboxMonoTime now, bool forced)
{
	DatabaseEntry *next = NULL;
	ListCell   *cell;

	foreach(cell, outbox_databases)
	{
		DatabaseEntry *db = lfirst(cell);

		if (may_yield(db, now) && (forced || turn_is_over(db, now)) &&
			(next == NULL ||
			 outbox_mono_before(idle_since(db, now), idle_since(next, now))))
			next = db;
	}
	return next;
}

/* The views tell what rests from what has lost its worker. */
static void
tell_resting(OutboxMonoTime now)
{
	static Oid	dboids[OUTBOX_MAX_RESTING];
	int			count = 0;
	ListCell   *cell;

	foreach(cell, outbox_databases)
	{
		const DatabaseEntry *db = lfirst(cell);

		if (db->state == DATABASE_AWAY && db->rests && count < OUTBOX_MAX_RESTING &&
			!outbox_mono_reached(db->work_at, now))
			dboids[count++] = db->dboid;
	}
	outbox_shared_set_resting(dboids, count);
}

/*
 * Tells one database for each that waits to make room; and, where outbox.max_workers
 * was lowered, so many as have what is too much, whoever's turn it is.
 */
OutboxMonoTime
outbox_turns_check(OutboxMonoTime now)
{
	int			waiting = 0;	/* that nobody makes room for yet */
	int			excess = -outbox_workers_left();	/* likewise */
	bool		fewer = false;
	OutboxMonoTime next = OUTBOX_MONO_UNSET;
	DatabaseEntry *db;
	ListCell   *cell;

	foreach(cell, outbox_databases)
	{
		OutboxMonoTime overdue;

		db = lfirst(cell);
		overdue = outbox_mono_plus(db->since, YIELD_MS);
		fewer |= outbox_mono_is_set(db->room_until);
		if (db->state == DATABASE_WAITING)
			waiting++;
		if (db->state > DATABASE_RUNNING)
			excess -= outbox_database_running(db);
		if (db->state == DATABASE_YIELDING && !outbox_mono_reached(overdue, now))
		{
			waiting--;
			outbox_mono_earlier(&next, overdue);
		}
	}
	outbox_shared->out_of_workers = waiting > 0;
	outbox_shared->fewer_workers = fewer;
	tell_resting(now);

	while ((waiting > 0 || excess > 0) &&
		   (db = next_to_yield(now, excess > 0)) != NULL)
	{
		/*
		 * Of a worker that is missing nothing is known, see
		 * outbox_turn_left().
		 */
		bool		full = outbox_database_running(db) == db->nworkers;

		waiting--;
		excess -= outbox_database_running(db);
		db->retry_at = db->work_at = full ? OUTBOX_MONO_UNSET : now;
		db->due_at = 0;
		db->rests = full;
		if (hangs_in_start(db, now))
			TerminateBackgroundWorker(db->workers[0].handle);
		outbox_database_set_state(db, DATABASE_YIELDING);
		outbox_mono_earlier(&next, outbox_mono_plus(now, YIELD_MS));
	}
	if (waiting > 0 || excess > 0)
		outbox_mono_earlier(&next, outbox_mono_plus(now, CHECK_MS));
	return next;
}
