/*-------------------------------------------------------------------------
 *
 * preflight_settings.c
 *		Can the settings be used, and is there a password?
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <sys/stat.h>

#include "login.h"
#include "preflight_internal.h"
#include "settings.h"

static void
check_uri(OutboxPreflight *preflight)
{
	const char *problem = outbox_uri_parse(outbox_broker_uri, &preflight->uri);

	preflight->usable = problem == NULL;
	if (problem != NULL)
		outbox_preflight_say(preflight, "settings", OUTBOX_VERDICT_BAD,
							 "Correct outbox.broker_uri and reload the configuration; its form is amqp[s]://[user@]host[:port][,host[:port]...][/vhost].",
							 "outbox.broker_uri cannot be used. %s", problem);
	else
		/* what parses has no password in it */
		outbox_preflight_say(preflight, "settings", OUTBOX_VERDICT_GOOD, NULL,
							 "outbox.broker_uri is \"%s\".", outbox_broker_uri);
	if (!outbox_enabled)
		outbox_preflight_say(preflight, "settings", OUTBOX_VERDICT_BAD,
							 "Set outbox.enabled to on and reload the configuration.",
							 "outbox.enabled is off: nothing is published.");
}

/* What is to be said of the file beside what is in it. */
static const char *
describe_file(void)
{
	struct stat st;

	if (outbox_passfile[0] == '\0')
		return "outbox.passfile is not set, and the user guest has its default password.";
	if (stat(outbox_passfile, &st) != 0)
		return psprintf("Password file \"%s\" is there, and has a line.",
						outbox_passfile);
	return psprintf("Password file \"%s\" (mode %04o, owner uid %u) has a line for each host.",
					outbox_passfile, (unsigned int) (st.st_mode & 07777),
					(unsigned int) st.st_uid);
}

static void
check_passwords(OutboxPreflight *preflight)
{
	OutboxUri  *uri = &preflight->uri;
	const char *problem = NULL;
	OutboxReason reason = OUTBOX_REASON_NONE;

	if (!preflight->usable)
	{
		outbox_preflight_say(preflight, "password file", OUTBOX_VERDICT_SKIPPED,
							 NULL, "Not tried: outbox.broker_uri cannot be used.");
		return;
	}
	for (int i = 0; i < uri->nhosts && problem == NULL; i++)
		problem = outbox_login_password(uri, i, &preflight->passwords[i],
										&reason);
	preflight->usable = problem == NULL;
	if (problem != NULL)
		outbox_preflight_fail(preflight, "password file", reason, "%s", problem);
	else if (outbox_auth_mechanism == OUTBOX_AUTH_EXTERNAL)
		outbox_preflight_say(preflight, "password file", OUTBOX_VERDICT_SKIPPED,
							 NULL, "Not needed: outbox.auth_mechanism is external, the login is by the certificate of outbox.tls_cert_file.");
	else
		outbox_preflight_say(preflight, "password file", OUTBOX_VERDICT_GOOD,
							 outbox_passfile[0] != '\0' ? NULL :
							 "Give the relay a login of its own: RabbitMQ lets guest in from its own machine only.",
							 "%s", describe_file());
}

/* The name that keeps a copy of this server from publishing. */
static void
check_environment(OutboxPreflight *preflight)
{
	if (outbox_environment[0] == '\0')
		outbox_preflight_say(preflight, "environment", OUTBOX_VERDICT_GOOD,
							 "A copy of the data directory that is started publishes the same messages again: give each environment a name, outside of the data directory, and call outbox_adopt().",
							 "outbox.environment is not set.");
	else
		outbox_preflight_say(preflight, "environment", OUTBOX_VERDICT_GOOD, NULL,
							 "outbox.environment is \"%s\".", outbox_environment);
}

void
outbox_preflight_settings(OutboxPreflight *preflight)
{
	check_environment(preflight);
	check_uri(preflight);
	check_passwords(preflight);
}
