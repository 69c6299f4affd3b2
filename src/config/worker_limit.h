/*-------------------------------------------------------------------------
 *
 * worker_limit.h
 *		What outbox.max_workers means on this server.
 *
 *-------------------------------------------------------------------------
 */
#ifndef OUTBOX_WORKER_LIMIT_H
#define OUTBOX_WORKER_LIMIT_H

#include "miscadmin.h"
#include "settings.h"

/* So many workers may all databases of the server have together. */
static inline int
outbox_worker_limit(void)
{
	if (outbox_max_workers > 0)
		return Min(outbox_max_workers, max_worker_processes);
	return Max(max_worker_processes / 2, 1);
}

#endif							/* OUTBOX_WORKER_LIMIT_H */
