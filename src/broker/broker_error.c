/*-------------------------------------------------------------------------
 *
 * broker_error.c
 *		Everything that can go wrong with the link, as one readable reason.
 *
 * What the broker says is untrusted: it is made printable and short before it
 * goes into a log, a view or a table.  It has been told our password, so that is
 * looked for in its words; we have none to say ourselves.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <stdarg.h>

#include "mb/pg_wchar.h"

#include "broker_internal.h"
#include "printable.h"
#include "watchdog.h"

#define NOT_FOUND_VHOST 530		/* NOT_ALLOWED; RabbitMQ uses it for vhosts */

/* A shorter password would be found in ordinary words, and told by the gaps. */
#define SECRET_LEAST	4

/* The broker speaks UTF-8. */
void
outbox_link_printable(char *dst, size_t size, const void *src, size_t len)
{
	outbox_copy_printable(dst, size, src, len, PG_UTF8, "");
}

/*
 * What of the target must not be repeated by the broker.  A password that is the
 * user's name is no secret, and the name is what its owner looks for.
 */
static const char *
secret_of(const OutboxLinkTarget *target)
{
	if (target->password == NULL || strlen(target->password) < SECRET_LEAST ||
		strcmp(target->password, target->user) == 0)
		return "";
	return target->password;
}

/* The broker's words as they are shown: printable, and without our password. */
void
outbox_link_words(const OutboxLink *link, char *dst, size_t size,
				  amqp_bytes_t src)
{
	outbox_copy_printable(dst, size, src.bytes, src.len, PG_UTF8,
						  secret_of(&link->target));
}

static void
set_error(OutboxLink *link, OutboxLinkErrorKind kind, OutboxReason reason,
		  const char *text)
{
	link->error.kind = kind;
	link->error.reason = reason;
	link->error.code = 0;
	link->error.destination = false;
	link->error.unreachable = false;
	link->error.message = false;
	link->error.permanent = false;
	link->error.name = false;
	link->error.declaration = false;
	outbox_link_printable(link->error.text, sizeof(link->error.text),
						  text, strlen(text));
}

/*
 * Notes the reason and ends the link.  The text is complete before anything is
 * freed, because its arguments may point into the library's memory.
 */
OutboxLinkStatus
outbox_link_fail(OutboxLink *link, OutboxReason reason, const char *fmt,...)
{
	char		text[sizeof(link->error.text)];
	va_list		args;

	va_start(args, fmt);
	vsnprintf(text, sizeof(text), fmt, args);
	va_end(args);

	set_error(link, OUTBOX_LINK_ERR_CONNECTION, reason, text);
	outbox_link_drop(link);
	if (link->state != OUTBOX_LINK_CLOSED)
		outbox_link_set_state(link, OUTBOX_LINK_CLOSED);
	return OUTBOX_LINK_LOST;
}

/* Notes why one message or exchange was refused; the link lives on. */
OutboxLinkStatus
outbox_link_refuse(OutboxLink *link, const char *reason, bool permanent)
{
	set_error(link, OUTBOX_LINK_ERR_NONE, OUTBOX_REASON_NONE, reason);
	link->error.permanent = permanent;
	return OUTBOX_LINK_REFUSED;
}

/* What a status of the library means, while connecting and later, and its text. */
typedef struct StatusMeaning
{
	int			status;
	OutboxReason connecting;
	OutboxReason open;
	const char *text;			/* NULL: the library's */
} StatusMeaning;

static const char CONNECTION_RESET[] = "the connection was reset";
static const char NO_AMQP[] = "the server does not speak AMQP 0-9-1 properly";

static const StatusMeaning meanings[] = {
	{AMQP_STATUS_TIMEOUT, OUTBOX_REASON_LOGIN_TIMEOUT, OUTBOX_REASON_STALLED,
	"timed out"},
	{AMQP_STATUS_HEARTBEAT_TIMEOUT, OUTBOX_REASON_HEARTBEATS,
		OUTBOX_REASON_HEARTBEATS, "the broker sends no heartbeats any more"},
	{AMQP_STATUS_CONNECTION_CLOSED, OUTBOX_REASON_LOGIN_CLOSED,
		OUTBOX_REASON_RESET, "the broker closed the connection unexpectedly"},
	{AMQP_STATUS_SOCKET_ERROR, OUTBOX_REASON_LOGIN_CLOSED, OUTBOX_REASON_RESET,
	CONNECTION_RESET},
	{AMQP_STATUS_SOCKET_CLOSED, OUTBOX_REASON_LOGIN_CLOSED, OUTBOX_REASON_RESET,
	CONNECTION_RESET},
	{AMQP_STATUS_SSL_ERROR, OUTBOX_REASON_LOGIN_CLOSED, OUTBOX_REASON_RESET,
	CONNECTION_RESET},
	{AMQP_STATUS_BAD_AMQP_DATA, OUTBOX_REASON_NOT_RABBITMQ,
	OUTBOX_REASON_PROTOCOL, NO_AMQP},
	{AMQP_STATUS_WRONG_METHOD, OUTBOX_REASON_NOT_RABBITMQ,
	OUTBOX_REASON_PROTOCOL, NO_AMQP},
	{AMQP_STATUS_UNKNOWN_CLASS, OUTBOX_REASON_NOT_RABBITMQ,
	OUTBOX_REASON_PROTOCOL, NO_AMQP},
	{AMQP_STATUS_UNKNOWN_METHOD, OUTBOX_REASON_NOT_RABBITMQ,
	OUTBOX_REASON_PROTOCOL, NO_AMQP},
	{AMQP_STATUS_INCOMPATIBLE_AMQP_VERSION, OUTBOX_REASON_NOT_RABBITMQ,
	OUTBOX_REASON_PROTOCOL, NULL},
	{AMQP_STATUS_BROKER_UNSUPPORTED_SASL_METHOD, OUTBOX_REASON_MECHANISM_MISSING,
		OUTBOX_REASON_MECHANISM_MISSING,
	"the broker does not offer the mechanism of outbox.auth_mechanism"},
	{AMQP_STATUS_NO_MEMORY, OUTBOX_REASON_NO_RESOURCES,
	OUTBOX_REASON_NO_RESOURCES, NULL},
	/* the last: any other */
	{0, OUTBOX_REASON_BROKER_OTHER, OUTBOX_REASON_BROKER_OTHER, NULL}
};

/* It is given up before it takes the server's memory. */
OutboxLinkStatus
outbox_link_fail_flood(OutboxLink *link, const char *doing)
{
	return outbox_link_fail(link, OUTBOX_REASON_PROTOCOL,
							"%s with \"%s:%d\": the broker sends without end what has no place here",
							doing, link->target.host, link->target.port);
}

/*
 * A library call failed with status, or the watchdog ended it (status is then
 * of no interest).  doing says what failed, for instance "handshake".
 */
OutboxLinkStatus
outbox_link_fail_library(OutboxLink *link, const char *doing, int status)
{
	bool		ended = outbox_link_unguard(link);
	bool		connecting = link->state == OUTBOX_LINK_CONNECTING;
	const StatusMeaning *meaning = meanings;
	OutboxReason reason;
	const char *text;
	const char *refusal_text;
	OutboxReason refusal;

	if (ended && outbox_watchdog_stopping())
		return outbox_link_fail(link, OUTBOX_REASON_NONE,
								"%s with \"%s:%d\": interrupted because the server wants the worker to stop",
								doing, link->target.host, link->target.port);
	if (outbox_watchdog_flooded())
		return outbox_link_fail_flood(link, doing);
	if (ended)
		status = AMQP_STATUS_TIMEOUT;
	while (meaning->status != 0 && meaning->status != status)
		meaning++;
	reason = connecting ? meaning->connecting : meaning->open;
	text = meaning->text != NULL ? meaning->text : amqp_error_string2(status);
	refusal = outbox_link_tls_refusal(link, reason == OUTBOX_REASON_LOGIN_CLOSED,
									  &refusal_text);
	/* TLS 1.3 refuses our certificate only when the handshake is over for us. */
	if (connecting && refusal != OUTBOX_REASON_NONE)
	{
		reason = refusal;
		text = refusal_text;
	}
	return outbox_link_fail(link, reason, "%s with \"%s:%d\": %s", doing,
							link->target.host, link->target.port, text);
}

/* Answers a close of the broker, so that it does not log us as impolite. */
static void
send_close_ok(OutboxLink *link, amqp_channel_t channel)
{
	amqp_channel_close_ok_t close_ok = {0};

	outbox_link_guard(link, OUTBOX_SOCKET_STOP_MS);
	(void) amqp_send_method(link->conn, channel,
							channel == 0 ? AMQP_CONNECTION_CLOSE_OK_METHOD :
							AMQP_CHANNEL_CLOSE_OK_METHOD, &close_ok);
	(void) outbox_link_unguard(link);
}

/*
 * Is it the exchange that a channel error is about, and not one message?  The plugin
 * of its type may be missing since it was declared, which is a 406.  Both
 * the exchange's permissions and those for topics, which look at the routing
 * key, are refused with 403.  Only the words differ: "access to topic 'KEY' in
 * exchange 'X' ..." of the latter, since RabbitMQ 4 with "write" in front.  The
 * key comes after them, so that it cannot pretend to be anything.
 */
static bool
concerns_destination(int code, const char *text)
{
	static const char topic[] = "access to topic '";
	static const char no_type[] = "Cannot route message through ";
	const char *access;

	if (code == AMQP_NOT_FOUND ||
		(code == AMQP_PRECONDITION_FAILED && strstr(text, no_type) != NULL))
		return true;
	if (code != AMQP_ACCESS_REFUSED)
		return false;
	access = strstr(text, "access to ");
	return access == NULL || strncmp(access, topic, strlen(topic)) != 0;
}

/*
 * May an open connection have been closed because of what was published on it?
 * What an administrator or a policy does (320, 403, 530 and the like) is not
 * about a message. 541 may as well be the broker's own error: the message that
 * counts as poison was alone in flight, and gets other attempts.
 */
static bool
concerns_message(int code)
{
	switch (code)
	{
		case AMQP_CONTENT_TOO_LARGE:
		case AMQP_PRECONDITION_FAILED:
		case AMQP_FRAME_ERROR:
		case AMQP_SYNTAX_ERROR:
		case AMQP_COMMAND_INVALID:
		case AMQP_CHANNEL_ERROR:
		case AMQP_UNEXPECTED_FRAME:
		case AMQP_NOT_IMPLEMENTED:
		case AMQP_INTERNAL_ERROR:
			return true;
		default:
			return false;
	}
}

/*
 * Is the message larger than the broker takes?  RabbitMQ says "message size N is
 * larger than configured max size M", in other versions without "configured".
 */
static bool
is_too_large(int code, const char *text)
{
	return code == AMQP_CONTENT_TOO_LARGE ||
		(code == AMQP_PRECONDITION_FAILED &&
		 strstr(text, "message size ") != NULL);
}

/* The broker refused the login; text is what is shown of its words. */
static OutboxLinkStatus
fail_login(OutboxLink *link, const char *doing, int code, const char *words,
		   const char *text)
{
	OutboxReason reason = outbox_reason_of_login(code, words);

	if (reason == OUTBOX_REASON_LOGIN_REFUSED)
		(void) outbox_link_fail(link, reason,
								"login was refused by the broker: %s", text);
	else if (code == NOT_FOUND_VHOST || code == AMQP_INVALID_PATH)
		(void) outbox_link_fail(link, reason,
								"could not open virtual host \"%s\": %s",
								link->target.vhost, text);
	else
		(void) outbox_link_fail(link, reason, "%s was refused by the broker: %s",
								doing, text);
	link->error.code = code;
	return OUTBOX_LINK_LOST;
}

/*
 * The broker sent connection.close, or channel.close on the publishing
 * channel.
 */
OutboxLinkStatus
outbox_link_fail_close(OutboxLink *link, const char *doing,
					   const amqp_method_t *method)
{
	bool		whole = method->id == AMQP_CONNECTION_CLOSE_METHOD;
	bool		name = false;
	bool		declaration = false;
	amqp_bytes_t said;
	char		words[256];		/* to be understood, whatever the password is */
	char		text[256];		/* to be shown */
	int			code;

	if (whole)
	{
		const amqp_connection_close_t *close = method->decoded;

		code = close->reply_code;
		said = close->reply_text;
		name = outbox_link_name_closed(link, code, close->class_id);
		declaration = outbox_link_declare_closed(link, code, close->class_id);
	}
	else
	{
		const amqp_channel_close_t *close = method->decoded;

		code = close->reply_code;
		said = close->reply_text;
	}

	outbox_link_printable(words, sizeof(words), said.bytes, said.len);
	outbox_link_words(link, text, sizeof(text), said);

	(void) outbox_link_unguard(link);
	send_close_ok(link, whole ? 0 : OUTBOX_CHANNEL_PUBLISH);
	if (whole && link->state == OUTBOX_LINK_CONNECTING)
		return fail_login(link, doing, code, words, text);
	if (!whole)
	{
		link->rest.len = 0;		/* nobody wants it */
		outbox_link_close(link, true);
	}
	(void) outbox_link_fail(link, OUTBOX_REASON_CLOSED,
							"the broker closed the %s: %s",
							whole ? "connection" : "channel", text);
	if (!whole)
		link->error.kind = OUTBOX_LINK_ERR_CHANNEL;
	link->error.code = code;
	link->error.destination = !whole && concerns_destination(code, words);
	link->error.name = name;
	link->error.declaration = declaration;
	link->error.message = !whole ||
		(!name && !declaration && concerns_message(code));
	link->error.permanent = is_too_large(code, words);
	if (link->error.message)
		link->error.reason = OUTBOX_REASON_NONE;
	return OUTBOX_LINK_LOST;
}
