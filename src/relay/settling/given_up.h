/*-------------------------------------------------------------------------
 *
 * given_up.h
 *		What the server log says of messages that are given up.
 *
 *-------------------------------------------------------------------------
 */
#ifndef OUTBOX_GIVEN_UP_H
#define OUTBOX_GIVEN_UP_H

#include "queue.h"
#include "store.h"

/* One of a route's is, and that is committed. */
extern void outbox_given_up(const OutboxItem *item, const OutboxFailure *failure);

#endif							/* OUTBOX_GIVEN_UP_H */
