/*-------------------------------------------------------------------------
 *
 * format_options.c
 *		A format out of the columns format and format_options of outbox_route.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "encode_json.h"
#include "format_internal.h"
#include "format_text.h"
#include "mb/pg_wchar.h"
#include "route.h"
#include "utils/memutils.h"

#define FOR(kind)		(1 << OUTBOX_FORMAT_##kind)
#define FOR_ALL			(~0)

/* ------------------------------------------------------------------- values */

char *
outbox_format_utf8(const char *text, int len)
{
	char	   *copy = pnstrdup(text, len);

	return pg_server_to_any(copy, len, PG_UTF8);
}

/* NULL: it is no string, or an empty one. */
static char *
string_of(const JsonbValue *value)
{
	if (value->type != jbvString || value->val.string.len == 0)
		return NULL;
	return outbox_format_utf8(value->val.string.val, value->val.string.len);
}

/*
 * One of the values that there are, as it stands in choices, which ends with NULL;
 * NULL: another one.
 */
static const char *
choice_of(const JsonbValue *value, const char *const *choices)
{
	const char *text = string_of(value);

	for (; text != NULL && *choices != NULL; choices++)
		if (strcmp(text, *choices) == 0)
			return *choices;
	return NULL;
}

/* What a template is like where each part of the message is one letter. */
static char *
sample(const char *template)
{
	OutboxFormatMessage message = {
		.event_type = "x", .aggregate_type = "x", .aggregate_id = "x"
	};

	return outbox_format_render(template, &message);
}

/* ------------------------------------------------------------------ options */

/* They return NULL, or what the value has to be. */

static const char *
set_type(OutboxFormat *format, const JsonbValue *value)
{
	static const char *const wrong =
		"a string; in braces may stand {event_type}, {aggregate_type} and {aggregate_id}";
	const OutboxFormatMessage no_key = {.event_type = "x"};
	const char *template = string_of(value);

	if (template == NULL || outbox_route_template_error(template) != NULL)
		return wrong;
	if (!outbox_is_attribute_text(template))
		return "a string without control characters and noncharacters";
	format->type = template;
	format->type_needs_key = *outbox_format_render(template, &no_key) == '\0';
	return NULL;
}

static const char *
add_name(OutboxFormatType *type, const JsonbValue *value)
{
	const char *name = string_of(value);

	if (name == NULL || !outbox_is_attribute_text(name))
		return "an object of strings that are not empty and have no control characters and noncharacters";
	type->names[type->nnames++] = name;
	return NULL;
}

/* How many names of a type a format can say. */
static int
most_names(OutboxFormatKind kind)
{
	switch (kind)
	{
		case OUTBOX_FORMAT_MASSTRANSIT:
		case OUTBOX_FORMAT_NSERVICEBUS:
			return 100;
		case OUTBOX_FORMAT_SPRING:
			return 3;
		default:
			return 1;
	}
}

/* One name, or as many as the format can say. */
static const char *
set_names(const OutboxFormat *format, OutboxFormatType *type, const JsonbValue *value)
{
	int			most = most_names(format->kind);
	JsonbIterator *it;
	JsonbValue	item;
	const char *wrong = NULL;

	if (value->type != jbvBinary)
	{
		type->names = palloc(sizeof(char *));
		return add_name(type, value);
	}
	if (!JsonContainerIsArray(value->val.binary.data) ||
		JsonContainerSize(value->val.binary.data) < 1 ||
		JsonContainerSize(value->val.binary.data) > most)
		return most == 1 ? "an object of strings" :
			psprintf("an object of strings, or arrays of 1 to %d of them", most);
	type->names = palloc(sizeof(char *) * JsonContainerSize(value->val.binary.data));
	it = JsonbIteratorInit(value->val.binary.data);
	(void) JsonbIteratorNext(&it, &item, true);
	while (wrong == NULL && JsonbIteratorNext(&it, &item, true) == WJB_ELEM)
		wrong = add_name(type, &item);
	return wrong;
}

static const char *
set_types(OutboxFormat *format, const JsonbValue *value)
{
	JsonbIterator *it;
	JsonbValue	item;

	if (value->type != jbvBinary || !JsonContainerIsObject(value->val.binary.data))
		return "an object";
	format->types = palloc0(sizeof(OutboxFormatType) *
							(JsonContainerSize(value->val.binary.data) + 1));
	it = JsonbIteratorInit(value->val.binary.data);
	(void) JsonbIteratorNext(&it, &item, true);
	while (JsonbIteratorNext(&it, &item, true) == WJB_KEY)
	{
		OutboxFormatType *type = &format->types[format->ntypes++];
		const char *wrong;

		type->event_type = outbox_format_utf8(item.val.string.val, item.val.string.len);
		(void) JsonbIteratorNext(&it, &item, true);
		wrong = set_names(format, type, &item);
		if (wrong != NULL)
			return wrong;
	}
	return NULL;
}

static const char *
set_mode(OutboxFormat *format, const JsonbValue *value)
{
	static const char *const modes[] = {"binary", "structured", NULL};
	const char *mode = choice_of(value, modes);

	if (mode == NULL)
		return "binary or structured";
	format->structured = mode == modes[1];
	return NULL;
}

static const char *
set_source(OutboxFormat *format, const JsonbValue *value)
{
	const char *template = string_of(value);

	if (template == NULL || outbox_route_template_error(template) != NULL ||
		!outbox_is_uri_reference(sample(template)))
		return "a URI-reference (RFC 3986); in braces may stand {event_type}, {aggregate_type} and {aggregate_id}";
	format->source = template;
	return NULL;
}

static const char *
set_dataschema(OutboxFormat *format, const JsonbValue *value)
{
	const char *template = string_of(value);

	if (template == NULL || outbox_route_template_error(template) != NULL ||
		!outbox_is_absolute_uri(sample(template)))
		return "an absolute URI (RFC 3986) without a fragment; in braces may stand {event_type}, {aggregate_type} and {aggregate_id}";
	format->dataschema = template;
	return NULL;
}

static const char *
set_prefix(OutboxFormat *format, const JsonbValue *value)
{
	static const char *const prefixes[] = {OUTBOX_CLOUDEVENTS_PREFIXES, NULL};

	format->prefix = choice_of(value, prefixes);
	return format->prefix == NULL ? "cloudEvents:, cloudEvents_ or ce-" : NULL;
}

static const char *
set_quoted(OutboxFormat *format, const JsonbValue *value)
{
	if (value->type != jbvBool)
		return "true or false";
	format->quoted = value->val.boolean;
	return NULL;
}

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
headers_differ(const OutboxFormat *format)
{
	for (int i = 0; i < OUTBOX_DEBEZIUM_HEADERS; i++)
		for (int j = 0; j < i; j++)
			if (format->headers[i] != NULL && format->headers[j] != NULL &&
				strcmp(format->headers[i], format->headers[j]) == 0)
				return false;
	return true;
}

/* Which header a column goes into; null: none. */
static const char *
set_headers(OutboxFormat *format, const JsonbValue *value)
{
	static const char *const columns[] = {
		[OUTBOX_DEBEZIUM_EVENT_TYPE] = "event_type",
		[OUTBOX_DEBEZIUM_AGGREGATE_TYPE] = "aggregate_type",
		[OUTBOX_DEBEZIUM_AGGREGATE_ID] = "aggregate_id",
		NULL
	};
	static const char *const wrong =
		"an object with any of event_type, aggregate_type and aggregate_id, whose values are null or different names of headers of at most 255 bytes other than id, CC, BCC and those that outbox sends itself";
	JsonbIterator *it;
	JsonbValue	item;

	if (value->type != jbvBinary || !JsonContainerIsObject(value->val.binary.data))
		return wrong;
	it = JsonbIteratorInit(value->val.binary.data);
	(void) JsonbIteratorNext(&it, &item, true);
	while (JsonbIteratorNext(&it, &item, true) == WJB_KEY)
	{
		const char *column = choice_of(&item, columns);
		const char *name;
		int			i = 0;

		(void) JsonbIteratorNext(&it, &item, true);
		name = string_of(&item);
		if (column == NULL || (name == NULL && item.type != jbvNull) ||
			(name != NULL && !may_be_header(name, column)))
			return wrong;
		while (columns[i] != column)
			i++;
		format->headers[i] = name;
	}
	return headers_differ(format) ? NULL : wrong;
}

static const char *
set_address(OutboxFormat *format, const JsonbValue *value, int which)
{
	const char *uri = string_of(value);

	if (uri == NULL || !outbox_is_absolute_uri(uri))
		return "an absolute URI (RFC 3986) like rabbitmq://host/vhost/exchange";
	format->addresses[which] = uri;
	return NULL;
}

static const char *
set_source_address(OutboxFormat *format, const JsonbValue *value)
{
	return set_address(format, value, 0);
}

static const char *
set_destination_address(OutboxFormat *format, const JsonbValue *value)
{
	return set_address(format, value, 1);
}

static const char *
set_response_address(OutboxFormat *format, const JsonbValue *value)
{
	return set_address(format, value, 2);
}

static const char *
set_fault_address(OutboxFormat *format, const JsonbValue *value)
{
	return set_address(format, value, 3);
}

static const char *
set_intent(OutboxFormat *format, const JsonbValue *value)
{
	static const char *const intents[] = {"Publish", "Send", NULL};

	format->intent = choice_of(value, intents);
	return format->intent == NULL ? "Publish or Send" : NULL;
}

static const char *
set_endpoint(OutboxFormat *format, const JsonbValue *value)
{
	format->endpoint = string_of(value);
	return format->endpoint == NULL || !outbox_is_attribute_text(format->endpoint) ?
		"a string that is not empty and has no control characters" : NULL;
}

static const char *
set_payload(OutboxFormat *format, const JsonbValue *value)
{
	static const char *const ways[] = {"arguments", "argument", NULL};
	const char *way = choice_of(value, ways);

	format->one_argument = way == ways[1];
	return way == NULL ? "arguments or argument" : NULL;
}

/* Keys of format_options. */
static const struct
{
	const char *key;
	int			kinds;			/* who has it */
	const char *(*set) (OutboxFormat *format, const JsonbValue *value);
}			options[] = {
	{"type", FOR_ALL, set_type},
	{"types", FOR_ALL, set_types},
	{"mode", FOR(CLOUDEVENTS), set_mode},
	{"source", FOR(CLOUDEVENTS), set_source},
	{"dataschema", FOR(CLOUDEVENTS), set_dataschema},
	{"prefix", FOR(CLOUDEVENTS), set_prefix},
	{"headers", FOR(DEBEZIUM), set_headers},
	{"quoted", FOR(DEBEZIUM), set_quoted},
	{"sourceAddress", FOR(MASSTRANSIT), set_source_address},
	{"destinationAddress", FOR(MASSTRANSIT), set_destination_address},
	{"responseAddress", FOR(MASSTRANSIT), set_response_address},
	{"faultAddress", FOR(MASSTRANSIT), set_fault_address},
	{"intent", FOR(NSERVICEBUS), set_intent},
	{"endpoint", FOR(NSERVICEBUS), set_endpoint},
	{"payload", FOR(CELERY), set_payload}
};

/* -------------------------------------------------------------------- errors */

const char *
outbox_format_names(void)
{
	StringInfoData names;

	initStringInfo(&names);
	appendStringInfoString(&names, "plain");
	for (int i = 0; i < OUTBOX_FORMAT_KINDS; i++)
		appendStringInfo(&names, i < OUTBOX_FORMAT_KINDS - 1 ? ", %s" : " and %s",
						 outbox_format_kinds[i]);
	return names.data;
}

static const char *
keys_hint(int kind)
{
	StringInfoData keys;

	initStringInfo(&keys);
	appendStringInfo(&keys, "Its keys are");
	for (int i = 0; i < (int) lengthof(options); i++)
		if (options[i].kinds & (1 << kind))
			appendStringInfo(&keys, "%s %s", i == 0 ? "" : ",", options[i].key);
	appendStringInfoChar(&keys, '.');
	return keys.data;
}

static void
fail(OutboxFormat *format, OutboxFormatError *error, const char *message,
	 const char *hint)
{
	format->broken = message;
	if (error == NULL)
		return;
	error->message = message;
	error->hint = hint;
}

/* --------------------------------------------------------------- the whole */

/* Is it said that there are none? */
static bool
no_options(const Jsonb *object)
{
	return object == NULL || outbox_is_json_null(object) ||
		(JB_ROOT_IS_OBJECT(object) && JB_ROOT_COUNT(object) == 0);
}

static void
set_option(OutboxFormat *format, const char *key, const JsonbValue *value,
		   OutboxFormatError *error)
{
	const char *wrong;

	for (int i = 0; i < (int) lengthof(options); i++)
	{
		if (strcmp(key, options[i].key) != 0 ||
			(options[i].kinds & (1 << format->kind)) == 0)
			continue;
		wrong = options[i].set(format, value);
		if (wrong != NULL)
			fail(format, error,
				 psprintf("\"%s\" in format_options must be %s", key, wrong), NULL);
		return;
	}
	fail(format, error, psprintf("format_options has the key \"%s\", which the format %s has not",
								 key, outbox_format_name(format)),
		 keys_hint(format->kind));
}

static void
read_options(OutboxFormat *format, const Jsonb *object, OutboxFormatError *error)
{
	JsonbIterator *it;
	JsonbValue	item;

	if (no_options(object))
		return;
	if (!JB_ROOT_IS_OBJECT(object))
	{
		fail(format, error, "format_options must be a JSON object", NULL);
		return;
	}
	it = JsonbIteratorInit(unconstify(JsonbContainer *, &object->root));
	(void) JsonbIteratorNext(&it, &item, true);
	while (format->broken == NULL && JsonbIteratorNext(&it, &item, true) == WJB_KEY)
	{
		char	   *key = pnstrdup(item.val.string.val, item.val.string.len);

		(void) JsonbIteratorNext(&it, &item, true);
		set_option(format, key, &item, error);
	}
}

static bool
names_code(OutboxFormatKind kind)
{
	return kind == OUTBOX_FORMAT_CELERY || kind == OUTBOX_FORMAT_LARAVEL;
}

static void
check_complete(OutboxFormat *format, OutboxFormatError *error)
{
	if (format->broken == NULL && format->kind == OUTBOX_FORMAT_CLOUDEVENTS &&
		format->source == NULL)
		fail(format, error, "\"source\" is missing in format_options",
			 "A CloudEvent says where it comes from: give a URI-reference like /orders or https://example.com/orders.");
}

/*
 * The type is what runs at the consumer, and whoever may enqueue chooses the event
 * type: the route has to say which code that may be.
 */
static void
check_code(OutboxFormat *format, OutboxFormatError *error)
{
	if (!names_code(format->kind) || format->broken != NULL)
		return;
	if (format->type == NULL ? format->ntypes == 0 : *format->type == '{')
		fail(format, error,
			 psprintf("format_options must say which code the format %s may run",
					  outbox_format_name(format)),
			 "List the event types in \"types\", or begin \"type\" with a constant part, as in \"shop.tasks.{event_type}\".");
}

/* -1: there is none of that name. */
static int
kind_of(const char *name)
{
	for (int i = 0; i < OUTBOX_FORMAT_KINDS; i++)
		if (strcmp(name, outbox_format_kinds[i]) == 0)
			return i;
	return -1;
}

static OutboxFormat *
make_format(MemoryContext cxt, const char *name, const Jsonb *object,
			OutboxFormatError *error)
{
	OutboxFormat *format = palloc0(sizeof(OutboxFormat));
	int			kind = kind_of(name);

	format->cxt = cxt;
	format->type = "{event_type}";
	format->prefix = "cloudEvents:";
	format->intent = "Publish";
	format->headers[OUTBOX_DEBEZIUM_EVENT_TYPE] = "eventType";
	format->headers[OUTBOX_DEBEZIUM_AGGREGATE_TYPE] = "aggregateType";
	format->headers[OUTBOX_DEBEZIUM_AGGREGATE_ID] = "aggregateId";
	if (strcmp(name, "plain") == 0)
		fail(format, error, "format_options must be null where the format is plain",
			 NULL);
	else if (kind < 0)
		fail(format, error, "format must be one that is known",
			 psprintf("They are %s.", outbox_format_names()));
	else
	{
		format->kind = kind;
		if (names_code(format->kind))
			format->type = NULL;
		read_options(format, object, error);
		check_complete(format, error);
		check_code(format, error);
	}
	return format;
}

OutboxFormat *
outbox_format_make(MemoryContext parent, const char *name, const Jsonb *object,
				   OutboxFormatError *error)
{
	MemoryContext cxt;
	MemoryContext old;
	OutboxFormat *format;

	if (name == NULL || (strcmp(name, "plain") == 0 && no_options(object)))
		return NULL;
	cxt = AllocSetContextCreate(parent, "outbox format", ALLOCSET_SMALL_SIZES);
	old = MemoryContextSwitchTo(cxt);
	format = make_format(cxt, name, object, error);
	MemoryContextSwitchTo(old);
	return format;
}

void
outbox_format_free(OutboxFormat *format)
{
	if (format != NULL)
		MemoryContextDelete(format->cxt);
}
