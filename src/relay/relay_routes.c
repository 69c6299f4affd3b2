/*-------------------------------------------------------------------------
 *
 * relay_routes.c
 *		Routes: which ones wait, and why.
 *
 * A route waits while it is paused, and after a destination error (its
 * exchange does not exist, we may not write to it) until its backoff is over.
 * Its messages are dropped from memory and left out of claims; where they have
 * to be read again is kept in skip_low.  Other routes are not affected.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "backoff.h"
#include "common/pg_prng.h"
#include "relay_internal.h"
#include "settings.h"
#include "utils/memutils.h"
#include "utils/timestamp.h"

static OutboxRoute *
find_route(List *routes, const char *name)
{
	ListCell   *cell;

	foreach(cell, routes)
	{
		OutboxRoute *route = lfirst(cell);

		if (strcmp(route->name, name) == 0)
			return route;
	}
	return NULL;
}

/*
 * A message whose route has gone (its foreign key was bypassed) waits like
 * one whose exchange has.
 */
OutboxRoute *
outbox_relay_find_route(OutboxRelay *relay, const char *name)
{
	OutboxRoute *route = find_route(relay->routes, name);
	MemoryContext old;

	if (route != NULL)
		return route;
	old = MemoryContextSwitchTo(relay->cxt);
	route = palloc0(sizeof(OutboxRoute));
	route->name = pstrdup(name);
	route->shown = pstrdup("");
	route->exchange = pstrdup("");
	route->routing_key = pstrdup("");
	route->max_attempts = 1;
	route->ordered = true;
	route->paused = true;
	relay->routes = lappend(relay->routes, route);
	MemoryContextSwitchTo(old);
	return route;
}

bool
outbox_relay_route_waits(const OutboxRoute *route)
{
	return route->paused || route->broken;
}

/* Rows of the route from seq on are in the table only. */
void
outbox_relay_route_skip(OutboxRoute *route, int64 seq)
{
	if (route->skip_low == 0 || seq < route->skip_low)
		route->skip_low = seq;
}

/* A claim from seq on has left the rows of waiting routes out. */
void
outbox_relay_routes_passed_over(OutboxRelay *relay, int64 seq)
{
	ListCell   *cell;

	foreach(cell, relay->routes)
	{
		OutboxRoute *route = lfirst(cell);

		if (outbox_relay_route_waits(route))
			outbox_relay_route_skip(route, Max(seq, 1));
	}
}

/* The route's messages leave memory, and are read again when it can go on. */
static void
stop_route(OutboxRelay *relay, OutboxRoute *route)
{
	int64		lowest = outbox_queue_drop_all(relay->queue, route);

	/* From now on claims pass its rows over, wherever they are. */
	if (lowest == 0 || lowest > relay->cursor)
		lowest = relay->cursor + 1;
	outbox_relay_route_skip(route, lowest);
}

static void
start_route(OutboxRelay *relay, OutboxRoute *route)
{
	if (route->skip_low != 0)
		outbox_relay_rescan(relay, route->skip_low, PG_INT64_MAX);
	route->skip_low = 0;
	relay->find_next_due = true;
	relay->due_cursor = DT_NOBEGIN;
	relay->due_cursor_seq = 0;
}

/* Puts loaded values into a route that items point to. */
static void
update_route(OutboxRoute *route, OutboxRoute *loaded)
{
	bool		same_exchange = strcmp(route->exchange, loaded->exchange) == 0;

	if (!same_exchange)
	{
		route->broken = false;
		route->failures = 0;
	}
	pfree(route->shown);
	pfree(route->exchange);
	pfree(route->routing_key);
	if (route->exchange_type != NULL)
		pfree(route->exchange_type);
	route->shown = loaded->shown;
	route->exchange = loaded->exchange;
	route->exchange_type = loaded->exchange_type;
	route->routing_key = loaded->routing_key;
	route->max_attempts = loaded->max_attempts;
	route->ordered = loaded->ordered;
	route->block_on_failed = loaded->block_on_failed;
	route->paused = loaded->paused;
	route->declared = false;
	pfree(loaded->name);
	pfree(loaded);
}

static void
merge_route(OutboxRelay *relay, OutboxRoute *loaded)
{
	OutboxRoute *route = find_route(relay->routes, loaded->name);
	bool		waited;
	bool		ordered;
	MemoryContext old;

	if (route == NULL)
	{
		old = MemoryContextSwitchTo(relay->cxt);
		relay->routes = lappend(relay->routes, loaded);
		MemoryContextSwitchTo(old);
		if (loaded->paused)
			stop_route(relay, loaded);
		return;
	}
	waited = outbox_relay_route_waits(route);
	ordered = route->ordered;
	update_route(route, loaded);
	/* What stood behind a key that is held need not any more. */
	if (ordered && !route->ordered)
	{
		int64		lowest = outbox_queue_lowest_held(relay->queue);

		if (lowest != 0)
			outbox_relay_rescan(relay, lowest, PG_INT64_MAX);
	}
	if (!waited && outbox_relay_route_waits(route))
		stop_route(relay, route);
	else if (waited && !outbox_relay_route_waits(route))
		start_route(relay, route);
}

/* Called in a transaction. */
void
outbox_relay_load_routes(OutboxRelay *relay, OutboxControl *control)
{
	List	   *loaded = outbox_store_load_routes(relay->cxt, control);
	ListCell   *cell;

	foreach(cell, relay->routes)
	{
		OutboxRoute *route = lfirst(cell);

		if (find_route(loaded, route->name) == NULL && !route->paused)
		{
			route->paused = true;
			stop_route(relay, route);
		}
	}
	foreach(cell, loaded)
		merge_route(relay, lfirst(cell));
	list_free(loaded);
}

/* Names of the routes that claims leave out, in the current context. */
List *
outbox_relay_excluded_routes(OutboxRelay *relay)
{
	List	   *names = NIL;
	ListCell   *cell;

	foreach(cell, relay->routes)
	{
		OutboxRoute *route = lfirst(cell);

		if (outbox_relay_route_waits(route))
			names = lappend(names, route->name);
	}
	return names;
}

void
outbox_relay_route_broken(OutboxRelay *relay, OutboxRoute *route,
						  const char *reason)
{
	char	   *text = psprintf("route \"%s\": %s", route->shown, reason);

	outbox_slot_set_error(text);
	pfree(text);
	/* Once per change of state; tries that fail again say nothing. */
	if (route->failures == 0)
		ereport(LOG,
				(errmsg("outbox relay cannot publish on route \"%s\"",
						route->shown),
				 errdetail_internal("%s", reason),
				 errhint("Its messages wait and the route is tried again; other routes are not affected.")));
	route->failures++;
	route->broken = true;
	route->retry_at = outbox_mono_after(outbox_backoff_ms(outbox_retry_initial_ms,
														  outbox_retry_max_ms,
														  route->failures,
														  pg_prng_uint32(&pg_global_prng_state)));
	stop_route(relay, route);
}

/* A message went out on it. */
void
outbox_relay_route_works(OutboxRoute *route)
{
	if (route->failures == 0)
		return;
	route->failures = 0;
	ereport(LOG,
			(errmsg("outbox relay publishes on route \"%s\" again",
					route->shown)));
}

/* Lets routes whose backoff is over try again; returns when the next is. */
OutboxMonoTime
outbox_relay_retry_routes(OutboxRelay *relay, OutboxMonoTime now)
{
	OutboxMonoTime next = OUTBOX_MONO_UNSET;
	ListCell   *cell;

	foreach(cell, relay->routes)
	{
		OutboxRoute *route = lfirst(cell);

		if (!route->broken)
			continue;
		if (!outbox_mono_reached(route->retry_at, now))
		{
			outbox_mono_earlier(&next, route->retry_at);
			continue;
		}
		route->broken = false;
		if (!route->paused)
			start_route(relay, route);
	}
	return next;
}

bool
outbox_relay_has_unordered(OutboxRelay *relay)
{
	ListCell   *cell;

	foreach(cell, relay->routes)
		if (!((OutboxRoute *) lfirst(cell))->ordered)
			return true;
	return false;
}

int
outbox_relay_count_broken(OutboxRelay *relay)
{
	int			count = 0;
	ListCell   *cell;

	foreach(cell, relay->routes)
		if (((OutboxRoute *) lfirst(cell))->failures > 0)
			count++;
	return count;
}

/* On a new connection every exchange is looked at again. */
void
outbox_relay_forget_declared(OutboxRelay *relay)
{
	ListCell   *cell;

	foreach(cell, relay->routes)
		((OutboxRoute *) lfirst(cell))->declared = false;
}
