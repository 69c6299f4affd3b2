/*-------------------------------------------------------------------------
 *
 * kept_plan.c
 *		Statements that a session runs for many messages, prepared once.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "enqueue.h"

void
outbox_kept_plan_forget(OutboxKeptPlan *kept)
{
	if (kept->plan == NULL)
		return;
	/* One that runs, further out, is left to the end of the session. */
	if (kept->running == 0)
		SPI_freeplan(kept->plan);
	kept->plan = NULL;
}

static SPIPlanPtr
plan_of(OutboxKeptPlan *kept, const char *sql, int nargs, Oid *types)
{
	SPIPlanPtr	plan;

	if (kept->plan != NULL)
		return kept->plan;
	plan = SPI_prepare_cursor(sql, nargs, types, CURSOR_OPT_GENERIC_PLAN);
	if (plan == NULL)
		elog(ERROR, "SPI_prepare_cursor failed: %s",
			 SPI_result_code_string(SPI_result));
	if (SPI_keepplan(plan) != 0)
		elog(ERROR, "SPI_keepplan failed");
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
outbox_kept_plan_execute(OutboxKeptPlan *kept, const char *sql, int nargs,
						 Oid *types, Datum *values, const char *nulls,
						 bool read_only)
{
	return execute(kept, plan_of(kept, sql, nargs, types), values, nulls,
				   read_only, NULL);
}

int
outbox_kept_plan_execute_into(OutboxKeptPlan *kept, const char *sql,
							  DestReceiver *dest)
{
	SPIExecuteOptions options;

	memset(&options, 0, sizeof(options));
	options.dest = dest;
	return execute(kept, plan_of(kept, sql, 0, NULL), NULL, NULL, false,
				   &options);
}
