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
#include "queue.h"
#include "route.h"
#include "settings.h"
#include "shared.h"
#include "stats.h"
#include "utils/timestamp.h"

#define POISON_MS		2000
#define POISON_BURST_MS	6000

/* For so long after its last message a route counts as a neighbour. */
#define NEIGHBOUR_MS	60000

bool
outbox_route_waits(const OutboxRoute *route)
{
	return route->paused || route->broken || route->lost || route->awaits ||
		outbox_route_is_excluded(route);
}

/* Is there anything that a walk over the watched routes has to find? */
static bool
is_to_be_watched(const OutboxRoute *route)
{
	return route->paused || route->broken || route->lost || route->wants ||
		route->skip_low != 0 || route->failures > 0 ||
		(outbox_route_is_excluded(route) && route->nitems > 0);
}

/*
 * A turn, a claim, a wait look at the watched routes only, so that they cost the same
 * however many routes there are.  outbox_routes_retry() takes those out that need it no
 * more.
 */
void
outbox_route_watch(OutboxRoutes *routes, OutboxRoute *route)
{
	if (route->watched)
		return;
	route->watched = true;
	dlist_push_tail(&routes->watched, &route->node);
}

static void
unwatch(OutboxRoute *route)
{
	route->watched = false;
	dlist_delete(&route->node);
}

void
outbox_route_skip(OutboxRoutes *routes, OutboxRoute *route, int64 seq)
{
	outbox_lower(&route->skip_low, seq);
	outbox_route_watch(routes, route);
}

/* Do claims leave its rows out, and remember from where to read them again? */
static bool
is_left_out(const OutboxRoute *route)
{
	return route->paused || route->broken || route->awaits ||
		((route->lost || outbox_route_is_excluded(route)) && route->skip_low != 0);
}

void
outbox_routes_passed_over(OutboxRoutes *routes, int64 seq)
{
	dlist_iter	iter;

	dlist_foreach(iter, &routes->watched)
	{
		OutboxRoute *route = dlist_container(OutboxRoute, node, iter.cur);

		if (is_left_out(route))
			outbox_lower(&route->skip_low, Max(seq, 1));
	}
}

/* ------------------------------------------------------------ stop and start */

void
outbox_route_stop(OutboxRoutes *routes, OutboxRoute *route, int64 end)
{
	int64		lowest = outbox_queue_drop_all(routes->queue, route);

	/* None was met yet. */
	if (lowest == 0 && !is_left_out(route))
		return;
	/* From now on claims pass its rows over, wherever they are. */
	if (lowest == 0 || lowest > end)
		lowest = end;
	outbox_route_skip(routes, route, lowest);
}

void
outbox_routes_stop(OutboxRoutes *routes, int64 end)
{
	dlist_iter	iter;

	dlist_foreach(iter, &routes->watched)
	{
		OutboxRoute *route = dlist_container(OutboxRoute, node, iter.cur);

		if (outbox_route_waits(route))
			outbox_route_stop(routes, route, end);
	}
}

void
outbox_resume_from(OutboxResumed *resumed, int64 seq)
{
	resumed->any = true;
	if (seq != 0)
		outbox_lower(&resumed->from, seq);
}

void
outbox_route_start(OutboxRoute *route, OutboxResumed *resumed)
{
	outbox_resume_from(resumed, route->skip_low);
	route->skip_low = 0;
}

List *
outbox_routes_excluded(OutboxRoutes *routes)
{
	List	   *names = NIL;
	dlist_iter	iter;

	dlist_foreach(iter, &routes->watched)
	{
		OutboxRoute *route = dlist_container(OutboxRoute, node, iter.cur);

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
		case OUTBOX_CODE_NO_CONFIRM:
			return OUTBOX_REASON_NO_CONFIRM;
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

	outbox_stats_route_waits(route->shown, text,
							 outbox_reason_name(reason_of_code(code)),
							 retry_at);
}

/* Nothing is wrong with it any more, or nothing is known of it. */
void
outbox_route_clear_error(OutboxRoute *route)
{
	route->failures = 0;
	outbox_stats_route_waits(route->shown, NULL, NULL, 0);
}

void
outbox_route_refuse(OutboxRoutes *routes, OutboxRoute *route, int64 seq)
{
	if (route->skip_low == 0)
		ereport(LOG,
				(errmsg("outbox relay does not publish messages of route \"%s\" that are marked as its own",
						route->shown),
				 errdetail("The route's relay is another one; the first such message has seq %lld.",
						   (long long) seq),
				 errhint("Enable the triggers of the table \"outbox\" and mark the messages again, see outbox_problems.")));
	outbox_stats_route_waits(route->shown,
							 "messages of another relay's route are marked as the workers'",
							 outbox_reason_name(OUTBOX_REASON_ROUTE_NOT_OURS), 0);
	outbox_route_skip(routes, route, seq);
}

void
outbox_route_broken(OutboxRoutes *routes, OutboxRoute *route, int code,
					const char *reason, bool counts, int64 end)
{
	int			max_ms = outbox_retry_max_ms;
	int			rest_ms;
	char	   *text = psprintf("route \"%s\": %s", route->shown, reason);

	/* Each try may keep the others waiting for as long as that. */
	if (code == OUTBOX_CODE_NO_CONFIRM)
		max_ms = Max(max_ms, OUTBOX_TRY_SHARE * outbox_confirm_timeout_ms);
	outbox_slot_set_last_error(text);
	pfree(text);
	/* Once per change of state; tries that fail again say nothing. */
	if (route->failures == 0)
		ereport(LOG,
				(errmsg("outbox relay cannot publish on route \"%s\"",
						route->shown),
				 errdetail_internal("%s", reason),
				 errhint("Its messages wait and the route is tried again; other routes are not affected.")));
	if (counts || route->failures == 0)
		route->failures++;
	route->broken = true;
	route->wants = route->awaits = false;
	outbox_route_watch(routes, route);
	rest_ms = outbox_backoff_ms(outbox_retry_initial_ms, max_ms, route->failures,
								pg_prng_uint32(&pg_global_prng_state));
	route->retry_at = outbox_mono_after(rest_ms);

	/*
	 * No message at all is confirmed: the time may have been too short for
	 * any.
	 */
	route->try_ms = counts ? rest_ms / OUTBOX_TRY_SHARE :
		Min(2 * Max(route->try_ms, outbox_confirm_timeout_ms / OUTBOX_TRY_SHARE), outbox_confirm_timeout_ms);
	show_error(route, code, reason);
	outbox_route_stop(routes, route, end);
}

bool
outbox_route_has_neighbours(const OutboxRoutes *routes, const OutboxRoute *route,
							OutboxMonoTime now)
{
	return outbox_routes_used_since(routes, route,
									outbox_mono_plus(now, -NEIGHBOUR_MS)) ||
		outbox_queue_has_others(routes->queue, route);
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
		!outbox_route_has_neighbours(routes, route, now))
		return false;
	route->broken = true;
	route->half_open = true;
	outbox_route_watch(routes, route);
	route->retry_at = outbox_mono_plus(now, POISON_MS);
	outbox_route_stop(routes, route, end);
	return true;
}

void
outbox_route_works(OutboxRoute *route, OutboxMonoTime now)
{
	route->half_open = false;
	route->try_ms = 0;
	route->worked_at = now;
	if (route->failures == 0)
		return;
	outbox_route_clear_error(route);
	ereport(LOG,
			(errmsg("outbox relay publishes on route \"%s\" again",
					route->shown)));
}

void
outbox_routes_retry(OutboxRoutes *routes, OutboxMonoTime now, bool all_read,
					OutboxResumed *resumed)
{
	dlist_mutable_iter iter;

	memset(resumed, 0, sizeof(*resumed));
	dlist_foreach_modify(iter, &routes->watched)
	{
		OutboxRoute *route = dlist_container(OutboxRoute, node, iter.cur);

		if (route->broken && outbox_mono_reached(route->retry_at, now))
		{
			route->broken = false;
			if (!route->paused)
				outbox_route_start(route, resumed);
		}
		/* Its messages were discarded. */
		else if (route->failures > 0 && !route->broken && all_read &&
				 route->nitems == 0 && route->skip_low == 0)
			outbox_route_clear_error(route);
		if (!is_to_be_watched(route))
			unwatch(route);
	}
}

OutboxMonoTime
outbox_routes_deadline(OutboxRoutes *routes)
{
	OutboxMonoTime deadline = OUTBOX_MONO_UNSET;
	dlist_iter	iter;

	dlist_foreach(iter, &routes->watched)
	{
		const OutboxRoute *route = dlist_container(OutboxRoute, node, iter.cur);

		if (route->broken)
			outbox_mono_earlier(&deadline, route->retry_at);
	}
	return deadline;
}

int
outbox_routes_count_broken(OutboxRoutes *routes)
{
	int			count = 0;
	dlist_iter	iter;

	dlist_foreach(iter, &routes->watched)
		if (dlist_container(OutboxRoute, node, iter.cur)->failures > 0)
			count++;
	return count;
}

int64
outbox_routes_lowest(OutboxRoutes *routes)
{
	int64		lowest = PG_INT64_MAX;
	dlist_iter	iter;

	dlist_foreach(iter, &routes->watched)
	{
		const OutboxRoute *route = dlist_container(OutboxRoute, node, iter.cur);

		if (route->skip_low != 0)
			lowest = Min(lowest, route->skip_low);
	}
	return lowest;
}

/* ---------------------------------------------------------------- declaration */

void
outbox_route_want(OutboxRoutes *routes, OutboxRoute *route, OutboxMonoTime now)
{
	outbox_declaration_want(&routes->declarations, route->declaration, now);
	route->wants = true;
	outbox_route_watch(routes, route);
}

void
outbox_route_await(OutboxRoutes *routes, OutboxRoute *route, int64 end)
{
	Assert(route->wants);
	route->awaits = true;
	outbox_route_stop(routes, route, end);
}

static void
stop_wanting(OutboxRoute *route, OutboxResumed *resumed)
{
	bool		awaited = route->awaits;

	route->wants = route->awaits = false;
	if (awaited && !outbox_route_waits(route))
		outbox_route_start(route, resumed);
}

OutboxRoute *
outbox_routes_wanting(OutboxRoutes *routes, const OutboxDeclaration *declaration)
{
	dlist_iter	iter;

	dlist_foreach(iter, &routes->watched)
	{
		OutboxRoute *route = dlist_container(OutboxRoute, node, iter.cur);

		if (route->wants && route->declaration == declaration)
			return route;
	}
	return NULL;
}

void
outbox_routes_declared(OutboxRoutes *routes, const OutboxDeclaration *declaration,
					   OutboxResumed *resumed)
{
	dlist_iter	iter;

	memset(resumed, 0, sizeof(*resumed));
	dlist_foreach(iter, &routes->watched)
	{
		OutboxRoute *route = dlist_container(OutboxRoute, node, iter.cur);

		if (route->wants && route->declaration == declaration)
			stop_wanting(route, resumed);
	}
}

void
outbox_routes_connection_ended(OutboxRoutes *routes, OutboxResumed *resumed)
{
	dlist_iter	iter;

	memset(resumed, 0, sizeof(*resumed));
	outbox_declarations_connection_ended(&routes->declarations);
	dlist_foreach(iter, &routes->watched)
		stop_wanting(dlist_container(OutboxRoute, node, iter.cur), resumed);
}
