/*-------------------------------------------------------------------------
 *
 * traceparent.c
 *		Trace context by W3C's recommendation (plain C).
 *
 * The one parser of what settings, comments of statements and headers of
 * messages say, see https://www.w3.org/TR/trace-context/.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "printable.h"
#include "traceparent.h"

/* Where the fields begin in 00-<trace id>-<parent id>-<flags>. */
#define VERSION_AT		0
#define TRACE_ID_AT		3
#define PARENT_ID_AT	36
#define FLAGS_AT		53

#define TRACE_ID_LEN	32
#define PARENT_ID_LEN	16

/* Sampled, and of level 2: the trace id is random. */
#define KNOWN_FLAGS		0x03

/* Of tracestate. */
#define MAX_MEMBERS		32
#define MAX_KEY			256
#define MAX_VALUE		256

/* --------------------------------------------------------------- traceparent */

static bool
is_lower_hex(const char *text, int len)
{
	for (int i = 0; i < len; i++)
		if (outbox_hex_digit(text[i]) < 0 || (text[i] >= 'A' && text[i] <= 'F'))
			return false;
	return true;
}

static bool
is_zero(const char *text, int len)
{
	for (int i = 0; i < len; i++)
		if (text[i] != '0')
			return false;
	return true;
}

static unsigned
hex_byte(const char *text)
{
	return (unsigned) (outbox_hex_digit(text[0]) * 16 +
					   outbox_hex_digit(text[1]));
}

static const char *
check_version(const char *text, size_t len)
{
	unsigned	version = hex_byte(text + VERSION_AT);

	if (version == 0xff)
		return "The version ff is not valid.";
	if (version == 0 && len != OUTBOX_TRACEPARENT_LEN)
		return "Version 00 has 55 characters.";
	if (len > OUTBOX_TRACEPARENT_LEN && text[OUTBOX_TRACEPARENT_LEN] != '-')
		return "Behind the flags, a later version goes on with \"-\".";
	return NULL;
}

static const char *
check_form(const char *text, size_t len)
{
	if (len < OUTBOX_TRACEPARENT_LEN)
		return "It has fewer than 55 characters.";
	if (text[TRACE_ID_AT - 1] != '-' || text[PARENT_ID_AT - 1] != '-' ||
		text[FLAGS_AT - 1] != '-')
		return "It has to be version-traceid-parentid-flags, with 2, 32, 16 and 2 digits.";
	if (!is_lower_hex(text + VERSION_AT, 2) ||
		!is_lower_hex(text + TRACE_ID_AT, TRACE_ID_LEN) ||
		!is_lower_hex(text + PARENT_ID_AT, PARENT_ID_LEN) ||
		!is_lower_hex(text + FLAGS_AT, 2))
		return "Its digits have to be hexadecimal ones in lower case.";
	if (is_zero(text + TRACE_ID_AT, TRACE_ID_LEN))
		return "Its trace id is all zeros.";
	if (is_zero(text + PARENT_ID_AT, PARENT_ID_LEN))
		return "Its parent id is all zeros.";
	return check_version(text, len);
}

const char *
outbox_traceparent_parse(const char *text, size_t len, OutboxTraceparent *out)
{
	const char *problem = check_form(text, len);

	if (problem != NULL)
		return problem;
	memcpy(out->trace_id, text + TRACE_ID_AT, TRACE_ID_LEN);
	out->trace_id[TRACE_ID_LEN] = '\0';
	memcpy(out->parent_id, text + PARENT_ID_AT, PARENT_ID_LEN);
	out->parent_id[PARENT_ID_LEN] = '\0';
	out->flags = hex_byte(text + FLAGS_AT) & KNOWN_FLAGS;
	return NULL;
}

void
outbox_traceparent_format(const OutboxTraceparent *parent,
						  char out[OUTBOX_TRACEPARENT_LEN + 1])
{
	snprintf(out, OUTBOX_TRACEPARENT_LEN + 1, "00-%s-%s-%02x",
			 parent->trace_id, parent->parent_id, parent->flags);
}

/* The last half of the id: in UUIDs of version 7 the first one is the time. */
void
outbox_trace_span_id(const unsigned char message_id[16], char out[17])
{
	for (int i = 0; i < PARENT_ID_LEN / 2; i++)
		snprintf(out + 2 * i, 3, "%02x", message_id[8 + i]);
	if (is_zero(out, PARENT_ID_LEN))
		out[PARENT_ID_LEN - 1] = '1';
}

/* ---------------------------------------------------------------- tracestate */

static bool
is_key_char(char c)
{
	return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') ||
		c == '_' || c == '-' || c == '*' || c == '/' || c == '@';
}

static bool
is_value_char(char c)
{
	return c >= ' ' && c <= '~' && c != ',' && c != '=';
}

static bool
is_blank(char c)
{
	return c == ' ' || c == '\t';
}

/* One member, without the blanks around it. */
static const char *
check_member(const char *text, size_t len)
{
	size_t		key = 0;

	while (key < len && is_key_char(text[key]))
		key++;
	if (key == 0 || key > MAX_KEY || key == len || text[key] != '=' ||
		!((text[0] >= 'a' && text[0] <= 'z') ||
		  (text[0] >= '0' && text[0] <= '9')))
		return "Each member has to be key=value, with a key of at most 256 lower-case letters, digits and _-*/@.";
	text += key + 1;
	len -= key + 1;
	if (len == 0 || len > MAX_VALUE)
		return "A value has to have 1 to 256 characters.";
	for (size_t i = 0; i < len; i++)
		if (!is_value_char(text[i]))
			return "A value consists of printable ASCII characters other than \",\" and \"=\".";
	return NULL;
}

const char *
outbox_tracestate_check(const char *text, size_t len)
{
	const char *end = text + len;
	int			members = 0;

	while (text < end)
	{
		const char *comma = memchr(text, ',', end - text);
		const char *stop = comma != NULL ? comma : end;
		const char *last = stop;
		const char *problem;

		while (text < last && is_blank(*text))
			text++;
		while (last > text && is_blank(last[-1]))
			last--;
		/* Empty members are allowed, and do not count. */
		if (last > text)
		{
			if (++members > MAX_MEMBERS)
				return "It has more than 32 members.";
			problem = check_member(text, last - text);
			if (problem != NULL)
				return problem;
		}
		text = stop < end ? stop + 1 : end;
	}
	return NULL;
}
