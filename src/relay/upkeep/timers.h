/*-------------------------------------------------------------------------
 *
 * timers.h
 *		When to look for what nobody has told of.
 *
 *-------------------------------------------------------------------------
 */
#ifndef OUTBOX_TIMERS_H
#define OUTBOX_TIMERS_H

#include "clock.h"

typedef struct OutboxTimers OutboxTimers;

extern OutboxTimers *outbox_timers_create(MemoryContext cxt);

/* The next look at the tables; outbox.poll_interval may have become shorter. */
extern OutboxMonoTime outbox_timers_poll_at(const OutboxTimers *timers);
extern void outbox_timers_poll_soon(OutboxTimers *timers);
/* Is it time?  Then the next time begins. */
extern bool outbox_timers_poll_due(OutboxTimers *timers, OutboxMonoTime now);
extern bool outbox_timers_sweep_due(OutboxTimers *timers, OutboxMonoTime now);

#endif							/* OUTBOX_TIMERS_H */
