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
#include "commands/trigger.h"
#include "enqueue.h"
#include "enqueue_internal.h"
#include "executor/spi.h"
#include "outlet.h"
#include "route_row.h"
#include "shared.h"
#include "utils/acl.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/datum.h"
#include "utils/inval.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"

PG_FUNCTION_INFO_V1(outbox_change_trigger);
PG_FUNCTION_INFO_V1(outbox_route_trigger);
PG_FUNCTION_INFO_V1(outbox_route_removal_trigger);

static const Oid column_types[OUTBOX_ROUTE_COLUMNS] = {
#define OUTBOX_ROUTE_SETTING(name, type)	type,
#define OUTBOX_ROUTE_ROLES(name, type)	type,
#define OUTBOX_ROUTE_NOTE(name, type)	type,
#include "route.def"
};

/* ------------------------------------------------------------------ changes */

/* Who writes the column slot, with the same value too, or removes the route. */
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

	outbox_refuse_deferred(rel, trigdata->tg_event, outbox_acting());
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
 * a name without a role is a mistake, but not in a restore, which may bring names of
 * roles that this server does not have, as it does with GRANT.
 */
static Datum
role_oids(ArrayType *array, const char *column)
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
			ereport(outbox_in_restore() ? WARNING : ERROR,
					(errcode(ERRCODE_UNDEFINED_OBJECT),
					 errmsg("role \"%s\" in %s does not exist",
							NameStr(*DatumGetName(names[i])), column),
					 errhint("Create the role first; it may be a group that application roles are members of.")));
		oids[i] = ObjectIdGetDatum(role);
	}
	return PointerGetDatum(construct_array(oids, count, OIDOID, sizeof(Oid), true,
										   TYPALIGN_INT));
}

/* Only when they are new: a route can be paused although one of its roles was dropped. */
static void
check_new_roles(TriggerData *trigdata, HeapTuple tuple, int col,
				const char *column)
{
	TupleDesc	desc = RelationGetDescr(trigdata->tg_relation);
	bool		isnull;
	Datum		roles = heap_getattr(tuple, col, desc, &isnull);

	if (isnull)
		return;
	if (!TRIGGER_FIRED_BY_INSERT(trigdata->tg_event))
	{
		Datum		old = heap_getattr(trigdata->tg_trigtuple, col, desc, &isnull);

		if (!isnull && datum_image_eq(old, roles, false, -1))
			return;
	}
	(void) role_oids(DatumGetArrayTypeP(roles), column);
}

/*
 * Records which roles are meant, so that a name which goes over to another role lets
 * nobody in.  That is said whenever the names are written, also the same ones, and by
 * nobody else: what is given for the column itself is not heard.
 */
static HeapTuple
record_roles(TriggerData *trigdata, HeapTuple tuple, int names, int oids)
{
	TupleDesc	desc = RelationGetDescr(trigdata->tg_relation);
	bool		written = TRIGGER_FIRED_BY_INSERT(trigdata->tg_event) ||
		bms_is_member(names - FirstLowInvalidHeapAttributeNumber,
					  trigdata->tg_updatedcols);
	bool		isnull;
	Datum		value = heap_getattr(tuple, names, desc, &isnull);

	if (!isnull && written)
		value = role_oids(DatumGetArrayTypeP(value), NULL);
	else if (!isnull)
		value = heap_getattr(trigdata->tg_trigtuple, oids, desc, &isnull);
	return heap_modify_tuple_by_cols(tuple, desc, 1, &oids, &value, &isnull);
}

static char *
route_name(HeapTuple tuple, Relation rel)
{
	return SPI_getvalue(tuple, RelationGetDescr(rel), OUTBOX_ROUTE_NAME);
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
	check_new_roles(trigdata, tuple, OUTBOX_ROUTE_ENQUEUE_ROLES, "enqueue_roles");
	check_new_roles(trigdata, tuple, OUTBOX_ROUTE_RELAY_ROLES, "relay_roles");
	tuple = record_roles(trigdata, tuple, OUTBOX_ROUTE_ENQUEUE_ROLES, OUTBOX_ROUTE_ENQUEUE_ROLE_OIDS);
	tuple = record_roles(trigdata, tuple, OUTBOX_ROUTE_RELAY_ROLES, OUTBOX_ROUTE_RELAY_ROLE_OIDS);
	return PointerGetDatum(tuple);
}

/* ------------------------------------------------------------------- removal */

#define IN_USE_SQL \
	"SELECT route FROM outbox_internal.outbox" \
	" WHERE route OPERATOR(pg_catalog.=) $1 LIMIT 1"

#define LOCK_SQL "SELECT outbox_internal.outbox_lock_route($1::pg_catalog.text)"

static void
refuse_in_use(TriggerData *trigdata)
{
	Relation	rel = trigdata->tg_relation;
	char	   *name = route_name(trigdata->tg_trigtuple, rel);

	if (name == NULL ||
		(TRIGGER_FIRED_BY_UPDATE(trigdata->tg_event) &&
		 strcmp(name, route_name(trigdata->tg_newtuple, rel)) == 0))
		return;
	(void) outbox_look_up(rel, LOCK_SQL, name);
	if (outbox_look_up(rel, IN_USE_SQL, name) != NULL)
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
		relid == outbox_relation_oid(name))
		refuse_truncation();
}

/*
 * On outbox_route: a route in use stays.  A foreign key from outbox would say the
 * same, but lock the route's one row for each message that is enqueued, four times
 * the cost of storing it.  Here whoever takes a route away does the work.
 *
 * With the route's lock, transactions that had enqueued have ended, and later ones see
 * the removal when they get the lock.  It is taken when all rows are changed: a row may
 * have to be waited for, while nobody who enqueues should wait.
 */
Datum
outbox_route_removal_trigger(PG_FUNCTION_ARGS)
{
	TriggerData *trigdata = outbox_fired(fcinfo, "outbox_route_removal_trigger");

	if (TRIGGER_FIRED_BY_TRUNCATE(trigdata->tg_event))
		refuse_truncation();
	trigdata = outbox_fired_after_row(fcinfo, "outbox_route_removal_trigger");
	refuse_in_use(trigdata);
	return PointerGetDatum(NULL);
}
