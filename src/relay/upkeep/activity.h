/*-------------------------------------------------------------------------
 *
 * activity.h
 *		What pg_stat_activity says of a worker: state and query.
 *
 *-------------------------------------------------------------------------
 */
#ifndef OUTBOX_ACTIVITY_H
#define OUTBOX_ACTIVITY_H

#include "shared.h"

/*
 * The worker is in that state, with that broker.  What is said then stays until the
 * next call that says another thing, also while the worker is idle.
 */
extern void outbox_activity_show(OutboxWorkerState state, const char *broker);

/* That text, for a transaction. */
extern const char *outbox_activity_text(void);

/* Around the wait for work. */
extern void outbox_activity_idle(void);
extern void outbox_activity_works(void);

#endif							/* OUTBOX_ACTIVITY_H */
