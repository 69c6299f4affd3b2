/*-------------------------------------------------------------------------
 *
 * poison.c
 *		What becomes of messages that were in flight when the link was lost.
 *
 * Everything that was sent and not confirmed is unknown, and becomes READY again,
 * in order.  When the broker closed the link because of a message, it does not
 * say of which: each may be the poison message, and they go one at a time until
 * it is alone in flight when the link is closed again (see doc/delivery.md, Three
 * classes of errors).  So an innocent message is sent once more and no more than
 * that.  The guilty one goes alone in its later attempts, too, as long as this
 * process remembers it.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "link_parts.h"
#include "utils/memutils.h"

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
outbox_poison_is_known(const OutboxPoison *poison, const OutboxMessage *message)
{
	if (message->attempts == 0)
		return false;
	for (uint32 i = 0; i < Min(poison->nknown, OUTBOX_MAX_POISON); i++)
		if (memcmp(&poison->known[i], &message->id, UUID_LEN) == 0)
			return true;
	return false;
}

/* One message alone was in flight when the link was closed: it is it. */
static OutboxPoisonFound
judge_alone(OutboxPoison *poison, OutboxQueue *queue, OutboxItem *item,
			const OutboxLinkError *error)
{
	OutboxRoute *route = item->route;

	if (error->destination)
	{
		outbox_queue_unknown(queue, item, false);
		return (OutboxPoisonFound) {true, route, NULL};
	}
	if (!outbox_poison_is_known(poison, item->message))
		poison->known[poison->nknown++ % OUTBOX_MAX_POISON] = item->message->id;
	outbox_queue_rejected(queue, item, OUTBOX_REASON_MESSAGE_REFUSED,
						  error->text, error->permanent);
	return (OutboxPoisonFound) {true, NULL, route};
}

OutboxPoisonFound
outbox_poison_reclaim(OutboxPoison *poison, OutboxQueue *queue,
					  OutboxConfirms *window, const OutboxLinkError *error)
{
	UnknownItems unknown;
	OutboxPoisonFound found = {false, NULL, NULL};
	bool		message = error != NULL && error->message;

	unknown.items = palloc(sizeof(OutboxItem *) * Max(window->outstanding, 1));
	unknown.count = 0;
	outbox_confirms_each(window, collect_unknown, &unknown);
	outbox_confirms_reset(window);
	if (message && unknown.count == 1)
		found = judge_alone(poison, queue, unknown.items[0], error);
	else
		for (int i = unknown.count - 1; i >= 0; i--)
			outbox_queue_unknown(queue, unknown.items[i], message);
	pfree(unknown.items);
	return found;
}
