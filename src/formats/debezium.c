/*-------------------------------------------------------------------------
 *
 * debezium.c
 *		What Debezium's outbox event router sends, and where it can be told to put more.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "amqp_limits.h"
#include "encode_json.h"
#include "format_def.h"

/* Columns that go into headers. */
static const char *const columns[] = {
	"event_type", "aggregate_type", "aggregate_id", NULL
};

#define COLUMNS		((int) lengthof(columns) - 1)

typedef struct Options
{
	const char *headers[lengthof(columns) - 1]; /* NULL: not sent */
	bool		quoted;			/* values are JSON strings */
} Options;

static const Options defaults = {
	.headers = {"eventType", "aggregateType", "aggregateId"}
};

/*
 * Names that are taken by what is sent anyway; with CC and BCC RabbitMQ would send
 * to more routing keys.
 */
static bool
may_be_header(const char *name, const char *column)
{
	static const char *const taken[] = {
		"id", "CC", "BCC", "aggregate_id", "aggregate_type", "traceparent",
		"tracestate", "x-first-enqueued", NULL
	};

	return strlen(name) <= OUTBOX_SHORT_STRING_MAX &&
		strncmp(name, "x-outbox-", strlen("x-outbox-")) != 0 &&
		(strcmp(name, column) == 0 ||
		 !outbox_format_is_one_of(name, strlen(name), taken));
}

/* Two columns in one header would be a table with a field twice. */
static bool
headers_differ(const char **headers)
{
	for (int i = 0; i < COLUMNS; i++)
		for (int j = 0; j < i; j++)
			if (headers[i] != NULL && headers[j] != NULL &&
				strcmp(headers[i], headers[j]) == 0)
				return false;
	return true;
}

/* Which header a column goes into; null: none. */
static bool
set_headers(void *field, const JsonbValue *value)
{
	const char **headers = field;
	JsonbIterator *it;
	JsonbValue	key;
	JsonbValue	header;

	if (value->type != jbvBinary || !JsonContainerIsObject(value->val.binary.data))
		return false;
	it = JsonbIteratorInit(value->val.binary.data);
	while (outbox_format_next(&it, &key, &header))
	{
		const char *column = outbox_format_choice(&key, columns);
		const char *name = outbox_format_string(&header);
		int			i = 0;

		if (column == NULL || (name == NULL && header.type != jbvNull) ||
			(name != NULL && !may_be_header(name, column)))
			return false;
		while (columns[i] != column)
			i++;
		headers[i] = name;
	}
	return headers_differ(headers);
}

static bool
set_quoted(void *field, const JsonbValue *value)
{
	if (value->type == jbvBool)
		*(bool *) field = value->val.boolean;
	return value->type == jbvBool;
}

/* A value as Debezium's own converter of headers writes it, or as it is. */
static const char *
header_value(const Options *options, const char *value)
{
	StringInfoData json;

	if (value == NULL || !options->quoted)
		return value;
	initStringInfo(&json);
	outbox_encode_json_string(&json, value, strlen(value));
	return json.data;
}

static const char *
format_message(const void *opts, const OutboxFormatMessage *message,
			   const OutboxFormatType *type, OutboxFormatted *out)
{
	const Options *options = opts;
	const char *const values[] = {
		type->names[0], message->aggregate_type, message->aggregate_id
	};

	outbox_format_add_header(out, "id", header_value(options, message->id));
	for (int i = 0; i < COLUMNS; i++)
		if (options->headers[i] != NULL)
			outbox_format_add_header(out, options->headers[i],
									 header_value(options, values[i]));
	return NULL;
}

const OutboxFormatDef outbox_format_debezium = {
	.name = "debezium",
	.max_names = 1,
	.options = {
		{"headers", offsetof(Options, headers),
			"an object with any of event_type, aggregate_type and aggregate_id, whose values are null or different names of headers of at most 255 bytes other than id, CC, BCC and those that outbox sends itself",
		.set = set_headers},
		{"quoted", offsetof(Options, quoted), "true or false", .set = set_quoted}
	},
	.defaults = &defaults,
	.size = sizeof(Options),
	.message = format_message
};
