/*-------------------------------------------------------------------------
 *
 * lease.c
 *		outbox_claim() and its like, for relays outside of the database.
 *
 * Whose right counts is the current user's, as everywhere in the server: in a SECURITY
 * DEFINER function its owner's, and in an expression that ANALYZE evaluates the
 * table's.  It is judged here, before anything but the lease is looked at.  The rest
 * runs as the owner of the tables: a claim in outbox_internal.outbox_claim(), and what
 * became of the messages by the statements and rules of the worker (store.h,
 * outcome.h).
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/table.h"
#include "access/xact.h"
#include "catalog/pg_type.h"
#include "enqueue.h"
#include "executor/spi.h"
#include "fmgr.h"
#include "funcapi.h"
#include "mb/pg_wchar.h"
#include "miscadmin.h"
#include "own_relations.h"
#include "printable_text.h"
#include "store.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/guc.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"
#include "utils/timestamp.h"
#include "utils/tuplestore.h"

PG_FUNCTION_INFO_V1(outbox_claim);
PG_FUNCTION_INFO_V1(outbox_ack);
PG_FUNCTION_INFO_V1(outbox_nack);
PG_FUNCTION_INFO_V1(outbox_extend);
PG_FUNCTION_INFO_V1(outbox_release);
PG_FUNCTION_INFO_V1(outbox_ids_given);

/* A call that is about a lease, from begin to end. */
typedef struct LeaseCall
{
	Relation	rel;			/* outbox */
	OutboxActing acting;
	OutboxLease lease;
	OutboxRoute route;			/* what outcome.h asks for, as UTF-8 */
} LeaseCall;

/* ---------------------------------------------------------- whose right counts */

/*
 * To see whose it is.  The statements lock it for what they do, when they do it: a
 * claim that finds nothing waits for nobody, and who acknowledges has the lease first.
 */
static Relation
open_table(void)
{
	return table_open(outbox_relation(OUTBOX_REL_OUTBOX), AccessShareLock);
}

/* user: the current one, before the call acts as the owner. */
static const OutboxRoute *
judge(Relation rel, const char *route, Oid user)
{
	return outbox_relay_route(rel->rd_rel->relowner,
							  route, user);
}

static char *
utf8(const char *str)
{
	return str == NULL ? NULL :
		pg_server_to_any(pstrdup(str), (int) strlen(str), PG_UTF8);
}

/* A copy: whatever changes the table makes the session forget its routes. */
static void
copy_route(OutboxRoute *to, const OutboxRoute *from)
{
	to->name = utf8(from->name);
	to->exchange = utf8(from->exchange);
	to->routing_key = utf8(from->routing_key);
	to->failed_route = utf8(from->failed_route);
	to->ordered = from->ordered;
	to->max_attempts = from->max_attempts;
	to->retention_s = from->retention_s;
	to->archive = from->archive;
}

/*
 * Statistics of a queue say nothing, so statements go by the indexes that were made
 * for them.
 */
static void
plan_by_index(void)
{
	static const char *const off[] = {"enable_seqscan", "enable_bitmapscan", "jit"};

	for (int i = 0; i < (int) lengthof(off); i++)
		(void) set_config_option(off[i], "off", PGC_USERSET, PGC_S_SESSION,
								 GUC_ACTION_SAVE, true, 0, false);
}

/* Argument 0 is the token.  Locks the lease; acts as the owner from then on. */
static void
begin_call(LeaseCall *call, FunctionCallInfo fcinfo)
{
	Oid			user = GetUserId();

	if (PG_ARGISNULL(0))
		ereport(ERROR,
				(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
				 errmsg("token must not be null")));
	memset(call, 0, sizeof(*call));
	call->rel = open_table();
	SPI_connect();
	outbox_act_begin(&call->acting, call->rel->rd_rel->relowner, false);
	plan_by_index();
	if (!outbox_store_lock_lease(PG_GETARG_INT64(0), &call->lease))
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("lease " INT64_FORMAT " is not held any more",
						PG_GETARG_INT64(0)),
				 errdetail("All of it was acknowledged, nacked or released, or it has expired and was taken over."),
				 errhint("Claim again: what is not acknowledged comes once more.")));
	copy_route(&call->route, judge(call->rel, call->lease.route, user));
}

static void
end_call(LeaseCall *call)
{
	outbox_act_end(&call->acting);
	SPI_finish();
	table_close(call->rel, NoLock);
}

static int
compare_spans(const Interval *a, const Interval *b)
{
	return DatumGetInt32(DirectFunctionCall2(interval_cmp, IntervalPGetDatum(a),
											 IntervalPGetDatum(b)));
}

static void
check_lease_time(const Interval *span)
{
	static const Interval none;
	static const Interval day = {.day = 1};

	if (span == NULL || compare_spans(span, &none) <= 0 || compare_spans(span, &day) > 0)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("lease must be more than 0 and at most a day")));
}

/* ------------------------------------------------------------------ claiming */

/*
 * The relay publishes what it has got, or extended, once this has committed: then it must
 * be on disk, and with it what was enqueued and acknowledged before.  The setting, which
 * standbys count by, ends with a function that has SET its own; the disk is waited for all
 * the same.
 */
static void
commit_durably(void)
{
	ForceSyncCommit();
	if (synchronous_commit < SYNCHRONOUS_COMMIT_REMOTE_FLUSH)
		(void) set_config_option("synchronous_commit", "on", PGC_USERSET,
								 PGC_S_SESSION, GUC_ACTION_LOCAL, true, 0, false);
}

#define CLAIM_ARGS	4

Datum
outbox_claim(PG_FUNCTION_ARGS)
{
	static OutboxKeptPlan kept;
	ReturnSetInfo *rsinfo = (ReturnSetInfo *) fcinfo->resultinfo;
	Relation	rel = open_table();
	Oid			types[CLAIM_ARGS] = {TEXTOID, INT4OID, INTERVALOID, TEXTOID};
	Datum		values[CLAIM_ARGS];
	char		nulls[CLAIM_ARGS];
	OutboxActing acting;

	(void) judge(rel, PG_ARGISNULL(0) ? NULL : text_to_cstring(PG_GETARG_TEXT_PP(0)),
				 GetUserId());
	check_lease_time(PG_ARGISNULL(2) ? NULL : PG_GETARG_INTERVAL_P(2));
	commit_durably();
	InitMaterializedSRF(fcinfo, 0);
	for (int i = 0; i < CLAIM_ARGS; i++)
	{
		nulls[i] = PG_ARGISNULL(i) ? 'n' : ' ';
		values[i] = PG_ARGISNULL(i) ? (Datum) 0 : PG_GETARG_DATUM(i);
	}
	SPI_connect();
	outbox_act_begin(&acting, rel->rd_rel->relowner, false);
	if (outbox_kept_plan_execute(&kept,
								 "SELECT * FROM outbox_internal.outbox_claim($1::pg_catalog.text,"
								 " $2::pg_catalog.int4, $3::pg_catalog.interval, $4::pg_catalog.text)",
								 CLAIM_ARGS, types, values, nulls,
								 false) != SPI_OK_SELECT)
		elog(ERROR, "could not call outbox_claim()");
	outbox_act_end(&acting);
	for (uint64 i = 0; i < SPI_processed; i++)
		tuplestore_puttuple(rsinfo->setResult, SPI_tuptable->vals[i]);
	SPI_finish();
	table_close(rel, NoLock);
	return (Datum) 0;
}

Datum
outbox_extend(PG_FUNCTION_ARGS)
{
	LeaseCall	call;
	TimestampTz until;

	begin_call(&call, fcinfo);
	check_lease_time(PG_ARGISNULL(1) ? NULL : PG_GETARG_INTERVAL_P(1));
	until = outbox_store_extend_lease(call.lease.token, PG_GETARG_DATUM(1));
	commit_durably();
	end_call(&call);
	PG_RETURN_TIMESTAMPTZ(until);
}

/* ---------------------------------------------- what became of the messages */

/*
 * NULL is no way to say "all ids": it is what a client has whose list went missing.
 * And an empty list is a list of none.  So the default is an array that no client
 * makes: one NULL, counted from 0.
 */
static bool
is_default(ArrayType *array)
{
	return ARR_NDIM(array) == 1 && ARR_LBOUND(array)[0] == 0 &&
		ARR_DIMS(array)[0] == 1 && array_contains_nulls(array);
}

/* NULL for the default. */
static ArrayType *
given_ids(FunctionCallInfo fcinfo, int argument)
{
	ArrayType  *array = PG_ARGISNULL(argument) ? NULL :
		PG_GETARG_ARRAYTYPE_P(argument);

	if (array != NULL && is_default(array))
		return NULL;
	if (array == NULL || array_contains_nulls(array))
		ereport(ERROR,
				(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
				 errmsg("ids must not be null or contain null"),
				 errhint("Leave the argument out for messages of any id; an empty array is none.")));
	return array;
}

/* qsort() and bsearch() */
static int
compare_ids(const void *a, const void *b)
{
	return memcmp(DatumGetUUIDP(*(const Datum *) a), DatumGetUUIDP(*(const Datum *) b), UUID_LEN);
}

/* For functions in SQL: false for the default, which stands for all. */
Datum
outbox_ids_given(PG_FUNCTION_ARGS)
{
	PG_RETURN_BOOL(given_ids(fcinfo, 0) != NULL);
}

/* Which of the lease are meant by argument 1, ids. */
static bool *
mark_given(const LeaseCall *call, FunctionCallInfo fcinfo)
{
	const OutboxLease *lease = &call->lease;
	ArrayType  *array = given_ids(fcinfo, 1);
	bool	   *marks = palloc(sizeof(bool) * lease->n);
	Datum	   *ids = NULL;
	int			n = 0;

	if (array != NULL)
	{
		deconstruct_array(array, UUIDOID, UUID_LEN, false, TYPALIGN_CHAR, &ids, NULL, &n);
		qsort(ids, n, sizeof(Datum), compare_ids);
	}
	for (int i = 0; i < lease->n; i++)
	{
		Datum		id = UUIDPGetDatum(&lease->ids[i]);

		marks[i] = array == NULL || bsearch(&id, ids, n, sizeof(Datum), compare_ids) != NULL;
	}
	return marks;
}

Datum
outbox_ack(PG_FUNCTION_ARGS)
{
	LeaseCall	call;
	bool	   *marks;
	pg_uuid_t  *published;
	int			n = 0;
	int			settled;

	begin_call(&call, fcinfo);
	marks = mark_given(&call, fcinfo);
	published = palloc(sizeof(pg_uuid_t) * call.lease.n);
	for (int i = 0; i < call.lease.n; i++)
		if (marks[i])
			published[n++] = call.lease.ids[i];
	settled = outbox_store_settle_waiting(RelationGetRelid(call.rel), published, n,
										  outbox_archived(&call.route));
	outbox_store_shorten_lease(&call.lease, marks);
	end_call(&call);
	PG_RETURN_INT32(settled);
}

/*
 * A message that leaves the lease unpublished takes along the later ones of its key,
 * which have to wait for it now.
 */
static void
mark_later(const LeaseCall *call, int place, bool *gone)
{
	const OutboxLease *lease = &call->lease;

	if (!call->route.ordered || lease->no_key[place])
		return;
	for (int i = place + 1; i < lease->n; i++)
		if (!lease->no_key[i] &&
			DatumGetInt64(lease->keys[i]) == DatumGetInt64(lease->keys[place]))
			gone[i] = true;
}

Datum
outbox_release(PG_FUNCTION_ARGS)
{
	LeaseCall	call;
	bool	   *marks;
	bool	   *gone;
	int			n = 0;

	begin_call(&call, fcinfo);
	marks = mark_given(&call, fcinfo);
	gone = palloc0(sizeof(bool) * Max(call.lease.n, 1));
	for (int i = 0; i < call.lease.n; i++)
		if (marks[i] && !gone[i])
		{
			gone[i] = true;
			mark_later(&call, i, gone);
		}
	for (int i = 0; i < call.lease.n; i++)
		n += gone[i];
	outbox_store_shorten_lease(&call.lease, gone);
	end_call(&call);
	PG_RETURN_INT32(n);
}

/* ------------------------------------------------------------ failed attempts */

static void
take_out(const LeaseCall *call, const pg_uuid_t *id)
{
	const OutboxLease *lease = &call->lease;
	bool	   *gone = palloc0(sizeof(bool) * lease->n);
	int			place = 0;

	while (place < lease->n && memcmp(&lease->ids[place], id, UUID_LEN) != 0)
		place++;
	if (place == lease->n)
		ereport(ERROR,
				(errcode(ERRCODE_NO_DATA_FOUND),
				 errmsg("message \"%s\" is not in lease " INT64_FORMAT,
						outbox_id_text(id),
						lease->token),
				 errdetail("It was acknowledged, nacked or released, or left with an earlier message of its key.")));
	gone[place] = true;
	mark_later(call, place, gone);
	outbox_store_shorten_lease(lease, gone);
}

static void
check_retry_in(const Interval *span)
{
	static const Interval none;
	static const Interval year = {.month = 12};

	if (compare_spans(span, &none) < 0 || compare_spans(span, &year) > 0)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("retry_in must be from 0 to a year")));
}

static int64
wait_ms(const Interval *span)
{
	TimestampTz now = GetCurrentTimestamp();
	Datum		until = DirectFunctionCall2(timestamptz_pl_interval,
											TimestampTzGetDatum(now),
											IntervalPGetDatum(span));

	return (DatumGetTimestampTz(until) - now + 999) / 1000;
}

/*
 * Sends what is given up to the failed_route.  NULL when it is there, else why that
 * route cannot have it: the row trigger says so, as to everything that enters a route.
 */
static char *
move(OutboxFailure *failure)
{
	MemoryContext context = CurrentMemoryContext;
	ResourceOwner owner = CurrentResourceOwner;
	ErrorData  *error = NULL;
	bool		remains;
	int			class;

	BeginInternalSubTransaction(NULL);
	MemoryContextSwitchTo(context);
	PG_TRY();
	{
		(void) outbox_store_fail(failure, 1, &remains);
		ReleaseCurrentSubTransaction();
	}
	PG_CATCH();
	{
		MemoryContextSwitchTo(context);
		error = CopyErrorData();
		FlushErrorState();
		RollbackAndReleaseCurrentSubTransaction();
	}
	PG_END_TRY();
	MemoryContextSwitchTo(context);
	CurrentResourceOwner = owner;
	if (error == NULL)
		return remains ? pstrdup("it is not there") : NULL;
	class = ERRCODE_TO_CATEGORY(error->sqlerrcode);
	if (class != ERRCODE_DATA_EXCEPTION &&
		class != ERRCODE_PROGRAM_LIMIT_EXCEEDED &&
		error->sqlerrcode != ERRCODE_UNDEFINED_OBJECT)
		ReThrowError(error);
	return outbox_printable_string(error->message, strlen(error->message));
}

/* Counts the attempt; returns what the message is now. */
static const char *
fail(const LeaseCall *call, const OutboxMessage *message, OutboxFailure *failure)
{
	bool		remains;

	if (failure->final && call->route.failed_route != NULL)
	{
		char	   *why;

		failure->death = outbox_death(message, &call->route, call->route.failed_route,
									  "rejected");
		why = move(failure);
		if (why == NULL)
			return "moved";
		failure->death = NULL;
		failure->error = psprintf("%s (not sent to the failed_route: %s)",
								  failure->error, outbox_printable_utf8(why));
	}
	(void) outbox_store_fail(failure, 1, &remains);
	return failure->final ? "failed" : "pending";
}

Datum
outbox_nack(PG_FUNCTION_ARGS)
{
	LeaseCall	call;
	OutboxMessage message;
	OutboxFailure failure;
	const char *result = NULL;

	begin_call(&call, fcinfo);
	if (PG_ARGISNULL(2))
		ereport(ERROR,
				(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
				 errmsg("error must not be null")));
	if (!PG_ARGISNULL(3))
		check_retry_in(PG_GETARG_INTERVAL_P(3));
	if (PG_ARGISNULL(1))
		ereport(ERROR,
				(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
				 errmsg("id must not be null")));
	take_out(&call, PG_GETARG_UUID_P(1));
	if (outbox_store_lock_message(PG_GETARG_UUID_P(1), &message))
	{
		char	   *error = outbox_printable_utf8(outbox_printable_text(PG_GETARG_DATUM(2)));

		failure = outbox_failure(&message, &call.route, OUTBOX_REASON_EXTERNAL_NACK,
								 error, false);
		failure.error_is_text = true;
		if (!PG_ARGISNULL(3))
			failure.retry_ms = wait_ms(PG_GETARG_INTERVAL_P(3));
		result = fail(&call, &message, &failure);
	}
	end_call(&call);
	if (result == NULL)
		PG_RETURN_NULL();
	PG_RETURN_TEXT_P(cstring_to_text(result));
}
