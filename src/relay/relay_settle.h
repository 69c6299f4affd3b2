/*-------------------------------------------------------------------------
 *
 * relay_settle.h
 *		What a round settles, and the functions of relay_settle.c.
 *
 * collect before the round's transaction, run in it, committed after it.
 *
 *-------------------------------------------------------------------------
 */
#ifndef OUTBOX_RELAY_SETTLE_H
#define OUTBOX_RELAY_SETTLE_H

#include "relay_internal.h"
#include "settings.h"

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

/* Confirmed and rejected items that can be settled now. */
extern int	outbox_settling_ready(OutboxRelay *relay);
extern bool outbox_settling_wanted(OutboxRelay *relay, OutboxMonoTime now);
extern void outbox_settling_collect(OutboxRelay *relay,
									OutboxSettling *settling);
extern void outbox_settling_run(OutboxRelay *relay, OutboxSettling *settling);
extern void outbox_settling_committed(OutboxRelay *relay,
									  OutboxSettling *settling);

#endif							/* OUTBOX_RELAY_SETTLE_H */
