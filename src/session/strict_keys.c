/*-------------------------------------------------------------------------
 *
 * strict_keys.c
 *		Locks of outbox.strict_keys, and how many of them a transaction has.
 *
 * Each key takes a place in the server's lock table, which all sessions share.
 * A transaction that filled it would make others fail ("out of shared memory"),
 * so one may take half of it and no more.  The server does not tell how many
 * locks of a kind a transaction has: they are counted here, by subtransaction,
 * since the locks of one that rolls back are released.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/twophase.h"
#include "access/xact.h"
#include "miscadmin.h"
#include "storage/lock.h"
#include "strict_keys.h"
#include "utils/memutils.h"

/* Lock class of outbox.strict_keys; SQL functions can only take 1 and 2. */
#define STRICT_KEY_LOCK_CLASS 3

typedef struct LockCount
{
	SubTransactionId subid;
	int			nlocks;
	struct LockCount *outer;	/* of a subtransaction around this one */
} LockCount;

/* In TopTransactionContext; innermost first, those without locks left out. */
static LockCount *counts = NULL;
static int	total = 0;

static void
forget_transaction(XactEvent event, void *arg)
{
	(void) arg;
	switch (event)
	{
		case XACT_EVENT_COMMIT:
		case XACT_EVENT_ABORT:
		case XACT_EVENT_PREPARE:
			counts = NULL;
			total = 0;
			break;
		default:
			break;
	}
}

/* Subtransactions inside of it have higher numbers, and ended before. */
static void
end_subtransaction(SubXactEvent event, SubTransactionId subid,
				   SubTransactionId parent, void *arg)
{
	LockCount  *ended = NULL;
	int			nlocks = 0;

	(void) arg;
	if (event != SUBXACT_EVENT_COMMIT_SUB && event != SUBXACT_EVENT_ABORT_SUB)
		return;
	while (counts != NULL && counts->subid >= subid)
	{
		ended = counts;
		nlocks += ended->nlocks;
		counts = ended->outer;
	}
	if (ended == NULL)
		return;
	if (event == SUBXACT_EVENT_ABORT_SUB)
		total -= nlocks;
	else if (counts != NULL && counts->subid == parent)
		counts->nlocks += nlocks;
	else
	{
		ended->subid = parent;
		ended->nlocks = nlocks;
		ended->outer = counts;
		counts = ended;
	}
}

static void
count_lock(void)
{
	static bool registered = false;
	SubTransactionId subid = GetCurrentSubTransactionId();

	if (!registered)
	{
		RegisterXactCallback(forget_transaction, NULL);
		RegisterSubXactCallback(end_subtransaction, NULL);
		registered = true;
	}
	if (counts == NULL || counts->subid != subid)
	{
		LockCount  *count = MemoryContextAlloc(TopTransactionContext,
											   sizeof(LockCount));

		count->subid = subid;
		count->nlocks = 0;
		count->outer = counts;
		counts = count;
	}
	counts->nlocks++;
	total++;
}

void
outbox_lock_key(int64 hash)
{
	LOCKTAG		tag;
	int			limit;

	SET_LOCKTAG_ADVISORY(tag, MyDatabaseId, (uint32) ((uint64) hash >> 32),
						 (uint32) hash, STRICT_KEY_LOCK_CLASS);
	if (LockAcquire(&tag, ExclusiveLock, false, false) != LOCKACQUIRE_OK)
		return;					/* we had it */
	count_lock();
	limit = max_locks_per_xact * (MaxBackends + max_prepared_xacts) / 2;
	if (total > limit)
		ereport(ERROR,
				(errcode(ERRCODE_CONFIGURATION_LIMIT_EXCEEDED),
				 errmsg("too many keys in one transaction with \"outbox.strict_keys\""),
				 errdetail("Each key is locked until the transaction ends, and one transaction may lock at most %d, half of the server's lock table.", limit),
				 errhint("Enqueue for fewer keys in a transaction, set \"outbox.strict_keys\" to off for it, or increase \"max_locks_per_transaction\".")));
}
