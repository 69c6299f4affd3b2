/*-------------------------------------------------------------------------
 *
 * store_settle.c
 *		What became of claimed messages: published, failed attempt, failed.
 *
 * Published rows are found by the TID they had when they were claimed, without a
 * statement where that may be (store_settle_direct.c); whatever that leaves, the
 * statement here finds by its id.
 *
 * Nobody is waited for: a row that somebody else has locked stays where it is, and
 * its message in memory, until the relay comes back to it.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/table.h"
#include "catalog.h"
#include "catalog/pg_type.h"
#include "mb/pg_wchar.h"
#include "printable.h"
#include "store.h"
#include "store_internal.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"
#include "utils/timestamp.h"

#define FIRST_NAME(NAME, name, ...) #name
#define ARCHIVED_NAME(NAME, name, TYPE, type, null, value, set_by, archive, relay) \
	OUTBOX_IF_ARCHIVED_##archive(", " #name)
#define ARCHIVE_COLUMNS OUTBOX_MESSAGE_COLUMNS(FIRST_NAME, ARCHIVED_NAME)

/*
 * Deletes, or moves to the archive.  published_at is the time of settling: the
 * confirm came at most some milliseconds before.
 */
#define DELETE_SQL \
	"DELETE FROM outbox_internal.outbox o WHERE o.id = ANY ($1)"
#define ARCHIVE_SQL \
	"WITH d AS (" DELETE_SQL " RETURNING " ARCHIVE_COLUMNS ")" \
	" INSERT INTO outbox_internal.outbox_archive (" ARCHIVE_COLUMNS ", published_at)" \
	" SELECT " ARCHIVE_COLUMNS ", pg_catalog.clock_timestamp() FROM d"

static const Oid id_types[] = {UUIDARRAYOID};

/* Returns how many. */
static int
settle_by_id(Datum ids, bool archive)
{
	static OutboxStatement statements[2];

	outbox_store_execute(outbox_store_plan(&statements[archive],
										   archive ?
										   ARCHIVE_SQL :
										   DELETE_SQL,
										   1, id_types),
						 &ids, NULL, archive ? SPI_OK_INSERT : SPI_OK_DELETE);
	return (int) SPI_processed;
}

/* Locks those of these rows that nobody else has locked, and returns their ids. */
static void
lock_by_id(Datum ids)
{
	static OutboxStatement statement;

	outbox_store_execute(outbox_store_plan(&statement,
										   "SELECT id FROM outbox_internal.outbox"
													" WHERE id = ANY ($1)"
													" FOR UPDATE SKIP LOCKED",
										   1, id_types),
						 &ids, NULL, SPI_OK_SELECT);
}

/* Which of these ids are in the table. */
static void
find_left(Datum ids)
{
	static OutboxStatement statement;

	outbox_store_execute(outbox_store_plan(&statement,
										   "SELECT id FROM outbox_internal.outbox"
													" WHERE id = ANY ($1)",
										   1, id_types),
						 &ids, NULL, SPI_OK_SELECT);
}

/* Those of the ids that are marked. */
static Datum
id_array(const OutboxSettled *rows, int n, const bool *marks)
{
	Datum	   *elems = palloc(sizeof(Datum) * n);
	int			count = 0;

	for (int i = 0; i < n; i++)
		if (marks[i])
			elems[count++] = UUIDPGetDatum(&rows[i].id);
	return outbox_store_array(elems, count, UUIDOID);
}

static int
compare_pointed(const void *a, const void *b)
{
	return memcmp(*(const pg_uuid_t *const *) a, *(const pg_uuid_t *const *) b, UUID_LEN);
}

void
outbox_store_find_ids(const pg_uuid_t *ids, size_t stride, int n, bool *marks,
					  uint64 *numbers)
{
	const char *first = (const char *) ids;
	const char **sorted = palloc(sizeof(char *) * n);

	for (int i = 0; i < n; i++)
		sorted[i] = first + i * stride;
	qsort(sorted, n, sizeof(char *), compare_pointed);
	for (int row = 0; row < (int) SPI_processed; row++)
	{
		HeapTuple	tuple = SPI_tuptable->vals[row];
		TupleDesc	desc = SPI_tuptable->tupdesc;
		bool		isnull;
		pg_uuid_t  *id = DatumGetUUIDP(SPI_getbinval(tuple, desc, 1, &isnull));
		const char **found = bsearch(&id, sorted, n, sizeof(char *), compare_pointed);

		if (found == NULL)
			continue;
		if (marks != NULL)
			marks[(*found - first) / stride] = true;
		if (numbers != NULL)
			numbers[(*found - first) / stride] =
				DatumGetUInt64(SPI_getbinval(tuple, desc, 2, &isnull));
	}
	pfree(sorted);
}

static void
mark_ids(const pg_uuid_t *ids, size_t stride, int n, bool *marks)
{
	outbox_store_find_ids(ids, stride, n, marks, NULL);
}

/*
 * The server would say only that there is a deferred trigger, see catalog.c.
 * The row trigger says it for updates.
 */
static void
refuse_deferred(Oid table, bool archive)
{
	Relation	rel = table_open(table, AccessShareLock);
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

/*
 * By the statement, those rows that remain (nremain of them): they have moved,
 * somebody has locked them, or they are gone already.
 */
static void
settle_remains(const OutboxSettled *rows, int n, int nremain, bool archive,
			   bool *remains)
{
	bool	   *ours = palloc0(sizeof(bool) * n);
	Datum		ids = id_array(rows, n, remains);
	int			nours;

	lock_by_id(ids);
	nours = (int) SPI_processed;
	mark_ids(&rows[0].id, sizeof(rows[0]), n, ours);
	if (nours > 0)
	{
		Datum		our_ids = id_array(rows, n, ours);

		if (settle_by_id(our_ids, archive) < nours)
			require_gone(our_ids);
	}
	memset(remains, 0, sizeof(bool) * n);
	if (nours == nremain)
		return;
	find_left(ids);
	mark_ids(&rows[0].id, sizeof(rows[0]), n, remains);
}

void
outbox_store_settle(const OutboxSettled *rows, int n, bool archive,
					bool *remains)
{
	int			settled;

	memset(remains, true, sizeof(bool) * n);
	settled = outbox_store_settle_direct(rows, n, archive, remains);
	if (settled == n)
		return;
	if (settled == 0)
		refuse_deferred(outbox_store_relid(), archive);
	settle_remains(rows, n, n - settled, archive, remains);
}

void
outbox_store_lockers(const pg_uuid_t *ids, int n, uint64 *lockers)
{
	static OutboxStatement statement;
	Datum		array = outbox_store_id_array(ids, sizeof(*ids), n);

	memset(lockers, 0, sizeof(uint64) * n);
	outbox_store_execute(outbox_store_plan(&statement,
										   "SELECT id, pg_catalog.hash_array_extended("
													"outbox_internal.outbox_row_lockers("
													"tableoid::pg_catalog.regclass, ctid), 0::pg_catalog.int8)"
													" FROM outbox_internal.outbox WHERE id = ANY ($1)",
										   1, id_types),
						 &array, NULL, SPI_OK_SELECT);
	outbox_store_find_ids(ids, sizeof(*ids), n, NULL, lockers);
}

int
outbox_store_settle_waiting(Oid table, const pg_uuid_t *ids, int n, bool archive)
{
	Datum		array = outbox_store_id_array(ids, sizeof(*ids), n);
	int			settled;

	refuse_deferred(table, archive);
	settled = settle_by_id(array, archive);
	if (settled < n)
		require_gone(array);
	return settled;
}

/*
 * available_at of a failed message is NULL: it waits for an operator, not for
 * a time.  Rows that somebody has locked are left.
 */
#define FAIL_SQL \
	"WITH l AS MATERIALIZED (SELECT id FROM outbox_internal.outbox WHERE id = ANY ($1)" \
	"  AND status = 'pending' FOR UPDATE SKIP LOCKED)" \
	" UPDATE outbox_internal.outbox o SET attempts = o.attempts + 1," \
	" last_error = f.error, last_error_reason = f.reason," \
	" available_at = CASE WHEN f.final THEN NULL ELSE" \
	"  pg_catalog.clock_timestamp() + f.ms * interval '1 millisecond' END," \
	" status = CASE WHEN f.final THEN 'failed' ELSE 'pending' END," \
	" failed_at = CASE WHEN f.final THEN pg_catalog.clock_timestamp() END" \
	" FROM l JOIN ROWS FROM (unnest($1), unnest($2), unnest($3), unnest($4), unnest($5))" \
	"  AS f(id, error, ms, final, reason) ON f.id = l.id" \
	" WHERE o.id = l.id RETURNING o.id"
#define STILL_PENDING_SQL \
	"SELECT id FROM outbox_internal.outbox WHERE id = ANY ($1) AND status = 'pending'"

/*
 * The broker's words as text of this database.  They are not ours to trust:
 * what has no place in the database's encoding must not fail the settling.
 */
Datum
outbox_store_text(const char *utf8)
{
	char	   *copy = pstrdup(utf8);

	if (GetDatabaseEncoding() != PG_UTF8 ||
		!pg_verify_mbstr(PG_UTF8, copy, (int) strlen(copy), true))
		outbox_mask_bytes(copy);
	return CStringGetTextDatum(copy);
}

Datum
outbox_store_own_text(const char *utf8)
{
	return CStringGetTextDatum(pg_any_to_server(utf8, (int) strlen(utf8), PG_UTF8));
}

Datum
outbox_store_error(const OutboxFailure *failure)
{
	return failure->error_is_text ? outbox_store_own_text(failure->error) :
		outbox_store_text(failure->error);
}

Datum
outbox_store_reason(const OutboxFailure *failure)
{
	return CStringGetTextDatum(outbox_reason_name(failure->reason));
}

Datum
outbox_store_array(Datum *elems, int n, Oid type)
{
	int16		len;
	bool		byval;
	char		align;

	get_typlenbyvalalign(type, &len, &byval, &align);
	return PointerGetDatum(construct_array(elems, n, type, len, byval, align));
}

Datum
outbox_store_id_array(const pg_uuid_t *first, size_t stride, int n)
{
	Datum	   *elems = palloc(sizeof(Datum) * Max(n, 1));

	for (int i = 0; i < n; i++)
		elems[i] = UUIDPGetDatum((const pg_uuid_t *) ((const char *) first + stride * i));
	return outbox_store_array(elems, n, UUIDOID);
}

/* Those that stay on their routes; returns how many that should be. */
static int
count_attempts(const OutboxFailure *failures, int n)
{
	static OutboxStatement statement;
	static const Oid types[] = {
		UUIDARRAYOID, TEXTARRAYOID, INT8ARRAYOID, BOOLARRAYOID, TEXTARRAYOID
	};
	Datum	   *ids = palloc(sizeof(Datum) * n);
	Datum	   *errors = palloc(sizeof(Datum) * n);
	Datum	   *waits = palloc(sizeof(Datum) * n);
	Datum	   *ends = palloc(sizeof(Datum) * n);
	Datum	   *reasons = palloc(sizeof(Datum) * n);
	Datum		values[5];
	int			count = 0;

	for (int i = 0; i < n; i++)
	{
		if (failures[i].death != NULL)
			continue;
		ids[count] = UUIDPGetDatum(&failures[i].id);
		errors[count] = outbox_store_error(&failures[i]);
		reasons[count] = outbox_store_reason(&failures[i]);
		waits[count] = Int64GetDatum(failures[i].retry_ms);
		ends[count++] = BoolGetDatum(failures[i].final);
	}
	if (count == 0)
		return 0;
	values[0] = outbox_store_array(ids, count, UUIDOID);
	values[1] = outbox_store_array(errors, count, TEXTOID);
	values[2] = outbox_store_array(waits, count, INT8OID);
	values[3] = outbox_store_array(ends, count, BOOLOID);
	values[4] = outbox_store_array(reasons, count, TEXTOID);
	outbox_store_execute(outbox_store_plan(&statement,
										   FAIL_SQL,
										   lengthof(types), types),
						 values, NULL, SPI_OK_UPDATE_RETURNING);
	return count;
}

/* Those of the messages that are there, and still pending. */
static void
find_pending(const OutboxFailure *failures, int n)
{
	static OutboxStatement statement;
	Datum		array = outbox_store_id_array(&failures->id, sizeof(*failures), n);

	outbox_store_execute(outbox_store_plan(&statement,
										   STILL_PENDING_SQL,
										   1, id_types),
						 &array, NULL, SPI_OK_SELECT);
}

bool
outbox_store_fail(const OutboxFailure *failures, int n, bool *remains)
{
	bool	   *updated = palloc0(sizeof(bool) * n);
	int			nstay = count_attempts(failures, n);
	uint64		count = 0;
	bool		all = true;

	if (nstay > 0)
	{
		count = SPI_processed;
		mark_ids(&failures[0].id, sizeof(failures[0]), n, updated);
	}
	if (nstay < n)
	{
		outbox_store_move(failures, n);
		count += SPI_processed;
		mark_ids(&failures[0].id, sizeof(failures[0]), n, updated);
	}
	for (int i = 0; i < n; i++)
		remains[i] = false;
	if (count == (uint64) n)
		return true;

	/* The rest was taken away by somebody, or is locked: then it is there. */
	find_pending(failures, n);
	mark_ids(&failures[0].id, sizeof(failures[0]), n, remains);
	for (int i = 0; i < n; i++)
	{
		remains[i] = remains[i] && !updated[i];
		all &= remains[i] || updated[i];
	}
	return all;
}
