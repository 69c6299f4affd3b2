/*-------------------------------------------------------------------------
 *
 * outcome.c
 *		What becomes of a message that was published, or could not be.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "amqp_limits.h"
#include "backoff.h"
#include "common/pg_prng.h"
#include "outcome.h"
#include "settings.h"

OutboxArchive
outbox_archived(const OutboxRoute *route)
{
	int			retention_s = route->retention_s < 0 ? outbox_retention_s : route->retention_s;

	return retention_s > 0 ? route->archive : OUTBOX_ARCHIVE_NONE;
}

OutboxFailure
outbox_failure(const OutboxMessage *message, const OutboxRoute *route,
			   OutboxReason reason, const char *error, bool permanent)
{
	OutboxFailure failure = {0};
	int			attempts = message->attempts + 1;

	failure.id = message->id;
	failure.reason = reason;
	failure.error = error;
	failure.final = permanent || attempts >= route->max_attempts;
	failure.retry_ms = outbox_backoff_ms(outbox_retry_initial_ms,
										 outbox_retry_max_ms, attempts,
										 pg_prng_uint32(&pg_global_prng_state));
	return failure;
}

char *
outbox_routing_key(const OutboxMessage *message, const char *template,
				   const char *own)
{
	char		rendered[OUTBOX_SHORT_STRING_MAX + 1];

	if (own != NULL)
		return pstrdup(own);
	if (outbox_route_render(template, message->event_type, message->aggregate_type,
							message->aggregate_id, rendered,
							sizeof(rendered)) >= sizeof(rendered))
		return NULL;
	return pstrdup(rendered);
}

OutboxDeath *
outbox_death(const OutboxMessage *message, const OutboxRoute *route,
			 const char *target, const char *reason)
{
	OutboxDeath *death = palloc(sizeof(OutboxDeath));
	char	   *key = outbox_routing_key(message, route->routing_key,
										 message->routing_key);

	death->target = target;
	death->route = route->name;
	death->exchange = route->exchange;
	death->routing_key = key != NULL ? key : "";
	death->reason = reason;
	death->attempts = message->attempts + 1;
	return death;
}
