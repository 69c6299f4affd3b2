/*-------------------------------------------------------------------------
 *
 * format.c
 *		A message in the format of its route.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "encode_json.h"
#include "format_internal.h"
#include "format_text.h"
#include "mb/pg_wchar.h"
#include "route.h"
#include "traceparent.h"

const char *const outbox_format_kinds[OUTBOX_FORMAT_KINDS] = {
	[OUTBOX_FORMAT_CLOUDEVENTS] = "cloudevents",
	[OUTBOX_FORMAT_DEBEZIUM] = "debezium",
	[OUTBOX_FORMAT_SPRING] = "spring",
	[OUTBOX_FORMAT_MASSTRANSIT] = "masstransit",
	[OUTBOX_FORMAT_NSERVICEBUS] = "nservicebus",
	[OUTBOX_FORMAT_CAP] = "cap",
	[OUTBOX_FORMAT_CELERY] = "celery",
	[OUTBOX_FORMAT_LARAVEL] = "laravel"
};

const char *
outbox_format_name(const OutboxFormat *format)
{
	return outbox_format_kinds[format->kind];
}

/* -------------------------------------------------------------------- parts */

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

/* NULL: the event type is not listed. */
static const OutboxFormatType *
listed_type(const OutboxFormat *format, const OutboxFormatMessage *message)
{
	for (int i = 0; i < format->ntypes; i++)
		if (strcmp(format->types[i].event_type, message->event_type) == 0)
			return &format->types[i];
	return NULL;
}

const char *const *
outbox_format_types(const OutboxFormat *format,
					const OutboxFormatMessage *message, int *n)
{
	const OutboxFormatType *type = listed_type(format, message);
	const char **names;

	if (type != NULL)
	{
		*n = type->nnames;
		return type->names;
	}
	Assert(format->type != NULL);
	names = palloc(sizeof(char *));
	names[0] = outbox_format_render(format->type, message);
	*n = 1;
	return names;
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

void
outbox_format_put_json(StringInfo json, const Jsonb *value)
{
	StringInfoData text;

	initStringInfo(&text);
	outbox_encode_json(&text, value);
	appendStringInfoString(json, pg_server_to_any(text.data, text.len, PG_UTF8));
}

const char *
outbox_format_needs_payload(const OutboxFormat *format,
							const OutboxFormatMessage *message)
{
	if (message->payload == NULL)
		return psprintf("body cannot be sent in the format %s, which needs JSON: payload must be given",
						outbox_format_name(format));
	if (message->content_encoding != NULL &&
		pg_strcasecmp(message->content_encoding, "utf-8") != 0)
		return psprintf("property content_encoding must be utf-8 or absent in the format %s, whose body is a JSON document",
						outbox_format_name(format));
	return NULL;
}

bool
outbox_format_is_one_of(const char *name, size_t len, const char *const *names)
{
	for (; *names != NULL; names++)
		if (len == strlen(*names) && memcmp(name, *names, len) == 0)
			return true;
	return false;
}

/* ---------------------------------------------------------- headers and no more */

/* A value as Debezium's own converter of headers writes it, or as it is. */
static const char *
debezium_value(const OutboxFormat *format, const char *value)
{
	StringInfoData json;

	if (value == NULL || !format->quoted)
		return value;
	initStringInfo(&json);
	outbox_encode_json_string(&json, value, strlen(value));
	return json.data;
}

/* What Debezium's outbox event router sends, and where it can be told to put more. */
static const char *
format_debezium(const OutboxFormat *format, const OutboxFormatMessage *message,
				OutboxFormatted *out)
{
	int			n;
	const char *values[OUTBOX_DEBEZIUM_HEADERS] = {
		[OUTBOX_DEBEZIUM_EVENT_TYPE] = outbox_format_types(format, message, &n)[0],
		[OUTBOX_DEBEZIUM_AGGREGATE_TYPE] = message->aggregate_type,
		[OUTBOX_DEBEZIUM_AGGREGATE_ID] = message->aggregate_id
	};

	outbox_format_add_header(out, "id", debezium_value(format, message->id));
	for (int i = 0; i < OUTBOX_DEBEZIUM_HEADERS; i++)
		if (format->headers[i] != NULL)
			outbox_format_add_header(out, format->headers[i],
									 debezium_value(format, values[i]));
	return NULL;
}

/*
 * The class that Spring's converters of JSON make of it; of a collection what is in
 * it, and of a map its keys.
 */
static const char *
format_spring(const OutboxFormat *format, const OutboxFormatMessage *message,
			  OutboxFormatted *out)
{
	static const char *const headers[] = {
		"__TypeId__", "__ContentTypeId__", "__KeyTypeId__"
	};
	int			n;
	const char *const *names = outbox_format_types(format, message, &n);

	for (int i = 0; i < Min(n, (int) lengthof(headers)); i++)
		outbox_format_add_header(out, headers[i], names[i]);
	if (message->payload != NULL && message->content_encoding == NULL)
		out->content_encoding = "UTF-8";
	return NULL;
}

/* --------------------------------------------------------------- the whole */

/* No consumer knows what to do with a message that has none, and none runs just any code. */
static const char *
check_type(const OutboxFormat *format, const OutboxFormatMessage *message)
{
	int			n;

	if (format->type == NULL && listed_type(format, message) == NULL)
		return psprintf("event_type must be one that \"types\" in format_options lists in the format %s, where it names code",
						outbox_format_name(format));
	if (format->type_needs_key && *outbox_format_types(format, message, &n)[0] == '\0')
		return "aggregate_type or aggregate_id is missing, of which alone the name of the type is made";
	return NULL;
}

const char *
outbox_format_message(const OutboxFormat *format,
					  const OutboxFormatMessage *message, OutboxFormatted *out)
{
	const char *reason;

	memset(out, 0, sizeof(*out));
	if (format->broken != NULL)
		return psprintf("route has an unusable format: %s", format->broken);
	reason = check_type(format, message);
	if (reason != NULL)
		return reason;
	switch (format->kind)
	{
		case OUTBOX_FORMAT_CLOUDEVENTS:
			return outbox_format_cloudevents(format, message, out);
		case OUTBOX_FORMAT_DEBEZIUM:
			return format_debezium(format, message, out);
		case OUTBOX_FORMAT_SPRING:
			return format_spring(format, message, out);
		case OUTBOX_FORMAT_MASSTRANSIT:
			return outbox_format_masstransit(format, message, out);
		case OUTBOX_FORMAT_NSERVICEBUS:
			return outbox_format_nservicebus(format, message, out);
		case OUTBOX_FORMAT_CAP:
			return outbox_format_cap(format, message, out);
		case OUTBOX_FORMAT_CELERY:
			return outbox_format_celery(format, message, out);
		case OUTBOX_FORMAT_LARAVEL:
			return outbox_format_laravel(format, message, out);
	}
	return "route has an unknown format";
}

const char *
outbox_format_check_header(const OutboxFormat *format, const char *name, size_t len,
						   bool is_string)
{
	switch (format->kind)
	{
		case OUTBOX_FORMAT_CLOUDEVENTS:
			return outbox_format_cloudevents_header(format, name, len, is_string);
		case OUTBOX_FORMAT_CAP:
			return outbox_format_cap_header(name, len);
		case OUTBOX_FORMAT_CELERY:
			return outbox_format_celery_header(name, len);
		case OUTBOX_FORMAT_LARAVEL:
			return outbox_format_laravel_header(name, len);
		default:
			return NULL;
	}
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
