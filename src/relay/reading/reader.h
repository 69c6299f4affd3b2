/*-------------------------------------------------------------------------
 *
 * reader.h
 *		Which rows are read next, and what becomes of them.
 *
 * Three sources: rows whose time has come (due.h), keys to be read again
 * (keys.h), and all else that is unread (scan.h).  Each knows whether
 * it wants a claim, claims, and takes note when the claim has committed; if it has
 * not, nothing has changed.
 *
 *		add, told, doubted --> wanted --> claim --COMMIT--> committed --> queue
 *		      ^                              \--ERROR---> forget
 *		      +-- what the queue did not keep, what somebody has locked
 *
 *-------------------------------------------------------------------------
 */
#ifndef OUTBOX_READER_H
#define OUTBOX_READER_H

#include "batch.h"
#include "unreadable.h"

typedef struct OutboxReader OutboxReader;

/* Everything is unread. */
extern OutboxReader *outbox_reader_create(MemoryContext cxt,
										  OutboxQueue *queue,
										  OutboxRoutes *routes);

/* ------------------------------------------------------------ what to read */

/* Rows from lo to hi are to be read; why is one of OUTBOX_UNREAD_... */
extern void outbox_reader_add(OutboxReader *reader, int64 lo, int64 hi,
							  int why);
/* Something may have been committed that nobody has told of. */
extern void outbox_reader_look(OutboxReader *reader);
/* A waiting row that is due at that time has been committed. */
extern void outbox_reader_told_due(OutboxReader *reader, TimestampTz at);
/* Waiting rows have changed: the next round looks when the next one is due, */
extern void outbox_reader_look_up_due(OutboxReader *reader);
/* or reads all that are due. */
extern void outbox_reader_reread_due(OutboxReader *reader);
/* Rows that hold their keys may be gone. */
extern void outbox_reader_doubt_holders(OutboxReader *reader);

/*
 * A claim has failed, as a value of that row cannot be read: claims leave it out from
 * now on.  False: that cannot be.
 */
extern bool outbox_reader_set_aside(OutboxReader *reader,
									const OutboxUnreadableRow *row,
									const char *error, const char *sqlstate);
extern const OutboxUnreadable *outbox_reader_unreadable(const OutboxReader *reader);
/* Rows that are set aside are read again. */
extern void outbox_reader_ask_unreadable(OutboxReader *reader);

/* ------------------------------------------------------------------- rounds */

/* Would there be something to claim, and room for it? */
extern bool outbox_reader_wanted(const OutboxReader *reader,
								 OutboxMonoTime now);
/* Has it something else to look up in a round? */
extern bool outbox_reader_wonders(const OutboxReader *reader);
/* Called in a transaction. */
extern bool outbox_reader_check_holders(OutboxReader *reader);
/* The same, after the batch's snapshot was taken. */
extern void outbox_reader_claim(OutboxReader *reader, OutboxBatch *batch,
								TimestampTz wall);
/* The same: when is the next row due?  failed: rows got a time in it. */
extern void outbox_reader_find_due(OutboxReader *reader, OutboxBatch *batch,
								   TimestampTz wall, bool failed);
/*
 * The transaction has committed: what was claimed goes to the queue, and may be
 * published from then on.
 */
extern void outbox_reader_committed(OutboxReader *reader, OutboxBatch *batch);

/* ------------------------------------------------------------------ state */

/* No row from there on has been read. */
extern int64 outbox_reader_end(const OutboxReader *reader);
/* Does what is unread lead to this row, or is it set aside? */
extern bool outbox_reader_leads_to(const OutboxReader *reader, int64 seq);
/* Is anything unread but what will be committed, or will be due? */
extern bool outbox_reader_behind(const OutboxReader *reader,
								 OutboxMonoTime now);
/* A round would read more than a few rows that are new. */
extern bool outbox_reader_reads_much(const OutboxReader *reader);
/* When the next waiting row is due, by the wall clock; 0: none. */
extern TimestampTz outbox_reader_next_due(const OutboxReader *reader);
/* When there will be something to read; unset: nothing is waited for. */
extern OutboxMonoTime outbox_reader_deadline(const OutboxReader *reader,
											 OutboxMonoTime now);
extern void outbox_reader_timers(OutboxReader *reader, OutboxMonoTime now);
#ifdef OUTBOX_FAULTS
/* Is there a key of which the holder is gone?  Called in a transaction. */
extern bool outbox_reader_has_released(OutboxReader *reader);
#endif

#endif							/* OUTBOX_READER_H */
