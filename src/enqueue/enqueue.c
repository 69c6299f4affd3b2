/*-------------------------------------------------------------------------
 *
 * enqueue.c
 *		outbox_enqueue() and outbox_enqueue_bytes(), and the way of a row that
 *		they share with the other functions that make messages.
 *
 * They make a row of their arguments and INSERT it as the owner of the table
 * (insert.c).  What every message needs (checks, locks of keys, the
 * wake-up) is in the row trigger, so that INSERT and COPY are equal to them.  Here
 * is what the trigger comes too late for or cannot see: whether the caller may use
 * the route, since the trigger sees the owner; with outbox.strict_keys the lock of
 * the key before seq is drawn; the id, which is the result; and content_type,
 * which is an argument here and a property in the row.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/table.h"
#include "columns.h"
#include "compat.h"
#include "encode_json.h"
#include "enqueue.h"
#include "enqueue_internal.h"
#include "fmgr.h"
#include "key_hash.h"
#include "miscadmin.h"
#include "settings.h"
#include "utils/builtins.h"
#include "utils/json.h"
#include "utils/jsonb.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"

PG_FUNCTION_INFO_V1(outbox_enqueue);
PG_FUNCTION_INFO_V1(outbox_enqueue_bytes);
PG_FUNCTION_INFO_V1(outbox_key_hash);

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

Datum
outbox_add_content_type(const text *type, Datum properties, bool *isnull)
{
	StringInfoData json;
	Datum		object;

	/* The default needs no storing: it is what bytes are sent as. */
	if (type == NULL ||
		(VARSIZE_ANY_EXHDR(type) == strlen("application/octet-stream") &&
		 memcmp(VARDATA_ANY(type), "application/octet-stream",
				strlen("application/octet-stream")) == 0))
		return properties;

	/*
	 * As text, since the interface that builds a jsonb is another one from 19
	 * on.
	 */
	initStringInfo(&json);
	appendStringInfoString(&json, "{\"content_type\": ");
	escape_json(&json, text_to_cstring(type));
	appendStringInfoChar(&json, '}');
	object = DirectFunctionCall1(jsonb_in, CStringGetDatum(json.data));
	/* Of JSON null the row trigger makes NULL, but what is here is an object. */
	if (*isnull || outbox_is_json_null(DatumGetJsonbP(properties)))
	{
		*isnull = false;
		return object;
	}
	return DirectFunctionCall2(jsonb_concat, object, properties);
}

Oid
outbox_find_table(Oid schema)
{
	Oid			relid = get_relname_relid("outbox", schema);

	if (!OidIsValid(relid))
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_TABLE),
				 errmsg("table \"outbox\" of the extension \"outbox\" does not exist")));
	return relid;
}

/* usable_route.c says why the lock is taken before the route is judged. */
Relation
outbox_open_table(Oid schema)
{
	PreventCommandIfReadOnly("INSERT");
	return table_open(outbox_find_table(schema), RowExclusiveLock);
}

/* May the role use it?  Here and not in the trigger, which sees the owner. */
static const OutboxRoute *
check_route(Relation rel, Oid role, const Datum *values, const bool *isnull)
{
	if (isnull[COL_ROUTE - 1])
		ereport(ERROR,
				(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
				 errmsg("route must not be null")));
	return outbox_usable_route(RelationGetNamespace(rel), rel->rd_rel->relowner,
							   TextDatumGetCString(values[COL_ROUTE - 1]), role);
}

void
outbox_enqueue_check_route(Relation rel, Oid role, const Datum *values,
						   const bool *isnull)
{
	(void) check_route(rel, role, values, isnull);
}

static void
lock_key(const Datum *values, const bool *isnull)
{
	if (isnull[COL_AGGREGATE_ID - 1])
		return;
	outbox_lock_key(outbox_hash_key(DatumGetTextPP(values[COL_ROUTE - 1]),
									isnull[COL_AGGREGATE_TYPE - 1] ? NULL :
									DatumGetTextPP(values[COL_AGGREGATE_TYPE - 1]),
									DatumGetTextPP(values[COL_AGGREGATE_ID - 1])));
}

void
outbox_enqueue_prepare(Relation rel, Oid role, Datum *values, bool *isnull)
{
	const OutboxRoute *route = check_route(rel, role, values, isnull);

	/* Before the INSERT draws seq. */
	if (outbox_strict_keys && route->ordered)
		lock_key(values, isnull);
	if (isnull[COL_ID - 1])
	{
		pg_uuid_t  *id = palloc(sizeof(pg_uuid_t));

		outbox_make_uuid7(id);
		values[COL_ID - 1] = UUIDPGetDatum(id);
		isnull[COL_ID - 1] = false;
	}
}

bool
outbox_enqueue_row(Relation rel, Oid role, Datum *values, bool *isnull)
{
	outbox_enqueue_prepare(rel, role, values, isnull);
	return outbox_insert_row(rel, values, isnull);
}

static Datum
enqueue(FunctionCallInfo fcinfo, bool bytes)
{
	Relation	rel = outbox_open_table(get_func_namespace(fcinfo->flinfo->fn_oid));
	Datum		values[OUTBOX_COLUMNS];
	bool		isnull[OUTBOX_COLUMNS];
	bool		stored;

	memset(isnull, true, sizeof(isnull));
	pass(fcinfo, ARG_MESSAGE_ID, COL_ID, values, isnull);
	pass(fcinfo, ARG_ROUTE, COL_ROUTE, values, isnull);
	pass(fcinfo, 0, COL_EVENT_TYPE, values, isnull);
	pass(fcinfo, ARG_AGGREGATE_TYPE, COL_AGGREGATE_TYPE, values, isnull);
	pass(fcinfo, ARG_AGGREGATE_ID, COL_AGGREGATE_ID, values, isnull);
	pass(fcinfo, 1, bytes ? COL_BODY : COL_PAYLOAD, values, isnull);
	pass(fcinfo, ARG_HEADERS, COL_HEADERS, values, isnull);
	pass(fcinfo, ARG_PROPERTIES, COL_PROPERTIES, values, isnull);
	if (bytes && !PG_ARGISNULL(ARG_CONTENT_TYPE))
		values[COL_PROPERTIES - 1] =
			outbox_add_content_type(PG_GETARG_TEXT_PP(ARG_CONTENT_TYPE),
									values[COL_PROPERTIES - 1],
									&isnull[COL_PROPERTIES - 1]);
	pass(fcinfo, ARG_ROUTING_KEY, COL_ROUTING_KEY, values, isnull);
	pass(fcinfo, ARG_AVAILABLE_AT, COL_AVAILABLE_AT, values, isnull);

	stored = outbox_enqueue_row(rel, GetUserId(), values, isnull);
	table_close(rel, NoLock);
	/* A trigger of the administrator's may have left it out. */
	if (!stored)
		PG_RETURN_NULL();
	PG_RETURN_DATUM(values[COL_ID - 1]);
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

Datum
outbox_key_hash(PG_FUNCTION_ARGS)
{
	if (PG_ARGISNULL(0) || PG_ARGISNULL(2))
		PG_RETURN_NULL();
	PG_RETURN_INT64(outbox_hash_key(PG_GETARG_TEXT_PP(0),
									PG_ARGISNULL(1) ? NULL : PG_GETARG_TEXT_PP(1),
									PG_GETARG_TEXT_PP(2)));
}
