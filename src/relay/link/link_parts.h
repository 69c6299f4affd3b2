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

typedef struct OutboxLinkConfig
{
	char	   *error;			/* why it cannot be used; NULL when fine */
	OutboxUri	uri;			/* what could be used last; until the next
								 * load */
	MemoryContext uri_cxt;		/* uri and what goes with it */
	char	   *text;			/* all settings of the link, to compare */
	uint64		passwords;		/* hash of them, as they are not kept */
	uint64		seed;			/* of that hash, so that it tells nobody else */
} OutboxLinkConfig;

typedef enum OutboxLinkConfigChange
{
	OUTBOX_LINK_CONFIG_SAME,	/* or cannot be used */
	OUTBOX_LINK_CONFIG_FIRST,
	OUTBOX_LINK_CONFIG_CHANGED
} OutboxLinkConfigChange;

extern void outbox_link_config_init(OutboxLinkConfig *config);

/*
 * Reads where the broker is, and looks once at the password file so that an
 * unreadable one shows as a config error and not as a broker that is down.
 */
extern OutboxLinkConfigChange outbox_link_config_load(OutboxLinkConfig *config);

/* renewal.c: when messages are refused: is another channel worth a try? */

typedef struct OutboxRenewal
{
	OutboxMonoTime renew_at;	/* a nack from then on replaces the channel */
	bool		renew;			/* one has come */
	bool		acked;			/* the channel has had an ack */
	uint32		renewals;		/* in a row */
} OutboxRenewal;

/* A channel was opened; one is gone; the broker has ended the connection. */
extern void outbox_renewal_opened(OutboxRenewal *renewal);
extern void outbox_renewal_closed(OutboxRenewal *renewal);
extern void outbox_renewal_other_broker(OutboxRenewal *renewal);

extern void outbox_renewal_acked(OutboxRenewal *renewal);

/* again: the message was tried before. */
extern void outbox_renewal_nacked(OutboxRenewal *renewal, bool again,
								  OutboxMonoTime opened_at);

/* When the channel is to be replaced, if nothing comes before; unset: not at all. */
extern OutboxMonoTime outbox_renewal_deadline(const OutboxRenewal *renewal);
extern void outbox_renewal_begun(OutboxRenewal *renewal);

/* poison.c: what becomes of messages that were in flight when the link was lost */

/* Messages that are sent alone because the broker closed the link because of them. */
#define OUTBOX_MAX_POISON	64

typedef struct OutboxPoison
{
	pg_uuid_t	known[OUTBOX_MAX_POISON];	/* the latest */
	uint32		nknown;			/* ever */
} OutboxPoison;

/* What has become of those in flight. */
typedef struct OutboxPoisonFound
{
	bool		any;			/* one was alone: it, or its route */
	OutboxRoute *broken;		/* its route rather than itself; or NULL */
	OutboxRoute *route;			/* the route of a poison message; or NULL */
} OutboxPoisonFound;

/*
 * Everything unconfirmed becomes READY again, and the window is empty.  error: why
 * the link was lost; NULL: we have closed it.
 */
extern OutboxPoisonFound outbox_poison_reclaim(OutboxPoison *poison,
											   OutboxQueue *queue,
											   OutboxConfirms *window,
											   const OutboxLinkError *error);
extern bool outbox_poison_is_known(const OutboxPoison *poison,
								   const OutboxMessage *message);

/* stall.c: how long the broker is waited for */

typedef struct OutboxStall
{
	OutboxLink *link;
	const OutboxConfirms *window;	/* of OutboxItem */
	uint64		tag;			/* of the oldest unconfirmed message; 0: none */
	OutboxMonoTime since;		/* it is waited for, or for it to leave */
	OutboxMonoTime look_at;		/* the next look at its bytes */
	OutboxMonoTime left_at;		/* its last byte arrived; unset: not yet */
	uint64		acknowledged;	/* bytes on the link by then */
	bool		answered;		/* something of its time was confirmed */
	uint64		return_left;	/* outbox_link_return_left() at the last look */
} OutboxStall;

/* At start and on a new connection: of what was before it nothing is known. */
extern void outbox_stall_init(OutboxStall *stall, OutboxLink *link,
							  const OutboxConfirms *window);

/* A message was confirmed or refused that was sent at that time. */
extern void outbox_stall_answered(OutboxStall *stall, OutboxMonoTime sent_at);

/* Is it there?  Looks now; to be called after outbox_stall_late(). */
extern bool outbox_stall_has_left(OutboxStall *stall, OutboxMonoTime now);

/* patience_ms: for a message that is there. */
extern OutboxMonoTime outbox_stall_deadline(OutboxStall *stall, int patience_ms,
											OutboxMonoTime now);

/* Why the connection is to be given up, or NULL; and the kind of it. */
extern const char *outbox_stall_late(OutboxStall *stall, int patience_ms,
									 OutboxMonoTime now, OutboxReason *reason);

#endif							/* OUTBOX_LINK_PARTS_H */
