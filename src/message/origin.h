/*-------------------------------------------------------------------------
 *
 * origin.h
 *		Where a message was enqueued.
 *
 *-------------------------------------------------------------------------
 */
#ifndef OUTBOX_ORIGIN_H
#define OUTBOX_ORIGIN_H

/* A database among all databases of all servers, by its system identifier. */
extern int64 outbox_origin_of(uint64 server, Oid database);

/*
 * This database: what outbox.origin is of a message that was enqueued here.  The
 * SQL function outbox_origin() gives the same.
 */
extern int64 outbox_own_origin(void);

#endif							/* OUTBOX_ORIGIN_H */
