/*-------------------------------------------------------------------------
 *
 * route_trigger.c
 *		Triggers on outbox_route, and what tells of changes.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "catalog.h"
#include "catalog/pg_type.h"
#include "enqueue_internal.h"
#include "executor/executor.h"
#include "miscadmin.h"
#include "own_relations.h"
#include "route.h"
#include "route_row.h"
#include "shared.h"
#include "utils/acl.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/datum.h"
#include "utils/inval.h"
#include "utils/lsyscache.h"
#include "utils/tuplestore.h"

PG_FUNCTION_INFO_V1(outbox_change_trigger);
PG_FUNCTION_INFO_V1(outbox_failed_route_trigger);
PG_FUNCTION_INFO_V1(outbox_route_trigger);
PG_FUNCTION_INFO_V1(outbox_route_removal_trigger);

static const Oid column_types[OUTBOX_ROUTE_COLUMNS] = {
#define OUTBOX_ROUTE_SETTING(name, type)	type,
#define OUTBOX_ROUTE_ROLES(name, type)	type,
#define OUTBOX_ROUTE_NOTE(name, type)	type,
#include "route.def"
};

/* ------------------------------------------------------------------ changes */

/* A statement writes the column slot, with the same value too, or removes the route. */
static void
forget_slot(TriggerData *trigdata)
{
	TupleDesc	desc = RelationGetDescr(trigdata->tg_relation);
	const OutboxOutlet *outlet;
	char	   *slot;

	if (!TRIGGER_FIRED_FOR_ROW(trigdata->tg_event) ||
		TRIGGER_FIRED_BY_INSERT(trigdata->tg_event) ||
		(TRIGGER_FIRED_BY_UPDATE(trigdata->tg_event) &&
		 !bms_is_member(OUTBOX_ROUTE_SLOT - FirstLowInvalidHeapAttributeNumber,
						trigdata->tg_updatedcols)))
		return;
	slot = SPI_getvalue(trigdata->tg_trigtuple, desc, OUTBOX_ROUTE_SLOT);
	outlet = outbox_outlet_find(SPI_getvalue(trigdata->tg_trigtuple, desc,
											 OUTBOX_ROUTE_RELAY));
	if (slot != NULL && outlet != NULL && outlet->forget_slot != NULL)
		outlet->forget_slot(slot);
}

/*
 * AFTER, on outbox when rows go, on outbox_job when one is filed or changed, on
 * outbox_route and outbox_control when anything changes.  The relation's cache entry
 * is invalidated then, so that each backend reads the routes again (usable_route.c).
 */
Datum
outbox_change_trigger(PG_FUNCTION_ARGS)
{
	TriggerData *trigdata = outbox_fired(fcinfo, "outbox_change_trigger");
	Relation	rel = trigdata->tg_relation;

	if (outbox_is_relay || outbox_outlet_releases())
		return PointerGetDatum(NULL);
	if (strcmp(RelationGetRelationName(rel), "outbox") == 0)
		outbox_wake_signal(OUTBOX_SIGNAL_REMOVED);
	else if (strcmp(RelationGetRelationName(rel), "outbox_job") == 0)
		outbox_wake_signal(OUTBOX_SIGNAL_JOBS);
	else
	{
		if (strcmp(RelationGetRelationName(rel), "outbox_route") == 0)
			forget_slot(trigdata);
		CacheInvalidateRelcache(rel);
		outbox_wake_signal(OUTBOX_SIGNAL_CONFIG);
	}
	return PointerGetDatum(NULL);
}

/* ----------------------------------------------------------- roles of a route */

/*
 * The OID of each of the names now; 0: there is no such role.  column: they are new, and
 * a name without a role is a mistake, but not in a restore, which may bring, as with
 * GRANT, names of roles that this server does not have.
 */
static Datum
role_oids(Relation rel, ArrayType *array, const char *column)
{
	Datum	   *names;
	Datum	   *oids;
	bool	   *nulls;
	int			count;

	deconstruct_array(array, NAMEOID, NAMEDATALEN, false, TYPALIGN_CHAR,
					  &names, &nulls, &count);
	oids = palloc(sizeof(Datum) * Max(count, 1));
	for (int i = 0; i < count; i++)
	{
		Oid			role = nulls[i] ? InvalidOid :
			get_role_oid(NameStr(*DatumGetName(names[i])), true);

		if (column != NULL && nulls[i])
			ereport(ERROR,
					(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
					 errmsg("%s must not contain null", column)));
		if (column != NULL && !OidIsValid(role))
			ereport(outbox_restored_by(rel->rd_rel->relowner) ? WARNING : ERROR,
					(errcode(ERRCODE_UNDEFINED_OBJECT),
					 errmsg("role \"%s\" in %s does not exist",
							NameStr(*DatumGetName(names[i])), column),
					 errhint("Create the role first; it may be a group that application roles are members of.")));
		oids[i] = ObjectIdGetDatum(role);
	}
	return PointerGetDatum(construct_array(oids, count, OIDOID, sizeof(Oid), true,
										   TYPALIGN_INT));
}

/*
 * Records which roles are meant, so that a name which goes over to another role gives it
 * no right: whenever the names are written, also the same ones.  A value that is given
 * for the column itself does not count.
 */
static HeapTuple
record_roles(TriggerData *trigdata, HeapTuple tuple, int names, int oids, const char *column)
{
	TupleDesc	desc = RelationGetDescr(trigdata->tg_relation);
	bool		insert = TRIGGER_FIRED_BY_INSERT(trigdata->tg_event);
	bool		written = insert ||
		bms_is_member(names - FirstLowInvalidHeapAttributeNumber, trigdata->tg_updatedcols);
	bool		isnull;
	bool		was_null = true;
	Datum		value = heap_getattr(tuple, names, desc, &isnull);
	Datum		old = insert ? (Datum) 0 :
		heap_getattr(trigdata->tg_trigtuple, names, desc, &was_null);

	if (!isnull)
	{
		/* A route can be paused although one of its roles was dropped. */
		bool		changed = was_null || !datum_image_eq(old, value, false, -1);

		value = role_oids(trigdata->tg_relation, DatumGetArrayTypeP(value),
						  changed ? column : NULL);
		if (!written)
			value = heap_getattr(trigdata->tg_trigtuple, oids, desc, &isnull);
	}
	return heap_modify_tuple_by_cols(tuple, desc, 1, &oids, &value, &isnull);
}

static char *
column(HeapTuple tuple, Relation rel, int number)
{
	return tuple == NULL ? NULL : SPI_getvalue(tuple, RelationGetDescr(rel), number);
}

/* BEFORE INSERT OR UPDATE ... FOR EACH ROW on outbox_route. */
Datum
outbox_route_trigger(PG_FUNCTION_ARGS)
{
	TriggerData *trigdata = outbox_fired_before_row(fcinfo, "outbox_route_trigger");
	HeapTuple	tuple = TRIGGER_FIRED_BY_INSERT(trigdata->tg_event) ?
		trigdata->tg_trigtuple : trigdata->tg_newtuple;

	outbox_expect_columns(RelationGetDescr(trigdata->tg_relation), column_types,
						  OUTBOX_ROUTE_COLUMNS, RelationGetRelationName(trigdata->tg_relation));
	/* Before the row can be read: so a rollback makes the session forget it. */
	CacheInvalidateRelcache(trigdata->tg_relation);
	tuple = record_roles(trigdata, tuple, OUTBOX_ROUTE_ENQUEUE_ROLES,
						 OUTBOX_ROUTE_ENQUEUE_ROLE_OIDS, "enqueue_roles");
	tuple = record_roles(trigdata, tuple, OUTBOX_ROUTE_RELAY_ROLES,
						 OUTBOX_ROUTE_RELAY_ROLE_OIDS, "relay_roles");
	return PointerGetDatum(tuple);
}

/* ------------------------------------------------------------------- removal */

#define LOCK_SQL "SELECT outbox_internal.outbox_lock_route($1::pg_catalog.text)"

/* No index has all routes, so this reads the whole table: once, for all that go. */
#define IN_USE_SQL \
	"SELECT route FROM outbox_internal.outbox" \
	" WHERE route OPERATOR(pg_catalog.=) ANY ($1) LIMIT 1"

static bool
goes(const char *name, const char *new_name)
{
	return name != NULL && (new_name == NULL || strcmp(name, new_name) != 0);
}

static void
lock_removed(TriggerData *trigdata)
{
	Relation	rel = trigdata->tg_relation;
	char	   *name = column(trigdata->tg_trigtuple, rel, OUTBOX_ROUTE_NAME);

	if (goes(name, TRIGGER_FIRED_BY_UPDATE(trigdata->tg_event) ?
			 column(trigdata->tg_newtuple, rel, OUTBOX_ROUTE_NAME) : NULL))
		(void) outbox_look_up(rel, LOCK_SQL, name);
}

/* A slot for the rows of a transition table, from the first one on. */
static TupleTableSlot *
read_rows(Tuplestorestate *rows, TupleDesc desc, int *position)
{
	*position = tuplestore_alloc_read_pointer(rows, EXEC_FLAG_REWIND);
	tuplestore_select_read_pointer(rows, *position);
	tuplestore_rescan(rows);
	return MakeSingleTupleTableSlot(desc, &TTSOpsMinimalTuple);
}

static char *
next_name(Tuplestorestate *rows, int position, TupleTableSlot *slot, Relation rel)
{
	bool		copied;
	HeapTuple	tuple;

	tuplestore_select_read_pointer(rows, position);
	if (!tuplestore_gettupleslot(rows, true, false, slot))
		return NULL;
	tuple = ExecFetchSlotHeapTuple(slot, false, &copied);
	return column(tuple, rel, OUTBOX_ROUTE_NAME);
}

/* The names that a statement takes away; 0: none. */
static Datum
removed_names(TriggerData *trigdata)
{
	Relation	rel = trigdata->tg_relation;
	TupleDesc	desc = RelationGetDescr(rel);
	Tuplestorestate *old_rows = trigdata->tg_oldtable;
	Tuplestorestate *new_rows = trigdata->tg_newtable;
	ArrayBuildState *names = NULL;
	TupleTableSlot *old_slot;
	TupleTableSlot *new_slot = NULL;
	int			old_position;
	int			new_position = 0;
	char	   *name;

	if (old_rows == NULL)
		return (Datum) 0;
	old_slot = read_rows(old_rows, desc, &old_position);
	if (new_rows != NULL)
		new_slot = read_rows(new_rows, desc, &new_position);
	/* The old and the new row of a route have the same place. */
	while ((name = next_name(old_rows, old_position, old_slot, rel)) != NULL)
		if (goes(name, new_rows == NULL ? NULL :
				 next_name(new_rows, new_position, new_slot, rel)))
			names = accumArrayResult(names, CStringGetTextDatum(name), false,
									 TEXTOID, CurrentMemoryContext);
	ExecDropSingleTupleTableSlot(old_slot);
	if (new_slot != NULL)
		ExecDropSingleTupleTableSlot(new_slot);
	return names == NULL ? (Datum) 0 : makeArrayResult(names, CurrentMemoryContext);
}

static void
refuse_in_use(TriggerData *trigdata)
{
	Datum		names;
	char	   *name;

	/*
	 * Not tg_updatedcols: two UPDATEs of one query share one firing, with the
	 * columns of the last and the rows of both.
	 */
	names = removed_names(trigdata);
	if (names == (Datum) 0)
		return;
	name = outbox_look_up_names(trigdata->tg_relation, IN_USE_SQL, names);
	if (name != NULL)
		ereport(ERROR,
				(errcode(ERRCODE_FOREIGN_KEY_VIOLATION),
				 errmsg("route \"%s\" still has messages", name),
				 errdetail("Messages in the table outbox are for this route, and would never be sent."),
				 errhint("Let them be published, or discard the failed ones, before you remove or rename the route.")));
}

static void
refuse_truncation(void)
{
	ereport(ERROR,
			(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
			 errmsg("cannot truncate table \"%s\"", "outbox_route"),
			 errdetail("It would wait for each transaction that has read a route, and enqueue on all routes would wait for it."),
			 errhint("DELETE FROM outbox_route locks each route, and waits for transactions that have enqueued to it for 3 s.")));
}

/*
 * TRUNCATE waits for its lock before it fires a trigger, so that would be too late;
 * the trigger is for sessions without the library.
 */
void
outbox_route_refuse_truncation(Oid relid)
{
	char	   *name = get_rel_name(relid);

	if (name != NULL && strcmp(name, "outbox_route") == 0 &&
		relid == outbox_find_relation(OUTBOX_REL_ROUTE))
		refuse_truncation();
}

/*
 * On outbox_route: a route in use stays.  A foreign key from outbox would say the same,
 * but lock the route's one row for each message that is enqueued, four times the cost of
 * storing it.  Here the statement that takes routes away does the work.
 *
 * AFTER ... FOR EACH ROW takes the route's lock.  With it, transactions that had enqueued
 * have ended, and later ones see the removal when they get the lock.  It is taken when
 * all rows are changed: a row may have to be waited for, while no enqueue should wait.
 * AFTER ... FOR EACH STATEMENT, which comes behind, looks for messages.
 */
Datum
outbox_route_removal_trigger(PG_FUNCTION_ARGS)
{
	TriggerData *trigdata = outbox_fired(fcinfo, "outbox_route_removal_trigger");

	if (TRIGGER_FIRED_BY_TRUNCATE(trigdata->tg_event))
		refuse_truncation();
	if (!TRIGGER_FIRED_FOR_ROW(trigdata->tg_event))
		refuse_in_use(trigdata);
	else
		lock_removed(outbox_fired_after_row(fcinfo, "outbox_route_removal_trigger"));
	return PointerGetDatum(NULL);
}

/* ------------------------------------------------------------- failed routes */

/*
 * failed_route names a route that is there, and a chain of failed routes has an end.  The
 * first is what a foreign key says; but one from a table to itself makes pg_dump warn of
 * a circle each time, and a dump as INSERTs cannot be restored.
 */

/* A longer chain is a circle that was made past this trigger. */
#define MAX_CHAIN	1000

#define FAILED_ROUTE_SQL \
	"SELECT failed_route FROM outbox_internal.outbox_route WHERE name OPERATOR(pg_catalog.=) $1"
#define RELAY_SQL \
	"SELECT relay FROM outbox_internal.outbox_route WHERE name OPERATOR(pg_catalog.=) $1"
#define REFERRER_SQL \
	"SELECT name FROM outbox_internal.outbox_route" \
	" WHERE failed_route OPERATOR(pg_catalog.=) $1 LIMIT 1"
/* The lock of all changes. */
#define LOCK_CHANGES_SQL \
	"SELECT outbox_internal.outbox_lock_route(NULL::pg_catalog.text)"

static bool
same(const char *a, const char *b)
{
	return a == NULL || b == NULL ? a == b : strcmp(a, b) == 0;
}

static void
check_failed_route(Relation rel, const char *failed)
{
	char	   *relay = outbox_look_up(rel, RELAY_SQL, failed);
	const OutboxOutlet *outlet = outbox_outlet_find(relay);

	if (relay == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_FOREIGN_KEY_VIOLATION),
				 errmsg("route \"%s\" in failed_route does not exist", failed),
				 errhint("Add it to the table outbox_route first.")));

	/*
	 * A dead letter stays the row that it is, of which the log says nothing
	 * more.
	 */
	if (outlet != NULL && outlet->transient)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("route \"%s\" in failed_route has relay = '%s'", failed,
						outlet->name),
				 errdetail("A message that is given up is changed in the table, and what reads such a route sees only what is inserted.")));
}

/* Before this change all chains had an end, so a circle goes through this route. */
static void
require_end(Relation rel, const char *name, const char *failed)
{
	StringInfoData path;
	const char *next = failed;
	int			length = 0;

	initStringInfo(&path);
	appendStringInfo(&path, "\"%s\"", name);
	while (next != NULL)
	{
		CHECK_FOR_INTERRUPTS();
		appendStringInfo(&path, " -> \"%s\"", next);
		if (strcmp(next, name) == 0 || ++length > MAX_CHAIN)
			ereport(ERROR,
					(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
					 errmsg("failed_route of route \"%s\" leads back to it", name),
					 errdetail_internal("%s", path.data),
					 errhint("A message that is given up on all of these routes has to stay somewhere: a chain of failed routes must have an end.")));
		next = outbox_look_up(rel, FAILED_ROUTE_SQL, next);
	}
}

static void
refuse_referred(Relation rel, const char *name)
{
	char	   *referrer = outbox_look_up(rel, REFERRER_SQL, name);

	if (referrer != NULL)
		ereport(ERROR,
				(errcode(ERRCODE_FOREIGN_KEY_VIOLATION),
				 errmsg("route \"%s\" is the failed_route of route \"%s\"",
						name, referrer),
				 errhint("Let that one have another failed_route, or none, before you remove or rename this route.")));
}

/*
 * AFTER ... FOR EACH ROW, that is when the whole statement is done.  Two transactions
 * that change chains go one after the other: the second one sees what the first has
 * committed.  A route's lock is taken after that lock (locks.c).
 */
Datum
outbox_failed_route_trigger(PG_FUNCTION_ARGS)
{
	TriggerData *trigdata = outbox_fired_after_row(fcinfo,
												   "outbox_failed_route_trigger");
	Relation	rel = trigdata->tg_relation;
	bool		insert = TRIGGER_FIRED_BY_INSERT(trigdata->tg_event);
	bool		delete = TRIGGER_FIRED_BY_DELETE(trigdata->tg_event);
	HeapTuple	old_row = insert ? NULL : trigdata->tg_trigtuple;
	HeapTuple	new_row = insert ? trigdata->tg_trigtuple :
		delete ? NULL : trigdata->tg_newtuple;
	char	   *old_name = column(old_row, rel, OUTBOX_ROUTE_NAME);
	char	   *new_name = column(new_row, rel, OUTBOX_ROUTE_NAME);
	char	   *old_failed = column(old_row, rel, OUTBOX_ROUTE_FAILED_ROUTE);
	char	   *new_failed = column(new_row, rel, OUTBOX_ROUTE_FAILED_ROUTE);
	bool		goes = old_name != NULL && !same(old_name, new_name);
	bool		leads = new_failed != NULL &&
		(!same(old_failed, new_failed) || !same(old_name, new_name));

	/* A restore brings rows, which the original has accepted, in any order. */
	if ((!goes && !leads) || outbox_restored_by(rel->rd_rel->relowner))
		return PointerGetDatum(NULL);
	(void) outbox_look_up(rel, LOCK_CHANGES_SQL, NULL);
	if (leads)
	{
		check_failed_route(rel, new_failed);
		require_end(rel, new_name, new_failed);
	}
	if (goes)
		refuse_referred(rel, old_name);
	return PointerGetDatum(NULL);
}
