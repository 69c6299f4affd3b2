/*-------------------------------------------------------------------------
 *
 * outbox_test.c
 *		The relay's store as SQL functions.
 *
 * Each runs in the transaction of its caller, where a worker would have one of
 * its own; a claim's row locks therefore last as long as the test wants.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/transam.h"
#include "catalog/pg_type.h"
#include "encode_json.h"
#include "executor/spi.h"
#include "fmgr.h"
#include "funcapi.h"
#include "identity.h"
#include "production.h"
#include "route.h"
#include "store.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/memutils.h"
#include "utils/snapmgr.h"
#include "utils/timestamp.h"
#include "utils/tuplestore.h"

PG_MODULE_MAGIC;

PG_FUNCTION_INFO_V1(outbox_test_claim);
PG_FUNCTION_INFO_V1(outbox_test_claim_due);
PG_FUNCTION_INFO_V1(outbox_test_claim_way);
PG_FUNCTION_INFO_V1(outbox_test_fence_is_commit);
PG_FUNCTION_INFO_V1(outbox_test_list);
PG_FUNCTION_INFO_V1(outbox_test_list_retries);
PG_FUNCTION_INFO_V1(outbox_test_visit_failed);
PG_FUNCTION_INFO_V1(outbox_test_check_holders);
PG_FUNCTION_INFO_V1(outbox_test_next_due);
PG_FUNCTION_INFO_V1(outbox_test_reach);
PG_FUNCTION_INFO_V1(outbox_test_last_entry);
PG_FUNCTION_INFO_V1(outbox_test_settle);
PG_FUNCTION_INFO_V1(outbox_test_fail);
PG_FUNCTION_INFO_V1(outbox_test_routes);
PG_FUNCTION_INFO_V1(outbox_test_route_columns);
PG_FUNCTION_INFO_V1(outbox_test_route_versions);
PG_FUNCTION_INFO_V1(outbox_test_keep_routes);
PG_FUNCTION_INFO_V1(outbox_test_paused);
PG_FUNCTION_INFO_V1(outbox_test_copy);
PG_FUNCTION_INFO_V1(outbox_test_accepts);
PG_FUNCTION_INFO_V1(outbox_test_prepared);
PG_FUNCTION_INFO_V1(outbox_test_maintain);
PG_FUNCTION_INFO_V1(outbox_test_json);
PG_FUNCTION_INFO_V1(outbox_test_json_size);

static void
begin(void)
{
	SPI_connect();
	PushActiveSnapshot(GetTransactionSnapshot());
	outbox_test_attach();
}

static void
end(void)
{
	PopActiveSnapshot();
	SPI_finish();
}

static Datum
text_or_null(const char *str, bool *isnull)
{
	*isnull = str == NULL;
	return str == NULL ? (Datum) 0 : CStringGetTextDatum(str);
}

static Datum
jsonb_or_null(Jsonb *value, bool *isnull)
{
	*isnull = value == NULL;
	return JsonbPGetDatum(value);
}

static int
array_elements(Datum array, Oid type, int len, bool byval, char align,
			   Datum **elems)
{
	int			n;

	deconstruct_array(DatumGetArrayTypeP(array), type, len, byval, align,
					  elems, NULL, &n);
	return n;
}

static int
uuids(Datum array, pg_uuid_t **ids)
{
	Datum	   *elems;
	int			n = array_elements(array, UUIDOID, UUID_LEN, false,
								   TYPALIGN_CHAR, &elems);

	*ids = palloc(sizeof(pg_uuid_t) * Max(n, 1));
	for (int i = 0; i < n; i++)
		(*ids)[i] = *DatumGetUUIDP(elems[i]);
	return n;
}

/* Routes of n keys; NULL: 'default'. */
static const char **
key_routes(FunctionCallInfo fcinfo, int arg, int n)
{
	const char **routes = palloc(sizeof(char *) * Max(n, 1));
	Datum	   *elems = NULL;

	if (!PG_ARGISNULL(arg) &&
		array_elements(PG_GETARG_DATUM(arg), TEXTOID, -1, false, TYPALIGN_INT, &elems) != n)
		elog(ERROR, "not as many routes as keys");
	for (int i = 0; i < n; i++)
		routes[i] = elems == NULL ? "default" : TextDatumGetCString(elems[i]);
	return routes;
}

static Datum
bool_array(const bool *values, int n)
{
	Datum	   *elems = palloc(sizeof(Datum) * Max(n, 1));

	for (int i = 0; i < n; i++)
		elems[i] = BoolGetDatum(values[i]);
	return PointerGetDatum(construct_array(elems, n, BOOLOID, 1, true,
										   TYPALIGN_CHAR));
}

/* ------------------------------------------------------------------ claims */

typedef struct Receiver
{
	ReturnSetInfo *rsinfo;
	int			visits_left;	/* a claim ends after so many; < 0: never */
} Receiver;

static bool
receive_message(OutboxMessage *m, void *arg)
{
	Receiver   *receiver = arg;
	ReturnSetInfo *rsinfo = receiver->rsinfo;
	Datum		values[17];
	bool		nulls[17] = {false};

	values[0] = Int64GetDatum(m->seq);
	values[1] = UUIDPGetDatum(&m->id);
	values[2] = PointerGetDatum(&m->tid);
	values[3] = Int64GetDatum(m->key_hash);
	values[4] = Int32GetDatum(m->attempts);
	values[5] = TimestampTzGetDatum(m->created_at);
	values[6] = TimestampTzGetDatum(m->available_at);
	nulls[6] = m->available_at == 0;
	values[7] = text_or_null(m->route, &nulls[7]);
	values[8] = text_or_null(m->event_type, &nulls[8]);
	values[9] = text_or_null(m->aggregate_type, &nulls[9]);
	values[10] = text_or_null(m->aggregate_id, &nulls[10]);
	values[11] = text_or_null(m->routing_key, &nulls[11]);
	values[12] = jsonb_or_null(m->payload, &nulls[12]);
	nulls[13] = m->body == NULL;
	if (m->body != NULL)
		values[13] = PointerGetDatum(cstring_to_text_with_len(m->body, (int) m->body_len));
	values[14] = jsonb_or_null(m->headers, &nulls[14]);
	values[15] = jsonb_or_null(m->properties, &nulls[15]);
	values[16] = Int64GetDatum(m->origin);
	tuplestore_putvalues(rsinfo->setResult, rsinfo->setDesc, values, nulls);
	return receiver->visits_left < 0 || --receiver->visits_left > 0;
}

static void
receive_row(const OutboxRow *row, void *arg)
{
	Receiver   *receiver = arg;
	ReturnSetInfo *rsinfo = receiver->rsinfo;
	Datum		values[5];
	bool		nulls[5] = {false};

	values[0] = Int64GetDatum(row->seq);
	values[1] = UUIDPGetDatum(&row->id);
	values[2] = BoolGetDatum(row->keyed);
	values[3] = Int64GetDatum(row->key_hash);
	values[4] = text_or_null(row->route, &nulls[4]);
	tuplestore_putvalues(rsinfo->setResult, rsinfo->setDesc, values, nulls);
}

/* An array of bigint without NULL. */
static const int64 *
int64s(Datum array, int *n)
{
	Datum	   *elems;
	int64	   *numbers;

	*n = array_elements(array, INT8OID, sizeof(int64), FLOAT8PASSBYVAL,
						TYPALIGN_DOUBLE, &elems);
	numbers = palloc(sizeof(int64) * Max(*n, 1));
	for (int i = 0; i < *n; i++)
		numbers[i] = DatumGetInt64(elems[i]);
	return numbers;
}

/*
 * The arguments of claim, claim_due and list: after, upto, limit,
 * excluded_routes, excluded_keys, worker, nworkers, only_key, stop_after.
 */
static void
fill_claim(FunctionCallInfo fcinfo, OutboxClaim *claim, Receiver *receiver)
{
	const int64 *hashes = NULL;
	OutboxExcludedKey *excluded;
	const char **routes;
	Datum	   *elems;
	int			n;

	memset(claim, 0, sizeof(*claim));
	claim->after = PG_GETARG_INT64(0);
	claim->upto = PG_GETARG_INT64(1);
	claim->limit = PG_GETARG_INT32(2);
	if (!PG_ARGISNULL(3))
	{
		n = array_elements(PG_GETARG_DATUM(3), TEXTOID, -1, false, TYPALIGN_INT,
						   &elems);
		for (int i = 0; i < n; i++)
			claim->excluded_routes = lappend(claim->excluded_routes,
											 TextDatumGetCString(elems[i]));
	}
	if (!PG_ARGISNULL(4))
		hashes = int64s(PG_GETARG_DATUM(4), &claim->nexcluded_keys);
	claim->worker = PG_GETARG_INT32(5);
	claim->nworkers = PG_GETARG_INT32(6);
	claim->one_key = !PG_ARGISNULL(7);
	if (claim->one_key)
		claim->key_hash = PG_GETARG_INT64(7);
	routes = key_routes(fcinfo, PG_NARGS() - 1, claim->one_key ? 1 : claim->nexcluded_keys);
	claim->key_route = routes[0];
	excluded = palloc0(sizeof(OutboxExcludedKey) * Max(claim->nexcluded_keys, 1));
	for (int i = 0; i < claim->nexcluded_keys; i++)
		excluded[i] = (OutboxExcludedKey) {.hash = hashes[i],.route = routes[i],.upto = PG_INT64_MIN};
	claim->excluded_keys = excluded;
	claim->cxt = CurrentMemoryContext;
	claim->visit = receive_message;
	claim->arg = receiver;
	receiver->rsinfo = (ReturnSetInfo *) fcinfo->resultinfo;
	receiver->visits_left = PG_ARGISNULL(8) ? -1 : PG_GETARG_INT32(8);
}

Datum
outbox_test_claim(PG_FUNCTION_ARGS)
{
	OutboxClaim claim;
	Receiver	receiver;
	bool		skipped;

	InitMaterializedSRF(fcinfo, 0);
	fill_claim(fcinfo, &claim, &receiver);
	begin();
	outbox_store_claim_snapshot();
	(void) outbox_store_claim(&claim, &skipped);
	end();
	return (Datum) 0;
}

Datum
outbox_test_claim_way(PG_FUNCTION_ARGS)
{
	MemoryContext old = CurrentMemoryContext;
	char	   *way;

	begin();
	way = MemoryContextStrdup(old, outbox_test_claim_way_now());
	end();
	PG_RETURN_TEXT_P(cstring_to_text(way));
}

Datum
outbox_test_claim_due(PG_FUNCTION_ARGS)
{
	OutboxClaim claim;
	Receiver	receiver;

	InitMaterializedSRF(fcinfo, 0);
	fill_claim(fcinfo, &claim, &receiver);
	begin();
	outbox_store_claim_snapshot();
	(void) outbox_store_claim_due(&claim, PG_GETARG_TIMESTAMPTZ(9), GetCurrentTimestamp());
	end();
	return (Datum) 0;
}

/* Of the last claim. */
Datum
outbox_test_fence_is_commit(PG_FUNCTION_ARGS)
{
	PG_RETURN_BOOL(outbox_store_fence_is_commit());
}

Datum
outbox_test_list(PG_FUNCTION_ARGS)
{
	OutboxClaim claim;
	Receiver	receiver;

	InitMaterializedSRF(fcinfo, 0);
	fill_claim(fcinfo, &claim, &receiver);
	begin();
	outbox_store_claim_snapshot();
	(void) outbox_store_list(&claim, receive_row);
	end();
	return (Datum) 0;
}

Datum
outbox_test_list_retries(PG_FUNCTION_ARGS)
{
	Receiver	receiver = {(ReturnSetInfo *) fcinfo->resultinfo, -1};

	InitMaterializedSRF(fcinfo, 0);
	begin();
	outbox_store_list_retries(PG_GETARG_INT32(0), PG_GETARG_INT32(1),
							  receive_row, &receiver);
	end();
	return (Datum) 0;
}

Datum
outbox_test_visit_failed(PG_FUNCTION_ARGS)
{
	Receiver	receiver = {(ReturnSetInfo *) fcinfo->resultinfo, -1};
	int			n;
	const int64 *hashes = int64s(PG_GETARG_DATUM(0), &n);

	InitMaterializedSRF(fcinfo, 0);
	begin();
	outbox_store_claim_snapshot();
	outbox_store_visit_failed(hashes, key_routes(fcinfo, 1, n), n, receive_row, &receiver);
	end();
	return (Datum) 0;
}

Datum
outbox_test_check_holders(PG_FUNCTION_ARGS)
{
	pg_uuid_t  *ids;
	int			n = uuids(PG_GETARG_DATUM(0), &ids);
	int			nhashes;
	const int64 *hashes = int64s(PG_GETARG_DATUM(1), &nhashes);
	bool	   *still = palloc(Max(n, 1));

	Assert(nhashes == n);
	begin();
	outbox_store_check_holders(ids, hashes, key_routes(fcinfo, 2, n), n, still);
	end();
	return bool_array(still, n);
}

Datum
outbox_test_next_due(PG_FUNCTION_ARGS)
{
	TimestampTz due;

	begin();
	due = outbox_store_next_due(PG_GETARG_TIMESTAMPTZ(0), PG_GETARG_INT64(1));
	end();
	if (due == 0)
		PG_RETURN_NULL();
	PG_RETURN_TIMESTAMPTZ(due);
}

Datum
outbox_test_reach(PG_FUNCTION_ARGS)
{
	int			n = PG_GETARG_INT32(2);
	int64		reached;

	begin();
	reached = outbox_store_reach(PG_GETARG_INT64(0), PG_GETARG_INT64(1), &n);
	end();
	PG_RETURN_TEXT_P(cstring_to_text(psprintf("%lld, %d left", (long long) reached, n)));
}

Datum
outbox_test_last_entry(PG_FUNCTION_ARGS)
{
	int64		last;

	begin();
	last = outbox_store_last_entry();
	end();
	PG_RETURN_INT64(last);
}

/* ------------------------------------------------------------------ settle */

/* The arguments are two arrays: tids, ids. */
static int
settled_rows(FunctionCallInfo fcinfo, OutboxSettled **rows)
{
	Datum	   *tids;
	pg_uuid_t  *ids;
	int			n = uuids(PG_GETARG_DATUM(1), &ids);

	if (array_elements(PG_GETARG_DATUM(0), TIDOID, sizeof(ItemPointerData),
					   false, TYPALIGN_SHORT, &tids) != n)
		elog(ERROR, "arrays differ in length");
	*rows = palloc0(sizeof(OutboxSettled) * Max(n, 1));
	for (int i = 0; i < n; i++)
	{
		(*rows)[i].tid = *(ItemPointer) DatumGetPointer(tids[i]);
		(*rows)[i].id = ids[i];
	}
	return n;
}

static const char *const archives[OUTBOX_ARCHIVES] = {"message", "metadata", "none"};

static OutboxArchive
archive_of(const text *word)
{
	int			i = 0;

	while (strcmp(archives[i], text_to_cstring(word)) != 0)
		if (++i == OUTBOX_ARCHIVES)
			elog(ERROR, "no such archive");
	return (OutboxArchive) i;
}

/* Which of them remain. */
Datum
outbox_test_settle(PG_FUNCTION_ARGS)
{
	OutboxSettled *rows;
	int			n = settled_rows(fcinfo, &rows);
	bool	   *remains = palloc(Max(n, 1));

	begin();
	outbox_store_settle(rows, n, archive_of(PG_GETARG_TEXT_PP(2)), remains);
	end();
	return bool_array(remains, n);
}

/*
 * One failed attempt of each message, all with the same error; given up, they go to
 * the route target if that is not empty.
 */
Datum
outbox_test_fail(PG_FUNCTION_ARGS)
{
	pg_uuid_t  *ids;
	int			n = uuids(PG_GETARG_DATUM(0), &ids);
	char	   *error = VARDATA_ANY(PG_GETARG_BYTEA_PP(1));
	int			len = (int) VARSIZE_ANY_EXHDR(PG_GETARG_BYTEA_PP(1));
	OutboxFailure *failures = palloc0(sizeof(OutboxFailure) * Max(n, 1));
	OutboxDeath death = {.route = "r\303\266ute", .exchange = "x", .routing_key = "a.\"b\"",
		.reason = "returned", .attempts = 3};
	bool	   *remains;

	death.target = text_to_cstring(PG_GETARG_TEXT_PP(4));
	for (int i = 0; i < n; i++)
	{
		failures[i].id = ids[i];
		failures[i].reason = outbox_reason_by_name(text_to_cstring(PG_GETARG_TEXT_PP(5)));
		failures[i].error = pnstrdup(error, len);
		failures[i].retry_ms = PG_GETARG_INT64(2);
		failures[i].final = PG_GETARG_BOOL(3);
		if (death.target[0] != '\0')
			failures[i].death = &death;
	}
	remains = palloc0(sizeof(bool) * Max(n, 1));
	begin();
	outbox_store_fail(failures, n, remains);
	end();
	return bool_array(remains, n);
}

/* ---------------------------------------------------------------- the rest */

Datum
outbox_test_routes(PG_FUNCTION_ARGS)
{
	ReturnSetInfo *rsinfo = (ReturnSetInfo *) fcinfo->resultinfo;
	ListCell   *cell;
	List	   *routes;

	InitMaterializedSRF(fcinfo, 0);
	begin();
	routes = outbox_store_load_routes(CurrentMemoryContext, NULL, NULL);
	foreach(cell, routes)
	{
		OutboxRoute *route = lfirst(cell);
		Datum		values[15];
		bool		nulls[15] = {false};

		values[0] = CStringGetTextDatum(route->name);
		values[1] = CStringGetTextDatum(route->exchange);
		values[2] = text_or_null(route->exchange_type, &nulls[2]);
		values[3] = CStringGetTextDatum(route->routing_key);
		values[4] = Int32GetDatum(route->max_attempts);
		values[5] = BoolGetDatum(route->ordered);
		values[6] = BoolGetDatum(route->block_on_failed);
		values[7] = BoolGetDatum(route->paused);
		values[8] = text_or_null(route->failed_route, &nulls[8]);
		values[9] = Int32GetDatum(route->retention_s);
		values[10] = text_or_null(route->outlet == NULL ? NULL : route->outlet->name, &nulls[10]);
		values[11] = Int32GetDatum(route->numbering);
		values[12] = Int32GetDatum(route->max_pending);
		values[13] = text_or_null(route->slot, &nulls[13]);
		values[14] = CStringGetTextDatum(archives[route->archive]);
		tuplestore_putvalues(rsinfo->setResult, rsinfo->setDesc, values, nulls);
	}
	end();
	return (Datum) 0;
}

Datum
outbox_test_route_versions(PG_FUNCTION_ARGS)
{
	ReturnSetInfo *rsinfo = (ReturnSetInfo *) fcinfo->resultinfo;
	ListCell   *cell;
	List	   *routes;

	InitMaterializedSRF(fcinfo, 0);
	begin();
	routes = outbox_store_load_routes(CurrentMemoryContext, NULL, NULL);
	foreach(cell, routes)
	{
		OutboxRoute *route = lfirst(cell);
		Datum		values[] = {
			CStringGetTextDatum(route->name), Int64GetDatum((int64) route->version)
		};
		bool		nulls[2] = {false};

		tuplestore_putvalues(rsinfo->setResult, rsinfo->setDesc, values, nulls);
	}
	end();
	return (Datum) 0;
}

/* As a worker has them: in a context that outlives an error. */
Datum
outbox_test_keep_routes(PG_FUNCTION_ARGS)
{
	static MemoryContext kept = NULL;
	List	   *routes;

	if (kept == NULL)
		kept = AllocSetContextCreate(TopMemoryContext, "outbox test routes", ALLOCSET_SMALL_SIZES);
	begin();
	routes = outbox_store_load_routes(kept, NULL, NULL);
	end();
	PG_RETURN_INT32(list_length(routes));
}

/* The columns of outbox_route, as src/store/include/route.def has them. */
Datum
outbox_test_route_columns(PG_FUNCTION_ARGS)
{
	static const struct
	{
		const char *name;
		Oid			type;
		bool		checked;
	}			columns[] = {
#define OUTBOX_ROUTE_SETTING(name, type)	{#name, type, true},
#define OUTBOX_ROUTE_ROLES(name, type)	{#name, type, false},
#define OUTBOX_ROUTE_NOTE(name, type)	{#name, type, false},
#include "route.def"
	};
	ReturnSetInfo *rsinfo = (ReturnSetInfo *) fcinfo->resultinfo;

	InitMaterializedSRF(fcinfo, 0);
	for (int i = 0; i < (int) lengthof(columns); i++)
	{
		Datum		values[] = {
			Int32GetDatum(i + 1), CStringGetTextDatum(columns[i].name),
			ObjectIdGetDatum(columns[i].type), BoolGetDatum(columns[i].checked)
		};
		bool		nulls[4] = {false};

		tuplestore_putvalues(rsinfo->setResult, rsinfo->setDesc, values, nulls);
	}
	return (Datum) 0;
}

Datum
outbox_test_paused(PG_FUNCTION_ARGS)
{
	OutboxControl control;

	begin();
	outbox_store_load_control(&control);
	end();
	PG_RETURN_BOOL(control.paused);
}

/* Whether this database is taken for a copy of another. */
Datum
outbox_test_copy(PG_FUNCTION_ARGS)
{
	OutboxControl control;
	bool		copy;

	begin();
	outbox_store_load_control(&control);
	copy = outbox_identity_compare(&control.recorded, false, NULL) != OUTBOX_COPY_NONE;
	/* What was loaded ends here. */
	end();
	PG_RETURN_BOOL(copy);
}

/* Whether messages of that origin may be published. */
Datum
outbox_test_accepts(PG_FUNCTION_ARGS)
{
	OutboxControl control;
	bool		accepts;

	begin();
	outbox_store_load_control(&control);
	accepts = outbox_identity_accepts(&control.recorded, PG_GETARG_INT64(0));
	end();
	PG_RETURN_BOOL(accepts);
}

/* How many prepared transactions the store sees. */
Datum
outbox_test_prepared(PG_FUNCTION_ARGS)
{
	TransactionId *xids;
	int			count;

	(void) fcinfo;
	begin();
	xids = outbox_store_prepared(&count);
	for (int i = 0; i < count; i++)
		if (!TransactionIdIsNormal(xids[i]))
			elog(ERROR, "not the xid of a transaction: %u", xids[i]);
	end();
	PG_RETURN_INT32(count);
}

Datum
outbox_test_maintain(PG_FUNCTION_ARGS)
{
	MemoryContext cxt = CurrentMemoryContext;
	char	   *done;

	begin();
	done = outbox_store_maintain_archive(PG_GETARG_INT32(0), cxt);
	end();
	if (done == NULL)
		PG_RETURN_NULL();
	PG_RETURN_TEXT_P(cstring_to_text(done));
}

/* What is published for a payload. */
Datum
outbox_test_json(PG_FUNCTION_ARGS)
{
	StringInfoData text;

	initStringInfo(&text);
	outbox_encode_json(&text, PG_GETARG_JSONB_P(0));
	PG_RETURN_TEXT_P(cstring_to_text_with_len(text.data, text.len));
}

/* How long that is. */
Datum
outbox_test_json_size(PG_FUNCTION_ARGS)
{
	PG_RETURN_INT64((int64) outbox_json_text_size(PG_GETARG_JSONB_P(0),
												  (size_t) PG_GETARG_INT64(1)));
}
