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
#include "reading.h"

/*
 * settler.c: what a round settles: when, and what becomes of it after the commit
 *
 * collect before the round's transaction, run in it, committed after it.
 */

#define OUTBOX_UNFLUSHED_KEYS	65536

/*
 * What was settled by commits that are not on disk yet.  A crash can lose it, and then
 * these messages are published again.  That is why they count against the window, which
 * bounds the duplicates, and why no other message of their keys may be published
 * before: it would be overtaken by an older one.  Two keys that share a bit cost a
 * flush more.
 */
typedef struct OutboxUnflushed
{
	int			count;			/* messages */
	XLogRecPtr	lsn;			/* where the last such commit ends */
	bool		dirty;			/* count or keys may not be empty */
	uint8		keys[OUTBOX_UNFLUSHED_KEYS / 8];	/* a bit for their hash */
} OutboxUnflushed;

typedef struct OutboxSettler
{
	OutboxQueue *queue;
	OutboxUnflushed unflushed;
	OutboxRoutes *routes;
	OutboxLink *link;
	int			nstuck;			/* CONFIRMED items whose row is locked */
	int			nstuck_rejected;	/* the same of REJECTED ones */
	OutboxMonoTime unstick_at;	/* try these again; unset: none */
	OutboxMonoTime settle_at;	/* settle what is confirmed then */
} OutboxSettler;

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

extern void outbox_settler_init(OutboxSettler *settler, OutboxQueue *queue,
								OutboxRoutes *routes, OutboxLink *link);

/* Brings what is unflushed to the disk. */
extern void outbox_unflushed_flush(OutboxUnflushed *unflushed);

/* Is one of the batch of a key that something unflushed may be of? */
extern bool outbox_unflushed_concerns(const OutboxUnflushed *unflushed,
									  const OutboxBatch *batch);

/* Confirmed and rejected items that can be settled now. */
extern int	outbox_settler_ready(const OutboxSettler *settler);

/* The next round settles all of it. */
extern void outbox_settler_hurry(OutboxSettler *settler);
extern bool outbox_settler_wanted(OutboxSettler *settler, OutboxMonoTime now);

/* Something, or a session, waits for the answers to what is in flight. */
extern bool outbox_settler_awaits_answers(const OutboxSettler *settler);
extern void outbox_settler_collect(OutboxSettler *settler,
								   OutboxSettling *settling);
extern void outbox_settler_run(OutboxSettler *settler,
							   OutboxSettling *settling);
extern void outbox_settler_committed(OutboxSettler *settler,
									 OutboxSettling *settling);

extern void outbox_settler_timers(OutboxSettler *settler, OutboxMonoTime now);

/*
 * How long an answer may be left unread, and what it said unsettled, where that
 * is not waited for: at everyday rates a wake-up and a transaction cost more than
 * all else that is done for a message (measured).
 */
#define OUTBOX_SETTLE_DELAY_MS	20

/* What is locked may be tried at once. */
extern void outbox_settler_unstick(OutboxSettler *settler);

/*
 * dead_letter.c: what becomes of a message that is given up: does it go to another route?
 */

/*
 * Its death, in the current context, if it goes to the failed_route of its route;
 * NULL if it becomes failed.  *error is what is stored as its last_error, and gets a
 * note if it should have gone there and cannot.
 */
extern OutboxDeath *outbox_dead_letter(OutboxSettler *settler, OutboxItem *item,
									   const char **error);

/* The server log says that a message has failed, once that is committed. */
extern void outbox_log_failed(const OutboxItem *item, const OutboxFailure *failure);

#endif							/* OUTBOX_SETTLING_H */
