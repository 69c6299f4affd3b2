/*-------------------------------------------------------------------------
 *
 * format_parts.c
 *		What files of formats are made of: options, texts, headers, bodies.
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

char *
outbox_format_utf8(const char *text, int len)
{
	char	   *copy = pnstrdup(text, len);

	return pg_server_to_any(copy, len, PG_UTF8);
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
