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

/* NULL: it is so.  Else what is not, a sentence of an error, palloc'd. */
extern char *outbox_owners_differ(void);

/* InvalidOid: the relation is gone. */
extern Oid	outbox_owner_of_relation(Oid relid);

#define OUTBOX_OWNERS_DETAIL \
	"What the owner of a table adds to it (triggers, checks, policies) would run with the rights of another role."
#define OUTBOX_OWNERS_HINT \
	"Give all objects of the extension one owner, by ALTER TABLE ... OWNER TO, ALTER FUNCTION ... OWNER TO or REASSIGN OWNED."

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
