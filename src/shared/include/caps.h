/*-------------------------------------------------------------------------
 *
 * caps.h
 *		What is known of the routes that have a max_pending.
 *
 * For each of them the last count of its messages, and what was stored since: so
 * that a message is judged without counting.  What has gone since the count is not
 * known here, so it can only be too high; then it is counted again (route_cap.c).  A
 * crash of the server wipes it, and the next message counts.
 *
 * There is room for OUTBOX_CAPS routes of all databases.  One that finds none takes
 * the place of another, whose next message counts.
 *
 *-------------------------------------------------------------------------
 */
#ifndef OUTBOX_CAPS_H
#define OUTBOX_CAPS_H

/* In buckets, by a hash of the route. */
#define OUTBOX_CAPS_BUCKETS		64
#define OUTBOX_CAPS_IN_BUCKET	32
#define OUTBOX_CAPS				(OUTBOX_CAPS_BUCKETS * OUTBOX_CAPS_IN_BUCKET)

typedef enum OutboxCapVerdict
{
	OUTBOX_CAP_UNKNOWN,			/* to be counted */
	OUTBOX_CAP_ROOM,
	OUTBOX_CAP_FULL				/* as was counted a moment ago */
} OutboxCapVerdict;

/* Which route of which database it is about, and its max_pending. */
typedef struct OutboxCap
{
	Oid			dboid;
	int			most;
	uint64		route;			/* hash of its name */
} OutboxCap;

/* Without the library preloaded nothing is known, and nothing kept. */

/* May another message be stored?  ROOM: then it has been added. */
extern OutboxCapVerdict outbox_cap_admit(const OutboxCap *cap);

/* One is stored that nobody asks about. */
extern void outbox_cap_add(const OutboxCap *cap);

/* The same question as of outbox_cap_admit(), and what is known; -1: nothing. */
extern OutboxCapVerdict outbox_cap_look(const OutboxCap *cap, int64 *known);

/* So many were counted in so many microseconds; known: from before the count began. */
extern void outbox_cap_counted(const OutboxCap *cap, int64 known, int64 found,
							   int64 took_us);

#endif							/* OUTBOX_CAPS_H */
