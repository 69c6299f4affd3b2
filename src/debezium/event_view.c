/*-------------------------------------------------------------------------
 *
 * event_view.c
 *		The view outboxevent, for applications that were written for Debezium.
 *
 * Its columns are those of the table that Debezium's outbox event router reads, and
 * a row that is inserted becomes a message.  Debezium's own clients delete the row
 * again in the same transaction, by its id, and take it for a mistake if none was
 * there.  So the view shows the rows that this transaction has put in through it,
 * their ids, which are kept here; a DELETE takes one away from there and from
 * nowhere else.  Nobody sees another's.
 *
 * Hibernate, which the Quarkus extension is built on, takes a converted value for
 * changed and sends an UPDATE with the same one between the two; so an UPDATE that
 * changes nothing is accepted, which hashes of the columns tell.
 *
 * What a subtransaction has put in, or deleted, counts while that has not been
 * rolled back.  Rows know the nesting levels of both, which change as subtransactions
 * end.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "access/table.h"
#include "access/xact.h"
#include "catalog/pg_type.h"
#include "columns.h"
#include "commands/trigger.h"
#include "common/hashfn.h"
#include "common/jsonapi.h"
#include "compat.h"
#include "enqueue.h"
#include "executor/tuptable.h"
#include "funcapi.h"
#include "java_properties.h"
#include "miscadmin.h"
#include "printable.h"
#include "utils/builtins.h"
#include "utils/fmgrprotos.h"
#include "utils/jsonb.h"
#include "utils/jsonfuncs.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/rel.h"
#include "utils/tuplestore.h"
#include "utils/uuid.h"
#include "utils/timestamp.h"

PG_FUNCTION_INFO_V1(outbox_event_trigger);
PG_FUNCTION_INFO_V1(outbox_event_rows);

/* Columns of the view, in outbox--1.0.sql. */
enum
{
	EVENT_ID,
	EVENT_AGGREGATETYPE,
	EVENT_AGGREGATEID,
	EVENT_TYPE,
	EVENT_PAYLOAD,
	EVENT_TIMESTAMP,
	EVENT_TRACE,
	EVENT_COLUMNS
};

static const Oid column_types[EVENT_COLUMNS] = {
	UUIDOID, TEXTOID, TEXTOID, TEXTOID, TEXTOID, TIMESTAMPTZOID, TEXTOID
};

/* The route of a type that no route is named as. */
#define DEFAULT_ROUTE	"default"
#define TEXT_PROPERTIES	"{\"content_type\": \"text/plain; charset=utf-8\"}"
/* Longer ones no other program has to pass on. */
#define MAX_TRACE		513

/* The row of a trigger, with columns of the types that are taken for granted. */
static const TupleTableSlot *
get_row(const TriggerData *trigdata, TupleTableSlot *slot)
{
	outbox_expect_columns(RelationGetDescr(trigdata->tg_relation), column_types,
						  EVENT_COLUMNS, RelationGetRelationName(trigdata->tg_relation));
	slot_getallattrs(slot);
	return slot;
}

static text *
text_column(const TupleTableSlot *row, int column)
{
	return row->tts_isnull[column] ? NULL : DatumGetTextPP(row->tts_values[column]);
}

/* 0 for NULL; not for the id. */
static uint64
column_hash(const TupleTableSlot *row, int column)
{
	const		text *value;

	if (row->tts_isnull[column])
		return 0;
	if (column_types[column] == TIMESTAMPTZOID)
	{
		TimestampTz at = DatumGetTimestampTz(row->tts_values[column]);

		return hash_bytes_extended((const unsigned char *) &at, sizeof(at), 1);
	}
	value = text_column(row, column);
	return hash_bytes_extended((const unsigned char *) VARDATA_ANY(value),
							   (int) VARSIZE_ANY_EXHDR(value), 1);
}

/* ------------------------------------------- rows of this transaction */

/*
 * More than that are not remembered: the oldest are forgotten, whose DELETE finds
 * nothing then.  Each DELETE reads all that are there.
 */
#define MAX_ROWS	100000

/*
 * A row that was deleted at a deeper level than it was inserted stays, as a rollback
 * of that level would bring it back.
 */
typedef struct EventRow
{
	pg_uuid_t	id;
	uint64		hashes[EVENT_COLUMNS];	/* of what was inserted */
	int			inserted;		/* nesting level; that of later rows is no
								 * lower */
	int			deleted;		/* the same, higher than inserted; 0: it is
								 * not */
} EventRow;

static EventRow *rows;			/* in TopTransactionContext, as they came */
static int	nrows;
static int	room;
static int	deepest_deleted;	/* no row was deleted at a deeper level */

static void
add_row(const EventRow *row)
{
	if (rows == NULL)
	{
		room = 16;
		rows = MemoryContextAlloc(TopTransactionContext, sizeof(EventRow) * room);
	}
	else if (nrows == MAX_ROWS)
	{
		nrows = MAX_ROWS / 2;
		memmove(rows, rows + MAX_ROWS - nrows, sizeof(EventRow) * nrows);
	}
	else if (nrows == room)
	{
		room = Min(room * 2, MAX_ROWS);
		rows = repalloc(rows, sizeof(EventRow) * room);
	}
	rows[nrows++] = *row;
}

static void
roll_back_level(int level)
{
	while (nrows > 0 && rows[nrows - 1].inserted >= level)
		nrows--;
	if (deepest_deleted < level)
		return;
	for (EventRow *row = rows; row < rows + nrows; row++)
		if (row->deleted >= level)
			row->deleted = 0;
	deepest_deleted = level - 1;
}

/* What was done at that level counts as done by the one around it. */
static void
release_level(int level)
{
	EventRow   *kept = rows;

	for (int i = nrows; i > 0 && rows[i - 1].inserted == level; i--)
		rows[i - 1].inserted--;
	if (deepest_deleted < level)
		return;
	for (EventRow *row = rows; row < rows + nrows; row++)
	{
		if (row->deleted == level)
			row->deleted--;
		/* Nothing could bring back only the row. */
		if (row->deleted == 0 || row->deleted > row->inserted)
			*kept++ = *row;
	}
	nrows = (int) (kept - rows);
	deepest_deleted = level - 1;
}

/* SubXactCallback */
static void
end_level(SubXactEvent event, SubTransactionId id, SubTransactionId parent, void *arg)
{
	if (event == SUBXACT_EVENT_ABORT_SUB)
		roll_back_level(GetCurrentTransactionNestLevel());
	else if (event == SUBXACT_EVENT_COMMIT_SUB)
		release_level(GetCurrentTransactionNestLevel());
}

/* XactCallback */
static void
forget_rows(XactEvent event, void *arg)
{
	if (event == XACT_EVENT_COMMIT || event == XACT_EVENT_ABORT ||
		event == XACT_EVENT_PREPARE)
	{
		rows = NULL;
		nrows = 0;
		deepest_deleted = 0;
	}
}

static void
remember_row(const pg_uuid_t *id, const TupleTableSlot *event)
{
	static bool registered = false;
	EventRow	row;

	if (!registered)
	{
		RegisterXactCallback(forget_rows, NULL);
		RegisterSubXactCallback(end_level, NULL);
	}
	registered = true;
	row.id = *id;
	for (int i = EVENT_ID + 1; i < EVENT_COLUMNS; i++)
		row.hashes[i] = column_hash(event, i);
	row.inserted = GetCurrentTransactionNestLevel();
	row.deleted = 0;
	add_row(&row);
}

/* From the end: a row is deleted soon after it was inserted.  NULL: any row. */
static EventRow *
find_row(const pg_uuid_t *id)
{
	for (int i = nrows - 1; i >= 0; i--)
		if (rows[i].deleted == 0 &&
			(id == NULL || memcmp(&rows[i].id, id, sizeof(pg_uuid_t)) == 0))
			return &rows[i];
	return NULL;
}

static void
delete_row(const pg_uuid_t *id)
{
	EventRow   *row = find_row(id);
	int			level = GetCurrentTransactionNestLevel();

	if (row == NULL)
		return;
	if (level > row->inserted)
	{
		row->deleted = level;
		deepest_deleted = Max(deepest_deleted, level);
	}
	else
		memmove(row, row + 1, sizeof(EventRow) * (rows + --nrows - row));
}

/* Ids of the rows of the view. */
Datum
outbox_event_rows(PG_FUNCTION_ARGS)
{
	ReturnSetInfo *rsinfo = (ReturnSetInfo *) fcinfo->resultinfo;

	InitMaterializedSRF(fcinfo, MAT_SRF_USE_EXPECTED_DESC);
	for (int i = 0; i < nrows; i++)
	{
		Datum		id = UUIDPGetDatum(&rows[i].id);
		bool		isnull = false;

		if (rows[i].deleted == 0)
			tuplestore_putvalues(rsinfo->setResult, rsinfo->setDesc, &id, &isnull);
	}
	return (Datum) 0;
}

/* -------------------------------------------------- a row as a message */

/* A row of the view, and the message that it becomes. */
typedef struct Event
{
	const TupleTableSlot *row;
	Datum		values[OUTBOX_COLUMNS];
	bool		isnull[OUTBOX_COLUMNS];
} Event;

static void
set_value(Event *event, int col, Datum value)
{
	event->values[col - 1] = value;
	event->isnull[col - 1] = false;
}

static void
pass(Event *event, int column, int col)
{
	event->values[col - 1] = event->row->tts_values[column];
	event->isnull[col - 1] = event->row->tts_isnull[column];
}

/* The route that is named as the aggregate type, where there is one. */
static void
set_route(Event *event, Relation rel)
{
	text	   *type = text_column(event->row, EVENT_AGGREGATETYPE);

	if (type != NULL &&
		outbox_route_exists(rel->rd_rel->relowner,
							text_to_cstring(type)))
		pass(event, EVENT_AGGREGATETYPE, COL_ROUTE);
	else
		set_value(event, COL_ROUTE, CStringGetTextDatum(DEFAULT_ROUTE));
}

static bool
is_json(text *value)
{
	return pg_parse_json(compat_json_lexer(value), &nullSemAction) == JSON_SUCCESS;
}

static void
set_body(Event *event, const text *value)
{
	Datum		utf8 = DirectFunctionCall1(namein, CStringGetDatum("UTF8"));

	set_value(event, COL_BODY, DirectFunctionCall2(pg_convert_to, PointerGetDatum(value), utf8));
	set_value(event, COL_PROPERTIES,
			  DirectFunctionCall1(jsonb_in, CStringGetDatum(TEXT_PROPERTIES)));
}

/*
 * A bytea that is stored into a column of type text is assigned as text, without
 * anybody being asked; but no text that is meant as one begins like this.
 */
static bool
was_bytea(const text *value)
{
	const char *p = VARDATA_ANY(value);
	int			len = (int) VARSIZE_ANY_EXHDR(value);

	if (len < 2 || len % 2 != 0 || p[0] != '\\' || p[1] != 'x')
		return false;
	for (int i = 2; i < len; i++)
		if (outbox_hex_digit(p[i]) < 0)
			return false;
	return true;
}

/* JSON is a payload, nothing is null, bytes and other text are sent as they are. */
static void
set_payload(Event *event)
{
	text	   *value = text_column(event->row, EVENT_PAYLOAD);

	if (value == NULL)
		set_value(event, COL_PAYLOAD,
				  DirectFunctionCall1(jsonb_in, CStringGetDatum("null")));
	else if (is_json(value))
		set_value(event, COL_PAYLOAD,
				  outbox_enqueue_convert("payload", jsonb_in, value));
	else if (was_bytea(value))
		set_value(event, COL_BODY, outbox_enqueue_convert("payload", byteain, value));
	else
		set_body(event, value);
}

/* A trace is no reason to refuse a message: what is none is left out. */
static void
set_headers(Event *event)
{
	text	   *context = text_column(event->row, EVENT_TRACE);
	char		parent[MAX_TRACE];
	char		state[MAX_TRACE];
	char	   *properties;
	Jsonb	   *headers;

	if (context == NULL)
		return;
	properties = text_to_cstring(context);
	if (!outbox_java_property(properties, "traceparent", parent, sizeof(parent)))
		return;
	headers = outbox_trace_headers_of(parent,
									  outbox_java_property(properties, "tracestate",
														   state, sizeof(state)) ?
									  state : NULL);
	if (headers != NULL)
		set_value(event, COL_HEADERS, JsonbPGetDatum(headers));
}

/* Returns the row as it is now, with its id; NULL if a trigger has left it out. */
static HeapTuple
insert_event(TriggerData *trigdata)
{
	TupleDesc	desc = RelationGetDescr(trigdata->tg_relation);
	Relation	rel;
	Event		event;
	bool		stored;
	int			id_column = EVENT_ID + 1;

	event.row = get_row(trigdata, trigdata->tg_trigslot);
	memset(event.isnull, true, sizeof(event.isnull));
	rel = outbox_open_table();
	pass(&event, EVENT_ID, COL_ID);
	pass(&event, EVENT_TYPE, COL_EVENT_TYPE);
	pass(&event, EVENT_AGGREGATETYPE, COL_AGGREGATE_TYPE);
	pass(&event, EVENT_AGGREGATEID, COL_AGGREGATE_ID);
	pass(&event, EVENT_TIMESTAMP, COL_CREATED_AT);
	set_route(&event, rel);
	set_payload(&event);
	set_headers(&event);
	stored = outbox_enqueue_row(rel, GetUserId(), event.values, event.isnull);
	table_close(rel, NoLock);
	if (!stored)
		return NULL;
	remember_row(DatumGetUUIDP(event.values[COL_ID - 1]), event.row);
	return heap_modify_tuple_by_cols(trigdata->tg_trigtuple, desc, 1, &id_column,
									 &event.values[COL_ID - 1],
									 &event.isnull[COL_ID - 1]);
}

static HeapTuple
delete_event(TriggerData *trigdata)
{
	const TupleTableSlot *row = get_row(trigdata, trigdata->tg_trigslot);

	if (!row->tts_isnull[EVENT_ID])
		delete_row(DatumGetUUIDP(row->tts_values[EVENT_ID]));
	return trigdata->tg_trigtuple;
}

/*
 * Whether an UPDATE leaves a row that this transaction has inserted as it was.  NULL
 * is what the view shows of each column, and so one that is not set.
 */
static bool
is_unchanged(TriggerData *trigdata)
{
	const TupleTableSlot *before = get_row(trigdata, trigdata->tg_trigslot);
	const TupleTableSlot *after = get_row(trigdata, trigdata->tg_newslot);
	const EventRow *row;

	if (before->tts_isnull[EVENT_ID] || after->tts_isnull[EVENT_ID] ||
		!outbox_same_value(before->tts_values[EVENT_ID], after->tts_values[EVENT_ID], false, UUID_LEN))
		return false;
	row = find_row(DatumGetUUIDP(before->tts_values[EVENT_ID]));
	if (row == NULL)
		return false;
	for (int i = EVENT_ID + 1; i < EVENT_COLUMNS; i++)
		if (!after->tts_isnull[i] && column_hash(after, i) != row->hashes[i])
			return false;
	return true;
}

static void
refuse_update(Relation view)
{
	ereport(ERROR,
			(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
			 errmsg("cannot update messages through the view \"%s\"",
					RelationGetRelationName(view)),
			 errdetail("A row that is inserted there is a message, which is published as it was."),
			 errhint("Insert a new object for each message, and do not save it again.")));
}

/*
 * On the view, INSTEAD OF INSERT, UPDATE or DELETE FOR EACH ROW; and BEFORE UPDATE FOR
 * EACH STATEMENT, so that one is refused, too, that can find no row: where an object
 * is saved again in another transaction.
 */
Datum
outbox_event_trigger(PG_FUNCTION_ARGS)
{
	TriggerData *trigdata = outbox_fired(fcinfo, "outbox_event_trigger");

	if (TRIGGER_FIRED_BY_UPDATE(trigdata->tg_event) && !TRIGGER_FIRED_FOR_ROW(trigdata->tg_event))
	{
		if (find_row(NULL) == NULL)
			refuse_update(trigdata->tg_relation);
		return PointerGetDatum(NULL);
	}
	if (!TRIGGER_FIRED_INSTEAD(trigdata->tg_event))
		ereport(ERROR,
				(errcode(ERRCODE_E_R_I_E_TRIGGER_PROTOCOL_VIOLATED),
				 errmsg("function \"%s\" must be fired INSTEAD OF INSERT, UPDATE or DELETE",
						"outbox_event_trigger")));
	if (TRIGGER_FIRED_BY_INSERT(trigdata->tg_event))
		return PointerGetDatum(insert_event(trigdata));
	if (TRIGGER_FIRED_BY_DELETE(trigdata->tg_event))
		return PointerGetDatum(delete_event(trigdata));
	if (!is_unchanged(trigdata))
		refuse_update(trigdata->tg_relation);
	return PointerGetDatum(trigdata->tg_newtuple);
}
