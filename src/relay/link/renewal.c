/*-------------------------------------------------------------------------
 *
 * renewal.c
 *		When messages are refused: is another channel worth a try?
 *
 * A nack may be about the channel rather than the queue.  RabbitMQ looks for the
 * leader of a quorum queue when a channel first publishes to it; a channel that
 * finds it dead (as one does that is opened just after a node died) is refused
 * until that node is back, although the queue has had another leader for long.
 * A node without a majority refuses everything.  And where the dead leader is
 * frozen, each refusal takes seconds.  So when a message is refused again, or the
 * channel has brought nothing but refusals, go on to the next host; with a
 * backoff, as the queue may as well be full.  What is in flight may be another
 * queue's, which is only slow: nothing new is sent while it is acked.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "backoff.h"
#include "common/pg_prng.h"
#include "link_parts.h"
#include "utils/memutils.h"

/*
 * A channel on which a message is nacked again so long after its first nack is
 * replaced, and so is one that has had no ack by then; the next one after twice as
 * long, up to RENEW_MAX_MS.  That starts again when a channel went without a nack
 * for NO_NACK_MS, or the broker ended the connection.
 */
#define RENEW_MS		500
#define RENEW_MAX_MS	30000
#define NO_NACK_MS		60000

void
outbox_renewal_opened(OutboxRenewal *renewal)
{
	renewal->acked = false;
}

void
outbox_renewal_closed(OutboxRenewal *renewal)
{
	renewal->renew_at = OUTBOX_MONO_UNSET;
	renewal->renew = false;
}

/* A refusal on the next channel counts from the start. */
void
outbox_renewal_other_broker(OutboxRenewal *renewal)
{
	renewal->renewals = 0;
}

void
outbox_renewal_acked(OutboxRenewal *renewal)
{
	renewal->acked = true;
}

void
outbox_renewal_nacked(OutboxRenewal *renewal, bool again,
					  OutboxMonoTime opened_at)
{
	OutboxMonoTime now = outbox_mono_now();

	if (outbox_mono_is_set(renewal->renew_at))
	{
		if (again && outbox_mono_reached(renewal->renew_at, now))
			renewal->renew = true;
		return;
	}
	if (outbox_mono_reached(outbox_mono_plus(opened_at, NO_NACK_MS), now))
		renewal->renewals = 0;
	renewal->renew_at =
		outbox_mono_plus(now,
						 outbox_backoff_ms(RENEW_MS, RENEW_MAX_MS,
										   renewal->renewals + 1,
										   pg_prng_uint32(&pg_global_prng_state)));
}

void
outbox_renewal_begun(OutboxRenewal *renewal)
{
	renewal->renew = false;
	renewal->renewals++;
}

OutboxMonoTime
outbox_renewal_deadline(const OutboxRenewal *renewal)
{
	return renewal->acked && !renewal->renew ? OUTBOX_MONO_UNSET : renewal->renew_at;
}
