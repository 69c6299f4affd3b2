/*-------------------------------------------------------------------------
 *
 * test_seq_ranges.c
 *		Unit tests of src/shared/seq_ranges.c.
 *
 * The last test compares with a model that is too simple to be wrong: the numbers that
 * were added, in a sorted list.  Ranges may contain more, never less, and not more than
 * what the rule says.
 *
 *-------------------------------------------------------------------------
 */
#include <stdlib.h>
#include <time.h>

#include "check.h"
#include "seq_ranges.h"
#include "sizes.h"

#define MAX		8
#define NEAR	OUTBOX_RANGE_MERGE_DISTANCE

static OutboxRange ranges[MAX + 1];
static int	n;

static void
add(int64_t lo, int64_t hi)
{
	outbox_ranges_add(ranges, &n, MAX, (OutboxRange) {lo, hi});
}

static bool
is_range(int i, int64_t lo, int64_t hi)
{
	return i < n && ranges[i].lo == lo && ranges[i].hi == hi;
}

static bool
contains(int64_t seq)
{
	for (int i = 0; i < n; i++)
		if (ranges[i].lo <= seq && seq <= ranges[i].hi)
			return true;
	return false;
}

static void
test_near(void)
{
	n = 0;
	add(1000, 1000);
	add(1001, 1001);
	check(n == 1 && is_range(0, 1000, 1001), "the next number extends a range");
	add(1001 + NEAR, 1001 + NEAR);
	check(n == 1 && is_range(0, 1000, 1001 + NEAR), "so does one that is near");
	add(1000 - NEAR, 1000 - NEAR);
	check(n == 1 && is_range(0, 1000 - NEAR, 1001 + NEAR), "on either side");
	add(1002 + 2 * NEAR, 1002 + 2 * NEAR);
	check(n == 2 && is_range(1, 1002 + 2 * NEAR, 1002 + 2 * NEAR), "one that is further away does not");
	add(1005, 1006);
	check(n == 2, "what is contained changes nothing");
	add(500, 500);
	check(n == 3 && is_range(0, 500, 500), "ranges are in the order of seq");
	add(400, 5000);
	check(n == 1 && is_range(0, 400, 5000), "those that are overlapped become one");
}

static void
test_bound(void)
{
	n = 0;
	for (int i = 0; i < MAX; i++)
		add(10000 * i, 10000 * i + 5);
	check(n == MAX && is_range(MAX - 1, 10000 * (MAX - 1), 10000 * (MAX - 1) + 5), "as many as there may be");
	add(1000000, 1000000);
	check(n == MAX && is_range(0, 0, 10005) && is_range(MAX - 1, 1000000, 1000000),
		  "with one more the two nearest become one, and the new one stays alone");
	add(1000500, 1000500);
	check(n == MAX && is_range(MAX - 1, 1000000, 1000500), "unless the new one is nearest to another");
	add(19000, 19000);
	check(n == MAX && is_range(1, 19000, 20005), "on either side");
	n = 0;
	for (int i = 0; i < 3; i++)
		outbox_ranges_add(ranges, &n, 1, (OutboxRange) {1000000 - 1000 * i, 1000000 + 1000 * i});
	outbox_ranges_add(ranges, &n, 1, (OutboxRange) {1, 1});
	check(n == 1 && is_range(0, 1, 1002000), "with room for one it contains all");
}

static void
test_any_number(void)
{
	n = 0;
	add(INT64_MIN, INT64_MIN);
	add(INT64_MAX, INT64_MAX);
	add(-5, -5);
	add(3, 3);
	check(n == 3 && is_range(1, -5, 3) && contains(INT64_MIN) && contains(INT64_MAX),
		  "any number can be a seq");
}

static bool
widens(OutboxRange *range, int64_t lo, int64_t hi, int64_t to_lo, int64_t to_hi)
{
	OutboxRange other = {lo, hi};

	outbox_range_widen(range, other);
	return range->lo == to_lo && range->hi == to_hi;
}

static void
test_hull(void)
{
	OutboxRange hull;
	OutboxRange nothing = {0, 0};

	n = 0;
	hull = outbox_ranges_hull(ranges, n);
	check(hull.lo == 0 && hull.hi == 0, "the hull of nothing is no number of a row");
	add(70, 80);
	add(10000, 10000);
	hull = outbox_ranges_hull(ranges, n);
	check(hull.lo == 70 && hull.hi == 10000, "a hull is from the first to the last number");
	check(widens(&hull, 0, 0, 70, 10000), "it is as wide with nothing");
	check(widens(&hull, 60, 80, 60, 10000), "and wider with what is before it");
	check(widens(&hull, 9000, 20000, 60, 20000), "or behind it");
	check(widens(&nothing, 60, 80, 60, 80), "nothing becomes what is added");
}

/* ------------------------------------------------------------------- model */

#define NUMBERS 300

static int64_t numbers[NUMBERS];

static int
compare(const void *a, const void *b)
{
	int64_t		left = *(const int64_t *) a;
	int64_t		right = *(const int64_t *) b;

	return left < right ? -1 : left > right;
}

static bool
well_formed(void)
{
	for (int i = 0; i < n; i++)
		if (ranges[i].lo > ranges[i].hi || (i > 0 && ranges[i].lo - ranges[i - 1].hi <= NEAR))
			return false;
	return n <= MAX;
}

/* Each is in a range, and each range begins and ends with one. */
static bool
agrees(int count)
{
	int			ends = 0;
	bool		all = true;

	qsort(numbers, (size_t) count, sizeof(int64_t), compare);
	for (int j = 0; j < count; j++)
	{
		all = all && contains(numbers[j]);
		for (int i = 0; i < n && (j == 0 || numbers[j] != numbers[j - 1]); i++)
			ends += (numbers[j] == ranges[i].lo) + (numbers[j] == ranges[i].hi);
	}
	return all && ends == 2 * n && well_formed();
}

static void
test_model(unsigned int seed)
{
	bool		good = true;

	srand(seed);
	for (int round = 0; round < 200 && good; round++)
	{
		int64_t		spread = 1 + rand() % 100000;

		n = 0;
		for (int count = 0; count < NUMBERS && good; count++)
		{
			int64_t		seq = count > 0 && rand() % 2 == 0 ? numbers[rand() % count] + rand() % 100 : rand() % spread;

			numbers[count] = seq;
			add(seq, seq);
			good = agrees(count + 1);
		}
	}
	check(good, "random numbers agree with the model (seed %u)", seed);
}

int
main(void)
{
	const char *seed = getenv("OUTBOX_TEST_SEED");

	test_near();
	test_bound();
	test_any_number();
	test_hull();
	test_model(seed != NULL ? (unsigned int) atol(seed) :
			   (unsigned int) time(NULL));
	return done();
}
