/*-------------------------------------------------------------------------
 *
 * external_internal.h
 *		Arguments and texts of the functions for external relays.
 *
 *-------------------------------------------------------------------------
 */
#ifndef OUTBOX_EXTERNAL_INTERNAL_H
#define OUTBOX_EXTERNAL_INTERNAL_H

#include "fmgr.h"
#include "utils/uuid.h"

/* external.c: the argument ids of functions that are about some messages or about all */

typedef struct OutboxIds
{
	bool		all;			/* the argument was left out */
	int			n;
	pg_uuid_t  *ids;			/* sorted */
} OutboxIds;

/* Reads that argument of a call; NULL and arrays with NULL are errors (22004). */
extern void outbox_ids_read(OutboxIds *to, FunctionCallInfo fcinfo, int argument);

extern bool outbox_ids_have(const OutboxIds *ids, const pg_uuid_t *id);

/* A text cut to what is shown of errors and names, and made printable. */
extern Datum outbox_printable_text(Datum value);

/* Text of the database as UTF-8, with '?' for all that is not ASCII if some of it has no form in that. */
extern char *outbox_shown_utf8(const char *text);

#endif							/* OUTBOX_EXTERNAL_INTERNAL_H */
