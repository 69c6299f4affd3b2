/*-------------------------------------------------------------------------
 *
 * waiting.h
 *		Waiting for the latch, the socket, the time; and the pace of claims.
 *
 *-------------------------------------------------------------------------
 */
#ifndef OUTBOX_WAITING_H
#define OUTBOX_WAITING_H

#include "broker.h"
#include "clock.h"

typedef struct OutboxWaiting OutboxWaiting;

/* What there is to wait for. */
typedef struct OutboxWaitFor
{
	bool		open;			/* there is a connection, opened at that time */
	OutboxMonoTime opened_at;
	bool		confirms;		/* that we wait for */
	bool		may_nap;		/* what is in memory needs nobody's hand */
	int64		timeout_ms;
} OutboxWaitFor;

extern OutboxWaiting *outbox_waiting_create(MemoryContext cxt,
											OutboxLink *link);
/*
 * Waits for the latch, the socket if there is one, or so many milliseconds.
 * Returns whether the socket is readable.
 */
extern bool outbox_waiting_wait(OutboxWaiting *waiting,
								const OutboxWaitFor *wait);
/* A round has claimed something. */
extern void outbox_waiting_claimed(OutboxWaiting *waiting);

#endif							/* OUTBOX_WAITING_H */
