/*-------------------------------------------------------------------------
 *
 * store_unreadable.c
 *		Versions of rows that cannot be read.
 *
 * Which row that is, store_message.c knows when the error comes.
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
outbox_store_version_arrays(const OutboxUnreadableRow *rows, int n, Datum *ids,
							Datum *tids)
{
	Datum	   *tid_elems = palloc(sizeof(Datum) * Max(n, 1));

	for (int i = 0; i < n; i++)
		tid_elems[i] = PointerGetDatum(&rows[i].tid);
	*ids = outbox_store_id_array(&rows->row.id, sizeof(*rows), n);
	*tids = outbox_store_array(tid_elems, n, TIDOID);
}

void
outbox_store_find_unchanged(const OutboxUnreadableRow *rows, int n, bool *same)
{
	static OutboxStatement statement;
	static const Oid types[] = {UUIDARRAYOID, TIDARRAYOID};
	Datum		values[2];

	outbox_store_version_arrays(rows, n, &values[0], &values[1]);
	outbox_store_execute(outbox_store_plan(&statement,
										   "SELECT k.i FROM ROWS FROM"
										   " (pg_catalog.unnest($1), pg_catalog.unnest($2))"
										   " WITH ORDINALITY k (id, place, i)"
										   " JOIN outbox_internal.outbox o"
										   " ON o.id = k.id AND o.ctid = k.place"
										   " WHERE o.status = 'pending' AND o.outlet IS NULL",
										   2, types),
						 values, NULL, SPI_OK_SELECT);
	memset(same, 0, sizeof(bool) * n);
	for (int row = 0; row < (int) SPI_processed; row++)
	{
		bool		isnull;

		same[DatumGetInt64(SPI_getbinval(SPI_tuptable->vals[row],
										 SPI_tuptable->tupdesc, 1, &isnull)) - 1] = true;
	}
}
