/*-------------------------------------------------------------------------
 *
 * unreadable.h
 *		Rows that cannot be read, and are set aside.
 *
 * One of them makes every claim fail that comes to it.  So claims leave it out, in the
 * version that could not be read, and it holds its key as a failed message does.  Only
 * the worker's memory has the list: a new worker reads the row again, and so does this
 * one when routes, settings or the control row were loaded again, which the sweep does
 * each minute.
 *
 *		set_aside --> SET ASIDE --ask--> ASKED --claimed, changed, gone--> forgotten
 *		                  ^                 |
 *		                  +----set_aside----+
 *
 *-------------------------------------------------------------------------
 */
#ifndef OUTBOX_UNREADABLE_H
#define OUTBOX_UNREADABLE_H

#include "route_states.h"
#include "store.h"

/* With one more, the database counts as failing, and nothing is published. */
#define OUTBOX_UNREADABLE_MAX	64

typedef struct OutboxUnreadable OutboxUnreadable;

extern OutboxUnreadable *outbox_unreadable_create(MemoryContext cxt,
												  OutboxRoutes *routes);

/*
 * A claim has failed because of that row.  False: it is not set aside, as there are
 * too many, or its key is unknown.
 */
extern bool outbox_unreadable_set_aside(OutboxUnreadable *list,
										const OutboxUnreadableRow *row,
										const char *error, const char *sqlstate);

/* All of them are to be read again; seqs gets the numbers, there are n. */
extern int	outbox_unreadable_ask(OutboxUnreadable *list, int64 *seqs);

/* Called in a transaction: forgets those that have changed or are gone; likewise. */
extern int	outbox_unreadable_check(OutboxUnreadable *list, int64 *seqs);

/* A message of that id was read. */
extern void outbox_unreadable_read(OutboxUnreadable *list, const pg_uuid_t *id);

/* Those that are set aside, in the current context; there are n. */
extern const OutboxUnreadableRow *outbox_unreadable_left_out(const OutboxUnreadable *list,
														 int *n);

/* The route of the one of that id that is set aside, or NULL. */
extern const OutboxRoute *outbox_unreadable_route(const OutboxUnreadable *list,
												  const pg_uuid_t *id);

/* Is it set aside, and does not hold its key? */
extern bool outbox_unreadable_passes(const OutboxUnreadable *list, const pg_uuid_t *id);

/* Is one set aside that holds that key's rows from seq on? */
extern bool outbox_unreadable_holds(const OutboxUnreadable *list, int64 hash, int64 seq);

/* Is one of that number set aside? */
extern bool outbox_unreadable_leads_to(const OutboxUnreadable *list, int64 seq);

#endif							/* OUTBOX_UNREADABLE_H */
