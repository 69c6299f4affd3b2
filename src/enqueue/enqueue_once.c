/*-------------------------------------------------------------------------
 *
 * enqueue_once.c
 *		outbox_enqueue_once(): one message for each key within a window.
 *
 * The keys are rows of the table outbox_once, whose primary key lets one of two sessions
 * wait for the other; a transaction that rolls back takes its key with it.  A row that
 * is older than the window counts as absent: the next message takes it over, if the
 * relay has not removed it before (outbox_once_maintain()).  There are no partitions by
 * day, since the uniqueness would have to span them.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/table.h"
#include "access/xact.h"
#include "catalog/pg_type.h"
#include "compat.h"
#include "enqueue_internal.h"
#include "executor/spi.h"
#include "miscadmin.h"
#include "settings.h"
#include "utils/snapmgr.h"
#include "utils/timestamp.h"

PG_FUNCTION_INFO_V1(outbox_enqueue_once);

#define MAX_KEY		255			/* bytes */
/* To find, or take, a key that others have and give back. */
#define MAX_TURNS	1000

/* Parameters of the statements, of which each uses the first so many. */
enum
{
	ROUTE,
	KEY,
	EXPIRED,					/* rows that are not newer do not count */
	NOW,
	ID,
	PARAMS
};

#define FIND_SQL \
	"SELECT o.id FROM outbox_internal.outbox_once o WHERE o.route OPERATOR(pg_catalog.=) $1" \
	" AND o.key OPERATOR(pg_catalog.=) $2 AND o.at OPERATOR(pg_catalog.>) $3" \
	" AND o.id IS NOT NULL"
#define TAKE_SQL \
	"INSERT INTO outbox_internal.outbox_once AS o (route, key, id, at) VALUES ($1, $2, $5, $4)" \
	" ON CONFLICT (route, key) DO UPDATE SET id = excluded.id, at = excluded.at" \
	" WHERE o.at OPERATOR(pg_catalog.<=) $3 OR o.id IS NULL"
#define GIVE_BACK_SQL \
	"DELETE FROM outbox_internal.outbox_once o WHERE o.route OPERATOR(pg_catalog.=) $1" \
	" AND o.key OPERATOR(pg_catalog.=) $2"

/* Runs one of them as the owner; are there rows? */
static bool
run(OutboxKeptPlan *kept, const char *sql, int nparams, Datum *params, int expected)
{
	static Oid	types[PARAMS] = {TEXTOID, TEXTOID, TIMESTAMPTZOID, TIMESTAMPTZOID, UUIDOID};
	int			result = outbox_kept_plan_execute(kept, sql, nparams, types, params,
												  NULL, expected == SPI_OK_SELECT);

	if (result != expected)
		elog(ERROR, "could not use outbox_once: %s",
			 SPI_result_code_string(result));
	return SPI_processed > 0;
}

/*
 * With a new snapshot: under REPEATABLE READ, too, a key that has committed since
 * the transaction began counts.
 */
static bool
find(Datum *params, pg_uuid_t *id)
{
	static OutboxKeptPlan kept;
	bool		isnull;
	bool		found;

	PushActiveSnapshot(GetLatestSnapshot());
	found = run(&kept, FIND_SQL, EXPIRED + 1, params, SPI_OK_SELECT);
	PopActiveSnapshot();
	if (found)
		*id = *DatumGetUUIDP(SPI_getbinval(SPI_tuptable->vals[0],
										   SPI_tuptable->tupdesc, 1, &isnull));
	return found;
}

/*
 * Returns true when the key is that of the message *id now, which is params[ID], too;
 * else *id is set to the message that has it.
 */
static bool
reserve(Relation rel, Datum *params, pg_uuid_t *id)
{
	static OutboxKeptPlan kept;
	OutboxActing acting;
	bool		taken = false;
	int			turns = 0;

	/* What the statement itself has enqueued counts. */
	CommandCounterIncrement();
	SPI_connect();
	outbox_act_begin(&acting, rel->rd_rel->relowner, true);
	while (!find(params, id))
	{
		/* Waits for a transaction that has it; false: that has committed. */
		taken = run(&kept, TAKE_SQL, PARAMS, params, SPI_OK_INSERT);
		if (taken)
			break;
		/* Another transaction's was there, and is gone: that ends. */
		if (++turns == MAX_TURNS)
			ereport(ERROR,
					(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
					 errmsg("dedupe_key could not be stored"),
					 errdetail("A trigger or a policy on the table \"outbox_once\" leaves its row out."),
					 errhint("Drop it.")));
		CHECK_FOR_INTERRUPTS();
	}
	outbox_act_end(&acting);
	SPI_finish();
	return taken;
}

/* A trigger of the administrator's has left the message out. */
static void
give_back(Relation rel, Datum *params)
{
	static OutboxKeptPlan kept;
	OutboxActing acting;

	SPI_connect();
	outbox_act_begin(&acting, rel->rd_rel->relowner, true);
	(void) run(&kept, GIVE_BACK_SQL, KEY + 1, params, SPI_OK_DELETE);
	outbox_act_end(&acting);
	SPI_finish();
}

static Datum
check_key(FunctionCallInfo fcinfo)
{
	int			length;

	if (PG_ARGISNULL(0))
		ereport(ERROR,
				(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
				 errmsg("dedupe_key must not be null")));
	length = VARSIZE_ANY_EXHDR(PG_GETARG_TEXT_PP(0));
	if (length == 0)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("dedupe_key must not be empty")));
	if (length > MAX_KEY)
		ereport(ERROR,
				(errcode(ERRCODE_STRING_DATA_RIGHT_TRUNCATION),
				 errmsg("dedupe_key is too long"),
				 errdetail("It has %d bytes, and at most %d are possible.",
						   length, MAX_KEY)));
	return PG_GETARG_DATUM(0);
}

Datum
outbox_enqueue_once(PG_FUNCTION_ARGS)
{
	Datum		values[OUTBOX_COLUMNS];
	bool		isnull[OUTBOX_COLUMNS];
	Relation	rel = outbox_enqueue_arguments(fcinfo, 1, values, isnull);
	Datum		params[PARAMS];
	TimestampTz now;
	pg_uuid_t  *id = palloc(sizeof(pg_uuid_t));
	bool		stored = true;

	params[KEY] = check_key(fcinfo);
	/* Who may not use the route learns nothing of its keys. */
	(void) outbox_enqueue_check_route(rel, GetUserId(), values, isnull);
	params[ROUTE] = values[COL_ROUTE - 1];
	now = GetCurrentTimestamp();
	params[NOW] = TimestampTzGetDatum(now);
	params[EXPIRED] = TimestampTzGetDatum(now - (int64) outbox_once_window_s * USECS_PER_SEC);
	if (isnull[COL_ID - 1])
		outbox_make_uuid7(id);
	else
		*id = *DatumGetUUIDP(values[COL_ID - 1]);
	params[ID] = UUIDPGetDatum(id);
	if (reserve(rel, params, id))
	{
		values[COL_ID - 1] = params[ID];
		isnull[COL_ID - 1] = false;
		stored = outbox_enqueue_row(rel, GetUserId(), values, isnull);
		if (!stored)
			give_back(rel, params);
	}
	table_close(rel, NoLock);
	if (!stored)
		PG_RETURN_NULL();
	PG_RETURN_UUID_P(id);
}
