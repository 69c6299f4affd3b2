/*-------------------------------------------------------------------------
 *
 * unread_ranges.h
 *		Which rows are still to be read: ranges of seq.
 *
 * Everything that is unread is one of these ranges.  They are disjoint and in the
 * order of seq, and the last one has no end: what is committed from now on.  What
 * is not in them has been read, and each row of it is in memory, or settled, or
 * somebody else remembers it (its key, its route, the time when it is due).
 *
 * A range may be larger than what has to be read.  That costs reading, and nothing
 * else: rows that are in memory are passed.
 *
 * Plain C without a PostgreSQL header.
 *
 *-------------------------------------------------------------------------
 */
#ifndef OUTBOX_UNREAD_RANGES_H
#define OUTBOX_UNREAD_RANGES_H

#include "clock.h"
#include "sizes.h"

/*
 * Why a range is to be read; one that was merged has several reasons.  A range that
 * is LEFT (much of it: what piled up in an outage, say) is read beside the others
 * and not before them.  So what has another reason stays a range of its own inside of
 * it, with some of that on either side, whichever was added first.
 */
#define OUTBOX_UNREAD_NEW		0x01	/* after the last row that was read */
#define OUTBOX_UNREAD_LATE		0x02	/* became visible late, or was
										 * announced so */
#define OUTBOX_UNREAD_LEFT		0x04	/* much of it */
#define OUTBOX_UNREAD_RETURNED	0x08	/* went back from memory, or its route
										 * goes on */
#define OUTBOX_UNREAD_OVERTAKING 0x10	/* an older row of its key is unread */
#define OUTBOX_UNREAD_LOCKED	0x20	/* somebody had it locked; rows
										 * without order */
#define OUTBOX_UNREAD_SWEPT		0x40	/* found by a sweep */

typedef struct OutboxUnreadRange
{
	int64_t		lo;				/* both ends included */
	int64_t		hi;
	OutboxMonoTime at;			/* need not be read before; unset: now */
	int			why;
} OutboxUnreadRange;

typedef struct OutboxUnread
{
	int			n;
	OutboxUnreadRange ranges[OUTBOX_UNREAD_MAX];
	OutboxUnreadRange rest;		/* hi is INT64_MAX */
} OutboxUnread;

/* Everything is unread. */
extern void outbox_unread_init(OutboxUnread *unread);

/* These are unread (too), and need not be read before that time. */
extern void outbox_unread_add(OutboxUnread *unread, int64_t lo, int64_t hi,
							  OutboxMonoTime at, int why);

/* These have been read.  lo may be below what is unread, hi above it. */
extern void outbox_unread_remove(OutboxUnread *unread, int64_t lo, int64_t hi);

/* The rest need not be read before that time; unset: it is to be read now. */
extern void outbox_unread_rest_at(OutboxUnread *unread, OutboxMonoTime at);

/* The part of the rest up to hi becomes a range with an end. */
extern void outbox_unread_split(OutboxUnread *unread, int64_t hi);

/* Ranges become one, with what lies between, until there are at most so many. */
extern void outbox_unread_coarsen(OutboxUnread *unread, int max);

extern bool outbox_unread_contains(const OutboxUnread *unread, int64_t seq);

/* Is there something to read now, and when will there be?  Unset: never. */
extern bool outbox_unread_due(const OutboxUnread *unread, OutboxMonoTime now);
extern OutboxMonoTime outbox_unread_next(const OutboxUnread *unread,
										 OutboxMonoTime now);

static inline bool
outbox_unread_is_left(const OutboxUnreadRange *range)
{
	return (range->why & OUTBOX_UNREAD_LEFT) != 0;
}

/* Can the range have rows of keys, which newer ones must not overtake? */
static inline bool
outbox_unread_bars(const OutboxUnreadRange *range)
{
	return range->why != OUTBOX_UNREAD_LOCKED;
}

#endif							/* OUTBOX_UNREAD_RANGES_H */
