/*-------------------------------------------------------------------------
 *
 * numbering.h
 *		Numbers of messages that consumers can check order and gaps by.
 *
 *-------------------------------------------------------------------------
 */
#ifndef OUTBOX_NUMBERING_H
#define OUTBOX_NUMBERING_H

#include "utils/jsonb.h"
#include "utils/relcache.h"

/* The next seq of the table outbox, open as rel. */
extern int64 outbox_draw_seq(Relation rel);

/*
 * Would outbox_number_key() wait?  For the relay, which must not; a transaction that
 * begins to number the key now is not seen, and waited for.
 */
extern bool outbox_key_is_being_numbered(const char *route, int64 key_hash);

/*
 * Counts one more message of the key on the route, for the table outbox open as
 * rel: its number, and a seq that no later message of the key is below.  Whoever
 * else numbers a message of this key waits until the transaction ends.
 */
extern void outbox_number_key(Relation rel, const char *route, int64 key_hash,
							  int64 *number, int64 *seq);

/* An ERROR (22023) where the user has set a number; old: of the row before, or NULL. */
extern void outbox_refuse_numbers(const Jsonb *headers, const Jsonb *old);

/*
 * headers, an object or NULL, with x-outbox-seq, and x-outbox-key-seq where number
 * is not 0; they replace those of these names.
 */
extern Jsonb *outbox_numbered_headers(Jsonb *headers, int64 seq, int64 number);

/* Have the headers a number, of this route or another one? */
extern bool outbox_has_number(const Jsonb *headers);
/* headers without the numbers, NULL if nothing else is in them. */
extern Jsonb *outbox_unnumbered_headers(Jsonb *headers);
/* headers, an object or NULL, with the numbers that old has. */
extern Jsonb *outbox_keep_numbers(Jsonb *headers, const Jsonb *old);

#endif							/* OUTBOX_NUMBERING_H */
