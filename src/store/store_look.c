/*-------------------------------------------------------------------------
 *
 * store_look.c
 *		Rows that are looked at and not claimed: by key, by time, by version.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "catalog/pg_type.h"
#include "store.h"
#include "store_internal.h"
#include "utils/timestamp.h"

/* The last statement has returned numbers from 1 on. */
static void
mark_numbers(bool *marks)
{
	for (uint64 row = 0; row < SPI_processed; row++)
		marks[DatumGetInt64(outbox_store_get(row, 1, NULL)) - 1] = true;
}

void
outbox_store_find_keys(const int64 *hashes, const char *const *routes,
					   const int64 *los, const int64 *his, int n, bool *found)
{
	/*
	 * One look into outbox_key for each, whatever the planner believes: with
	 * the statistics of a queue that was just empty it took outbox_ready, and
	 * read the whole range for each key.  That one has not this order, and
	 * sorting is off.
	 */
	static OutboxStatement statement = {
		"SELECT k.i FROM ROWS FROM"
		" (pg_catalog.unnest($1), pg_catalog.unnest($2), pg_catalog.unnest($3),"
		" pg_catalog.unnest($4)) WITH ORDINALITY k (hash, lo, hi, route, i),"
		" LATERAL (SELECT FROM outbox_internal.outbox"
		" WHERE " READY " AND aggregate_id IS NOT NULL"
		" AND (" KEY_HASH ", seq) >= (k.hash, k.lo) AND (" KEY_HASH ", seq) <= (k.hash, k.hi)"
		" AND route = k.route"
		" ORDER BY " KEY_HASH ", seq LIMIT 1) r",
		SPI_OK_SELECT, {INT8ARRAYOID, INT8ARRAYOID, INT8ARRAYOID, TEXTARRAYOID}
	};
	Datum		values[] = {
		outbox_store_int64_array(hashes, n), outbox_store_int64_array(los, n),
		outbox_store_int64_array(his, n), outbox_store_text_array(routes, n)
	};

	outbox_store_run(&statement, values);
	mark_numbers(found);
}

int64
outbox_store_last_ready(int64 from)
{
	static OutboxStatement statement = {
		"SELECT seq FROM outbox_internal.outbox WHERE " READY
		" AND seq >= $1 ORDER BY seq DESC LIMIT 1",
		SPI_OK_SELECT, {INT8OID}
	};
	Datum		value = Int64GetDatum(from);

	outbox_store_run(&statement, &value);
	return SPI_processed == 0 ? 0 : DatumGetInt64(outbox_store_get(0, 1, NULL));
}

TimestampTz
outbox_store_next_due(TimestampTz after_due, int64 after_seq)
{
	static OutboxStatement statement = {
		"SELECT available_at FROM outbox_internal.outbox"
		" WHERE " WAITING " AND (available_at, seq) > ($1, $2)"
		" ORDER BY available_at, seq LIMIT 1",
		SPI_OK_SELECT, {TIMESTAMPTZOID, INT8OID}
	};
	Datum		values[] = {TimestampTzGetDatum(after_due), Int64GetDatum(after_seq)};

	outbox_store_run(&statement, values);
	return SPI_processed == 0 ? 0 :
		outbox_due_time(DatumGetTimestampTz(outbox_store_get(0, 1, NULL)));
}

bool
outbox_store_reach_due(TimestampTz after_due, int64 after_seq, TimestampTz upto, int n,
					   TimestampTz *at, int64 *seq)
{
	static OutboxStatement statement = {
		"SELECT available_at, seq FROM outbox_internal.outbox"
		" WHERE " WAITING " AND (available_at, seq) > ($1, $2) AND available_at <= $3"
		" ORDER BY available_at, seq OFFSET $4 LIMIT 1",
		SPI_OK_SELECT, {TIMESTAMPTZOID, INT8OID, TIMESTAMPTZOID, INT8OID}
	};
	Datum		values[] = {
		TimestampTzGetDatum(after_due), Int64GetDatum(after_seq), TimestampTzGetDatum(upto),
		Int64GetDatum((int64) n)
	};

	outbox_store_run(&statement, values);
	if (SPI_processed == 0)
		return false;
	*at = DatumGetTimestampTz(outbox_store_get(0, 1, NULL));
	*seq = DatumGetInt64(outbox_store_get(0, 2, NULL));
	return true;
}

/* ------------------------------------------------- rows that hold their key */

/*
 * The condition of the index outbox_holder, which allows no other one, by which the
 * planner might read all that has failed, or waits.
 */
#define HOLDERS "aggregate_id IS NOT NULL AND outlet IS NULL" \
	" AND (status = 'failed' OR available_at IS NOT NULL AND attempts > 0)"

void
outbox_store_list_retries(int worker, int nworkers, OutboxRowVisit visit,
						  void *arg)
{
#define RETRIES_SQL \
	"SELECT " ROW_COLUMNS " FROM outbox_internal.outbox" \
	" WHERE " HOLDERS " AND status = 'pending'"
	static OutboxStatement all = {RETRIES_SQL, SPI_OK_SELECT};
	static OutboxStatement share = {
		RETRIES_SQL " AND (" KEY_HASH " & 9223372036854775807) % $2 = $1",
		SPI_OK_SELECT, {INT4OID, INT4OID}
	};
	Datum		values[] = {Int32GetDatum(worker), Int32GetDatum(nworkers)};

	outbox_store_visit_rows(nworkers > 1 ? &share : &all, values, visit, arg);
}

/* One look into the index for each key. */
#define OLDEST_HOLDERS(status, n) \
	"SELECT r.* FROM ROWS FROM (pg_catalog.unnest($1), pg_catalog.unnest($2)) k (hash, route)," \
	" LATERAL (SELECT " ROW_COLUMNS " FROM outbox_internal.outbox" \
	" WHERE " HOLDERS \
	" AND " KEY_HASH " = k.hash AND route = k.route AND " status \
	" ORDER BY " KEY_HASH ", status, seq LIMIT " n ") r"

void
outbox_store_visit_failed(const int64 *hashes, const char *const *routes, int n,
						  OutboxRowVisit visit, void *arg)
{
	static OutboxStatement statement = {
		OLDEST_HOLDERS("status <= 'failed'", "1"), SPI_OK_SELECT,
		{INT8ARRAYOID, TEXTARRAYOID}
	};
	Datum		values[] = {
		outbox_store_int64_array(hashes, n), outbox_store_text_array(routes, n)
	};

	outbox_store_visit_rows(&statement, values, visit, arg);
}

void
outbox_store_visit_retries(const int64 *hashes, const char *const *routes, int n,
						   OutboxRowVisit visit, void *arg)
{
	static OutboxStatement statement = {
		OLDEST_HOLDERS("status >= 'pending'", "2"), SPI_OK_SELECT,
		{INT8ARRAYOID, TEXTARRAYOID}
	};
	Datum		values[] = {
		outbox_store_int64_array(hashes, n), outbox_store_text_array(routes, n)
	};

	outbox_store_visit_rows(&statement, values, visit, arg);
}

void
outbox_store_check_holders(const pg_uuid_t *ids, const int64 *hashes,
						   const char *const *routes, int n, bool *still)
{
	/* An operator, or a failed_route, may have given it another key. */
	static OutboxStatement statement = {
		"SELECT k.i FROM ROWS FROM"
		" (pg_catalog.unnest($1), pg_catalog.unnest($2), pg_catalog.unnest($3))"
		" WITH ORDINALITY k (id, hash, route, i),"
		" LATERAL (SELECT " KEY_HASH " AS hash, route FROM outbox_internal.outbox"
		" WHERE id = k.id AND aggregate_id IS NOT NULL AND outlet IS NULL"
		" AND (status = 'failed' OR available_at IS NOT NULL) OFFSET 0) r"
		" WHERE r.hash = k.hash AND r.route = k.route",
		SPI_OK_SELECT, {UUIDARRAYOID, INT8ARRAYOID, TEXTARRAYOID}
	};
	Datum		values[] = {
		outbox_store_id_array(ids, sizeof(*ids), n), outbox_store_int64_array(hashes, n),
		outbox_store_text_array(routes, n)
	};

	outbox_store_run(&statement, values);
	memset(still, 0, sizeof(bool) * n);
	mark_numbers(still);
}

/* ----------------------------------- versions of rows that cannot be read */

void
outbox_store_version_arrays(const OutboxUnreadableRow *rows, int n, Datum *ids,
							Datum *tids)
{
	Datum	   *elems = palloc(sizeof(Datum) * Max(n, 1));

	for (int i = 0; i < n; i++)
		elems[i] = PointerGetDatum(&rows[i].tid);
	*ids = outbox_store_id_array(&rows->row.id, sizeof(*rows), n);
	*tids = outbox_store_array(elems, n, TIDOID);
}

void
outbox_store_find_unchanged(const OutboxUnreadableRow *rows, int n, bool *same)
{
	static OutboxStatement statement = {
		"SELECT k.i FROM ROWS FROM (pg_catalog.unnest($1), pg_catalog.unnest($2))"
		" WITH ORDINALITY k (id, place, i)"
		" JOIN outbox_internal.outbox o ON o.id = k.id AND o.ctid = k.place"
		" WHERE o.status = 'pending' AND o.outlet IS NULL",
		SPI_OK_SELECT, {UUIDARRAYOID, TIDARRAYOID}
	};
	Datum		values[2];

	outbox_store_version_arrays(rows, n, &values[0], &values[1]);
	outbox_store_run(&statement, values);
	memset(same, 0, sizeof(bool) * n);
	mark_numbers(same);
}
