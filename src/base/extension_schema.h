/*-------------------------------------------------------------------------
 *
 * extension_schema.h
 *		The schema that was chosen at CREATE EXTENSION.
 *
 *-------------------------------------------------------------------------
 */
#ifndef OUTBOX_EXTENSION_SCHEMA_H
#define OUTBOX_EXTENSION_SCHEMA_H

/* InvalidOid: the database does not have the extension. */
extern Oid	outbox_extension_schema(void);

#endif							/* OUTBOX_EXTENSION_SCHEMA_H */
