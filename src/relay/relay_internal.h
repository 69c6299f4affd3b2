/*-------------------------------------------------------------------------
 *
 * relay_internal.h
 *		What the files of the relay share; nobody else includes it.
 *
 * What goes through several parts, which know nothing of each other:
 *
 * relay.c			the process, its loop
 * relay_show.c		what others see of the worker
 * relay_inbox.c	what makes it look: its inbox, time, routes that stop or go on
 * relay_round.c	the transaction: look up, settle, claim
 * relay_link.c		connecting, losing the connection
 * relay_answers.c	confirms and returns, and when they are late
 * relay_twin.c		asking the broker for another relay of this database
 * relay_declare.c	declaring exchanges
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

#include "hosts.h"
#include "link_parts.h"
#include "settling.h"
#include "twin.h"
#include "upkeep.h"
#include "watchdog.h"

/* How long to wait for confirms when stopping. */
#define OUTBOX_DRAIN_MS			1000

/* relay_inbox.c: when to look for what nobody has told of, and what the time is */
typedef struct OutboxTimers
{
	OutboxMonoTime poll_at;
	uint64		ended;			/* outbox_transactions_ended() at the last
								 * poll */
	OutboxMonoTime sweep_at;
	OutboxMonoTime looked_at;	/* the last look for all that, or the start */
	int64		written;		/* outbox_rows_written(), when the last pass
								 * of the sweep began */
	bool		clock_known;
	int64		clock_ahead_us; /* the wall clock, of the monotonic one, in
								 * the last turn */
} OutboxTimers;

/* sweep.c: looking for rows that nobody has announced */
typedef struct OutboxSweep
{
	int64		from;			/* the next row to look at; 0: no sweep now */
	bool		whole;			/* this pass is over all rows, and held keys */
	int			nkeys;			/* ones that it has still to check */
	OutboxMonoTime rests_until; /* no other step before */
	OutboxMonoTime began;		/* this pass, if it is whole */
	OutboxMonoTime again_at;	/* the next one, if nothing is written */
	OutboxMonoTime forgotten_at;	/* ... if keys are forgotten */
#ifdef OUTBOX_TEST_POINTS
	bool		looks;			/* this one takes nothing, and only tells */
	bool		look_released;	/* the last one found a key without its
								 * holder, */
	TimestampTz look_due;		/* and a row that will be due, and is not
								 * known */
	OutboxMonoTime look_at;
#endif
} OutboxSweep;

/* relay_link.c: what is known of the connection beside the state of the link */
typedef struct OutboxConnection
{
	bool		ever_connected;
	bool		was_open;		/* last state that was logged */
	bool		channel_lost;	/* because of a message, not of the broker */
	bool		route_rests;	/* ... whose route waits now */
	OutboxMonoTime opened_at;	/* the last connection */
	bool		reconnect;		/* to be made again, once nothing is in flight */
	bool		renews;			/* ... for a renewal, not for other settings */
	OutboxMonoTime renew_by;	/* ... then, if no ack has come meanwhile */
	bool		alarmed;		/* the broker has blocked us, when we last
								 * looked */
	bool		unproven;		/* that it works again only a confirm can tell */
} OutboxConnection;

/* relay_answers.c: what is received */
typedef struct OutboxAnswers
{
	bool		readable;		/* the socket may have something for us */
	OutboxMonoTime received_at; /* what is received now; and by the wall clock */
	TimestampTz received_wall;
	bool		protocol_error; /* the broker confirmed what it cannot */
} OutboxAnswers;

/* relay_publish.c: when there may be room to send again */
typedef struct OutboxSender
{
	OutboxMonoTime send_at;		/* no room to send; try again then; unset: now */
	int			wait_ms;		/* the last such wait; 0: something was sent
								 * since */
} OutboxSender;

/* relay_declare.c: when the answer is due to what was asked last */
typedef struct OutboxDeclaring
{
	uint64		tag;			/* what was sent before is older */
	uint64		return_left;	/* outbox_link_return_left() at the last look */
	OutboxMonoTime since;		/* nothing else is waited for */
} OutboxDeclaring;

/* relay_wait_set.c: for the latch, the socket, the time */
typedef struct OutboxWaitSet
{
	struct WaitEventSet *set;	/* with the socket; NULL: none */
	struct WaitEventSet *no_socket; /* without it; NULL: none */
	OutboxMonoTime set_opened_at;	/* of the connection in it */
	OutboxMonoTime pace;		/* of claims: the next one is not before */
} OutboxWaitSet;

/*
 * The parts: the file of each writes it (test/tools/state-writers looks), others read
 * it.  No pointer in here changes as long as the process lives.
 */
typedef struct OutboxRelay
{
	MemoryContext scratch;		/* reset in every turn of the loop */

	/* the database */
	OutboxDatabase database;
	OutboxControlState control;
	OutboxPreparedList prepared;
	OutboxMaintenance maintenance;
	OutboxJobs	jobs;

	/* messages */
	OutboxQueue *queue;
	OutboxRoutes routes;
	OutboxReader reader;
	OutboxSweep sweep;
	OutboxSettler settler;

	/* the broker */
	OutboxLinkConfig config;
	OutboxLink *link;
	OutboxConfirms window;
	OutboxConnection connection;
	OutboxAnswers answers;
	OutboxHosts hosts;
	OutboxTwin	twin;
	OutboxRenewal renewal;
	OutboxStall stall;
	OutboxPoison poison;
	OutboxSender sender;
	OutboxDeclaring declaring;

	/* time */
	OutboxTimers timers;
	OutboxWaitSet waiting;
} OutboxRelay;

/* relay.c: the entry point of the process */
extern PGDLLEXPORT void outbox_relay_main(Datum main_arg);

/* relay_show.c */
extern void outbox_relay_show_state(OutboxRelay *relay);
extern void outbox_relay_show_activity(OutboxWorkerState state, const char *broker);

/* What pg_stat_activity says of the worker: what it is there for, or what keeps it from that. */
extern const char *outbox_relay_activity(void);

/* relay_round.c */
extern bool outbox_relay_wants_round(OutboxRelay *relay, OutboxMonoTime now);
extern void outbox_relay_round(OutboxRelay *relay);

/* relay_inbox.c */
extern void outbox_relay_reload(OutboxRelay *relay);
extern void outbox_relay_take_inbox(OutboxRelay *relay);
extern void outbox_relay_handle_inbox(OutboxRelay *relay,
									  const OutboxInbox *inbox);
extern void outbox_relay_check_prepared(OutboxRelay *relay,
										bool (*ended) (TransactionId xid));

/* Ends the worker that is to leave, once it has nothing in flight. */
extern void outbox_relay_check_leaving(OutboxRelay *relay);

/*
 * For how long nobody would miss this worker; 0: there is work, unsent for instance.
 * rests: nothing keeps it from working.
 */
extern int	outbox_relay_rest_ms(OutboxRelay *relay, bool unsent, bool *rests);

/* Does more wait than a commit or the time may bring? */
extern bool outbox_relay_has_work(OutboxRelay *relay);
extern void outbox_relay_timers_start(OutboxTimers *timers);
extern void outbox_relay_timers(OutboxRelay *relay, OutboxMonoTime now);

/* What is not sent goes back to being rows, which are read again. */
extern void outbox_relay_drop_unsent(OutboxRelay *relay);
extern void outbox_relay_stop_routes(OutboxRelay *relay, bool was_in_flight);

/* code: the broker's reply code, or OUTBOX_CODE_NO_CONFIRM. */
extern void outbox_relay_route_broken(OutboxRelay *relay, OutboxRoute *route,
									  int code, const char *reason);

/* These go on: their rows are read again. */
extern void outbox_relay_resume(OutboxRelay *relay,
								const OutboxResumed *resumed);

/* relay_link.c */
extern void outbox_relay_load_config(OutboxRelay *relay);
extern OutboxLink *outbox_relay_link_create(OutboxRelay *relay, MemoryContext cxt);
extern void outbox_relay_link_step(OutboxRelay *relay, OutboxMonoTime now);
extern void outbox_relay_link_lost(OutboxRelay *relay);
extern void outbox_relay_close(OutboxRelay *relay, bool polite);
extern bool outbox_relay_link_open(OutboxRelay *relay);

/* The broker took a message, or its alarm is over: the link has no error. */
extern void outbox_relay_link_works(OutboxRelay *relay);

/* A message was acked. */
extern void outbox_relay_link_acked(OutboxRelay *relay);

/* An alarm of the broker has begun, or changed, or is over. */
extern void outbox_relay_show_alarm(OutboxRelay *relay);

extern void outbox_relay_give_link_up(OutboxRelay *relay, const OutboxLinkError *error);

/* When the link is to be looked after; unset: it needs nothing. */
extern OutboxMonoTime outbox_relay_link_deadline(OutboxRelay *relay,
												 OutboxMonoTime now);

/* No link, and all hosts were tried in vain. */
extern bool outbox_relay_broker_down(OutboxRelay *relay);

/* relay_answers.c */
extern void outbox_relay_receive(OutboxRelay *relay);
extern void outbox_relay_answered(void *arg, bool ack, uint64 tag, bool multiple);
extern void outbox_relay_returned(void *arg, const pg_uuid_t *id, const char *text);

/* For how long the broker is waited for when only this route is tried. */
extern int	outbox_relay_patience_ms(OutboxRelay *relay, const OutboxRoute *route);

/* Gives the link up when an answer is late; when it will be. */
extern void outbox_relay_check_late(OutboxRelay *relay, OutboxMonoTime now);
extern OutboxMonoTime outbox_relay_late_deadline(OutboxRelay *relay, OutboxMonoTime now);

/* The socket may have something for us. */
extern void outbox_relay_socket_readable(OutboxRelay *relay);

/* relay_twin.c */
extern void outbox_relay_twin_opened(OutboxRelay *relay);

/* error: why the connection was lost; NULL if we have closed it. */
extern void outbox_relay_twin_closed(OutboxRelay *relay,
									 const OutboxLinkError *error);
extern void outbox_relay_twin_step(OutboxRelay *relay, OutboxMonoTime now);

/* relay_publish.c */
extern void outbox_relay_publish(OutboxRelay *relay, OutboxMonoTime now);
extern bool outbox_relay_send_rest(OutboxRelay *relay);
extern bool outbox_relay_may_send(OutboxRelay *relay);
extern bool outbox_relay_is_risky(OutboxRelay *relay, const OutboxItem *item);

/* Do messages go out, as far as settings, database and link are concerned? */
extern bool outbox_relay_publishes(OutboxRelay *relay);

/* There may be room to send; there is another connection, perhaps. */
extern void outbox_relay_sender_reset(OutboxRelay *relay);
extern void outbox_relay_send_not_before(OutboxRelay *relay, OutboxMonoTime time);

/* relay_declare.c */
extern bool outbox_relay_is_declared(OutboxRelay *relay, const OutboxRoute *route);
extern bool outbox_relay_declares_alone(OutboxRelay *relay);
extern bool outbox_relay_next_is_declared(OutboxRelay *relay, OutboxMonoTime now);
extern void outbox_relay_declare(OutboxRelay *relay, OutboxMonoTime now);
extern void outbox_relay_declared(void *arg, int code, const char *text);
extern void outbox_relay_declare_ended(OutboxRelay *relay, const OutboxLinkError *error);
extern const char *outbox_relay_declare_late(OutboxRelay *relay, OutboxMonoTime now);
extern OutboxMonoTime outbox_relay_declare_deadline(OutboxRelay *relay,
													OutboxMonoTime now);

/* sweep.c */

/*
 * All rows that were read are to be looked at.  written: has a row been, since the last
 * pass over all of them began?  False: a pass is under way, or rests, as none was.
 */
extern bool outbox_sweep_start(OutboxSweep *sweep, bool written, OutboxMonoTime now);

/* In a worker that ends: no step meets what it has left to the next one. */
extern void outbox_sweep_stop(OutboxSweep *sweep);

/* The next step; where keys are forgotten, passes over what they have follow each other. */
extern OutboxMonoTime outbox_sweep_deadline(const OutboxSweep *sweep,
											const OutboxQueue *queue);
extern void outbox_sweep_timers(OutboxSweep *sweep, const OutboxQueue *queue,
								OutboxMonoTime now);

/* Is a step to be made now? */
extern bool outbox_sweep_wanted(const OutboxSweep *sweep, const OutboxQueue *queue,
								OutboxMonoTime now);

/* Its next step, in a transaction; what it finds is to be read. */
extern void outbox_sweep_step(OutboxSweep *sweep, OutboxRelay *relay);
#ifdef OUTBOX_TEST_POINTS
/* Starts one, from time to time, that only tells what it would find. */
extern void outbox_sweep_look(OutboxSweep *sweep, OutboxMonoTime now);
#endif

/* relay_wait_set.c */

/*
 * Waits for the latch, the socket if there is one, or so many milliseconds.
 * Returns whether the socket may be readable.
 */
extern bool outbox_relay_wait(OutboxRelay *relay, int64 timeout_ms);

/* A round has claimed something. */
extern void outbox_wait_set_claimed(OutboxWaitSet *waiting);

#endif							/* OUTBOX_RELAY_INTERNAL_H */
