/*-------------------------------------------------------------------------
 *
 * outlet.h
 *		Outlets: who publishes the messages of a route.
 *
 * outbox_route.relay names a route's outlet.  outbox.outlet names that of a row; it is
 * NULL where the workers publish the row, so that rows and indexes of the workers are
 * as small as can be, and a claim of theirs excludes all other outlets, known or not.
 *
 *-------------------------------------------------------------------------
 */
#ifndef OUTBOX_OUTLET_H
#define OUTBOX_OUTLET_H

#include "datatype/timestamp.h"
#include "route.h"

/* A row that enters a route, by INSERT or from another route. */
typedef struct OutboxNewRow
{
	bool		insert;
	bool		pending;		/* its status */
	TimestampTz available_at;	/* DT_NOBEGIN: at once */
} OutboxNewRow;

typedef struct OutboxOutlet
{
	const char *name;
	bool		excluded;		/* claims of the workers exclude its rows */
	bool		transient;		/* the INSERT of a row removes it, too */

	/*
	 * NULL, or an ERROR for a row that it cannot publish; may change
	 * available_at
	 */
	void		(*judge) (const OutboxRoute *route, OutboxNewRow *row);

	/* NULL, or: does this statement remove a row that the outlet releases? */
	bool		(*releases) (void);

	/*
	 * NULL, or told that slot of one of its routes was written, with its old
	 * value
	 */
	void		(*forget_slot) (const char *slot);
} OutboxOutlet;

extern const OutboxOutlet outbox_internal_outlet;

/* All outlets, in the order in which people are told of them; src/outbox.c. */
extern const OutboxOutlet *const *outbox_outlets;
extern int	outbox_noutlets;

/* The relay sets it in its processes: what they store was accepted before. */
extern bool outbox_is_relay;

/* NULL: there is none of that name. */
extern const OutboxOutlet *outbox_outlet_find(const char *name);

/* Does this statement remove a row that an outlet releases?  Nobody waits for that. */
extern bool outbox_outlet_releases(void);

/* Do the workers leave the messages of the route alone? */
static inline bool
outbox_route_is_excluded(const OutboxRoute *route)
{
	return route->outlet == NULL || route->outlet->excluded;
}

#endif							/* OUTBOX_OUTLET_H */
