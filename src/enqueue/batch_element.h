/*-------------------------------------------------------------------------
 *
 * batch_element.h
 *		A message of outbox_enqueue_batch(), from an element of its array.
 *
 *-------------------------------------------------------------------------
 */
#ifndef OUTBOX_BATCH_ELEMENT_H
#define OUTBOX_BATCH_ELEMENT_H

#include "utils/jsonb.h"

/*
 * Sets values and isnull, of OUTBOX_COLUMNS columns, from element number n; an
 * ERROR (22023 and those of the types) that names the element and the key.  *key is
 * the key that is looked at, for who makes the context of an error.
 */
extern void outbox_read_element(const JsonbValue *element, int n,
								Datum *values, bool *isnull,
								const char **key);

/* "an object", "a string" ...: what it is, for people. */
extern const char *outbox_json_kind(const JsonbValue *value);

#endif							/* OUTBOX_BATCH_ELEMENT_H */
