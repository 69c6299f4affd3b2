/*-------------------------------------------------------------------------
 *
 * store_settle_direct.c
 *		Published rows, moved to the archive without the executor.
 *
 * To set the executor up for the statement of store_settle.c costs more than to
 * settle the one or two messages that a round has while they come one by one,
 * and in a large round its joins cost more than the deletes (measured: settling
 * was a third of the worker's time).  Here a row is read at its TID, compared by
 * its id, deleted, and stored in the archive's partition of now, as the
 * statement would.
 *
 * Only for tables whose definition is that of CREATE EXTENSION and of
 * outbox_archive_maintain(), attribute by attribute; with another column, type,
 * trigger, rule, check, policy, child or kind of partition the caller uses the
 * statement.  All of it is looked at anew for each round, in the relation cache
 * and under the locks of the statement, and nothing is kept: what the executor
 * opens (indexes of any kind, their insert state) is closed at the end of the
 * round by the executor's own functions.  A delete touches no index, and rows go
 * into the indexes of the archive as INSERT puts them there.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/table.h"
#include "access/tableam.h"
#include "access/xact.h"
#include "catalog/pg_trigger.h"
#include "catalog/pg_type.h"
#include "columns.h"
#include "compat.h"
#include "executor/executor.h"
#include "miscadmin.h"
#include "partitioning/partbounds.h"
#include "partitioning/partdesc.h"
#include "store.h"
#include "store_internal.h"
#include "storage/bufmgr.h"
#include "utils/lsyscache.h"
#include "utils/partcache.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"
#include "utils/timestamp.h"
#include "utils/uuid.h"

/* Columns of the archive: those of the table outbox up to attempts, and this. */
#define ARCHIVED_COLUMNS		COL_ATTEMPTS
#define COL_PUBLISHED_AT		(ARCHIVED_COLUMNS + 1)

/* Where published rows go. */
typedef struct Archive
{
	Relation	parent;
	Relation	rel;			/* the partition */
	ResultRelInfo *info;
	EState	   *estate;
	TupleTableSlot *slot;
	TimestampTz published_at;
} Archive;

/* ------------------------------------------- are they the tables we know? */

/*
 * Ours tells other backends' deletes, not the relay's.  Another function of the
 * extension's schema cannot have its name, as there are no arguments to differ by.
 */
static bool
is_known_trigger(const Trigger *trigger, Oid schema)
{
	char	   *name;

	if (trigger->tgenabled == TRIGGER_DISABLED ||
		!TRIGGER_FOR_DELETE(trigger->tgtype))
		return true;
	name = get_func_name(trigger->tgfoid);
	return name != NULL && strcmp(name, "outbox_change_trigger") == 0 &&
		get_func_namespace(trigger->tgfoid) == schema;
}

static bool
may_delete(Relation rel)
{
	if (rel->rd_rel->relkind != RELKIND_RELATION || rel->rd_rel->relispartition ||
		rel->rd_rel->relhassubclass || rel->rd_rel->relrowsecurity ||
		rel->rd_rules != NULL || RelationGetDescr(rel)->natts < ARCHIVED_COLUMNS)
		return false;
	if (rel->trigdesc != NULL)
		for (int i = 0; i < rel->trigdesc->numtriggers; i++)
			if (!is_known_trigger(&rel->trigdesc->triggers[i],
								  RelationGetNamespace(rel)))
				return false;
	return true;
}

static bool
is_plain(Relation rel)
{
	return rel->trigdesc == NULL && rel->rd_rules == NULL &&
		!rel->rd_rel->relrowsecurity;
}

/* The columns of the table outbox, in their order, and published_at. */
static bool
has_archive_columns(TupleDesc desc, TupleDesc from)
{
	Form_pg_attribute last;

	if (desc->natts != COL_PUBLISHED_AT)
		return false;
	if (desc->constr != NULL && desc->constr->num_check > 0)
		return false;
	for (int i = 0; i < ARCHIVED_COLUMNS; i++)
	{
		Form_pg_attribute att = TupleDescAttr(desc, i);
		Form_pg_attribute source = TupleDescAttr(from, i);

		/* NOT NULL that the source has not is for the executor to check. */
		if (att->attisdropped || source->attisdropped ||
			att->attgenerated != '\0' ||
			att->atttypid != source->atttypid ||
			att->atttypmod != source->atttypmod ||
			(att->attnotnull && !source->attnotnull) ||
			strcmp(NameStr(att->attname), NameStr(source->attname)) != 0)
			return false;
	}
	last = TupleDescAttr(desc, ARCHIVED_COLUMNS);
	return !last->attisdropped && last->attgenerated == '\0' &&
		last->atttypid == TIMESTAMPTZOID &&
		strcmp(NameStr(last->attname), "published_at") == 0;
}

/* ----------------------------------------------------------------- archive */

/* The partition for that time; InvalidOid: the statement shall find it. */
static Oid
find_partition(Relation parent, TimestampTz at)
{
	PartitionKey key = RelationGetPartitionKey(parent);
	PartitionDesc desc = RelationGetPartitionDesc(parent, true);
	Datum		value = TimestampTzGetDatum(at);
	bool		equal = false;
	int			offset;
	int			index;

	if (key->strategy != PARTITION_STRATEGY_RANGE || key->partnatts != 1 ||
		key->partattrs[0] != COL_PUBLISHED_AT || desc->nparts == 0)
		return InvalidOid;
	offset = partition_range_datum_bsearch(key->partsupfunc,
										   key->partcollation, desc->boundinfo,
										   1, &value, &equal);
	index = desc->boundinfo->indexes[offset + 1];
	if (index < 0)
		index = desc->boundinfo->default_index;
	return index < 0 || !desc->is_leaf[index] ? InvalidOid : desc->oids[index];
}

static void
close_archive(Archive *archive)
{
	if (archive->info != NULL)
		ExecCloseIndices(archive->info);
	if (archive->slot != NULL)
		ExecDropSingleTupleTableSlot(archive->slot);
	if (archive->rel != NULL)
		table_close(archive->rel, NoLock);
	if (archive->parent != NULL)
		table_close(archive->parent, NoLock);
}

/* Returns false when the statement must be used. */
static bool
open_archive(Archive *archive, Relation from, EState *estate)
{
	Oid			parent = get_relname_relid("outbox_archive",
										   RelationGetNamespace(from));
	Oid			partition;

	if (!OidIsValid(parent))
		return false;
	archive->estate = estate;
	archive->published_at = GetCurrentTimestamp();
	archive->parent = table_open(parent, RowExclusiveLock);
	if (archive->parent->rd_rel->relkind != RELKIND_PARTITIONED_TABLE ||
		!is_plain(archive->parent))
		return false;
	partition = find_partition(archive->parent, archive->published_at);
	if (!OidIsValid(partition))
		return false;
	archive->rel = table_open(partition, RowExclusiveLock);
	if (archive->rel->rd_rel->relkind != RELKIND_RELATION ||
		!is_plain(archive->rel) ||
		!has_archive_columns(RelationGetDescr(archive->rel),
							 RelationGetDescr(from)))
		return false;
	archive->slot = MakeSingleTupleTableSlot(RelationGetDescr(archive->rel),
											 &TTSOpsVirtual);
	archive->info = makeNode(ResultRelInfo);
	InitResultRelInfo(archive->info, archive->rel, 1, NULL, 0);
	ExecOpenIndices(archive->info, false);
	return true;
}

/* Called in a memory context that is reset for each row. */
static void
archive_row(Archive *archive, TupleTableSlot *row, CommandId cid)
{
	TupleTableSlot *slot = archive->slot;

	slot_getsomeattrs(row, ARCHIVED_COLUMNS);
	ExecClearTuple(slot);
	memcpy(slot->tts_values, row->tts_values, sizeof(Datum) * ARCHIVED_COLUMNS);
	memcpy(slot->tts_isnull, row->tts_isnull, sizeof(bool) * ARCHIVED_COLUMNS);
	slot->tts_values[ARCHIVED_COLUMNS] = TimestampTzGetDatum(archive->published_at);
	slot->tts_isnull[ARCHIVED_COLUMNS] = false;
	ExecStoreVirtualTuple(slot);
	slot->tts_tableOid = RelationGetRelid(archive->rel);
	table_tuple_insert(archive->rel, slot, cid, 0, NULL);
	if (archive->info->ri_NumIndices > 0)
		compat_insert_index_tuples(archive->info, slot, archive->estate);
}

/* ---------------------------------------------------------------- settling */

/* Deletes the row if it is still there and nobody has changed or locked it. */
static bool
delete_row(Relation rel, const OutboxSettled *row, TupleTableSlot *slot,
		   CommandId cid)
{
	ItemPointerData tid = row->tid;
	TM_FailureData failure;
	bool		isnull;

	if (!table_tuple_fetch_row_version(rel, &tid, GetActiveSnapshot(), slot) ||
		memcmp(DatumGetUUIDP(slot_getattr(slot, COL_ID, &isnull)), &row->id,
			   UUID_LEN) != 0)
		return false;
	return compat_tuple_delete(rel, &tid, cid, GetActiveSnapshot(),
							   &failure) == TM_Ok;
}

static int
settle_rows(Relation rel, const OutboxSettled *rows, int n, Archive *archive,
			EState *estate, bool *remains)
{
	TupleTableSlot *slot = table_slot_create(rel, NULL);
	CommandId	cid = GetCurrentCommandId(true);
	/*
	 * TRUNCATE, VACUUM FULL and a vacuum that gives space back may have made the
	 * table shorter since the claim; none of them can while we have our lock.
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
			delete_row(rel, &rows[i], slot, cid))
		{
			if (archive != NULL)
				archive_row(archive, slot, cid);
			remains[i] = false;
			settled++;
		}
		MemoryContextSwitchTo(old);
	}
	ExecDropSingleTupleTableSlot(slot);
	return settled;
}

/*
 * Settles what it finds where it was claimed and nobody has locked.  Returns how
 * many; remains (n bools) are false for those.
 */
int
outbox_store_settle_direct(const OutboxSettled *rows, int n, bool archive,
						   bool *remains)
{
	Relation	rel = table_open(outbox_store_relid(), RowExclusiveLock);
	EState	   *estate = CreateExecutorState();
	Archive		to = {0};
	int			settled = 0;

	if (may_delete(rel) && (!archive || open_archive(&to, rel, estate)))
	{
		CheckCmdReplicaIdentity(rel, CMD_DELETE);
		settled = settle_rows(rel, rows, n, archive ? &to : NULL, estate,
							  remains);
		CommandCounterIncrement();
	}
	close_archive(&to);
	FreeExecutorState(estate);
	table_close(rel, NoLock);
	return settled;
}
