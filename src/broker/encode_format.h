/*-------------------------------------------------------------------------
 *
 * encode_format.h
 *		Properties and headers of a route's format; encode.c only.
 *
 *-------------------------------------------------------------------------
 */
#ifndef OUTBOX_ENCODE_FORMAT_H
#define OUTBOX_ENCODE_FORMAT_H

#include "amqp_compat.h"
#include "format.h"
#include "message.h"

/*
 * Puts what the format says into properties that are complete without one, with room
 * for OUTBOX_FORMAT_HEADERS more headers; content_type: the user has set that.  Fills
 * *formatted, from which the body is made.  Returns NULL, or why the message cannot be
 * sent in it.
 */
extern const char *outbox_encode_format(const OutboxMessage *message,
										const OutboxFormat *format,
										bool content_type,
										amqp_basic_properties_t *p,
										OutboxFormatted *formatted);

#endif							/* OUTBOX_ENCODE_FORMAT_H */
