/*-------------------------------------------------------------------------
 *
 * amqp_tool.h
 *		What consume and raw share: header choice, connecting, dying.
 *
 *-------------------------------------------------------------------------
 */
#ifndef AMQP_TOOL_H
#define AMQP_TOOL_H

#include <inttypes.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* librabbitmq moved its headers in 0.12 */
#if __has_include(<rabbitmq-c/amqp.h>)
#include <rabbitmq-c/amqp.h>
#include <rabbitmq-c/ssl_socket.h>
#include <rabbitmq-c/tcp_socket.h>
#else
#include <amqp.h>
#include <amqp_ssl_socket.h>
#include <amqp_tcp_socket.h>
#endif

static const char *progname;

__attribute__((format(printf, 1, 2), noreturn))
static void
die(const char *format,...)
{
	va_list		args;

	fprintf(stderr, "%s: ", progname);
	va_start(args, format);
	vfprintf(stderr, format, args);
	va_end(args);
	fputc('\n', stderr);
	exit(1);
}

static long
number(const char *name, const char *text, long min)
{
	char	   *end;
	long		value = strtol(text, &end, 10);

	if (*text == '\0' || *end != '\0' || value < min)
		die("--%s: bad number \"%s\"", name, text);
	return value;
}

/* What the broker said, for a person. */
static const char *
reply_text(amqp_rpc_reply_t reply)
{
	static char text[512];

	switch (reply.reply_type)
	{
		case AMQP_RESPONSE_NORMAL:
			return "ok";
		case AMQP_RESPONSE_NONE:
			return "no reply";
		case AMQP_RESPONSE_LIBRARY_EXCEPTION:
			return amqp_error_string2(reply.library_error);
		case AMQP_RESPONSE_SERVER_EXCEPTION:
			if (reply.reply.id == AMQP_CHANNEL_CLOSE_METHOD)
			{
				amqp_channel_close_t *m = reply.reply.decoded;

				snprintf(text, sizeof(text), "channel closed: %d %.*s",
						 m->reply_code, (int) m->reply_text.len,
						 (char *) m->reply_text.bytes);
				return text;
			}
			if (reply.reply.id == AMQP_CONNECTION_CLOSE_METHOD)
			{
				amqp_connection_close_t *m = reply.reply.decoded;

				snprintf(text, sizeof(text), "connection closed: %d %.*s",
						 m->reply_code, (int) m->reply_text.len,
						 (char *) m->reply_text.bytes);
				return text;
			}
	}
	return "unknown reply";
}

/* Where the broker is; defaults are a stock RabbitMQ's. */
struct broker
{
	const char *host;
	int			port;
	const char *vhost;
	const char *user;
	const char *password;
	const char *ca_file;		/* TLS with this authority; NULL: plain TCP */
};

#define BROKER_DEFAULT {"127.0.0.1", 5672, "/", "guest", "guest", NULL}

static amqp_socket_t *
broker_socket(const struct broker *broker, amqp_connection_state_t conn)
{
	amqp_socket_t *sock;

	if (broker->ca_file == NULL)
		return amqp_tcp_socket_new(conn);
	sock = amqp_ssl_socket_new(conn);
	if (sock != NULL && amqp_ssl_socket_set_cacert(sock, broker->ca_file) != 0)
		die("could not use the certificate in %s", broker->ca_file);
	return sock;
}

/*
 * Connects, logs in and opens channel 1.  Returns NULL when that fails, with
 * the reason in *reason.
 */
static amqp_connection_state_t
broker_open(const struct broker *broker, int heartbeat_s, const char **reason)
{
	amqp_connection_state_t conn = amqp_new_connection();
	amqp_socket_t *sock = broker_socket(broker, conn);
	struct timeval timeout = {5, 0};
	struct timeval rpc_timeout = {30, 0};
	amqp_rpc_reply_t reply;
	int			status;

	if (sock == NULL)
		die("out of memory");
	status = amqp_socket_open_noblock(sock, broker->host, broker->port,
									  &timeout);
	if (status != AMQP_STATUS_OK)
	{
		*reason = amqp_error_string2(status);
		amqp_destroy_connection(conn);
		return NULL;
	}
	(void) amqp_set_handshake_timeout(conn, &timeout);
	(void) amqp_set_rpc_timeout(conn, &rpc_timeout);
	reply = amqp_login(conn, broker->vhost, 0, AMQP_DEFAULT_FRAME_SIZE,
					   heartbeat_s, AMQP_SASL_METHOD_PLAIN, broker->user,
					   broker->password);
	if (reply.reply_type == AMQP_RESPONSE_NORMAL)
	{
		amqp_channel_open(conn, 1);
		reply = amqp_get_rpc_reply(conn);
	}
	if (reply.reply_type != AMQP_RESPONSE_NORMAL)
	{
		*reason = reply_text(reply);
		amqp_destroy_connection(conn);
		return NULL;
	}
	return conn;
}

static inline amqp_bytes_t
bytes(const char *text)
{
	return amqp_cstring_bytes(text);
}

#endif							/* AMQP_TOOL_H */
