/*-------------------------------------------------------------------------
 *
 * login.c
 *		What the relay logs in with, as the settings have it.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "login.h"
#include "settings.h"

/* Who the broker takes us for must be shown by TLS, and to us it must be TLS. */
static const char *
check_external(const OutboxUri *uri)
{
	if (!uri->tls)
		return "outbox.auth_mechanism is external, which needs TLS, and outbox.broker_uri begins with amqp://.";
	if (outbox_tls_cert_file[0] == '\0')
		return "outbox.auth_mechanism is external, and there is no client certificate to log in with, because outbox.tls_cert_file is not set.";
	return NULL;
}

const char *
outbox_login_password(const OutboxUri *uri, int host, char **password,
					  OutboxReason *reason)
{
	const char *problem;

	if (outbox_auth_mechanism != OUTBOX_AUTH_EXTERNAL)
		return outbox_passfile_lookup(outbox_passfile, uri->hosts[host].host,
									  uri->hosts[host].port, uri->vhost,
									  uri->user, password, reason);
	problem = check_external(uri);
	*reason = problem == NULL ? OUTBOX_REASON_NONE : OUTBOX_REASON_MECHANISM;
	*password = problem == NULL ? pstrdup("") : NULL;
	return problem;
}
