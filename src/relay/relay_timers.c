/*-------------------------------------------------------------------------
 *
 * relay_timers.c
 *		What makes the relay look: news from committing backends, and time.
 *
 * Nothing here reads the database: it is noted which rows to look at, and the
 * next round does.  Times are deadlines, compared and never counted down.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/xlog.h"
#include "relay_internal.h"
#include "settings.h"
#include "storage/procarray.h"
#include "utils/timestamp.h"

/* A database that makes room for others comes back after this at the latest. */
#define REST_MAX_MS			60000
#define REST_PREPARED_MS	2000	/* a prepared transaction is asked about */
#define REST_STANDING_MS	10000	/* what keeps it from working may be over */

/* -------------------------------------------------------------------- news */

void
outbox_relay_rescan(OutboxRelay *relay, int64 lo, int64 hi)
{
	OutboxRange range = {Max(lo, 1), Min(hi, relay->cursor)};

	if (range.lo <= range.hi &&
		!outbox_backlog_add(relay, range.lo, range.hi))
		outbox_range_add(relay->rescans, &relay->nrescans, OUTBOX_MAX_RANGES,
						 range);
	if (hi <= relay->cursor)
		return;
	relay->main_pending = true;
	if (hi != PG_INT64_MAX)
		relay->news_hi = Max(relay->news_hi, hi);
}

/* Room for so many more prepared transactions. */
void
outbox_relay_reserve_prepared(OutboxRelay *relay, int n)
{
	int			wanted = relay->nprepared + n;

	if (wanted <= relay->max_prepared)
		return;
	wanted = Max(wanted, 2 * relay->max_prepared);
	if (relay->prepared == NULL)
		relay->prepared = MemoryContextAlloc(relay->cxt, sizeof(OutboxPrepared) * wanted);
	else
		relay->prepared = repalloc(relay->prepared, sizeof(OutboxPrepared) * wanted);
	relay->max_prepared = wanted;
}

void
outbox_relay_add_prepared(OutboxRelay *relay, const OutboxPrepared *prepared)
{
	outbox_relay_reserve_prepared(relay, 1);
	relay->prepared[relay->nprepared++] = *prepared;
}

/* What a transaction changed beside enqueuing. */
static void
heed_changes(OutboxRelay *relay, int news)
{
	if (news & OUTBOX_NEWS_CONFIG)
		relay->config_dirty = true;
	if (news & OUTBOX_NEWS_REMOVED)
		relay->check_holders = true;
	if (news & OUTBOX_NEWS_EXTENSION)
		relay->recheck_extension = true;
}

/* Prepared transactions of that range were lost: which are they? */
static void
lost_prepared(OutboxRelay *relay, const OutboxRange *range)
{
	if (!relay->find_prepared)
		relay->prepared_range = *range;
	relay->prepared_range.lo = Min(relay->prepared_range.lo, range->lo);
	relay->prepared_range.hi = Max(relay->prepared_range.hi, range->hi);
	relay->find_prepared = true;
	heed_changes(relay, OUTBOX_NEWS_CONFIG | OUTBOX_NEWS_REMOVED);
}

/* More than to wait for a commit, or for the time. */
static bool
has_work(OutboxRelay *relay)
{
	return !relay->holders_loaded || relay->main_pending || relay->find_prepared ||
		relay->nrescans > 0 || outbox_mono_is_set(relay->later_at) ||
		outbox_mono_is_set(relay->due_again_at) ||
		outbox_backlog_exists(relay) || relay->queue->count > 0 ||
		!dlist_is_empty(&relay->queue->reread) || relay->check_holders ||
		relay->db_error || outbox_relay_count_broken(relay) > 0;
}

/* For how long nobody would miss this worker; 0: there is work. */
static int
rest_ms(OutboxRelay *relay)
{
	int			ms = REST_MAX_MS;

	/* Perhaps it is not paused any more. */
	if (relay->config_dirty)
		return 0;
	if (!outbox_enabled || relay->paused || relay->version_mismatch ||
		relay->config_error != NULL || outbox_relay_broker_down(relay))
		return REST_STANDING_MS;
	if (has_work(relay))
		return 0;
	if (relay->nprepared > 0)
		ms = REST_PREPARED_MS;
	if (relay->next_due != 0 && relay->next_due != DT_NOEND)
		ms = Min(ms, TimestampDifferenceMilliseconds(GetCurrentTimestamp(),
													 relay->next_due));
	return ms;
}

void
outbox_relay_heed_news(OutboxRelay *relay, const OutboxInbox *inbox)
{
	for (int i = 0; i < inbox->nranges; i++)
		outbox_relay_rescan(relay, inbox->ranges[i].lo, inbox->ranges[i].hi);
	for (int i = 0; i < inbox->nprepared; i++)
		outbox_relay_add_prepared(relay, &inbox->prepared[i]);
	if (inbox->next_due != 0)
	{
		if (relay->next_due == 0 || inbox->next_due < relay->next_due)
			relay->next_due = inbox->next_due;
		/* Committed late; or the wall clock was set back. */
		if (inbox->next_due <= relay->due_cursor)
			relay->due_again_at = outbox_mono_now();
	}
	heed_changes(relay, inbox->news);
	if (inbox->news & OUTBOX_NEWS_PREPARED)
		lost_prepared(relay, &inbox->lost);
	if (inbox->news & OUTBOX_NEWS_RESTART)
	{
		relay->leave = true;
		MySlot->exit_reason = OUTBOX_EXIT_RESTART;
	}
	if (inbox->news & OUTBOX_NEWS_STOP)
	{
		relay->leave = true;
		MySlot->exit_reason = OUTBOX_EXIT_STOPPED;
	}
	if (inbox->news & OUTBOX_NEWS_YIELD)
	{
		relay->leave = true;
		MySlot->exit_reason = OUTBOX_EXIT_YIELDED;
		MySlot->rest_ms = rest_ms(relay);
	}
}

void
outbox_relay_take_news(OutboxRelay *relay)
{
	OutboxInbox inbox;

	/* What is taken must be heeded: no error may come in between. */
	outbox_relay_reserve_prepared(relay, OUTBOX_INBOX_PREPARED);
	outbox_slot_take_inbox(&inbox);
	outbox_relay_heed_news(relay, &inbox);
}

/* ------------------------------------------------------------------ timers */

static bool
expired(OutboxMonoTime *deadline, OutboxMonoTime now)
{
	if (!outbox_mono_is_set(*deadline) || !outbox_mono_reached(*deadline, now))
		return false;
	*deadline = OUTBOX_MONO_UNSET;
	return true;
}

static bool
has_ended(TransactionId xid)
{
	return !TransactionIdIsInProgress(xid);
}

/*
 * Prepared transactions that have ended: their rows are visible now, or never
 * will be.
 */
void
outbox_relay_check_prepared(OutboxRelay *relay,
							bool (*ended) (TransactionId xid))
{
	for (int i = 0; i < relay->nprepared;)
	{
		OutboxPrepared *prepared = &relay->prepared[i];

		if (!ended(prepared->xid))
		{
			i++;
			continue;
		}
		outbox_relay_rescan(relay, prepared->range.lo, prepared->range.hi);
		relay->find_next_due = true;
		heed_changes(relay, prepared->news);
		*prepared = relay->prepared[--relay->nprepared];
	}
}

static void
release_locked_keys(OutboxRelay *relay, OutboxMonoTime now)
{
	dlist_mutable_iter iter;

	dlist_foreach_modify(iter, &relay->queue->held)
	{
		OutboxKey  *key = dlist_container(OutboxKey, node, iter.cur);

		if (key->hold != OUTBOX_HOLD_LOCKED)
			continue;
		if (outbox_mono_reached(key->hold_until, now))
			outbox_queue_release(relay->queue, key);
		else
			outbox_mono_earlier(&relay->later_at, key->hold_until);
	}
}

static void
poll_now(OutboxRelay *relay)
{
	relay->poll_at = outbox_mono_after(outbox_poll_interval_ms);
	relay->main_pending = true;
	/* With a full window there would be no other transaction. */
	relay->touch = true;
	/* A password file can be repaired without a reload. */
	if (relay->config_error != NULL)
		outbox_relay_load_config(relay);
}

/* Looks at everything again, for what told nobody. */
static void
sweep(OutboxRelay *relay)
{
	relay->sweep_at = outbox_mono_after(OUTBOX_SWEEP_MS);
	relay->sweep_from = 1;
#ifdef OUTBOX_FAULTS
	relay->sweep_looks = false;
#endif
	relay->main_pending = true;
	relay->due_cursor = DT_NOBEGIN;
	relay->due_cursor_seq = 0;
	relay->find_next_due = true;
	relay->check_holders = true;
	relay->config_dirty = true;
	/* ALTER EXTENSION UPDATE need not touch a table. */
	relay->recheck_extension = true;
}

void
outbox_relay_timers(OutboxRelay *relay, OutboxMonoTime now)
{
	outbox_relay_check_prepared(relay, has_ended);
	outbox_backlog_jump(relay);
	if (outbox_mono_reached(relay->poll_at, now))
		poll_now(relay);
	if (outbox_mono_reached(relay->sweep_at, now))
		sweep(relay);
#ifdef OUTBOX_FAULTS
	if (relay->sweep_from == 0 && relay->holders_loaded &&
		outbox_mono_reached(relay->look_at, now))
	{
		relay->look_at = outbox_mono_plus(now, OUTBOX_LOOK_MS);
		relay->sweep_looks = true;
		relay->sweep_from = 1;
	}
#endif
	(void) expired(&relay->send_at, now);
	if (expired(&relay->later_at, now))
	{
		for (int i = 0; i < relay->nlater; i++)
			outbox_relay_rescan(relay, relay->later[i].lo, relay->later[i].hi);
		relay->nlater = 0;
		release_locked_keys(relay, now);
	}
	if (expired(&relay->unstick_at, now))
	{
		relay->nstuck = 0;
		relay->nstuck_rejected = 0;
		relay->settle_slowly = true;
	}
	if (expired(&relay->due_again_at, now))
	{
		relay->due_cursor = DT_NOBEGIN;
		relay->due_cursor_seq = 0;
		relay->find_next_due = true;
	}
	outbox_unflushed_check(&relay->unflushed);
}
