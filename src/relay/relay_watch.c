/*-------------------------------------------------------------------------
 *
 * relay_watch.c
 *		How long the broker is waited for.
 *
 * Slow is not stalled.  A message may take as long to get to the broker as its
 * bytes do, on a network that is as slow as it likes; so the oldest unconfirmed
 * one is watched in two steps.  First its bytes: while some of them are
 * acknowledged now and then all is well, and when none is for
 * outbox_link_stalled_ms() the connection is given up.  When the last of them has
 * arrived, outbox.confirm_timeout begins, and begins anew with each confirm: a
 * broker that confirms slowly, one message after the other, is at work.
 *
 * But what was sent when the oldest one was late already says nothing about it: the
 * confirms of a steady flow must not keep a lost one from being missed.
 *
 * While the broker blocks us it reads nothing and confirms nothing; all begins
 * anew when that is over.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "relay_internal.h"
#include "settings.h"

/* How often to look whether the last byte has arrived. */
#define LOOK_MS 250

/* A network and a broker on which nothing piles up. */
#define QUICK_MS 250

void
outbox_relay_watch_answered(OutboxRelay *relay, const OutboxItem *item)
{
	OutboxConfirmWatch *watch = &relay->watch;

	watch->confirmed = true;
	watch->confirmed_sent_at = item->sent_at;
	if (!outbox_mono_is_set(watch->left_at) ||
		outbox_mono_before(item->sent_at,
						   outbox_mono_plus(watch->left_at,
											outbox_confirm_timeout_ms)))
		watch->answered = true;
}

/* Has the last byte of the oldest message arrived? */
static void
look_for_bytes(OutboxRelay *relay, OutboxMonoTime now)
{
	OutboxConfirmWatch *watch = &relay->watch;
	OutboxItem *oldest = relay->ring[watch->tag % relay->window.size];
	uint64		acknowledged = outbox_link_acknowledged(relay->link);

	if (acknowledged > watch->acknowledged)
		watch->since = now;
	watch->acknowledged = acknowledged;
	if (acknowledged >= oldest->published_to)
		watch->left_at = now;
}

void
outbox_relay_watch(OutboxRelay *relay, OutboxMonoTime now)
{
	OutboxConfirmWatch *watch = &relay->watch;

	if (watch->confirmed)
		watch->confirmed_at = now;
	watch->confirmed = false;
	if (relay->window.outstanding == 0 ||
		outbox_link_state(relay->link) != OUTBOX_LINK_OPEN)
	{
		watch->tag = 0;
		return;
	}
	if (watch->tag != relay->window.oldest)
	{
		watch->tag = relay->window.oldest;
		watch->since = now;
		watch->left_at = OUTBOX_MONO_UNSET;
		watch->acknowledged = 0;
		watch->answered = false;
	}
	if (watch->answered || outbox_link_returning(relay->link))
		watch->since = now;
	watch->answered = false;
	if (!outbox_mono_is_set(watch->left_at))
		look_for_bytes(relay, now);
}

bool
outbox_relay_answers_quickly(const OutboxRelay *relay, OutboxMonoTime now)
{
	const OutboxConfirmWatch *watch = &relay->watch;

	return outbox_mono_is_set(watch->confirmed_at) &&
		!outbox_mono_reached(outbox_mono_plus(watch->confirmed_at, QUICK_MS), now) &&
		!outbox_mono_reached(outbox_mono_plus(watch->confirmed_sent_at, QUICK_MS),
							 watch->confirmed_at);
}

bool
outbox_relay_bytes_under_way(const OutboxRelay *relay)
{
	return relay->watch.tag != 0 && !outbox_mono_is_set(relay->watch.left_at);
}

/* When the broker has had time enough; unset: nothing is waited for. */
static OutboxMonoTime
patience_ends(const OutboxRelay *relay)
{
	if (relay->watch.tag == 0)
		return OUTBOX_MONO_UNSET;
	return outbox_mono_plus(relay->watch.since,
							outbox_relay_bytes_under_way(relay) ?
							outbox_link_stalled_ms(relay->link) :
							outbox_confirm_timeout_ms);
}

OutboxMonoTime
outbox_relay_watch_deadline(OutboxRelay *relay, OutboxMonoTime now)
{
	OutboxMonoTime deadline;

	outbox_relay_watch(relay, now);
	deadline = patience_ends(relay);
	if (outbox_relay_bytes_under_way(relay))
		outbox_mono_earlier(&deadline, outbox_mono_plus(now, LOOK_MS));
	return deadline;
}

const char *
outbox_relay_watch_late(OutboxRelay *relay, OutboxMonoTime now)
{
	OutboxMonoTime end;

	outbox_relay_watch(relay, now);
	end = patience_ends(relay);
	if (!outbox_mono_is_set(end) || !outbox_mono_reached(end, now))
		return NULL;
	return outbox_relay_bytes_under_way(relay) ?
		psprintf("the broker takes no data: no byte was acknowledged for %d ms",
				 outbox_link_stalled_ms(relay->link)) :
		psprintf("a message was not confirmed within \"outbox.confirm_timeout\" (%d ms)",
				 outbox_confirm_timeout_ms);
}
