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

/* The row as it was, or as it is now. */
typedef struct Side
{
	const CaptureImage *image;	/* NULL: the message does not have it */
	bool		may_omit;
	bool	   *absent;			/* columns that json is without, ... */
	bool	   *omitted;		/* ... and among them those that cannot be
								 * published */
	Datum	   *values;			/* of the columns */
	bool	   *isnull;
	size_t	   *sizes;			/* what values take, or members of json */
	Datum		json;
} Side;

#define OLD		0
#define NEW		1
#define SIDES	2

static const char *
column_name(const Capture *capture, int i)
{
	return NameStr(TupleDescAttr(capture->desc, capture->columns[i] - 1)->attname);
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
	side->absent[i] = true;
	side->omitted[i] = true;
	side->isnull[i] = true;
}

/*
 * Columns are taken out of the whole row's JSON, and not left out of the record: a
 * row type of its own for each set of columns would stay in the session for good.
 */
static Datum
without(const Capture *capture, Datum json, const bool *which)
{
	Datum	   *names = palloc(sizeof(Datum) * Max(capture->ncolumns, 1));
	int			n = 0;

	for (int i = 0; i < capture->ncolumns; i++)
		if (which[i])
			names[n++] = CStringGetTextDatum(column_name(capture, i));
	if (n == 0)
		return json;
	return DirectFunctionCall2(jsonb_delete_array, json,
							   PointerGetDatum(construct_array(names, n, TEXTOID, -1, false,
															   TYPALIGN_INT)));
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

/* Values that may fail become jsonb.  Returns the sum of the sizes. */
static size_t
make_values(Capture *capture, Side *side)
{
	size_t		total = 0;

	for (int i = 0; side->image != NULL && i < capture->ncolumns; i++)
	{
		int			attnum = capture->columns[i];

		side->values[i] = side->image->values[attnum - 1];
		side->isnull[i] = side->absent[i] || side->image->isnull[attnum - 1];
		if (side->isnull[i])
			continue;
		if (OidIsValid(capture->column_to_jsonb[i].fn_oid) &&
			!convert_value(capture, side, i, &side->values[i]))
			omit(side, i);
		else
			side->sizes[i] = room(capture, i, side->values[i]);
		total += side->sizes[i];
	}
	return total;
}

/* Of a change the columns of the key, and what it has changed. */
static bool
is_left_out(const Capture *capture, const CaptureMessage *message, int i)
{
	int			attnum = capture->columns[i];

	return message->op == CAPTURE_UPDATE &&
		(capture->args.payload == CAPTURE_CHANGED || capture->args.payload == CAPTURE_DIFF) &&
		!outbox_capture_in_key(capture, attnum) &&
		outbox_capture_same(capture, attnum, message->old, message->new);
}

/* ----------------------------------------------------------------- largest */

/* The column whose values take most, of those that may be left out; -1: there is none. */
static int
find_largest(const Capture *capture, const Side *sides, bool all, const Side **of)
{
	int			largest = -1;

	for (const Side *side = sides; side < sides + SIDES; side++)
		for (int i = 0; side->image != NULL && i < capture->ncolumns; i++)
			if ((all || side->may_omit) && side->sizes[i] > 0 &&
				(largest < 0 || side->sizes[i] > (*of)->sizes[largest]))
			{
				largest = i;
				*of = side;
			}
	return largest;
}

static void
fail_size(const Capture *capture, const Side *sides, size_t total)
{
	const Side *side;
	int			largest = find_largest(capture, sides, true, &side);

	ereport(ERROR,
			(errcode(ERRCODE_PROGRAM_LIMIT_EXCEEDED),
			 errmsg("a row of table \"%s\" is too large for the payload of a message",
					capture->table),
			 largest < 0 ?
			 errdetail("\"outbox.max_message_size\" is %d.", outbox_max_message_size) :
			 errdetail("It has %zu bytes, of which column \"%s\" takes %zu; \"outbox.max_message_size\" is %d%s.",
					   total, column_name(capture, largest), side->sizes[largest],
					   outbox_max_message_size,
					   (size_t) outbox_max_message_size > JSONB_ROOM ?
					   ", and a jsonb holds less than 256 MB" : ""),
			 largest < 0 ? 0 : errhint("%s", remedy(capture, largest))));
}

/* Leaves out the largest column that may be left out; an ERROR if there is none. */
static void
omit_largest(const Capture *capture, Side *sides, size_t *total)
{
	const Side *found;
	int			i = find_largest(capture, sides, false, &found);
	Side	   *side;

	if (i < 0)
		fail_size(capture, sides, *total);
	side = &sides[found - sides];
	omit(side, i);
	*total -= side->sizes[i];
	side->sizes[i] = 0;
}

/* ------------------------------------------------------------- the message */

/*
 * Everything is published, or nothing is written?  By default who writes a new row can
 * be told, and the old row must not keep anybody from removing or changing it.
 */
static bool
may_omit(const Capture *capture, const CaptureImage *new)
{
	return capture->args.unpublishable == CAPTURE_OMIT ||
		(capture->args.unpublishable == CAPTURE_REFUSE_NEW && new == NULL);
}

static void
init_side(const Capture *capture, const CaptureMessage *message, Side *side,
		  const CaptureImage *image, bool omitting)
{
	int			n = Max(capture->ncolumns, 1);

	memset(side, 0, sizeof(Side));
	side->image = image;
	side->may_omit = omitting;
	if (image == NULL)
		return;
	side->absent = palloc(sizeof(bool) * n);
	side->omitted = palloc0(sizeof(bool) * n);
	side->values = palloc(sizeof(Datum) * n);
	side->isnull = palloc(sizeof(bool) * n);
	side->sizes = palloc0(sizeof(size_t) * n);
	for (int i = 0; i < capture->ncolumns; i++)
		side->absent[i] = is_left_out(capture, message, i);
}

/* One jsonb holds both rows: the largest values are left out until it can. */
static void
make_sides(Capture *capture, const CaptureMessage *message, Side *sides)
{
	bool		both = capture->args.payload == CAPTURE_BOTH ||
		capture->args.payload == CAPTURE_DIFF;
	size_t		total;

	init_side(capture, message, &sides[OLD],
			  both || message->new == NULL ? message->old : NULL, may_omit(capture, NULL));
	init_side(capture, message, &sides[NEW], message->new, may_omit(capture, message->new));
	total = make_values(capture, &sides[OLD]) + make_values(capture, &sides[NEW]);
	while (total > JSONB_ROOM)
		omit_largest(capture, sides, &total);
	for (Side *side = sides; side < sides + SIDES; side++)
		if (side->image != NULL)
			side->json = without(capture,
								 record_to_jsonb(capture, capture->columns_desc,
												 side->values, side->isnull),
								 side->absent);
}

static Datum
join_sides(Capture *capture, const Side *sides)
{
	Datum		values[SIDES] = {sides[OLD].json, sides[NEW].json};
	bool		isnull[SIDES] = {sides[OLD].image == NULL, sides[NEW].image == NULL};

	if (capture->args.payload == CAPTURE_BOTH || capture->args.payload == CAPTURE_DIFF)
		return record_to_jsonb(capture, capture->pair_desc, values, isnull);
	return isnull[NEW] ? values[OLD] : values[NEW];
}

/* -------------------------------------------------------------------- size */

static int
find_member(const Capture *capture, const JsonbValue *name)
{
	for (int i = 0; i < capture->ncolumns; i++)
	{
		const char *column = column_name(capture, i);

		if (strlen(column) == name->val.string.len &&
			memcmp(column, name->val.string.val, name->val.string.len) == 0)
			return i;
	}
	elog(ERROR, "a row has a member that is no column");
	return -1;
}

/* Returns the sum. */
static size_t
measure(const Capture *capture, Side *side)
{
	JsonbIterator *it;
	JsonbValue	item;
	size_t		total = 0;

	if (side->image == NULL)
		return 0;
	it = JsonbIteratorInit(&DatumGetJsonbP(side->json)->root);
	(void) JsonbIteratorNext(&it, &item, true);
	while (JsonbIteratorNext(&it, &item, true) == WJB_KEY)
	{
		int			i = find_member(capture, &item);

		(void) JsonbIteratorNext(&it, &item, true);
		side->sizes[i] = strlen(column_name(capture, i)) + strlen("\"\": , ") +
			outbox_json_text_size(JsonbValueToJsonb(&item), SIZE_MAX);
		total += side->sizes[i];
	}
	return total;
}

static bool
fits(const OutboxFields *fields, const OutboxRoute *route)
{
	return outbox_payload_size(fields, route) <= (size_t) outbox_max_message_size;
}

/* The largest columns go, until the message is not too large. */
static void
fit(Capture *capture, Side *sides, OutboxFields *fields, const OutboxRoute *route)
{
	size_t		total;

	if (fits(fields, route))
		return;
	total = measure(capture, &sides[OLD]) + measure(capture, &sides[NEW]);
	while (!fits(fields, route))
	{
		do
			omit_largest(capture, sides, &total);
		while (total > (size_t) outbox_max_message_size);
		for (Side *side = sides; side < sides + SIDES; side++)
			if (side->image != NULL)
				side->json = without(capture, side->json, side->omitted);
		fields->payload = DatumGetJsonbP(join_sides(capture, sides));
	}
}

/* --------------------------------------------------------------------- key */

static void
check_key(const Capture *capture, CaptureMessage *message, OutboxFields *fields,
		  const OutboxRoute *route)
{
	StringInfoData names;
	const char *reason;

	if (message->key == NULL ||
		(reason = outbox_key_reason(fields, route)) == NULL)
		return;
	if (may_omit(capture, message->new))
	{
		message->key = NULL;
		message->key_omitted = true;
		fields->aggregate_type = NULL;
		fields->aggregate_id = NULL;
		return;
	}
	initStringInfo(&names);
	for (int i = 0; i < capture->nkey; i++)
		appendStringInfo(&names, "%s\"%s\"", i == 0 ? "" : ", ",
						 NameStr(TupleDescAttr(capture->desc, capture->key[i] - 1)->attname));
	ereport(ERROR,
			(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
			 errmsg("the key (%s) of a row of table \"%s\" cannot be the aggregate_id of a message",
					names.data, capture->table),
			 errdetail_internal("%s", reason),
			 errhint("Name other columns by the argument 'key=...' of trigger \"%s\", or let such rows be published without a key by 'unpublishable=omit'.",
					 capture->trigger)));
}

/* --------------------------------------------------------------- the whole */

/* The columns that either side is without. */
static bool *
join_omitted(const Capture *capture, const Side *sides)
{
	bool	   *omitted = NULL;

	for (const Side *side = sides; side < sides + SIDES; side++)
		for (int i = 0; side->image != NULL && i < capture->ncolumns; i++)
			if (side->omitted[i])
			{
				if (omitted == NULL)
					omitted = palloc0(sizeof(bool) * capture->ncolumns);
				omitted[i] = true;
			}
	return omitted;
}

void
outbox_capture_fill(Capture *capture, Relation outbox, CaptureMessage *message)
{
	const CaptureConstants *constants = outbox_capture_constants(capture, message->op);
	int			nestlevel = outbox_capture_format_begin();
	OutboxFields fields = {0};
	const OutboxRoute *route;
	Side		sides[SIDES];

	message->key = outbox_capture_key(capture, message->new != NULL ? message->new :
									  message->old);
	make_sides(capture, message, sides);
	fields.payload = DatumGetJsonbP(join_sides(capture, sides));
	outbox_capture_format_end(nestlevel);

	/* From here on nobody's code runs, which could look up another route. */
	route = outbox_usable_route(RelationGetNamespace(outbox), outbox->rd_rel->relowner,
								TextDatumGetCString(capture->route), capture->owner);
	fields.event_type = DatumGetTextPP(constants->event_type);
	if (constants->routing_key != (Datum) 0)
		fields.routing_key = DatumGetTextPP(constants->routing_key);
	if (constants->headers != (Datum) 0)
		fields.headers = DatumGetJsonbP(constants->headers);
	if (message->key != NULL)
		fields.aggregate_type = DatumGetTextPP(capture->aggregate_type);
	fields.aggregate_id = message->key;
	check_key(capture, message, &fields, route);
	fit(capture, sides, &fields, route);
	message->payload = JsonbPGetDatum(fields.payload);
	message->omitted = join_omitted(capture, sides);
}
