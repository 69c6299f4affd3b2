/*-------------------------------------------------------------------------
 *
 * test_unread_ranges.c
 *		Unit tests of src/relay/reading/unread_ranges.c.
 *
 * The last test compares with a model that is too simple to be wrong: for each
 * number whether it is unread, from when on, and whether newer rows may pass it.
 * A range may be larger than that, never smaller.
 *
 *-------------------------------------------------------------------------
 */
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "check.h"
#include "unread_ranges.h"

#define NOW		OUTBOX_MONO_UNSET
#define AT(t)	((OutboxMonoTime) {(t)})
#define NUMBERS 20000

static OutboxUnread unread;

/* Everything up to that number has been read. */
static void
start(int64_t last)
{
	outbox_unread_init(&unread);
	outbox_unread_remove(&unread, 1, last);
}

static bool
is_range(int i, int64_t lo, int64_t hi, int64_t at, int why)
{
	const OutboxUnreadRange *range = &unread.ranges[i];

	return i < unread.n && range->lo == lo && range->hi == hi &&
		range->at.us == at && range->why == why;
}

static void
test_rest(void)
{
	outbox_unread_init(&unread);
	check(unread.n == 0 && unread.rest.lo == 1, "at first, all is unread");
	check(outbox_unread_contains(&unread, 1) &&
		  outbox_unread_contains(&unread, INT64_MAX), "the last number, too");
	check(outbox_unread_due(&unread, AT(5)), "and to be read now");
	outbox_unread_remove(&unread, 1, 10);
	check(unread.rest.lo == 11 && unread.n == 0, "what is read moves its start");
	outbox_unread_remove(&unread, 13, 12);
	outbox_unread_remove(&unread, 5, 9);
	check(unread.rest.lo == 11, "nothing, or less, does not");
	unread.rest.at = AT(100);
	outbox_unread_add(&unread, 50, 60, NOW, OUTBOX_UNREAD_LATE);
	check(unread.n == 0 && unread.rest.at.us == 0,
		  "news behind the start make it due");
	outbox_unread_split(&unread, 30);
	check(is_range(0, 11, 30, 0, OUTBOX_UNREAD_LEFT) && unread.rest.lo == 31,
		  "a part gets an end");
	outbox_unread_split(&unread, 30);
	check(unread.n == 1 && unread.rest.lo == 31, "an empty part is none");
	outbox_unread_add(&unread, -5, INT64_MAX, NOW, OUTBOX_UNREAD_RETURNED);
	check(is_range(0, 1, 30, 0, OUTBOX_UNREAD_RETURNED),
		  "from below the first number to behind the last");
}

static void
test_merge(void)
{
	start(100000);
	outbox_unread_add(&unread, 1000, 1000, NOW, OUTBOX_UNREAD_LATE);
	outbox_unread_add(&unread, 500, 510, NOW, OUTBOX_UNREAD_LATE);
	outbox_unread_add(&unread, 2000, 2010, NOW, OUTBOX_UNREAD_LATE);
	check(unread.n == 3 && unread.ranges[0].lo == 500 &&
		  unread.ranges[2].hi == 2010, "in their order");
	outbox_unread_add(&unread, 1005, 1005, NOW, OUTBOX_UNREAD_SWEPT);
	check(unread.n == 3 &&
		  is_range(1, 1000, 1005, 0, OUTBOX_UNREAD_LATE | OUTBOX_UNREAD_SWEPT),
		  "close ones become one, with both reasons");
	outbox_unread_add(&unread, 505, 2005, NOW, OUTBOX_UNREAD_RETURNED);
	check(unread.n == 1 && unread.ranges[0].lo == 500 &&
		  unread.ranges[0].hi == 2010, "and those that are overlapped");

	start(100000);
	for (int64_t seq = 100; seq < 50000; seq += OUTBOX_RANGE_MERGE_DISTANCE)
		outbox_unread_add(&unread, seq, seq, NOW, OUTBOX_UNREAD_LATE);
	check(unread.n > 2, "a chain of close ones does not become one however long");
	for (int i = 0; i < unread.n; i++)
		check(unread.ranges[i].hi - unread.ranges[i].lo < OUTBOX_MERGED_MAX ||
			  outbox_unread_is_left(&unread.ranges[i]), "nor is a long one read at once");
	start(1000000);
	for (int64_t seq = 100; seq < 900000; seq += 5000)
		outbox_unread_add(&unread, seq, seq, NOW, OUTBOX_UNREAD_LATE);
	check(outbox_unread_is_left(&unread.ranges[0]), "nor one of which too many became part");

	start(100000);
	outbox_unread_add(&unread, 1, 100000, NOW, OUTBOX_UNREAD_LEFT);
	outbox_unread_add(&unread, 90001, 100000, NOW, OUTBOX_UNREAD_NEW);
	outbox_unread_add(&unread, 100000, 100000, NOW, OUTBOX_UNREAD_LATE);
	check(unread.n == 2 && !outbox_unread_is_left(&unread.ranges[1]),
		  "what is announced within a long one does not make it wait");
}

static void
test_later(void)
{
	start(100000);
	outbox_unread_add(&unread, 500, 500, AT(50), OUTBOX_UNREAD_LOCKED);
	outbox_unread_add(&unread, 501, 501, NOW, OUTBOX_UNREAD_LATE);
	unread.rest.at = AT(200);
	check(unread.n == 2, "what can wait is not read with its neighbour");
	check(!outbox_unread_bars(&unread.ranges[0]) &&
		  outbox_unread_bars(&unread.ranges[1]), "nor does it hold up keys");
	check(outbox_unread_due(&unread, AT(10)), "one is due");
	check(outbox_unread_next(&unread, AT(10)).us == 50, "when the next is");
	outbox_unread_remove(&unread, 501, 501);
	check(!outbox_unread_due(&unread, AT(49)) &&
		  outbox_unread_due(&unread, AT(50)), "the other at its time");
	check(outbox_unread_next(&unread, AT(50)).us == 200, "then the rest");
	outbox_unread_add(&unread, 400, 600, NOW, OUTBOX_UNREAD_LATE);
	check(is_range(0, 400, 600, 0, OUTBOX_UNREAD_LATE | OUTBOX_UNREAD_LOCKED) &&
		  outbox_unread_bars(&unread.ranges[0]), "sooner within another one");
}

static void
test_remove(void)
{
	start(100000);
	outbox_unread_add(&unread, 100, 200, NOW, OUTBOX_UNREAD_LATE);
	outbox_unread_add(&unread, 300, 400, NOW, OUTBOX_UNREAD_LATE);
	outbox_unread_remove(&unread, 100, 120);
	check(unread.ranges[0].lo == 121, "the beginning");
	outbox_unread_remove(&unread, 190, 350);
	check(unread.n == 2 && unread.ranges[0].hi == 189 &&
		  unread.ranges[1].lo == 351, "an end and a beginning");
	outbox_unread_remove(&unread, 150, 160);
	check(unread.n == 3 && unread.ranges[0].hi == 149 &&
		  unread.ranges[1].lo == 161, "the middle");
	outbox_unread_remove(&unread, 1, 1000);
	check(unread.n == 0, "all of them");
	outbox_unread_remove(&unread, 1, INT64_MAX);
	check(unread.rest.lo == INT64_MAX, "the end has no end");
}

static void
test_left(void)
{
	start(100000);
	outbox_unread_add(&unread, 1000, 50000, NOW, OUTBOX_UNREAD_LEFT);
	outbox_unread_add(&unread, 3000, 3001, NOW, OUTBOX_UNREAD_LATE);
	check(unread.n == 3 && is_range(0, 1000, 2999, 0, OUTBOX_UNREAD_LEFT) &&
		  is_range(1, 3000, 3001, 0, OUTBOX_UNREAD_LATE) &&
		  is_range(2, 3002, 50000, 0, OUTBOX_UNREAD_LEFT),
		  "what comes late inside of what is left is a range of its own");
	outbox_unread_add(&unread, 999, 1001, NOW, OUTBOX_UNREAD_LATE);
	check(unread.n == 4 && unread.ranges[0].hi == 1001 &&
		  unread.ranges[1].lo == 1002, "also at its beginning");
	outbox_unread_remove(&unread, 3000, 3001);
	check(unread.n == 3 && !outbox_unread_contains(&unread, 3000),
		  "when it is read, there is a hole");
	outbox_unread_add(&unread, 2500, 3500, NOW,
					  OUTBOX_UNREAD_LEFT | OUTBOX_UNREAD_OVERTAKING);
	check(unread.n == 2 && unread.ranges[1].lo == 1002 &&
		  unread.ranges[1].hi == 50000, "which more of the same closes");
	outbox_unread_add(&unread, 60000, 60001, NOW, OUTBOX_UNREAD_LATE);
	outbox_unread_add(&unread, 1002, 60005, NOW,
					  OUTBOX_UNREAD_LEFT | OUTBOX_UNREAD_OVERTAKING);
	check(unread.n == 4 && is_range(1, 1002, 59999, 0, OUTBOX_UNREAD_LEFT | OUTBOX_UNREAD_OVERTAKING) &&
		  is_range(2, 60000, 60001, 0, OUTBOX_UNREAD_LATE) && unread.ranges[3].lo == 60002,
		  "what comes late is no part of what is left around it later");
	outbox_unread_remove(&unread, 50001, 70000);
	for (int i = 0; i < 100; i++)
		outbox_unread_add(&unread, 2000 + i * 200, 2000 + i * 200, NOW,
						  OUTBOX_UNREAD_LATE);
	check(unread.n <= OUTBOX_UNREAD_MAX && outbox_unread_contains(&unread, 21800),
		  "when there are too many, some are read with what is left");
}

static void
test_many(void)
{
	bool		all = true;

	start(1000000);
	for (int i = 1; i <= 1000; i++)
		outbox_unread_add(&unread, i * 1000, i * 1000, NOW, OUTBOX_UNREAD_LATE);
	for (int i = 1; i <= 1000; i++)
		all = all && outbox_unread_contains(&unread, i * 1000);
	check(unread.n == OUTBOX_UNREAD_MAX && all, "more than fit: none is lost");
	/* A hole in one, and no room for two. */
	outbox_unread_remove(&unread, unread.ranges[0].lo + 1,
						 unread.ranges[0].lo + 1);
	check(unread.n <= OUTBOX_UNREAD_MAX, "and one cannot be halved");
	outbox_unread_coarsen(&unread, 3);
	all = true;
	for (int i = 1; i <= 1000; i++)
		all = all && outbox_unread_contains(&unread, i * 1000);
	check(unread.n == 3 && all, "also when there may be three only");
}

/* ------------------------------------------------------------------- model */

static bool model[NUMBERS + 1];
static int	model_at[NUMBERS + 1];
static bool model_bars[NUMBERS + 1];

static const OutboxUnreadRange *
range_of(int seq)
{
	for (int i = 0; i < unread.n; i++)
		if (unread.ranges[i].lo <= seq && seq <= unread.ranges[i].hi)
			return &unread.ranges[i];
	return seq >= unread.rest.lo ? &unread.rest : NULL;
}

static bool
agrees(void)
{
	for (int i = 0; i + 1 < unread.n; i++)
		if (unread.ranges[i].hi >= unread.ranges[i + 1].lo)
			return false;
	if (unread.n > 0 && unread.ranges[unread.n - 1].hi >= unread.rest.lo)
		return false;
	for (int seq = 1; seq <= NUMBERS; seq++)
	{
		const OutboxUnreadRange *range = range_of(seq);

		if (!model[seq])
			continue;
		if (range == NULL || (range != &unread.rest &&
							  (range->at.us > model_at[seq] ||
							   (model_bars[seq] && !outbox_unread_bars(range)))))
			return false;
	}
	return true;
}

static void
random_step(void)
{
	int64_t		lo = 1 + rand() % NUMBERS;
	int64_t		hi = lo + (rand() % 4 == 0 ? rand() % 3000 : rand() % 10);
	bool		locked = rand() % 3 == 0;
	int			why = rand() % 4 == 0 ? OUTBOX_UNREAD_LEFT : OUTBOX_UNREAD_LATE;
	int			at = locked ? 1 + rand() % 100 : 0;

	if (rand() % 2 == 0)
	{
		outbox_unread_remove(&unread, lo, hi);
		for (int64_t seq = lo; seq <= hi && seq <= NUMBERS; seq++)
			model[seq] = false;
		return;
	}
	outbox_unread_add(&unread, lo, hi, AT(at),
					  locked ? OUTBOX_UNREAD_LOCKED : why);
	for (int64_t seq = lo; seq <= hi && seq <= NUMBERS; seq++)
	{
		model_at[seq] = model[seq] && model_at[seq] < at ? model_at[seq] : at;
		model_bars[seq] = (model[seq] && model_bars[seq]) || !locked;
		model[seq] = true;
	}
}

static void
test_model(unsigned int seed)
{
	bool		good = true;

	srand(seed);
	start(NUMBERS / 2);
	for (int seq = NUMBERS / 2 + 1; seq <= NUMBERS; seq++)
	{
		model[seq] = true;
		model_at[seq] = 0;
		model_bars[seq] = true;
	}
	for (int i = 0; i < 2000 && good; i++)
	{
		random_step();
		good = agrees();
	}
	check(good, "2000 random steps agree with the model (seed %u)", seed);
}

int
main(void)
{
	const char *seed = getenv("OUTBOX_TEST_SEED");

	test_rest();
	test_merge();
	test_later();
	test_remove();
	test_left();
	test_many();
	test_model(seed != NULL ? (unsigned int) atol(seed) :
			   (unsigned int) time(NULL));
	return done();
}
