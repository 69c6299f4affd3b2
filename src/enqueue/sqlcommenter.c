/*-------------------------------------------------------------------------
 *
 * sqlcommenter.c
 *		Trace context in the comment at the end of a statement (plain C).
 *
 *		INSERT INTO ... / *action='x',traceparent='00-...-01',tracestate='a%3Db'* /
 *
 * Keys and values are URL-encoded, pairs separated by commas, and a quote in a
 * value has a backslash before it; see https://google.github.io/sqlcommenter/spec.
 * What the comment says comes from a client, so nothing of it is taken but what
 * traceparent.c accepts, and nothing in it is an error.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "printable.h"
#include "sqlcommenter.h"

typedef struct Text
{
	const char *at;
	size_t		len;
} Text;

static bool
is_space(char c)
{
	return c == ' ' || c == '\t' || c == '\n' || c == '\r' || c == '\f' ||
		c == '\v';
}

static void
advance(Text *text, size_t n)
{
	text->at += n;
	text->len -= n;
}

static void
skip_space(Text *text)
{
	while (text->len > 0 && is_space(text->at[0]))
		advance(text, 1);
}

/* The character that must come next. */
static bool
skip(Text *text, char expected)
{
	if (text->len == 0 || text->at[0] != expected)
		return false;
	advance(text, 1);
	return true;
}

/* What is between the last comment's ends, if nothing stands behind it. */
static bool
last_comment(const char *statement, size_t len, Text *comment)
{
	size_t		start;

	while (len > 0 && (is_space(statement[len - 1]) || statement[len - 1] == ';'))
		len--;
	if (len < 4 || statement[len - 1] != '/' || statement[len - 2] != '*')
		return false;
	len -= 2;
	for (start = len; start >= 2; start--)
		if (statement[start - 2] == '/' && statement[start - 1] == '*')
		{
			comment->at = statement + start;
			comment->len = len - start;
			return true;
		}
	return false;
}

/* Up to the character, which must be there; a backslash hides the next one. */
static bool
take_until(Text *text, char end, Text *taken)
{
	taken->at = text->at;
	for (size_t i = 0; i < text->len; i++)
	{
		if (text->at[i] == end)
		{
			taken->len = i;
			advance(text, i + 1);
			return true;
		}
		if (text->at[i] == '\\')
			i++;
	}
	return false;
}

/*
 * key='value'; the key without the blanks around it.  A value without quotes, as
 * OpenTelemetry's Python writes numbers, is none of those that are looked for, and leaves
 * the key empty.
 */
static bool
take_pair(Text *text, Text *key, Text *value)
{
	skip_space(text);
	if (!take_until(text, '=', key))
		return false;
	while (key->len > 0 && is_space(key->at[key->len - 1]))
		key->len--;
	skip_space(text);
	if (skip(text, '\''))
		return take_until(text, '\'', value);
	key->len = 0;
	while (text->len > 0 && text->at[0] != ',' && text->at[0] != '\'')
		advance(text, 1);
	return true;
}

/* Without URL encoding and backslashes; false if it is malformed or too long. */
static bool
decode(const Text *text, char *out, size_t size)
{
	size_t		used = 0;

	for (size_t i = 0; i < text->len; i++)
	{
		char		c = text->at[i];

		if (c == '%')
		{
			int			high = i + 2 < text->len ? outbox_hex_digit(text->at[i + 1]) : -1;
			int			low = i + 2 < text->len ? outbox_hex_digit(text->at[i + 2]) : -1;

			if (high < 0 || low < 0 || high + low == 0)
				return false;
			c = (char) (high * 16 + low);
			i += 2;
		}
		else if (c == '\\' && ++i < text->len)
			c = text->at[i];
		if (used + 1 >= size)
			return false;
		out[used++] = c;
	}
	out[used] = '\0';
	return true;
}

static bool
key_is(const Text *key, const char *name)
{
	return key->len == strlen(name) && memcmp(key->at, name, key->len) == 0;
}

bool
outbox_sqlcommenter_read(const char *statement, size_t len,
						 OutboxSqlComment *out)
{
	Text		comment;
	Text		key;
	Text		value;
	char		parent[2 * OUTBOX_TRACEPARENT_LEN];
	bool		found = false;

	out->state[0] = '\0';
	if (!last_comment(statement, len, &comment))
		return false;
	do
	{
		if (!take_pair(&comment, &key, &value))
			return false;
		if (key_is(&key, "traceparent"))
		{
			if (!decode(&value, parent, sizeof(parent)) ||
				outbox_traceparent_parse(parent, strlen(parent), &out->parent) != NULL)
				return false;
			found = true;
		}
		/* A bad tracestate leaves the traceparent as it is, says W3C. */
		else if (key_is(&key, "tracestate") &&
				 (!decode(&value, out->state, sizeof(out->state)) ||
				  outbox_tracestate_check(out->state, strlen(out->state)) != NULL))
			out->state[0] = '\0';
		skip_space(&comment);
	} while (skip(&comment, ','));
	return found && comment.len == 0;
}
