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
	int			running;		/* executions: a trigger may lead here again */
} OutboxKeptPlan;

/*
 * Executes the generic plan of sql, in which the first %s is the quoted name of
 * schema; the rest, and the result, as of SPI_execute_plan().  The server looks after
 * the plan (plancache.c); the text has the name of the schema, so it goes with that.
 */
extern int	outbox_kept_plan_execute(OutboxKeptPlan *kept, Oid schema,
									 const char *sql, int nargs, Oid *types,
									 Datum *values, const char *nulls,
									 bool read_only);

/* The same without parameters, with a receiver of what it returns. */
extern int	outbox_kept_plan_execute_into(OutboxKeptPlan *kept, Oid schema,
										  const char *sql, DestReceiver *dest);

/* The next execution prepares it anew. */
extern void outbox_kept_plan_forget(OutboxKeptPlan *kept);

#endif							/* OUTBOX_KEPT_PLAN_H */
