/*-------------------------------------------------------------------------
 *
 * fuzz_uri.c
 *		outbox.broker_uri: what is accepted is within its limits, has no password,
 *		and means the same when it is written out again.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "amqp_limits.h"
#include "fuzz.h"
#include "pg.h"
#include "uri.h"

/* Every byte but letters and digits as %XX. */
static char *
escaped(const char *text)
{
	char	   *result = palloc(3 * strlen(text) + 1);
	char	   *out = result;

	for (; *text != '\0'; text++)
	{
		if ((*text >= 'a' && *text <= 'z') || (*text >= '0' && *text <= '9'))
			*out++ = *text;
		else
			out += sprintf(out, "%%%02X", (unsigned char) *text);
	}
	*out = '\0';
	return result;
}

static char *
written_out(const OutboxUri *uri)
{
	StringInfoData text;

	initStringInfo(&text);
	appendStringInfoString(&text, uri->tls ? "amqps://" : "amqp://");
	appendStringInfoString(&text, escaped(uri->user));
	appendStringInfoString(&text, "@");
	for (int i = 0; i < uri->nhosts; i++)
	{
		bool		bracketed = strchr(uri->hosts[i].host, ':') != NULL ||
			strchr(uri->hosts[i].host, '%') != NULL;

		appendStringInfoString(&text, i > 0 ? "," : "");
		appendStringInfoString(&text, bracketed ? "[" : "");
		appendStringInfoString(&text, uri->hosts[i].host);
		appendStringInfoString(&text, bracketed ? "]" : "");
		appendStringInfo(&text, ":%d", uri->hosts[i].port);
	}
	appendStringInfoString(&text, "/");
	appendStringInfoString(&text, escaped(uri->vhost));
	return text.data;
}

static void
check_same(const OutboxUri *a, const OutboxUri *b)
{
	/* an empty virtual host is "/", so it has been one before, too */
	fuzz_check(a->tls == b->tls && a->nhosts == b->nhosts &&
			   strcmp(a->user, b->user) == 0 && strcmp(a->vhost, b->vhost) == 0,
			   "it means something else");
	for (int i = 0; i < a->nhosts; i++)
		fuzz_check(strcmp(a->hosts[i].host, b->hosts[i].host) == 0 &&
				   a->hosts[i].port == b->hosts[i].port, "another host");
}

int
LLVMFuzzerInitialize(int *argc, char ***argv)
{
	return 0;
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	OutboxUri	uri;
	OutboxUri	again;
	const char *at;
	char	   *text;

	fuzz_memory_reset();
	text = pnstrdup((const char *) data, size);
	if (outbox_uri_parse(text, &uri) != NULL)
		return 0;

	at = strrchr(text, '@');
	fuzz_check(at == NULL || memchr(text + 8, ':', Max(at - text - 8, 0)) == NULL,
			   "a password is accepted");
	fuzz_check(uri.nhosts >= 1 && uri.nhosts <= OUTBOX_MAX_HOSTS, "%d hosts", uri.nhosts);
	for (int i = 0; i < uri.nhosts; i++)
		fuzz_check(uri.hosts[i].port >= 1 && uri.hosts[i].port <= 65535 &&
				   uri.hosts[i].host[0] != '\0', "a host that cannot be");
	fuzz_check(uri.user[0] != '\0' && strlen(uri.user) <= OUTBOX_SHORT_STRING_MAX &&
			   strlen(uri.vhost) <= OUTBOX_SHORT_STRING_MAX, "longer than AMQP allows");
	fuzz_check(outbox_uri_parse(written_out(&uri), &again) == NULL,
			   "is refused when it is written out: %s", written_out(&uri));
	if (uri.vhost[0] != '\0')
		check_same(&uri, &again);
	fuzz_memory_reset();
	return 0;
}
