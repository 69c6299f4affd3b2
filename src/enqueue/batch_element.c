/*-------------------------------------------------------------------------
 *
 * batch_element.c
 *		A message of outbox_enqueue_batch(), from an element of its array.
 *
 * Keys are the names of the arguments of outbox_enqueue(), and body_base64 and
 * content_type for those of outbox_enqueue_bytes().  null means that it is not
 * given, as serializers write it, but as a payload, where it is a message (without a
 * body: the row trigger sees to that).  What a message must be is the row trigger's
 * business; here is only what JSON has other types for than the columns.
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

typedef enum KeyKind
{
	KEY_STRING,
	KEY_ID,						/* string, or an integer */
	KEY_JSON,
	KEY_BASE64,
	KEY_TIME,
	KEY_UUID
} KeyKind;

static const struct
{
	const char *name;
	KeyKind		kind;
	int			column;			/* COL_NONE: content_type, which is in the
								 * properties */
}			keys[] =

{
	{"event_type", KEY_STRING, COL_EVENT_TYPE},
	{"payload", KEY_JSON, COL_PAYLOAD},
	{"aggregate_type", KEY_STRING, COL_AGGREGATE_TYPE},
	{"aggregate_id", KEY_ID, COL_AGGREGATE_ID},
	{"headers", KEY_JSON, COL_HEADERS},
	{"route", KEY_STRING, COL_ROUTE},
	{"routing_key", KEY_STRING, COL_ROUTING_KEY},
	{"properties", KEY_JSON, COL_PROPERTIES},
	{"available_at", KEY_TIME, COL_AVAILABLE_AT},
	{"message_id", KEY_UUID, COL_ID},
	{"body_base64", KEY_BASE64, COL_BODY},
	{"content_type", KEY_STRING, COL_NONE}
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

static int
find_key(const JsonbValue *name, int n)
{
	for (int i = 0; i < (int) lengthof(keys); i++)
		if (strlen(keys[i].name) == (size_t) name->val.string.len &&
			memcmp(keys[i].name, name->val.string.val, name->val.string.len) == 0)
			return i;
	ereport(ERROR,
			(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
			 errmsg("unknown key \"%.*s\" in element %d of messages",
					pg_mbcliplen(name->val.string.val, name->val.string.len, 100),
					name->val.string.val, n),
			 errdetail("Elements are counted from 0."),
			 errhint("Valid keys are event_type, payload, aggregate_type, aggregate_id, headers, route, routing_key, properties, available_at, message_id, body_base64 and content_type.")));
	return 0;
}

static void
fail_type(int key, int n, const char *expected, const JsonbValue *value)
{
	ereport(ERROR,
			(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
			 errmsg("%s must be %s in element %d of messages",
					keys[key].name, expected, n),
			 errdetail("It is %s. Elements are counted from 0.",
					   outbox_json_kind(value))));
}

static text *
get_text(int key, int n, const JsonbValue *value)
{
	if (value->type != jbvString)
		fail_type(key, n, "a string", value);
	return cstring_to_text_with_len(value->val.string.val, value->val.string.len);
}

/* An integer is the same key as its digits: programs have numbers as ids. */
static text *
get_id(int key, int n, const JsonbValue *value)
{
	if (value->type == jbvNumeric)
	{
		char	   *digits = DatumGetCString(DirectFunctionCall1(numeric_out,
																 NumericGetDatum(value->val.numeric)));

		if (strspn(digits, "-0123456789") == strlen(digits))
			return cstring_to_text(digits);
	}
	if (value->type != jbvString)
		fail_type(key, n, "a string or an integer", value);
	return get_text(key, n, value);
}

static Datum
get_value(int key, int n, JsonbValue *value)
{
	switch (keys[key].kind)
	{
		case KEY_STRING:
			return PointerGetDatum(get_text(key, n, value));
		case KEY_ID:
			return PointerGetDatum(get_id(key, n, value));
		case KEY_JSON:
			return JsonbPGetDatum(JsonbValueToJsonb(value));
		case KEY_BASE64:
			return DirectFunctionCall2(binary_decode,
									   PointerGetDatum(get_text(key, n, value)),
									   CStringGetTextDatum("base64"));
		case KEY_TIME:
			return DirectFunctionCall3(timestamptz_in,
									   CStringGetDatum(text_to_cstring(get_text(key, n, value))),
									   ObjectIdGetDatum(InvalidOid),
									   Int32GetDatum(-1));
		case KEY_UUID:
			return DirectFunctionCall1(uuid_in,
									   CStringGetDatum(text_to_cstring(get_text(key, n, value))));
	}
	return (Datum) 0;			/* keep compiler quiet */
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
	int			current = 0;

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
				 (value.type != jbvNull || keys[current].kind == KEY_JSON))
		{
			*key = keys[current].name;
			if (keys[current].column == COL_NONE)
				content_type = get_text(current, n, &value);
			else
			{
				values[keys[current].column - 1] = get_value(current, n, &value);
				isnull[keys[current].column - 1] = false;
			}
			*key = NULL;
		}
	}
	finish(n, content_type, values, isnull);
}
