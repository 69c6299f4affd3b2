/*-------------------------------------------------------------------------
 *
 * encode_json.h
 *		JSON and times as text.
 *
 *-------------------------------------------------------------------------
 */
#ifndef OUTBOX_ENCODE_JSON_H
#define OUTBOX_ENCODE_JSON_H

#include "datatype/timestamp.h"
#include "lib/stringinfo.h"
#include "utils/jsonb.h"

/*
 * Appends what jsonb_out() would say, in the database's encoding.  May
 * ereport(ERROR) when the value is damaged, when the text grows over 1 GB, or out of
 * memory.
 */
extern void outbox_encode_json(StringInfo out, const Jsonb *value);

/* Appends a string of JSON, in whatever encoding of the server the text is. */
extern void outbox_encode_json_string(StringInfo out, const char *text, int len);

/*
 * How long that text is, without making it; somewhere above limit when it is
 * longer.  Raises an ERROR when the value is damaged up to there.  A few bytes of jsonb
 * can hold numbers of 131072 digits each.
 */
extern size_t outbox_json_text_size(const Jsonb *value, size_t limit);

/* Is it the JSON value null? */
extern bool outbox_is_json_null(const Jsonb *value);

/*
 * 2026-11-22T23:59:59.123456Z, allocated in the current context; NULL where RFC 3339
 * has none, which is for infinity and years of other than four digits.
 */
extern char *outbox_rfc3339(TimestampTz time);

#endif							/* OUTBOX_ENCODE_JSON_H */
