/*-------------------------------------------------------------------------
 *
 * lease.c
 *		outbox_claim() and its like, for relays outside of the database.
 *
 * Whose right counts is the current user's, as everywhere in the server: in a SECURITY
 * DEFINER function its owner's, and in an expression that ANALYZE evaluates the
 * table's.  It is judged here, on entry, before anything runs as the owner of the
 * tables; what the functions do is in outbox_internal, under their own names.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/table.h"
#include "access/xact.h"
#include "catalog/pg_type.h"
#include "enqueue.h"
#include "fmgr.h"
#include "funcapi.h"
#include "kept_plan.h"
#include "miscadmin.h"
#include "owner.h"
#include "printable_text.h"
#include "routes.h"
#include "utils/builtins.h"
#include "utils/datum.h"
#include "utils/guc.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"
#include "utils/tuplestore.h"

PG_FUNCTION_INFO_V1(outbox_claim);
PG_FUNCTION_INFO_V1(outbox_ack);
PG_FUNCTION_INFO_V1(outbox_nack);
PG_FUNCTION_INFO_V1(outbox_extend);
PG_FUNCTION_INFO_V1(outbox_release);

#define MAX_ARGS	4

/* ---------------------------------------------------------- whose right counts */

static void
judge(Relation rel, const char *route)
{
	(void) outbox_relay_route(RelationGetNamespace(rel), rel->rd_rel->relowner,
							  route, GetUserId());
}

#define ROUTE_SQL \
	"SELECT l.route FROM outbox_internal.outbox_lease l" \
	" WHERE l.token OPERATOR(pg_catalog.=) $1"

/* NULL: nobody holds it, which the function itself says. */
static char *
route_of_lease(Relation rel, Datum token)
{
	static OutboxKeptPlan kept;
	MemoryContext caller = CurrentMemoryContext;
	Oid			types[1] = {INT8OID};
	OutboxActing acting;
	char	   *route = NULL;

	SPI_connect();
	outbox_act_begin(&acting, rel->rd_rel->relowner, true);
	if (outbox_kept_plan_execute(&kept, ROUTE_SQL, 1, types, &token, NULL,
								 false) != SPI_OK_SELECT)
		elog(ERROR, "could not read outbox_lease");
	if (SPI_processed > 0)
		route = MemoryContextStrdup(caller,
									SPI_getvalue(SPI_tuptable->vals[0],
												 SPI_tuptable->tupdesc, 1));
	outbox_act_end(&acting);
	SPI_finish();
	return route;
}

static void
judge_lease(Relation rel, FunctionCallInfo fcinfo)
{
	char	   *route = PG_ARGISNULL(0) ? NULL :
		route_of_lease(rel, PG_GETARG_DATUM(0));

	if (route != NULL)
		judge(rel, route);
}

/* --------------------------------------------------------------- what they do */

/*
 * To see whose it is.  The functions lock it for what they do, when they do it: a claim
 * that finds nothing waits for nobody, and who acknowledges has the lease first.
 */
static Relation
open_table(FunctionCallInfo fcinfo)
{
	return table_open(outbox_find_table(get_func_namespace(fcinfo->flinfo->fn_oid)),
					  AccessShareLock);
}

/*
 * Calls the function of outbox_internal, with our arguments, as the owner.  The rows
 * are in SPI_tuptable until the caller ends SPI.
 */
static void
call_as_owner(Relation rel, FunctionCallInfo fcinfo, OutboxKeptPlan *kept,
			  const char *sql)
{
	Oid		   *types;
	int			nargs;
	char		nulls[MAX_ARGS];
	Datum		values[MAX_ARGS];
	OutboxActing acting;

	(void) get_func_signature(fcinfo->flinfo->fn_oid, &types, &nargs);
	Assert(nargs <= MAX_ARGS);
	for (int i = 0; i < nargs; i++)
	{
		nulls[i] = PG_ARGISNULL(i) ? 'n' : ' ';
		values[i] = PG_ARGISNULL(i) ? (Datum) 0 : PG_GETARG_DATUM(i);
	}
	outbox_act_begin(&acting, rel->rd_rel->relowner, false);
	if (outbox_kept_plan_execute(kept, sql, nargs, types, values, nulls,
								 false) != SPI_OK_SELECT)
		elog(ERROR, "could not call %s", sql);
	outbox_act_end(&acting);
}

static Datum
call_lease_function(FunctionCallInfo fcinfo, OutboxKeptPlan *kept, const char *sql)
{
	MemoryContext caller = CurrentMemoryContext;
	Relation	rel = open_table(fcinfo);
	Datum		result;
	int16		len;
	bool		byval;

	judge_lease(rel, fcinfo);
	SPI_connect();
	call_as_owner(rel, fcinfo, kept, sql);
	result = SPI_getbinval(SPI_tuptable->vals[0], SPI_tuptable->tupdesc, 1,
						   &fcinfo->isnull);
	if (!fcinfo->isnull)
	{
		MemoryContext old = MemoryContextSwitchTo(caller);

		get_typlenbyval(SPI_gettypeid(SPI_tuptable->tupdesc, 1), &len, &byval);
		result = datumCopy(result, byval, len);
		MemoryContextSwitchTo(old);
	}
	SPI_finish();
	table_close(rel, NoLock);
	return result;
}

/*
 * The relay publishes what it gets once this has committed: then it must be on disk,
 * and with it what was enqueued and acknowledged before.
 */
static void
commit_durably(void)
{
	if (synchronous_commit < SYNCHRONOUS_COMMIT_REMOTE_FLUSH)
		(void) set_config_option("synchronous_commit", "on", PGC_USERSET,
								 PGC_S_SESSION, GUC_ACTION_LOCAL, true, 0, false);
}

Datum
outbox_claim(PG_FUNCTION_ARGS)
{
	static OutboxKeptPlan kept;
	ReturnSetInfo *rsinfo = (ReturnSetInfo *) fcinfo->resultinfo;
	Relation	rel = open_table(fcinfo);

	judge(rel, PG_ARGISNULL(0) ? NULL : text_to_cstring(PG_GETARG_TEXT_PP(0)));
	commit_durably();
	InitMaterializedSRF(fcinfo, 0);
	SPI_connect();
	call_as_owner(rel, fcinfo, &kept,
				  "SELECT * FROM outbox_internal.outbox_claim($1, $2, $3, $4)");
	for (uint64 i = 0; i < SPI_processed; i++)
		tuplestore_puttuple(rsinfo->setResult, SPI_tuptable->vals[i]);
	SPI_finish();
	table_close(rel, NoLock);
	return (Datum) 0;
}

Datum
outbox_ack(PG_FUNCTION_ARGS)
{
	static OutboxKeptPlan kept;

	return call_lease_function(fcinfo, &kept,
							   "SELECT outbox_internal.outbox_ack($1, $2)");
}

Datum
outbox_nack(PG_FUNCTION_ARGS)
{
	static OutboxKeptPlan kept;

	if (!PG_ARGISNULL(2))
		fcinfo->args[2].value = outbox_printable_text(PG_GETARG_DATUM(2));
	return call_lease_function(fcinfo, &kept,
							   "SELECT outbox_internal.outbox_nack($1, $2, $3, $4)");
}

Datum
outbox_extend(PG_FUNCTION_ARGS)
{
	static OutboxKeptPlan kept;

	return call_lease_function(fcinfo, &kept,
							   "SELECT outbox_internal.outbox_extend($1, $2)");
}

Datum
outbox_release(PG_FUNCTION_ARGS)
{
	static OutboxKeptPlan kept;

	return call_lease_function(fcinfo, &kept,
							   "SELECT outbox_internal.outbox_release($1, $2)");
}
