/*-------------------------------------------------------------------------
 *
 * shared_early.c
 *		Early words: what transactions that are about to commit will announce.
 *
 * One for each backend, written by it alone: from before its transaction commits
 * until it has announced it.  So whoever has a snapshot that sees the rows of a
 * transaction finds its word here, or the announcement in its inbox; whatever
 * the worker did meanwhile, and whether or not it existed.  See take_snapshot() in
 * relay_round.c.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/transam.h"
#include "miscadmin.h"
#include "shared_internal.h"
#include "storage/shmem.h"

static bool said = false;

Size
outbox_early_size(void)
{
	return mul_size(MaxBackends, sizeof(OutboxEarlyWord));
}

void
outbox_early_init(void)
{
	outbox_shared->nearly = MaxBackends;
	for (int i = 0; i < outbox_shared->nearly; i++)
		SpinLockInit(&outbox_early_words[i].mutex);
}

static OutboxEarlyWord *
my_word(void)
{
	int			procno = outbox_my_procno();

	/* Auxiliary processes come behind, and enqueue nothing. */
	Assert(procno >= 0 && procno < outbox_shared->nearly);
	return &outbox_early_words[procno];
}

void
outbox_early_say(const OutboxRange *range, TransactionId xid)
{
	OutboxEarlyWord *word = my_word();

	Assert(TransactionIdIsValid(xid));
	SpinLockAcquire(&word->mutex);
	word->dboid = MyDatabaseId;
	word->xid = xid;
	word->range = *range;
	SpinLockRelease(&word->mutex);
	said = true;
}

void
outbox_early_withdraw(void)
{
	OutboxEarlyWord *word;

	if (!said)
		return;
	word = my_word();
	SpinLockAcquire(&word->mutex);
	word->dboid = InvalidOid;
	SpinLockRelease(&word->mutex);
	said = false;
}

void
outbox_early_visit(OutboxEarlyVisit visit, void *arg)
{
	for (int i = 0; i < outbox_shared->nearly; i++)
	{
		OutboxEarlyWord *word = &outbox_early_words[i];
		TransactionId xid;
		OutboxRange range;
		bool		ours;

		if (word->dboid != MyDatabaseId)
			continue;
		SpinLockAcquire(&word->mutex);
		ours = word->dboid == MyDatabaseId;
		xid = word->xid;
		range = word->range;
		SpinLockRelease(&word->mutex);
		if (ours)
			visit(xid, &range, arg);
	}
	/* The inbox is looked at after this: who has withdrawn has announced. */
	pg_memory_barrier();
}
