/*-------------------------------------------------------------------------
 *
 * relay.h
 *		The relay worker: entry point of the process.
 *
 *-------------------------------------------------------------------------
 */
#ifndef OUTBOX_RELAY_H
#define OUTBOX_RELAY_H

/* What the launcher puts into bgw_extra. */
#include "shared.h"

typedef struct OutboxWorkerArgs
{
	Oid			dboid;
	int			slot;			/* index in shared memory */
	uint64		generation;		/* that the slot must have */
	OutboxLinkTold told;		/* by the one that made room before */
} OutboxWorkerArgs;

extern PGDLLEXPORT void outbox_relay_main(Datum main_arg);

#endif							/* OUTBOX_RELAY_H */
