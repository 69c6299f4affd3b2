/*-------------------------------------------------------------------------
 *
 * insert.h
 *		The row of outbox_enqueue().
 *
 *-------------------------------------------------------------------------
 */
#ifndef OUTBOX_INSERT_H
#define OUTBOX_INSERT_H

#include "utils/relcache.h"

/*
 * Inserts a message into the table outbox, open as rel, as its owner.  seq,
 * created_at, attempts, status and origin are left to their defaults.  Returns
 * false when a trigger has left the row out.
 */
extern bool outbox_insert_row(Relation rel, const Datum *values,
							  const bool *isnull);

#endif							/* OUTBOX_INSERT_H */
