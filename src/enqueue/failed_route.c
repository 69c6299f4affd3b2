/*-------------------------------------------------------------------------
 *
 * failed_route.c
 *		Trigger that keeps what outbox_route.failed_route promises.
 *
 * It names a route that is there, and a chain of failed routes has an end.  The
 * first is what a foreign key says; but one from a table to itself makes pg_dump
 * warn of a circle each time, and a dump as INSERTs cannot be restored.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "commands/trigger.h"
#include "enqueue.h"
#include "enqueue_internal.h"
#include "executor/spi.h"
#include "lib/stringinfo.h"
#include "miscadmin.h"
#include "outlet.h"
#include "utils/rel.h"

PG_FUNCTION_INFO_V1(outbox_failed_route_trigger);

/* A longer chain is a circle that was made past this trigger. */
#define MAX_CHAIN	1000

#define FAILED_ROUTE_SQL \
	"SELECT failed_route FROM outbox_internal.outbox_route WHERE name OPERATOR(pg_catalog.=) $1"
#define EXISTS_SQL \
	"SELECT name FROM outbox_internal.outbox_route WHERE name OPERATOR(pg_catalog.=) $1"
#define RELAY_SQL \
	"SELECT relay FROM outbox_internal.outbox_route WHERE name OPERATOR(pg_catalog.=) $1"
#define REFERRER_SQL \
	"SELECT name FROM outbox_internal.outbox_route" \
	" WHERE failed_route OPERATOR(pg_catalog.=) $1 LIMIT 1"
/* The lock of all changes. */
#define LOCK_SQL \
	"SELECT outbox_internal.outbox_lock_route(NULL::pg_catalog.text)"

static char *
column(HeapTuple tuple, Relation rel, const char *name)
{
	TupleDesc	desc = RelationGetDescr(rel);
	int			number = SPI_fnumber(desc, name);

	if (number == SPI_ERROR_NOATTRIBUTE)
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_COLUMN),
				 errmsg("column \"%s\" of relation \"%s\" does not exist",
						name, RelationGetRelationName(rel))));
	return SPI_getvalue(tuple, desc, number);
}

static bool
same(const char *a, const char *b)
{
	return a == NULL || b == NULL ? a == b : strcmp(a, b) == 0;
}

static void
require_route(Relation rel, const char *failed)
{
	if (outbox_look_up(rel, EXISTS_SQL, failed) == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_FOREIGN_KEY_VIOLATION),
				 errmsg("route \"%s\" in failed_route does not exist", failed),
				 errhint("Add it to the table outbox_route first.")));
}

/* A dead letter stays the row that it is, of which the log says nothing more. */
static void
refuse_transient(Relation rel, const char *failed)
{
	const OutboxOutlet *outlet = outbox_outlet_find(outbox_look_up(rel, RELAY_SQL, failed));

	if (outlet != NULL && outlet->transient)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("route \"%s\" in failed_route has relay = '%s'", failed,
						outlet->name),
				 errdetail("A message that is given up is changed in the table, and what reads such a route sees only what is inserted.")));
}

/* Before this change all chains had an end, so a circle goes through this route. */
static void
require_end(Relation rel, const char *name, const char *failed)
{
	StringInfoData path;
	const char *next = failed;
	int			length = 0;

	initStringInfo(&path);
	appendStringInfo(&path, "\"%s\"", name);
	while (next != NULL)
	{
		CHECK_FOR_INTERRUPTS();
		appendStringInfo(&path, " -> \"%s\"", next);
		if (strcmp(next, name) == 0 || ++length > MAX_CHAIN)
			ereport(ERROR,
					(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
					 errmsg("failed_route of route \"%s\" leads back to it", name),
					 errdetail_internal("%s", path.data),
					 errhint("A message that is given up on all of these routes has to stay somewhere: a chain of failed routes must have an end.")));
		next = outbox_look_up(rel, FAILED_ROUTE_SQL, next);
	}
}

static void
refuse_referred(Relation rel, const char *name)
{
	char	   *referrer = outbox_look_up(rel, REFERRER_SQL, name);

	if (referrer != NULL)
		ereport(ERROR,
				(errcode(ERRCODE_FOREIGN_KEY_VIOLATION),
				 errmsg("route \"%s\" is the failed_route of route \"%s\"",
						name, referrer),
				 errhint("Let that one have another failed_route, or none, before you remove or rename this route.")));
}

/*
 * On outbox_route, AFTER ... FOR EACH ROW, that is when the whole statement is done.
 * Two transactions that change chains go one after the other: the second one sees
 * what the first has committed.  A route's lock is taken after that lock (route_lock.c).
 */
Datum
outbox_failed_route_trigger(PG_FUNCTION_ARGS)
{
	TriggerData *trigdata = outbox_fired_after_row(fcinfo,
												   "outbox_failed_route_trigger");
	Relation	rel = trigdata->tg_relation;
	bool		insert = TRIGGER_FIRED_BY_INSERT(trigdata->tg_event);
	bool		delete = TRIGGER_FIRED_BY_DELETE(trigdata->tg_event);
	HeapTuple	old_row = insert ? NULL : trigdata->tg_trigtuple;
	HeapTuple	new_row = insert ? trigdata->tg_trigtuple :
		delete ? NULL : trigdata->tg_newtuple;
	char	   *old_name = insert ? NULL : column(old_row, rel, "name");
	char	   *new_name = delete ? NULL : column(new_row, rel, "name");
	char	   *old_failed = insert ? NULL : column(old_row, rel, "failed_route");
	char	   *new_failed = delete ? NULL : column(new_row, rel, "failed_route");
	bool		goes = old_name != NULL && !same(old_name, new_name);
	bool		leads = new_failed != NULL &&
		(!same(old_failed, new_failed) || !same(old_name, new_name));

	/*
	 * A restore brings rows in any order, of which the original has accepted
	 * all.
	 */
	if ((!goes && !leads) || outbox_in_restore())
		return PointerGetDatum(NULL);
	(void) outbox_look_up(rel, LOCK_SQL, NULL);
	if (leads)
	{
		require_route(rel, new_failed);
		refuse_transient(rel, new_failed);
		require_end(rel, new_name, new_failed);
	}
	if (goes)
		refuse_referred(rel, old_name);
	return PointerGetDatum(NULL);
}
