/*-------------------------------------------------------------------------
 *
 * unread_ranges.c
 *		Which rows are still to be read: ranges of seq.
 *
 *-------------------------------------------------------------------------
 */
#include "unread_ranges.h"

#include <string.h>

void
outbox_unread_init(OutboxUnread *unread)
{
	memset(unread, 0, sizeof(*unread));
	unread->rest = (OutboxUnreadRange) {.lo = 1, .hi = INT64_MAX, .why = OUTBOX_UNREAD_NEW};
}

/* Of two times before which nothing has to be read. */
static OutboxMonoTime
earlier(OutboxMonoTime a, OutboxMonoTime b)
{
	return outbox_mono_before(a, b) ? a : b;	/* unset is now */
}

static void
remove_at(OutboxUnread *unread, int i)
{
	unread->n--;
	memmove(&unread->ranges[i], &unread->ranges[i + 1],
			sizeof(OutboxUnreadRange) * (size_t) (unread->n - i));
}

/* Range i + 1 becomes part of range i, and so does what lies between them. */
static void
merge_at(OutboxUnread *unread, int i)
{
	OutboxUnreadRange *range = &unread->ranges[i];
	const OutboxUnreadRange *next = range + 1;

	if (next->hi > range->hi)
		range->hi = next->hi;
	range->at = earlier(range->at, next->at);
	range->why |= next->why;
	remove_at(unread, i + 1);
}

static int64_t
length(const OutboxUnreadRange *range)
{
	return range->hi - range->lo;
}

/*
 * The same.  Many short ones must not be read in one statement, either.  One that has
 * the numbers of the other already has not grown: the last rows at a start stay new when
 * some of them are announced, too.
 */
static void
join_at(OutboxUnread *unread, int i)
{
	OutboxUnreadRange *range = &unread->ranges[i];
	OutboxUnreadRange before = *range;
	OutboxUnreadRange next = range[1];

	merge_at(unread, i);
	if (length(range) >= OUTBOX_MERGED_MAX &&
		length(range) > length(&before) && length(range) > length(&next))
		range->why |= OUTBOX_UNREAD_LEFT;
}

/* The two between which there is least: the first of them. */
static int
find_nearest(const OutboxUnread *unread)
{
	int			nearest = 0;

	for (int i = 1; i + 1 < unread->n; i++)
		if (unread->ranges[i + 1].lo - unread->ranges[i].hi <
			unread->ranges[nearest + 1].lo - unread->ranges[nearest].hi)
			nearest = i;
	return nearest;
}

/* Does range i + 1 belong to range i? */
static bool
are_one(const OutboxUnread *unread, int i)
{
	const OutboxUnreadRange *range = &unread->ranges[i];
	const OutboxUnreadRange *next = range + 1;

	if (next->lo <= range->hi)
		return true;

	/*
	 * One that can wait is not read with another one, again and again.  For
	 * others a row that is read in vain costs less than a statement.
	 */
	return !outbox_mono_is_set(range->at) && !outbox_mono_is_set(next->at) &&
		outbox_unread_is_left(range) == outbox_unread_is_left(next) &&
		next->lo - range->hi <= OUTBOX_RANGE_MERGE_DISTANCE;
}

/*
 * Takes the numbers from lo to hi out of range i, which has some of them.  Returns
 * false when that needs one range more than there may be.
 */
static bool
subtract(OutboxUnread *unread, int i, int64_t lo, int64_t hi)
{
	OutboxUnreadRange *range = &unread->ranges[i];
	OutboxUnreadRange above = *range;

	above.lo = hi + 1;
	if (range->lo >= lo && range->hi <= hi)
		remove_at(unread, i);
	else if (range->lo >= lo)
		range->lo = above.lo;
	else if (range->hi <= hi)
		range->hi = lo - 1;
	else if (unread->n == OUTBOX_UNREAD_MAX)
		return false;
	else
	{
		memmove(range + 2, range + 1,
				sizeof(OutboxUnreadRange) * (size_t) (unread->n - i - 1));
		range->hi = lo - 1;
		range[1] = above;
		unread->n++;
	}
	return true;
}

/* Subtracts them from all ranges, or from those that are LEFT. */
static bool
subtract_all(OutboxUnread *unread, int64_t lo, int64_t hi, bool left_only)
{
	/* From above, as a range may go or become two. */
	for (int i = unread->n - 1; i >= 0; i--)
	{
		const OutboxUnreadRange *range = &unread->ranges[i];

		if (range->hi >= lo && range->lo <= hi &&
			(!left_only || outbox_unread_is_left(range)) &&
			!subtract(unread, i, lo, hi))
			return false;
	}
	return true;
}

static void
insert(OutboxUnread *unread, OutboxUnreadRange range)
{
	int			i;

	if (unread->n == OUTBOX_UNREAD_MAX)
		join_at(unread, find_nearest(unread));
	for (i = unread->n; i > 0 && unread->ranges[i - 1].lo > range.lo; i--)
		unread->ranges[i] = unread->ranges[i - 1];
	unread->ranges[i] = range;
	unread->n++;
	if (i > 0 && are_one(unread, i - 1))
		join_at(unread, --i);
	while (i + 1 < unread->n && are_one(unread, i))
		join_at(unread, i);
}

/* The first range that is read before what is LEFT, and has some of these numbers. */
static const OutboxUnreadRange *
find_first_read(const OutboxUnread *unread, int64_t lo, int64_t hi)
{
	for (int i = 0; i < unread->n; i++)
	{
		const OutboxUnreadRange *range = &unread->ranges[i];

		if (range->hi >= lo && range->lo <= hi && !outbox_unread_is_left(range) &&
			outbox_unread_bars(range) && !outbox_mono_is_set(range->at))
			return range;
	}
	return NULL;
}

/* Around what is read first, as long as there is room. */
static void
insert_left(OutboxUnread *unread, OutboxUnreadRange range)
{
	const OutboxUnreadRange *first;

	while (unread->n < OUTBOX_UNREAD_MAX &&
		   (first = find_first_read(unread, range.lo, range.hi)) != NULL)
	{
		OutboxUnreadRange before = range;

		before.hi = first->lo - 1;
		range.lo = first->hi + 1;
		if (before.lo <= before.hi)
			insert(unread, before);
		if (range.lo > range.hi)
			return;
	}
	insert(unread, range);
}

void
outbox_unread_add(OutboxUnread *unread, int64_t lo, int64_t hi,
				  OutboxMonoTime at, int why)
{
	OutboxUnreadRange *rest = &unread->rest;
	OutboxUnreadRange range;

	if (hi >= rest->lo)
	{
		rest->at = earlier(rest->at, at);
		hi = rest->lo - 1;
	}
	if (lo < 1)
		lo = 1;
	if (lo > hi)
		return;
	/* What can wait becomes part of it; so does what there is no room for. */
	if (!(why & OUTBOX_UNREAD_LEFT) && !outbox_mono_is_set(at) &&
		!subtract_all(unread, lo, hi, true))
		why |= OUTBOX_UNREAD_LEFT;
	range = (OutboxUnreadRange) {.lo = lo, .hi = hi, .at = at, .why = why};
	if (why & OUTBOX_UNREAD_LEFT)
		insert_left(unread, range);
	else
		insert(unread, range);
}

void
outbox_unread_remove(OutboxUnread *unread, int64_t lo, int64_t hi)
{
	if (lo > hi)
		return;
	/* No room for two halves of one: it stays as it is. */
	(void) subtract_all(unread, lo, hi, false);

	/*
	 * The last number stays: a row may have it that the row trigger has not
	 * seen.
	 */
	if (hi >= unread->rest.lo && lo <= unread->rest.lo)
		unread->rest.lo = hi == INT64_MAX ? hi : hi + 1;
}

void
outbox_unread_rest_at(OutboxUnread *unread, OutboxMonoTime at)
{
	unread->rest.at = at;
}

void
outbox_unread_split(OutboxUnread *unread, int64_t hi)
{
	OutboxUnreadRange part = unread->rest;

	if (hi < part.lo)
		return;
	part.hi = hi;
	part.at = OUTBOX_MONO_UNSET;
	part.why = OUTBOX_UNREAD_LEFT;
	unread->rest.lo = hi + 1;
	insert(unread, part);
}

void
outbox_unread_coarsen(OutboxUnread *unread, int max)
{
	while (unread->n > max)
		merge_at(unread, find_nearest(unread));
}

bool
outbox_unread_contains(const OutboxUnread *unread, int64_t seq)
{
	for (int i = 0; i < unread->n; i++)
		if (unread->ranges[i].lo <= seq && seq <= unread->ranges[i].hi)
			return true;
	return seq >= unread->rest.lo;
}

bool
outbox_unread_due(const OutboxUnread *unread, OutboxMonoTime now)
{
	for (int i = 0; i < unread->n; i++)
		if (outbox_mono_reached(unread->ranges[i].at, now))
			return true;
	return outbox_mono_reached(unread->rest.at, now);
}

OutboxMonoTime
outbox_unread_next(const OutboxUnread *unread, OutboxMonoTime now)
{
	OutboxMonoTime next = OUTBOX_MONO_UNSET;

	for (int i = 0; i < unread->n; i++)
		if (!outbox_mono_reached(unread->ranges[i].at, now))
			outbox_mono_earlier(&next, unread->ranges[i].at);
	if (!outbox_mono_reached(unread->rest.at, now))
		outbox_mono_earlier(&next, unread->rest.at);
	return next;
}
