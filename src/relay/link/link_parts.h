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

typedef enum OutboxLinkConfigNews
{
	OUTBOX_LINK_CONFIG_SAME,	/* or cannot be used */
	OUTBOX_LINK_CONFIG_FIRST,
	OUTBOX_LINK_CONFIG_CHANGED
} OutboxLinkConfigNews;

extern OutboxLinkConfig *outbox_link_config_create(MemoryContext cxt);

/*
 * Reads where the broker is, and looks once at the password file so that an
 * unreadable one shows as a config error and not as a broker that is down.
 */
extern OutboxLinkConfigNews outbox_link_config_load(OutboxLinkConfig *config);

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

/* unknown.c: what becomes of messages that were in flight when the link was lost */

/* The messages because of which the broker closed the link. */
typedef struct OutboxBlame OutboxBlame;

/* What has become of those in flight. */
typedef struct OutboxBlamed
{
	bool		any;			/* one was alone, and is to blame */
	OutboxRoute *broken;		/* its route rather than itself; or NULL */
	OutboxRoute *guilty;		/* the route of one that is itself to blame; or NULL */
} OutboxBlamed;

extern OutboxBlame *outbox_blame_create(MemoryContext cxt, OutboxQueue *queue);

/*
 * Everything unconfirmed becomes READY again, and the window is empty.  error: why
 * the link was lost; NULL: we have closed it.
 */
extern OutboxBlamed outbox_blame_unknown(OutboxBlame *blame,
										 OutboxConfirms *window,
										 const OutboxLinkError *error);
extern bool outbox_blame_was_blamed(const OutboxBlame *blame,
									const OutboxMessage *message);

/* watch.c: how long the broker is waited for */

typedef struct OutboxWatch OutboxWatch;

/* window: of OutboxItem. */
extern OutboxWatch *outbox_watch_create(MemoryContext cxt, OutboxLink *link,
										const OutboxConfirms *window);

/* A new connection: of what was before it nothing is known. */
extern void outbox_watch_reset(OutboxWatch *watch);
/* A message was confirmed or refused that was sent at that time. */
extern void outbox_watch_answered(OutboxWatch *watch, OutboxMonoTime sent_at);
extern void outbox_watch_look(OutboxWatch *watch, OutboxMonoTime now);

/* Is the oldest unconfirmed message not even there yet? */
extern bool outbox_watch_bytes_under_way(const OutboxWatch *watch);
/* It has been there for long, and nothing has come. */
extern bool outbox_watch_quiet(const OutboxWatch *watch, OutboxMonoTime now);
/* Did a confirm come just now that was not long in coming? */
extern bool outbox_watch_answers_quickly(const OutboxWatch *watch,
										 OutboxMonoTime now);
/* When there was progress the last time; unset: nothing is waited for. */
extern OutboxMonoTime outbox_watch_progress_at(const OutboxWatch *watch);

extern OutboxMonoTime outbox_watch_deadline(OutboxWatch *watch,
											OutboxMonoTime now);
/* Why the connection is to be given up, or NULL; and the kind of it. */
extern const char *outbox_watch_late(OutboxWatch *watch, OutboxMonoTime now,
									 OutboxReason *reason);

#endif							/* OUTBOX_LINK_PARTS_H */
