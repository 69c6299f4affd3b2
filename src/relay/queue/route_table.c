/*-------------------------------------------------------------------------
 *
 * route_table.c
 *		Routes by name: loading them, forgetting those that are gone.
 *
 * A load reads all rows of outbox_route, and makes routes only of those that have
 * changed.  A route whose row has gone is lost: what of it is in memory goes back to
 * being rows, which are read again.  The triggers see to it that there are none; where a
 * claim meets one all the same the route stays, and waits for its row.  All other lost
 * routes are forgotten as soon as nothing points to them.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "name_table.h"
#include "queue.h"
#include "route.h"
#include "route_row.h"
#include "shared.h"
#include "stats.h"
#include "utils/memutils.h"

typedef struct RouteEntry
{
	const char *name;			/* MUST BE FIRST: the route's */
	OutboxRoute *route;
} RouteEntry;

void
outbox_routes_init(OutboxRoutes *routes, OutboxQueue *queue, MemoryContext parent)
{
	memset(routes, 0, sizeof(*routes));
	routes->queue = queue;
	routes->cxt = AllocSetContextCreate(parent, "outbox relay routes",
										ALLOCSET_DEFAULT_SIZES);
	routes->by_name = outbox_name_table_create(routes->cxt, "outbox routes by name",
											   sizeof(RouteEntry));
	outbox_declarations_init(&routes->declarations, routes->cxt);
}

static OutboxRoute *
find_route(const OutboxRoutes *routes, const char *name)
{
	RouteEntry *entry = outbox_name_table_find(routes->by_name, name);

	return entry == NULL ? NULL : entry->route;
}

static void
add_route(OutboxRoutes *routes, OutboxRoute *route)
{
	RouteEntry *entry = hash_search(routes->by_name, &route->name, HASH_ENTER, NULL);

	entry->route = route;
}

/*
 * Of another exchange nothing is known, and no error: where one was declared on this
 * connection by another route of it, it is there.
 */
static void
set_declaration(OutboxRoutes *routes, OutboxRoute *route,
				OutboxDeclaration *declaration)
{
	OutboxDeclaration *before = route->declaration;

	route->declaration = declaration;
	if (before != declaration)
		route->wants = route->awaits = false;
	outbox_declaration_release(&routes->declarations, before);
}

/* A route of which nothing is known waits, and does not block its keys. */
static void
set_lost(OutboxRoutes *routes, OutboxRoute *route)
{
	set_declaration(routes, route, NULL);
	route->lost = true;
	route->paused = false;
	route->broken = false;
	route->ordered = true;
	route->block_on_failed = false;
	route->outlet = &outbox_internal_outlet;
	outbox_route_watch(routes, route);
}

OutboxRoute *
outbox_routes_find(OutboxRoutes *routes, const char *name)
{
	OutboxRoute *route = find_route(routes, name);
	MemoryContext old;

	if (route != NULL)
		return route;
	old = MemoryContextSwitchTo(routes->cxt);
	route = palloc0(sizeof(OutboxRoute));
	route->name = pstrdup(name);
	route->shown = pstrdup("");
	route->exchange = pstrdup("");
	route->routing_key = pstrdup("");
	route->max_attempts = 1;
	route->retention_s = -1;
	route->stats = OUTBOX_STATS_OTHER_ROUTES;
	MemoryContextSwitchTo(old);
	set_lost(routes, route);
	add_route(routes, route);
	return route;
}

static OutboxRoute *
find_failed_route(const OutboxRoutes *routes, const OutboxRoute *route)
{
	OutboxRoute *failed = route->failed_route == NULL ? NULL :
		find_route(routes, route->failed_route);

	return failed == NULL || failed->lost ? NULL : failed;
}

/*
 * Nobody can make a chain without an end, or leave one without its next route,
 * except past the triggers, as logical replication does.
 */
OutboxRoute *
outbox_routes_failed(OutboxRoutes *routes, const OutboxRoute *route,
					 const char **why)
{
	OutboxRoute *failed = find_failed_route(routes, route);
	OutboxRoute *next;
	int			left = (int) hash_get_num_entries(routes->by_name);

	*why = NULL;
	if (route->failed_route == NULL)
		return NULL;
	if (failed == NULL)
	{
		*why = "which does not exist";
		return NULL;
	}
	for (next = failed; next != NULL && next != route && left > 0; left--)
		next = find_failed_route(routes, next);
	if (next == NULL)
		return failed;
	*why = "which leads back to it";
	return NULL;
}

bool
outbox_routes_block(const OutboxRoutes *routes)
{
	return routes->nblocking > 0;
}

bool
outbox_routes_used_since(const OutboxRoutes *routes, const OutboxRoute *but,
						 OutboxMonoTime since)
{
	HASH_SEQ_STATUS status;
	RouteEntry *entry;

	hash_seq_init(&status, routes->by_name);
	while ((entry = hash_seq_search(&status)) != NULL)
	{
		const OutboxRoute *other = entry->route;

		if (other != but && outbox_mono_is_set(other->worked_at) &&
			!outbox_mono_before(other->worked_at, since))
		{
			hash_seq_term(&status);
			return true;
		}
	}
	return false;
}

/* -------------------------------------------------------------------- load */

/* Puts loaded values into a route that items point to; what is the relay's remains. */
static void
update_route(OutboxRoutes *routes, OutboxRoute *route, OutboxRoute *loaded)
{
	char	   *name = route->name; /* by which the table knows it */
	OutboxDeclaration *declaration =
		outbox_declaration_acquire(&routes->declarations, loaded->exchange,
								   loaded->exchange_type);

	if (route->declaration != declaration || route->outlet != loaded->outlet)
	{
		route->broken = false;
		outbox_route_clear_error(route);
	}
	set_declaration(routes, route, declaration);
	route->name = loaded->name;
	outbox_route_free_values(route);
	loaded->name = name;
	memcpy(route, loaded, offsetof(OutboxRoute, node));
	route->lost = false;
	route->stats = outbox_stats_route(route->shown);
	pfree(loaded);
}

static void
merge_route(OutboxRoutes *routes, OutboxRoute *loaded, int64 end,
			OutboxResumed *resumed)
{
	OutboxRoute *route = find_route(routes, loaded->name);
	const OutboxOutlet *outlet;
	bool		waited;
	bool		ordered;
	bool		pipelined;
	bool		blocked;

	if (route == NULL)
	{
		loaded->load = routes->loads;
		loaded->declaration = outbox_declaration_acquire(&routes->declarations,
														 loaded->exchange,
														 loaded->exchange_type);
		loaded->stats = outbox_stats_route(loaded->shown);
		add_route(routes, loaded);
		if (loaded->paused)
			outbox_route_stop(routes, loaded, end);
		return;
	}
	outlet = route->outlet;
	waited = outbox_route_waits(route);
	ordered = route->ordered;
	pipelined = route->pipelined;
	blocked = outbox_route_blocks(route);
	update_route(routes, route, loaded);
	if (ordered && !route->ordered)
		outbox_resume_from(resumed, outbox_queue_free_keys(routes->queue, route));
	/* What waits for its next attempt holds its key from now on. */
	else if (route->ordered && (!ordered || route->outlet != outlet))
		outbox_queue_retries_known(routes->queue, false);
	if (!waited && outbox_route_waits(route))
		outbox_route_stop(routes, route, end);
	else if (waited && !outbox_route_waits(route))
		outbox_route_start(route, resumed);

	/*
	 * Of claims from before nobody has asked whether they may go; or messages
	 * of a key would go together.
	 */
	else if (!waited && ((!blocked && outbox_route_blocks(route)) ||
						 (pipelined && !route->pipelined)))
		outbox_resume_from(resumed, outbox_queue_drop_all(routes->queue, route));
	if (outbox_route_waits(route))
		outbox_route_watch(routes, route);
}

/* OutboxRouteLoaded */
static bool
is_loaded(const char *name, uint64 version, void *arg)
{
	OutboxRoutes *routes = arg;
	OutboxRoute *route = find_route(routes, name);

	if (route == NULL)
		return false;
	route->load = routes->loads;
	return !route->lost && route->version == version;
}

static void
lose_route(OutboxRoutes *routes, OutboxRoute *route, OutboxResumed *resumed)
{
	int64		lowest = outbox_queue_drop_all(routes->queue, route);

	if (lowest != 0)
		outbox_resume_from(resumed, lowest);
	if (route->skip_low != 0)
		outbox_route_start(route, resumed);
	outbox_route_clear_error(route);
	set_lost(routes, route);
}

/* One pass: which rows are gone, and what kinds of routes there are.  True: some are gone. */
static bool
look_at_all(OutboxRoutes *routes, OutboxResumed *resumed)
{
	HASH_SEQ_STATUS status;
	RouteEntry *entry;
	bool		gone = false;

	routes->nblocking = 0;
	hash_seq_init(&status, routes->by_name);
	while ((entry = hash_seq_search(&status)) != NULL)
	{
		OutboxRoute *route = entry->route;

		if (!route->lost && route->load != routes->loads)
		{
			lose_route(routes, route, resumed);
			gone = true;
		}
		routes->nblocking += outbox_route_blocks(route);
	}
	return gone;
}

bool
outbox_routes_load(OutboxRoutes *routes, int64 end, OutboxResumed *resumed)
{
	List	   *changed;
	ListCell   *cell;
	bool		differs;

	memset(resumed, 0, sizeof(*resumed));
	routes->loads++;
	changed = outbox_store_load_routes(routes->cxt, is_loaded, routes);
	foreach(cell, changed)
		merge_route(routes, lfirst(cell), end, resumed);
	differs = look_at_all(routes, resumed) || changed != NIL;
	list_free(changed);
	return differs;
}

/* ------------------------------------------------------------------- forget */

static void
forget_route(OutboxRoutes *routes, OutboxRoute *route)
{
	dlist_delete(&route->node);
	hash_search(routes->by_name, &route->name, HASH_REMOVE, NULL);
	outbox_route_free_values(route);
	pfree(route);
}

bool
outbox_routes_have_lost(OutboxRoutes *routes)
{
	dlist_iter	iter;

	dlist_foreach(iter, &routes->watched)
		if (dlist_container(OutboxRoute, node, iter.cur)->lost)
			return true;
	return false;
}

void
outbox_routes_forget(OutboxRoutes *routes)
{
	dlist_mutable_iter iter;

	dlist_foreach_modify(iter, &routes->watched)
	{
		OutboxRoute *route = dlist_container(OutboxRoute, node, iter.cur);
		bool		needed = route->needed;

		route->needed = false;
		if (route->lost && route->skip_low == 0 && route->nitems == 0 &&
			route->nkeys == 0 && !needed)
			forget_route(routes, route);
	}
}
