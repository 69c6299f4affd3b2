/*-------------------------------------------------------------------------
 *
 * format_options.c
 *		A route's format out of its columns: its name and its options.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "encode_json.h"
#include "format_def.h"
#include "format_text.h"
#include "route.h"
#include "utils/memutils.h"

static const OutboxFormatDef *const formats[] = {
#define OUTBOX_FORMAT_REFER(format) &outbox_format_##format,
	OUTBOX_FORMATS(OUTBOX_FORMAT_REFER)
};

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
