/*-------------------------------------------------------------------------
 *
 * store_settle.c
 *		What became of claimed messages: published, failed attempt, failed, dead letter.
 *
 * Published rows are found by the TID they had when they were claimed, without a
 * statement where that may be (store_settle_direct.c); whatever that leaves, the
 * statement here finds by its id.
 *
 * Nobody is waited for: a row that somebody else has locked stays where it is, and
 * its message in memory, until the relay comes back to it.  A dead letter whose new route
 * or key is locked is tried again later.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/table.h"
#include "catalog.h"
#include "catalog/pg_type.h"
#include "mb/pg_wchar.h"
#include "own_relations.h"
#include "printable.h"
#include "route.h"
#include "store.h"
#include "store_internal.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"

#define FIRST_NAME(NAME, name, ...) #name
#define ARCHIVED_NAME(NAME, name, TYPE, type, null, value, set_by, archive, relay) \
	OUTBOX_IF_ARCHIVED_##archive(", " #name)
#define METADATA_NAME(NAME, name, TYPE, type, null, value, set_by, archive, relay) \
	OUTBOX_IF_METADATA_##archive(", " #name)
#define ARCHIVE_COLUMNS OUTBOX_MESSAGE_COLUMNS(FIRST_NAME, ARCHIVED_NAME)
#define METADATA_COLUMNS OUTBOX_MESSAGE_COLUMNS(FIRST_NAME, METADATA_NAME)

#define FIND_SQL \
	"SELECT id FROM outbox_internal.outbox WHERE id = ANY ($1)"
#define DELETE_SQL \
	"DELETE FROM outbox_internal.outbox o WHERE o.id = ANY ($1)"

/* All of these have ids as their parameter. */
static OutboxStatement find_rows = {
	FIND_SQL, SPI_OK_SELECT, {UUIDARRAYOID}
};
static OutboxStatement find_pending = {
	FIND_SQL " AND status = 'pending'", SPI_OK_SELECT, {UUIDARRAYOID}
};
static OutboxStatement lock_rows = {
	FIND_SQL " FOR UPDATE SKIP LOCKED", SPI_OK_SELECT, {UUIDARRAYOID}
};
static OutboxStatement lock_pending = {
	FIND_SQL " AND status = 'pending' FOR UPDATE SKIP LOCKED", SPI_OK_SELECT, {UUIDARRAYOID}
};
static OutboxStatement delete_rows = {
	DELETE_SQL, SPI_OK_DELETE, {UUIDARRAYOID}
};

/* published_at is the time of settling: the confirm came at most some milliseconds before. */
#define ARCHIVE_SQL(columns) \
	"WITH d AS (" DELETE_SQL " RETURNING " columns ")" \
	" INSERT INTO outbox_internal.outbox_archive (" columns ", published_at)" \
	" SELECT " columns ", pg_catalog.clock_timestamp() FROM d"

static OutboxStatement archive_messages = {
	ARCHIVE_SQL(ARCHIVE_COLUMNS), SPI_OK_INSERT, {UUIDARRAYOID}
};
static OutboxStatement archive_metadata = {
	ARCHIVE_SQL(METADATA_COLUMNS), SPI_OK_INSERT, {UUIDARRAYOID}
};

static OutboxStatement *const settle_statements[] = {
	[OUTBOX_ARCHIVE_MESSAGE] = &archive_messages,
	[OUTBOX_ARCHIVE_METADATA] = &archive_metadata,
	[OUTBOX_ARCHIVE_NONE] = &delete_rows,
};

/* ---------------------------------------------------------------- published */

/* Those of the ids that are marked. */
static Datum
marked_ids(const OutboxSettled *rows, int n, const bool *marks)
{
	Datum	   *elems = palloc(sizeof(Datum) * n);
	int			count = 0;

	for (int i = 0; i < n; i++)
		if (marks[i])
			elems[count++] = UUIDPGetDatum(&rows[i].id);
	return outbox_store_array(elems, count, UUIDOID);
}

/*
 * The server would say only that there is a deferred trigger, see catalog.c.
 * The row trigger says it for updates.
 */
static void
refuse_deferred(Oid table, OutboxArchive archive)
{
	Relation	rel = table_open(table, AccessShareLock);

	outbox_refuse_deferred(rel, TRIGGER_EVENT_DELETE);
	table_close(rel, NoLock);
	if (archive == OUTBOX_ARCHIVE_NONE)
		return;
	rel = table_open(outbox_relation(OUTBOX_REL_ARCHIVE), AccessShareLock);
	outbox_refuse_deferred(rel, TRIGGER_EVENT_INSERT);
	table_close(rel, NoLock);
}

/*
 * A trigger of the administrator's has kept a row that was locked.  What was published
 * would be published again and again, and a failed attempt would be forgotten.  As an
 * error the message stays in memory, and nothing else is sent before the trigger is gone.
 */
static void
report_kept(const char *what, const char *command, const char *row)
{
	ereport(ERROR,
			(errcode(ERRCODE_TRIGGERED_ACTION_EXCEPTION),
			 errmsg("%s the table \"outbox\"", what),
			 errdetail("%s leaves the row, so a trigger keeps it.", command),
			 errhint("Drop the BEFORE %s trigger, or let it return %s.", command, row)));
}

/* Deletes or archives these n rows that are locked; returns how many. */
static int
settle_by_id(Datum ids, int n, OutboxArchive archive)
{
	int			settled;

	outbox_store_run(settle_statements[archive], &ids);
	settled = (int) SPI_processed;
	if (settled == n)
		return settled;
	outbox_store_run(&find_rows, &ids);
	if (SPI_processed > 0)
		report_kept("a published message cannot be removed from", "DELETE", "OLD");
	return settled;
}

/*
 * By the statement, those rows that remain (nremain of them): they have moved,
 * somebody has locked them, or they are gone already.
 */
static void
settle_remains(const OutboxSettled *rows, int n, int nremain,
			   OutboxArchive archive, bool *remains)
{
	bool	   *ours = palloc0(sizeof(bool) * n);
	Datum		ids = marked_ids(rows, n, remains);
	int			nours;

	outbox_store_run(&lock_rows, &ids);
	nours = (int) SPI_processed;
	outbox_store_find_ids(&rows->id, sizeof(*rows), n, ours, NULL);
	if (nours > 0)
		(void) settle_by_id(marked_ids(rows, n, ours), nours, archive);
	memset(remains, 0, sizeof(bool) * n);
	if (nours == nremain)
		return;
	outbox_store_run(&find_rows, &ids);
	outbox_store_find_ids(&rows->id, sizeof(*rows), n, remains, NULL);
}

void
outbox_store_settle(const OutboxSettled *rows, int n, OutboxArchive archive,
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

int
outbox_store_settle_waiting(Oid table, const pg_uuid_t *ids, int n,
							OutboxArchive archive)
{
	refuse_deferred(table, archive);
	return settle_by_id(outbox_store_id_array(ids, sizeof(*ids), n), n, archive);
}

void
outbox_store_lockers(const pg_uuid_t *ids, int n, uint64 *lockers)
{
	static OutboxStatement statement = {
		"SELECT id, pg_catalog.hash_array_extended("
		"outbox_internal.outbox_row_lockers(tableoid::pg_catalog.regclass, ctid),"
		" 0::pg_catalog.int8)"
		" FROM outbox_internal.outbox WHERE id = ANY ($1)",
		SPI_OK_SELECT, {UUIDARRAYOID}
	};
	Datum		array = outbox_store_id_array(ids, sizeof(*ids), n);

	memset(lockers, 0, sizeof(uint64) * n);
	outbox_store_run(&statement, &array);
	outbox_store_find_ids(ids, sizeof(*ids), n, NULL, lockers);
}

/* ---------------------------------------------------------- failed attempts */

#define ATTEMPT_COLUMNS	5
#define DEATH_COLUMNS	9

/* Makes the values of one row of a statement's parameters, which are arrays. */
typedef void (*FillFailure) (const OutboxFailure *failure, Datum *values);

/* The broker's words: what has no place in this database's encoding must not fail the settling. */
static Datum
broker_text(const char *utf8)
{
	char	   *copy = pstrdup(utf8);

	if (GetDatabaseEncoding() != PG_UTF8 ||
		!pg_verify_mbstr(PG_UTF8, copy, (int) strlen(copy), true))
		outbox_mask_bytes(copy);
	return CStringGetTextDatum(copy);
}

static Datum
error_text(const OutboxFailure *failure)
{
	return failure->error_is_text ? outbox_store_own_text(failure->error) :
		broker_text(failure->error);
}

/*
 * Messages that stay on their routes, and whose rows are locked.  available_at of a failed
 * one is NULL: it waits for an operator, not for a time.
 */
static OutboxStatement count_attempts = {
	"UPDATE outbox_internal.outbox o SET attempts = o.attempts + 1,"
	" last_error = f.error, last_error_reason = f.reason,"
	" available_at = CASE WHEN f.final THEN NULL ELSE"
	"  pg_catalog.clock_timestamp() + f.ms * interval '1 millisecond' END,"
	" status = CASE WHEN f.final THEN 'failed' ELSE 'pending' END,"
	" failed_at = CASE WHEN f.final THEN pg_catalog.clock_timestamp() END"
	" FROM ROWS FROM (unnest($1), unnest($2), unnest($3), unnest($4), unnest($5))"
	"  AS f(id, error, reason, ms, final)"
	" WHERE o.id = f.id RETURNING o.id",
	SPI_OK_UPDATE_RETURNING,
	{UUIDARRAYOID, TEXTARRAYOID, TEXTARRAYOID, INT8ARRAYOID, BOOLARRAYOID}
};

static void
fill_attempt(const OutboxFailure *failure, Datum *values)
{
	values[0] = UUIDPGetDatum(&failure->id);
	values[1] = error_text(failure);
	values[2] = CStringGetTextDatum(outbox_reason_name(failure->reason));
	values[3] = Int64GetDatum(failure->retry_ms);
	values[4] = BoolGetDatum(failure->final);
}

/*
 * Dead letters.  Such a row keeps its id: it becomes a message of the failed_route, with no
 * attempts, and a header says what has happened to it, the newest first as in RabbitMQ's
 * x-death.  Its own routing key is not for that route, whose template decides.  The row
 * trigger gives it its place there, and tells the worker that its new key belongs to.
 *
 * The row trigger shares the lock of the route that the message enters, so that whoever
 * removes this route waits for us (locks.c).  But what the relay knows of routes may
 * be older, so a target is looked up here: without it the row stays where it is.
 */
static OutboxStatement move_dead_letters = {
	"UPDATE outbox_internal.outbox o SET route = f.target, routing_key = NULL,"
	" attempts = 0, available_at = NULL, last_error = f.error, last_error_reason = f.last_reason,"
	" headers = coalesce(o.headers, '{}') || jsonb_build_object('" OUTBOX_DEATH_HEADER "',"
	"  jsonb_build_array(jsonb_build_object('reason', f.reason, 'error', f.error,"
	"   'route', f.route, 'exchange', f.exchange, 'routing-key', f.routing_key,"
	"   'attempts', f.attempts, 'time', to_char(clock_timestamp()"
	"    AT TIME ZONE 'UTC', 'YYYY-MM-DD\"T\"HH24:MI:SS.MS\"Z\"')))"
	"  || CASE jsonb_typeof(o.headers -> '" OUTBOX_DEATH_HEADER "')"
	"   WHEN 'array' THEN o.headers -> '" OUTBOX_DEATH_HEADER "' ELSE '[]' END)"
	" FROM ROWS FROM (unnest($1), unnest($2), unnest($3), unnest($4),"
	"  unnest($5), unnest($6), unnest($7), unnest($8), unnest($9))"
	"  AS f(id, error, last_reason, target, reason, route, exchange, routing_key, attempts)"
	"  JOIN outbox_internal.outbox_route r ON r.name = f.target AND r.relay <> ALL ($10)"
	" WHERE o.id = f.id RETURNING o.id",
	SPI_OK_UPDATE_RETURNING,
	{UUIDARRAYOID, TEXTARRAYOID, TEXTARRAYOID, TEXTARRAYOID, TEXTARRAYOID,
	TEXTARRAYOID, TEXTARRAYOID, TEXTARRAYOID, INT4ARRAYOID, TEXTARRAYOID}
};

static void
fill_dead_letter(const OutboxFailure *failure, Datum *values)
{
	const OutboxDeath *death = failure->death;

	values[0] = UUIDPGetDatum(&failure->id);
	values[1] = error_text(failure);
	values[2] = CStringGetTextDatum(outbox_reason_name(failure->reason));
	values[3] = outbox_store_own_text(death->target);
	values[4] = outbox_store_own_text(death->reason);
	values[5] = outbox_store_own_text(death->route);
	values[6] = outbox_store_own_text(death->exchange);
	values[7] = outbox_store_own_text(death->routing_key);
	values[8] = Int32GetDatum(death->attempts);
}

/* Names of the outlets that cannot take one: only what is inserted reaches them. */
static Datum
transient_outlets(void)
{
	Datum	   *names = palloc(sizeof(Datum) * outbox_noutlets);
	int			n = 0;

	for (int i = 0; i < outbox_noutlets; i++)
		if (outbox_outlets[i]->transient)
			names[n++] = CStringGetTextDatum(outbox_outlets[i]->name);
	return outbox_store_array(names, n, TEXTOID);
}

/*
 * Writes those of the failures that are dead letters, or those that are not, whose rows are
 * locked, and marks the rows that it has written; returns how many.
 */
static int
write_failures(const OutboxFailure *failures, int n, bool dead, const bool *locked,
			   bool *written)
{
	OutboxStatement *statement = dead ? &move_dead_letters : &count_attempts;
	FillFailure fill = dead ? fill_dead_letter : fill_attempt;
	int			ncolumns = dead ? DEATH_COLUMNS : ATTEMPT_COLUMNS;
	Datum		(*rows)[DEATH_COLUMNS] = palloc(sizeof(*rows) * n);
	Datum	   *elems = palloc(sizeof(Datum) * n);
	Datum		values[DEATH_COLUMNS + 1];
	int			count = 0;

	for (int i = 0; i < n; i++)
		if (locked[i] && (failures[i].death != NULL) == dead)
			fill(&failures[i], rows[count++]);
	if (count == 0)
		return 0;
	for (int col = 0; col < ncolumns; col++)
	{
		for (int i = 0; i < count; i++)
			elems[i] = rows[i][col];
		values[col] = outbox_store_array(elems, count,
										 get_element_type(statement->types[col]));
	}
	if (dead)
		values[ncolumns] = transient_outlets();
	outbox_store_run(statement, values);
	/* A dead letter may have no target any more. */
	if (!dead && SPI_processed < (uint64) count)
		report_kept("a failed attempt cannot be counted in", "UPDATE", "NEW");
	outbox_store_find_ids(&failures->id, sizeof(*failures), n, written, NULL);
	return (int) SPI_processed;
}

/*
 * The worker must neither wait for what keeps dead letters from their route nor have them in
 * flight meanwhile: others would wait.  So they count as failed attempts, and try again.
 */
static int
postpone_dead(OutboxFailure *failures, int n, bool *locked, bool *written)
{
	for (int i = 0; i < n; i++)
	{
		locked[i] = locked[i] && !written[i];
		if (!locked[i])
			continue;
		failures[i].death = NULL;
		failures[i].final = false;
		failures[i].error = psprintf("%s (not sent to the failed_route yet, as another transaction has locked it or a number of its key)",
									 failures[i].error);
	}
	return write_failures(failures, n, false, locked, written);
}

bool
outbox_store_fail(OutboxFailure *failures, int n, bool *remains)
{
	bool	   *locked = palloc0(sizeof(bool) * n);
	bool	   *written = palloc0(sizeof(bool) * n);
	Datum		ids = outbox_store_id_array(&failures->id, sizeof(*failures), n);
	int			count;
	bool		all = true;

	/* A statement of its own: a join with these would compare each with all. */
	outbox_store_run(&lock_pending, &ids);
	outbox_store_find_ids(&failures->id, sizeof(*failures), n, locked, NULL);
	count = write_failures(failures, n, false, locked, written);
	count += write_failures(failures, n, true, locked, written);
	if (outbox_is_relay && count < n)
		count += postpone_dead(failures, n, locked, written);
	memset(remains, 0, sizeof(bool) * n);
	if (count == n)
		return true;

	/* The rest was taken away by somebody, or is locked: then it is there. */
	outbox_store_run(&find_pending, &ids);
	outbox_store_find_ids(&failures->id, sizeof(*failures), n, remains, NULL);
	for (int i = 0; i < n; i++)
	{
		remains[i] = remains[i] && !written[i];
		all &= remains[i] || written[i];
	}
	return all;
}
