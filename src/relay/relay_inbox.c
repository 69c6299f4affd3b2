/*-------------------------------------------------------------------------
 *
 * relay_inbox.c
 *		What makes the relay look: its inbox, and time.
 *
 * Nothing here reads the database: it is noted which rows to look at, and the
 * next round does.  Times are deadlines, compared and never counted down.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/xlog.h"
#include "postmaster/interrupt.h"
#include "relay_internal.h"
#include "settings.h"
#include "storage/procarray.h"
#include "utils/guc.h"
#include "utils/timestamp.h"

/* A database that makes room for others comes back after this at the latest. */
#define REST_MAX_MS			60000
#define REST_PREPARED_MS	2000	/* a prepared transaction is asked about */
#define REST_STANDING_MS	10000	/* what keeps it from working may be over */

/* ------------------------------------------------------------------- inbox */

/* What a transaction changed beside enqueuing. */
static void
handle_signals(OutboxRelay *relay, int signals)
{
	if (signals & OUTBOX_SIGNAL_CONFIG)
		outbox_control_invalidate(relay->control);
	if (signals & OUTBOX_SIGNAL_REMOVED)
		outbox_reader_invalidate_holders(relay->reader);
	if (signals & OUTBOX_SIGNAL_EXTENSION)
		outbox_database_recheck_extension(relay->database);
	if (signals & OUTBOX_SIGNAL_JOBS)
		outbox_jobs_look(relay->jobs);
}

/* Prepared transactions of that range were lost: which are they? */
static void
lost_prepared(OutboxRelay *relay, const OutboxRange *range)
{
	outbox_prepared_lost(relay->prepared, range);
	handle_signals(relay, OUTBOX_SIGNAL_CONFIG | OUTBOX_SIGNAL_REMOVED |
				   OUTBOX_SIGNAL_JOBS);
}

/* More than to wait for a commit, or for the time. */
bool
outbox_relay_has_work(OutboxRelay *relay)
{
	return !outbox_database_has_started(relay->database) ||
		outbox_prepared_unknown(relay->prepared) ||
		(MySlot->worker == 0 && outbox_jobs_wanted(relay->jobs)) ||
		outbox_reader_behind(relay->reader, outbox_mono_now()) ||
		relay->queue->count > 0 || outbox_database_failing(relay->database) ||
		outbox_routes_count_broken(relay->routes) > 0;
}

/* For how long nobody would miss this worker; 0: there is work. */
static int
rest_ms(OutboxRelay *relay)
{
	int			ms = REST_MAX_MS;
	TimestampTz due = outbox_reader_next_due(relay->reader);

	/* Perhaps it is not paused any more. */
	if (outbox_control_is_stale(relay->control))
		return 0;
	if (!outbox_enabled || outbox_control_paused(relay->control) ||
		outbox_database_mismatch(relay->database) ||
		!outbox_link_config_usable(relay->config) ||
		outbox_relay_broker_down(relay))
		return REST_STANDING_MS;
	if (outbox_relay_has_work(relay))
		return 0;
	if (outbox_prepared_count(relay->prepared) > 0)
		ms = REST_PREPARED_MS;
	if (due != 0 && due != DT_NOEND)
		ms = Min(ms, TimestampDifferenceMilliseconds(GetCurrentTimestamp(),
													 due));
	return ms;
}

void
outbox_relay_handle_inbox(OutboxRelay *relay, const OutboxInbox *inbox)
{
	for (int i = 0; i < inbox->nranges; i++)
		outbox_reader_add(relay->reader, inbox->ranges[i].lo,
						  inbox->ranges[i].hi, OUTBOX_UNREAD_LATE);
	for (int i = 0; i < inbox->nprepared; i++)
		outbox_prepared_add(relay->prepared, &inbox->prepared[i]);
	if (inbox->next_due != 0)
		outbox_reader_told_due(relay->reader, inbox->next_due);
	handle_signals(relay, inbox->signals);
	if (inbox->signals & OUTBOX_SIGNAL_PREPARED)
		lost_prepared(relay, &inbox->lost);
	if (inbox->signals & OUTBOX_SIGNAL_RESTART)
		outbox_database_leave(relay->database, OUTBOX_EXIT_RESTART);
	if (inbox->signals & OUTBOX_SIGNAL_STOP)
		outbox_database_leave(relay->database, OUTBOX_EXIT_STOPPED);
	if (inbox->signals & OUTBOX_SIGNAL_YIELD)
	{
		outbox_database_leave(relay->database, OUTBOX_EXIT_YIELDED);
		MySlot->rest_ms = rest_ms(relay);
	}
}

void
outbox_relay_take_inbox(OutboxRelay *relay)
{
	OutboxInbox inbox;

	/* An inbox that was taken must be handled: no error may come in between. */
	outbox_prepared_reserve(relay->prepared, OUTBOX_INBOX_PREPARED);
	outbox_slot_take_inbox(&inbox);
	outbox_relay_handle_inbox(relay, &inbox);
}

/* ------------------------------------------------------------------ timers */

static bool
has_ended(TransactionId xid)
{
	return !TransactionIdIsInProgress(xid);
}

/* OutboxPreparedEnded: its rows are visible now, or never will be. */
static void
prepared_ended(const OutboxPrepared *prepared, void *arg)
{
	OutboxRelay *relay = arg;

	outbox_reader_add(relay->reader, prepared->range.lo, prepared->range.hi,
					  OUTBOX_UNREAD_LATE);
	outbox_reader_look_up_due(relay->reader);
	handle_signals(relay, prepared->signals);
}

void
outbox_relay_check_prepared(OutboxRelay *relay,
							bool (*ended) (TransactionId xid))
{
	outbox_prepared_check(relay->prepared, ended, prepared_ended, relay);
}

static void
poll_now(OutboxRelay *relay)
{
	outbox_reader_look(relay->reader);
	/* With a full window there would be no other transaction. */
	outbox_database_touch(relay->database);
	/* A password file can be repaired without a reload. */
	if (!outbox_link_config_usable(relay->config))
		outbox_relay_load_config(relay);
}

/* Looks at everything again, for what told nobody. */
static void
sweep(OutboxRelay *relay)
{
	outbox_sweep_start(relay->sweep, relay->queue);
	outbox_reader_look(relay->reader);
	outbox_reader_reread_due(relay->reader);
	outbox_reader_invalidate_holders(relay->reader);
	outbox_control_invalidate(relay->control);
	outbox_jobs_look(relay->jobs);
	/* ALTER EXTENSION UPDATE need not touch a table. */
	outbox_database_recheck_extension(relay->database);
}

void
outbox_relay_timers(OutboxRelay *relay, OutboxMonoTime now)
{
	OutboxResumed resumed;

	outbox_relay_check_prepared(relay, has_ended);
	outbox_routes_retry(relay->routes, now, &resumed);
	outbox_relay_resume(relay, &resumed);
	if (outbox_timers_poll_due(relay->timers, now))
		poll_now(relay);
	if (outbox_timers_sweep_due(relay->timers, now))
		sweep(relay);
	outbox_sweep_timers(relay->sweep, relay->queue, now);
#ifdef OUTBOX_TEST_POINTS
	if (outbox_database_has_started(relay->database))
		outbox_sweep_look(relay->sweep, now);
#endif
	outbox_sender_timers(relay->sender, now);
	outbox_reader_timers(relay->reader, now);
	outbox_settler_timers(relay->settler, now);
	outbox_unflushed_check(relay->unflushed);
}

/* SIGHUP. */
void
outbox_relay_reload(OutboxRelay *relay)
{
	ConfigReloadPending = false;
	ProcessConfigFile(PGC_SIGHUP);
	outbox_relay_load_config(relay);
	outbox_control_invalidate(relay->control);
	outbox_database_recheck_settings(relay->database);
	outbox_timers_poll_soon(relay->timers);
	if (outbox_database_attached(relay->database))
		outbox_slot_set_ready(outbox_workers);
}
