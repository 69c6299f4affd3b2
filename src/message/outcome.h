/*-------------------------------------------------------------------------
 *
 * outcome.h
 *		What becomes of a message that was published, or could not be.
 *
 * The rules for the worker and for external relays; the store writes what follows.
 *
 *-------------------------------------------------------------------------
 */
#ifndef OUTBOX_OUTCOME_H
#define OUTBOX_OUTCOME_H

#include "message.h"
#include "reason_codes.h"
#include "route.h"

/* Name of the header that tells of a dead letter's way. */
#define OUTBOX_DEATH_HEADER	"x-outbox-death"

/*
 * A message that is given up, and goes to the failed_route of its route.  Strings
 * are UTF-8, as in OutboxMessage.
 */
typedef struct OutboxDeath
{
	const char *target;			/* route that it goes to */
	const char *route;			/* route, exchange and routing key that it had */
	const char *exchange;
	const char *routing_key;
	const char *reason;			/* one word */
	int			attempts;
} OutboxDeath;

/* A failed attempt. */
typedef struct OutboxFailure
{
	pg_uuid_t	id;
	OutboxReason reason;
	const char *error;			/* UTF-8 */
	bool		error_is_text;	/* it came from this database, so it fits in */
	int64		retry_ms;		/* wait before the next attempt */
	bool		final;			/* becomes failed, unless */
	const OutboxDeath *death;	/* this is not NULL */
} OutboxFailure;

/* How much of the route's published messages is archived: nothing where the retention is 0. */
extern OutboxArchive outbox_archived(const OutboxRoute *route);

/*
 * An attempt of the message has failed: is it given up, and else when is the next one?
 * permanent: no later attempt can end otherwise.  The death is the caller's to decide.
 */
extern OutboxFailure outbox_failure(const OutboxMessage *message,
									const OutboxRoute *route, OutboxReason reason,
									const char *error, bool permanent);

/*
 * The routing key by a template, or own if that is not NULL, in the current context;
 * NULL: it is longer than AMQP allows.
 */
extern char *outbox_routing_key(const OutboxMessage *message, const char *template,
								const char *own);

/* Its death on the way from route to target, in the current context. */
extern OutboxDeath *outbox_death(const OutboxMessage *message,
								 const OutboxRoute *route, const char *target,
								 const char *reason);

#endif							/* OUTBOX_OUTCOME_H */
