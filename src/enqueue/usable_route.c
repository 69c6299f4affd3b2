/*-------------------------------------------------------------------------
 *
 * usable_route.c
 *		Routes as a backend of the application sees them.
 *
 * A message is judged by what is committed when its row is written, as by a foreign key,
 * and not by the snapshot of the statement: one that began before a right was revoked, or
 * a REPEATABLE READ transaction, would not see it.
 *
 * Reading the table for each message would cost a third of storing it.  So routes are
 * kept until outbox_route changes.  Its row triggers (outbox_change_trigger(), enabled
 * always) invalidate the table's relcache entry, as does all that is done to the table
 * itself; such messages are taken in before each look.  A change is seen, at the latest,
 * when the COMMIT that made it returns.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "catalog/pg_type.h"
#include "enqueue_internal.h"
#include "name_table.h"
#include "own_relations.h"
#include "route_row.h"
#include "utils/acl.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/inval.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "waiters.h"

/* Roles whose members may do something with a route. */
typedef struct Roles
{
	int			n;				/* -1: all roles */
	NameData   *names;
	Oid		   *oids;			/* that they were of when they were written */
} Roles;

typedef struct SessionRoute
{
	OutboxRoute route;
	Roles		enqueue;
	Roles		relay;
} SessionRoute;

typedef struct RouteEntry
{
	const char *name;			/* MUST BE FIRST: the route's */
	SessionRoute *route;
} RouteEntry;

typedef struct RouteName
{
	char	   *name;
	uint64		hash;			/* outbox_recent_hash() */
} RouteName;

static struct
{
	Oid			relid;			/* outbox_route */
	bool		valid;
	MemoryContext cxt;			/* of the routes */
	HTAB	   *routes;			/* those that were asked for; of RouteEntry */
	RouteName  *names;			/* of all routes, sorted; NULL: not read */
	int			nnames;
} kept;

/* CacheRegisterRelcacheCallback */
static void
relation_changed(Datum arg, Oid relid)
{
	(void) arg;
	if (relid == InvalidOid || relid == kept.relid)
		kept.valid = false;
}

/* Takes in what has changed, before each look. */
static void
refresh(void)
{
	AcceptInvalidationMessages();
	if (kept.valid)
		return;
	if (kept.cxt == NULL)
	{
		kept.cxt = AllocSetContextCreate(CacheMemoryContext, "outbox routes",
										 ALLOCSET_SMALL_SIZES);
		CacheRegisterRelcacheCallback(relation_changed, (Datum) 0);
	}
	MemoryContextReset(kept.cxt);
	kept.routes = outbox_name_table_create(kept.cxt, "outbox routes by name",
										   sizeof(RouteEntry));
	kept.names = NULL;
	kept.relid = outbox_relation(OUTBOX_REL_ROUTE);
	/* Before the table is read: what comes in from here on counts as new. */
	kept.valid = true;
}

#define ROUTE_SQL \
	"SELECT r.* FROM outbox_internal.outbox_route r" \
	" WHERE r.name OPERATOR(pg_catalog.=) $1"

/* Looked up by name at each use: a role may be renamed or dropped while this is kept. */
static void
set_roles(Roles *roles, HeapTuple tuple, TupleDesc desc, OutboxRouteColumn column,
		  OutboxRouteColumn oid_column)
{
	bool		isnull;
	Datum		array = SPI_getbinval(tuple, desc, column, &isnull);
	Datum	   *names;
	bool	   *nulls;
	int			count;

	roles->n = -1;
	if (isnull)
		return;
	deconstruct_array(DatumGetArrayTypeP(array), NAMEOID, NAMEDATALEN, false,
					  TYPALIGN_CHAR, &names, &nulls, &count);
	roles->names = palloc0(sizeof(NameData) * Max(count, 1));
	roles->oids = palloc0(sizeof(Oid) * Max(count, 1));
	roles->n = count;
	for (int i = 0; i < count; i++)
		if (!nulls[i])
			roles->names[i] = *DatumGetName(names[i]);
	array = SPI_getbinval(tuple, desc, oid_column, &isnull);
	if (isnull)
		return;
	deconstruct_array(DatumGetArrayTypeP(array), OIDOID, sizeof(Oid), true,
					  TYPALIGN_INT, &names, &nulls, &count);
	for (int i = 0; i < Min(count, roles->n); i++)
		if (!nulls[i])
			roles->oids[i] = DatumGetObjectId(names[i]);
}

static SessionRoute *
make_route(const char *name, HeapTuple tuple, TupleDesc desc)
{
	SessionRoute *route = MemoryContextAlloc(kept.cxt, sizeof(SessionRoute));
	RouteEntry *entry;
	MemoryContext old;

	outbox_route_load(&route->route, tuple, desc, kept.cxt, false);
	old = MemoryContextSwitchTo(kept.cxt);

	/*
	 * As it was asked for, and is found again, whatever the column's
	 * collation is.
	 */
	route->route.name = pstrdup(name);
	set_roles(&route->enqueue, tuple, desc, OUTBOX_ROUTE_ENQUEUE_ROLES,
			  OUTBOX_ROUTE_ENQUEUE_ROLE_OIDS);
	set_roles(&route->relay, tuple, desc, OUTBOX_ROUTE_RELAY_ROLES,
			  OUTBOX_ROUTE_RELAY_ROLE_OIDS);
	MemoryContextSwitchTo(old);
	entry = hash_search(kept.routes, &route->route.name, HASH_ENTER, NULL);
	entry->route = route;
	return route;
}

static const SessionRoute *
find_route(Oid owner, const char *name)
{
	SessionRoute *route;
	RouteEntry *entry;
	OutboxActing acting;

	refresh();
	entry = outbox_name_table_find(kept.routes, name);
	if (entry != NULL)
		return entry->route;
	outbox_look_begin(&acting, owner, ROUTE_SQL, name);
	route = SPI_processed == 0 ? NULL :
		make_route(name, SPI_tuptable->vals[0], SPI_tuptable->tupdesc);
	outbox_look_end(&acting);
	return route;
}

#define NAMES_SQL	"SELECT name FROM outbox_internal.outbox_route"

/* qsort() and bsearch() */
static int
compare_names(const void *a, const void *b)
{
	return strcmp(((const RouteName *) a)->name, ((const RouteName *) b)->name);
}

/*
 * For names that come from elsewhere, any number of them: those that no route has are not
 * kept, but all that there are.
 */
static void
need_names(Oid owner)
{
	RouteName  *names;
	OutboxActing acting;

	refresh();
	if (kept.names != NULL)
		return;
	outbox_look_begin(&acting, owner, NAMES_SQL, NULL);
	kept.nnames = (int) SPI_processed;
	names = MemoryContextAlloc(kept.cxt, sizeof(RouteName) * Max(kept.nnames, 1));
	for (int i = 0; i < kept.nnames; i++)
	{
		names[i].name = MemoryContextStrdup(kept.cxt,
											SPI_getvalue(SPI_tuptable->vals[i],
														 SPI_tuptable->tupdesc, 1));
		names[i].hash = outbox_recent_hash(names[i].name);
	}
	outbox_look_end(&acting);
	qsort(names, kept.nnames, sizeof(RouteName), compare_names);
	kept.names = names;
}

char *
outbox_route_of_hash(Oid owner, uint64 hash)
{
	need_names(owner);
	for (int i = 0; i < kept.nnames; i++)
		if (kept.names[i].hash == hash)
			return pstrdup(kept.names[i].name);
	return NULL;
}

bool
outbox_route_exists(Oid owner, const char *name)
{
	RouteName	wanted = {unconstify(char *, name), 0};

	need_names(owner);
	return bsearch(&wanted, kept.names, kept.nnames, sizeof(RouteName),
				   compare_names) != NULL;
}

/* A role that does not exist, or has got the name of another, gives no right. */
static bool
is_among(Oid user, const Roles *roles)
{
	for (int i = 0; i < roles->n; i++)
	{
		Oid			role = get_role_oid(NameStr(roles->names[i]), true);

		if (OidIsValid(role) && role == roles->oids[i] &&
			has_privs_of_role(user, role))
			return true;
	}
	return roles->n < 0;
}

bool
outbox_route_allows(Oid owner, const char *name, Oid user)
{
	const SessionRoute *route = find_route(owner, name);

	return route != NULL && is_among(user, &route->enqueue);
}

static void
fail_denied(const char *name, const char *column)
{
	ereport(ERROR,
			(errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
			 errmsg("permission denied for route \"%s\"", name),
			 errhint("An administrator can add the role to %s in outbox_route.",
					 column)));
}

/* NULL is no name of a route. */
static const SessionRoute *
known_route(Oid owner, const char *name)
{
	const SessionRoute *route = name == NULL ? NULL : find_route(owner, name);

	if (route == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_OBJECT),
				 errmsg("route \"%s\" does not exist", name == NULL ? "NULL" : name),
				 errhint("An administrator can add it with INSERT INTO outbox_route.")));
	return route;
}

const OutboxRoute *
outbox_permitted_route(Oid owner, const char *name, Oid user)
{
	const SessionRoute *route = known_route(owner, name);

	if (OidIsValid(user) && !is_among(user, &route->enqueue))
		fail_denied(name, "enqueue_roles");
	return &route->route;
}

const OutboxRoute *
outbox_usable_route(Oid owner, const char *name, Oid user)
{
	/*
	 * Before it is looked up: what was done to it under the lock is seen
	 * then.
	 */
	(void) outbox_route_lock(name, true);
	return outbox_permitted_route(owner, name, user);
}

const OutboxRoute *
outbox_relay_route(Oid owner, const char *name, Oid user)
{
	const SessionRoute *route = known_route(owner, name);

	if (!is_among(user, &route->relay))
		fail_denied(name, "relay_roles");
	return &route->route;
}
