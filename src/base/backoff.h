/*-------------------------------------------------------------------------
 *
 * backoff.h
 *		Capped exponential backoff with jitter.
 *
 * Plain C without a PostgreSQL header, so that test/unit can drive it alone.
 *
 *-------------------------------------------------------------------------
 */
#ifndef OUTBOX_BACKOFF_H
#define OUTBOX_BACKOFF_H

#include <stdint.h>

/*
 * Milliseconds to wait before try number "tries" + 1, tries being the number
 * of failures so far (>= 1): initial_ms x 2^(tries - 1), at most max_ms, then
 * spread by jitter to between 3/4 and 5/4 of it (and never above max_ms, never
 * below 1).  random is a uniformly distributed number given by the caller, so
 * that the function itself is deterministic.
 */
static inline int64_t
outbox_backoff_ms(int64_t initial_ms, int64_t max_ms, uint32_t tries,
				  uint32_t random)
{
	uint64_t	wait_ms = initial_ms < 1 ? 1 : (uint64_t) initial_ms;
	uint64_t	highest = max_ms < 1 ? 1 : (uint64_t) max_ms;
	uint64_t	span;

	while (tries > 1 && wait_ms < highest)
	{
		/* max_ms fits int64, so doubling what is below it fits uint64 */
		wait_ms *= 2;
		tries--;
	}
	if (wait_ms > highest)
		wait_ms = highest;
	/* plus span x random / 2^32, rounded down, without the 96 bits in between */
	span = wait_ms / 2;
	wait_ms = wait_ms - wait_ms / 4 +
		(span >> 32) * random + ((span & UINT32_MAX) * random >> 32);
	if (wait_ms > highest)
		wait_ms = highest;
	return (int64_t) (wait_ms < 1 ? 1 : wait_ms);
}

#endif							/* OUTBOX_BACKOFF_H */
