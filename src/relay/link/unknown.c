/*-------------------------------------------------------------------------
 *
 * unknown.c
 *		What becomes of messages that were in flight when the link was lost.
 *
 * Everything that was sent and not confirmed is unknown, and becomes READY
 * again, in order.  When the broker closed the link because of a message, it
 * does not say of which: all of them are suspects, and go one at a time until
 * the guilty one is alone in flight when it happens again (see
 * doc/delivery.md, Three classes of errors).  So an innocent message is sent once
 * more and no more than that.  The guilty one goes alone in its later attempts,
 * too, as long as this process remembers it.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "link_parts.h"
#include "utils/memutils.h"

/* Messages that are sent alone because the broker closed the link because of them. */
#define MAX_BLAMED		64

struct OutboxBlame
{
	OutboxQueue *queue;
	pg_uuid_t	blamed[MAX_BLAMED]; /* the latest */
	uint32		nblamed;		/* ever */
};

typedef struct UnknownItems
{
	OutboxItem **items;
	int			count;
} UnknownItems;

OutboxBlame *
outbox_blame_create(MemoryContext cxt, OutboxQueue *queue)
{
	OutboxBlame *blame = MemoryContextAllocZero(cxt, sizeof(OutboxBlame));

	blame->queue = queue;
	return blame;
}

static void
collect_unknown(void *item, uint64_t tag, void *arg)
{
	UnknownItems *unknown = arg;

	(void) tag;
	unknown->items[unknown->count++] = item;
}

bool
outbox_blame_was_blamed(const OutboxBlame *blame, const OutboxMessage *message)
{
	if (message->attempts == 0)
		return false;
	for (uint32 i = 0; i < Min(blame->nblamed, MAX_BLAMED); i++)
		if (memcmp(&blame->blamed[i], &message->id, UUID_LEN) == 0)
			return true;
	return false;
}

/* One message alone was in flight when the link was closed: it is it. */
static OutboxBlamed
blame_item(OutboxBlame *blame, OutboxItem *item, const OutboxLinkError *error)
{
	if (error->destination)
	{
		OutboxRoute *route = item->route;

		outbox_queue_unknown(blame->queue, item, false);
		return (OutboxBlamed) {true, route, NULL};
	}
	if (!outbox_blame_was_blamed(blame, item->message))
		blame->blamed[blame->nblamed++ % MAX_BLAMED] = item->message->id;
	outbox_queue_rejected(blame->queue, item, OUTBOX_REASON_MESSAGE_REFUSED,
						  error->text, error->hopeless);
	return (OutboxBlamed) {true, NULL, item->route};
}

OutboxBlamed
outbox_blame_unknown(OutboxBlame *blame, OutboxConfirms *window,
					 const OutboxLinkError *error)
{
	UnknownItems unknown;
	OutboxBlamed blamed = {false, NULL, NULL};
	bool		message = error != NULL && error->message;

	unknown.items = palloc(sizeof(OutboxItem *) * Max(window->outstanding, 1));
	unknown.count = 0;
	outbox_confirms_each(window, collect_unknown, &unknown);
	outbox_confirms_reset(window);
	if (message && unknown.count == 1)
		blamed = blame_item(blame, unknown.items[0], error);
	else
		for (int i = unknown.count - 1; i >= 0; i--)
			outbox_queue_unknown(blame->queue, unknown.items[i], message);
	pfree(unknown.items);
	return blamed;
}
