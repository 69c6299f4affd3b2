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

#include "dead_letter.h"

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
header_error(OutboxQueue *queue, OutboxLink *link, OutboxItem *item,
			 const OutboxRoute *failed, size_t bytes)
{
	if (!item->locked)
		outbox_queue_unfit(queue, item,
						   outbox_link_header_error(link, item->message,
													failed->format, bytes));
	return item->unfit;
}

OutboxDeath *
outbox_dead_letter(OutboxQueue *queue, OutboxRoutes *routes, OutboxLink *link,
				   OutboxItem *item, const char **error)
{
	const char *why;
	OutboxRoute *failed = outbox_routes_failed(routes, item->route, &why);
	OutboxDeath *death = NULL;

	if (failed != NULL)
	{
		death = outbox_death(item->message, item->route, failed->name,
							 item->reason == OUTBOX_REASON_UNROUTABLE ?
							 "returned" : "rejected");
		if (outbox_routing_key(item->message, failed->routing_key, NULL) == NULL)
			why = "where its routing key would be too long";
		else
		{
			why = header_error(queue, link, item, failed,
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
