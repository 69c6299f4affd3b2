/*-------------------------------------------------------------------------
 *
 * look_up.h
 *		What is in a table of ours, whatever the transaction's snapshot is.
 *
 *-------------------------------------------------------------------------
 */
#ifndef OUTBOX_LOOK_UP_H
#define OUTBOX_LOOK_UP_H

#include "utils/rel.h"

/*
 * Runs, as the owner of rel, a query with %s for the schema of rel and $1 for name,
 * with all that is committed and all that this transaction has done.  Returns the
 * first column of its first row in the caller's context; NULL if there is no row, or
 * it is null.
 */
extern char *outbox_look_up(Relation rel, const char *query, const char *name);

#endif							/* OUTBOX_LOOK_UP_H */
