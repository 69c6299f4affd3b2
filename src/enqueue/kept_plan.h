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
	int			running;		/* executions: a trigger may lead here again */
} OutboxKeptPlan;

/*
 * Executes the generic plan of sql, which is read only while there is no plan; the
 * rest, and the result, as of SPI_execute_plan().
 * The server looks after the plan (plancache.c), which it may make again from the
 * text: so that names objects of pg_catalog and outbox_internal only.
 */
extern int	outbox_kept_plan_execute(OutboxKeptPlan *kept, const char *sql,
									 int nargs, Oid *types, Datum *values,
									 const char *nulls, bool read_only);

/* The same without parameters, with a receiver of what it returns. */
extern int	outbox_kept_plan_execute_into(OutboxKeptPlan *kept, const char *sql,
										  DestReceiver *dest);

/* The next execution prepares it again. */
extern void outbox_kept_plan_forget(OutboxKeptPlan *kept);

#endif							/* OUTBOX_KEPT_PLAN_H */
