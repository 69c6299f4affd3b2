/*-------------------------------------------------------------------------
 *
 * relay_claim.c
 *		What a round claims.
 *
 * A batch is made of segments: rows whose time has come, keys to be read
 * again, ranges that became visible late, and the main scan that moves the
 * cursor.  Messages get into the queue only when the claiming transaction has
 * committed; until then nothing of the relay's state changes but the claims
 * shown in shared memory, which must be there before the row locks go (see
 * outbox_discard() in the SQL script).
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "fault.h"
#include "relay_claim.h"
#include "settings.h"
#include "utils/memutils.h"
#include "utils/timestamp.h"

/* Keys that one batch reads again. */
#define REREAD_MAX 8

/*
 * While so many keys are under way, rows that would only wait behind them are
 * not claimed.  With fewer, the scan goes on past busy keys, leaving their rows
 * to be read again later, to find others: that read has to pass the rows of
 * the keys in between, so it must not become the rule.
 */
#define BUSY_KEYS 16

/* How many rows a worker may have in its memory. */
static int
queue_limit(void)
{
	return 2 * outbox_window;
}

bool
outbox_batch_wanted(OutboxRelay *relay)
{
	OutboxQueue *queue = relay->queue;

	if (!relay->attached || relay->paused || relay->reconnect ||
		relay->leave || !outbox_enabled || outbox_watchdog_stopping() ||
		outbox_link_state(relay->link) != OUTBOX_LINK_OPEN)
		return false;
	/* Not for the sake of a few rows while there is enough to do. */
	if (queue->nready > 0 && queue->nready >= outbox_window / 2)
		return false;
	if (queue->nwaiting > 0 && queue->nwaiting >= queue->waiting_max / 2 &&
		queue->nready + queue->nsent >= BUSY_KEYS)
		return false;
	if (queue->count >= queue_limit() || queue->bytes >= OUTBOX_QUEUE_BYTES)
		return false;
	return relay->main_pending || relay->nrescans > 0 ||
		outbox_backlog_exists(relay) ||
		outbox_queue_wants_reread(queue) ||
		(relay->next_due != 0 && GetCurrentTimestamp() >= relay->next_due);
}

void
outbox_batch_init(OutboxRelay *relay, OutboxBatch *batch, MemoryContext cxt)
{
	memset(batch, 0, sizeof(*batch));
	batch->relay = relay;
	batch->limit = Max(queue_limit() - relay->queue->count, 0);
	batch->limit = Min(batch->limit, outbox_window);
	/* All of them may turn out to be of keys that are under way. */
	batch->limit = Min(batch->limit,
					   Max(relay->queue->waiting_max - relay->queue->nwaiting,
						   Min(outbox_window, OUTBOX_KEY_WAITING_MAX)));
	batch->bytes_left = OUTBOX_CLAIM_BYTES;
	batch->messages = MemoryContextAlloc(cxt, sizeof(OutboxMessage *) *
										 Max(batch->limit, 1));
	batch->claims = MemoryContextAlloc(cxt, sizeof(int) *
									   Max(batch->limit, 1));
	batch->cxt = cxt;
}

/* A range that became visible late. */
static bool
is_rescan(const OutboxSegment *segment)
{
	return segment->origin == OUTBOX_FROM_SCAN && !segment->main &&
		!segment->backlog;
}

/* The transaction failed: nothing was claimed. */
void
outbox_batch_forget(OutboxBatch *batch)
{
	for (int i = 0; i < batch->count; i++)
		outbox_batch_give_up_message(batch, i);
	batch->count = 0;
	for (int i = 0; i < batch->nsegments; i++)
	{
		OutboxSegment *segment = &batch->segments[i];

		if (is_rescan(segment))
			outbox_relay_rescan(batch->relay, segment->after + 1,
								segment->upto);
		else if (segment->main)
			batch->relay->main_pending = true;
	}
	batch->nsegments = 0;
	if (batch->relay != NULL)
		outbox_relay_heed_news(batch->relay, &batch->late_news);
}

/* ---------------------------------------------------------------- claiming */

/* OutboxClaimVisit */
static bool
batch_visit(OutboxMessage *message, void *arg)
{
	OutboxBatch *batch = arg;
	OutboxSegment *segment = &batch->segments[batch->nsegments - 1];
	int			index;

	segment->visited++;
	if (message->seq != segment->last_seq)
		segment->numbers++;
	segment->last_seq = message->seq;
	segment->last_due = message->available_at;
	/* In the queue, or claimed by another segment of this batch. */
	index = outbox_queue_take_claim(batch->relay->queue, &message->id);
	if (index < 0)
	{
		pfree(message);
		return true;
	}
	batch->messages[batch->count] = message;
	batch->claims[batch->count] = index;
	batch->count++;
	segment->end = batch->count;
	if (message->size >= batch->bytes_left)
	{
		batch->bytes_left = 0;
		segment->cut = true;
		return false;
	}
	batch->bytes_left -= message->size;
	return true;
}

static OutboxSegment *
add_segment(OutboxBatch *batch, OutboxOrigin origin, int64 after, int64 upto)
{
	OutboxSegment *segment = &batch->segments[batch->nsegments++];

	Assert(batch->nsegments <= OUTBOX_BATCH_SEGMENTS);
	memset(segment, 0, sizeof(*segment));
	segment->origin = origin;
	segment->after = after;
	segment->upto = upto;
	segment->last_seq = after;
	segment->start = segment->end = batch->count;
	return segment;
}

static void
fill_claim(OutboxBatch *batch, OutboxSegment *segment, OutboxClaim *claim)
{
	memset(claim, 0, sizeof(*claim));
	claim->after = segment->after;
	claim->upto = segment->upto;
	claim->limit = batch->limit - batch->reserve - batch->count;
	claim->excluded_routes = batch->excluded_routes;
	claim->worker = MySlot->worker;
	claim->nworkers = MySlot->nworkers;
	claim->cxt = batch->relay->queue->message_cxt;
	claim->visit = batch_visit;
	claim->arg = batch;
	if (segment->key != NULL)
	{
		claim->one_key = true;
		claim->key_hash = segment->key->hash;
		claim->limit = Min(claim->limit, OUTBOX_KEY_WAITING_MAX);
	}
}

static bool
batch_full(const OutboxBatch *batch)
{
	return batch->count >= batch->limit - batch->reserve ||
		batch->bytes_left == 0;
}

/* ------------------------------------------- rows that somebody has locked */

static void
note_locked(OutboxBatch *batch, const OutboxRow *row)
{
	MemoryContext old = MemoryContextSwitchTo(batch->cxt);
	OutboxLockedRow *locked = palloc0(sizeof(OutboxLockedRow));

	locked->seq = row->seq;
	locked->route = pstrdup(row->route);
	locked->keyed = row->keyed;
	locked->key_hash = row->key_hash;
	batch->locked = lappend(batch->locked, locked);
	MemoryContextSwitchTo(old);
}

/* OutboxRowVisit */
static void
find_locked(const OutboxRow *row, void *arg)
{
	OutboxBatch *batch = arg;
	OutboxSegment *segment = &batch->segments[batch->nsegments - 1];

	segment->last_listed = row->seq;
	/* What this batch has claimed is there, too. */
	if (!outbox_queue_has(batch->relay->queue, &row->id))
		note_locked(batch, row);
}

/* The segment ends with that row: what it has claimed behind is given up. */
static void
cut_segment(OutboxBatch *batch, OutboxSegment *segment, int64 seq)
{
	for (int i = segment->start; i < segment->end; i++)
		if (batch->messages[i]->seq > seq)
			outbox_batch_give_up_message(batch, i);
	segment->last_seq = seq;
	segment->cut = true;
}

/*
 * Rows that the claim passed over because they are locked, or because somebody
 * has changed them since the snapshot.  Either way later rows of their keys must
 * wait.  The same becomes of a row that the claim did not come to, and that has
 * the number of the last one.
 */
static void
look_for_locked(OutboxBatch *batch, OutboxSegment *segment,
				const OutboxClaim *claim)
{
	OutboxClaim list = *claim;

	/* What the main scan did not reach, the next one will. */
	if (segment->main || segment->cut)
		list.upto = segment->last_seq;
	/* No number is missing: at most the last one can be there once more. */
	if (list.upto - list.after == segment->numbers)
	{
		if (!segment->cut)
			return;
		list.after = list.upto - 1;
	}
	list.limit = segment->visited + 2 * outbox_window + 1000;
	list.arg = batch;
	/*
	 * Very many: what is behind those listed could be of a key of the rest, and
	 * of the last number there may be more.
	 */
	if (outbox_store_list(&list, find_locked) < list.limit)
		return;
	if (segment->last_listed > list.after + 1)
		cut_segment(batch, segment, segment->last_listed - 1);
	else
		/* All of one number: the rest of them is looked for in a moment. */
		note_locked(batch, &(OutboxRow) {.seq = segment->last_listed,.route = ""});
}

/* ---------------------------------------------------------------- segments */

static void
claim_segment(OutboxBatch *batch, OutboxSegment *segment,
			  const int64 *excluded_keys, int nexcluded_keys)
{
	OutboxClaim claim;
	int64		tail = 0;

	fill_claim(batch, segment, &claim);
	claim.excluded_keys = excluded_keys;
	claim.nexcluded_keys = nexcluded_keys;
	/* The tail may be rows of routes that wait; do not walk it each time. */
	if (segment->main && batch->excluded_routes != NIL)
		tail = outbox_store_last_ready();
	if (outbox_store_claim(&claim) >= claim.limit)
		segment->cut = true;
	if (segment->main && !segment->cut)
		segment->last_seq = Max(segment->last_seq, tail);
	look_for_locked(batch, segment, &claim);
}

static void
claim_due(OutboxBatch *batch)
{
	OutboxRelay *relay = batch->relay;
	OutboxSegment *segment = add_segment(batch, OUTBOX_FROM_DUE, 0,
										 PG_INT64_MAX);
	OutboxClaim claim;

	fill_claim(batch, segment, &claim);
	if (outbox_store_claim_due(&claim, relay->due_cursor,
							   relay->due_cursor_seq) >= claim.limit)
		segment->cut = true;
}

/* Keys of which the rows from a number on, up to the cursor, are read again. */
static int
list_excluded_keys(OutboxRelay *relay, int64 from, int64 *hashes)
{
	dlist_head *lists[] = {&relay->queue->held, &relay->queue->reread};
	int			n = 0;

	/* Rows without an order are not read again with their key. */
	if (outbox_relay_has_unordered(relay))
		return 0;
	for (int i = 0; i < (int) lengthof(lists); i++)
	{
		dlist_iter	iter;

		dlist_foreach(iter, lists[i])
		{
			OutboxKey  *key = dlist_container(OutboxKey, node, iter.cur);

			if (n == OUTBOX_MAX_EXCLUDED)
				return n;
			if (key->skip_low != 0 && key->skip_low <= from)
				hashes[n++] = key->hash;
		}
	}
	return n;
}

static int
compare_ranges(const void *a, const void *b)
{
	int64		left = ((const OutboxRange *) a)->lo;
	int64		right = ((const OutboxRange *) b)->lo;

	return left < right ? -1 : left > right ? 1 : 0;
}

/*
 * Ranges that became visible late, in the order of seq.  Each leaves the
 * relay's list here, and comes back if it was not read to its end or the
 * transaction fails.  Returns true when nothing of them is left: only then may
 * newer rows be claimed, which could be of the same keys.
 */
static bool
claim_rescans(OutboxBatch *batch)
{
	OutboxRelay *relay = batch->relay;

	qsort(relay->rescans, relay->nrescans, sizeof(OutboxRange), compare_ranges);
	while (relay->nrescans > 0)
	{
		OutboxRange range = relay->rescans[0];
		OutboxSegment *segment;

		/* One segment is left for the main scan. */
		if (batch->nsegments >= OUTBOX_BATCH_SEGMENTS - 1 || batch_full(batch))
			return false;
		relay->nrescans--;
		memmove(&relay->rescans[0], &relay->rescans[1],
				sizeof(OutboxRange) * relay->nrescans);
		segment = add_segment(batch, OUTBOX_FROM_SCAN, range.lo - 1,
							  Min(range.hi, relay->cursor));
		claim_segment(batch, segment, NULL, 0);
		if (segment->cut)
			return false;
	}
	return true;
}

void
outbox_batch_give_up_message(OutboxBatch *batch, int index)
{
	if (batch->messages[index] == NULL)
		return;
	outbox_queue_return_claim(batch->relay->queue, batch->claims[index],
							  &batch->messages[index]->id);
	pfree(batch->messages[index]);
	batch->messages[index] = NULL;
}

static void
claim_keys(OutboxBatch *batch)
{
	dlist_iter	iter;
	int			count = 0;

	dlist_foreach(iter, &batch->relay->queue->reread)
	{
		OutboxKey  *key = dlist_container(OutboxKey, node, iter.cur);
		OutboxSegment *segment;

		if (!outbox_queue_has_room(batch->relay->queue, key))
			continue;
		if (count++ >= REREAD_MAX || batch_full(batch) ||
			batch->nsegments >= OUTBOX_BATCH_SEGMENTS / 2)
			break;
		segment = add_segment(batch, OUTBOX_FROM_KEY,
							  outbox_backlog_key_low(batch->relay,
													 key->skip_low) - 1,
							  batch->relay->cursor);
		segment->key = key;
		segment->skip_low = key->skip_low;
		claim_segment(batch, segment, NULL, 0);
	}
}

static void
claim_main(OutboxBatch *batch)
{
	OutboxRelay *relay = batch->relay;
	OutboxSegment *segment = add_segment(batch, OUTBOX_FROM_SCAN,
										 relay->cursor, PG_INT64_MAX);
	int64		hashes[OUTBOX_MAX_EXCLUDED];

	segment->main = true;
	/* News that come from here on, this scan may not have seen. */
	relay->main_pending = false;
	claim_segment(batch, segment, hashes, list_excluded_keys(relay, relay->cursor + 1,
																	hashes));
}

static void
claim_backlog(OutboxBatch *batch)
{
	OutboxRelay *relay = batch->relay;
	OutboxSegment *segment = add_segment(batch, OUTBOX_FROM_SCAN,
										 relay->backlog.lo - 1,
										 Min(relay->backlog.hi, relay->cursor));
	int64		hashes[OUTBOX_MAX_EXCLUDED];

	segment->backlog = true;
	claim_segment(batch, segment, hashes,
				  list_excluded_keys(relay, relay->backlog.lo, hashes));
}

/* OutboxEarlyVisit: it has committed, and has not announced itself. */
static void
heed_early_word(TransactionId xid, const OutboxRange *range, void *arg)
{
	if (outbox_store_sees(xid))
		outbox_relay_rescan(arg, range->lo, range->hi);
}

/*
 * All claims of a batch read one snapshot, and that is what keeps the order of
 * transactions that depend on each other: if it sees a row B, it sees every row
 * A that B's transaction had seen, and A's transaction had said its early word
 * before.  When the snapshot has been taken, that word still stands, or A's
 * transaction has announced its range to the inbox; if this worker's slot was not
 * in use at that time, all of its snapshots see A.  So early words and then the
 * inbox lead to A, and it is read now.  Ranges in the inbox may be of
 * transactions that the snapshot does not see, so they are for the next batch as
 * well; what was there before the snapshot is taken out first, to make them few.
 */
static void
take_snapshot(OutboxBatch *batch)
{
	OutboxRelay *relay = batch->relay;
	OutboxInbox *late = &batch->late_news;

	outbox_relay_take_news(relay);
	OUTBOX_FAULT("before_snapshot");
	outbox_store_claim_snapshot();
	outbox_early_visit(heed_early_word, relay);
	outbox_relay_reserve_prepared(relay, OUTBOX_INBOX_PREPARED);
	outbox_slot_take_inbox(late);
	for (int i = 0; i < late->nranges; i++)
		outbox_relay_rescan(relay, late->ranges[i].lo, late->ranges[i].hi);
	if (late->news & OUTBOX_NEWS_PREPARED)
		outbox_relay_rescan(relay, late->lost.lo, late->lost.hi);
	for (int i = 0; i < late->nprepared; i++)
		outbox_relay_add_prepared(relay, &late->prepared[i]);
	late->nprepared = 0;
	outbox_relay_check_prepared(relay, outbox_store_sees);
}

/* Called in a transaction. */
void
outbox_batch_claim(OutboxBatch *batch, TimestampTz wall)
{
	OutboxRelay *relay = batch->relay;
	MemoryContext old = MemoryContextSwitchTo(batch->cxt);

	batch->excluded_routes = outbox_relay_excluded_routes(relay);
	take_snapshot(batch);
	if (outbox_backlog_exists(relay))
	{
		batch->reserve = batch->limit / 2;
		if (batch->limit == 1)
		{
			relay->backlog_first = !relay->backlog_first;
			batch->reserve = relay->backlog_first ? 1 : 0;
		}
		batch->bytes_reserve = batch->bytes_left / 2;
		batch->bytes_left -= batch->bytes_reserve;
	}
	if (relay->next_due != 0 && wall >= relay->next_due && !batch_full(batch))
		claim_due(batch);

	/*
	 * Newer rows may be of the same keys, so not before all ranges are read.
	 * (That can be with room left: rows in memory count for a read's limit.)
	 */
	if (claim_rescans(batch))
	{
		/*
		 * Keys not together with the main scan: that leaves them out, counting
		 * on their being read again up to the cursor.  In turns, as a busy key
		 * is nearly always to be read again.
		 */
		if (outbox_queue_wants_reread(relay->queue) && !batch_full(batch) &&
			!(relay->reread_last && relay->main_pending))
		{
			claim_keys(batch);
			batch->reread = true;
		}
		else if (relay->main_pending && !batch_full(batch) &&
				 outbox_backlog_yields(relay))
			claim_main(batch);
		batch->reserve = 0;
		batch->bytes_left += batch->bytes_reserve;
		if (outbox_backlog_exists(relay) && !batch_full(batch))
			claim_backlog(batch);
	}
	OUTBOX_FAULT("amid_claim");
	outbox_backlog_check(batch);
	MemoryContextSwitchTo(old);
}
