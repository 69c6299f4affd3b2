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
	outbox_shared->nintents = MaxBackends;
	for (int i = 0; i < outbox_shared->nintents; i++)
		SpinLockInit(&outbox_commit_intents[i].mutex);
}

static OutboxCommitIntent *
my_intent(void)
{
	int			procno = outbox_my_procno();

	/* Auxiliary processes come behind, and enqueue nothing. */
	Assert(procno >= 0 && procno < outbox_shared->nintents);
	return &outbox_commit_intents[procno];
}

void
outbox_intent_publish(const OutboxRange *range, TransactionId xid)
{
	OutboxCommitIntent *intent = my_intent();

	Assert(TransactionIdIsValid(xid));
	SpinLockAcquire(&intent->mutex);
	intent->dboid = MyDatabaseId;
	intent->xid = xid;
	intent->range = *range;
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

void
outbox_intent_visit(OutboxIntentVisit visit, void *arg)
{
	for (int i = 0; i < outbox_shared->nintents; i++)
	{
		OutboxCommitIntent *intent = &outbox_commit_intents[i];
		TransactionId xid;
		OutboxRange range;
		bool		ours;

		if (intent->dboid != MyDatabaseId)
			continue;
		SpinLockAcquire(&intent->mutex);
		ours = intent->dboid == MyDatabaseId;
		xid = intent->xid;
		range = intent->range;
		SpinLockRelease(&intent->mutex);
		if (ours)
			visit(xid, &range, arg);
	}
	/* The inbox is looked at after this: who has withdrawn has announced. */
	pg_memory_barrier();
}
