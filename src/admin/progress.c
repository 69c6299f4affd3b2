/*-------------------------------------------------------------------------
 *
 * progress.c
 *		How far the workers of a database have come with its backlog.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "funcapi.h"
#include "miscadmin.h"
#include "shared.h"
#include "utils/timestamp.h"

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
