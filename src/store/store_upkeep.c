/*-------------------------------------------------------------------------
 *
 * store_upkeep.c
 *		What the worker does beside publishing: maintenance, jobs, prepared transactions.
 *
 * What a chunk of a job does is in the function outbox_job_step() of the extension.
 * Where the job is and what the chunk has put into outbox commit together, so nothing
 * is put twice, and nothing left out, whenever the process dies.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "catalog/pg_type.h"
#include "own_relations.h"
#include "store.h"
#include "store_internal.h"
#include "utils/builtins.h"
#include "utils/memutils.h"
#include "utils/timestamp.h"
#include "utils/uuid.h"

TransactionId *
outbox_store_prepared(int *n)
{
	static OutboxStatement statement = {
		"SELECT transaction FROM pg_catalog.pg_prepared_xacts"
		" WHERE database = pg_catalog.current_database()",
		SPI_OK_SELECT
	};
	TransactionId *xids;

	outbox_store_run(&statement, NULL);
	*n = (int) SPI_processed;
	xids = palloc(sizeof(TransactionId) * Max(*n, 1));
	for (int row = 0; row < *n; row++)
		xids[row] = DatumGetTransactionId(outbox_store_get(row, 1, NULL));
	return xids;
}

char *
outbox_store_maintain_archive(int retention_s, MemoryContext cxt)
{
	static OutboxStatement statement = {
		"SELECT outbox_internal.outbox_archive_maintain($1 * interval '1 second')",
		SPI_OK_SELECT, {INT4OID}
	};
	Datum		value = Int32GetDatum(retention_s);

	outbox_store_run(&statement, &value);
	return outbox_store_keep_text(cxt);
}

bool
outbox_store_maintain_history(int retention_s, TimestampTz *since)
{
	static OutboxStatement statement = {
		"SELECT outbox_internal.outbox_history_maintain($1 * interval '1 second')",
		SPI_OK_SELECT, {INT4OID}
	};
	Datum		value = Int32GetDatum(retention_s);

	(void) since;
	outbox_store_run(&statement, &value);
	return DatumGetInt64(outbox_store_get(0, 1, NULL)) > 0;
}

bool
outbox_store_maintain_once(int window_s, TimestampTz *since)
{
	static OutboxStatement statement = {
		"SELECT outbox_internal.outbox_once_maintain($1 * interval '1 second',"
		" $2::pg_catalog.timestamptz)",
		SPI_OK_SELECT, {INT4OID, TIMESTAMPTZOID}
	};
	Datum		values[] = {Int32GetDatum(window_s), TimestampTzGetDatum(*since)};
	bool		isnull;
	Datum		last;

	outbox_store_run(&statement, values);
	last = outbox_store_get(0, 1, &isnull);
	if (!isnull)
		*since = DatumGetTimestampTz(last);
	return !isnull;
}

char *
outbox_store_archive_lockers(MemoryContext cxt)
{
	/* Not pg_partition_tree(), which waits for whoever has one to itself. */
	static OutboxStatement statement = {
		"WITH RECURSIVE t(relid) AS (SELECT $1 UNION ALL"
		" SELECT i.inhrelid FROM t JOIN pg_catalog.pg_inherits i ON i.inhparent = t.relid)"
		" SELECT pg_catalog.string_agg(DISTINCT coalesce(l.pid::text, 'a prepared transaction'), ', ')"
		" FROM t JOIN pg_catalog.pg_locks l ON l.locktype = 'relation'"
		" AND l.relation = t.relid"
		" AND l.database = (SELECT d.oid FROM pg_catalog.pg_database d"
		" WHERE d.datname = pg_catalog.current_database())"
		" WHERE l.granted AND l.pid IS DISTINCT FROM pg_catalog.pg_backend_pid()",
		SPI_OK_SELECT, {OIDOID}
	};
	Datum		value = ObjectIdGetDatum(outbox_relation(OUTBOX_REL_ARCHIVE));

	outbox_store_run(&statement, &value);
	return outbox_store_keep_text(cxt);
}

char *
outbox_store_database_settings(MemoryContext cxt)
{
	static OutboxStatement statement = {
		"SELECT coalesce((SELECT setconfig::text"
		" FROM pg_catalog.pg_db_role_setting s"
		" JOIN pg_catalog.pg_database d ON d.oid = s.setdatabase"
		" WHERE d.datname = pg_catalog.current_database() AND s.setrole = 0), '')",
		SPI_OK_SELECT
	};
	char	   *settings;

	outbox_store_begin_catalogs("looking for settings", false);
	outbox_store_run(&statement, NULL);
	settings = outbox_store_keep_text(cxt);
	outbox_store_end(false);
	return settings;
}

/* -------------------------------------------------------------------- jobs */

int64
outbox_store_job_next(void)
{
	static OutboxStatement statement = {
		"SELECT outbox_internal.outbox_job_next()", SPI_OK_SELECT
	};
	bool		isnull;
	Datum		id;

	outbox_store_run(&statement, NULL);
	id = outbox_store_get(0, 1, &isnull);
	return isnull ? 0 : DatumGetInt64(id);
}

static OutboxJobOutcome
job_outcome(const char *name)
{
	static const char *const names[] = {
		[OUTBOX_JOB_NONE] = "none",
		[OUTBOX_JOB_BUSY] = "busy",
		[OUTBOX_JOB_LOCKED] = "locked",
		[OUTBOX_JOB_PUT] = "put",
	};

	for (int i = 0; name != NULL && i < (int) lengthof(names); i++)
		if (strcmp(names[i], name) == 0)
			return (OutboxJobOutcome) i;
	elog(ERROR, "outbox_job_step() returned \"%s\"",
		 name == NULL ? "null" : name);
}

OutboxJobOutcome
outbox_store_job_step(int max_messages, int64 max_bytes,
					  const OutboxJobChunk *earlier, bool tell,
					  MemoryContext cxt, OutboxJobChunk *put)
{
	static OutboxStatement statement = {
		"SELECT s.outcome, s.ids FROM outbox_internal.outbox_job_step("
		"$1::pg_catalog.int4, $2::pg_catalog.int8, $3::pg_catalog.uuid[],"
		" $4::pg_catalog.bool) s",
		SPI_OK_SELECT, {INT4OID, INT8OID, UUIDARRAYOID, BOOLOID}
	};
	Datum		values[] = {
		Int32GetDatum(max_messages), Int64GetDatum(max_bytes),
		outbox_store_id_array(earlier->ids, sizeof(pg_uuid_t), earlier->n),
		BoolGetDatum(tell)
	};
	Datum	   *elems;

	outbox_store_run(&statement, values);
	put->n = outbox_store_get_array(2, UUIDOID, &elems, NULL);
	put->ids = put->n == 0 ? NULL : MemoryContextAlloc(cxt, sizeof(pg_uuid_t) * put->n);
	for (int i = 0; i < put->n; i++)
		put->ids[i] = *DatumGetUUIDP(elems[i]);
	return job_outcome(outbox_store_get_text(1));
}

void
outbox_store_job_error(int64 job, const char *error, bool final)
{
	static OutboxStatement statement = {
		"SELECT outbox_internal.outbox_job_error("
		"$1::pg_catalog.int8, $2::pg_catalog.text, $3::pg_catalog.bool)",
		SPI_OK_SELECT, {INT8OID, TEXTOID, BOOLOID}
	};
	Datum		values[] = {
		Int64GetDatum(job), CStringGetTextDatum(error), BoolGetDatum(final)
	};

	outbox_store_run(&statement, values);
}
