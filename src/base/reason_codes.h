/*-------------------------------------------------------------------------
 *
 * reason_codes.h
 *		Reasons: kinds of errors, beside their texts.
 *
 * The code that meets an error names its reason: the broker's side in
 * broker_reason.c, the database's in outbox_reason_of_sqlstate(), settings where
 * they are read.  What to do about each is in src/admin/reason_advice.c.
 *
 * Plain C without a PostgreSQL header, so that test/unit can drive it alone.
 *
 *-------------------------------------------------------------------------
 */
#ifndef OUTBOX_REASON_CODES_H
#define OUTBOX_REASON_CODES_H

/*
 * Each with its name, which views show and alerts compare: it stays as it is.
 */
#define OUTBOX_REASONS(reason) \
	/* no way to the broker */ \
	reason(HOST_UNKNOWN, "host unknown") \
	reason(REFUSED, "connection refused") \
	reason(UNREACHABLE, "host unreachable") \
	reason(TCP_TIMEOUT, "connection timed out") \
	reason(NO_RESOURCES, "out of resources") \
	/* TLS */ \
	reason(TLS_TIMEOUT, "TLS handshake timed out") \
	reason(TLS_FILES, "TLS files unusable") \
	reason(TLS_KEY_MODE, "private key not private") \
	reason(TLS_PASSPHRASE, "key passphrase wrong") \
	reason(TLS_UNTRUSTED, "certificate not trusted") \
	reason(TLS_HOST, "certificate of another host") \
	reason(TLS_EXPIRED, "certificate expired") \
	reason(TLS_NOT_YET, "certificate not yet valid") \
	reason(TLS_CLIENT_WANTED, "client certificate required") \
	reason(TLS_CLIENT, "client certificate refused") \
	reason(TLS_VERSION, "TLS version too old") \
	reason(TLS_NONE, "no TLS there") \
	reason(TLS_HANDSHAKE, "TLS handshake failed") \
	/* a host is there, and refuses the connection */ \
	reason(NOT_RABBITMQ, "not RabbitMQ") \
	reason(LOGIN_TIMEOUT, "login timed out") \
	reason(LOGIN_CLOSED, "closed at login") \
	reason(MECHANISM_MISSING, "mechanism not offered") \
	reason(LOGIN_REFUSED, "login refused") \
	reason(VHOST_MISSING, "virtual host missing") \
	reason(VHOST_FORBIDDEN, "virtual host not allowed") \
	reason(VHOST_DOWN, "virtual host down") \
	reason(CONNECTION_LIMIT, "connection limit") \
	/* it was connected */ \
	reason(HEARTBEATS, "heartbeats missing") \
	reason(CLOSED, "closed by the broker") \
	reason(RESET, "connection reset") \
	reason(STALLED, "takes no data") \
	reason(NO_CONFIRM, "no confirms") \
	reason(PROTOCOL, "protocol error") \
	reason(BROKER_OTHER, "broker error") \
	/* it blocks us */ \
	reason(ALARM_MEMORY, "memory alarm") \
	reason(ALARM_DISK, "disk alarm") \
	reason(ALARM_OTHER, "broker alarm") \
	/* another relay is there */ \
	reason(TWIN, "twin") \
	/* settings */ \
	reason(URI, "URI unusable") \
	reason(PLAINTEXT, "plain text not allowed") \
	reason(MECHANISM, "mechanism unusable") \
	reason(PASSFILE_MISSING, "password file missing") \
	reason(PASSFILE_MODE, "password file not private") \
	reason(PASSFILE_UNREADABLE, "password file unreadable") \
	reason(PASSFILE_NO_LINE, "no password") \
	reason(ENVIRONMENT, "environment unusable") \
	/* the database */ \
	reason(DB_LOCK, "lock timeout") \
	reason(DB_TIMEOUT, "statement timeout") \
	reason(DB_DISK, "disk full") \
	reason(DB_MEMORY, "out of memory") \
	reason(DB_PERMISSION, "permission denied") \
	reason(DB_TRIGGER, "trigger or constraint") \
	reason(DB_CORRUPT, "data damaged") \
	reason(DB_UNREADABLE, "message unreadable") \
	reason(DB_OTHER, "database error") \
	/* one route */ \
	reason(EXCHANGE_MISSING, "exchange missing") \
	reason(EXCHANGE_FORBIDDEN, "exchange forbidden") \
	reason(EXCHANGE_DIFFERS, "exchange differs") \
	reason(EXCHANGE_TYPE, "exchange type unknown") \
	reason(EXCHANGE_OTHER, "exchange error") \
	reason(ROUTE_NOT_OURS, "another relay's route") \
	/* an attempt of one message: last_error_reason of its row */ \
	reason(UNROUTABLE, "unroutable") \
	reason(QUEUE_REFUSES, "queue refuses") \
	reason(MESSAGE_REFUSED, "message refused") \
	reason(EXTERNAL_NACK, "external nack")

#define OUTBOX_REASON_ENUM(id, name) OUTBOX_REASON_##id,
typedef enum OutboxReason
{
	OUTBOX_REASON_NONE,			/* nothing is wrong */
	OUTBOX_REASONS(OUTBOX_REASON_ENUM)
	OUTBOX_REASON_COUNT
} OutboxReason;

/* NULL for NONE. */
extern const char *outbox_reason_name(OutboxReason reason);

/* NONE when there is none of that name. */
extern OutboxReason outbox_reason_by_name(const char *name);

/* Of an error of the database: its SQLSTATE, five characters. */
extern OutboxReason outbox_reason_of_sqlstate(const char *sqlstate);

#endif							/* OUTBOX_REASON_CODES_H */
