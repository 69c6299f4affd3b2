/*-------------------------------------------------------------------------
 *
 * sender.h
 *		When there may be room to send again.
 *
 *-------------------------------------------------------------------------
 */
#ifndef OUTBOX_SENDER_H
#define OUTBOX_SENDER_H

#include "clock.h"

typedef struct OutboxSender OutboxSender;

extern OutboxSender *outbox_sender_create(MemoryContext cxt);
/* There is another connection. */
extern void outbox_sender_opened(OutboxSender *sender);

/* There is no room; something was sent; there may be room now. */
extern void outbox_sender_later(OutboxSender *sender);
extern void outbox_sender_sent(OutboxSender *sender);
extern void outbox_sender_try_again(OutboxSender *sender);
extern void outbox_sender_timers(OutboxSender *sender, OutboxMonoTime now);
/* When it tries again; unset: nothing is waited for. */
extern OutboxMonoTime outbox_sender_deadline(const OutboxSender *sender);

/* All that was sent is at the broker; was it once, on this connection? */
extern void outbox_sender_pipe_is_clear(OutboxSender *sender);
extern bool outbox_sender_pipe_was_clear(const OutboxSender *sender);

#endif							/* OUTBOX_SENDER_H */
