/*-------------------------------------------------------------------------
 *
 * relay_internal.h
 *		What the files of the relay share; nobody else includes it.
 *
 * What goes through several parts, which know nothing of each other:
 *
 * relay.c			the process, its loop, the worker's state
 * relay_inbox.c	what makes it look: its inbox, and time
 * relay_round.c	the transaction: settle, claim
 * relay_resume.c	what is read again when routes stop and go on
 * relay_load.c		what a round looks up beside messages
 * relay_link.c		connecting, losing the connection, confirms
 * relay_twin.c		asking the broker for another relay of this database
 * relay_publish.c	sending what is ready
 * sweep.c			looking for rows that nobody has announced
 * relay_wait_set.c	waiting for work, and the pace of claims
 *
 * The parts are in the folders below.
 *
 *-------------------------------------------------------------------------
 */
#ifndef OUTBOX_RELAY_INTERNAL_H
#define OUTBOX_RELAY_INTERNAL_H

#include "broker.h"
#include "clock.h"
#include "confirms.h"
#include "hosts.h"
#include "link_parts.h"
#include "queue.h"
#include "reading.h"
#include "route_states.h"
#include "settling.h"
#include "shared.h"
#include "store.h"
#include "twin.h"
#include "upkeep.h"
#include "watchdog.h"

/* How long to wait for confirms when stopping, or before a new connection. */
#define OUTBOX_DRAIN_MS			1000

/* A connection that lived shorter counts as a failure to connect. */
#define OUTBOX_STABLE_MS		10000

typedef struct OutboxConnection OutboxConnection;
typedef struct OutboxSweep OutboxSweep;
typedef struct OutboxWaitSet OutboxWaitSet;

/*
 * The parts: only the file of each writes it, and most are known to that file only
 * (the queue, the route states and the window are read by others).  Nothing in
 * here changes as long as the process lives.
 */
typedef struct OutboxRelay
{
	MemoryContext cxt;			/* lives as long as the process */
	MemoryContext scratch;		/* reset in every turn of the loop */

	/* the database */
	OutboxDatabase *database;
	OutboxControlState *control;
	OutboxPreparedList *prepared;
	OutboxMaintenance *maintenance;
	OutboxJobs *jobs;

	/* messages */
	OutboxQueue *queue;
	OutboxRoutes *routes;
	OutboxReader *reader;
	OutboxSweep *sweep;
	OutboxSettler *settler;
	OutboxUnflushed *unflushed;

	/* the broker */
	OutboxLinkConfig *config;
	OutboxLink *link;
	OutboxConfirms *window;
	OutboxConnection *connection;	/* relay_link.c */
	OutboxHosts *hosts;
	OutboxTwin *twin;
	OutboxRenewal *renewal;
	OutboxStall *stall;
	OutboxPoison *poison;
	OutboxSender *sender;

	/* time */
	OutboxTimers *timers;
	OutboxWallClock *wall_clock;
	OutboxWaitSet *waiting;
} OutboxRelay;

/* relay.c: the entry point of the process */
extern PGDLLEXPORT void outbox_relay_main(Datum main_arg);

/* relay_round.c */
extern bool outbox_relay_wants_round(OutboxRelay *relay, OutboxMonoTime now);
extern void outbox_relay_round(OutboxRelay *relay);

/* relay_load.c */
extern void outbox_relay_load_start(OutboxRelay *relay);

/* Keys that have a retry in the table wait for it. */
extern void outbox_relay_hold_retries(OutboxRelay *relay);
extern void outbox_relay_find_prepared(OutboxRelay *relay);
extern void outbox_relay_load_config_tables(OutboxRelay *relay);

/* relay_inbox.c */
extern void outbox_relay_reload(OutboxRelay *relay);
extern void outbox_relay_take_inbox(OutboxRelay *relay);
extern void outbox_relay_handle_inbox(OutboxRelay *relay,
									  const OutboxInbox *inbox);
extern void outbox_relay_check_prepared(OutboxRelay *relay,
										bool (*ended) (TransactionId xid));

/* Does more wait than a commit or the time may bring? */
extern bool outbox_relay_has_work(OutboxRelay *relay);
extern void outbox_relay_timers(OutboxRelay *relay, OutboxMonoTime now);

/* relay_resume.c */
/* What is not sent goes back to being rows, which are read again. */
extern void outbox_relay_drop_unsent(OutboxRelay *relay);
extern void outbox_relay_stop_routes(OutboxRelay *relay);

/* code: the broker's reply code. */
extern void outbox_relay_route_broken(OutboxRelay *relay, OutboxRoute *route,
									  int code, const char *reason);

/* These go on: their rows are read again. */
extern void outbox_relay_resume(OutboxRelay *relay,
								const OutboxResumed *resumed);

/* relay_link.c */
extern void outbox_relay_load_config(OutboxRelay *relay);
extern void outbox_relay_link_create(OutboxRelay *relay);
extern void outbox_relay_link_step(OutboxRelay *relay, OutboxMonoTime now);
extern void outbox_relay_receive(OutboxRelay *relay);
extern void outbox_relay_link_lost(OutboxRelay *relay);
extern void outbox_relay_close(OutboxRelay *relay, bool polite);
extern bool outbox_relay_link_open(OutboxRelay *relay);

/* Is it to be made again, once what is in flight had its moment? */
extern bool outbox_relay_reconnecting(const OutboxRelay *relay);
extern OutboxMonoTime outbox_relay_opened_at(const OutboxRelay *relay);

/* The socket may have something for us. */
extern void outbox_relay_socket_readable(OutboxRelay *relay);

/* When the link is to be looked after; unset: it needs nothing. */
extern OutboxMonoTime outbox_relay_link_deadline(OutboxRelay *relay,
												 OutboxMonoTime now);

/* No link, and all hosts were tried in vain. */
extern bool outbox_relay_broker_down(OutboxRelay *relay);

/* For those parts that are plain C. */
extern uint32 outbox_relay_random_bits(void);

/* relay_twin.c */
extern void outbox_relay_twin_create(OutboxRelay *relay);
extern void outbox_relay_twin_opened(OutboxRelay *relay);

/* error: why the connection was lost; NULL if we have closed it. */
extern void outbox_relay_twin_closed(OutboxRelay *relay,
									 const OutboxLinkError *error);
extern void outbox_relay_twin_step(OutboxRelay *relay, OutboxMonoTime now);

/* relay_publish.c */
extern void outbox_relay_publish(OutboxRelay *relay, OutboxMonoTime now);
extern bool outbox_relay_send_rest(OutboxRelay *relay);
extern bool outbox_relay_may_send(OutboxRelay *relay);

/* sweep.c: looking for rows that nobody has announced */
extern OutboxSweep *outbox_sweep_create(MemoryContext cxt);

/* All rows that were read are to be looked at (again), from the first one on. */
extern void outbox_sweep_start(OutboxSweep *sweep, OutboxQueue *queue);

/* Where keys are forgotten, passes over what they have follow each other. */
extern OutboxMonoTime outbox_sweep_deadline(const OutboxSweep *sweep,
											const OutboxQueue *queue);
extern void outbox_sweep_timers(OutboxSweep *sweep, OutboxQueue *queue,
								OutboxMonoTime now);

/* Is one under way? */
extern bool outbox_sweep_wanted(const OutboxSweep *sweep, const OutboxQueue *queue);

/* Its next step, in a transaction; what it finds is to be read. */
extern void outbox_sweep_step(OutboxSweep *sweep, OutboxRelay *relay);
#ifdef OUTBOX_TEST_POINTS
/* Starts one, from time to time, that only tells what it would find. */
extern void outbox_sweep_look(OutboxSweep *sweep, OutboxMonoTime now);
#endif

/* relay_wait_set.c: for the latch, the socket, the time */

/* What there is to wait for. */
typedef struct OutboxWaitFor
{
	bool		open;			/* there is a connection, opened at that time */
	OutboxMonoTime opened_at;
	bool		confirms;		/* that we wait for */
	bool		may_nap;		/* what is in memory needs nobody's hand */
	int64		timeout_ms;
} OutboxWaitFor;

extern OutboxWaitSet *outbox_wait_set_create(MemoryContext cxt,
											 OutboxLink *link);

/*
 * Waits for the latch, the socket if there is one, or so many milliseconds.
 * Returns whether the socket is readable.
 */
extern bool outbox_wait_set_wait(OutboxWaitSet *waiting,
								 const OutboxWaitFor *wait);

/* A round has claimed something. */
extern void outbox_wait_set_claimed(OutboxWaitSet *waiting);

#endif							/* OUTBOX_RELAY_INTERNAL_H */
