/*-------------------------------------------------------------------------
 *
 * enqueue_once.c
 *		outbox_enqueue_once(): one message for each key within a window.
 *
 * The keys are rows of the table outbox_once, of which the primary key is what lets
 * one of two sessions wait for the other; a transaction that rolls back takes its
 * key with it.  A row that is older than the window is one that is not there: the
 * next message takes it over, if the relay has not removed it before
 * (outbox_once_maintain()).  It is one table and no partitions by day, since the
 * uniqueness would have to span them.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/table.h"
#include "access/xact.h"
#include "catalog/pg_type.h"
#include "columns.h"
#include "compat.h"
#include "enqueue.h"
#include "enqueue_internal.h"
#include "executor/spi.h"
#include "fmgr.h"
#include "miscadmin.h"
#include "settings.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"
#include "utils/timestamp.h"
#include "utils/uuid.h"

PG_FUNCTION_INFO_V1(outbox_enqueue_once);

#define MAX_KEY		255			/* bytes */
/* To find, or take, a key that others have and give back. */
#define MAX_TURNS	1000

/* In the order of the function's arguments; the first is the key. */
static const int columns[] = {
	COL_EVENT_TYPE, COL_PAYLOAD, COL_AGGREGATE_TYPE, COL_AGGREGATE_ID, COL_HEADERS,
	COL_ROUTE, COL_ROUTING_KEY, COL_PROPERTIES, COL_AVAILABLE_AT, COL_ID
};

/* A key, and what it is looked up with. */
typedef struct Key
{
	Relation	rel;			/* outbox */
	Datum		route;
	Datum		key;
	TimestampTz now;
	TimestampTz expired;		/* rows that are not newer do not count */
} Key;

#define FIND_SQL \
	"SELECT o.id FROM outbox_internal.outbox_once o WHERE o.route OPERATOR(pg_catalog.=) $1" \
	" AND o.key OPERATOR(pg_catalog.=) $2 AND o.at OPERATOR(pg_catalog.>) $3"
#define TAKE_SQL \
	"INSERT INTO outbox_internal.outbox_once AS o (route, key, id, at) VALUES ($1, $2, $3, $4)" \
	" ON CONFLICT (route, key) DO UPDATE SET id = excluded.id, at = excluded.at" \
	" WHERE o.at OPERATOR(pg_catalog.<=) $5"
#define GIVE_BACK_SQL \
	"DELETE FROM outbox_internal.outbox_once o WHERE o.route OPERATOR(pg_catalog.=) $1" \
	" AND o.key OPERATOR(pg_catalog.=) $2"

/* Runs one of them as the owner; returns the number of rows. */
static uint64
run(OutboxKeptPlan *kept, const char *sql, int nargs, Oid *types,
	Datum *values, int expected)
{
	int			result = outbox_kept_plan_execute(kept, sql, nargs, types, values,
												  NULL, expected == SPI_OK_SELECT);

	if (result != expected)
		elog(ERROR, "could not use outbox_once: %s",
			 SPI_result_code_string(result));
	return SPI_processed;
}

/*
 * With a new snapshot: under REPEATABLE READ, too, a key that has committed since
 * the transaction began counts.
 */
static bool
find(const Key *key, pg_uuid_t *id)
{
	static OutboxKeptPlan kept;
	Oid			types[] = {TEXTOID, TEXTOID, TIMESTAMPTZOID};
	Datum		values[] = {key->route, key->key, TimestampTzGetDatum(key->expired)};
	bool		isnull;
	bool		found;

	PushActiveSnapshot(GetLatestSnapshot());
	found = run(&kept, FIND_SQL, lengthof(types), types, values,
				SPI_OK_SELECT) > 0;
	PopActiveSnapshot();
	if (found)
		*id = *DatumGetUUIDP(SPI_getbinval(SPI_tuptable->vals[0],
										   SPI_tuptable->tupdesc, 1, &isnull));
	return found;
}

/* Waits for who has it and has not committed; false: he has committed. */
static bool
take(const Key *key, const pg_uuid_t *id)
{
	static OutboxKeptPlan kept;
	Oid			types[] = {TEXTOID, TEXTOID, UUIDOID, TIMESTAMPTZOID, TIMESTAMPTZOID};
	Datum		values[] = {key->route, key->key, UUIDPGetDatum(id),
	TimestampTzGetDatum(key->now), TimestampTzGetDatum(key->expired)};

	return run(&kept, TAKE_SQL, lengthof(types), types, values,
			   SPI_OK_INSERT) > 0;
}

static void
give_back(const Key *key)
{
	static OutboxKeptPlan kept;
	Oid			types[] = {TEXTOID, TEXTOID};
	Datum		values[] = {key->route, key->key};

	(void) run(&kept, GIVE_BACK_SQL, lengthof(types), types, values,
			   SPI_OK_DELETE);
}

/*
 * Returns true when the key is that of the message *id now; else *id is set to the
 * message that has it.
 */
static bool
reserve(const Key *key, pg_uuid_t *id)
{
	OutboxActing acting;
	bool		taken = false;
	int			turns = 0;

	/* What the statement itself has enqueued counts. */
	CommandCounterIncrement();
	SPI_connect();
	outbox_act_begin(&acting, key->rel->rd_rel->relowner, true);
	while (!find(key, id))
	{
		taken = take(key, id);
		if (taken)
			break;
		/* Somebody else's was there, and is gone: that ends. */
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
unreserve(const Key *key)
{
	OutboxActing acting;

	SPI_connect();
	outbox_act_begin(&acting, key->rel->rd_rel->relowner, true);
	give_back(key);
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
	Relation	rel = outbox_open_table(get_func_namespace(fcinfo->flinfo->fn_oid));
	Datum		values[OUTBOX_COLUMNS];
	bool		isnull[OUTBOX_COLUMNS];
	Key			key;
	pg_uuid_t  *id = palloc(sizeof(pg_uuid_t));
	bool		stored;

	memset(isnull, true, sizeof(isnull));
	for (int i = 0; i < lengthof(columns); i++)
	{
		isnull[columns[i] - 1] = PG_ARGISNULL(i + 1);
		values[columns[i] - 1] = PG_GETARG_DATUM(i + 1);
	}
	key.rel = rel;
	key.key = check_key(fcinfo);
	/* Who may not use the route learns nothing of its keys. */
	outbox_enqueue_check_route(rel, GetUserId(), values, isnull);
	key.route = values[COL_ROUTE - 1];
	key.now = GetCurrentTimestamp();
	key.expired = key.now - (int64) outbox_once_window_s * USECS_PER_SEC;

	if (isnull[COL_ID - 1])
		outbox_make_uuid7(id);
	else
		*id = *DatumGetUUIDP(values[COL_ID - 1]);
	if (!reserve(&key, id))
	{
		table_close(rel, NoLock);
		PG_RETURN_UUID_P(id);
	}
	values[COL_ID - 1] = UUIDPGetDatum(id);
	isnull[COL_ID - 1] = false;
	stored = outbox_enqueue_row(rel, GetUserId(), values, isnull);
	if (!stored)
		unreserve(&key);
	table_close(rel, NoLock);
	if (!stored)
		PG_RETURN_NULL();
	PG_RETURN_UUID_P(id);
}
