/*-------------------------------------------------------------------------
 *
 * relay.c
 *		The relay worker: the process, its loop, its wait for work.
 *
 * One turn of the loop: take the inbox, run a transaction if there is something to
 * settle or to claim, look after the link, send, receive; and wait when there
 * was nothing to do.  doc/dev/internals.md has the diagrams.
 *
 * If the process dies, its claims are gone with its memory, its slot is
 * released by its exit callback (or wiped with all shared memory), and the
 * launcher starts the next one, which begins with a full scan.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "compat.h"
#include "miscadmin.h"
#include "own_version.h"
#include "postmaster/bgworker.h"
#include "postmaster/interrupt.h"
#include "relay_internal.h"
#include "route.h"
#include "settings.h"
#include "stats.h"
#include "storage/ipc.h"
#include "storage/latch.h"
#include "storage/pmsignal.h"
#include "storage/procsignal.h"
#include "tcop/tcopprot.h"
#include "test_point.h"
#include "utils/guc.h"
#include "utils/memutils.h"
#include "utils/timestamp.h"
#include "wait_event.h"

/* Longest wait; the poll normally ends it earlier. */
#define MAX_WAIT_MS 60000
/* While work waits, so that a process that is stopped meanwhile is noticed soon. */
#define WORK_WAIT_MS 1000
/* And the shortest, should a deadline pass that nothing can be done about. */
#define MIN_WAIT_MS 1

/* -------------------------------------------------------------------- wait */

/* The first worker of a database does, for all; and none in a copy that is not adopted. */
static bool
maintains_archive(const OutboxRelay *relay)
{
	return relay->database.attached && MySlot->worker == 0 &&
		!relay->control.stale && relay->control.copy == OUTBOX_COPY_NONE;
}

/* A job adds to what is to be published, so only where something can be. */
static bool
may_run_job(OutboxRelay *relay)
{
	return MySlot->worker == 0 && relay->jobs.wanted &&
		relay->database.started && !relay->database.failing &&
		!relay->control.stale && outbox_relay_publishes(relay);
}

static OutboxMonoTime
next_deadline(OutboxRelay *relay, OutboxMonoTime now)
{
	OutboxMonoTime deadline = relay->timers.poll_at;

	if (!relay->database.failing && relay->database.attached)
	{
		outbox_mono_earlier(&deadline, relay->settler.settle_at);
		outbox_mono_earlier(&deadline, outbox_sweep_deadline(&relay->sweep, relay->queue));
	}
	outbox_mono_earlier(&deadline, relay->settler.unstick_at);
	outbox_mono_earlier(&deadline, relay->sender.send_at);
	outbox_mono_earlier(&deadline, outbox_routes_deadline(&relay->routes));
	outbox_mono_earlier(&deadline, outbox_reader_deadline(&relay->reader, now));
	if (relay->database.failing)
		outbox_mono_earlier(&deadline,
							relay->database.retry_at);
	outbox_mono_earlier(&deadline, relay->database.leave_by);
	outbox_mono_earlier(&deadline, outbox_relay_link_deadline(relay, now));
	if (maintains_archive(relay))
		outbox_mono_earlier(&deadline,
							outbox_maintenance_deadline(&relay->maintenance));
	if (may_run_job(relay))
		outbox_mono_earlier(&deadline, relay->jobs.at);
	return deadline;
}

/* The only place where the process waits for work. */
static void
wait_for_work(OutboxRelay *relay, bool busy)
{
	OutboxMonoTime now = outbox_mono_now();
	int64		timeout = busy ? 0 :
		outbox_mono_ms_until(next_deadline(relay, now), now);
	int64		longest = busy || !outbox_relay_has_work(relay) ? MAX_WAIT_MS : WORK_WAIT_MS;

	/* Busy: a look at the latch is enough, and cheaper than an epoll set. */
	if (busy)
	{
		outbox_relay_socket_readable(relay);
		if (!PostmasterIsAlive())
			proc_exit(1);
	}
	else if (outbox_relay_wait(relay, Max(MIN_WAIT_MS, Min(timeout, longest))))
		outbox_relay_socket_readable(relay);
	if (MyLatch->is_set)
	{
		ResetLatch(MyLatch);
		CHECK_FOR_INTERRUPTS();
	}
	else if (!busy)
		CHECK_FOR_INTERRUPTS();
}

/* -------------------------------------------------------------------- loop */

/* The relay has been switched off: nothing unsent stays in memory. */
static void
stand_by(OutboxRelay *relay)
{
	outbox_relay_drop_unsent(relay);
	if (outbox_link_state(relay->link) != OUTBOX_LINK_CLOSED &&
		relay->window.outstanding == 0)
		outbox_relay_close(relay, true);
	/* Nobody tries any more, so that nothing is known. */
	outbox_slot_clear_current_error(OUTBOX_ERROR_LINK);
}

/* Returns true when there is more to do at once. */
static bool
turn(OutboxRelay *relay)
{
	OutboxMonoTime now = outbox_mono_now();

	/* Here and not behind the wait only: a busy worker never waits. */
	outbox_beat(&MySlot->beat, 0);
	/* Replaced while we were stopped: not a byte more, and their inbox stays. */
	if (!outbox_slot_is_mine())
		elog(FATAL, "outbox worker was replaced");
	OUTBOX_TEST_POINT("turn");
	if (ConfigReloadPending)
		outbox_relay_reload(relay);
	outbox_relay_take_inbox(relay);
	outbox_relay_timers(relay, now);
	outbox_relay_receive(relay);
	if (outbox_relay_wants_round(relay, now))
		outbox_relay_round(relay);
	outbox_relay_check_leaving(relay);
	if (relay->database.leave)
		return false;
	if (maintains_archive(relay))
		outbox_maintenance_run(&relay->maintenance, now, relay->scratch);
	if (may_run_job(relay) &&
		outbox_mono_reached(relay->jobs.at, now))
		outbox_jobs_run(&relay->jobs, relay->scratch);

	if (!outbox_enabled || relay->database.mismatch)
		stand_by(relay);
	outbox_relay_link_step(relay, now);
	outbox_relay_publish(relay, now);
	outbox_relay_show_state(relay);
	outbox_stats_flush();
	return outbox_relay_may_send(relay) ||
		outbox_relay_wants_round(relay, outbox_mono_now());
}

/*
 * Gives what is in flight a moment, a message of which the beginning was sent
 * among it.
 */
static void
drain(OutboxRelay *relay)
{
	OutboxMonoTime now = outbox_mono_now();
	OutboxMonoTime deadline =
		outbox_mono_plus(now, outbox_watchdog_stop_left(OUTBOX_DRAIN_MS));

	while (relay->window.outstanding > 0 && outbox_relay_link_open(relay) &&
		   !outbox_mono_reached(deadline, now))
	{
		int64		wait_ms = outbox_mono_ms_until(deadline, now);

		outbox_relay_socket_readable(relay);
		outbox_relay_receive(relay);
		(void) outbox_relay_send_rest(relay);
		if (relay->window.outstanding == 0 || !outbox_relay_link_open(relay))
			break;
		if (outbox_link_sending(relay->link))
			wait_ms = Min(wait_ms, OUTBOX_LINK_AGAIN_MS);
		(void) WaitLatchOrSocket(MyLatch,
								 WL_SOCKET_READABLE | WL_TIMEOUT |
								 WL_EXIT_ON_PM_DEATH,
								 outbox_link_socket(relay->link), wait_ms,
								 outbox_wait_event(OUTBOX_WAIT_STOP));
		now = outbox_mono_now();
		outbox_relay_sender_reset(relay);
	}
}

/*
 * In as many rounds as it needs; what somebody has locked is left.  A round in
 * vain need not be the last: it may have found that it has to look the tables up.
 */
static void
settle_all(OutboxRelay *relay)
{
	int			in_vain = 0;

	outbox_settler_unstick(&relay->settler);
	while (in_vain < 3 && outbox_watchdog_stop_left(1) > 0)
	{
		int			ready = outbox_settler_ready(&relay->settler);

		if (ready == 0)
			return;
		outbox_settler_hurry(&relay->settler);
		outbox_relay_round(relay);
		if (outbox_settler_ready(&relay->settler) >= ready)
			in_vain++;
	}
}

/* Gives what is in flight a moment, settles it, and closes the link. */
static void
finish(OutboxRelay *relay)
{
	bool		unsent;

	outbox_slot_set_state(OUTBOX_WORKER_STOPPING);
	drain(relay);
	/* The broker throws away what is incomplete, so this makes no duplicate. */
	if (outbox_link_sending(relay->link))
		outbox_relay_close(relay, false);
	outbox_sweep_stop(&relay->sweep);
	unsent = outbox_queue_drop_all(relay->queue, NULL) != 0;
	settle_all(relay);
	MySlot->rest_ms = outbox_relay_rest_ms(relay, unsent, &MySlot->rests);
	outbox_stats_flush();
	outbox_relay_close(relay, true);
}

/*
 * An ERROR ends the process, but what it has sent is settled before: else each successor
 * that meets the same ERROR would send it again.
 */
static void
turn_failed(OutboxRelay *relay)
{
	MemoryContextSwitchTo(relay->scratch);
	EmitErrorReport();
	FlushErrorState();
	outbox_store_abort();
	outbox_database_leave(&relay->database, OUTBOX_EXIT_CRASHED);
	(void) outbox_link_burst_end(relay->link);
	finish(relay);
	proc_exit(1);
}

/* SIGTERM came before the loop ran. */
static volatile sig_atomic_t terminated_at_start = false;

static void
sigterm_at_start(SIGNAL_ARGS)
{
	terminated_at_start = true;
	compat_die();
}

static void
detach(int code, Datum arg)
{
	(void) code;
	(void) arg;
	if (outbox_slot_is_mine())
	{
		outbox_slot_set_state(OUTBOX_WORKER_STOPPED);
		/* A statement that did not end in time is no crash, nor is a start. */
		if ((outbox_watchdog_stopping() || terminated_at_start) &&
			MySlot->exit_reason == OUTBOX_EXIT_CRASHED)
			MySlot->exit_reason = OUTBOX_EXIT_STOPPED;
	}
	outbox_slot_detach();
}

/*
 * Is the database wanted empty?  Also called by the handler of a signal, which
 * may read this one word of the inbox.
 */
static bool
told_to_stop(void)
{
	return MySlot != NULL &&
		((MySlot->inbox.signals & OUTBOX_SIGNAL_STOP) != 0 ||
		 MySlot->exit_reason == OUTBOX_EXIT_STOPPED);
}

static OutboxRelay *
relay_create(void)
{
	MemoryContext cxt = AllocSetContextCreate(TopMemoryContext, "outbox relay",
											  ALLOCSET_DEFAULT_SIZES);
	OutboxRelay *relay = MemoryContextAllocZero(cxt, sizeof(OutboxRelay));

	relay->scratch = AllocSetContextCreate(cxt, "outbox scratch",
										   ALLOCSET_DEFAULT_SIZES);
	/* First of all: what is changed from here on is not what the process has. */
	relay->database.settings = outbox_store_database_settings(cxt);
	outbox_store_fence_ask(outbox_flushed_has);
	relay->queue = outbox_queue_create(cxt);
	outbox_routes_init(&relay->routes, relay->queue, cxt);
	outbox_reader_init(&relay->reader, relay->queue, &relay->routes);
	outbox_relay_timers_start(&relay->timers);
	outbox_jobs_look(&relay->jobs);
	relay->link = outbox_relay_link_create(relay, cxt);
	outbox_settler_init(&relay->settler, relay->queue, &relay->routes, relay->link);
	outbox_relay_load_config(relay);
	return relay;
}

void
outbox_relay_main(Datum main_arg)
{
	OutboxWorkerArgs args;
	OutboxRelay *relay;

	(void) main_arg;
	memcpy(&args, MyBgworkerEntry->bgw_extra, sizeof(args));
	outbox_watchdog_init(told_to_stop);
	/* Until the loop runs there is nothing to finish: leave at once. */
	pqsignal(SIGTERM, sigterm_at_start);
	pqsignal(SIGHUP, SignalHandlerForConfigReload);

	pqsignal(SIGINT, outbox_store_sigint);
	if (!outbox_slot_attach(args.slot, args.generation))
		proc_exit(0);
	outbox_is_relay = true;
	MySlot->told = args.told;
	MySlot->twin_told = args.twin_told;
	outbox_stats_attach(args.dboid, MySlot->worker, MySlot->nworkers);
	before_shmem_exit(detach, (Datum) 0);
	BackgroundWorkerUnblockSignals();
	/* A SIGHUP in the moment of the start is lost: until here it was ignored. */
	ProcessConfigFile(PGC_SIGHUP);
	outbox_database_connect(args.dboid);
	OUTBOX_TEST_POINT("start");
	pqsignal(SIGTERM, outbox_watchdog_sigterm);
	/* A command that needs the database empty came while we started. */
	if (outbox_hold_exists(args.dboid))
	{
		MySlot->exit_reason = OUTBOX_EXIT_STOPPED;
		proc_exit(0);
	}
	/* In pg_stat_activity, csvlog and jsonlog. */
	SetConfigOption("application_name",
					psprintf("outbox relay %d (%s)", MySlot->worker,
							 outbox_library_version()),
					PGC_USERSET, PGC_S_OVERRIDE);
	outbox_relay_show_activity(MySlot->state, "");

	relay = relay_create();
	MemoryContextSwitchTo(relay->scratch);
	PG_TRY();
	{
		while (!outbox_watchdog_stopping() && !relay->database.leave)
		{
			bool		busy;

			MemoryContextReset(relay->scratch);
			busy = turn(relay);
			if (!relay->database.leave && !outbox_watchdog_stopping())
				wait_for_work(relay, busy);
		}
	}
	PG_CATCH();
	{
		turn_failed(relay);
	}
	PG_END_TRY();
	/* Somebody terminated us; at a shutdown the postmaster starts nothing. */
	if (outbox_watchdog_stopping() && !relay->database.leave)
		MySlot->exit_reason = OUTBOX_EXIT_RESTART;
	finish(relay);
	proc_exit(0);
}
