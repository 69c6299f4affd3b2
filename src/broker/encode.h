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

/*
 * encode.c: from a message to AMQP properties, headers and body
 *
 * Encodes in that format (NULL: plain) its properties and headers into *properties,
 * which is as large as they may be and is then as long as they are; and points *body
 * to the body, or body is NULL.  What it allocates lives in scratch (the caller
 * resets that per message); the rest points into the message.
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
								 MemoryContext scratch,
								 amqp_bytes_t *properties, amqp_bytes_t *body);

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

/*
 * Appends the pairs of the object that the iterator has just entered; the table has
 * room for them.
 */
extern const char *outbox_encode_pairs(JsonbIterator **it,
									   amqp_table_t *table);

extern bool outbox_encode_is(const amqp_bytes_t *key, const char *name);

/* The value of that header; NULL: there is none. */
extern amqp_field_value_t *outbox_encode_find(const amqp_table_t *table,
											  const char *name);

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

#endif							/* OUTBOX_ENCODE_H */
