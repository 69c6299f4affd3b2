/*-------------------------------------------------------------------------
 *
 * encode_table.h
 *		From jsonb to an AMQP field table; encode.c only.
 *
 * The functions that can refuse return NULL, or the reason as a constant.
 * Everything is allocated in the current context.
 *
 *-------------------------------------------------------------------------
 */
#ifndef OUTBOX_ENCODE_TABLE_H
#define OUTBOX_ENCODE_TABLE_H

#include "amqp_compat.h"
#include "encode.h"
#include "utils/numeric.h"

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

#endif							/* OUTBOX_ENCODE_TABLE_H */
