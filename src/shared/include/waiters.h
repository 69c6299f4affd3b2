/*-------------------------------------------------------------------------
 *
 * waiters.h
 *		Who waits for a message (outbox_wait()), and what was settled recently.
 *
 * A backend that waits has an entry with the id, one at a time, found by its
 * PGPROC.  It registers first and looks at the tables then, with a new snapshot; the
 * worker settles, commits, and looks for waiters then.  So whatever is settled is
 * either seen by that look or told.  While nobody waits, that costs a worker one
 * read of a counter for each round.
 *
 * Where nothing is archived a published message leaves no row.  So each database
 * has a ring of the ids that were settled last.  An id is put there before the
 * transaction that removes its row commits: who sees that the row is gone finds it
 * there.  A row that still exists overrides an id in the ring: its transaction may
 * have aborted.  An id is there with its route, as whoever asks is told of some
 * routes only.
 *
 *-------------------------------------------------------------------------
 */
#ifndef OUTBOX_WAITERS_H
#define OUTBOX_WAITERS_H

#include "utils/uuid.h"

/* What a waiter is told. */
typedef enum OutboxVerdict
{
	OUTBOX_VERDICT_NONE,
	OUTBOX_VERDICT_LOOK,		/* look again: somebody has changed or removed
								 * rows */
	OUTBOX_VERDICT_PUBLISHED,
	OUTBOX_VERDICT_FAILED
} OutboxVerdict;

/* A ring of ids. */
typedef struct OutboxRecentlySettled OutboxRecentlySettled;

/*
 * Of a backend: from begin to end it waits for that message.  end may be called
 * without a begin, and cannot fail.
 */
extern void outbox_waiter_begin(const pg_uuid_t *id);

/* What it was told since it last asked; its latch is set for it. */
extern OutboxVerdict outbox_waiter_verdict(void);
extern void outbox_waiter_end(void);

/* Is any backend of that database waiting? */
extern bool outbox_waiters_exist(Oid dboid);

/* Asks for each waiter of a database what to tell it.  Cannot fail if ask cannot. */
typedef OutboxVerdict (*OutboxAskVerdict) (const pg_uuid_t *id, void *arg);
extern void outbox_waiters_tell(Oid dboid, OutboxAskVerdict ask, void *arg);

/* All of them are to look again. */
extern void outbox_waiters_look(Oid dboid);

/*
 * The ring of a database; NULL: it has none, because no worker of it has run, or
 * those of more than OUTBOX_STATS_DATABASES others have run since.
 */
extern OutboxRecentlySettled *outbox_recent_find(Oid dboid);

/* route: its name in the database's encoding. */
extern void outbox_recent_add(OutboxRecentlySettled *recent, const pg_uuid_t *id,
							  const char *route);

/*
 * Was the id settled recently on a route for which ask says yes?  It is asked with the
 * hash that outbox_recent_hash() gives the name, and with others that no route has.
 */
typedef bool (*OutboxAskRoute) (uint64 hash, void *arg);
extern bool outbox_recent_has(OutboxRecentlySettled *recent, const pg_uuid_t *id,
							  OutboxAskRoute ask, void *arg);
extern uint64 outbox_recent_hash(const char *route);

#endif							/* OUTBOX_WAITERS_H */
