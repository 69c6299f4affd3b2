/*-------------------------------------------------------------------------
 *
 * capture.c
 *		outbox_capture(): changes of any table become messages.
 *
 * AFTER triggers, FOR EACH ROW or, with transition tables, FOR EACH STATEMENT, and
 * for TRUNCATE.  Whoever writes to the table needs no right for it: all is done as
 * the owner of the table that CREATE TRIGGER named, in a security-restricted operation.
 * He must have EXECUTE on the function at that moment, too, and may use the route or
 * not.  So a trigger reaches nothing that the table's owner could not reach by
 * outbox_enqueue(), neither with the rights of who writes nor with those of
 * the owner of outbox, and what he is not granted any more ends.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "access/table.h"
#include "capture_internal.h"
#include "catalog/pg_proc.h"
#include "columns.h"
#include "enqueue.h"
#include "miscadmin.h"
#include "utils/acl.h"
#include "utils/builtins.h"
#include "utils/fmgrprotos.h"
#include "utils/json.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"

PG_FUNCTION_INFO_V1(outbox_capture);

/* ---------------------------------------------------------------- messages */

static void
set(Datum *values, bool *isnull, int col, Datum value)
{
	values[col - 1] = value;
	isnull[col - 1] = false;
}

static void
add_names(StringInfo json, const Capture *capture, const AttrNumber *columns, int n,
		  const bool *which)
{
	const char *separator = "[";

	for (int i = 0; i < n; i++)
		if (which == NULL || which[i])
		{
			appendStringInfoString(json, separator);
			escape_json(json, NameStr(TupleDescAttr(capture->desc, columns[i] - 1)->attname));
			separator = ", ";
		}
	appendStringInfoChar(json, ']');
}

/* The headers of all messages, and what this one is without. */
static Datum
name_omitted(const Capture *capture, const CaptureMessage *message, Datum headers)
{
	StringInfoData json;
	Datum		object;

	if (message->omitted == NULL && !message->key_omitted)
		return headers;
	initStringInfo(&json);
	appendStringInfoChar(&json, '{');
	if (message->omitted != NULL)
	{
		appendStringInfoString(&json, "\"x-outbox-omitted\": ");
		add_names(&json, capture, capture->columns, capture->ncolumns, message->omitted);
	}
	if (message->key_omitted)
	{
		appendStringInfo(&json, "%s\"x-outbox-omitted-key\": ", json.len == 1 ? "" : ", ");
		add_names(&json, capture, capture->key, capture->nkey, NULL);
	}
	appendStringInfoChar(&json, '}');
	object = DirectFunctionCall1(jsonb_in, CStringGetDatum(json.data));
	return headers == (Datum) 0 ? object :
		DirectFunctionCall2(jsonb_concat, headers, object);
}

static void
store(Capture *capture, Relation outbox, const CaptureMessage *message)
{
	const CaptureConstants *constants = outbox_capture_constants(capture, message->op);
	Datum		headers = name_omitted(capture, message, constants->headers);
	Datum		values[OUTBOX_COLUMNS];
	bool		isnull[OUTBOX_COLUMNS];

	memset(isnull, true, sizeof(isnull));
	set(values, isnull, COL_ROUTE, capture->route);
	set(values, isnull, COL_EVENT_TYPE, constants->event_type);
	if (message->key != NULL)
	{
		set(values, isnull, COL_AGGREGATE_TYPE, capture->aggregate_type);
		set(values, isnull, COL_AGGREGATE_ID, PointerGetDatum(message->key));
	}
	set(values, isnull, COL_PAYLOAD, message->payload);
	if (headers != (Datum) 0)
		set(values, isnull, COL_HEADERS, headers);
	if (constants->routing_key != (Datum) 0)
		set(values, isnull, COL_ROUTING_KEY, constants->routing_key);
	(void) outbox_enqueue_row(outbox, capture->owner, values, isnull);
}

static void
store_row(Capture *capture, Relation outbox, CaptureOp op,
		  const CaptureImage *old, const CaptureImage *new)
{
	CaptureMessage message = {.op = op, .old = old, .new = new};

	outbox_capture_fill(capture, outbox, &message);
	store(capture, outbox, &message);
}

/*
 * A row that gets another key is, for who follows one of the keys, gone or new; so
 * it is when it moves to another partition, where the server makes it so.
 */
void
outbox_capture_change(Capture *capture, Relation outbox,
					  const CaptureImage *old, const CaptureImage *new)
{
	if (old == NULL)
		store_row(capture, outbox, CAPTURE_INSERT, NULL, new);
	else if (new == NULL)
		store_row(capture, outbox, CAPTURE_DELETE, old, NULL);
	else if (!outbox_capture_same_key(capture, old, new))
	{
		store_row(capture, outbox, CAPTURE_DELETE, old, NULL);
		store_row(capture, outbox, CAPTURE_INSERT, NULL, new);
	}
	else if (capture->args.emit_unchanged ||
			 !outbox_capture_unchanged(capture, old, new))
		store_row(capture, outbox, CAPTURE_UPDATE, old, new);
}

/* There is no row to tell of: the table is all that there is to say. */
static void
capture_truncate(Capture *capture, Relation outbox)
{
	CaptureMessage message = {.op = CAPTURE_TRUNCATE};
	StringInfoData json;

	initStringInfo(&json);
	appendStringInfoString(&json, "{\"schema\": ");
	escape_json(&json, capture->schema);
	appendStringInfoString(&json, ", \"table\": ");
	escape_json(&json, capture->table);
	appendStringInfoChar(&json, '}');
	message.payload = DirectFunctionCall1(jsonb_in, CStringGetDatum(json.data));
	store(capture, outbox, &message);
}

static const CaptureImage *
deform(HeapTuple tuple, TupleDesc desc, CaptureImage *image)
{
	image->values = palloc(sizeof(Datum) * desc->natts);
	image->isnull = palloc(sizeof(bool) * desc->natts);
	heap_deform_tuple(tuple, desc, image->values, image->isnull);
	return image;
}

static void
capture_row(Capture *capture, Relation outbox, const TriggerData *trigdata)
{
	CaptureImage one;
	CaptureImage other;
	const CaptureImage *first = deform(trigdata->tg_trigtuple, capture->desc, &one);

	if (TRIGGER_FIRED_BY_INSERT(trigdata->tg_event))
		outbox_capture_change(capture, outbox, NULL, first);
	else if (TRIGGER_FIRED_BY_DELETE(trigdata->tg_event))
		outbox_capture_change(capture, outbox, first, NULL);
	else
		outbox_capture_change(capture, outbox, first,
							  deform(trigdata->tg_newtuple, capture->desc, &other));
}

/* ------------------------------------------------------------- the trigger */

/*
 * What is known of the trigger, kept for the statement: the function's own memory
 * ends with it, and until then the table cannot change.
 */
static Capture *
get_capture(FunctionCallInfo fcinfo, TriggerData *trigdata)
{
	Relation	rel = trigdata->tg_relation;
	Trigger    *trigger = trigdata->tg_trigger;
	CaptureTrigger described = {trigger->tgname, trigger->tgnargs, trigger->tgargs};
	Capture    *capture = fcinfo->flinfo->fn_extra;

	if (capture == NULL)
	{
		outbox_capture_check_type(trigger->tgtype, trigdata->tg_oldtable != NULL,
								  trigdata->tg_newtable != NULL, trigger->tgname);
		capture = outbox_capture_make(rel, &described, fcinfo->flinfo->fn_oid,
									  outbox_capture_named_table(trigger, RelationGetRelid(rel)),
									  fcinfo->flinfo->fn_mcxt);
		fcinfo->flinfo->fn_extra = capture;
	}
	capture->desc = RelationGetDescr(rel);
	return capture;
}

static void
name_trigger(void *arg)
{
	const Capture *capture = arg;

	errcontext("outbox_capture() by trigger \"%s\" on table \"%s.%s\", for its owner \"%s\"",
			   capture->trigger, capture->schema, capture->table,
			   capture->owner_name);
}

static void
capture_all(Capture *capture, const TriggerData *trigdata)
{
	Relation	outbox = outbox_open_table(get_func_namespace(capture->function));

	if (TRIGGER_FIRED_BY_TRUNCATE(trigdata->tg_event))
		capture_truncate(capture, outbox);
	else if (TRIGGER_FIRED_FOR_ROW(trigdata->tg_event))
		capture_row(capture, outbox, trigdata);
	else
		outbox_capture_statement(capture, outbox, trigdata);
	table_close(outbox, NoLock);
}

/*
 * Rows that a restore loads (--data-only: the triggers are there already) were told of
 * when they were made.  The settings of a restore are anybody's to make: so it is one
 * for those only who could disable the trigger.
 */
static bool
is_restored(const Capture *capture)
{
	return outbox_in_restore() && has_privs_of_role(GetUserId(), capture->owner);
}

Datum
outbox_capture(PG_FUNCTION_ARGS)
{
	TriggerData *trigdata = outbox_fired(fcinfo, "outbox_capture");
	Capture    *capture = get_capture(fcinfo, trigdata);
	ErrorContextCallback context;
	OutboxActing acting;

	if (is_restored(capture))
		return PointerGetDatum(NULL);
	context.callback = name_trigger;
	context.arg = capture;
	context.previous = error_context_stack;
	error_context_stack = &context;
	outbox_capture_check_owner(capture);
	outbox_act_begin(&acting, capture->owner, false);
	capture_all(capture, trigdata);
	outbox_act_end(&acting);
	error_context_stack = context.previous;
	return PointerGetDatum(NULL);
}
