/*-------------------------------------------------------------------------
 *
 * wake.h
 *		Telling the relay, once after commit, what a transaction enqueued.
 *
 *-------------------------------------------------------------------------
 */
#ifndef OUTBOX_WAKE_H
#define OUTBOX_WAKE_H

#include "datatype/timestamp.h"

/* The current transaction made row seq claimable. */
extern void outbox_wake_row(int64 seq);
/* The current transaction made a row that is due at that time. */
extern void outbox_wake_due(TimestampTz due);
/* The current transaction has signals for the workers. */
extern void outbox_wake_signal(int signals);

/*
 * The current transaction created or altered a database, which may have the
 * extension; signals for its workers.
 */
extern void outbox_wake_database(Oid dboid, int signals);

#endif							/* OUTBOX_WAKE_H */
