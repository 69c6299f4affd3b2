/*-------------------------------------------------------------------------
 *
 * encode.h
 *		From a message to AMQP properties, headers and body.
 *
 *-------------------------------------------------------------------------
 */
#ifndef OUTBOX_ENCODE_H
#define OUTBOX_ENCODE_H

#include "amqp_compat.h"
#include "amqp_limits.h"
#include "format.h"
#include "message.h"

typedef struct OutboxEncoded
{
	amqp_basic_properties_t properties;
	amqp_bytes_t body;
	size_t		header_size;	/* payload bytes of the content header frame */
} OutboxEncoded;

/*
 * Fills *out, in that format (NULL: plain).  What it allocates lives in scratch (the caller resets that per
 * message); the rest points into the message, which must outlive *out.
 *
 * Returns NULL, or why the message cannot be sent at all (text in scratch or
 * constant).  May ereport(ERROR) out of the server's own functions: characters
 * that UTF-8 does not have, a document that grows over 1 GB, stack depth, out
 * of memory.
 *
 * Converts from the database's encoding with pg_server_to_any(), which outside
 * a transaction works only when client_encoding is UTF8: the worker must have
 * set that once, inside a transaction.
 */
extern const char *outbox_encode(const OutboxMessage *message,
								 const OutboxFormat *format,
								 MemoryContext scratch, OutboxEncoded *out);

/* The same without the body. */
extern const char *outbox_encode_header(const OutboxMessage *message,
										const OutboxFormat *format,
										MemoryContext scratch,
										OutboxEncoded *out);

#endif							/* OUTBOX_ENCODE_H */
