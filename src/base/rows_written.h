/*-------------------------------------------------------------------------
 *
 * rows_written.h
 *		Has anything been written in a database since?
 *
 *-------------------------------------------------------------------------
 */
#ifndef OUTBOX_ROWS_WRITTEN_H
#define OUTBOX_ROWS_WRITTEN_H

/*
 * Rows that were inserted, updated and deleted there, also in vain, as far as sessions
 * have reported it: they do some seconds after the commit, and never before.  Another
 * number than before means a look; the same one only that none is urgent, since a
 * session with track_counts off, or one that never reports, counts nothing.
 */
extern int64 outbox_rows_written(Oid dboid);

/*
 * Transactions of the whole server that could write, and have ended: another number than
 * before tells of each commit that a later snapshot sees.
 */
extern uint64 outbox_transactions_ended(void);

#endif							/* OUTBOX_ROWS_WRITTEN_H */
