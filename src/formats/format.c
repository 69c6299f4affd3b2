/*-------------------------------------------------------------------------
 *
 * format.c
 *		What all formats share: a route's format out of its columns, messages in it,
 *		and what the files of formats are made of.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "encode_json.h"
#include "format_def.h"
#include "format_text.h"
#include "mb/pg_wchar.h"
#include "route.h"
#include "traceparent.h"
#include "utils/memutils.h"

struct OutboxFormat
{
	MemoryContext cxt;
	const char *name;
	const OutboxFormatDef *def; /* NULL: there is none of that name */
	void	   *options;		/* def's own */
	const char *broken;			/* NULL, or why nothing can be sent in it */
	const char *type;			/* template of names; NULL: those listed only */
	bool		type_needs_key; /* it is empty without aggregate_type and _id */
	int			ntypes;			/* exceptions from it */
	OutboxFormatType *types;
};

static const OutboxFormatDef *const formats[] = {
#define OUTBOX_FORMAT_REFER(format) &outbox_format_##format,
	OUTBOX_FORMATS(OUTBOX_FORMAT_REFER)
};

const char *
outbox_format_name(const OutboxFormat *format)
{
	return format->name;
}

/* --------------------------------------- what files of formats are made of */

char *
outbox_format_utf8(const char *text, int len)
{
	return pg_server_to_any(pnstrdup(text, len), len, PG_UTF8);
}

bool
outbox_format_next(JsonbIterator **it, JsonbValue *key, JsonbValue *value)
{
	JsonbIteratorToken token = JsonbIteratorNext(it, key, true);

	if (token == WJB_BEGIN_OBJECT)
		token = JsonbIteratorNext(it, key, true);
	if (token != WJB_KEY)
		return false;
	(void) JsonbIteratorNext(it, value, true);
	return true;
}

char *
outbox_format_string(const JsonbValue *value)
{
	if (value->type != jbvString || value->val.string.len == 0)
		return NULL;
	return outbox_format_utf8(value->val.string.val, value->val.string.len);
}

const char *
outbox_format_choice(const JsonbValue *value, const char *const *choices)
{
	const char *text = outbox_format_string(value);

	for (; text != NULL && *choices != NULL; choices++)
		if (strcmp(text, *choices) == 0)
			return *choices;
	return NULL;
}

char *
outbox_format_render(const char *template, const OutboxFormatMessage *message)
{
	char		one[1];
	size_t		len = outbox_route_render(template, message->event_type,
										  message->aggregate_type,
										  message->aggregate_id, one, sizeof(one));
	char	   *text = palloc(len + 1);

	(void) outbox_route_render(template, message->event_type,
							   message->aggregate_type, message->aggregate_id,
							   text, len + 1);
	return text;
}

const char *
outbox_format_traceparent(const OutboxFormatMessage *message)
{
	OutboxTraceparent parsed;

	if (message->traceparent == NULL ||
		outbox_traceparent_parse(message->traceparent,
								 strlen(message->traceparent), &parsed) != NULL)
		return NULL;
	return message->traceparent;
}

const char *
outbox_format_content_type(const OutboxFormatMessage *message)
{
	if (message->content_type != NULL)
		return message->content_type;
	return message->payload != NULL ? "application/json" : "application/octet-stream";
}

void
outbox_format_add_header(OutboxFormatted *out, const char *name, const char *text)
{
	if (text == NULL)
		return;
	Assert(out->nheaders < OUTBOX_FORMAT_HEADERS);
	out->headers[out->nheaders].name = name;
	out->headers[out->nheaders].text = text;
	out->nheaders++;
}

void
outbox_format_put_member(StringInfo json, const char *name, const char *text)
{
	if (text == NULL)
		return;
	if (json->len > 1)
		appendStringInfoString(json, ", ");
	appendStringInfo(json, "\"%s\": ", name);
	outbox_encode_json_string(json, text, strlen(text));
}

bool
outbox_format_is_one_of(const char *name, size_t len, const char *const *names)
{
	for (; *names != NULL; names++)
		if (len == strlen(*names) && memcmp(name, *names, len) == 0)
			return true;
	return false;
}

/* ------------------------------------------------- options of all formats */

static const char *
set_type(OutboxFormat *format, const JsonbValue *value)
{
	const OutboxFormatMessage no_key = {.event_type = "x"};
	const char *template = outbox_format_string(value);

	if (template == NULL || outbox_route_template_error(template) != NULL)
		return "a string; in braces may stand {event_type}, {aggregate_type} and {aggregate_id}";
	if (!outbox_is_attribute_text(template))
		return "a string without control characters and noncharacters";
	format->type = template;
	format->type_needs_key = *outbox_format_render(template, &no_key) == '\0';
	return NULL;
}

static const char *
add_name(OutboxFormatType *type, const JsonbValue *value)
{
	const char *name = outbox_format_string(value);

	if (name == NULL || !outbox_is_attribute_text(name))
		return "an object of strings that are not empty and have no control characters and noncharacters";
	type->names[type->nnames++] = name;
	return NULL;
}

/* One name, or as many as the format can say. */
static const char *
set_names(OutboxFormatType *type, const JsonbValue *value, int most)
{
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
	JsonbValue	key;
	JsonbValue	names;

	if (value->type != jbvBinary || !JsonContainerIsObject(value->val.binary.data))
		return "an object";
	format->types = palloc0(sizeof(OutboxFormatType) *
							(JsonContainerSize(value->val.binary.data) + 1));
	it = JsonbIteratorInit(value->val.binary.data);
	while (outbox_format_next(&it, &key, &names))
	{
		OutboxFormatType *type = &format->types[format->ntypes++];
		const char *wrong;

		type->event_type = outbox_format_utf8(key.val.string.val, key.val.string.len);
		wrong = set_names(type, &names, format->def->max_names);
		if (wrong != NULL)
			return wrong;
	}
	return NULL;
}

/* ------------------------------------------------------ out of the columns */

static const char *
format_names(void)
{
	StringInfoData names;

	initStringInfo(&names);
	appendStringInfoString(&names, OUTBOX_NO_FORMAT);
	for (int i = 0; i < (int) lengthof(formats); i++)
		appendStringInfo(&names, i < (int) lengthof(formats) - 1 ? ", %s" : " and %s",
						 formats[i]->name);
	return names.data;
}

static const char *
keys_hint(const OutboxFormatDef *def)
{
	StringInfoData keys;

	initStringInfo(&keys);
	appendStringInfoString(&keys, "Its keys are type, types");
	for (const OutboxFormatOption *option = def->options; option->key != NULL; option++)
		appendStringInfo(&keys, ", %s", option->key);
	appendStringInfoChar(&keys, '.');
	return keys.data;
}

/* Returns NULL, or what the value must be. */
static const char *
set_own_option(OutboxFormat *format, const OutboxFormatOption *option,
			   const JsonbValue *value)
{
	void	   *field = (char *) format->options + option->offset;
	const char *text;

	if (option->set != NULL)
		return option->set(field, value) ? NULL : option->rule;
	text = option->choices != NULL ? outbox_format_choice(value, option->choices) :
		outbox_format_string(value);
	if (text == NULL || (option->is_valid != NULL && !option->is_valid(text)))
		return option->rule;
	*(const char **) field = text;
	return NULL;
}

static void
set_option(OutboxFormat *format, const char *key, const JsonbValue *value,
		   OutboxFormatError *error)
{
	const OutboxFormatOption *option = format->def->options;
	const char *wrong;

	while (option->key != NULL && strcmp(option->key, key) != 0)
		option++;
	if (strcmp(key, "type") == 0)
		wrong = set_type(format, value);
	else if (strcmp(key, "types") == 0)
		wrong = set_types(format, value);
	else if (option->key != NULL)
		wrong = set_own_option(format, option, value);
	else
	{
		error->message = psprintf("format_options has the key \"%s\", which the format %s has not",
								  key, format->name);
		error->hint = keys_hint(format->def);
		return;
	}
	if (wrong != NULL)
		error->message = psprintf("\"%s\" in format_options must be %s", key, wrong);
}

/* Is it said that there are none? */
static bool
no_options(const Jsonb *object)
{
	return object == NULL || outbox_is_json_null(object) ||
		(JB_ROOT_IS_OBJECT(object) && JB_ROOT_COUNT(object) == 0);
}

static void
read_options(OutboxFormat *format, const Jsonb *object, OutboxFormatError *error)
{
	JsonbIterator *it;
	JsonbValue	key;
	JsonbValue	value;

	if (no_options(object))
		return;
	if (!JB_ROOT_IS_OBJECT(object))
	{
		error->message = "format_options must be a JSON object";
		return;
	}
	it = JsonbIteratorInit(unconstify(JsonbContainer *, &object->root));
	while (error->message == NULL && outbox_format_next(&it, &key, &value))
		set_option(format, pnstrdup(key.val.string.val, key.val.string.len), &value, error);
}

/*
 * The type is what runs at the consumer, and whoever may enqueue chooses the event
 * type: the route has to say which code that may be.
 */
static void
check_code(const OutboxFormat *format, OutboxFormatError *error)
{
	if (format->type == NULL ? format->ntypes > 0 : *format->type != '{')
		return;
	error->message = psprintf("format_options must say which code the format %s may run",
							  format->name);
	error->hint = "List the event types in \"types\", or begin \"type\" with a constant part, as in \"shop.tasks.{event_type}\".";
}

static void
fill_format(OutboxFormat *format, const OutboxFormatDef *def, const Jsonb *object,
			OutboxFormatError *error)
{
	format->def = def;
	format->type = def->names_code ? NULL : "{event_type}";
	if (def->size > 0)
		format->options = memcpy(palloc(def->size), def->defaults, def->size);
	read_options(format, object, error);
	if (error->message == NULL && def->check != NULL)
		def->check(format->options, error);
	if (error->message == NULL && def->names_code)
		check_code(format, error);
}

static OutboxFormat *
make_format(MemoryContext cxt, const char *name, const Jsonb *object,
			OutboxFormatError *error)
{
	OutboxFormat *format = palloc0(sizeof(OutboxFormat));

	format->cxt = cxt;
	format->name = pstrdup(name);
	for (int i = 0; i < (int) lengthof(formats); i++)
		if (strcmp(name, formats[i]->name) == 0)
			fill_format(format, formats[i], object, error);
	if (strcmp(name, OUTBOX_NO_FORMAT) == 0)
		error->message = "format_options must be null where the format is " OUTBOX_NO_FORMAT;
	else if (format->def == NULL)
	{
		error->message = "format must be one that is known";
		error->hint = psprintf("They are %s.", format_names());
	}
	format->broken = error->message;
	return format;
}

OutboxFormat *
outbox_format_make(MemoryContext parent, const char *name, const Jsonb *object,
				   OutboxFormatError *error)
{
	OutboxFormatError found = {NULL, NULL};
	MemoryContext cxt;
	MemoryContext old;
	OutboxFormat *format;

	if (name == NULL || (strcmp(name, OUTBOX_NO_FORMAT) == 0 && no_options(object)))
		return NULL;
	/* After an error it goes with the current context. */
	cxt = AllocSetContextCreate(CurrentMemoryContext, "outbox format", ALLOCSET_SMALL_SIZES);
	old = MemoryContextSwitchTo(cxt);
	format = make_format(cxt, name, object, &found);
	MemoryContextSwitchTo(old);
	MemoryContextSetParent(cxt, parent);
	if (error != NULL)
		*error = found;
	return format;
}

void
outbox_format_free(OutboxFormat *format)
{
	if (format != NULL)
		MemoryContextDelete(format->cxt);
}

/* ---------------------------------------------------------------- messages */

static const char *
check_headers(const OutboxFormat *format, const Jsonb *headers)
{
	const OutboxFormatDef *def = format->def;
	JsonbIterator *it;
	JsonbValue	name;
	JsonbValue	value;
	const char *reason = NULL;

	if (headers == NULL || def == NULL || (def->refused == NULL && def->header == NULL))
		return NULL;
	it = JsonbIteratorInit(unconstify(JsonbContainer *, &headers->root));
	while (reason == NULL && outbox_format_next(&it, &name, &value))
	{
		const char *text = name.val.string.val;
		int			len = name.val.string.len;

		if (def->refused != NULL && outbox_format_is_one_of(text, len, def->refused))
			reason = def->refused_reason;
		else if (def->header != NULL)
			reason = def->header(format->options, text, len, value.type == jbvString);
	}
	return reason;
}

/* NULL: the format has no type for it. */
static const OutboxFormatType *
type_of(const OutboxFormat *format, const OutboxFormatMessage *message)
{
	OutboxFormatType *type;

	for (int i = 0; i < format->ntypes; i++)
		if (strcmp(format->types[i].event_type, message->event_type) == 0)
			return &format->types[i];
	if (format->type == NULL)
		return NULL;
	type = palloc(sizeof(OutboxFormatType));
	type->nnames = 1;
	type->names = palloc(sizeof(char *));
	type->names[0] = outbox_format_render(format->type, message);
	return type;
}

/* No consumer knows what to do with a message that has none. */
static const char *
check_type(const OutboxFormat *format, const OutboxFormatType *type)
{
	if (type == NULL)
		return psprintf("event_type must be one that \"types\" in format_options lists in the format %s, where it names code",
						format->name);
	if (format->type_needs_key && *type->names[0] == '\0')
		return "aggregate_type or aggregate_id is missing, of which alone the name of the type is made";
	return NULL;
}

static const char *
check_payload(const OutboxFormat *format, const OutboxFormatMessage *message)
{
	if (!format->def->needs_payload)
		return NULL;
	if (message->payload == NULL)
		return psprintf("body cannot be sent in the format %s, which needs JSON: payload must be given",
						format->name);
	if (message->content_encoding != NULL &&
		pg_strcasecmp(message->content_encoding, "utf-8") != 0)
		return psprintf("property content_encoding must be utf-8 or absent in the format %s, whose body is a JSON document",
						format->name);
	return NULL;
}

const char *
outbox_format_message(const OutboxFormat *format,
					  const OutboxFormatMessage *message, OutboxFormatted *out)
{
	const char *reason = check_headers(format, message->headers);
	const OutboxFormatType *type;

	memset(out, 0, sizeof(*out));
	if (reason != NULL)
		return reason;
	if (format->broken != NULL)
		return psprintf("route has an unusable format: %s", format->broken);
	type = type_of(format, message);
	reason = check_type(format, type);
	if (reason == NULL)
		reason = check_payload(format, message);
	return reason != NULL ? reason :
		format->def->message(format->options, message, type, out);
}

size_t
outbox_format_header_size(const OutboxFormatted *formatted)
{
	size_t		size = 0;

	for (int i = 0; i < formatted->nheaders; i++)
		size += 1 + strlen(formatted->headers[i].name) +
			1 + 4 + strlen(formatted->headers[i].text);
	if (formatted->content_type != NULL)
		size += strlen(formatted->content_type);
	if (formatted->content_encoding != NULL)
		size += 1 + strlen(formatted->content_encoding);
	if (formatted->correlation_id != NULL)
		size += 1 + strlen(formatted->correlation_id);
	return size;
}

size_t
outbox_format_body_size(const OutboxFormatted *formatted, size_t data)
{
	if (formatted->base64)
		data = outbox_base64_size(data);
	if (formatted->prefix != NULL)
		data += strlen(formatted->prefix) + strlen(formatted->suffix);
	return data;
}

char *
outbox_format_body(const OutboxFormatted *formatted, char *data, size_t *len)
{
	StringInfoData out;

	if (formatted->prefix == NULL)
		return data;
	initStringInfo(&out);
	enlargeStringInfo(&out, Min(outbox_format_body_size(formatted, *len),
								(size_t) PG_INT32_MAX));
	appendStringInfoString(&out, formatted->prefix);
	if (formatted->base64)
	{
		outbox_base64(data, *len, out.data + out.len);
		out.len += outbox_base64_size(*len);
	}
	else
		appendBinaryStringInfoNT(&out, data, *len);
	appendStringInfoString(&out, formatted->suffix);
	*len = out.len;
	return out.data;
}
