/*-------------------------------------------------------------------------
 *
 * sizes.h
 *		How much there is room for, and how often everything is looked at.
 *
 * In a header of their own because test/sim has other ones: what happens when
 * something is full, or far away, has to happen often there.
 *
 *-------------------------------------------------------------------------
 */
#ifndef OUTBOX_SIZES_H
#define OUTBOX_SIZES_H

/*
 * The largest outbox.window.  The claims of every worker are laid out in shared
 * memory for it, four times over (see OUTBOX_MAX_CLAIMS).
 */
#define OUTBOX_MAX_WINDOW	10000

/* Ranges of seq that a transaction announces; with more, the nearest become one. */
#define OUTBOX_TRANSACTION_RANGES 8

/* What an inbox holds; more ranges are merged, see also OUTBOX_SIGNAL_PREPARED. */
#define OUTBOX_INBOX_RANGES		32
#define OUTBOX_INBOX_PREPARED	128

/* Ranges that lie closer together than this become one. */
#define OUTBOX_RANGE_MERGE_DISTANCE 64

/*
 * Ranges that a worker remembers; when there are more, some become one.  One that became
 * longer than so many numbers that way is read in steps.
 */
#define OUTBOX_MERGED_MAX		2000
#define OUTBOX_UNREAD_MAX		64

/* Reads of a batch. */
#define OUTBOX_BATCH_SEGMENTS	24

/*
 * Messages of one key that are kept waiting in memory, and their bytes: what one claim
 * reads.  Those of all keys have half of what a worker keeps in memory, so that large
 * messages that cannot go yet do not keep it from claiming others.
 */
#define OUTBOX_KEY_WAITING_MAX	128
#define OUTBOX_CLAIM_BYTES		((size_t) 2 * 1024 * 1024)
#define OUTBOX_QUEUE_BYTES		((size_t) 32 * 1024 * 1024)
#define OUTBOX_WAITING_BYTES	(OUTBOX_QUEUE_BYTES / 2)

/*
 * Keys that a worker remembers as held, or as to be read again: 230 bytes each, 46 MB.
 * What is above that is looked up in the table.  The next pass over it begins so long
 * after the last one, and each of its steps is followed by so many times its own time.
 */
#define OUTBOX_HELD_KEYS_MAX	200000
#define OUTBOX_FORGOTTEN_MS		2000
#define OUTBOX_FORGOTTEN_PAUSE	10

/*
 * Keys whose rows a claim leaves out by name.  When more are held: those of which so
 * many rows were claimed in vain, the last ones.
 */
#define OUTBOX_EXCLUDED_KEYS	100
#define OUTBOX_RELEASED_MANY	8

/*
 * Exchanges that are declared at once.  A refusal closes the channel, and those behind
 * the refused one are asked again: so many for each exchange that is missing.
 */
#define OUTBOX_DECLARES_MAX		16

/* Held keys of which one round looks up the rows that hold them: about two milliseconds. */
#define OUTBOX_CHECKED_KEYS		1000

/* Every row is looked at again at most this often, for what told nobody. */
#define OUTBOX_SWEEP_MS			60000
/* ... in steps, each followed by so many times its own time: half a percent. */
#define OUTBOX_SWEEP_PAUSE		200
/*
 * Where no row was counted as written in the database: at least so often, but a pass has
 * a rest of so many times its own time, that an idle worker with millions of rows is idle.
 */
#define OUTBOX_SWEEP_LATEST_MS	(10 * 60000)
#define OUTBOX_SWEEP_IDLE_PAUSE	10

/* Entries of a step of that, and so rows at most: about a millisecond. */
#define OUTBOX_SWEEP_ROWS		2000

/* Entries that a claim walks of what is LEFT: 3 ms, if none of their rows can go. */
#define OUTBOX_STRIDE			2000

#endif							/* OUTBOX_SIZES_H */
