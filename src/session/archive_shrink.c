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
 * table that nothing but a drop awaits, and that has the name of one.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/genam.h"
#include "access/table.h"
#include "catalog/storage.h"
#include "fmgr.h"
#include "miscadmin.h"
#include "storage/bufmgr.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"

PG_FUNCTION_INFO_V1(outbox_archive_shrink);

/* outbox_archive_remove() gives it. */
#define DROPPING_PREFIX "outbox_archive_dropping_"

static void
require_dropping(Relation rel)
{
	if (rel->rd_rel->relkind == RELKIND_RELATION &&
		!rel->rd_rel->relispartition &&
		strncmp(RelationGetRelationName(rel), DROPPING_PREFIX,
				strlen(DROPPING_PREFIX)) == 0 &&
		(rel->rd_rel->relowner == GetUserId() || superuser()))
		return;
	ereport(ERROR,
			(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
			 errmsg("table \"%s\" is not a partition of the archive that is being dropped",
					RelationGetRelationName(rel)),
			 errdetail("Its rows would be lost."),
			 errhint("Only the relay calls this function, for its own tables.")));
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

static BlockNumber
shrink_indexes(Relation rel, BlockNumber blocks)
{
	List	   *indexes = RelationGetIndexList(rel);
	ListCell   *cell;

	foreach(cell, indexes)
	{
		Relation	index = index_open(lfirst_oid(cell), AccessExclusiveLock);

		blocks = shrink(index, blocks);
		index_close(index, NoLock);
	}
	list_free(indexes);
	return blocks;
}

/* The caller has locked the table: nobody is waited for here. */
Datum
outbox_archive_shrink(PG_FUNCTION_ARGS)
{
	Relation	rel = table_open(PG_GETARG_OID(0), AccessExclusiveLock);
	BlockNumber blocks = (BlockNumber) (PG_GETARG_INT32(1));

	require_dropping(rel);
	blocks = shrink(rel, blocks);
	blocks = shrink_indexes(rel, blocks);
	if (OidIsValid(rel->rd_rel->reltoastrelid))
	{
		Relation	toast = table_open(rel->rd_rel->reltoastrelid,
									   AccessExclusiveLock);

		blocks = shrink(toast, blocks);
		blocks = shrink_indexes(toast, blocks);
		table_close(toast, NoLock);
	}
	table_close(rel, NoLock);
	PG_RETURN_BOOL(blocks > 0);
}
