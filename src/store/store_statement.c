/*-------------------------------------------------------------------------
 *
 * store_statement.c
 *		Statements that are prepared once: how they are run, and their values.
 *
 * Called by the worker, and by sessions with SPI connected.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "catalog/pg_type.h"
#include "mb/pg_wchar.h"
#include "store_internal.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"

static OutboxStatement *prepared;

/* -------------------------------------------------------------- statements */

void
outbox_store_forget_plans(void)
{
	while (prepared != NULL)
	{
		SPI_freeplan(prepared->plan);
		prepared->plan = NULL;
		prepared = prepared->next;
	}
}

/*
 * In a session, which does not look at each change of the tables: a rule has rewritten
 * the statement.  A plan of nothing depends on no table, and would never be
 * invalidated.  Its memory stays until the session ends: it may run further out.
 */
static void
forget_plan(OutboxStatement *statement)
{
	for (OutboxStatement **link = &prepared; *link != NULL; link = &(*link)->next)
		if (*link == statement)
		{
			*link = statement->next;
			statement->plan = NULL;
			return;
		}
}

/*
 * Statements are planned once for any parameters: planning each time would
 * cost more than most of them take.  The worker's session allows only index
 * and TID scans, nested loops, and no sorting that an index can spare (see
 * overrides.c), so that a plan made while the table was empty is still right when
 * it is not.
 */
int
outbox_store_prepare(OutboxStatement *statement)
{
	int			nargs = 0;

	while (OidIsValid(statement->types[nargs]))
		nargs++;
	if (statement->plan != NULL)
		return nargs;
	statement->plan = SPI_prepare_cursor(statement->sql, nargs, statement->types,
										 CURSOR_OPT_GENERIC_PLAN);
	if (statement->plan == NULL)
		elog(ERROR, "SPI_prepare failed: %s",
			 SPI_result_code_string(SPI_result));
	if (SPI_keepplan(statement->plan) != 0)
		elog(ERROR, "SPI_keepplan failed");
	statement->next = prepared;
	prepared = statement;
	return nargs;
}

void
outbox_store_run(OutboxStatement *statement, Datum *values)
{
	int			result;

	(void) outbox_store_prepare(statement);
	result = SPI_execute_plan(statement->plan, values, NULL, statement->read_only, 0);
	if (result == statement->result)
		return;
	if (!outbox_store_in_transaction())
		forget_plan(statement);
	if (result == SPI_OK_REWRITTEN)
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("a rule replaces a statement of outbox"),
				 errhint("Drop the rules on the tables of the extension.")));
	elog(ERROR, "SPI_execute_plan failed: %s", SPI_result_code_string(result));
}

Datum
outbox_store_get(uint64 row, int column, bool *isnull)
{
	bool		ignored;

	return SPI_getbinval(SPI_tuptable->vals[row], SPI_tuptable->tupdesc, column,
						 isnull != NULL ? isnull : &ignored);
}

char *
outbox_store_get_text(int column)
{
	return SPI_processed == 0 ? NULL :
		SPI_getvalue(SPI_tuptable->vals[0], SPI_tuptable->tupdesc, column);
}

int
outbox_store_get_array(int column, Oid type, Datum **elems, bool **nulls)
{
	bool		isnull;
	Datum		array = outbox_store_get(0, column, &isnull);
	int			n = 0;
	int16		len;
	bool		byval;
	char		align;

	get_typlenbyvalalign(type, &len, &byval, &align);
	if (!isnull)
		deconstruct_array(DatumGetArrayTypeP(array), type, len, byval, align, elems,
						  nulls, &n);
	return n;
}

char *
outbox_store_keep_text(MemoryContext cxt)
{
	char	   *text = outbox_store_get_text(1);

	return text == NULL ? NULL : MemoryContextStrdup(cxt, text);
}

/* ------------------------------------------------------------------ values */

Datum
outbox_store_own_text(const char *utf8)
{
	return CStringGetTextDatum(pg_any_to_server(utf8, (int) strlen(utf8), PG_UTF8));
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
outbox_store_int64_array(const int64 *numbers, int n)
{
	Datum	   *elems = palloc(sizeof(Datum) * Max(n, 1));

	for (int i = 0; i < n; i++)
		elems[i] = Int64GetDatum(numbers[i]);
	return outbox_store_array(elems, n, INT8OID);
}

Datum
outbox_store_text_array(const char *const *texts, int n)
{
	Datum	   *elems = palloc(sizeof(Datum) * Max(n, 1));

	/* Routes of keys, for which this is made, are few. */
	for (int i = 0; i < n; i++)
		elems[i] = i > 0 && strcmp(texts[i], texts[i - 1]) == 0 ? elems[i - 1] :
			outbox_store_own_text(texts[i]);
	return outbox_store_array(elems, n, TEXTOID);
}

Datum
outbox_store_id_array(const pg_uuid_t *first, size_t stride, int n)
{
	Datum	   *elems = palloc(sizeof(Datum) * Max(n, 1));

	for (int i = 0; i < n; i++)
		elems[i] = UUIDPGetDatum((const pg_uuid_t *) ((const char *) first + stride * i));
	return outbox_store_array(elems, n, UUIDOID);
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
	for (uint64 row = 0; row < SPI_processed; row++)
	{
		bool		isnull;
		pg_uuid_t  *id = DatumGetUUIDP(outbox_store_get(row, 1, &isnull));
		const char **found = isnull ? NULL :
			bsearch(&id, sorted, n, sizeof(char *), compare_pointed);

		if (found == NULL)
			continue;
		if (marks != NULL)
			marks[(*found - first) / stride] = true;
		if (numbers != NULL)
			numbers[(*found - first) / stride] =
				DatumGetUInt64(outbox_store_get(row, 2, NULL));
	}
	pfree(sorted);
}
