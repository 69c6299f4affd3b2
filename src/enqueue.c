/*-------------------------------------------------------------------------
 *
 * enqueue.c
 *		outbox_enqueue() and the triggers behind it.
 *
 * The functions do no more than an INSERT; everything that makes a row a
 * message (checks, order of keys, the wake-up) is in the row trigger, so that
 * INSERT and COPY are equal to them.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/xact.h"
#include "catalog/pg_type.h"
#include "check.h"
#include "commands/trigger.h"
#include "common/hashfn.h"
#include "enqueue.h"
#include "fmgr.h"
#include "miscadmin.h"
#include "origin.h"
#include "shared.h"
#include "store.h"
#include "strict_keys.h"
#include "utils/acl.h"
#include "utils/builtins.h"
#include "utils/inval.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"
#include "utils/timestamp.h"
#include "varatt_compat.h"
#include "wake.h"

PG_FUNCTION_INFO_V1(outbox_enqueue);
PG_FUNCTION_INFO_V1(outbox_enqueue_bytes);
PG_FUNCTION_INFO_V1(outbox_uuid7);
PG_FUNCTION_INFO_V1(outbox_key_hash);
PG_FUNCTION_INFO_V1(outbox_row_trigger);
PG_FUNCTION_INFO_V1(outbox_change_trigger);
PG_FUNCTION_INFO_V1(outbox_route_trigger);

/* ------------------------------------------------------------------- uuid */

/*
 * Version 7: 48 bits of Unix milliseconds, 12 bits of fraction of it so that
 * values of one backend grow within a millisecond, 62 random bits.  Random
 * bytes are drawn many at a time, as each draw is a system call.
 */
static void
make_uuid7(pg_uuid_t *uuid)
{
	static uint8 pool[1024];
	static int	pool_pid = 0;
	static size_t used = sizeof(pool);
	TimestampTz now = GetCurrentTimestamp();
	uint64		us = (uint64) (now + (POSTGRES_EPOCH_JDATE - UNIX_EPOCH_JDATE) * USECS_PER_DAY);
	uint64		ms = us / 1000;
	uint16		fraction = (uint16) ((us % 1000) * 4096 / 1000);

	/* A forked child must not repeat what its parent drew. */
	if (used + 8 > sizeof(pool) || pool_pid != MyProcPid)
	{
		if (!pg_strong_random(pool, sizeof(pool)))
			ereport(ERROR,
					(errcode(ERRCODE_INTERNAL_ERROR),
					 errmsg("could not generate random values")));
		used = 0;
		pool_pid = MyProcPid;
	}
	for (int i = 0; i < 6; i++)
		uuid->data[i] = (uint8) (ms >> (8 * (5 - i)));
	uuid->data[6] = 0x70 | (uint8) (fraction >> 8);
	uuid->data[7] = (uint8) fraction;
	memcpy(&uuid->data[8], pool + used, 8);
	used += 8;
	uuid->data[8] = (uuid->data[8] & 0x3f) | 0x80;
}

Datum
outbox_uuid7(PG_FUNCTION_ARGS)
{
	pg_uuid_t  *uuid = palloc(sizeof(pg_uuid_t));

	(void) fcinfo;
	make_uuid7(uuid);
	PG_RETURN_UUID_P(uuid);
}

/* -------------------------------------------------------------------- keys */

int64
outbox_hash_key(const text *aggregate_type, const text *aggregate_id)
{
	uint64		seed = 0;

	if (aggregate_type != NULL)
		seed = hash_bytes_extended((const unsigned char *) VARDATA_ANY(aggregate_type),
								   (int) VARSIZE_ANY_EXHDR(aggregate_type), 1);
	return (int64) hash_bytes_extended((const unsigned char *) VARDATA_ANY(aggregate_id),
									   (int) VARSIZE_ANY_EXHDR(aggregate_id),
									   seed);
}

Datum
outbox_key_hash(PG_FUNCTION_ARGS)
{
	if (PG_ARGISNULL(1))
		PG_RETURN_NULL();
	PG_RETURN_INT64(outbox_hash_key(PG_ARGISNULL(0) ? NULL : PG_GETARG_TEXT_PP(0),
								  PG_GETARG_TEXT_PP(1)));
}

/* ------------------------------------------------------------------ routes */

static void
warn_not_preloaded(void)
{
	static bool warned = false;

	if (outbox_shared != NULL || warned)
		return;
	warned = true;
	ereport(WARNING,
			(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
			 errmsg("messages are stored but not published"),
			 errdetail("The library \"outbox\" is not in \"shared_preload_libraries\", so no relay runs."),
			 errhint("Add outbox to \"shared_preload_libraries\" and restart the server.")));
}

/* The route of a new message, which the current user must be allowed to use. */
static const OutboxRoute *
usable_route(Oid schema, const char *name, Oid owner)
{
	const OutboxRoute *route = outbox_store_find_route(schema, name);
	Oid			user = GetUserId();

	if (route == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_OBJECT),
				 errmsg("route \"%s\" does not exist", name),
				 errhint("An administrator can add it with INSERT INTO outbox_route.")));
	if (route->nroles < 0 || user == owner)
		return route;
	for (int i = 0; i < route->nroles; i++)
		if (has_privs_of_role(user, route->roles[i]))
			return route;
	ereport(ERROR,
			(errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
			 errmsg("permission denied for route \"%s\"", name),
			 errhint("An administrator can add the role to enqueue_roles in outbox_route.")));
	return NULL;
}

/* -------------------------------------------------- what a row has to be */

#define FIELD(col, get) (isnull[(col) - 1] ? NULL : get(values[(col) - 1]))

/* What makes a row a message; route is NULL for one that a restore brings. */
static void
check_row(Datum *values, bool *isnull, const OutboxRoute *route)
{
	OutboxFields fields;

	fields.event_type = FIELD(COL_EVENT_TYPE, DatumGetTextPP);
	fields.aggregate_type = FIELD(COL_AGGREGATE_TYPE, DatumGetTextPP);
	fields.aggregate_id = FIELD(COL_AGGREGATE_ID, DatumGetTextPP);
	fields.routing_key = FIELD(COL_ROUTING_KEY, DatumGetTextPP);
	fields.payload = FIELD(COL_PAYLOAD, DatumGetJsonbP);
	fields.body = FIELD(COL_BODY, DatumGetByteaPP);
	fields.headers = FIELD(COL_HEADERS, DatumGetJsonbP);
	fields.properties = FIELD(COL_PROPERTIES, DatumGetJsonbP);
	if (route != NULL)
		outbox_check_fields(&fields, route);
	if (isnull[COL_SEQ - 1] || DatumGetInt64(values[COL_SEQ - 1]) <= 0)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("seq must be positive"),
				 errhint("Leave it to its default.")));
	if (isnull[COL_CREATED_AT - 1] ||
		TIMESTAMP_NOT_FINITE(DatumGetTimestampTz(values[COL_CREATED_AT - 1])))
		ereport(ERROR,
				(errcode(ERRCODE_DATETIME_VALUE_OUT_OF_RANGE),
				 errmsg("created_at must be a finite time")));
}

/*
 * Notes a pending row, for the relay to hear of at commit.  Returns true when
 * it is due already: an ordinary message, which takes the hot path, so that
 * available_at has to go.
 */
static bool
announce(const Datum *values, const bool *isnull, bool insert)
{
	int64		seq = DatumGetInt64(values[COL_SEQ - 1]);
	TimestampTz due;

	if (isnull[COL_AVAILABLE_AT - 1])
	{
		outbox_wake_row(seq);
		return false;
	}
	due = DatumGetTimestampTz(values[COL_AVAILABLE_AT - 1]);
	if (insert && due <= GetCurrentTimestamp() &&
		DatumGetInt32(values[COL_ATTEMPTS - 1]) == 0)
	{
		outbox_wake_row(seq);
		return true;
	}
	outbox_wake_due(due);
	return false;
}

/* ----------------------------------------------------------------- enqueue */

/* Arguments; the first two are event_type, and payload or body. */
#define ARG_AGGREGATE_TYPE	2
#define ARG_AGGREGATE_ID	3
#define ARG_HEADERS			4
#define ARG_ROUTE			5
#define ARG_ROUTING_KEY		6
#define ARG_PROPERTIES		7
#define ARG_AVAILABLE_AT	8
#define ARG_MESSAGE_ID		9
#define ARG_CONTENT_TYPE	10	/* of outbox_enqueue_bytes only */

/* Copies argument arg to a column. */
static void
pass(FunctionCallInfo fcinfo, int arg, int col, Datum *values, bool *isnull)
{
	isnull[col - 1] = PG_ARGISNULL(arg);
	values[col - 1] = PG_GETARG_DATUM(arg);
}

/* Puts content_type into the properties, unless they have one. */
static Datum
add_content_type(FunctionCallInfo fcinfo, int arg_type, int arg_properties,
				 bool *isnull)
{
	text	   *type;
	JsonbParseState *state = NULL;
	JsonbValue	key;
	JsonbValue	value;
	Jsonb	   *object;

	*isnull = PG_ARGISNULL(arg_properties);
	if (PG_ARGISNULL(arg_type))
		return PG_GETARG_DATUM(arg_properties);
	type = PG_GETARG_TEXT_PP(arg_type);
	/* The default needs no storing: it is what bytes are sent as. */
	if (VARSIZE_ANY_EXHDR(type) == strlen("application/octet-stream") &&
		memcmp(VARDATA_ANY(type), "application/octet-stream",
			   strlen("application/octet-stream")) == 0)
		return PG_GETARG_DATUM(arg_properties);

	pushJsonbValue(&state, WJB_BEGIN_OBJECT, NULL);
	key.type = jbvString;
	key.val.string.val = "content_type";
	key.val.string.len = strlen("content_type");
	value.type = jbvString;
	value.val.string.val = VARDATA_ANY(type);
	value.val.string.len = (int) VARSIZE_ANY_EXHDR(type);
	pushJsonbValue(&state, WJB_KEY, &key);
	pushJsonbValue(&state, WJB_VALUE, &value);
	object = JsonbValueToJsonb(pushJsonbValue(&state, WJB_END_OBJECT, NULL));
	if (*isnull)
	{
		*isnull = false;
		return JsonbPGetDatum(object);
	}
	return DirectFunctionCall2(jsonb_concat, JsonbPGetDatum(object),
							   PG_GETARG_DATUM(arg_properties));
}

/*
 * Fills in what the statement leaves to defaults, does what the row trigger
 * does, and puts the row into the table.  Returns false, with nothing done, when
 * it takes the statement.
 */
static bool
insert_direct(Oid schema, const OutboxRoute *route, Datum *values, bool *isnull)
{
	int64		seq;
	Relation	rel = outbox_store_open_direct(schema, &seq);

	if (rel == NULL)
		return false;
	values[COL_SEQ - 1] = Int64GetDatum(seq);
	values[COL_CREATED_AT - 1] = TimestampTzGetDatum(GetCurrentTimestamp());
	values[COL_ATTEMPTS - 1] = Int32GetDatum(0);
	values[COL_STATUS - 1] = CStringGetTextDatum("pending");
	isnull[COL_SEQ - 1] = isnull[COL_CREATED_AT - 1] = false;
	isnull[COL_ATTEMPTS - 1] = isnull[COL_STATUS - 1] = false;
	check_row(values, isnull, route);
	warn_not_preloaded();
	if (announce(values, isnull, true))
		isnull[COL_AVAILABLE_AT - 1] = true;
	outbox_store_insert_direct(rel, values, isnull);
	return true;
}

static Datum
enqueue(FunctionCallInfo fcinfo, bool bytes)
{
	Oid			schema = get_func_namespace(fcinfo->flinfo->fn_oid);
	Datum		values[OUTBOX_COLUMNS];
	bool		isnull[OUTBOX_COLUMNS];
	pg_uuid_t  *id;
	const OutboxRoute *route;

	if (PG_ARGISNULL(ARG_ROUTE))
		ereport(ERROR,
				(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
				 errmsg("route must not be null")));
	route = usable_route(schema,
						 text_to_cstring(PG_GETARG_TEXT_PP(ARG_ROUTE)),
						 InvalidOid);

	/* Before the INSERT draws seq. */
	if (outbox_strict_keys && route->ordered &&
		!PG_ARGISNULL(ARG_AGGREGATE_ID))
		outbox_lock_key(outbox_hash_key(PG_ARGISNULL(ARG_AGGREGATE_TYPE) ? NULL :
										PG_GETARG_TEXT_PP(ARG_AGGREGATE_TYPE),
										PG_GETARG_TEXT_PP(ARG_AGGREGATE_ID)));

	id = palloc(sizeof(pg_uuid_t));
	if (PG_ARGISNULL(ARG_MESSAGE_ID))
		make_uuid7(id);
	else
		*id = *PG_GETARG_UUID_P(ARG_MESSAGE_ID);

	memset(isnull, true, sizeof(isnull));
	values[COL_ID - 1] = UUIDPGetDatum(id);
	values[COL_ORIGIN - 1] = Int64GetDatum(outbox_own_origin());
	isnull[COL_ID - 1] = isnull[COL_ORIGIN - 1] = false;
	pass(fcinfo, ARG_ROUTE, COL_ROUTE, values, isnull);
	pass(fcinfo, 0, COL_EVENT_TYPE, values, isnull);
	pass(fcinfo, ARG_AGGREGATE_TYPE, COL_AGGREGATE_TYPE, values, isnull);
	pass(fcinfo, ARG_AGGREGATE_ID, COL_AGGREGATE_ID, values, isnull);
	pass(fcinfo, 1, bytes ? COL_BODY : COL_PAYLOAD, values, isnull);
	pass(fcinfo, ARG_HEADERS, COL_HEADERS, values, isnull);
	pass(fcinfo, ARG_PROPERTIES, COL_PROPERTIES, values, isnull);
	if (bytes)
		values[COL_PROPERTIES - 1] =
			add_content_type(fcinfo, ARG_CONTENT_TYPE, ARG_PROPERTIES,
							 &isnull[COL_PROPERTIES - 1]);
	pass(fcinfo, ARG_ROUTING_KEY, COL_ROUTING_KEY, values, isnull);
	pass(fcinfo, ARG_AVAILABLE_AT, COL_AVAILABLE_AT, values, isnull);

	if (!insert_direct(schema, route, values, isnull))
		outbox_store_enqueue(schema, values, isnull);
	PG_RETURN_UUID_P(id);
}

Datum
outbox_enqueue(PG_FUNCTION_ARGS)
{
	return enqueue(fcinfo, false);
}

Datum
outbox_enqueue_bytes(PG_FUNCTION_ARGS)
{
	return enqueue(fcinfo, true);
}

/* ---------------------------------------------------------------- triggers */

static void
require_trigger(FunctionCallInfo fcinfo, const char *name)
{
	if (!CALLED_AS_TRIGGER(fcinfo))
		ereport(ERROR,
				(errcode(ERRCODE_E_R_I_E_TRIGGER_PROTOCOL_VIOLATED),
				 errmsg("function \"%s\" was not called by a trigger", name)));
}

static bool
is_foreign(const Datum *values, const bool *isnull)
{
	return !isnull[COL_ORIGIN - 1] &&
		DatumGetInt64(values[COL_ORIGIN - 1]) != outbox_own_origin();
}

/* Does the row have an origin that was given and is not the default? */
static bool
sets_origin(TriggerData *trigdata, const Datum *values, const bool *isnull)
{
	Datum		old;
	bool		old_isnull;

	if (TRIGGER_FIRED_BY_INSERT(trigdata->tg_event))
		return is_foreign(values, isnull);
	old = heap_getattr(trigdata->tg_trigtuple, COL_ORIGIN,
					   RelationGetDescr(trigdata->tg_relation), &old_isnull);
	return !isnull[COL_ORIGIN - 1] &&
		DatumGetInt64(values[COL_ORIGIN - 1]) != DatumGetInt64(old);
}

/*
 * Does the row come from another database, by a restore?  Then the original has
 * accepted it, and neither its route need be there yet, since a parallel
 * restore loads tables in any order, nor need our settings agree.  This is for
 * those who may restore: anybody else could silence the relay, or publish what
 * it must not, with it.
 */
static bool
is_restored(TriggerData *trigdata, const Datum *values, const bool *isnull)
{
	Relation	rel = trigdata->tg_relation;
	bool		foreign = is_foreign(values, isnull);

	if (!foreign && TRIGGER_FIRED_BY_INSERT(trigdata->tg_event))
		return false;
	/* Superusers have the privileges of every role. */
	if (has_privs_of_role(GetUserId(), rel->rd_rel->relowner))
		return foreign;
	if (sets_origin(trigdata, values, isnull))
		ereport(ERROR,
				(errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
				 errmsg("permission denied to set origin of a message"),
				 errdetail("Only superusers and the owner of the table \"%s\" may store messages of another database.",
						   RelationGetRelationName(rel)),
				 errhint("Leave origin to its default.")));
	return false;
}

/*
 * BEFORE INSERT OR UPDATE ... FOR EACH ROW on outbox.  The relay's own updates
 * pass: it changes what it has claimed and needs no telling.
 */
Datum
outbox_row_trigger(PG_FUNCTION_ARGS)
{
	TriggerData *trigdata = (TriggerData *) fcinfo->context;
	Relation	rel;
	HeapTuple	tuple;
	Datum		values[OUTBOX_COLUMNS];
	bool		isnull[OUTBOX_COLUMNS];
	bool		insert;
	const OutboxRoute *route = NULL;

	require_trigger(fcinfo, "outbox_row_trigger");
	insert = TRIGGER_FIRED_BY_INSERT(trigdata->tg_event);
	tuple = insert ? trigdata->tg_trigtuple : trigdata->tg_newtuple;
	if (MySlot != NULL)
		return PointerGetDatum(tuple);

	rel = trigdata->tg_relation;
	/* Columns that were added to the table stand behind ours. */
	if (RelationGetDescr(rel)->natts < OUTBOX_COLUMNS)
		elog(ERROR, "table \"%s\" has lost columns", RelationGetRelationName(rel));
	for (int col = 1; col <= OUTBOX_COLUMNS; col++)
		values[col - 1] = heap_getattr(tuple, col, RelationGetDescr(rel),
									   &isnull[col - 1]);
	if (isnull[COL_ROUTE - 1])
		ereport(ERROR,
				(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
				 errmsg("route must not be null")));
	if (!is_restored(trigdata, values, isnull))
		route = usable_route(RelationGetNamespace(rel),
							 TextDatumGetCString(values[COL_ROUTE - 1]),
							 rel->rd_rel->relowner);
	check_row(values, isnull, route);
	warn_not_preloaded();

	/* A plain INSERT's default has drawn seq already, see README. */
	if (insert && outbox_strict_keys && route != NULL && route->ordered &&
		!isnull[COL_AGGREGATE_ID - 1])
		outbox_lock_key(outbox_hash_key(FIELD(COL_AGGREGATE_TYPE, DatumGetTextPP),
										DatumGetTextPP(values[COL_AGGREGATE_ID - 1])));
	if (!insert)
		outbox_wake_news(OUTBOX_NEWS_REMOVED);
	if (isnull[COL_STATUS - 1] ||
		strcmp(TextDatumGetCString(values[COL_STATUS - 1]), "pending") != 0)
		return PointerGetDatum(tuple);

	if (announce(values, isnull, insert))
	{
		int			col = COL_AVAILABLE_AT;
		Datum		none = (Datum) 0;
		bool		none_isnull = true;

		tuple = heap_modify_tuple_by_cols(tuple, RelationGetDescr(rel), 1, &col,
										  &none, &none_isnull);
	}
	return PointerGetDatum(tuple);
}

/*
 * AFTER ... FOR EACH STATEMENT: on outbox when rows go, on outbox_route and
 * outbox_control when anything changes.  The relation's cache entry is
 * invalidated so that each backend reads the routes again.
 */
Datum
outbox_change_trigger(PG_FUNCTION_ARGS)
{
	TriggerData *trigdata = (TriggerData *) fcinfo->context;
	Relation	rel;

	require_trigger(fcinfo, "outbox_change_trigger");
	if (MySlot != NULL)
		return PointerGetDatum(NULL);
	rel = trigdata->tg_relation;
	if (strcmp(RelationGetRelationName(rel), "outbox") == 0)
		outbox_wake_news(OUTBOX_NEWS_REMOVED);
	else
	{
		CacheInvalidateRelcache(rel);
		outbox_wake_news(OUTBOX_NEWS_CONFIG);
	}
	return PointerGetDatum(NULL);
}

/* Columns of the table outbox_route, in outbox--1.0.sql. */
#define COL_ROUTE_NAME			1
#define COL_ROUTE_EXCHANGE		2
#define COL_ROUTE_EXCHANGE_TYPE	3
#define COL_ROUTE_ROUTING_KEY	4
#define ROUTE_TEXT_COLS			4

/* BEFORE INSERT OR UPDATE ... FOR EACH ROW on outbox_route. */
Datum
outbox_route_trigger(PG_FUNCTION_ARGS)
{
	TriggerData *trigdata = (TriggerData *) fcinfo->context;
	HeapTuple	tuple;
	Datum		values[ROUTE_TEXT_COLS];
	bool		isnull[ROUTE_TEXT_COLS];
	char	   *template;
	const char *detail;

	require_trigger(fcinfo, "outbox_route_trigger");
	tuple = TRIGGER_FIRED_BY_INSERT(trigdata->tg_event) ?
		trigdata->tg_trigtuple : trigdata->tg_newtuple;
	for (int col = 1; col <= ROUTE_TEXT_COLS; col++)
		values[col - 1] = heap_getattr(tuple, col,
									   RelationGetDescr(trigdata->tg_relation),
									   &isnull[col - 1]);
	outbox_check_route(FIELD(COL_ROUTE_NAME, DatumGetTextPP),
					   FIELD(COL_ROUTE_EXCHANGE, DatumGetTextPP),
					   FIELD(COL_ROUTE_EXCHANGE_TYPE, DatumGetTextPP),
					   FIELD(COL_ROUTE_ROUTING_KEY, DatumGetTextPP));
	if (isnull[COL_ROUTE_ROUTING_KEY - 1])
		return PointerGetDatum(tuple);	/* the NOT NULL constraint speaks */
	template = TextDatumGetCString(values[COL_ROUTE_ROUTING_KEY - 1]);
	detail = outbox_route_template_error(template);
	if (detail != NULL)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("routing_key \"%s\" is not a valid template",
						template),
				 errdetail_internal("%s", detail)));
	return PointerGetDatum(tuple);
}
