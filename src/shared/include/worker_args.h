/*-------------------------------------------------------------------------
 *
 * worker_args.h
 *		What the launcher tells a relay worker that it starts, in bgw_extra.
 *
 *-------------------------------------------------------------------------
 */
#ifndef OUTBOX_WORKER_ARGS_H
#define OUTBOX_WORKER_ARGS_H

#include "shared.h"

typedef struct OutboxWorkerArgs
{
	Oid			dboid;
	int			slot;			/* index in shared memory */
	uint64		generation;		/* that the slot must have */
	OutboxLinkTold told;		/* by the one that made room before */
	int			twin_told;		/* by the last one, see relay_twin.c */
} OutboxWorkerArgs;

#endif							/* OUTBOX_WORKER_ARGS_H */
