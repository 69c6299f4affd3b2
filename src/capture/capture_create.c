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
#include "capture.h"
#include "capture_internal.h"
#include "catalog/dependency.h"
#include "catalog/objectaccess.h"
#include "catalog/pg_proc.h"
#include "catalog/pg_trigger.h"
#include "commands/extension.h"
#include "compat.h"
#include "enqueue.h"
#include "miscadmin.h"
#include "storage/lmgr.h"
#include "utils/builtins.h"
#include "utils/fmgroids.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
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

/* pg_trigger.tgargs: strings one behind the other, each with its end. */
static char **
split_args(bytea *bytes, int nargs)
{
	char	  **args = palloc(sizeof(char *) * Max(nargs, 1));
	char	   *p = VARDATA_ANY(bytes);

	for (int i = 0; i < nargs; i++)
	{
		args[i] = pstrdup(p);
		p += strlen(p) + 1;
	}
	return args;
}

static bool
has(HeapTuple tuple, int column, TupleDesc desc)
{
	return !heap_attisnull(tuple, column, desc);
}

/* Of a clone of a partition, the trigger that it comes from is looked at. */
static bool
is_looked_at(HeapTuple tuple)
{
	Form_pg_trigger form = (Form_pg_trigger) GETSTRUCT(tuple);

	return !OidIsValid(form->tgparentid) && is_capture(form->tgfoid);
}

static Capture *
check_trigger(HeapTuple tuple, TupleDesc desc, Relation rel)
{
	Form_pg_trigger form = (Form_pg_trigger) GETSTRUCT(tuple);
	CaptureTrigger trigger;
	Capture    *capture;
	bool		isnull;

	trigger.name = NameStr(form->tgname);
	trigger.nargs = form->tgnargs;
	trigger.args = split_args(DatumGetByteaPP(heap_getattr(tuple, Anum_pg_trigger_tgargs,
														   desc, &isnull)),
							  form->tgnargs);
	outbox_capture_check_type(form->tgtype,
							  has(tuple, Anum_pg_trigger_tgoldtable, desc),
							  has(tuple, Anum_pg_trigger_tgnewtable, desc),
							  trigger.name);
	capture = outbox_capture_make(rel, &trigger, form->tgfoid, form->tgrelid,
								  CurrentMemoryContext);
	/* Nothing can be wrong with them, and txid would use up a transaction id. */
	capture->args.headers = 0;
	(void) outbox_capture_constants(capture, CAPTURE_INSERT);
	return capture;
}

/* The table is locked by CREATE TRIGGER. */
static void
check_created(HeapTuple tuple, TupleDesc desc)
{
	Relation	rel = table_open(((Form_pg_trigger) GETSTRUCT(tuple))->tgrelid, AccessShareLock);

	(void) check_trigger(tuple, desc, rel);
	table_close(rel, NoLock);
}

static void
check_sender(const Capture *capture)
{
	Relation	outbox = table_open(outbox_find_table(get_func_namespace(capture->function)),
									AccessShareLock);

	outbox_capture_check_owner(capture);
	(void) outbox_permitted_route(RelationGetNamespace(outbox), outbox->rd_rel->relowner,
								  TextDatumGetCString(capture->route), capture->owner);
	table_close(outbox, NoLock);
}

/* A table that is locked, or gone by now, is not waited for. */
static void
check_existing(HeapTuple tuple, TupleDesc desc)
{
	Oid			relid = ((Form_pg_trigger) GETSTRUCT(tuple))->tgrelid;
	Relation	rel;

	if (!ConditionalLockRelationOid(relid, AccessShareLock))
		return;
	rel = try_table_open(relid, NoLock);
	if (rel == NULL)
		return;
	check_sender(check_trigger(tuple, desc, rel));
	table_close(rel, NoLock);
}

static void
with_trigger(Oid trigger, Snapshot snapshot, void (*check) (HeapTuple tuple, TupleDesc desc))
{
	Relation	catalog = table_open(TriggerRelationId, AccessShareLock);
	ScanKeyData key;
	SysScanDesc scan;
	HeapTuple	tuple;

	ScanKeyInit(&key, Anum_pg_trigger_oid, BTEqualStrategyNumber, F_OIDEQ,
				ObjectIdGetDatum(trigger));
	scan = systable_beginscan(catalog, TriggerOidIndexId, true, snapshot, 1,
							  &key);
	tuple = systable_getnext(scan);
	if (HeapTupleIsValid(tuple) && is_looked_at(tuple))
		check(tuple, RelationGetDescr(catalog));
	systable_endscan(scan);
	table_close(catalog, AccessShareLock);
}

/*
 * What is wrong by now with a trigger that was all right when it was created is an
 * ERROR, the one that whoever writes to the table meets.
 */
Datum
outbox_check_capture(PG_FUNCTION_ARGS)
{
	with_trigger(PG_GETARG_OID(0), NULL, check_existing);
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
		/* The command has not ended: only SnapshotSelf sees what it has made. */
		with_trigger(object, SnapshotSelf, check_created);
}

void
outbox_capture_init(void)
{
	next_access = object_access_hook;
	object_access_hook = look_at_trigger;
}
