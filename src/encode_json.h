/*-------------------------------------------------------------------------
 *
 * encode_json.h
 *		Text of a jsonb value.
 *
 *-------------------------------------------------------------------------
 */
#ifndef OUTBOX_ENCODE_JSON_H
#define OUTBOX_ENCODE_JSON_H

#include "lib/stringinfo.h"
#include "utils/jsonb.h"

/*
 * Appends what jsonb_out() would say, in the database's encoding.  May
 * ereport(ERROR) when that grows over 1 GB, or out of memory.
 */
extern void outbox_encode_json(StringInfo out, const Jsonb *value);

#endif							/* OUTBOX_ENCODE_JSON_H */
