/*-------------------------------------------------------------------------
 *
 * fuzz_formats.c
 *		outbox_route.format and format_options, and messages in these formats.
 *
 * The input draws options and a message.  Options that are accepted make a format;
 * a message that is accepted in it has headers in UTF-8 with different names, a body
 * that is one JSON document with the payload in it, sizes that are those of the
 * parts, and is the same when it is asked for again.  What is refused is refused in
 * words that begin with what the user has given.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "doc.h"
#include "encode_json.h"
#include "format.h"
#include "format_text.h"
#include "fuzz.h"
#include "mb/pg_wchar.h"
#include "pg.h"
#include "utils/memutils.h"

#define ID		"0198c5a0-6e7f-7abc-8def-0123456789ab"
#define TRACE	"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"

static const char *const Kinds[] = {
	"cloudevents", "debezium", "spring", "masstransit", "nservicebus", "cap", "celery", "laravel"
};

/* Of options, of their values, and of headers. */
static const char *const Names[] = {
	"type", "types", "mode", "source", "dataschema", "prefix", "headers", "quoted",
	"sourceAddress", "destinationAddress", "responseAddress", "faultAddress", "intent",
	"endpoint", "payload", "event_type", "aggregate_type", "aggregate_id", "order.created",
	"ce-id", "cloudEvents:x", "cap-delaytime", "args", "laravel"
};
static const char *const Strings[] = {
	"/shop", "structured", "binary", "ce-", "cloudEvents_", "{event_type}", "{aggregate_id}",
	"a.{aggregate_type}.{event_type}", "https://example.com/{event_type}", "urn:message:A:B",
	"Send", "Publish", "argument", "arguments", "eventType", "id", "CC", "order.created",
	"rabbitmq://host/vhost", "App.Job@handle", "x\ty", "{", "", "aggregateType"
};

/* ---------------------------------------------------------- reading JSON */

typedef struct Json
{
	const char *at;
	const char *end;
} Json;

static void
blanks(Json *json)
{
	while (json->at < json->end && *json->at != '\0' && strchr(" \t\r\n", *json->at) != NULL)
		json->at++;
}

static char
next(Json *json)
{
	fuzz_check(json->at < json->end, "the document ends too soon");
	return *json->at++;
}

static void
expect_char(Json *json, char c)
{
	char		got;

	blanks(json);
	got = next(json);
	fuzz_check(got == c, "%c instead of %c in a document", got, c);
}

static unsigned int
hex4(Json *json)
{
	unsigned int value = 0;

	for (int i = 0; i < 4; i++)
	{
		char		c = next(json);

		fuzz_check(isxdigit((unsigned char) c), "no digit: %c", c);
		value = value * 16 + (c <= '9' ? c - '0' : (c | 32) - 'a' + 10);
	}
	return value;
}

static char *
read_string(Json *json)
{
	StringInfoData out;

	initStringInfo(&out);
	expect_char(json, '"');
	for (;;)
	{
		static const char escapes[] = "\"\\/bfnrt";
		static const char meanings[] = "\"\\/\b\f\n\r\t";
		char		c = next(json);
		const char *escape;

		if (c == '"')
			return out.data;
		fuzz_check((unsigned char) c >= 0x20, "a control character in a string");
		if (c != '\\')
		{
			appendStringInfoChar(&out, c);
			continue;
		}
		c = next(json);
		escape = strchr(escapes, c);
		if (c != '\0' && escape != NULL)
			appendStringInfoChar(&out, meanings[escape - escapes]);
		else
		{
			unsigned int code = c == 'u' ? hex4(json) : 0;

			fuzz_check(code > 0 && code < 0x80, "an escape: %c", c);
			appendStringInfoChar(&out, (char) code);
		}
	}
}

static void skip_value(Json *json);

/* The value of a member of an object, which begins at json; false: there is none. */
static bool
find_member(Json json, const char *name, Json *value)
{
	bool		found = false;

	expect_char(&json, '{');
	blanks(&json);
	if (json.at < json.end && *json.at == '}')
		return false;
	for (;;)
	{
		char	   *key = read_string(&json);
		Json		start;

		expect_char(&json, ':');
		blanks(&json);
		start = json;
		skip_value(&json);
		if (strcmp(key, name) == 0)
		{
			fuzz_check(!found, "%s is there twice", name);
			found = true;
			value->at = start.at;
			value->end = json.at;
		}
		blanks(&json);
		if (next(&json) == '}')
			return found;
		json.at--;
		expect_char(&json, ',');
	}
}

static void
skip_members(Json *json, char end)
{
	blanks(json);
	if (*json->at == end)
	{
		json->at++;
		return;
	}
	for (;;)
	{
		if (end == '}')
		{
			(void) read_string(json);
			expect_char(json, ':');
		}
		skip_value(json);
		blanks(json);
		if (next(json) == end)
			return;
		json->at--;
		expect_char(json, ',');
	}
}

static void
skip_value(Json *json)
{
	size_t		len;

	blanks(json);
	switch (next(json))
	{
		case '{':
			skip_members(json, '}');
			return;
		case '[':
			skip_members(json, ']');
			return;
		case '"':
			json->at--;
			(void) read_string(json);
			return;
	}
	json->at--;
	len = 0;
	while (json->at + len < json->end && (isalnum((unsigned char) json->at[len]) ||
										  strchr("+-.", json->at[len]) != NULL))
		len++;
	fuzz_check(len > 0, "no value: %c", *json->at);
	fuzz_check(isdigit((unsigned char) json->at[len - 1]) ||
			   (len == 4 && (memcmp(json->at, "null", 4) == 0 || memcmp(json->at, "true", 4) == 0)) ||
			   (len == 5 && memcmp(json->at, "false", 5) == 0), "a value: %.*s", (int) len, json->at);
	json->at += len;
}

static void
expect_string(Json document, const char *name, const char *expected)
{
	Json		value;
	char	   *got;

	fuzz_check(find_member(document, name, &value) == (expected != NULL), "%s", name);
	if (expected == NULL)
		return;
	got = read_string(&value);
	fuzz_check(strcmp(got, expected) == 0, "%s: %s instead of %s", name, got, expected);
}

static void
expect_part(Json document, const char *name, const char *expected, size_t len)
{
	Json		value;

	fuzz_check(find_member(document, name, &value), "no %s", name);
	fuzz_check((size_t) (value.end - value.at) == len && memcmp(value.at, expected, len) == 0,
			   "%s: %.*s", name, (int) (value.end - value.at), value.at);
}

/* --------------------------------------------------------------------- drawing */

static Doc *
draw_option(Input *in, int depth)
{
	uint8_t		how = input_byte(in);
	Doc		   *value = palloc0(sizeof(Doc));
	int			wanted;

	if (how >= 200 && depth < 2)
	{
		value->kind = how >= 228 ? 'a' : 'o';
		wanted = input_byte(in) % 4;
		while (value->count < wanted)
		{
			const char *key = value->kind == 'a' ? "" : Names[input_byte(in) % lengthof(Names)];
			bool		twice = false;

			for (int i = 0; i < value->count && value->kind == 'o'; i++)
				twice |= strcmp(value->keys[i], key) == 0;
			if (twice)
			{
				wanted--;
				continue;
			}
			value->keys[value->count] = pstrdup(key);
			value->key_lens[value->count] = strlen(key);
			value->members[value->count++] = draw_option(in, depth + 1);
		}
	}
	else if (how >= 190)
	{
		value->kind = how >= 195 ? 'b' : 'n';
		value->value = how & 1;
	}
	else if (how >= 150)
	{
		value->kind = 's';
		value->text = draw_text(in, &value->len);
	}
	else
	{
		value->kind = 's';
		value->text = pstrdup(Strings[how % lengthof(Strings)]);
		value->len = strlen(value->text);
	}
	return value;
}

static Doc *
draw_options(Input *in)
{
	Doc		   *object = palloc0(sizeof(Doc));
	int			wanted = input_byte(in) % 5;

	object->kind = 'o';
	while (object->count < wanted)
	{
		const char *key = Names[input_byte(in) % lengthof(Names)];

		for (int i = 0; i < object->count; i++)
			if (strcmp(object->keys[i], key) == 0)
				return object;
		object->keys[object->count] = pstrdup(key);
		object->key_lens[object->count] = strlen(key);
		object->members[object->count++] = draw_option(in, 0);
	}
	return object;
}

static const char *
draw_string(Input *in, bool needed)
{
	uint8_t		how = input_byte(in);
	size_t		len;

	if (how < 100 && !needed)
		return NULL;
	return how < 220 ? Strings[how % lengthof(Strings)] : draw_text(in, &len);
}

static void
draw_message(Input *in, OutboxFormatMessage *message, const Doc **payload)
{
	static const char *const types[] = {
		NULL, NULL, "application/json", "text/plain", "application/x+json; a=b",
		"application/cloudevents+json", "no type"
	};
	static const char *const traces[] = {NULL, TRACE, "x"};
	uint8_t		how = input_byte(in);

	memset(message, 0, sizeof(*message));
	message->id = ID;
	message->event_type = draw_string(in, true);
	message->aggregate_type = draw_string(in, false);
	message->aggregate_id = draw_string(in, false);
	message->created_at = (TimestampTz) input_number(in) * 1000000 + how;
	if (how & 1)
		message->created_at = END_TIMESTAMP - 1;
	*payload = NULL;
	if (how & 6)
	{
		*payload = draw_node(in, 1);
		message->payload = jsonb_of(*payload);
	}
	message->content_type = types[input_byte(in) % lengthof(types)];
	message->content_encoding = how & 8 ? (how & 16 ? "UTF-8" : "gzip") : NULL;
	message->correlation_id = how & 32 ? (how & 64 ? ID : "c\"1") : NULL;
	message->traceparent = traces[input_byte(in) % lengthof(traces)];
	message->tracestate = how & 128 ? "a=b" : NULL;
	if (how & 64)
		message->headers = jsonb_of(draw_object(in));
}

/* -------------------------------------------------------------------- properties */

static void
check_reason(const char *reason)
{
	static const char *const arguments[] = {
		"event_type", "aggregate_type", "aggregate_id", "payload", "body", "property ", "headers", "route "
	};

	for (int i = 0; i < (int) lengthof(arguments); i++)
		if (strncmp(reason, arguments[i], strlen(arguments[i])) == 0)
			return;
	fuzz_fail("which argument? %s", reason);
}

static const char *
header(const OutboxFormatted *out, const char *name)
{
	for (int i = 0; i < out->nheaders; i++)
		if (strcmp(out->headers[i].name, name) == 0)
			return out->headers[i].text;
	return NULL;
}

static void
check_headers(const OutboxFormatted *out)
{
	size_t		size = 0;

	for (int i = 0; i < out->nheaders; i++)
	{
		const OutboxFormatHeader *one = &out->headers[i];

		fuzz_check(*one->name != '\0' && strlen(one->name) <= 255, "a name of %zu bytes",
				   strlen(one->name));
		fuzz_check(pg_encoding_verifymbstr(PG_UTF8, one->text, strlen(one->text)) == (int) strlen(one->text),
				   "%s is no UTF-8", one->name);
		for (int j = 0; j < i; j++)
			fuzz_check(strcmp(one->name, out->headers[j].name) != 0, "%s is there twice", one->name);
		size += 1 + strlen(one->name) + 1 + 4 + strlen(one->text);
	}
	size += out->content_type != NULL ? strlen(out->content_type) : 0;
	size += out->content_encoding != NULL ? 1 + strlen(out->content_encoding) : 0;
	size += out->correlation_id != NULL ? 1 + strlen(out->correlation_id) : 0;
	fuzz_check(outbox_format_header_size(out) == size, "size of headers: %zu instead of %zu",
			   outbox_format_header_size(out), size);
}

/* What is on the wire, of this data. */
static Json
body_of(const OutboxFormatted *out, const char *data, size_t len)
{
	size_t		size = len;
	char	   *copy = memcpy(palloc(len + 1), data, len);
	char	   *body = outbox_format_body(out, copy, &size);

	fuzz_check(size == outbox_format_body_size(out, len), "size of the body: %zu instead of %zu",
			   outbox_format_body_size(out, len), size);
	return (Json) {body, body + size};
}

static void
check_document(Json body)
{
	fuzz_check(pg_encoding_verifymbstr(PG_UTF8, body.at, body.end - body.at) == body.end - body.at,
			   "the body is no UTF-8");
	skip_value(&body);
	blanks(&body);
	fuzz_check(body.at == body.end, "more behind the document: %.*s", (int) (body.end - body.at), body.at);
}

/* NULL: it is not given, or no string. */
static const char *
option(const Doc *options, const char *key)
{
	for (int i = 0; i < options->count; i++)
		if (strcmp(options->keys[i], key) == 0 && options->members[i]->kind == 's')
			return options->members[i]->text;
	return NULL;
}

static bool
option_is(const Doc *options, const char *key, const char *text)
{
	return option(options, key) != NULL && strcmp(option(options, key), text) == 0;
}

static void
check_cloudevents(const Doc *options, const OutboxFormatMessage *message,
				  const OutboxFormatted *out, Json body, const char *data, size_t len)
{
	static const char *const mandatory[] = {"id", "source", "type", "specversion"};
	bool		structured = option_is(options, "mode", "structured");
	const char *prefix = option(options, "prefix") != NULL ? option(options, "prefix") : "cloudEvents:";

	for (int i = 0; i < (int) lengthof(mandatory); i++)
	{
		Json		value;
		const char *text;

		if (structured)
		{
			fuzz_check(find_member(body, mandatory[i], &value), "no %s", mandatory[i]);
			text = read_string(&value);
		}
		else
			text = header(out, psprintf("%s%s", prefix, mandatory[i]));
		fuzz_check(text != NULL && outbox_is_attribute_text(text), "%s: %s", mandatory[i],
				   text == NULL ? "none" : text);
		fuzz_check(i != 0 || strcmp(text, message->id) == 0, "id: %s", text);
		fuzz_check(i != 1 || outbox_is_uri_reference(text), "source: %s", text);
	}
	if (!structured)
	{
		const char *subject = header(out, psprintf("%ssubject", prefix));

		fuzz_check(subject == message->aggregate_id, "subject");
		fuzz_check(out->prefix == NULL, "an envelope");
		return;
	}
	expect_string(body, "subject", message->aggregate_id);
	if (out->base64)
	{
		size_t		size = outbox_base64_size(len);
		char	   *text = palloc(size + 2);

		text[0] = text[size + 1] = '"';
		outbox_base64(data, len, text + 1);
		expect_part(body, "data_base64", text, size + 2);
	}
	else
		expect_part(body, "data", data, len);
}

static void
check_celery(const Doc *options, const Doc *payload, Json body, const char *data, size_t len)
{
	Json		args;
	Json		kwargs;
	bool		one = option_is(options, "payload", "argument") || (payload->kind != 'a' && payload->kind != 'o');

	expect_char(&body, '[');
	args = body;
	skip_value(&body);
	args.end = body.at;
	expect_char(&body, ',');
	blanks(&body);
	kwargs = body;
	skip_value(&body);
	kwargs.end = body.at;
	if (one)
	{
		expect_char(&args, '[');
		fuzz_check((size_t) (args.end - args.at) == len + 1 && memcmp(args.at, data, len) == 0, "the argument");
	}
	else if (payload->kind == 'a')
		fuzz_check((size_t) (args.end - args.at) == len && memcmp(args.at, data, len) == 0, "the arguments");
	else
		fuzz_check((size_t) (kwargs.end - kwargs.at) == len && memcmp(kwargs.at, data, len) == 0, "the named arguments");
	fuzz_check(one || payload->kind == 'a' || memcmp(args.at, "[]", 2) == 0, "arguments");
}

/* Each value is a string of JSON where the option quoted says so. */
static void
check_quoted(const Doc *options, const OutboxFormatted *out)
{
	bool		quoted = false;

	for (int i = 0; i < options->count; i++)
		quoted |= strcmp(options->keys[i], "quoted") == 0 && options->members[i]->value;
	for (int i = 0; quoted && i < out->nheaders; i++)
	{
		Json		text = {out->headers[i].text, out->headers[i].text + strlen(out->headers[i].text)};

		(void) read_string(&text);
		fuzz_check(text.at == text.end, "%s is no string of JSON", out->headers[i].name);
	}
}

static void
check_masstransit(const OutboxFormatMessage *message, Json body, const char *data, size_t len)
{
	const char *conversation = message->correlation_id != NULL && outbox_is_uuid(message->correlation_id) ?
		message->correlation_id : NULL;

	expect_string(body, "messageId", message->id);
	expect_string(body, "correlationId", conversation);
	expect_string(body, "conversationId", conversation != NULL ? conversation : message->id);
	expect_part(body, "message", data, len);
}

static void
check_body(const char *kind, const Doc *options, const OutboxFormatMessage *message,
		   const OutboxFormatted *out, const Doc *payload, const char *data, size_t len)
{
	Json		body = body_of(out, data, len);

	if (out->prefix != NULL)
		check_document(body);
	if (strcmp(kind, "cloudevents") == 0)
		check_cloudevents(options, message, out, body, data, len);
	else if (strcmp(kind, "debezium") == 0)
		check_quoted(options, out);
	else if (strcmp(kind, "spring") == 0)
	{
		fuzz_check(header(out, "__TypeId__") != NULL, "no type");
		fuzz_check((out->content_encoding != NULL) ==
				   (payload != NULL && message->content_encoding == NULL), "content_encoding");
	}
	else if (strcmp(kind, "masstransit") == 0)
		check_masstransit(message, body, data, len);
	else if (strcmp(kind, "celery") == 0)
		check_celery(options, payload, body, data, len);
	else if (strcmp(kind, "laravel") == 0)
	{
		expect_string(body, "uuid", message->id);
		expect_part(body, "data", data, len);
	}
	else
		fuzz_check(out->prefix == NULL, "an envelope");
}

static void
check_same(const OutboxFormatted *one, const OutboxFormatted *other)
{
	fuzz_check(one->nheaders == other->nheaders && one->base64 == other->base64, "another time otherwise");
	for (int i = 0; i < one->nheaders; i++)
		fuzz_check(strcmp(one->headers[i].name, other->headers[i].name) == 0 &&
				   strcmp(one->headers[i].text, other->headers[i].text) == 0, "another time otherwise");
	fuzz_check((one->prefix == NULL) == (other->prefix == NULL) &&
			   (one->prefix == NULL || strcmp(one->prefix, other->prefix) == 0), "another time otherwise");
}

static void
check_message(const OutboxFormat *format, const Doc *options, bool broken, Input *in)
{
	OutboxFormatMessage message;
	OutboxFormatted out;
	OutboxFormatted again;
	const Doc  *payload;
	const char *reason;
	StringInfoData data;

	draw_message(in, &message, &payload);
	reason = outbox_format_message(format, &message, &out);
	if (reason != NULL)
	{
		check_reason(reason);
		return;
	}
	fuzz_check(!broken, "a message in a broken format");
	check_headers(&out);
	initStringInfo(&data);
	if (payload != NULL)
		outbox_encode_json(&data, message.payload);
	else
		appendBinaryStringInfoNT(&data, "\0\xff\"", 3);
	check_body(outbox_format_name(format), options, &message, &out, payload, data.data, data.len);
	fuzz_check(outbox_format_message(format, &message, &again) == NULL, "refused the second time");
	check_same(&out, &again);
}

int
LLVMFuzzerInitialize(int *argc, char ***argv)
{
	doc_names = Names;
	doc_nnames = lengthof(Names);
	return 0;
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	Input		in = {data, data + size};
	OutboxFormatError error = {NULL, NULL};
	OutboxFormat *format;
	const char *kind;
	const Doc  *options;

	fuzz_memory_reset();
	kind = Kinds[input_byte(&in) % lengthof(Kinds)];
	options = draw_options(&in);
	format = outbox_format_make(TopMemoryContext, kind, jsonb_of(options), &error);
	fuzz_check(strcmp(outbox_format_name(format), kind) == 0, "another format");
	fuzz_check(error.message == NULL || strstr(error.message, "format_options") != NULL,
			   "what is wrong? %s", error.message);
	check_message(format, options, error.message != NULL, &in);
	outbox_format_free(format);
	fuzz_memory_reset();
	return 0;
}
