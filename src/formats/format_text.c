/*-------------------------------------------------------------------------
 *
 * format_text.c
 *		What the texts of a format may be.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "format_text.h"
#include "printable.h"

/* As in the C locale, whatever that of the process is. */
static bool
is_alpha(char c)
{
	return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

static bool
is_digit(char c)
{
	return c >= '0' && c <= '9';
}

static bool
is_one_of(char c, const char *set)
{
	return c != '\0' && strchr(set, c) != NULL;
}

/* ---------------------------------------------------------------- characters */

/* The character at *p, which is moved behind it.  The text is valid UTF-8. */
static unsigned
next_character(const unsigned char **p)
{
	unsigned	c = *(*p)++;
	int			more = c < 0xc0 ? 0 : c < 0xe0 ? 1 : c < 0xf0 ? 2 : 3;

	if (more > 0)
		c &= 0x3f >> more;
	for (; more > 0 && (**p & 0xc0) == 0x80; more--)
		c = (c << 6) | (*(*p)++ & 0x3f);
	return c;
}

bool
outbox_is_attribute_text(const char *utf8)
{
	const unsigned char *p = (const unsigned char *) utf8;

	while (*p)
	{
		unsigned	c = next_character(&p);

		if (c < 0x20 || (c >= 0x7f && c <= 0x9f) ||
			(c >= 0xfdd0 && c <= 0xfdef) || (c & 0xfffe) == 0xfffe)
			return false;
	}
	return true;
}

/* ---------------------------------------------------------------------- URI */

/* Characters of URIs, brackets aside, and of percent signs those that encode. */
static bool
has_uri_characters(const char *text)
{
	for (const char *p = text; *p; p++)
	{
		if (*p == '%' && (outbox_hex_digit(p[1]) < 0 || outbox_hex_digit(p[2]) < 0))
			return false;
		if (!is_alpha(*p) && !is_digit(*p) &&
			!is_one_of(*p, "-._~:/?#[]@!$&'()*+,;=%"))
			return false;
	}
	return true;
}

/* Bytes of the scheme, its colon included; 0: none; -1: a colon behind no scheme. */
static int
scheme_length(const char *text)
{
	size_t		n = strcspn(text, ":/?#");

	if (text[n] != ':')
		return 0;
	if (!is_alpha(text[0]))
		return -1;
	for (size_t i = 1; i < n; i++)
		if (!is_alpha(text[i]) && !is_digit(text[i]) && !is_one_of(text[i], "+-."))
			return -1;
	return (int) n + 1;
}

/* user@host:port; the host may be an address in brackets. */
static bool
is_authority(const char *text, size_t len)
{
	const char *end = text + len;
	const char *at = memchr(text, '@', len);
	const char *p = at != NULL ? at + 1 : text;

	if (at != NULL && (memchr(text, '[', at - text) || memchr(text, ']', at - text)))
		return false;
	if (p < end && *p == '[')
	{
		const char *close = memchr(p, ']', end - p);

		if (close == NULL || close == p + 1)
			return false;
		p = close + 1;
	}
	else
		while (p < end && *p != ':' && !is_one_of(*p, "[]@"))
			p++;
	if (p < end && *p++ != ':')
		return false;
	while (p < end && is_digit(*p))
		p++;
	return p == end;
}

bool
outbox_is_uri_reference(const char *text)
{
	int			scheme;
	const char *p;
	const char *fragment;

	if (*text == '\0' || !has_uri_characters(text) ||
		(scheme = scheme_length(text)) < 0)
		return false;
	p = text + scheme;
	if (p[0] == '/' && p[1] == '/')
	{
		size_t		len = strcspn(p + 2, "/?#");

		if (!is_authority(p + 2, len))
			return false;
		p += 2 + len;
	}
	if (strpbrk(p, "[]") != NULL)
		return false;
	fragment = strchr(p, '#');
	return fragment == NULL || strchr(fragment + 1, '#') == NULL;
}

bool
outbox_is_absolute_uri(const char *text)
{
	return outbox_is_uri_reference(text) && scheme_length(text) > 0 &&
		strchr(text, '#') == NULL;
}

/* --------------------------------------------------------------- media types */

/* Bytes of the token (RFC 2045) that text begins with. */
static size_t
token_length(const char *text)
{
	size_t		n = 0;

	while (text[n] > ' ' && text[n] < 0x7f && !is_one_of(text[n], "()<>@,;:\\\"/[]?="))
		n++;
	return n;
}

/* Bytes up to the parameters; 0: no media type. */
static size_t
media_type_length(const char *text)
{
	size_t		type = token_length(text);
	size_t		subtype;

	if (type == 0 || text[type] != '/')
		return 0;
	subtype = token_length(text + type + 1);
	return subtype == 0 ? 0 : type + 1 + subtype;
}

bool
outbox_is_media_type(const char *text)
{
	size_t		n = media_type_length(text);

	if (n == 0)
		return false;
	while (text[n] == ' ')
		n++;
	if (text[n] != '\0' && text[n] != ';')
		return false;
	for (; text[n]; n++)
		if (text[n] < ' ' || text[n] >= 0x7f)
			return false;
	return true;
}

bool
outbox_is_json_media_type(const char *text)
{
	size_t		n = media_type_length(text);

	return n >= 6 && is_one_of(text[n - 5], "/+") &&
		pg_strncasecmp(text + n - 4, "json", 4) == 0;
}

/* --------------------------------------------------------------------- UUID */

bool
outbox_is_uuid(const char *text)
{
	static const char form[] = "xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx";

	for (int i = 0; form[i] != '\0'; i++)
		if (form[i] == 'x' ? outbox_hex_digit(text[i]) < 0 : text[i] != '-')
			return false;
	return text[sizeof(form) - 1] == '\0';
}

/* ------------------------------------------------------------------- base64 */

size_t
outbox_base64_size(size_t len)
{
	return (len + 2) / 3 * 4;
}

void
outbox_base64(const char *bytes, size_t len, char *out)
{
	static const char digits[] =
	"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
	const unsigned char *in = (const unsigned char *) bytes;

	for (; len > 0; len -= len < 3 ? len : 3, in += 3)
	{
		unsigned	three = (unsigned) in[0] << 16;

		if (len > 1)
			three |= (unsigned) in[1] << 8;
		if (len > 2)
			three |= in[2];
		*out++ = digits[three >> 18];
		*out++ = digits[(three >> 12) & 63];
		*out++ = len > 1 ? digits[(three >> 6) & 63] : '=';
		*out++ = len > 2 ? digits[three & 63] : '=';
	}
}
