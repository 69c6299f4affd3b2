/*-------------------------------------------------------------------------
 *
 * store_holders.c
 *		Rows that hold their key: retries that wait, and what has failed.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "catalog/pg_type.h"
#include "store.h"
#include "store_internal.h"
#include "utils/array.h"
#include "utils/builtins.h"

void
outbox_store_list_retries(int worker, int nworkers, OutboxRowVisit visit,
						  void *arg)
{
	static OutboxStatement statements[2];
	static const Oid types[] = {INT4OID, INT4OID};
	OutboxStatement *statement = &statements[nworkers > 1];
	Datum		values[] = {Int32GetDatum(worker), Int32GetDatum(nworkers)};

	if (statement->plan == NULL)
	{
		const char *share = "";

		if (nworkers > 1)
			share = " AND (outbox_internal.outbox_key_hash(route, aggregate_type,"
				" aggregate_id) & 9223372036854775807) % $2 = $1";
		outbox_store_plan(statement,
						  psprintf("SELECT " ROW_COLUMNS " FROM outbox_internal.outbox"
								   " WHERE " WAITING " AND attempts > 0"
								   " AND aggregate_id IS NOT NULL%s",
								   share),
						  2, types);
	}
	(void) outbox_store_visit_rows(statement->plan, 2, types, values, visit, arg);
}

/*
 * One look into outbox_holder for each key.  The condition is that of the index, and
 * allows no other one, by which the planner might read all that has failed, or waits.
 */
#define OLDEST_HOLDER(status) \
	"SELECT r.* FROM pg_catalog.unnest($1) k (hash)," \
	" LATERAL (SELECT " ROW_COLUMNS " FROM outbox_internal.outbox" \
	" WHERE aggregate_id IS NOT NULL AND outlet IS NULL" \
	" AND (status = 'failed' OR available_at IS NOT NULL AND (outlet IS NOT NULL OR attempts > 0))" \
	" AND outbox_internal.outbox_key_hash(route, aggregate_type, aggregate_id)" \
	" = k.hash AND " status \
	" ORDER BY outbox_internal.outbox_key_hash(route, aggregate_type, aggregate_id)," \
	" status, seq LIMIT 1) r"

static void
visit_holders(OutboxStatement *statement, const char *text, const int64 *hashes,
			  int n, OutboxRowVisit visit, void *arg)
{
	static const Oid types[] = {INT8ARRAYOID};
	Datum		values[] = {outbox_store_int64_array(hashes, n)};

	outbox_store_plan(statement, text, 1, types);
	(void) outbox_store_visit_rows(statement->plan, 1, types, values, visit, arg);
}

void
outbox_store_visit_failed(const int64 *hashes, int n, OutboxRowVisit visit,
						  void *arg)
{
	static OutboxStatement statement;

	visit_holders(&statement, OLDEST_HOLDER("status <= 'failed'"),
				  hashes, n, visit, arg);
}

void
outbox_store_visit_retries(const int64 *hashes, int n, OutboxRowVisit visit,
						   void *arg)
{
	static OutboxStatement statement;

	visit_holders(&statement, OLDEST_HOLDER("status >= 'pending'"),
				  hashes, n, visit, arg);
}

void
outbox_store_check_holders(const pg_uuid_t *ids, const int64 *hashes, int n,
						   bool *still)
{
	static OutboxStatement statement;
	Oid			types[] = {UUIDARRAYOID};
	uint64	   *found = palloc0(sizeof(uint64) * Max(n, 1));
	Datum		array = outbox_store_id_array(ids, sizeof(*ids), n);

	memset(still, 0, sizeof(bool) * n);
	outbox_store_execute(outbox_store_plan(&statement,
										   "SELECT id, outbox_internal.outbox_key_hash(route,"
													" aggregate_type, aggregate_id)"
													" FROM outbox_internal.outbox"
													" WHERE id = ANY ($1) AND aggregate_id IS NOT NULL"
													" AND outlet IS NULL"
													" AND (status = 'failed' OR"
													" available_at IS NOT NULL)",
										   1, types),
						 &array, NULL, SPI_OK_SELECT);
	outbox_store_find_ids(ids, sizeof(*ids), n, still, found);
	/* An operator may have given it another key. */
	for (int i = 0; i < n; i++)
		still[i] = still[i] && found[i] == (uint64) hashes[i];
}
