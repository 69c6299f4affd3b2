/*-------------------------------------------------------------------------
 *
 * route_cap.h
 *		The most messages that a route may have (outbox_route.max_pending).
 *
 *-------------------------------------------------------------------------
 */
#ifndef OUTBOX_ROUTE_CAP_H
#define OUTBOX_ROUTE_CAP_H

#include "route.h"
#include "utils/relcache.h"

/*
 * Before a message of the route is stored in the table rel, on which the caller has a
 * lock: an ERROR (53400) when it has as many as it may.  asks: false for what is
 * stored however many there are.
 */
extern void outbox_cap_check(Relation rel, const OutboxRoute *route, bool asks);

#endif							/* OUTBOX_ROUTE_CAP_H */
