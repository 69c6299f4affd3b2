/*-------------------------------------------------------------------------
 *
 * keys.c
 *		Keys that are held, and keys to be read again.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "keys.h"
#include "utils/memutils.h"

/* Keys that one batch reads again. */
#define REREAD_MAX 8

struct OutboxKeys
{
	OutboxQueue *queue;			/* has the keys themselves */
	OutboxMonoTime locked_at;	/* look at those held as LOCKED then */
	bool		doubtful;		/* rows that hold keys may be gone */
};

OutboxKeys *
outbox_keys_create(MemoryContext cxt, OutboxQueue *queue)
{
	OutboxKeys *keys = MemoryContextAllocZero(cxt, sizeof(OutboxKeys));

	keys->queue = queue;
	return keys;
}

/* ------------------------------------------------------------------- verbs */

bool
outbox_keys_wanted(const OutboxKeys *keys)
{
	return outbox_queue_wants_reread(keys->queue);
}

void
outbox_keys_claim(OutboxKeys *keys, OutboxBatch *batch, int64 lowest, int64 end)
{
	dlist_iter	iter;
	int			count = 0;

	dlist_foreach(iter, &keys->queue->reread)
	{
		OutboxKey  *key = dlist_container(OutboxKey, node, iter.cur);
		OutboxSegment *segment;
		OutboxClaim claim;

		if (!outbox_queue_has_room(keys->queue, key))
			continue;
		if (count++ >= REREAD_MAX || outbox_batch_full(batch))
			break;
		segment = outbox_batch_add_segment(batch, OUTBOX_SOURCE_KEYS,
										   Min(key->skip_low, lowest) - 1,
										   end - 1);
		segment->key = key;
		segment->skip_low = key->skip_low;
		outbox_batch_fill_claim(batch, &claim);
		outbox_batch_claim(batch, &claim);
	}
}

/*
 * What was read of a key is not unread any more; what the queue then does not
 * keep of it, is.
 */
void
outbox_keys_committed(OutboxKeys *keys, OutboxBatch *batch)
{
	OutboxSegment *segment = NULL;

	while ((segment = outbox_batch_next(batch, OUTBOX_SOURCE_KEYS, segment)))
	{
		outbox_routes_passed_over(batch->routes, segment->after + 1);
		outbox_queue_key_read(keys->queue, segment->key, segment->skip_low,
							  segment->cut ? segment->last_seq + 1 : 0);
		segment->key = NULL;	/* may be gone */
	}
}

/* ------------------------------------------------------------------- holds */

void
outbox_keys_hold_locked(OutboxKeys *keys, int64 hash, int64 seq,
						OutboxMonoTime until)
{
	outbox_mono_earlier(&keys->locked_at, until);
	outbox_queue_hold_locked(keys->queue, hash, seq, until);
}

OutboxMonoTime
outbox_keys_deadline(const OutboxKeys *keys)
{
	return keys->locked_at;
}

void
outbox_keys_timers(OutboxKeys *keys, OutboxMonoTime now)
{
	dlist_mutable_iter iter;

	if (!outbox_mono_expired(&keys->locked_at, now))
		return;
	dlist_foreach_modify(iter, &keys->queue->held)
	{
		OutboxKey  *key = dlist_container(OutboxKey, node, iter.cur);

		if (key->hold != OUTBOX_HOLD_LOCKED)
			continue;
		if (outbox_mono_reached(key->hold_until, now))
			outbox_queue_release(keys->queue, key);
		else
			outbox_mono_earlier(&keys->locked_at, key->hold_until);
	}
}

/* ----------------------------------------------------------------- holders */

void
outbox_keys_doubt_holders(OutboxKeys *keys)
{
	keys->doubtful = true;
}

bool
outbox_keys_doubtful(const OutboxKeys *keys)
{
	return keys->doubtful;
}

/*
 * Keys whose holder was removed or requeued by somebody, or whose route does
 * not block any more.  Returns how many.
 */
static int
find_released(OutboxQueue *queue, OutboxKey ***released)
{
	dlist_iter	iter;
	int			max = (int) hash_get_num_entries(queue->keys);
	pg_uuid_t  *ids = palloc(sizeof(pg_uuid_t) * (max + 1));
	OutboxKey **keys = palloc(sizeof(OutboxKey *) * (max + 1));
	bool	   *still = palloc(sizeof(bool) * (max + 1));
	int			n = 0;

	dlist_foreach(iter, &queue->held)
	{
		OutboxKey  *key = dlist_container(OutboxKey, node, iter.cur);

		if (key->hold == OUTBOX_HOLD_LOCKED)
			continue;
		keys[n] = key;
		ids[n++] = key->holder_id;
	}
	if (n > 0)
		outbox_store_check_holders(ids, n, still);
	max = n;
	n = 0;
	for (int i = 0; i < max; i++)
		if (!still[i] || (keys[i]->hold == OUTBOX_HOLD_FAILED &&
						  !keys[i]->holder_route->block_on_failed))
			keys[n++] = keys[i];
	*released = keys;
	return n;
}

void
outbox_keys_check_holders(OutboxKeys *keys)
{
	OutboxKey **released;
	int			n = find_released(keys->queue, &released);

	keys->doubtful = false;
	for (int i = 0; i < n; i++)
		outbox_queue_release(keys->queue, released[i]);
}

#ifdef OUTBOX_FAULTS
bool
outbox_keys_have_released(OutboxKeys *keys)
{
	OutboxKey **released;

	return find_released(keys->queue, &released) > 0;
}
#endif
