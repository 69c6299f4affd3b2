/*-------------------------------------------------------------------------
 *
 * stall.c
 *		How long the broker is waited for.
 *
 * Slow is not stalled.  A message may take as long to get to the broker as its
 * bytes do, on a network that is as slow as it likes; so the oldest unconfirmed
 * one is watched in two steps.  First its bytes: while some of them are
 * acknowledged now and then all is well, and when none is for
 * outbox_link_stalled_ms() the connection is given up.  When the last of them has
 * arrived, outbox.confirm_timeout begins, and begins again with each confirm, or
 * part of a returned message: a broker that answers slowly, one message after the
 * other, is at work.
 *
 * But what was sent when the oldest one was late already says nothing about it: the
 * confirms of a steady flow must not keep a lost one from being missed.
 *
 * While the broker blocks us it reads nothing and confirms nothing; all begins
 * again when that is over.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "link_parts.h"
#include "settings.h"
#include "utils/memutils.h"

/* How often to look whether the last byte has arrived. */
#define LOOK_MS 250

void
outbox_stall_init(OutboxStall *stall, OutboxLink *link,
				  const OutboxConfirms *window)
{
	memset(stall, 0, sizeof(*stall));
	stall->link = link;
	stall->window = window;
}

void
outbox_stall_answered(OutboxStall *stall, OutboxMonoTime sent_at)
{
	if (!outbox_mono_is_set(stall->left_at) ||
		outbox_mono_before(sent_at,
						   outbox_mono_plus(stall->left_at,
											outbox_confirm_timeout_ms)))
		stall->answered = true;
}

/* Has the last byte of the oldest message arrived? */
static void
look_for_bytes(OutboxStall *stall, OutboxMonoTime now)
{
	const OutboxItem *oldest =
		stall->window->ring[stall->tag % stall->window->size];
	uint64		acknowledged = outbox_link_acknowledged(stall->link);

	if (acknowledged > stall->acknowledged)
		stall->since = now;
	stall->acknowledged = acknowledged;
	if (acknowledged >= oldest->published_to)
		stall->left_at = now;
}

static void
stall_look(OutboxStall *stall, OutboxMonoTime now)
{
	if (stall->window->outstanding == 0 ||
		outbox_link_state(stall->link) != OUTBOX_LINK_OPEN)
	{
		stall->tag = 0;
		return;
	}
	if (stall->tag != stall->window->oldest)
	{
		stall->tag = stall->window->oldest;
		stall->since = now;
		stall->look_at = outbox_mono_plus(now, LOOK_MS);
		stall->left_at = OUTBOX_MONO_UNSET;
		stall->acknowledged = 0;
		stall->answered = false;
	}
	if (stall->answered || outbox_link_return_left(stall->link) != stall->return_left)
		stall->since = now;
	stall->answered = false;
	stall->return_left = outbox_link_return_left(stall->link);
	/* Not at once: nearly always the confirm comes before. */
	if (!outbox_mono_is_set(stall->left_at) &&
		outbox_mono_reached(stall->look_at, now))
	{
		look_for_bytes(stall, now);
		stall->look_at = outbox_mono_plus(now, LOOK_MS);
	}
}

/* Is the oldest unconfirmed message not even there yet, as far as was looked? */
static bool
bytes_under_way(const OutboxStall *stall)
{
	return stall->tag != 0 && !outbox_mono_is_set(stall->left_at);
}

bool
outbox_stall_has_left(OutboxStall *stall, OutboxMonoTime now)
{
	if (bytes_under_way(stall))
		look_for_bytes(stall, now);
	return !bytes_under_way(stall);
}

/* When the broker has had time enough; unset: nothing is waited for. */
static OutboxMonoTime
patience_ends(const OutboxStall *stall, int patience_ms)
{
	if (stall->tag == 0)
		return OUTBOX_MONO_UNSET;
	return outbox_mono_plus(stall->since,
							bytes_under_way(stall) ?
							outbox_link_stalled_ms(stall->link) : patience_ms);
}

OutboxMonoTime
outbox_stall_deadline(OutboxStall *stall, int patience_ms, OutboxMonoTime now)
{
	OutboxMonoTime deadline;

	stall_look(stall, now);
	deadline = patience_ends(stall, patience_ms);
	if (bytes_under_way(stall))
		outbox_mono_earlier(&deadline, outbox_mono_plus(now, LOOK_MS));
	return deadline;
}

const char *
outbox_stall_late(OutboxStall *stall, int patience_ms, OutboxMonoTime now,
				  OutboxReason *reason)
{
	OutboxMonoTime end;

	stall_look(stall, now);
	end = patience_ends(stall, patience_ms);
	if (!outbox_mono_is_set(end) || !outbox_mono_reached(end, now))
		return NULL;
	*reason = bytes_under_way(stall) ?
		OUTBOX_REASON_STALLED : OUTBOX_REASON_NO_CONFIRM;
	if (*reason == OUTBOX_REASON_STALLED)
		return psprintf("the broker takes no data: no byte was acknowledged for %d ms",
						outbox_link_stalled_ms(stall->link));
	return patience_ms < outbox_confirm_timeout_ms ?
		psprintf("a message was not confirmed within %d ms, and others wait",
				 patience_ms) :
		psprintf("a message was not confirmed within \"outbox.confirm_timeout\" (%d ms)",
				 outbox_confirm_timeout_ms);
}
