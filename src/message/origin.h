/*-------------------------------------------------------------------------
 *
 * origin.h
 *		Where a message was enqueued.
 *
 * Rows reach a database without a sign that they are copies: a restore loads them before
 * the control row, logical replication brings them one by one.  So each row has its
 * origin, and the relay looks at each.
 *
 *-------------------------------------------------------------------------
 */
#ifndef OUTBOX_ORIGIN_H
#define OUTBOX_ORIGIN_H

/* A database of a server, by its system identifier: a hash, as each row has it. */
extern int64 outbox_origin_of(uint64 server, Oid database);

/* This database, the default of outbox.origin. */
extern int64 outbox_own_origin(void);

#endif							/* OUTBOX_ORIGIN_H */
