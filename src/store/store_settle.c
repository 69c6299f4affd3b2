/*-------------------------------------------------------------------------
 *
 * store_settle.c
 *		What became of claimed messages: published, failed attempt, failed.
 *
 * Rows are found by the TID they had when they were claimed, which costs no
 * index descent.  A row that was updated or moved since (by an operator, by
 * VACUUM FULL) is not there any more; id in the condition keeps us from
 * whatever took its place, and a second statement finds the row by its id.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/table.h"
#include "catalog/pg_type.h"
#include "deferred.h"
#include "mb/pg_wchar.h"
#include "store.h"
#include "store_internal.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"
#include "utils/timestamp.h"

#ifndef TIDARRAYOID
#define TIDARRAYOID 1010		/* pg_type has the array, no macro for it */
#endif

#define ARCHIVE_COLUMNS \
	"seq, id, route, event_type, aggregate_type, aggregate_id, payload, body," \
	" headers, properties, routing_key, created_at, available_at, attempts"
#define RETURNING_COLUMNS \
	"o.seq, o.id, o.route, o.event_type, o.aggregate_type, o.aggregate_id," \
	" o.payload, o.body, o.headers, o.properties, o.routing_key," \
	" o.created_at, o.available_at, o.attempts"

#define BY_TID \
	" USING ROWS FROM (unnest($1), unnest($2)) AS k(tid, id)" \
	" WHERE o.ctid = k.tid AND o.id = k.id"
#define BY_ID \
	" WHERE o.id = ANY ($1)"
#define BY_ID_UNLOCKED \
	" USING (SELECT id FROM %s.outbox WHERE id = ANY ($1)" \
	"  FOR UPDATE SKIP LOCKED) k WHERE o.id = k.id"

/*
 * Deletes, or moves to the archive.  published_at is the time of settling: the
 * confirm came at most some milliseconds before.
 */
static SPIPlanPtr
settle_plan(OutboxStatement *statement, const char *where, bool archive,
			int nargs, const Oid *types)
{
	const char *schema = outbox_store_schema();
	char	   *sql;

	if (statement->plan != NULL)
		return statement->plan;
	if (archive)
		sql = psprintf("WITH d AS (DELETE FROM %s.outbox o%s"
					   " RETURNING " RETURNING_COLUMNS ")"
					   " INSERT INTO %s.outbox_archive (" ARCHIVE_COLUMNS
					   ", published_at)"
					   " SELECT " ARCHIVE_COLUMNS
					   ", pg_catalog.clock_timestamp() FROM d",
					   schema, where, schema);
	else
		sql = psprintf("DELETE FROM %s.outbox o%s", schema, where);
	return outbox_store_plan(statement, sql, nargs, types);
}

static Datum
id_array(const OutboxSettled *rows, int n)
{
	Datum	   *elems = palloc(sizeof(Datum) * n);

	for (int i = 0; i < n; i++)
		elems[i] = UUIDPGetDatum(&rows[i].id);
	return PointerGetDatum(construct_array(elems, n, UUIDOID, UUID_LEN, false,
										   TYPALIGN_CHAR));
}

/*
 * Marks which of n ids the last statement has returned; they are stride bytes
 * apart, as in an array of structs.
 */
static void
mark_ids(const pg_uuid_t *ids, size_t stride, int n, bool *marks)
{
	for (int row = 0; row < (int) SPI_processed; row++)
	{
		bool		isnull;
		pg_uuid_t  *id = DatumGetUUIDP(SPI_getbinval(SPI_tuptable->vals[row],
													 SPI_tuptable->tupdesc, 1,
													 &isnull));

		for (int i = 0; i < n; i++)
			if (memcmp((const char *) ids + i * stride, id, UUID_LEN) == 0)
				marks[i] = true;
	}
}

/* Where they were claimed; returns how many. */
static int
settle_by_tid(const OutboxSettled *rows, int n, bool archive)
{
	static OutboxStatement statements[2];
	static const Oid types[] = {TIDARRAYOID, UUIDARRAYOID};
	Datum	   *tids = palloc(sizeof(Datum) * n);
	Datum		values[2];

	for (int i = 0; i < n; i++)
		tids[i] = PointerGetDatum(&rows[i].tid);
	values[0] = PointerGetDatum(construct_array(tids, n, TIDOID,
												sizeof(ItemPointerData), false,
												TYPALIGN_SHORT));
	values[1] = id_array(rows, n);
	outbox_store_execute(settle_plan(&statements[archive], BY_TID, archive, 2,
									 types),
						 values, NULL, archive ? SPI_OK_INSERT : SPI_OK_DELETE);
	return (int) SPI_processed;
}

/*
 * The server would say only that there is a deferred trigger, see deferred.c.
 * The row trigger says it for updates.
 */
static void
refuse_deferred(bool archive)
{
	Relation	rel = table_open(outbox_store_relid(), AccessShareLock);
	Oid			relid = get_relname_relid("outbox_archive",
										  RelationGetNamespace(rel));

	outbox_refuse_deferred(rel, TRIGGER_EVENT_DELETE, false);
	table_close(rel, NoLock);
	if (!archive || !OidIsValid(relid))
		return;
	rel = table_open(relid, AccessShareLock);
	outbox_refuse_deferred(rel, TRIGGER_EVENT_INSERT, false);
	table_close(rel, NoLock);
}

/* Which of these ids are in the table. */
static void
find_left(Datum ids)
{
	static OutboxStatement statement;
	static const Oid types[] = {UUIDARRAYOID};
	Datum		values[] = {ids};

	outbox_store_execute(outbox_store_plan(&statement,
										   psprintf("SELECT id FROM %s.outbox"
													" WHERE id = ANY ($1)",
													outbox_store_schema()),
										   1, types),
						 values, NULL, SPI_OK_SELECT);
}

/*
 * A trigger of the administrator's can keep a row, and it would be published
 * again and again.  As an error it stays confirmed in memory, and nothing else is
 * sent before somebody has seen to it.
 */
static void
require_gone(Datum ids)
{
	find_left(ids);
	if (SPI_processed > 0)
		ereport(ERROR,
				(errcode(ERRCODE_TRIGGERED_ACTION_EXCEPTION),
				 errmsg("a published message cannot be removed from the table \"outbox\""),
				 errdetail("DELETE leaves the row, so a trigger keeps it."),
				 errhint("Drop the BEFORE DELETE trigger, or let it return OLD.")));
}

void
outbox_store_settle(const OutboxSettled *rows, int n, bool archive)
{
	static OutboxStatement by_id[2];
	static const Oid types[] = {UUIDARRAYOID};
	Datum		values[1];
	int			settled = outbox_store_settle_direct(rows, n, archive);

	if (settled < 0)
	{
		refuse_deferred(archive);
		settled = settle_by_tid(rows, n, archive);
	}
	if (settled == n)
		return;

	/* The rest was moved, or is gone already. */
	values[0] = id_array(rows, n);
	outbox_store_execute(settle_plan(&by_id[archive], BY_ID, archive, 1, types),
						 values, NULL, archive ? SPI_OK_INSERT : SPI_OK_DELETE);
	if (settled + (int) SPI_processed < n)
		require_gone(values[0]);
}

void
outbox_store_settle_unlocked(const OutboxSettled *rows, int n, bool archive,
							 bool *remains)
{
	static OutboxStatement unlocked[2];
	static const Oid types[] = {UUIDARRAYOID};
	Datum		values[1];

	refuse_deferred(archive);
	values[0] = id_array(rows, n);
	outbox_store_execute(settle_plan(&unlocked[archive],
									 psprintf(BY_ID_UNLOCKED,
											  outbox_store_schema()),
									 archive, 1, types),
						 values, NULL, archive ? SPI_OK_INSERT : SPI_OK_DELETE);

	find_left(values[0]);
	memset(remains, 0, sizeof(bool) * n);
	mark_ids(&rows[0].id, sizeof(rows[0]), n, remains);
}

/*
 * available_at of a failed message is NULL: it waits for an operator, not for
 * a time.  Rows that somebody has locked are left.
 */
#define FAIL_SQL \
	"WITH l AS MATERIALIZED (SELECT id FROM %s.outbox WHERE id = ANY ($1)" \
	"  AND status = 'pending' FOR UPDATE SKIP LOCKED)" \
	" UPDATE %s.outbox o SET attempts = o.attempts + 1," \
	" last_error = f.reason," \
	" available_at = CASE WHEN f.give_up THEN NULL ELSE" \
	"  pg_catalog.clock_timestamp() + f.ms * interval '1 millisecond' END," \
	" status = CASE WHEN f.give_up THEN 'failed' ELSE 'pending' END" \
	" FROM l JOIN ROWS FROM (unnest($1), unnest($2), unnest($3), unnest($4))" \
	"  AS f(id, reason, ms, give_up) ON f.id = l.id" \
	" WHERE o.id = l.id RETURNING o.id"
#define STILL_PENDING_SQL \
	"SELECT id FROM %s.outbox WHERE id = ANY ($1) AND status = 'pending'"

/*
 * The broker's words as text of this database.  They are not ours to trust:
 * what has no place in the database's encoding must not fail the settling.
 */
static Datum
reason_datum(const char *reason)
{
	char	   *copy = pstrdup(reason);

	if (GetDatabaseEncoding() != PG_UTF8 ||
		!pg_verify_mbstr(PG_UTF8, copy, (int) strlen(copy), true))
		for (char *p = copy; *p; p++)
			if ((unsigned char) *p >= 0x80)
				*p = '?';
	return CStringGetTextDatum(copy);
}

bool
outbox_store_fail(const OutboxFailure *failures, int n, bool *remains)
{
	static OutboxStatement statement;
	static OutboxStatement pending;
	bool	   *updated;
	bool		all = true;
	static const Oid types[] = {
		UUIDARRAYOID, TEXTARRAYOID, INT8ARRAYOID, BOOLARRAYOID
	};
	Datum	   *ids = palloc(sizeof(Datum) * n);
	Datum	   *reasons = palloc(sizeof(Datum) * n);
	Datum	   *waits = palloc(sizeof(Datum) * n);
	Datum	   *ends = palloc(sizeof(Datum) * n);
	Datum		values[4];

	for (int i = 0; i < n; i++)
	{
		ids[i] = UUIDPGetDatum(&failures[i].id);
		reasons[i] = reason_datum(failures[i].reason);
		waits[i] = Int64GetDatum(failures[i].retry_ms);
		ends[i] = BoolGetDatum(failures[i].give_up);
	}
	values[0] = PointerGetDatum(construct_array(ids, n, UUIDOID, UUID_LEN,
												false, TYPALIGN_CHAR));
	values[1] = PointerGetDatum(construct_array(reasons, n, TEXTOID, -1, false,
												TYPALIGN_INT));
	values[2] = PointerGetDatum(construct_array(waits, n, INT8OID, sizeof(int64),
												FLOAT8PASSBYVAL,
												TYPALIGN_DOUBLE));
	values[3] = PointerGetDatum(construct_array(ends, n, BOOLOID, 1, true,
												TYPALIGN_CHAR));
	outbox_store_execute(outbox_store_plan(&statement,
										   psprintf(FAIL_SQL,
													outbox_store_schema(),
													outbox_store_schema()),
										   4, types),
						 values, NULL, SPI_OK_UPDATE_RETURNING);
	memset(remains, 0, sizeof(bool) * n);
	if (SPI_processed == (uint64) n)
		return true;

	/* The rest was taken away by somebody, or is locked: then it is there. */
	updated = palloc0(sizeof(bool) * n);
	mark_ids(&failures[0].id, sizeof(failures[0]), n, updated);
	outbox_store_execute(outbox_store_plan(&pending,
										   psprintf(STILL_PENDING_SQL,
													outbox_store_schema()),
										   1, types),
						 values, NULL, SPI_OK_SELECT);
	mark_ids(&failures[0].id, sizeof(failures[0]), n, remains);
	for (int i = 0; i < n; i++)
	{
		remains[i] = remains[i] && !updated[i];
		all &= remains[i] || updated[i];
	}
	return all;
}
