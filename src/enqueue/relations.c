/*-------------------------------------------------------------------------
 *
 * relations.c
 *		LOCK TABLE and ALTER TABLE of tables by their OIDs.
 *
 * The tables that users see are in a schema that any role may own, rename and replace.
 * PL/pgSQL reaches them through views in outbox_internal.  LOCK TABLE and ALTER TABLE
 * take no view but a name, which leads elsewhere when the schema is renamed between two
 * looks: so here they take an OID.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "catalog/pg_class.h"
#include "commands/event_trigger.h"
#include "commands/tablecmds.h"
#include "enqueue_internal.h"
#include "miscadmin.h"
#include "nodes/parsenodes.h"
#include "parser/parser.h"
#include "storage/lmgr.h"
#include "tcop/utility.h"
#include "utils/acl.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/syscache.h"

PG_FUNCTION_INFO_V1(outbox_lock_table);
PG_FUNCTION_INFO_V1(outbox_alter_table);

/* As pg_locks has it. */
static LOCKMODE
mode_of(const char *name)
{
	for (LOCKMODE mode = AccessShareLock; mode <= AccessExclusiveLock; mode++)
		if (strcmp(GetLockmodeName(DEFAULT_LOCKMETHOD, mode), name) == 0)
			return mode;
	ereport(ERROR,
			(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
			 errmsg("unrecognized lock mode \"%s\"", name)));
}

/* No right is asked for here. */
void
outbox_lock_relation(Oid relid, LOCKMODE mode, bool wait)
{
	if (wait)
		LockRelationOid(relid, mode);
	else if (!ConditionalLockRelationOid(relid, mode))
		ereport(ERROR,
				(errcode(ERRCODE_LOCK_NOT_AVAILABLE),
				 errmsg("could not obtain lock on relation \"%s.%s\"",
						get_namespace_name(get_rel_namespace(relid)),
						get_rel_name(relid))));
	if (get_rel_name(relid) == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_TABLE),
				 errmsg("relation with OID %u does not exist", relid)));
}

/* EXECUTE is the owner's, who may be anybody: so only of their own tables, as ALTER TABLE. */
static void
lock_own_relation(Oid relid, LOCKMODE mode, bool wait)
{
	HeapTuple	tuple = SearchSysCache1(RELOID, ObjectIdGetDatum(relid));

	if (HeapTupleIsValid(tuple))
	{
		Form_pg_class form = (Form_pg_class) GETSTRUCT(tuple);

		if (!has_privs_of_role(GetUserId(), form->relowner))
			aclcheck_error(ACLCHECK_NOT_OWNER, OBJECT_TABLE, NameStr(form->relname));
		ReleaseSysCache(tuple);
	}
	outbox_lock_relation(relid, mode, wait);
}

Datum
outbox_lock_table(PG_FUNCTION_ARGS)
{
	lock_own_relation(PG_GETARG_OID(0), mode_of(text_to_cstring(PG_GETARG_TEXT_PP(1))),
					  PG_GETARG_BOOL(2));
	PG_RETURN_VOID();
}

/* As ProcessUtility() does it, event triggers included. */
static void
alter_table(AlterTableStmt *stmt, LOCKMODE mode, AlterTableUtilityContext *context)
{
	bool		cleanup = EventTriggerBeginCompleteQuery();

	PG_TRY();
	{
		EventTriggerDDLCommandStart((Node *) stmt);
		EventTriggerAlterTableStart((Node *) stmt);
		EventTriggerAlterTableRelid(context->relid);
		AlterTable(stmt, mode, context);
		EventTriggerAlterTableEnd();
		EventTriggerSQLDrop((Node *) stmt);
		EventTriggerDDLCommandEnd((Node *) stmt);
	}
	PG_FINALLY();
	{
		if (cleanup)
			EventTriggerEndCompleteQuery();
	}
	PG_END_TRY();
}

/*
 * The server's own ALTER TABLE, from behind the look-up of the name on.  The name in
 * the text is nobody's.
 */
Datum
outbox_alter_table(PG_FUNCTION_ARGS)
{
	Oid			relid = PG_GETARG_OID(0);
	char	   *sql = psprintf("ALTER TABLE outbox_internal.outbox_by_oid %s",
							   text_to_cstring(PG_GETARG_TEXT_PP(1)));
	List	   *parsed = raw_parser(sql, RAW_PARSE_DEFAULT);
	Node	   *node = linitial_node(RawStmt, parsed)->stmt;
	AlterTableStmt *stmt = (AlterTableStmt *) node;
	LOCKMODE	mode;
	AlterTableUtilityContext context;

	if (list_length(parsed) != 1 || !IsA(node, AlterTableStmt))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("not a command of ALTER TABLE that changes the table itself")));
	mode = AlterTableGetLockLevel(stmt->cmds);
	lock_own_relation(relid, mode, true);
	memset(&context, 0, sizeof(context));
	context.pstmt = makeNode(PlannedStmt);
	context.pstmt->commandType = CMD_UTILITY;
	context.pstmt->utilityStmt = (Node *) stmt;
	context.queryString = sql;
	context.relid = relid;
	alter_table(stmt, mode, &context);
	PG_RETURN_VOID();
}
