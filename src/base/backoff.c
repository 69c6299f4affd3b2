/*-------------------------------------------------------------------------
 *
 * backoff.c
 *		Capped exponential backoff with jitter.
 *
 *-------------------------------------------------------------------------
 */
#include "backoff.h"

/* initial_ms doubled for each failure after the first, without overflow. */
static uint64_t
grown(uint64_t initial_ms, uint64_t max_ms, uint32_t tries)
{
	uint64_t	wait_ms = initial_ms;

	while (tries > 1 && wait_ms < max_ms)
	{
		/* max_ms fits int64, so doubling what is below it fits uint64 */
		wait_ms *= 2;
		tries--;
	}
	return wait_ms < max_ms ? wait_ms : max_ms;
}

/* span x random / 2^32, rounded down, without the 96 bits in between */
static uint64_t
fraction(uint64_t span, uint32_t random)
{
	return (span >> 32) * random + ((span & UINT32_MAX) * random >> 32);
}

int64_t
outbox_backoff_ms(int64_t initial_ms, int64_t max_ms, uint32_t tries,
				  uint32_t random)
{
	uint64_t	lowest = initial_ms < 1 ? 1 : (uint64_t) initial_ms;
	uint64_t	highest = max_ms < 1 ? 1 : (uint64_t) max_ms;
	uint64_t	wait_ms = grown(lowest, highest, tries);

	wait_ms = wait_ms - wait_ms / 4 + fraction(wait_ms / 2, random);
	if (wait_ms > highest)
		wait_ms = highest;
	return (int64_t) (wait_ms < 1 ? 1 : wait_ms);
}
