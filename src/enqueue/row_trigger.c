/*-------------------------------------------------------------------------
 *
 * row_trigger.c
 *		What makes a row of the table outbox a message.
 *
 * BEFORE INSERT OR UPDATE ... FOR EACH ROW, however the row comes: by
 * outbox_enqueue(), INSERT, COPY, or an operator's UPDATE.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "catalog.h"
#include "catalog/pg_type.h"
#include "compat.h"
#include "encode_json.h"
#include "enqueue_internal.h"
#include "executor/executor.h"
#include "identity.h"
#include "message.h"
#include "miscadmin.h"
#include "optimizer/optimizer.h"
#include "rewrite/rewriteHandler.h"
#include "route.h"
#include "settings.h"
#include "shared.h"
#include "utils/acl.h"
#include "utils/builtins.h"
#include "utils/timestamp.h"

PG_FUNCTION_INFO_V1(outbox_row_trigger);

/*
 * The relay counts on from there, and a number without a successor would be an error of
 * its statement, for all messages.
 */
#define MAX_ATTEMPTS	1000000000

typedef struct Row
{
	Relation	rel;
	HeapTuple	tuple;
	HeapTuple	old;			/* NULL: it is inserted */
	bool		enters;			/* a route: it is inserted, or was of another
								 * one */
	bool		accepted;		/* before: the relay stores it */
	bool		changed;		/* values are not those of tuple any more */
	Datum	   *values;			/* of all columns, those of others included */
	bool	   *isnull;
} Row;

#define IS_NULL(col)		(row->isnull[(col) - 1])
#define VALUE(col)			(row->values[(col) - 1])
#define FIELD(col, get)		(IS_NULL(col) ? NULL : get(VALUE(col)))

/* Of an UPDATE: is the column what it was? */
static bool
is_unchanged(const Row *row, int col)
{
	TupleDesc	desc = RelationGetDescr(row->rel);
	Form_pg_attribute att = TupleDescAttr(desc, col - 1);
	bool		isnull;
	Datum		old = heap_getattr(row->old, col, desc, &isnull);

	return isnull == IS_NULL(col) &&
		(isnull || outbox_same_value(old, VALUE(col), att->attbyval, att->attlen));
}

/* NULL: it has none, or there is no old row. */
static Jsonb *
old_headers(const Row *row)
{
	bool		isnull = true;
	Datum		old = row->old == NULL ? (Datum) 0 :
		heap_getattr(row->old, COL_HEADERS, RelationGetDescr(row->rel), &isnull);

	return isnull ? NULL : DatumGetJsonbP(old);
}

static void
read_row(Row *row, TriggerData *trigdata)
{
	bool		insert = TRIGGER_FIRED_BY_INSERT(trigdata->tg_event);
	TupleDesc	desc = RelationGetDescr(trigdata->tg_relation);

	row->rel = trigdata->tg_relation;
	row->tuple = insert ? trigdata->tg_trigtuple : trigdata->tg_newtuple;
	row->old = insert ? NULL : trigdata->tg_trigtuple;
	row->accepted = outbox_is_relay;
	row->changed = false;
	outbox_expect_message_columns(desc, RelationGetRelationName(row->rel));
	row->values = palloc(sizeof(Datum) * desc->natts);
	row->isnull = palloc(sizeof(bool) * desc->natts);
	heap_deform_tuple(row->tuple, desc, row->values, row->isnull);
	row->enters = insert || !is_unchanged(row, COL_ROUTE);
}

static void
set_null(Row *row, int col)
{
	IS_NULL(col) = true;
	row->changed = true;
}

static void
set_value(Row *row, int col, Datum value)
{
	VALUE(col) = value;
	IS_NULL(col) = false;
	row->changed = true;
}

/* ---------------------------------------------------------------- defaults */

/*
 * The default of a column as the catalog has it at the moment, evaluated as the one who
 * INSERTs, as the server would; NULL: there is none.
 */
static bool
column_default(Relation rel, int col, Datum *value)
{
	Expr	   *expr = (Expr *) build_column_default(rel, col);
	ExprContext *econtext;
	bool		isnull;

	if (expr == NULL)
		return false;
	econtext = CreateStandaloneExprContext();
	/* In our own memory context: the value has to outlive econtext. */
	*value = ExecEvalExpr(ExecInitExpr(expression_planner(expr), NULL),
						  econtext, &isnull);
	FreeExprContext(econtext, true);
	return !isnull;
}

/*
 * Mappers name each column in an INSERT, with NULL for what nothing has set, and a
 * language without NULL its zero, so the server's own default does not apply.  No
 * database has the origin 0; of a restore it is taken as it comes.
 */
static void
set_defaults(Row *row)
{
	if (!IS_NULL(COL_ORIGIN) && DatumGetInt64(VALUE(COL_ORIGIN)) == 0 &&
		!outbox_restored_by(row->rel->rd_rel->relowner))
		set_null(row, COL_ORIGIN);
	for (int col = 1; col <= OUTBOX_COLUMNS; col++)
	{
		Datum		value;

		if (IS_NULL(col) && outbox_columns[col - 1].null == OUTBOX_COLUMN_DEFAULT &&
			column_default(row->rel, col, &value))
			set_value(row, col, value);
	}
}

/* ------------------------------------------------------------------ origin */

/*
 * Is the row loaded by a restore, or was it?  Then the original has accepted it, and
 * neither its route need be there yet, since tables are loaded in any order, nor need our
 * settings agree.  A dump of this database itself may have been published since, so its
 * rows are those of another, one for each restoring session: to adopt one restore must
 * not adopt the next.  This is for those who may restore: anyone else could silence the
 * relay, or publish what it must not, with it.
 */
static bool
is_restored(Row *row)
{
	bool		foreign = !IS_NULL(COL_ORIGIN) &&
		DatumGetInt64(VALUE(COL_ORIGIN)) != outbox_own_origin();
	bool		sets_origin;
	bool		owner;

	if (outbox_restored_by(row->rel->rd_rel->relowner))
	{
		if (row->old == NULL && !foreign)
			set_value(row, COL_ORIGIN,
					  Int64GetDatum(outbox_origin_of((uint64) MyStartTimestamp,
													 MyDatabaseId)));
		return true;
	}
	if (row->old == NULL && !foreign)
		return false;
	sets_origin = row->old == NULL ? foreign : !is_unchanged(row, COL_ORIGIN);
	owner = has_privs_of_role(GetUserId(), row->rel->rd_rel->relowner);
	if (!owner && sets_origin)
		ereport(ERROR,
				(errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
				 errmsg("permission denied to set origin of a message"),
				 errdetail("Only a restore by superusers or the owner of the table \"%s\" may store messages of another database.",
						   RelationGetRelationName(row->rel)),
				 errhint("Leave origin to its default.")));
	if (foreign && sets_origin)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("origin of a message must be that of this database"),
				 errdetail("A message of another database comes with a restore only, and silences the relay until outbox_adopt() is called."),
				 errhint("Leave origin to its default.")));
	/* Another route is one of this database. */
	return foreign && owner && (row->old == NULL || !row->enters);
}

/* -------------------------------------------------- what a row has to be */

/* Mappers write JSON null for an absent value.  As a payload without a body it is one. */
static void
replace_json_nulls(Row *row)
{
	for (int col = 1; col <= OUTBOX_COLUMNS; col++)
		if (outbox_column_types[col - 1] == JSONBOID && !IS_NULL(col) &&
			(col != COL_PAYLOAD || !IS_NULL(COL_BODY)) &&
			outbox_is_json_null(DatumGetJsonbP(VALUE(col))))
			set_null(row, col);
}

static void
set_headers(Row *row, const Jsonb *before, const Jsonb *headers)
{
	if (headers == NULL && before != NULL)
		set_null(row, COL_HEADERS);
	else if (headers != before)
		set_value(row, COL_HEADERS, JsonbPGetDatum(headers));
}

/* What the broker, the protocol or the route would not take. */
static void
check_message(Row *row, const OutboxRoute *route)
{
	OutboxFields fields = {
		.event_type = FIELD(COL_EVENT_TYPE, DatumGetTextPP),
		.aggregate_type = FIELD(COL_AGGREGATE_TYPE, DatumGetTextPP),
		.aggregate_id = FIELD(COL_AGGREGATE_ID, DatumGetTextPP),
		.routing_key = FIELD(COL_ROUTING_KEY, DatumGetTextPP),
		.payload = FIELD(COL_PAYLOAD, DatumGetJsonbP),
		.body = FIELD(COL_BODY, DatumGetByteaPP),
		.headers = FIELD(COL_HEADERS, DatumGetJsonbP),
		.properties = FIELD(COL_PROPERTIES, DatumGetJsonbP),
		.id = FIELD(COL_ID, DatumGetUUIDP),
		.created_at = DatumGetTimestampTz(VALUE(COL_CREATED_AT)),
		.accepted = row->accepted
	};

	outbox_check_fields(&fields, route);
}

/*
 * An UPDATE that leaves a message as it is: what was accepted goes out once more.  By now
 * it may be more than enqueue takes, as the header of a dead letter uses the reserve
 * there; one such message would hold up the others of its outbox_requeue_failed().
 */
static bool
is_same_message(Row *row)
{
	if (row->old == NULL)
		return false;
	for (int col = 1; col <= OUTBOX_COLUMNS; col++)
		if (outbox_columns[col - 1].set_by == OUTBOX_SET_BY_CONTENT &&
			!is_unchanged(row, col))
			return false;
	return true;
}

static bool
has_status(Row *row, const char *status)
{
	text	   *value = FIELD(COL_STATUS, DatumGetTextPP);

	return value != NULL && VARSIZE_ANY_EXHDR(value) == strlen(status) &&
		memcmp(VARDATA_ANY(value), status, strlen(status)) == 0;
}

/*
 * What the relay itself counts on, a restored row included.  CHECK constraints would say
 * the same, but each costs every INSERT 2.5 us of 19, because the server reads and
 * compiles it again for each statement (measured).
 */
static void
check_row(Row *row)
{
	if (!IS_NULL(COL_STATUS) && !has_status(row, "pending") &&
		!has_status(row, "failed"))
		ereport(ERROR,
				(errcode(ERRCODE_CHECK_VIOLATION),
				 errmsg("status must be 'pending' or 'failed'"),
				 errhint("Leave it to its default.")));
	if (!IS_NULL(COL_ATTEMPTS) &&
		(DatumGetInt32(VALUE(COL_ATTEMPTS)) < 0 ||
		 DatumGetInt32(VALUE(COL_ATTEMPTS)) > MAX_ATTEMPTS))
		ereport(ERROR,
				(errcode(ERRCODE_CHECK_VIOLATION),
				 errmsg("attempts must be from 0 to %d", MAX_ATTEMPTS),
				 errhint("Leave it to its default.")));
	/* No number is behind the last one, so that it could not be passed. */
	if ((row->old == NULL || !is_unchanged(row, COL_SEQ)) &&
		(IS_NULL(COL_SEQ) || DatumGetInt64(VALUE(COL_SEQ)) <= 0 ||
		 DatumGetInt64(VALUE(COL_SEQ)) == PG_INT64_MAX))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("seq must be from 1 to %lld", (long long) PG_INT64_MAX - 1),
				 errhint("Leave it to its default.")));
	if (IS_NULL(COL_CREATED_AT) ||
		TIMESTAMP_NOT_FINITE(DatumGetTimestampTz(VALUE(COL_CREATED_AT))))
		ereport(ERROR,
				(errcode(ERRCODE_DATETIME_VALUE_OUT_OF_RANGE),
				 errmsg("created_at must be a finite time")));
	if (IS_NULL(COL_ROUTE))
		ereport(ERROR,
				(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
				 errmsg("route must not be null")));
}

/*
 * Sets who publishes the row, and returns whether the workers exclude it.  A row of a
 * transient outlet that was stored past this trigger is left to the workers, as the
 * outlet never sees it.  A restored row (no route) keeps any other outlet, an unknown one
 * too.
 */
static bool
set_outlet(Row *row, const OutboxRoute *route)
{
	char	   *old = FIELD(COL_OUTLET, TextDatumGetCString);
	const OutboxOutlet *outlet = route != NULL ? route->outlet : outbox_outlet_find(old);
	const char *name = route != NULL ? NULL : old;

	if (outlet != NULL)
		name = outlet->excluded &&
			(!outlet->transient || (row->old == NULL && route != NULL)) ? outlet->name : NULL;
	if (name == NULL && old != NULL)
		set_null(row, COL_OUTLET);
	else if (name != NULL && (old == NULL || strcmp(old, name) != 0))
		set_value(row, COL_OUTLET, CStringGetTextDatum(name));
	return name != NULL;
}

/*
 * It counts towards the max_pending of its route, however it comes; what the relay
 * stores is a message that was accepted before.  After all else that could refuse it.
 */
static void
set_counted(Row *row, const OutboxRoute *route)
{
	bool		counts;

	if (route == NULL)
		return;
	counts = route->max_pending > 0;
	if (counts && row->old == NULL)
		outbox_cap_check(row->rel, route, !row->accepted);
	if (IS_NULL(COL_COUNTED) == !counts && (!counts || DatumGetBool(VALUE(COL_COUNTED))))
		return;
	if (counts)
		set_value(row, COL_COUNTED, BoolGetDatum(true));
	else
		set_null(row, COL_COUNTED);
}

/* When it became failed, by the relay or an operator; of a restored row as it was. */
static void
set_failed_at(Row *row)
{
	bool		failed = has_status(row, "failed");

	if (IS_NULL(COL_FAILED_AT) == !failed)
		return;
	if (failed)
		set_value(row, COL_FAILED_AT, TimestampTzGetDatum(GetCurrentTimestamp()));
	else
		set_null(row, COL_FAILED_AT);
}

/* As a foreign key looks, whatever the route was when the statement began. */
static const OutboxRoute *
usable_route(const Row *row, Oid user)
{
	return outbox_usable_route(row->rel->rd_rel->relowner,
							   TextDatumGetCString(VALUE(COL_ROUTE)), user);
}

/*
 * A message gets its numbers where the route says so, once.  A message that a job of the
 * relay inserts with its old id has them; what is no object is refused later.  What an
 * administrator has added may have run, and enqueued: the route is looked up again.
 */
static const OutboxRoute *
number_message(Row *row, const OutboxRoute *route)
{
	Jsonb	   *headers;
	int64		number = 0;

	if (route->numbering == OUTBOX_NUMBER_NONE || !row->enters)
		return route;
	headers = FIELD(COL_HEADERS, DatumGetJsonbP);
	if ((headers != NULL && !JB_ROOT_IS_OBJECT(headers)) ||
		(row->accepted && outbox_has_number(headers)))
		return route;
	if (route->numbering == OUTBOX_NUMBER_KEY && !IS_NULL(COL_AGGREGATE_ID))
	{
		int64		seq = DatumGetInt64(VALUE(COL_SEQ));

		if (!outbox_number_key(row->rel, TextDatumGetCString(VALUE(COL_ROUTE)),
							   outbox_key_of(row->values, row->isnull),
							   row->old == NULL ? FIELD(COL_ID, DatumGetUUIDP) : NULL,
							   &number, &seq))
			return usable_route(row, InvalidOid);
		set_value(row, COL_SEQ, Int64GetDatum(seq));
	}
	set_headers(row, headers,
				outbox_numbered_headers(headers, DatumGetInt64(VALUE(COL_SEQ)), number));
	return usable_route(row, InvalidOid);
}

/*
 * Half of a key is none: such messages have no order, which shows only when it is
 * missed.  Once a session, so that a log is not full of it where it is meant.
 */
static void
warn_half_key(Row *row)
{
	static bool warned = false;

	if (warned || IS_NULL(COL_AGGREGATE_TYPE) || !IS_NULL(COL_AGGREGATE_ID))
		return;
	warned = true;
	ereport(WARNING,
			(errcode(ERRCODE_WARNING),
			 errmsg("aggregate_type is given without aggregate_id"),
			 errdetail("The message has no key, so its order is not kept. This is said once in a session."),
			 errhint("Give aggregate_id too, or leave both out.")));
}

/*
 * A message of another route takes its place in this one now, behind all that is
 * there: its key is another one, whose messages may have been published long ago.  Nor
 * must a retry hold that key: the worker has not seen it do so.
 */
static void
take_place(Row *row)
{
	Jsonb	   *headers;

	if (row->old == NULL || !row->enters)
		return;
	headers = FIELD(COL_HEADERS, DatumGetJsonbP);
	set_value(row, COL_SEQ, Int64GetDatum(outbox_draw_seq()));
	set_headers(row, headers, outbox_unnumbered_headers(headers));
	if (!has_status(row, "pending") || DatumGetInt32(VALUE(COL_ATTEMPTS)) == 0)
		return;
	set_value(row, COL_ATTEMPTS, Int32GetDatum(0));
	set_null(row, COL_AVAILABLE_AT);
}

/*
 * A leased message is published for the route that it was claimed on, and settled by its id.
 * The UPDATE has locked the row, so that it is not claimed meanwhile.
 */
static void
refuse_leased(Row *row)
{
	TupleDesc	desc = RelationGetDescr(row->rel);
	bool		internal;
	bool		isnull;
	Datum		id = heap_getattr(row->old, COL_ID, desc, &isnull);

	(void) heap_getattr(row->old, COL_OUTLET, desc, &internal);
	if (!internal && !isnull)
		(void) outbox_look_up(row->rel,
							  "SELECT outbox_internal.outbox_check_unclaimed($1::pg_catalog.uuid)",
							  outbox_id_text(DatumGetUUIDP(id)));
}

/* The route's outlet may refuse a row that enters it. */
static void
judge_outlet(Row *row, const OutboxRoute *route)
{
	OutboxNewRow new;

	if (route->outlet == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("relay of route \"%s\" is unknown", route->name),
				 errdetail("The library \"outbox\" on this server has no outlet of that name, so nothing would publish the message."),
				 errhint("UPDATE outbox_route SET relay = 'internal' lets the workers publish the route.")));
	if (route->outlet->judge == NULL)
		return;
	new.insert = row->old == NULL;
	new.pending = !has_status(row, "failed");
	new.available_at = IS_NULL(COL_AVAILABLE_AT) ? DT_NOBEGIN :
		DatumGetTimestampTz(VALUE(COL_AVAILABLE_AT));
	route->outlet->judge(route, &new);
	if (TIMESTAMP_IS_NOBEGIN(new.available_at) && !IS_NULL(COL_AVAILABLE_AT))
		set_null(row, COL_AVAILABLE_AT);
}

/* Returns NULL for a row that a restore brings. */
static const OutboxRoute *
judge(Row *row)
{
	const OutboxRoute *route;
	Oid			user = GetUserId();
	Jsonb	   *headers;

	if (is_restored(row))
		return NULL;
	replace_json_nulls(row);
	headers = FIELD(COL_HEADERS, DatumGetJsonbP);
	/* On every route: what a consumer counts by must not come from a user. */
	if (headers != NULL && !row->accepted)
		outbox_refuse_numbers(headers, old_headers(row));
	/* A job of the relay stores what has its trace, or has none. */
	if (row->old == NULL && !row->accepted)
		set_headers(row, headers, outbox_trace_headers(headers));
	if (row->old != NULL && row->enters && !row->accepted)
		refuse_leased(row);
	route = usable_route(row, user == row->rel->rd_rel->relowner ? InvalidOid : user);

	/*
	 * Before the number's row, as where a function is called, which has it
	 * already: everywhere in one order.  A plain INSERT's default has drawn
	 * seq before, see doc/delivery.md, Order.
	 */
	if (row->enters && !row->accepted && outbox_strict_keys &&
		route->ordered && !IS_NULL(COL_AGGREGATE_ID))
		outbox_lock_key(row->values, row->isnull);
	take_place(row);
	/* An UPDATE of the headers leaves the numbers. */
	if (!row->enters && (headers == NULL || JB_ROOT_IS_OBJECT(headers)))
		set_headers(row, headers, outbox_keep_numbers(headers, old_headers(row)));
	route = number_message(row, route);
	if (!is_same_message(row))
		check_message(row, route);
	if (!IS_NULL(COL_AVAILABLE_AT) &&
		TIMESTAMP_IS_NOEND(DatumGetTimestampTz(VALUE(COL_AVAILABLE_AT))))
		ereport(ERROR,
				(errcode(ERRCODE_DATETIME_VALUE_OUT_OF_RANGE),
				 errmsg("available_at must not be infinity"),
				 errdetail("The message would never be sent.")));
	if (row->enters)
		judge_outlet(row, route);
	return route;
}

/* ------------------------------------------------------------ announcement */

static void
warn_not_preloaded(void)
{
	static bool warned = false;

	if (outbox_shared != NULL || warned)
		return;
	warned = true;
	ereport(WARNING,
			(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
			 errmsg("messages are stored but not published"),
			 errdetail("The library \"outbox\" is not in \"shared_preload_libraries\", so no relay runs."),
			 errhint("Add outbox to \"shared_preload_libraries\" and restart the server.")));
}

/*
 * Notes a pending row, for the relay to hear of at commit.  One that is due
 * already is an ordinary message, and takes the hot path.
 */
static void
announce(Row *row)
{
	TimestampTz due = IS_NULL(COL_AVAILABLE_AT) ? DT_NOBEGIN :
		DatumGetTimestampTz(VALUE(COL_AVAILABLE_AT));

	if (!IS_NULL(COL_AVAILABLE_AT) && row->old == NULL && due <= GetCurrentTimestamp() &&
		!IS_NULL(COL_ATTEMPTS) && DatumGetInt32(VALUE(COL_ATTEMPTS)) == 0)
		set_null(row, COL_AVAILABLE_AT);
	if (IS_NULL(COL_AVAILABLE_AT))
		outbox_wake_row(DatumGetInt64(VALUE(COL_SEQ)));
	else
		outbox_wake_due(outbox_due_time(due));
}

/*
 * A dead letter.  The worker has judged whether the route can have it, and must not
 * wait for the locks of others: false, it cannot be moved now.
 */
static bool
move_dead_letter(Row *row)
{
	char	   *name;
	const OutboxRoute *route;

	/* A trigger of the administrator's may have run before. */
	check_row(row);
	name = TextDatumGetCString(VALUE(COL_ROUTE));
	if (!outbox_route_lock(name, false))
		return false;
	route = usable_route(row, InvalidOid);
	if (route->numbering == OUTBOX_NUMBER_KEY && !IS_NULL(COL_AGGREGATE_ID) &&
		outbox_key_is_being_numbered(name, outbox_key_of(row->values, row->isnull)))
		return false;
	take_place(row);
	route = number_message(row, route);
	set_counted(row, route);
	if (!set_outlet(row, route))
		announce(row);
	return true;
}

static HeapTuple
changed_tuple(const Row *row)
{
	return row->changed ?
		heap_form_tuple(RelationGetDescr(row->rel), row->values, row->isnull) :
		row->tuple;
}

/*
 * The relay's own updates pass, but for dead letters: it changes what it has
 * claimed.  What a job of it inserts is a message like any other, but for strict
 * keys: for a producer's lock, which is held until its commit, the relay must not
 * wait.
 */
Datum
outbox_row_trigger(PG_FUNCTION_ARGS)
{
	TriggerData *trigdata = outbox_fired_before_row(fcinfo, "outbox_row_trigger");
	Row			here;
	Row		   *row = &here;
	const OutboxRoute *route;
	bool		excluded;

	outbox_refuse_deferred(trigdata->tg_relation, trigdata->tg_event);
	read_row(row, trigdata);
	if (row->accepted && row->old != NULL)
	{
		/* Else the worker counts a failed attempt, and comes again. */
		if (row->enters && !move_dead_letter(row))
			return PointerGetDatum(NULL);
		return PointerGetDatum(changed_tuple(row));
	}
	if (row->old == NULL)
		set_defaults(row);
	check_row(row);
	route = judge(row);
	if (row->old == NULL && route != NULL && !row->accepted)
		warn_half_key(row);
	set_failed_at(row);
	excluded = set_outlet(row, route);
	set_counted(row, route);
	if (route == NULL || route->outlet == NULL || !route->outlet->transient)
		warn_not_preloaded();

	if (row->old != NULL)
		outbox_wake_signal(OUTBOX_SIGNAL_REMOVED);
	if (!excluded && has_status(row, "pending"))
		announce(row);
	return PointerGetDatum(changed_tuple(row));
}
