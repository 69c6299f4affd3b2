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

#include "catalog/pg_type.h"
#include "origin.h"
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
	" FROM outbox_internal.outbox_control"

#define SOURCE_SQL \
	"SELECT sourcefile FROM pg_catalog.pg_settings" \
	" WHERE name = 'outbox.environment'"

static Datum
get_column(int column, bool *isnull)
{
	return SPI_getbinval(SPI_tuptable->vals[0], SPI_tuptable->tupdesc, column,
						 isnull);
}

static void
load_adopted(OutboxIdentity *recorded)
{
	bool		isnull;
	Datum	   *elems;
	bool	   *nulls;
	int			n;

	deconstruct_array(DatumGetArrayTypeP(get_column(CONTROL_ORIGINS, &isnull)),
					  INT8OID, sizeof(int64), FLOAT8PASSBYVAL,
					  TYPALIGN_DOUBLE, &elems, &nulls, &n);
	recorded->adopted = palloc(sizeof(int64) * Max(n, 1));
	for (int i = 0; i < n; i++)
		if (!nulls[i])
			recorded->adopted[recorded->nadopted++] = DatumGetInt64(elems[i]);
}

static void
load_identity(OutboxIdentity *recorded)
{
	bool		server_isnull;
	bool		database_isnull;
	bool		isnull;
	int64		server =
		DatumGetInt64(get_column(CONTROL_SYSTEM, &server_isnull));
	Oid			database =
		DatumGetObjectId(get_column(CONTROL_DATABASE, &database_isnull));

	if (!server_isnull && !database_isnull)
		recorded->origin = outbox_origin_of((uint64) server, database);
	recorded->environment =
		TextDatumGetCString(get_column(CONTROL_ENVIRONMENT, &isnull));
	recorded->timeline = DatumGetInt64(get_column(CONTROL_TIMELINE, &isnull));
	load_adopted(recorded);
}

void
outbox_store_load_control(OutboxControl *control)
{
	static OutboxStatement statement;
	bool		isnull;

	outbox_store_execute(outbox_store_plan(&statement,
										   CONTROL_SQL,
										   0, NULL),
						 NULL, NULL, SPI_OK_SELECT);
	/* Without its row nobody says whose database this is: rather be silent. */
	memset(control, 0, sizeof(*control));
	control->paused = true;
	if (SPI_processed == 0)
		return;
	control->paused = DatumGetBool(get_column(CONTROL_PAUSED, &isnull));
	control->adopted_at =
		DatumGetTimestampTz(get_column(CONTROL_ADOPTED_AT, &isnull));
	load_identity(&control->recorded);
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
