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
extern int64_t outbox_backoff_ms(int64_t initial_ms, int64_t max_ms,
								 uint32_t tries, uint32_t random);

#endif							/* OUTBOX_BACKOFF_H */
