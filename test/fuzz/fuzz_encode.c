/*-------------------------------------------------------------------------
 *
 * fuzz_encode.c
 *		From a message to frames, and back by a decoder of its own.
 *
 * The input draws a message: headers, properties, a document or bytes, names.  It
 * is published through the link to a socket, and what comes out at the other end
 * is taken apart here without librabbitmq and compared with what was drawn.  What
 * is refused must have been too long, too deep or of a wrong kind, and must have
 * left nothing on the wire.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <fcntl.h>
#include <math.h>
#include <sys/socket.h>
#include <unistd.h>

#include "utils/memutils.h"
#include "utils/timestamp.h"

#include "broker_internal.h"
#include "doc.h"
#include "encode_json.h"
#include "fuzz.h"
#include "input.h"
#include "pg.h"
#include "settings.h"
#include "watchdog.h"

#define OWN_HEADERS 4

static const char *const Names[] = {
	"aggregate_id", "x-outbox-attempts", "traceparent", "priority", "expiration",
	"content_type", "correlation_id", "app_id", "type", "reply_to",
	"content_encoding", "aggregate_type", "x-first-enqueued", "headers"
};

/* ------------------------------------------------------------ reading the wire */

typedef struct Wire
{
	const uint8_t *at;
	const uint8_t *end;
} Wire;

static const uint8_t *
take(Wire *wire, size_t size)
{
	const uint8_t *at = wire->at;

	fuzz_check(size <= (size_t) (wire->end - wire->at), "the wire ends too soon");
	wire->at += size;
	return at;
}

static uint64_t
take_number(Wire *wire, int bytes)
{
	const uint8_t *at = take(wire, bytes);
	uint64_t	value = 0;

	for (int i = 0; i < bytes; i++)
		value = value << 8 | at[i];
	return value;
}

static Wire
take_part(Wire *wire, size_t size)
{
	Wire		part;

	part.at = take(wire, size);
	part.end = part.at + size;
	return part;
}

static Wire
take_short(Wire *wire)
{
	return take_part(wire, take_number(wire, 1));
}

static bool
wire_is(const Wire *part, const char *text, size_t len)
{
	return (size_t) (part->end - part->at) == len &&
		(len == 0 || memcmp(part->at, text, len) == 0);
}

static void
expect_text(const char *what, Wire part, const char *text, size_t len)
{
	fuzz_check(wire_is(&part, text, len), "%s: %.*s", what,
			   (int) (part.end - part.at), (const char *) part.at);
}

/* ------------------------------------------------------------------------ headers */

static bool
is_integer(const char *digits)
{
	char	   *end;

	if (strchr(digits, '.') != NULL)
		return false;
	errno = 0;
	(void) strtoll(digits, &end, 10);
	return errno == 0;
}

static void expect_table(Wire *wire, const Doc *node, bool own);

static void
expect_value(Wire *wire, const Doc *node)
{
	char		kind = (char) take_number(wire, 1);
	Wire		part;
	uint64_t	bits;
	double		real;

	switch (node->kind)
	{
		case 'n':
			fuzz_check(kind == 'V', "null: %c", kind);
			break;
		case 'b':
			fuzz_check(kind == 't' && take_number(wire, 1) == node->value, "bool: %c", kind);
			break;
		case 's':
			fuzz_check(kind == 'S', "string: %c", kind);
			expect_text("string", take_part(wire, take_number(wire, 4)), node->text, node->len);
			break;
		case 'd':
			bits = take_number(wire, 8);
			memcpy(&real, &bits, sizeof(real));
			if (is_integer(node->text))
				fuzz_check(kind == 'l' && (int64_t) bits == strtoll(node->text, NULL, 10),
						   "%s: %c", node->text, kind);
			else
				fuzz_check(kind == 'd' && real == strtod(node->text, NULL), "%s: %c %g",
						   node->text, kind, real);
			break;
		case 'a':
			fuzz_check(kind == 'A', "array: %c", kind);
			part = take_part(wire, take_number(wire, 4));
			for (int i = 0; i < node->count; i++)
				expect_value(&part, node->members[i]);
			fuzz_check(part.at == part.end, "an array is too long");
			break;
		case 'o':
			fuzz_check(kind == 'F', "object: %c", kind);
			expect_table(wire, node, false);
			break;
	}
}

/* What the extension sets itself. */
static const OutboxMessage *drawn;

static void
expect_own(Wire *wire, const Wire *key)
{
	char		kind = (char) take_number(wire, 1);

	if (wire_is(key, "x-outbox-attempts", 17))
	{
		fuzz_check(kind == 'l' && (int32) take_number(wire, 8) == drawn->attempts, "attempts");
		return;
	}
	fuzz_check(kind == 'S', "own header: %c", kind);
	if (wire_is(key, "aggregate_id", 12))
		expect_text("aggregate_id", take_part(wire, take_number(wire, 4)),
					drawn->aggregate_id, strlen(drawn->aggregate_id));
	else if (wire_is(key, "aggregate_type", 14))
		expect_text("aggregate_type", take_part(wire, take_number(wire, 4)),
					drawn->aggregate_type, strlen(drawn->aggregate_type));
	else
	{
		fuzz_check(wire_is(key, "x-first-enqueued", 16), "a header that nobody set: %.*s",
				   (int) (key->end - key->at), (const char *) key->at);
		(void) take_part(wire, take_number(wire, 4));
	}
}

static bool
is_own(const Wire *key)
{
	return (drawn->aggregate_id != NULL && wire_is(key, "aggregate_id", 12)) ||
		(drawn->aggregate_type != NULL && wire_is(key, "aggregate_type", 14)) ||
		(drawn->attempts != 0 && (wire_is(key, "x-outbox-attempts", 17) ||
								  (wire_is(key, "x-first-enqueued", 16) &&
								   outbox_rfc3339(drawn->created_at) != NULL)));
}

/* own: of the message, where some headers are not the user's to set. */
static void
expect_table(Wire *wire, const Doc *node, bool own)
{
	Wire		part = take_part(wire, take_number(wire, 4));
	int			n = node != NULL ? node->count : 0;

	for (int i = 0; i < n; i++)
	{
		Wire		key = take_short(&part);

		expect_text("name", key, node->keys[i], node->key_lens[i]);
		if (own && is_own(&key))
			expect_own(&part, &key);
		else if (own && wire_is(&key, "traceparent", 11) && node->members[i]->kind == 's')
		{
			/* the span is another one; its length is not */
			fuzz_check(take_number(&part, 1) == 'S' &&
					   take_number(&part, 4) == node->members[i]->len, "traceparent");
			(void) take(&part, node->members[i]->len);
		}
		else
			expect_value(&part, node->members[i]);
	}
	for (n = 0; own && part.at < part.end; n++)
	{
		Wire		key = take_short(&part);

		fuzz_check(is_own(&key) && n < OWN_HEADERS, "one header too many");
		expect_own(&part, &key);
	}
	fuzz_check(part.at == part.end, "a table is too long");
}

/* ------------------------------------------------------------------------- JSON */

/* Exactly what PostgreSQL writes, so that a comparison is all. */
static void
write_json(StringInfo out, const Doc *node)
{
	static const char hex[] = "0123456789abcdef";

	switch (node->kind)
	{
		case 'n':
			appendStringInfoString(out, "null");
			break;
		case 'b':
			appendStringInfoString(out, node->value ? "true" : "false");
			break;
		case 'd':
			appendStringInfoString(out, node->text);
			break;
		case 's':
			appendStringInfoChar(out, '"');
			for (size_t i = 0; i < node->len; i++)
			{
				unsigned char c = (unsigned char) node->text[i];
				static const char escaped[] = "\b\f\n\r\t\"\\";
				const char *escape = strchr(escaped, c);

				if (escape != NULL)
				{
					appendStringInfoChar(out, '\\');
					appendStringInfoChar(out, "bfnrt\"\\"[escape - escaped]);
				}
				else if (c < ' ')
				{
					appendStringInfoString(out, "\\u00");
					appendStringInfoChar(out, hex[c >> 4]);
					appendStringInfoChar(out, hex[c & 15]);
				}
				else
					appendStringInfoChar(out, c);
			}
			appendStringInfoChar(out, '"');
			break;
		default:
			appendStringInfoChar(out, node->kind == 'o' ? '{' : '[');
			for (int i = 0; i < node->count; i++)
			{
				if (i > 0)
					appendStringInfoString(out, ", ");
				if (node->kind == 'o')
				{
					Doc		key = {.kind = 's', .text = node->keys[i],
						.len = node->key_lens[i]};

					write_json(out, &key);
					appendStringInfoString(out, ": ");
				}
				write_json(out, node->members[i]);
			}
			appendStringInfoChar(out, node->kind == 'o' ? '}' : ']');
	}
}

/* -------------------------------------------------------------- what may be sent */

static bool
headers_fit(const Doc *node)
{
	if (node->kind == 'd' && !is_integer(node->text))
		return !isinf(strtod(node->text, NULL));
	for (int i = 0; i < node->count; i++)
		if (node->key_lens[i] > OUTBOX_SHORT_STRING_MAX || !headers_fit(node->members[i]))
			return false;
	return true;
}

static const Doc *
member(const Doc *node, const char *name)
{
	for (int i = 0; node != NULL && i < node->count; i++)
		if (node->key_lens[i] == strlen(name) && strcmp(node->keys[i], name) == 0 &&
			node->members[i]->kind != 'n')
			return node->members[i];
	return NULL;
}

/* The text of a property: a number's is without zeros at its end. */
static const char *
text_of(const Doc *node)
{
	char	   *text;

	if (node->kind == 's')
		return node->text;
	text = pstrdup(node->text);
	if (strchr(text, '.') != NULL)
	{
		text[strlen(text)] = '\0';
		while (text[strlen(text) - 1] == '0')
			text[strlen(text) - 1] = '\0';
		if (text[strlen(text) - 1] == '.')
			text[strlen(text) - 1] = '\0';
	}
	return text;
}

static bool
properties_fit(const Doc *node)
{
	for (int i = 0; i < node->count; i++)
	{
		const Doc *value = node->members[i];
		bool		known = false;
		const char *text;

		if (value->kind == 'n')
			continue;
		if (strcmp(node->keys[i], "priority") == 0)
		{
			if (value->kind != 'd' || strspn(text_of(value), "0123456789") != strlen(text_of(value)) ||
				strlen(text_of(value)) > 3 || atoi(text_of(value)) > 255)
				return false;
			continue;
		}
#define KNOWN(name, flag) known |= strcmp(node->keys[i], #name) == 0;
		OUTBOX_STRING_PROPERTIES(KNOWN)
		if (!known || (value->kind != 's' && value->kind != 'd'))
			return false;
		text = text_of(value);
		if (strlen(text) > OUTBOX_SHORT_STRING_MAX)
			return false;
		if (strcmp(node->keys[i], "expiration") == 0 &&
			(text[0] == '\0' || strspn(text, "0123456789") != strlen(text) ||
			 strlen(text) > OUTBOX_EXPIRATION_DIGITS))
			return false;
	}
	return true;
}

/* ---------------------------------------------------------------- the message */

typedef struct Drawn
{
	OutboxMessage message;
	Doc	   *headers;
	Doc	   *properties;
	Doc	   *payload;
	const char *exchange;
	const char *routing_key;
} Drawn;

static void
draw_message(Input *in, Drawn *d)
{
	uint8_t		what = input_byte(in);
	size_t		len;

	memset(d, 0, sizeof(*d));
	for (int i = 0; i < UUID_LEN; i++)
		d->message.id.data[i] = input_byte(in);
	d->message.event_type = draw_text(in, &len);
	d->exchange = draw_text(in, &len);
	d->routing_key = draw_text(in, &len);
	if (what & 1)
	{
		d->message.aggregate_type = draw_text(in, &len);
		d->message.aggregate_id = draw_text(in, &len);
	}
	if (what & 2)
		d->message.attempts = input_byte(in);
	if (what & 4)
		d->message.created_at = (what & 8) ? PG_INT64_MAX :
			(int64) ((uint64) input_number(in) << 28);
	if (what & 16)
		d->message.headers = jsonb_of(d->headers = draw_object(in));
	if (what & 32)
		d->message.properties = jsonb_of(d->properties = draw_object(in));
	if (what & 64)
		d->message.payload = jsonb_of(d->payload = draw_node(in, 0));
	else
	{
		/* sometimes much more than a frame */
		d->message.body_len = (what & 128) ? (input_number(in) & 0x3ffff) : (size_t) (in->end - in->at);
		d->message.body = palloc(d->message.body_len + 1);
		memset(unconstify(char *, d->message.body), 'b', d->message.body_len);
	}
	d->message.size = sizeof(OutboxMessage);
	drawn = &d->message;
}

/* ----------------------------------------------------------------------- frames */

static int	wire_fd = -1;
static StringInfoData received;

static void
hear(void)
{
	char		buffer[65536];
	ssize_t		n;

	while ((n = recv(wire_fd, buffer, sizeof(buffer), MSG_DONTWAIT)) > 0)
		appendBinaryStringInfoNT(&received, buffer, (int) n);
}

static Wire
take_frame(Wire *wire, int type, uint32 frame_max)
{
	Wire		frame;
	uint64_t	size;

	fuzz_check((int) take_number(wire, 1) == type, "another type of frame");
	fuzz_check(take_number(wire, 2) == OUTBOX_CHANNEL_PUBLISH, "another channel");
	size = take_number(wire, 4);
	fuzz_check(size + OUTBOX_FRAME_OVERHEAD <= frame_max, "a frame of %lu bytes, of %u",
			   (unsigned long) size, frame_max);
	frame = take_part(wire, size);
	fuzz_check(take_number(wire, 1) == 0xCE, "a frame without its end");
	return frame;
}

/* In the order of the bits, the highest first. */
static void
expect_properties(Wire *wire, const Drawn *d)
{
	uint64_t	flags = take_number(wire, 2);
	const Doc *value;
	char		id[37];

	fuzz_check((flags & 1) == 0, "more flags");
#define EXPECT(bit, name, otherwise) \
	value = member(d->properties, name); \
	if (flags & (1 << (bit))) \
		expect_text(name, take_short(wire), value ? text_of(value) : (otherwise), \
					strlen(value ? text_of(value) : (otherwise))); \
	else \
		fuzz_check(value == NULL && *(otherwise) == '\0', "%s is missing", name)

	EXPECT(15, "content_type", d->payload ? "application/json" : "application/octet-stream");
	EXPECT(14, "content_encoding", "");
	if (flags & (1 << 13))
		expect_table(wire, d->headers, true);
	else
		fuzz_check(d->headers == NULL || d->headers->count == 0, "headers are missing");
	fuzz_check((flags & (1 << 12)) && take_number(wire, 1) == 2, "not persistent");
	value = member(d->properties, "priority");
	fuzz_check((value != NULL) == ((flags & (1 << 11)) != 0), "priority");
	if (value != NULL)
		fuzz_check((int) take_number(wire, 1) == atoi(text_of(value)), "priority");
	EXPECT(10, "correlation_id", "");
	EXPECT(9, "reply_to", "");
	EXPECT(8, "expiration", "");
	fuzz_check(flags & (1 << 7), "message_id is missing");
	for (int i = 0, at = 0; i < UUID_LEN; i++)
	{
		if (i == 4 || i == 6 || i == 8 || i == 10)
			id[at++] = '-';
		at += sprintf(id + at, "%02x", d->message.id.data[i]);
	}
	expect_text("message_id", take_short(wire), id, 36);
	if (flags & (1 << 6))
		(void) take_number(wire, 8);
	EXPECT(5, "type", d->message.event_type);
	fuzz_check((flags & (1 << 4)) == 0, "user_id");
	EXPECT(3, "app_id", "");
	fuzz_check((flags & (1 << 2)) == 0, "cluster_id");
	fuzz_check(wire->at == wire->end, "something behind the properties");
}

static void
expect_message(const Drawn *d, uint32 frame_max)
{
	Wire		wire = {(const uint8_t *) received.data,
	(const uint8_t *) received.data + received.len};
	Wire		method = take_frame(&wire, 1, frame_max);
	Wire		header = take_frame(&wire, 2, frame_max);
	uint64_t	left;
	StringInfoData body;

	fuzz_check(take_number(&method, 4) == 0x003c0028 && take_number(&method, 2) == 0,
			   "another method");
	expect_text("exchange", take_short(&method), d->exchange, strlen(d->exchange));
	expect_text("routing key", take_short(&method), d->routing_key, strlen(d->routing_key));
	fuzz_check(take_number(&method, 1) == 1 && method.at == method.end, "not mandatory");

	fuzz_check(take_number(&header, 4) == 0x003c0000, "another class");
	left = take_number(&header, 8);
	expect_properties(&header, d);
	initStringInfo(&body);
	while (left > 0)
	{
		Wire		part = take_frame(&wire, 3, frame_max);
		size_t		size = part.end - part.at;

		fuzz_check(size > 0 && size <= left, "a body frame of %zu bytes", size);
		appendBinaryStringInfoNT(&body, (const char *) part.at, (int) size);
		left -= size;
	}
	fuzz_check(wire.at == wire.end, "something behind the message");
	if (d->payload != NULL)
	{
		StringInfoData json;

		initStringInfo(&json);
		write_json(&json, d->payload);
		fuzz_check(body.len == json.len && memcmp(body.data, json.data, body.len) == 0,
				   "%.*s instead of %s", body.len, body.data, json.data);
		fuzz_check(outbox_json_text_size(d->message.payload, SIZE_MAX / 2) == (size_t) json.len,
				   "its size is said to be another");
	}
	else
		fuzz_check((size_t) body.len == d->message.body_len &&
				   memcmp(body.data, d->message.body, body.len) == 0, "another body");
}

/* Without the size of the frame, which nobody knows before. */
static bool
may_be_sent(const Drawn *d)
{
	return (d->headers == NULL || headers_fit(d->headers)) &&
		(d->properties == NULL || properties_fit(d->properties)) &&
		(member(d->properties, "type") != NULL ||
		 strlen(d->message.event_type) <= OUTBOX_SHORT_STRING_MAX) &&
		strlen(d->exchange) <= OUTBOX_SHORT_STRING_MAX &&
		strlen(d->routing_key) <= OUTBOX_SHORT_STRING_MAX;
}

/* ------------------------------------------------------------------------- entry */

static bool
not_told(void)
{
	return false;
}

int
LLVMFuzzerInitialize(int *argc, char ***argv)
{
	doc_names = Names;
	doc_nnames = lengthof(Names);
	outbox_watchdog_init(not_told);
	return 0;
}

/* One that is open, to a socket whose other end is ours. */
static OutboxLink *
open_link(uint32 frame_max)
{
	OutboxLinkEvents events = {NULL, NULL, NULL, NULL};
	OutboxLink *link = outbox_link_create(TopMemoryContext, &events);
	int			fds[2];

	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, fds) != 0)
		exit(2);
	link->fd = fds[0];
	wire_fd = fds[1];
	link->state = OUTBOX_LINK_OPEN;
	link->frame_max = frame_max;
	link->target.host = "";
	initStringInfo(&received);
	return link;
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	Input		in = {data, data + size};
	uint32		frame_max;
	OutboxLink *link;
	OutboxLinkStatus status;
	Drawn		d;

	fuzz_memory_reset();
	frame_max = 4096 + (input_number(&in) & 0x1ffff) % (OUTBOX_FRAME_MAX - 4095);
	link = open_link(frame_max);
	draw_message(&in, &d);
	status = outbox_link_burst_begin(link);
	fuzz_check(status == OUTBOX_LINK_OK, "no burst: %s", link->error.text);
	status = outbox_link_publish(link, &d.message, NULL, d.exchange, d.routing_key);
	fuzz_check(outbox_link_burst_end(link) == OUTBOX_LINK_OK, "%s", link->error.text);
	hear();
	while (outbox_link_sending(link))
	{
		fuzz_check(outbox_link_send_rest(link) != OUTBOX_LINK_LOST, "%s", link->error.text);
		hear();
	}
	if (status == OUTBOX_LINK_OK)
	{
		fuzz_check(may_be_sent(&d), "is sent, and ought not to");
		expect_message(&d, frame_max);
	}
	else
	{
		fuzz_check(status == OUTBOX_LINK_REFUSED && received.len == 0 &&
				   link->error.text[0] != '\0', "neither sent nor refused: %d", status);
		fuzz_check(!may_be_sent(&d) ||
				   strstr(link->error.text, "do not fit into one frame") != NULL,
				   "refused: %s", link->error.text);
	}
	outbox_link_drop(link);
	close(wire_fd);
	fuzz_memory_reset();
	return 0;
}
