/*-------------------------------------------------------------------------
 *
 * catalog.h
 *		What the catalogs say of the extension's objects.
 *
 *-------------------------------------------------------------------------
 */
#ifndef OUTBOX_CATALOG_H
#define OUTBOX_CATALOG_H

#include "commands/trigger.h"
#include "utils/rel.h"

/*
 * NULL: statements may run as the owner of "outbox".  Else which object of the extension
 * is in the way, a sentence of an error, palloc'd.
 */
extern char *outbox_unsafe_object(const char **detail, const char **hint);

/* InvalidOid: the relation is gone. */
extern Oid	outbox_owner_of_relation(Oid relid);

/*
 * The index of rel with that name, open and locked, if it is a valid B-tree that
 * begins with these columns (second 0: one) in ascending order; else NULL.  Other
 * tables' indexes of that name are neither found nor locked.
 */
extern Relation outbox_open_index(Relation rel, const char *name,
								  AttrNumber first, AttrNumber second);

/*
 * In a security-restricted operation: an ERROR (0A000) that names the trigger or
 * constraint of rel which such an event defers.
 */
extern void outbox_refuse_deferred(Relation rel, TriggerEvent event);

#endif							/* OUTBOX_CATALOG_H */
