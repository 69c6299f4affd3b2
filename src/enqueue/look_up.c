/*-------------------------------------------------------------------------
 *
 * look_up.c
 *		What is in a table of ours, whatever the transaction's snapshot is.
 *
 * For triggers that keep what a foreign key would.  As with that, the lock under
 * which it stays true is the caller's.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/xact.h"
#include "act_as_owner.h"
#include "catalog/pg_type.h"
#include "executor/spi.h"
#include "look_up.h"
#include "utils/builtins.h"
#include "utils/snapmgr.h"

char *
outbox_look_up(Relation rel, const char *query, const char *name)
{
	Oid			types[1] = {TEXTOID};
	Datum		values[1] = {(Datum) 0};
	MemoryContext caller = CurrentMemoryContext;
	OutboxActing acting;
	char	   *found = NULL;

	if (name != NULL)
		values[0] = CStringGetTextDatum(name);
	/* What the command itself has written counts: WITH d AS (DELETE ...) INSERT. */
	CommandCounterIncrement();
	SPI_connect();
	outbox_act_begin(&acting, rel->rd_rel->relowner, true);
	PushActiveSnapshot(GetLatestSnapshot());
	if (SPI_execute_with_args(query, 1, types, values, name == NULL ? "n" : NULL,
							  true, 1) != SPI_OK_SELECT)
		elog(ERROR, "could not read %s", RelationGetRelationName(rel));
	if (SPI_processed > 0)
		found = SPI_getvalue(SPI_tuptable->vals[0], SPI_tuptable->tupdesc, 1);
	if (found != NULL)
		found = MemoryContextStrdup(caller, found);
	PopActiveSnapshot();
	outbox_act_end(&acting);
	SPI_finish();
	return found;
}
