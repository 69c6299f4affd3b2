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
#include "miscadmin.h"
#include "pgstat.h"
#include "postmaster/interrupt.h"
#include "relay_internal.h"
#include "rows_written.h"
#include "settings.h"
#include "storage/procarray.h"
#include "utils/guc.h"
#include "utils/timestamp.h"

/*
 * A database that makes room for others comes back after this at the latest, for its
 * archive; the launcher knows whether it has been written to (launcher_turns.c).
 */
#define REST_MAX_MS			(60 * 60000)
#define REST_PREPARED_MS	2000	/* a prepared transaction is asked about */
#define REST_STANDING_MS	10000	/* what keeps it from working may be over */

/*
 * A jump of the wall clock: less than that NTP makes good without one.  Both clocks are
 * looked at one after the other: who is stopped in between has seen nothing.
 */
#define JUMP_MS				5000
#define AT_ONCE_MS			1000

/* What a transaction changed beside enqueuing. */
static void
handle_signals(OutboxRelay *relay, int signals)
{
	if (signals & OUTBOX_SIGNAL_CONFIG)
		outbox_control_invalidate(&relay->control);
	if (signals & OUTBOX_SIGNAL_REMOVED)
		outbox_keys_invalidate_holders(&relay->reader);
	if (signals & OUTBOX_SIGNAL_EXTENSION)
		outbox_database_recheck(&relay->database, OUTBOX_RECHECK_EXTENSION);
	if (signals & OUTBOX_SIGNAL_JOBS)
		outbox_jobs_look(&relay->jobs);
}

/* Prepared transactions of that range were lost: which are they? */
static void
lost_prepared(OutboxRelay *relay, const OutboxRange *range)
{
	outbox_prepared_lost(&relay->prepared, range);
	handle_signals(relay, OUTBOX_PREPARED_SIGNALS);
}

/* More than to wait for a commit, or for the time. */
bool
outbox_relay_has_work(OutboxRelay *relay)
{
	return !relay->database.started ||
		relay->prepared.find ||
		(MySlot->worker == 0 && relay->jobs.wanted) ||
		outbox_reader_behind(&relay->reader, outbox_mono_now()) ||
		relay->queue->count > 0 || relay->database.failing ||
		outbox_mono_is_set(outbox_routes_deadline(&relay->routes)) ||
		outbox_declarations_pending(&relay->routes.declarations);
}

int
outbox_relay_rest_ms(OutboxRelay *relay, bool unsent, bool *rests)
{
	int			ms = REST_MAX_MS;
	TimestampTz due = relay->reader.due.next;

	*rests = false;
	/* Perhaps it is not paused any more. */
	if (relay->control.stale)
		return 0;
	if (!outbox_enabled || relay->control.paused ||
		relay->database.mismatch ||
		relay->config.error != NULL ||
		outbox_relay_broker_down(relay))
		return REST_STANDING_MS;
	if (unsent || outbox_relay_has_work(relay))
		return 0;
	*rests = true;
	if (relay->prepared.n > 0)
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
		outbox_reader_add(&relay->reader, inbox->ranges[i].lo,
						  inbox->ranges[i].hi, OUTBOX_UNREAD_LATE);
	for (int i = 0; i < inbox->nprepared; i++)
		outbox_prepared_add(&relay->prepared, &inbox->prepared[i]);
	if (inbox->next_due != 0)
		outbox_due_told(&relay->reader.due, inbox->next_due);
	handle_signals(relay, inbox->signals);
	if (inbox->signals & OUTBOX_SIGNAL_PREPARED)
		lost_prepared(relay, &inbox->lost);
	if (inbox->signals & OUTBOX_SIGNAL_RESTART)
		outbox_database_leave_answered(&relay->database, OUTBOX_EXIT_RESTART);
	if (inbox->signals & OUTBOX_SIGNAL_YIELD)
		outbox_database_leave_answered(&relay->database, OUTBOX_EXIT_YIELDED);
	if (inbox->signals & OUTBOX_SIGNAL_STOP)
		outbox_database_leave(&relay->database, OUTBOX_EXIT_STOPPED);
}

/*
 * A worker that makes room, or comes back with others, sends nothing more and stays
 * until the broker has answered for everything in flight: else its successor would
 * publish that again.  A slow broker may take longer than a worker that is stopped
 * waits (drain()).  A worker that is blocked leaves, and so does one that has waited
 * for three seconds: others of its database wait for it.
 */
void
outbox_relay_check_leaving(OutboxRelay *relay)
{
	OutboxDatabase *database = &relay->database;

	if (database->leaving != OUTBOX_EXIT_CRASHED && !database->leave &&
		(relay->window.outstanding == 0 ||
		 outbox_link_state(relay->link) != OUTBOX_LINK_OPEN ||
		 outbox_mono_reached(database->leave_by, outbox_mono_now())))
		outbox_database_leave(database, database->leaving);
}

void
outbox_relay_take_inbox(OutboxRelay *relay)
{
	OutboxInbox inbox;

	/* An inbox that was taken must be handled: no error may come in between. */
	outbox_prepared_reserve(&relay->prepared, OUTBOX_INBOX_PREPARED);
	outbox_slot_take_inbox(&inbox);
	outbox_relay_handle_inbox(relay, &inbox);
}

void
outbox_relay_drop_unsent(OutboxRelay *relay)
{
	int64		lowest = outbox_queue_drop_all(relay->queue, NULL);

	if (lowest == 0)
		return;
	outbox_reader_add(&relay->reader, lowest, PG_INT64_MAX,
					  OUTBOX_UNREAD_RETURNED);
	/* What was dropped may hold its key, and be gone by now. */
	outbox_keys_invalidate_holders(&relay->reader);
	outbox_due_restart(&relay->reader.due);
}

/*
 * The same when what was in flight is ready again: of routes that wait, or all.  A failed
 * connect must not make the relay read all held keys again.
 */
void
outbox_relay_stop_routes(OutboxRelay *relay, bool was_in_flight)
{
	int			count = relay->queue->count;

	if (relay->control.paused)
		outbox_relay_drop_unsent(relay);
	outbox_routes_stop(&relay->routes, outbox_reader_end(&relay->reader));
	if (was_in_flight || relay->queue->count < count)
		outbox_keys_invalidate_holders(&relay->reader);
}

void
outbox_relay_route_broken(OutboxRelay *relay, OutboxRoute *route,
						  int code, const char *reason)
{
	outbox_route_broken(&relay->routes, route, code, reason,
						!relay->connection.unproven,
						outbox_reader_end(&relay->reader));
	outbox_keys_invalidate_holders(&relay->reader);
}

void
outbox_relay_resume(OutboxRelay *relay, const OutboxResumed *resumed)
{
	if (!resumed->any)
		return;
	if (resumed->from != 0)
		outbox_reader_add(&relay->reader, resumed->from, PG_INT64_MAX,
						  OUTBOX_UNREAD_RETURNED);
	outbox_due_restart(&relay->reader.due);
}

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

	outbox_reader_add(&relay->reader, prepared->range.lo, prepared->range.hi,
					  OUTBOX_UNREAD_LATE);
	if (prepared->next_due == DT_NOBEGIN)
		outbox_due_look_up(&relay->reader.due);
	else if (prepared->next_due != 0)
		outbox_due_told(&relay->reader.due, prepared->next_due);
	handle_signals(relay, prepared->signals);
}

void
outbox_relay_check_prepared(OutboxRelay *relay,
							bool (*ended) (TransactionId xid))
{
	outbox_prepared_check(&relay->prepared, ended, prepared_ended, relay);
}

void
outbox_relay_timers_start(OutboxTimers *timers)
{
	timers->poll_at = outbox_mono_after(outbox_poll_interval_ms);
	timers->sweep_at = outbox_mono_after(OUTBOX_SWEEP_MS);
	timers->looked_at = outbox_mono_now();
	timers->written = outbox_rows_written(MyDatabaseId);
}

/*
 * Has somebody set the clock?  The relay itself waits by one that nobody sets
 * (clock.h).  But what is scheduled, the ages in the views and the days of the archive
 * are of the wall clock, and after a jump of it people ask why messages are late, or
 * early.  A machine that slept, or was moved, looks the same: its monotonic clock stood
 * still meanwhile.
 */
static void
look_at_clock(OutboxTimers *timers)
{
	OutboxMonoTime before = outbox_mono_now();
	int64		ahead_us = GetCurrentTimestamp() - before.us;
	int64		jump_ms = (ahead_us - timers->clock_ahead_us) / 1000;

	if (outbox_mono_reached(outbox_mono_plus(before, AT_ONCE_MS),
							outbox_mono_now()))
		return;
	if (timers->clock_known && (jump_ms > JUMP_MS || jump_ms < -JUMP_MS))
	{
		outbox_slot_set_clock_jump(jump_ms);
		if (MySlot->worker == 0)
			ereport(LOG,
					(errmsg("outbox relay: the server's clock was set %s by %lld ms",
							jump_ms > 0 ? "forward" : "back",
							(long long) (jump_ms > 0 ? jump_ms : -jump_ms)),
					 errdetail("Messages that are scheduled become due by the clock as it is now.")));
	}
	timers->clock_known = true;
	timers->clock_ahead_us = ahead_us;
}

/* Where no transaction has ended since, there is no row, and no DROP EXTENSION. */
static void
poll_now(OutboxRelay *relay)
{
	uint64		ended = outbox_transactions_ended();

	if (ended != relay->timers.ended)
	{
		outbox_reader_look(&relay->reader);
		/* With a full window there would be no other transaction. */
		outbox_database_recheck(&relay->database, relay->database.mismatch ?
								OUTBOX_RECHECK_EXTENSION : OUTBOX_RECHECK_TABLES);
	}
	else
		/* Counts that the last transaction left, as it came too soon. */
		(void) pgstat_report_stat(false);
	relay->timers.ended = ended;
	/* A password file can be repaired without a reload. */
	if (relay->config.error != NULL)
		outbox_relay_load_config(relay);
}

/*
 * Looks again for what told nobody, if the server has counted a row that was written since
 * the last pass over all rows and keys began: with millions of rows that wait, such looks
 * would be all that an idle worker does.
 */
static void
sweep(OutboxRelay *relay, OutboxMonoTime now)
{
	OutboxTimers *timers = &relay->timers;
	int64		written = outbox_rows_written(MyDatabaseId);

	if (written == timers->written &&
		!outbox_mono_reached(outbox_mono_plus(timers->looked_at, OUTBOX_SWEEP_LATEST_MS), now))
		return;
	timers->looked_at = now;
	outbox_reader_look(&relay->reader);
	outbox_reader_ask_unreadable(&relay->reader);
	outbox_due_look_up(&relay->reader.due);
	outbox_jobs_look(&relay->jobs);
	/* ALTER EXTENSION UPDATE need not touch a table. */
	outbox_database_recheck(&relay->database, OUTBOX_RECHECK_EXTENSION);
	outbox_control_invalidate(&relay->control);
	if (outbox_sweep_start(&relay->sweep, written != timers->written, now))
		timers->written = written;
}

void
outbox_relay_timers(OutboxRelay *relay, OutboxMonoTime now)
{
	OutboxTimers *timers = &relay->timers;
	OutboxResumed resumed;

	look_at_clock(timers);
	outbox_relay_check_prepared(relay, has_ended);
	outbox_routes_retry(&relay->routes, now, !outbox_reader_behind(&relay->reader, now),
						&resumed);
	outbox_relay_resume(relay, &resumed);
	if (outbox_mono_reached(timers->poll_at, now))
	{
		timers->poll_at = outbox_mono_after(outbox_poll_interval_ms);
		poll_now(relay);
	}
	if (outbox_mono_reached(timers->sweep_at, now))
	{
		timers->sweep_at = outbox_mono_after(OUTBOX_SWEEP_MS);
		sweep(relay, now);
	}
	outbox_sweep_timers(&relay->sweep, relay->queue, now);
#ifdef OUTBOX_TEST_POINTS
	if (relay->database.started)
		outbox_sweep_look(&relay->sweep, now);
#endif
	outbox_reader_timers(&relay->reader, now);
	outbox_settler_timers(&relay->settler, now);
}

/* SIGHUP. */
void
outbox_relay_reload(OutboxRelay *relay)
{
	ConfigReloadPending = false;
	ProcessConfigFile(PGC_SIGHUP);
	outbox_override_commit();
	outbox_relay_load_config(relay);
	outbox_control_invalidate(&relay->control);
	outbox_database_recheck(&relay->database, OUTBOX_RECHECK_SETTINGS);
	outbox_maintenance_reload(&relay->maintenance);
	/* outbox.poll_interval may have become shorter. */
	outbox_mono_earlier(&relay->timers.poll_at,
						outbox_mono_after(outbox_poll_interval_ms));
	if (relay->database.attached)
		outbox_slot_set_ready(outbox_workers);
}
