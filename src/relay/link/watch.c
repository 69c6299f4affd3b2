/*-------------------------------------------------------------------------
 *
 * watch.c
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

#include "link_parts.h"
#include "queue.h"
#include "settings.h"
#include "utils/memutils.h"

/* How often to look whether the last byte has arrived. */
#define LOOK_MS 250

/* A network and a broker on which nothing piles up. */
#define QUICK_MS 250

/* What is not confirmed for so long is at the broker, and waits there. */
#define QUIET_MS 2000

struct OutboxWatch
{
	OutboxLink *link;
	const OutboxConfirms *window;
	uint64		tag;			/* of the oldest unconfirmed message; 0: none */
	OutboxMonoTime since;		/* it is waited for, or for it to leave */
	OutboxMonoTime left_at;		/* its last byte arrived; unset: not yet */
	uint64		acknowledged;	/* bytes on the link by then */
	bool		answered;		/* something of its time was confirmed */
	bool		confirmed;		/* anything was, since the last look */
	OutboxMonoTime confirmed_at;	/* when that was seen */
	OutboxMonoTime confirmed_sent_at;	/* and when the last of it was sent */
};

OutboxWatch *
outbox_watch_create(MemoryContext cxt, OutboxLink *link,
					const OutboxConfirms *window)
{
	OutboxWatch *watch = MemoryContextAllocZero(cxt, sizeof(OutboxWatch));

	watch->link = link;
	watch->window = window;
	return watch;
}

void
outbox_watch_reset(OutboxWatch *watch)
{
	OutboxLink *link = watch->link;
	const OutboxConfirms *window = watch->window;

	memset(watch, 0, sizeof(*watch));
	watch->link = link;
	watch->window = window;
}

void
outbox_watch_answered(OutboxWatch *watch, OutboxMonoTime sent_at)
{
	watch->confirmed = true;
	watch->confirmed_sent_at = sent_at;
	if (!outbox_mono_is_set(watch->left_at) ||
		outbox_mono_before(sent_at,
						   outbox_mono_plus(watch->left_at,
											outbox_confirm_timeout_ms)))
		watch->answered = true;
}

/* Has the last byte of the oldest message arrived? */
static void
look_for_bytes(OutboxWatch *watch, OutboxMonoTime now)
{
	const OutboxItem *oldest =
		watch->window->ring[watch->tag % watch->window->size];
	uint64		acknowledged = outbox_link_acknowledged(watch->link);

	if (acknowledged > watch->acknowledged)
		watch->since = now;
	watch->acknowledged = acknowledged;
	if (acknowledged >= oldest->published_to)
		watch->left_at = now;
}

void
outbox_watch_look(OutboxWatch *watch, OutboxMonoTime now)
{
	if (watch->confirmed)
		watch->confirmed_at = now;
	watch->confirmed = false;
	if (watch->window->outstanding == 0 ||
		outbox_link_state(watch->link) != OUTBOX_LINK_OPEN)
	{
		watch->tag = 0;
		return;
	}
	if (watch->tag != watch->window->oldest)
	{
		watch->tag = watch->window->oldest;
		watch->since = now;
		watch->left_at = OUTBOX_MONO_UNSET;
		watch->acknowledged = 0;
		watch->answered = false;
	}
	if (watch->answered || outbox_link_returning(watch->link))
		watch->since = now;
	watch->answered = false;
	if (!outbox_mono_is_set(watch->left_at))
		look_for_bytes(watch, now);
}

bool
outbox_watch_answers_quickly(const OutboxWatch *watch, OutboxMonoTime now)
{
	return outbox_mono_is_set(watch->confirmed_at) &&
		!outbox_mono_reached(outbox_mono_plus(watch->confirmed_at, QUICK_MS), now) &&
		!outbox_mono_reached(outbox_mono_plus(watch->confirmed_sent_at, QUICK_MS),
							 watch->confirmed_at);
}

bool
outbox_watch_bytes_under_way(const OutboxWatch *watch)
{
	return watch->tag != 0 && !outbox_mono_is_set(watch->left_at);
}

bool
outbox_watch_quiet(const OutboxWatch *watch, OutboxMonoTime now)
{
	return !outbox_watch_bytes_under_way(watch) &&
		outbox_mono_reached(outbox_mono_plus(watch->since, QUIET_MS), now);
}

OutboxMonoTime
outbox_watch_progress_at(const OutboxWatch *watch)
{
	return watch->tag != 0 ? watch->since : OUTBOX_MONO_UNSET;
}

/* When the broker has had time enough; unset: nothing is waited for. */
static OutboxMonoTime
patience_ends(const OutboxWatch *watch)
{
	if (watch->tag == 0)
		return OUTBOX_MONO_UNSET;
	return outbox_mono_plus(watch->since,
							outbox_watch_bytes_under_way(watch) ?
							outbox_link_stalled_ms(watch->link) :
							outbox_confirm_timeout_ms);
}

OutboxMonoTime
outbox_watch_deadline(OutboxWatch *watch, OutboxMonoTime now)
{
	OutboxMonoTime deadline;

	outbox_watch_look(watch, now);
	deadline = patience_ends(watch);
	if (outbox_watch_bytes_under_way(watch))
		outbox_mono_earlier(&deadline, outbox_mono_plus(now, LOOK_MS));
	return deadline;
}

const char *
outbox_watch_late(OutboxWatch *watch, OutboxMonoTime now,
				  OutboxReason *reason)
{
	OutboxMonoTime end;

	outbox_watch_look(watch, now);
	end = patience_ends(watch);
	if (!outbox_mono_is_set(end) || !outbox_mono_reached(end, now))
		return NULL;
	*reason = outbox_watch_bytes_under_way(watch) ?
		OUTBOX_REASON_STALLED : OUTBOX_REASON_NO_CONFIRM;
	return *reason == OUTBOX_REASON_STALLED ?
		psprintf("the broker takes no data: no byte was acknowledged for %d ms",
				 outbox_link_stalled_ms(watch->link)) :
		psprintf("a message was not confirmed within \"outbox.confirm_timeout\" (%d ms)",
				 outbox_confirm_timeout_ms);
}
