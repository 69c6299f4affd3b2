/*-------------------------------------------------------------------------
 *
 * preflight.c
 *		outbox_preflight(): would messages get through?  The rows of it that SQL
 *		cannot find out.  And outbox_library_versions().
 *
 * It runs in the session that asks, beside the relay and whether or not there is
 * one, and talks to the broker by the relay's own client (src/broker), with its
 * settings and its login.  Three things bound it.  It waits with its latch; what
 * blocks in the library or the kernel is ended by the watchdog, in its mode for
 * sessions, at the deadline or soon after the statement was cancelled; and an
 * interrupt is looked for between any two such calls.  Only getaddrinfo() hears
 * nothing: with glibc it takes 1 s for each name server.
 *
 * Whatever it has opened is given back when the function ends, also by an ERROR.
 * A session that is terminated ends with its process.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <sys/stat.h>

#include "access/xlog.h"
#include "catalog/pg_type.h"
#include "funcapi.h"
#include "mb/pg_wchar.h"
#include "miscadmin.h"
#include "own_version.h"
#include "preflight_internal.h"
#include "printable.h"
#include "settings.h"
#include "utils/guc_tables.h"
#include "shared.h"
#include "storage/latch.h"
#include "uri.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/guc.h"
#include "utils/tuplestore.h"
#include "wait_event.h"
#include "watchdog.h"
#include "worker_limit.h"

PG_FUNCTION_INFO_V1(outbox_preflight_server);
PG_FUNCTION_INFO_V1(outbox_preflight_broker);
PG_FUNCTION_INFO_V1(outbox_library_versions);

#define PREFLIGHT_COLS 5
#define VERSIONS_COLS 3

/* The reason is of outbox_preflight_broker() only, the other has no such column. */
static void
put_row(OutboxPreflight *preflight, const char *check, OutboxVerdict verdict,
		const char *detail, const char *hint, OutboxReason reason)
{
	ReturnSetInfo *rsinfo = (ReturnSetInfo *) preflight->fcinfo->resultinfo;
	Datum		values[PREFLIGHT_COLS] = {0};
	bool		nulls[PREFLIGHT_COLS] = {false};
	char	   *stored = pstrdup(detail);

	/*
	 * names of hosts and the like come from settings, and may be of any
	 * encoding
	 */
	if (!pg_verifymbstr(stored, strlen(stored), true))
		outbox_mask_bytes(stored);
	values[0] = CStringGetTextDatum(check);
	values[1] = BoolGetDatum(verdict == OUTBOX_VERDICT_GOOD);
	nulls[1] = verdict == OUTBOX_VERDICT_SKIPPED;
	values[2] = CStringGetTextDatum(stored);
	nulls[3] = hint == NULL;
	if (hint != NULL)
		values[3] = CStringGetTextDatum(hint);
	nulls[4] = reason == OUTBOX_REASON_NONE;
	if (reason != OUTBOX_REASON_NONE)
		values[4] = CStringGetTextDatum(outbox_reason_name(reason));
	tuplestore_putvalues(rsinfo->setResult, rsinfo->setDesc, values, nulls);
}

void
outbox_preflight_say(OutboxPreflight *preflight, const char *check,
					 OutboxVerdict verdict, const char *hint,
					 const char *detail)
{
	put_row(preflight, check, verdict, detail, hint, OUTBOX_REASON_NONE);
}

void
outbox_preflight_fail(OutboxPreflight *preflight, const char *check,
					  OutboxReason reason, const char *detail)
{
	put_row(preflight, check, OUTBOX_VERDICT_BAD, detail, NULL, reason);
}

int
outbox_preflight_left_ms(const OutboxPreflight *preflight)
{
	return (int) outbox_mono_ms_until(preflight->until, outbox_mono_now());
}

/* True when the socket may be ready; false when the time is over, or the latch. */
bool
outbox_preflight_wait(OutboxLink *link, int events, int limit_ms)
{
	int			what;

	what = WaitLatchOrSocket(MyLatch,
							 events | WL_LATCH_SET | WL_TIMEOUT |
							 WL_EXIT_ON_PM_DEATH,
							 outbox_link_socket(link), limit_ms,
							 outbox_wait_event(OUTBOX_WAIT_PREFLIGHT));
	if (what & WL_LATCH_SET)
		ResetLatch(MyLatch);
	CHECK_FOR_INTERRUPTS();
	return (what & events) != 0;
}

/* ------------------------------------------------------------------ server */

static void
check_launcher(OutboxPreflight *preflight)
{
	if (RecoveryInProgress())
		outbox_preflight_say(preflight, "launcher", OUTBOX_VERDICT_SKIPPED,
							 NULL,
							 "This server is a standby: launcher and workers run on the primary.");
	else if (outbox_shared->launcher_procno < 0)
		outbox_preflight_say(preflight, "launcher", OUTBOX_VERDICT_BAD,
							 "The server starts it again within 5 seconds; if this lasts, the server log says why: with too few max_worker_processes it was not even registered.",
							 "The outbox launcher does not run, so nobody starts workers.");
	else
		outbox_preflight_say(preflight, "launcher", OUTBOX_VERDICT_GOOD, NULL,
							 "The outbox launcher runs.");
}

static void
check_processes(OutboxPreflight *preflight)
{
	if (RecoveryInProgress())
		return;
	if (outbox_shared->out_of_workers)
		outbox_preflight_say(preflight, "processes", OUTBOX_VERDICT_BAD,
							 outbox_workers_advice(),
							 psprintf("A worker could not be started, of any database of this server: %d run, outbox.max_workers allows %d, max_worker_processes = %d.",
									  outbox_slots_in_use(), outbox_worker_limit(),
									  max_worker_processes));
	else
		outbox_preflight_say(preflight, "processes", OUTBOX_VERDICT_GOOD, NULL,
							 psprintf("All databases of this server have %d workers; outbox.max_workers = %d allows %d of max_worker_processes = %d, and leaves %d to the launcher, parallel query, logical replication and others.",
									  outbox_slots_in_use(), outbox_max_workers,
									  outbox_worker_limit(), max_worker_processes,
									  max_worker_processes - outbox_worker_limit()));
}

Datum
outbox_preflight_server(PG_FUNCTION_ARGS)
{
	OutboxPreflight preflight = {.fcinfo = fcinfo};

	InitMaterializedSRF(fcinfo, 0);
	if (outbox_shared == NULL)
	{
		outbox_preflight_say(&preflight, "preload", OUTBOX_VERDICT_BAD,
							 "Add outbox to shared_preload_libraries and restart the server.",
							 "The library is not in shared_preload_libraries: messages are stored and nothing publishes them.");
		return (Datum) 0;
	}
	outbox_preflight_say(&preflight, "preload", OUTBOX_VERDICT_GOOD, NULL,
						 "The library is in shared_preload_libraries.");
	check_launcher(&preflight);
	check_processes(&preflight);
	return (Datum) 0;
}

/* ---------------------------------------------------------------- settings */

static void
check_uri(OutboxPreflight *preflight)
{
	const char *problem = outbox_uri_parse(outbox_broker_uri, &preflight->uri);

	preflight->usable = problem == NULL;
	if (problem != NULL)
		outbox_preflight_say(preflight, "settings", OUTBOX_VERDICT_BAD,
							 "Correct outbox.broker_uri and reload the configuration; its form is amqp[s]://[user@]host[:port][,host[:port]...][/vhost].",
							 psprintf("outbox.broker_uri cannot be used. %s",
									  problem));
	else
		/* what parses has no password in it */
		outbox_preflight_say(preflight, "settings", OUTBOX_VERDICT_GOOD, NULL,
							 psprintf("outbox.broker_uri is \"%s\".",
									  outbox_broker_uri));
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
		outbox_preflight_say(preflight, "password file",
							 OUTBOX_VERDICT_SKIPPED, NULL,
							 "Not tried: outbox.broker_uri cannot be used.");
		return;
	}
	for (int i = 0; i < uri->nhosts && problem == NULL; i++)
		problem = outbox_login_password(uri, i, &preflight->passwords[i],
										&reason);
	preflight->usable = problem == NULL;
	if (problem != NULL)
		outbox_preflight_fail(preflight, "password file", reason, problem);
	else if (outbox_auth_mechanism == OUTBOX_AUTH_EXTERNAL)
		outbox_preflight_say(preflight, "password file",
							 OUTBOX_VERDICT_SKIPPED, NULL,
							 "Not needed: outbox.auth_mechanism is external, the login is by the certificate of outbox.tls_cert_file.");
	else
		outbox_preflight_say(preflight, "password file", OUTBOX_VERDICT_GOOD,
							 outbox_passfile[0] != '\0' ? NULL : "Give the relay a login of its own: RabbitMQ lets guest in from its own machine only.",
							 describe_file());
}

/* The name that keeps a copy of this server from publishing. */
static void
check_environment(OutboxPreflight *preflight)
{
	const char *unusable = outbox_environment_unusable();

	if (unusable != NULL)
		outbox_preflight_fail(preflight, "environment", OUTBOX_REASON_ENVIRONMENT, unusable);
	else if (outbox_environment[0] == '\0')
		outbox_preflight_say(preflight, "environment", OUTBOX_VERDICT_GOOD,
							 "A copy of the data directory that is started publishes the same messages again: give each environment a name, outside of the data directory, and call outbox_adopt().",
							 "outbox.environment is not set.");
	else
		outbox_preflight_say(preflight, "environment", OUTBOX_VERDICT_GOOD,
							 NULL, psprintf("outbox.environment is \"%s\".",
											outbox_environment));
}

/* Settings that the session has, and the relay has not. */
static void
check_session(OutboxPreflight *preflight)
{
	static const char *const names[] = {
		"outbox.allow_plaintext", "outbox.auth_mechanism", "outbox.broker_uri",
		"outbox.passfile", "outbox.tls_ca_file", "outbox.tls_cert_file",
		"outbox.tls_key_file", "outbox.tls_key_passfile", "outbox.tls_verify"
	};

	for (int i = 0; i < (int) lengthof(names); i++)
		if (outbox_setting_find(names[i])->source > PGC_S_DATABASE)
			outbox_preflight_say(preflight, "settings", OUTBOX_VERDICT_BAD,
								 "Call outbox_preflight() in a session without it: what follows is about this value.",
								 psprintf("%s is set for this session or its role, and the relay does not have that.",
										  names[i]));
}

static void
check_settings(OutboxPreflight *preflight)
{
	check_session(preflight);
	check_environment(preflight);
	check_uri(preflight);
	check_passwords(preflight);
}

/* ------------------------------------------------------------------ broker */

/* Three arrays of one length, with NULLs in types only; false: they are something else. */
static bool
take_exchanges(OutboxPreflight *preflight, FunctionCallInfo fcinfo)
{
	Datum	   *datums[3];
	bool	   *nulls[3];
	int			n[3];

	for (int i = 0; i < 3; i++)
	{
		if (PG_ARGISNULL(i) || (i != 1 && array_contains_nulls(PG_GETARG_ARRAYTYPE_P(i))))
			return false;
		deconstruct_array(PG_GETARG_ARRAYTYPE_P(i), TEXTOID, -1, false, TYPALIGN_INT,
						  &datums[i], &nulls[i], &n[i]);
	}
	if (n[0] != n[1] || n[0] != n[2])
		return false;
	preflight->nexchanges = n[0];
	preflight->exchanges = palloc0(n[0] * sizeof(OutboxPreflightExchange));
	for (int i = 0; i < n[0]; i++)
	{
		preflight->exchanges[i].name = TextDatumGetCString(datums[0][i]);
		preflight->exchanges[i].type = nulls[1][i] ? NULL : TextDatumGetCString(datums[1][i]);
		preflight->exchanges[i].routes = TextDatumGetCString(datums[2][i]);
	}
	return true;
}

/* Passwords and sockets are gone afterwards, however it ended. */
static void
give_back(OutboxPreflight *preflight, bool polite)
{
	for (int i = 0; i < OUTBOX_MAX_HOSTS; i++)
	{
		if (preflight->links[i] != NULL)
			outbox_link_close(preflight->links[i], polite);
		if (preflight->passwords[i] != NULL)
			explicit_bzero(preflight->passwords[i],
						   strlen(preflight->passwords[i]));
	}
}

static void
check_broker(OutboxPreflight *preflight)
{
	check_settings(preflight);
	outbox_preflight_connect(preflight);
	/* in full again, as far as it is left */
	outbox_watchdog_session_begin(outbox_preflight_left_ms(preflight));
	outbox_preflight_exchanges(preflight);
	outbox_preflight_binding(preflight);
	give_back(preflight, true);
}

Datum
outbox_preflight_broker(PG_FUNCTION_ARGS)
{
	OutboxPreflight *preflight = palloc0(sizeof(OutboxPreflight));

	InitMaterializedSRF(fcinfo, 0);
	preflight->fcinfo = fcinfo;
	preflight->until = outbox_mono_after(OUTBOX_PREFLIGHT_MS);
	preflight->routes_known = !PG_ARGISNULL(0);
	if (!PG_ARGISNULL(3))
		preflight->routing_key = text_to_cstring(PG_GETARG_TEXT_PP(3));
	preflight->publish = !PG_ARGISNULL(4) && PG_GETARG_BOOL(4);

	/*
	 * outbox_preflight() calls it with others, or has said so in its own
	 * words.
	 */
	if ((preflight->routes_known && !take_exchanges(preflight, fcinfo)) ||
		(preflight->publish && preflight->routing_key == NULL))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("arguments of outbox_preflight_broker() do not fit together")));

	PG_TRY();
	{
		check_broker(preflight);
	}
	PG_FINALLY();
	{
		give_back(preflight, false);
		outbox_watchdog_session_end();
	}
	PG_END_TRY();
	return (Datum) 0;
}

/* ---------------------------------------------------------------- versions */

/* A row; built_with NULL: there is nothing to compare with. */
static void
put_version(FunctionCallInfo fcinfo, const char *component,
			const char *version, const char *built_with)
{
	ReturnSetInfo *rsinfo = (ReturnSetInfo *) fcinfo->resultinfo;
	Datum		values[VERSIONS_COLS] = {0};
	bool		nulls[VERSIONS_COLS] = {false};

	values[0] = CStringGetTextDatum(component);
	values[1] = CStringGetTextDatum(version);
	if (built_with != NULL)
		values[2] = CStringGetTextDatum(built_with);
	else
		nulls[2] = true;
	tuplestore_putvalues(rsinfo->setResult, rsinfo->setDesc, values, nulls);
}

Datum
outbox_library_versions(PG_FUNCTION_ARGS)
{
	OutboxLinkVersions link;

	InitMaterializedSRF(fcinfo, 0);
	outbox_link_versions(&link);
	put_version(fcinfo, "library", outbox_library_version(), NULL);
	put_version(fcinfo, "PostgreSQL",
				GetConfigOption("server_version", false, false), PG_VERSION);
	put_version(fcinfo, "librabbitmq", link.librabbitmq,
				link.librabbitmq_built);
	put_version(fcinfo, "OpenSSL", link.openssl, link.openssl_built);
	return (Datum) 0;
}
