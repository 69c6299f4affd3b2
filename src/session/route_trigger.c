/*-------------------------------------------------------------------------
 *
 * route_trigger.c
 *		Triggers on outbox_route, and what tells of changes.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "catalog/pg_type.h"
#include "cdc.h"
#include "check.h"
#include "column_types.h"
#include "commands/trigger.h"
#include "deferred.h"
#include "executor/spi.h"
#include "fired.h"
#include "format.h"
#include "look_up.h"
#include "owner.h"
#include "restore.h"
#include "shared.h"
#include "storage/lmgr.h"
#include "utils/acl.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/datum.h"
#include "utils/inval.h"
#include "utils/jsonb.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"
#include "wake.h"

PG_FUNCTION_INFO_V1(outbox_change_trigger);
PG_FUNCTION_INFO_V1(outbox_route_trigger);
PG_FUNCTION_INFO_V1(outbox_route_removal_trigger);

#define NAME_ARRAY_OID	1003	/* pg_type has the type, no macro for it */

/* Columns of the table outbox_route, in outbox--1.0.sql. */
#define COL_NAME			1
#define COL_EXCHANGE		2
#define COL_EXCHANGE_TYPE	3
#define COL_ROUTING_KEY		4
#define COL_ENQUEUE_ROLES	9
#define ROUTE_COLUMNS		9
/* Not in 0.9. */
#define COL_RELAY_ROLES		17
#define COL_FORMAT			20
#define COL_FORMAT_OPTIONS	21

static const Oid column_types[ROUTE_COLUMNS] = {
	TEXTOID, TEXTOID, TEXTOID, TEXTOID, INT4OID, TEXTOID, TEXTOID, BOOLOID,
	NAME_ARRAY_OID
};

/* ------------------------------------------------------------------ changes */

/*
 * AFTER, on outbox when rows go, on outbox_job when one is filed or changed, on
 * outbox_route and outbox_control when anything changes.  The relation's cache entry
 * is invalidated then, so that each backend reads the routes again (routes.c).
 */
Datum
outbox_change_trigger(PG_FUNCTION_ARGS)
{
	TriggerData *trigdata = outbox_fired(fcinfo, "outbox_change_trigger");
	Relation	rel = trigdata->tg_relation;

	outbox_refuse_deferred(rel, trigdata->tg_event, outbox_acting());
	/* Nobody waits for what was there for the log only. */
	if (MySlot != NULL || outbox_cdc_removing())
		return PointerGetDatum(NULL);
	if (strcmp(RelationGetRelationName(rel), "outbox") == 0)
		outbox_wake_news(OUTBOX_NEWS_REMOVED);
	else if (strcmp(RelationGetRelationName(rel), "outbox_job") == 0)
		outbox_wake_news(OUTBOX_NEWS_JOBS);
	else
	{
		CacheInvalidateRelcache(rel);
		outbox_wake_news(OUTBOX_NEWS_CONFIG);
	}
	return PointerGetDatum(NULL);
}

/* ------------------------------------------------------- what a route must be */

#define FIELD(col) \
	(isnull[(col) - 1] ? NULL : DatumGetTextPP(values[(col) - 1]))

static void
check_template(const text *routing_key)
{
	char	   *template = text_to_cstring(routing_key);
	const char *detail = outbox_route_template_error(template);

	if (detail != NULL)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("routing_key \"%s\" is not a valid template",
						template),
				 errdetail_internal("%s", detail)));
}

/*
 * A restore may bring names of roles that this server does not have, as it does
 * with GRANT; elsewhere they are mistakes.
 */
static void
check_roles(ArrayType *array, const char *column)
{
	Datum	   *names;
	bool	   *nulls;
	int			count;

	deconstruct_array(array, NAMEOID, NAMEDATALEN, false, TYPALIGN_CHAR,
					  &names, &nulls, &count);
	for (int i = 0; i < count; i++)
	{
		if (nulls[i])
			ereport(ERROR,
					(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
					 errmsg("%s must not contain null", column)));
		if (!OidIsValid(get_role_oid(NameStr(*DatumGetName(names[i])), true)))
			ereport(outbox_in_restore() ? WARNING : ERROR,
					(errcode(ERRCODE_UNDEFINED_OBJECT),
					 errmsg("role \"%s\" in %s does not exist",
							NameStr(*DatumGetName(names[i])), column),
					 errhint("Create the role first; it may be a group that application roles are members of.")));
	}
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
	check_roles(DatumGetArrayTypeP(roles), column);
}

static char *
route_name(HeapTuple tuple, Relation rel)
{
	return SPI_getvalue(tuple, RelationGetDescr(rel), COL_NAME);
}

/* Text of a column that this version of the table may not have; NULL: it has none. */
static char *
later_text(HeapTuple tuple, Relation rel, const char *name)
{
	int			number = SPI_fnumber(RelationGetDescr(rel), name);

	return number == SPI_ERROR_NOATTRIBUTE ? NULL :
		SPI_getvalue(tuple, RelationGetDescr(rel), number);
}

/*
 * Messages that are read out of the log never wait in the table: what is about those
 * that do would be a promise that nobody keeps.
 */
static void
check_cdc(HeapTuple tuple, Relation rel)
{
	static const char *const nothing[] = {"failed_route", "max_pending"};
	char	   *relay = later_text(tuple, rel, "relay");
	char	   *name = route_name(tuple, rel);
	char	   *paused;

	if (relay == NULL || name == NULL || strcmp(relay, "cdc") != 0)
		return;
	for (int i = 0; i < (int) lengthof(nothing); i++)
		if (later_text(tuple, rel, nothing[i]) != NULL)
			ereport(ERROR,
					(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
					 errmsg("%s cannot be set for route \"%s\", which has relay = 'cdc'",
							nothing[i], name),
					 errdetail("Its messages are read out of the write-ahead log: none waits in the table, and none is given up here.")));
	paused = later_text(tuple, rel, "paused");
	if (paused != NULL && strcmp(paused, "f") != 0)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("route \"%s\", which has relay = 'cdc', cannot be paused", name),
				 errdetail("Its messages are read out of the write-ahead log, and nobody here can keep the reader from that."),
				 errhint("Stop the reader; it goes on where it was.")));
}

/* A column that came after 0.9, NULL where there is none. */
static Datum
later_column(TriggerData *trigdata, HeapTuple tuple, int usual, const char *name,
			 Oid type, bool *isnull)
{
	TupleDesc	desc = RelationGetDescr(trigdata->tg_relation);
	int			col = outbox_later_column(desc, usual, name, type,
										  RelationGetRelationName(trigdata->tg_relation));

	*isnull = true;
	return col > 0 ? heap_getattr(tuple, col, desc, isnull) : (Datum) 0;
}

static void
check_format(TriggerData *trigdata, HeapTuple tuple)
{
	bool		no_format;
	bool		no_options;
	Datum		name = later_column(trigdata, tuple, COL_FORMAT, "format", TEXTOID,
									&no_format);
	Datum		options = later_column(trigdata, tuple, COL_FORMAT_OPTIONS,
									   "format_options", JSONBOID, &no_options);
	OutboxFormatError error = {NULL, NULL};

	if (no_format)
		return;
	(void) outbox_format_make(CurrentMemoryContext, TextDatumGetCString(name),
							  no_options ? NULL : DatumGetJsonbP(options), &error);
	if (error.message != NULL)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg_internal("%s", error.message),
				 error.hint != NULL ? errhint("%s", error.hint) : 0));
}

/* BEFORE INSERT OR UPDATE ... FOR EACH ROW on outbox_route. */
Datum
outbox_route_trigger(PG_FUNCTION_ARGS)
{
	TriggerData *trigdata = outbox_fired_before_row(fcinfo, "outbox_route_trigger");
	TupleDesc	desc = RelationGetDescr(trigdata->tg_relation);
	HeapTuple	tuple = TRIGGER_FIRED_BY_INSERT(trigdata->tg_event) ?
		trigdata->tg_trigtuple : trigdata->tg_newtuple;
	Datum		values[ROUTE_COLUMNS];
	bool		isnull[ROUTE_COLUMNS];
	int			relay_roles;

	outbox_expect_columns(desc, column_types, ROUTE_COLUMNS,
						  RelationGetRelationName(trigdata->tg_relation));
	for (int col = 1; col <= ROUTE_COLUMNS; col++)
		values[col - 1] = heap_getattr(tuple, col, desc, &isnull[col - 1]);
	outbox_check_route(FIELD(COL_NAME), FIELD(COL_EXCHANGE),
					   FIELD(COL_EXCHANGE_TYPE), FIELD(COL_ROUTING_KEY));
	/* Where there is none the NOT NULL constraint speaks. */
	if (!isnull[COL_ROUTING_KEY - 1])
		check_template(FIELD(COL_ROUTING_KEY));
	check_new_roles(trigdata, tuple, COL_ENQUEUE_ROLES, "enqueue_roles");
	relay_roles = outbox_later_column(desc, COL_RELAY_ROLES, "relay_roles", NAME_ARRAY_OID,
									  RelationGetRelationName(trigdata->tg_relation));
	if (relay_roles > 0)
		check_new_roles(trigdata, tuple, relay_roles, "relay_roles");
	check_cdc(tuple, trigdata->tg_relation);
	check_format(trigdata, tuple);
	return PointerGetDatum(tuple);
}

/* ------------------------------------------------------------------- removal */

/* The table outbox beside this one. */
static Oid
messages_relid(Relation rel)
{
	Oid			relid = get_relname_relid("outbox", RelationGetNamespace(rel));

	if (!OidIsValid(relid))
		elog(ERROR, "table \"outbox\" does not exist");
	return relid;
}

#define IN_USE_SQL \
	"SELECT route FROM %s.outbox" \
	" WHERE $1 IS NULL OR route OPERATOR(pg_catalog.=) $1 LIMIT 1"

/* A message for that route (NULL: for any): its route, or NULL. */
static char *
find_message(Relation rel, const char *route)
{
	return outbox_look_up(rel, IN_USE_SQL, route);
}

static void
refuse_in_use(TriggerData *trigdata)
{
	Relation	rel = trigdata->tg_relation;
	char	   *name = NULL;

	if (TRIGGER_FIRED_FOR_ROW(trigdata->tg_event))
	{
		name = route_name(trigdata->tg_trigtuple, rel);
		if (name == NULL ||
			(TRIGGER_FIRED_BY_UPDATE(trigdata->tg_event) &&
			 strcmp(name, route_name(trigdata->tg_newtuple, rel)) == 0))
			return;
	}
	name = find_message(rel, name);
	if (name != NULL)
		ereport(ERROR,
				(errcode(ERRCODE_FOREIGN_KEY_VIOLATION),
				 errmsg("route \"%s\" still has messages", name),
				 errdetail("Messages in the table outbox are for this route, and would wait for ever."),
				 errhint("Let them be published, or discard the failed ones, before you remove or rename the route.")));
}

/*
 * On outbox_route: a route in use stays.  A foreign key from outbox would say the
 * same, but lock the route's one row for each message that is enqueued, four times
 * the cost of storing it.  Here whoever takes a route away does the work.
 *
 * BEFORE ... FOR EACH STATEMENT: waits for everybody who has enqueued and not
 * committed, and keeps others away; they see the removal when they get the lock
 * (routes.c).  AFTER: looks for messages.
 */
Datum
outbox_route_removal_trigger(PG_FUNCTION_ARGS)
{
	TriggerData *trigdata = outbox_fired(fcinfo, "outbox_route_removal_trigger");

	if (TRIGGER_FIRED_BEFORE(trigdata->tg_event))
		LockRelationOid(messages_relid(trigdata->tg_relation), ShareLock);
	else
		refuse_in_use(trigdata);
	return PointerGetDatum(NULL);
}
