/*-------------------------------------------------------------------------
 *
 * column_default.h
 *		The default of a column, for a row that comes without its value.
 *
 *-------------------------------------------------------------------------
 */
#ifndef OUTBOX_COLUMN_DEFAULT_H
#define OUTBOX_COLUMN_DEFAULT_H

#include "utils/relcache.h"

/* Returns false where it is NULL, or there is none. */
extern bool outbox_column_default(Relation rel, int col, Datum *value);

#endif							/* OUTBOX_COLUMN_DEFAULT_H */
