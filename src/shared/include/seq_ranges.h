/*-------------------------------------------------------------------------
 *
 * seq_ranges.h
 *		A few ranges of seq that contain all numbers which were added to them.
 *
 * They are in the order of seq, and neither overlap nor lie close to each other.  They may
 * contain other numbers, too: those between two ranges that have become one.
 *
 * Plain C without a PostgreSQL header.
 *
 *-------------------------------------------------------------------------
 */
#ifndef OUTBOX_SEQ_RANGES_H
#define OUTBOX_SEQ_RANGES_H

#include <stdint.h>

/* Both ends included. */
typedef struct OutboxRange
{
	int64_t		lo;
	int64_t		hi;
} OutboxRange;

/*
 * Adds a range to *n others, of which there may be max; the array has room for one more.
 * Ranges that are no further apart than OUTBOX_RANGE_MERGE_DISTANCE become one.  With one
 * range too many, the two nearest do.
 */
extern void outbox_ranges_add(OutboxRange *ranges, int *n, int max, OutboxRange range);

/* The one range that contains all of them; 0 to 0: there are none. */
extern OutboxRange outbox_ranges_hull(const OutboxRange *ranges, int n);

/* Until it contains the other one, too; 0 to 0 contains nothing. */
extern void outbox_range_widen(OutboxRange *range, OutboxRange other);

#endif							/* OUTBOX_SEQ_RANGES_H */
