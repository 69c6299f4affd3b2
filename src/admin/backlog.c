/*-------------------------------------------------------------------------
 *
 * backlog.c
 *		Counting the messages of the table outbox, within a bound.
 *
 * The views are looked at in exactly the hour when the table is large, so nobody
 * counts all of it.  Each of the three indexes by which the relay finds its rows is
 * read from its beginning, up to so many entries (those of external relays up to so many
 * of each route): whoever has read all of them has counted exactly, and else the server's
 * own estimates say how many there are in all (outbox_backlog() in the script).  Entries
 * of rows that are gone and not vacuumed count against the bound, too, which is why this
 * is not a query with a LIMIT: that would pass any number of them.
 *
 * The tables are locked without waiting.  Who looks why nothing goes out must get an
 * answer when the reason is a lock on them.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/genam.h"
#include "access/table.h"
#include "access/tableam.h"
#include "admin_internal.h"
#include "catalog.h"
#include "catalog/pg_class.h"
#include "catalog/pg_opfamily.h"
#include "columns.h"
#include "compat.h"
#include "enqueue.h"
#include "own_relations.h"
#include "storage/lmgr.h"
#include "utils/fmgroids.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"

PG_FUNCTION_INFO_V1(outbox_try_lock_tables);
PG_FUNCTION_INFO_V1(outbox_backlog_sample);

/* More routes than that are one, without a name. */
#define MAX_ROUTES	100

/* Of one route, of the rows of an index that were seen. */
typedef struct RouteSample
{
	char	   *route;			/* NULL: all that have no entry of their own */
	int64		messages;
	int64		due;			/* to be published now, or after another
								 * attempt */
	int64		retrying;
	TimestampTz oldest;			/* of what is due; 0: nothing */
} RouteSample;

typedef struct Sample
{
	bool		complete;
	int			nroutes;
	RouteSample routes[MAX_ROUTES + 1];
} Sample;

/* ------------------------------------------------------------------- locks */

/* Of the table, which is locked: whoever plans a query of it needs them, too. */
static bool
try_lock_indexes(Oid relid)
{
	Relation	rel = table_open(relid, NoLock);
	List	   *indexes = RelationGetIndexList(rel);
	ListCell   *cell;
	bool		locked = true;

	table_close(rel, NoLock);
	foreach(cell, indexes)
		locked = locked && ConditionalLockRelationOid(lfirst_oid(cell), AccessShareLock);
	list_free(indexes);
	return locked;
}

/* Kept until the end of the transaction, as other locks are. */
static bool
try_lock(Oid relid)
{
	return OidIsValid(relid) && ConditionalLockRelationOid(relid, AccessShareLock) &&
		get_rel_relkind(relid) == RELKIND_RELATION && try_lock_indexes(relid);
}

Datum
outbox_try_lock_tables(PG_FUNCTION_ARGS)
{
	PG_RETURN_BOOL(try_lock(outbox_find_relation(OUTBOX_REL_CONTROL)) &&
				   try_lock(outbox_find_relation(OUTBOX_REL_ROUTE)) &&
				   try_lock(outbox_find_relation(OUTBOX_REL_JOB)) &&
				   try_lock(outbox_find_relation(OUTBOX_REL_LEASE)) &&
				   try_lock(outbox_find_relation(OUTBOX_REL_OUTBOX)));
}

/* ---------------------------------------------------------------- counting */

static RouteSample *
find_route(Sample *sample, const char *route)
{
	RouteSample *found;

	for (int i = 0; i < sample->nroutes; i++)
		if (strcmp(sample->routes[i].route, route) == 0)
			return &sample->routes[i];
	if (sample->nroutes == MAX_ROUTES)
		return &sample->routes[MAX_ROUTES];
	found = &sample->routes[sample->nroutes++];
	found->route = pstrdup(route);
	return found;
}

/*
 * Since when a message waits: a scheduled one from when it is due; the time of a
 * retry says nothing about that.
 */
static TimestampTz
waits_since(TimestampTz created_at, TimestampTz available_at, bool tried)
{
	return tried ? created_at : Max(created_at, available_at);
}

/* What is NULL although it must not be counts as nothing. */
static Datum
column(TupleTableSlot *slot, int attnum)
{
	bool		isnull;
	Datum		value = slot_getattr(slot, attnum, &isnull);

	return isnull ? (Datum) 0 : value;
}

static void
count_row(Sample *sample, TupleTableSlot *slot, TimestampTz now)
{
	TimestampTz available_at = DatumGetTimestampTz(column(slot, COL_AVAILABLE_AT));
	TimestampTz created_at = DatumGetTimestampTz(column(slot, COL_CREATED_AT));
	bool		tried = DatumGetInt32(column(slot, COL_ATTEMPTS)) > 0;
	TimestampTz since = waits_since(created_at, available_at, tried);
	Datum		name = column(slot, COL_ROUTE);
	char	   *str = name == (Datum) 0 ? pstrdup("") : TextDatumGetCString(name);
	RouteSample *route = find_route(sample, str);

	pfree(str);
	route->messages++;
	if (tried)
		route->retrying++;
	if (!tried && available_at > now)
		return;
	route->due++;
	if (route->oldest == 0 || since < route->oldest)
		route->oldest = since;
}

/*
 * Reads the entries that match the key (NULL: all), from the first one on or from the
 * last one back.  Returns how many rows there are.
 */
static int
read_entries(Relation rel, Relation index, ScanKey key, ScanDirection direction,
			 int max_entries, Sample *sample)
{
	int			nkeys = key == NULL ? 0 : 1;
	TimestampTz now = GetCurrentTimestamp();
	TupleTableSlot *slot = table_slot_create(rel, NULL);
	IndexScanDesc scan;
	int			rows = 0;

	sample->complete = false;
	scan = compat_index_beginscan(rel, index, GetActiveSnapshot(), nkeys);
	index_rescan(scan, key, nkeys, NULL, 0);
	while (!sample->complete && max_entries-- > 0)
	{
		CHECK_FOR_INTERRUPTS();
		if (index_getnext_tid(scan, direction) == NULL)
			sample->complete = true;
		else if (index_fetch_heap(scan, slot))
		{
			count_row(sample, slot, now);
			rows++;
		}
	}
	index_endscan(scan);
	ExecDropSingleTupleTableSlot(slot);
	return rows;
}

/*
 * Reads an index, of which that is the first column, from seq "from" on (0: from its
 * beginning), or from its end back.
 */
static void
read_index(Relation rel, const char *index_name, AttrNumber column,
		   ScanDirection direction, int64 from, int max_entries, Sample *sample)
{
	Relation	index = outbox_open_index(rel, index_name, column, 0);
	ScanKeyData key;

	sample->complete = false;
	if (index == NULL)
		return;
	ScanKeyInit(&key, 1, BTGreaterEqualStrategyNumber, F_INT8GE, Int64GetDatum(from));
	(void) read_entries(rel, index, from > 0 ? &key : NULL, direction, max_entries, sample);
	index_close(index, NoLock);
}

/* Where the rows of this database begin, as its workers know; 0: they do not. */
static int64
lowest_seq(void)
{
	int64		lowest = PG_INT64_MAX;

	for (int i = 0; i < slot_count(); i++)
	{
		OutboxSlot *slot = &outbox_shared->slots[i];

		if (slot->in_use && slot->dboid == MyDatabaseId)
			lowest = Min(lowest,
						 (int64) pg_atomic_read_u64(&slot->counters.lowest_seq));
	}
	return lowest == PG_INT64_MAX ? 0 : lowest;
}

/*
 * Rows to be published, by the order of seq.  When there are nothing but dead ones
 * at the beginning, what is there further on is still a sample, and its first row
 * is the oldest as far as the workers know.  They know less after a sweep, which
 * reads everything: then the newest rows have to do.
 */
static void
read_ready(Relation rel, int max_entries, Sample *sample)
{
	int64		from;

	read_index(rel, "outbox_ready", COL_SEQ, ForwardScanDirection, 0, max_entries, sample);
	if (sample->complete || sample->nroutes > 0)
		return;
	from = lowest_seq();
	if (from > 0)
		read_index(rel, "outbox_ready", COL_SEQ, ForwardScanDirection, from, max_entries, sample);
	if (sample->nroutes == 0)
		read_index(rel, "outbox_ready", COL_SEQ, BackwardScanDirection, 0, max_entries, sample);
	sample->complete = false;
}

/* A condition on the first column of an index, which is the route. */
static void
init_route_key(ScanKey key, Relation index, StrategyNumber strategy, RegProcedure function,
			   Datum route)
{
	ScanKeyEntryInitialize(key, 0, 1, strategy, InvalidOid, index->rd_indcollation[0],
						   function, route);
}

/*
 * The route of the first entry after those of that route (0: of the first entry); 0:
 * there is none.  By the entry itself, as its row may be gone.
 */
static Datum
next_route(Relation rel, Relation index, Datum route)
{
	int			nkeys = route == (Datum) 0 ? 0 : 1;
	IndexScanDesc scan = compat_index_beginscan(rel, index, GetActiveSnapshot(), nkeys);
	Datum		next = (Datum) 0;
	bool		isnull;
	ScanKeyData key;

	init_route_key(&key, index, BTGreaterStrategyNumber, F_TEXT_GT, route);
	scan->xs_want_itup = true;
	index_rescan(scan, &key, nkeys, NULL, 0);
	if (index_getnext_tid(scan, ForwardScanDirection) != NULL)
	{
		next = index_getattr(scan->xs_itup, 1, scan->xs_itupdesc, &isnull);
		next = isnull ? (Datum) 0 : PointerGetDatum(PG_DETOAST_DATUM_COPY(next));
	}
	index_endscan(scan);
	return next;
}

/*
 * Adds messages of external relays, which are in an index of their own, by route.  Each
 * route has the bound for itself, so that a route with many messages, or many dead
 * entries, hides no other one.  Where the first ones are all dead, the newest rows have
 * to do.
 */
static void
read_external(Relation rel, const char *index_name, int max_entries, Sample *sample)
{
	Relation	index = outbox_open_index(rel, index_name, COL_ROUTE, 0);
	bool		complete = sample->complete;
	Datum		route = (Datum) 0;
	int			nroutes = 0;
	ScanKeyData key;

	sample->complete = false;
	if (index == NULL)
		return;
	/* In another family's order the next route would not come next. */
	while (index->rd_opfamily[0] == TEXT_BTREE_FAM_OID && nroutes++ < MAX_ROUTES &&
		   (route = next_route(rel, index, route)) != (Datum) 0)
	{
		int			rows;

		init_route_key(&key, index, BTEqualStrategyNumber, F_TEXTEQ, route);
		rows = read_entries(rel, index, &key, ForwardScanDirection, max_entries, sample);
		complete = complete && sample->complete;
		if (rows == 0 && !sample->complete)
			(void) read_entries(rel, index, &key, BackwardScanDirection, max_entries, sample);
	}
	sample->complete = complete && nroutes > 0 && route == (Datum) 0;
	index_close(index, NoLock);
}

/* ------------------------------------------------------------------ result */

static void
return_route(FunctionCallInfo fcinfo, const char *kind, const Sample *sample,
			 const RouteSample *route)
{
	ResultRow	row = {0};

	put_text(&row, kind);
	put(&row, BoolGetDatum(sample->complete));
	if (route->route == NULL)
		put_null(&row);
	else
		put(&row, CStringGetTextDatum(route->route));
	put_int64(&row, route->messages);
	put_int64(&row, route->due);
	put_int64(&row, route->retrying);
	put_time(&row, route->oldest);
	return_next(fcinfo, &row);
}

static void
return_sample(FunctionCallInfo fcinfo, const char *kind, Sample *sample)
{
	static const RouteSample none;

	/* So that there is always one that says whether it is complete. */
	return_route(fcinfo, kind, sample, &none);
	for (int i = 0; i < sample->nroutes; i++)
		return_route(fcinfo, kind, sample, &sample->routes[i]);
	if (sample->routes[MAX_ROUTES].messages > 0)
		return_route(fcinfo, kind, sample, &sample->routes[MAX_ROUTES]);
	memset(sample, 0, sizeof(*sample));
}

Datum
outbox_backlog_sample(PG_FUNCTION_ARGS)
{
	int			max_entries = PG_GETARG_INT32(0);
	Oid			relid = outbox_find_relation(OUTBOX_REL_OUTBOX);
	Sample	   *sample = palloc0(sizeof(Sample));
	Relation	rel;

	InitMaterializedSRF(fcinfo, 0);
	if (!try_lock(relid))
		return (Datum) 0;
	rel = table_open(relid, NoLock);
	outbox_expect_message_columns(RelationGetDescr(rel), RelationGetRelationName(rel));
	read_ready(rel, max_entries, sample);
	read_external(rel, "outbox_external", max_entries, sample);
	return_sample(fcinfo, "ready", sample);
	read_index(rel, "outbox_waiting", COL_AVAILABLE_AT, ForwardScanDirection, 0, max_entries, sample);
	read_external(rel, "outbox_external_waiting", max_entries, sample);
	return_sample(fcinfo, "waiting", sample);
	read_index(rel, "outbox_failed_seq", COL_SEQ, ForwardScanDirection, 0, max_entries, sample);
	return_sample(fcinfo, "failed", sample);
	table_close(rel, NoLock);
	return (Datum) 0;
}
