/*-------------------------------------------------------------------------
 *
 * store_enqueue.c
 *		SQL that runs in the application's own transaction.
 *
 * The caller has EXECUTE on outbox_enqueue() and needs no right on any table:
 * the statements run as the owner of the outbox table, as foreign key checks
 * do.  An error leaves the user id to the transaction's abort, which restores
 * it.  They are planned with the caller's search_path, so every name in them,
 * operators too, has its schema.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "access/xact.h"
#include "catalog/pg_class.h"
#include "catalog/pg_type.h"
#include "executor/spi.h"
#include "miscadmin.h"
#include "store.h"
#include "utils/acl.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/inval.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/syscache.h"

/* Everything that a backend remembers about one schema's outbox. */
static struct
{
	Oid			schema;
	SPIPlanPtr	insert;
	SPIPlanPtr	select_route;
	MemoryContext routes_cxt;
	List	   *routes;			/* of OutboxRoute */
	Oid			route_relid;	/* outbox_route */
	bool		routes_valid;
} cache;

static bool callback_registered = false;

static void
forget_routes(Datum arg, Oid relid)
{
	(void) arg;
	if (relid == InvalidOid || relid == cache.route_relid)
		cache.routes_valid = false;
}

static SPIPlanPtr
prepare(const char *sql, int nargs, Oid *types)
{
	SPIPlanPtr	plan = SPI_prepare(sql, nargs, types);

	if (plan == NULL)
		elog(ERROR, "SPI_prepare failed: %s",
			 SPI_result_code_string(SPI_result));
	if (SPI_keepplan(plan) != 0)
		elog(ERROR, "SPI_keepplan failed");
	return plan;
}

/* A backend normally sees one schema for its whole life. */
static void
use_schema(Oid schema)
{
	if (cache.schema == schema && OidIsValid(schema))
		return;
	if (!callback_registered)
	{
		CacheRegisterRelcacheCallback(forget_routes, (Datum) 0);
		callback_registered = true;
	}
	if (cache.insert)
		SPI_freeplan(cache.insert);
	if (cache.select_route)
		SPI_freeplan(cache.select_route);
	cache.insert = cache.select_route = NULL;
	cache.routes_valid = false;
	cache.schema = schema;
	cache.route_relid = InvalidOid;
	if (cache.routes_cxt == NULL)
		cache.routes_cxt = AllocSetContextCreate(CacheMemoryContext,
												 "outbox routes",
												 ALLOCSET_SMALL_SIZES);
}

/* Owner of the outbox table; an error when the table is gone. */
static Oid
table_owner(Oid schema)
{
	Oid			relid = get_relname_relid("outbox", schema);
	HeapTuple	tuple;
	Oid			owner;

	tuple = SearchSysCache1(RELOID, ObjectIdGetDatum(relid));
	if (!HeapTupleIsValid(tuple))
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_TABLE),
				 errmsg("table \"outbox\" of the extension \"outbox\" does not exist")));
	owner = ((Form_pg_class) GETSTRUCT(tuple))->relowner;
	ReleaseSysCache(tuple);
	return owner;
}

static int
execute_as_owner(SPIPlanPtr plan, Datum *values, const char *nulls,
				 bool read_only)
{
	Oid			save_userid;
	int			save_context;
	int			result;

	GetUserIdAndSecContext(&save_userid, &save_context);
	SetUserIdAndSecContext(table_owner(cache.schema),
						   save_context | SECURITY_LOCAL_USERID_CHANGE |
						   SECURITY_NOFORCE_RLS);
	result = SPI_execute_plan(plan, values, nulls, read_only, 0);
	SetUserIdAndSecContext(save_userid, save_context);
	return result;
}

static const char *
quoted_schema(Oid schema)
{
	char	   *name = get_namespace_name(schema);

	if (name == NULL)
		elog(ERROR, "cache lookup failed for schema %u", schema);
	return quote_identifier(name);
}

/* What the statement gives a value; the rest has defaults. */
typedef struct GivenColumn
{
	int			column;
	Oid			type;
} GivenColumn;

static const GivenColumn given[] = {
	{COL_ID, UUIDOID},
	{COL_ROUTE, TEXTOID},
	{COL_EVENT_TYPE, TEXTOID},
	{COL_AGGREGATE_TYPE, TEXTOID},
	{COL_AGGREGATE_ID, TEXTOID},
	{COL_PAYLOAD, JSONBOID},
	{COL_BODY, BYTEAOID},
	{COL_HEADERS, JSONBOID},
	{COL_PROPERTIES, JSONBOID},
	{COL_ROUTING_KEY, TEXTOID},
	{COL_AVAILABLE_AT, TIMESTAMPTZOID},
	{COL_ORIGIN, INT8OID}
};

void
outbox_store_enqueue(Oid schema, const Datum *values, const bool *isnull)
{
	Oid			types[lengthof(given)];
	Datum		params[lengthof(given)];
	char		nulls[lengthof(given)];
	int			result;

	for (int i = 0; i < lengthof(given); i++)
	{
		types[i] = given[i].type;
		params[i] = values[given[i].column - 1];
		nulls[i] = isnull[given[i].column - 1] ? 'n' : ' ';
	}
	SPI_connect();
	use_schema(schema);
	if (cache.insert == NULL)
	{
		/* In the order of given. */
		char	   *sql = psprintf("INSERT INTO %s.outbox (id, route,"
								   " event_type, aggregate_type, aggregate_id,"
								   " payload, body, headers, properties,"
								   " routing_key, available_at, origin)"
								   " VALUES ($1, $2, $3, $4, $5, $6, $7, $8,"
								   " $9, $10, $11, $12)",
								   quoted_schema(schema));

		cache.insert = prepare(sql, lengthof(given), types);
	}
	result = execute_as_owner(cache.insert, params, nulls, false);
	if (result != SPI_OK_INSERT)
		elog(ERROR, "could not insert into outbox: %s",
			 SPI_result_code_string(result));
	SPI_finish();
}

/* Columns of load_route's statement. */
#define ROUTE_EXCHANGE		1
#define ROUTE_ROUTING_KEY	2
#define ROUTE_ORDERING		3
#define ROUTE_ROLES			4

static void
set_roles(OutboxRoute *route, Datum array)
{
	Datum	   *names;
	int			count = 0;

	deconstruct_array(DatumGetArrayTypeP(array), NAMEOID, NAMEDATALEN, false,
					  TYPALIGN_CHAR, &names, NULL, &count);
	route->roles = palloc(sizeof(Oid) * Max(count, 1));
	route->nroles = 0;
	for (int i = 0; i < count; i++)
	{
		Oid			role = get_role_oid(NameStr(*DatumGetName(names[i])), true);

		/* A role that does not exist (any more) lets nobody in. */
		if (OidIsValid(role))
			route->roles[route->nroles++] = role;
	}
}

static OutboxRoute *
load_route(const char *name)
{
	Oid			types[1] = {TEXTOID};
	Datum		values[1] = {CStringGetTextDatum(name)};
	OutboxRoute *route = NULL;

	SPI_connect();
	if (cache.select_route == NULL)
	{
		/*
		 * The operator by its full name: this is planned with the search_path
		 * of the caller and runs as the owner.
		 */
		char	   *sql = psprintf("SELECT exchange, routing_key, ordering,"
								   " enqueue_roles FROM %s.outbox_route"
								   " WHERE name OPERATOR(pg_catalog.=) $1",
								   quoted_schema(cache.schema));

		cache.select_route = prepare(sql, 1, types);
	}
	if (execute_as_owner(cache.select_route, values, NULL, true) != SPI_OK_SELECT)
		elog(ERROR, "could not read outbox_route");
	if (SPI_processed > 0)
	{
		HeapTuple	tuple = SPI_tuptable->vals[0];
		TupleDesc	desc = SPI_tuptable->tupdesc;
		MemoryContext old = MemoryContextSwitchTo(cache.routes_cxt);
		bool		isnull;
		Datum		roles;

		route = palloc0(sizeof(OutboxRoute));
		route->name = pstrdup(name);
		route->exchange = SPI_getvalue(tuple, desc, ROUTE_EXCHANGE);
		route->routing_key = MemoryContextStrdup(cache.routes_cxt,
												 SPI_getvalue(tuple, desc, ROUTE_ROUTING_KEY));
		route->exchange = MemoryContextStrdup(cache.routes_cxt,
											  route->exchange);
		route->ordered = strcmp(SPI_getvalue(tuple, desc, ROUTE_ORDERING),
								"key") == 0;
		route->nroles = -1;
		roles = SPI_getbinval(tuple, desc, ROUTE_ROLES, &isnull);
		if (!isnull)
			set_roles(route, roles);
		cache.routes = lappend(cache.routes, route);
		/* An old snapshot's word holds for this call only. */
		if (IsolationUsesXactSnapshot())
			cache.routes_valid = false;
		MemoryContextSwitchTo(old);
	}
	SPI_finish();
	return route;
}

const OutboxRoute *
outbox_store_find_route(Oid schema, const char *name)
{
	ListCell   *cell;

	use_schema(schema);
	if (!cache.routes_valid)
	{
		MemoryContextReset(cache.routes_cxt);
		cache.routes = NIL;
		cache.route_relid = get_relname_relid("outbox_route", schema);
		cache.routes_valid = true;
	}
	foreach(cell, cache.routes)
	{
		OutboxRoute *route = lfirst(cell);

		if (strcmp(route->name, name) == 0)
			return route;
	}
	return load_route(name);
}
