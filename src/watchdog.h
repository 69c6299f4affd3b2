/*-------------------------------------------------------------------------
 *
 * watchdog.h
 *		Bounds every stretch of the relay that may block.
 *
 * librabbitmq's sends have no deadline and restart on EINTR; shutdown(fd) is
 * the one thing that ends them, and it is async-signal-safe (measured, see
 * FAULTS.md 0.3).  The watchdog is a timer that ticks: its handler shuts the
 * guarded socket down when the limit is over, or sooner when the server wants us
 * to stop.  The timer runs on the monotonic clock, and ticks are counted rather
 * than clocks compared: neither a jump of the wall clock nor a process that was
 * stopped for a while (SIGSTOP) makes it fire early or late.
 *
 * In SQL the guard ends waits for locks that lock_timeout should have ended, and
 * does nothing else until a shutdown was requested; when the statement has then
 * not ended within OUTBOX_SQL_STOP_MS it calls die(), which is what waits such as
 * SyncRepWaitForLSN look at.  A shutdown request that came in the first moments
 * lets a running claim or settle finish, so that a clean stop leaves no
 * duplicate.
 *
 * A commit that waits for a synchronous standby holds interrupts, so it does not
 * hear of ProcSignalBarriers either, and DROP DATABASE of any database waits for
 * every process to hear of its own.  While a commit is guarded the watchdog ends
 * that wait when a barrier is pending; outbox_store_end() then waits again.
 *
 * Guards do not nest.
 *
 *-------------------------------------------------------------------------
 */
#ifndef OUTBOX_WATCHDOG_H
#define OUTBOX_WATCHDOG_H

#define OUTBOX_WATCHDOG_TICK_MS		250
#define OUTBOX_SOCKET_LIMIT_MS		3000	/* longest library call */
#define OUTBOX_SOCKET_STOP_MS		500 /* the same once we must stop */
#define OUTBOX_SQL_STOP_MS			1500	/* longest SQL once we must stop */
#define OUTBOX_LOCK_MS				1500	/* longest wait for a lock */
#define OUTBOX_COMMIT_BARRIER_MS	500 /* longest commit beside a barrier */

/* Creates the timer; once per process, before signals are unblocked. */
extern void outbox_watchdog_init(void);

/* SIGTERM: notes the request, wakes the latch.  Async-signal-safe. */
extern void outbox_watchdog_sigterm(int signo);

/* True once SIGTERM has come (ShutdownRequestPending). */
extern bool outbox_watchdog_stopping(void);

extern void outbox_watchdog_guard_socket(int fd, int limit_ms);
extern void outbox_watchdog_guard_sql(void);
extern void outbox_watchdog_guard_commit(void);

/*
 * Ends the guard.  Returns true when it had to shut the socket down, in which
 * case the connection is dead whatever the library said; or when it had to end
 * the commit's wait for a standby, in which case that has to be waited for
 * again.
 */
extern bool outbox_watchdog_release(void);

#endif							/* OUTBOX_WATCHDOG_H */
