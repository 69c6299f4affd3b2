/*-------------------------------------------------------------------------
 *
 * amqp_limits.h
 *		What a message of AMQP 0-9-1 can have, as enqueue checks it and the link
 *		sends it.
 *
 *-------------------------------------------------------------------------
 */
#ifndef OUTBOX_AMQP_LIMITS_H
#define OUTBOX_AMQP_LIMITS_H

/* Short strings: what fits behind a length of one byte. */
#define OUTBOX_SHORT_STRING_MAX 255

/* The frame size that we offer; RabbitMQ's own default.  It may lower it. */
#define OUTBOX_FRAME_MAX		131072
#define OUTBOX_FRAME_OVERHEAD	8	/* frame header and end octet */

/* Class, weight, body size and property flags, in front of the properties. */
#define OUTBOX_CONTENT_HEADER	(2 + 2 + 8 + 2)

/* Properties: one byte; and the digits of 2^32 - 1, RabbitMQ's timer. */
#define OUTBOX_PRIORITY_MAX		255
#define OUTBOX_EXPIRATION_DIGITS 10

/*
 * The properties that users may set and that are short strings: the key in the
 * column, which is librabbitmq's name of the field, and its name of the flag.
 */
#define OUTBOX_STRING_PROPERTIES(X) \
	X(content_type, CONTENT_TYPE) \
	X(content_encoding, CONTENT_ENCODING) \
	X(correlation_id, CORRELATION_ID) \
	X(reply_to, REPLY_TO) \
	X(expiration, EXPIRATION) \
	X(type, TYPE) \
	X(app_id, APP_ID)

#endif							/* OUTBOX_AMQP_LIMITS_H */
