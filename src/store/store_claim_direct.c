/*-------------------------------------------------------------------------
 *
 * store_claim_direct.c
 *		Runs the plan of a claim without setting an executor up.
 *
 * To start and to end an executor was nine tenths of the claim of one row, and claims
 * of one row are what a worker does at everyday rates (measured).  The server plans
 * a claim in any case, and keeps the plan as long as nothing that it depends on has
 * changed.  Here that plan is looked at: when it is a scan of the table outbox by an
 * index on seq, under LockRows and Limit, and nothing else, its three steps are done by
 * the functions that the executor calls for them (index_getnext_slot(), ExecQual() and
 * table_tuple_lock()).  A table that inherits, a column of another type or an index in
 * another order gives another plan, which is for the executor.  A policy is one of the
 * plan's conditions.
 *
 * So which rows there are, by which index, and with which conditions stays the
 * planner's decision, and until when that holds the plan cache's.  Rights are checked
 * as the executor checks them.  Only the hooks that other extensions have in the
 * executor (pg_stat_statements) do not see such a claim.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/genam.h"
#include "access/skey.h"
#include "access/stratnum.h"
#include "access/table.h"
#include "access/tableam.h"
#include "access/xact.h"
#include "catalog/pg_am.h"
#include "catalog/pg_opfamily.h"
#include "compat.h"
#include "executor/executor.h"
#include "miscadmin.h"
#include "nodes/plannodes.h"
#include "parser/parsetree.h"
#include "store.h"
#include "store_internal.h"
#include "utils/fmgroids.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"

/* -------------------------------------------------------------- is it that plan? */

/* Does the node do no more than its type says? */
static bool
is_plain(const Plan *plan)
{
	return plan->initPlan == NIL && plan->righttree == NULL;
}

static bool
is_param(const Node *node, int number)
{
	const Param *param = (const Param *) node;

	return IsA(node, Param) && param->paramkind == PARAM_EXTERN &&
		param->paramid == number;
}

/* The index's first column, compared by that function with that parameter? */
static bool
is_bound(const Node *node, Oid function, int number)
{
	const OpExpr *bound = (const OpExpr *) node;
	const Var  *var;

	if (!IsA(node, OpExpr) || bound->opfuncid != function || list_length(bound->args) != 2)
		return false;
	var = linitial(bound->args);
	return IsA(var, Var) && var->varno == INDEX_VAR && var->varattno == 1 &&
		is_param(lsecond(bound->args), number);
}

/* Rows of the table outbox, locked and skipped as a claim does? */
static bool
locks_rows(const LockRows *lock, Index relid)
{
	const PlanRowMark *mark;

	if (!is_plain(&lock->plan) || list_length(lock->rowMarks) != 1)
		return false;
	mark = linitial(lock->rowMarks);
	return mark->markType == ROW_MARK_EXCLUSIVE && mark->waitPolicy == LockWaitSkip &&
		!mark->isParent && mark->rti == relid && mark->prti == relid;
}

/* Columns of the row as they are, into columns of the claim? */
static bool
has_plain_columns(const List *targets, Index relid)
{
	int			n = 0;
	ListCell   *cell;

	foreach(cell, targets)
	{
		const TargetEntry *target = lfirst(cell);
		const Var  *var = (const Var *) target->expr;

		if (target->resjunk)
			continue;
		if (!IsA(var, Var) || var->varno != relid || var->varattno == 0 ||
			target->resno != ++n)
			return false;
	}
	return n == OUTBOX_CLAIM_COLUMNS;
}

/* The scan, if this is all that the plan consists of; else NULL. */
static const IndexScan *
find_scan(const PlannedStmt *stmt)
{
	const Limit *limit = (const Limit *) stmt->planTree;
	const LockRows *lock;
	const IndexScan *scan;

	if (!IsA(limit, Limit) || !is_plain(&limit->plan) || limit->limitOffset != NULL ||
		limit->limitOption != LIMIT_OPTION_COUNT || stmt->subplans != NIL)
		return NULL;
	lock = (const LockRows *) outerPlan(limit);
	if (lock == NULL || !IsA(lock, LockRows))
		return NULL;
	scan = (const IndexScan *) outerPlan(lock);
	if (!IsA(scan, IndexScan) ||
		!is_plain(&scan->scan.plan) ||
		scan->indexorderby != NIL || !ScanDirectionIsForward(scan->indexorderdir) ||
		list_length(scan->indexqual) != 2 ||
		!is_bound(linitial(scan->indexqual), F_INT8GT, ARG_AFTER + 1) ||
		!is_bound(lsecond(scan->indexqual), F_INT8LE, ARG_UPTO + 1))
		return NULL;
	if (!locks_rows(lock, scan->scan.scanrelid) ||
		!has_plain_columns(scan->scan.plan.targetlist, scan->scan.scanrelid))
		return NULL;
	return rt_fetch(scan->scan.scanrelid, stmt->rtable)->relid == outbox_store_relid() ?
		scan : NULL;
}

/* ------------------------------------------------------------------------ its run */

typedef struct Run
{
	Relation	rel;
	Relation	index;
	IndexScanDesc scan;
	TupleTableSlot *row;
	TupleTableSlot *locked;		/* the same row, as the lock reads it */
	TupleTableSlot *columns;	/* those of the claim */
	ExprState  *filter;
	ExprContext *econtext;
	Snapshot	snapshot;
	CommandId	cid;
} Run;

/* Returns false, with nothing open, when that is not the order of numbers. */
static bool
open_index(Run *run, Oid indexid)
{
	/* The plan cache has locked the table only. */
	run->index = index_open(indexid, AccessShareLock);
	if (run->index->rd_rel->relam == BTREE_AM_OID &&
		run->index->rd_opfamily[0] == INTEGER_BTREE_FAM_OID)
		return true;
	index_close(run->index, NoLock);
	return false;
}

static void
begin_run(Run *run, const IndexScan *plan, ParamListInfo params, TupleDesc columns)
{
	ScanKeyData keys[2];

	run->rel = table_open(outbox_store_relid(), NoLock);
	run->row = table_slot_create(run->rel, NULL);
	run->locked = table_slot_create(run->rel, NULL);
	run->columns = MakeSingleTupleTableSlot(columns, &TTSOpsVirtual);
	run->filter = ExecInitQual(plan->scan.plan.qual, NULL);
	run->econtext = CreateStandaloneExprContext();
	run->econtext->ecxt_param_list_info = params;
	run->econtext->ecxt_scantuple = run->row;
	run->snapshot = GetActiveSnapshot();
	run->cid = GetCurrentCommandId(true);
	ScanKeyInit(&keys[0], 1, BTGreaterStrategyNumber, F_INT8GT,
				params->params[ARG_AFTER].value);
	ScanKeyInit(&keys[1], 1, BTLessEqualStrategyNumber, F_INT8LE,
				params->params[ARG_UPTO].value);
	run->scan = compat_index_beginscan(run->rel, run->index, run->snapshot, lengthof(keys));
	index_rescan(run->scan, keys, lengthof(keys), NULL, 0);
}

static void
end_run(Run *run)
{
	index_endscan(run->scan);
	FreeExprContext(run->econtext, true);
	ExecDropSingleTupleTableSlot(run->columns);
	ExecDropSingleTupleTableSlot(run->locked);
	ExecDropSingleTupleTableSlot(run->row);
	index_close(run->index, NoLock);
	table_close(run->rel, NoLock);
}

/*
 * Returns false when it is to be skipped: another transaction has it locked, or has
 * changed or deleted it since the snapshot.  LockRows would follow a change to the row's
 * new version; here it counts as locked, and is read again.
 */
static bool
lock_row(Run *run)
{
	TM_FailureData failure;
	ItemPointerData tid = run->row->tts_tid;

	return table_tuple_lock(run->rel, &tid, run->snapshot, run->locked, run->cid,
							LockTupleExclusive, LockWaitSkip,
							TUPLE_LOCK_FLAG_LOCK_UPDATE_IN_PROGRESS, &failure) == TM_Ok;
}

static void
fill_columns(Run *run, const List *targets)
{
	TupleTableSlot *columns = run->columns;
	ListCell   *cell;

	ExecClearTuple(columns);
	foreach(cell, targets)
	{
		const TargetEntry *target = lfirst(cell);
		int			attnum = ((const Var *) target->expr)->varattno;
		int			i = target->resno - 1;

		if (target->resjunk)
			continue;
		if (attnum > 0)
			columns->tts_values[i] =
				slot_getattr(run->row, attnum, &columns->tts_isnull[i]);
		else
			columns->tts_values[i] =
				slot_getsysattr(run->row, attnum, &columns->tts_isnull[i]);
	}
	ExecStoreVirtualTuple(columns);
}

bool
outbox_store_claim_direct(const PlannedStmt *stmt, ParamListInfo params, TupleDesc columns,
						  int limit, DestReceiver *receiver, bool *skipped)
{
	const IndexScan *plan = find_scan(stmt);
	Run			run;

	if (plan == NULL || !open_index(&run, plan->indexid))
		return false;
	(void) compat_check_permissions(stmt);
	begin_run(&run, plan, params, columns);
	*skipped = false;
	for (int n = 0; n < limit && index_getnext_slot(run.scan, ForwardScanDirection, run.row);)
	{
		CHECK_FOR_INTERRUPTS();
		ResetExprContext(run.econtext);
		if (!ExecQual(run.filter, run.econtext))
			continue;
		if (!lock_row(&run))
		{
			*skipped = true;
			continue;
		}
		fill_columns(&run, plan->scan.plan.targetlist);
		if (!receiver->receiveSlot(run.columns, receiver))
			break;
		n++;
	}
	end_run(&run);
	return true;
}
