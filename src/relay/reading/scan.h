/*-------------------------------------------------------------------------
 *
 * scan.h
 *		Reading what is unread, in the order of seq.
 *
 * A source of a batch.  Who finds that rows are to be read (they were announced,
 * went back from memory, were locked) adds their range; unread.h has them.
 *
 * One rule keeps the order of a key here: a row is kept only if no older range that
 * is still unread has a row of its key.
 *
 *-------------------------------------------------------------------------
 */
#ifndef OUTBOX_SCAN_H
#define OUTBOX_SCAN_H

#include "batch.h"

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

#endif							/* OUTBOX_SCAN_H */
