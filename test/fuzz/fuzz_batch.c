/*-------------------------------------------------------------------------
 *
 * fuzz_batch.c
 *		An element of the array of outbox_enqueue_batch().
 *
 * The input draws the element.  What is accepted has the value of each key in its
 * column, and nothing else; what is refused breaks a rule, names the element, and
 * has the SQLSTATE of that rule.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "columns.h"
#include "doc.h"
#include "enqueue.h"
#include "enqueue_internal.h"
#include "fuzz.h"
#include "pg.h"
#include "utils/builtins.h"

#define ELEMENT		7

static const struct
{
	const char *name;
	char		kind;			/* s(tring), i(d), j(son), b(ase64), t(ime), u(uid), c(ontent_type) */
	int			column;
}			Keys[] =
{
	{"event_type", 's', COL_EVENT_TYPE},
	{"payload", 'j', COL_PAYLOAD},
	{"aggregate_type", 's', COL_AGGREGATE_TYPE},
	{"aggregate_id", 'i', COL_AGGREGATE_ID},
	{"headers", 'j', COL_HEADERS},
	{"route", 's', COL_ROUTE},
	{"routing_key", 's', COL_ROUTING_KEY},
	{"properties", 'j', COL_PROPERTIES},
	{"available_at", 't', COL_AVAILABLE_AT},
	{"message_id", 'u', COL_ID},
	{"body_base64", 'b', COL_BODY},
	{"content_type", 'c', 0}
};
#define KEYS ((int) lengthof(Keys))

static const char *Names[KEYS];

/* With content_type: what the properties were made of. */
static const text *ContentType;

Datum
outbox_add_content_type(const text *type, Datum properties, bool *isnull)
{
	ContentType = type;
	*isnull = false;
	return properties;
}

/* A copy of what is there: the server's makes one of any value. */
Jsonb *
JsonbValueToJsonb(JsonbValue *value)
{
	Jsonb	   *copy;

	fuzz_json_begin();
	switch (value->type)
	{
		case jbvNull:
			fuzz_json_null();
			break;
		case jbvString:
			fuzz_json_string(value->val.string.val, value->val.string.len);
			break;
		case jbvNumeric:
			fuzz_json_number(VARDATA(value->val.numeric));
			break;
		case jbvBool:
			fuzz_json_bool(value->val.boolean);
			break;
		default:
			copy = palloc(VARHDRSZ + value->val.binary.len);
			SET_VARSIZE(copy, VARHDRSZ + value->val.binary.len);
			memcpy(&copy->root, value->val.binary.data, value->val.binary.len);
			return copy;
	}
	return fuzz_json_finish();
}

static int
key_of(const Doc *element, int i)
{
	for (int k = 0; k < KEYS; k++)
		if (strlen(Keys[k].name) == element->key_lens[i] &&
			memcmp(Keys[k].name, element->keys[i], element->key_lens[i]) == 0)
			return k;
	return -1;
}

static bool
is_of(const Doc *value, const char *characters)
{
	return value->kind == 's' && strspn(value->text, characters) == value->len;
}

/* 0, or the SQLSTATE with which it is refused. */
static int
refusal_of(int k, const Doc *value)
{
	bool		text = value->kind == 's';

	switch (Keys[k].kind)
	{
		case 'j':
			return 0;
		case 'i':
			return text || (value->kind == 'd' && strchr(value->text, '.') == NULL) ? 0 :
				ERRCODE_INVALID_PARAMETER_VALUE;
		case 'b':
			return is_of(value, FUZZ_BASE64) ? 0 : ERRCODE_INVALID_PARAMETER_VALUE;
		case 't':
			return is_of(value, FUZZ_TIME) ? 0 : text ? ERRCODE_INVALID_DATETIME_FORMAT :
				ERRCODE_INVALID_PARAMETER_VALUE;
		case 'u':
			return is_of(value, FUZZ_UUID) ? 0 : text ? ERRCODE_INVALID_TEXT_REPRESENTATION :
				ERRCODE_INVALID_PARAMETER_VALUE;
		default:
			return text ? 0 : ERRCODE_INVALID_PARAMETER_VALUE;
	}
}

static bool
counts(int k, const Doc *value)
{
	return value->kind != 'n' || Keys[k].kind == 'j';
}

/* The value of a key, NULL: it has none. */
static const Doc *
given(const Doc *element, int k)
{
	for (int i = 0; i < element->count; i++)
		if (key_of(element, i) == k && counts(k, element->members[i]))
			return element->members[i];
	return NULL;
}

/*
 * 0, or the SQLSTATE of the first that is wrong, and its key if that was known.  Of a
 * content_type without a body last, as it is seen at the end.
 */
static int
expect(const Doc *element, const char **key)
{
	*key = NULL;
	if (element->kind != 'o')
		return ERRCODE_INVALID_PARAMETER_VALUE;
	for (int i = 0; i < element->count; i++)
	{
		int			k = key_of(element, i);
		int			state = k < 0 ? ERRCODE_INVALID_PARAMETER_VALUE :
			counts(k, element->members[i]) ? refusal_of(k, element->members[i]) : 0;

		if (state != 0)
		{
			*key = k < 0 ? NULL : Keys[k].name;
			return state;
		}
	}
	return given(element, KEYS - 1) != NULL && given(element, KEYS - 2) == NULL ?
		ERRCODE_INVALID_PARAMETER_VALUE : 0;
}

static void
check_value(int k, const Doc *value, Datum got)
{
	const text *text = (const struct varlena *) DatumGetPointer(got);

	if (Keys[k].kind == 'j')
	{
		Jsonb	   *expected = jsonb_of(value);

		fuzz_check(VARSIZE(text) == VARSIZE(expected) &&
				   memcmp(text, expected, VARSIZE(text)) == 0, "%s is another document", Keys[k].name);
		return;
	}
	fuzz_check(VARSIZE_ANY_EXHDR(text) == value->len &&
			   memcmp(VARDATA_ANY(text), value->text, value->len) == 0, "%s: %.*s", Keys[k].name,
			   (int) VARSIZE_ANY_EXHDR(text), VARDATA_ANY(text));
}

static void
check_message(const Doc *element, const Datum *values, const bool *isnull)
{
	const Doc  *type = given(element, KEYS - 1);
	int			ncolumns = 0;

	fuzz_check((ContentType != NULL) == (type != NULL), "content_type");
	if (type != NULL)
		check_value(KEYS - 1, type, PointerGetDatum(ContentType));
	for (int k = 0; k < KEYS - 1; k++)
	{
		const Doc  *value = given(element, k);
		bool		null = isnull[Keys[k].column - 1];

		ncolumns += !null;
		if (value != NULL)
			fuzz_check(!null, "%s is lost", Keys[k].name);
		if (value != NULL)
			check_value(k, value, values[Keys[k].column - 1]);
		else if (Keys[k].column == COL_ROUTE)
			fuzz_check(!null && strcmp(text_to_cstring((const text *) DatumGetPointer(values[COL_ROUTE - 1])), "default") == 0,
					   "no route");
		else if (Keys[k].column != COL_PROPERTIES || type == NULL)
			fuzz_check(null, "%s comes from nowhere", Keys[k].name);
	}
	for (int i = 0; i < OUTBOX_COLUMNS; i++)
		ncolumns -= !isnull[i];
	fuzz_check(ncolumns == 0, "a column that no key has");
}

int
LLVMFuzzerInitialize(int *argc, char ***argv)
{
	for (int k = 0; k < KEYS; k++)
		Names[k] = Keys[k].name;
	doc_names = Names;
	doc_nnames = KEYS;
	return 0;
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	Input		in = {data, data + size};
	Datum		values[OUTBOX_COLUMNS];
	bool		isnull[OUTBOX_COLUMNS];
	const char *volatile at = NULL;
	volatile bool accepted = false;
	const char *key;
	Doc		   *array;
	Jsonb	   *json;
	JsonbIterator *it;
	JsonbValue	element;
	int			state;

	fuzz_memory_reset();
	ContentType = NULL;
	array = palloc0(sizeof(Doc));
	array->kind = 'a';
	array->count = 1;
	array->members[0] = input_byte(&in) < 16 ? draw_node(&in, 1) : draw_object(&in);
	state = expect(array->members[0], &key);
	json = jsonb_of(array);
	it = JsonbIteratorInit(&json->root);
	(void) JsonbIteratorNext(&it, &element, true);
	(void) JsonbIteratorNext(&it, &element, true);
	PG_TRY();
	{
		outbox_read_element(&element, ELEMENT, values, isnull, (const char **) &at);
		accepted = true;
	}
	PG_CATCH();
	{
		fuzz_check(geterrcode() == state, "another SQLSTATE: %s", fuzz_error_text);
		fuzz_check(at == NULL ? key == NULL : key != NULL && strcmp(at, key) == 0, "another key: %s",
				   at == NULL ? "none" : at);
		fuzz_check(strstr(fuzz_error_text, "element 7 of messages") != NULL || at != NULL,
				   "which element? %s", fuzz_error_text);
	}
	PG_END_TRY();
	fuzz_check(accepted == (state == 0), "%s: %s", accepted ? "accepted" : "refused", fuzz_error_text);
	fuzz_check(!accepted || at == NULL, "a key that is over");
	if (accepted)
		check_message(array->members[0], values, isnull);
	fuzz_memory_reset();
	return 0;
}
