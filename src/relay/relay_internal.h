/*-------------------------------------------------------------------------
 *
 * relay_internal.h
 *		What the files of the relay share; nobody else includes it.
 *
 * relay.c			the process, its loop, its state
 * relay_session.c	database session, extension, settings
 * route_states.c	routes: which ones wait, and why
 * relay_timers.c	what makes the relay look: news, and time
 * relay_round.c	the transaction: settle, claim
 * settler.c		what a round settles
 * unflushed.c		what is settled and not yet on disk
 * relay_load.c		what it looks up beside messages
 * relay_maintain.c	partitions of the archive
 * reader.c			which rows are read next, and what becomes of them
 * due.c			of those the ones whose time has come
 * keys.c			keys that are held, or to be read again
 * scan.c			all else that is unread, in the order of seq
 * unread.c			as ranges of seq (plain C)
 * batch.c			what one round claims
 * sweep.c			looking for rows that nobody has announced
 * relay_link.c		connecting, losing the connection, confirms
 * hosts.c			to which host next, and when (plain C)
 * renewal.c		when messages are refused: another channel?
 * unknown.c		what was in flight when the connection was lost
 * watch.c			how long the broker is waited for
 * relay_publish.c	sending what is ready
 * waiting.c		waiting for work
 *
 *-------------------------------------------------------------------------
 */
#ifndef OUTBOX_RELAY_INTERNAL_H
#define OUTBOX_RELAY_INTERNAL_H

#include "broker.h"
#include "clock.h"
#include "confirms.h"
#include "hosts.h"
#include "queue.h"
#include "reader.h"
#include "renewal.h"
#include "route_states.h"
#include "settler.h"
#include "shared.h"
#include "store.h"
#include "sweep.h"
#include "unflushed.h"
#include "unknown.h"
#include "uri.h"
#include "waiting.h"
#include "watch.h"
#include "watchdog.h"

/* How long to wait for confirms when stopping, or before a new connection. */
#define OUTBOX_DRAIN_MS			1000

/* A connection that lived shorter counts as a failure to connect. */
#define OUTBOX_STABLE_MS		10000

/* Partitions of the archive are looked after this often. */
#define OUTBOX_MAINTAIN_MS		60000
/* The same after an error. */
#define OUTBOX_MAINTAIN_RETRY_MS 5000
/*
 * While somebody reads the archive: at first soon, as others who publish only
 * touch it for a moment, then less and less often.  Reported after so long.
 */
#define OUTBOX_MAINTAIN_LOCKED_MS 100
#define OUTBOX_MAINTAIN_REPORT_MS (10 * 60000)

typedef struct OutboxRelay
{
	MemoryContext cxt;			/* lives as long as the process */
	MemoryContext scratch;		/* reset in every turn of the loop */

	/* session */
	bool		attached;		/* the extension is there and fits */
	int			version_mismatch;	/* below 0: the extension is older than the
									 * library; above: newer; 0: they fit */
	Oid			relid;			/* table outbox, once attached */
	bool		recheck_extension;	/* attach anew with the next transaction */
	bool		recheck_settings;	/* compare ALTER DATABASE SET */
	bool		touch;			/* a transaction, to hear of DROP EXTENSION */
	bool		paused;			/* by the control row, or a copy */
	OutboxCopy	copy;			/* not adopted */
	char	   *copy_detail;	/* what was told of it last */
	bool		foreign;		/* so a row says; until outbox_adopt() */
	TimestampTz foreign_since;	/* adopted_at when it was found */
	bool		config_dirty;	/* routes must be loaded again */
	char	   *database_settings;	/* ALTER DATABASE SET, as at the start */
	bool		leave;			/* end the process, for exit_reason */

	/* configuration of the link */
	char	   *config_error;	/* NULL when fine */
	OutboxUri	uri;
	MemoryContext config_cxt;	/* uri and what goes with it */
	char	   *config_text;	/* all settings of the link, to compare */
	bool		reconnect;		/* drain and connect anew */

	/* link */
	OutboxLink *link;
	OutboxConfirms window;
	bool		ever_connected;
	bool		link_was_open;	/* last state that was logged */
	bool		channel_lost;	/* by a message's fault: no news of the broker */
	OutboxBlame *blame;
	OutboxRenewal *renewal;
	OutboxHosts *hosts;
	OutboxMonoTime opened_at;	/* the last connection */
	OutboxMonoTime send_at;		/* no room to send; try again then; unset: now */
	int			send_wait_ms;	/* the last such wait; 0: something was sent since */
	bool		readable;		/* the socket may have something for us */
	bool		protocol_error; /* the broker confirmed what it cannot */
	OutboxMonoTime drain_since; /* unset: not draining */
	OutboxWatch *watch;
	bool		pipe_was_clear;	/* on this connection; see relay_publish.c */

	/* messages */
	OutboxQueue *queue;
	OutboxRoutes *routes;
	OutboxReader *reader;
	OutboxSweep *sweep;
	OutboxUnflushed *unflushed;
	OutboxSettler *settler;
	OutboxWaiting *waiting;

	/* what to look at */
	int			nprepared;
	int			max_prepared;	/* room in prepared */
	OutboxPrepared *prepared;
	bool		find_prepared;	/* look up which there are; in prepared_range */
	OutboxRange prepared_range;
	bool		holders_loaded;
	OutboxMonoTime poll_at;
	OutboxMonoTime sweep_at;
	OutboxMonoTime maintain_at;

	/* faults of the database */
	bool		db_error;
	uint32		db_failures;	/* in a row */
	OutboxMonoTime db_retry_at;
} OutboxRelay;

/* relay_session.c */
extern void outbox_relay_connect_database(Oid dboid);
extern void outbox_relay_attach(OutboxRelay *relay);
extern void outbox_relay_load_config(OutboxRelay *relay);
extern void outbox_relay_reload(OutboxRelay *relay);
extern void outbox_relay_check_settings(OutboxRelay *relay);

/* relay_round.c */
extern bool outbox_relay_wants_round(OutboxRelay *relay, OutboxMonoTime now);
extern void outbox_relay_round(OutboxRelay *relay);
extern void outbox_relay_database_failed(OutboxRelay *relay);
extern void outbox_relay_database_works(OutboxRelay *relay);

/* relay_load.c */
extern void outbox_relay_load_start(OutboxRelay *relay);
extern void outbox_relay_find_prepared(OutboxRelay *relay);
extern void outbox_relay_load_config_tables(OutboxRelay *relay);
extern void outbox_relay_check_control(OutboxRelay *relay,
									   const OutboxBatch *batch);
/* These go on: their rows are read again. */
extern void outbox_relay_resume(OutboxRelay *relay,
								const OutboxResumed *resumed);

/* relay_maintain.c */
extern void outbox_relay_maintain(OutboxRelay *relay);

/* relay_timers.c */
extern void outbox_relay_take_news(OutboxRelay *relay);
extern void outbox_relay_heed_news(OutboxRelay *relay,
								   const OutboxInbox *inbox);
extern void outbox_relay_check_prepared(OutboxRelay *relay,
										bool (*ended) (TransactionId xid));
extern void outbox_relay_timers(OutboxRelay *relay, OutboxMonoTime now);
extern void outbox_relay_add_prepared(OutboxRelay *relay,
									  const OutboxPrepared *prepared);
extern void outbox_relay_reserve_prepared(OutboxRelay *relay, int n);
/* What is not sent goes back to being rows, which are read again. */
extern void outbox_relay_drop_unsent(OutboxRelay *relay);
extern void outbox_relay_stop_routes(OutboxRelay *relay);
extern void outbox_relay_route_broken(OutboxRelay *relay, OutboxRoute *route,
									  const char *reason);
#ifdef OUTBOX_FAULTS
/* Does a prepared transaction that the snapshot sees lead to this row? */
extern bool outbox_relay_prepared_leads_to(const OutboxRelay *relay,
										   int64 seq);
#endif

/* relay_link.c */
extern void outbox_relay_link_create(OutboxRelay *relay);
extern void outbox_relay_link_step(OutboxRelay *relay, OutboxMonoTime now);
extern void outbox_relay_receive(OutboxRelay *relay);
extern void outbox_relay_link_lost(OutboxRelay *relay);
extern void outbox_relay_close(OutboxRelay *relay, bool polite);
extern bool outbox_relay_link_open(OutboxRelay *relay);
/* When the link is to be looked after; unset: it needs nothing. */
extern OutboxMonoTime outbox_relay_link_deadline(OutboxRelay *relay,
												 OutboxMonoTime now);
/* No link, and all hosts were tried in vain. */
extern bool outbox_relay_broker_down(OutboxRelay *relay);

/* relay_publish.c */
extern void outbox_relay_publish(OutboxRelay *relay, OutboxMonoTime now);
extern bool outbox_relay_send_rest(OutboxRelay *relay);
extern bool outbox_relay_may_send(OutboxRelay *relay);

#endif							/* OUTBOX_RELAY_INTERNAL_H */
