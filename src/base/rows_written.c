/*-------------------------------------------------------------------------
 *
 * rows_written.c
 *		Has anything been written in a database since?
 *
 * From the server's statistics, which the launcher can read of every database, and from
 * the count by which the server knows that a snapshot is still good; without a transaction.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/transam.h"
#include "compat.h"
#include "pgstat.h"
#include "rows_written.h"
#include "utils/fmgrprotos.h"
#include "utils/memutils.h"

static int64
count(PGFunction counter, Oid dboid)
{
	return DatumGetInt64(DirectFunctionCall1(counter, ObjectIdGetDatum(dboid)));
}

uint64
outbox_transactions_ended(void)
{
	return compat_transam()->xactCompletionCount;
}

int64
outbox_rows_written(Oid dboid)
{
	static MemoryContext cxt = NULL;
	MemoryContext old;
	int64		rows;

	if (cxt == NULL)
		cxt = AllocSetContextCreate(TopMemoryContext, "outbox statistics",
									ALLOCSET_SMALL_SIZES);
	old = MemoryContextSwitchTo(cxt);
	/* Else the server answers what it has answered before. */
	pgstat_clear_snapshot();
	rows = count(pg_stat_get_db_tuples_inserted, dboid) +
		count(pg_stat_get_db_tuples_updated, dboid) +
		count(pg_stat_get_db_tuples_deleted, dboid);
	MemoryContextSwitchTo(old);
	MemoryContextReset(cxt);
	return rows;
}
