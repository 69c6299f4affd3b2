/*-------------------------------------------------------------------------
 *
 * wait_event.h
 *		What our processes say that they wait for, in pg_stat_activity.
 *
 * Where an extension can name its waits (PostgreSQL 17), wait_event has these names,
 * with wait_event_type "Extension".  OutboxBroker* is a call that hears nothing but
 * the watchdog; in all others the latch is heard.  Before 17 the others are
 * "Extension", and such a call shows no wait at all.
 *
 *-------------------------------------------------------------------------
 */
#ifndef OUTBOX_WAIT_EVENT_H
#define OUTBOX_WAIT_EVENT_H

#define OUTBOX_WAIT_EVENTS(wait) \
	wait(LAUNCHER, "OutboxLauncherMain")	/* for something to do */ \
	wait(RELAY, "OutboxRelayMain")			/* for messages, or the next attempt */ \
	wait(CONFIRM, "OutboxRelayConfirm")		/* for confirms of what it has sent */ \
	wait(CONNECT, "OutboxRelayConnect")		/* for the broker to take the connection */ \
	wait(RESOLVE, "OutboxBrokerResolve")	/* inside the resolver: the host's addresses */ \
	wait(LOGIN, "OutboxBrokerLogin")		/* inside librabbitmq: TLS, login, channel */ \
	wait(DECLARE, "OutboxBrokerDeclare")	/* inside librabbitmq: an exchange */ \
	wait(SEND, "OutboxBrokerSend")			/* inside librabbitmq: it sends */ \
	wait(CLOSE, "OutboxBrokerClose")		/* inside librabbitmq: it says goodbye */ \
	wait(STOP, "OutboxRelayStop")			/* a relay that stops, for the last confirms */ \
	wait(WORKERS, "OutboxWorkersStop")		/* a session, for the workers of a database */ \
	wait(PREFLIGHT, "OutboxPreflight")		/* outbox_preflight(), for the broker */ \
	wait(MESSAGE, "OutboxWaitMessage")	/* outbox_wait(), for the answer */

#define OUTBOX_WAIT_ENUM(id, name) OUTBOX_WAIT_##id,
typedef enum OutboxWait
{
	OUTBOX_WAIT_EVENTS(OUTBOX_WAIT_ENUM)
	OUTBOX_WAITS
} OutboxWait;

/* For WaitLatch() and its like. */
extern uint32 outbox_wait_event(OutboxWait wait);

/* Around a call that waits by itself. */
extern void outbox_wait_start(OutboxWait wait);
extern void outbox_wait_end(void);

#endif							/* OUTBOX_WAIT_EVENT_H */
