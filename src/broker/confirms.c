/*-------------------------------------------------------------------------
 *
 * confirms.c
 *		Window of unconfirmed deliveries: delivery tag to item.
 *
 * Invariants: oldest <= next, next - oldest <= size; the slots of the tags
 * oldest to next - 1 hold the outstanding items and NULL for settled ones; the
 * slot of oldest is not NULL unless oldest == next.
 *
 *-------------------------------------------------------------------------
 */
#include "confirms.h"

static void **
slot(const OutboxConfirms *window, uint64_t tag)
{
	return &window->ring[tag % window->size];
}

size_t
outbox_confirms_ring_bytes(uint32_t size)
{
	return sizeof(void *) * (size_t) size;
}

void
outbox_confirms_init(OutboxConfirms *window, void **ring, uint32_t size)
{
	window->ring = ring;
	window->size = size;
	outbox_confirms_reset(window);
}

void
outbox_confirms_reset(OutboxConfirms *window)
{
	uint32_t	i;

	for (i = 0; i < window->size; i++)
		window->ring[i] = NULL;
	window->outstanding = 0;
	window->oldest = 1;
	window->next = 1;
}

bool
outbox_confirms_full(const OutboxConfirms *window)
{
	return window->next - window->oldest >= window->size;
}

uint64_t
outbox_confirms_add(OutboxConfirms *window, void *item)
{
	*slot(window, window->next) = item;
	window->outstanding++;
	return window->next++;
}

/* Empties one slot; visit runs last, when the window is consistent again. */
static void
settle_one(OutboxConfirms *window, uint64_t tag, OutboxConfirmsVisit visit,
		   void *arg)
{
	void	   *item = *slot(window, tag);

	if (item == NULL)
		return;
	*slot(window, tag) = NULL;
	window->outstanding--;
	while (window->oldest < window->next && *slot(window, window->oldest) == NULL)
		window->oldest++;
	visit(item, tag, arg);
}

bool
outbox_confirms_answer(OutboxConfirms *window, uint64_t tag, bool multiple,
					   OutboxConfirmsVisit visit, void *arg)
{
	if (tag >= window->next)
		return false;
	if (!multiple)
	{
		if (tag < window->oldest || *slot(window, tag) == NULL)
			return false;
		settle_one(window, tag, visit, arg);
		return true;
	}

	if (tag == 0)
		tag = window->next - 1;

	/* each round settles the oldest, which moves oldest on */
	while (window->oldest <= tag && window->oldest < window->next)
		settle_one(window, window->oldest, visit, arg);
	return true;
}

void *
outbox_confirms_find(const OutboxConfirms *window, OutboxConfirmsMatch match,
					 const void *key)
{
	uint64_t	tag;

	for (tag = window->oldest; tag < window->next; tag++)
	{
		void	   *item = *slot(window, tag);

		if (item != NULL && match(item, key))
			return item;
	}
	return NULL;
}

void
outbox_confirms_each(const OutboxConfirms *window, OutboxConfirmsVisit visit,
					 void *arg)
{
	uint64_t	tag;

	for (tag = window->oldest; tag < window->next; tag++)
	{
		void	   *item = *slot(window, tag);

		if (item != NULL)
			visit(item, tag, arg);
	}
}
