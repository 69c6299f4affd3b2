/*-------------------------------------------------------------------------
 *
 * batch.c
 *		What one round claims: messages, and which rows were read for them.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "reading.h"
#include "settings.h"
#include "test_point.h"
#include "utils/memutils.h"

void
outbox_batch_init(OutboxBatch *batch, OutboxQueue *queue, OutboxRoutes *routes,
				  MemoryContext cxt)
{
	memset(batch, 0, sizeof(*batch));
	batch->cxt = cxt;
	batch->queue = queue;
	batch->routes = routes;
	batch->limit = Max(OUTBOX_QUEUE_MAX + outbox_locked_beside(queue) -
					   queue->count, 0);
	batch->limit = Min(batch->limit, outbox_window);
	/* All of them may turn out to be of keys that are under way. */
	batch->limit = Min(batch->limit,
					   Max(outbox_window - queue->nwaiting,
						   Min(outbox_window, OUTBOX_KEY_WAITING_MAX)));
	batch->bytes_left = OUTBOX_CLAIM_BYTES;
	batch->messages = MemoryContextAlloc(cxt, sizeof(OutboxMessage *) *
										 Max(batch->limit, 1));
}

int
outbox_locked_beside(const OutboxQueue *queue)
{
	return Min(queue->nlocked, OUTBOX_LOCKED_MAX);
}

bool
outbox_batch_full(const OutboxBatch *batch)
{
	return batch->count >= batch->limit - batch->reserve ||
		batch->bytes_left == 0;
}

/*
 * Half for what follows.  The odd one goes to both by turns, as a claim may be of
 * one row only (outbox.window = 1), and each of them has turns of its own.
 */
void
outbox_batch_keep_half(OutboxBatch *batch, OutboxPrecedence who)
{
	int			odd = (batch->turn >> who) & 1;

	outbox_batch_keep_nothing(batch);
	batch->reserve = (Max(batch->limit - batch->count, 0) + odd) / 2;
	batch->bytes_reserve = batch->bytes_left / 2;
	batch->bytes_left -= batch->bytes_reserve;
}

void
outbox_batch_keep_nothing(OutboxBatch *batch)
{
	batch->reserve = 0;
	batch->bytes_left += batch->bytes_reserve;
	batch->bytes_reserve = 0;
}

OutboxSegment *
outbox_batch_add_segment(OutboxBatch *batch, OutboxSource source,
						 int64 after, int64 upto)
{
	OutboxSegment *segment;

	if (batch->nsegments == OUTBOX_BATCH_SEGMENTS)
		return NULL;
	segment = &batch->segments[batch->nsegments++];
	memset(segment, 0, sizeof(*segment));
	segment->source = source;
	segment->after = after;
	segment->upto = upto;
	segment->last_seq = after;
	segment->start = segment->end = batch->count;
	return segment;
}

OutboxSegment *
outbox_batch_next(OutboxBatch *batch, OutboxSource source,
				  OutboxSegment *before)
{
	OutboxSegment *segment = before == NULL ? batch->segments : before + 1;

	for (; segment < batch->segments + batch->nsegments; segment++)
		if (segment->source == source)
			return segment;
	return NULL;
}

int64
outbox_segment_read(const OutboxSegment *segment)
{
	return segment->cut || segment->open ? segment->last_seq : segment->upto;
}

/* The last segment is the one at work. */
static OutboxSegment *
current(OutboxBatch *batch)
{
	return &batch->segments[batch->nsegments - 1];
}

/* OutboxClaimKnown: in the queue, or claimed by another segment of this batch. */
static bool
is_known(int64 seq, const pg_uuid_t *id, TimestampTz available_at, void *arg)
{
	OutboxBatch *batch = arg;
	OutboxSegment *segment = current(batch);

	segment->visited++;
	segment->last_seq = seq;
	segment->last_due = available_at;
	return outbox_queue_has(batch->queue, id);
}

/* OutboxClaimVisit */
static bool
visit_message(OutboxMessage *message, void *arg)
{
	OutboxBatch *batch = arg;
	OutboxSegment *segment = current(batch);

	outbox_queue_take_claim(batch->queue, &message->id);
	batch->messages[batch->count++] = message;
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

void
outbox_batch_fill_claim(OutboxBatch *batch, OutboxClaim *claim)
{
	OutboxSegment *segment = current(batch);

	memset(claim, 0, sizeof(*claim));
	claim->after = segment->after;
	claim->upto = segment->upto;
	claim->limit = batch->limit - batch->reserve - batch->count;
	claim->excluded_routes = batch->excluded_routes;
	claim->nunreadable = batch->nunreadable;
	claim->unreadable = batch->unreadable;
	claim->worker = MySlot->worker;
	claim->nworkers = MySlot->nworkers;
	claim->cxt = batch->queue->message_cxt;
	claim->known = is_known;
	claim->visit = visit_message;
	claim->arg = batch;
	if (segment->key != NULL)
	{
		claim->one_key = true;
		claim->key_hash = segment->key->id.hash;
		claim->key_route = segment->key->id.route->name;
		claim->limit = Min(claim->limit, outbox_queue_keeps(segment->key));
	}
}

void
outbox_batch_release(OutboxBatch *batch, int index)
{
	if (batch->messages[index] == NULL)
		return;
	outbox_queue_return_claim(batch->queue, &batch->messages[index]->id);
	pfree(batch->messages[index]);
	batch->messages[index] = NULL;
}

void
outbox_batch_forget(OutboxBatch *batch)
{
	for (int i = 0; i < batch->count; i++)
		outbox_batch_release(batch, i);
	batch->count = 0;
	batch->nsegments = 0;
}

void
outbox_batch_note_row(OutboxBatch *batch, List **list, const OutboxRow *row)
{
	MemoryContext old = MemoryContextSwitchTo(batch->cxt);
	OutboxRow  *copy = palloc(sizeof(OutboxRow));

	*copy = *row;
	copy->route = pstrdup(row->route);
	*list = lappend(*list, copy);
	MemoryContextSwitchTo(old);
}

/* OutboxRowVisit */
static void
find_locked(const OutboxRow *row, void *arg)
{
	OutboxBatch *batch = arg;

	current(batch)->last_listed = row->seq;
	/* What this batch has claimed is there, too. */
	if (!outbox_queue_has(batch->queue, &row->id))
		outbox_batch_note_row(batch, &batch->locked, row);
}

/* The segment ends with that row: its claims behind the row are released. */
static void
cut_segment(OutboxBatch *batch, OutboxSegment *segment, int64 seq)
{
	for (int i = segment->start; i < segment->end; i++)
		if (batch->messages[i] != NULL && batch->messages[i]->seq > seq)
			outbox_batch_release(batch, i);
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
look_for_locked(OutboxBatch *batch, const OutboxClaim *claim, bool skipped)
{
	OutboxSegment *segment = current(batch);
	OutboxClaim list = *claim;

	/* What was not reached here, another read will. */
	list.upto = outbox_segment_read(segment);
	/* None: at most the last number can be there once more. */
	if (!skipped)
	{
		if (!segment->cut)
			return;
		list.after = list.upto - 1;
	}
	list.limit = segment->visited + 2 * outbox_window + 1000;
	list.arg = batch;

	/*
	 * Very many: what is behind those listed could be of a key of the rest,
	 * and of the last number there may be more.
	 */
	if (outbox_store_list(&list, find_locked) < list.limit)
		return;
	if (segment->last_listed > list.after + 1)
		cut_segment(batch, segment, segment->last_listed - 1);
	else
	{
		/* All of one number: the rest of them is looked for in a moment. */
		OutboxRow	row = {.seq = segment->last_listed, .route = ""};

		outbox_batch_note_row(batch, &batch->locked, &row);
	}
}

void
outbox_batch_claim(OutboxBatch *batch, OutboxClaim *claim)
{
	OutboxSegment *segment = current(batch);
	bool		skipped;

	if (outbox_store_claim(claim, &skipped) >= claim->limit)
		segment->cut = true;
	if (segment->open && !segment->cut)
		segment->last_seq = Max(segment->last_seq, segment->known);
	look_for_locked(batch, claim, skipped);
}
