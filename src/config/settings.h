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

#endif							/* OUTBOX_SETTINGS_H */
