/*-------------------------------------------------------------------------
 *
 * kept_plan.c
 *		Statements that a session runs for many messages, prepared once.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "kept_plan.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"

void
outbox_kept_plan_forget(OutboxKeptPlan *kept)
{
	if (kept->plan == NULL)
		return;
	/* One that runs, further out, is left to the end of the session. */
	if (kept->running == 0)
		SPI_freeplan(kept->plan);
	kept->plan = NULL;
	pfree(kept->schema);
	kept->schema = NULL;
}

static SPIPlanPtr
plan_of(OutboxKeptPlan *kept, Oid schema, const char *sql, int nargs,
		Oid *types)
{
	char	   *name = get_namespace_name(schema);
	SPIPlanPtr	plan;

	if (name == NULL)
		elog(ERROR, "cache lookup failed for schema %u", schema);
	if (kept->plan != NULL && strcmp(kept->schema, name) == 0)
		return kept->plan;
	outbox_kept_plan_forget(kept);
	plan = SPI_prepare_cursor(psprintf(sql, quote_identifier(name)),
							  nargs, types, CURSOR_OPT_GENERIC_PLAN);
	if (plan == NULL)
		elog(ERROR, "SPI_prepare_cursor failed: %s",
			 SPI_result_code_string(SPI_result));
	/* Before it lasts, so that want of memory leaves nothing behind. */
	name = MemoryContextStrdup(TopMemoryContext, name);
	if (SPI_keepplan(plan) != 0)
		elog(ERROR, "SPI_keepplan failed");
	kept->schema = name;
	kept->plan = plan;
	return plan;
}

/* As many as run, further out or further in, are counted, however they end. */
static int
execute(OutboxKeptPlan *kept, SPIPlanPtr plan, Datum *values,
		const char *nulls, bool read_only, const SPIExecuteOptions *options)
{
	int			result;

	kept->running++;
	PG_TRY();
	{
		result = options != NULL ? SPI_execute_plan_extended(plan, options) :
			SPI_execute_plan(plan, values, nulls, read_only, 0);
	}
	PG_FINALLY();
	{
		kept->running--;
	}
	PG_END_TRY();
	return result;
}

int
outbox_kept_plan_execute(OutboxKeptPlan *kept, Oid schema, const char *sql,
						 int nargs, Oid *types, Datum *values,
						 const char *nulls, bool read_only)
{
	return execute(kept, plan_of(kept, schema, sql, nargs, types), values,
				   nulls, read_only, NULL);
}

int
outbox_kept_plan_execute_into(OutboxKeptPlan *kept, Oid schema,
							  const char *sql, DestReceiver *dest)
{
	SPIExecuteOptions options;

	memset(&options, 0, sizeof(options));
	options.dest = dest;
	return execute(kept, plan_of(kept, schema, sql, 0, NULL), NULL, NULL,
				   false, &options);
}
