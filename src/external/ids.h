/*-------------------------------------------------------------------------
 *
 * ids.h
 *		The argument ids of functions that are about some messages or about all.
 *
 *-------------------------------------------------------------------------
 */
#ifndef OUTBOX_IDS_H
#define OUTBOX_IDS_H

#include "fmgr.h"
#include "utils/uuid.h"

typedef struct OutboxIds
{
	bool		all;			/* the argument was left out */
	int			n;
	pg_uuid_t  *ids;			/* sorted */
} OutboxIds;

/* Reads that argument of a call; NULL and arrays with NULL are errors (22004). */
extern void outbox_ids_read(OutboxIds *to, FunctionCallInfo fcinfo, int argument);

extern bool outbox_ids_have(const OutboxIds *ids, const pg_uuid_t *id);

#endif							/* OUTBOX_IDS_H */
