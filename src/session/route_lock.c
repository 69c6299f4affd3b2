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
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "common/hashfn.h"
#include "fmgr.h"
#include "miscadmin.h"
#include "route_lock.h"
#include "storage/lock.h"
#include "utils/builtins.h"

PG_FUNCTION_INFO_V1(outbox_take_route_lock);
PG_FUNCTION_INFO_V1(outbox_route_lock_key);

/* SQL functions can only take 1 and 2; strict_keys.c has 3, route_cap.c 4. */
#define ROUTE_LOCK_CLASS 5

static uint64
lock_key(const char *route)
{
	return hash_bytes_extended((const unsigned char *) route,
							   (int) strlen(route), 0);
}

static bool
lock(const char *route, LOCKMODE mode, bool wait)
{
	uint64		key = lock_key(route);
	LOCKTAG		tag;

	SET_LOCKTAG_ADVISORY(tag, MyDatabaseId, (uint32) (key >> 32), (uint32) key,
						 ROUTE_LOCK_CLASS);
	return LockAcquire(&tag, mode, false, !wait) != LOCKACQUIRE_NOT_AVAIL;
}

bool
outbox_route_lock(const char *route, bool wait)
{
	return lock(route, RowExclusiveLock, wait);
}

Datum
outbox_take_route_lock(PG_FUNCTION_ARGS)
{
	(void) lock(text_to_cstring(PG_GETARG_TEXT_PP(0)), ExclusiveLock, true);
	PG_RETURN_VOID();
}

/* classid and objid of the lock in pg_locks, one number; objsubid is its class. */
Datum
outbox_route_lock_key(PG_FUNCTION_ARGS)
{
	PG_RETURN_INT64((int64) lock_key(text_to_cstring(PG_GETARG_TEXT_PP(0))));
}
