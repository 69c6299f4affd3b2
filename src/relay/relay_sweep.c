/*-------------------------------------------------------------------------
 *
 * relay_sweep.c
 *		Looks for rows that nobody has announced.
 *
 * Logical replication applies rows without firing our trigger, and a row that
 * a mistake has lost sight of must not wait until the worker restarts.  So all
 * rows behind the cursor are looked at from time to time, in steps, since
 * there may be a million of them that all have a reason to wait.
 *
 * A step is a range of numbers, too: where an open transaction keeps vacuum from
 * removing what was published, a million dead entries of the index lie between
 * two rows, and passing them all at once would hold up messages for a quarter
 * of a second (measured).  How wide the next range is depends on how long this
 * one took.
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

#include "fault.h"
#include "relay_internal.h"
#include "shared.h"
#include "utils/memutils.h"
#include "utils/timestamp.h"

/* Rows of a step: about a millisecond. */
#define SWEEP_ROWS		2000

/* Numbers of a step, to begin with and at least; and how long it should take. */
#define SWEEP_NUMBERS	10000
#define SWEEP_SHORT_US	1000
#define SWEEP_LONG_US	3000

typedef struct Sweep
{
	OutboxRelay *relay;
	int64		last_seq;
	int			nfound;
	OutboxRange found[SWEEP_ROWS];	/* one number each */
} Sweep;

static bool
in_range(const OutboxRange *range, int64 seq)
{
	return range->lo <= seq && seq <= range->hi;
}

/* Does anything of what the relay remembers lead to this row? */
static bool
is_known(OutboxRelay *relay, const OutboxRow *row)
{
	OutboxRoute *route = outbox_relay_find_route(relay, row->route);

	if (outbox_queue_has(relay->queue, &row->id) ||
		in_range(&relay->backlog, row->seq))
		return true;
	if (outbox_relay_route_waits(route) && route->skip_low != 0 &&
		route->skip_low <= row->seq)
		return true;
	if (row->keyed && outbox_queue_skips(relay->queue, row->key_hash, row->seq,
										 route->ordered))
		return true;
	for (int i = 0; i < relay->nlater; i++)
		if (in_range(&relay->later[i], row->seq))
			return true;
	for (int i = 0; i < relay->nrescans; i++)
		if (in_range(&relay->rescans[i], row->seq))
			return true;
	return false;
}

/* OutboxRowVisit */
static void
visit(const OutboxRow *row, void *arg)
{
	Sweep	   *sweep = arg;

	sweep->last_seq = row->seq;
	if (!is_known(sweep->relay, row))
		sweep->found[sweep->nfound++] = (OutboxRange) {row->seq, row->seq};
}

#ifdef OUTBOX_FAULTS
static void
strike_out(Sweep *sweep, const OutboxRange *range)
{
	for (int i = 0; i < sweep->nfound; i++)
		if (in_range(range, sweep->found[i].lo))
			sweep->found[i].hi = 0;
}

/* OutboxEarlyVisit */
static void
strike_out_early(TransactionId xid, const OutboxRange *range, void *arg)
{
	if (outbox_store_sees(xid))
		strike_out(arg, range);
}

/* Of the rows that were found, those to which nothing else leads. */
static void
tell_forgotten(Sweep *sweep)
{
	OutboxRelay *relay = sweep->relay;

	outbox_relay_check_prepared(relay, outbox_store_sees);
	outbox_early_visit(strike_out_early, sweep);
	outbox_relay_take_news(relay);
	for (int i = 0; i < relay->nrescans; i++)
		strike_out(sweep, &relay->rescans[i]);
	strike_out(sweep, &relay->backlog);
	if (relay->find_prepared)
		strike_out(sweep, &relay->prepared_range);
	for (int i = 0; i < relay->nprepared; i++)
		if (outbox_store_sees(relay->prepared[i].xid))
			strike_out(sweep, &relay->prepared[i].range);
	for (int i = 0; i < sweep->nfound; i++)
		if (sweep->found[i].hi != 0)
			ereport(LOG,
					(errmsg("outbox sweep found a forgotten row"),
					 errdetail("Its seq is %lld; the cursor is at %lld.",
							   (long long) sweep->found[i].lo,
							   (long long) relay->cursor)));
}

/*
 * What a sweep would put right beside: keys whose holder is gone, and the next row
 * that will be due.  The news of either may be on their way, but not for so long.
 */
static void
tell_overlooked(OutboxRelay *relay)
{
	TimestampTz due = outbox_store_next_due(GetCurrentTimestamp());
	bool		released = outbox_relay_has_released(relay);

	if (relay->next_due != 0 && relay->next_due <= due)
		due = 0;
	if (released && relay->look_released)
		ereport(LOG, (errmsg("outbox sweep found a forgotten holder")));
	if (due != 0 && relay->look_due == due)
		ereport(LOG, (errmsg("outbox sweep found a forgotten time")));
	relay->look_released = released;
	relay->look_due = due;
}
#endif

/* One step.  Called in a transaction. */
void
outbox_relay_sweep(OutboxRelay *relay)
{
	Sweep	   *sweep = palloc(sizeof(Sweep));
	int64		width = Max(relay->sweep_width, SWEEP_NUMBERS);
	OutboxClaim claim = {
		.after = relay->sweep_from - 1,
		.upto = relay->cursor - relay->sweep_from < width ?
		relay->cursor : relay->sweep_from + width,
		.limit = SWEEP_ROWS,
		.worker = MySlot->worker,
		.nworkers = MySlot->nworkers,
		.arg = sweep
	};
	OutboxMonoTime start = outbox_mono_now();
	int64		took_us;

#ifdef OUTBOX_FAULTS
	if (relay->sweep_looks && relay->sweep_from == 1)
		tell_overlooked(relay);
#endif
	sweep->relay = relay;
	sweep->nfound = 0;
	if (outbox_store_list(&claim, visit) < SWEEP_ROWS)
		sweep->last_seq = claim.upto;
	relay->sweep_from = sweep->last_seq < relay->cursor ? sweep->last_seq + 1 : 0;
#ifdef OUTBOX_FAULTS
	if (sweep->nfound > 0)
		tell_forgotten(sweep);
	if (relay->sweep_looks)
		sweep->nfound = 0;
#endif
	for (int i = 0; i < sweep->nfound; i++)
		outbox_relay_rescan(relay, sweep->found[i].lo, sweep->found[i].hi);

	/* Empty stretches are passed in ever longer steps. */
	took_us = outbox_mono_now().us - start.us;
	if (took_us < SWEEP_SHORT_US && width < PG_INT64_MAX / 2)
		relay->sweep_width = width * 2;
	else if (took_us > SWEEP_LONG_US)
		relay->sweep_width = width / 2;
}
