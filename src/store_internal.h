/*-------------------------------------------------------------------------
 *
 * store_internal.h
 *		What the files of the store share; nobody else includes it.
 *
 *-------------------------------------------------------------------------
 */
#ifndef OUTBOX_STORE_INTERNAL_H
#define OUTBOX_STORE_INTERNAL_H

#include "executor/spi.h"

/*
 * A statement of the worker, prepared at first use and kept.  The text has
 * %s where the quoted schema goes, each time.
 */
typedef struct OutboxStatement
{
	SPIPlanPtr	plan;
	struct OutboxStatement *next;	/* in the list of what is prepared */
} OutboxStatement;

/* Quoted schema of the attached extension. */
extern const char *outbox_store_schema(void);

/* Prepares sql (complete) with a generic plan unless it is already. */
extern SPIPlanPtr outbox_store_plan(OutboxStatement *statement,
									const char *sql, int nargs,
									const Oid *types);

/* Executes and checks the result code. */
extern void outbox_store_execute(SPIPlanPtr plan, Datum *values,
								 const char *nulls, int expected);

#endif							/* OUTBOX_STORE_INTERNAL_H */
