/*-------------------------------------------------------------------------
 *
 * arguments.c
 *		Arguments of the functions that enqueue, and a message of
 *		outbox_enqueue_batch(), from an element of its array.
 *
 * The element's keys are the names of the arguments.  null means that one is not given,
 * as serializers write it, but as a payload it is a message (without a body: the row
 * trigger sees to that).  What a message must be is the row trigger's business; here is
 * only what JSON has other types for than the columns.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "columns.h"
#include "enqueue.h"
#include "enqueue_internal.h"
#include "mb/pg_wchar.h"
#include "utils/builtins.h"
#include "utils/fmgrprotos.h"
#include "utils/numeric.h"
#include "utils/timestamp.h"
#include "utils/uuid.h"

const OutboxArgument outbox_arguments[] = {
	{"event_type", NULL, COL_EVENT_TYPE},
	{"payload", jsonb_in, COL_PAYLOAD},
	{"aggregate_type", NULL, COL_AGGREGATE_TYPE},
	{"aggregate_id", NULL, COL_AGGREGATE_ID},
	{"headers", jsonb_in, COL_HEADERS},
	{"route", NULL, COL_ROUTE},
	{"routing_key", NULL, COL_ROUTING_KEY},
	{"properties", jsonb_in, COL_PROPERTIES},
	{"available_at", timestamptz_in, COL_AVAILABLE_AT},
	{"message_id", uuid_in, COL_ID},
	/* outbox_enqueue() has those above, in this order */
	{"body_base64", NULL, COL_BODY},
	{"content_type", NULL, COL_NONE},
};

const char *
outbox_json_kind(const JsonbValue *value)
{
	switch (value->type)
	{
		case jbvNull:
			return "null";
		case jbvString:
			return "a string";
		case jbvNumeric:
			return "a number";
		case jbvBool:
			return "a boolean";
		case jbvBinary:
			return JsonContainerIsArray(value->val.binary.data) ?
				"an array" : "an object";
		default:
			elog(ERROR, "unexpected jsonb value type: %d", (int) value->type);
	}
	return NULL;
}

static const OutboxArgument *
find_key(const JsonbValue *name, int n)
{
	for (int i = 0; i < (int) lengthof(outbox_arguments); i++)
	{
		const OutboxArgument *argument = &outbox_arguments[i];

		if (strlen(argument->name) == (size_t) name->val.string.len &&
			memcmp(argument->name, name->val.string.val, name->val.string.len) == 0)
			return argument;
	}
	ereport(ERROR,
			(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
			 errmsg("unknown key \"%.*s\" in element %d of messages",
					pg_mbcliplen(name->val.string.val, name->val.string.len, 100),
					name->val.string.val, n),
			 errdetail("Elements are counted from 0."),
			 errhint("Valid keys are event_type, payload, aggregate_type, aggregate_id, headers, route, routing_key, properties, available_at, message_id, body_base64 and content_type.")));
	return NULL;
}

/* An integer as aggregate_id is the same key as its digits: programs have numbers as ids. */
static text *
get_text(const OutboxArgument *key, int n, const JsonbValue *value)
{
	bool		number = key->column == COL_AGGREGATE_ID;

	if (value->type == jbvNumeric && number)
	{
		char	   *digits = DatumGetCString(DirectFunctionCall1(numeric_out,
																 NumericGetDatum(value->val.numeric)));

		if (strspn(digits, "-0123456789") == strlen(digits))
			return cstring_to_text(digits);
	}
	if (value->type != jbvString)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("%s must be %s in element %d of messages", key->name,
						number ? "a string or an integer" : "a string", n),
				 errdetail("It is %s. Elements are counted from 0.",
						   outbox_json_kind(value))));
	return cstring_to_text_with_len(value->val.string.val, value->val.string.len);
}

/* As InputFunctionCall() does, which takes a function of the catalog. */
Datum
outbox_text_input(PGFunction input, const text *value)
{
	return DirectFunctionCall3(input, CStringGetDatum(text_to_cstring(value)),
							   ObjectIdGetDatum(InvalidOid), Int32GetDatum(-1));
}

static Datum
get_value(const OutboxArgument *key, int n, JsonbValue *value)
{
	text	   *string;

	if (key->input == jsonb_in)
		return JsonbPGetDatum(JsonbValueToJsonb(value));
	string = get_text(key, n, value);
	if (key->column == COL_BODY)
		return DirectFunctionCall2(binary_decode, PointerGetDatum(string),
								   CStringGetTextDatum("base64"));
	if (key->input != NULL)
		return outbox_text_input(key->input, string);
	return PointerGetDatum(string);
}

static void
finish(int n, const text *content_type, Datum *values, bool *isnull)
{
	if (isnull[COL_ROUTE - 1])
	{
		values[COL_ROUTE - 1] = CStringGetTextDatum("default");
		isnull[COL_ROUTE - 1] = false;
	}
	if (content_type == NULL)
		return;
	if (isnull[COL_BODY - 1])
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("content_type without body_base64 in element %d of messages", n),
				 errdetail("Elements are counted from 0."),
				 errhint("The content_type of a payload is one of its properties.")));
	values[COL_PROPERTIES - 1] =
		outbox_add_content_type(content_type, values[COL_PROPERTIES - 1],
								&isnull[COL_PROPERTIES - 1]);
}

void
outbox_read_element(const JsonbValue *element, int n, Datum *values,
					bool *isnull, const char **key)
{
	JsonbIterator *it;
	JsonbIteratorToken token;
	JsonbValue	value;
	text	   *content_type = NULL;
	const OutboxArgument *current = NULL;

	if (element->type != jbvBinary ||
		!JsonContainerIsObject(element->val.binary.data))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("element %d of messages must be an object", n),
				 errdetail("It is %s. Elements are counted from 0.",
						   outbox_json_kind(element))));
	memset(isnull, true, sizeof(bool) * OUTBOX_COLUMNS);
	it = JsonbIteratorInit(element->val.binary.data);
	while ((token = JsonbIteratorNext(&it, &value, true)) != WJB_DONE)
	{
		if (token == WJB_KEY)
			current = find_key(&value, n);
		/* The row trigger takes null for what it is to a payload. */
		else if (token == WJB_VALUE &&
				 (value.type != jbvNull || current->input == jsonb_in))
		{
			*key = current->name;
			if (current->column == COL_NONE)
				content_type = get_text(current, n, &value);
			else
			{
				values[current->column - 1] = get_value(current, n, &value);
				isnull[current->column - 1] = false;
			}
			*key = NULL;
		}
	}
	finish(n, content_type, values, isnull);
}
