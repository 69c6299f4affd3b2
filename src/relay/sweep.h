/*-------------------------------------------------------------------------
 *
 * sweep.h
 *		Looks for rows that nobody has announced.
 *
 *-------------------------------------------------------------------------
 */
#ifndef OUTBOX_SWEEP_H
#define OUTBOX_SWEEP_H

#include "clock.h"
#include "queue.h"

struct OutboxRelay;
typedef struct OutboxSweep OutboxSweep;

extern OutboxSweep *outbox_sweep_create(MemoryContext cxt);

/* All rows that were read are to be looked at (again), from the first one on. */
extern void outbox_sweep_start(OutboxSweep *sweep, OutboxQueue *queue);
/* Where keys are forgotten, passes over what they have follow each other. */
extern OutboxMonoTime outbox_sweep_deadline(const OutboxSweep *sweep,
											const OutboxQueue *queue);
extern void outbox_sweep_timers(OutboxSweep *sweep, OutboxQueue *queue,
								OutboxMonoTime now);
/* Is one under way? */
extern bool outbox_sweep_wanted(const OutboxSweep *sweep, const OutboxQueue *queue);
/* Its next step, in a transaction; what it finds is to be read. */
extern void outbox_sweep_step(OutboxSweep *sweep, struct OutboxRelay *relay);
#ifdef OUTBOX_FAULTS
/* Starts one, from time to time, that only tells what it would find. */
extern void outbox_sweep_look(OutboxSweep *sweep, OutboxMonoTime now);
#endif

#endif							/* OUTBOX_SWEEP_H */
