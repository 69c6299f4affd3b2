/*-------------------------------------------------------------------------
 *
 * relay_unknown.c
 *		What becomes of messages that were in flight when the link was lost.
 *
 * Everything that was sent and not confirmed is unknown, and becomes READY
 * again, in order.  When the broker closed the link because of a message, it
 * does not say of which: all of them are suspects, and go one at a time until
 * the guilty one is alone in flight when it happens again (see
 * doc/delivery.md, Errors).  So an innocent message is sent once more and no more
 * than that.  The guilty one goes alone in its later attempts, too, as long as
 * this process remembers it.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "relay_internal.h"

typedef struct UnknownItems
{
	OutboxItem **items;
	int			count;
} UnknownItems;

static void
collect_unknown(void *item, uint64_t tag, void *arg)
{
	UnknownItems *unknown = arg;

	(void) tag;
	unknown->items[unknown->count++] = item;
}

bool
outbox_relay_was_blamed(const OutboxRelay *relay, const OutboxMessage *message)
{
	if (message->attempts == 0)
		return false;
	for (uint32 i = 0; i < Min(relay->nblamed, OUTBOX_MAX_BLAMED); i++)
		if (memcmp(&relay->blamed[i], &message->id, UUID_LEN) == 0)
			return true;
	return false;
}

/* One message alone was in flight when the link was closed: it is it. */
static void
blame(OutboxRelay *relay, OutboxItem *item, const OutboxLinkError *error)
{
	if (error->destination)
	{
		OutboxRoute *route = item->route;

		outbox_queue_unknown(relay->queue, item, false);
		outbox_relay_route_broken(relay, route, error->text);
		return;
	}
	if (!outbox_relay_was_blamed(relay, item->message))
		relay->blamed[relay->nblamed++ % OUTBOX_MAX_BLAMED] = item->message->id;
	outbox_queue_rejected(relay->queue, item, error->text, error->hopeless);
}

bool
outbox_relay_reclaim_unknown(OutboxRelay *relay, const OutboxLinkError *error)
{
	UnknownItems unknown;
	bool		message = error != NULL && error->message;
	bool		blamed;

	unknown.items = palloc(sizeof(OutboxItem *) *
						   Max(relay->window.outstanding, 1));
	unknown.count = 0;
	outbox_confirms_each(&relay->window, collect_unknown, &unknown);
	outbox_confirms_reset(&relay->window);
	blamed = message && unknown.count == 1;
	if (blamed)
		blame(relay, unknown.items[0], error);
	else
		for (int i = unknown.count - 1; i >= 0; i--)
			outbox_queue_unknown(relay->queue, unknown.items[i], message);
	outbox_relay_stop_routes(relay);
	pfree(unknown.items);
	return blamed;
}
