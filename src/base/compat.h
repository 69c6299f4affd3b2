/*-------------------------------------------------------------------------
 *
 * compat.h
 *		What differs between the versions of PostgreSQL, 15 to 19.
 *
 * The only place in src/ that looks at PG_VERSION_NUM.  A condition has the
 * form of a macro, so that nothing is included here that its user does not
 * include anyway.  doc/dev/versions.md lists them with the reasons.
 *
 *-------------------------------------------------------------------------
 */
#ifndef OUTBOX_COMPAT_H
#define OUTBOX_COMPAT_H

/* ------------------------------------------------------------------ headers */

/* The varlena macros were in postgres.h. */
#if PG_VERSION_NUM >= 160000
#include "varatt.h"
#endif

/* The sets of events were in storage/latch.h. */
#if PG_VERSION_NUM >= 180000
#include "storage/waiteventset.h"
#endif

/* ------------------------------------------------------------------- server */

/* TransamVariables was called ShmemVariableCache. */
#if PG_VERSION_NUM >= 170000
#define compat_transam() TransamVariables
#else
#define compat_transam() ShmemVariableCache
#endif

/* What is known of a replication slot that cannot be used any more. */
#if PG_VERSION_NUM >= 160000
#define compat_slot_invalidated(slot) ((slot)->data.invalidated != RS_INVAL_NONE)
#else
#define compat_slot_invalidated(slot) \
	(!XLogRecPtrIsInvalid((slot)->data.invalidated_at))
#endif

/* All settings, as the server has them; there came to be a list for each call. */
#if PG_VERSION_NUM >= 160000
#define compat_settings(n) get_guc_variables(n)
#else
#define compat_settings(n) (*(n) = GetNumConfigOptions(), get_guc_variables())
#endif

/* The context of JSON's lexer can be the caller's. */
#if PG_VERSION_NUM >= 170000
#define compat_json_lexer(json) makeJsonLexContext(NULL, json, false)
#else
#define compat_json_lexer(json) makeJsonLexContext(json, false)
#endif

/* A set that lives as long as the process: owned by none, or in a context. */
#if PG_VERSION_NUM >= 170000
#define compat_create_wait_set(n) CreateWaitEventSet(NULL, n)
#else
#define compat_create_wait_set(n) CreateWaitEventSet(TopMemoryContext, n)
#endif

/* An extension can name what it waits for. */
#if PG_VERSION_NUM >= 170000
#define COMPAT_HAVE_WAIT_EVENTS true
#define compat_new_wait_event(name) WaitEventExtensionNew(name)
#else
#define COMPAT_HAVE_WAIT_EVENTS false
#define compat_new_wait_event(name) ((void) (name), PG_WAIT_EXTENSION)
#endif

/*
 * The server makes UUIDs of version 7 itself, and promises that those of one
 * backend grow, also when the clock does not.
 */
#if PG_VERSION_NUM >= 180000
#define COMPAT_HAVE_UUIDV7 true
#define compat_uuidv7() DatumGetUUIDP(DirectFunctionCall1(uuidv7, (Datum) 0))
#else
#define COMPAT_HAVE_UUIDV7 false
#define compat_uuidv7() ((pg_uuid_t *) NULL)
#endif

/* Has a role EXECUTE on a function?  There came to be one function for all rights. */
#if PG_VERSION_NUM >= 160000
#define compat_may_execute(function, role) \
	(object_aclcheck(ProcedureRelationId, function, role, ACL_EXECUTE) == ACLCHECK_OK)
#else
#define compat_may_execute(function, role) \
	(pg_proc_aclcheck(function, role, ACL_EXECUTE) == ACLCHECK_OK)
#endif

/* A worker can be told by the server, too, that its database must be left. */
#if PG_VERSION_NUM >= 190000
#define COMPAT_BGWORKER_INTERRUPTIBLE BGWORKER_INTERRUPTIBLE
#else
#define COMPAT_BGWORKER_INTERRUPTIBLE 0
#endif

/* Handlers of signals have a second argument, and so the constants have another type. */
#if PG_VERSION_NUM >= 190000
#define COMPAT_SIG_IGN PG_SIG_IGN
#else
#define COMPAT_SIG_IGN SIG_IGN
#endif

/* Handlers of signals are told who sent it: nobody did. */
#if PG_VERSION_NUM >= 190000
#define compat_die() die(SIGTERM, &(const pg_signal_info) {0, 0})
#else
#define compat_die() die(SIGTERM)
#endif

/* ----------------------------------------------------------------- executor */

/* execute_once is gone. */
#if PG_VERSION_NUM >= 180000
#define compat_executor_run(query) ExecutorRun(query, ForwardScanDirection, 0)
#else
#define compat_executor_run(query) ExecutorRun(query, ForwardScanDirection, 0, true)
#endif

/* Permissions came to have a list of their own. */
#if PG_VERSION_NUM >= 160000
#define COMPAT_CHECK_PERMS_PARAMS \
	List *rangetable, List *perminfos, bool ereport_on_violation
#define COMPAT_CHECK_PERMS_ARGS rangetable, perminfos, ereport_on_violation
#else
#define COMPAT_CHECK_PERMS_PARAMS List *rangetable, bool ereport_on_violation
#define COMPAT_CHECK_PERMS_ARGS rangetable, ereport_on_violation
#endif

/* As ExecutorStart() does, with its hook; refuses. */
#if PG_VERSION_NUM >= 160000
#define compat_check_permissions(stmt) \
	ExecCheckPermissions((stmt)->rtable, (stmt)->permInfos, true)
#else
#define compat_check_permissions(stmt) ExecCheckRTPerms((stmt)->rtable, true)
#endif

/* A range table of one table: its permissions apart, and not pruned. */
#if PG_VERSION_NUM >= 180000
#define compat_init_range_table(estate, rte) \
	do { \
		List	   *perminfos = NIL; \
		addRTEPermissionInfo(&perminfos, rte); \
		ExecInitRangeTable(estate, list_make1(rte), perminfos, \
						   bms_make_singleton(1)); \
	} while (0)
#elif PG_VERSION_NUM >= 160000
#define compat_init_range_table(estate, rte) \
	do { \
		List	   *perminfos = NIL; \
		addRTEPermissionInfo(&perminfos, rte); \
		ExecInitRangeTable(estate, list_make1(rte), perminfos); \
	} while (0)
#else
#define compat_init_range_table(estate, rte) \
	ExecInitRangeTable(estate, list_make1(rte))
#endif

/* A scan of an index for the rows of its table, with so many conditions. */
#if PG_VERSION_NUM >= 190000
#define compat_index_beginscan(rel, index, snapshot, nkeys) \
	index_beginscan(rel, index, snapshot, NULL, nkeys, 0, 0)
#elif PG_VERSION_NUM >= 180000
#define compat_index_beginscan(rel, index, snapshot, nkeys) \
	index_beginscan(rel, index, snapshot, NULL, nkeys, 0)
#else
#define compat_index_beginscan(rel, index, snapshot, nkeys) \
	index_beginscan(rel, index, snapshot, nkeys, 0)
#endif

/* From rows of the table to those of its partition; NULL: they are the same. */
#if PG_VERSION_NUM >= 160000
#define compat_root_to_partition_map(info, estate) \
	ExecGetRootToChildMap(info, estate)
#else
#define compat_root_to_partition_map(info, estate) \
	((void) (estate), (info)->ri_RootToPartitionMap)
#endif

/* An insert into all indexes, without ON CONFLICT. */
#if PG_VERSION_NUM >= 190000
#define compat_insert_index_tuples(info, slot, estate) \
	((void) ExecInsertIndexTuples(info, estate, 0, slot, NIL, NULL))
#elif PG_VERSION_NUM >= 160000
#define compat_insert_index_tuples(info, slot, estate) \
	((void) ExecInsertIndexTuples(info, slot, estate, false, false, NULL, NIL, false))
#else
#define compat_insert_index_tuples(info, slot, estate) \
	((void) ExecInsertIndexTuples(info, slot, estate, false, false, NULL, NIL))
#endif

/* Does not wait; the row is not moved to another partition. */
#if PG_VERSION_NUM >= 190000
#define compat_tuple_delete(rel, tid, cid, snapshot, failure) \
	table_tuple_delete(rel, tid, cid, 0, snapshot, InvalidSnapshot, false, failure)
#else
#define compat_tuple_delete(rel, tid, cid, snapshot, failure) \
	table_tuple_delete(rel, tid, cid, snapshot, InvalidSnapshot, false, failure, false)
#endif

#endif							/* OUTBOX_COMPAT_H */
