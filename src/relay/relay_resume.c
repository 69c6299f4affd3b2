/*-------------------------------------------------------------------------
 *
 * relay_resume.c
 *		What it means for the reader that messages, or routes, stop and go on.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "relay_internal.h"

void
outbox_relay_drop_unsent(OutboxRelay *relay)
{
	int64		lowest = outbox_queue_drop_all(relay->queue, NULL);

	if (lowest == 0)
		return;
	outbox_reader_add(relay->reader, lowest, PG_INT64_MAX,
					  OUTBOX_UNREAD_RETURNED);
	/* What was dropped may hold its key, and be gone by now. */
	outbox_reader_invalidate_holders(relay->reader);
	outbox_reader_reread_due(relay->reader);
}

/* The same of routes that wait, of which something may be ready again. */
void
outbox_relay_stop_routes(OutboxRelay *relay)
{
	outbox_routes_stop(relay->routes, outbox_reader_end(relay->reader));
	outbox_reader_invalidate_holders(relay->reader);
}

void
outbox_relay_route_broken(OutboxRelay *relay, OutboxRoute *route,
						  int code, const char *reason)
{
	outbox_route_broken(relay->routes, route, code, reason,
						outbox_reader_end(relay->reader));
	outbox_reader_invalidate_holders(relay->reader);
}

void
outbox_relay_resume(OutboxRelay *relay, const OutboxResumed *resumed)
{
	if (!resumed->any)
		return;
	if (resumed->from != 0)
		outbox_reader_add(relay->reader, resumed->from, PG_INT64_MAX,
						  OUTBOX_UNREAD_RETURNED);
	outbox_reader_reread_due(relay->reader);
}
