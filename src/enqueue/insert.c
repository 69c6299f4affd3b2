/*-------------------------------------------------------------------------
 *
 * insert.c
 *		The row of outbox_enqueue().
 *
 * One prepared INSERT, as the owner of the table (act_as_owner.c says how): the caller
 * has EXECUTE on outbox_enqueue() and needs no right on the table.  The executor
 * and not a way around it, so that whatever an administrator has added to the
 * table counts: triggers, constraints, defaults, policies, any kind of index.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "columns.h"
#include "enqueue.h"
#include "enqueue_internal.h"
#include "executor/spi.h"
#include "lib/stringinfo.h"
#include "utils/rel.h"

static OutboxKeptPlan kept;
static OutboxKeptPlan kept_dated;	/* with created_at */

/* The rest has defaults. */
static char *
insert_sql(bool dated)
{
	StringInfoData names;
	StringInfoData params;
	int			n = 0;

	initStringInfo(&names);
	initStringInfo(&params);
	for (int col = 1; col <= OUTBOX_COLUMNS; col++)
		if (outbox_is_inserted(col, dated))
		{
			const char *comma = n > 0 ? ", " : "";

			appendStringInfo(&names, "%s%s", comma, outbox_columns[col - 1].name);
			appendStringInfo(&params, "%s$%d", comma, ++n);
		}
	return psprintf("INSERT INTO outbox_internal.outbox (%s) VALUES (%s)",
					names.data, params.data);
}

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
	Datum		params[OUTBOX_COLUMNS];
	char		nulls[OUTBOX_COLUMNS];
	Oid			types[OUTBOX_COLUMNS];
	int			n = 0;
	bool		dated = !isnull[COL_CREATED_AT - 1];
	OutboxKeptPlan *plan = dated ? &kept_dated : &kept;
	OutboxActing acting;
	int			result;
	bool		stored;

	for (int i = 0; i < OUTBOX_COLUMNS; i++)
		if (outbox_is_inserted(i + 1, dated))
		{
			types[n] = outbox_column_types[i];
			params[n] = values[i];
			nulls[n++] = isnull[i] ? 'n' : ' ';
		}
	SPI_connect();
	outbox_act_begin(&acting, rel->rd_rel->relowner, false);
	result = outbox_kept_plan_execute(plan,
									  plan->plan == NULL ? insert_sql(dated) : NULL,
									  n, types, params, nulls, false);
	if (result != SPI_OK_INSERT)
		outbox_fail_rewritten(plan, rel, result);
	stored = SPI_processed > 0;
	outbox_act_end(&acting);
	SPI_finish();
	return stored;
}
