/*-------------------------------------------------------------------------
 *
 * store_control.c
 *		The control row: paused, and whose database this is.
 *
 * It is read with every claim (see outbox_control_check() in control.c).
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/xlog.h"
#include "catalog/pg_type.h"
#include "environment.h"
#include "miscadmin.h"
#include "origin.h"
#include "settings.h"
#include "store.h"
#include "store_internal.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/timestamp.h"

#define CONTROL_PAUSED		1
#define CONTROL_SYSTEM		2
#define CONTROL_DATABASE	3
#define CONTROL_ADOPTED_AT	4
#define CONTROL_ORIGINS		5
#define CONTROL_ENVIRONMENT	6
#define CONTROL_TIMELINE	7
#define CONTROL_SQL \
	"SELECT coalesce(paused, true), system_identifier::pg_catalog.int8," \
	" database_oid::pg_catalog.oid, adopted_at::pg_catalog.timestamptz," \
	" coalesce(adopted_origins, '{}')::pg_catalog.int8[]," \
	" coalesce(environment, '')::pg_catalog.text," \
	" coalesce(timeline, 1)::pg_catalog.int8" \
	" FROM %s.outbox_control"

#define SOURCE_SQL \
	"SELECT sourcefile FROM pg_catalog.pg_settings" \
	" WHERE name = 'outbox.environment'"

static Datum
get_column(int column, bool *isnull)
{
	return SPI_getbinval(SPI_tuptable->vals[0], SPI_tuptable->tupdesc, column,
						 isnull);
}

/* In the memory of the transaction. */
static void
load_origins(OutboxControl *control)
{
	bool		isnull;
	Datum	   *elems;
	bool	   *nulls;
	int			n;

	deconstruct_array(DatumGetArrayTypeP(get_column(CONTROL_ORIGINS, &isnull)),
					  INT8OID, sizeof(int64), FLOAT8PASSBYVAL,
					  TYPALIGN_DOUBLE, &elems, &nulls, &n);
	control->origins = palloc(sizeof(int64) * Max(n, 1));
	for (int i = 0; i < n; i++)
		if (!nulls[i])
			control->origins[control->norigins++] = DatumGetInt64(elems[i]);
}

/*
 * A server with the identity that is recorded, which a copy of all of it has as
 * well: the name of its environment, and whether it was set back to a point in
 * time since then, tell more.
 */
static OutboxCopy
which_copy(const OutboxControl *control)
{
	bool		isnull;
	char	   *how;

	if (strcmp(control->environment, outbox_environment) != 0)
		return OUTBOX_COPY_ENVIRONMENT;
	if (outbox_environment_restored(&how) >=
		DatumGetInt64(get_column(CONTROL_TIMELINE, &isnull)))
		return OUTBOX_COPY_RESTORED;
	return OUTBOX_COPY_NONE;
}

/*
 * A database whose recorded identity is not its own was copied from another
 * one, whose relay publishes the same messages (doc/copies.md).
 */
void
outbox_store_load_control(OutboxControl *control)
{
	static OutboxStatement statement;
	bool		system_isnull;
	bool		database_isnull;
	bool		isnull;
	uint64		system_identifier;
	Oid			database;

	outbox_store_execute(outbox_store_plan(&statement,
										   psprintf(CONTROL_SQL,
													outbox_store_schema()),
										   0, NULL),
						 NULL, NULL, SPI_OK_SELECT);
	/* Without its row nobody says whose database this is: rather be silent. */
	memset(control, 0, sizeof(*control));
	control->paused = true;
	control->copy = OUTBOX_COPY_DATABASE;
	if (SPI_processed == 0)
		return;
	control->paused = DatumGetBool(get_column(CONTROL_PAUSED, &isnull));
	system_identifier =
		(uint64) DatumGetInt64(get_column(CONTROL_SYSTEM, &system_isnull));
	database = DatumGetObjectId(get_column(CONTROL_DATABASE, &database_isnull));
	control->environment =
		TextDatumGetCString(get_column(CONTROL_ENVIRONMENT, &isnull));
	if (!system_isnull && !database_isnull &&
		system_identifier == GetSystemIdentifier() && database == MyDatabaseId)
		control->copy = which_copy(control);
	control->adopted_at =
		DatumGetTimestampTz(get_column(CONTROL_ADOPTED_AT, &isnull));
	load_origins(control);
}

char *
outbox_store_environment_source(void)
{
	static OutboxStatement statement;

	outbox_store_execute(outbox_store_plan(&statement, SOURCE_SQL, 0, NULL),
						 NULL, NULL, SPI_OK_SELECT);
	if (SPI_processed == 0)
		return NULL;
	return SPI_getvalue(SPI_tuptable->vals[0], SPI_tuptable->tupdesc, 1);
}

bool
outbox_store_accepts(const OutboxControl *control, int64 origin)
{
	if (origin == outbox_own_origin())
		return true;
	for (int i = 0; i < control->norigins; i++)
		if (control->origins[i] == origin)
			return true;
	return false;
}
