/*-------------------------------------------------------------------------
 *
 * own_relations.h
 *		The extension's relations that C code opens, by their OIDs.
 *
 *-------------------------------------------------------------------------
 */
#ifndef OUTBOX_OWN_RELATIONS_H
#define OUTBOX_OWN_RELATIONS_H

typedef enum OutboxRelation
{
	OUTBOX_REL_OUTBOX,
	OUTBOX_REL_ROUTE,
	OUTBOX_REL_CONTROL,
	OUTBOX_REL_ARCHIVE,
	OUTBOX_RELAY_RELATIONS,		/* those before are the relay's */
	OUTBOX_REL_JOB = OUTBOX_RELAY_RELATIONS,
	OUTBOX_REL_KEY_NUMBER,
	OUTBOX_REL_LEASE,			/* in outbox_internal */
	OUTBOX_REL_SEQ,				/* sequence outbox_seq_seq */
	OUTBOX_RELATIONS
} OutboxRelation;

/* An ERROR (42P01): it was renamed or moved. */
extern Oid	outbox_relation(OutboxRelation which);

/* The same; InvalidOid instead of the error. */
extern Oid	outbox_find_relation(OutboxRelation which);

/* That error. */
extern void outbox_fail_relation(OutboxRelation which);

/* That was chosen at CREATE EXTENSION; InvalidOid: the database does not have the extension. */
extern Oid	outbox_extension_schema(void);

#endif							/* OUTBOX_OWN_RELATIONS_H */
