/*-------------------------------------------------------------------------
 *
 * owners.h
 *		One owner for all that belongs to the extension.
 *
 *-------------------------------------------------------------------------
 */
#ifndef OUTBOX_OWNERS_H
#define OUTBOX_OWNERS_H

/* NULL: it is so.  Else what is not, a sentence of an error, palloc'd. */
extern char *outbox_owners_differ(void);

/* InvalidOid: the relation is gone. */
extern Oid	outbox_owner_of_relation(Oid relid);

#define OUTBOX_OWNERS_DETAIL \
	"What the owner of a table adds to it (triggers, checks, policies) would run with the rights of another role."
#define OUTBOX_OWNERS_HINT \
	"Give all objects of the extension one owner, by ALTER TABLE ... OWNER TO, ALTER FUNCTION ... OWNER TO or REASSIGN OWNED."

#endif							/* OUTBOX_OWNERS_H */
