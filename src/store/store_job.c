/*-------------------------------------------------------------------------
 *
 * store_job.c
 *		Jobs: chunks of what takes more than a transaction.
 *
 * What a chunk does is in the function outbox_job_step() of the extension.  Where
 * the job is and what the chunk has put into outbox commit together, so nothing is
 * put twice, and nothing left out, whenever the process dies.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "catalog/pg_type.h"
#include "store.h"
#include "store_internal.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/memutils.h"
#include "utils/uuid.h"

#define STEP_OUTCOME	1
#define STEP_IDS		2
#define STEP_SQL \
	"SELECT s.outcome, s.ids FROM outbox_internal.outbox_job_step(" \
	"$1::pg_catalog.int4, $2::pg_catalog.int8, $3::pg_catalog.uuid[]) s"

#define NEXT_SQL \
	"SELECT outbox_internal.outbox_job_next()"

#define ERROR_SQL \
	"SELECT outbox_internal.outbox_job_error(" \
	"$1::pg_catalog.int8, $2::pg_catalog.text, $3::pg_catalog.bool)"

static const struct
{
	const char *name;
	OutboxJobOutcome outcome;
}			outcomes[] =

{
	{"none", OUTBOX_JOB_NONE},
	{"busy", OUTBOX_JOB_BUSY},
	{"locked", OUTBOX_JOB_LOCKED},
	{"put", OUTBOX_JOB_PUT},
};

static void
load_ids(MemoryContext cxt, OutboxJobChunk *chunk)
{
	bool		isnull;
	Datum		array = SPI_getbinval(SPI_tuptable->vals[0],
									  SPI_tuptable->tupdesc, STEP_IDS, &isnull);
	Datum	   *elems;
	bool	   *nulls;
	int			n;

	chunk->ids = NULL;
	chunk->n = 0;
	if (isnull)
		return;
	deconstruct_array(DatumGetArrayTypeP(array), UUIDOID, UUID_LEN, false,
					  TYPALIGN_CHAR, &elems, &nulls, &n);
	if (n > 0)
		chunk->ids = MemoryContextAlloc(cxt, sizeof(pg_uuid_t) * n);
	for (int i = 0; i < n; i++)
		if (!nulls[i])
			chunk->ids[chunk->n++] = *DatumGetUUIDP(elems[i]);
}

static OutboxJobOutcome
load_outcome(void)
{
	const char *name = SPI_getvalue(SPI_tuptable->vals[0],
									SPI_tuptable->tupdesc, STEP_OUTCOME);

	for (int i = 0; name != NULL && i < (int) lengthof(outcomes); i++)
		if (strcmp(outcomes[i].name, name) == 0)
			return outcomes[i].outcome;
	elog(ERROR, "outbox_job_step() returned \"%s\"",
		 name == NULL ? "null" : name);
}

int64
outbox_store_job_next(void)
{
	static OutboxStatement statement;
	bool		isnull;
	Datum		id;

	outbox_store_execute(outbox_store_plan(&statement,
										   NEXT_SQL,
										   0, NULL),
						 NULL, NULL, SPI_OK_SELECT);
	id = SPI_getbinval(SPI_tuptable->vals[0], SPI_tuptable->tupdesc, 1, &isnull);
	return isnull ? 0 : DatumGetInt64(id);
}

OutboxJobOutcome
outbox_store_job_step(int max_messages, int64 max_bytes,
					  const OutboxJobChunk *earlier, MemoryContext cxt,
					  OutboxJobChunk *put)
{
	static OutboxStatement statement;
	static const Oid types[] = {INT4OID, INT8OID, UUIDARRAYOID};
	Datum		values[] = {
		Int32GetDatum(max_messages), Int64GetDatum(max_bytes),
		outbox_store_id_array(earlier->ids, sizeof(pg_uuid_t), earlier->n)
	};
	OutboxJobOutcome outcome;

	outbox_store_execute(outbox_store_plan(&statement,
										   STEP_SQL,
										   lengthof(types), types),
						 values, NULL, SPI_OK_SELECT);
	outcome = load_outcome();
	load_ids(cxt, put);
	return outcome;
}

void
outbox_store_job_error(int64 job, const char *error, bool final)
{
	static OutboxStatement statement;
	static const Oid types[] = {INT8OID, TEXTOID, BOOLOID};
	Datum		values[] = {
		Int64GetDatum(job), CStringGetTextDatum(error), BoolGetDatum(final)
	};

	outbox_store_execute(outbox_store_plan(&statement,
										   ERROR_SQL,
										   lengthof(types), types),
						 values, NULL, SPI_OK_SELECT);
}
