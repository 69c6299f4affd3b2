/*-------------------------------------------------------------------------
 *
 * capture_payload.c
 *		What outbox_capture() publishes of a row.
 *
 * Values become JSON by to_jsonb().  A cast to json of somebody's own type is his
 * code, which runs here: as the owner of the table (capture.c), who has chosen that
 * type for it.
 *
 * A row may be legal and yet have what no message can: a json value that jsonb does
 * not take, a key that AMQP does not take, too many bytes.  Then the argument
 * unpublishable decides: the write is refused, with the column and the remedy, or
 * those columns are left out and named in a header.  A value that may fail is
 * converted in a subtransaction where it may be left out, since somebody's code may
 * have written or locked something by then.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/detoast.h"
#include "access/htup_details.h"
#include "access/xact.h"
#include "capture_internal.h"
#include "catalog/pg_type.h"
#include "encode_json.h"
#include "enqueue.h"
#include "funcapi.h"
#include "mb/pg_wchar.h"
#include "settings.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/fmgrprotos.h"
#include "utils/jsonb.h"
#include "utils/rel.h"
#include "utils/resowner.h"

/* Columns of varying length have this room in a jsonb; 1 MB is for the rest of two rows. */
#define JSONB_ROOM	((size_t) JENTRY_OFFLENMASK - 1024 * 1024)

/* A column of a side. */
typedef struct Member
{
	bool		absent;			/* the side's json is without it, ... */
	bool		omitted;		/* ... since it cannot be published */
	size_t		size;			/* what its value takes, or its part of json */
} Member;

/* The row as it was, or as it is now. */
typedef struct Side
{
	const TupleTableSlot *row;
	bool		may_omit;
	Member	   *members;
	Datum	   *values;
	bool	   *isnull;
	Datum		json;
} Side;

typedef struct Payload
{
	int			ncolumns;
	int			n;				/* sides */
	Side		sides[2];
	size_t		total;			/* of the sizes */
} Payload;

static const char *
column_name(const Capture *capture, int i)
{
	return capture_column_name(capture, list_nth_int(capture->columns, i));
}

static const char *
remedy(const Capture *capture, int i)
{
	return psprintf("Leave the column out by the argument 'except=%s' of trigger \"%s\", or let columns be left out where they cannot be published by 'unpublishable=omit'.",
					quote_identifier(column_name(capture, i)), capture->trigger);
}

/* -------------------------------------------------------------- one value */

static void
fail_column(const Capture *capture, int i, const ErrorData *error)
{
	ereport(ERROR,
			(errcode(error->sqlerrcode),
			 errmsg("column \"%s\" of table \"%s\" cannot be in the payload of a message",
					column_name(capture, i), capture->table),
			 errdetail_internal("%s%s%s", error->message,
								error->detail != NULL ? ": " : "",
								error->detail != NULL ? error->detail : ""),
			 errhint("%s", remedy(capture, i))));
}

/* Not because of the value, which may pass another time. */
static bool
is_passing(int sqlstate)
{
	int			category = ERRCODE_TO_CATEGORY(sqlstate);

	return category == ERRCODE_TRANSACTION_ROLLBACK ||
		category == ERRCODE_INSUFFICIENT_RESOURCES ||
		category == ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE ||
		category == ERRCODE_OPERATOR_INTERVENTION ||
		category == ERRCODE_SYSTEM_ERROR;
}

static Datum
value_to_jsonb(Capture *capture, int i, Datum value)
{
	Datum		json = FunctionCall1(&capture->column_to_jsonb[i], value);

	if (GetDatabaseEncoding() != PG_UTF8)
	{
		char	   *str = JsonbToCString(NULL, &DatumGetJsonbP(json)->root, 0);

		(void) pg_server_to_any(str, (int) strlen(str), PG_UTF8);
	}
	return json;
}

/* Returns false when it has to be left out. */
static bool
convert_value(Capture *capture, const Side *side, int i, Datum *value)
{
	MemoryContext cxt = CurrentMemoryContext;
	ResourceOwner owner = CurrentResourceOwner;
	ErrorData  *error = NULL;

	if (side->may_omit)
	{
		BeginInternalSubTransaction(NULL);
		MemoryContextSwitchTo(cxt);
	}
	PG_TRY();
	{
		*value = value_to_jsonb(capture, i, *value);
		if (side->may_omit)
			ReleaseCurrentSubTransaction();
	}
	PG_CATCH();
	{
		MemoryContextSwitchTo(cxt);
		error = CopyErrorData();
		FlushErrorState();
		if (side->may_omit)
			RollbackAndReleaseCurrentSubTransaction();
	}
	PG_END_TRY();
	MemoryContextSwitchTo(cxt);
	CurrentResourceOwner = owner;
	if (error == NULL)
		return true;
	if (is_passing(error->sqlerrcode))
		ReThrowError(error);
	if (!side->may_omit)
		fail_column(capture, i, error);
	return false;
}

/* ---------------------------------------------------------------- one side */

static Datum
record_to_jsonb(Capture *capture, TupleDesc desc, Datum *values, bool *isnull)
{
	HeapTuple	tuple = heap_form_tuple(desc, values, isnull);

	return FunctionCall1(&capture->to_jsonb, HeapTupleGetDatum(tuple));
}

static void
omit(Side *side, int i)
{
	side->members[i] = (Member) {.absent = true, .omitted = true};
	side->isnull[i] = true;
}

/*
 * Columns are taken out of the whole row's JSON, and not left out of the record: a
 * row type of its own for each set of columns would stay in the session for good.
 */
static void
take_out_absent(const Capture *capture, const Payload *payload, Side *side)
{
	Datum	   *names = palloc(sizeof(Datum) * payload->ncolumns);
	int			n = 0;

	for (int i = 0; i < payload->ncolumns; i++)
		if (side->members[i].absent)
			names[n++] = CStringGetTextDatum(column_name(capture, i));
	if (n > 0)
		side->json = DirectFunctionCall2(jsonb_delete_array, side->json,
										 PointerGetDatum(construct_array(names, n, TEXTOID, -1,
																		 false, TYPALIGN_INT)));
}

/* Bytes that a value takes in a jsonb; 0 for a type of fixed length, which takes few. */
static size_t
room(const Capture *capture, int i, Datum value)
{
	Form_pg_attribute att = TupleDescAttr(capture->columns_desc, i);

	if (att->attlen != -1)
		return 0;
	return toast_raw_datum_size(value) * (att->atttypid == BYTEAOID ? 2 : 1);
}

/* Of a change the columns of the key, and what it has changed. */
static bool
is_left_out(const Capture *capture, const CaptureMessage *message, int attnum)
{
	return message->old != NULL && message->new != NULL &&
		(capture->args.payload & CAPTURE_CHANGED) &&
		!list_member_int(capture->key, attnum) &&
		outbox_capture_same(capture, attnum, message->old, message->new);
}

/* Values that may fail become jsonb. */
static void
add_side(Capture *capture, const CaptureMessage *message, Payload *payload,
		 const TupleTableSlot *row, bool may_omit)
{
	Side	   *side = &payload->sides[payload->n++];

	side->row = row;
	side->may_omit = may_omit;
	side->members = palloc0(sizeof(Member) * payload->ncolumns);
	side->values = palloc(sizeof(Datum) * payload->ncolumns);
	side->isnull = palloc(sizeof(bool) * payload->ncolumns);
	for (int i = 0; i < payload->ncolumns; i++)
	{
		int			attnum = list_nth_int(capture->columns, i);
		Member	   *member = &side->members[i];

		member->absent = is_left_out(capture, message, attnum);
		side->values[i] = row->tts_values[attnum - 1];
		side->isnull[i] = member->absent || row->tts_isnull[attnum - 1];
		if (side->isnull[i])
			continue;
		if (OidIsValid(capture->column_to_jsonb[i].fn_oid) &&
			!convert_value(capture, side, i, &side->values[i]))
			omit(side, i);
		else
			member->size = room(capture, i, side->values[i]);
		payload->total += member->size;
	}
}

/* ----------------------------------------------------------------- largest */

/* The column whose values take most, of those that may be left out; -1: there is none. */
static int
find_largest(Payload *payload, bool all, Side **of)
{
	int			largest = -1;

	for (Side *side = payload->sides; side < payload->sides + payload->n; side++)
		for (int i = 0; i < payload->ncolumns; i++)
			if ((all || side->may_omit) && side->members[i].size > 0 &&
				(largest < 0 || side->members[i].size > (*of)->members[largest].size))
			{
				largest = i;
				*of = side;
			}
	return largest;
}

static void
fail_size(const Capture *capture, Payload *payload)
{
	Side	   *side;
	int			largest = find_largest(payload, true, &side);

	ereport(ERROR,
			(errcode(ERRCODE_PROGRAM_LIMIT_EXCEEDED),
			 errmsg("a row of table \"%s\" is too large for the payload of a message",
					capture->table),
			 largest < 0 ?
			 errdetail("\"outbox.max_message_size\" is %d.", outbox_max_message_size) :
			 errdetail("It has %zu bytes, of which column \"%s\" takes %zu; \"outbox.max_message_size\" is %d%s.",
					   payload->total, column_name(capture, largest),
					   side->members[largest].size, outbox_max_message_size,
					   (size_t) outbox_max_message_size > JSONB_ROOM ?
					   ", and a jsonb holds less than 256 MB" : ""),
			 largest < 0 ? 0 : errhint("%s", remedy(capture, largest))));
}

/* Leaves out the largest column that may be left out; an ERROR if there is none. */
static void
omit_largest(const Capture *capture, Payload *payload)
{
	Side	   *side;
	int			i = find_largest(payload, false, &side);

	if (i < 0)
		fail_size(capture, payload);
	payload->total -= side->members[i].size;
	omit(side, i);
}

/* ------------------------------------------------------------- the message */

/*
 * Everything is published, or nothing is written?  By default who writes a new row can
 * be told, and the old row must not keep anybody from removing or changing it.
 */
static bool
may_omit(const Capture *capture, const TupleTableSlot *new)
{
	return capture->args.unpublishable == CAPTURE_OMIT ||
		(capture->args.unpublishable == CAPTURE_REFUSE_NEW && new == NULL);
}

/* One jsonb holds both rows: the largest values are left out until it can. */
static void
make_sides(Capture *capture, const CaptureMessage *message, Payload *payload)
{
	if (message->old != NULL &&
		(message->new == NULL || (capture->args.payload & CAPTURE_BOTH)))
		add_side(capture, message, payload, message->old, may_omit(capture, NULL));
	if (message->new != NULL)
		add_side(capture, message, payload, message->new, may_omit(capture, message->new));
	while (payload->total > JSONB_ROOM)
		omit_largest(capture, payload);
	for (Side *side = payload->sides; side < payload->sides + payload->n; side++)
	{
		side->json = record_to_jsonb(capture, capture->columns_desc, side->values,
									 side->isnull);
		take_out_absent(capture, payload, side);
	}
}

static Datum
join_sides(Capture *capture, const CaptureMessage *message, const Payload *payload)
{
	Datum		values[2] = {0};
	bool		isnull[2] = {message->old == NULL, message->new == NULL};

	if (!(capture->args.payload & CAPTURE_BOTH))
		return payload->sides[0].json;
	for (int i = 0; i < payload->n; i++)
		values[payload->sides[i].row == message->new] = payload->sides[i].json;
	return record_to_jsonb(capture, capture->pair_desc, values, isnull);
}

/* --------------------------------------------------------------------- key */

static void
check_key(const Capture *capture, CaptureMessage *message, const OutboxRoute *route)
{
	OutboxFields *fields = &message->fields;
	StringInfoData names;
	ListCell   *cell;
	const char *reason;

	if (fields->aggregate_id == NULL ||
		(reason = outbox_key_reason(fields, route)) == NULL)
		return;
	if (may_omit(capture, message->new))
	{
		message->omitted_key = capture->key;
		fields->aggregate_type = NULL;
		fields->aggregate_id = NULL;
		return;
	}
	initStringInfo(&names);
	foreach(cell, capture->key)
		appendStringInfo(&names, "%s\"%s\"", names.len == 0 ? "" : ", ",
						 capture_column_name(capture, lfirst_int(cell)));
	ereport(ERROR,
			(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
			 errmsg("the key (%s) of a row of table \"%s\" cannot be the aggregate_id of a message",
					names.data, capture->table),
			 errdetail_internal("%s", reason),
			 errhint("Name other columns by the argument 'key=...' of trigger \"%s\", or let such rows be published without a key by 'unpublishable=omit'.",
					 capture->trigger)));
}

/* The columns that either side is without. */
static List *
join_omitted(const Capture *capture, const Payload *payload)
{
	List	   *omitted = NIL;

	for (int i = 0; i < payload->ncolumns; i++)
		if (payload->sides[0].members[i].omitted ||
			(payload->n > 1 && payload->sides[1].members[i].omitted))
			omitted = lappend_int(omitted, list_nth_int(capture->columns, i));
	return omitted;
}

/* -------------------------------------------------------------------- size */

static void
measure(const Capture *capture, Payload *payload)
{
	payload->total = 0;
	for (Side *side = payload->sides; side < payload->sides + payload->n; side++)
		for (int i = 0; i < payload->ncolumns; i++)
		{
			const char *name = column_name(capture, i);
			JsonbValue *value = getKeyJsonValueFromContainer(&DatumGetJsonbP(side->json)->root,
															 name, strlen(name), NULL);

			side->members[i].size = value == NULL ? 0 :
				strlen(name) + strlen("\"\": , ") +
				outbox_json_text_size(JsonbValueToJsonb(value), SIZE_MAX);
			payload->total += side->members[i].size;
		}
}

static bool
fits(const OutboxFields *fields, const OutboxRoute *route, bool longest)
{
	return outbox_payload_size(fields, route, longest) <= (size_t) outbox_max_message_size;
}

/*
 * The largest columns go, until the message is not too large.  Where none may go, the row
 * trigger judges what it comes to.
 */
static void
fit(Capture *capture, CaptureMessage *message, Payload *payload, const OutboxRoute *route)
{
	OutboxFields *fields = &message->fields;
	Side	   *side;

	outbox_capture_name_omitted(capture, message, join_omitted(capture, payload));
	if (fits(fields, route, true))
		return;
	measure(capture, payload);
	while (!fits(fields, route, find_largest(payload, false, &side) >= 0))
	{
		do
			omit_largest(capture, payload);
		while (payload->total > (size_t) outbox_max_message_size);
		for (int i = 0; i < payload->n; i++)
			take_out_absent(capture, payload, &payload->sides[i]);
		fields->payload = DatumGetJsonbP(join_sides(capture, message, payload));
		outbox_capture_name_omitted(capture, message, join_omitted(capture, payload));
	}
}

/* --------------------------------------------------------------- the whole */

void
outbox_capture_fill(Capture *capture, Relation outbox, CaptureMessage *message)
{
	OutboxFields *fields = &message->fields;
	int			nestlevel = outbox_capture_format_begin();
	Payload		payload = {.ncolumns = list_length(capture->columns)};
	const OutboxRoute *route;

	fields->aggregate_id = outbox_capture_key(capture, message->new != NULL ? message->new :
											  message->old);
	if (fields->aggregate_id != NULL)
		fields->aggregate_type = capture->aggregate_type;
	make_sides(capture, message, &payload);
	fields->payload = DatumGetJsonbP(join_sides(capture, message, &payload));
	outbox_capture_format_end(nestlevel);

	/* From here on nobody's code runs, which could look up another route. */
	route = outbox_usable_route(outbox->rd_rel->relowner,
								TextDatumGetCString(capture->route), capture->owner);
	check_key(capture, message, route);
	fit(capture, message, &payload, route);
}
