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
#include "storage/lock.h"
#include "utils/fmgrprotos.h"
#include "utils/rel.h"

/* arguments.c: arguments of the functions that enqueue */

typedef struct OutboxArgument
{
	const char *name;
	PGFunction	input;			/* of the column's type; NULL: text */
	int			column;			/* COL_NONE: content_type, of the properties */
} OutboxArgument;

/* Keys of outbox_enqueue_batch(); the first of them are outbox_enqueue()'s arguments. */
extern const OutboxArgument outbox_arguments[];
#define OUTBOX_ENQUEUE_ARGUMENTS	10

extern Datum outbox_text_input(PGFunction input, const text *value);

/*
 * Sets values and isnull, of OUTBOX_COLUMNS columns, from element number n; an ERROR
 * (22023 and those of the types).  *key is the key that is read, for its context.
 */
extern void outbox_read_element(const JsonbValue *element, int n,
								Datum *values, bool *isnull,
								const char **key);

/* "an object", "a string" ...: what it is, for people. */
extern const char *outbox_json_kind(const JsonbValue *value);

/* enqueue.c */

/*
 * Opens the table outbox for the function, and sets values and isnull, of OUTBOX_COLUMNS
 * columns, from its arguments, of which those of outbox_enqueue() begin with first.
 */
extern Relation outbox_enqueue_arguments(FunctionCallInfo fcinfo, int first,
										 Datum *values, bool *isnull);

/* The route that is in values; an ERROR (42501, 42704) if role may not use it. */
extern const OutboxRoute *outbox_enqueue_check_route(Relation rel, Oid role,
													 const Datum *values,
													 const bool *isnull);

/* Properties with content_type, unless they have one; *isnull is theirs. */
extern Datum outbox_add_content_type(const text *type, Datum properties,
									 bool *isnull);

/* What comes before the INSERT in outbox_enqueue_row(). */
extern void outbox_enqueue_prepare(Relation rel, Oid role, Datum *values,
								   bool *isnull);

/* Does the INSERT of a message name the column?  dated: it has a created_at. */
static inline bool
outbox_is_inserted(int col, bool dated)
{
	OutboxSetBy set_by = outbox_columns[col - 1].set_by;

	return set_by <= OUTBOX_SET_BY_APPLICATION ||
		(dated && set_by == OUTBOX_SET_BY_INSERT);
}

/*
 * A rule has made something else of the plan's INSERT: an ERROR.  When that is nothing, the
 * server takes the plan for one without a table and would keep it: it is forgotten.
 */
extern void outbox_fail_rewritten(OutboxKeptPlan *plan, Relation rel, int result);

/* The hash of a row's key, which has an aggregate_id. */
extern int64 outbox_key_of(const Datum *values, const bool *isnull);

/* A UUID of version 7 (RFC 9562), as the id of a message. */
extern void outbox_make_uuid7(pg_uuid_t *uuid);

/* A jsonb of that text, since the interface that builds one is another one from 19 on. */
static inline Datum
outbox_json_object(const char *text)
{
	return DirectFunctionCall1(jsonb_in, CStringGetDatum(text));
}

/* act_as_owner.c */

/* As outbox_kept_plan_execute(), without parameters, with a receiver of what it returns. */
extern int	outbox_kept_plan_execute_into(OutboxKeptPlan *kept, const char *sql,
										  DestReceiver *dest);

/*
 * Begins to act as owner, in SPI, and runs a query with $1 for name, with all that is
 * committed and all that this transaction has done.
 */
extern void outbox_look_begin(OutboxActing *acting, Oid owner, const char *query,
							  const char *name);
extern void outbox_look_end(const OutboxActing *acting);

/*
 * The first column of such a query's first row, in the current context; NULL if there is
 * no row, or it is null.  As with a foreign key, the lock under which it stays true is
 * the caller's.
 */
extern char *outbox_look_up(Relation rel, const char *query, const char *name);

/* The same with $1 for names, an array of text. */
extern char *outbox_look_up_names(Relation rel, const char *query, Datum names);

/* check.c: an ERROR that names the argument where ... */

/* ... RabbitMQ or the protocol would refuse the message, or it breaks a rule of ours */
extern void outbox_check_fields(const OutboxFields *fields,
								const OutboxRoute *route);

/* ... a column of outbox_route, which may be NULL, is too long or has no form in UTF-8 */
extern void outbox_check_route(const text *name, const text *exchange,
							   const text *exchange_type,
							   const text *routing_key);

/* Bytes of a text in UTF-8, and an ERROR where it has none; the same of a short string of AMQP. */
extern size_t outbox_utf8_length(const char *argument, const char *str, size_t len);
extern size_t outbox_short_length(const char *argument, const char *str, size_t len);

/* check_headers.c: the bytes that these objects take in a frame, or an ERROR */
extern size_t outbox_check_headers(Jsonb *headers);
extern size_t outbox_check_properties(Jsonb *properties);

/* trace.c */

/* The headers, or NULL, with the session's trace context where they have none. */
extern Jsonb *outbox_trace_headers(Jsonb *headers);

/* trigger_support.c: as outbox_fired(), BEFORE INSERT OR UPDATE FOR EACH ROW */
extern TriggerData *outbox_fired_before_row(FunctionCallInfo fcinfo,
											const char *function);

/* route_trigger.c: TRUNCATE of outbox_route is an ERROR, before anything is waited for */
extern void outbox_route_refuse_truncation(Oid relid);

/* numbering.c: numbers of messages that consumers can check order and gaps by */

/* The next seq of the table outbox, open as rel. */
extern int64 outbox_draw_seq(void);

/* Would outbox_number_key() wait now?  For the relay, which should not. */
extern bool outbox_key_is_being_numbered(const char *route, int64 key_hash);

/*
 * Counts one more message of the key on the route, for the table outbox open as rel: its
 * number, and a seq (before: the row's) that no later message of the key is below.  Other
 * transactions that number a message of this key wait until this one ends.  Returns false, and
 * counts nothing, where a message of that id (NULL: of a row that is stored) is there already.
 */
extern bool outbox_number_key(Relation rel, const char *route, int64 key_hash,
							  const pg_uuid_t *id, int64 *number, int64 *seq);

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

/* route_cap.c: the most messages that a route may have (outbox_route.max_pending) */

/*
 * Before a message of the route is stored in the table rel, on which the caller has a
 * lock: an ERROR (53400) when it has as many as it may.  asks: false for what is
 * stored however many there are.
 */
extern void outbox_cap_check(Relation rel, const OutboxRoute *route, bool asks);

/* locks.c: locks of keys and of routes */

/* Classes of advisory locks; SQL functions can only take 1 and 2. */
typedef enum OutboxLockClass
{
	OUTBOX_LOCK_KEY = 3,		/* outbox.strict_keys */
	OUTBOX_LOCK_COUNT,			/* counting the messages of a route */
	OUTBOX_LOCK_ROUTE,
	OUTBOX_LOCK_CHANGES			/* all changes of routes; its key is 0 */
} OutboxLockClass;

extern LockAcquireResult outbox_lock_acquire(LOCKTAG *tag, OutboxLockClass class,
											 uint64 key, LOCKMODE mode, bool wait);

/*
 * To the end of the transaction, so that transactions which enqueue for one key commit
 * one after the other, in the order of seq.  A deadlock is reported as any other.  The
 * row has an aggregate_id.
 */
extern void outbox_lock_key(const Datum *values, const bool *isnull);

/*
 * The transaction uses the route until it ends.  Returns false, without wait, when a
 * transaction that changes the route has it.
 */
extern bool outbox_route_lock(const char *route, bool wait);

#endif							/* OUTBOX_ENQUEUE_INTERNAL_H */
