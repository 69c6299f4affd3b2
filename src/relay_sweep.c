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
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "relay_internal.h"
#include "shared.h"
#include "utils/memutils.h"

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

	if (outbox_queue_has(relay->queue, row->seq) ||
		in_range(&relay->backlog, row->seq))
		return true;
	if (outbox_relay_route_waits(route) && route->skip_low != 0 &&
		route->skip_low <= row->seq)
		return true;
	if (row->keyed && route->ordered &&
		outbox_queue_skips(relay->queue, row->key_hash, row->seq))
		return true;
	for (int i = 0; i < relay->nlater; i++)
		if (in_range(&relay->later[i], row->seq))
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
		outbox_relay_rescan(sweep->relay, row->seq, row->seq);
}

/* One step.  Called in a transaction. */
void
outbox_relay_sweep(OutboxRelay *relay)
{
	Sweep		sweep = {.relay = relay};
	int64		width = Max(relay->sweep_width, SWEEP_NUMBERS);
	OutboxClaim claim = {
		.after = relay->sweep_from - 1,
		.upto = relay->cursor - relay->sweep_from < width ?
		relay->cursor : relay->sweep_from + width,
		.limit = SWEEP_ROWS,
		.worker = MySlot->worker,
		.nworkers = MySlot->nworkers,
		.arg = &sweep
	};
	OutboxMonoTime start = outbox_mono_now();
	int64		took_us;

	if (outbox_store_list(&claim, visit) < SWEEP_ROWS)
		sweep.last_seq = claim.upto;
	relay->sweep_from = sweep.last_seq < relay->cursor ? sweep.last_seq + 1 : 0;

	/* Empty stretches are passed in ever longer steps. */
	took_us = outbox_mono_now().us - start.us;
	if (took_us < SWEEP_SHORT_US && width < PG_INT64_MAX / 2)
		relay->sweep_width = width * 2;
	else if (took_us > SWEEP_LONG_US)
		relay->sweep_width = width / 2;
}
