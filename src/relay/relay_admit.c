/*-------------------------------------------------------------------------
 *
 * relay_admit.c
 *		What becomes of the claims of a round after its commit.
 *
 * The messages go to the queue, in the order of seq, and what the claims have
 * passed over is remembered.  Called after the commit and not before, because
 * what is in the queue may be published; an error in here ends the process.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "fault.h"
#include "relay_claim.h"
#include "settings.h"
#include "utils/memutils.h"

static void
hold_locked(OutboxBatch *batch, OutboxMonoTime until)
{
	OutboxRelay *relay = batch->relay;
	ListCell   *cell;

	foreach(cell, batch->locked)
	{
		OutboxLockedRow *row = lfirst(cell);
		OutboxRange range = {row->seq, row->seq};

		outbox_mono_earlier(&relay->later_at, until);
		if (row->keyed && outbox_relay_find_route(relay, row->route)->ordered)
		{
			outbox_queue_hold_locked(relay->queue, row->key_hash, row->seq,
									 until);
			continue;
		}
		outbox_range_add(relay->later, &relay->nlater, OUTBOX_MAX_RANGES,
						 range);
	}
}

/* A claimed message and where it comes from. */
typedef struct Admission
{
	int64		seq;
	int			index;			/* in the batch */
	OutboxSegment *segment;
} Admission;

static int
compare_admissions(const void *a, const void *b)
{
	const Admission *left = a;
	const Admission *right = b;

	if (left->seq != right->seq)
		return left->seq < right->seq ? -1 : 1;
	return left->index - right->index;
}

/*
 * The segment that has to remember a message which is dropped.  When its key is
 * read again in the same batch, over a stretch with this row in it, then that
 * read must not count the row as done because another segment has claimed it.
 */
OutboxSegment *
outbox_batch_reader(OutboxBatch *batch, OutboxSegment *segment,
					const OutboxMessage *message)
{
	if (!batch->reread || segment->origin != OUTBOX_FROM_SCAN ||
		message->aggregate_id == NULL)
		return segment;
	for (int i = 0; i < batch->nsegments; i++)
	{
		OutboxSegment *other = &batch->segments[i];

		if (other->key != NULL &&
			other->key->hash == message->key_hash &&
			message->seq > other->after &&
			message->seq <= (other->cut ? other->last_seq : other->upto))
			return other;
	}
	return segment;
}

/* Hands a message to the queue, or drops it; remembers what was dropped. */
static void
admit(OutboxBatch *batch, const Admission *admission)
{
	OutboxRelay *relay = batch->relay;
	OutboxMessage *message = batch->messages[admission->index];
	OutboxSegment *segment = outbox_batch_reader(batch, admission->segment,
												 message);
	int			claim = batch->claims[admission->index];
	OutboxRoute *route = outbox_relay_find_route(relay, message->route);

	/* A route that we have not loaded yet: its turn comes when we have. */
	if (outbox_relay_route_waits(route))
	{
		outbox_relay_route_skip(route, admission->seq);
		relay->config_dirty = true;
	}
	/* An older row of the key has turned up that could not be kept. */
	else if (segment->key != NULL &&
			 segment->key->skip_low < segment->skip_low)
		;
	else
	{
		if (!outbox_queue_admit(relay->queue, message, route, claim,
								segment->origin) &&
			segment->first_dropped == 0)
			segment->first_dropped = admission->seq;
		return;
	}
	outbox_queue_return_claim(relay->queue, claim, &message->id);
	pfree(message);
}

/*
 * In the order of seq over all segments: a row never depends on one with a
 * higher number, whichever was found first.
 */
static void
admit_all(OutboxBatch *batch)
{
	Admission  *admissions = MemoryContextAlloc(batch->cxt, sizeof(Admission) *
												Max(batch->count, 1));
	int			n = 0;

	for (int i = 0; i < batch->nsegments; i++)
	{
		OutboxSegment *segment = &batch->segments[i];

		for (int j = segment->start; j < segment->end; j++)
		{
			if (batch->messages[j] == NULL)
				continue;		/* given up */
			admissions[n].seq = batch->messages[j]->seq;
			admissions[n].index = j;
			admissions[n++].segment = segment;
		}
	}
	qsort(admissions, n, sizeof(Admission), compare_admissions);
	for (int i = 0; i < n; i++)
	{
		admit(batch, &admissions[i]);
		OUTBOX_FAULT("amid_admit");
	}
}

static void
advance_due(OutboxRelay *relay, OutboxSegment *segment)
{
	if (segment->visited > 0)
	{
		relay->due_cursor = segment->last_due;
		relay->due_cursor_seq = segment->last_seq;
	}
	/* For rows that were locked, or whose key was held. */
	relay->due_again_at = outbox_mono_after(outbox_relay_recheck_ms());
}

static void
advance_rescan(OutboxRelay *relay, OutboxSegment *segment)
{
	outbox_relay_routes_passed_over(relay, segment->after + 1);
	if (segment->cut)
		outbox_relay_rescan(relay, segment->last_seq + 1, segment->upto);
}

static void
finish_key(OutboxRelay *relay, OutboxSegment *segment)
{
	OutboxKey  *key = segment->key;
	int64		upto = 0;

	if (key->skip_low < segment->skip_low)
		return;
	outbox_relay_routes_passed_over(relay, segment->after + 1);
	/* Held meanwhile, for a locked row: it remembers by itself. */
	if (key->hold != OUTBOX_HOLD_NONE)
		return;
	if (segment->first_dropped != 0)
		upto = segment->first_dropped - 1;
	else if (segment->cut)
		upto = segment->last_seq;
	outbox_queue_reread_done(relay->queue, key, upto);
}

static void
finish_segment(OutboxRelay *relay, OutboxSegment *segment)
{
	if (segment->origin == OUTBOX_FROM_DUE)
		advance_due(relay, segment);
	else if (segment->key != NULL)
		finish_key(relay, segment);
	else if (segment->backlog)
		outbox_backlog_advance(relay, segment);
	else if (!segment->main)
		advance_rescan(relay, segment);
	else
	{
		relay->cursor = segment->last_seq;
		if (segment->cut)
			relay->main_pending = true;
	}
}

void
outbox_batch_committed(OutboxBatch *batch)
{
	OutboxRelay *relay = batch->relay;

	hold_locked(batch, outbox_mono_after(outbox_relay_recheck_ms()));
	relay->reread_last = batch->reread;
	admit_all(batch);
	outbox_backlog_extend(relay, batch->backlog_hi);
	for (int i = 0; i < batch->nsegments; i++)
		finish_segment(relay, &batch->segments[i]);
	batch->count = 0;
	batch->nsegments = 0;
	outbox_relay_heed_news(relay, &batch->late_news);
}
