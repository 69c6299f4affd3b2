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

#include "access/table.h"
#include "capture_internal.h"
#include "columns.h"
#include "enqueue.h"
#include "miscadmin.h"
#include "pgtime.h"
#include "utils/builtins.h"
#include "utils/bytea.h"
#include "utils/float.h"
#include "utils/fmgrprotos.h"
#include "utils/guc.h"
#include "utils/json.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"

PG_FUNCTION_INFO_V1(outbox_capture);

/* ------------------------------------------------------------------ format */

/*
 * The same row gives the same message in every session: above all the same key, as
 * the order hangs on that.  Returns 0 where the settings are as they must be.
 */
int
outbox_capture_format_begin(void)
{
	const struct
	{
		const char *setting;
		const char *value;
		bool		differs;
	}			pinned[] = {
		{"DateStyle", "ISO, MDY", DateStyle != USE_ISO_DATES || DateOrder != DATEORDER_MDY},
		{"IntervalStyle", "postgres", IntervalStyle != INTSTYLE_POSTGRES},
		{"TimeZone", "UTC", strcmp(pg_get_timezone_name(session_timezone), "UTC") != 0},
		{"extra_float_digits", "1", extra_float_digits != 1},
		{"bytea_output", "hex", bytea_output != BYTEA_OUTPUT_HEX},
		/* Its variable is in a header that needs ICU's. */
		{"lc_monetary", "C", strcmp(GetConfigOption("lc_monetary", false, false), "C") != 0},
		{"quote_all_identifiers", "off", quote_all_identifiers}
	};
	int			nestlevel = 0;

	for (int i = 0; i < (int) lengthof(pinned); i++)
		if (pinned[i].differs)
		{
			if (nestlevel == 0)
				nestlevel = NewGUCNestLevel();
			(void) set_config_option(pinned[i].setting, pinned[i].value, PGC_USERSET,
									 PGC_S_SESSION, GUC_ACTION_SAVE, true, 0, false);
		}
	return nestlevel;
}

void
outbox_capture_format_end(int nestlevel)
{
	if (nestlevel != 0)
		AtEOXact_GUC(false, nestlevel);
}

/* -------------------------------------------------------------------- rows */

/* Told by the bytes of the values: no code of anybody's, and it knows every type. */
bool
outbox_capture_same(const Capture *capture, int attnum, const TupleTableSlot *one,
					const TupleTableSlot *other)
{
	Form_pg_attribute att = TupleDescAttr(capture->desc, attnum - 1);
	int			i = attnum - 1;

	if (one->tts_isnull[i] || other->tts_isnull[i])
		return one->tts_isnull[i] && other->tts_isnull[i];
	return outbox_same_value(one->tts_values[i], other->tts_values[i], att->attbyval,
							 att->attlen);
}

bool
outbox_capture_same_columns(const Capture *capture, const List *columns,
							const TupleTableSlot *one, const TupleTableSlot *other)
{
	ListCell   *cell;

	foreach(cell, columns)
		if (!outbox_capture_same(capture, lfirst_int(cell), one, other))
			return false;
	return true;
}

static char *
key_text(Capture *capture, int i, const TupleTableSlot *row)
{
	int			column = list_nth_int(capture->key, i) - 1;

	return row->tts_isnull[column] ? NULL :
		OutputFunctionCall(&capture->key_out[i], row->tts_values[column]);
}

/*
 * One column as its text; several as a JSON array of their texts, in which no value
 * can be taken for two.  NULL: the row has no key.
 */
text *
outbox_capture_key(Capture *capture, const TupleTableSlot *row)
{
	int			n = list_length(capture->key);
	char	   *value = n == 1 ? key_text(capture, 0, row) : NULL;
	StringInfoData json;

	if (n <= 1)
		return value == NULL ? NULL : cstring_to_text(value);
	initStringInfo(&json);
	for (int i = 0; i < n; i++)
	{
		appendStringInfoString(&json, i == 0 ? "[" : ", ");
		value = key_text(capture, i, row);
		if (value == NULL)
			appendStringInfoString(&json, "null");
		else
			escape_json(&json, value);
	}
	appendStringInfoChar(&json, ']');
	return cstring_to_text_with_len(json.data, json.len);
}

/* ----------------------------------------------------------------- headers */

static void
add_names(StringInfo json, const Capture *capture, const char *header,
		  const List *columns)
{
	const char *separator = "[";
	ListCell   *cell;

	if (columns == NIL)
		return;
	appendStringInfo(json, "%c\"%s\": ", json->len == 0 ? '{' : ',', header);
	foreach(cell, columns)
	{
		appendStringInfoString(json, separator);
		escape_json(json, capture_column_name(capture, lfirst_int(cell)));
		separator = ", ";
	}
	appendStringInfoChar(json, ']');
}

void
outbox_capture_name_omitted(const Capture *capture, CaptureMessage *message,
							const List *omitted)
{
	OutboxFields *fields = &message->fields;
	StringInfoData json;
	Datum		object;

	if (omitted == NIL && message->omitted_key == NIL)
		return;
	initStringInfo(&json);
	add_names(&json, capture, "x-outbox-omitted", omitted);
	add_names(&json, capture, "x-outbox-omitted-key", message->omitted_key);
	appendStringInfoChar(&json, '}');
	object = DirectFunctionCall1(jsonb_in, CStringGetDatum(json.data));
	fields->headers = DatumGetJsonbP(fields->headers == NULL ? object :
									 DirectFunctionCall2(jsonb_concat,
														 JsonbPGetDatum(fields->headers),
														 object));
}

/* ---------------------------------------------------------------- messages */

static void
set(Datum *values, bool *isnull, int col, Datum value)
{
	values[col - 1] = value;
	isnull[col - 1] = false;
}

static void
store(Capture *capture, Relation outbox, const OutboxFields *fields)
{
	Datum		values[OUTBOX_COLUMNS];
	bool		isnull[OUTBOX_COLUMNS];

	memset(isnull, true, sizeof(isnull));
	set(values, isnull, COL_ROUTE, capture->route);
	set(values, isnull, COL_EVENT_TYPE, PointerGetDatum(fields->event_type));
	if (fields->aggregate_id != NULL)
	{
		set(values, isnull, COL_AGGREGATE_TYPE, PointerGetDatum(fields->aggregate_type));
		set(values, isnull, COL_AGGREGATE_ID, PointerGetDatum(fields->aggregate_id));
	}
	set(values, isnull, COL_PAYLOAD, JsonbPGetDatum(fields->payload));
	if (fields->headers != NULL)
		set(values, isnull, COL_HEADERS, JsonbPGetDatum(fields->headers));
	if (fields->routing_key != NULL)
		set(values, isnull, COL_ROUTING_KEY, PointerGetDatum(fields->routing_key));
	(void) outbox_enqueue_row(outbox, capture->owner, values, isnull);
}

static void
store_row(Capture *capture, Relation outbox, CaptureOp op,
		  const TupleTableSlot *old, const TupleTableSlot *new)
{
	CaptureMessage message = {*outbox_capture_constants(capture, op), old, new};

	outbox_capture_fill(capture, outbox, &message);
	store(capture, outbox, &message.fields);
}

/*
 * A row that gets another key is, for who follows one of the keys, gone or new; so
 * it is when it moves to another partition, where the server makes it so.
 */
void
outbox_capture_change(Capture *capture, Relation outbox,
					  const TupleTableSlot *old, const TupleTableSlot *new)
{
	if (old == NULL)
		store_row(capture, outbox, CAPTURE_INSERT, NULL, new);
	else if (new == NULL)
		store_row(capture, outbox, CAPTURE_DELETE, old, NULL);
	else if (!outbox_capture_same_columns(capture, capture->key, old, new))
	{
		store_row(capture, outbox, CAPTURE_DELETE, old, NULL);
		store_row(capture, outbox, CAPTURE_INSERT, NULL, new);
	}
	else if (capture->args.emit_unchanged ||
			 !outbox_capture_same_columns(capture, capture->columns, old, new))
		store_row(capture, outbox, CAPTURE_UPDATE, old, new);
}

/* There is no row to tell of: the table is all that there is to say. */
static void
capture_truncate(Capture *capture, Relation outbox)
{
	OutboxFields fields = *outbox_capture_constants(capture, CAPTURE_TRUNCATE);

	fields.payload = outbox_capture_headers(capture,
											CAPTURE_HEADER_SCHEMA | CAPTURE_HEADER_TABLE,
											NULL);
	store(capture, outbox, &fields);
}

static void
capture_row(Capture *capture, Relation outbox, const TriggerData *trigdata)
{
	TupleTableSlot *row = trigdata->tg_trigslot;
	TupleTableSlot *new = trigdata->tg_newslot;

	slot_getallattrs(row);
	if (TRIGGER_FIRED_BY_INSERT(trigdata->tg_event))
		outbox_capture_change(capture, outbox, NULL, row);
	else if (TRIGGER_FIRED_BY_DELETE(trigdata->tg_event))
		outbox_capture_change(capture, outbox, row, NULL);
	else
	{
		slot_getallattrs(new);
		outbox_capture_change(capture, outbox, row, new);
	}
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
	Capture    *capture = fcinfo->flinfo->fn_extra;

	if (capture == NULL)
		capture = fcinfo->flinfo->fn_extra =
			outbox_capture_make(rel, trigdata->tg_trigger, fcinfo->flinfo->fn_mcxt);
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
	Relation	outbox = outbox_open_table();

	if (TRIGGER_FIRED_BY_TRUNCATE(trigdata->tg_event))
		capture_truncate(capture, outbox);
	else if (TRIGGER_FIRED_FOR_ROW(trigdata->tg_event))
		capture_row(capture, outbox, trigdata);
	else
		outbox_capture_statement(capture, outbox, trigdata);
	table_close(outbox, NoLock);
}

Datum
outbox_capture(PG_FUNCTION_ARGS)
{
	TriggerData *trigdata = outbox_fired(fcinfo, "outbox_capture");
	Capture    *capture = get_capture(fcinfo, trigdata);
	ErrorContextCallback context;
	OutboxActing acting;

	/* Rows that --data-only loads were told of when they were made. */
	if (outbox_restored_by(capture->owner))
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
