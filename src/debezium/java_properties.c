/*-------------------------------------------------------------------------
 *
 * java_properties.c
 *		Text as java.util.Properties writes it (plain C).
 *
 * One "key=value" a line (":" and blanks separate as well), comments that begin with
 * "#" or "!", a backslash before what means something, \uXXXX, and one at the end of a
 * line where the line goes on.  For values of ASCII only, as those of a trace context
 * are.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "hex.h"
#include "java_properties.h"

/* A character that no ASCII text has: what cannot be told. */
#define FOREIGN	'\x80'

static bool
is_blank(char c)
{
	return c == ' ' || c == '\t' || c == '\f';
}

static bool
is_end(char c)
{
	return c == '\0' || c == '\n' || c == '\r';
}

static const char *
skip_blanks(const char *p)
{
	while (is_blank(*p))
		p++;
	return p;
}

/* Behind the end of a line, which may be \r\n. */
static const char *
skip_end(const char *p)
{
	if (*p == '\r' && p[1] == '\n')
		return p + 2;
	return *p == '\0' ? p : p + 1;
}

/* The four digits at *p; what is no ASCII is FOREIGN. */
static char
read_unicode(const char **p)
{
	int			code = 0;

	for (int i = 0; i < 4; i++)
	{
		int			digit = outbox_hex_digit(**p);

		if (digit < 0)
			return FOREIGN;
		code = code * 16 + digit;
		(*p)++;
	}
	return code > 0 && code < 0x80 ? (char) code : FOREIGN;
}

/*
 * The character at *p, which is not the end of its line, and moves on.  Returns zero
 * where a line goes on in the next one.
 */
static char
read_char(const char **p)
{
	char		c = *(*p)++;

	if (c != '\\')
		return c;
	if (is_end(**p))
	{
		*p = skip_blanks(skip_end(*p));
		return '\0';
	}
	c = *(*p)++;
	switch (c)
	{
		case 't':
			return '\t';
		case 'n':
			return '\n';
		case 'r':
			return '\r';
		case 'f':
			return '\f';
		case 'u':
			return read_unicode(p);
		default:
			return c;
	}
}

/* Reads a key to its separator.  Is it that one? */
static bool
read_key(const char **p, const char *key)
{
	bool		same = true;

	while (!is_end(**p) && !is_blank(**p) && **p != '=' && **p != ':')
	{
		char		c = read_char(p);

		if (c == '\0')
			continue;
		same = same && *key == c;
		if (same)
			key++;
	}
	return same && *key == '\0';
}

static const char *
skip_separator(const char *p)
{
	p = skip_blanks(p);
	if (*p == '=' || *p == ':')
		p = skip_blanks(p + 1);
	return p;
}

/* Reads to the end of the (continued) line.  Is all of it in value? */
static bool
read_value(const char **p, char *value, size_t size)
{
	size_t		used = 0;
	bool		fits = true;

	while (!is_end(**p))
	{
		char		c = read_char(p);

		if (c == '\0')
			continue;
		fits = fits && ((unsigned char) c & 0x80) == 0 && used + 1 < size;
		if (fits)
			value[used++] = c;
	}
	value[used] = '\0';
	return fits;
}

bool
outbox_java_property(const char *text, const char *key, char *value, size_t size)
{
	const char *p = text;
	bool		found = false;
	char		ignored[1];

	while (*(p = skip_blanks(p)) != '\0')
	{
		if (*p == '#' || *p == '!')
			while (!is_end(*p))
				p++;
		else if (is_end(*p))
			;					/* an empty line */
		else if (read_key(&p, key))
		{
			p = skip_separator(p);
			found = read_value(&p, value, size);
		}
		else
		{
			p = skip_separator(p);
			(void) read_value(&p, ignored, sizeof(ignored));
		}
		p = skip_end(p);
	}
	return found;
}
