/*-------------------------------------------------------------------------
 *
 * renewal.h
 *		When messages are refused: is another channel worth a try?
 *
 *-------------------------------------------------------------------------
 */
#ifndef OUTBOX_RENEWAL_H
#define OUTBOX_RENEWAL_H

#include "clock.h"

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

#endif							/* OUTBOX_RENEWAL_H */
