/*-------------------------------------------------------------------------
 *
 * recall.h
 *		Keys that are held and were forgotten, because there were too many.
 *
 *		known --too many are listed, nothing of it in memory--> forgotten
 *		  ^                                                         |
 *		  +--a claim meets a row of it, or a pass finds it free-----+
 *
 * What a worker remembers of held keys is bounded.  What is above the bound stays in
 * the table only: queue->forgotten_low says from where on.  While that is set, a key
 * that is not in memory may be held, so whoever meets a row of one looks into the
 * table before he goes on.  For those that nobody meets a pass of the sweep looks: a
 * key that nothing holds any more is read again, and of the others it notes where
 * they begin.  A pass that finds none ends the forgetting.
 *
 *-------------------------------------------------------------------------
 */
#ifndef OUTBOX_RECALL_H
#define OUTBOX_RECALL_H

#include "batch.h"
#include "unreadable.h"

/* A key that may be forgotten, and what the table says of it. */
typedef struct OutboxRecalled
{
	int64		hash;			/* MUST BE FIRST, see key.h */
	int64		seq;			/* of its oldest row that was met */
	bool		known;			/* the key was in memory, and so not looked up */
	bool		has_rows;		/* others were read before, and are ready */
	bool		is_held;		/* by a row that has failed, or */
	bool		waits;			/* by this one, for its next attempt */
	pg_uuid_t	retry;
	int64		retry_seq;
} OutboxRecalled;

/*
 * In the claim's transaction, when all is claimed; then when it has committed.  end: no
 * batch before has read from there on.
 */
extern void outbox_recall_look_up(OutboxBatch *batch, int64 end);
/* Before anything of the batch is held or admitted ... */
extern void outbox_recall_begin(OutboxBatch *batch);
/* ... and after all of it is. */
extern void outbox_recall_end(OutboxBatch *batch);

/*
 * In a pass: of these n keys, those that nothing holds are to be read again.  Where
 * the others begin is noted.
 */
extern void outbox_recall_free(OutboxQueue *queue, OutboxRoutes *routes,
							   const OutboxUnreadable *unreadable,
							   OutboxRecalled *met, int n);
/* In its last step: notes the rows that wait for their next attempt. */
extern void outbox_recall_note_retries(OutboxQueue *queue, OutboxRoutes *routes);

#endif							/* OUTBOX_RECALL_H */
