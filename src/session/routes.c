/*-------------------------------------------------------------------------
 *
 * routes.c
 *		Routes as a backend of the application sees them.
 *
 * A message is judged by what is committed when its row is written, as by a
 * foreign key, and not by the snapshot of the statement: one that began before a
 * right was revoked, or a REPEATABLE READ transaction, would not see it.
 *
 * Reading the table for each message would cost a third of storing it.  So routes
 * are kept until outbox_route changes.  Its row triggers (outbox_change_trigger(),
 * enabled always) invalidate the table's relcache entry, as does everything that
 * is done to the table itself; the messages of that are taken in before each
 * look.  A change is seen, at the latest, when the COMMIT that made it returns.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/xact.h"
#include "catalog/pg_type.h"
#include "executor/spi.h"
#include "format.h"
#include "owner.h"
#include "routes.h"
#include "utils/acl.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/inval.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/snapmgr.h"

static struct
{
	Oid			schema;			/* InvalidOid: nothing is kept */
	Oid			relid;			/* outbox_route */
	bool		valid;
	MemoryContext cxt;			/* of the routes */
	List	   *routes;			/* of OutboxRoute */
	List	   *missing;		/* names that no route has, MAX_MISSING of them */
} kept;

/* Names that no route has come from elsewhere, and could be any number. */
#define MAX_MISSING	64

/* CacheRegisterRelcacheCallback */
static void
relation_changed(Datum arg, Oid relid)
{
	(void) arg;
	if (relid == InvalidOid || relid == kept.relid)
		kept.valid = false;
}

static void
forget_routes(Oid schema)
{
	if (kept.cxt == NULL)
	{
		kept.cxt = AllocSetContextCreate(CacheMemoryContext, "outbox routes",
										 ALLOCSET_SMALL_SIZES);
		CacheRegisterRelcacheCallback(relation_changed, (Datum) 0);
	}
	MemoryContextReset(kept.cxt);
	kept.routes = kept.missing = NIL;
	kept.schema = schema;
	kept.relid = get_relname_relid("outbox_route", schema);
	/* Before the table is read: what comes in from here on counts as new. */
	kept.valid = true;
}

/*
 * The extension may still be 0.9, until ALTER EXTENSION UPDATE: what that has not is
 * read out of the row as a whole, so that it is NULL then.
 */
#define ROUTE_EXCHANGE		1
#define ROUTE_ROUTING_KEY	2
#define ROUTE_ORDERED		3
#define ROUTE_ROLES			4
#define ROUTE_SEQUENCE		5
#define ROUTE_RELAY			6
#define ROUTE_MAX_PENDING	7
#define ROUTE_FORMAT		8
#define ROUTE_OPTIONS		9
#define ROUTE_SLOT			10
#define ROUTE_SQL \
	"SELECT coalesce(exchange, ''), coalesce(routing_key, '')," \
	" ordering OPERATOR(pg_catalog.=) 'key'::pg_catalog.text," \
	" enqueue_roles::pg_catalog.name[]," \
	" pg_catalog.to_jsonb(r.*) OPERATOR(pg_catalog.->>) 'sequence'::pg_catalog.text," \
	" pg_catalog.to_jsonb(r.*) OPERATOR(pg_catalog.->>) 'relay'::pg_catalog.text," \
	" (pg_catalog.to_jsonb(r.*) OPERATOR(pg_catalog.->>) 'max_pending'::pg_catalog.text)" \
	"  ::pg_catalog.int4," \
	" pg_catalog.to_jsonb(r.*) OPERATOR(pg_catalog.->>) 'format'::pg_catalog.text," \
	" pg_catalog.to_jsonb(r.*) OPERATOR(pg_catalog.->) 'format_options'::pg_catalog.text," \
	" pg_catalog.to_jsonb(r.*) OPERATOR(pg_catalog.->>) 'slot'::pg_catalog.text" \
	" FROM %s.outbox_route r WHERE name OPERATOR(pg_catalog.=) $1"

/* By name: a role may be made, or made anew, while this is kept. */
static void
set_roles(OutboxRoute *route, Datum array)
{
	Datum	   *names;
	bool	   *nulls;
	int			count;

	deconstruct_array(DatumGetArrayTypeP(array), NAMEOID, NAMEDATALEN, false,
					  TYPALIGN_CHAR, &names, &nulls, &count);
	route->roles = palloc(sizeof(NameData) * Max(count, 1));
	route->nroles = 0;
	for (int i = 0; i < count; i++)
		if (!nulls[i])
			route->roles[route->nroles++] = *DatumGetName(names[i]);
}

static OutboxNumbering
numbering_of(const char *sequence)
{
	if (sequence == NULL)
		return OUTBOX_NUMBER_NONE;
	return strcmp(sequence, "key") == 0 ? OUTBOX_NUMBER_KEY : OUTBOX_NUMBER_SEQ;
}

/* One that has an error, past the trigger, is broken, and refuses each message. */
static OutboxFormat *
make_format(HeapTuple tuple, TupleDesc desc)
{
	bool		isnull;
	Datum		options = SPI_getbinval(tuple, desc, ROUTE_OPTIONS, &isnull);

	return outbox_format_make(kept.cxt, SPI_getvalue(tuple, desc, ROUTE_FORMAT),
							  isnull ? NULL : DatumGetJsonbP(options), NULL);
}

static OutboxRoute *
make_route(const char *name, HeapTuple tuple, TupleDesc desc)
{
	MemoryContext old = MemoryContextSwitchTo(kept.cxt);
	OutboxRoute *route = palloc0(sizeof(OutboxRoute));
	const char *relay;
	bool		isnull;
	Datum		value;

	route->name = pstrdup(name);
	route->exchange = SPI_getvalue(tuple, desc, ROUTE_EXCHANGE);
	route->routing_key = SPI_getvalue(tuple, desc, ROUTE_ROUTING_KEY);
	value = SPI_getbinval(tuple, desc, ROUTE_ORDERED, &isnull);
	route->ordered = !isnull && DatumGetBool(value);
	route->numbering = numbering_of(SPI_getvalue(tuple, desc, ROUTE_SEQUENCE));
	relay = SPI_getvalue(tuple, desc, ROUTE_RELAY);
	route->external = relay != NULL && strcmp(relay, "external") == 0;
	route->cdc = relay != NULL && strcmp(relay, "cdc") == 0;
	route->slot = SPI_getvalue(tuple, desc, ROUTE_SLOT);
	value = SPI_getbinval(tuple, desc, ROUTE_MAX_PENDING, &isnull);
	route->max_pending = isnull ? 0 : DatumGetInt32(value);
	route->format = make_format(tuple, desc);
	route->nroles = -1;
	value = SPI_getbinval(tuple, desc, ROUTE_ROLES, &isnull);
	if (!isnull)
		set_roles(route, value);
	kept.routes = lappend(kept.routes, route);
	MemoryContextSwitchTo(old);
	return route;
}

/*
 * Not a kept plan: this runs once for each route of a session, and after each
 * change of one.
 */
static OutboxRoute *
load_route(Oid schema, Oid owner, const char *name)
{
	Oid			types[1] = {TEXTOID};
	Datum		values[1] = {CStringGetTextDatum(name)};
	char	   *sql = psprintf(ROUTE_SQL,
							   quote_identifier(get_namespace_name(schema)));
	OutboxRoute *route = NULL;
	OutboxActing acting;

	SPI_connect();
	outbox_act_begin(&acting, owner, true);
	PushActiveSnapshot(GetLatestSnapshot());
	if (SPI_execute_with_args(sql, 1, types, values, NULL, true, 1) != SPI_OK_SELECT)
		elog(ERROR, "could not read outbox_route");
	if (SPI_processed > 0)
		route = make_route(name, SPI_tuptable->vals[0], SPI_tuptable->tupdesc);
	PopActiveSnapshot();
	outbox_act_end(&acting);
	SPI_finish();
	return route;
}

static const OutboxRoute *
find_route(Oid schema, Oid owner, const char *name)
{
	ListCell   *cell;

	AcceptInvalidationMessages();
	if (!kept.valid || kept.schema != schema)
		forget_routes(schema);
	foreach(cell, kept.routes)
	{
		OutboxRoute *route = lfirst(cell);

		if (strcmp(route->name, name) == 0)
			return route;
	}
	return load_route(schema, owner, name);
}

static bool
is_known_missing(const char *name)
{
	ListCell   *cell;

	if (!kept.valid)
		return false;
	foreach(cell, kept.missing)
		if (strcmp(lfirst(cell), name) == 0)
			return true;
	return false;
}

bool
outbox_route_exists(Oid schema, Oid owner, const char *name)
{
	MemoryContext old;

	AcceptInvalidationMessages();
	if (kept.schema == schema && is_known_missing(name))
		return false;
	if (find_route(schema, owner, name) != NULL)
		return true;
	if (list_length(kept.missing) < MAX_MISSING)
	{
		old = MemoryContextSwitchTo(kept.cxt);
		kept.missing = lappend(kept.missing, pstrdup(name));
		MemoryContextSwitchTo(old);
	}
	return false;
}

static bool
may_use(const OutboxRoute *route, Oid user)
{
	for (int i = 0; i < route->nroles; i++)
	{
		Oid			role = get_role_oid(NameStr(route->roles[i]), true);

		/* A role that does not exist (any more) lets nobody in. */
		if (OidIsValid(role) && has_privs_of_role(user, role))
			return true;
	}
	return route->nroles < 0;
}

const OutboxRoute *
outbox_usable_route(Oid schema, Oid owner, const char *name, Oid user)
{
	const OutboxRoute *route = find_route(schema, owner, name);

	if (route == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_OBJECT),
				 errmsg("route \"%s\" does not exist", name),
				 errhint("An administrator can add it with INSERT INTO outbox_route.")));
	if (OidIsValid(user) && !may_use(route, user))
		ereport(ERROR,
				(errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
				 errmsg("permission denied for route \"%s\"", name),
				 errhint("An administrator can add the role to enqueue_roles in outbox_route.")));
	return route;
}
