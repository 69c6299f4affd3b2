/*-------------------------------------------------------------------------
 *
 * scan.c
 *		Reading what is unread, in the order of seq.
 *
 * A long range (what piled up in an outage, a transaction of a million messages,
 * the whole table at the start) must not stand in front of all that is committed
 * meanwhile.  So it becomes OUTBOX_UNREAD_LEFT, and a claim reads the other ranges
 * and then what is new; where something is LEFT, they leave it half of the claim.
 * Millions of its rows may be of a route that is paused: it is read in steps, so that
 * what is new need not wait until they are walked.
 *
 * What is read out of turn that way may be newer than an unread row of its key.
 * The key index is asked (check_order()), and such a row's claim is released; the range
 * that holds it up then reaches to that row, and is read in the order of seq.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "reading.h"
#include "settings.h"

/* Batches that leave new rows out, after several whose rows were mostly released. */
#define MAX_PAUSE		64

/* Order is checked against so many ranges one by one. */
#define MAX_CHECKED		8

void
outbox_scan_init(OutboxScan *scan)
{
	outbox_unread_init(&scan->unread);
}

static bool
is_long(int64 lo, int64 hi)
{
	return hi - lo >= OUTBOX_LONG_RANGE;
}

void
outbox_scan_add(OutboxScan *scan, int64 lo, int64 hi, OutboxMonoTime at,
				int why)
{
	OutboxUnread *unread = &scan->unread;
	int64		end = unread->rest.lo;
	bool		left = is_long(lo, Min(hi, end - 1));

	outbox_unread_add(unread, lo, hi, at, why | (left ? OUTBOX_UNREAD_LEFT : 0));
	/* The last of all that was read may have been new a moment ago. */
	if (left && hi == PG_INT64_MAX)
		outbox_unread_add(unread, end - OUTBOX_LONG_RANGE, end - 1, at, why);
	if (hi == PG_INT64_MAX)
		return;
	scan->announced = Max(scan->announced, hi);
	/* What is new and far from what was read is preceded by much else. */
	if (is_long(unread->rest.lo, hi))
		outbox_unread_split(unread, hi);
}

int64
outbox_scan_lowest(const OutboxScan *scan)
{
	for (int i = 0; i < scan->unread.n; i++)
		if (outbox_unread_bars(&scan->unread.ranges[i]))
			return scan->unread.ranges[i].lo;
	return scan->unread.rest.lo;
}

/* ---------------------------------------------------------------- fairness */

/* The next range from i on that is to be read now, and is LEFT or is not; or n. */
static int
next_range(const OutboxUnread *unread, int i, bool left, OutboxMonoTime now)
{
	for (; i < unread->n; i++)
	{
		const OutboxUnreadRange *range = &unread->ranges[i];

		if (outbox_mono_reached(range->at, now) &&
			outbox_unread_is_left(range) == left)
			break;
	}
	return i;
}

/* Is it the turn of what is new? */
static bool
new_rows_turn(OutboxScan *scan, bool beside_left, OutboxMonoTime now)
{
	if (!outbox_mono_reached(scan->unread.rest.at, now))
		return false;
	if (!beside_left)
		scan->pause = scan->last_pause = 0;
	if (scan->pause == 0)
		return true;
	scan->pause--;
	return false;
}

/* Reading new rows beside what is left becomes rare when it is mostly in vain. */
static void
adapt_pause(OutboxScan *scan, OutboxBatch *batch, int checked, int rejected)
{
	if (checked < 16)
		return;
	batch->in_vain = rejected * 2 > checked;
	if (!batch->in_vain)
	{
		scan->last_pause = 0;
		return;
	}
	scan->last_pause = Min(2 * scan->last_pause + 1, MAX_PAUSE);
	scan->pause = scan->last_pause;
}

/* ------------------------------------------------------------------- claim */

/* Does this batch read the key by itself? */
static bool
reads_key(OutboxBatch *batch, const OutboxKey *key)
{
	OutboxSegment *segment = NULL;

	while ((segment = outbox_batch_next(batch, OUTBOX_SOURCE_KEYS, segment)))
		if (segment->key == key)
			return true;
	return false;
}

typedef struct ScanRange
{
	OutboxBatch *batch;
	const OutboxUnreadRange *range;
	bool		open;
} ScanRange;

/*
 * OutboxKeyFilter: are the key's rows of the range read again by themselves?  Then they
 * need not be claimed to be dropped.  Those of a route that has no order now are not.  This
 * batch reads a key only up to what is new: such a one must not be left out there.
 */
static bool
reads_later(const OutboxKey *key, const void *arg, OutboxExcludedKey *excluded)
{
	const ScanRange *scan = arg;

	(void) excluded;
	return key->id.route->ordered &&
		key->skip_low != 0 && key->skip_low <= scan->range->lo &&
		!(scan->open && reads_key(scan->batch, key));
}

/*
 * A claim of what is new has read up to here at least, if it has not ended before.
 * Announced rows that it has not claimed are locked, and are looked for.  Where nothing
 * is announced, the last rows may be of routes or keys that are left out: they are not
 * walked at each poll, and a key is read by itself only up to the end of what was read.
 */
static int64
last_known(const OutboxScan *scan, const OutboxClaim *claim)
{
	if (scan->announced >= scan->unread.rest.lo ||
		(claim->excluded_routes == NIL && claim->nexcluded_keys == 0))
		return scan->announced;
	return outbox_store_last_ready(scan->unread.rest.lo);
}

/* Up to that number of the range.  NULL: the batch has room for no more. */
static OutboxSegment *
claim_range(OutboxScan *scan, OutboxBatch *batch,
			const OutboxUnreadRange *range, int64 upto)
{
	bool		open = range == &scan->unread.rest;
	ScanRange	scanned = {batch, range, open};
	OutboxSegment *segment;
	OutboxClaim claim;

	if (outbox_batch_full(batch))
		return NULL;
	segment = outbox_batch_add_segment(batch, OUTBOX_SOURCE_SCAN,
									   range->lo - 1, upto);
	if (segment == NULL)
		return NULL;
	outbox_batch_fill_claim(batch, &claim);
	outbox_keys_exclude(batch, &claim, reads_later, &scanned);
	segment->open = open;
	if (open)
		segment->known = last_known(scan, &claim);
	outbox_batch_claim(batch, &claim);
	return segment;
}

static void
claim_ranges(OutboxScan *scan, OutboxBatch *batch, OutboxMonoTime now)
{
	const OutboxUnread *unread = &scan->unread;

	for (int i = next_range(unread, 0, false, now); i < unread->n;
		 i = next_range(unread, i + 1, false, now))
		if (claim_range(scan, batch, &unread->ranges[i], unread->ranges[i].hi) == NULL)
			return;
}

/*
 * A step of what is LEFT: so many entries of rows, of however many ranges.  Deleted rows
 * that a forgotten transaction keeps in the index count.
 */
static void
claim_left(OutboxScan *scan, OutboxBatch *batch, OutboxMonoTime now)
{
	const OutboxUnread *unread = &scan->unread;
	int			rest = Max(OUTBOX_STRIDE, outbox_window);

	for (int i = next_range(unread, 0, true, now);
		 i < unread->n && rest > 0 && !outbox_batch_full(batch);
		 i = next_range(unread, i + 1, true, now))
	{
		const OutboxUnreadRange *range = &unread->ranges[i];
		int64		upto = outbox_store_reach(range->lo, range->hi, &rest);
		OutboxSegment *segment = claim_range(scan, batch, range, upto);

		if (segment == NULL || segment->cut)
			return;
	}
}

/* ------------------------------------------------------- order of the keys */

/* A message that may be newer than a row of its key in a range. */
typedef struct Check
{
	int			n;
	int			max;
	int64	   *hashes;
	const char **routes;
	int64	   *los;			/* older rows may be from here */
	int64	   *his;			/* to here */
	int		   *indexes;		/* of the message in the batch */
	int		   *ranges;			/* of the range in what is left */
	bool	   *found;
} Check;

/* What the batch has read is no longer unread. */
static void
remove_read(OutboxUnread *unread, OutboxBatch *batch)
{
	OutboxSegment *segment = NULL;

	while ((segment = outbox_batch_next(batch, OUTBOX_SOURCE_SCAN, segment)))
		outbox_unread_remove(unread, segment->after + 1,
							 outbox_segment_read(segment));
}

static void
add_check(Check *check, const OutboxMessage *message, int index,
		  const OutboxUnreadRange *range, int range_index)
{
	Assert(check->n < check->max);
	check->hashes[check->n] = message->key_hash;
	check->routes[check->n] = message->route;
	check->los[check->n] = range->lo;
	check->his[check->n] = Min(range->hi, message->seq - 1);
	check->indexes[check->n] = index;
	check->ranges[check->n++] = range_index;
}

/* The ranges that bar the message, lowest first.  Are there any? */
static bool
collect_message(Check *check, const OutboxMessage *message, int index,
				const OutboxUnread *left)
{
	int			before = check->n;

	if (message == NULL || message->aggregate_id == NULL)
		return false;
	for (int i = 0; i < left->n && left->ranges[i].lo < message->seq; i++)
		if (outbox_unread_bars(&left->ranges[i]))
			add_check(check, message, index, &left->ranges[i], i);
	return check->n > before;
}

/* Was the message read with what is new, and not in a range that has an end? */
static bool
is_open(OutboxBatch *batch, int index)
{
	const OutboxSegment *last = &batch->segments[batch->nsegments - 1];

	while (index < last->start)
		last--;
	return last->open;
}

/* Returns how many new messages are to be checked. */
static int
collect(Check *check, OutboxBatch *batch, const OutboxUnread *left)
{
	OutboxSegment *segment = NULL;
	int			checked = 0;

	memset(check, 0, sizeof(*check));
	check->max = batch->count * left->n;
	check->hashes = palloc(sizeof(int64) * check->max);
	check->routes = palloc(sizeof(char *) * check->max);
	check->los = palloc(sizeof(int64) * check->max);
	check->his = palloc(sizeof(int64) * check->max);
	check->indexes = palloc(sizeof(int) * check->max);
	check->ranges = palloc(sizeof(int) * check->max);
	check->found = palloc0(sizeof(bool) * check->max);
	while ((segment = outbox_batch_next(batch, OUTBOX_SOURCE_SCAN, segment)))
		for (int i = segment->start; i < segment->end; i++)
			if (collect_message(check, batch->messages[i], i, left))
				checked += is_open(batch, i);
	return checked;
}

/* The message becomes part of the range, which reads both in their order. */
static void
note_overtaking(OutboxBatch *batch, const OutboxUnreadRange *range, int64 seq)
{
	MemoryContext old = MemoryContextSwitchTo(batch->cxt);
	OutboxUnreadRange *overtaking = palloc(sizeof(OutboxUnreadRange));

	*overtaking = (OutboxUnreadRange) {range->lo, seq, range->at, range->why};
	batch->overtaking = lappend(batch->overtaking, overtaking);
	MemoryContextSwitchTo(old);
}

/* Releases claims that must not overtake a row that is left. */
static void
check_order(OutboxScan *scan, OutboxBatch *batch)
{
	OutboxUnread left;
	Check		check;
	int			checked;
	int			rejected = 0;

	left = scan->unread;		/* when this batch has committed */
	remove_read(&left, batch);
	outbox_unread_coarsen(&left, MAX_CHECKED);
	if (left.n == 0 || batch->count == 0)
		return;
	checked = collect(&check, batch, &left);
	if (check.n == 0)
		return;
	outbox_store_find_keys(check.hashes, check.routes, check.los, check.his, check.n,
						   check.found);
	for (int i = 0; i < check.n; i++)
	{
		OutboxMessage *message = batch->messages[check.indexes[i]];

		if (!check.found[i] || message == NULL)
			continue;
		note_overtaking(batch, &left.ranges[check.ranges[i]], message->seq);
		outbox_batch_release(batch, check.indexes[i]);
		rejected += is_open(batch, check.indexes[i]);
	}
	adapt_pause(scan, batch, checked, rejected);
}

/* ------------------------------------------------------------------- verbs */

void
outbox_scan_claim(OutboxScan *scan, OutboxBatch *batch, OutboxMonoTime now)
{
	OutboxUnread *unread = &scan->unread;
	bool		is_left = next_range(unread, 0, true, now) < unread->n;

	if (is_left)
		outbox_batch_keep_half(batch, OUTBOX_BEFORE_LEFT);
	claim_ranges(scan, batch, now);
	if (new_rows_turn(scan, is_left, now))
		(void) claim_range(scan, batch, &unread->rest, unread->rest.hi);
	outbox_batch_keep_nothing(batch);
	if (is_left)
		claim_left(scan, batch, now);
	check_order(scan, batch);
}

void
outbox_scan_committed(OutboxScan *scan, OutboxBatch *batch)
{
	OutboxSegment *segment = NULL;
	ListCell   *cell;

	remove_read(&scan->unread, batch);
	while ((segment = outbox_batch_next(batch, OUTBOX_SOURCE_SCAN, segment)))
	{
		outbox_routes_passed_over(batch->routes, segment->after + 1);
		/* A commit announces its rows; the poll is a net. */
		if (segment->open)
			outbox_unread_rest_at(&scan->unread, segment->cut ?
								  OUTBOX_MONO_UNSET : OUTBOX_MONO_NEVER);
	}
	foreach(cell, batch->overtaking)
	{
		OutboxUnreadRange *range = lfirst(cell);

		outbox_scan_add(scan, range->lo, range->hi, OUTBOX_MONO_UNSET,
						range->why | OUTBOX_UNREAD_OVERTAKING);
	}

	/*
	 * What else has been announced may be of such keys, too (the last rows of
	 * what piled up): it must not stand before what is new from now on.
	 */
	if (batch->in_vain)
		outbox_unread_split(&scan->unread, scan->announced);
}
