/*-------------------------------------------------------------------------
 *
 * watchdog.c
 *		Bounds every stretch of the relay that may block.
 *
 * The handlers run in signal context: they touch only the volatile variables
 * below and call only what is async-signal-safe.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <signal.h>
#include <sys/socket.h>

#include "miscadmin.h"
#include "postmaster/interrupt.h"
#include "storage/latch.h"
#include "tcop/tcopprot.h"
#include "utils/timeout.h"
#include "utils/timestamp.h"

#include "watchdog.h"

typedef enum GuardKind
{
	GUARD_NONE,
	GUARD_SOCKET,
	GUARD_SQL
} GuardKind;

static TimeoutId watchdog_timeout;

/*
 * Written by the process while the timeout is disabled (or with guard_kind set
 * last), and by the handler while it is enabled.
 */
static volatile sig_atomic_t guard_kind = GUARD_NONE;
static volatile sig_atomic_t guard_fd = -1;
static volatile sig_atomic_t guard_limit_ticks;
static volatile sig_atomic_t guard_ticks;	/* since the guard began */
static volatile sig_atomic_t guard_stop_ticks;	/* of them, told to stop */
static volatile sig_atomic_t guard_fired;

static int
ticks_in(int ms)
{
	return (ms + OUTBOX_WATCHDOG_TICK_MS - 1) / OUTBOX_WATCHDOG_TICK_MS;
}

/* The guarded call may still need many ticks to come back: shut down again. */
static void
tick_socket(void)
{
	if (guard_ticks >= guard_limit_ticks ||
		guard_stop_ticks > ticks_in(OUTBOX_SOCKET_STOP_MS))
	{
		guard_fired = true;
		(void) shutdown(guard_fd, SHUT_RDWR);
	}
}

static void
tick_sql(void)
{
	if (guard_stop_ticks > ticks_in(OUTBOX_SQL_STOP_MS) && !guard_fired)
	{
		guard_fired = true;
		die(SIGTERM);
	}
}

static void
watchdog_tick(void)
{
	guard_ticks++;
	if (ShutdownRequestPending)
		guard_stop_ticks++;		/* the first one is that which saw it */

	if (guard_kind == GUARD_SOCKET)
		tick_socket();
	else if (guard_kind == GUARD_SQL)
		tick_sql();
}

void
outbox_watchdog_init(void)
{
	watchdog_timeout = RegisterTimeout(USER_TIMEOUT, watchdog_tick);
}

void
outbox_watchdog_sigterm(int signo)
{
	int			save_errno = errno;

	(void) signo;
	ShutdownRequestPending = true;
	SetLatch(MyLatch);
	errno = save_errno;
}

bool
outbox_watchdog_stopping(void)
{
	return ShutdownRequestPending != 0;
}

/*
 * Cheap although it is called around each burst: timeout.c leaves the timer
 * alone while a signal is due that is sooner than ours, and disabling never
 * touches the timer.  So there is at most one setitimer() per tick.
 */
static void
begin_guard(GuardKind kind, int fd, int limit_ticks)
{
	/* an ERROR may have left the last guard behind */
	if (guard_kind != GUARD_NONE)
		(void) outbox_watchdog_release();

	guard_fd = fd;
	guard_limit_ticks = limit_ticks;
	guard_ticks = 0;
	guard_stop_ticks = 0;
	guard_fired = false;
	guard_kind = kind;
	enable_timeout_every(watchdog_timeout,
						 TimestampTzPlusMilliseconds(GetCurrentTimestamp(),
													 OUTBOX_WATCHDOG_TICK_MS),
						 OUTBOX_WATCHDOG_TICK_MS);
}

void
outbox_watchdog_guard_socket(int fd, int limit_ms)
{
	begin_guard(GUARD_SOCKET, fd, ticks_in(limit_ms));
}

void
outbox_watchdog_guard_sql(void)
{
	begin_guard(GUARD_SQL, -1, 0);
}

bool
outbox_watchdog_release(void)
{
	bool		fired;

	if (guard_kind == GUARD_NONE)
		return false;
	disable_timeout(watchdog_timeout, false);
	fired = guard_kind == GUARD_SOCKET && guard_fired;
	guard_kind = GUARD_NONE;
	guard_fd = -1;
	return fired;
}
