/*-------------------------------------------------------------------------
 *
 * clock.h
 *		A clock that nobody sets.
 *
 * Everything that this process waits for by itself (deadlines, backoff, ages of
 * what is in memory) is measured with it.  TimestampTz is the wall clock, which
 * an administrator or NTP may set back by an hour; it is for what the database
 * has said (available_at) and for what people read (the views, the log).
 *
 * A struct, so that the compiler refuses to mix the two.  Plain C without a
 * PostgreSQL header.
 *
 *-------------------------------------------------------------------------
 */
#ifndef OUTBOX_CLOCK_H
#define OUTBOX_CLOCK_H

#include <stdbool.h>
#include <stdint.h>
#include <time.h>

typedef struct OutboxMonoTime
{
	int64_t		us;				/* since some moment in the past; 0: unset */
} OutboxMonoTime;

#define OUTBOX_MONO_UNSET ((OutboxMonoTime) {0})
#define OUTBOX_MONO_NEVER ((OutboxMonoTime) {INT64_MAX})

static inline OutboxMonoTime
outbox_mono_now(void)
{
	struct timespec now;

	(void) clock_gettime(CLOCK_MONOTONIC, &now);
	return (OutboxMonoTime) {(int64_t) now.tv_sec * 1000000 + now.tv_nsec / 1000};
}

static inline OutboxMonoTime
outbox_mono_plus(OutboxMonoTime from, int64_t ms)
{
	return (OutboxMonoTime) {from.us + ms * 1000};
}

/* The moment that is so many milliseconds away. */
static inline OutboxMonoTime
outbox_mono_after(int64_t ms)
{
	return outbox_mono_plus(outbox_mono_now(), ms);
}

static inline bool
outbox_mono_is_set(OutboxMonoTime t)
{
	return t.us != 0;
}

/* True for an unset deadline, too: nothing has to be waited for. */
static inline bool
outbox_mono_reached(OutboxMonoTime deadline, OutboxMonoTime now)
{
	return now.us >= deadline.us;
}

/* Of two deadlines that are both set. */
static inline bool
outbox_mono_before(OutboxMonoTime a, OutboxMonoTime b)
{
	return a.us < b.us;
}

/* Microseconds that have passed since then. */
static inline int64_t
outbox_mono_passed(OutboxMonoTime since)
{
	return outbox_mono_now().us - since.us;
}

/* Milliseconds from now to the deadline, rounded up; 0 when it was reached. */
static inline int64_t
outbox_mono_ms_until(OutboxMonoTime deadline, OutboxMonoTime now)
{
	return deadline.us <= now.us ? 0 : (deadline.us - now.us + 999) / 1000;
}

/* Moves a deadline forward; one that is unset is the latest of all. */
static inline void
outbox_mono_earlier(OutboxMonoTime *deadline, OutboxMonoTime candidate)
{
	if (outbox_mono_is_set(candidate) &&
		(!outbox_mono_is_set(*deadline) ||
		 outbox_mono_before(candidate, *deadline)))
		*deadline = candidate;
}

/* Has a deadline that is set been reached?  Then it is unset. */
static inline bool
outbox_mono_expired(OutboxMonoTime *deadline, OutboxMonoTime now)
{
	if (!outbox_mono_is_set(*deadline) || !outbox_mono_reached(*deadline, now))
		return false;
	*deadline = OUTBOX_MONO_UNSET;
	return true;
}

#endif							/* OUTBOX_CLOCK_H */
