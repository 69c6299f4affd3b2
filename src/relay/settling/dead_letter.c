/*-------------------------------------------------------------------------
 *
 * dead_letter.c
 *		What becomes of a message that is given up: does it go to another route?
 *
 * It does if its route has a failed_route, and if it could be sent there: its
 * headers get longer, that route may have a format that cannot carry it, and its
 * template makes another routing key of it.  What could not be sent there would fail
 * for a second reason, which hides the first, so it becomes failed where it is.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "settling.h"

/* An entry of the header without its strings: names, kinds, lengths. */
#define DEATH_BYTES		192

static size_t
death_size(const OutboxDeath *death, const char *error)
{
	return DEATH_BYTES + strlen(death->reason) + strlen(error) +
		strlen(death->route) + strlen(death->exchange) +
		strlen(death->routing_key);
}

/* A locked item has left its contents, and what was found before stands. */
static const char *
header_error(OutboxSettler *settler, OutboxItem *item, const OutboxRoute *failed,
			 size_t bytes)
{
	if (!item->locked)
		outbox_queue_unfit(settler->queue, item,
						   outbox_link_header_error(settler->link, item->message,
													failed->format, bytes));
	return item->unfit;
}

OutboxDeath *
outbox_dead_letter(OutboxSettler *settler, OutboxItem *item, const char **error)
{
	const char *why;
	OutboxRoute *failed = outbox_routes_failed(settler->routes, item->route, &why);
	OutboxDeath *death = NULL;

	if (failed != NULL)
	{
		/* The round may load the routes again before it writes this. */
		death = outbox_death(item->message, item->route, pstrdup(failed->name),
							 item->reason == OUTBOX_REASON_UNROUTABLE ?
							 "returned" : "rejected");
		death->exchange = pstrdup(death->exchange);
		if (outbox_routing_key(item->message, failed->routing_key, NULL) == NULL)
			why = "where its routing key would be too long";
		else
		{
			why = header_error(settler, item, failed,
							   death_size(death, *error));
			if (why != NULL)
				why = psprintf("as %s", why);
		}
	}
	if (why == NULL)
		return death;
	*error = psprintf("%s (not sent to the failed_route, %s)", *error, why);
	return NULL;
}

/*
 * Lines of the server log about messages that have failed.
 *
 * The log says that messages of a route fail, and not each of them: with a binding that
 * is missing it is all of them.  So a route has a line at most each minute, with
 * the number of those that had none, and outbox_failed has the rest.  A line has what
 * leads to the message (id, route, key, attempt), and nothing of its content.
 */

#define SILENT_MS	60000

/* In the database's encoding, and bounded. */
static char *
shown(const char *utf8)
{
	char	   *text = palloc(OUTBOX_TEXT_SIZE);

	outbox_shared_copy_text(text, OUTBOX_TEXT_SIZE, utf8);
	return text;
}

static char *
key_of(const OutboxMessage *message)
{
	if (message->aggregate_id == NULL)
		return "without a key";
	if (message->aggregate_type == NULL)
		return psprintf("key \"%s\"", shown(message->aggregate_id));
	return psprintf("key \"%s\" \"%s\"", shown(message->aggregate_type),
					shown(message->aggregate_id));
}

void
outbox_log_failed(const OutboxItem *item, const OutboxFailure *failure)
{
	OutboxRoute *route = item->route;
	const OutboxMessage *message = item->message;
	OutboxMonoTime now = outbox_mono_now();
	uint32		untold = route->untold;

	if (outbox_mono_is_set(route->quiet_until) &&
		!outbox_mono_reached(route->quiet_until, now))
	{
		route->untold++;
		return;
	}
	route->quiet_until = outbox_mono_after(SILENT_MS);
	route->untold = 0;
	ereport(LOG,
			(failure->death != NULL ?
			 errmsg("outbox relay has given up a message of route \"%s\", which goes to route \"%s\"",
					route->shown, shown(failure->death->target)) :
			 errmsg("outbox relay has given up a message of route \"%s\"",
					route->shown),
			 untold > 0 ?
			 errdetail("Message %s, %s, attempt %d: %s; %u others were given up since the last line.",
					   outbox_id_text(&message->id), key_of(message), message->attempts + 1,
					   shown(failure->error), untold) :
			 errdetail("Message %s, %s, attempt %d: %s.",
					   outbox_id_text(&message->id), key_of(message), message->attempts + 1,
					   shown(failure->error)),
			 failure->death != NULL ? 0 :
			 errhint("The view outbox_failed has it; outbox_requeue() tries it again, outbox_discard() removes it.")));
}
