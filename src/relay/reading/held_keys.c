/*-------------------------------------------------------------------------
 *
 * held_keys.c
 *		Keys that are held, and keys to be read again.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "message.h"
#include "reading.h"

/* Keys that one batch reads again. */
#define REREAD_MAX 8

static bool
leaves_out(const OutboxKey *key, OutboxKeyFilter filter, const void *arg,
		   OutboxExcludedKey *excluded)
{
	*excluded = (OutboxExcludedKey) {.hash = key->id.hash, .route = key->id.route->name};
	return filter(key, arg, excluded);
}

void
outbox_keys_exclude(OutboxBatch *batch, OutboxClaim *claim, OutboxKeyFilter filter,
					const void *arg)
{
	OutboxQueue *queue = batch->queue;
	dlist_head *lists[] = {&queue->large, &queue->held, &queue->reread};
	bool		many = queue->nheld + queue->nreread > OUTBOX_EXCLUDED_KEYS;
	OutboxExcludedKey *keys;
	int			n = 0;

	if (queue->nheld + queue->nreread == 0 && dlist_is_empty(&queue->large))
		return;
	keys = palloc(sizeof(OutboxExcludedKey) * OUTBOX_EXCLUDED_KEYS);
	for (int i = 0; many && i < OUTBOX_EXCLUDED_KEYS; i++)
	{
		const OutboxKey *key = outbox_queue_released_key(queue, i);

		if (key != NULL)
			n += leaves_out(key, filter, arg, &keys[n]);
	}
	for (int i = 0; !many && i < (int) lengthof(lists); i++)
	{
		dlist_iter	iter;

		dlist_foreach(iter, lists[i])
			if (n < OUTBOX_EXCLUDED_KEYS)
				n += leaves_out(dlist_container(OutboxKey, node, iter.cur), filter, arg,
								&keys[n]);
	}
	claim->excluded_keys = keys;
	claim->nexcluded_keys = n;
}

void
outbox_keys_claim(OutboxReader *reader, OutboxBatch *batch)
{
	/*
	 * What is unread of anything begins there; the scan has not come to the
	 * end.
	 */
	int64		lowest = outbox_scan_lowest(&reader->scan);
	int64		end = outbox_reader_end(reader);
	dlist_iter	iter;
	int			count = 0;

	dlist_foreach(iter, &reader->queue->reread)
	{
		OutboxKey  *key = dlist_container(OutboxKey, node, iter.cur);
		OutboxSegment *segment;
		OutboxClaim claim;

		if (!outbox_queue_has_room(reader->queue, key))
			continue;
		if (count++ >= REREAD_MAX || outbox_batch_full(batch))
			break;
		segment = outbox_batch_add_segment(batch, OUTBOX_SOURCE_KEYS,
										   Min(key->skip_low, lowest) - 1,
										   end - 1);
		segment->key = key;
		segment->key_id = key->id;
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
outbox_keys_committed(OutboxReader *reader, OutboxBatch *batch)
{
	OutboxSegment *segment = NULL;

	while ((segment = outbox_batch_next(batch, OUTBOX_SOURCE_KEYS, segment)))
	{
		outbox_routes_passed_over(batch->routes, segment->after + 1);
		outbox_queue_key_read(reader->queue, segment->key, segment->skip_low,
							  segment->cut ? segment->last_seq + 1 : 0);
		segment->key = NULL;	/* may be gone */
	}
}

void
outbox_keys_admitted(OutboxReader *reader, OutboxBatch *batch)
{
	OutboxSegment *segment = NULL;

	while ((segment = outbox_batch_next(batch, OUTBOX_SOURCE_KEYS, segment)))
		outbox_queue_key_done(reader->queue, segment->key_id);
}

/* A claimed message that must not go if an older one of its key has failed. */
typedef struct Barred
{
	OutboxKeyId id;				/* MUST BE FIRST, see outbox_compare_keys() */
	int			index;			/* in the batch */
} Barred;

typedef struct FailedCheck
{
	OutboxBatch *batch;
	Barred	   *barred;			/* by key */
	int			n;
} FailedCheck;

/* Its route, if that blocks; else NULL. */
static OutboxRoute *
find_blocking(const OutboxBatch *batch, const OutboxMessage *message)
{
	OutboxRoute *route;

	if (message == NULL || message->aggregate_id == NULL)
		return NULL;
	route = outbox_routes_find(batch->routes, message->route);
	return outbox_route_blocks(route) ? route : NULL;
}

/* OutboxRowVisit: releases the claims behind the row. */
static void
release_later(const OutboxRow *row, void *arg)
{
	FailedCheck *check = arg;
	OutboxBatch *batch = check->batch;
	OutboxKeyId key_id = {row->key_hash, outbox_routes_find(batch->routes, row->route)};
	Barred	   *barred = bsearch(&key_id, check->barred, check->n, sizeof(Barred),
								 outbox_compare_keys);

	/*
	 * Of a row that is set aside, or a key that a damaged index has not been
	 * asked for.
	 */
	if (barred == NULL)
		return;
	while (barred > check->barred && outbox_compare_keys(&barred[-1], &key_id) == 0)
		barred--;
	for (; barred < check->barred + check->n && outbox_compare_keys(barred, &key_id) == 0; barred++)
	{
		if (batch->messages[barred->index] == NULL)
			continue;			/* behind another one, too */
		if (batch->messages[barred->index]->seq <= row->seq)
			continue;
		outbox_batch_release(batch, barred->index);
		outbox_batch_note_row(batch, &batch->failed, row);
	}
}

void
outbox_keys_check_failed(OutboxBatch *batch)
{
	FailedCheck check = {.batch = batch};
	int64	   *hashes;
	const char **routes;
	int			n = 0;

	if (batch->count == 0 || !outbox_routes_block(batch->routes))
		return;
	check.barred = palloc(sizeof(Barred) * batch->count);
	for (int i = 0; i < batch->count; i++)
	{
		OutboxRoute *route = find_blocking(batch, batch->messages[i]);

		if (route != NULL)
			check.barred[check.n++] = (Barred)
		{
			{
				batch->messages[i]->key_hash, route
			}, i
		};
	}
	if (check.n == 0)
		return;
	qsort(check.barred, check.n, sizeof(Barred), outbox_compare_keys);
	hashes = palloc(sizeof(int64) * check.n);
	routes = palloc(sizeof(char *) * check.n);
	for (int i = 0; i < check.n; i++)
		if (i == 0 || outbox_compare_keys(&check.barred[i], &check.barred[i - 1]) != 0)
		{
			hashes[n] = check.barred[i].id.hash;
			routes[n++] = check.barred[i].id.route->name;
		}
	outbox_store_visit_failed(hashes, routes, n, release_later, &check);
	for (int i = 0; i < batch->nunreadable; i++)
		if (batch->unreadable[i].row.keyed)
			release_later(&batch->unreadable[i].row, &check);
}

void
outbox_keys_hold_locked(OutboxReader *reader, OutboxKeyId key_id, int64 seq,
						OutboxMonoTime until)
{
	outbox_mono_earlier(&reader->locked_at, until);
	outbox_queue_hold_locked(reader->queue, key_id, seq);
}

void
outbox_keys_timers(OutboxReader *reader, OutboxMonoTime now)
{
	dlist_mutable_iter iter;

	if (!outbox_mono_expired(&reader->locked_at, now))
		return;
	dlist_foreach_modify(iter, &reader->queue->held)
	{
		OutboxKey  *key = dlist_container(OutboxKey, node, iter.cur);

		if (key->hold == OUTBOX_HOLD_LOCKED)
			outbox_queue_release(reader->queue, key);
	}
}

void
outbox_keys_invalidate_holders(OutboxReader *reader)
{
	reader->holders_stale = true;
	outbox_queue_uncheck_held(reader->queue, reader->queue->nheld);
	outbox_queue_want_pass(reader->queue);
}

bool
outbox_keys_are_stale(const OutboxReader *reader)
{
	return reader->holders_stale || reader->queue->nunchecked > 0 ||
		reader->queue->retries_unknown;
}

/* What may not hold its key any more. */
typedef struct KeyHold
{
	OutboxKey  *key;
	bool		blocks;			/* a failed row, and not a retry */
} KeyHold;

static void
add_hold(KeyHold *key_holds, pg_uuid_t *ids, int64 *hashes, const char **routes, int *n,
		 OutboxKey *key, bool blocks)
{
	ids[*n] = blocks ? key->failed.id : key->retry.id;
	hashes[*n] = key->id.hash;
	routes[*n] = key->id.route->name;
	key_holds[(*n)++] = (KeyHold) {key, blocks};
}

/* Of so many keys. */
static void
add_holds(dlist_head *list, int nkeys, KeyHold *key_holds, pg_uuid_t *ids, int64 *hashes,
		  const char **routes, int *n)
{
	dlist_iter	iter;

	dlist_foreach(iter, list)
	{
		OutboxKey  *key = dlist_container(OutboxKey, node, iter.cur);

		if (nkeys-- == 0)
			return;
		if (key->hold == OUTBOX_HOLD_RETRY)
			add_hold(key_holds, ids, hashes, routes, n, key, false);
		if (key->blocked)
			add_hold(key_holds, ids, hashes, routes, n, key, true);
	}
}

/*
 * Does the row hold the key?  still: it is there, and has failed or waits.  One that is
 * set aside does where failed ones do, be it a retry.
 */
static bool
holds(const OutboxReader *reader, const KeyHold *hold, const pg_uuid_t *id, bool still)
{
	const OutboxRoute *route = outbox_unreadable_route(&reader->unreadable, id);

	if (route != NULL)
		return outbox_route_blocks(route);
	return still &&
		(!hold->blocks || outbox_route_blocks(hold->key->id.route));
}

/*
 * Of the first held keys, and those that are read again, the ones whose holder was
 * removed or requeued by somebody, or whose route does not block any more.  Returns how
 * many.
 */
static int
find_released(OutboxReader *reader, int nheld, KeyHold **released)
{
	OutboxQueue *queue = reader->queue;
	int			max = 2 * (nheld + queue->nreread) + 1;
	pg_uuid_t  *ids = palloc(sizeof(pg_uuid_t) * max);
	int64	   *hashes = palloc(sizeof(int64) * max);
	const char **routes = palloc(sizeof(char *) * max);
	KeyHold    *key_holds = palloc(sizeof(KeyHold) * max);
	bool	   *still = palloc(sizeof(bool) * max);
	int			n = 0;
	int			nreleased = 0;

	/*
	 * What is older than a failed row is read again, and the row still holds
	 * the rest.
	 */
	add_holds(&queue->held, nheld, key_holds, ids, hashes, routes, &n);
	add_holds(&queue->reread, queue->nreread, key_holds, ids, hashes, routes, &n);
	if (n > 0)
		outbox_store_check_holders(ids, hashes, routes, n, still);
	for (int i = 0; i < n; i++)
		if (!holds(reader, &key_holds[i], &ids[i], still[i]))
			key_holds[nreleased++] = key_holds[i];
	*released = key_holds;
	return nreleased;
}

bool
outbox_keys_check_holders(OutboxReader *reader)
{
	OutboxQueue *queue = reader->queue;
	int			nheld = Min(Min(queue->nunchecked, queue->nheld), OUTBOX_CHECKED_KEYS);
	KeyHold    *released;
	int			n = find_released(reader, nheld, &released);

	reader->holders_stale = false;
	outbox_queue_held_checked(queue, nheld);
	for (int i = 0; i < n; i++)
		if (released[i].blocks)
			outbox_queue_unblock(reader->queue, released[i].key);
		else
		{
			if (outbox_unreadable_route(&reader->unreadable, &released[i].key->retry.id) != NULL)
				outbox_queue_retries_known(reader->queue, false);
			outbox_queue_release(reader->queue, released[i].key);
		}
	return reader->queue->retries_unknown;
}

#ifdef OUTBOX_TEST_POINTS
bool
outbox_keys_have_released(OutboxReader *reader)
{
	KeyHold    *released;

	return find_released(reader, reader->queue->nheld, &released) > 0;
}

#endif
