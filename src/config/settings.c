/*-------------------------------------------------------------------------
 *
 * settings.c
 *		Every setting of the extension.
 *
 * Called from _PG_init, in the postmaster when preloaded and else in the
 * backend that loads the library.  Settings are PGC_SUSET: a worker follows
 * the configuration files by SIGHUP, and the context allows ALTER DATABASE SET,
 * which gives each database a broker of its own.  outbox.environment is
 * PGC_SIGHUP: what ALTER DATABASE or ALTER SYSTEM sets is copied with the data; and
 * outbox.max_workers, which is for the launcher, that is in no database.
 * Trace context is PGC_USERSET: whoever enqueues says it of his own messages.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <limits.h>

#include "access/parallel.h"
#include "common/string.h"
#include "miscadmin.h"
#include "settings.h"
#include "traceparent.h"
#include "uri.h"
#include "utils/guc.h"

bool		outbox_enabled = true;
char	   *outbox_broker_uri = NULL;
char	   *outbox_passfile = NULL;
char	   *outbox_tls_ca_file = NULL;
char	   *outbox_tls_cert_file = NULL;
char	   *outbox_tls_key_file = NULL;
char	   *outbox_tls_key_passfile = NULL;
bool		outbox_tls_verify = true;
int			outbox_auth_mechanism = OUTBOX_AUTH_PLAIN;
bool		outbox_allow_plaintext = false;
int			outbox_workers = 1;
int			outbox_max_workers = 0;
int			outbox_window = 1000;
int			outbox_poll_interval_ms = 1000;
int			outbox_retry_initial_ms = 1000;
int			outbox_retry_max_ms = 300 * 1000;
int			outbox_confirm_timeout_ms = 30 * 1000;
int			outbox_heartbeat_s = 15;
int			outbox_retention_s = 24 * 60 * 60;
int			outbox_history_retention_s = 90 * 24 * 60 * 60;
int			outbox_once_window_s = 24 * 60 * 60;
int			outbox_max_message_size = 16 * 1024 * 1024;
int			outbox_backlog_warning_age_s = 5 * 60;
bool		outbox_strict_keys = false;
char	   *outbox_environment = NULL;
char	   *outbox_traceparent = NULL;
char	   *outbox_tracestate = NULL;
bool		outbox_sqlcommenter = true;
bool		outbox_trace_spans = false;

/*
 * A URI that cannot be parsed is refused, with one exception: found at server
 * start, refusing it would make guc.c fall back to the default, and the relay
 * would publish to whatever broker runs on this host.  Accept it there; the
 * worker parses it again and reports "config error".  A parallel worker gets what
 * its leader has, and refusing that would be the end of the query, with the value
 * in the error's context.
 *
 * What is accepted is shown by pg_settings, to pg_monitor among others, so the
 * password that it may have is not kept.
 */
static bool
check_broker_uri(char **newval, void **extra, GucSource source)
{
	OutboxUri	uri;
	const char *detail;

	(void) extra;
	if (*newval == NULL)
		return true;
	detail = outbox_uri_parse(*newval, &uri);
	if (detail == NULL)
		return true;
	if (InitializingParallelWorker)
		return true;
	if (process_shared_preload_libraries_in_progress ||
		(source >= PGC_S_GLOBAL && source <= PGC_S_DATABASE_USER))
	{
		ereport(WARNING,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("\"outbox.broker_uri\" is not valid, the relay will not publish"),
				 errdetail_internal("%s", detail)));
		outbox_uri_hide_password(*newval);
		return true;
	}
	/* The server's own message would repeat the text, password and all. */
	GUC_check_errmsg("invalid value for parameter \"%s\"", "outbox.broker_uri");
	GUC_check_errdetail("%s", detail);
	GUC_check_errhint("The form is amqp[s]://[user@]host[:port][,host[:port]...][/vhost]; the password belongs in the file that \"outbox.passfile\" names.");
	return false;
}

/* It is compared with what a database of any encoding has recorded. */
static bool
check_environment(char **newval, void **extra, GucSource source)
{
	(void) extra;
	(void) source;
	if (pg_is_ascii(*newval))
		return true;
	GUC_check_errdetail("The name of an environment consists of ASCII characters.");
	return false;
}

static bool
check_traceparent(char **newval, void **extra, GucSource source)
{
	OutboxTraceparent parent;
	const char *problem;

	(void) extra;
	(void) source;
	if (*newval == NULL || **newval == '\0')
		return true;
	problem = outbox_traceparent_parse(*newval, strlen(*newval), &parent);
	if (problem == NULL)
		return true;
	GUC_check_errdetail("%s", problem);
	GUC_check_errhint("The form is that of W3C Trace Context, such as 00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01; empty: none.");
	return false;
}

static bool
check_tracestate(char **newval, void **extra, GucSource source)
{
	const char *problem;

	(void) extra;
	(void) source;
	if (*newval == NULL)
		return true;
	problem = outbox_tracestate_check(*newval, strlen(*newval));
	if (problem == NULL)
		return true;
	GUC_check_errdetail("%s", problem);
	return false;
}

static void
define_string(const char *name, const char *short_desc, const char *long_desc,
			  char **variable, const char *boot, GucStringCheckHook check)
{
	DefineCustomStringVariable(name, short_desc, long_desc, variable, boot,
							   PGC_SUSET, GUC_SUPERUSER_ONLY,
							   check, NULL, NULL);
}

static void
define_int(const char *name, const char *short_desc, const char *long_desc,
		   int *variable, int min, int max, int flags)
{
	DefineCustomIntVariable(name, short_desc, long_desc, variable, *variable,
							min, max, PGC_SUSET, flags, NULL, NULL, NULL);
}

static void
define_bool(const char *name, const char *short_desc, const char *long_desc,
			bool *variable, int flags)
{
	DefineCustomBoolVariable(name, short_desc, long_desc, variable, *variable,
							 PGC_SUSET, flags, NULL, NULL, NULL);
}

static const struct config_enum_entry auth_mechanisms[] = {
	{"plain", OUTBOX_AUTH_PLAIN, false},
	{"external", OUTBOX_AUTH_EXTERNAL, false},
	{NULL, 0, false}
};

static void
define_broker_settings(void)
{
	define_string("outbox.broker_uri",
				  "Sets where RabbitMQ is.",
				  "amqp[s]://[user@]host[:port][,host[:port]...][/vhost]; several hosts are tried in turn. The password is not part of it, see outbox.passfile.",
				  &outbox_broker_uri, "amqp://guest@localhost:5672/",
				  check_broker_uri);
	define_string("outbox.passfile",
				  "Sets the file with the passwords for RabbitMQ.",
				  "Lines host:port:vhost:user:password as in libpq's password file, mode 0600, owned by the server's user. Empty: the user guest with its stock password.",
				  &outbox_passfile, "", NULL);
	define_string("outbox.tls_ca_file",
				  "Sets the file with the certificate authorities that may sign the broker's certificate.",
				  "Empty: those of the system. Used with amqps://.",
				  &outbox_tls_ca_file, "", NULL);
	define_string("outbox.tls_cert_file",
				  "Sets the file with the client certificate to show to the broker.",
				  "Empty: none.",
				  &outbox_tls_cert_file, "", NULL);
	define_string("outbox.tls_key_file",
				  "Sets the file with the private key of the client certificate.",
				  "Empty: in the file of the certificate. Mode 0600, owned by the server's user; for one with a passphrase see outbox.tls_key_passfile.",
				  &outbox_tls_key_file, "", NULL);
	define_string("outbox.tls_key_passfile",
				  "Sets the file with the passphrase of the private key.",
				  "Its first line; mode 0600, owned by the server's user. Empty: the key has none.",
				  &outbox_tls_key_passfile, "", NULL);
	define_bool("outbox.tls_verify",
				"Verifies the broker's certificate and host name.",
				"Off protects against listeners only, not against impostors.",
				&outbox_tls_verify, GUC_SUPERUSER_ONLY);
	define_bool("outbox.allow_plaintext",
				"Lets amqp:// leave this host.",
				"Off: without TLS only loopback addresses are connected to. On: who reads the network has the password and the messages.",
				&outbox_allow_plaintext, GUC_SUPERUSER_ONLY);
	DefineCustomEnumVariable("outbox.auth_mechanism",
							 "Sets how the relay logs in to RabbitMQ.",
							 "plain: user and password. external: by the client certificate, which needs amqps:// and the broker's plugin rabbitmq_auth_mechanism_ssl.",
							 &outbox_auth_mechanism, OUTBOX_AUTH_PLAIN,
							 auth_mechanisms, PGC_SUSET, GUC_SUPERUSER_ONLY,
							 NULL, NULL, NULL);
	define_int("outbox.heartbeat",
			   "Sets the heartbeat interval agreed on with the broker.",
			   "A connection on which nothing arrives for two intervals is given up.",
			   &outbox_heartbeat_s, 1, 3600, GUC_UNIT_S);
	define_int("outbox.confirm_timeout",
			   "Sets how long to wait for the confirm of a message.",
			   "Counted from the arrival of its last byte, or the last confirm. Then the connection is given up and what was unconfirmed is sent again; it costs no attempt. Time in which the broker blocks us does not count.",
			   &outbox_confirm_timeout_ms, 1000, INT_MAX / 1000, GUC_UNIT_MS);
}

static void
define_relay_settings(void)
{
	define_bool("outbox.enabled",
				"Lets the relay publish.",
				"Off: enqueue works, messages wait. Start a copy of a server with off.",
				&outbox_enabled, 0);
	define_int("outbox.workers",
			   "Sets the number of relay workers of a database.",
			   "Keys are divided among them. Each takes one of max_worker_processes.",
			   &outbox_workers, 1, OUTBOX_MAX_WORKERS, 0);
	DefineCustomIntVariable("outbox.max_workers",
							"Sets how many relay workers all databases of the server may have together.",
							"Zero: half of max_worker_processes, at least one. Where they are too few, databases take turns.",
							&outbox_max_workers, outbox_max_workers, 0,
							OUTBOX_MAX_ALL_WORKERS, PGC_SIGHUP, 0, NULL, NULL, NULL);
	define_int("outbox.window",
			   "Sets how many messages a worker may have sent and not yet settled.",
			   "The most that can be published twice after a crash.",
			   &outbox_window, 1, OUTBOX_MAX_WINDOW, 0);
	define_int("outbox.poll_interval",
			   "Sets how often a worker looks for work that nobody woke it for.",
			   "A safety net: commits wake the worker at once. Prepared transactions are looked at in this interval.",
			   &outbox_poll_interval_ms, 100, 3600 * 1000, GUC_UNIT_MS);
	define_int("outbox.retry_initial",
			   "Sets the wait before the second attempt of a message or connection.",
			   "It doubles with each attempt, up to outbox.retry_max, and is spread by a quarter to each side.",
			   &outbox_retry_initial_ms, 10, 3600 * 1000, GUC_UNIT_MS);
	define_int("outbox.retry_max",
			   "Sets the longest wait between two attempts.",
			   NULL,
			   &outbox_retry_max_ms, 10, 24 * 3600 * 1000, GUC_UNIT_MS);
	define_int("outbox.retention",
			   "Sets how long published messages stay in outbox_archive.",
			   "Dropped by whole days. Zero: published messages are not kept at all.",
			   &outbox_retention_s, 0, INT_MAX, GUC_UNIT_S);
	define_int("outbox.history_retention",
			   "Sets how long outbox_history remembers what operators did.",
			   "-1: without end. Zero: it is forgotten at the next look, within a minute.",
			   &outbox_history_retention_s, -1, INT_MAX, GUC_UNIT_S);
	define_int("outbox.once_window",
			   "Sets how long outbox_enqueue_once() knows a key.",
			   "Within that time another message with the key is not enqueued.",
			   &outbox_once_window_s, 1, 365 * 24 * 60 * 60, GUC_UNIT_S);
	define_int("outbox.max_message_size",
			   "Sets the largest body of a message.",
			   "Larger ones are refused at enqueue. RabbitMQ 4 takes 16 MB unless told otherwise, RabbitMQ 3 takes 128 MB.",
			   &outbox_max_message_size, 1024, 512 * 1024 * 1024,
			   GUC_UNIT_BYTE);
	define_int("outbox.backlog_warning_age",
			   "Sets how long a message may wait before outbox_problems tells of it.",
			   "Zero: it does not.",
			   &outbox_backlog_warning_age_s, 0, INT_MAX, GUC_UNIT_S);
	define_bool("outbox.strict_keys",
				"Makes transactions that enqueue for the same key wait for each other.",
				"On: the order of a key is the order of commit. Off: it is the order in which sequence numbers were drawn.",
				&outbox_strict_keys, 0);
	define_bool("outbox.trace_spans",
				"Makes the sending of a message a span of its trace.",
				"The consumer's parent is then that span, whose parent is the producer's.",
				&outbox_trace_spans, 0);
	DefineCustomStringVariable("outbox.environment",
							   "Sets the name of the environment that this server belongs to.",
							   "Where it is not the name that outbox_adopt() has recorded, the relay publishes nothing. To be set outside of the data directory.",
							   &outbox_environment,
							   outbox_environment_default(), PGC_SIGHUP,
							   GUC_DISALLOW_IN_AUTO_FILE, check_environment,
							   NULL, NULL);
}

static void
define_user_string(const char *name, const char *short_desc,
				   const char *long_desc, char **variable,
				   GucStringCheckHook check)
{
	DefineCustomStringVariable(name, short_desc, long_desc, variable, "",
							   PGC_USERSET, 0, check, NULL, NULL);
}

/* Of whoever enqueues. */
static void
define_session_settings(void)
{
	define_user_string("outbox.traceparent",
					   "Sets the trace context of the messages that are enqueued.",
					   "As in W3C's header: version-traceid-parentid-flags. For messages whose headers have no traceparent. To be set with SET LOCAL.",
					   &outbox_traceparent, check_traceparent);
	define_user_string("outbox.tracestate",
					   "Sets the tracestate that goes with outbox.traceparent.",
					   "As in W3C's header: a list of key=value.",
					   &outbox_tracestate, check_tracestate);
	DefineCustomBoolVariable("outbox.sqlcommenter",
							 "Takes the trace context of messages from a comment at the end of the statement.",
							 "Where neither their headers nor outbox.traceparent have one: /*traceparent='...'*/, as sqlcommenter writes it.",
							 &outbox_sqlcommenter, outbox_sqlcommenter,
							 PGC_USERSET, 0, NULL, NULL, NULL);
}

void
outbox_settings_define(void)
{
	define_broker_settings();
	define_relay_settings();
	define_session_settings();
	MarkGUCPrefixReserved("outbox");
}
