/*-------------------------------------------------------------------------
 *
 * cloudevents.c
 *		CloudEvents 1.0.2, by its binding to AMQP and its JSON format.
 *
 * In mode binary the attributes are headers and the body is the data; in mode
 * structured the body is a JSON document of both.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "encode_json.h"
#include "format_def.h"
#include "format_text.h"
#include "route.h"
#include "traceparent.h"

#define STRUCTURED_TYPE		"application/cloudevents+json; charset=UTF-8"

/*
 * What names of attributes begin with in headers: as the binding to AMQP says, with
 * ':' as all SDKs read it, or with '_' for JMS; and as Knative's for RabbitMQ says.
 */
static const char *const prefixes[] = {"cloudEvents:", "cloudEvents_", "ce-", NULL};
static const char *const modes[] = {"binary", "structured", NULL};

typedef struct Options
{
	const char *mode;			/* one of modes; NULL: the first */
	const char *source;			/* template, checked with each message */
	const char *dataschema;		/* likewise, or NULL */
	const char *prefix;			/* one of prefixes */
} Options;

static const Options defaults = {.prefix = "cloudEvents:"};

typedef struct Attribute
{
	const char *name;
	const char *value;			/* NULL: it has none */
} Attribute;

/* ----------------------------------------------------------------- options */

/* What a template is like where each part of the message is one letter; NULL: none. */
static const char *
sample(const char *template)
{
	const OutboxFormatMessage message = {
		.event_type = "x", .aggregate_type = "x", .aggregate_id = "x"
	};

	return outbox_route_template_error(template) != NULL ? NULL :
		outbox_format_render(template, &message);
}

static bool
is_source(const char *template)
{
	const char *source = sample(template);

	return source != NULL && outbox_is_uri_reference(source);
}

static bool
is_dataschema(const char *template)
{
	const char *dataschema = sample(template);

	return dataschema != NULL && outbox_is_absolute_uri(dataschema);
}

static void
check_options(const void *options, OutboxFormatError *error)
{
	if (((const Options *) options)->source != NULL)
		return;
	error->message = "\"source\" is missing in format_options";
	error->hint = "A CloudEvent says where it comes from: give a URI-reference like /orders or https://example.com/orders.";
}

/* ---------------------------------------------------------------- messages */

/* The argument to name in the error when a template made an invalid value of it. */
static const char *
culprit(const OutboxFormatMessage *message, bool (*is_fine) (const char *))
{
	if (!is_fine(message->event_type))
		return "event_type";
	if (message->aggregate_type != NULL && !is_fine(message->aggregate_type))
		return "aggregate_type";
	if (message->aggregate_id != NULL && !is_fine(message->aggregate_id))
		return "aggregate_id";
	return "event_type, aggregate_type or aggregate_id";
}

/* Returns NULL, or why the message is no CloudEvent. */
static const char *
check_attributes(const OutboxFormatMessage *message, const char *type, const char *source,
				 const char *dataschema, const char *content_type)
{
	if (!outbox_is_attribute_text(type))
		return psprintf("%s has control characters or noncharacters, which attributes of CloudEvents must not have",
						culprit(message, outbox_is_attribute_text));
	if (message->aggregate_id != NULL && !outbox_is_attribute_text(message->aggregate_id))
		return "aggregate_id has control characters or noncharacters, which attributes of CloudEvents must not have";
	if (!outbox_is_uri_reference(source))
		return psprintf("%s makes a source that is no URI-reference, as CloudEvents must have one",
						culprit(message, outbox_is_uri_reference));
	if (dataschema != NULL && !outbox_is_absolute_uri(dataschema))
		return psprintf("%s makes a dataschema that is no absolute URI, as CloudEvents must have one",
						culprit(message, outbox_is_uri_reference));
	if (!outbox_is_media_type(content_type))
		return "property content_type is no media type, as CloudEvents must have one";
	/* Such a one is taken for a structured event, whatever its headers say. */
	if (pg_strncasecmp(content_type, "application/cloudevents",
					   strlen("application/cloudevents")) == 0)
		return "property content_type must be that of the data, and not one of CloudEvents";
	return NULL;
}

/* The trace context, where it is one; anything else stays an ordinary header. */
static const char *
tracestate_of(const OutboxFormatMessage *message)
{
	if (message->tracestate == NULL || outbox_format_traceparent(message) == NULL ||
		outbox_tracestate_check(message->tracestate,
								strlen(message->tracestate)) != NULL)
		return NULL;
	return message->tracestate;
}

/* The names that are no extension's. */
static const char *const reserved[] = {
	"id", "source", "type", "specversion", "time", "subject",
	"datacontenttype", "dataschema", "data", NULL
};

static bool
is_extension_name(const char *name, size_t len)
{
	for (size_t i = 0; i < len; i++)
		if (!((name[i] >= 'a' && name[i] <= 'z') ||
			  (name[i] >= '0' && name[i] <= '9')))
			return false;
	return len > 0;
}

/*
 * A header of the user's with the prefix goes out as an extension attribute, so it
 * has to be one.  With any prefix that consumers know, as some read several.
 */
static const char *
check_header(const void *options, const char *name, size_t len, const char *value)
{
	size_t		n = 0;

	for (int i = 0; prefixes[i] != NULL; i++)
		if (len >= strlen(prefixes[i]) && memcmp(name, prefixes[i], strlen(prefixes[i])) == 0)
			n = strlen(prefixes[i]);
	if (n == 0)
		return NULL;
	if (((const Options *) options)->mode == modes[1])
		return "headers must not name attributes of CloudEvents in mode structured, which has them in the body";
	if (outbox_format_is_one_of(name + n, len - n, reserved))
		return "headers must not name an attribute of CloudEvents that the message and its route have";
	if (!is_extension_name(name + n, len - n))
		return "headers have an extension attribute of CloudEvents whose name is not of lower-case letters and digits";
	if (value == NULL)
		return "headers have an extension attribute of CloudEvents that is no string";
	if (!outbox_is_attribute_text(value))
		return "headers have an extension attribute with control characters or noncharacters, which attributes of CloudEvents must not have";
	return NULL;
}

static const char *
write_structured(const OutboxFormatMessage *message, const Attribute *attributes,
				 int n, const char *datacontenttype, OutboxFormatted *out)
{
	const char *problem = outbox_format_refuse_encoding(message, "mode structured of",
														"CloudEvents");
	StringInfoData json;

	if (problem != NULL)
		return problem;
	initStringInfo(&json);
	appendStringInfoChar(&json, '{');
	for (int i = 0; i < n; i++)
		outbox_format_put_member(&json, attributes[i].name, attributes[i].value);
	outbox_format_put_member(&json, "datacontenttype", datacontenttype);
	out->base64 = message->payload == NULL ||
		!outbox_is_json_media_type(datacontenttype);
	appendStringInfoString(&json, out->base64 ? ", \"data_base64\": \"" : ", \"data\": ");
	out->prefix = json.data;
	out->suffix = out->base64 ? "\"}" : "}";
	out->content_type = STRUCTURED_TYPE;
	return NULL;
}

static const char *
format_message(const void *opts, const OutboxFormatMessage *message,
			   const OutboxFormatType *type, OutboxFormatted *out)
{
	const Options *options = opts;
	const char *source = outbox_format_render(options->source, message);
	const char *dataschema = options->dataschema == NULL ? NULL :
		outbox_format_render(options->dataschema, message);
	const char *datacontenttype = outbox_format_content_type(message);
	const Attribute attributes[] = {
		{"specversion", "1.0"},
		{"id", message->id},
		{"source", source},
		{"type", type->names[0]},
		{"time", outbox_rfc3339(message->created_at)},
		{"subject", message->aggregate_id},
		{"dataschema", dataschema},
		{"traceparent", outbox_format_traceparent(message)},
		{"tracestate", tracestate_of(message)}
	};
	const char *reason = check_attributes(message, type->names[0], source, dataschema,
										  datacontenttype);

	if (reason != NULL)
		return reason;
	if (options->mode == modes[1])
		return write_structured(message, attributes, lengthof(attributes),
								datacontenttype, out);
	for (int i = 0; i < (int) lengthof(attributes); i++)
		if (attributes[i].value != NULL)
			outbox_format_add_header(out,
									 psprintf("%s%s", options->prefix, attributes[i].name),
									 attributes[i].value);
	return NULL;
}

const OutboxFormatDef outbox_format_cloudevents = {
	.name = "cloudevents",
	.max_names = 1,
	.options = {
		{"mode", offsetof(Options, mode), "binary or structured", modes},
		{"source", offsetof(Options, source),
			"a URI-reference (RFC 3986); in braces may stand {event_type}, {aggregate_type} and {aggregate_id}",
		.is_valid = is_source},
		{"dataschema", offsetof(Options, dataschema),
			"an absolute URI (RFC 3986) without a fragment; in braces may stand {event_type}, {aggregate_type} and {aggregate_id}",
		.is_valid = is_dataschema},
		{"prefix", offsetof(Options, prefix), "cloudEvents:, cloudEvents_ or ce-", prefixes}
	},
	.defaults = &defaults,
	.size = sizeof(Options),
	.check = check_options,
	.message = format_message,
	.header = check_header
};
