/*-------------------------------------------------------------------------
 *
 * route.h
 *		Routes: where messages go, and the template of the routing key.
 *
 *-------------------------------------------------------------------------
 */
#ifndef OUTBOX_ROUTE_H
#define OUTBOX_ROUTE_H

#include "amqp_limits.h"
#include "clock.h"
#include "datatype/timestamp.h"
#include "lib/ilist.h"

/* outbox_route.sequence: what is numbered for consumers, see numbering.c. */
typedef enum OutboxNumbering
{
	OUTBOX_NUMBER_NONE,
	OUTBOX_NUMBER_SEQ,
	OUTBOX_NUMBER_KEY
} OutboxNumbering;

/* outbox_route.archive: what of a published message is archived; see outcome.h. */
typedef enum OutboxArchive
{
	OUTBOX_ARCHIVE_MESSAGE,
	OUTBOX_ARCHIVE_METADATA,	/* all but the body */
	OUTBOX_ARCHIVE_NONE
} OutboxArchive;

#define OUTBOX_ARCHIVES	(OUTBOX_ARCHIVE_NONE + 1)

typedef struct OutboxRoute
{
	char	   *name;
	char	   *shown;			/* for people, in the database's encoding */
	char	   *exchange;
	char	   *exchange_type;	/* NULL: it has to exist */
	char	   *routing_key;	/* template */
	struct OutboxFormat *format;	/* NULL: plain */
	int			max_attempts;
	char	   *failed_route;	/* takes what is given up; or NULL */
	bool		ordered;		/* 'key' or 'pipelined' */
	bool		pipelined;
	bool		block_on_failed;
	bool		paused;
	OutboxNumbering numbering;
	const struct OutboxOutlet *outlet;	/* NULL: past the CHECK */
	char	   *slot;			/* of change data capture; NULL: any */
	int			max_pending;	/* messages that it may have; 0: no limit */
	int			retention_s;	/* in the archive; -1: outbox.retention */
	OutboxArchive archive;
	uint64		version;		/* another one when any of this has changed */

	/* The rest is the relay's; see route_table.c and route_states.c. */
	dlist_node	node;			/* of those that are watched */
	bool		watched;
	bool		lost;			/* outbox_route has no such row */
	bool		needed;			/* by what outbox_routes_forget() cannot see */
	uint32		load;			/* the last one that has found its row */
	int			nitems;			/* of its messages, in memory */
	int			nkeys;			/* of its keys, likewise */
	struct OutboxDeclaration *declaration;	/* of its exchange; NULL: the
											 * default one */
	bool		wants;			/* it, for a message */
	bool		awaits;			/* ... and leaves its messages in the table
								 * until then */
	bool		broken;			/* destination error, waits for retry_at */
	uint32		failures;		/* destination errors in a row */
	OutboxMonoTime retry_at;
	int			try_ms;			/* then it may hold others up for so long */
	OutboxMonoTime poison_until;	/* its share of closed links is used */
	bool		half_open;		/* it has rested: the next message goes alone */
	OutboxMonoTime worked_at;	/* the broker has answered a message of it */
	int64		skip_low;		/* rows from here on were passed over; 0 none */
	int			stats;			/* its entry, see stats.h */
	OutboxMonoTime quiet_until; /* no log line of what is given up, ... */
	uint32		untold;			/* ... of so many; see dead_letter.c */
} OutboxRoute;

/* Does what has failed hold the later ones of its key? */
static inline bool
outbox_route_blocks(const OutboxRoute *route)
{
	return route->ordered && route->block_on_failed;
}

/*
 * Renders the routing key of a message into buf, of size bytes.  Arguments are
 * NUL-terminated, aggregate_type and aggregate_id may be NULL.  Returns the full
 * length, which is size or more when the result did not fit and was cut.
 */
extern size_t outbox_route_render(const char *template, const char *event_type,
								  const char *aggregate_type,
								  const char *aggregate_id, char *buf,
								  size_t size);

/* The same, as a whole. */
extern char *outbox_route_rendered(const char *template, const char *event_type,
								   const char *aggregate_type, const char *aggregate_id);

/* NULL when a template is fine, else what is wrong with it. */
extern const char *outbox_route_template_error(const char *template);

/*
 * Outlets: who publishes the messages of a route.
 *
 * outbox_route.relay names a route's outlet.  outbox.outlet names that of a row; it is
 * NULL where the workers publish the row, so that rows and indexes of the workers are
 * as small as can be, and a claim of theirs excludes all other outlets, known or not.
 */

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

#endif							/* OUTBOX_ROUTE_H */
