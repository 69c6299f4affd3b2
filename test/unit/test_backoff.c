/*-------------------------------------------------------------------------
 *
 * test_backoff.c
 *		Unit tests of src/base/backoff.h.
 *
 *-------------------------------------------------------------------------
 */
#include "backoff.h"
#include "check.h"

#define MIDDLE	((uint32_t) 1 << 31)	/* jitter of exactly nothing */

static void
test_growth(void)
{
	check(outbox_backoff_ms(1000, 600000, 1, MIDDLE) == 1000,
		  "the first wait is the initial one");
	check(outbox_backoff_ms(1000, 600000, 2, MIDDLE) == 2000,
		  "the second wait is twice the initial one");
	check(outbox_backoff_ms(1000, 600000, 9, MIDDLE) == 256000,
		  "the ninth wait is 256 times the initial one");
	check(outbox_backoff_ms(1000, 600000, 0, MIDDLE) == 1000,
		  "no failure at all counts as one");
}

static void
test_cap(void)
{
	check(outbox_backoff_ms(1000, 600000, 11, MIDDLE) == 600000,
		  "the cap holds");
	check(outbox_backoff_ms(1000, 600000, 11, UINT32_MAX) == 600000,
		  "jitter does not go above the cap");
	check(outbox_backoff_ms(5000, 1000, 1, MIDDLE) == 1000,
		  "an initial wait above the cap is the cap");
	check(outbox_backoff_ms(1000, 1000, 40, 0) == 750,
		  "jitter below the cap remains");
}

static void
test_jitter(void)
{
	uint32_t	tries;
	bool		low = true;
	bool		high = true;
	bool		monotonic = true;

	for (tries = 1; tries <= 20; tries++)
	{
		int64_t		base = (int64_t) 100 << (tries - 1);
		int64_t		last = 0;
		uint64_t	random;

		for (random = 0; random <= UINT32_MAX; random += 0x00ffffff)
		{
			int64_t		wait = outbox_backoff_ms(100, INT64_MAX, tries,
												 (uint32_t) random);

			low = low && wait >= base * 3 / 4;
			high = high && wait <= base * 5 / 4;
			monotonic = monotonic && wait >= last;
			last = wait;
		}
	}
	check(low, "no wait is below 3/4");
	check(high, "no wait is above 5/4");
	check(monotonic, "a larger random number never waits less");
	check(outbox_backoff_ms(1000, 600000, 1, 0) == 750, "3/4 is reached");
	check(outbox_backoff_ms(1000, 600000, 1, UINT32_MAX) == 1249,
		  "5/4 is almost reached");
}

static void
test_extremes(void)
{
	check(outbox_backoff_ms(1000, 600000, (uint32_t) 1 << 31, MIDDLE) == 600000,
		  "2^31 tries do not overflow");
	check(outbox_backoff_ms(1000, 600000, UINT32_MAX, MIDDLE) == 600000,
		  "2^32 - 1 tries do not overflow");
	check(outbox_backoff_ms(INT64_MAX, INT64_MAX, UINT32_MAX, UINT32_MAX) ==
		  INT64_MAX, "the largest wait does not overflow");
	check(outbox_backoff_ms(INT64_MAX, INT64_MAX, 1, 0) ==
		  INT64_MAX - INT64_MAX / 4, "nor does 3/4 of it");
	check(outbox_backoff_ms(INT64_MAX / 2 + 1, INT64_MAX, 2, MIDDLE) ==
		  INT64_MAX, "doubling stops at the cap");
	check(outbox_backoff_ms(0, 0, 1, 0) == 1, "no wait is below 1 ms");
	check(outbox_backoff_ms(-5, -5, 7, UINT32_MAX) == 1,
		  "negative settings give 1 ms");
	check(outbox_backoff_ms(1, 600000, 1, 0) == 1, "1 ms stays 1 ms");
}

int
main(void)
{
	test_growth();
	test_cap();
	test_jitter();
	test_extremes();
	return done();
}
