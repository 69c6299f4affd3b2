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

/* Asks the launcher to look at a database. */
extern void outbox_shared_request_database(Oid dboid);

/*
 * Takes the mutex of this worker's slot, unless that is another one's by now: who
 * was replaced while it was stopped writes nothing under it, and takes nothing out.
 * What it writes without the mutex (shared.h), it writes until its next turn.
 */
extern bool outbox_slot_lock_mine(void);

/* shared_errors.c: another worker has this slot.  Under its mutex. */
extern void outbox_slot_forget_errors(OutboxSlot *slot);

/* shared_intents.c: its part of the memory. */
extern Size outbox_intent_size(void);
extern void outbox_intent_init(void);

/* shared_waiters.c: its part of the memory, and the ring of an entry of stats.h. */
extern Size outbox_waiters_size(void);
extern void outbox_waiters_startup(void);
extern void outbox_recent_clear(int index);

/* shared_caps.c: its part of the memory. */
extern Size outbox_caps_size(void);
extern void outbox_caps_startup(void);

/* shared_stats.c: its part of the memory. */
extern Size outbox_stats_size(void);
extern void outbox_stats_init(OutboxStats *stats);

#endif							/* OUTBOX_SHARED_INTERNAL_H */
