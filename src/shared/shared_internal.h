/*-------------------------------------------------------------------------
 *
 * shared_internal.h
 *		What the files of the shared memory share.
 *
 *-------------------------------------------------------------------------
 */
#ifndef OUTBOX_SHARED_INTERNAL_H
#define OUTBOX_SHARED_INTERNAL_H

#include "shared.h"
#include "stats.h"

/* Sets the latch of that process; -1: of none. */
extern void outbox_wake_procno(int procno);

/* Asks the launcher to look at a database; work: there is some. */
extern void outbox_shared_request_database(Oid dboid, bool work);

/*
 * Takes the mutex of this worker's slot, unless that is another one's by now: who
 * was replaced while it was stopped writes nothing under it, and takes nothing out.
 * What it writes without the mutex (shared.h), it writes until its next turn.
 */
extern bool outbox_slot_lock_mine(void);

/*
 * The other parts of the memory, see shared.c: their sizes, and their set-up when all of
 * it is 0.
 */
extern Size outbox_intent_size(void);
extern void outbox_intent_init(void);

extern pg_atomic_uint64 *outbox_flushed;
extern Size outbox_flushed_size(void);
extern void outbox_flushed_init(void);

extern Size outbox_stats_size(void);
extern void outbox_stats_init(void);

extern struct OutboxWaiters *outbox_waiters;
extern Size outbox_waiters_size(void);
extern void outbox_waiters_init(void);

/* A ring for each entry of stats.h. */
extern struct OutboxRecentlySettled *outbox_recent_rings;
extern Size outbox_recent_size(void);
extern void outbox_recent_init(void);
extern void outbox_recent_clear(int index);

extern struct OutboxCapBucket *outbox_cap_buckets;
extern Size outbox_caps_size(void);
extern void outbox_caps_init(void);

#endif							/* OUTBOX_SHARED_INTERNAL_H */
