/*-------------------------------------------------------------------------
 *
 * route_lock.c
 *		Locks of routes: who enqueues, and who takes a route away.
 *
 * A transaction that stores a message for a route shares the route's lock until it
 * ends, or until the savepoint before it is rolled back; a prepared transaction keeps
 * it.  A statement that removes a route, or changes who publishes it, takes the lock
 * alone: it waits for those transactions, and later ones wait for it.  So no message
 * is stored for a route that is gone, and other routes take no notice.
 *
 * The lock is of the route's name and not of its row, as it has to be there before
 * the route is looked up.
 *
 * Such a statement takes the lock of all changes first: one transaction changes routes
 * at a time.  It waits for that lock, and for rows, while it has no route's lock.
 * Once it has one, it polls for the next: a producer that waits for the first and has
 * the next is in no deadlock then, of which it could be the victim.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/xact.h"
#include "common/hashfn.h"
#include "enqueue_internal.h"
#include "fmgr.h"
#include "miscadmin.h"
#include "storage/latch.h"
#include "storage/lock.h"
#include "storage/proc.h"
#include "utils/builtins.h"
#include "utils/timestamp.h"
#include "utils/wait_event.h"

PG_FUNCTION_INFO_V1(outbox_take_route_lock);
PG_FUNCTION_INFO_V1(outbox_poll_route_lock);
PG_FUNCTION_INFO_V1(outbox_route_lock_key);

/* SQL functions can only take 1 and 2; strict_keys.c has 3, route_cap.c 4. */
#define ROUTE_LOCK_CLASS	5
/* The lock of all changes; its key is 0. */
#define CHANGES_LOCK_CLASS	6

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

static uint64
lock_key(const char *route)
{
	return hash_bytes_extended((const unsigned char *) route,
							   (int) strlen(route), 0);
}

/* NULL: of all changes. */
static bool
lock(const char *route, LOCKMODE mode, bool wait)
{
	uint64		key = route == NULL ? 0 : lock_key(route);
	LOCKTAG		tag;

	SET_LOCKTAG_ADVISORY(tag, MyDatabaseId, (uint32) (key >> 32), (uint32) key,
						 route == NULL ? CHANGES_LOCK_CLASS : ROUTE_LOCK_CLASS);
	return LockAcquire(&tag, mode, false, !wait) != LOCKACQUIRE_NOT_AVAIL;
}

bool
outbox_route_lock(const char *route, bool wait)
{
	return lock(route, RowExclusiveLock, wait);
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

	begin_change();
	if (!lock(route, ExclusiveLock, route == NULL || !change.has_route))
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
	PG_RETURN_INT64((int64) lock_key(text_to_cstring(PG_GETARG_TEXT_PP(0))));
}
