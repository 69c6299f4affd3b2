/*-------------------------------------------------------------------------
 *
 * watchdog.h
 *		Bounds every stretch of the relay that may block.
 *
 * librabbitmq's sends have no deadline and restart on EINTR; shutdown(fd) is the one
 * thing that ends them, and it is async-signal-safe (measured).  The watchdog is a timer
 * of the monotonic clock: when the limit is over, or sooner when the server wants us to
 * stop, its handler shuts the guarded socket down.  It counts ticks and compares no
 * clocks: neither a jump of the wall clock nor SIGSTOP makes it fire early or late.
 *
 * In SQL the guard ends waits for locks that lock_timeout should have ended, and, once
 * a stop was requested and the statement has not ended within OUTBOX_SQL_STOP_MS, calls
 * die(), which is what waits such as SyncRepWaitForLSN look at.  Until then a running
 * claim or settle can finish, so that a clean stop leaves no duplicate.
 *
 * A stop is SIGTERM, or what others have told the worker (see outbox_watchdog_init).
 * It consists of several steps, so there is one deadline for all of them, OUTBOX_STOP_MS
 * after the stop was first seen, by a tick if need be.  Each step asks what is left of
 * it; statements have no more after it.
 *
 * A commit that waits for a synchronous standby holds interrupts, so it does not hear
 * of ProcSignalBarriers either, and DROP DATABASE of any database waits for every
 * process to hear of its own.  While a commit is guarded the watchdog ends that wait
 * when a barrier is pending; outbox_store_end() then waits again.
 *
 * What a broker sends is memory of ours until it has been read, and librabbitmq has no
 * limit for it: heartbeats of channels that are none, or frames in front of the answer
 * that a call waits for, hundreds of megabytes a second (measured).  A guard for reading
 * therefore ends the call also when the process has grown by OUTBOX_READING_MAX_MB,
 * before the kernel ends the process, and with it every session of the server.
 *
 * Guards do not nest.
 *
 * A session that talks to the broker for a moment (outbox_preflight()) uses the same
 * guards.  There SIGUSR2 may be somebody else's (a WAL sender runs SQL, too), so the
 * ticks come from timeout.c.  A stop is a cancelled statement or a session that is
 * terminated, and there is a deadline for all of it; that the wall clock was set back
 * can make it late, by no more than the library's own timeouts.
 *
 *-------------------------------------------------------------------------
 */
#ifndef OUTBOX_WATCHDOG_H
#define OUTBOX_WATCHDOG_H

#define OUTBOX_WATCHDOG_TICK_MS		250
#define OUTBOX_SOCKET_LIMIT_MS		3000	/* longest library call */
#define OUTBOX_SOCKET_STOP_MS		500 /* the same once we must stop */
#define OUTBOX_SQL_STOP_MS			1500	/* longest SQL once we must stop */
#define OUTBOX_STOP_MS				3000	/* all of the stop */
#define OUTBOX_LOCK_MS				1500	/* longest wait for a lock */
#define OUTBOX_READING_MAX_MB		64	/* growth of the process in such a
										 * call */
#define OUTBOX_COMMIT_BARRIER_MS	500 /* longest commit beside a barrier */

/*
 * Creates the timer; once per process, before signals are unblocked.  told: has
 * somebody told us to stop?  It is called by the handler of signals.
 */
extern void outbox_watchdog_init(bool (*told) (void));

/*
 * The same for a session, from here until outbox_watchdog_session_end(), which the
 * caller sees to also when an ERROR is thrown: nothing that is guarded lasts longer
 * than limit_ms from now.  Calling it again sets another limit.
 */
extern void outbox_watchdog_session_begin(int limit_ms);
extern void outbox_watchdog_session_end(void);

/* SIGTERM: notes the request, wakes the latch.  Async-signal-safe. */
extern void outbox_watchdog_sigterm(SIGNAL_ARGS);

/* True once we must stop. */
extern bool outbox_watchdog_stopping(void);

/*
 * How long a step may take that may else take so long: 0 when the time of the
 * stop, or of the session, is over.
 */
extern int	outbox_watchdog_stop_left(int limit_ms);

extern void outbox_watchdog_guard_socket(int fd, int limit_ms);

/* The same for a call that keeps what the broker sends. */
extern void outbox_watchdog_guard_reading(int fd, int limit_ms);
extern void outbox_watchdog_guard_sql(void);
extern void outbox_watchdog_guard_commit(void);

/*
 * Ends the guard.  Returns true when it had to shut the socket down, in which
 * case the connection is dead whatever the library said; or when it had to end
 * the commit's wait for a standby, in which case that has to be waited for
 * again.
 */
extern bool outbox_watchdog_release(void);

/* Has the socket been shut down that is guarded now? */
extern bool outbox_watchdog_fired(void);

/* Was the last guard's socket shut down because the process grew too much? */
extern bool outbox_watchdog_flooded(void);

#endif							/* OUTBOX_WATCHDOG_H */
