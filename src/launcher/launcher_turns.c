/*-------------------------------------------------------------------------
 *
 * launcher_turns.c
 *		Whose turn it is when there are fewer processes than databases.
 *
 * Background workers are a resource of the whole server (max_worker_processes),
 * and a database that has the extension needs one.  When none is free, the
 * databases take turns:
 *
 *		waiting --a process is free, first come first served--> running
 *		running --others wait and it idles, or its turn is over--> yielding
 *		yielding --work is left--> waiting
 *		yielding --nothing to do--> resting --commit, or time--> waiting
 *
 * A database that rests misses nothing: a transaction that enqueues there finds
 * no worker to tell, and tells the launcher (outbox_shared_announce()); when a
 * retry or a scheduled message will be due, the worker said when it left.
 *
 * A database that has some of its workers and cannot have all of them makes do:
 * those that it has share all keys (its room), until there is a process for one
 * more.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "backoff.h"
#include "common/pg_prng.h"
#include "launcher_internal.h"
#include "miscadmin.h"
#include "utils/memutils.h"

/* How long a database keeps its workers while others wait. */
#define TURN_MS			3000
/* The same when it has nothing to do: time for a look at everything. */
#define IDLE_TURN_MS	300
/* What it may take before that to start and to connect. */
#define START_MS		10000
/*
 * What it may take to leave.  One that is stuck, in a statement or a connect, and
 * does not read what it is told, must not be what the others wait for.
 */
#define YIELD_MS		5000
/* Look again so often while somebody waits for an idle one. */
#define CHECK_MS		100
/* A group of workers that was too large for the room looks for more after. */
#define ROOM_MS			5000
/* And later and later, when there turns out to be too little again. */
#define ROOM_MAX_MS		60000
/* The same line again after so long, while it lasts or comes back. */
#define REPORT_MS		(10 * 60000)

static OutboxMonoTime reported_at;

static void
report_no_process(void)
{
	OutboxMonoTime now = outbox_mono_now();

	if (outbox_mono_is_set(reported_at) &&
		!outbox_mono_reached(outbox_mono_plus(reported_at, REPORT_MS), now))
		return;
	reported_at = now;
	ereport(LOG,
			(errcode(ERRCODE_CONFIGURATION_LIMIT_EXCEEDED),
			 errmsg("outbox could not start a relay worker: no worker process is free"),
			 errdetail("The workers that a database has share all of its keys; databases without a worker take turns of %d seconds.",
					   TURN_MS / 1000),
			 errhint("You may need to increase \"max_worker_processes\" (now %d). The launcher tries again by itself.",
					 max_worker_processes)));
}

void
outbox_turn_no_process(DatabaseEntry *db, int running)
{
	report_no_process();
	if (running == 0)
	{
		if (!outbox_mono_is_set(db->waiting_since))
			db->waiting_since = outbox_mono_now();
		return;
	}
	/* Its keys must not wait for workers that cannot come: fewer share them. */
	db->room = running;
	db->room_failures++;
	db->room_until =
		outbox_mono_after(outbox_backoff_ms(ROOM_MS, ROOM_MAX_MS,
											db->room_failures,
											pg_prng_uint32(&pg_global_prng_state)));
}

void
outbox_turn_complete(DatabaseEntry *db)
{
	if (!outbox_mono_is_set(db->room_until))
		db->room_failures = 0;
}

void
outbox_turn_started(DatabaseEntry *db, int number)
{
	if (number != 0)
		return;
	db->waiting_since = OUTBOX_MONO_UNSET;
	db->turn_at = OUTBOX_MONO_UNSET;
	db->yielding = false;
}

void
outbox_turn_left(DatabaseEntry *db, int rest_ms)
{
	ListCell   *cell;

	db->rest_ms = Min(db->rest_ms, rest_ms);
	/* There is a process for somebody. */
	foreach(cell, outbox_databases)
	{
		DatabaseEntry *other = lfirst(cell);

		if (outbox_mono_is_set(other->waiting_since))
			other->retry_at = OUTBOX_MONO_UNSET;
	}
}

void
outbox_turn_ended(DatabaseEntry *db)
{
	db->yielding = false;
	if (db->rest_ms > 0)
		db->retry_at = outbox_mono_after(db->rest_ms);
	else
		db->waiting_since = outbox_mono_now();
}

int
outbox_turn_room(DatabaseEntry *db, int wanted)
{
	if (!outbox_mono_is_set(db->room_until))
		return wanted;
	if (outbox_mono_reached(db->room_until, outbox_mono_now()))
	{
		/*
		 * A larger group means that all of them leave and come back, so not
		 * before there is a process for one more, which no other database
		 * waits for.
		 */
		if (wanted <= db->room ||
			(!outbox_shared->out_of_workers && outbox_worker_process_is_free()))
		{
			db->room_until = OUTBOX_MONO_UNSET;
			return wanted;
		}
		db->room_until = outbox_mono_after(ROOM_MS);
	}
	return Min(wanted, db->room);
}

/* ------------------------------------------------------------------- turns */

/* Those that wait come first, the longest of them; then the others. */
static int
compare_waiting(const ListCell *a, const ListCell *b)
{
	const DatabaseEntry *left = lfirst(a);
	const DatabaseEntry *right = lfirst(b);
	bool		left_waits = outbox_mono_is_set(left->waiting_since);
	bool		right_waits = outbox_mono_is_set(right->waiting_since);

	if (left_waits != right_waits)
		return left_waits ? -1 : 1;
	if (!left_waits)
		return 0;
	return outbox_mono_before(left->waiting_since, right->waiting_since) ? -1 :
		outbox_mono_before(right->waiting_since, left->waiting_since) ? 1 : 0;
}

List *
outbox_turn_order(void)
{
	List	   *order = list_copy(outbox_databases);

	list_sort(order, compare_waiting);
	return order;
}

static bool
is_idle(const DatabaseEntry *db)
{
	for (int i = 0; i < OUTBOX_MAX_WORKERS; i++)
		if (db->workers[i].handle != NULL &&
			db->workers[i].slot->state == OUTBOX_WORKER_PUBLISHING)
			return false;
	return true;
}

/*
 * How long this one has to be left alone yet; only while it runs.  Starting and
 * connecting do not count: whose broker is far away would else be sent home each
 * time before it has sent a message.
 */
static int64
turn_left(DatabaseEntry *db, OutboxMonoTime now)
{
	OutboxWorkerState state = db->workers[0].slot->state;

	if (!outbox_mono_is_set(db->turn_at))
	{
		if ((state == OUTBOX_WORKER_STARTING ||
			 state == OUTBOX_WORKER_CONNECTING) &&
			!outbox_mono_reached(outbox_mono_plus(db->workers[0].started_at,
												  START_MS), now))
			return TURN_MS;
		db->turn_at = now;
	}
	return outbox_mono_ms_until(outbox_mono_plus(db->turn_at,
												 is_idle(db) ? IDLE_TURN_MS :
												 TURN_MS), now);
}

/*
 * Tells one database for each that waits to make room, beginning with the one
 * whose turn is over for the longest time.
 */
OutboxMonoTime
outbox_turns_check(OutboxMonoTime now)
{
	int			waiting = 0;
	OutboxMonoTime next = OUTBOX_MONO_UNSET;
	ListCell   *cell;

	foreach(cell, outbox_databases)
	{
		DatabaseEntry *db = lfirst(cell);
		OutboxMonoTime overdue = outbox_mono_plus(db->yielding_since, YIELD_MS);

		/* Room is of no use to one that is kept away. */
		if (outbox_mono_is_set(db->waiting_since) && !db->held &&
			db->workers[0].handle == NULL)
			waiting++;
		if (db->yielding && !outbox_mono_reached(overdue, now))
		{
			waiting--;
			outbox_mono_earlier(&next, overdue);
		}
	}
	outbox_shared->out_of_workers = waiting > 0;

	for (; waiting > 0; waiting--)
	{
		DatabaseEntry *chosen = NULL;

		foreach(cell, outbox_databases)
		{
			DatabaseEntry *db = lfirst(cell);

			if (db->workers[0].handle == NULL || !db->workers[0].slot->ready ||
				db->yielding || db->regrouping || db->absent)
				continue;
			if (turn_left(db, now) > 0)
				continue;
			if (chosen == NULL ||
				outbox_mono_before(db->turn_at, chosen->turn_at))
				chosen = db;
		}
		if (chosen == NULL)
			return outbox_mono_plus(now, CHECK_MS);
		chosen->yielding = true;
		chosen->yielding_since = now;
		chosen->rest_ms = INT_MAX;
		(void) outbox_shared_tell_workers(chosen->dboid, OUTBOX_NEWS_YIELD);
		outbox_mono_earlier(&next, outbox_mono_plus(now, YIELD_MS));
	}
	return next;
}
