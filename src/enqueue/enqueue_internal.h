/*-------------------------------------------------------------------------
 *
 * enqueue_internal.h
 *		What the ways in share.
 *
 *-------------------------------------------------------------------------
 */
#ifndef OUTBOX_ENQUEUE_INTERNAL_H
#define OUTBOX_ENQUEUE_INTERNAL_H

#include "columns.h"
#include "enqueue.h"
#include "format.h"
#include "route.h"
#include "utils/jsonb.h"
#include "utils/rel.h"
#include "utils/relcache.h"
#include "utils/uuid.h"

/* insert.c: the row of outbox_enqueue() */

/* Does the INSERT of a message name the column?  dated: it has a created_at. */
static inline bool
outbox_is_inserted(int col, bool dated)
{
	OutboxSetBy set_by = outbox_columns[col - 1].set_by;

	return set_by <= OUTBOX_SET_BY_APPLICATION ||
		(dated && set_by == OUTBOX_SET_BY_INSERT);
}

/*
 * Inserts a message into the table outbox, open as rel, as its owner.  seq,
 * attempts, status and origin are left to their defaults, and created_at if it is NULL.  Returns
 * false when a trigger has left the row out.
 */
extern bool outbox_insert_row(Relation rel, const Datum *values,
							  const bool *isnull);

/*
 * The INSERT of the plan has ended with result: a rule has made something else of
 * it.  When that is nothing, the server takes the plan for one that no table
 * concerns, and would keep it for ever: it is forgotten.  Does not return.
 */
extern void outbox_fail_rewritten(OutboxKeptPlan *plan, Relation rel, int result);

/*
 * batch_element.c: a message of outbox_enqueue_batch(), from an element of its array
 */

/*
 * Sets values and isnull, of OUTBOX_COLUMNS columns, from element number n; an
 * ERROR (22023 and those of the types) that names the element and the key.  *key is
 * the key that is looked at, for who makes the context of an error.
 */
extern void outbox_read_element(const JsonbValue *element, int n,
								Datum *values, bool *isnull,
								const char **key);

/* "an object", "a string" ...: what it is, for people. */
extern const char *outbox_json_kind(const JsonbValue *value);

/* check_format.c: can a message be sent in the format of its route? For check.c */

/*
 * Why the route's format, which is not plain, cannot carry the message, in words that
 * begin with the argument; NULL: it can, and *formatted is filled.
 */
extern const char *outbox_format_reason(const OutboxFields *fields,
										const OutboxRoute *route,
										OutboxFormatted *formatted);

/*
 * An error (22023) that names the argument if the route's format, which is not plain,
 * cannot carry the message; all else of it has been found to be fine.  Fills
 * *formatted, and returns how many bytes its headers and properties take.
 */
extern size_t outbox_check_format(const OutboxFields *fields,
								  const OutboxRoute *route,
								  OutboxFormatted *formatted);

/*
 * column_values.c: the default of a column, for a row that comes without its value
 */

/* Returns false where it is NULL, or there is none. */
extern bool outbox_column_default(Relation rel, int col, Datum *value);

/* trigger_support.c: what is in a table of ours, whatever the transaction's snapshot is */

/*
 * Runs, as the owner of rel, a query with %s for the schema of rel and $1 for name,
 * with all that is committed and all that this transaction has done.  Returns the
 * first column of its first row in the caller's context; NULL if there is no row, or
 * it is null.
 */
extern char *outbox_look_up(Relation rel, const char *query, const char *name);

/* numbering.c: numbers of messages that consumers can check order and gaps by */

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

/*
 * route_cap.c: the most messages that a route may have (outbox_route.max_pending)
 */

/*
 * Before a message of the route is stored in the table rel, on which the caller has a
 * lock: an ERROR (53400) when it has as many as it may.  asks: false for what is
 * stored however many there are.
 */
extern void outbox_cap_check(Relation rel, const OutboxRoute *route, bool asks);

/* route_lock.c: locks of routes: who enqueues, and who takes a route away */

/*
 * The transaction uses the route until it ends.  Returns false, without wait, when a
 * transaction that changes the route has it.
 */
extern bool outbox_route_lock(const char *route, bool wait);

/* strict_keys.c: locks of outbox.strict_keys */

/*
 * Makes transactions that enqueue for one key commit one after the other, so
 * that the order of seq is the order of commit.  Held to the end of the
 * transaction; a deadlock is reported as any other.
 */
extern void outbox_lock_key(int64 hash);

/* uuid7.c: UUIDs of version 7 (RFC 9562), the ids of messages */

extern void outbox_make_uuid7(pg_uuid_t *uuid);

#endif							/* OUTBOX_ENQUEUE_INTERNAL_H */
