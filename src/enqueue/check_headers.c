/*-------------------------------------------------------------------------
 *
 * check_headers.c
 *		What headers and properties of a message must be: limits of check.c.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <math.h>

#include "amqp_limits.h"
#include "enqueue_internal.h"
#include "format.h"
#include "mb/pg_wchar.h"
#include "miscadmin.h"
#include "utils/numeric.h"

#define MAX_EXPIRATION			PG_UINT32_MAX	/* RabbitMQ's timer */

/* The smallest double has 767 significant digits behind 323 zeros. */
#define MAX_NUMBER_TEXT			1100

/* How deep headers may nest; the object itself is depth 1. */
#define OUTBOX_MAX_HEADER_DEPTH 8

#define PROPERTY_NAME(name, FLAG) #name,
#define LISTED(name, flag)	", " #name

static const char *const string_properties[] = {
	OUTBOX_STRING_PROPERTIES(PROPERTY_NAME)
};

static bool
is_string(const JsonbValue *value, const char *string)
{
	return value->val.string.len == strlen(string) &&
		memcmp(value->val.string.val, string, strlen(string)) == 0;
}

/* ----------------------------------------------------------------- headers */

static size_t container_size(JsonbContainer *container, int depth);

/*
 * A number is an AMQP long if it is an integer that fits, else a double.  One of
 * more digits than any double needs would cost the relay more than a message
 * does, for nothing.
 */
static void
check_header_number(Numeric number)
{
	char	   *str = numeric_normalize(number);

	if (strlen(str) > MAX_NUMBER_TEXT || isinf(strtod(str, NULL)))
		ereport(ERROR,
				(errcode(ERRCODE_NUMERIC_VALUE_OUT_OF_RANGE),
				 errmsg("headers contain a number that is out of range"),
				 errdetail("AMQP headers hold integers of 64 bits and numbers of double precision."),
				 errhint("Send it as a string.")));
	pfree(str);
}

/* Bytes of one field value, its type octet included. */
static size_t
value_size(const JsonbValue *value, int depth)
{
	switch (value->type)
	{
		case jbvNull:
			return 1;
		case jbvBool:
			return 2;
		case jbvNumeric:
			check_header_number(value->val.numeric);
			return 9;
		case jbvString:
			return 5 + outbox_utf8_length("headers", value->val.string.val,
								   value->val.string.len);
		case jbvBinary:
			return 5 + container_size(value->val.binary.data, depth + 1);
		default:
			elog(ERROR, "unexpected jsonb value type: %d", (int) value->type);
	}
	return 0;
}

static int
compare_names(const ListCell *a, const ListCell *b)
{
	return strcmp(lfirst(a), lfirst(b));
}

/*
 * EUC_JP has several codes for some characters, which are one in UTF-8.  A table
 * of AMQP has each name once; of two, a consumer would see one.
 */
static void
check_names(List *names)
{
	list_sort(names, compare_names);
	for (int i = 1; i < list_length(names); i++)
		if (strcmp(list_nth(names, i - 1), list_nth(names, i)) == 0)
			ereport(ERROR,
					(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
					 errmsg("two names in headers are the same in UTF-8"),
					 errdetail("The encoding of the database has two codes for a character of them.")));
	list_free(names);
}

static size_t
container_size(JsonbContainer *container, int depth)
{
	bool		ambiguous = GetDatabaseEncoding() != PG_UTF8 &&
		GetDatabaseEncoding() != PG_SQL_ASCII;
	List	   *names = NIL;
	JsonbIterator *it;
	JsonbIteratorToken token;
	JsonbValue	value;
	size_t		total = 0;

	check_stack_depth();
	if (depth > OUTBOX_MAX_HEADER_DEPTH)
		ereport(ERROR,
				(errcode(ERRCODE_PROGRAM_LIMIT_EXCEEDED),
				 errmsg("headers are nested too deep"),
				 errdetail("At most %d levels are allowed.",
						   OUTBOX_MAX_HEADER_DEPTH)));

	it = JsonbIteratorInit(container);
	while ((token = JsonbIteratorNext(&it, &value, true)) != WJB_DONE)
	{
		if (token == WJB_KEY)
		{
			total += 1 + outbox_short_length("a name in headers", value.val.string.val,
									  value.val.string.len);
			if (depth == 1 && (is_string(&value, "CC") || is_string(&value, "BCC")))
				ereport(ERROR,
						(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
						 errmsg("headers must not contain CC or BCC"),
						 errdetail("RabbitMQ would send the message to these routing keys as well, past its route."),
						 errhint("Enqueue one message for each routing key.")));
			/* Two names may be the same in UTF-8. */
			if (ambiguous)
				names = lappend(names, outbox_format_utf8(value.val.string.val,
														  value.val.string.len));
		}
		else if (token == WJB_VALUE || token == WJB_ELEM)
			total += value_size(&value, depth);
	}
	check_names(names);
	return total;
}

size_t
outbox_check_headers(Jsonb *headers)
{
	return container_size(&headers->root, 1);
}

/* -------------------------------------------------------------- properties */

static void
check_expiration(const char *str, size_t len)
{
	bool		bad = len == 0 || len > OUTBOX_EXPIRATION_DIGITS;

	for (size_t i = 0; i < len && !bad; i++)
		bad = str[i] < '0' || str[i] > '9';
	if (bad || strtoull(pnstrdup(str, len), NULL, 10) > MAX_EXPIRATION)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("property expiration must be a string of digits"),
				 errdetail("It is a number of milliseconds from 0 to %u.",
						   (unsigned) MAX_EXPIRATION)));
}

static size_t
check_string_property(const char *name, const JsonbValue *value)
{
	char	   *argument = psprintf("property %s", name);
	const char *str = value->val.string.val;
	size_t		len;

	if (value->type != jbvString)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("%s must be a string", argument)));
	len = outbox_short_length(argument, str, value->val.string.len);
	if (strcmp(name, "expiration") == 0)
		check_expiration(str, value->val.string.len);
	if (strcmp(name, "reply_to") == 0 &&
		strncmp(pnstrdup(str, value->val.string.len), "amq.rabbitmq.reply-to", 21) == 0)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("property reply_to must not name a direct reply queue"),
				 errdetail("Direct reply-to needs a consumer on the publishing connection, and the relay has none.")));
	return 1 + len;
}

static size_t
check_priority(const JsonbValue *value)
{
	char	   *str;
	char	   *end;
	long		priority;

	if (value->type == jbvNumeric)
	{
		str = numeric_normalize(value->val.numeric);
		priority = strtol(str, &end, 10);
		if (*end == '\0' && priority >= 0 && priority <= OUTBOX_PRIORITY_MAX)
			return 1;
	}
	ereport(ERROR,
			(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
			 errmsg("property priority must be an integer from 0 to 255")));
	return 0;
}

static size_t
check_property(const char *name, const JsonbValue *value)
{
	if (strcmp(name, "priority") == 0)
		return check_priority(value);
	for (int i = 0; i < (int) lengthof(string_properties); i++)
		if (strcmp(name, string_properties[i]) == 0)
			return check_string_property(name, value);
	ereport(ERROR,
			(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
			 errmsg("unknown property \"%s\"", name),
			 errdetail("message_id, timestamp and delivery_mode are set by the relay; user_id would be refused by the broker."),
			 errhint("Valid properties are priority" OUTBOX_STRING_PROPERTIES(LISTED) ".")));
	return 0;
}

size_t
outbox_check_properties(Jsonb *properties)
{
	JsonbIterator *it;
	JsonbIteratorToken token;
	JsonbValue	value;
	char	   *name = NULL;
	size_t		total = 0;

	it = JsonbIteratorInit(&properties->root);
	while ((token = JsonbIteratorNext(&it, &value, true)) != WJB_DONE)
	{
		if (token == WJB_KEY)
			name = pnstrdup(value.val.string.val, value.val.string.len);
		else if (token == WJB_VALUE)
			total += check_property(name, &value);
	}
	return total;
}
