/*-------------------------------------------------------------------------
 *
 * relations.h
 *		Tables of the extension by their OIDs.
 *
 *-------------------------------------------------------------------------
 */
#ifndef OUTBOX_RELATIONS_H
#define OUTBOX_RELATIONS_H

/*
 * A relation in the schema that was chosen at CREATE EXTENSION, for functions that
 * are not in it themselves; InvalidOid if there is none of that name.
 */
extern Oid	outbox_relation_oid(const char *name);

#endif							/* OUTBOX_RELATIONS_H */
