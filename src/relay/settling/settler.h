/*-------------------------------------------------------------------------
 *
 * settler.h
 *		What a round settles: when, and what becomes of it after the commit.
 *
 * collect before the round's transaction, run in it, committed after it.
 *
 *-------------------------------------------------------------------------
 */
#ifndef OUTBOX_SETTLER_H
#define OUTBOX_SETTLER_H

#include "broker.h"
#include "queue.h"
#include "route_states.h"
#include "settings.h"
#include "store.h"
#include "unflushed.h"

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

#endif							/* OUTBOX_SETTLER_H */
