/*-------------------------------------------------------------------------
 *
 * kept_plan.h
 *		Statements that a session runs for many messages, prepared once.
 *
 *-------------------------------------------------------------------------
 */
#ifndef OUTBOX_KEPT_PLAN_H
#define OUTBOX_KEPT_PLAN_H

#include "executor/spi.h"

/* One for each statement, static and zero at first. */
typedef struct OutboxKeptPlan
{
	SPIPlanPtr	plan;			/* NULL: nothing is kept */
	char	   *schema;			/* that its text names */
} OutboxKeptPlan;

/*
 * The generic plan of sql, in which the first %s is the quoted name of schema.
 * Within SPI.  The server looks after the plan (plancache.c); the text has the
 * name of the schema, so it goes with that.
 */
extern SPIPlanPtr outbox_kept_plan(OutboxKeptPlan *kept, Oid schema,
								   const char *sql, int nargs, Oid *types);

/* The next call prepares it anew. */
extern void outbox_kept_plan_forget(OutboxKeptPlan *kept);

#endif							/* OUTBOX_KEPT_PLAN_H */
