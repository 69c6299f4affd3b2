/*-------------------------------------------------------------------------
 *
 * queue.h
 *		Messages that this worker has claimed, the order of keys, and routes.
 *
 * queue.c knows neither SQL nor AMQP.  A message goes through these states, which only
 * queue.c changes:
 *
 *		admit ----> READY --sent--> SENT --ack--> CONFIRMED --settled--> gone
 *		  |          ^  ^             |  \
 *		  v          |  +--unknown----+   +-nack, return--> REJECTED --> gone
 *		WAITING -----+ (its key lets it go)
 *
 * With ordering = 'key' at most one message of a key is going, that is, past WAITING,
 * until its settling is committed, durably if another waits behind it: else a crash
 * could lose the settling of two of them, and the key's older message would be
 * published again after its newer one.
 *
 * With 'pipelined' many are, and the answers count in the order of sending (in_turn,
 * listed).  A confirm counts when all before it are answered, so that what is settled
 * of a key is always its beginning, and what a crash brings back is its end.  A refusal
 * counts when all before it are gone, and stops the key: what is not sent goes back to
 * the table, what is refused behind it does so too, and nothing joins until it is
 * settled.  A message that was refused once goes alone in its key, as with 'key'.  When
 * the link is lost, confirms behind an unknown message do not count any more: the key
 * goes out again from that message on.
 *
 * Any message that
 * is not SENT, CONFIRMED or REJECTED can be dropped: it is a row in the table
 * all the same, and the claim was nothing but this memory.  What is dropped, or
 * not admitted, because its key cannot go on now is remembered by the lowest
 * sequence number (skip_low) from which the key has to be read again.
 *
 * A message is known by its id.  Its number says where it stands and need not be
 * its own: a subscriber has those of its publisher beside its own ones, and TRUNCATE
 * ... RESTART IDENTITY begins again.  Two of the same number have no order.
 *
 *-------------------------------------------------------------------------
 */
#ifndef OUTBOX_QUEUE_H
#define OUTBOX_QUEUE_H

#include "clock.h"
#include "declarations.h"
#include "lib/ilist.h"
#include "message.h"
#include "nodes/pg_list.h"
#include "reason_codes.h"
#include "route.h"
#include "sizes.h"
#include "store.h"
#include "utils/hsearch.h"
#include "utils/timestamp.h"

typedef enum OutboxItemState
{
	OUTBOX_ITEM_CLAIMED,		/* not admitted yet */
	OUTBOX_ITEM_READY,
	OUTBOX_ITEM_WAITING,
	OUTBOX_ITEM_SENT,
	OUTBOX_ITEM_CONFIRMED,
	OUTBOX_ITEM_REJECTED,
	OUTBOX_ITEM_GONE			/* being freed */
} OutboxItemState;

/* Why a key cannot go on. */
typedef enum OutboxHoldReason
{
	OUTBOX_HOLD_NONE,
	OUTBOX_HOLD_LOCKED,			/* somebody has locked its next row */
	OUTBOX_HOLD_RETRY			/* its head waits for another attempt */
} OutboxHoldReason;

/* The row because of which others wait. */
typedef struct OutboxHolder
{
	int64		seq;			/* where it stands */
	pg_uuid_t	id;
} OutboxHolder;

typedef struct OutboxItem OutboxItem;

/*
 * By what a key is known.  Its hash alone is no proof: a role may choose an aggregate_id
 * on its own route for the hash of another route's key.
 */
typedef struct OutboxKeyId
{
	int64		hash;
	OutboxRoute *route;
} OutboxKeyId;

static inline OutboxKeyId
outbox_key_id(int64 hash, OutboxRoute *route)
{
	OutboxKeyId key_id = {hash, route};

	return key_id;
}

/* qsort() and bsearch(), for structs that begin with an OutboxKeyId and for these. */
extern int	outbox_compare_keys(const void *a, const void *b);

typedef struct OutboxKey
{
	OutboxKeyId id;				/* MUST BE FIRST: key of the hash table */
	dlist_head	going;			/* past WAITING, in the order of sending */
	int			ngoing;
	size_t		going_bytes;
	OutboxItem *refused;		/* of these: where the key has stopped, or
								 * NULL */
	bool		next_alone;		/* the broker has refused the last one that it
								 * answered: the next one goes alone */
	dlist_head	waiting;		/* in the order of seq */
	int			nwaiting;
	size_t		waiting_bytes;
	bool		large;			/* rows were left in the table because of that */
	bool		blocked;		/* failed holds the later ones; false: no such
								 * row is known, and a claim finds it */
	OutboxHoldReason hold;
	OutboxHolder retry;			/* RETRY */
	bool		more_retries;	/* another one was met beside it */
	OutboxHolder failed;		/* blocked */
	int64		skip_low;		/* unclaimed rows from here on; 0 none */
	int			nreleased;		/* that were claimed in vain */
	int64		due_left;		/* beside them, rows whose time has come were
								 * left when those up to there could go, at
								 * least; PG_INT64_MAX: none */
	dlist_node	node;			/* in held, reread or large of the queue */
	enum
	{
		OUTBOX_KEY_UNLISTED,
		OUTBOX_KEY_HELD,		/* hold is not NONE, or it is blocked */
		OUTBOX_KEY_REREAD,		/* to be read again now */
		OUTBOX_KEY_LARGE		/* ... when what of it waits has gone */
	}			list;
} OutboxKey;

struct OutboxItem
{
	dlist_node	node;			/* ready, waiting, confirmed or rejected */
	dlist_node	going_node;		/* going, of the key */
	OutboxItemState state;
	OutboxMessage *message;
	OutboxRoute *route;
	OutboxKey  *key;			/* NULL: no order */
	int			claim_index;	/* in MySlot->claims */
	bool		in_turn;		/* answered, as all before it are; and */
	bool		listed;			/* to be settled: confirmed or rejected has it */
	int			nbehind;		/* refused: later ones of its key that were
								 * sent */
	bool		stopped;		/* one of these, and not sent again before it */
	bool		maybe_poison;	/* may be what closed the channel */
	bool		permanent;		/* rejected for what no later attempt can
								 * change */
	bool		locked;			/* could not be settled, somebody has its row
								 * ... */
	uint64		locker;			/* ... see outbox_store_lockers() */
	TimestampTz locked_since;
	OutboxMonoTime sent_at;		/* when that began */
	uint64		published_to;	/* bytes on the link up to its end */
	OutboxReason reason;		/* why it was returned or rejected; of a SENT
								 * one UNROUTABLE: basic.return came, its ack
								 * will follow */
	char	   *error;			/* the same in words */
	char	   *unfit;			/* why the failed_route cannot carry it, or
								 * NULL */
};

typedef struct OutboxQueue
{
	MemoryContext cxt;			/* items, keys; messages are in message_cxt */
	MemoryContext message_cxt;
	HTAB	   *items;			/* id -> item */
	HTAB	   *keys;			/* OutboxKeyId -> key */
	dlist_head	ready;
	dlist_head	confirmed;
	dlist_head	rejected;
	dlist_head	held;			/* keys */
	dlist_head	reread;			/* keys */
	dlist_head	large;			/* keys */
	OutboxKeyId released[OUTBOX_EXCLUDED_KEYS]; /* keys of which many rows
												 * were claimed in vain, a
												 * ring */
	uint32		nreleased;		/* that were ever put there */
	int			nheld;
	int			nunchecked;		/* held ones, from the first on, of which the
								 * row that holds them may be gone */
	int			nreread;
	bool		retries_unknown;	/* of a key that had more than the one
									 * that is gone */
	int64		forgotten_low;	/* 0, or a key that is not in keys may be
								 * held, or have rows to be read again, from
								 * here on */
	int64		forgotten_next; /* the same of what this pass has left,
								 * reading.h */
	bool		pass_wanted;	/* what holds such a key may be gone */
	bool		due_forgotten;	/* such a key has left rows that are due */
	bool		due_freed;		/* a key that has left such rows goes on */
	int			count;			/* all items */
	int			nready;
	int			nwaiting;
	size_t		waiting_bytes;
	int			ndue_waiting;	/* of those, rows whose time has come */
	size_t		due_waiting_bytes;
	int			nsent;
	int			nconfirmed;
	int			nrejected;
	int			njoined;		/* going, and not the first of their key */
	int			nunlisted;		/* CONFIRMED and REJECTED ones whose turn it
								 * is not */
	int			nlisted_rejected;	/* REJECTED ones whose turn it is */
	int			nmaybe_poison;
	int			nlocked;		/* CONFIRMED and REJECTED ones that are locked */
	size_t		confirmed_bytes;	/* of the confirmed ones that are not
									 * locked */
	bool		key_waits_for_settling; /* for answered ones to be gone */
	size_t		bytes;
	int		   *free_claims;	/* stack of unused claim indexes */
	int			nfree_claims;
} OutboxQueue;

/* The lowest number that was met; 0: none. */
static inline void
outbox_lower(int64 *lowest, int64 seq)
{
	if (*lowest == 0 || seq < *lowest)
		*lowest = seq;
}

extern OutboxQueue *outbox_queue_create(MemoryContext parent);

/*
 * Notes that a row is claimed that the queue has not, also in shared memory, until its
 * message has left the queue or the claim goes back.
 */
extern void outbox_queue_take_claim(OutboxQueue *queue, const pg_uuid_t *id);
extern void outbox_queue_return_claim(OutboxQueue *queue, const pg_uuid_t *id);

extern bool outbox_queue_has(OutboxQueue *queue, const pg_uuid_t *id);

/*
 * Does the key know that this row of it is only in the table?  A row without an
 * order is read with the others when the key is, and does not wait while it is held.
 */
extern bool outbox_queue_skips(OutboxQueue *queue, OutboxKeyId key_id, int64 seq);

/*
 * Takes over a claimed message, or drops it and returns false: its key cannot go on
 * now, and remembers.  due: its time has come.
 */
extern bool outbox_queue_admit(OutboxQueue *queue, OutboxMessage *message,
							   OutboxRoute *route, bool due);

/* The next READY item, which stays where it is; NULL if none. */
extern OutboxItem *outbox_queue_peek(OutboxQueue *queue);

extern void outbox_queue_sent(OutboxQueue *queue, OutboxItem *item,
							  OutboxMonoTime now, uint64 published_to);

/* A SENT item came back, and its key stops; its ack will follow. */
extern void outbox_queue_returned(OutboxQueue *queue, OutboxItem *item,
								  const char *error);
extern void outbox_queue_confirmed(OutboxQueue *queue, OutboxItem *item);

/*
 * From READY or SENT; error is copied.  permanent: no later attempt helps.  The item may
 * be gone afterwards: sent behind an older one that was refused, it is a row again,
 * without an attempt.
 */
extern void outbox_queue_rejected(OutboxQueue *queue, OutboxItem *item,
								  OutboxReason reason, const char *error,
								  bool permanent);

/*
 * The fate of a SENT item is unknown: READY again, in front of the others, or a row
 * again if its key has stopped.  Call it for the latest first, so that the order stays.
 */
extern void outbox_queue_unknown(OutboxQueue *queue, OutboxItem *item,
								 bool maybe_poison);

/*
 * All READY and WAITING items (of a route, if not NULL) go back to being rows;
 * returns the lowest sequence number, or 0.
 */
extern int64 outbox_queue_drop_all(OutboxQueue *queue, OutboxRoute *route);

/* Is anything of another route to be sent? */
extern bool outbox_queue_has_others(OutboxQueue *queue, const OutboxRoute *route);

/*
 * A round has committed, and settled all that was to be settled, or not: may a
 * CONFIRMED head still be what a key waits for?
 */
extern void outbox_queue_settling_committed(OutboxQueue *queue, bool more);

/* Why the failed_route cannot carry a REJECTED item, or NULL: asked while its contents are there. */
extern void outbox_queue_unfit(OutboxQueue *queue, OutboxItem *item, const char *why);

/*
 * A CONFIRMED or REJECTED item could not be settled: it keeps its place.  Its contents
 * leave memory, and what is later of its key until it is settled.
 */
extern void outbox_queue_remains(OutboxQueue *queue, OutboxItem *item);

/*
 * The settling of a CONFIRMED item is committed, or a REJECTED one is a row of another
 * route now: its key goes on.
 */
extern void outbox_queue_settled(OutboxQueue *queue, OutboxItem *item);

/* The attempt of a REJECTED one is counted; final: it is 'failed' now. */
extern void outbox_queue_failed(OutboxQueue *queue, OutboxItem *item,
								bool final);

/* Holds a key because its row seq is locked by somebody. */
extern void outbox_queue_hold_locked(OutboxQueue *queue, OutboxKeyId key_id, int64 seq);

/* A key of which many rows were claimed in vain, and that cannot go on; NULL: none. */
extern OutboxKey *outbox_queue_released_key(OutboxQueue *queue, int i);

/* Does each key that has a retry know it?  Else all of them are to be listed. */
extern void outbox_queue_retries_known(OutboxQueue *queue, bool known);

/* Holds a key because of a retry found at start. */
extern void outbox_queue_hold_retry(OutboxQueue *queue, OutboxKeyId key_id, int64 seq,
									const pg_uuid_t *id);

/*
 * A row of the key has failed, and a later one was claimed in vain and waits; due: perhaps
 * rows that are due.
 */
extern void outbox_queue_block(OutboxQueue *queue, OutboxKeyId key_id, int64 seq,
							   const pg_uuid_t *id, bool due);

/*
 * Forgets keys that are held until there is room for what is listed.  Nothing may
 * have a pointer to one.
 */
extern void outbox_queue_forget_held(OutboxQueue *queue);

/* A row from there on is of a key that is forgotten, or stays so. */
extern void outbox_queue_note_forgotten(OutboxQueue *queue, int64 seq);

/* Such a key has left rows that are due. */
extern void outbox_queue_note_forgotten_due(OutboxQueue *queue);

/* The holder of a forgotten key may be gone: a pass over all of those is wanted. */
extern void outbox_queue_want_pass(OutboxQueue *queue);

/* It begins; when it has ended, what it has noted is left. */
extern void outbox_queue_pass_begins(OutboxQueue *queue);
extern void outbox_queue_pass_ended(OutboxQueue *queue);

/* Or may the key be forgotten? */
extern bool outbox_queue_knows(OutboxQueue *queue, OutboxKeyId key_id);

/*
 * What the table says of a key that may be forgotten: it has rows that were read and are
 * ready, and (not NULL) one that waits for its next attempt, or more of them.  With none
 * of that it is known to have nothing, until outbox_queue_key_done().
 */
extern void outbox_queue_recall(OutboxQueue *queue, OutboxKeyId key_id, bool has_rows,
								const pg_uuid_t *retry, int64 retry_seq,
								bool more_retries);

/* What was claimed of it is admitted: a key that has nothing is forgotten. */
extern void outbox_queue_key_done(OutboxQueue *queue, OutboxKeyId key_id);

/*
 * Is it known that rows of the key behind upto whose time has come wait, all but the retry?
 * When others of them may go, due_freed is set.
 */
extern bool outbox_queue_due_left(const OutboxKey *key, int64 *upto, pg_uuid_t *retry);

/*
 * Does this row, which is due, wait for its key?  Then the queue says when it may go:
 * due rows are to be read from the start, once.
 */
extern bool outbox_queue_leaves_due(OutboxQueue *queue, OutboxKeyId key_id, int64 seq,
									const pg_uuid_t *id);
extern bool outbox_queue_take_due_freed(OutboxQueue *queue);

/* Of the first n held keys, the row that holds them may be gone; of those that was checked. */
extern void outbox_queue_uncheck_held(OutboxQueue *queue, int n);
extern void outbox_queue_held_checked(OutboxQueue *queue, int n);

/*
 * The route has lost its order: nothing holds its keys.  What they have skipped begins
 * with the returned number; 0: nothing was.
 */
extern int64 outbox_queue_free_keys(OutboxQueue *queue, OutboxRoute *route);

/* Nothing that is in memory, or that a key skips, is below; PG_INT64_MAX: nothing. */
extern int64 outbox_queue_lowest(OutboxQueue *queue);

/* The hold, or the block, is over; the key will be read again. */
extern void outbox_queue_release(OutboxQueue *queue, OutboxKey *key);
extern void outbox_queue_unblock(OutboxQueue *queue, OutboxKey *key);

/* Would the queue keep a row of that key of the reread list? */
extern bool outbox_queue_has_room(OutboxQueue *queue, const OutboxKey *key);

/* How many of them, at most. */
extern int	outbox_queue_keeps(const OutboxKey *key);

/*
 * How many rows that are due may be claimed.  They are kept however many wait of their key:
 * those of one key must leave room to others.
 */
extern int	outbox_queue_due_room(const OutboxQueue *queue);

/* Is there a key in that list whose rows it would keep? */
extern bool outbox_queue_wants_reread(OutboxQueue *queue);

/*
 * The rows of a key of the reread list were read, when it skipped from there on;
 * next is where to go on, 0: nowhere.  The key may be gone afterwards, or is to be done
 * when what was claimed of it is admitted.
 */
extern void outbox_queue_key_read(OutboxQueue *queue, OutboxKey *key,
								  int64 skip_low, int64 next);

/*
 * route_table.c: routes by name; loading them, forgetting those that are gone
 *
 * route_states.c: which ones wait, and why
 *
 *		usable --paused, lost, or another relay's--> waits --resumed--> usable
 *		usable --broken--> waits, until its backoff is over --> usable
 *		usable --poison too often--> waits, until its rest is over --> usable
 *		usable --its exchange is not declared yet--> waits --declared--> usable
 *
 * The messages of a route that waits are dropped from memory and left out of
 * claims; from where they have to be read again is kept in its skip_low.  Whoever
 * lets routes go on gets to know it, and has them read.
 */

typedef struct OutboxRoutes
{
	OutboxQueue *queue;
	MemoryContext cxt;
	HTAB	   *by_name;
	dlist_head	watched;		/* see outbox_route_watch() */
	uint32		loads;			/* so many */
	int			nblocking;		/* on which what has failed holds its key */
	OutboxDeclarations declarations;
} OutboxRoutes;

/* Rows to be read again, as their routes, or their keys, go on. */
typedef struct OutboxResumed
{
	bool		any;			/* waiting rows may be among them, too */
	int64		from;			/* the lowest number; 0: none that was ready */
} OutboxResumed;

extern void outbox_routes_init(OutboxRoutes *routes, OutboxQueue *queue,
							   MemoryContext parent);

/* The route of that name; a lost one if outbox_route has no such row. */
extern OutboxRoute *outbox_routes_find(OutboxRoutes *routes,
									   const char *name);

/*
 * Reads the rows of outbox_route, in a transaction.  end: no row of outbox from there on has
 * been read.  True: some are not what they were.
 */
extern bool outbox_routes_load(OutboxRoutes *routes, int64 end,
							   OutboxResumed *resumed);

/*
 * Forgets lost routes.  Before it, those who have pointers to routes say which are
 * needed; of items and keys the queue counts them.
 */
extern bool outbox_routes_have_lost(OutboxRoutes *routes);
extern void outbox_routes_forget(OutboxRoutes *routes);

static inline void
outbox_route_need(OutboxRoute *route)
{
	route->needed = route->lost;
}

/*
 * Where goes what is given up on this route?  NULL: nowhere, and *why, if not NULL,
 * says why not although it should.
 */
extern OutboxRoute *outbox_routes_failed(OutboxRoutes *routes,
										 const OutboxRoute *route,
										 const char **why);

/* Has the broker answered a message of another route since then? */
extern bool outbox_routes_used_since(const OutboxRoutes *routes,
									 const OutboxRoute *but, OutboxMonoTime since);

extern bool outbox_route_waits(const OutboxRoute *route);
extern void outbox_route_watch(OutboxRoutes *routes, OutboxRoute *route);

/* Its messages leave memory, and are read again when it can go on. */
extern void outbox_route_stop(OutboxRoutes *routes, OutboxRoute *route, int64 end);
extern void outbox_route_start(OutboxRoute *route, OutboxResumed *resumed);
extern void outbox_resume_from(OutboxResumed *resumed, int64 seq);

/* Its row seq was met, and is not in memory. */
extern void outbox_route_skip(OutboxRoutes *routes, OutboxRoute *route, int64 seq);
extern void outbox_route_clear_error(OutboxRoute *route);

/* A claim from seq on has left the rows of waiting routes out. */
extern void outbox_routes_passed_over(OutboxRoutes *routes, int64 seq);

/* Names of those that wait, in the current context. */
extern List *outbox_routes_excluded(OutboxRoutes *routes);

/* Messages are ready again: those of routes that wait are not. */
extern void outbox_routes_stop(OutboxRoutes *routes, int64 end);

/*
 * A destination error, with the broker's reply code (0: none) and words; and a
 * message that went out.  counts: it makes the rests longer.
 */
#define OUTBOX_CODE_NO_CONFIRM	(-1)

/* A route that is tried again may hold others up for one part in so many of its rest. */
#define OUTBOX_TRY_SHARE		10

extern void outbox_route_broken(OutboxRoutes *routes, OutboxRoute *route,
								int code, const char *reason, bool counts, int64 end);

/* Its row seq is marked as the workers', and its relay is another one. */
extern void outbox_route_refuse(OutboxRoutes *routes, OutboxRoute *route, int64 seq);
extern void outbox_route_works(OutboxRoute *route, OutboxMonoTime now);

/*
 * The broker has closed the link because of one of its messages.  True: it rests, so
 * what is sent next is another one's.
 */
extern bool outbox_route_met_poison(OutboxRoutes *routes, OutboxRoute *route,
									int64 end);

/* Lets those go on whose backoff, or rest, is over.  all_read: no row is yet to be read. */
extern void outbox_routes_retry(OutboxRoutes *routes, OutboxMonoTime now,
								bool all_read, OutboxResumed *resumed);

/* When the next one may; unset: none waits for the time. */
extern OutboxMonoTime outbox_routes_deadline(OutboxRoutes *routes);

/* Is there another one that would have to wait for what is done for this one? */
extern bool outbox_route_has_neighbours(const OutboxRoutes *routes, const OutboxRoute *route,
										OutboxMonoTime now);

/* Is there one on which what has failed holds its key? */
extern bool outbox_routes_block(const OutboxRoutes *routes);

/* Those whose last try met a destination error. */
extern int	outbox_routes_count_broken(OutboxRoutes *routes);

/* The lowest number that one of them skips from; PG_INT64_MAX: none does. */
extern int64 outbox_routes_lowest(OutboxRoutes *routes);

/*
 * A message of it is ready, and its exchange is not declared on this connection; the
 * answer takes long, so that its messages make way for others; the answer; and none
 * will come.
 */
extern void outbox_route_want(OutboxRoutes *routes, OutboxRoute *route,
							  OutboxMonoTime now);
extern void outbox_route_await(OutboxRoutes *routes, OutboxRoute *route, int64 end);
extern void outbox_routes_declared(OutboxRoutes *routes,
								   const OutboxDeclaration *declaration,
								   OutboxResumed *resumed);
extern void outbox_routes_connection_ended(OutboxRoutes *routes,
										   OutboxResumed *resumed);

/* One that wants the declaration; NULL: none. */
extern OutboxRoute *outbox_routes_wanting(OutboxRoutes *routes,
										  const OutboxDeclaration *declaration);

#endif							/* OUTBOX_QUEUE_H */
