/*-------------------------------------------------------------------------
 *
 * usable_route.h
 *		Routes as a backend of the application sees them.
 *
 *-------------------------------------------------------------------------
 */
#ifndef OUTBOX_USABLE_ROUTE_H
#define OUTBOX_USABLE_ROUTE_H

#include "route.h"

/*
 * The route of that name as it is committed now (or changed by this transaction),
 * for the extension in that schema whose tables owner has; an ERROR (42704) when
 * there is none, or when user may not enqueue to it (42501; InvalidOid: anybody
 * may).  Valid until the next call.
 *
 * The transaction has the route's lock from then on (route_lock.h): who removes the
 * route waits for it.
 */
extern const OutboxRoute *outbox_usable_route(Oid schema, Oid owner,
											  const char *name, Oid user);

/* The same without the lock, for who enqueues nothing. */
extern const OutboxRoute *outbox_permitted_route(Oid schema, Oid owner,
												 const char *name, Oid user);

/* The same for the external relay of a route: user must be in relay_roles (42501). */
extern const OutboxRoute *outbox_relay_route(Oid schema, Oid owner,
											 const char *name, Oid user);

/* May user enqueue to the route of that name?  No, when there is none. */
extern bool outbox_route_allows(Oid schema, Oid owner, const char *name, Oid user);

/* A copy of the name of the route that has that hash (waiters.h), or NULL. */
extern char *outbox_route_of_hash(Oid schema, Oid owner, uint64 hash);

/* Is there a route of that name now? */
extern bool outbox_route_exists(Oid schema, Oid owner, const char *name);

/* TRUNCATE of the table outbox_route is an ERROR, before anything is waited for. */
extern void outbox_route_refuse_truncation(Oid relid);

#endif							/* OUTBOX_USABLE_ROUTE_H */
