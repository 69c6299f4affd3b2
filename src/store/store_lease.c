/*-------------------------------------------------------------------------
 *
 * store_lease.c
 *		Leases of external relays: the rows of outbox_lease, and what they cover.
 *
 * A lease is a row that outbox_claim() has written.  What becomes of its messages is
 * settled as the worker's are, by store_settle.c.  Nothing is left when the session
 * dies: the transaction rolls back, and the lease is as it was.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "catalog/pg_type.h"
#include "mb/pg_wchar.h"
#include "store.h"
#include "store_internal.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/timestamp.h"

static const Oid token_types[] = {INT8OID};

#define LOCK_SQL \
	"SELECT route, ids, keys FROM outbox_internal.outbox_lease" \
	" WHERE token = $1 FOR UPDATE"
#define LOCK_ROUTE	1
#define LOCK_IDS	2
#define LOCK_KEYS	3

/* Of the row that was found: its elements, and which are null. */
static int
get_elements(int column, Oid type, int16 len, bool byval, char align,
			 Datum **elems, bool **nulls)
{
	bool		isnull;
	Datum		array = SPI_getbinval(SPI_tuptable->vals[0], SPI_tuptable->tupdesc,
									  column, &isnull);
	int			n;

	if (isnull)
		elog(ERROR, "outbox_lease has a null in column %d", column);
	deconstruct_array(DatumGetArrayTypeP(array), type, len, byval, align, elems,
					  nulls, &n);
	return n;
}

bool
outbox_store_lock_lease(int64 token, OutboxLease *lease)
{
	static OutboxStatement statement;
	Datum		value = Int64GetDatum(token);
	Datum	   *ids;
	bool	   *nulls;

	outbox_store_execute(outbox_store_plan(&statement, LOCK_SQL, 1, token_types),
						 &value, NULL, SPI_OK_SELECT);
	if (SPI_processed == 0)
		return false;
	lease->token = token;
	lease->route = SPI_getvalue(SPI_tuptable->vals[0], SPI_tuptable->tupdesc,
								LOCK_ROUTE);
	lease->n = get_elements(LOCK_IDS, UUIDOID, UUID_LEN, false, TYPALIGN_CHAR,
							&ids, &nulls);
	if (get_elements(LOCK_KEYS, INT8OID, sizeof(int64), FLOAT8PASSBYVAL,
					 TYPALIGN_DOUBLE, &lease->keys, &lease->no_key) != lease->n)
		elog(ERROR, "outbox_lease has ids without keys");
	lease->ids = palloc(sizeof(pg_uuid_t) * Max(lease->n, 1));
	for (int i = 0; i < lease->n; i++)
		lease->ids[i] = *DatumGetUUIDP(ids[i]);
	return true;
}

static void
end_lease(int64 token)
{
	static OutboxStatement statement;
	Datum		value = Int64GetDatum(token);

	outbox_store_execute(outbox_store_plan(&statement,
										   "DELETE FROM outbox_internal.outbox_lease"
										   " WHERE token = $1",
										   1, token_types),
						 &value, NULL, SPI_OK_DELETE);
}

void
outbox_store_shorten_lease(const OutboxLease *lease, const bool *gone)
{
	static OutboxStatement statement;
	static const Oid types[] = {INT8OID, UUIDARRAYOID, INT8ARRAYOID};
	Datum	   *ids = palloc(sizeof(Datum) * Max(lease->n, 1));
	Datum	   *keys = palloc(sizeof(Datum) * Max(lease->n, 1));
	bool	   *no_key = palloc(sizeof(bool) * Max(lease->n, 1));
	Datum		values[3];
	int			left = 0;
	int			lower = 1;

	for (int i = 0; i < lease->n; i++)
		if (!gone[i])
		{
			ids[left] = UUIDPGetDatum(&lease->ids[i]);
			keys[left] = lease->keys[i];
			no_key[left++] = lease->no_key[i];
		}
	if (left == 0)
		end_lease(lease->token);
	if (left == 0 || left == lease->n)
		return;
	values[0] = Int64GetDatum(lease->token);
	values[1] = outbox_store_array(ids, left, UUIDOID);
	values[2] = PointerGetDatum(construct_md_array(keys, no_key, 1, &left, &lower,
												   INT8OID, sizeof(int64),
												   FLOAT8PASSBYVAL, TYPALIGN_DOUBLE));
	outbox_store_execute(outbox_store_plan(&statement,
										   "UPDATE outbox_internal.outbox_lease"
										   " SET ids = $2, keys = $3 WHERE token = $1",
										   3, types),
						 values, NULL, SPI_OK_UPDATE);
}

TimestampTz
outbox_store_extend_lease(int64 token, Datum interval)
{
	static OutboxStatement statement;
	static const Oid types[] = {INT8OID, INTERVALOID};
	Datum		values[] = {Int64GetDatum(token), interval};
	bool		isnull;

	outbox_store_execute(outbox_store_plan(&statement,
										   "UPDATE outbox_internal.outbox_lease SET"
										   " expires_at = pg_catalog.clock_timestamp() + $2"
										   " WHERE token = $1 RETURNING expires_at",
										   2, types),
						 values, NULL, SPI_OK_UPDATE_RETURNING);
	if (SPI_processed != 1)
		ereport(ERROR,
				(errcode(ERRCODE_TRIGGERED_ACTION_EXCEPTION),
				 errmsg("the lease cannot be extended in the table \"outbox_lease\""),
				 errdetail("UPDATE leaves the row as it is, so a trigger keeps it."),
				 errhint("Drop the BEFORE UPDATE trigger, or let it return NEW.")));
	return DatumGetTimestampTz(SPI_getbinval(SPI_tuptable->vals[0],
											 SPI_tuptable->tupdesc, 1, &isnull));
}

#define MESSAGE_SQL \
	"SELECT attempts::pg_catalog.int4, event_type::pg_catalog.text," \
	" aggregate_type::pg_catalog.text, aggregate_id::pg_catalog.text," \
	" routing_key::pg_catalog.text FROM outbox_internal.outbox" \
	" WHERE id = $1 AND status = 'pending' FOR UPDATE"

/* As UTF-8; NULL for NULL. */
static char *
get_utf8(int column)
{
	char	   *str = SPI_getvalue(SPI_tuptable->vals[0], SPI_tuptable->tupdesc,
								   column);

	return str == NULL ? NULL : pg_server_to_any(str, (int) strlen(str), PG_UTF8);
}

bool
outbox_store_lock_message(const pg_uuid_t *id, OutboxMessage *message)
{
	static OutboxStatement statement;
	static const Oid types[] = {UUIDOID};
	Datum		value = UUIDPGetDatum(id);
	bool		isnull;

	outbox_store_execute(outbox_store_plan(&statement, MESSAGE_SQL, 1, types),
						 &value, NULL, SPI_OK_SELECT);
	if (SPI_processed == 0)
		return false;
	memset(message, 0, sizeof(*message));
	message->id = *id;
	message->attempts = DatumGetInt32(SPI_getbinval(SPI_tuptable->vals[0],
													SPI_tuptable->tupdesc, 1,
													&isnull));
	message->event_type = get_utf8(2);
	message->aggregate_type = get_utf8(3);
	message->aggregate_id = get_utf8(4);
	message->routing_key = get_utf8(5);
	return true;
}
