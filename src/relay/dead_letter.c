/*-------------------------------------------------------------------------
 *
 * dead_letter.c
 *		What becomes of a message that is given up: does it go to another route?
 *
 * It does if its route has a failed_route, and if it could be sent there: its
 * headers get longer, that route may have a format that cannot carry it, and its
 * template makes another routing key of it.  What could not be sent there would fail for a second reason, which hides the
 * first, so it becomes failed where it is.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "dead_letter.h"

/* An entry of the header without its strings: names, kinds, lengths. */
#define DEATH_BYTES		192

static size_t
death_size(const OutboxDeath *death, const char *reason)
{
	return DEATH_BYTES + strlen(death->reason) + strlen(reason) +
		strlen(death->route) + strlen(death->exchange) +
		strlen(death->routing_key);
}

/* The routing key that the message has on a route; NULL: one that is too long. */
static char *
routing_key(const OutboxMessage *message, const OutboxRoute *route,
			const char *own)
{
	char		rendered[OUTBOX_SHORT_STRING_MAX + 1];

	if (own != NULL)
		return pstrdup(own);
	if (outbox_route_render(route->routing_key, message->event_type,
							message->aggregate_type, message->aggregate_id,
							rendered, sizeof(rendered)) >= sizeof(rendered))
		return NULL;
	return pstrdup(rendered);
}

static OutboxDeath *
make_death(const OutboxItem *item, const OutboxRoute *failed)
{
	const OutboxMessage *message = item->message;
	OutboxDeath *death = palloc(sizeof(OutboxDeath));
	char	   *key = routing_key(message, item->route, message->routing_key);

	death->target = failed->name;
	death->route = item->route->name;
	death->exchange = item->route->exchange;
	death->routing_key = key != NULL ? key : "";
	death->reason = item->returned ? "returned" : "rejected";
	death->attempts = message->attempts + 1;
	return death;
}

OutboxDeath *
outbox_dead_letter(OutboxRoutes *routes, OutboxLink *link,
				   const OutboxItem *item, const char **reason)
{
	const char *why;
	OutboxRoute *failed = outbox_routes_failed(routes, item->route, &why);
	OutboxDeath *death = NULL;

	if (failed != NULL)
	{
		death = make_death(item, failed);
		if (routing_key(item->message, failed, NULL) == NULL)
			why = "where its routing key would be too long";
		else
		{
			why = outbox_link_header_fault(link, item->message, failed->format,
										   death_size(death, *reason));
			if (why != NULL)
				why = psprintf("as %s", why);
		}
	}
	if (why == NULL)
		return death;
	*reason = psprintf("%s (not sent to the failed_route, %s)", *reason, why);
	return NULL;
}
