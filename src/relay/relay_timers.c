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
outbox_relay_drop_unsent(OutboxRelay *relay)
{
	int64		lowest = outbox_queue_drop_all(relay->queue, NULL);

	if (lowest == 0)
		return;
	outbox_reader_add(relay->reader, lowest, PG_INT64_MAX,
					  OUTBOX_UNREAD_RETURNED);
	/* What was dropped may hold its key, and be gone by now. */
	outbox_reader_doubt_holders(relay->reader);
}

/* The same of routes that wait, of which something may be ready again. */
void
outbox_relay_stop_routes(OutboxRelay *relay)
{
	outbox_routes_stop(relay->routes, outbox_reader_end(relay->reader));
	outbox_reader_doubt_holders(relay->reader);
}

void
outbox_relay_route_broken(OutboxRelay *relay, OutboxRoute *route,
						  const char *reason)
{
	outbox_route_broken(relay->routes, route, reason,
						outbox_reader_end(relay->reader));
	outbox_reader_doubt_holders(relay->reader);
}

void
outbox_relay_resume(OutboxRelay *relay, const OutboxResumed *resumed)
{
	if (!resumed->any)
		return;
	if (resumed->from != 0)
		outbox_reader_add(relay->reader, resumed->from, PG_INT64_MAX,
						  OUTBOX_UNREAD_RETURNED);
	outbox_reader_reread_due(relay->reader);
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
		outbox_reader_doubt_holders(relay->reader);
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
	return !relay->holders_loaded || relay->find_prepared ||
		outbox_reader_behind(relay->reader, outbox_mono_now()) ||
		relay->queue->count > 0 || relay->db_error ||
		outbox_routes_count_broken(relay->routes) > 0;
}

/* For how long nobody would miss this worker; 0: there is work. */
static int
rest_ms(OutboxRelay *relay)
{
	int			ms = REST_MAX_MS;
	TimestampTz due = outbox_reader_next_due(relay->reader);

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
	if (due != 0 && due != DT_NOEND)
		ms = Min(ms, TimestampDifferenceMilliseconds(GetCurrentTimestamp(),
													 due));
	return ms;
}

void
outbox_relay_heed_news(OutboxRelay *relay, const OutboxInbox *inbox)
{
	for (int i = 0; i < inbox->nranges; i++)
		outbox_reader_add(relay->reader, inbox->ranges[i].lo,
						  inbox->ranges[i].hi, OUTBOX_UNREAD_LATE);
	for (int i = 0; i < inbox->nprepared; i++)
		outbox_relay_add_prepared(relay, &inbox->prepared[i]);
	if (inbox->next_due != 0)
		outbox_reader_told_due(relay->reader, inbox->next_due);
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
		outbox_reader_add(relay->reader, prepared->range.lo,
						  prepared->range.hi, OUTBOX_UNREAD_LATE);
		outbox_reader_look_up_due(relay->reader);
		heed_changes(relay, prepared->news);
		*prepared = relay->prepared[--relay->nprepared];
	}
}

#ifdef OUTBOX_FAULTS
static bool
in_range(const OutboxRange *range, int64 seq)
{
	return range->lo <= seq && seq <= range->hi;
}

bool
outbox_relay_prepared_leads_to(const OutboxRelay *relay, int64 seq)
{
	if (relay->find_prepared && in_range(&relay->prepared_range, seq))
		return true;
	for (int i = 0; i < relay->nprepared; i++)
		if (in_range(&relay->prepared[i].range, seq) &&
			outbox_store_sees(relay->prepared[i].xid))
			return true;
	return false;
}
#endif

static void
poll_now(OutboxRelay *relay)
{
	relay->poll_at = outbox_mono_after(outbox_poll_interval_ms);
	outbox_reader_look(relay->reader);
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
	outbox_sweep_start(relay->sweep);
	outbox_reader_look(relay->reader);
	outbox_reader_reread_due(relay->reader);
	outbox_reader_doubt_holders(relay->reader);
	relay->config_dirty = true;
	/* ALTER EXTENSION UPDATE need not touch a table. */
	relay->recheck_extension = true;
}

void
outbox_relay_timers(OutboxRelay *relay, OutboxMonoTime now)
{
	OutboxResumed resumed;

	outbox_relay_check_prepared(relay, has_ended);
	outbox_routes_retry(relay->routes, now, &resumed);
	outbox_relay_resume(relay, &resumed);
	if (outbox_mono_reached(relay->poll_at, now))
		poll_now(relay);
	if (outbox_mono_reached(relay->sweep_at, now))
		sweep(relay);
#ifdef OUTBOX_FAULTS
	if (relay->holders_loaded)
		outbox_sweep_look(relay->sweep, now);
#endif
	(void) expired(&relay->send_at, now);
	outbox_reader_timers(relay->reader, now);
	outbox_settler_timers(relay->settler, now);
	outbox_unflushed_check(relay->unflushed);
}
