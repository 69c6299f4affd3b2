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

/* The table "outbox" of the extension in that schema; an ERROR (42P01): there is none. */
extern Oid	outbox_find_table(Oid schema);

/* The same with the lock of an INSERT; an ERROR (25006) when nothing may be written. */
extern Relation outbox_open_table(Oid schema);

/* May role use the route that is in values?  An ERROR (42501, 42704) if not. */
extern void outbox_enqueue_check_route(Relation rel, Oid role,
									   const Datum *values, const bool *isnull);

/*
 * Properties with content_type, unless they have one; *isnull is that of the
 * properties, and of the result.  NULL and the default type add nothing.
 */
extern Datum outbox_add_content_type(const text *type, Datum properties,
									 bool *isnull);

/*
 * What comes before the INSERT of a message: role must be allowed to use its route
 * (42501), its key is locked where outbox.strict_keys says so, and where the id is
 * NULL one is made, and put there.  values and isnull are those of the columns
 * (columns.h) that an application sets.
 */
extern void outbox_enqueue_prepare(Relation rel, Oid role, Datum *values,
								   bool *isnull);

/*
 * That, and the INSERT, as outbox_enqueue() does.  Returns false when a trigger has
 * left the row out.
 */
extern bool outbox_enqueue_row(Relation rel, Oid role, Datum *values,
							   bool *isnull);

/*
 * What an input function makes of a string; its errors name the argument.
 */
extern Datum outbox_enqueue_convert(const char *name, PGFunction input,
									text *value);

/*
 * act_as_owner.c: acting as the owner of the tables, for somebody who has no right on them
 */

/* Whom to be again. */
typedef struct OutboxActing
{
	Oid			userid;
	int			context;
	int			nestlevel;
} OutboxActing;

/*
 * From begin to end the current user is owner, in a security-restricted
 * operation, and names are looked up in pg_catalog only.  After an ERROR the end
 * of the (sub)transaction undoes both.
 *
 * looking: only to find out what is there, as a foreign key does.  Then policies
 * do not apply even where the owner has forced them on himself: a row that they
 * hide is not one that does not exist.
 */
extern void outbox_act_begin(OutboxActing *acting, Oid owner, bool looking);
extern void outbox_act_end(const OutboxActing *acting);

/* Does a statement run as the owner for somebody else, also by a function in SQL? */
extern bool outbox_acting(void);

/* The setting outbox.as_owner, and what is refused while it is on. */
extern void outbox_owner_init(void);

/* usable_route.c: routes as a backend of the application sees them */

/*
 * The route of that name as it is committed now (or changed by this transaction),
 * for the extension in that schema whose tables owner has; an ERROR (42704) when
 * there is none, or when user may not enqueue to it (42501; InvalidOid: anybody
 * may).  Valid until the next call.
 *
 * The transaction has the route's lock from then on (route_lock.c): who removes the
 * route waits for it.
 */
extern const OutboxRoute *outbox_usable_route(Oid schema, Oid owner,
											  const char *name, Oid user);

/* The same without the lock, for who enqueues nothing. */
extern const OutboxRoute *outbox_permitted_route(Oid schema, Oid owner,
												 const char *name, Oid user);

/* The same for the external relay of a route: user must be in relay_roles (42501). */
extern const OutboxRoute *outbox_relay_route(Oid schema, Oid owner,
											 const char *name, Oid user);

/* May user enqueue to the route of that name?  No, when there is none. */
extern bool outbox_route_allows(Oid schema, Oid owner, const char *name, Oid user);

/* A copy of the name of the route that has that hash (waiters.h), or NULL. */
extern char *outbox_route_of_hash(Oid schema, Oid owner, uint64 hash);

/* Is there a route of that name now? */
extern bool outbox_route_exists(Oid schema, Oid owner, const char *name);

/* TRUNCATE of the table outbox_route is an ERROR, before anything is waited for. */
extern void outbox_route_refuse_truncation(Oid relid);

/* check.c: what a message and a route must be, checked when they are written */

/* How deep headers may nest; the object itself is depth 1. */
#define OUTBOX_MAX_HEADER_DEPTH 8

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

/*
 * Raises an error that names the argument when RabbitMQ or the protocol would
 * refuse the message, or when it breaks a rule of this extension.
 */
extern void outbox_check_fields(const OutboxFields *fields,
								const OutboxRoute *route);

/*
 * Why such a message cannot have its aggregate_id, which is not NULL: a sentence; NULL:
 * it can.
 */
extern const char *outbox_key_reason(const OutboxFields *fields,
									 const OutboxRoute *route);

/* Bytes of its body, which is a payload; somewhere above outbox.max_message_size if more. */
extern size_t outbox_payload_size(const OutboxFields *fields,
								  const OutboxRoute *route);

/* A copy in UTF-8, NULL for NULL. */
extern char *outbox_utf8_or_null(const text *value);

/* The like for the columns of outbox_route; NULL where the column is. */
extern void outbox_check_route(const text *name, const text *exchange,
							   const text *exchange_type,
							   const text *routing_key);

/* trace.c: trace context of a message that is enqueued */

/*
 * The headers with traceparent and tracestate of whoever enqueues, where they
 * have no traceparent and there is one; else the headers as they are, which may
 * be NULL.
 */
extern Jsonb *outbox_trace_headers(Jsonb *headers);

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

/*
 * The current transaction created or altered a database, which may have the
 * extension; signals for its workers.
 */
extern void outbox_wake_database(Oid dboid, int signals);

/* trigger_support.c: what fired a trigger function, checked */

/* An ERROR (39P01) that names the function unless a trigger has fired it ... */
extern TriggerData *outbox_fired(FunctionCallInfo fcinfo, const char *function);

/* ... which is BEFORE INSERT OR UPDATE FOR EACH ROW ... */
extern TriggerData *outbox_fired_before_row(FunctionCallInfo fcinfo,
											const char *function);

/* ... or AFTER INSERT, UPDATE OR DELETE FOR EACH ROW. */
extern TriggerData *outbox_fired_after_row(FunctionCallInfo fcinfo,
										   const char *function);

/* Does this session restore a dump? */
extern bool outbox_in_restore(void);

/* column_values.c: types of columns, for triggers that take them for granted */

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

/* kept_plan.c: statements that a session runs for many messages, prepared once */

/* One for each statement, static and zero at first. */
typedef struct OutboxKeptPlan
{
	SPIPlanPtr	plan;			/* NULL: nothing is kept */
	int			running;		/* executions: a trigger may lead here again */
} OutboxKeptPlan;

/*
 * Executes the generic plan of sql, which is read only while there is no plan; the
 * rest, and the result, as of SPI_execute_plan().
 * The server looks after the plan (plancache.c), which it may make again from the
 * text: so that names objects of pg_catalog and outbox_internal only.
 */
extern int	outbox_kept_plan_execute(OutboxKeptPlan *kept, const char *sql,
									 int nargs, Oid *types, Datum *values,
									 const char *nulls, bool read_only);

/* The same without parameters, with a receiver of what it returns. */
extern int	outbox_kept_plan_execute_into(OutboxKeptPlan *kept, const char *sql,
										  DestReceiver *dest);

/* The next execution prepares it again. */
extern void outbox_kept_plan_forget(OutboxKeptPlan *kept);

/* relations.c: tables of the extension by their OIDs */

/*
 * A relation in the schema that was chosen at CREATE EXTENSION, for functions that
 * are not in it themselves; InvalidOid if there is none of that name.
 */
extern Oid	outbox_relation_oid(const char *name);

/*
 * Locks a relation until the end of the transaction; an ERROR if it is not there then, or,
 * with wait false, if somebody else has it.
 */
extern void outbox_lock_relation(Oid relid, LOCKMODE mode, bool wait);

#endif							/* OUTBOX_ENQUEUE_H */
