/*-------------------------------------------------------------------------
 *
 * enqueue.h
 *		Functions of every way in, for the folders beside it.
 *
 *-------------------------------------------------------------------------
 */
#ifndef OUTBOX_ENQUEUE_H
#define OUTBOX_ENQUEUE_H

#include "access/tupdesc.h"
#include "commands/trigger.h"
#include "datatype/timestamp.h"
#include "executor/spi.h"
#include "fmgr.h"
#include "route.h"
#include "storage/lockdefs.h"
#include "utils/jsonb.h"
#include "utils/relcache.h"
#include "utils/uuid.h"

/* enqueue.c: how functions store the messages that they make */

/*
 * The table "outbox" with the lock of an INSERT; an ERROR (25006) when nothing may be
 * written.
 */
extern Relation outbox_open_table(void);

/*
 * Stores a message, as outbox_enqueue() does: role must be allowed to use its route
 * (42501).  values and isnull are those of the columns (columns.h) that an application
 * sets; the id is put there.  Returns false when a trigger has left the row out.
 */
extern bool outbox_enqueue_row(Relation rel, Oid role, Datum *values,
							   bool *isnull);

/* What an input function makes of a string; its errors name the argument. */
extern Datum outbox_enqueue_convert(const char *name, PGFunction input,
									text *value);

/* act_as_owner.c: SQL as the owner of the tables, for a role that has no right on them */

/* What outbox_act_end() puts back. */
typedef struct OutboxActing
{
	Oid			userid;
	int			context;
	int			nestlevel;
} OutboxActing;

/*
 * From begin to end the current user is owner, in a security-restricted operation, and
 * names are looked up in pg_catalog only.  After an ERROR the end of the
 * (sub)transaction undoes both.
 *
 * looking: as a foreign key looks.  Then policies do not apply even where the owner has
 * forced them on himself: a row that they hide exists all the same.
 */
extern void outbox_act_begin(OutboxActing *acting, Oid owner, bool looking);
extern void outbox_act_end(const OutboxActing *acting);

/* The setting outbox.as_owner, and what is refused while it is on. */
extern void outbox_owner_init(void);

/* A statement that is prepared once in a session; static, and zero at first. */
typedef struct OutboxKeptPlan
{
	SPIPlanPtr	plan;			/* NULL: nothing is kept */
	int			running;		/* executions: a trigger may lead here again */
} OutboxKeptPlan;

/*
 * Executes the generic plan of sql, which is read only while there is no plan; the
 * rest, and the result, as of SPI_execute_plan().  The server may make the plan again
 * from the text, so that names objects of pg_catalog and outbox_internal only.
 */
extern int	outbox_kept_plan_execute(OutboxKeptPlan *kept, const char *sql,
									 int nargs, Oid *types, Datum *values,
									 const char *nulls, bool read_only);

/* The next execution prepares it again. */
extern void outbox_kept_plan_forget(OutboxKeptPlan *kept);

/* usable_route.c: routes as a backend of the application sees them */

/*
 * The route of that name as it is committed now (or changed by this transaction), where
 * owner has the extension's tables; an ERROR (42704) when there is
 * none, or when user may not enqueue to it (42501; InvalidOid: anyone may).  Valid until
 * the next call.  From then on the transaction has the route's lock (locks.c).
 */
extern const OutboxRoute *outbox_usable_route(Oid owner,
											  const char *name, Oid user);

/* The same without the lock, where nothing is enqueued. */
extern const OutboxRoute *outbox_permitted_route(Oid owner,
												 const char *name, Oid user);

/* The same for the external relay of a route: user must be in relay_roles (42501). */
extern const OutboxRoute *outbox_relay_route(Oid owner,
											 const char *name, Oid user);

/* May user enqueue to the route of that name?  No, when there is none. */
extern bool outbox_route_allows(Oid owner, const char *name, Oid user);

/* A copy of the name of the route that has that hash (waiters.h), or NULL. */
extern char *outbox_route_of_hash(Oid owner, uint64 hash);

/* Is there a route of that name now? */
extern bool outbox_route_exists(Oid owner, const char *name);

/* check.c: what a message must be, checked when it is written */

/* A message as SQL values; NULL where the column is. */
typedef struct OutboxFields
{
	text	   *event_type;
	text	   *aggregate_type;
	text	   *aggregate_id;
	text	   *routing_key;
	Jsonb	   *payload;
	bytea	   *body;
	Jsonb	   *headers;
	Jsonb	   *properties;
	const pg_uuid_t *id;		/* what formats put into the message, too */
	TimestampTz created_at;
	bool		accepted;		/* before, when its route may have had another
								 * format */
} OutboxFields;

/* Why such a message cannot have its aggregate_id, which is not NULL; NULL: it can. */
extern const char *outbox_key_reason(const OutboxFields *fields,
									 const OutboxRoute *route);

/*
 * Bytes of its body, which is a payload; somewhere above outbox.max_message_size if more.
 * longest: with the largest numbers that it could get when it is stored.
 */
extern size_t outbox_payload_size(const OutboxFields *fields, const OutboxRoute *route,
								  bool longest);

/* trace.c: trace context of a message that is enqueued */

/*
 * Headers of this context; NULL when parent is no traceparent.  A state that is none
 * is left out, as is NULL.
 */
extern Jsonb *outbox_trace_headers_of(const char *parent_text, const char *state);

/* wake.c: telling the relay, once after commit, what a transaction enqueued */

/* The current transaction made row seq claimable. */
extern void outbox_wake_row(int64 seq);

/* The current transaction made a row that is due at that time. */
extern void outbox_wake_due(TimestampTz due);

/* The current transaction has signals for the workers. */
extern void outbox_wake_signal(int signals);

/* It created or altered a database, whose workers, if it has any, get these signals. */
extern void outbox_wake_database(Oid dboid, int signals);

/* trigger_support.c: help for trigger functions */

/* An ERROR (39P01) that names the function unless a trigger has fired it. */
extern TriggerData *outbox_fired(FunctionCallInfo fcinfo, const char *function);

/* The same, AFTER INSERT, UPDATE OR DELETE FOR EACH ROW. */
extern TriggerData *outbox_fired_after_row(FunctionCallInfo fcinfo,
										   const char *function);

/* Does this session restore a dump? */
extern bool outbox_in_restore(void);

/* Does it, with the owner's rights? */
extern bool outbox_restored_by(Oid owner);

/*
 * An ERROR (42804) unless columns 1 to n have these types, or domains over them;
 * text stands for varchar, too.  table is for the message.
 */
extern void outbox_expect_columns(TupleDesc desc, const Oid *types, int n,
								  const char *table);

/* The same for the table outbox. */
extern void outbox_expect_message_columns(TupleDesc desc, const char *table);

/* Compares bytes, of two values that are not null; 1.0 and 1.00 are two. */
extern bool outbox_same_value(Datum one, Datum other, bool byval, int16 len);

/* relations.c: LOCK TABLE and ALTER TABLE of tables by their OIDs */

/*
 * Locks a relation until the end of the transaction; an ERROR if it is not there then, or,
 * without wait, if another transaction has it.
 */
extern void outbox_lock_relation(Oid relid, LOCKMODE mode, bool wait);

#endif							/* OUTBOX_ENQUEUE_H */
