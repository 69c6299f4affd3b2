/*-------------------------------------------------------------------------
 *
 * prepared.c
 *		Prepared transactions, which tell nobody how they end.
 *
 * They hand their rows over at PREPARE, and are asked about until they have ended.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "upkeep.h"
#include "utils/memutils.h"

void
outbox_prepared_reserve(OutboxPreparedList *list, int n)
{
	int			wanted = list->n + n;

	if (wanted <= list->max)
		return;
	wanted = Max(wanted, 2 * list->max);
	if (list->list == NULL)
		list->list = MemoryContextAlloc(TopMemoryContext, sizeof(OutboxPrepared) * wanted);
	else
		list->list = repalloc(list->list, sizeof(OutboxPrepared) * wanted);
	list->max = wanted;
}

static OutboxPrepared *
find_known(const OutboxPreparedList *list, TransactionId xid)
{
	for (int i = 0; i < list->n; i++)
		if (list->list[i].xid == xid)
			return &list->list[i];
	return NULL;
}

/*
 * A transaction that stays prepared is found each time that others of its database are
 * lost, and may be found before its own word is there.
 */
void
outbox_prepared_add(OutboxPreparedList *list, const OutboxPrepared *prepared)
{
	OutboxPrepared *known = find_known(list, prepared->xid);

	if (known == NULL)
	{
		outbox_prepared_reserve(list, 1);
		list->list[list->n++] = *prepared;
		return;
	}
	known->signals |= prepared->signals;
	outbox_range_widen(&known->range, prepared->range);
	/* Unknown, DT_NOBEGIN, is the earliest. */
	if (known->next_due == 0 ||
		(prepared->next_due != 0 && prepared->next_due < known->next_due))
		known->next_due = prepared->next_due;
}

void
outbox_prepared_lost(OutboxPreparedList *list, const OutboxRange *range)
{
	if (!list->find)
		list->range = *range;
	else
		outbox_range_widen(&list->range, *range);
	list->find = true;
}

/* Of those that are found it is unknown what they have changed. */
OutboxRange
outbox_prepared_find(OutboxPreparedList *list)
{
	OutboxPrepared prepared;
	int			n;
	TransactionId *xids = outbox_store_prepared(&n);

	prepared.signals = OUTBOX_PREPARED_SIGNALS;
	prepared.range = list->range;
	prepared.next_due = DT_NOBEGIN;
	for (int i = 0; i < n; i++)
	{
		prepared.xid = xids[i];
		outbox_prepared_add(list, &prepared);
	}
	list->find = false;
	return prepared.range;
}

void
outbox_prepared_check(OutboxPreparedList *list,
					  bool (*ended) (TransactionId xid),
					  OutboxPreparedEnded visit, void *arg)
{
	for (int i = 0; i < list->n;)
	{
		OutboxPrepared *prepared = &list->list[i];

		Assert(find_known(list, prepared->xid) == prepared);
		if (!ended(prepared->xid))
		{
			i++;
			continue;
		}
		visit(prepared, arg);
		*prepared = list->list[--list->n];
	}
}

#ifdef OUTBOX_TEST_POINTS
static bool
in_range(const OutboxRange *range, int64 seq)
{
	return range->lo <= seq && seq <= range->hi;
}

bool
outbox_prepared_leads_to(const OutboxPreparedList *list, int64 seq)
{
	if (list->find && in_range(&list->range, seq))
		return true;
	for (int i = 0; i < list->n; i++)
		if (in_range(&list->list[i].range, seq) &&
			outbox_store_sees(list->list[i].xid))
			return true;
	return false;
}

#endif
