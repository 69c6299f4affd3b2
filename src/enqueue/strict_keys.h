/*-------------------------------------------------------------------------
 *
 * strict_keys.h
 *		Locks of outbox.strict_keys.
 *
 *-------------------------------------------------------------------------
 */
#ifndef OUTBOX_STRICT_KEYS_H
#define OUTBOX_STRICT_KEYS_H

/*
 * Makes transactions that enqueue for one key commit one after the other, so
 * that the order of seq is the order of commit.  Held to the end of the
 * transaction; a deadlock is reported as any other.
 */
extern void outbox_lock_key(int64 hash);

#endif							/* OUTBOX_STRICT_KEYS_H */
