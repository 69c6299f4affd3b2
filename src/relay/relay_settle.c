/*-------------------------------------------------------------------------
 *
 * relay_settle.c
 *		What a round settles: when, and what becomes of it after the commit.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/xact.h"
#include "access/xlog.h"
#include "backoff.h"
#include "common/pg_prng.h"
#include "relay_settle.h"
#include "settings.h"

/* Confirmed and rejected items that can be settled now. */
int
outbox_settling_ready(OutboxRelay *relay)
{
	return relay->queue->nconfirmed - relay->nstuck +
		relay->queue->nrejected - relay->nstuck_rejected;
}

bool
outbox_settling_wanted(OutboxRelay *relay, OutboxMonoTime now)
{
	OutboxQueue *queue = relay->queue;
	int			n = outbox_settling_ready(relay);

	if (n == 0)
	{
		relay->settle_at = OUTBOX_MONO_UNSET;
		return false;
	}
	if (!outbox_mono_is_set(relay->settle_at))
		relay->settle_at = outbox_mono_after(OUTBOX_SETTLE_DELAY_MS);
	/* Many, or it was long enough. */
	if (n >= OUTBOX_SETTLE_MANY ||
		queue->confirmed_bytes >= OUTBOX_SETTLE_BYTES ||
		outbox_mono_reached(relay->settle_at, now))
		return true;
	if (queue->nready > 0)
		return false;
	/*
	 * A key waits; or there is nothing else to do.  But while messages come one
	 * after the other, the claim of the next one can take this with it.
	 */
	return queue->key_waits_for_settling ||
		(queue->nsent == 0 &&
		 outbox_mono_reached(outbox_mono_plus(relay->settled_at,
											  OUTBOX_SETTLE_DELAY_MS), now));
}

static void
collect_failure(OutboxSettling *settling, OutboxItem *item)
{
	OutboxFailure *failure = &settling->failures[settling->nrejected];
	int			attempts = item->message->attempts + 1;

	settling->rejected[settling->nrejected++] = item;
	failure->id = item->message->id;
	failure->reason = item->reason;
	failure->give_up = item->hopeless || attempts >= item->route->max_attempts;
	failure->retry_ms = outbox_backoff_ms(outbox_retry_initial_ms,
										  outbox_retry_max_ms, attempts,
										  pg_prng_uint32(&pg_global_prng_state));
}

void
outbox_settling_collect(OutboxRelay *relay, OutboxSettling *settling)
{
	OutboxQueue *queue = relay->queue;
	dlist_iter	iter;
	int			passed = 0;
	size_t		bytes = 0;

	memset(settling, 0, sizeof(*settling));
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
		if (passed++ < relay->nstuck)
			continue;
		if (bytes >= OUTBOX_SETTLE_BYTES)
		{
			settling->more = true;
			break;
		}
		bytes += item->message->size;
		row->tid = item->message->tid;
		row->seq = item->message->seq;
		row->id = item->message->id;
		settling->confirmed[settling->nconfirmed++] = item;
	}
	passed = 0;
	dlist_foreach(iter, &queue->rejected)
		if (passed++ >= relay->nstuck_rejected)
			collect_failure(settling,
							dlist_container(OutboxItem, node, iter.cur));
}

/* Whatever has a key: its route may be without an order, but only now. */
static void
note_key(OutboxRelay *relay, const OutboxMessage *message)
{
	if (message->aggregate_id != NULL)
		outbox_unflushed_key(&relay->unflushed, message->key_hash);
}

/* Called in a transaction. */
void
outbox_settling_run(OutboxRelay *relay, OutboxSettling *settling)
{
	bool		archive = outbox_retention_s > 0;

	for (int i = 0; i < settling->nconfirmed; i++)
		note_key(relay, settling->confirmed[i]->message);
	for (int i = 0; i < settling->nrejected; i++)
		note_key(relay, settling->rejected[i]->message);

	if (settling->nconfirmed > 0)
		outbox_store_settle(settling->rows, settling->nconfirmed, archive,
							settling->remains);
	if (settling->nrejected > 0)
		settling->taken_away =
			!outbox_store_fail(settling->failures, settling->nrejected,
							   settling->rejected_remains);
}

void
outbox_settling_committed(OutboxRelay *relay, OutboxSettling *settling)
{
	int			nsettled = 0;

	for (int i = 0; i < settling->nconfirmed; i++)
	{
		OutboxItem *item = settling->confirmed[i];

		if (settling->remains[i])
		{
			/* Kept in front, where stuck ones are. */
			dlist_move_head(&relay->queue->confirmed, &item->node);
			relay->nstuck++;
			/* The commit that has just been was not this one's. */
			if (item->key != NULL &&
				(item->key->nwaiting > 0 || item->key->skip_low != 0))
				relay->queue->key_waits_for_settling = true;
			continue;
		}
		outbox_queue_settled(relay->queue, item);
		nsettled++;
	}
	for (int i = 0; i < settling->nrejected; i++)
	{
		bool		give_up = settling->failures[i].give_up;

		if (settling->rejected_remains[i])
		{
			dlist_move_head(&relay->queue->rejected,
							&settling->rejected[i]->node);
			relay->nstuck_rejected++;
			continue;
		}
		outbox_queue_failed(relay->queue, settling->rejected[i], give_up);
		pg_atomic_fetch_add_u64(give_up ? &MySlot->counters.failed :
								&MySlot->counters.retried, 1);
	}
	pg_atomic_fetch_add_u64(&MySlot->counters.published, nsettled);

	/* Their keys do not wait for what is not there. */
	if (settling->taken_away)
		outbox_reader_doubt_holders(relay->reader);
	relay->settle_at = OUTBOX_MONO_UNSET;
	if (relay->nstuck + relay->nstuck_rejected > 0 &&
		!outbox_mono_is_set(relay->unstick_at))
		relay->unstick_at = outbox_mono_after(outbox_relay_recheck_ms());
	if (nsettled + settling->nrejected > 0)
	{
		relay->settled_at = outbox_mono_now();
		outbox_unflushed_add(&relay->unflushed, nsettled + settling->nrejected,
							 XactLastCommitEnd);
	}
	outbox_unflushed_check(&relay->unflushed);
}
