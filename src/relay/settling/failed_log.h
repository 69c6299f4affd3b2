/*-------------------------------------------------------------------------
 *
 * failed_log.h
 *		What the server log says of messages that are given up.
 *
 *-------------------------------------------------------------------------
 */
#ifndef OUTBOX_FAILED_LOG_H
#define OUTBOX_FAILED_LOG_H

#include "queue.h"
#include "store.h"

/* One of a route's is, and that is committed. */
extern void outbox_log_failed(const OutboxItem *item, const OutboxFailure *failure);

#endif							/* OUTBOX_FAILED_LOG_H */
