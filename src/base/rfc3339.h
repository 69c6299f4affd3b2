/*-------------------------------------------------------------------------
 *
 * rfc3339.h
 *		Time as text.
 *
 *-------------------------------------------------------------------------
 */
#ifndef OUTBOX_RFC3339_H
#define OUTBOX_RFC3339_H

#include "datatype/timestamp.h"

/*
 * 2026-11-22T23:59:59.123456Z, allocated in the current context; NULL where RFC 3339
 * has none, which is for infinity and years of other than four digits.
 */
extern char *outbox_rfc3339(TimestampTz time);

#endif							/* OUTBOX_RFC3339_H */
