/*-------------------------------------------------------------------------
 *
 * insert.h
 *		The row of outbox_enqueue().
 *
 *-------------------------------------------------------------------------
 */
#ifndef OUTBOX_INSERT_H
#define OUTBOX_INSERT_H

#include "columns.h"
#include "kept_plan.h"
#include "utils/relcache.h"

/* Does the INSERT of a message name the column?  dated: it has a created_at. */
static inline bool
outbox_is_inserted(int col, bool dated)
{
	OutboxSetBy set_by = outbox_columns[col - 1].set_by;

	return set_by <= OUTBOX_SET_BY_APPLICATION ||
		(dated && set_by == OUTBOX_SET_BY_INSERT);
}

/*
 * Inserts a message into the table outbox, open as rel, as its owner.  seq,
 * attempts, status and origin are left to their defaults, and created_at if it is NULL.  Returns
 * false when a trigger has left the row out.
 */
extern bool outbox_insert_row(Relation rel, const Datum *values,
							  const bool *isnull);

/*
 * The INSERT of the plan has ended with result: a rule has made something else of
 * it.  When that is nothing, the server takes the plan for one that no table
 * concerns, and would keep it for ever: it is forgotten.  Does not return.
 */
extern void outbox_fail_rewritten(OutboxKeptPlan *plan, Relation rel, int result);

#endif							/* OUTBOX_INSERT_H */
