/*-------------------------------------------------------------------------
 *
 * act_as_owner.c
 *		SQL as the owner of the tables, for a role that has no right on them.
 *
 * What an administrator adds to the tables (triggers, checks, defaults, expressions of
 * indexes, policies) runs as that owner then, who often is a superuser, while the session
 * is the caller's.  So the caller must have no say in what runs: not by search_path or a
 * temporary schema, where an unqualified name of such a function could find his objects,
 * and not by what the restricted operation forbids (SET ROLE, temporary objects, deferred
 * triggers that would run later with another user).  VACUUM and REINDEX do the same.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/parallel.h"
#include "access/xact.h"
#include "catalog.h"
#include "catalog/objectaccess.h"
#include "catalog/pg_class.h"
#include "catalog/pg_type.h"
#include "commands/trigger.h"
#include "compat.h"
#include "enqueue_internal.h"
#include "executor/executor.h"
#include "miscadmin.h"
#include "nodes/parsenodes.h"
#include "utils/builtins.h"
#include "utils/guc.h"
#include "utils/lsyscache.h"
#include "utils/snapmgr.h"

PG_FUNCTION_INFO_V1(outbox_act_as_owner);

static bool as_owner = false;	/* outbox.as_owner */
static ExecutorCheckPerms_hook_type next_check_perms = NULL;
static object_access_hook_type next_access = NULL;

/*
 * There is no search_path that leaves the caller's temporary schema out: where it is not
 * named, it comes first.  So an unqualified name that is not in pg_catalog leads there.
 * Its tables and views, with triggers, defaults and rules of the caller's, are refused;
 * types there (domains, with checks of the caller's) cannot be: there is no hook.
 */
static void
refuse_relation(Oid relid)
{
	if (get_rel_persistence(relid) == RELPERSISTENCE_TEMP)
		ereport(ERROR,
				(errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
				 errmsg("temporary relation \"%s\" cannot be used by what runs as the owner of the table \"outbox\"",
						get_rel_name(relid)),
				 errhint("In functions of triggers, checks and defaults on the tables of outbox, write names with their schemas.")));
}

static void
refuse_temporary(List *rangetable)
{
	ListCell   *cell;

	foreach(cell, rangetable)
	{
		RangeTblEntry *rte = lfirst_node(RangeTblEntry, cell);

		/* From 16 on a view's is a subquery that has its relid. */
		if ((rte->rtekind == RTE_RELATION || rte->rtekind == RTE_SUBQUERY) &&
			OidIsValid(rte->relid))
			refuse_relation(rte->relid);
	}
}

/* ExecutorCheckPerms_hook */
static bool
check_perms(COMPAT_CHECK_PERMS_PARAMS)
{
	if (as_owner)
		refuse_temporary(rangetable);
	return next_check_perms == NULL || next_check_perms(COMPAT_CHECK_PERMS_ARGS);
}

/*
 * object_access_hook, before the relation is locked: TRUNCATE fires triggers, and the
 * executor does not see it.
 */
static void
check_access(ObjectAccessType access, Oid class, Oid object, int subid,
			 void *arg)
{
	if (as_owner && access == OAT_TRUNCATE)
		refuse_relation(object);
	if (access == OAT_TRUNCATE)
		outbox_route_refuse_truncation(object);
	if (next_access != NULL)
		next_access(access, class, object, subid, arg);
}

/* Before anything is planned, let alone run, as the owner. */
static bool
check_as_owner(bool *newval, void **extra, GucSource source)
{
	const char *detail;
	const char *hint;
	char	   *unsafe;

	(void) extra;
	/* By ALTER DATABASE its owner would set it for others' sessions. */
	if (source >= PGC_S_GLOBAL && source <= PGC_S_CLIENT)
		*newval = false;
	/* A parallel worker restores what its leader has looked at. */
	if (!*newval || !IsTransactionState() || InitializingParallelWorker)
		return true;
	unsafe = outbox_unsafe_object(&detail, &hint);
	if (unsafe == NULL)
		return true;
	GUC_check_errcode(ERRCODE_INSUFFICIENT_PRIVILEGE);
	GUC_check_errmsg("%s", unsafe);
	GUC_check_errdetail("%s", detail);
	GUC_check_errhint("%s", hint);
	return false;
}

/*
 * A setting, so that it ends with the function or the (sub)transaction that has
 * set it, and functions in SQL can have it.  Who sets it by hand denies himself
 * his temporary tables.
 */
void
outbox_owner_init(void)
{
	DefineCustomBoolVariable("outbox.as_owner",
							 "On while a statement runs as the owner of the tables for somebody else.",
							 "Set by functions of the extension; temporary tables and views cannot be used then.",
							 &as_owner, false, PGC_USERSET,
							 GUC_NO_SHOW_ALL | GUC_NOT_IN_SAMPLE | GUC_DISALLOW_IN_FILE,
							 check_as_owner, NULL, NULL);
	next_check_perms = ExecutorCheckPerms_hook;
	ExecutorCheckPerms_hook = check_perms;
	next_access = object_access_hook;
	object_access_hook = check_access;
}

/*
 * A function stores new messages, for which the triggers of the tables have to fire, also
 * where a subscription applies the rows that it makes them of.
 */
static void
fire_triggers(void)
{
	if (SessionReplicationRole != SESSION_REPLICATION_ROLE_ORIGIN)
		(void) set_config_option("session_replication_role", "origin", PGC_SUSET,
								 PGC_S_SESSION, GUC_ACTION_SAVE, true, 0, false);
}

/*
 * For functions that SET outbox.as_owner.  Where this call has loaded the library the
 * server has just found that value; where it is refused it only warns, and this does not.
 * The server ends the restricted operation with the SECURITY DEFINER function; elsewhere
 * it would last as long as the session.
 */
Datum
outbox_act_as_owner(PG_FUNCTION_ARGS)
{
	Oid			userid;
	int			context;

	(void) fcinfo;
	if (!as_owner)
		(void) set_config_option("outbox.as_owner", "on", PGC_USERSET,
								 PGC_S_SESSION, GUC_ACTION_SAVE, true, 0, false);
	GetUserIdAndSecContext(&userid, &context);
	if ((context & SECURITY_LOCAL_USERID_CHANGE) != 0)
		SetUserIdAndSecContext(userid, context | SECURITY_RESTRICTED_OPERATION);
	fire_triggers();
	PG_RETURN_VOID();
}

/* What pg_dump sets for itself would keep the views of outbox_internal out of reach. */
static void
allow_views(void)
{
	static const char *const name = "restrict_nonsystem_relation_kind";
	const char *restricted = GetConfigOption(name, true, false);

	if (restricted != NULL && *restricted != '\0')
		(void) set_config_option(name, "", PGC_USERSET, PGC_S_SESSION,
								 GUC_ACTION_SAVE, true, 0, false);
}

void
outbox_act_begin(OutboxActing *acting, Oid owner, bool looking)
{
	GetUserIdAndSecContext(&acting->userid, &acting->context);
	SetUserIdAndSecContext(owner,
						   acting->context | SECURITY_RESTRICTED_OPERATION |
						   (looking ? SECURITY_NOFORCE_RLS : 0));
	acting->nestlevel = NewGUCNestLevel();
	(void) set_config_option("search_path", "pg_catalog, pg_temp", PGC_USERSET,
							 PGC_S_SESSION, GUC_ACTION_SAVE, true, 0, false);
	(void) set_config_option("outbox.as_owner", "on", PGC_USERSET,
							 PGC_S_SESSION, GUC_ACTION_SAVE, true, 0, false);
	fire_triggers();
	allow_views();
}

void
outbox_act_end(const OutboxActing *acting)
{
	AtEOXact_GUC(false, acting->nestlevel);
	SetUserIdAndSecContext(acting->userid, acting->context);
}

/* --------------------------------------------------------------- statements */

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

static void
prepare(OutboxKeptPlan *kept, const char *sql, int nargs, Oid *types)
{
	SPIPlanPtr	plan;

	if (kept->plan != NULL)
		return;
	plan = SPI_prepare_cursor(sql, nargs, types, CURSOR_OPT_GENERIC_PLAN);
	if (plan == NULL)
		elog(ERROR, "SPI_prepare_cursor failed: %s",
			 SPI_result_code_string(SPI_result));
	if (SPI_keepplan(plan) != 0)
		elog(ERROR, "SPI_keepplan failed");
	kept->plan = plan;
}

/* As many as run, further out or further in, are counted, however they end. */
static int
execute(OutboxKeptPlan *kept, Datum *values, const char *nulls, bool read_only,
		const SPIExecuteOptions *options)
{
	int			result;

	kept->running++;
	PG_TRY();
	{
		result = options != NULL ? SPI_execute_plan_extended(kept->plan, options) :
			SPI_execute_plan(kept->plan, values, nulls, read_only, 0);
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
	prepare(kept, sql, nargs, types);
	return execute(kept, values, nulls, read_only, NULL);
}

int
outbox_kept_plan_execute_into(OutboxKeptPlan *kept, const char *sql,
							  DestReceiver *dest)
{
	SPIExecuteOptions options = {.dest = dest};

	prepare(kept, sql, 0, NULL);
	return execute(kept, NULL, NULL, false, &options);
}

/* Not a kept plan: such a query runs when a route is looked up or changed. */
static void
look_begin(OutboxActing *acting, Oid owner, const char *query, Oid type, Datum value)
{
	SPI_connect();
	outbox_act_begin(acting, owner, true);
	PushActiveSnapshot(GetLatestSnapshot());
	if (SPI_execute_with_args(query, 1, &type, &value, value == (Datum) 0 ? "n" : NULL,
							  true, 0) != SPI_OK_SELECT)
		elog(ERROR, "could not execute: %s", query);
}

void
outbox_look_begin(OutboxActing *acting, Oid owner, const char *query, const char *name)
{
	look_begin(acting, owner, query, TEXTOID,
			   name == NULL ? (Datum) 0 : CStringGetTextDatum(name));
}

void
outbox_look_end(const OutboxActing *acting)
{
	PopActiveSnapshot();
	outbox_act_end(acting);
	SPI_finish();
}

static char *
look_up(Relation rel, const char *query, Oid type, Datum value)
{
	MemoryContext caller = CurrentMemoryContext;
	OutboxActing acting;
	char	   *found = NULL;

	/*
	 * What the command itself has written counts: WITH d AS (DELETE ...)
	 * INSERT.
	 */
	CommandCounterIncrement();
	look_begin(&acting, rel->rd_rel->relowner, query, type, value);
	if (SPI_processed > 0)
		found = SPI_getvalue(SPI_tuptable->vals[0], SPI_tuptable->tupdesc, 1);
	if (found != NULL)
		found = MemoryContextStrdup(caller, found);
	outbox_look_end(&acting);
	return found;
}

char *
outbox_look_up(Relation rel, const char *query, const char *name)
{
	return look_up(rel, query, TEXTOID,
				   name == NULL ? (Datum) 0 : CStringGetTextDatum(name));
}

char *
outbox_look_up_names(Relation rel, const char *query, Datum names)
{
	return look_up(rel, query, TEXTARRAYOID, names);
}
