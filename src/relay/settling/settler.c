/*-------------------------------------------------------------------------
 *
 * settler.c
 *		What a round settles: when, and what becomes of it after the commit.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/xact.h"
#include "access/xlog.h"
#include "miscadmin.h"
#include "settling.h"
#include "stats.h"
#include "waiters.h"

/*
 * Settling in a round stops at so many bytes: the broker lives on the send buffer
 * meanwhile.
 */
#define SETTLE_BYTES	((size_t) 2 * 1024 * 1024)

/* --------------------------------------------------------------- unflushed */

static uint32
bit_of(int64 hash)
{
	return (uint32) hash % OUTBOX_UNFLUSHED_KEYS;
}

/* Forgets what is on disk meanwhile, by whomever. */
static void
check_unflushed(OutboxUnflushed *unflushed)
{
	if (!unflushed->dirty || GetFlushRecPtr(NULL) < unflushed->lsn)
		return;
	unflushed->count = 0;
	unflushed->dirty = false;
	memset(unflushed->keys, 0, sizeof(unflushed->keys));
}

void
outbox_unflushed_flush(OutboxUnflushed *unflushed)
{
	XLogFlush(unflushed->lsn);
	check_unflushed(unflushed);
}

/*
 * It is being settled; which commit does, is known after it.  Whatever has a key: its
 * route may be without an order, but only now.
 */
static void
note_key(OutboxUnflushed *unflushed, const OutboxMessage *message)
{
	uint32		bit = bit_of(message->key_hash);

	if (message->aggregate_id == NULL)
		return;
	unflushed->keys[bit / 8] |= 1 << (bit % 8);
	unflushed->dirty = true;
}

/*
 * With ordering = 'pipelined' a crash brings back an older one together with all that
 * was settled behind it.
 */
bool
outbox_unflushed_concerns(const OutboxUnflushed *unflushed,
						  const OutboxBatch *batch)
{
	if (!unflushed->dirty)
		return false;
	for (int i = 0; i < batch->count; i++)
	{
		const OutboxMessage *message = batch->messages[i];
		uint32		bit;

		if (message == NULL || message->aggregate_id == NULL)
			continue;
		bit = bit_of(message->key_hash);
		if ((unflushed->keys[bit / 8] & (1 << (bit % 8))) != 0 &&
			!outbox_routes_find(batch->routes, message->route)->pipelined)
			return true;
	}
	return false;
}

/* ----------------------------------------------------------------- collect */

/* A worker that was here before us may have settled anything, just now. */
void
outbox_settler_init(OutboxSettler *settler, OutboxQueue *queue,
					OutboxRoutes *routes, OutboxLink *link)
{
	OutboxUnflushed *unflushed = &settler->unflushed;

	settler->queue = queue;
	settler->routes = routes;
	settler->link = link;
	unflushed->dirty = true;
	memset(unflushed->keys, 0xFF, sizeof(unflushed->keys));
	unflushed->lsn = GetXLogInsertRecPtr();
}

int
outbox_settler_ready(const OutboxSettler *settler)
{
	return settler->queue->nconfirmed - settler->nstuck +
		settler->queue->nrejected - settler->nstuck_rejected -
		settler->queue->nunlisted;
}

bool
outbox_settler_wanted(OutboxSettler *settler, OutboxMonoTime now)
{
	OutboxQueue *queue = settler->queue;
	int			n = outbox_settler_ready(settler);

	if (n == 0)
	{
		settler->settle_at = OUTBOX_MONO_UNSET;
		return false;
	}
	if (!outbox_mono_is_set(settler->settle_at))
		settler->settle_at = outbox_mono_after(OUTBOX_SETTLE_DELAY_MS);
	/* It is enough, or was long enough. */
	if (n >= OUTBOX_SETTLE_MANY || queue->confirmed_bytes >= SETTLE_BYTES ||
		outbox_mono_reached(settler->settle_at, now))
		return true;

	/*
	 * A key or a session waits, or a message for its next attempt.  But what
	 * is ready goes first, and is settled together with this.
	 */
	return queue->nready == 0 &&
		(queue->key_waits_for_settling || outbox_waiters_exist(MyDatabaseId) ||
		 queue->nlisted_rejected > settler->nstuck_rejected);
}

bool
outbox_settler_awaits_answers(const OutboxSettler *settler)
{
	const OutboxQueue *queue = settler->queue;

	return queue->nready > 0 || queue->nwaiting > 0 || queue->nmaybe_poison > 0 ||
		queue->nsent >= OUTBOX_SETTLE_MANY || queue->bytes >= SETTLE_BYTES ||
		outbox_waiters_exist(MyDatabaseId);
}

void
outbox_settler_hurry(OutboxSettler *settler)
{
	settler->settle_at = outbox_mono_now();
}

static void
collect_failure(OutboxSettler *settler, OutboxSettling *settling,
				OutboxItem *item)
{
	OutboxFailure *failure = &settling->failures[settling->nrejected];
	const char *error = item->error;

	if (item->nbehind > 0)
		error = psprintf("%s (later messages of its key that were in flight: %d)",
						 error, item->nbehind);
	settling->rejected[settling->nrejected++] = item;
	*failure = outbox_failure(item->message, item->route, item->reason,
							  error, item->permanent);
	if (failure->final)
		failure->death = outbox_dead_letter(settler, item, &failure->error);
}

void
outbox_settler_collect(OutboxSettler *settler, OutboxSettling *settling)
{
	OutboxQueue *queue = settler->queue;
	dlist_iter	iter;
	int			passed = 0;
	size_t		bytes = 0;

	memset(settling, 0, sizeof(*settling));
	/* In the second half of the delay a claim takes it along. */
	if (!outbox_settler_wanted(settler, outbox_mono_after(OUTBOX_SETTLE_DELAY_MS / 2)))
	{
		settling->more = outbox_settler_ready(settler) > 0;
		return;
	}
	settling->confirmed = palloc(sizeof(OutboxItem *) * (queue->nconfirmed + 1));
	settling->rows = palloc(sizeof(OutboxSettled) * (queue->nconfirmed + 1));
	settling->remains = palloc0(sizeof(bool) * (queue->nconfirmed + 1));
	settling->rejected = palloc(sizeof(OutboxItem *) * (queue->nrejected + 1));
	settling->failures = palloc(sizeof(OutboxFailure) * (queue->nrejected + 1));
	settling->rejected_remains = palloc0(sizeof(bool) * (queue->nrejected + 1));

	dlist_foreach(iter, &queue->confirmed)
	{
		OutboxItem *item = dlist_container(OutboxItem, node, iter.cur);
		OutboxSettled *row = &settling->rows[settling->nconfirmed];

		/* The stuck ones are the first in the list. */
		if (passed++ < settler->nstuck)
			continue;
		if (bytes >= SETTLE_BYTES)
		{
			settling->more = true;
			break;
		}
		bytes += item->message->size;
		row->tid = item->message->tid;
		row->id = item->message->id;
		settling->confirmed[settling->nconfirmed++] = item;
	}
	passed = 0;
	dlist_foreach(iter, &queue->rejected)
		if (passed++ >= settler->nstuck_rejected)
			collect_failure(settler, settling,
							dlist_container(OutboxItem, node, iter.cur));
}

/* Those of which so much is archived; routes differ in that. */
static void
settle_confirmed(OutboxSettling *settling, OutboxArchive archive)
{
	OutboxSettled *rows = palloc(sizeof(OutboxSettled) * settling->nconfirmed);
	int		   *which = palloc(sizeof(int) * settling->nconfirmed);
	bool	   *remains = palloc(sizeof(bool) * settling->nconfirmed);
	int			n = 0;

	for (int i = 0; i < settling->nconfirmed; i++)
		if (outbox_archived(settling->confirmed[i]->route) == archive)
		{
			rows[n] = settling->rows[i];
			which[n++] = i;
		}
	if (n == 0)
		return;
	outbox_store_settle(rows, n, archive, remains);
	for (int i = 0; i < n; i++)
		settling->remains[which[i]] = remains[i];
}

/*
 * Before the commit, by which their rows are gone.  What somebody has locked, or a
 * transaction that fails, leaves a row, and that overrides the ring (waiters.h).
 */
static void
note_settled(const OutboxSettling *settling)
{
	OutboxRecentlySettled *recent = outbox_recent_find(MyDatabaseId);

	if (recent == NULL)
		return;
	for (int i = 0; i < settling->nconfirmed; i++)
		outbox_recent_add(recent, &settling->rows[i].id,
						  settling->confirmed[i]->route->shown);
}

/* Returns how many. */
static int
add_remaining(OutboxItem **to, OutboxItem **items, const bool *remains, int n)
{
	int			count = 0;

	for (int i = 0; i < n; i++)
		if (remains[i])
			to[count++] = items[i];
	return count;
}

/* Whose locks they are, as long as the rows can be read. */
static void
find_lockers(OutboxSettling *settling)
{
	int			max = settling->nconfirmed + settling->nrejected;
	OutboxItem **items = palloc(sizeof(OutboxItem *) * (max + 1));
	pg_uuid_t  *ids = palloc(sizeof(pg_uuid_t) * (max + 1));
	uint64	   *lockers = palloc(sizeof(uint64) * (max + 1));
	int			n = add_remaining(items, settling->confirmed, settling->remains,
								  settling->nconfirmed);

	n += add_remaining(items + n, settling->rejected, settling->rejected_remains,
					   settling->nrejected);
	if (n == 0)
		return;
	for (int i = 0; i < n; i++)
		ids[i] = items[i]->message->id;
	outbox_store_lockers(ids, n, lockers);
	for (int i = 0; i < n; i++)
		items[i]->locker = lockers[i];
}

/* Called in a transaction. */
void
outbox_settler_run(OutboxSettler *settler, OutboxSettling *settling)
{
	for (int i = 0; i < settling->nconfirmed; i++)
		note_key(&settler->unflushed, settling->confirmed[i]->message);
	for (int i = 0; i < settling->nrejected; i++)
		note_key(&settler->unflushed, settling->rejected[i]->message);

	if (settling->nconfirmed > 0)
	{
		note_settled(settling);
		for (int archive = 0; archive < OUTBOX_ARCHIVES; archive++)
			settle_confirmed(settling, (OutboxArchive) archive);
	}
	if (settling->nrejected > 0)
		settling->taken_away =
			!outbox_store_fail(settling->failures, settling->nrejected,
							   settling->rejected_remains);
	find_lockers(settling);
}

/* The first of its locker stands for the others; those of too many are only counted. */
static void
add_locked(OutboxLockedId *shown, int *n, const OutboxItem *item)
{
	int			i = 0;

	while (i < *n && shown[i].locker != item->locker)
		i++;
	if (i == OUTBOX_LOCKED_IDS)
		return;
	if (i == *n)
	{
		shown[i].id = item->message->id;
		shown[i].seq = item->message->seq;
		shown[i].locker = item->locker;
		shown[i].since = item->locked_since;
		shown[i].seen = outbox_mono_now();
		shown[i].in_flight = 0;
		(*n)++;
	}
	shown[i].in_flight++;
	shown[i].since = Min(shown[i].since, item->locked_since);
}

/* For outbox_locked_rows() and the problem. */
static void
show_locked(OutboxQueue *queue)
{
	OutboxLockedId shown[OUTBOX_LOCKED_IDS];
	dlist_head *lists[] = {&queue->confirmed, &queue->rejected};
	dlist_iter	iter;
	int			n = 0;

	for (int i = 0; i < (int) lengthof(lists); i++)
	{
		dlist_foreach(iter, lists[i])
		{
			OutboxItem *item = dlist_container(OutboxItem, node, iter.cur);

			/* They are the first in the list. */
			if (!item->locked)
				break;
			add_locked(shown, &n, item);
		}
	}
	outbox_slot_show_locked(shown, n);
}

static void
rejection_committed(OutboxSettler *settler, OutboxSettling *settling, int i)
{
	const OutboxFailure *failure = &settling->failures[i];
	OutboxItem *item = settling->rejected[i];
	OutboxCount what = failure->death != NULL ? OUTBOX_COUNT_DEAD_LETTERED :
		failure->final ? OUTBOX_COUNT_FAILED : OUTBOX_COUNT_RETRIED;

	if (settling->rejected_remains[i])
	{
		outbox_queue_remains(settler->queue, item);
		settler->nstuck_rejected++;
		return;
	}
	outbox_stats_count(item->route->stats, what);
	if (failure->final)
		outbox_log_failed(item, failure);
	if (what == OUTBOX_COUNT_DEAD_LETTERED)
	{
		outbox_queue_settled(settler->queue, item);
		return;
	}
	outbox_queue_failed(settler->queue, item, failure->final);
	pg_atomic_fetch_add_u64(failure->final ? &MySlot->counters.failed :
							&MySlot->counters.retried, 1);
}

/* OutboxAskVerdict: a dead letter and one that is tried again are still pending. */
static OutboxVerdict
verdict_of(const pg_uuid_t *id, void *arg)
{
	const OutboxSettling *settling = arg;

	for (int i = 0; i < settling->nconfirmed; i++)
		if (!settling->remains[i] &&
			memcmp(&settling->rows[i].id, id, sizeof(*id)) == 0)
			return OUTBOX_VERDICT_PUBLISHED;
	for (int i = 0; i < settling->nrejected; i++)
	{
		const OutboxFailure *failure = &settling->failures[i];

		if (!settling->rejected_remains[i] && failure->final &&
			failure->death == NULL &&
			memcmp(&failure->id, id, sizeof(*id)) == 0)
			return OUTBOX_VERDICT_FAILED;
	}
	return OUTBOX_VERDICT_NONE;
}

void
outbox_settler_committed(OutboxSettler *settler, OutboxSettling *settling)
{
	int			nlocked = settler->queue->nlocked;
	int			nstuck = settler->nstuck + settler->nstuck_rejected;
	int			nsettled = 0;
	OutboxUnflushed *unflushed = &settler->unflushed;

	outbox_queue_settling_committed(settler->queue,
									settling->more || settler->nstuck > 0);
	for (int i = 0; i < settling->nconfirmed; i++)
	{
		OutboxItem *item = settling->confirmed[i];

		if (settling->remains[i])
		{
			/*
			 * In front, where stuck ones are: all before it are gone or
			 * remain as well.
			 */
			outbox_queue_remains(settler->queue, item);
			settler->nstuck++;
			continue;
		}
		outbox_stats_count(item->route->stats, OUTBOX_COUNT_PUBLISHED);
		outbox_queue_settled(settler->queue, item);
		nsettled++;
	}
	for (int i = 0; i < settling->nrejected; i++)
		rejection_committed(settler, settling, i);
	pg_atomic_fetch_add_u64(&MySlot->counters.published, nsettled);

	/* Some remain, or some that were locked are gone. */
	if (settler->nstuck + settler->nstuck_rejected > nstuck ||
		settler->queue->nlocked != nlocked)
		show_locked(settler->queue);

	/*
	 * Not by a round that has left all of it: it would be left by the next
	 * one, too.
	 */
	if (settling->confirmed != NULL)
		settler->settle_at = OUTBOX_MONO_UNSET;
	if (settler->nstuck + settler->nstuck_rejected > 0 &&
		!outbox_mono_is_set(settler->unstick_at))
		settler->unstick_at = outbox_mono_after(outbox_recheck_ms());
	if (nsettled + settling->nrejected > 0)
	{
		outbox_waiters_tell(MyDatabaseId, verdict_of, settling);
		unflushed->count += nsettled + settling->nrejected;
		unflushed->lsn = Max(unflushed->lsn, XactLastCommitEnd);
		unflushed->dirty = true;
	}
	check_unflushed(unflushed);
}

/* ------------------------------------------------------------------ timers */

void
outbox_settler_timers(OutboxSettler *settler, OutboxMonoTime now)
{
	if (outbox_mono_expired(&settler->unstick_at, now))
		outbox_settler_unstick(settler);
	check_unflushed(&settler->unflushed);
}

void
outbox_settler_unstick(OutboxSettler *settler)
{
	settler->nstuck = 0;
	settler->nstuck_rejected = 0;
}
