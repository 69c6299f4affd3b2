/*-------------------------------------------------------------------------
 *
 * locks.c
 *		Locks of keys (outbox.strict_keys) and of routes.
 *
 * Each key takes a place in the server's lock table, which all sessions share.  A
 * transaction that filled it would make others fail ("out of shared memory"), so one may
 * take half of it and no more.  A fixed number of locks, each for many keys, would need
 * no limit, but transactions without a common key would wait for each other, and deadlock
 * although all take their keys in the same order: that is not the order of the locks, and
 * keys come one by one, so they cannot be sorted by it.
 *
 * A transaction that stores a message for a route shares the route's lock until it ends,
 * or until the savepoint before it is rolled back; a prepared transaction keeps it.  A
 * statement that removes a route, or changes who publishes it, takes the lock alone: it
 * waits for those transactions, and later ones wait for it.  So no message is stored for
 * a route that is gone, and other routes take no notice.  The lock is of the route's name
 * and not of its row, as it has to be there before the route is looked up.
 *
 * Such a statement takes the lock of all changes first: one transaction changes routes at
 * a time.  It waits for that lock, and for rows, while it has no route's lock.  Once it
 * has one, it polls for the next: a producer that waits for the first and has the next is
 * in no deadlock then, of which it could be the victim.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/twophase.h"
#include "access/xact.h"
#include "access/xlog.h"
#include "catalog/pg_control.h"
#include "columns.h"
#include "common/cryptohash.h"
#include "common/sha2.h"
#include "compat.h"
#include "enqueue_internal.h"
#include "miscadmin.h"
#include "storage/latch.h"
#include "storage/proc.h"
#include "utils/builtins.h"
#include "utils/resowner.h"
#include "utils/timestamp.h"
#include "utils/wait_event.h"
#include "waiters.h"

PG_FUNCTION_INFO_V1(outbox_take_route_lock);
PG_FUNCTION_INFO_V1(outbox_poll_route_lock);
PG_FUNCTION_INFO_V1(outbox_route_lock_key);

LockAcquireResult
outbox_lock_acquire(LOCKTAG *tag, OutboxLockClass class, uint64 key, LOCKMODE mode,
					bool wait)
{
	ResourceOwner owner = CurrentResourceOwner;
	LockAcquireResult result;

	SET_LOCKTAG_ADVISORY(*tag, MyDatabaseId, (uint32) (key >> 32), (uint32) key, class);

	/*
	 * A cursor that fails in a savepoint loses its own locks with that, but
	 * no rows.
	 */
	if (class != OUTBOX_LOCK_COUNT)
		CurrentResourceOwner = CurTransactionResourceOwner;
	result = LockAcquire(tag, mode, false, !wait);
	CurrentResourceOwner = owner;
	return result;
}

/* --------------------------------------------------------------------- keys */

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
 * Locks that it holds, from the server's lock table, as pg_locks shows them (the locks of
 * prepared transactions have pid 0).  Each role may look at pg_locks, so this is no new
 * way to hold up others.
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
			lock->locktag.locktag_field4 == OUTBOX_LOCK_KEY &&
			(lock->holdMask & LOCKBIT_ON(ExclusiveLock)) != 0)
			held++;
	}
	pfree(data->locks);
	pfree(data);
	return held;
}

/*
 * Only a transaction that seems to be over the limit has its locks counted, which is a
 * look at all locks of the server.  One that is just below it and rolls back again and
 * again may take a sixteenth of the limit until the next look, and so be over it by as
 * much.  After an error there is a look at each lock: otherwise a transaction that
 * catches it could take another sixteenth each time.
 */
static void
check_limit(void)
{
	int			limit = max_locks_per_xact * (MaxBackends + max_prepared_xacts) / 2;
	int			held;

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

static void
add_to_hash(pg_cryptohash_ctx *hash, const void *data, size_t len)
{
	if (pg_cryptohash_update(hash, data, len) < 0)
		elog(ERROR, "could not hash a key: %s", pg_cryptohash_error(hash));
}

/* With its length, or that it is NULL. */
static void
add_value(pg_cryptohash_ctx *hash, const Datum *values, const bool *isnull, int column)
{
	text	   *value = isnull[column - 1] ? NULL : DatumGetTextPP(values[column - 1]);
	int32		len = value == NULL ? -1 : (int32) VARSIZE_ANY_EXHDR(value);

	add_to_hash(hash, &len, sizeof(len));
	if (value != NULL)
		add_to_hash(hash, VARDATA_ANY(value), len);
}

/*
 * The number of a key's lock.  Not the key's hash, which can be inverted: a role that may
 * use one route could choose an aggregate_id for the lock of another route's key.  Nor a
 * hash that everybody can compute: who tries long enough meets one of very many keys.
 * The server's secret is what it has for logins of unknown roles, and stays over restarts
 * as the locks of prepared transactions do.
 */
static uint64
number_of_key(const Datum *values, const bool *isnull)
{
	pg_cryptohash_ctx *hash = pg_cryptohash_create(PG_SHA256);
	uint8		digest[PG_SHA256_DIGEST_LENGTH];
	uint64		number;

	if (pg_cryptohash_init(hash) < 0)
		elog(ERROR, "could not hash a key: %s", pg_cryptohash_error(hash));
	add_to_hash(hash, GetMockAuthenticationNonce(), MOCK_AUTH_NONCE_LEN);
	add_value(hash, values, isnull, COL_ROUTE);
	add_value(hash, values, isnull, COL_AGGREGATE_TYPE);
	add_value(hash, values, isnull, COL_AGGREGATE_ID);
	if (pg_cryptohash_final(hash, digest, sizeof(digest)) < 0)
		elog(ERROR, "could not hash a key: %s", pg_cryptohash_error(hash));
	pg_cryptohash_free(hash);
	memcpy(&number, digest, sizeof(number));
	return number;
}

void
outbox_lock_key(const Datum *values, const bool *isnull)
{
	static bool registered = false;
	LOCKTAG		tag;

	if (!registered)
	{
		RegisterXactCallback(end_transaction, NULL);
		registered = true;
	}
	if (outbox_lock_acquire(&tag, OUTBOX_LOCK_KEY, number_of_key(values, isnull),
							ExclusiveLock, true) != LOCKACQUIRE_OK)
		return;					/* we had it */
	taken++;
	check_limit();
}

/* ------------------------------------------------------------------- routes */

#define POLL_MS	10

/* What the transaction that changes routes has, and has waited for. */
static struct
{
	FullTransactionId xid;
	bool		has_route;		/* stays after ROLLBACK TO: it only polls then */
	TimestampTz statement;		/* the client's, to which the next one belongs */
	int64		waited_us;
	TimestampTz polled_at;		/* 0: nothing is polled for */
} change;

bool
outbox_route_lock(const char *route, bool wait)
{
	LOCKTAG		tag;

	return outbox_lock_acquire(&tag, OUTBOX_LOCK_ROUTE, outbox_recent_hash(route),
							   RowExclusiveLock, wait) != LOCKACQUIRE_NOT_AVAIL;
}

static void
begin_change(void)
{
	FullTransactionId xid = GetTopFullTransactionId();

	if (!FullTransactionIdEquals(change.xid, xid))
		change.has_route = false;
	else if (change.statement == GetCurrentStatementStartTimestamp())
		return;
	change.xid = xid;
	change.statement = GetCurrentStatementStartTimestamp();
	change.waited_us = 0;
	change.polled_at = 0;
}

/*
 * NULL: that of all changes.  Waits for that, and for a transaction's first route;
 * false: another one is not to be had now.
 */
Datum
outbox_take_route_lock(PG_FUNCTION_ARGS)
{
	const char *route = PG_ARGISNULL(0) ? NULL :
		text_to_cstring(PG_GETARG_TEXT_PP(0));
	TimestampTz started = GetCurrentTimestamp();
	LOCKTAG		tag;

	begin_change();
	if (outbox_lock_acquire(&tag, route == NULL ? OUTBOX_LOCK_CHANGES : OUTBOX_LOCK_ROUTE,
							route == NULL ? 0 : outbox_recent_hash(route), ExclusiveLock,
							route == NULL || !change.has_route) == LOCKACQUIRE_NOT_AVAIL)
		PG_RETURN_BOOL(false);
	change.polled_at = 0;
	if (route != NULL)
	{
		change.has_route = true;
		change.waited_us += GetCurrentTimestamp() - started;
	}
	PG_RETURN_BOOL(true);
}

/*
 * Waits a moment; false: the statement has waited with a route's lock, or for it, as
 * long as lock_timeout is.  What the caller does between two calls is part of the wait.
 */
Datum
outbox_poll_route_lock(PG_FUNCTION_ARGS)
{
	TimestampTz now;

	begin_change();
	if (change.waited_us >= (int64) LockTimeout * 1000)
	{
		/* Who catches the error may try again. */
		change.waited_us = 0;
		change.polled_at = 0;
		PG_RETURN_BOOL(false);
	}
	if (change.polled_at == 0)
		change.polled_at = GetCurrentTimestamp();
	(void) WaitLatch(MyLatch, WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH,
					 POLL_MS, PG_WAIT_EXTENSION);
	ResetLatch(MyLatch);
	CHECK_FOR_INTERRUPTS();
	now = GetCurrentTimestamp();
	change.waited_us += now - change.polled_at;
	change.polled_at = now;
	PG_RETURN_BOOL(true);
}

/* classid and objid of the lock in pg_locks, one number; objsubid is its class. */
Datum
outbox_route_lock_key(PG_FUNCTION_ARGS)
{
	PG_RETURN_INT64((int64) outbox_recent_hash(text_to_cstring(PG_GETARG_TEXT_PP(0))));
}
