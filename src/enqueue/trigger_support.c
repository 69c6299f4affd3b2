/*-------------------------------------------------------------------------
 *
 * trigger_support.c
 *		Help for trigger functions: their event, a restore, rows behind the snapshot.
 *
 * A role with EXECUTE on a trigger function may put it where it has no row to look at.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/xact.h"
#include "catalog/namespace.h"
#include "catalog/pg_type.h"
#include "enqueue.h"
#include "enqueue_internal.h"
#include "executor/spi.h"
#include "fmgr.h"
#include "miscadmin.h"
#include "utils/builtins.h"
#include "utils/guc.h"
#include "utils/snapmgr.h"

TriggerData *
outbox_fired(FunctionCallInfo fcinfo, const char *function)
{
	if (!CALLED_AS_TRIGGER(fcinfo))
		ereport(ERROR,
				(errcode(ERRCODE_E_R_I_E_TRIGGER_PROTOCOL_VIOLATED),
				 errmsg("function \"%s\" was not called by a trigger", function)));
	return (TriggerData *) fcinfo->context;
}

TriggerData *
outbox_fired_before_row(FunctionCallInfo fcinfo, const char *function)
{
	TriggerData *trigdata = outbox_fired(fcinfo, function);

	if (!TRIGGER_FIRED_BEFORE(trigdata->tg_event) ||
		!TRIGGER_FIRED_FOR_ROW(trigdata->tg_event) ||
		TRIGGER_FIRED_BY_DELETE(trigdata->tg_event))
		ereport(ERROR,
				(errcode(ERRCODE_E_R_I_E_TRIGGER_PROTOCOL_VIOLATED),
				 errmsg("function \"%s\" must be fired BEFORE INSERT OR UPDATE FOR EACH ROW",
						function)));
	return trigdata;
}

TriggerData *
outbox_fired_after_row(FunctionCallInfo fcinfo, const char *function)
{
	TriggerData *trigdata = outbox_fired(fcinfo, function);

	if (!TRIGGER_FIRED_AFTER(trigdata->tg_event) ||
		!TRIGGER_FIRED_FOR_ROW(trigdata->tg_event))
		ereport(ERROR,
				(errcode(ERRCODE_E_R_I_E_TRIGGER_PROTOCOL_VIOLATED),
				 errmsg("function \"%s\" must be fired AFTER INSERT, UPDATE OR DELETE FOR EACH ROW",
						function)));
	return trigdata;
}

/*
 * Whether this session restores a dump.
 *
 * A restore meets the rows that CREATE EXTENSION has made and loads others in
 * their place, and names roles that this server need not have.  From anybody
 * else both are mistakes, so the two have to be told apart.
 */

PG_FUNCTION_INFO_V1(outbox_restoring);

/*
 * pg_dump begins its scripts with check_function_bodies off and an empty
 * search_path, and pg_restore each of its connections.  Nobody has both by
 * chance.
 *
 * What counts is the search_path of the moment: not to be called in a function
 * that sets it.  And both are the caller's to set, so it is no restore where a
 * SECURITY DEFINER function lends him the rights of another.
 */
bool
outbox_in_restore(void)
{
	return !check_function_bodies && namespace_search_path[0] == '\0' &&
		!InLocalUserIdChange();
}

/* For WHEN clauses of triggers, which see the search_path of the statement. */
Datum
outbox_restoring(PG_FUNCTION_ARGS)
{
	(void) fcinfo;
	PG_RETURN_BOOL(outbox_in_restore());
}

/*
 * What is in a table of ours, whatever the transaction's snapshot is.
 *
 * For triggers that keep what a foreign key would.  As with that, the lock under
 * which it stays true is the caller's.
 */

char *
outbox_look_up(Relation rel, const char *query, const char *name)
{
	Oid			types[1] = {TEXTOID};
	Datum		values[1] = {(Datum) 0};
	MemoryContext caller = CurrentMemoryContext;
	OutboxActing acting;
	char	   *found = NULL;

	if (name != NULL)
		values[0] = CStringGetTextDatum(name);

	/*
	 * What the command itself has written counts: WITH d AS (DELETE ...)
	 * INSERT.
	 */
	CommandCounterIncrement();
	SPI_connect();
	outbox_act_begin(&acting, rel->rd_rel->relowner, true);
	PushActiveSnapshot(GetLatestSnapshot());
	if (SPI_execute_with_args(query, 1, types, values, name == NULL ? "n" : NULL,
							  true, 1) != SPI_OK_SELECT)
		elog(ERROR, "could not read %s", RelationGetRelationName(rel));
	if (SPI_processed > 0)
		found = SPI_getvalue(SPI_tuptable->vals[0], SPI_tuptable->tupdesc, 1);
	if (found != NULL)
		found = MemoryContextStrdup(caller, found);
	PopActiveSnapshot();
	outbox_act_end(&acting);
	SPI_finish();
	return found;
}
