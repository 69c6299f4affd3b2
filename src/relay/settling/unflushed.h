/*-------------------------------------------------------------------------
 *
 * unflushed.h
 *		What was settled by commits that are not on disk yet.
 *
 *-------------------------------------------------------------------------
 */
#ifndef OUTBOX_UNFLUSHED_H
#define OUTBOX_UNFLUSHED_H

#include "access/xlogdefs.h"
#include "reading.h"

typedef struct OutboxUnflushed OutboxUnflushed;

/* A worker that was here before us may have settled anything, just now. */
extern OutboxUnflushed *outbox_unflushed_create(MemoryContext cxt);

/* A message of that key is being settled; add says by which commit. */
extern void outbox_unflushed_key(OutboxUnflushed *unflushed, int64 hash);
/* count messages were settled by a commit that ends at lsn. */
extern void outbox_unflushed_add(OutboxUnflushed *unflushed, int count,
								 XLogRecPtr lsn);
/* Forgets what is on disk meanwhile, by whomever; or brings it there. */
extern void outbox_unflushed_check(OutboxUnflushed *unflushed);
extern void outbox_unflushed_flush(OutboxUnflushed *unflushed);

/* How many messages; they count against the window. */
extern int	outbox_unflushed_count(const OutboxUnflushed *unflushed);
/* Is one of the batch of a key that something unflushed may be of? */
extern bool outbox_unflushed_concerns(const OutboxUnflushed *unflushed,
									  const OutboxBatch *batch);

#endif							/* OUTBOX_UNFLUSHED_H */
