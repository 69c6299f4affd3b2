/*-------------------------------------------------------------------------
 *
 * watchdog.c
 *		Bounds every stretch of the relay that may block.
 *
 * The handlers run in signal context: they touch only the volatile variables
 * below and call only what is async-signal-safe.
 *
 * The ticks come from a POSIX timer and SIGUSR2, which the server leaves unused
 * in background workers.  timeout.c cannot give them: it compares the wall clock
 * when its signal comes, and where that was set back by an hour it goes back to
 * sleep for an hour, in the middle of a call that hangs.  In a session, which may
 * be of any kind, they come from there all the same.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "compat.h"
#include "miscadmin.h"
#include "storage/latch.h"
#include "storage/proc.h"
#include "tcop/tcopprot.h"
#include "utils/timeout.h"
#include "utils/timestamp.h"

#include "clock.h"
#include "watchdog.h"

typedef enum GuardKind
{
	GUARD_NONE,
	GUARD_SOCKET,
	GUARD_SQL,
	GUARD_COMMIT
} GuardKind;

#define BASE_WANTED		(-1)

static timer_t timer;
static bool (*told_to_stop) (void);
static volatile sig_atomic_t stopping;
static volatile uint32 stop_ms; /* when that was first seen; see now_ms() */
static volatile sig_atomic_t ticking;	/* the timer is set */

static TimeoutId session_timeout = MAX_TIMEOUTS;	/* not registered */
static volatile sig_atomic_t in_session;
static uint32 session_until_ms; /* see now_ms() */

static int	memory_fd = -1;		/* what the kernel tells of our memory */
static long page_kb;

/*
 * Written by the process while its kind is NONE, with the kind set last, and by the
 * handler while it is not.
 */
static volatile struct
{
	sig_atomic_t kind;			/* GuardKind */
	sig_atomic_t fd;
	sig_atomic_t limit_ticks;
	sig_atomic_t ticks;			/* since the guard began */
	sig_atomic_t stop_ticks;	/* of them, told to stop */
	sig_atomic_t lock_ticks;	/* of them, waiting for a lock */
	sig_atomic_t barrier_ticks; /* with a barrier pending */
	long		base_kb;		/* what we had at the first tick; 0: no
								 * matter, BASE_WANTED: it has not come */
	sig_atomic_t flooded;
	sig_atomic_t fired;
	sig_atomic_t gave_way;
} guard;

static void
set_timer(long tick_ms)
{
	struct itimerspec spec;

	spec.it_interval.tv_sec = 0;
	spec.it_interval.tv_nsec = tick_ms * 1000000;
	spec.it_value = spec.it_interval;
	ticking = tick_ms != 0;
	/* cannot fail: a timer that exists, a valid time */
	(void) timer_settime(timer, 0, &spec, NULL);
}

/* Of the monotonic clock; only differences mean anything. */
static uint32
now_ms(void)
{
	return (uint32) (outbox_mono_now().us / 1000);
}

/* The first one counts. */
static void
note_stop(void)
{
	if (stopping)
		return;
	stop_ms = now_ms();
	stopping = true;
}

static bool
stop_is_over(void)
{
	return stopping && now_ms() - stop_ms >= OUTBOX_STOP_MS;
}

static int
ticks_in(int ms)
{
	return (ms + OUTBOX_WATCHDOG_TICK_MS - 1) / OUTBOX_WATCHDOG_TICK_MS;
}

static const char *
skip_number(const char *text, long *number)
{
	*number = 0;
	while (*text >= '0' && *text <= '9')
		*number = *number * 10 + (*text++ - '0');
	return *text == ' ' ? text + 1 : text;
}

/*
 * Memory of this process alone: what is resident without what is shared; 0 if
 * nobody tells.  The file stays open, as a handler asks.
 */
static long
own_kb(void)
{
	char		text[128];
	const char *next = text;
	ssize_t		len = memory_fd >= 0 ?
		pread(memory_fd, text, sizeof(text) - 1, 0) : -1;
	long		resident;
	long		shared;

	if (len <= 0)
		return 0;
	text[len] = '\0';
	next = skip_number(next, &resident);	/* the size of the address space */
	next = skip_number(next, &resident);
	(void) skip_number(next, &shared);
	return (resident - shared) * page_kb;
}

/* Most calls end before the first tick, and so cost no look. */
static bool
has_grown(void)
{
	if (guard.base_kb == BASE_WANTED)
		guard.base_kb = own_kb();
	return guard.base_kb > 0 &&
		own_kb() - guard.base_kb > OUTBOX_READING_MAX_MB * 1024L;
}

/*
 * What the kernel had taken before the socket was shut down would still be read, and
 * it may be many thousand frames, each of which takes its time.  So the descriptor
 * becomes one of which nothing can be read.  What has not been sent must not go out any
 * more, as when the link is dropped: it will be sent again on another connection.
 */
static void
replace_socket(void)
{
	struct linger at_once = {.l_onoff = 1, .l_linger = 0};
	int			fds[2];

	/* the library may have closed it a moment ago */
	if (fcntl(guard.fd, F_GETFD) < 0)
		return;

	/*
	 * With an end that is closed: not connected would be "try again" to
	 * librabbitmq's TLS.
	 */
	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds) < 0)
		return;
	(void) close(fds[1]);
	(void) setsockopt(guard.fd, SOL_SOCKET, SO_LINGER, &at_once,
					  sizeof(at_once));
	(void) dup2(fds[0], guard.fd);
	(void) close(fds[0]);
}

/* The guarded call may still need many ticks to come back: shut down again. */
static void
tick_socket(void)
{
	bool		again = guard.fired;

	if (!guard.fired && has_grown())
		guard.flooded = true;
	if (guard.flooded || guard.ticks >= guard.limit_ticks ||
		guard.stop_ticks > ticks_in(OUTBOX_SOCKET_STOP_MS))
	{
		guard.fired = true;
		(void) shutdown(guard.fd, SHUT_RDWR);
		if (again || guard.flooded)
			replace_socket();
	}
}

/*
 * A lock is waited for long after lock_timeout: that is a timeout of timeout.c,
 * and the wall clock was set back meanwhile.  SIGINT ends the statement, unless
 * it is the commit (store.c).
 */
static void
tick_lock(void)
{
	if (MyProc == NULL || MyProc->waitStatus != PROC_WAIT_STATUS_WAITING)
		guard.lock_ticks = 0;
	else if (++guard.lock_ticks > ticks_in(OUTBOX_LOCK_MS))
	{
		guard.lock_ticks = 0;
		(void) kill(MyProcPid, SIGINT);
	}
}

static void
tick_sql(void)
{
	tick_lock();
	if ((guard.stop_ticks > ticks_in(OUTBOX_SQL_STOP_MS) || stop_is_over()) &&
		!guard.fired)
	{
		guard.fired = true;
		compat_die();
	}
}

/*
 * SyncRepWaitForLSN looks at QueryCancelPending, and nothing else does during a
 * commit; should the commit have been slow for another reason,
 * outbox_watchdog_release() takes it back.
 */
static void
tick_commit(void)
{
	tick_sql();
	if (!ProcSignalBarrierPending)
		guard.barrier_ticks = 0;
	else if (++guard.barrier_ticks > ticks_in(OUTBOX_COMMIT_BARRIER_MS))
	{
		guard.gave_way = true;
		QueryCancelPending = true;
		InterruptPending = true;
		SetLatch(MyLatch);
	}
}

static void
tick(void)
{
	int			save_errno = errno;

	guard.ticks++;
	if (!stopping && guard.kind != GUARD_NONE && told_to_stop())
		note_stop();
	if (stopping)
		guard.stop_ticks++;		/* the first one is that which saw it */

	if (guard.kind == GUARD_SOCKET)
		tick_socket();
	else if (guard.kind == GUARD_SQL)
		tick_sql();
	else if (guard.kind == GUARD_COMMIT)
		tick_commit();
	else if (!in_session)
		set_timer(0);
	errno = save_errno;
}

static void
watchdog_tick(SIGNAL_ARGS)
{
	tick();
}

/* Where there is no such file, nothing is known, and nothing limited. */
static void
open_memory(void)
{
	if (memory_fd < 0)
		memory_fd = open("/proc/self/statm", O_RDONLY | O_CLOEXEC);
	page_kb = sysconf(_SC_PAGESIZE) / 1024;
}

void
outbox_watchdog_init(bool (*told) (void))
{
	struct sigevent event = {0};

	told_to_stop = told;
	open_memory();
	pqsignal(SIGUSR2, watchdog_tick);
	event.sigev_notify = SIGEV_SIGNAL;
	event.sigev_signo = SIGUSR2;
	if (timer_create(CLOCK_MONOTONIC, &event, &timer) != 0)
		ereport(FATAL,
				(errcode(ERRCODE_INSUFFICIENT_RESOURCES),
				 errmsg("could not create the timer of the outbox relay's watchdog: %m")));
}

/* Is the statement to end?  Whoever asked for that waits for an interrupt. */
static bool
session_interrupted(void)
{
	return QueryCancelPending || ProcDiePending;
}

void
outbox_watchdog_session_begin(int limit_ms)
{
	/* there are few of them in a process, so once */
	if (session_timeout == MAX_TIMEOUTS)
		session_timeout = RegisterTimeout(USER_TIMEOUT, tick);
	(void) outbox_watchdog_release();
	told_to_stop = session_interrupted;
	stopping = false;
	session_until_ms = now_ms() + limit_ms;
	if (in_session)
		return;
	in_session = true;
	open_memory();
	ticking = true;
	enable_timeout_every(session_timeout,
						 TimestampTzPlusMilliseconds(GetCurrentTimestamp(),
													 OUTBOX_WATCHDOG_TICK_MS),
						 OUTBOX_WATCHDOG_TICK_MS);
}

void
outbox_watchdog_session_end(void)
{
	if (!in_session)
		return;
	(void) outbox_watchdog_release();
	disable_timeout(session_timeout, false);
	in_session = false;
	ticking = false;
	stopping = false;
	if (memory_fd >= 0)
		(void) close(memory_fd);
	memory_fd = -1;
}

/* What is left for a session until its deadline, at most limit_ms. */
static int
session_left(int limit_ms)
{
	int32		left_ms = (int32) (session_until_ms - now_ms());

	if (!in_session)
		return limit_ms;
	return Max(Min(left_ms, limit_ms), 0);
}

void
outbox_watchdog_sigterm(SIGNAL_ARGS)
{
	int			save_errno = errno;

	note_stop();
	SetLatch(MyLatch);
	errno = save_errno;
}

bool
outbox_watchdog_stopping(void)
{
	if (!stopping && told_to_stop())
		note_stop();
	return stopping != 0;
}

int
outbox_watchdog_stop_left(int limit_ms)
{
	uint32		gone_ms;

	limit_ms = session_left(limit_ms);
	if (!stopping)
		return limit_ms;
	gone_ms = now_ms() - stop_ms;
	return gone_ms >= OUTBOX_STOP_MS ? 0 :
		Min(limit_ms, (int) (OUTBOX_STOP_MS - gone_ms));
}

/*
 * Cheap although it is called around each burst: the timer is left alone while
 * it ticks, and the end of a guard never touches it; the first tick without a
 * guard turns it off.  So there is at most one system call per tick.
 */
static void
begin_guard(GuardKind kind, int fd, int limit_ticks)
{
	/* an ERROR may have left the last guard behind */
	if (guard.kind != GUARD_NONE)
		(void) outbox_watchdog_release();

	guard.fd = fd;
	guard.limit_ticks = limit_ticks;
	guard.ticks = guard.stop_ticks = guard.lock_ticks = guard.barrier_ticks = 0;
	guard.base_kb = 0;
	guard.flooded = guard.fired = guard.gave_way = false;
	guard.kind = kind;
	/* in this order: with a guard the handler does not turn it off */
	if (!ticking)
		set_timer(OUTBOX_WATCHDOG_TICK_MS);
}

void
outbox_watchdog_guard_socket(int fd, int limit_ms)
{
	/* one more, as the first tick may come at once */
	begin_guard(GUARD_SOCKET, fd, ticks_in(session_left(limit_ms)) + 1);
}

void
outbox_watchdog_guard_reading(int fd, int limit_ms)
{
	outbox_watchdog_guard_socket(fd, limit_ms);
	guard.base_kb = BASE_WANTED;
}

bool
outbox_watchdog_fired(void)
{
	return guard.kind == GUARD_SOCKET && guard.fired;
}

bool
outbox_watchdog_flooded(void)
{
	return guard.flooded;
}

void
outbox_watchdog_guard_sql(void)
{
	begin_guard(GUARD_SQL, -1, 0);
}

void
outbox_watchdog_guard_commit(void)
{
	begin_guard(GUARD_COMMIT, -1, 0);
}

bool
outbox_watchdog_release(void)
{
	GuardKind	kind = guard.kind;

	if (kind == GUARD_NONE)
		return false;
	guard.kind = GUARD_NONE;
	guard.fd = -1;
	if (kind == GUARD_COMMIT && guard.gave_way)
	{
		QueryCancelPending = false;
		return true;
	}
	return kind == GUARD_SOCKET && guard.fired;
}
