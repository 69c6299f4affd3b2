/*-------------------------------------------------------------------------
 *
 * broker.h
 *		The link to RabbitMQ: one connection, one confirm channel.
 *
 * An error of the broker or the network is a value here, never an ereport:
 * every call returns a status that must be looked at, and the reason stays in
 * the link until the next connect.  Never called inside a transaction.
 *
 * States of a link (one function in broker.c changes them):
 *
 *		CLOSED --connect_start--> CONNECTING --connect_poll--> OPEN
 *		OPEN <--connection.blocked / unblocked--> BLOCKED
 *		CONNECTING, OPEN, BLOCKED --error or close--> CLOSED
 *
 *-------------------------------------------------------------------------
 */
#ifndef OUTBOX_BROKER_H
#define OUTBOX_BROKER_H

#include "format.h"
#include "message.h"
#include "reason_codes.h"
#include "uri.h"

typedef struct OutboxLink OutboxLink;

typedef enum OutboxLinkState
{
	OUTBOX_LINK_CLOSED,
	OUTBOX_LINK_CONNECTING,
	OUTBOX_LINK_OPEN,
	OUTBOX_LINK_BLOCKED			/* the broker told us to stop sending */
} OutboxLinkState;

typedef enum OutboxLinkStatus
{
	OUTBOX_LINK_OK,
	OUTBOX_LINK_AGAIN,			/* nothing done: wait for the socket */
	OUTBOX_LINK_REFUSED,		/* this exchange or message only; link lives */
	OUTBOX_LINK_LOST			/* link is CLOSED now; see outbox_link_error */
} OutboxLinkStatus;

/* Why a link was lost; from this the relay makes the classes of doc/delivery.md. */
typedef enum OutboxLinkErrorKind
{
	OUTBOX_LINK_ERR_NONE,
	OUTBOX_LINK_ERR_CONNECTION, /* refused, reset, timeout, login, vhost ... */
	OUTBOX_LINK_ERR_CHANNEL		/* channel.close, because of a message */
} OutboxLinkErrorKind;

typedef struct OutboxLinkError
{
	OutboxLinkErrorKind kind;
	OutboxReason reason;		/* NONE when a message was the reason */
	int			code;			/* AMQP reply code, or 0 */
	bool		destination;	/* whatever goes to that exchange meets it */
	bool		unreachable;	/* nobody there: no TCP connection came about */
	bool		message;		/* perhaps because of one that was in flight */
	bool		permanent;		/* ... or that was refused, which no later
								 * attempt can change */
	bool		name;			/* because of outbox_link_ask_name() */
	bool		declaration;	/* because of the only outbox_link_declare()
								 * that was not answered */
	char		text[512];		/* printable, without credentials */
} OutboxLinkError;

/* Where to connect, and as whom: plain values that the link copies. */
typedef struct OutboxLinkTarget
{
	const char *host;
	int			port;
	bool		tls;
	const char *vhost;
	const char *user;
	const char *password;		/* "" with EXTERNAL */
	int			heartbeat_s;	/* 0: none */
	const char *application_name;	/* shown by the broker */
} OutboxLinkTarget;

/*
 * What the broker told us, delivered while outbox_link_receive runs.  A return
 * always comes before the ack of the same message.  id is all zeros when the
 * returned message carries none of ours.  text is printable and bounded.
 */
typedef struct OutboxLinkEvents
{
	void		(*answered) (void *arg, bool ack, uint64 tag, bool multiple);
	void		(*returned) (void *arg, const pg_uuid_t *id, const char *text);

	/* Of outbox_link_declare(); text NULL: the exchange is there. */
	void		(*declared) (void *arg, int code, const char *text);
	void	   *arg;
} OutboxLinkEvents;

/* What the link is made of: as it runs, and as we were built with it. */
typedef struct OutboxLinkVersions
{
	const char *librabbitmq;
	const char *librabbitmq_built;
	const char *openssl;
	const char *openssl_built;
} OutboxLinkVersions;

extern void outbox_link_versions(OutboxLinkVersions *versions);

extern OutboxLink *outbox_link_create(MemoryContext parent,
									  const OutboxLinkEvents *events);
extern OutboxLinkState outbox_link_state(const OutboxLink *link);
extern const OutboxLinkError *outbox_link_error(const OutboxLink *link);

/* The broker's words for why it blocks us, "" unless BLOCKED. */
extern const char *outbox_link_blocked_reason(const OutboxLink *link);

/* The same as a kind; NONE unless BLOCKED. */
extern OutboxReason outbox_link_alarm(const OutboxLink *link);

/* When the broker's last certificate ends, in seconds of Unix; 0: it showed none. */
extern int64 outbox_link_certificate_ends(const OutboxLink *link);

/* Socket to wait on, PGINVALID_SOCKET when CLOSED. */
extern pgsocket outbox_link_socket(const OutboxLink *link);

/*
 * Connecting.  start resolves the name and begins a non-blocking TCP connect to
 * its first address; then call poll whenever the socket is writable, or
 * outbox_link_connect_due_ms() are over, for the next address.  Both return AGAIN
 * while the connect is under way (start never returns OK); poll does the handshakes
 * of TLS and AMQP (bounded by the watchdog) once TCP is up, and OK means OPEN.  The
 * socket may change between polls: ask for it again.
 */
extern OutboxLinkStatus outbox_link_connect_start(OutboxLink *link,
												  const OutboxLinkTarget *target);
extern OutboxLinkStatus outbox_link_connect_poll(OutboxLink *link);

/* Milliseconds until poll must be called while nothing happens on the socket. */
extern int	outbox_link_connect_due_ms(const OutboxLink *link);

/*
 * Asks the broker to make sure that an exchange exists: it is declared durable with
 * that type, or with type NULL looked for.  Never waits, and leaves publishing alone.
 * OK: asked; receive until the event, or the link is lost.  Events come in the order of
 * the questions; a refusal leaves those behind it without an answer, and they are to be
 * asked again.  REFUSED: it cannot be asked, see outbox_link_error.  AGAIN: not now.
 */
extern OutboxLinkStatus outbox_link_declare(OutboxLink *link,
											const char *exchange,
											const char *type);

/*
 * Tries whether we may publish to that exchange with that routing key; no queue gets
 * the message.  OK: asked; then receive until tried says OK, REFUSED (with the code
 * and words of the broker) or LOST, or the link is BLOCKED: then there may be no
 * answer.  AGAIN: not now.
 */
extern OutboxLinkStatus outbox_link_try_publish(OutboxLink *link,
												const char *exchange,
												const char *routing_key);
extern OutboxLinkStatus outbox_link_tried(const OutboxLink *link, int *code,
										  const char **text);

/*
 * Asks for a name that one connection to the broker can have at a time, until it
 * closes.  Never waits, and leaves publishing alone.  OK: begun; receive until
 * name_answer, which goes on with it, says OK (the name is this connection's) or
 * REFUSED (with the broker's code, 405 where another connection has the name, and
 * its words).  REFUSED: that is the answer already.  AGAIN: not now.  A name that is
 * held can be asked for again; one connection has one name.
 */
extern OutboxLinkStatus outbox_link_ask_name(OutboxLink *link, const char *name);
extern OutboxLinkStatus outbox_link_name_answer(OutboxLink *link, int *code,
												const char **text);
extern OutboxLinkStatus outbox_link_release_name(OutboxLink *link);

/*
 * Publishing happens in bursts: begin arms the watchdog, end sends what was kept
 * back.  begin returns AGAIN when the socket's send buffer has no room, the link is
 * BLOCKED, or a message is being sent.  After AGAIN wait until the socket is
 * readable, or for at most OUTBOX_LINK_AGAIN_MS; not for it to be writable, which
 * the kernel judges by another measure.
 *
 * publish sends one message in that format (NULL: plain), mandatory and persistent;
 * its delivery tag is the number of publishes since the link was opened, from 1 on.
 * OK: it was sent, or outbox_link_sending() is true: there was no room for the rest
 * of it, the message must stay where it is, and each call of send_rest sends what
 * there is room for, until it returns OK.  AGAIN: no room, nothing was sent, end the
 * burst.  REFUSED: it cannot be encoded (see outbox_link_error), nothing of it was sent.
 * LOST: whether it was sent is unknown.
 */
#define OUTBOX_LINK_AGAIN_MS 20
extern bool outbox_link_sending(const OutboxLink *link);
extern uint64 outbox_link_unsent(const OutboxLink *link);	/* bytes of it */
extern OutboxLinkStatus outbox_link_send_rest(OutboxLink *link);
extern OutboxLinkStatus outbox_link_burst_begin(OutboxLink *link);
extern OutboxLinkStatus outbox_link_publish(OutboxLink *link,
											const OutboxMessage *message,
											const OutboxFormat *format,
											const char *exchange,
											const char *routing_key);
extern OutboxLinkStatus outbox_link_burst_end(OutboxLink *link);

/*
 * Could the message be sent in that format if its headers were so many bytes longer?
 * Asked of its headers and properties only, and of the frames that the broker has
 * agreed to.  NULL: it could; else why not, in the current context.
 */
extern const char *outbox_link_header_error(OutboxLink *link,
											const OutboxMessage *message,
											const OutboxFormat *format,
											size_t bytes);

/*
 * Where the bytes are, counted from when the link was opened: published counts
 * all those of the messages that publish has taken; of them acknowledged have
 * surely arrived at the other end of the TCP connection.
 */
extern uint64 outbox_link_published(const OutboxLink *link);
extern uint64 outbox_link_acknowledged(OutboxLink *link);

/* When no byte was taken for so long, something is wrong with the connection. */
extern int	outbox_link_stalled_ms(const OutboxLink *link);

/* Bytes still to come of a message that the broker returns: answers are behind it. */
extern uint64 outbox_link_return_left(const OutboxLink *link);

/*
 * Reads everything that has arrived and delivers it as events, serves
 * heartbeats, and returns without waiting.  *received counts the frames.  Call
 * it at least twice per heartbeat.
 */
extern OutboxLinkStatus outbox_link_receive(OutboxLink *link, int *received);

/* Of an event: for how long that was in the socket before it was read; 0: unknown. */
extern int64 outbox_link_unread_us(const OutboxLink *link);

/* The interval that was agreed on; 0: none. */
extern int64 outbox_link_heartbeat_ms(const OutboxLink *link);

/* Milliseconds until receive must be called for the sake of heartbeats. */
extern int	outbox_link_heartbeat_due_ms(const OutboxLink *link);

/*
 * Closes: politely (channel and connection close, bounded by the watchdog)
 * when nothing has failed, else just drops the socket.  No-op when CLOSED.
 */
extern void outbox_link_close(OutboxLink *link, bool polite);

#endif							/* OUTBOX_BROKER_H */
