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
#include "mb/pg_wchar.h"
#include "message.h"
#include "store.h"
#include "store_internal.h"
#include "tcop/dest.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/memutils.h"
#include "utils/plancache.h"
#include "utils/snapmgr.h"
#include "utils/timestamp.h"

static const Oid claim_types[OUTBOX_STATEMENT_ARGS + 1] = {
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
	TIDARRAYOID,				/* $11 and where they are */
	TIMESTAMPTZOID,				/* $12 up to which due time */
	TEXTARRAYOID,				/* $13 routes of the excluded keys, or of the
								 * one */
	INT8ARRAYOID,				/* $14 up to where excluded keys are not, */
	UUIDARRAYOID				/* $15 and ids that are not */
};

/* Filters that are not always there. */
#define EXCLUDE_ROUTES	0x01
#define EXCLUDE_KEYS	0x02
#define SHARE			0x04
#define ONE_KEY			0x08
#define EXCLUDE_ROWS	0x10
#define NFILTERS		0x20

typedef enum ClaimKind
{
	CLAIM_READY,
	CLAIM_DUE,
	LIST_READY,
	LIST_DUE,
	CLAIM_KINDS
} ClaimKind;

/*
 * The rows of a range in the order of seq.  Those of one key are compared and
 * ordered as the index outbox_key has them, which is made for this: outbox_ready,
 * that the planner prefers by the statistics of a queue that was just empty, would
 * pass the whole range for each key, and has not this order, with sorting off.
 * The time up to which rows are due is a parameter, which bounds the index scan;
 * clock_timestamp() is a filter, by which each claim passed all that is scheduled.
 */
static char *
claim_text(ClaimKind kind, int filters)
{
#define OF_KEY(array) "(" array ")[pg_catalog.array_position($5, " KEY_HASH ")]"
	bool		list = kind == LIST_READY || kind == LIST_DUE;
	const char *order = "seq";
	const char *range = READY " AND seq > $1 AND seq <= $2";

	if (kind == CLAIM_DUE || kind == LIST_DUE)
	{
		order = "available_at, seq";
		range = WAITING " AND (available_at, seq) > ($8, $1)"
			" AND (available_at, seq) <= ($12, $2)";
	}
	else if (filters & ONE_KEY)
	{
		order = KEY_HASH ", seq";
		range = READY " AND aggregate_id IS NOT NULL"
			" AND (" KEY_HASH ", seq) > ($9, $1) AND (" KEY_HASH ", seq) <= ($9, $2)"
			" AND route = ($13)[1]";
	}

	/*
	 * Of two excluded keys with one hash the first is: the other's rows are
	 * claimed in vain.  A row that was changed is read again, though its id
	 * is the same.
	 */
	return psprintf("SELECT %s FROM outbox_internal.outbox WHERE %s%s%s%s%s%s%s"
					" ORDER BY %s LIMIT $3%s",
					list ? ROW_COLUMNS : CLAIM_COLUMNS, range,
					filters & EXCLUDE_ROUTES ? " AND route <> ALL ($4)" : "",
					filters & EXCLUDE_KEYS ?
					" AND (aggregate_id IS NULL OR " KEY_HASH " <> ALL ($5)"
					" OR route <> " OF_KEY("$13") : "",
					filters & EXCLUDE_KEYS && kind == CLAIM_DUE ?
					" OR seq <= " OF_KEY("$14") " OR id = " OF_KEY("$15") : "",
					filters & EXCLUDE_KEYS ? ")" : "",
					filters & SHARE ?
					" AND (coalesce(" KEY_HASH ", seq) & 9223372036854775807) % $7 = $6" : "",
					filters & EXCLUDE_ROWS ?
					" AND (id <> ALL ($10) OR ctid <> ALL ($11))" : "",
					order, list ? "" : " FOR UPDATE SKIP LOCKED");
}

static int
claim_filters(const OutboxClaim *claim)
{
	int			always = (claim->excluded_routes != NIL ? EXCLUDE_ROUTES : 0) |
		(claim->nunreadable > 0 ? EXCLUDE_ROWS : 0);

	if (claim->one_key)
		return ONE_KEY | always;
	return always |
		(claim->nexcluded_keys > 0 ? EXCLUDE_KEYS : 0) |
		(claim->nworkers > 1 ? SHARE : 0);
}

static Datum
routes_array(const List *routes)
{
	Datum	   *elems = palloc(sizeof(Datum) * list_length(routes));
	ListCell   *cell;
	int			n = 0;

	foreach(cell, routes)
		elems[n++] = outbox_store_own_text(lfirst(cell));
	return outbox_store_array(elems, n, TEXTOID);
}

static void
excluded_keys(const OutboxClaim *claim, Datum *values)
{
	int			n = claim->nexcluded_keys;
	int64	   *hashes = palloc(sizeof(int64) * n);
	const char **routes = palloc(sizeof(char *) * n);

	for (int i = 0; i < n; i++)
	{
		hashes[i] = claim->excluded_keys[i].hash;
		routes[i] = claim->excluded_keys[i].route;
	}
	values[ARG_KEYS] = outbox_store_int64_array(hashes, n);
	values[ARG_KEY_ROUTES] = outbox_store_text_array(routes, n);
}

/* What is not left out of them; of what is ready they have nothing. */
static void
due_of_excluded_keys(const OutboxClaim *claim, Datum *values)
{
	int			n = claim->nexcluded_keys;
	int64	   *upto = palloc(sizeof(int64) * n);

	for (int i = 0; i < n; i++)
		upto[i] = claim->excluded_keys[i].upto;
	values[ARG_KEY_UPTO] = outbox_store_int64_array(upto, n);
	values[ARG_KEY_IDS] = outbox_store_id_array(&claim->excluded_keys->id,
												sizeof(OutboxExcludedKey), n);
}

static ParamListInfo
make_params(const OutboxStatement *statement, int nargs, const Datum *values)
{
	ParamListInfo params = nargs == 0 ? NULL : makeParamList(nargs);

	for (int i = 0; i < nargs; i++)
	{
		params->params[i].isnull = false;
		params->params[i].value = values[i];
		params->params[i].pflags = PARAM_FLAG_CONST;
		params->params[i].ptype = statement->types[i];
	}
	return params;
}

static ParamListInfo
claim_params(const OutboxClaim *claim, const OutboxStatement *statement, ClaimKind kind,
			 int filters, TimestampTz after_due, TimestampTz upto_due)
{
	bool		excludes_due = kind == CLAIM_DUE && (filters & EXCLUDE_KEYS);
	Datum		values[OUTBOX_STATEMENT_ARGS] = {0};
	ParamListInfo params;

	values[ARG_AFTER] = Int64GetDatum(claim->after);
	values[ARG_UPTO] = Int64GetDatum(claim->upto);
	values[ARG_LIMIT] = Int64GetDatum((int64) claim->limit);
	if (filters & EXCLUDE_ROUTES)
		values[ARG_ROUTES] = routes_array(claim->excluded_routes);
	if (filters & EXCLUDE_KEYS)
		excluded_keys(claim, values);
	if (excludes_due)
		due_of_excluded_keys(claim, values);
	values[ARG_WORKER] = Int32GetDatum(claim->worker);
	values[ARG_NWORKERS] = Int32GetDatum(claim->nworkers);
	values[ARG_DUE] = TimestampTzGetDatum(after_due);
	values[ARG_DUE_UPTO] = TimestampTzGetDatum(upto_due);
	values[ARG_KEY_HASH] = Int64GetDatum(claim->key_hash);
	if (filters & ONE_KEY)
		values[ARG_KEY_ROUTES] = outbox_store_text_array(&claim->key_route, 1);
	if (filters & EXCLUDE_ROWS)
		outbox_store_version_arrays(claim->unreadable, claim->nunreadable,
									&values[ARG_IDS], &values[ARG_TIDS]);
	params = make_params(statement, OUTBOX_STATEMENT_ARGS, values);
	params->params[ARG_ROUTES].isnull = !(filters & EXCLUDE_ROUTES);
	params->params[ARG_KEYS].isnull = !(filters & EXCLUDE_KEYS);
	params->params[ARG_KEY_ROUTES].isnull = !(filters & (EXCLUDE_KEYS | ONE_KEY));
	params->params[ARG_KEY_UPTO].isnull = !excludes_due;
	params->params[ARG_KEY_IDS].isnull = !excludes_due;
	params->params[ARG_IDS].isnull = !(filters & EXCLUDE_ROWS);
	params->params[ARG_TIDS].isnull = !(filters & EXCLUDE_ROWS);
	return params;
}

/* -------------------------------------------------------- rows to messages */

typedef struct ClaimReceiver
{
	DestReceiver pub;
	const OutboxClaim *claim;	/* NULL: a list, of which */
	OutboxRowVisit visit;		/* this one gets the rows */
	void	   *arg;
	MemoryContext scratch;		/* reset for each row */
	int			count;
	bool		skipped;		/* a claim: rows, or the executor did not say */
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
	row.available_at = slot->tts_isnull[ROW_AVAILABLE_AT] ? 0 :
		DatumGetTimestampTz(slot->tts_values[ROW_AVAILABLE_AT]);
	receiver->visit(&row, receiver->arg);
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
execute(PlannedStmt *stmt, const char *text, ParamListInfo params, DestReceiver *receiver)
{
	QueryDesc  *query = CreateQueryDesc(stmt, text, GetActiveSnapshot(), InvalidSnapshot,
										receiver, params, NULL, 0);

	ExecutorStart(query, 0);
	compat_executor_run(query);
	ExecutorFinish(query);
	ExecutorEnd(query);
	FreeQueryDesc(query);
}

/*
 * Runs a statement that SPI has prepared, but with the executor, or without.
 * SPI_execute_plan_extended() has a receiver for rows as well, but SPI takes a new
 * snapshot for each statement that locks rows, and refuses to lock with the one
 * that is there (read_only).  What a round reads (due rows, keys, several ranges) is
 * read with one snapshot, on which the order of transactions that depend on each
 * other hangs: take_snapshot() in relay_round.c says how.
 */
static int
run(const OutboxStatement *statement, ParamListInfo params, ClaimReceiver *receiver)
{
	CachedPlanSource *source = linitial(SPI_plan_get_plan_sources(statement->plan));
	CachedPlan *cached = GetCachedPlan(source, params, CurrentResourceOwner,
									   NULL);
	PlannedStmt *stmt = linitial_node(PlannedStmt, cached->stmt_list);

	/* All else of it does nothing. */
	receiver->pub = *None_Receiver;
	receiver->pub.receiveSlot = receive_slot;
	receiver->scratch = AllocSetContextCreate(CurrentMemoryContext,
											  "outbox claim row",
											  ALLOCSET_DEFAULT_SIZES);
	receiver->skipped = true;
	if (receiver->claim == NULL ||
		!outbox_store_claim_direct(stmt, params, source->resultDesc,
								   receiver->claim->limit, &receiver->pub,
								   &receiver->skipped))
		execute(stmt, source->query_string, params, &receiver->pub);
	ReleaseCachedPlan(cached, CurrentResourceOwner);
	MemoryContextDelete(receiver->scratch);
	return receiver->count;
}

void
outbox_store_visit_rows(OutboxStatement *statement, Datum *values,
						OutboxRowVisit visit, void *arg)
{
	ClaimReceiver receiver = {.visit = visit, .arg = arg};
	int			nargs = outbox_store_prepare(statement);

	(void) run(statement, make_params(statement, nargs, values), &receiver);
}

static int
run_claim(const OutboxClaim *claim, ClaimKind kind, TimestampTz after_due,
		  TimestampTz upto_due, ClaimReceiver *receiver)
{
	static OutboxStatement statements[CLAIM_KINDS][NFILTERS];
	int			filters = claim_filters(claim);
	OutboxStatement *statement = &statements[kind][filters];

	if (statement->plan == NULL)
	{
		memcpy(statement->types, claim_types, sizeof(claim_types));
		statement->sql = claim_text(kind, filters);
		(void) outbox_store_prepare(statement);
	}
	return run(statement, claim_params(claim, statement, kind, filters, after_due, upto_due),
			   receiver);
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
outbox_store_claim(const OutboxClaim *claim, bool *skipped)
{
	ClaimReceiver receiver = {.claim = claim};
	int			count = run_claim(claim, CLAIM_READY, 0, 0, &receiver);

	*skipped = receiver.skipped;
	return count;
}

int
outbox_store_claim_due(const OutboxClaim *claim, TimestampTz after_due, TimestampTz upto_due)
{
	ClaimReceiver receiver = {.claim = claim};

	Assert(!claim->one_key);
	return run_claim(claim, CLAIM_DUE, after_due, upto_due, &receiver);
}

int
outbox_store_list(const OutboxClaim *claim, OutboxRowVisit visit)
{
	ClaimReceiver receiver = {.visit = visit, .arg = claim->arg};

	return run_claim(claim, LIST_READY, 0, 0, &receiver);
}

int
outbox_store_list_due(const OutboxClaim *claim, TimestampTz after_due, TimestampTz upto_due,
					  OutboxRowVisit visit)
{
	ClaimReceiver receiver = {.visit = visit, .arg = claim->arg};

	return run_claim(claim, LIST_DUE, after_due, upto_due, &receiver);
}
