/*-------------------------------------------------------------------------
 *
 * insert.c
 *		The row of outbox_enqueue().
 *
 * One prepared INSERT, as the owner of the table (owner.c says how): the caller
 * has EXECUTE on outbox_enqueue() and needs no right on the table.  The executor
 * and not a way around it, so that whatever an administrator has added to the
 * table counts: triggers, constraints, defaults, policies, any kind of index.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "catalog/pg_type.h"
#include "columns.h"
#include "executor/spi.h"
#include "insert.h"
#include "owner.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/rel.h"

/* What the statement gives a value; the rest has defaults. */
static const struct
{
	int			column;
	Oid			type;
}			given[] =
{
	{COL_ID, UUIDOID},
	{COL_ROUTE, TEXTOID},
	{COL_EVENT_TYPE, TEXTOID},
	{COL_AGGREGATE_TYPE, TEXTOID},
	{COL_AGGREGATE_ID, TEXTOID},
	{COL_PAYLOAD, JSONBOID},
	{COL_BODY, BYTEAOID},
	{COL_HEADERS, JSONBOID},
	{COL_PROPERTIES, JSONBOID},
	{COL_ROUTING_KEY, TEXTOID},
	{COL_AVAILABLE_AT, TIMESTAMPTZOID}
};

/* In the order of given. */
#define INSERT_SQL \
	"INSERT INTO %s.outbox (id, route, event_type, aggregate_type," \
	" aggregate_id, payload, body, headers, properties, routing_key," \
	" available_at) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)"

/*
 * The plan of this backend.  The server looks after it (plancache.c); the text
 * has the name of the schema, so it goes with that.
 */
static SPIPlanPtr kept = NULL;
static char *kept_schema = NULL;

static void
forget_plan(void)
{
	if (kept == NULL)
		return;
	SPI_freeplan(kept);
	kept = NULL;
	pfree(kept_schema);
	kept_schema = NULL;
}

static SPIPlanPtr
insert_plan(Oid schema)
{
	char	   *name = get_namespace_name(schema);
	Oid			types[lengthof(given)];
	SPIPlanPtr	plan;

	if (name == NULL)
		elog(ERROR, "cache lookup failed for schema %u", schema);
	if (kept != NULL && strcmp(kept_schema, name) == 0)
		return kept;
	forget_plan();
	for (int i = 0; i < (int) lengthof(given); i++)
		types[i] = given[i].type;
	plan = SPI_prepare_cursor(psprintf(INSERT_SQL, quote_identifier(name)),
							  lengthof(given), types, CURSOR_OPT_GENERIC_PLAN);
	if (plan == NULL)
		elog(ERROR, "SPI_prepare_cursor failed: %s",
			 SPI_result_code_string(SPI_result));
	if (SPI_keepplan(plan) != 0)
		elog(ERROR, "SPI_keepplan failed");
	kept_schema = MemoryContextStrdup(TopMemoryContext, name);
	kept = plan;
	return kept;
}

/*
 * A rule has made something else of it.  When that is nothing, the server takes
 * the plan for one that no table concerns, and would keep it for ever.
 */
static void
fail_rewritten(Relation rel, int result)
{
	forget_plan();
	if (result != SPI_OK_REWRITTEN)
		elog(ERROR, "could not insert into outbox: %s",
			 SPI_result_code_string(result));
	ereport(ERROR,
			(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
			 errmsg("a rule on table \"%s\" replaces the INSERT of a message",
					RelationGetRelationName(rel)),
			 errhint("Drop the rule, or use a trigger instead.")));
}

bool
outbox_insert_row(Relation rel, const Datum *values, const bool *isnull)
{
	Datum		params[lengthof(given)];
	char		nulls[lengthof(given)];
	OutboxActing acting;
	int			result;
	bool		stored;

	for (int i = 0; i < (int) lengthof(given); i++)
	{
		params[i] = values[given[i].column - 1];
		nulls[i] = isnull[given[i].column - 1] ? 'n' : ' ';
	}
	SPI_connect();
	outbox_act_begin(&acting, rel->rd_rel->relowner, false);
	result = SPI_execute_plan(insert_plan(RelationGetNamespace(rel)), params,
							  nulls, false, 0);
	if (result != SPI_OK_INSERT)
		fail_rewritten(rel, result);
	stored = SPI_processed > 0;
	outbox_act_end(&acting);
	SPI_finish();
	return stored;
}
