/*-------------------------------------------------------------------------
 *
 * strict_keys.c
 *		Locks of outbox.strict_keys, and how many of them a transaction has.
 *
 * Each key takes a place in the server's lock table, which all sessions share.
 * A transaction that filled it would make others fail ("out of shared memory"),
 * so one may take half of it and no more.
 *
 * A fixed number of locks, each for many keys, would need no limit.  But then
 * transactions wait for each other that have no key in common.  Worse, they can
 * deadlock although everybody takes his keys in the same order: that is not the
 * order of the locks, and keys come one by one, so they cannot be sorted by it.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/twophase.h"
#include "access/xact.h"
#include "enqueue_internal.h"
#include "miscadmin.h"
#include "storage/lock.h"

/* Lock class of outbox.strict_keys; SQL functions can only take 1 and 2. */
#define STRICT_KEY_LOCK_CLASS 3

/*
 * Locks that this transaction has taken.  It may hold fewer, as a rollback to a
 * savepoint releases some; and a sixteenth of the limit more, see check_limit().
 */
static int	taken = 0;

static void
end_transaction(XactEvent event, void *arg)
{
	(void) arg;
	if (event == XACT_EVENT_COMMIT || event == XACT_EVENT_ABORT ||
		event == XACT_EVENT_PREPARE)
		taken = 0;
}

/*
 * Locks that it holds, from the server's lock table, as pg_locks shows them (the
 * locks of prepared transactions have pid 0).  Everybody may look at pg_locks, so
 * this gives nobody a new way to hold up others.
 */
static int
count_held(void)
{
	LockData   *data = GetLockStatusData();
	int			held = 0;

	for (int i = 0; i < data->nelements; i++)
	{
		const LockInstanceData *lock = &data->locks[i];

		if (lock->pid == MyProcPid &&
			lock->locktag.locktag_type == LOCKTAG_ADVISORY &&
			lock->locktag.locktag_field1 == MyDatabaseId &&
			lock->locktag.locktag_field4 == STRICT_KEY_LOCK_CLASS &&
			(lock->holdMask & LOCKBIT_ON(ExclusiveLock)) != 0)
			held++;
	}
	pfree(data->locks);
	pfree(data);
	return held;
}

/*
 * Only a transaction that seems to be over the limit has its locks counted, which
 * is a look at all locks of the server.  One that is just below it and rolls back
 * again and again may take a sixteenth of the limit until the next look, and so be
 * over it by as much.  After an error there is a look at each lock: otherwise who
 * catches it could take another sixteenth each time.
 */
static void
check_limit(void)
{
	int			limit;
	int			held;

	limit = max_locks_per_xact * (MaxBackends + max_prepared_xacts) / 2;
	if (taken <= limit)
		return;
	held = count_held();
	if (held > limit)
		ereport(ERROR,
				(errcode(ERRCODE_CONFIGURATION_LIMIT_EXCEEDED),
				 errmsg("too many keys in one transaction with \"outbox.strict_keys\""),
				 errdetail("Each key is locked until the transaction ends, and one transaction may lock at most %d, half of the server's lock table.", limit),
				 errhint("Enqueue for fewer keys in a transaction, set \"outbox.strict_keys\" to off for it, or increase \"max_locks_per_transaction\".")));
	taken = Min(held, limit - limit / 16);
}

void
outbox_lock_key(int64 hash)
{
	static bool registered = false;
	LOCKTAG		tag;

	if (!registered)
	{
		RegisterXactCallback(end_transaction, NULL);
		registered = true;
	}
	SET_LOCKTAG_ADVISORY(tag, MyDatabaseId, (uint32) ((uint64) hash >> 32),
						 (uint32) hash, STRICT_KEY_LOCK_CLASS);
	if (LockAcquire(&tag, ExclusiveLock, false, false) != LOCKACQUIRE_OK)
		return;					/* we had it */
	taken++;
	check_limit();
}
