/*-------------------------------------------------------------------------
 *
 * uri.h
 *		outbox.broker_uri and outbox.passfile: where the broker is and how to
 *		log in.
 *
 * librabbitmq's own parser writes into its argument, refuses percent-encoded
 * bytes above 0x7f and queries, and reads "host/" as virtual host "", so the
 * project has its own.
 *
 *-------------------------------------------------------------------------
 */
#ifndef OUTBOX_URI_H
#define OUTBOX_URI_H

#include "reason_codes.h"

#define OUTBOX_MAX_HOSTS 16

/* How the broker is told who we are: outbox.auth_mechanism. */
typedef enum OutboxAuth
{
	OUTBOX_AUTH_PLAIN,			/* user and password */
	OUTBOX_AUTH_EXTERNAL		/* the client certificate of TLS */
} OutboxAuth;

typedef struct OutboxHost
{
	char	   *host;			/* name or address, without [] */
	int			port;
} OutboxHost;

typedef struct OutboxUri
{
	bool		tls;			/* amqps:// */
	char	   *user;
	char	   *vhost;
	int			nhosts;			/* >= 1 */
	OutboxHost	hosts[OUTBOX_MAX_HOSTS];
} OutboxUri;

/*
 * Parses amqp[s]://[user@]host[:port][,host[:port]...][/vhost].  Parts are
 * percent-decoded; user defaults to guest, the port to 5672 (5671 with TLS),
 * the virtual host to "/" (also for a URI that ends in "/").  IPv6 addresses
 * stand in brackets.  A password in the URI is refused: everybody who may read
 * settings would see it.
 *
 * Returns NULL on success, else a translated-style detail sentence that names
 * what is wrong and never repeats a password.  All memory is palloc'd in the
 * current context.
 */
extern const char *outbox_uri_parse(const char *text, OutboxUri *uri);

/* Makes a text that cannot be parsed fit to be shown. */
extern void outbox_uri_hide_password(char *text);

/*
 * Looks up the password in a file of lines host:port:vhost:user:password as
 * libpq's .pgpass: '*' matches anything, '\' escapes ':' and '\', lines that
 * start with '#' are skipped, the first match wins.  An empty path (no
 * passfile set) yields "guest" for the user guest, as a stock RabbitMQ has it,
 * and an error for any other user.
 *
 * Returns NULL on success with *password palloc'd, else a detail sentence, and
 * *reason: file missing, not readable, not a plain file, permissions wider than
 * 0600, no matching line.
 */
extern const char *outbox_passfile_lookup(const char *path, const char *host,
										  int port, const char *vhost,
										  const char *user, char **password,
										  OutboxReason *reason);

/* passfile.c: what the relay logs in with, as the settings have it */

/*
 * The password for that host of the URI, palloc'd; an empty one where the client
 * certificate takes its place, and no file is read.  NULL on success, else a detail
 * sentence, and *reason.
 */
extern const char *outbox_login_password(const OutboxUri *uri, int host,
										 char **password, OutboxReason *reason);

#endif							/* OUTBOX_URI_H */
