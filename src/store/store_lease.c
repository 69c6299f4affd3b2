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

bool
outbox_store_lock_lease(int64 token, OutboxLease *lease)
{
	static OutboxStatement statement = {
		"SELECT route, ids, keys FROM outbox_internal.outbox_lease"
		" WHERE token = $1 FOR UPDATE",
		SPI_OK_SELECT, {INT8OID}
	};
	Datum		value = Int64GetDatum(token);
	Datum	   *ids;

	outbox_store_run(&statement, &value);
	if (SPI_processed == 0)
		return false;
	lease->token = token;
	lease->route = outbox_store_get_text(1);
	lease->n = outbox_store_get_array(2, UUIDOID, &ids, NULL);
	if (outbox_store_get_array(3, INT8OID, &lease->keys, &lease->no_key) != lease->n)
		elog(ERROR, "outbox_lease has ids without keys");
	lease->ids = palloc(sizeof(pg_uuid_t) * lease->n);
	for (int i = 0; i < lease->n; i++)
		lease->ids[i] = *DatumGetUUIDP(ids[i]);
	return true;
}

void
outbox_store_shorten_lease(const OutboxLease *lease, const bool *gone)
{
	static OutboxStatement end = {
		"DELETE FROM outbox_internal.outbox_lease WHERE token = $1",
		SPI_OK_DELETE, {INT8OID}
	};
	static OutboxStatement shorten = {
		"UPDATE outbox_internal.outbox_lease SET ids = $2, keys = $3 WHERE token = $1",
		SPI_OK_UPDATE, {INT8OID, UUIDARRAYOID, INT8ARRAYOID}
	};
	Datum	   *ids = palloc(sizeof(Datum) * lease->n);
	Datum	   *keys = palloc(sizeof(Datum) * lease->n);
	bool	   *no_key = palloc(sizeof(bool) * lease->n);
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
	values[0] = Int64GetDatum(lease->token);
	if (left == 0)
		outbox_store_run(&end, values);
	if (left == 0 || left == lease->n)
		return;
	values[1] = outbox_store_array(ids, left, UUIDOID);
	values[2] = PointerGetDatum(construct_md_array(keys, no_key, 1, &left, &lower,
												   INT8OID, sizeof(int64),
												   FLOAT8PASSBYVAL, TYPALIGN_DOUBLE));
	outbox_store_run(&shorten, values);
}

TimestampTz
outbox_store_extend_lease(int64 token, Datum interval)
{
	static OutboxStatement statement = {
		"UPDATE outbox_internal.outbox_lease SET"
		" expires_at = pg_catalog.clock_timestamp() + $2"
		" WHERE token = $1 RETURNING expires_at",
		SPI_OK_UPDATE_RETURNING, {INT8OID, INTERVALOID}
	};
	Datum		values[] = {Int64GetDatum(token), interval};

	outbox_store_run(&statement, values);
	if (SPI_processed != 1)
		ereport(ERROR,
				(errcode(ERRCODE_TRIGGERED_ACTION_EXCEPTION),
				 errmsg("the lease cannot be extended in the table \"outbox_lease\""),
				 errdetail("UPDATE leaves the row as it is, so a trigger keeps it."),
				 errhint("Drop the BEFORE UPDATE trigger, or let it return NEW.")));
	return DatumGetTimestampTz(outbox_store_get(0, 1, NULL));
}

/* As UTF-8; NULL for NULL. */
static char *
get_utf8(int column)
{
	char	   *str = outbox_store_get_text(column);

	return str == NULL ? NULL : pg_server_to_any(str, (int) strlen(str), PG_UTF8);
}

bool
outbox_store_lock_message(const pg_uuid_t *id, OutboxMessage *message)
{
	static OutboxStatement statement = {
		"SELECT attempts::pg_catalog.int4, event_type::pg_catalog.text,"
		" aggregate_type::pg_catalog.text, aggregate_id::pg_catalog.text,"
		" routing_key::pg_catalog.text FROM outbox_internal.outbox"
		" WHERE id = $1 AND status = 'pending' FOR UPDATE",
		SPI_OK_SELECT, {UUIDOID}
	};
	Datum		value = UUIDPGetDatum(id);

	outbox_store_run(&statement, &value);
	if (SPI_processed == 0)
		return false;
	memset(message, 0, sizeof(*message));
	message->id = *id;
	message->attempts = DatumGetInt32(outbox_store_get(0, 1, NULL));
	message->event_type = get_utf8(2);
	message->aggregate_type = get_utf8(3);
	message->aggregate_id = get_utf8(4);
	message->routing_key = get_utf8(5);
	return true;
}
