/*-------------------------------------------------------------------------
 *
 * encode_format.h
 *		Properties, headers and body of a format other than plain; encode.c only.
 *
 *-------------------------------------------------------------------------
 */
#ifndef OUTBOX_ENCODE_FORMAT_H
#define OUTBOX_ENCODE_FORMAT_H

#include "amqp_compat.h"
#include "format.h"
#include "message.h"

/*
 * Puts what the format says into properties that are complete for plain, with room
 * for OUTBOX_FORMAT_HEADERS more headers; content_type: the user has set that.  Fills *formatted, from which the envelope
 * is made.  Returns NULL, or why the message cannot be sent in it.
 */
extern const char *outbox_encode_format(const OutboxMessage *message,
										const OutboxFormat *format,
										bool content_type,
										amqp_basic_properties_t *p,
										OutboxFormatted *formatted);

/* Puts around the data what the format says. */
extern void outbox_encode_envelope(const OutboxFormatted *formatted,
								   amqp_bytes_t *body);

#endif							/* OUTBOX_ENCODE_FORMAT_H */
