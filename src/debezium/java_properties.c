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

#include "java_properties.h"
#include "printable.h"

/* A character that no ASCII text has: what cannot be told. */
#define FOREIGN	'\x80'

/* Longer keys than those that are asked for. */
#define MAX_KEY	32

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

/*
 * Reads a key to its separator, or a value to the end of its (continued) line.  Is all
 * of it in text?
 */
static bool
read_text(const char **p, bool key, char *text, size_t size)
{
	size_t		used = 0;
	bool		fits = true;

	while (!is_end(**p) &&
		   !(key && (is_blank(**p) || **p == '=' || **p == ':')))
	{
		char		c = read_char(p);

		if (c == '\0')
			continue;
		fits = fits && ((unsigned char) c & 0x80) == 0 && used + 1 < size;
		if (fits)
			text[used++] = c;
	}
	text[used] = '\0';
	return fits;
}

bool
outbox_java_property(const char *text, const char *key, char *value, size_t size)
{
	const char *p = text;
	bool		found = false;
	char		name[MAX_KEY];
	char		ignored[1];

	while (*(p = skip_blanks(p)) != '\0')
	{
		if (*p == '#' || *p == '!')
			while (!is_end(*p))
				p++;
		else if (!is_end(*p))	/* no empty line */
		{
			bool		same = read_text(&p, true, name, sizeof(name)) && strcmp(name, key) == 0;

			p = skip_blanks(p);
			if (*p == '=' || *p == ':')
				p = skip_blanks(p + 1);
			if (same)
				found = read_text(&p, false, value, size);
			else
				(void) read_text(&p, false, ignored, sizeof(ignored));
		}
		p = skip_end(p);
	}
	return found;
}
