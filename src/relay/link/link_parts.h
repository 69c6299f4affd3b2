/*-------------------------------------------------------------------------
 *
 * link_parts.h
 *		What is known of the connection beside the link itself.
 *
 *-------------------------------------------------------------------------
 */
#ifndef OUTBOX_LINK_PARTS_H
#define OUTBOX_LINK_PARTS_H

#include "broker.h"
#include "clock.h"
#include "confirms.h"
#include "queue.h"
#include "uri.h"

/* link_config.c: where the broker is, and how to connect to it */

typedef struct OutboxLinkConfig OutboxLinkConfig;

typedef enum OutboxLinkConfigChange
{
	OUTBOX_LINK_CONFIG_SAME,	/* or cannot be used */
	OUTBOX_LINK_CONFIG_FIRST,
	OUTBOX_LINK_CONFIG_CHANGED
} OutboxLinkConfigChange;

extern OutboxLinkConfig *outbox_link_config_create(MemoryContext cxt);

/*
 * Reads where the broker is, and looks once at the password file so that an
 * unreadable one shows as a config error and not as a broker that is down.
 */
extern OutboxLinkConfigChange outbox_link_config_load(OutboxLinkConfig *config);

extern bool outbox_link_config_usable(const OutboxLinkConfig *config);

/* What could be used last; until the next load. */
extern const OutboxUri *outbox_link_config_uri(const OutboxLinkConfig *config);

/* renewal.c: when messages are refused: is another channel worth a try? */

typedef struct OutboxRenewal OutboxRenewal;

extern OutboxRenewal *outbox_renewal_create(MemoryContext cxt);

/* A channel was opened; one is gone; the broker has ended the connection. */
extern void outbox_renewal_opened(OutboxRenewal *renewal);
extern void outbox_renewal_closed(OutboxRenewal *renewal);
extern void outbox_renewal_other_broker(OutboxRenewal *renewal);

extern void outbox_renewal_acked(OutboxRenewal *renewal);

/* again: the message was tried before. */
extern void outbox_renewal_nacked(OutboxRenewal *renewal, bool again,
								  OutboxMonoTime opened_at);

/* Is the channel to be replaced?  It is taken note that it is. */
extern bool outbox_renewal_due(OutboxRenewal *renewal, OutboxMonoTime now);

/* When it may be, if nothing comes before; unset: nothing is waited for. */
extern OutboxMonoTime outbox_renewal_deadline(const OutboxRenewal *renewal);

/* Has the channel had an ack?  How many were replaced in a row? */
extern bool outbox_renewal_has_acked(const OutboxRenewal *renewal);
extern uint32 outbox_renewal_count(const OutboxRenewal *renewal);

/* sender.c: when there may be room to send again */

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

/* poison.c: what becomes of messages that were in flight when the link was lost */

/* The messages because of which the broker closed the link. */
typedef struct OutboxPoison OutboxPoison;

/* What has become of those in flight. */
typedef struct OutboxPoisonFound
{
	bool		any;			/* one was alone: it, or its route */
	OutboxRoute *broken;		/* its route rather than itself; or NULL */
	OutboxRoute *route;			/* the route of a poison message; or NULL */
} OutboxPoisonFound;

extern OutboxPoison *outbox_poison_create(MemoryContext cxt, OutboxQueue *queue);

/*
 * Everything unconfirmed becomes READY again, and the window is empty.  error: why
 * the link was lost; NULL: we have closed it.
 */
extern OutboxPoisonFound outbox_poison_reclaim(OutboxPoison *poison,
											   OutboxConfirms *window,
											   const OutboxLinkError *error);
extern bool outbox_poison_is_known(const OutboxPoison *poison,
								   const OutboxMessage *message);

/* stall.c: how long the broker is waited for */

typedef struct OutboxStall OutboxStall;

/* window: of OutboxItem. */
extern OutboxStall *outbox_stall_create(MemoryContext cxt, OutboxLink *link,
										const OutboxConfirms *window);

/* A new connection: of what was before it nothing is known. */
extern void outbox_stall_reset(OutboxStall *stall);

/* A message was confirmed or refused that was sent at that time. */
extern void outbox_stall_answered(OutboxStall *stall, OutboxMonoTime sent_at);
extern void outbox_stall_look(OutboxStall *stall, OutboxMonoTime now);

/* Is the oldest unconfirmed message not even there yet? */
extern bool outbox_stall_bytes_under_way(const OutboxStall *stall);

/* It has been there for long, and nothing has come. */
extern bool outbox_stall_quiet(const OutboxStall *stall, OutboxMonoTime now);

/* Did a confirm come just now that was not long in coming? */
extern bool outbox_stall_answers_quickly(const OutboxStall *stall,
										 OutboxMonoTime now);

/* When there was progress the last time; unset: nothing is waited for. */
extern OutboxMonoTime outbox_stall_progress_at(const OutboxStall *stall);

extern OutboxMonoTime outbox_stall_deadline(OutboxStall *stall,
											OutboxMonoTime now);

/* Why the connection is to be given up, or NULL; and the kind of it. */
extern const char *outbox_stall_late(OutboxStall *stall, OutboxMonoTime now,
									 OutboxReason *reason);

#endif							/* OUTBOX_LINK_PARTS_H */
