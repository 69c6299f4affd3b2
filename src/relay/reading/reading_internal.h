/*-------------------------------------------------------------------------
 *
 * reading_internal.h
 *		The reader's parts.
 *
 *-------------------------------------------------------------------------
 */
#ifndef OUTBOX_READING_INTERNAL_H
#define OUTBOX_READING_INTERNAL_H

#include "reading.h"

/*
 * due.c: rows whose time comes: retries and scheduled messages
 *
 * A source of a batch, beside keys and the scan, which do not have such rows.
 * They are claimed in the order of (available_at, seq); what could not be claimed
 * when its time came (it was locked, its key was held) is found when they are read
 * from the start again.
 */

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

/*
 * held_keys.c: keys that are held, and keys to be read again
 *
 * A source of a batch.  What a key does not have in memory, because it was held
 * or had enough there, it remembers by the lowest number of it (skip_low, queue.h).
 * When it can go on, the rows of this one key are read from there.
 */

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
 * Releases the messages of a batch behind a row of their key that has failed, or is
 * set aside, where that blocks.  A row that has failed is found by the claim's
 * snapshot, whatever is known of the key; from the commit on the key is held, so that
 * its rows are not claimed in vain.
 */
extern void outbox_keys_check_failed(OutboxBatch *batch);
extern void outbox_keys_block(OutboxKeys *keys, OutboxBatch *batch);

/* Rows that hold keys may be gone. */
extern void outbox_keys_invalidate_holders(OutboxKeys *keys);
extern bool outbox_keys_are_stale(const OutboxKeys *keys);

/* Looks whether they are there, in the transaction; keys without one go on. */
/* True: the retry that has held one is gone, or set aside, and it may have others. */
extern bool outbox_keys_check_holders(OutboxKeys *keys);
#ifdef OUTBOX_TEST_POINTS
/* Is there anything that the former would let go on? */
extern bool outbox_keys_have_released(OutboxKeys *keys);
#endif

/* When keys with a locked row are looked at again; unset: there are none. */
extern OutboxMonoTime outbox_keys_deadline(const OutboxKeys *keys);
extern void outbox_keys_timers(OutboxKeys *keys, OutboxMonoTime now);

/*
 * scan.c: reading what is unread, in the order of seq
 *
 * A source of a batch.  Who finds that rows are to be read (they were announced,
 * went back from memory, were locked) adds their range; unread_ranges.h has them.
 *
 * One rule keeps the order of a key here: a row is kept only if no older range that
 * is still unread has a row of its key.
 */

typedef struct OutboxScan OutboxScan;

extern OutboxScan *outbox_scan_create(MemoryContext cxt);

/* Rows that are to be read (again), and not before at, if that is set. */
extern void outbox_scan_add(OutboxScan *scan, int64 lo, int64 hi,
							OutboxMonoTime at, int why);

/* The four verbs of a source. */
extern bool outbox_scan_wanted(const OutboxScan *scan, OutboxMonoTime now);
extern void outbox_scan_claim(OutboxScan *scan, OutboxBatch *batch,
							  OutboxMonoTime now);
extern void outbox_scan_committed(OutboxScan *scan, OutboxBatch *batch);

/* Nothing changes before the commit: there is nothing to forget. */

/* No row from there on has been read. */
extern int64 outbox_scan_end(const OutboxScan *scan);

/* Where that begins which may have rows of keys and was not read, or the end. */
extern int64 outbox_scan_lowest(const OutboxScan *scan);

/* Of all that is unread, whether it keeps others waiting or not. */
extern int64 outbox_scan_first(const OutboxScan *scan);

/* Is the row in a range, or behind the end? */
extern bool outbox_scan_leads_to(const OutboxScan *scan, int64 seq);

/* Is there anything before the end, now or later? */
extern bool outbox_scan_behind(const OutboxScan *scan);

/* When there is something to read that need not be read now; unset: nothing. */
extern OutboxMonoTime outbox_scan_deadline(const OutboxScan *scan,
										   OutboxMonoTime now);

#endif							/* OUTBOX_READING_INTERNAL_H */
