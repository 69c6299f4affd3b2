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
#include "route.h"

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

const char *const *
outbox_format_types(const OutboxFormat *format,
					const OutboxFormatMessage *message, int *n)
{
	const char **names;

	for (int i = 0; i < format->ntypes; i++)
	{
		const OutboxFormatType *type = &format->types[i];

		if (strcmp(type->event_type, message->event_type) == 0)
		{
			*n = type->nnames;
			return type->names;
		}
	}
	names = palloc(sizeof(char *));
	names[0] = outbox_format_render(format->type, message);
	*n = 1;
	return names;
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

const char *
outbox_format_message(const OutboxFormat *format,
					  const OutboxFormatMessage *message, OutboxFormatted *out)
{
	memset(out, 0, sizeof(*out));
	if (format->broken != NULL)
		return psprintf("route has an unusable format: %s", format->broken);
	switch (format->kind)
	{
		case OUTBOX_FORMAT_CLOUDEVENTS:
			return outbox_format_cloudevents(format, message, out);
		case OUTBOX_FORMAT_DEBEZIUM:
			return format_debezium(format, message, out);
		case OUTBOX_FORMAT_SPRING:
			return format_spring(format, message, out);
	}
	return "route has an unknown format";
}

const char *
outbox_format_check_header(const OutboxFormat *format, const char *name, size_t len,
						   bool is_string)
{
	if (format->kind == OUTBOX_FORMAT_CLOUDEVENTS)
		return outbox_format_cloudevents_header(format, name, len, is_string);
	return NULL;
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
