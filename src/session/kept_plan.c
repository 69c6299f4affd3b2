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
	SPI_freeplan(kept->plan);
	kept->plan = NULL;
	pfree(kept->schema);
	kept->schema = NULL;
}

SPIPlanPtr
outbox_kept_plan(OutboxKeptPlan *kept, Oid schema, const char *sql,
				 int nargs, Oid *types)
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
