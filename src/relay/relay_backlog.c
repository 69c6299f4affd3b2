/*-------------------------------------------------------------------------
 *
 * relay_backlog.c
 *		The backlog: rows that wait behind the cursor, read beside new ones.
 *
 * A long range of rows that is to be read (what piled up in an outage, a
 * transaction of a million messages, the whole table at start) must not stand
 * in front of everything that is committed meanwhile.  So the cursor jumps over
 * it, the range becomes the backlog, and each claim takes half from the main
 * scan and the rest, which is nearly always all of it, from the backlog.
 *
 * What keeps the order of a key: a row that does not come from the backlog is
 * given up when its key has an older row in it.  The backlog is then extended to
 * that row, and reads both in the order of seq.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "relay_claim.h"
#include "settings.h"
#include "utils/memutils.h"

/* A range of more numbers than so many windows goes to the backlog. */
#define BACKLOG_WINDOWS 4

/* Rounds without a main scan, after several whose rows were mostly given up. */
#define MAX_PAUSE		64

static bool
is_long(int64 lo, int64 hi)
{
	return hi - lo >= (int64) BACKLOG_WINDOWS * outbox_window;
}

bool
outbox_backlog_exists(const OutboxRelay *relay)
{
	return relay->backlog.hi != 0;
}

static void
add(OutboxRelay *relay, int64 lo, int64 hi)
{
	OutboxRange *backlog = &relay->backlog;

	if (backlog->hi == 0)
	{
		backlog->lo = lo;
		backlog->hi = hi;
		relay->main_pause = 0;
		relay->last_pause = 0;
		return;
	}
	backlog->lo = Min(backlog->lo, lo);
	backlog->hi = Max(backlog->hi, hi);
}

/* Takes a range behind the cursor if it is long. */
bool
outbox_backlog_add(OutboxRelay *relay, int64 lo, int64 hi)
{
	if (!is_long(lo, hi))
		return false;
	add(relay, lo, hi);
	return true;
}

/* If what is new lies far behind the cursor, so does much else. */
void
outbox_backlog_jump(OutboxRelay *relay)
{
	if (!is_long(relay->cursor + 1, relay->news_hi))
		return;
	add(relay, relay->cursor + 1, relay->news_hi);
	relay->cursor = relay->news_hi;
}

/* Where to read a key again from, so that nothing of the backlog is left out. */
int64
outbox_backlog_key_low(const OutboxRelay *relay, int64 skip_low)
{
	if (!outbox_backlog_exists(relay))
		return skip_low;
	return Min(skip_low, relay->backlog.lo);
}

/* Is this the turn of the main scan? */
bool
outbox_backlog_yields(OutboxRelay *relay)
{
	if (!outbox_backlog_exists(relay) || relay->main_pause == 0)
		return true;
	relay->main_pause--;
	return false;
}

/* ------------------------------------------------------- order of the keys */

typedef struct Check
{
	int			nhashes;
	int64	   *hashes;
	int64	   *his;			/* where older rows may be: up to here */
	int		   *indexes;		/* of the message in the batch */
	bool	   *behind;
} Check;

/*
 * Was the row passed by this batch's read of the backlog, as claimed already?
 * Then all that is older of its key was read with it, and nobody will come back
 * for it.
 */
static bool
read_with_backlog(const OutboxBatch *batch, int64 seq)
{
	for (int i = 0; i < batch->nsegments; i++)
	{
		const OutboxSegment *segment = &batch->segments[i];

		if (segment->backlog && seq > segment->after &&
			seq <= (segment->cut ? segment->last_seq : segment->upto))
			return true;
	}
	return false;
}

static void
collect(OutboxBatch *batch, OutboxSegment *segment, Check *check)
{
	for (int i = segment->start; i < segment->end; i++)
	{
		OutboxMessage *message = batch->messages[i];

		if (message == NULL || message->aggregate_id == NULL ||
			message->seq <= batch->relay->backlog.lo ||
			read_with_backlog(batch, message->seq))
			continue;
		/* With all that is older of its key. */
		if (outbox_batch_reader(batch, segment, message) != segment)
			continue;
		check->hashes[check->nhashes] = message->key_hash;
		/* A row in the middle of it may be the first of its key. */
		check->his[check->nhashes] = Min(batch->relay->backlog.hi,
										 message->seq - 1);
		check->indexes[check->nhashes++] = i;
	}
}

static bool
beside_backlog(const OutboxSegment *segment)
{
	return segment->origin == OUTBOX_FROM_SCAN && !segment->backlog;
}

/* Main scans that are mostly in vain become rare. */
static void
adapt_pause(OutboxRelay *relay, int checked, int rejected)
{
	if (checked < 16)
		return;
	if (rejected * 2 <= checked)
	{
		relay->last_pause = 0;
		return;
	}
	relay->last_pause = Min(2 * relay->last_pause + 1, MAX_PAUSE);
	relay->main_pause = relay->last_pause;
}

/*
 * Gives up what must not overtake the backlog, which takes it over when the
 * transaction has committed, and the cursor has passed it.
 */
void
outbox_backlog_check(OutboxBatch *batch)
{
	OutboxRelay *relay = batch->relay;
	Check		check = {0};
	int			rejected = 0;

	if (!outbox_backlog_exists(relay) || batch->count == 0)
		return;
	check.hashes = palloc(sizeof(int64) * (batch->count + 1));
	check.his = palloc(sizeof(int64) * (batch->count + 1));
	check.indexes = palloc(sizeof(int) * (batch->count + 1));
	check.behind = palloc0(sizeof(bool) * (batch->count + 1));
	for (int i = 0; i < batch->nsegments; i++)
		if (beside_backlog(&batch->segments[i]))
			collect(batch, &batch->segments[i], &check);
	if (check.nhashes == 0)
		return;
	outbox_store_find_keys(check.hashes, check.his, check.nhashes,
						   relay->backlog.lo, check.behind);
	for (int i = 0; i < check.nhashes; i++)
	{
		if (!check.behind[i])
			continue;
		batch->backlog_hi = Max(batch->backlog_hi,
								batch->messages[check.indexes[i]]->seq);
		outbox_batch_give_up_message(batch, check.indexes[i]);
		rejected++;
	}
	adapt_pause(relay, check.nhashes, rejected);
}

/* --------------------------------------------------------------- progress */

/* What outbox_backlog_check() has given up is the backlog's now. */
void
outbox_backlog_extend(OutboxRelay *relay, int64 hi)
{
	if (hi > relay->backlog.hi)
		relay->backlog.hi = hi;
}

/* The segment was claimed, and its transaction has committed. */
void
outbox_backlog_advance(OutboxRelay *relay, const OutboxSegment *segment)
{
	OutboxRange *backlog = &relay->backlog;
	int64		read = segment->cut ? segment->last_seq : segment->upto;

	outbox_relay_routes_passed_over(relay, segment->after + 1);
	/* Unless older rows have been added meanwhile. */
	if (backlog->lo > segment->after)
		backlog->lo = Max(backlog->lo, read + 1);
	if (backlog->lo > backlog->hi)
		backlog->lo = backlog->hi = 0;
}
