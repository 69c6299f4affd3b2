/*-------------------------------------------------------------------------
 *
 * encode.h
 *		From a row to what AMQP transports.
 *
 *-------------------------------------------------------------------------
 */
#ifndef OUTBOX_ENCODE_H
#define OUTBOX_ENCODE_H

#include "amqp_compat.h"
#include "amqp_limits.h"
#include "format.h"
#include "message.h"
#include "utils/numeric.h"

/* encode.c: from a message to AMQP properties, headers and body */

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

/*
 * encode_table.c: from jsonb to an AMQP field table; encode.c only
 *
 * The functions that can refuse return NULL, or the reason as a constant.
 * Everything is allocated in the current context.
 */

/* Database encoding to UTF-8, without a copy where possible. */
extern amqp_bytes_t outbox_encode_utf8(const char *text, int len);

/* A string that is UTF-8 already, as all of OutboxMessage's are. */
extern amqp_bytes_t outbox_encode_text(const char *utf8);

extern char *outbox_encode_digits(Numeric number);
extern const char *outbox_encode_number(Numeric number,
										amqp_field_value_t *value);

/* Appends the pairs of the object that the iterator has just entered. */
extern const char *outbox_encode_pairs(JsonbIterator **it,
									   amqp_table_t *table);

/*
 * The value of a header of ours, which replaces one of the user's with that name:
 * consumers take the key for what order is kept by, so nobody may forge it.  There
 * has to be room for one more.
 */
extern amqp_field_value_t *outbox_encode_own_header(amqp_table_t *table,
													const char *name);

/* The same of a string; NULL: no header. */
extern void outbox_encode_own_text(amqp_table_t *table, const char *name,
								   const char *utf8);

/* Bytes that the table takes on the wire. */
extern size_t outbox_encode_table_size(const amqp_table_t *table);

/* encode_format.c: properties and headers of a route's format; encode.c only */

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

#endif							/* OUTBOX_ENCODE_H */
