/*-------------------------------------------------------------------------
 *
 * store_claim.c
 *		Claims: from rows to messages.
 *
 * A claim locks the rows FOR UPDATE SKIP LOCKED for the length of its own
 * short transaction; from its commit on the rows are claimed because the one
 * worker that owns their keys has them in its memory.  Rows go from the
 * executor straight into messages, so that a claim can stop at a number of
 * bytes, and what it did not take is not even locked.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/xact.h"
#include "catalog/pg_type.h"
#include "compat.h"
#include "executor/executor.h"
#include "executor/tuptable.h"
#include "key_hash.h"
#include "mb/pg_wchar.h"
#include "store.h"
#include "store_internal.h"
#include "tcop/dest.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/memutils.h"
#include "utils/plancache.h"
#include "utils/snapmgr.h"
#include "utils/timestamp.h"

/* Parameters that every claim has, whether its text uses them or not. */
#define CLAIM_NARGS 11
static const Oid claim_types[CLAIM_NARGS] = {
	INT8OID,					/* $1 after */
	INT8OID,					/* $2 upto */
	INT8OID,					/* $3 limit */
	TEXTARRAYOID,				/* $4 excluded routes */
	INT8ARRAYOID,				/* $5 excluded keys */
	INT4OID,					/* $6 worker */
	INT4OID,					/* $7 nworkers */
	TIMESTAMPTZOID,				/* $8 after which due time */
	INT8OID,					/* $9 hash of the one key */
	UUIDARRAYOID,				/* $10 unreadable rows: their ids, */
	TIDARRAYOID					/* $11 and where they are */
};

#define EXCLUDE_ROUTES	0x01
#define EXCLUDE_KEYS	0x02
#define SHARE			0x04
#define ONE_KEY			0x08
#define EXCLUDE_ROWS	0x10
#define NFILTERS		0x20

/* The filters of a claim that are not always there. */
static char *
filter_text(int filters)
{
	StringInfoData buf;

	initStringInfo(&buf);
	if (filters & EXCLUDE_ROUTES)
		appendStringInfoString(&buf, " AND route <> ALL ($4)");
	if (filters & EXCLUDE_KEYS)
		appendStringInfoString(&buf,
							   " AND (aggregate_id IS NULL OR"
							   " outbox_internal.outbox_key_hash(route, aggregate_type, aggregate_id)"
							   " <> ALL ($5))");
	if (filters & SHARE)
		appendStringInfoString(&buf,
							   " AND (coalesce(outbox_internal.outbox_key_hash(route, aggregate_type,"
							   " aggregate_id), seq) & 9223372036854775807) % $7 = $6");
	/* A row that was changed is read again, though its id is the same. */
	if (filters & EXCLUDE_ROWS)
		appendStringInfoString(&buf, " AND (id <> ALL ($10) OR ctid <> ALL ($11))");
	return buf.data;
}

/*
 * The rows of a range in the order of seq.  Those of one key are compared and
 * ordered as the index outbox_key has them, which is made for this: outbox_ready,
 * that the planner prefers by the statistics of a queue that was just empty, would
 * pass the whole range for each key, and has not this order, with sorting off.
 */
static char *
range_text(const char *columns, int filters, const char *locking)
{
	const char *order = "seq";
	const char *range = "seq > $1 AND seq <= $2";

	if (filters & ONE_KEY)
	{
		order = "outbox_internal.outbox_key_hash(route, aggregate_type, aggregate_id), seq";
		range = psprintf("aggregate_id IS NOT NULL"
						 " AND (%s) > ($9, $1) AND (%s) <= ($9, $2)",
						 order, order);
	}
	return psprintf("SELECT %s FROM outbox_internal.outbox WHERE " READY
					" AND %s%s ORDER BY %s LIMIT $3%s",
					columns, range,
					filter_text(filters), order, locking);
}

static int
claim_filters(const OutboxClaim *claim, bool keys)
{
	int			always = (claim->excluded_routes != NIL ? EXCLUDE_ROUTES : 0) |
		(claim->nunreadable > 0 ? EXCLUDE_ROWS : 0);

	if (claim->one_key)
		return ONE_KEY | always;
	return always |
		(keys && claim->nexcluded_keys > 0 ? EXCLUDE_KEYS : 0) |
		(claim->nworkers > 1 ? SHARE : 0);
}

static Datum
server_text(const char *utf8)
{
	return CStringGetTextDatum(pg_any_to_server(utf8, (int) strlen(utf8),
												PG_UTF8));
}

static Datum
routes_array(const List *routes)
{
	Datum	   *elems = palloc(sizeof(Datum) * Max(list_length(routes), 1));
	ListCell   *cell;
	int			n = 0;

	foreach(cell, routes)
		elems[n++] = server_text((const char *) lfirst(cell));
	return PointerGetDatum(construct_array(elems, n, TEXTOID, -1, false,
										   TYPALIGN_INT));
}

Datum
outbox_store_int64_array(const int64 *numbers, int n)
{
	Datum	   *elems = palloc(sizeof(Datum) * Max(n, 1));

	for (int i = 0; i < n; i++)
		elems[i] = Int64GetDatum(numbers[i]);
	return PointerGetDatum(construct_array(elems, n, INT8OID, sizeof(int64),
										   FLOAT8PASSBYVAL, TYPALIGN_DOUBLE));
}

static void
claim_values(const OutboxClaim *claim, int filters, TimestampTz after_due,
			 Datum *values, char *nulls)
{
	memset(nulls, ' ', CLAIM_NARGS);
	values[0] = Int64GetDatum(claim->after);
	values[1] = Int64GetDatum(claim->upto);
	values[2] = Int64GetDatum((int64) claim->limit);
	if (filters & EXCLUDE_ROUTES)
		values[3] = routes_array(claim->excluded_routes);
	else
		nulls[3] = 'n';
	if (filters & EXCLUDE_KEYS)
		values[4] = outbox_store_int64_array(claim->excluded_keys, claim->nexcluded_keys);
	else
		nulls[4] = 'n';
	values[5] = Int32GetDatum(claim->worker);
	values[6] = Int32GetDatum(claim->nworkers);
	values[7] = TimestampTzGetDatum(after_due);
	values[8] = Int64GetDatum(claim->key_hash);
	if (filters & EXCLUDE_ROWS)
		outbox_store_version_arrays(claim->unreadable, claim->nunreadable,
									&values[9], &values[10]);
	else
		nulls[9] = nulls[10] = 'n';
}

/* -------------------------------------------------------- rows to messages */

typedef struct ClaimReceiver
{
	DestReceiver pub;
	const OutboxClaim *claim;	/* one of these two */
	OutboxRowVisit row_visit;
	void	   *row_arg;
	MemoryContext scratch;		/* reset for each row */
	int			count;
} ClaimReceiver;

static void
visit_row(ClaimReceiver *receiver, TupleTableSlot *slot)
{
	static const int required[] = {ROW_SEQ, ROW_ID, ROW_ROUTE};
	OutboxRow	row;

	outbox_store_require(slot, required, lengthof(required));
	row.seq = DatumGetInt64(slot->tts_values[ROW_SEQ]);
	row.id = *DatumGetUUIDP(slot->tts_values[ROW_ID]);
	row.key_hash = outbox_store_key_hash(slot, ROW_ROUTE, ROW_AGGREGATE_TYPE,
										 ROW_AGGREGATE_ID);
	row.route = outbox_store_utf8(slot, ROW_ROUTE);
	row.keyed = !slot->tts_isnull[ROW_AGGREGATE_ID];
	receiver->row_visit(&row, receiver->row_arg);
}

static bool
receive_slot(TupleTableSlot *slot, DestReceiver *self)
{
	ClaimReceiver *receiver = (ClaimReceiver *) self;
	MemoryContext old = MemoryContextSwitchTo(receiver->scratch);
	OutboxMessage *message;
	bool		go_on = true;

	slot_getallattrs(slot);
	receiver->count++;
	if (receiver->claim != NULL)
	{
		outbox_store_fence_row(DatumGetTransactionId(slot->tts_values[CLAIM_XMIN]));
		message = outbox_store_message(slot, receiver->claim);
		go_on = message == NULL ||
			receiver->claim->visit(message, receiver->claim->arg);
	}
	else
		visit_row(receiver, slot);
	MemoryContextSwitchTo(old);
	MemoryContextReset(receiver->scratch);
	return go_on;
}

static void
receiver_startup(DestReceiver *self, int operation, TupleDesc typeinfo)
{
	(void) self;
	(void) operation;
	(void) typeinfo;
}

static void
receiver_nothing(DestReceiver *self)
{
	(void) self;
}

static ParamListInfo
make_params(int nargs, const Oid *types, const Datum *values, const char *nulls)
{
	ParamListInfo params;

	if (nargs == 0)
		return NULL;
	params = makeParamList(nargs);
	for (int i = 0; i < nargs; i++)
	{
		params->params[i].isnull = nulls != NULL && nulls[i] == 'n';
		params->params[i].value = params->params[i].isnull ? (Datum) 0 : values[i];
		params->params[i].pflags = PARAM_FLAG_CONST;
		params->params[i].ptype = types[i];
	}
	return params;
}

/*
 * Runs a statement that SPI has prepared, but with the executor.
 * SPI_execute_plan_extended() has a receiver for rows as well, but SPI takes a new
 * snapshot for each statement that locks rows, and refuses to lock with the one
 * that is there (read_only).  What a round reads (due rows, keys, several ranges) is
 * read with one snapshot, on which the order of transactions that depend on each
 * other hangs: take_snapshot() in relay_round.c says how.
 */
static int
run(SPIPlanPtr plan, int nargs, const Oid *types, Datum *values,
	const char *nulls, ClaimReceiver *receiver)
{
	CachedPlanSource *source = linitial(SPI_plan_get_plan_sources(plan));
	ParamListInfo params = make_params(nargs, types, values, nulls);
	CachedPlan *cached = GetCachedPlan(source, params, CurrentResourceOwner,
									   NULL);
	QueryDesc  *query;

	receiver->pub.receiveSlot = receive_slot;
	receiver->pub.rStartup = receiver_startup;
	receiver->pub.rShutdown = receiver_nothing;
	receiver->pub.rDestroy = receiver_nothing;
	receiver->pub.mydest = DestTuplestore;	/* nothing looks at it */
	receiver->scratch = AllocSetContextCreate(CurrentMemoryContext,
											  "outbox claim row",
											  ALLOCSET_DEFAULT_SIZES);
	query = CreateQueryDesc(linitial_node(PlannedStmt, cached->stmt_list),
							source->query_string, GetActiveSnapshot(),
							InvalidSnapshot, &receiver->pub, params, NULL, 0);
	ExecutorStart(query, 0);
	compat_executor_run(query);
	ExecutorFinish(query);
	ExecutorEnd(query);
	FreeQueryDesc(query);
	ReleaseCachedPlan(cached, CurrentResourceOwner);
	MemoryContextDelete(receiver->scratch);
	return receiver->count;
}

int
outbox_store_visit_rows(SPIPlanPtr plan, int nargs, const Oid *types,
						Datum *values, OutboxRowVisit visit, void *arg)
{
	ClaimReceiver receiver = {.row_visit = visit, .row_arg = arg};

	return run(plan, nargs, types, values, NULL, &receiver);
}

static int
run_claim(const OutboxClaim *claim, SPIPlanPtr plan, int filters,
		  TimestampTz after_due)
{
	ClaimReceiver receiver = {.claim = claim};
	Datum		values[CLAIM_NARGS];
	char		nulls[CLAIM_NARGS];

	claim_values(claim, filters, after_due, values, nulls);
	return run(plan, CLAIM_NARGS, claim_types, values, nulls, &receiver);
}

/* ------------------------------------------------------------------ claims */

void
outbox_store_claim_snapshot(void)
{
	outbox_store_fence_reset();
	/* It must see what this transaction has settled. */
	CommandCounterIncrement();
	PopActiveSnapshot();
	PushActiveSnapshot(GetTransactionSnapshot());
}

bool
outbox_store_sees(TransactionId xid)
{
	return !XidInMVCCSnapshot(xid, GetActiveSnapshot());
}

int
outbox_store_claim(const OutboxClaim *claim)
{
	static OutboxStatement statements[NFILTERS];
	int			filters = claim_filters(claim, true);
	OutboxStatement *statement = &statements[filters];

	if (statement->plan == NULL)
		outbox_store_plan(statement,
						  range_text(CLAIM_COLUMNS, filters,
									 " FOR UPDATE SKIP LOCKED"),
						  CLAIM_NARGS, claim_types);
	return run_claim(claim, statement->plan, filters, 0);
}

int
outbox_store_claim_due(const OutboxClaim *claim, TimestampTz after_due,
					   int64 after_seq)
{
	static OutboxStatement statements[NFILTERS];
	int			filters = claim_filters(claim, false);
	OutboxStatement *statement = &statements[filters];
	OutboxClaim due = *claim;

	Assert(!claim->one_key);
	if (statement->plan == NULL)
		outbox_store_plan(statement,
						  psprintf("SELECT " CLAIM_COLUMNS " FROM outbox_internal.outbox"
								   " WHERE " WAITING
								   " AND (available_at, seq) > ($8, $1)"
								   " AND available_at <= pg_catalog.clock_timestamp()%s"
								   " ORDER BY available_at, seq LIMIT $3"
								   " FOR UPDATE SKIP LOCKED",
								   filter_text(filters)),
						  CLAIM_NARGS, claim_types);
	due.after = after_seq;
	return run_claim(&due, statement->plan, filters, after_due);
}

int
outbox_store_list(const OutboxClaim *claim, OutboxRowVisit visit)
{
	static OutboxStatement statements[NFILTERS];
	int			filters = claim_filters(claim, true);
	OutboxStatement *statement = &statements[filters];
	ClaimReceiver receiver = {.row_visit = visit, .row_arg = claim->arg};
	Datum		values[CLAIM_NARGS];
	char		nulls[CLAIM_NARGS];

	if (statement->plan == NULL)
		outbox_store_plan(statement,
						  range_text(ROW_COLUMNS, filters, ""),
						  CLAIM_NARGS, claim_types);
	claim_values(claim, filters, 0, values, nulls);
	return run(statement->plan, CLAIM_NARGS, claim_types, values, nulls,
			   &receiver);
}

void
outbox_store_find_keys(const int64 *hashes, const int64 *los,
					   const int64 *his, int n, bool *found)
{
	static OutboxStatement statement;
	static const Oid types[] = {INT8ARRAYOID, INT8ARRAYOID, INT8ARRAYOID};
	Datum		values[] = {outbox_store_int64_array(hashes, n), outbox_store_int64_array(los, n),
	outbox_store_int64_array(his, n)};

	/*
	 * One look into outbox_key for each, whatever the planner believes: with
	 * the statistics of a queue that was just empty it took outbox_ready, and
	 * read the whole range for each key.  That one has not this order, and
	 * sorting is off.
	 */
	outbox_store_execute(outbox_store_plan(&statement,
										   "SELECT k.i FROM ROWS FROM"
													" (pg_catalog.unnest($1), pg_catalog.unnest($2),"
													" pg_catalog.unnest($3))"
													" WITH ORDINALITY k (hash, lo, hi, i),"
													" LATERAL (SELECT FROM outbox_internal.outbox"
													" WHERE " READY
													" AND aggregate_id IS NOT NULL"
													" AND (outbox_internal.outbox_key_hash(route, aggregate_type, aggregate_id), seq)"
													" >= (k.hash, k.lo)"
													" AND (outbox_internal.outbox_key_hash(route, aggregate_type, aggregate_id), seq)"
													" <= (k.hash, k.hi)"
													" ORDER BY outbox_internal.outbox_key_hash(route, aggregate_type, aggregate_id), seq"
													" LIMIT 1) r",
										   3, types),
						 values, NULL, SPI_OK_SELECT);
	for (int row = 0; row < (int) SPI_processed; row++)
	{
		bool		isnull;
		int64		i = DatumGetInt64(SPI_getbinval(SPI_tuptable->vals[row],
													SPI_tuptable->tupdesc, 1,
													&isnull));

		found[i - 1] = true;
	}
}

int64
outbox_store_last_ready(void)
{
	static OutboxStatement statement;
	bool		isnull;

	outbox_store_execute(outbox_store_plan(&statement,
										   "SELECT seq FROM outbox_internal.outbox"
													" WHERE " READY
													" ORDER BY seq DESC LIMIT 1",
										   0, NULL),
						 NULL, NULL, SPI_OK_SELECT);
	if (SPI_processed == 0)
		return 0;
	return DatumGetInt64(SPI_getbinval(SPI_tuptable->vals[0],
									   SPI_tuptable->tupdesc, 1, &isnull));
}

TimestampTz
outbox_store_next_due(TimestampTz after_due, int64 after_seq)
{
	static OutboxStatement statement;
	Oid			types[] = {TIMESTAMPTZOID, INT8OID};
	Datum		values[] = {TimestampTzGetDatum(after_due), Int64GetDatum(after_seq)};
	bool		isnull = true;
	Datum		due = (Datum) 0;

	outbox_store_execute(outbox_store_plan(&statement,
										   "SELECT available_at FROM outbox_internal.outbox"
													" WHERE " WAITING
													" AND (available_at, seq) > ($1, $2)"
													" ORDER BY available_at, seq LIMIT 1",
										   2, types),
						 values, NULL, SPI_OK_SELECT);
	if (SPI_processed > 0)
		due = SPI_getbinval(SPI_tuptable->vals[0], SPI_tuptable->tupdesc, 1,
							&isnull);
	return isnull ? 0 : DatumGetTimestampTz(due);
}
