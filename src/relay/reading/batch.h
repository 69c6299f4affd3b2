/*-------------------------------------------------------------------------
 *
 * batch.h
 *		What one round claims: messages, and which rows were read for them.
 *
 * A batch is made of segments.  Each is a stretch of rows that a source (due
 * rows, keys, the scan) has had read, all of them with one snapshot.  Messages
 * get into the queue only when the claiming transaction has committed; until then
 * nothing of the relay's state changes but the claims shown in shared memory,
 * which must be there before the row locks go (see outbox_discard() in the SQL
 * script).
 *
 *-------------------------------------------------------------------------
 */
#ifndef OUTBOX_BATCH_H
#define OUTBOX_BATCH_H

#include "queue.h"
#include "route_states.h"
#include "shared.h"
#include "unread.h"
#include "store.h"

/* A claim stops at so many bytes, and the queue holds at most so many. */
#define OUTBOX_CLAIM_BYTES		((size_t) 2 * 1024 * 1024)
#define OUTBOX_QUEUE_BYTES		((size_t) 32 * 1024 * 1024)

typedef enum OutboxSource
{
	OUTBOX_SOURCE_DUE,
	OUTBOX_SOURCE_KEYS,
	OUTBOX_SOURCE_SCAN
} OutboxSource;

/* One read of a source. */
typedef struct OutboxSegment
{
	OutboxSource source;
	OutboxKey  *key;			/* KEYS: rows of this one only */
	int64		skip_low;		/* of the key, when it was read */
	int64		after;			/* rows with after < seq <= upto */
	int64		upto;
	bool		open;			/* upto is no end: it has read up to the last row, */
	int64		known;			/* and at least up to here */
	int			start;			/* messages[start .. end) */
	int			end;
	int			visited;		/* rows seen, those we had already included */
	int			numbers;		/* of theirs that differ */
	int64		last_seq;		/* of the last row seen */
	TimestampTz last_due;
	bool		cut;			/* there may be more behind last_seq */
	int64		last_listed;	/* see find_locked() */
} OutboxSegment;

/* A row behind which the later ones of its key must wait. */
typedef struct OutboxBarringRow
{
	int64		seq;
	pg_uuid_t	id;				/* all zeros: not looked at */
	bool		keyed;
	int64		key_hash;
	char	   *route;
} OutboxBarringRow;

typedef struct OutboxBatch
{
	MemoryContext cxt;			/* of the round */
	OutboxQueue *queue;
	OutboxRoutes *routes;
	uint32		turn;			/* counts batches: whose turn the odd one is */
	int			limit;			/* messages */
	int			reserve;		/* of limit, what the source at work leaves */
	size_t		bytes_left;
	size_t		bytes_reserve;	/* the same of bytes, not in bytes_left */
	List	   *excluded_routes;
	int			nunreadable;
	const OutboxUnreadableRow *unreadable;	/* rows that are set aside */
	int			nsegments;
	OutboxSegment segments[OUTBOX_BATCH_SEGMENTS];
	int			count;
	OutboxMessage **messages;	/* NULL: given up */
	int		   *claims;			/* entries in MySlot->claims */
	List	   *locked;			/* of OutboxBarringRow: the claim passed it over */
	List	   *failed;			/* the same, see outbox_keys_check_failed() */
	List	   *overtaking;		/* of OutboxUnreadRange, see scan.c */
	struct OutboxRecalled *recalled;	/* recall.h */
	int			nrecalled;
	bool		in_vain;		/* most of what was checked was overtaking */
	bool		unknown_route;	/* a message has one that we have not loaded */
	OutboxInbox late_news;		/* of what the snapshot need not see */
} OutboxBatch;

/* How many messages a worker may have in its memory ... */
#define OUTBOX_QUEUE_MAX	(2 * outbox_window)

/* ... and beside them, and beside the window: see OUTBOX_LOCKED_MAX. */
extern int	outbox_locked_beside(const OutboxQueue *queue);

extern void outbox_batch_init(OutboxBatch *batch, OutboxQueue *queue,
							  OutboxRoutes *routes, MemoryContext cxt);

/* Is there room for another message? */
extern bool outbox_batch_full(const OutboxBatch *batch);

/* Who comes before whom, and leaves half of what there is to the others. */
typedef enum OutboxPrecedence
{
	OUTBOX_BEFORE_KEYS,			/* due rows */
	OUTBOX_BEFORE_SCAN,			/* keys */
	OUTBOX_BEFORE_LEFT			/* ranges that are not LEFT, and what is new */
} OutboxPrecedence;

extern void outbox_batch_keep_half(OutboxBatch *batch, OutboxPrecedence who);
extern void outbox_batch_keep_nothing(OutboxBatch *batch);

/* A new segment, to be read now; NULL when there is none left. */
extern OutboxSegment *outbox_batch_add_segment(OutboxBatch *batch,
											   OutboxSource source,
											   int64 after, int64 upto);

/* What store is to claim for the segment, which is the last one. */
extern void outbox_batch_fill_claim(OutboxBatch *batch, OutboxClaim *claim);

/* Claims it, and looks for what was passed over because somebody has locked it. */
extern void outbox_batch_claim(OutboxBatch *batch, OutboxClaim *claim);

/* Remembers it, in one of the two lists. */
extern void outbox_batch_note_row(OutboxBatch *batch, List **list,
								  const OutboxRow *row);

/* Up to where the segment has read. */
extern int64 outbox_segment_read(const OutboxSegment *segment);

/* The message goes back to being a row, and nothing remembers it but the caller. */
extern void outbox_batch_give_up(OutboxBatch *batch, int index);

/* The same for all of them: the transaction failed. */
extern void outbox_batch_forget(OutboxBatch *batch);

/* The segments of a source, in their order: the first one has NULL before it. */
extern OutboxSegment *outbox_batch_next(OutboxBatch *batch,
										OutboxSource source,
										OutboxSegment *before);

#endif							/* OUTBOX_BATCH_H */
