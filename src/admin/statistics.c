/*-------------------------------------------------------------------------
 *
 * statistics.c
 *		Functions that show the statistics of stats.h, of the current database, and how
 *		far a drain has come.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "admin_internal.h"
#include "catalog/pg_type.h"
#include "stats.h"
#include "utils/array.h"

PG_FUNCTION_INFO_V1(outbox_route_stats);
PG_FUNCTION_INFO_V1(outbox_database_stats);
PG_FUNCTION_INFO_V1(outbox_published_seconds);
PG_FUNCTION_INFO_V1(outbox_drain);

/* Over so many seconds that are over. */
#define RATE_SECONDS	10
/* So many are shown one by one. */
#define SHOWN_SECONDS	15

/* ------------------------------------------------------------------ routes */

static bool
has_counted(OutboxRouteStats *route)
{
	for (int i = 0; i < OUTBOX_NCOUNTS; i++)
		if (pg_atomic_read_u64(&route->counts[i]) > 0)
			return true;
	return false;
}

/* Copies of those of this database. */
static List *
list_waits(void)
{
	List	   *waits = NIL;
	OutboxRouteWait *copy = palloc(sizeof(*copy));

	for (int i = 0; i < OUTBOX_STATS_WAITS; i++)
	{
		SpinLockAcquire(&outbox_stats->mutex);
		*copy = outbox_stats->waits[i];
		SpinLockRelease(&outbox_stats->mutex);
		if (copy->dboid != MyDatabaseId)
			continue;
		waits = lappend(waits, copy);
		copy = palloc(sizeof(*copy));
	}
	return waits;
}

/* NULL: that route does not wait. */
static OutboxRouteWait *
take_wait(List **waits, const char *name)
{
	ListCell   *cell;

	foreach(cell, *waits)
	{
		OutboxRouteWait *wait = lfirst(cell);

		if (strcmp(wait->name, name) != 0)
			continue;
		*waits = foreach_delete_current(*waits, cell);
		return wait;
	}
	return NULL;
}

/* counts NULL: they are in the row without a name. */
static void
return_route(FunctionCallInfo fcinfo, const char *name, OutboxRouteStats *counts,
			 const OutboxRouteWait *wait)
{
	ResultRow	row = {0};

	put_text(&row, name);
	for (int i = 0; i < OUTBOX_NCOUNTS; i++)
	{
		if (counts == NULL)
			put_null(&row);
		else
			put_int64(&row, (int64) pg_atomic_read_u64(&counts->counts[i]));
	}
	put_text(&row, wait == NULL ? NULL : wait->because);
	put_text(&row, wait == NULL ? NULL : wait->reason);
	put_time(&row, wait == NULL ? 0 : wait->since);
	put_time(&row, wait == NULL ? 0 : wait->retry_at);
	return_next(fcinfo, &row);
}

Datum
outbox_route_stats(PG_FUNCTION_ARGS)
{
	OutboxDatabaseStats *stats = outbox_stats_find(MyDatabaseId);
	List	   *waits;
	ListCell   *cell;
	int			nroutes;

	InitMaterializedSRF(fcinfo, 0);
	if (stats == NULL)
		return (Datum) 0;
	waits = list_waits();
	SpinLockAcquire(&stats->mutex);
	nroutes = stats->nroutes;
	SpinLockRelease(&stats->mutex);
	for (int i = 0; i < nroutes; i++)
	{
		char		name[OUTBOX_STATS_NAME];

		SpinLockAcquire(&stats->mutex);
		strlcpy(name, stats->routes[i].name, sizeof(name));
		SpinLockRelease(&stats->mutex);
		return_route(fcinfo, name, &stats->routes[i], take_wait(&waits, name));
	}
	if (has_counted(&stats->routes[OUTBOX_STATS_OTHER_ROUTES]))
		return_route(fcinfo, NULL, &stats->routes[OUTBOX_STATS_OTHER_ROUTES], NULL);
	foreach(cell, waits)
		return_route(fcinfo, ((OutboxRouteWait *) lfirst(cell))->name, NULL, lfirst(cell));
	return (Datum) 0;
}

/* ---------------------------------------------------------------- database */

static Datum
float_array(const double *values, int n)
{
	Datum		datums[OUTBOX_TIMING_BOUNDS + 1];

	for (int i = 0; i < n; i++)
		datums[i] = Float8GetDatum(values[i]);
	return PointerGetDatum(construct_array(datums, n, FLOAT8OID, sizeof(float8),
										   FLOAT8PASSBYVAL, TYPALIGN_DOUBLE));
}

static Datum
bounds_array(void)
{
	double		bounds[OUTBOX_TIMING_BOUNDS];

	for (int i = 0; i < OUTBOX_TIMING_BOUNDS; i++)
		bounds[i] = (double) outbox_timing_bounds[i] / USECS_PER_SEC;
	return float_array(bounds, OUTBOX_TIMING_BOUNDS);
}

/* Cumulative, as Prometheus wants them: how many took that long at most. */
static Datum
buckets_array(OutboxDatabaseStats *stats, OutboxTiming timing)
{
	double		counts[OUTBOX_TIMING_BOUNDS + 1];
	double		sum = 0;

	for (int i = 0; i <= OUTBOX_TIMING_BOUNDS; i++)
	{
		if (stats != NULL)
			sum += (double) pg_atomic_read_u64(&stats->timings[timing].buckets[i]);
		counts[i] = sum;
	}
	return float_array(counts, OUTBOX_TIMING_BOUNDS + 1);
}

static Datum
sum_seconds(OutboxDatabaseStats *stats, OutboxTiming timing)
{
	if (stats == NULL)
		return Float8GetDatum(0);
	return Float8GetDatum((double) pg_atomic_read_u64(&stats->timings[timing].sum_us) /
						  USECS_PER_SEC);
}

static Datum
event_count(OutboxDatabaseStats *stats, OutboxEvent event)
{
	return Int64GetDatum(stats == NULL ? 0 :
						 (int64) pg_atomic_read_u64(&stats->events[event]));
}

static double
published_per_second(OutboxDatabaseStats *stats)
{
	uint32		published[RATE_SECONDS];
	uint64		sum = 0;

	if (stats == NULL)
		return 0;
	outbox_stats_seconds(stats, published, RATE_SECONDS);
	for (int i = 0; i < RATE_SECONDS; i++)
		sum += published[i];
	return (double) sum / RATE_SECONDS;
}

Datum
outbox_database_stats(PG_FUNCTION_ARGS)
{
	OutboxDatabaseStats *stats = outbox_stats_find(MyDatabaseId);
	ResultRow	row = {0};

	put_time(&row, outbox_stats == NULL ? 0 : outbox_stats->started_at);
	put(&row, event_count(stats, OUTBOX_EVENT_RECONNECT));
	put(&row, event_count(stats, OUTBOX_EVENT_DATABASE_ERROR));
	put(&row, Float8GetDatum(published_per_second(stats)));
	put(&row, bounds_array());
	for (OutboxTiming timing = 0; timing < OUTBOX_NTIMINGS; timing++)
	{
		put(&row, buckets_array(stats, timing));
		put(&row, sum_seconds(stats, timing));
	}
	return return_row(fcinfo, &row);
}

Datum
outbox_published_seconds(PG_FUNCTION_ARGS)
{
	OutboxDatabaseStats *stats = outbox_stats_find(MyDatabaseId);
	uint32		published[SHOWN_SECONDS] = {0};
	Datum		datums[SHOWN_SECONDS];

	if (stats != NULL)
		outbox_stats_seconds(stats, published, SHOWN_SECONDS);
	for (int i = 0; i < SHOWN_SECONDS; i++)
		datums[i] = Int64GetDatum((int64) published[i]);
	PG_RETURN_POINTER(construct_array(datums, SHOWN_SECONDS, INT8OID, sizeof(int64),
									  FLOAT8PASSBYVAL, TYPALIGN_DOUBLE));
}

/* How far the workers that publish have come with the backlog: since when, and how much. */
Datum
outbox_drain(PG_FUNCTION_ARGS)
{
	TimestampTz first = 0;
	uint64		sum = 0;
	ResultRow	row = {0};

	for (int i = 0; i < slot_count(); i++)
	{
		OutboxSlot *slot = lock_slot(i);
		TimestampTz since;
		uint64		before;
		bool		drains;

		if (slot == NULL)
			continue;
		drains = slot->pid != 0 && slot->state == OUTBOX_WORKER_PUBLISHING;
		since = slot->report.since;
		before = slot->report.published_before;
		SpinLockRelease(&slot->mutex);
		if (!drains)
			continue;
		if (first == 0 || since < first)
			first = since;
		sum += pg_atomic_read_u64(&slot->counters.published) - before;
	}
	put_time(&row, first);
	put_int64(&row, (int64) sum);
	return return_row(fcinfo, &row);
}
