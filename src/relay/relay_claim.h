/*-------------------------------------------------------------------------
 *
 * relay_claim.h
 *		What a round claims, and what becomes of it after the commit.
 *
 *-------------------------------------------------------------------------
 */
#ifndef OUTBOX_RELAY_CLAIM_H
#define OUTBOX_RELAY_CLAIM_H

#include "relay_internal.h"

#define OUTBOX_BATCH_SEGMENTS 24	/* due, keys or ranges, main */

/* One claim of a batch. */
typedef struct OutboxSegment
{
	OutboxOrigin origin;
	bool		main;			/* the scan that moves the cursor */
	OutboxKey  *key;			/* this key only */
	int64		after;
	int64		upto;
	int			start;			/* messages[start .. end) */
	int			end;
	int			visited;		/* rows seen, those we had already included */
	int			numbers;		/* of theirs that differ */
	int64		last_seq;		/* of the last row seen */
	TimestampTz last_due;
	bool		backlog;		/* reads the backlog */
	int64		skip_low;		/* of the key, when it was read */
	bool		cut;			/* there may be more */
	int64		first_dropped;	/* first one that the queue did not keep */
	int64		last_listed;	/* see find_locked() */
} OutboxSegment;

typedef struct OutboxLockedRow
{
	int64		seq;
	bool		keyed;
	int64		key_hash;
	char	   *route;
} OutboxLockedRow;

typedef struct OutboxBatch
{
	OutboxRelay *relay;
	OutboxInbox late_news;		/* of what the snapshot need not see */
	MemoryContext cxt;			/* of the round */
	int			limit;			/* messages */
	int			reserve;		/* of limit, what is left for the backlog */
	size_t		bytes_left;
	size_t		bytes_reserve;	/* the same of bytes, not in bytes_left */
	List	   *excluded_routes;
	int			nsegments;
	OutboxSegment segments[OUTBOX_BATCH_SEGMENTS];
	bool		reread;			/* it read keys again */
	int64		backlog_hi;		/* the backlog reaches up to here then */
	int			count;
	OutboxMessage **messages;
	int		   *claims;			/* entries in MySlot->claims */
	List	   *locked;			/* of OutboxLockedRow */
} OutboxBatch;

extern bool outbox_batch_wanted(OutboxRelay *relay);
extern void outbox_batch_init(OutboxRelay *relay, OutboxBatch *batch,
							  MemoryContext cxt);
extern void outbox_batch_claim(OutboxBatch *batch, TimestampTz wall);
extern void outbox_batch_committed(OutboxBatch *batch);
extern void outbox_batch_forget(OutboxBatch *batch);
extern void outbox_batch_give_up_message(OutboxBatch *batch, int index);
/* The segment that answers for a message: of its key, if that is read again. */
extern OutboxSegment *outbox_batch_reader(OutboxBatch *batch,
										  OutboxSegment *segment,
										  const OutboxMessage *message);

/* relay_load.c */
extern void outbox_relay_check_control(OutboxRelay *relay,
									   const OutboxBatch *batch);

/* relay_unflushed.c */
extern bool outbox_unflushed_concerns(const OutboxUnflushed *unflushed,
									  const OutboxBatch *batch);

/* relay_backlog.c */
extern bool outbox_backlog_yields(OutboxRelay *relay);
extern int64 outbox_backlog_key_low(const OutboxRelay *relay, int64 skip_low);
extern void outbox_backlog_check(OutboxBatch *batch);
extern void outbox_backlog_extend(OutboxRelay *relay, int64 hi);
extern void outbox_backlog_advance(OutboxRelay *relay,
								   const OutboxSegment *segment);

#endif							/* OUTBOX_RELAY_CLAIM_H */
