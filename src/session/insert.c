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
#include "kept_plan.h"
#include "owner.h"
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
	{COL_AVAILABLE_AT, TIMESTAMPTZOID},
	/* The last one only where it is given. */
	{COL_CREATED_AT, TIMESTAMPTZOID}
};

/* In the order of given. */
#define INSERT_SQL(column, value) \
	"INSERT INTO outbox_internal.outbox (id, route, event_type, aggregate_type," \
	" aggregate_id, payload, body, headers, properties, routing_key," \
	" available_at" column ")" \
	" VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11" value ")"

static OutboxKeptPlan kept;
static OutboxKeptPlan kept_dated;	/* with created_at */

void
outbox_fail_rewritten(OutboxKeptPlan *plan, Relation rel, int result)
{
	outbox_kept_plan_forget(plan);
	if (result != SPI_OK_REWRITTEN)
		elog(ERROR, "could not insert into outbox: %s",
			 SPI_result_code_string(result));
	ereport(ERROR,
			(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
			 errmsg("a rule on table \"%s\" replaces the INSERT of messages",
					RelationGetRelationName(rel)),
			 errhint("Drop the rule, or use a trigger instead.")));
}

bool
outbox_insert_row(Relation rel, const Datum *values, const bool *isnull)
{
	Datum		params[lengthof(given)];
	char		nulls[lengthof(given)];
	Oid			types[lengthof(given)];
	bool		dated = !isnull[COL_CREATED_AT - 1];
	OutboxKeptPlan *plan = dated ? &kept_dated : &kept;
	OutboxActing acting;
	int			result;
	bool		stored;

	for (int i = 0; i < (int) lengthof(given); i++)
	{
		types[i] = given[i].type;
		params[i] = values[given[i].column - 1];
		nulls[i] = isnull[given[i].column - 1] ? 'n' : ' ';
	}
	SPI_connect();
	outbox_act_begin(&acting, rel->rd_rel->relowner, false);
	result = outbox_kept_plan_execute(plan, dated ? INSERT_SQL(", created_at", ", $12") :
									  INSERT_SQL("", ""),
									  lengthof(given) - (dated ? 0 : 1), types,
									  params, nulls, false);
	if (result != SPI_OK_INSERT)
		outbox_fail_rewritten(plan, rel, result);
	stored = SPI_processed > 0;
	outbox_act_end(&acting);
	SPI_finish();
	return stored;
}
