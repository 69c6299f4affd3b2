/*-------------------------------------------------------------------------
 *
 * reading.h
 *		What is read next, and what a round claims of it.
 *
 *-------------------------------------------------------------------------
 */
#ifndef OUTBOX_READING_H
#define OUTBOX_READING_H

#include "queue.h"
#include "shared.h"
#include "unread_ranges.h"

/*
 * batch.c: what one round claims: messages, and which rows were read for them
 *
 * A batch is made of segments.  Each is a stretch of rows that a source (due
 * rows, keys, the scan) has had read, all of them with one snapshot.  Messages
 * get into the queue only when the claiming transaction has committed; until then
 * nothing of the relay's state changes but the claims shown in shared memory,
 * which must be there before the row locks go (see outbox_discard() in the SQL
 * script).
 */

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
	OutboxKeyId key_id;
	int64		skip_low;		/* of the key, when it was read */
	int64		after;			/* rows with after < seq <= upto */
	int64		upto;
	bool		open;			/* upto is no end: it has read up to the last
								 * row, */
	int64		known;			/* and at least up to here */
	int			start;			/* messages[start .. end) */
	int			end;
	int			visited;		/* rows seen, those we had already included */
	int64		last_seq;		/* of the last row seen */
	TimestampTz last_due;
	bool		cut;			/* there may be more behind last_seq */
	int64		last_listed;	/* see find_locked() */
} OutboxSegment;

/* A key that may be forgotten (recall.c), and what the table says of it. */
typedef struct OutboxRecalled
{
	OutboxKeyId id;				/* MUST BE FIRST, see outbox_compare_keys() */
	int64		seq;			/* of its oldest row that was met */
	TimestampTz due;			/* the first time of those */
	bool		known;			/* the key was in memory, and so not looked up */
	bool		has_rows;		/* others were read before, and are ready */
	bool		is_held;		/* by a row that has failed, or */
	bool		waits;			/* by this one, for its next attempt */
	pg_uuid_t	retry;
	int64		retry_seq;
	TimestampTz retry_due;
	bool		more_retries;	/* behind that one */
} OutboxRecalled;

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
	OutboxMessage **messages;	/* NULL: released */
	List	   *locked;			/* of OutboxRow: the claim passed it over, and
								 * the later ones of its key must wait; id all
								 * zeros: not looked at */
	List	   *failed;			/* the same, once for each row that it bars,
								 * see outbox_keys_check_failed() */
	List	   *overtaking;		/* of OutboxUnreadRange, see scan.c */
	OutboxRecalled *recalled;
	int			nrecalled;
	bool		in_vain;		/* most of what was checked was overtaking */
	bool		unknown_route;	/* a message has one that we have not loaded */
	OutboxInbox late_inbox;		/* of what the snapshot need not see */
} OutboxBatch;

/* How many messages a worker may have in its memory ... */
#define OUTBOX_QUEUE_MAX	(2 * outbox_window)

/* ... and beside them, and beside the window: see OUTBOX_LOCKED_MAX. */
extern int	outbox_locked_beside(const OutboxQueue *queue);

extern void outbox_batch_init(OutboxBatch *batch, OutboxQueue *queue,
							  OutboxRoutes *routes, MemoryContext cxt);

/* Is there no room for another message? */
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

/*
 * The claim leaves out the keys for which filter says so: of all that cannot go on, or of
 * very many those of which many rows were claimed in vain.
 */
typedef bool (*OutboxKeyFilter) (const OutboxKey *key, const void *arg,
								 OutboxExcludedKey *excluded);
extern void outbox_keys_exclude(OutboxBatch *batch, OutboxClaim *claim,
								OutboxKeyFilter filter, const void *arg);

/* Claims it, and looks for what was passed over because somebody has locked it. */
extern void outbox_batch_claim(OutboxBatch *batch, OutboxClaim *claim);

/* Remembers it, in one of the two lists. */
extern void outbox_batch_note_row(OutboxBatch *batch, List **list,
								  const OutboxRow *row);

/* Up to where the segment has read. */
extern int64 outbox_segment_read(const OutboxSegment *segment);

/* The message goes back to being a row, and nothing remembers it but the caller. */
extern void outbox_batch_release(OutboxBatch *batch, int index);

/* The same for all of them: the transaction failed. */
extern void outbox_batch_forget(OutboxBatch *batch);

/* The segments of a source, in their order: the first one has NULL before it. */
extern OutboxSegment *outbox_batch_next(OutboxBatch *batch,
										OutboxSource source,
										OutboxSegment *before);

/*
 * unreadable.c: rows that cannot be read, and are set aside
 *
 * One of them makes every claim fail that comes to it.  So claims leave it out, in the
 * version that could not be read, and it holds its key as a failed message does.  Only
 * the worker's memory has the list: a new worker reads the row again, and so does this
 * one when routes, settings or the control row were loaded again, which the sweep does
 * each minute.
 *
 *		set_aside --> SET ASIDE --ask--> ASKED --claimed, changed, gone--> forgotten
 *		                  ^                 |
 *		                  +----set_aside----+
 */

/* With one more, the database counts as failing, and nothing is published. */
#define OUTBOX_UNREADABLE_MAX	64

typedef struct OutboxSetAside
{
	OutboxUnreadableRow version;
	OutboxRoute *route;
	bool		asked;			/* not left out: the next claim reads it */
	OutboxUnreadableId shown;
} OutboxSetAside;

typedef struct OutboxUnreadable
{
	int			n;
	OutboxSetAside entries[OUTBOX_UNREADABLE_MAX];
} OutboxUnreadable;

/* A claim has failed because of that row.  False: there are too many. */
extern bool outbox_unreadable_set_aside(OutboxUnreadable *list, OutboxRoute *route,
										const OutboxUnreadableRow *row,
										const char *error, const char *sqlstate);

/* All of them are to be read again; seqs gets the numbers, there are n. */
extern int	outbox_unreadable_ask(OutboxUnreadable *list, int64 *seqs);

/* Called in a transaction: forgets those that have changed or are gone; likewise. */
extern int	outbox_unreadable_check(OutboxUnreadable *list, int64 *seqs);

/* A message of that id was read. */
extern void outbox_unreadable_read(OutboxUnreadable *list, const pg_uuid_t *id);

/* Those that are set aside, in the current context; there are n. */
extern const OutboxUnreadableRow *outbox_unreadable_left_out(const OutboxUnreadable *list,
															 int *n);

/* Says of the route of each that it is needed. */
extern void outbox_unreadable_need_routes(OutboxUnreadable *list);

/* The route of the one of that id that is set aside, or NULL. */
extern const OutboxRoute *outbox_unreadable_route(const OutboxUnreadable *list,
												  const pg_uuid_t *id);

/* Is one set aside that holds that key's rows from seq on? */
extern bool outbox_unreadable_holds(const OutboxUnreadable *list, OutboxKeyId key_id,
									int64 seq);

/* Is one of that number set aside? */
extern bool outbox_unreadable_leads_to(const OutboxUnreadable *list, int64 seq);

/*
 * due.c: rows whose time comes: retries and scheduled messages
 *
 * A source of a batch, beside keys and the scan, which do not have such rows.
 * They are claimed in the order of (available_at, seq).  What was not claimed when
 * its time came is found when they are read again.  The queue says when a key goes on
 * that has left such rows (due_left).  For those that were locked, what was claimed is
 * looked at a second later, in steps, without locking it.
 */
typedef struct OutboxReader OutboxReader;

/* Rows behind it, in that order. */
typedef struct OutboxDuePlace
{
	TimestampTz at;
	int64		seq;
} OutboxDuePlace;

/* Which rows the next batch reads: due.c has the picture. */
typedef enum OutboxDueRead
{
	OUTBOX_DUE_FOLLOWS,			/* on from the cursor, as rows become due */
	OUTBOX_DUE_FROM_START,		/* the same, to read_to: a read of all */
	OUTBOX_DUE_ONE_BATCH		/* the first rows; then FROM_START goes on */
} OutboxDueRead;

typedef struct OutboxDue
{
	TimestampTz next;			/* by the wall clock; 0: none */
	bool		unknown;		/* look it up */
	bool		found;			/* looked up in this round: */
	TimestampTz found_next;

	OutboxDueRead read;
	OutboxDuePlace cursor;		/* claimed up to here */
	TimestampTz read_to;		/* not FOLLOWS: up to here */
	OutboxDuePlace goes_on_at;	/* ONE_BATCH: from here */

	OutboxDuePlace checked;		/* claimed rows are checked up to here */
	bool		check;			/* check the rest now */
	bool		restart_later;	/* read all, when FOLLOWS, at again_at */
	OutboxMonoTime again_at;	/* one of both, then; unset: no reason */
} OutboxDue;

/* A row with that time has been committed, or may be claimed now. */
extern void outbox_due_told(OutboxDue *due, TimestampTz at);

/* Waiting rows have changed: the next round looks up when the next one is due, */
extern void outbox_due_look_up(OutboxDue *due);

/* or reads all that are due, from the start. */
extern void outbox_due_restart(OutboxDue *due);

/* The same, within a second. */
extern void outbox_due_restart_later(OutboxDue *due);

/* One of both: keys go on that left some. */
extern void outbox_due_freed(OutboxDue *due);

/*
 * Called in a transaction: goes back to rows that the cursor has passed, and to which
 * nothing else leads (they were locked, or became visible late).
 */
extern void outbox_due_check(OutboxReader *reader);

extern bool outbox_due_wanted(const OutboxDue *due);

/* Claims what is due by wall, the time at which the round began. */
extern void outbox_due_claim(OutboxDue *due, OutboxBatch *batch, TimestampTz wall);
extern void outbox_due_committed(OutboxDue *due, OutboxBatch *batch);

/*
 * Looks up when the next one is due, in the transaction, if that is unknown or rows
 * got a time in it (force); what was found counts from the commit on.
 */
extern void outbox_due_find(OutboxDue *due, OutboxBatch *batch, bool force);

/* When there is something to do; unset: nothing is waited for. */
extern OutboxMonoTime outbox_due_deadline(const OutboxDue *due,
										  OutboxMonoTime now);
extern void outbox_due_timers(OutboxDue *due, OutboxMonoTime now);

/*
 * scan.c: reading what is unread, in the order of seq
 *
 * A source of a batch.  Who finds that rows are to be read (they were announced,
 * went back from memory, were locked) adds their range; unread_ranges.h has them.
 *
 * One rule keeps the order of a key here: a row is kept only if no older range that
 * is still unread has a row of its key.
 */
typedef struct OutboxScan
{
	OutboxUnread unread;
	int64		announced;		/* the highest number ever */
	int			pause;			/* batches that leave new rows out */
	int			last_pause;
} OutboxScan;

/* A range of more numbers is long. */
#define OUTBOX_LONG_RANGE	((int64) 4 * outbox_window)

/* Everything is unread. */
extern void outbox_scan_init(OutboxScan *scan);

/* Rows that are to be read (again), and not before at, if that is set. */
extern void outbox_scan_add(OutboxScan *scan, int64 lo, int64 hi,
							OutboxMonoTime at, int why);

extern void outbox_scan_claim(OutboxScan *scan, OutboxBatch *batch,
							  OutboxMonoTime now);
extern void outbox_scan_committed(OutboxScan *scan, OutboxBatch *batch);

/* Where that begins which may have rows of keys and was not read, or the end. */
extern int64 outbox_scan_lowest(const OutboxScan *scan);

/*
 * reader.c: which rows are read next, and what becomes of them
 *
 * Three sources: rows whose time has come (due.c), keys to be read again
 * (held_keys.c), and all else that is unread (scan.c).  Each knows whether
 * it wants a claim, claims, and takes note when the claim has committed; if it has
 * not, nothing has changed.
 *
 *		add, told, stale --> wanted --> claim --COMMIT--> committed --> queue
 *		      ^                              \--ERROR---> forget
 *		      +-- what the queue did not keep, what somebody has locked
 */
struct OutboxReader
{
	OutboxQueue *queue;
	OutboxRoutes *routes;
	OutboxDue	due;
	OutboxScan	scan;
	OutboxUnreadable unreadable;
	OutboxMonoTime locked_at;	/* look at keys held as LOCKED then; unset:
								 * there are none */
	bool		holders_stale;	/* rows that hold keys may be gone */
	uint32		batches;
	OutboxMonoTime shown_at;	/* when the views were told where rows begin */
	int64		lowest_read;	/* no row that was read, and is ready, is
								 * below */
	bool		read_since;		/* since that was looked for */
	OutboxMonoTime look_at;		/* not before */
};

/* Everything is unread. */
extern void outbox_reader_init(OutboxReader *reader, OutboxQueue *queue,
							   OutboxRoutes *routes);

/* Rows from lo to hi are to be read; why is one of OUTBOX_UNREAD_... */
extern void outbox_reader_add(OutboxReader *reader, int64 lo, int64 hi,
							  int why);

/* A transaction may have committed without an announcement. */
extern void outbox_reader_look(OutboxReader *reader);

/*
 * A claim has failed, as a value of that row cannot be read: claims leave it out from
 * now on.  False: that cannot be, as there are too many, or its key is unknown.
 */
extern bool outbox_reader_set_aside(OutboxReader *reader,
									const OutboxUnreadableRow *row,
									const char *error, const char *sqlstate);

/* Rows that are set aside are read again. */
extern void outbox_reader_ask_unreadable(OutboxReader *reader);

/* Would there be something to claim, and room for it? */
extern bool outbox_reader_wanted(const OutboxReader *reader,
								 OutboxMonoTime now);

/* Has it something else to look up in a round? */
extern bool outbox_reader_needs_lookup(const OutboxReader *reader);

/* Called in a transaction; true: all retries are to be listed. */
extern bool outbox_reader_check_holders(OutboxReader *reader);

/* Likewise: is what is due to be read from the start? */
extern void outbox_reader_check_due(OutboxReader *reader);

/* The same, after the batch's snapshot was taken. */
extern void outbox_reader_claim(OutboxReader *reader, OutboxBatch *batch,
								TimestampTz wall);

/*
 * The transaction has committed: what was claimed goes to the queue, and may be
 * published from then on.
 */
extern void outbox_reader_committed(OutboxReader *reader, OutboxBatch *batch);

/* No row from there on has been read. */
extern int64 outbox_reader_end(const OutboxReader *reader);

/* Does what is unread lead to this row, or is it set aside? */
extern bool outbox_reader_leads_to(const OutboxReader *reader, int64 seq);

/* Is anything unread but what will be committed, or will be due? */
extern bool outbox_reader_behind(const OutboxReader *reader,
								 OutboxMonoTime now);

/* A round would read more than a few rows that are new. */
extern bool outbox_reader_reads_much(const OutboxReader *reader);

/* When there will be something to read; unset: nothing is waited for. */
extern OutboxMonoTime outbox_reader_deadline(const OutboxReader *reader,
											 OutboxMonoTime now);
extern void outbox_reader_timers(OutboxReader *reader, OutboxMonoTime now);

/*
 * held_keys.c: keys that are held, and keys to be read again
 *
 * A source of a batch.  What a key does not have in memory, because it was held
 * or had enough there, it remembers by the lowest number of it (skip_low, queue.h).
 * When it can go on, the rows of this one key are read from there.
 */

extern void outbox_keys_claim(OutboxReader *reader, OutboxBatch *batch);

/* To be called before the batch's messages are admitted. */
extern void outbox_keys_committed(OutboxReader *reader, OutboxBatch *batch);

/* And after it. */
extern void outbox_keys_admitted(OutboxReader *reader, OutboxBatch *batch);

/* Somebody has locked a row of that key: it waits. */
extern void outbox_keys_hold_locked(OutboxReader *reader, OutboxKeyId key_id, int64 seq,
									OutboxMonoTime until);

/*
 * Releases the messages of a batch behind a row of their key that has failed, or is
 * set aside, where that blocks.  A row that has failed is found by the claim's
 * snapshot, whatever is known of the key; from the commit on the key is held, so that
 * its rows are not claimed in vain.
 */
extern void outbox_keys_check_failed(OutboxBatch *batch);

/* Rows that hold keys may be gone. */
extern void outbox_keys_invalidate_holders(OutboxReader *reader);
extern bool outbox_keys_are_stale(const OutboxReader *reader);

/*
 * Looks whether they are there, in the transaction; keys without one go on.  True:
 * the retry that has held one is gone, or set aside, and it may have others.
 */
extern bool outbox_keys_check_holders(OutboxReader *reader);
#ifdef OUTBOX_TEST_POINTS
/* Is there anything that the former would let go on? */
extern bool outbox_keys_have_released(OutboxReader *reader);
#endif
extern void outbox_keys_timers(OutboxReader *reader, OutboxMonoTime now);

/*
 * recall.c: keys that are held and were forgotten, because there were too many
 *
 *		known --too many are listed, nothing of it in memory--> forgotten
 *		  ^                                                         |
 *		  +--a claim meets a row of it, or a pass finds it free-----+
 *
 * What a worker remembers of held keys is bounded.  What is above the bound stays in
 * the table only: queue->forgotten_low says from where on.  While that is set, a key
 * that is not in memory may be held, so whoever meets a row of one looks into the
 * table before he goes on.  For those that nobody meets a pass of the sweep looks: a
 * key that nothing holds any more is read again, and of the others it notes where
 * they begin.  A pass that finds none ends the forgetting.
 */

/*
 * In the claim's transaction, when all is claimed; then when it has committed.  end: no
 * batch before has read from there on.
 */
extern void outbox_recall_look_up(OutboxBatch *batch, int64 end);

/* Before anything of the batch is held or admitted ... */
extern void outbox_recall_begin(OutboxBatch *batch);

/* ... and after all of it is. */
extern void outbox_recall_end(OutboxBatch *batch);

/*
 * In a pass: of these n keys, those that nothing holds are to be read again.  Where
 * the others begin is noted.
 */
extern void outbox_recall_free(OutboxQueue *queue, OutboxRoutes *routes,
							   const OutboxUnreadable *unreadable,
							   OutboxRecalled *met, int n);

/*
 * These n rows are due by then, and their keys forgotten: when is the first one due that
 * its key does not keep?  A pass sees to the others.
 */
extern TimestampTz outbox_recall_free_due(OutboxQueue *queue, OutboxRoutes *routes,
										  const OutboxUnreadable *unreadable,
										  OutboxRecalled *met, int n, TimestampTz by);

/* In its last step: notes the rows that wait for their next attempt. */
extern void outbox_recall_note_retries(OutboxQueue *queue, OutboxRoutes *routes);

#endif							/* OUTBOX_READING_H */
