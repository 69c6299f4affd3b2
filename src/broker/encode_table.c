/*-------------------------------------------------------------------------
 *
 * encode_table.c
 *		From jsonb to an AMQP field table.
 *
 * string S, boolean t, integer that fits 64 bits l, other number d, null V,
 * array A, object F.  A number is an integer when it was written without a
 * fraction: 1.0 is a double, as 1.5 would be.  Depth was limited at enqueue.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <math.h>

#include "mb/pg_wchar.h"
#include "miscadmin.h"
#include "utils/builtins.h"
#include "utils/fmgrprotos.h"

#include "broker_internal.h"

static const char *encode_value(JsonbIterator **it, const JsonbValue *item,
								JsonbIteratorToken token,
								amqp_field_value_t *value);

amqp_bytes_t
outbox_encode_utf8(const char *text, int len)
{
	amqp_bytes_t result;
	char	   *utf8 = pg_server_to_any(text, len, PG_UTF8);

	result.bytes = utf8;
	result.len = utf8 == text ? (size_t) len : strlen(utf8);
	return result;
}

amqp_bytes_t
outbox_encode_text(const char *utf8)
{
	amqp_bytes_t result;

	result.bytes = unconstify(char *, utf8);
	result.len = strlen(utf8);
	return result;
}

bool
outbox_encode_is(const amqp_bytes_t *key, const char *name)
{
	return key->len == strlen(name) && memcmp(key->bytes, name, key->len) == 0;
}

amqp_field_value_t *
outbox_encode_find(const amqp_table_t *table, const char *name)
{
	for (int i = 0; i < table->num_entries; i++)
	{
		if (outbox_encode_is(&table->entries[i].key, name))
			return &table->entries[i].value;
	}
	return NULL;
}

amqp_field_value_t *
outbox_encode_own_header(amqp_table_t *table, const char *name)
{
	amqp_field_value_t *value = outbox_encode_find(table, name);
	amqp_table_entry_t *entry;

	if (value != NULL)
		return value;
	entry = &table->entries[table->num_entries++];
	entry->key = outbox_encode_text(name);
	return &entry->value;
}

void
outbox_encode_own_text(amqp_table_t *table, const char *name, const char *utf8)
{
	amqp_field_value_t *value;

	if (utf8 == NULL)
		return;
	value = outbox_encode_own_header(table, name);
	value->kind = AMQP_FIELD_KIND_UTF8;
	value->value.bytes = outbox_encode_text(utf8);
}

static const char *
encode_double(const char *digits, amqp_field_value_t *value)
{
	value->kind = AMQP_FIELD_KIND_F64;
	value->value.f64 = strtod(digits, NULL);
	if (isinf(value->value.f64))
		return "a number in headers is out of the range of a double";
	return NULL;
}

/* jsonb keeps the digits behind the point, zeros too. */
static bool
has_fraction(Numeric number)
{
	return DatumGetInt32(DirectFunctionCall1(numeric_scale,
											 NumericGetDatum(number))) > 0;
}

/* An integer that fits 64 bits stays exact; the rest becomes a double. */
const char *
outbox_encode_number(Numeric number, amqp_field_value_t *value)
{
	/* Without trailing zeroes: 5.0 is the integer 5, as enqueue sees it. */
	char	   *text = numeric_normalize(number);
	size_t		digits = strspn(text, "-0123456789");

	if (text[digits] == '\0')
	{
		errno = 0;
		value->kind = AMQP_FIELD_KIND_I64;
		value->value.i64 = strtoll(text, NULL, 10);
		if (errno == 0)
			return NULL;
	}
	return encode_double(text, value);
}

static const char *
encode_array(JsonbIterator **it, int nelems, amqp_field_value_t *value)
{
	amqp_array_t *array = &value->value.array;
	JsonbValue	item;
	JsonbIteratorToken token;

	value->kind = AMQP_FIELD_KIND_ARRAY;
	array->num_entries = 0;
	array->entries = palloc0(sizeof(amqp_field_value_t) * Max(nelems, 1));
	while ((token = JsonbIteratorNext(it, &item, false)) != WJB_END_ARRAY)
	{
		const char *reason;

		Assert(array->num_entries < nelems);
		reason = encode_value(it, &item, token,
							  &array->entries[array->num_entries++]);
		if (reason != NULL)
			return reason;
	}
	return NULL;
}

const char *
outbox_encode_pairs(JsonbIterator **it, amqp_table_t *table)
{
	JsonbValue	item;
	JsonbIteratorToken token;

	while ((token = JsonbIteratorNext(it, &item, false)) != WJB_END_OBJECT)
	{
		amqp_table_entry_t *entry = &table->entries[table->num_entries++];
		const char *reason;

		Assert(token == WJB_KEY);
		entry->key = outbox_encode_utf8(item.val.string.val, item.val.string.len);
		if (entry->key.len > OUTBOX_SHORT_STRING_MAX)
			return "a name in headers is longer than 255 bytes";
		token = JsonbIteratorNext(it, &item, false);
		reason = encode_value(it, &item, token, &entry->value);
		if (reason != NULL)
			return reason;
	}
	return NULL;
}

static const char *
encode_object(JsonbIterator **it, int npairs, amqp_field_value_t *value)
{
	amqp_table_t *table = &value->value.table;

	value->kind = AMQP_FIELD_KIND_TABLE;
	table->num_entries = 0;
	table->entries = palloc0(sizeof(amqp_table_entry_t) * Max(npairs, 1));
	return outbox_encode_pairs(it, table);
}

/* The value that the iterator has just stepped on or into. */
static const char *
encode_value(JsonbIterator **it, const JsonbValue *item,
			 JsonbIteratorToken token, amqp_field_value_t *value)
{
	check_stack_depth();

	if (token == WJB_BEGIN_OBJECT)
		return encode_object(it, item->val.object.nPairs, value);
	if (token == WJB_BEGIN_ARRAY)
		return encode_array(it, item->val.array.nElems, value);

	switch (item->type)
	{
		case jbvNull:
			value->kind = AMQP_FIELD_KIND_VOID;
			return NULL;
		case jbvBool:
			value->kind = AMQP_FIELD_KIND_BOOLEAN;
			value->value.boolean = item->val.boolean ? 1 : 0;
			return NULL;
		case jbvString:
			value->kind = AMQP_FIELD_KIND_UTF8;
			value->value.bytes = outbox_encode_utf8(item->val.string.val,
										 item->val.string.len);
			return NULL;
		case jbvNumeric:
			if (has_fraction(item->val.numeric))
				return encode_double(numeric_normalize(item->val.numeric), value);
			return outbox_encode_number(item->val.numeric, value);
		default:
			elog(ERROR, "unexpected jsonb value of type %d", (int) item->type);
	}
	return NULL;				/* keep compiler quiet */
}
