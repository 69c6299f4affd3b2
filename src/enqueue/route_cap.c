/*-------------------------------------------------------------------------
 *
 * route_cap.c
 *		The most messages that a route may have (outbox_route.max_pending).
 *
 * Messages of such a route, and no others, are in the index outbox_counted.  It is read
 * as it is: a row counts from when it is stored until it is gone, also while its
 * transaction is open, or prepared; what is rolled back does not.  So the table is the
 * truth, nothing has to be given back when something ends badly, and no lock is kept.
 *
 * Counting for each message would cost as much as the route may have.  So the last
 * count and what was stored since is known in shared memory (caps.h), and it is counted
 * again only where that says that the route is full, which it may not be any more.  Then
 * others that find the same wait for the one that counts, and take its result.
 *
 * How far over the limit: a session that has been admitted when a count begins, and
 * stores its row when it has passed, is not counted until the next one.  That is one
 * message of each session at most.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/genam.h"
#include "access/table.h"
#include "access/tableam.h"
#include "caps.h"
#include "catalog.h"
#include "catalog/pg_collation.h"
#include "catalog/pg_type.h"
#include "own_relations.h"
#include "compat.h"
#include "enqueue_internal.h"
#include "miscadmin.h"
#include "nodes/primnodes.h"
#include "storage/lmgr.h"
#include "utils/builtins.h"
#include "utils/fmgroids.h"
#include "utils/lsyscache.h"
#include "utils/snapmgr.h"
#include "waiters.h"

PG_FUNCTION_INFO_V1(outbox_route_is_full);

static OutboxCap
cap_of(const char *route, int most)
{
	return (OutboxCap) {.dboid = MyDatabaseId, .most = most, .route = outbox_recent_hash(route)};
}

/* WHERE counted, and as it was made: with another one it would count too few. */
static bool
is_usable(Relation index)
{
	List	   *predicate = RelationGetIndexPredicate(index);
	Var		   *var = list_length(predicate) == 1 ? linitial(predicate) : NULL;

	return index->rd_indcollation[0] == C_COLLATION_OID &&
		var != NULL && IsA(var, Var) && var->varattno == COL_COUNTED;
}

/* NULL: it is gone, or another one. */
static Relation
find_index(Relation rel)
{
	Relation	index = outbox_open_index(rel, "outbox_counted", COL_ROUTE, 0);

	if (index == NULL || is_usable(index))
		return index;
	index_close(index, NoLock);
	return NULL;
}

/* Rows that count, most at most. */
static int64
count_rows(Relation rel, Relation index, const char *route, int64 most)
{
	TupleTableSlot *slot = table_slot_create(rel, NULL);
	IndexScanDesc scan;
	SnapshotData dirty;
	ScanKeyData key;
	int64		found = 0;

	InitDirtySnapshot(dirty);
	scan = compat_index_beginscan(rel, index, &dirty, 1);
	ScanKeyEntryInitialize(&key, 0, 1, BTEqualStrategyNumber, InvalidOid,
						   C_COLLATION_OID, F_TEXTEQ, CStringGetTextDatum(route));
	index_rescan(scan, &key, 1, NULL, 0);
	while (found < most && index_getnext_tid(scan, ForwardScanDirection) != NULL)
	{
		CHECK_FOR_INTERRUPTS();
		if (index_fetch_heap(scan, slot))
			found++;
	}
	index_endscan(scan);
	ExecDropSingleTupleTableSlot(slot);
	return found;
}

static bool
lock_count(const OutboxCap *cap, LOCKTAG *tag, bool wait)
{
	return outbox_lock_acquire(tag, OUTBOX_LOCK_COUNT, cap->route, ExclusiveLock,
							   wait) != LOCKACQUIRE_NOT_AVAIL;
}

/* Counts, and tells the others.  Returns how many there are. */
static int64
count_for_all(Relation rel, Relation index, const char *route,
			  const OutboxCap *cap)
{
	OutboxMonoTime begun = outbox_mono_now();
	int64		known;
	int64		found;

	(void) outbox_cap_look(cap, &known);
	found = count_rows(rel, index, route, cap->most);
	outbox_cap_counted(cap, known, found, outbox_mono_passed(begun));
	return found;
}

/*
 * The lock is given back at once, so that no session waits for a transaction to end.  The
 * index is locked before, as that may have to wait.
 */
static bool
count_and_admit(Relation rel, const OutboxRoute *route, const OutboxCap *cap)
{
	Relation	index = find_index(rel);
	OutboxCapVerdict verdict;
	LOCKTAG		tag;

	/* A limit that is not kept would be found out when it is too late. */
	if (index == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("index \"outbox_counted\" is not what the extension \"outbox\" has made"),
				 errdetail("Without it the messages of routes with max_pending cannot be counted."),
				 errhint("Make it again, CREATE INDEX outbox_counted ON outbox (route COLLATE \"C\") WHERE counted, or set max_pending to NULL.")));
	(void) lock_count(cap, &tag, true);
	/* Another session may have counted meanwhile. */
	verdict = outbox_cap_admit(cap);
	if (verdict == OUTBOX_CAP_UNKNOWN)
	{
		int64		found = count_for_all(rel, index, route->name, cap);

		verdict = outbox_cap_admit(cap);
		if (verdict == OUTBOX_CAP_UNKNOWN && found < cap->most)
			verdict = OUTBOX_CAP_ROOM;	/* nothing is kept */
	}
	LockRelease(&tag, ExclusiveLock, false);
	index_close(index, NoLock);
	return verdict == OUTBOX_CAP_ROOM;
}

void
outbox_cap_check(Relation rel, const OutboxRoute *route, bool asks)
{
	OutboxCap	cap = cap_of(route->name, route->max_pending);
	OutboxCapVerdict verdict;

	if (!asks)
	{
		outbox_cap_add(&cap);
		return;
	}
	verdict = outbox_cap_admit(&cap);
	if (verdict == OUTBOX_CAP_ROOM ||
		(verdict == OUTBOX_CAP_UNKNOWN && count_and_admit(rel, route, &cap)))
		return;
	ereport(ERROR,
			(errcode(ERRCODE_CONFIGURATION_LIMIT_EXCEEDED),
			 errmsg("route \"%s\" is full", route->name),
			 errdetail("It may have %d messages (max_pending); those that wait, are scheduled or have failed count, and those of open transactions.",
					   route->max_pending),
			 errhint("Try again when the relay has published some. An administrator sees in outbox_problems what holds them up, can requeue or discard what has failed, and change max_pending in outbox_route.")));
}

/* For outbox_problems: counts only where the route seems to be full. */
Datum
outbox_route_is_full(PG_FUNCTION_ARGS)
{
	char	   *route = text_to_cstring(PG_GETARG_TEXT_PP(0));
	OutboxCap	cap = cap_of(route, PG_GETARG_INT32(1));
	int64		known;
	OutboxCapVerdict verdict = outbox_cap_look(&cap, &known);
	Relation	rel;
	Relation	index;
	LOCKTAG		tag;
	bool		counts;
	bool		full = false;

	if (verdict != OUTBOX_CAP_UNKNOWN)
		PG_RETURN_BOOL(verdict == OUTBOX_CAP_FULL);
	rel = table_open(outbox_relation(OUTBOX_REL_OUTBOX), AccessShareLock);

	/*
	 * NULL where it is gone: enqueue says so, and other problems must be
	 * shown as well.
	 */
	index = find_index(rel);
	counts = index != NULL && lock_count(&cap, &tag, false);
	if (counts)
	{
		full = count_for_all(rel, index, route, &cap) >= cap.most;
		LockRelease(&tag, ExclusiveLock, false);
	}
	if (index != NULL)
		index_close(index, NoLock);
	table_close(rel, NoLock);
	if (!counts)
		PG_RETURN_NULL();
	PG_RETURN_BOOL(full);
}
