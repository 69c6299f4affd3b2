/*-------------------------------------------------------------------------
 *
 * amqp_compat.h
 *		The one place that knows where librabbitmq keeps its headers.
 *
 * They moved to <rabbitmq-c/...> in 0.12, where the old names warn.  Only the
 * broker_*.c files and encode.c may include this.
 *
 *-------------------------------------------------------------------------
 */
#ifndef OUTBOX_AMQP_COMPAT_H
#define OUTBOX_AMQP_COMPAT_H

#if __has_include(<rabbitmq-c/amqp.h>)
#include <rabbitmq-c/amqp.h>
#include <rabbitmq-c/ssl_socket.h>
#include <rabbitmq-c/tcp_socket.h>
#else
#include <amqp.h>
#include <amqp_ssl_socket.h>
#include <amqp_tcp_socket.h>
#endif

#endif							/* OUTBOX_AMQP_COMPAT_H */
