/*-------------------------------------------------------------------------
 *
 * relations.h
 *		Tables of the extension by their OIDs.
 *
 *-------------------------------------------------------------------------
 */
#ifndef OUTBOX_RELATIONS_H
#define OUTBOX_RELATIONS_H

#include "storage/lockdefs.h"

/*
 * A relation in the schema that was chosen at CREATE EXTENSION, for functions that
 * are not in it themselves; InvalidOid if there is none of that name.
 */
extern Oid	outbox_relation_oid(const char *name);

/*
 * Locks a relation until the end of the transaction; an ERROR if it is not there then, or,
 * with wait false, if somebody else has it.
 */
extern void outbox_lock_relation(Oid relid, LOCKMODE mode, bool wait);

#endif							/* OUTBOX_RELATIONS_H */
