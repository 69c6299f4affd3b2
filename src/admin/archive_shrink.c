/*-------------------------------------------------------------------------
 *
 * archive_shrink.c
 *		Takes the storage of an old partition away piece by piece.
 *
 * The commit of a DROP TABLE gives all of its files back to the file system, and
 * the process that publishes waits for that: 1.6 s for 4.3 GB on ext4.  So what is
 * large leaves the archive first, under another name, and is cut down to where the
 * drop costs nothing.
 *
 * As with VACUUM, which gives space back in the same way, no rollback brings it
 * back.  The heap goes first, so that no row is without its TOAST values; indexes
 * point to what is not there any more, and lack pages themselves.  So this is for a
 * table that nothing but a drop awaits, that has the name of one, and has had it
 * when this transaction began.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/genam.h"
#include "access/htup_details.h"
#include "access/table.h"
#include "access/xact.h"
#include "catalog/pg_class.h"
#include "catalog/storage.h"
#include "commands/tablecmds.h"
#include "enqueue.h"
#include "fmgr.h"
#include "miscadmin.h"
#include "storage/bufmgr.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"
#include "utils/syscache.h"

PG_FUNCTION_INFO_V1(outbox_archive_shrink);

/* outbox_archive_remove() gives it. */
#define DROPPING_PREFIX "outbox_archive_dropping_"

static bool
is_dropping(Form_pg_class table)
{
	return table->relkind == RELKIND_RELATION &&
		!table->relispartition &&
		strncmp(NameStr(table->relname), DROPPING_PREFIX,
				strlen(DROPPING_PREFIX)) == 0 &&
		(table->relowner == GetUserId() || superuser());
}

/*
 * If the present transaction has detached or renamed it, a rollback makes it a
 * part of the archive again: an empty one.
 */
static void
require_dropping(Oid relid)
{
	HeapTuple	tuple = SearchSysCache1(RELOID, ObjectIdGetDatum(relid));
	Form_pg_class table;

	if (!HeapTupleIsValid(tuple))
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_TABLE),
				 errmsg("relation with OID %u does not exist", relid)));
	table = (Form_pg_class) GETSTRUCT(tuple);
	if (!is_dropping(table) ||
		TransactionIdIsCurrentTransactionId(HeapTupleHeaderGetXmin(tuple->t_data)))
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("table \"%s\" is not a partition of the archive that is being dropped",
						NameStr(table->relname)),
				 errdetail("Its rows would be lost."),
				 errhint("Only the relay calls this function, for its own tables.")));
	ReleaseSysCache(tuple);
}

/* Cuts at most so many blocks off; returns how many are left to be cut. */
static BlockNumber
shrink(Relation rel, BlockNumber blocks)
{
	BlockNumber has = RelationGetNumberOfBlocks(rel);
	BlockNumber cut = Min(has, blocks);

	if (cut > 0)
		RelationTruncate(rel, has - cut);
	return blocks - cut;
}

/* The heap first, then its indexes. */
static BlockNumber
shrink_table(Relation rel, BlockNumber blocks)
{
	List	   *indexes = RelationGetIndexList(rel);
	ListCell   *cell;

	blocks = shrink(rel, blocks);
	foreach(cell, indexes)
	{
		Relation	index;

		outbox_lock_relation(lfirst_oid(cell), AccessExclusiveLock, false);
		index = index_open(lfirst_oid(cell), NoLock);
		blocks = shrink(index, blocks);
		index_close(index, NoLock);
	}
	list_free(indexes);
	return blocks;
}

/* Nobody is waited for, and nobody else's table is locked. */
static Relation
open_dropping(Oid relid)
{
	Relation	rel;

	require_dropping(relid);
	outbox_lock_relation(relid, AccessExclusiveLock, false);
	require_dropping(relid);
	rel = table_open(relid, NoLock);
	CheckTableNotInUse(rel, "outbox_archive_shrink()");
	return rel;
}

Datum
outbox_archive_shrink(PG_FUNCTION_ARGS)
{
	int32		wanted = PG_GETARG_INT32(1);
	BlockNumber blocks = (BlockNumber) wanted;
	Relation	rel;

	if (wanted <= 0)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("blocks must be greater than zero")));
	PreventCommandIfReadOnly("outbox_archive_shrink()");
	rel = open_dropping(PG_GETARG_OID(0));
	blocks = shrink_table(rel, blocks);
	if (OidIsValid(rel->rd_rel->reltoastrelid))
	{
		Oid			relid = rel->rd_rel->reltoastrelid;
		Relation	toast;

		outbox_lock_relation(relid, AccessExclusiveLock, false);
		toast = table_open(relid, NoLock);
		blocks = shrink_table(toast, blocks);
		table_close(toast, NoLock);
	}
	table_close(rel, NoLock);
	PG_RETURN_BOOL(blocks > 0);
}
