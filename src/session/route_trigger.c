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
#include "utils/acl.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/datum.h"
#include "utils/inval.h"
#include "utils/jsonb.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"
#include "utils/timestamp.h"
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
#define COL_MAX_ATTEMPTS	5
#define COL_ORDERING		6
#define COL_ON_FAILED		7
#define COL_PAUSED			8
#define COL_ENQUEUE_ROLES	9
#define COL_FAILED_ROUTE	14
#define COL_RETENTION		15
#define COL_RELAY			16
#define COL_RELAY_ROLES		17
#define COL_SEQUENCE		18
#define COL_MAX_PENDING		19
#define COL_FORMAT			20
#define COL_FORMAT_OPTIONS	21
#define COL_SLOT			22
#define COL_ENQUEUE_OIDS	23
#define COL_RELAY_OIDS		24
#define ROUTE_COLUMNS		24

static const Oid column_types[ROUTE_COLUMNS] = {
	TEXTOID, TEXTOID, TEXTOID, TEXTOID, INT4OID, TEXTOID, TEXTOID, BOOLOID,
	NAME_ARRAY_OID, BOOLOID, NAMEOID, TIMESTAMPTZOID, TEXTOID, TEXTOID,
	INTERVALOID, TEXTOID, NAME_ARRAY_OID, TEXTOID, INT4OID, TEXTOID, JSONBOID,
	NAMEOID, OIDARRAYOID, OIDARRAYOID
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
		if (strcmp(RelationGetRelationName(rel), "outbox_route") == 0)
			outbox_cdc_slots_forget();
		CacheInvalidateRelcache(rel);
		outbox_wake_news(OUTBOX_NEWS_CONFIG);
	}
	return PointerGetDatum(NULL);
}

/* ------------------------------------------------------- what a route must be */

#define IS_NULL(col)	(isnull[(col) - 1])
#define VALUE(col)		(values[(col) - 1])
#define FIELD(col)		(IS_NULL(col) ? NULL : DatumGetTextPP(VALUE(col)))

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

/* The OID of each of the names now; 0: there is no such role. */
static Datum
role_oids(ArrayType *array)
{
	Datum	   *names;
	Datum	   *oids;
	bool	   *nulls;
	int			count;

	deconstruct_array(array, NAMEOID, NAMEDATALEN, false, TYPALIGN_CHAR,
					  &names, &nulls, &count);
	oids = palloc(sizeof(Datum) * Max(count, 1));
	for (int i = 0; i < count; i++)
		oids[i] = ObjectIdGetDatum(nulls[i] ? InvalidOid :
								   get_role_oid(NameStr(*DatumGetName(names[i])), true));
	return PointerGetDatum(construct_array(oids, count, OIDOID, sizeof(Oid), true,
										   TYPALIGN_INT));
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
		value = role_oids(DatumGetArrayTypeP(value));
	else if (!isnull)
		value = heap_getattr(trigdata->tg_trigtuple, oids, desc, &isnull);
	return heap_modify_tuple_by_cols(tuple, desc, 1, &oids, &value, &isnull);
}

static char *
route_name(HeapTuple tuple, Relation rel)
{
	return SPI_getvalue(tuple, RelationGetDescr(rel), COL_NAME);
}

static void
refuse_for_cdc(const char *name, const char *column)
{
	ereport(ERROR,
			(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
			 errmsg("%s cannot be set for route \"%s\", which has relay = 'cdc'",
					column, name),
			 errdetail("Its messages are read out of the write-ahead log: none waits in the table, and none is given up here.")));
}

/*
 * Messages that are read out of the log never wait in the table: what is about those
 * that do would be a promise that nobody keeps.
 */
static void
check_cdc(const Datum *values, const bool *isnull)
{
	char	   *name;

	if (IS_NULL(COL_NAME) || IS_NULL(COL_RELAY) ||
		strcmp(TextDatumGetCString(VALUE(COL_RELAY)), "cdc") != 0)
		return;
	name = TextDatumGetCString(VALUE(COL_NAME));
	if (!IS_NULL(COL_FAILED_ROUTE))
		refuse_for_cdc(name, "failed_route");
	if (!IS_NULL(COL_MAX_PENDING))
		refuse_for_cdc(name, "max_pending");
	if (!IS_NULL(COL_PAUSED) && DatumGetBool(VALUE(COL_PAUSED)))
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("route \"%s\", which has relay = 'cdc', cannot be paused", name),
				 errdetail("Its messages are read out of the write-ahead log, and nobody here can keep the reader from that."),
				 errhint("Stop the reader; it goes on where it was.")));
}

static void
check_format(const Datum *values, const bool *isnull)
{
	OutboxFormatError error = {NULL, NULL};

	if (IS_NULL(COL_FORMAT))
		return;
	(void) outbox_format_make(CurrentMemoryContext,
							  TextDatumGetCString(VALUE(COL_FORMAT)),
							  IS_NULL(COL_FORMAT_OPTIONS) ? NULL :
							  DatumGetJsonbP(VALUE(COL_FORMAT_OPTIONS)), &error);
	if (error.message != NULL)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg_internal("%s", error.message),
				 error.hint != NULL ? errhint("%s", error.hint) : 0));
}

/* The longest retention in the CHECK, 2147483647 seconds. */
#define RETENTION_MOST	(INT64CONST(2147483647) * USECS_PER_SEC)

static bool
field_is(const Datum *values, const bool *isnull, int col, const char *word)
{
	return !IS_NULL(col) && strcmp(TextDatumGetCString(VALUE(col)), word) == 0;
}

static bool
positive(const Datum *values, const bool *isnull, int col)
{
	return IS_NULL(col) || DatumGetInt32(VALUE(col)) > 0;
}

static bool
retention_allowed(const Datum *values, const bool *isnull)
{
	Interval	least = {0};
	Interval	most = {.time = RETENTION_MOST};

	return IS_NULL(COL_RETENTION) ||
		(DatumGetBool(DirectFunctionCall2(interval_ge, VALUE(COL_RETENTION),
										  PointerGetDatum(&least))) &&
		 DatumGetBool(DirectFunctionCall2(interval_le, VALUE(COL_RETENTION),
										  PointerGetDatum(&most))));
}

static void
allow(bool allowed, const Datum *values, const bool *isnull, const char *column,
	  const char *rule)
{
	if (!allowed)
		ereport(ERROR,
				(errcode(ERRCODE_CHECK_VIOLATION),
				 errmsg("%s is not allowed for route \"%s\"", column,
						IS_NULL(COL_NAME) ? "" : TextDatumGetCString(VALUE(COL_NAME))),
				 errdetail_internal("%s", rule)));
}

/*
 * The CHECKs of outbox_route once more, since a constraint can only say its name.  They
 * stay for those who disable triggers.  NULL is what NOT NULL is for.
 */
static void
check_allowed(const Datum *values, const bool *isnull)
{
#define IS(col, word)	field_is(values, isnull, col, word)
#define ALLOW(column, allowed, rule) \
	allow(allowed, values, isnull, column, rule)

	ALLOW("an empty name", !IS(COL_NAME, ""), "A route has a name of 1 to 255 bytes.");
	ALLOW("exchange_type", IS_NULL(COL_EXCHANGE_TYPE) ||
		  IS(COL_EXCHANGE_TYPE, "direct") || IS(COL_EXCHANGE_TYPE, "topic") ||
		  IS(COL_EXCHANGE_TYPE, "fanout") || IS(COL_EXCHANGE_TYPE, "headers") ||
		  strncmp(TextDatumGetCString(VALUE(COL_EXCHANGE_TYPE)), "x-", 2) == 0,
		  "It is direct, topic, fanout, headers, a type of a plug-in that begins with x-, or NULL where the exchange exists.");
	ALLOW("exchange_type", IS_NULL(COL_EXCHANGE_TYPE) || !IS(COL_EXCHANGE, ""),
		  "The broker's default exchange, whose name is empty, cannot be declared: exchange_type is NULL with it.");
	ALLOW("max_attempts", positive(values, isnull, COL_MAX_ATTEMPTS), "It is at least 1.");
	ALLOW("ordering", IS_NULL(COL_ORDERING) || IS(COL_ORDERING, "key") ||
		  IS(COL_ORDERING, "none"), "It is key or none.");
	ALLOW("on_failed", IS_NULL(COL_ON_FAILED) || IS(COL_ON_FAILED, "skip") ||
		  IS(COL_ON_FAILED, "block"), "It is skip or block.");
	ALLOW("relay", IS_NULL(COL_RELAY) || IS(COL_RELAY, "internal") ||
		  IS(COL_RELAY, "external") || IS(COL_RELAY, "cdc"),
		  "It is internal, external or cdc.");
	ALLOW("sequence", IS_NULL(COL_SEQUENCE) || IS(COL_SEQUENCE, "seq") ||
		  IS(COL_SEQUENCE, "key"), "It is seq, key or NULL.");
	ALLOW("sequence = 'key'", !IS(COL_SEQUENCE, "key") || IS_NULL(COL_ORDERING) ||
		  IS(COL_ORDERING, "key"), "The numbers of a key need its order: ordering = 'key'.");
	ALLOW("max_pending", positive(values, isnull, COL_MAX_PENDING),
		  "It is at least 1, or NULL for no limit.");
	ALLOW("format", IS_NULL(COL_FORMAT) || IS(COL_FORMAT, "plain") ||
		  IS_NULL(COL_RELAY) || IS(COL_RELAY, "internal"),
		  "The workers write formats: one other than plain needs relay = 'internal'.");
	ALLOW("slot", IS_NULL(COL_SLOT) || IS_NULL(COL_RELAY) || IS(COL_RELAY, "cdc"),
		  "A replication slot is for relay = 'cdc'.");
	ALLOW("retention", retention_allowed(values, isnull),
		  "It is from 0 to 2147483647 seconds, or NULL for outbox.retention.");
#undef ALLOW
#undef IS
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

	outbox_expect_columns(desc, column_types, ROUTE_COLUMNS,
						  RelationGetRelationName(trigdata->tg_relation));
	for (int col = 1; col <= ROUTE_COLUMNS; col++)
		values[col - 1] = heap_getattr(tuple, col, desc, &isnull[col - 1]);
	outbox_check_route(FIELD(COL_NAME), FIELD(COL_EXCHANGE),
					   FIELD(COL_EXCHANGE_TYPE), FIELD(COL_ROUTING_KEY));
	/* Where there is none the NOT NULL constraint speaks. */
	if (!IS_NULL(COL_ROUTING_KEY))
		check_template(FIELD(COL_ROUTING_KEY));
	check_new_roles(trigdata, tuple, COL_ENQUEUE_ROLES, "enqueue_roles");
	check_new_roles(trigdata, tuple, COL_RELAY_ROLES, "relay_roles");
	check_cdc(values, isnull);
	check_format(values, isnull);
	check_allowed(values, isnull);
	tuple = record_roles(trigdata, tuple, COL_ENQUEUE_ROLES, COL_ENQUEUE_OIDS);
	tuple = record_roles(trigdata, tuple, COL_RELAY_ROLES, COL_RELAY_OIDS);
	return PointerGetDatum(tuple);
}

/* ------------------------------------------------------------------- removal */

#define IN_USE_SQL \
	"SELECT route FROM outbox_internal.outbox" \
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
 * The route's lock is held by now (outbox_route_lock_trigger()): transactions that
 * had enqueued have ended, and later ones see the removal when they get the lock.
 */
Datum
outbox_route_removal_trigger(PG_FUNCTION_ARGS)
{
	TriggerData *trigdata = outbox_fired(fcinfo, "outbox_route_removal_trigger");

	refuse_in_use(trigdata);
	return PointerGetDatum(NULL);
}
