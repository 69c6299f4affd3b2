/*-------------------------------------------------------------------------
 *
 * shared_intents.c
 *		Commit intents: what transactions that are about to commit will announce.
 *
 * One for each backend, written by it alone: from before its transaction commits
 * until it has announced it.  So whoever has a snapshot that sees the rows of a
 * transaction finds its intent here, or the announcement in its inbox; whatever
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

static bool published = false;

Size
outbox_intent_size(void)
{
	return mul_size(MaxBackends, sizeof(OutboxCommitIntent));
}

void
outbox_intent_init(void)
{
	for (int i = 0; i < MaxBackends; i++)
		SpinLockInit(&outbox_commit_intents[i].mutex);
}

static OutboxCommitIntent *
my_intent(void)
{
	int			procno = outbox_my_procno();

	/* Auxiliary processes come behind, and enqueue nothing. */
	Assert(procno >= 0 && procno < MaxBackends);
	return &outbox_commit_intents[procno];
}

void
outbox_intent_publish(const OutboxRange *ranges, int nranges, TransactionId xid)
{
	OutboxCommitIntent *intent = my_intent();

	Assert(TransactionIdIsValid(xid));
	SpinLockAcquire(&intent->mutex);
	intent->dboid = MyDatabaseId;
	intent->xid = xid;
	intent->nranges = nranges;
	for (int i = 0; i < nranges; i++)
		intent->ranges[i] = ranges[i];
	SpinLockRelease(&intent->mutex);
	published = true;
}

void
outbox_intent_withdraw(void)
{
	OutboxCommitIntent *intent;

	if (!published)
		return;
	intent = my_intent();
	SpinLockAcquire(&intent->mutex);
	intent->dboid = InvalidOid;
	SpinLockRelease(&intent->mutex);
	published = false;
}

/* Copies an intent, with all of its ranges; false: there is none, or of another database. */
static bool
read_intent(OutboxCommitIntent *intent, OutboxCommitIntent *copy)
{
	bool		stands;

	if (intent->dboid != MyDatabaseId)
		return false;
	SpinLockAcquire(&intent->mutex);
	stands = intent->dboid == MyDatabaseId;
	if (stands)
	{
		copy->xid = intent->xid;
		copy->nranges = intent->nranges;
		for (int i = 0; i < copy->nranges; i++)
			copy->ranges[i] = intent->ranges[i];
	}
	SpinLockRelease(&intent->mutex);
	return stands;
}

void
outbox_intent_visit(OutboxIntentVisit visit, void *arg)
{
	OutboxCommitIntent copy;

	for (int i = 0; i < MaxBackends; i++)
	{
		if (!read_intent(&outbox_commit_intents[i], &copy))
			continue;
		for (int j = 0; j < copy.nranges; j++)
			visit(copy.xid, &copy.ranges[j], arg);
	}
	/* The inbox is looked at after this: who has withdrawn has announced. */
	pg_memory_barrier();
}
