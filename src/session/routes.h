/*-------------------------------------------------------------------------
 *
 * routes.h
 *		Routes as a backend of the application sees them.
 *
 *-------------------------------------------------------------------------
 */
#ifndef OUTBOX_ROUTES_H
#define OUTBOX_ROUTES_H

#include "route.h"

/*
 * The route of that name as it is committed now (or changed by this transaction),
 * for the extension in that schema whose tables owner has; an ERROR (42704) when
 * there is none, or when user may not enqueue to it (42501; InvalidOid: anybody
 * may).  Valid until the next call.
 *
 * Whoever removes a route waits for those who hold RowExclusiveLock on the table
 * outbox, and they learn of it with the lock: the caller has it.
 */
extern const OutboxRoute *outbox_usable_route(Oid schema, Oid owner,
											  const char *name, Oid user);

/* Is there a route of that name?  Under the same lock. */
extern bool outbox_route_exists(Oid schema, Oid owner, const char *name);

#endif							/* OUTBOX_ROUTES_H */
