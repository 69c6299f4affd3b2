/*-------------------------------------------------------------------------
 *
 * route_states.c
 *		Routes, as the worker has loaded them: which ones wait, and why.
 *
 * A route whose relay is not 'internal' always waits, whatever its rows say: with
 * triggers disabled a row is written as if it were for the workers.  Such rows are
 * rare, so that claims leave the route out only once one was met.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "backoff.h"
#include "common/pg_prng.h"
#include "format.h"
#include "queue.h"
#include "route.h"
#include "settings.h"
#include "shared.h"
#include "stats.h"
#include "utils/memutils.h"
#include "utils/timestamp.h"

#define POISON_MS		2000
#define POISON_BURST_MS	6000
/* For so long after its last message a route counts as a neighbour. */
#define NEIGHBOUR_MS	60000

static OutboxRoute *
find_route(const List *routes, const char *name)
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
outbox_routes_find(OutboxRoutes *routes, const char *name)
{
	OutboxRoute *route = find_route(routes->list, name);
	MemoryContext old;

	if (route != NULL)
		return route;
	old = MemoryContextSwitchTo(TopMemoryContext);
	route = palloc0(sizeof(OutboxRoute));
	route->name = pstrdup(name);
	route->shown = pstrdup("");
	route->exchange = pstrdup("");
	route->routing_key = pstrdup("");
	route->max_attempts = 1;
	route->retention_s = -1;
	route->ordered = true;
	route->paused = true;
	route->outlet = &outbox_internal_outlet;
	route->stats = OUTBOX_STATS_OTHER_ROUTES;
	routes->list = lappend(routes->list, route);
	MemoryContextSwitchTo(old);
	return route;
}

/*
 * Nobody can make a chain without an end, or leave one without its next route,
 * except past the triggers, as logical replication does.
 */
OutboxRoute *
outbox_routes_failed(OutboxRoutes *routes, const OutboxRoute *route,
					 const char **why)
{
	OutboxRoute *failed;
	OutboxRoute *next;
	int			left = list_length(routes->list);

	*why = NULL;
	if (route->failed_route == NULL)
		return NULL;
	failed = find_route(routes->list, route->failed_route);
	if (failed == NULL)
	{
		*why = "which does not exist";
		return NULL;
	}
	for (next = failed; next != NULL && next != route && left > 0; left--)
		next = next->failed_route == NULL ? NULL :
			find_route(routes->list, next->failed_route);
	if (next == NULL)
		return failed;
	*why = "which leads back to it";
	return NULL;
}

bool
outbox_route_waits(const OutboxRoute *route)
{
	return route->paused || route->broken || outbox_route_is_excluded(route);
}

/* Do claims leave its rows out, and remember from where to read them again? */
static bool
is_left_out(const OutboxRoute *route)
{
	return route->paused || route->broken ||
		(outbox_route_is_excluded(route) && route->skip_low != 0);
}

bool
outbox_routes_block(const OutboxRoutes *routes)
{
	ListCell   *cell;

	foreach(cell, routes->list)
		if (outbox_route_blocks(lfirst(cell)))
			return true;
	return false;
}

void
outbox_routes_passed_over(OutboxRoutes *routes, int64 seq)
{
	ListCell   *cell;

	foreach(cell, routes->list)
	{
		OutboxRoute *route = lfirst(cell);

		if (is_left_out(route))
			outbox_lower(&route->skip_low, Max(seq, 1));
	}
}

/* ------------------------------------------------------------ stop and start */

/* Its messages leave memory, and are read again when it can go on. */
static void
stop_route(OutboxRoutes *routes, OutboxRoute *route, int64 end)
{
	int64		lowest = outbox_queue_drop_all(routes->queue, route);

	/* None was met yet. */
	if (lowest == 0 && !route->paused && !route->broken)
		return;
	/* From now on claims pass its rows over, wherever they are. */
	if (lowest == 0 || lowest > end)
		lowest = end;
	outbox_lower(&route->skip_low, lowest);
}

void
outbox_routes_stop(OutboxRoutes *routes, int64 end)
{
	ListCell   *cell;

	foreach(cell, routes->list)
		if (outbox_route_waits(lfirst(cell)))
			stop_route(routes, lfirst(cell), end);
}

static void
resume_from(OutboxResumed *resumed, int64 seq)
{
	resumed->any = true;
	if (seq != 0)
		outbox_lower(&resumed->from, seq);
}

static void
start_route(OutboxRoute *route, OutboxResumed *resumed)
{
	resume_from(resumed, route->skip_low);
	route->skip_low = 0;
}

/* -------------------------------------------------------------------- load */

/* Nothing is wrong with it any more, or nothing is known of it. */
static void
clear_error(OutboxRoute *route)
{
	route->failures = 0;
	outbox_stats_route_waits(route->stats, NULL, NULL, 0);
}

static void
free_text(char *text)
{
	if (text != NULL)
		pfree(text);
}

/* Puts loaded values into a route that items point to; what is the relay's remains. */
static void
update_route(OutboxRoute *route, OutboxRoute *loaded)
{
	if (strcmp(route->exchange, loaded->exchange) != 0 ||
		route->outlet != loaded->outlet)
	{
		route->broken = false;
		clear_error(route);
	}
	pfree(loaded->name);
	loaded->name = route->name;
	pfree(route->shown);
	pfree(route->exchange);
	pfree(route->routing_key);
	free_text(route->exchange_type);
	free_text(route->failed_route);
	free_text(route->slot);
	outbox_format_free(route->format);
	memcpy(route, loaded, offsetof(OutboxRoute, declared));
	route->declared = false;
	route->stats = outbox_stats_route(route->shown);
	pfree(loaded);
}

static void
merge_route(OutboxRoutes *routes, OutboxRoute *loaded, int64 end,
			OutboxResumed *resumed)
{
	OutboxRoute *route = find_route(routes->list, loaded->name);
	bool		waited;
	bool		ordered;
	bool		blocked;
	MemoryContext old;

	if (route == NULL)
	{
		old = MemoryContextSwitchTo(TopMemoryContext);
		loaded->stats = outbox_stats_route(loaded->shown);
		routes->list = lappend(routes->list, loaded);
		MemoryContextSwitchTo(old);
		if (loaded->paused)
			stop_route(routes, loaded, end);
		return;
	}
	waited = outbox_route_waits(route);
	ordered = route->ordered;
	blocked = outbox_route_blocks(route);
	update_route(route, loaded);
	/* What stood behind a key that is held need not any more. */
	if (ordered && !route->ordered)
		resume_from(resumed, outbox_queue_lowest_held(routes->queue));
	if (!waited && outbox_route_waits(route))
		stop_route(routes, route, end);
	else if (waited && !outbox_route_waits(route))
		start_route(route, resumed);
	/* Of what was claimed before nobody has asked whether it may go. */
	else if (!waited && !blocked && outbox_route_blocks(route))
		resume_from(resumed, outbox_queue_drop_all(routes->queue, route));
}

/* Called in a transaction. */
void
outbox_routes_load(OutboxRoutes *routes, OutboxControl *control, int64 end,
				   OutboxResumed *resumed)
{
	List	   *loaded = outbox_store_load_routes(TopMemoryContext, control);
	ListCell   *cell;

	memset(resumed, 0, sizeof(*resumed));
	foreach(cell, routes->list)
	{
		OutboxRoute *route = lfirst(cell);

		if (find_route(loaded, route->name) == NULL && !route->paused)
		{
			route->paused = true;
			outbox_stats_route_waits(route->stats, NULL, NULL, 0);
			stop_route(routes, route, end);
		}
	}
	foreach(cell, loaded)
		merge_route(routes, lfirst(cell), end, resumed);
	list_free(loaded);
}

List *
outbox_routes_excluded(OutboxRoutes *routes)
{
	List	   *names = NIL;
	ListCell   *cell;

	foreach(cell, routes->list)
	{
		OutboxRoute *route = lfirst(cell);

		if (is_left_out(route))
			names = lappend(names, route->name);
	}
	return names;
}

/* -------------------------------------------------------------- its exchange */

static OutboxReason
reason_of_code(int code)
{
	switch (code)
	{
		case 403:				/* ACCESS_REFUSED */
			return OUTBOX_REASON_EXCHANGE_FORBIDDEN;
		case 404:				/* NOT_FOUND */
			return OUTBOX_REASON_EXCHANGE_MISSING;
		case 406:				/* PRECONDITION_FAILED: of another type */
			return OUTBOX_REASON_EXCHANGE_DIFFERS;
		case 503:				/* COMMAND_INVALID */
			return OUTBOX_REASON_EXCHANGE_TYPE;
		default:
			return OUTBOX_REASON_EXCHANGE_OTHER;
	}
}

/* Shows it for as long as the route is not found to work. */
static void
show_error(const OutboxRoute *route, int code, const char *text)
{
	TimestampTz retry_at =
		TimestampTzPlusMilliseconds(GetCurrentTimestamp(),
									outbox_mono_ms_until(route->retry_at,
														 outbox_mono_now()));

	outbox_stats_route_waits(route->stats, text,
							 outbox_reason_name(reason_of_code(code)),
							 retry_at);
}

void
outbox_route_refuse(OutboxRoute *route, int64 seq)
{
	if (route->skip_low == 0)
		ereport(LOG,
				(errmsg("outbox relay does not publish messages of route \"%s\" that are marked as its own",
						route->shown),
				 errdetail("The route's relay is another one; the first such message has seq %lld.",
						   (long long) seq),
				 errhint("Enable the triggers of the table \"outbox\" and mark the messages again, see outbox_problems.")));
	outbox_stats_route_waits(route->stats,
							 "messages of another relay's route are marked as the workers'",
							 outbox_reason_name(OUTBOX_REASON_ROUTE_NOT_OURS), 0);
	outbox_lower(&route->skip_low, seq);
}

void
outbox_route_broken(OutboxRoutes *routes, OutboxRoute *route, int code,
					const char *reason, int64 end)
{
	char	   *text = psprintf("route \"%s\": %s", route->shown, reason);

	outbox_slot_set_last_error(text);
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
	show_error(route, code, reason);
	stop_route(routes, route, end);
}

/* Is there another one that would have to wait for what is done for this one? */
static bool
has_neighbours(const OutboxRoutes *routes, const OutboxRoute *route,
			   OutboxMonoTime now)
{
	ListCell   *cell;

	foreach(cell, routes->list)
	{
		const OutboxRoute *other = lfirst(cell);

		if (other != route && outbox_mono_is_set(other->worked_at) &&
			!outbox_mono_reached(outbox_mono_plus(other->worked_at, NEIGHBOUR_MS), now))
			return true;
	}
	return outbox_queue_has_others(routes->queue, route);
}

/*
 * Each message because of which the broker closes the link costs all routes another
 * connection, and those of them that were in flight are sent one at a time.  A route
 * of such messages would leave nothing to the others.  So it has a share: one in
 * POISON_MS, and as many at once as fit into POISON_BURST_MS.  When that is used
 * up the route waits until there is room for one, and tries it with a message alone.
 */
bool
outbox_route_met_poison(OutboxRoutes *routes, OutboxRoute *route, int64 end)
{
	OutboxMonoTime now = outbox_mono_now();
	OutboxMonoTime full = outbox_mono_plus(now, POISON_BURST_MS);

	if (outbox_mono_before(route->poison_until, now))
		route->poison_until = now;
	if (outbox_mono_before(route->poison_until, full))
		route->poison_until = outbox_mono_plus(route->poison_until, POISON_MS);
	if (outbox_mono_before(route->poison_until, full) ||
		!has_neighbours(routes, route, now))
		return false;
	route->broken = true;
	route->half_open = true;
	route->retry_at = outbox_mono_plus(now, POISON_MS);
	stop_route(routes, route, end);
	return true;
}

void
outbox_route_works(OutboxRoute *route, OutboxMonoTime now)
{
	route->half_open = false;
	route->worked_at = now;
	if (route->failures == 0)
		return;
	clear_error(route);
	ereport(LOG,
			(errmsg("outbox relay publishes on route \"%s\" again",
					route->shown)));
}

void
outbox_routes_retry(OutboxRoutes *routes, OutboxMonoTime now,
					OutboxResumed *resumed)
{
	ListCell   *cell;

	memset(resumed, 0, sizeof(*resumed));
	foreach(cell, routes->list)
	{
		OutboxRoute *route = lfirst(cell);

		if (!route->broken || !outbox_mono_reached(route->retry_at, now))
			continue;
		route->broken = false;
		if (!route->paused)
			start_route(route, resumed);
	}
}

OutboxMonoTime
outbox_routes_deadline(const OutboxRoutes *routes)
{
	OutboxMonoTime deadline = OUTBOX_MONO_UNSET;
	ListCell   *cell;

	foreach(cell, routes->list)
	{
		const OutboxRoute *route = lfirst(cell);

		if (route->broken)
			outbox_mono_earlier(&deadline, route->retry_at);
	}
	return deadline;
}

bool
outbox_routes_have_unordered(const OutboxRoutes *routes)
{
	ListCell   *cell;

	foreach(cell, routes->list)
		if (!((const OutboxRoute *) lfirst(cell))->ordered)
			return true;
	return false;
}

int
outbox_routes_count_broken(const OutboxRoutes *routes)
{
	int			count = 0;
	ListCell   *cell;

	foreach(cell, routes->list)
		if (((const OutboxRoute *) lfirst(cell))->failures > 0)
			count++;
	return count;
}

int64
outbox_routes_lowest(const OutboxRoutes *routes)
{
	int64		lowest = PG_INT64_MAX;
	ListCell   *cell;

	foreach(cell, routes->list)
	{
		const OutboxRoute *route = lfirst(cell);

		if (route->skip_low != 0)
			lowest = Min(lowest, route->skip_low);
	}
	return lowest;
}

void
outbox_routes_forget_declared(OutboxRoutes *routes)
{
	ListCell   *cell;

	foreach(cell, routes->list)
		((OutboxRoute *) lfirst(cell))->declared = false;
}
