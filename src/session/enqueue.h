/*-------------------------------------------------------------------------
 *
 * enqueue.h
 *		How functions store the messages that they make.
 *
 *-------------------------------------------------------------------------
 */
#ifndef OUTBOX_ENQUEUE_H
#define OUTBOX_ENQUEUE_H

#include "utils/relcache.h"

/*
 * The table "outbox" of the extension in that schema, with the lock of an INSERT;
 * an ERROR (42P01) when there is none, (25006) when nothing may be written.
 */
extern Relation outbox_open_table(Oid schema);

/*
 * Stores a message as outbox_enqueue() does: for role, who must be allowed to use
 * its route (42501).  values and isnull are those of the columns (columns.h) that an
 * application sets; where the id is NULL one is made, and put there.  Returns false
 * when a trigger has left the row out.
 */
extern bool outbox_enqueue_row(Relation rel, Oid role, Datum *values,
							   bool *isnull);

#endif							/* OUTBOX_ENQUEUE_H */
