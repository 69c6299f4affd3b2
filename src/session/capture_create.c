/*-------------------------------------------------------------------------
 *
 * capture_create.c
 *		A trigger with outbox_capture() is looked at when it is created.
 *
 * Its arguments are strings that nobody else reads before the first row comes.  The
 * server calls object_access_hook when the trigger is in the catalog, where the
 * library is loaded: preloaded in every session.  Not in a restore, whose order is
 * its own business (a trigger may come before the primary key) and which has to
 * succeed; nor for the clones of partitions, as the table's own was looked at.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/genam.h"
#include "access/htup_details.h"
#include "access/table.h"
#include "capture.h"
#include "catalog/dependency.h"
#include "catalog/objectaccess.h"
#include "catalog/pg_proc.h"
#include "catalog/pg_trigger.h"
#include "commands/extension.h"
#include "compat.h"
#include "miscadmin.h"
#include "restore.h"
#include "session.h"
#include "utils/builtins.h"
#include "utils/fmgroids.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"

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

static void
check_trigger(HeapTuple tuple, TupleDesc desc)
{
	Form_pg_trigger form = (Form_pg_trigger) GETSTRUCT(tuple);
	CaptureTrigger trigger;
	Relation	rel;
	Capture    *capture;
	bool		isnull;

	if (OidIsValid(form->tgparentid) || !is_capture(form->tgfoid))
		return;
	trigger.name = NameStr(form->tgname);
	trigger.nargs = form->tgnargs;
	trigger.args = split_args(DatumGetByteaPP(heap_getattr(tuple, Anum_pg_trigger_tgargs,
														   desc, &isnull)),
							  form->tgnargs);
	outbox_capture_check_type(form->tgtype,
							  has(tuple, Anum_pg_trigger_tgoldtable, desc),
							  has(tuple, Anum_pg_trigger_tgnewtable, desc),
							  trigger.name);
	/* It is locked by CREATE TRIGGER. */
	rel = table_open(form->tgrelid, AccessShareLock);
	capture = outbox_capture_make(rel, &trigger, form->tgfoid, form->tgrelid,
								  CurrentMemoryContext);
	(void) outbox_capture_constants(capture, CAPTURE_INSERT);
	table_close(rel, NoLock);
}

/* The command has not ended, so that only SnapshotSelf sees what it has made. */
static void
check_created(Oid trigger)
{
	Relation	catalog = table_open(TriggerRelationId, AccessShareLock);
	ScanKeyData key;
	SysScanDesc scan;
	HeapTuple	tuple;

	ScanKeyInit(&key, Anum_pg_trigger_oid, BTEqualStrategyNumber, F_OIDEQ,
				ObjectIdGetDatum(trigger));
	scan = systable_beginscan(catalog, TriggerOidIndexId, true, SnapshotSelf, 1,
							  &key);
	tuple = systable_getnext(scan);
	if (HeapTupleIsValid(tuple))
		check_trigger(tuple, RelationGetDescr(catalog));
	systable_endscan(scan);
	table_close(catalog, AccessShareLock);
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
