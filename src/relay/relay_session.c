/*-------------------------------------------------------------------------
 *
 * relay_session.c
 *		The worker's database session, the extension, the settings.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/xact.h"
#include "compat.h"
#include "miscadmin.h"
#include "pgstat.h"
#include "postmaster/bgworker.h"
#include "postmaster/interrupt.h"
#include "relay_internal.h"
#include "settings.h"
#include "utils/builtins.h"
#include "utils/guc.h"
#include "utils/memutils.h"
#include "utils/timestamp.h"
#include "version.h"

/*
 * Settings that ALTER DATABASE, ALTER ROLE or postgresql.conf could turn
 * against the worker, overridden as autovacuum does it.  The planner is left
 * with plans that stay right when the table grows: index and TID scans, nested
 * loops.
 */
static const struct
{
	const char *name;
	const char *value;
	int			since;			/* server version that has it */
}			overrides[] =
{
	{"search_path", "pg_catalog, pg_temp", 0},
	{"synchronous_commit", "on", 0},	/* unless it is stronger, see below */
	{"default_transaction_isolation", "read committed", 0},
	{"default_transaction_read_only", "off", 0},
	{"default_transaction_deferrable", "off", 0},
	{"row_security", "off", 0},
	{"session_replication_role", "origin", 0},
	{"statement_timeout", "60s", 0},
	{"lock_timeout", "500ms", 0},
	{"idle_in_transaction_session_timeout", "0", 0},
	{"idle_session_timeout", "0", 0},
	{"transaction_timeout", "0", 170000},
	{"bytea_output", "hex", 0},
	{"DateStyle", "ISO", 0},
	{"IntervalStyle", "postgres", 0},
	{"TimeZone", "UTC", 0},
	{"default_tablespace", "", 0},
	{"default_table_access_method", "heap", 0},
	{"jit", "off", 0},
	{"enable_seqscan", "off", 0},
	{"enable_bitmapscan", "off", 0},
	{"enable_hashjoin", "off", 0},
	{"enable_mergejoin", "off", 0},
	{"enable_indexscan", "on", 0},
	{"enable_tidscan", "on", 0},
	{"enable_nestloop", "on", 0},
	{"plan_cache_mode", "auto", 0},
	{"check_function_bodies", "on", 0},
	{"debug_parallel_query", "off", 160000},
	{"force_parallel_mode", "off", -160000},
	{"max_parallel_workers_per_gather", "0", 0},
};

void
outbox_relay_connect_database(Oid dboid)
{
	const char *commit;

	BackgroundWorkerInitializeConnectionByOid(dboid, InvalidOid, 0);

	commit = GetConfigOption("synchronous_commit", false, false);
	for (int i = 0; i < (int) lengthof(overrides); i++)
	{
		if (!compat_server_has(overrides[i].since))
			continue;
		/* remote_apply is what the administrator asked for beyond "on" */
		if (strcmp(overrides[i].name, "synchronous_commit") == 0 &&
			strcmp(commit, "remote_apply") == 0)
			continue;
		SetConfigOption(overrides[i].name, overrides[i].value, PGC_SUSET,
						PGC_S_OVERRIDE);
	}

	/*
	 * Messages are encoded outside of any transaction, and only a conversion
	 * to the client's encoding needs no catalog look-up there.
	 */
	StartTransactionCommand();
	SetConfigOption("client_encoding", "UTF8", PGC_SUSET, PGC_S_OVERRIDE);
	CommitTransactionCommand();
}

/* --------------------------------------------------------------- extension */

static void
leave(OutboxRelay *relay, OutboxExit reason)
{
	relay->leave = true;
	MySlot->exit_reason = reason;
}

/* The parts of the database that the extension's being there implies. */
static void
load_after_attach(OutboxRelay *relay)
{
	if (!outbox_store_begin("looking for settings", false))
		return;
	if (relay->database_settings == NULL)
		relay->database_settings = outbox_store_database_settings(relay->cxt);
	outbox_store_end(false);
	relay->config_dirty = true;
}

/*
 * Extension and library are of different versions, and what the statements of the
 * one mean is not known to the other.  The log says so once, however many workers
 * there are, and what to do.
 */
static void
misfit(OutboxRelay *relay, const char *version)
{
	int			before = relay->version_mismatch;
	char		text[OUTBOX_TEXT_SIZE];

	relay->version_mismatch =
		outbox_version_compare(version, outbox_library_version()) > 0 ? 1 : -1;
	if (before == relay->version_mismatch)
		return;
	snprintf(text, sizeof(text),
			 "the extension has version %s, the library %s",
			 version, outbox_library_version());
	outbox_slot_set_error(text);
	if (MySlot->worker > 0)
		return;
	ereport(LOG,
			(errmsg("outbox relay is paused: %s", text),
			 relay->version_mismatch < 0 ?
			 errhint("Run ALTER EXTENSION outbox UPDATE in the database.") :
			 errhint("Install the package of version %s and restart the server.",
					 version)));
}

void
outbox_relay_attach(OutboxRelay *relay)
{
	char		version[64] = "";

	relay->attached = false;
	relay->recheck_extension = false;
	switch (outbox_store_attach(version, sizeof(version)))
	{
		case OUTBOX_EXTENSION_ABSENT:
			leave(relay, OUTBOX_EXIT_ABSENT);
			return;
		case OUTBOX_EXTENSION_VERSION:
			misfit(relay, version);
			outbox_slot_set_ready(MySlot->nworkers);
			return;
		case OUTBOX_EXTENSION_READY:
			break;
	}
	relay->version_mismatch = 0;

	/*
	 * Dropped and created again: what is in memory was in the old table, and
	 * the numbers of the new one start over.
	 */
	if (OidIsValid(relay->relid) && relay->relid != outbox_store_relid())
	{
		leave(relay, OUTBOX_EXIT_RESTART);
		return;
	}
	relay->relid = outbox_store_relid();
	/* After an error in here it attaches again. */
	load_after_attach(relay);
	relay->attached = true;
	outbox_slot_set_ready(outbox_workers);
}

/* ---------------------------------------------------------------- settings */

static void
config_failed(OutboxRelay *relay, const char *detail)
{
	if (relay->config_error == NULL ||
		strcmp(relay->config_error, detail) != 0)
	{
		ereport(LOG,
				(errcode(ERRCODE_CONFIG_FILE_ERROR),
				 errmsg("outbox relay cannot use its settings"),
				 errdetail_internal("%s", detail),
				 errhint("Correct \"outbox.broker_uri\" or \"outbox.passfile\" and reload the configuration.")));
		outbox_slot_set_error(detail);
	}
	if (relay->config_error != NULL)
		pfree(relay->config_error);
	relay->config_error = MemoryContextStrdup(relay->cxt, detail);
}

/*
 * Reads where the broker is, and looks once at the password file so that an
 * unreadable one shows as a config error and not as a broker that is down.
 * When the settings of the link have changed, arranges for a new connection.
 */
void
outbox_relay_load_config(OutboxRelay *relay)
{
	MemoryContext new_cxt = AllocSetContextCreate(relay->cxt, "outbox config",
												  ALLOCSET_SMALL_SIZES);
	MemoryContext old = MemoryContextSwitchTo(new_cxt);
	OutboxUri	uri;
	const char *detail;
	char	   *text;
	char	   *password = NULL;
	char	   *passwords = "";

	detail = outbox_uri_parse(outbox_broker_uri, &uri);
	for (int i = 0; detail == NULL && i < uri.nhosts; i++)
	{
		detail = outbox_passfile_lookup(outbox_passfile, uri.hosts[i].host,
										uri.hosts[i].port, uri.vhost, uri.user,
										&password);
		if (detail == NULL)
			passwords = psprintf("%s %s", passwords, password);
	}
	if (detail != NULL)
	{
		config_failed(relay, detail);
		MemoryContextSwitchTo(old);
		MemoryContextDelete(new_cxt);
		return;
	}

	text = psprintf("%s %s %s %s %s %s %d %d %d", outbox_broker_uri,
					outbox_passfile, passwords, outbox_tls_ca_file,
					outbox_tls_cert_file, outbox_tls_key_file,
					outbox_tls_verify, outbox_heartbeat_s,
					outbox_max_message_size);
	MemoryContextSwitchTo(old);
	if (relay->config_error != NULL)
	{
		ereport(LOG, (errmsg("outbox relay can use its settings again")));
		pfree(relay->config_error);
		relay->config_error = NULL;
	}
	if (relay->config_text != NULL && strcmp(relay->config_text, text) == 0)
	{
		MemoryContextDelete(new_cxt);
		return;
	}
	if (relay->config_text != NULL)
		relay->reconnect = true;
	if (relay->config_cxt != NULL)
		MemoryContextDelete(relay->config_cxt);
	relay->config_cxt = new_cxt;
	relay->config_text = text;
	relay->uri = uri;
	outbox_hosts_set(relay->hosts, uri.nhosts);
}

/* SIGHUP. */
void
outbox_relay_reload(OutboxRelay *relay)
{
	ConfigReloadPending = false;
	ProcessConfigFile(PGC_SIGHUP);
	outbox_relay_load_config(relay);
	relay->config_dirty = true;
	relay->recheck_settings = true;
	outbox_mono_earlier(&relay->poll_at,
						outbox_mono_after(outbox_poll_interval_ms));
	if (relay->attached)
		outbox_slot_set_ready(outbox_workers);
}

/*
 * ALTER DATABASE SET is applied when a process starts, so a worker whose
 * database has got other settings leaves, to be started anew.  Called by the
 * round, which deals with errors of the database.
 */
void
outbox_relay_check_settings(OutboxRelay *relay)
{
	char	   *settings;

	if (!outbox_store_begin("looking for settings", false))
		return;
	settings = outbox_store_database_settings(relay->scratch);
	outbox_store_end(false);
	relay->recheck_settings = false;
	if (relay->database_settings != NULL &&
		strcmp(settings, relay->database_settings) != 0)
		leave(relay, OUTBOX_EXIT_RESTART);
}
