/*-------------------------------------------------------------------------
 *
 * capture_create.c
 *		A trigger with outbox_capture() is looked at when it is created, and later.
 *
 * Its arguments are strings that nobody else reads before the first row comes.  The
 * server calls object_access_hook when the trigger is in the catalog, where the
 * library is loaded: preloaded in every session.  Not in a restore, whose order is
 * its own business (a trigger may come before the primary key) and which has to
 * succeed; nor for the clones of partitions, as the table's own was looked at.
 *
 * Nothing makes ALTER TABLE aware of these strings, nor REVOKE of who needs the right.
 * So outbox_problems has the triggers that exist looked at again.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/genam.h"
#include "access/htup_details.h"
#include "access/table.h"
#include "access/xact.h"
#include "capture.h"
#include "capture_internal.h"
#include "catalog/dependency.h"
#include "catalog/objectaccess.h"
#include "catalog/pg_proc.h"
#include "catalog/pg_trigger.h"
#include "commands/extension.h"
#include "enqueue.h"
#include "miscadmin.h"
#include "own_relations.h"
#include "storage/lmgr.h"
#include "utils/builtins.h"
#include "utils/fmgroids.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"

PG_FUNCTION_INFO_V1(outbox_check_capture);

static object_access_hook_type next_access = NULL;

static bool
is_capture(Oid function)
{
	char	   *name = get_func_name(function);
	Oid			extension;

	if (name == NULL || strcmp(name, "outbox_capture") != 0)
		return false;
	extension = getExtensionOfObject(ProcedureRelationId, function);
	return OidIsValid(extension) && extension == get_extension_oid("outbox", true);
}

/*
 * The table of a trigger with outbox_capture(); InvalidOid for any other, and for a
 * clone of a partition: the trigger that it comes from is looked at.
 */
static Oid
captured_table(Oid trigger, Snapshot snapshot)
{
	HeapTuple	tuple = outbox_capture_find_trigger(trigger, snapshot);
	Form_pg_trigger form;

	if (!HeapTupleIsValid(tuple))
		return InvalidOid;
	form = (Form_pg_trigger) GETSTRUCT(tuple);
	return !OidIsValid(form->tgparentid) && is_capture(form->tgfoid) ?
		form->tgrelid : InvalidOid;
}

/* NULL: the trigger is gone. */
static Capture *
check_trigger(Relation rel, Oid trigger)
{
	int			n = rel->trigdesc == NULL ? 0 : rel->trigdesc->numtriggers;
	int			i = 0;
	Capture    *capture;

	while (i < n && rel->trigdesc->triggers[i].tgoid != trigger)
		i++;
	if (i == n)
		return NULL;
	capture = outbox_capture_make(rel, &rel->trigdesc->triggers[i], CurrentMemoryContext);
	/* Nothing can be wrong with them, and txid would use up a transaction id. */
	capture->args.headers = 0;
	(void) outbox_capture_constants(capture, CAPTURE_INSERT);
	return capture;
}

/*
 * The command has not ended, and shows what it has made from the next command id on;
 * CREATE TRIGGER itself counts it up for the first trigger of a table.
 */
static void
check_created(Oid trigger)
{
	Oid			relid = captured_table(trigger, SnapshotSelf);
	Relation	rel;

	if (!OidIsValid(relid))
		return;
	CommandCounterIncrement();
	rel = table_open(relid, AccessShareLock);
	(void) check_trigger(rel, trigger);
	table_close(rel, NoLock);
}

static void
check_sender(const Capture *capture)
{
	Relation	outbox = table_open(outbox_relation(OUTBOX_REL_OUTBOX),
									AccessShareLock);

	outbox_capture_check_owner(capture);
	(void) outbox_permitted_route(outbox->rd_rel->relowner,
								  TextDatumGetCString(capture->route), capture->owner);
	table_close(outbox, NoLock);
}

/*
 * What is wrong by now with a trigger that was all right when it was created is an
 * ERROR, the one that whoever writes to the table meets.  A table that is locked, or
 * gone by now, is not waited for.
 */
Datum
outbox_check_capture(PG_FUNCTION_ARGS)
{
	Oid			relid = captured_table(PG_GETARG_OID(0), NULL);
	Relation	rel;
	Capture    *capture;

	if (!OidIsValid(relid) || !ConditionalLockRelationOid(relid, AccessShareLock))
		PG_RETURN_VOID();
	rel = try_table_open(relid, NoLock);
	if (rel != NULL)
	{
		capture = check_trigger(rel, PG_GETARG_OID(0));
		if (capture != NULL)
			check_sender(capture);
		table_close(rel, NoLock);
	}
	/* All of them would not fit into the server's lock table. */
	UnlockRelationOid(relid, AccessShareLock);
	PG_RETURN_VOID();
}

/* object_access_hook */
static void
look_at_trigger(ObjectAccessType access, Oid class, Oid object, int subid,
				void *arg)
{
	if (next_access != NULL)
		next_access(access, class, object, subid, arg);
	if (access == OAT_POST_CREATE && class == TriggerRelationId &&
		!((ObjectAccessPostCreate *) arg)->is_internal &&
		!IsBinaryUpgrade && !outbox_in_restore())
		check_created(object);
}

void
outbox_capture_init(void)
{
	next_access = object_access_hook;
	object_access_hook = look_at_trigger;
}
