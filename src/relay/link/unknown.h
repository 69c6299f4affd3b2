/*-------------------------------------------------------------------------
 *
 * unknown.h
 *		What becomes of messages that were in flight when the link was lost.
 *
 *-------------------------------------------------------------------------
 */
#ifndef OUTBOX_UNKNOWN_H
#define OUTBOX_UNKNOWN_H

#include "broker.h"
#include "confirms.h"
#include "queue.h"

/* The messages because of which the broker closed the link. */
typedef struct OutboxBlame OutboxBlame;

/* What has become of those in flight. */
typedef struct OutboxBlamed
{
	bool		any;			/* one was alone, and is to blame */
	OutboxRoute *broken;		/* its route rather than itself; or NULL */
	OutboxRoute *guilty;		/* the route of one that is itself to blame; or NULL */
} OutboxBlamed;

extern OutboxBlame *outbox_blame_create(MemoryContext cxt, OutboxQueue *queue);

/*
 * Everything unconfirmed becomes READY again, and the window is empty.  error: why
 * the link was lost; NULL: we have closed it.
 */
extern OutboxBlamed outbox_blame_unknown(OutboxBlame *blame,
										 OutboxConfirms *window,
										 const OutboxLinkError *error);
extern bool outbox_blame_was_blamed(const OutboxBlame *blame,
									const OutboxMessage *message);

#endif							/* OUTBOX_UNKNOWN_H */
