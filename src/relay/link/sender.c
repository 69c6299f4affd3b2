/*-------------------------------------------------------------------------
 *
 * sender.c
 *		When there may be room to send again.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "broker.h"
#include "link_parts.h"
#include "utils/memutils.h"

struct OutboxSender
{
	OutboxMonoTime send_at;		/* no room to send; try again then; unset: now */
	int			wait_ms;		/* the last such wait; 0: something was sent
								 * since */
	bool		pipe_was_clear; /* on this connection */
};

OutboxSender *
outbox_sender_create(MemoryContext cxt)
{
	return MemoryContextAllocZero(cxt, sizeof(OutboxSender));
}

void
outbox_sender_opened(OutboxSender *sender)
{
	sender->pipe_was_clear = false;
}

void
outbox_sender_try_again(OutboxSender *sender)
{
	sender->send_at = OUTBOX_MONO_UNSET;
}

void
outbox_sender_timers(OutboxSender *sender, OutboxMonoTime now)
{
	(void) outbox_mono_expired(&sender->send_at, now);
}

OutboxMonoTime
outbox_sender_deadline(const OutboxSender *sender)
{
	return sender->send_at;
}

/*
 * The send buffer is half full, or the broker blocks us.  Its answers wake us;
 * "writable" would come long before there is room, so we come back by time: at
 * first soon, since with large messages a buffer is empty after a millisecond,
 * and with every try in vain after twice as long.
 */
void
outbox_sender_later(OutboxSender *sender)
{
	sender->wait_ms = Min(Max(2 * sender->wait_ms, 1),
							  OUTBOX_LINK_AGAIN_MS);
	sender->send_at = outbox_mono_after(sender->wait_ms);
}

void
outbox_sender_sent(OutboxSender *sender)
{
	sender->wait_ms = 0;
}

void
outbox_sender_pipe_is_clear(OutboxSender *sender)
{
	sender->pipe_was_clear = true;
}

bool
outbox_sender_pipe_was_clear(const OutboxSender *sender)
{
	return sender->pipe_was_clear;
}
