/*-------------------------------------------------------------------------
 *
 * uuid7.h
 *		UUIDs of version 7 (RFC 9562), the ids of messages.
 *
 *-------------------------------------------------------------------------
 */
#ifndef OUTBOX_UUID7_H
#define OUTBOX_UUID7_H

#include "utils/uuid.h"

extern void outbox_make_uuid7(pg_uuid_t *uuid);

#endif							/* OUTBOX_UUID7_H */
