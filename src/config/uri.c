/*-------------------------------------------------------------------------
 *
 * uri.c
 *		outbox.broker_uri: where the broker is.
 *
 * No message repeats any part of the text: whoever writes a password into the
 * URI in spite of the documentation must not find it in a log, and where a
 * password begins is not certain in a text that is wrong.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <ctype.h>

#include "amqp_limits.h"
#include "printable.h"
#include "uri.h"

#define PORT_PLAIN	5672
#define PORT_TLS	5671

static const char *const NoPassword =
"The URI must not contain a password; put it into the file named by outbox.passfile (an \"@\" in the virtual host is written %40).";

/* Percent-decodes len bytes; NULL when an escape is malformed or is %00. */
static char *
decode(const char *text, size_t len)
{
	char	   *result = palloc(len + 1);
	char	   *out = result;
	size_t		i;

	for (i = 0; i < len; i++)
	{
		int			high;
		int			low;

		if (text[i] != '%')
		{
			*out++ = text[i];
			continue;
		}
		if (i + 2 >= len)
			return NULL;
		high = outbox_hex_digit(text[i + 1]);
		low = outbox_hex_digit(text[i + 2]);
		if (high < 0 || low < 0 || (high == 0 && low == 0))
			return NULL;
		*out++ = (char) (high << 4 | low);
		i += 2;
	}
	*out = '\0';
	return result;
}

/* Digits only: strtol() would take blanks and signs. */
static bool
parse_port(const char *text, size_t len, int *port)
{
	size_t		i;

	*port = 0;
	if (len == 0 || len > 5)
		return false;
	for (i = 0; i < len; i++)
	{
		if (text[i] < '0' || text[i] > '9')
			return false;
		*port = *port * 10 + (text[i] - '0');
	}
	return *port >= 1 && *port <= 65535;
}

/* Characters of host names and of addresses, which may carry a zone (%eth0). */
static bool
host_is_valid(const char *host, size_t len, bool bracketed)
{
	size_t		i;

	for (i = 0; i < len; i++)
	{
		unsigned char c = (unsigned char) host[i];

		if (c >= 0x80 || (!isalnum(c) && strchr(bracketed ? ".-_:%" : ".-_",
												c) == NULL))
			return false;
	}
	return len > 0;
}

/* One host[:port] or [address][:port]. */
static const char *
parse_host(const char *text, size_t len, int default_port, OutboxHost *host)
{
	bool		bracketed = len > 0 && text[0] == '[';
	const char *name = bracketed ? text + 1 : text;
	const char *end = memchr(text, bracketed ? ']' : ':', len);
	const char *rest;

	if (bracketed && end == NULL)
		return "A host of the URI lacks its closing bracket.";
	if (end == NULL)
		end = text + len;
	rest = bracketed ? end + 1 : end;

	if (!host_is_valid(name, end - name, bracketed))
		return end == name ? "A host of the URI is empty." :
			"A host of the URI contains a character that is not allowed there.";
	host->port = default_port;
	if (rest < text + len)
	{
		size_t		port_len = text + len - rest - 1;

		if (!bracketed && memchr(rest + 1, ':', port_len) != NULL)
			return "An IPv6 address in the URI must be written in brackets.";
		if (*rest != ':' || !parse_port(rest + 1, port_len, &host->port))
			return "A port of the URI is not a number from 1 to 65535.";
	}
	host->host = pnstrdup(name, end - name);
	return NULL;
}

static const char *
parse_hosts(const char *text, size_t len, OutboxUri *uri)
{
	int			default_port = uri->tls ? PORT_TLS : PORT_PLAIN;

	uri->nhosts = 0;
	for (;;)
	{
		const char *comma = memchr(text, ',', len);
		size_t		part = comma != NULL ? (size_t) (comma - text) : len;
		const char *problem;

		if (uri->nhosts == OUTBOX_MAX_HOSTS)
			return "The URI names more than 16 hosts.";
		problem = parse_host(text, part, default_port,
							 &uri->hosts[uri->nhosts]);
		if (problem != NULL)
			return problem;
		uri->nhosts++;
		if (comma == NULL)
			return NULL;
		text += part + 1;
		len -= part + 1;
	}
}

static const char *
parse_user(const char *text, size_t len, OutboxUri *uri)
{
	uri->user = decode(text, len);
	if (uri->user == NULL)
		return "The user name in the URI has a malformed percent escape.";
	if (uri->user[0] == '\0')
		return "The user name in the URI is empty.";
	if (strlen(uri->user) > OUTBOX_SHORT_STRING_MAX)
		return "The user name in the URI is longer than 255 bytes.";
	return NULL;
}

static const char *
parse_vhost(const char *text, OutboxUri *uri)
{
	if (strchr(text, '/') != NULL)
		return "A slash within the virtual host of the URI must be written %2F.";
	uri->vhost = text[0] != '\0' ? decode(text, strlen(text)) : pstrdup("/");
	if (uri->vhost == NULL)
		return "The virtual host in the URI has a malformed percent escape.";
	if (strlen(uri->vhost) > OUTBOX_SHORT_STRING_MAX)
		return "The virtual host in the URI is longer than 255 bytes.";
	return NULL;
}

/* What follows "amqp://": [user@]hosts[/vhost] */
static const char *
parse_rest(const char *rest, OutboxUri *uri)
{
	const char *at = strrchr(rest, '@');
	const char *slash;
	const char *problem;

	/*
	 * Look for a password first, and generously: one that contains a slash
	 * would otherwise be taken for a port and a virtual host.
	 */
	if (at != NULL && memchr(rest, ':', at - rest) != NULL)
		return NoPassword;
	if (strpbrk(rest, "?#") != NULL)
		return "The URI must not contain parameters; there are settings for them.";

	at = strchr(rest, '@');
	slash = strchr(rest, '/');
	if (at != NULL && slash != NULL && slash < at)
		at = NULL;				/* it belongs to the virtual host */
	uri->user = pstrdup("guest");
	if (at != NULL)
	{
		problem = parse_user(rest, at - rest, uri);
		if (problem != NULL)
			return problem;
		rest = at + 1;
	}
	problem = parse_hosts(rest, slash != NULL ? (size_t) (slash - rest) :
						  strlen(rest), uri);
	if (problem != NULL)
		return problem;
	return parse_vhost(slash != NULL ? slash + 1 : "", uri);
}

/*
 * Puts stars in place of all that might be a password: what follows the first
 * colon, as "user:" may stand where "host:" should.  What divides a URI stays, and
 * so does what it must not contain, so that it is still one that cannot be parsed,
 * mostly with the same error.
 */
void
outbox_uri_hide_password(char *text)
{
	char	   *colon = strchr(text, ':');
	char	   *p;

	if (colon != NULL && strncmp(colon, "://", 3) == 0)
		colon = strchr(colon + 3, ':');
	for (p = colon; p != NULL && *p != '\0'; p++)
	{
		if ((unsigned char) *p > ' ' && *p != 0x7f &&
			strchr(":/@,[]?#%", *p) == NULL)
			*p = '*';
	}
}

const char *
outbox_uri_parse(const char *text, OutboxUri *uri)
{
	const char *p;

	memset(uri, 0, sizeof(*uri));
	for (p = text; *p != '\0'; p++)
	{
		if ((unsigned char) *p <= ' ' || *p == 0x7f)
			return "The URI contains a blank or a control character.";
	}
	if (pg_strncasecmp(text, "amqp://", 7) == 0)
		return parse_rest(text + 7, uri);
	if (pg_strncasecmp(text, "amqps://", 8) == 0)
	{
		uri->tls = true;
		return parse_rest(text + 8, uri);
	}
	return "The URI must begin with amqp:// or amqps://.";
}
