/*-------------------------------------------------------------------------
 *
 * settings.h
 *		Every setting of the extension; defined in settings.c only.
 *
 *-------------------------------------------------------------------------
 */
#ifndef OUTBOX_SETTINGS_H
#define OUTBOX_SETTINGS_H

#include "sizes.h"

#define OUTBOX_MAX_WORKERS	32
#define OUTBOX_MAX_ALL_WORKERS	262143	/* that of max_worker_processes */

extern PGDLLIMPORT bool outbox_enabled;
extern PGDLLIMPORT char *outbox_broker_uri;
extern PGDLLIMPORT char *outbox_passfile;
extern PGDLLIMPORT char *outbox_tls_ca_file;
extern PGDLLIMPORT char *outbox_tls_cert_file;
extern PGDLLIMPORT char *outbox_tls_key_file;
extern PGDLLIMPORT char *outbox_tls_key_passfile;
extern PGDLLIMPORT bool outbox_tls_verify;
extern PGDLLIMPORT int outbox_auth_mechanism;	/* OutboxAuth */
extern PGDLLIMPORT bool outbox_allow_plaintext;
extern PGDLLIMPORT int outbox_workers;
extern PGDLLIMPORT int outbox_max_workers;
extern PGDLLIMPORT int outbox_window;
extern PGDLLIMPORT int outbox_poll_interval_ms;
extern PGDLLIMPORT int outbox_retry_initial_ms;
extern PGDLLIMPORT int outbox_retry_max_ms;
extern PGDLLIMPORT int outbox_confirm_timeout_ms;
extern PGDLLIMPORT int outbox_heartbeat_s;
extern PGDLLIMPORT int outbox_retention_s;
extern PGDLLIMPORT int outbox_history_retention_s;
extern PGDLLIMPORT int outbox_once_window_s;
extern PGDLLIMPORT int outbox_max_message_size;
extern PGDLLIMPORT int outbox_backlog_warning_age_s;
extern PGDLLIMPORT bool outbox_strict_keys;
extern PGDLLIMPORT char *outbox_environment;
extern PGDLLIMPORT char *outbox_traceparent;
extern PGDLLIMPORT char *outbox_tracestate;
extern PGDLLIMPORT bool outbox_sqlcommenter;
extern PGDLLIMPORT bool outbox_trace_spans;

extern void outbox_settings_define(void);

/* How long to leave alone what somebody has locked. */
static inline int
outbox_recheck_ms(void)
{
	return Min(outbox_poll_interval_ms, 1000);
}

/* overrides.c: settings that processes of ours have whatever somebody has set */

/*
 * Called once, as soon as the process is connected, outside of a transaction.
 * library_path is what dynamic_library_path was before, in the files: an
 * installation may need it, and newer servers search it for what is in $libdir, too.
 * NULL: there are no other settings than those of the files.
 */
extern void outbox_override_settings(const char *library_path);

/*
 * The part of it that is about synchronous_commit, called again after each reload: off,
 * since most commits need not wait, unless the configuration says remote_apply.
 */
extern void outbox_override_commit(void);

/*
 * environment.c: is this the server that the messages belong to, or a copy of it?
 */

/* What outbox.environment is when no file sets it. */
extern const char *outbox_environment_default(void);

/* The server's record of a setting; pg_settings keeps some of it from most roles. */
extern const struct config_generic *outbox_setting_find(const char *name);

/*
 * NULL, or why outbox.environment tells nothing: a copy of the data directory may have
 * the same.  It names no file, which some roles may not see.
 */
extern const char *outbox_environment_unusable(void);

/*
 * The last timeline that was left by a recovery to a target that somebody had
 * set, and how (for the life of the process); 0 when there was none.
 */
extern unsigned int outbox_environment_restored(char **how);

#endif							/* OUTBOX_SETTINGS_H */
