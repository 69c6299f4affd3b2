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

/*
 * Counts one more message of the key on the route, for the table outbox open as
 * rel: its number, and a seq that no later message of the key is below.  Whoever
 * else numbers a message of this key waits until the transaction ends.
 */
extern void outbox_number_key(Relation rel, const char *route, int64 key_hash,
							  int64 *number, int64 *seq);

/*
 * headers, an object or NULL, with x-outbox-seq, and x-outbox-key-seq where number
 * is not 0; they replace those of these names.
 */
extern Jsonb *outbox_numbered_headers(Jsonb *headers, int64 seq, int64 number);

#endif							/* OUTBOX_NUMBERING_H */
