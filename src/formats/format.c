/*-------------------------------------------------------------------------
 *
 * format.c
 *		What all formats share: messages in a route's format, and what the files of
 *		formats are made of.
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
	return outbox_route_rendered(template, message->event_type,
								 message->aggregate_type, message->aggregate_id);
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

const char *
outbox_format_refuse_encoding(const OutboxFormatMessage *message, const char *form,
							  const char *name)
{
	if (message->content_encoding == NULL ||
		pg_strcasecmp(message->content_encoding, "utf-8") == 0)
		return NULL;
	return psprintf("property content_encoding must be utf-8 or absent in %s %s, whose body is a JSON document",
					form, name);
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
			reason = def->header(format->options, text, len,
								 value.type != jbvString ? NULL :
								 outbox_format_utf8(value.val.string.val,
													value.val.string.len));
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
	return outbox_format_refuse_encoding(message, "the format", format->name);
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
