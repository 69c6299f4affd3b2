/*-------------------------------------------------------------------------
 *
 * control.h
 *		May messages be published from here?  The control row, and copies.
 *
 *-------------------------------------------------------------------------
 */
#ifndef OUTBOX_CONTROL_H
#define OUTBOX_CONTROL_H

#include "batch.h"
#include "store.h"

typedef struct OutboxControlState OutboxControlState;

extern OutboxControlState *outbox_control_create(MemoryContext cxt);

/* The control row, or a route, may have changed: nothing is sent meanwhile. */
extern void outbox_control_doubt(OutboxControlState *state);
extern bool outbox_control_doubtful(const OutboxControlState *state);
/* It is being read; what comes from now on is news again. */
extern void outbox_control_reading(OutboxControlState *state);
/*
 * This is what was read.  unusable: why the name of the environment cannot be
 * believed, or NULL.  True: what is in memory may not be sent any more.
 */
extern bool outbox_control_loaded(OutboxControlState *state,
								  const OutboxControl *control,
								  const char *unusable);
/* After a claim, in its transaction: does it say otherwise?  See control.c. */
extern void outbox_control_check(OutboxControlState *state,
								 const OutboxBatch *batch);

/* By the control row, or because this is a copy. */
extern bool outbox_control_paused(const OutboxControlState *state);
/* Not adopted. */
extern OutboxCopy outbox_control_copy(const OutboxControlState *state);

#endif							/* OUTBOX_CONTROL_H */
