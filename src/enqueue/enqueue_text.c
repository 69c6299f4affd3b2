/*-------------------------------------------------------------------------
 *
 * enqueue_text.c
 *		outbox_enqueue_text(): outbox_enqueue() with strings for all arguments.
 *
 * For drivers that bind a string as text or varchar, of which no function with an
 * argument of another type is found without a cast.  It has a name of its own, since
 * an overload of outbox_enqueue() would make calls ambiguous that work.  What is no
 * JSON, time or UUID has the error of its type's input function, with the name of
 * the argument before it.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/table.h"
#include "columns.h"
#include "enqueue.h"
#include "fmgr.h"
#include "miscadmin.h"
#include "utils/builtins.h"
#include "utils/jsonb.h"
#include "utils/lsyscache.h"
#include "utils/timestamp.h"
#include "utils/uuid.h"

PG_FUNCTION_INFO_V1(outbox_enqueue_text);

/* In the order of the function's arguments, which is that of outbox_enqueue(). */
static const struct
{
	const char *name;
	int			col;
	PGFunction	input;			/* of the column's type; NULL: it is text */
}			arguments[] =

{
	{"event_type", COL_EVENT_TYPE, NULL},
	{"payload", COL_PAYLOAD, jsonb_in},
	{"aggregate_type", COL_AGGREGATE_TYPE, NULL},
	{"aggregate_id", COL_AGGREGATE_ID, NULL},
	{"headers", COL_HEADERS, jsonb_in},
	{"route", COL_ROUTE, NULL},
	{"routing_key", COL_ROUTING_KEY, NULL},
	{"properties", COL_PROPERTIES, jsonb_in},
	{"available_at", COL_AVAILABLE_AT, timestamptz_in},
	{"message_id", COL_ID, uuid_in},
};

/*
 * An error of the value (class 22) is thrown on with the argument's name, and any
 * other as it is; none ends here.
 */
Datum
outbox_enqueue_convert(const char *name, PGFunction input, text *value)
{
	MemoryContext context = CurrentMemoryContext;
	Datum		result;

	PG_TRY();
	{
		/* As InputFunctionCall() does, which takes a function of the catalog. */
		result = DirectFunctionCall3(input, CStringGetDatum(text_to_cstring(value)),
									 ObjectIdGetDatum(InvalidOid), Int32GetDatum(-1));
	}
	PG_CATCH();
	{
		ErrorData  *error;

		MemoryContextSwitchTo(context);
		error = CopyErrorData();
		if (ERRCODE_TO_CATEGORY(error->sqlerrcode) != ERRCODE_DATA_EXCEPTION)
			PG_RE_THROW();
		FlushErrorState();
		error->message = psprintf("%s: %s", name, error->message);
		ReThrowError(error);
	}
	PG_END_TRY();
	return result;
}

Datum
outbox_enqueue_text(PG_FUNCTION_ARGS)
{
	Relation	rel = outbox_open_table(get_func_namespace(fcinfo->flinfo->fn_oid));
	Datum		values[OUTBOX_COLUMNS];
	bool		isnull[OUTBOX_COLUMNS];
	bool		stored;

	memset(isnull, true, sizeof(isnull));
	for (int i = 0; i < lengthof(arguments); i++)
	{
		int			col = arguments[i].col - 1;

		if (PG_ARGISNULL(i))
			continue;
		isnull[col] = false;
		values[col] = arguments[i].input == NULL ? PG_GETARG_DATUM(i) :
			outbox_enqueue_convert(arguments[i].name, arguments[i].input,
								   PG_GETARG_TEXT_PP(i));
	}

	stored = outbox_enqueue_row(rel, GetUserId(), values, isnull);
	table_close(rel, NoLock);
	/* A trigger of the administrator's may have left it out. */
	if (!stored)
		PG_RETURN_NULL();
	PG_RETURN_DATUM(values[COL_ID - 1]);
}
