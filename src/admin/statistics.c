/*-------------------------------------------------------------------------
 *
 * statistics.c
 *		Functions that show the statistics of stats.h, of the current database, and how
 *		far a drain has come.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "catalog/pg_type.h"
#include "fmgr.h"
#include "funcapi.h"
#include "miscadmin.h"
#include "shared.h"
#include "stats.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/timestamp.h"
#include "utils/tuplestore.h"

PG_FUNCTION_INFO_V1(outbox_route_stats);
PG_FUNCTION_INFO_V1(outbox_database_stats);
PG_FUNCTION_INFO_V1(outbox_published_seconds);

/* Over so many seconds that are over. */
#define RATE_SECONDS	10
/* So many are shown one by one. */
#define SHOWN_SECONDS	15

/* ------------------------------------------------------------------ routes */

#define ROUTE_COLS (1 + OUTBOX_NCOUNTS + 4)

static Datum
text_or_null(const char *str, bool *isnull)
{
	*isnull = str[0] == '\0';
	return *isnull ? (Datum) 0 : CStringGetTextDatum(str);
}

static bool
has_counted(OutboxRouteStats *route)
{
	for (int i = 0; i < OUTBOX_NCOUNTS; i++)
		if (pg_atomic_read_u64(&route->counts[i]) > 0)
			return true;
	return false;
}

/* The last entry is that of all others, and has no name. */
static void
put_route(ReturnSetInfo *rsinfo, OutboxDatabaseStats *stats, int index)
{
	OutboxRouteStats *route = &stats->routes[index];
	char		name[OUTBOX_STATS_NAME];
	char		because[OUTBOX_STATS_TEXT];
	char		reason[sizeof(route->reason)];
	TimestampTz since;
	TimestampTz retry_at;
	Datum		values[ROUTE_COLS];
	bool		nulls[ROUTE_COLS] = {false};
	int			n = 0;

	SpinLockAcquire(&stats->mutex);
	strlcpy(name, index == OUTBOX_STATS_OTHER_ROUTES ? "" : route->name, sizeof(name));
	strlcpy(because, route->waits_because, sizeof(because));
	strlcpy(reason, route->reason, sizeof(reason));
	since = route->waits_since;
	retry_at = route->retry_at;
	SpinLockRelease(&stats->mutex);

	values[n] = text_or_null(name, &nulls[n]);
	n++;
	for (int i = 0; i < OUTBOX_NCOUNTS; i++)
		values[n++] = Int64GetDatum((int64) pg_atomic_read_u64(&route->counts[i]));
	if (because[0] == '\0')
	{
		reason[0] = '\0';
		since = retry_at = 0;
	}
	values[n] = text_or_null(because, &nulls[n]);
	n++;
	values[n] = text_or_null(reason, &nulls[n]);
	n++;
	nulls[n] = since == 0;
	values[n++] = TimestampTzGetDatum(since);
	nulls[n] = retry_at == 0;
	values[n++] = TimestampTzGetDatum(retry_at);
	Assert(n == ROUTE_COLS);
	tuplestore_putvalues(rsinfo->setResult, rsinfo->setDesc, values, nulls);
}

Datum
outbox_route_stats(PG_FUNCTION_ARGS)
{
	ReturnSetInfo *rsinfo = (ReturnSetInfo *) fcinfo->resultinfo;
	OutboxDatabaseStats *stats = outbox_stats_find(MyDatabaseId);
	int			nroutes;

	InitMaterializedSRF(fcinfo, 0);
	if (stats == NULL)
		return (Datum) 0;
	SpinLockAcquire(&stats->mutex);
	nroutes = stats->nroutes;
	SpinLockRelease(&stats->mutex);
	for (int i = 0; i < nroutes; i++)
		put_route(rsinfo, stats, i);
	if (has_counted(&stats->routes[OUTBOX_STATS_OTHER_ROUTES]))
		put_route(rsinfo, stats, OUTBOX_STATS_OTHER_ROUTES);
	return (Datum) 0;
}

/* ---------------------------------------------------------------- database */

#define DATABASE_COLS 9

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

Datum
outbox_database_stats(PG_FUNCTION_ARGS)
{
	OutboxDatabaseStats *stats = outbox_stats_find(MyDatabaseId);
	TupleDesc	desc;
	Datum		values[DATABASE_COLS];
	bool		nulls[DATABASE_COLS] = {false};

	if (get_call_result_type(fcinfo, NULL, &desc) != TYPEFUNC_COMPOSITE)
		elog(ERROR, "return type must be a row type");
	nulls[0] = outbox_stats == NULL;
	values[0] = TimestampTzGetDatum(outbox_stats == NULL ? 0 : outbox_stats->started_at);
	values[1] = event_count(stats, OUTBOX_EVENT_RECONNECT);
	values[2] = event_count(stats, OUTBOX_EVENT_DATABASE_ERROR);
	values[3] = Float8GetDatum(stats == NULL ? 0 : outbox_stats_rate(stats, RATE_SECONDS));
	values[4] = bounds_array();
	values[5] = buckets_array(stats, OUTBOX_TIMING_COMMIT);
	values[6] = sum_seconds(stats, OUTBOX_TIMING_COMMIT);
	values[7] = buckets_array(stats, OUTBOX_TIMING_PUBLISH);
	values[8] = sum_seconds(stats, OUTBOX_TIMING_PUBLISH);
	PG_RETURN_DATUM(HeapTupleGetDatum(heap_form_tuple(BlessTupleDesc(desc),
													  values, nulls)));
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

/*
 * How far the workers of a database have come with its backlog.
 */

PG_FUNCTION_INFO_V1(outbox_drain);

#define DRAIN_COLS 2

/* A worker that publishes: since when, and what.  False: this one does not. */
static bool
is_draining(OutboxSlot *slot, TimestampTz *since, uint64 *published)
{
	bool		drains;

	SpinLockAcquire(&slot->mutex);
	drains = slot->in_use && slot->dboid == MyDatabaseId && slot->pid != 0 &&
		slot->state == OUTBOX_WORKER_PUBLISHING;
	*since = slot->since;
	*published = slot->published_before;
	SpinLockRelease(&slot->mutex);
	*published = pg_atomic_read_u64(&slot->counters.published) - *published;
	return drains;
}

Datum
outbox_drain(PG_FUNCTION_ARGS)
{
	TimestampTz first = 0;
	uint64		sum = 0;
	TupleDesc	desc;
	Datum		values[DRAIN_COLS];
	bool		nulls[DRAIN_COLS] = {false};

	if (get_call_result_type(fcinfo, NULL, &desc) != TYPEFUNC_COMPOSITE)
		elog(ERROR, "return type must be a row type");
	for (int i = 0; outbox_shared != NULL && i < outbox_shared->nslots; i++)
	{
		TimestampTz since;
		uint64		published;

		if (!is_draining(&outbox_shared->slots[i], &since, &published))
			continue;
		if (first == 0 || since < first)
			first = since;
		sum += published;
	}
	nulls[0] = first == 0;
	values[0] = TimestampTzGetDatum(first);
	values[1] = Int64GetDatum((int64) sum);
	PG_RETURN_DATUM(HeapTupleGetDatum(heap_form_tuple(BlessTupleDesc(desc),
													  values, nulls)));
}
