/*-------------------------------------------------------------------------
 *
 * wait_event.h
 *		What our processes say that they wait for, in pg_stat_activity.
 *
 * Where an extension can name its waits (PostgreSQL 17), wait_event has the names
 * of wait_event.c, with wait_event_type "Extension".  OutboxBroker* is a call that
 * hears nothing but the watchdog; in all others the latch is heard.  Before 17
 * the others are "Extension", and such a call shows no wait at all.
 *
 *-------------------------------------------------------------------------
 */
#ifndef OUTBOX_WAIT_EVENT_H
#define OUTBOX_WAIT_EVENT_H

typedef enum OutboxWait
{
	OUTBOX_WAIT_LAUNCHER,		/* the launcher, for something to do */
	OUTBOX_WAIT_RELAY,			/* a relay, for messages, or the next attempt */
	OUTBOX_WAIT_CONFIRM,		/* a relay, for confirms of what it has sent */
	OUTBOX_WAIT_CONNECT,		/* a relay, for the broker to take the
								 * connection */
	OUTBOX_WAIT_RESOLVE,		/* inside the resolver: the host's addresses */
	OUTBOX_WAIT_LOGIN,			/* inside librabbitmq: TLS, login, channel */
	OUTBOX_WAIT_DECLARE,		/* inside librabbitmq: an exchange */
	OUTBOX_WAIT_SEND,			/* inside librabbitmq: it sends */
	OUTBOX_WAIT_CLOSE,			/* inside librabbitmq: it says goodbye */
	OUTBOX_WAIT_STOP,			/* a relay that stops, for the last confirms */
	OUTBOX_WAIT_WORKERS,		/* a session, for the workers of a database */
	OUTBOX_WAIT_PREFLIGHT,		/* outbox_preflight(), for the broker */
	OUTBOX_WAIT_MESSAGE,		/* outbox_wait(), for the message to be
								 * settled */
	OUTBOX_WAITS
} OutboxWait;

/* For WaitLatch() and its like. */
extern uint32 outbox_wait_event(OutboxWait wait);

/* Around a call that waits by itself. */
extern void outbox_wait_start(OutboxWait wait);
extern void outbox_wait_end(void);

#endif							/* OUTBOX_WAIT_EVENT_H */
