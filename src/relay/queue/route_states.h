/*-------------------------------------------------------------------------
 *
 * route_states.h
 *		Routes, as the worker has loaded them: which ones wait, and why.
 *
 *		usable --paused, deleted, or another relay's--> waits --resumed--> usable
 *		usable --broken--> waits, until its backoff is over --> usable
 *		usable --poison too often--> waits, until its rest is over --> usable
 *
 * The messages of a route that waits are dropped from memory and left out of
 * claims; from where they have to be read again is kept in its skip_low.  Whoever
 * lets routes go on gets to know it, and has them read.
 *
 *-------------------------------------------------------------------------
 */
#ifndef OUTBOX_ROUTE_STATES_H
#define OUTBOX_ROUTE_STATES_H

#include "nodes/pg_list.h"
#include "queue.h"
#include "route.h"
#include "store.h"

typedef struct OutboxRoutes OutboxRoutes;

/* Rows to be read again, as their routes, or their keys, go on. */
typedef struct OutboxResumed
{
	bool		any;			/* waiting rows may be among them, too */
	int64		from;			/* the lowest number; 0: none that was ready */
} OutboxResumed;

extern OutboxRoutes *outbox_routes_create(MemoryContext cxt,
										  OutboxQueue *queue);

/* The route of that name; one that nobody has made waits. */
extern OutboxRoute *outbox_routes_find(OutboxRoutes *routes,
									   const char *name);

/* Reads them, and the control row.  end: no row from there on has been read. */
extern void outbox_routes_load(OutboxRoutes *routes, OutboxControl *control,
							   int64 end, OutboxResumed *resumed);

/*
 * Where goes what is given up on this route?  NULL: nowhere, and *why, if not NULL,
 * says why not although it should.
 */
extern OutboxRoute *outbox_routes_failed(OutboxRoutes *routes,
										 const OutboxRoute *route,
										 const char **why);

extern bool outbox_route_waits(const OutboxRoute *route);

/* Rows of the route from seq on are in the table only. */
extern void outbox_route_skip(OutboxRoute *route, int64 seq);

/* A claim from seq on has left the rows of waiting routes out. */
extern void outbox_routes_passed_over(OutboxRoutes *routes, int64 seq);

/* Names of those that wait, in the current context. */
extern List *outbox_routes_excluded(OutboxRoutes *routes);

/* Messages are ready again: those of routes that wait are not. */
extern void outbox_routes_stop(OutboxRoutes *routes, int64 end);

/*
 * A destination error, with the broker's reply code (0: none) and words; and a
 * message that went out.
 */
extern void outbox_route_broken(OutboxRoutes *routes, OutboxRoute *route,
								int code, const char *reason, int64 end);

/* Its row seq is marked as the workers', and its relay is another one. */
extern void outbox_route_refuse(OutboxRoute *route, int64 seq);
extern void outbox_route_works(OutboxRoute *route, OutboxMonoTime now);

/*
 * The broker has closed the link because of one of its messages.  True: it rests, so
 * what is sent next is another one's.
 */
extern bool outbox_route_met_poison(OutboxRoutes *routes, OutboxRoute *route,
									int64 end);

/* Lets those go on whose backoff, or rest, is over. */
extern void outbox_routes_retry(OutboxRoutes *routes, OutboxMonoTime now,
								OutboxResumed *resumed);

/* When the next one may; unset: none waits for the time. */
extern OutboxMonoTime outbox_routes_deadline(const OutboxRoutes *routes);

/* Is there one with ordering = 'none'? */
extern bool outbox_routes_have_unordered(const OutboxRoutes *routes);

/* Is there one on which what has failed holds its key? */
extern bool outbox_routes_block(const OutboxRoutes *routes);

/* Those whose last try met a destination error. */
extern int	outbox_routes_count_broken(const OutboxRoutes *routes);

/* The lowest number that one of them skips from; PG_INT64_MAX: none does. */
extern int64 outbox_routes_lowest(const OutboxRoutes *routes);

/* Its exchange is there. */
extern void outbox_route_declared(OutboxRoute *route);

/* On a new connection every exchange is looked at again. */
extern void outbox_routes_forget_declared(OutboxRoutes *routes);

#endif							/* OUTBOX_ROUTE_STATES_H */
