/*-------------------------------------------------------------------------
 *
 * store_settle_direct.c
 *		Published rows, moved to the archive without a statement.
 *
 * The statement of store_settle.c was a third of the worker's time (measured).  Here a
 * row is read at its TID, compared by its id, deleted, and given to those functions of
 * the executor that COPY and logical replication use, which have no plan either.
 *
 * Nothing here fires triggers or knows rules, policies and defaults, and a delete
 * touches no index.  So it is only for a table outbox and an archive without them,
 * attribute by attribute with the columns that CREATE EXTENSION has made, on which the
 * owner has the statement's rights, and for partitions without triggers; what remains,
 * the caller settles by the statement.
 * All of it is looked at again for each round, in the relation cache and under the
 * locks of the statement, and nothing is kept.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/table.h"
#include "access/tableam.h"
#include "access/tupconvert.h"
#include "access/xact.h"
#include "catalog/namespace.h"
#include "catalog/pg_trigger.h"
#include "catalog/pg_type.h"
#include "columns.h"
#include "compat.h"
#include "executor/execPartition.h"
#include "executor/executor.h"
#include "miscadmin.h"
#include "own_relations.h"
#include "parser/parse_relation.h"
#include "store.h"
#include "store_internal.h"
#include "storage/bufmgr.h"
#include "utils/acl.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"
#include "utils/timestamp.h"
#include "utils/uuid.h"

/* The last column of the archive. */
#define COL_PUBLISHED_AT		(OUTBOX_ARCHIVED_COLUMNS + 1)

/* Where published rows go: INSERT INTO outbox_archive, as the executor has it. */
typedef struct Archive
{
	ResultRelInfo *table;
	ModifyTableState *insert;
	PartitionTupleRouting *routing;
	TupleTableSlot *slot;		/* a row of the table */
	bool		body;			/* with the body */
	TimestampTz published_at;
} Archive;

/* ------------------------------------------- are they the tables we know? */

/*
 * Ours tells other backends' deletes, not the relay's.  Another function of that
 * schema cannot have its name, as there are no arguments to differ by.
 */
static bool
is_known_trigger(const Trigger *trigger)
{
	char	   *name;

	if (trigger->tgenabled == TRIGGER_DISABLED ||
		!TRIGGER_FOR_DELETE(trigger->tgtype))
		return true;
	name = get_func_name(trigger->tgfoid);
	return name != NULL && strcmp(name, "outbox_change_trigger") == 0 &&
		get_func_namespace(trigger->tgfoid) ==
		get_namespace_oid("outbox_internal", true);
}

static bool
has_rights(Relation rel, AclMode rights)
{
	return pg_class_aclmask(RelationGetRelid(rel), GetUserId(), rights,
							ACLMASK_ALL) == rights;
}

static bool
may_delete(Relation rel)
{
	if (rel->rd_rel->relkind != RELKIND_RELATION || rel->rd_rel->relispartition ||
		rel->rd_rel->relhassubclass || rel->rd_rel->relrowsecurity ||
		rel->rd_rules != NULL || RelationGetDescr(rel)->natts < OUTBOX_ARCHIVED_COLUMNS ||
		!has_rights(rel, ACL_SELECT | ACL_DELETE))
		return false;
	if (rel->trigdesc != NULL)
		for (int i = 0; i < rel->trigdesc->numtriggers; i++)
			if (!is_known_trigger(&rel->trigdesc->triggers[i]))
				return false;
	return true;
}

/* The columns of the table outbox, in their order, and published_at. */
static bool
has_archive_columns(TupleDesc desc, TupleDesc from)
{
	Form_pg_attribute last;

	if (desc->natts < COL_PUBLISHED_AT)
		return false;
	for (int i = 0; i < OUTBOX_ARCHIVED_COLUMNS; i++)
	{
		Form_pg_attribute att = TupleDescAttr(desc, i);
		Form_pg_attribute source = TupleDescAttr(from, i);

		/* A generated one has a default, and an identity has none. */
		if (att->attisdropped || source->attisdropped || att->atthasdef ||
			att->attidentity != '\0' || att->atttypid != source->atttypid ||
			att->atttypmod != source->atttypmod ||
			strcmp(NameStr(att->attname), NameStr(source->attname)) != 0)
			return false;
	}
	for (int i = COL_PUBLISHED_AT; i < desc->natts; i++)
		if (!TupleDescAttr(desc, i)->attisdropped)
			return false;
	last = TupleDescAttr(desc, OUTBOX_ARCHIVED_COLUMNS);
	return !last->attisdropped && last->attgenerated == '\0' &&
		last->atttypid == TIMESTAMPTZOID &&
		strcmp(NameStr(last->attname), "published_at") == 0;
}

static bool
may_insert(Relation archive, Relation from)
{
	return archive->rd_rel->relkind == RELKIND_PARTITIONED_TABLE &&
		archive->trigdesc == NULL && archive->rd_rules == NULL &&
		!archive->rd_rel->relrowsecurity && has_rights(archive, ACL_INSERT) &&
		has_archive_columns(RelationGetDescr(archive), RelationGetDescr(from));
}

/* Of a partition: its constraints and its order of columns are no obstacle. */
static bool
may_store(Relation partition)
{
	TupleConstr *constr = RelationGetDescr(partition)->constr;

	return partition->rd_rel->relkind == RELKIND_RELATION &&
		partition->trigdesc == NULL &&
		(constr == NULL || !constr->has_generated_stored);
}

/* ----------------------------------------------------------------- archive */

/* What ModifyTable sets up; the range table is for the texts of errors. */
static void
start_insert(Archive *to, Relation archive, EState *estate)
{
	RangeTblEntry *rte = makeNode(RangeTblEntry);

	rte->rtekind = RTE_RELATION;
	rte->relid = RelationGetRelid(archive);
	rte->relkind = archive->rd_rel->relkind;
	rte->rellockmode = RowExclusiveLock;
	compat_init_range_table(estate, rte);

	to->table = makeNode(ResultRelInfo);
	InitResultRelInfo(to->table, archive, 1, NULL, 0);
	to->insert = makeNode(ModifyTableState);
	to->insert->ps.state = estate;
	to->insert->operation = CMD_INSERT;
	to->insert->resultRelInfo = to->table;
	to->routing = ExecSetupPartitionTupleRouting(estate, archive);
	to->slot = ExecInitExtraTupleSlot(estate, RelationGetDescr(archive),
									  &TTSOpsVirtual);
	to->published_at = GetCurrentTimestamp();
}

/* Returns false when the statement must be used. */
static bool
open_archive(Archive *to, Relation from, EState *estate)
{
	Relation	archive = table_open(outbox_relation(OUTBOX_REL_ARCHIVE),
									 RowExclusiveLock);
	MemoryContext old;

	if (!may_insert(archive, from))
	{
		table_close(archive, NoLock);
		return false;
	}

	/*
	 * One that is newer than the lock: in the round's own a partition is
	 * still there that DETACH CONCURRENTLY has taken away meanwhile.
	 */
	PushActiveSnapshot(GetTransactionSnapshot());
	old = MemoryContextSwitchTo(estate->es_query_cxt);
	start_insert(to, archive, estate);
	MemoryContextSwitchTo(old);
	return true;
}

static void
close_archive(Archive *to)
{
	ExecCleanupTupleRouting(to->insert, to->routing);
	table_close(to->table->ri_RelationDesc, NoLock);
	PopActiveSnapshot();
}

/* archive = 'metadata' */
static void
leave_body(TupleTableSlot *slot)
{
#define LEAVE_BODY(NAME, name, TYPE, type, null, value, set_by, archive, relay) \
	OUTBOX_IF_BODY_##archive(slot->tts_isnull[COL_##NAME - 1] = true;)

	OUTBOX_MESSAGE_COLUMNS(LEAVE_BODY, LEAVE_BODY)
}

/*
 * Makes the row of the archive and finds its partition, before anything happens to
 * the row: NULL when it is for the statement.  No partition is an error, here as
 * there.
 */
static ResultRelInfo *
route_row(Archive *to, TupleTableSlot *row)
{
	TupleTableSlot *slot = to->slot;
	ResultRelInfo *partition;

	ExecStoreAllNullTuple(slot);	/* for columns that were dropped */
	slot_getsomeattrs(row, OUTBOX_ARCHIVED_COLUMNS);
	memcpy(slot->tts_values, row->tts_values, sizeof(Datum) * OUTBOX_ARCHIVED_COLUMNS);
	memcpy(slot->tts_isnull, row->tts_isnull, sizeof(bool) * OUTBOX_ARCHIVED_COLUMNS);
	if (!to->body)
		leave_body(slot);
	slot->tts_values[OUTBOX_ARCHIVED_COLUMNS] = TimestampTzGetDatum(to->published_at);
	slot->tts_isnull[OUTBOX_ARCHIVED_COLUMNS] = false;
	partition = ExecFindPartition(to->insert, to->table, to->routing, slot,
								  to->insert->ps.state);
	return may_store(partition->ri_RelationDesc) ? partition : NULL;
}

/*
 * What ModifyTable does with a row that it has routed.  ExecSimpleRelationInsert()
 * would do, but it asks once more whether the row belongs to the partition, by an
 * expression that is made for each round (almost a third more for a single row).
 */
static void
insert_row(Archive *to, ResultRelInfo *partition)
{
	EState	   *estate = to->insert->ps.state;
	Relation	rel = partition->ri_RelationDesc;
	TupleConversionMap *map = compat_root_to_partition_map(partition, estate);
	TupleTableSlot *slot = to->slot;

	if (map != NULL)
		slot = execute_attr_map_slot(map->attrMap, slot,
									 partition->ri_PartitionTupleSlot);
	slot->tts_tableOid = RelationGetRelid(rel);
	if (RelationGetDescr(rel)->constr != NULL)
		ExecConstraints(partition, slot, estate);
	table_tuple_insert(rel, slot, estate->es_output_cid, 0, NULL);
	if (partition->ri_NumIndices > 0)
		compat_insert_index_tuples(partition, slot, estate);
}

/* ---------------------------------------------------------------- settling */

/* Is it where it was when it was claimed? */
static bool
fetch_row(Relation rel, const OutboxSettled *row, TupleTableSlot *slot)
{
	ItemPointerData tid = row->tid;
	bool		isnull;
	Datum		id;

	if (!table_tuple_fetch_row_version(rel, &tid, GetActiveSnapshot(), slot))
		return false;
	id = slot_getattr(slot, COL_ID, &isnull);
	return !isnull && memcmp(DatumGetUUIDP(id), &row->id, UUID_LEN) == 0;
}

/* Returns false when somebody has deleted, changed or locked it. */
static bool
delete_row(Relation rel, const OutboxSettled *row, CommandId cid)
{
	ItemPointerData tid = row->tid;
	TM_FailureData failure;

	return compat_tuple_delete(rel, &tid, cid, GetActiveSnapshot(),
							   &failure) == TM_Ok;
}

/* Called in a memory context that is reset for each row. */
static bool
settle_row(Relation rel, const OutboxSettled *row, TupleTableSlot *slot,
		   Archive *to, CommandId cid)
{
	ResultRelInfo *partition;

	if (!fetch_row(rel, row, slot))
		return false;
	if (to == NULL)
		return delete_row(rel, row, cid);
	partition = route_row(to, slot);
	if (partition == NULL || !delete_row(rel, row, cid))
		return false;
	insert_row(to, partition);
	return true;
}

static int
settle_rows(Relation rel, const OutboxSettled *rows, int n, Archive *to,
			EState *estate, bool *remains)
{
	TupleTableSlot *slot = table_slot_create(rel, &estate->es_tupleTable);

	/*
	 * TRUNCATE, VACUUM FULL and a vacuum that gives space back may have made
	 * the table shorter since the claim; none of them can while we have our
	 * lock.
	 */
	BlockNumber nblocks = RelationGetNumberOfBlocks(rel);
	int			settled = 0;

	for (int i = 0; i < n; i++)
	{
		MemoryContext old;

		CHECK_FOR_INTERRUPTS();
		ResetPerTupleExprContext(estate);
		old = MemoryContextSwitchTo(GetPerTupleMemoryContext(estate));
		if (ItemPointerGetBlockNumber(&rows[i].tid) < nblocks &&
			settle_row(rel, &rows[i], slot, to, estate->es_output_cid))
		{
			remains[i] = false;
			settled++;
		}
		MemoryContextSwitchTo(old);
	}
	return settled;
}

int
outbox_store_settle_direct(const OutboxSettled *rows, int n,
						   OutboxArchive archive, bool *remains)
{
	Relation	rel = table_open(outbox_store_relid(), RowExclusiveLock);
	EState	   *estate = CreateExecutorState();
	Archive		to = {.body = archive == OUTBOX_ARCHIVE_MESSAGE};
	bool		archives = archive != OUTBOX_ARCHIVE_NONE;
	int			settled = 0;

	if (may_delete(rel) && (!archives || open_archive(&to, rel, estate)))
	{
		CheckCmdReplicaIdentity(rel, CMD_DELETE);
		estate->es_output_cid = GetCurrentCommandId(true);
		settled = settle_rows(rel, rows, n, archives ? &to : NULL, estate,
							  remains);
		if (archives)
			close_archive(&to);
		CommandCounterIncrement();
	}
	ExecResetTupleTable(estate->es_tupleTable, false);
	FreeExecutorState(estate);
	table_close(rel, NoLock);
	return settled;
}
