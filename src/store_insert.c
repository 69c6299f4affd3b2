/*-------------------------------------------------------------------------
 *
 * store_insert.c
 *		outbox_enqueue()'s row, put into the table without the executor.
 *
 * An INSERT through SPI sets the executor up for each message: constraints,
 * index predicates and expressions are read and compiled anew, which takes three
 * times as long as storing the row (measured).  Here that is kept for the life
 * of the backend, until anything about the table changes.
 *
 * Only for the table as CREATE EXTENSION has made it, and indexes that somebody
 * has added.  Where it has more columns, triggers, constraints, rules or row
 * level security, the caller uses the statement.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/genam.h"
#include "access/table.h"
#include "access/tableam.h"
#include "access/xact.h"
#include "catalog/dependency.h"
#include "catalog/index.h"
#include "catalog/pg_trigger.h"
#include "commands/sequence.h"
#include "commands/trigger.h"
#include "executor/executor.h"
#include "miscadmin.h"
#include "nodes/execnodes.h"
#include "store.h"
#include "utils/inval.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/rel.h"

typedef struct DirectTable
{
	MemoryContext cxt;			/* everything below; NULL: nothing is cached */
	bool		valid;			/* false: something may have changed */
	bool		usable;
	Oid			schema;
	Oid			relid;
	Oid			sequence;		/* of seq */
	int			nindexes;
	Oid		   *indexes;
	IndexInfo **infos;			/* with compiled expressions */
	EState	   *estate;
	TupleTableSlot *slot;
} DirectTable;

static DirectTable direct;

/* CacheRegisterRelcacheCallback */
static void
forget_table(Datum arg, Oid relid)
{
	(void) arg;
	if (relid == InvalidOid || relid == direct.relid)
		direct.valid = false;
}

/* ------------------------------------------------- is it the table we know? */

static bool
is_our_trigger(const Trigger *trigger)
{
	char	   *name;

	if (trigger->tgenabled == TRIGGER_DISABLED ||
		!TRIGGER_FOR_INSERT(trigger->tgtype))
		return true;
	/* The caller does what this one does. */
	name = get_func_name(trigger->tgfoid);
	return name != NULL && strcmp(name, "outbox_row_trigger") == 0 &&
		trigger->tgenabled != TRIGGER_FIRES_ON_REPLICA;
}

static bool
has_known_checks(const TupleConstr *constr)
{
	if (constr == NULL)
		return true;
	if (constr->has_generated_stored)
		return false;
	/* What we insert meets both. */
	for (int i = 0; i < constr->num_check; i++)
		if (strcmp(constr->check[i].ccname, "outbox_attempts_check") != 0 &&
			strcmp(constr->check[i].ccname, "outbox_status_check") != 0)
			return false;
	return true;
}

static bool
is_known(Relation rel)
{
	TupleDesc	desc = RelationGetDescr(rel);

	if (rel->rd_rel->relkind != RELKIND_RELATION || rel->rd_rel->relispartition ||
		rel->rd_rel->relrowsecurity || rel->rd_rules != NULL ||
		desc->natts != OUTBOX_COLUMNS || !has_known_checks(desc->constr))
		return false;
	for (int i = 0; i < desc->natts; i++)
		if (TupleDescAttr(desc, i)->attisdropped)
			return false;
	if (rel->trigdesc == NULL)
		return false;
	for (int i = 0; i < rel->trigdesc->numtriggers; i++)
		if (!is_our_trigger(&rel->trigdesc->triggers[i]))
			return false;
	return true;
}

/* ------------------------------------------------------------------ indexes */

/* An index of the extension, or one that evaluates nothing. */
static bool
may_evaluate(const IndexInfo *info, Oid index)
{
	static const char *const ours[] = {
		"outbox_ready", "outbox_waiting", "outbox_failed_seq", "outbox_key"
	};
	char	   *name = get_rel_name(index);

	if (info->ii_Predicate == NIL && info->ii_Expressions == NIL)
		return true;
	for (int i = 0; i < lengthof(ours); i++)
		if (name != NULL && strcmp(name, ours[i]) == 0)
			return true;
	return false;
}

/* Returns false for one that the executor would have to look after. */
static bool
load_index(Relation index, int i)
{
	Form_pg_index form = index->rd_index;
	IndexInfo  *info;

	if (form->indisexclusion || (form->indisunique && !form->indimmediate))
		return false;
	info = BuildIndexInfo(index);
	/* Somebody's functions would run as the caller and not as the owner. */
	if (!may_evaluate(info, RelationGetRelid(index)))
		return false;
	/* Compiled now, into this memory, and not at each use. */
	info->ii_PredicateState = ExecPrepareQual(info->ii_Predicate, direct.estate);
	info->ii_ExpressionsState = ExecPrepareExprList(info->ii_Expressions,
													direct.estate);
	direct.indexes[i] = RelationGetRelid(index);
	direct.infos[i] = info;
	return true;
}

static bool
load_indexes(Relation rel)
{
	List	   *oids = RelationGetIndexList(rel);
	ListCell   *cell;
	bool		usable = true;

	direct.indexes = palloc(sizeof(Oid) * (list_length(oids) + 1));
	direct.infos = palloc(sizeof(IndexInfo *) * (list_length(oids) + 1));
	direct.nindexes = 0;
	foreach(cell, oids)
	{
		Relation	index = index_open(lfirst_oid(cell), RowExclusiveLock);

		if (index->rd_index->indisready)
			usable = usable && load_index(index, direct.nindexes++);
		index_close(index, NoLock);
	}
	return usable;
}

static void
load(Relation rel, Oid schema)
{
	static bool registered = false;
	MemoryContext old;

	if (!registered)
	{
		CacheRegisterRelcacheCallback(forget_table, (Datum) 0);
		registered = true;
	}
	if (direct.cxt != NULL)
		MemoryContextDelete(direct.cxt);
	memset(&direct, 0, sizeof(direct));
	direct.cxt = AllocSetContextCreate(CacheMemoryContext, "outbox insert",
									   ALLOCSET_SMALL_SIZES);
	direct.schema = schema;
	direct.relid = RelationGetRelid(rel);
	/* What changes while we look makes it invalid again. */
	direct.valid = true;
	if (!is_known(rel))
		return;
	old = MemoryContextSwitchTo(direct.cxt);
	direct.estate = CreateExecutorState();
	direct.slot = MakeSingleTupleTableSlot(CreateTupleDescCopy(RelationGetDescr(rel)),
										   &TTSOpsVirtual);
	direct.usable = load_indexes(rel);
	MemoryContextSwitchTo(old);
	direct.sequence = getIdentitySequence(direct.relid, 1, true);
	if (!OidIsValid(direct.sequence))
		direct.usable = false;
}

/* ---------------------------------------------------------------- inserting */

Relation
outbox_store_open_direct(Oid schema, int64 *seq)
{
	Relation	rel;

	if (SessionReplicationRole != SESSION_REPLICATION_ROLE_ORIGIN)
		return NULL;
	PreventCommandIfReadOnly("INSERT");
	if (!direct.valid || direct.schema != schema)
	{
		Oid			relid = get_relname_relid("outbox", schema);

		if (!OidIsValid(relid))
			return NULL;
		rel = table_open(relid, RowExclusiveLock);
		load(rel, schema);
	}
	else
	{
		rel = table_open(direct.relid, RowExclusiveLock);
		/* The lock may have brought news. */
		if (!direct.valid)
			load(rel, schema);
	}
	if (!direct.valid || !direct.usable)
	{
		table_close(rel, NoLock);
		return NULL;
	}
	*seq = nextval_internal(direct.sequence, false);
	return rel;
}

static void
insert_index_entry(Relation rel, int i, TupleTableSlot *slot,
				   ExprContext *context)
{
	IndexInfo  *info = direct.infos[i];
	Datum		values[INDEX_MAX_KEYS];
	bool		isnull[INDEX_MAX_KEYS];
	Relation	index;

	if (info->ii_Predicate != NIL && !ExecQual(info->ii_PredicateState, context))
		return;
	FormIndexDatum(info, slot, direct.estate, values, isnull);
	index = index_open(direct.indexes[i], RowExclusiveLock);
	(void) index_insert(index, values, isnull, &slot->tts_tid, rel,
						index->rd_index->indisunique ? UNIQUE_CHECK_YES :
						UNIQUE_CHECK_NO, false, info);
	index_close(index, NoLock);
}

void
outbox_store_insert_direct(Relation rel, const Datum *values,
						   const bool *isnull)
{
	TupleTableSlot *slot = direct.slot;
	ExprContext *context = GetPerTupleExprContext(direct.estate);
	MemoryContext old;

	ExecClearTuple(slot);
	memcpy(slot->tts_values, values, sizeof(Datum) * OUTBOX_COLUMNS);
	memcpy(slot->tts_isnull, isnull, sizeof(bool) * OUTBOX_COLUMNS);
	ExecStoreVirtualTuple(slot);
	slot->tts_tableOid = RelationGetRelid(rel);

	ResetExprContext(context);
	context->ecxt_scantuple = slot;
	old = MemoryContextSwitchTo(GetPerTupleMemoryContext(direct.estate));
	table_tuple_insert(rel, slot, GetCurrentCommandId(true), 0, NULL);
	for (int i = 0; i < direct.nindexes; i++)
		insert_index_entry(rel, i, slot, context);
	MemoryContextSwitchTo(old);
	ExecClearTuple(slot);
	table_close(rel, NoLock);
}
