/*-------------------------------------------------------------------------
 *
 * keys.h
 *		Keys that are held, and keys to be read again.
 *
 * A source of a batch.  What a key does not have in memory, because it was held
 * or had enough there, it remembers by the lowest number of it (skip_low, queue.h).
 * When it can go on, the rows of this one key are read from there.
 *
 *-------------------------------------------------------------------------
 */
#ifndef OUTBOX_KEYS_H
#define OUTBOX_KEYS_H

#include "batch.h"
#include "unreadable.h"

typedef struct OutboxKeys OutboxKeys;

extern OutboxKeys *outbox_keys_create(MemoryContext cxt, OutboxQueue *queue,
									  const OutboxUnreadable *unreadable);

/* The four verbs of a source. */
extern bool outbox_keys_wanted(const OutboxKeys *keys);
/*
 * lowest: what is unread of anything begins there; end: the scan has not come so
 * far.  Between them nothing of the key may be left out.
 */
extern void outbox_keys_claim(OutboxKeys *keys, OutboxBatch *batch,
							  int64 lowest, int64 end);
/* To be called before the batch's messages are admitted. */
extern void outbox_keys_committed(OutboxKeys *keys, OutboxBatch *batch);
/* Nothing changes before the commit: there is nothing to forget. */

/* Somebody has locked a row of that key: it waits. */
extern void outbox_keys_hold_locked(OutboxKeys *keys, int64 hash, int64 seq,
									OutboxMonoTime until);
/*
 * Gives up the messages of a batch behind a row of their key that has failed, or is
 * set aside, where that blocks.  A row that has failed is found by the claim's
 * snapshot, whatever is known of the key; from the commit on the key is held, so that
 * its rows are not claimed in vain.
 */
extern void outbox_keys_check_failed(OutboxBatch *batch);
extern void outbox_keys_block(OutboxKeys *keys, OutboxBatch *batch);
/* Rows that hold keys may be gone. */
extern void outbox_keys_doubt_holders(OutboxKeys *keys);
extern bool outbox_keys_doubtful(const OutboxKeys *keys);
/* Looks whether they are there, in the transaction; keys without one go on. */
/* True: the retry that has held one is gone, or set aside, and it may have others. */
extern bool outbox_keys_check_holders(OutboxKeys *keys);
#ifdef OUTBOX_FAULTS
/* Is there anything that the former would let go on? */
extern bool outbox_keys_have_released(OutboxKeys *keys);
#endif

/* When keys with a locked row are looked at again; unset: there are none. */
extern OutboxMonoTime outbox_keys_deadline(const OutboxKeys *keys);
extern void outbox_keys_timers(OutboxKeys *keys, OutboxMonoTime now);

#endif							/* OUTBOX_KEYS_H */
