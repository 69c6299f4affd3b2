/*-------------------------------------------------------------------------
 *
 * seq_ranges.c
 *		A few ranges of seq that contain all numbers which were added to them.
 *
 *-------------------------------------------------------------------------
 */
#include "seq_ranges.h"

#include <stdbool.h>
#include <string.h>

#include "sizes.h"

/* From the end of one range to the beginning of a later one; unsigned, as a seq may be any number. */
static uint64_t
gap(const OutboxRange *range, const OutboxRange *later)
{
	return later->lo <= range->hi ? 0 : (uint64_t) later->lo - (uint64_t) range->hi;
}

static bool
is_near(const OutboxRange *range)
{
	return gap(range, range + 1) <= OUTBOX_RANGE_MERGE_DISTANCE;
}

/* Range i + 1 becomes part of range i, and so do the numbers between them. */
static void
merge_at(OutboxRange *ranges, int *n, int i)
{
	if (ranges[i + 1].hi > ranges[i].hi)
		ranges[i].hi = ranges[i + 1].hi;
	--*n;
	for (int j = i + 1; j < *n; j++)
		ranges[j] = ranges[j + 1];
}

static void
merge_nearest(OutboxRange *ranges, int *n)
{
	int			nearest = 0;

	for (int i = 1; i + 1 < *n; i++)
		if (gap(&ranges[i], &ranges[i + 1]) < gap(&ranges[nearest], &ranges[nearest + 1]))
			nearest = i;
	merge_at(ranges, n, nearest);
}

void
outbox_ranges_add(OutboxRange *ranges, int *n, int max, OutboxRange range)
{
	int			i;

	/* From the end, where new numbers are. */
	for (i = *n; i > 0 && ranges[i - 1].lo > range.lo; i--)
		ranges[i] = ranges[i - 1];
	ranges[i] = range;
	++*n;
	if (i > 0 && is_near(&ranges[i - 1]))
		merge_at(ranges, n, --i);
	while (i + 1 < *n && is_near(&ranges[i]))
		merge_at(ranges, n, i);
	if (*n > max)
		merge_nearest(ranges, n);
}

void
outbox_range_widen(OutboxRange *range, OutboxRange other)
{
	if (range->hi == 0)
		*range = other;
	else if (other.hi != 0)
	{
		if (other.lo < range->lo)
			range->lo = other.lo;
		if (other.hi > range->hi)
			range->hi = other.hi;
	}
}

OutboxRange
outbox_ranges_hull(const OutboxRange *ranges, int n)
{
	if (n == 0)
		return (OutboxRange) {0, 0};
	return (OutboxRange) {ranges[0].lo, ranges[n - 1].hi};
}
