/*-------------------------------------------------------------------------
 *
 * settling.h
 *		What becomes of messages, and what of it is not on disk.
 *
 *-------------------------------------------------------------------------
 */
#ifndef OUTBOX_SETTLING_H
#define OUTBOX_SETTLING_H

#include "access/xlogdefs.h"
#include "broker.h"
#include "queue.h"
#include "reading.h"
#include "route_states.h"
#include "settings.h"
#include "store.h"

/* unflushed.c: what was settled by commits that are not on disk yet */

typedef struct OutboxUnflushed OutboxUnflushed;

/* A worker that was here before us may have settled anything, just now. */
extern OutboxUnflushed *outbox_unflushed_create(MemoryContext cxt);

/* A message of that key is being settled; add says by which commit. */
extern void outbox_unflushed_key(OutboxUnflushed *unflushed, int64 hash);

/* count messages were settled by a commit that ends at lsn. */
extern void outbox_unflushed_add(OutboxUnflushed *unflushed, int count,
								 XLogRecPtr lsn);

/* Forgets what is on disk meanwhile, by whomever; or brings it there. */
extern void outbox_unflushed_check(OutboxUnflushed *unflushed);
extern void outbox_unflushed_flush(OutboxUnflushed *unflushed);

/* How many messages; they count against the window. */
extern int	outbox_unflushed_count(const OutboxUnflushed *unflushed);

/* Is one of the batch of a key that something unflushed may be of? */
extern bool outbox_unflushed_concerns(const OutboxUnflushed *unflushed,
									  const OutboxBatch *batch);

/*
 * dead_letter.c: what becomes of a message that is given up: does it go to another route?
 */

/*
 * Its death, in the current context, if it goes to the failed_route of its route;
 * NULL if it becomes failed.  *error is what is stored as its last_error, and gets a
 * note if it should have gone there and cannot.
 */
extern OutboxDeath *outbox_dead_letter(OutboxQueue *queue, OutboxRoutes *routes,
									   OutboxLink *link, OutboxItem *item,
									   const char **error);

/* The server log says that a message has failed, once that is committed. */
extern void outbox_log_failed(const OutboxItem *item, const OutboxFailure *failure);

/*
 * settler.c: what a round settles: when, and what becomes of it after the commit
 *
 * collect before the round's transaction, run in it, committed after it.
 */

typedef struct OutboxSettler OutboxSettler;

/* What a round settles, collected before its transaction. */
typedef struct OutboxSettling
{
	int			nconfirmed;
	OutboxItem **confirmed;
	OutboxSettled *rows;
	bool	   *remains;		/* locked by somebody */
	bool		more;			/* confirmed ones are left for the next round */
	int			nrejected;
	OutboxItem **rejected;
	OutboxFailure *failures;
	bool	   *rejected_remains;	/* locked by somebody */
	bool		taken_away;		/* rows of rejected ones, by somebody */
} OutboxSettling;

/* So many are settled, and brought to the disk, at once: they take room from the window. */
#define OUTBOX_SETTLE_MANY	Max(outbox_window / 4, 1)

extern OutboxSettler *outbox_settler_create(MemoryContext cxt,
											OutboxQueue *queue,
											OutboxUnflushed *unflushed,
											OutboxRoutes *routes,
											OutboxLink *link);

/* Confirmed and rejected items that can be settled now. */
extern int	outbox_settler_ready(const OutboxSettler *settler);
extern bool outbox_settler_wanted(OutboxSettler *settler, OutboxMonoTime now);
extern void outbox_settler_collect(OutboxSettler *settler,
								   OutboxSettling *settling);
extern void outbox_settler_run(OutboxSettler *settler,
							   OutboxSettling *settling);
extern void outbox_settler_committed(OutboxSettler *settler,
									 OutboxSettling *settling);

/* When something is to be settled; and when what is locked is tried again. */
extern OutboxMonoTime outbox_settler_deadline(const OutboxSettler *settler);
extern OutboxMonoTime outbox_settler_unstick_at(const OutboxSettler *settler);
extern void outbox_settler_timers(OutboxSettler *settler, OutboxMonoTime now);

/* What is locked may be tried at once. */
extern void outbox_settler_unstick(OutboxSettler *settler);

#endif							/* OUTBOX_SETTLING_H */
