/*-------------------------------------------------------------------------
 *
 * cdc.h
 *		Messages of routes with relay = 'cdc', which are read out of the log.
 *
 *-------------------------------------------------------------------------
 */
#ifndef OUTBOX_CDC_H
#define OUTBOX_CDC_H

#include "route.h"

/*
 * An ERROR (55000) unless this database has a replication slot that a message which
 * is committed from now on gets to: that of the route, or any if it names none; now, and again when the transaction ends.
 */
extern void outbox_cdc_require_slot(const OutboxRoute *route);

/*
 * outbox_route.slot was written, which had that value: when the transaction commits, an
 * administrator knows what has become of the slot until then.
 */
extern void outbox_cdc_forget_slot(const char *slot);

/* Is a row on its way out that was there for the log only? */
extern bool outbox_cdc_removing(void);

#endif							/* OUTBOX_CDC_H */
