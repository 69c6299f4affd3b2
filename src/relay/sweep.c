/*-------------------------------------------------------------------------
 *
 * sweep.c
 *		Looks for rows that nobody has announced.
 *
 * Logical replication applies rows without firing our trigger, and a row that
 * a mistake has lost sight of must not wait until the worker restarts.  So a pass looks
 * at all rows that were read, from time to time.
 *
 * With millions of rows a pass takes seconds of a processor.  So it goes in steps, and
 * each is followed by a rest of a multiple of its own time: at any moment the sweep takes
 * half a percent of a processor at most, and no message waits behind more than a step.
 * A step is so many entries of the index: where an open transaction keeps vacuum from
 * removing what was published, a million dead ones lie between two rows.
 *
 * A worker that makes room leaves its pass: the next one reads all rows at its start.
 *
 * A net must not become a mechanism.  Builds for tests look more often at what the
 * sweep would find, without taking it, and say so in the log, where it fails the
 * test (OutboxTest::Node).  What the relay remembers, its inbox and the early
 * words lead to each row that the snapshot sees, as for a claim; so a row to which
 * nothing leads was forgotten, and is not just about to be announced.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "relay_internal.h"
#include "test_point.h"
#include "utils/memutils.h"
#include "utils/timestamp.h"

/* In builds for tests, which rows the sweep would find is looked at this often. */
#define LOOK_MS			5000

/* Held keys that a pass has still to check, before its first step. */
#define NOT_BEGUN		(-1)

typedef struct Step
{
	OutboxRelay *relay;
	int64		last_seq;
	int			nfound;
	int64		found[OUTBOX_SWEEP_ROWS];
	int			nmet;
	OutboxRecalled met[OUTBOX_SWEEP_ROWS];	/* of keys that are forgotten */
} Step;

static void
start(OutboxSweep *sweep, bool whole, int64 from)
{
	sweep->from = from;
	sweep->whole = whole;
	sweep->nkeys = NOT_BEGUN;
#ifdef OUTBOX_TEST_POINTS
	sweep->looks = false;
#endif
}

void
outbox_sweep_stop(OutboxSweep *sweep)
{
	sweep->from = 0;
}

bool
outbox_sweep_start(OutboxSweep *sweep, bool written, OutboxMonoTime now)
{
	if (sweep->from != 0 || (!written && !outbox_mono_reached(sweep->again_at, now)))
		return false;
	start(sweep, true, 1);
	sweep->began = now;
	return true;
}

/* Is it to be looked whether a forgotten key goes on? */
static bool
wants_pass(const OutboxQueue *queue)
{
	return queue->forgotten_low != 0 && queue->pass_wanted;
}

/* What the last step has found free is read first. */
static bool
may_step(const OutboxSweep *sweep, const OutboxQueue *queue)
{
	return sweep->from != 0 && queue->nreread < OUTBOX_SWEEP_ROWS;
}

OutboxMonoTime
outbox_sweep_deadline(const OutboxSweep *sweep, const OutboxQueue *queue)
{
	if (may_step(sweep, queue))
		return sweep->rests_until;
	return sweep->from == 0 && wants_pass(queue) ? sweep->forgotten_at : OUTBOX_MONO_UNSET;
}

void
outbox_sweep_timers(OutboxSweep *sweep, const OutboxQueue *queue, OutboxMonoTime now)
{
	if (sweep->from == 0 && wants_pass(queue) &&
		outbox_mono_reached(sweep->forgotten_at, now))
		start(sweep, false, queue->forgotten_low);
}

bool
outbox_sweep_wanted(const OutboxSweep *sweep, const OutboxQueue *queue, OutboxMonoTime now)
{
	return may_step(sweep, queue) && outbox_mono_reached(sweep->rests_until, now);
}

/* Does anything of what the relay remembers lead to this row? */
static bool
is_known(OutboxRelay *relay, const OutboxRow *row, OutboxRoute *route)
{
	if (outbox_queue_has(relay->queue, &row->id) ||
		outbox_reader_leads_to(&relay->reader, row->seq))
		return true;
	if (outbox_route_waits(route) && route->skip_low != 0 &&
		route->skip_low <= row->seq)
		return true;
	return row->keyed &&
		outbox_queue_skips(relay->queue, outbox_key_id(row->key_hash, route), row->seq);
}

/* OutboxRowVisit */
static void
visit(const OutboxRow *row, void *arg)
{
	Step	   *step = arg;
	OutboxKeyId key_id = {row->key_hash, outbox_routes_find(&step->relay->routes, row->route)};

	step->last_seq = row->seq;
	if (is_known(step->relay, row, key_id.route))
		return;
	if (row->keyed && key_id.route->ordered &&
		row->seq >= step->relay->queue->forgotten_low &&
		!outbox_queue_knows(step->relay->queue, key_id))
	{
		OutboxRecalled met = {.id = key_id, .seq = row->seq};

		step->met[step->nmet++] = met;
	}
	else
		step->found[step->nfound++] = row->seq;
}

#ifdef OUTBOX_TEST_POINTS
void
outbox_sweep_look(OutboxSweep *sweep, OutboxMonoTime now)
{
	if (sweep->from != 0 || !outbox_mono_reached(sweep->look_at, now))
		return;
	sweep->look_at = outbox_mono_plus(now, LOOK_MS);
	sweep->looks = true;
	sweep->from = 1;
}

/* OutboxIntentVisit */
static void
strike_out_intent(TransactionId xid, const OutboxRange *range, void *arg)
{
	Step	   *step = arg;

	if (!outbox_store_sees(xid))
		return;
	for (int i = 0; i < step->nfound; i++)
		if (range->lo <= step->found[i] && step->found[i] <= range->hi)
			step->found[i] = 0;
}

/* Of the rows that were found, those to which nothing else leads. */
static void
tell_forgotten(Step *step)
{
	OutboxRelay *relay = step->relay;

	outbox_relay_check_prepared(relay, outbox_store_sees);
	outbox_intent_visit(strike_out_intent, step);
	outbox_relay_take_inbox(relay);
	for (int i = 0; i < step->nfound; i++)
	{
		int64		seq = step->found[i];

		if (seq == 0 || outbox_reader_leads_to(&relay->reader, seq) ||
			outbox_prepared_leads_to(&relay->prepared, seq))
			continue;
		ereport(LOG,
				(errmsg("outbox sweep found a forgotten row"),
				 errdetail("Its seq is %lld; rows from %lld on were not read.",
						   (long long) seq,
						   (long long) outbox_reader_end(&relay->reader))));
	}
}

/*
 * What a sweep would put right beside: keys whose holder is gone, and the next row
 * that will be due.  The announcement of either may be on its way, but not for so long.
 */
static void
tell_overlooked(OutboxSweep *sweep, OutboxRelay *relay)
{
	TimestampTz due = outbox_store_next_due(GetCurrentTimestamp(), PG_INT64_MAX);
	TimestampTz known = relay->reader.due.next;
	bool		released = outbox_keys_have_released(&relay->reader);

	if (known != 0 && known <= due)
		due = 0;
	if (released && sweep->look_released)
		ereport(LOG, (errmsg("outbox sweep found a forgotten holder")));
	if (due != 0 && sweep->look_due == due)
		ereport(LOG, (errmsg("outbox sweep found a forgotten time")));
	sweep->look_released = released;
	sweep->look_due = due;
}
#endif

/* Does it change nothing, and only tell what it would? */
static bool
only_looks(const OutboxSweep *sweep)
{
#ifdef OUTBOX_TEST_POINTS
	return sweep->looks;
#else
	return false;
#endif
}

/* The pass is over: what it has left is what is forgotten. */
static void
end_pass(OutboxSweep *sweep, OutboxRelay *relay)
{
	OutboxQueue *queue = relay->queue;

	if (queue->forgotten_low != 0)
		outbox_recall_note_retries(queue, &relay->routes);
	outbox_queue_pass_ended(queue);
	if (sweep->whole)
		sweep->again_at = outbox_mono_after(outbox_mono_passed(sweep->began) / 1000 *
											OUTBOX_SWEEP_IDLE_PAUSE);
	sweep->forgotten_at = outbox_mono_after(OUTBOX_FORGOTTEN_MS);
}

/*
 * Pays for a step.  Keys that are forgotten and may go on wait for the pass, and so for
 * what is left of the one before it.  The bound is for a process that was stopped.
 */
static void
rest(OutboxSweep *sweep, const OutboxQueue *queue, OutboxMonoTime began)
{
	int			times = sweep->whole && !wants_pass(queue) ? OUTBOX_SWEEP_PAUSE :
		OUTBOX_FORGOTTEN_PAUSE;
	int64		rest_us = outbox_mono_passed(began) * times;

	if (!only_looks(sweep))
		sweep->rests_until.us = outbox_mono_now().us +
			Min(rest_us, OUTBOX_SWEEP_MS * INT64CONST(1000));
}

/* Of some held keys: is the row there that holds them? */
static void
check_held(OutboxSweep *sweep, OutboxRelay *relay)
{
	outbox_queue_uncheck_held(relay->queue, OUTBOX_CHECKED_KEYS);
	(void) outbox_keys_check_holders(&relay->reader);
	sweep->nkeys = Max(sweep->nkeys - OUTBOX_CHECKED_KEYS, 0);
}

void
outbox_sweep_step(OutboxSweep *sweep, OutboxRelay *relay)
{
	Step	   *step = palloc(sizeof(Step));
	int64		last = outbox_reader_end(&relay->reader) - 1;
	int			entries = OUTBOX_SWEEP_ROWS;
	OutboxClaim claim = {
		.after = sweep->from - 1,
		.limit = OUTBOX_SWEEP_ROWS,
		.worker = MySlot->worker,
		.nworkers = MySlot->nworkers,
		.arg = step
	};
	OutboxMonoTime began = outbox_mono_now();

	OUTBOX_TEST_POINT("sweep_step");
	if (sweep->nkeys == NOT_BEGUN)
	{
		outbox_queue_pass_begins(relay->queue);
		sweep->nkeys = sweep->whole ? relay->queue->nheld : 0;
	}
	if (sweep->nkeys > 0)
		check_held(sweep, relay);
#ifdef OUTBOX_TEST_POINTS
	if (sweep->looks && sweep->from == 1)
		tell_overlooked(sweep, relay);
#endif
	step->relay = relay;
	step->nfound = 0;
	step->nmet = 0;
	claim.upto = outbox_store_reach(sweep->from, last, &entries);
	if (outbox_store_list(&claim, visit) < OUTBOX_SWEEP_ROWS)
		step->last_seq = claim.upto;
#ifdef OUTBOX_TEST_POINTS
	if (step->nfound > 0)
		tell_forgotten(step);
	if (sweep->looks)
		step->nfound = step->nmet = 0;
#endif
	outbox_recall_free(relay->queue, &relay->routes,
					   &relay->reader.unreadable, step->met, step->nmet);
	for (int i = 0; i < step->nfound; i++)
		outbox_reader_add(&relay->reader, step->found[i], step->found[i],
						  OUTBOX_UNREAD_SWEPT);
	/* Not before: a step that fails is done again. */
	sweep->from = step->last_seq < last || sweep->nkeys > 0 ? step->last_seq + 1 : 0;
	if (sweep->from == 0 && !only_looks(sweep))
		end_pass(sweep, relay);
	rest(sweep, relay->queue, began);
}
