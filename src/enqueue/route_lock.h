/*-------------------------------------------------------------------------
 *
 * route_lock.h
 *		Locks of routes: who enqueues, and who takes a route away.
 *
 *-------------------------------------------------------------------------
 */
#ifndef OUTBOX_ROUTE_LOCK_H
#define OUTBOX_ROUTE_LOCK_H

/*
 * The transaction uses the route until it ends.  Returns false, without wait, when a
 * transaction that changes the route has it.
 */
extern bool outbox_route_lock(const char *route, bool wait);

#endif							/* OUTBOX_ROUTE_LOCK_H */
