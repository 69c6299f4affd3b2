/*-------------------------------------------------------------------------
 *
 * due.h
 *		Rows whose time comes: retries and scheduled messages.
 *
 * A source of a batch, beside keys and the scan, which do not have such rows.
 * They are claimed in the order of (available_at, seq); what could not be claimed
 * when its time came (it was locked, its key was held) is found when they are read
 * from the start again.
 *
 *-------------------------------------------------------------------------
 */
#ifndef OUTBOX_DUE_H
#define OUTBOX_DUE_H

#include "batch.h"

typedef struct OutboxDue OutboxDue;

extern OutboxDue *outbox_due_create(MemoryContext cxt);

/* The four verbs of a source. */
extern bool outbox_due_wanted(const OutboxDue *due);
extern void outbox_due_claim(OutboxDue *due, OutboxBatch *batch);
extern void outbox_due_committed(OutboxDue *due, OutboxBatch *batch);
/* Nothing changes before the commit: there is nothing to forget. */

/* A row with that time has been committed. */
extern void outbox_due_told(OutboxDue *due, TimestampTz at);
/* The next round looks up when the next one is due. */
extern void outbox_due_look_up(OutboxDue *due);
/* They are read from the start again. */
extern void outbox_due_restart(OutboxDue *due);

/* Is it to be looked up when the next one is due? */
extern bool outbox_due_unknown(const OutboxDue *due);
/*
 * Looks it up, in the transaction, if that is so, or force; what was found counts
 * from the commit on.
 */
extern void outbox_due_find(OutboxDue *due, OutboxBatch *batch,
							TimestampTz wall, bool force);

/* When the next one is due, by the wall clock; 0: there is none. */
extern TimestampTz outbox_due_next(const OutboxDue *due);
/* When there is something to do; unset: nothing is waited for. */
extern OutboxMonoTime outbox_due_deadline(const OutboxDue *due,
										  OutboxMonoTime now);
extern void outbox_due_timers(OutboxDue *due, OutboxMonoTime now);
/* Are some to be read again later, that could not be claimed? */
extern bool outbox_due_waits(const OutboxDue *due);

#endif							/* OUTBOX_DUE_H */
