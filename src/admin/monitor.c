/*-------------------------------------------------------------------------
 *
 * monitor.c
 *		Set-returning functions behind the views.
 *
 * Slots are copied under their lock and formatted outside of it.  Only the
 * current database's are shown.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "access/xlog.h"
#include "fmgr.h"
#include "funcapi.h"
#include "miscadmin.h"
#include "own_version.h"
#include "reason_advice.h"
#include "settings.h"
#include "shared.h"
#include "storage/proc.h"
#include "storage/procarray.h"
#include "utils/builtins.h"
#include "utils/timestamp.h"
#include "utils/tuplestore.h"
#include "utils/wait_event.h"

PG_FUNCTION_INFO_V1(outbox_version);
PG_FUNCTION_INFO_V1(outbox_claims);
PG_FUNCTION_INFO_V1(outbox_locked_claims);
PG_FUNCTION_INFO_V1(outbox_unreadable_rows);
PG_FUNCTION_INFO_V1(outbox_worker_stats);
PG_FUNCTION_INFO_V1(outbox_relay_state);
PG_FUNCTION_INFO_V1(outbox_launcher_state);
PG_FUNCTION_INFO_V1(outbox_worker_restart);

/* Commits that wait no longer for a standby are ordinary ones. */
#define STANDBY_WAIT_MS	1000

/* What the views show of a slot. */
typedef struct SlotCopy
{
	int			worker;
	int			pid;
	int			nworkers;
	int			broken_routes;
	OutboxWorkerState state;
	TimestampTz since;
	TimestampTz started_at;
	TimestampTz last_error_at;
	TimestampTz archive_error_since;
	uint32		in_flight;
	char		broker[OUTBOX_TEXT_SIZE];
	char		last_error[OUTBOX_TEXT_SIZE];
	char		archive_error[OUTBOX_TEXT_SIZE];
	OutboxCurrentError error;	/* the one that explains the state, if any
								 * does */
	OutboxCurrentError twin;
	TimestampTz tls_not_after;
	int64		clock_jump_ms;
	TimestampTz clock_jumped_at;
} SlotCopy;

Datum
outbox_version(PG_FUNCTION_ARGS)
{
	(void) fcinfo;
	PG_RETURN_TEXT_P(cstring_to_text(outbox_library_version()));
}

/*
 * A commit that waits for a synchronous standby lasts until that is there, and
 * the worker cannot say so while it waits: ask the server what it waits for.
 */
static bool
waits_for_standby(int pid, TimestampTz commit_since)
{
	PGPROC	   *proc;

	if (pid == 0 || commit_since == 0 ||
		!TimestampDifferenceExceeds(commit_since, GetCurrentTimestamp(),
									STANDBY_WAIT_MS))
		return false;
	proc = BackendPidGetProc(pid);
	return proc != NULL && proc->wait_event_info == WAIT_EVENT_SYNC_REP;
}

/*
 * The error that explains the state; else the first current error: a worker
 * that is paused may have no broker either.
 */
static const OutboxCurrentError *
error_of_state(const OutboxSlot *slot)
{
	const OutboxCurrentError *first = NULL;
	int			preferred = -1;

	if (slot->state == OUTBOX_WORKER_DATABASE_ERROR)
		preferred = OUTBOX_ERROR_DATABASE;
	else if (slot->state == OUTBOX_WORKER_BROKER_DOWN ||
			 slot->state == OUTBOX_WORKER_CONNECTING ||
			 slot->state == OUTBOX_WORKER_BLOCKED)
		preferred = OUTBOX_ERROR_LINK;
	for (int i = OUTBOX_ERROR_TWIN - 1; i >= 0; i--)
		if (slot->errors[i].reason != OUTBOX_REASON_NONE)
		{
			first = &slot->errors[i];
			if (i == preferred)
				return first;
		}
	return first;
}

/* False when the slot is not one of this database. */
static bool
copy_slot(OutboxSlot *slot, SlotCopy *copy)
{
	bool		ours;
	TimestampTz commit_since;
	const OutboxCurrentError *error;

	SpinLockAcquire(&slot->mutex);
	ours = slot->in_use && slot->dboid == MyDatabaseId;
	copy->worker = slot->worker;
	copy->pid = slot->pid;
	copy->nworkers = slot->nworkers;
	copy->broken_routes = slot->broken_routes;
	copy->state = slot->state;
	copy->since = slot->since;
	commit_since = slot->commit_since;
	copy->started_at = slot->started_at;
	copy->last_error_at = slot->last_error_at;
	memcpy(copy->broker, slot->broker, sizeof(copy->broker));
	memcpy(copy->last_error, slot->last_error, sizeof(copy->last_error));
	copy->archive_error_since = slot->archive_error_since;
	memcpy(copy->archive_error, slot->archive_error, sizeof(copy->archive_error));
	error = error_of_state(slot);
	copy->error.reason = OUTBOX_REASON_NONE;
	if (error != NULL)
		copy->error = *error;
	copy->twin = slot->errors[OUTBOX_ERROR_TWIN];
	copy->tls_not_after = slot->tls_not_after;
	copy->clock_jump_ms = slot->clock_jump_ms;
	copy->clock_jumped_at = slot->clock_jumped_at;
	SpinLockRelease(&slot->mutex);
	copy->in_flight = pg_atomic_read_u32(&slot->counters.in_flight);
	if (ours && waits_for_standby(copy->pid, commit_since))
	{
		copy->state = OUTBOX_WORKER_WAITS_STANDBY;
		copy->since = commit_since;
	}
	return ours;
}

static Datum
text_or_null(const char *str, bool *isnull)
{
	*isnull = str == NULL || str[0] == '\0';
	return *isnull ? (Datum) 0 : CStringGetTextDatum(str);
}

static Datum
time_or_null(TimestampTz t, bool *isnull)
{
	*isnull = t == 0;
	return TimestampTzGetDatum(t);
}

static Datum
interval_or_null(int64 ms, bool *isnull)
{
	Interval   *interval = palloc0(sizeof(Interval));

	interval->time = ms * 1000;
	*isnull = ms == 0;
	return IntervalPGetDatum(interval);
}

#define CLAIM_COLS 2

Datum
outbox_claims(PG_FUNCTION_ARGS)
{
	ReturnSetInfo *rsinfo = (ReturnSetInfo *) fcinfo->resultinfo;

	InitMaterializedSRF(fcinfo, 0);
	for (int i = 0; outbox_shared != NULL && i < outbox_shared->nslots; i++)
	{
		OutboxSlot *slot = &outbox_shared->slots[i];

		if (!slot->in_use || slot->dboid != MyDatabaseId)
			continue;
		for (int j = 0; j < OUTBOX_MAX_CLAIMS; j++)
		{
			uint64		claim = pg_atomic_read_u64(&slot->claims[j]);
			Datum		values[CLAIM_COLS];
			bool		nulls[CLAIM_COLS] = {false, false};

			if (claim == 0)
				continue;
			values[0] = Int64GetDatum(OUTBOX_CLAIM_HASH(claim));
			values[1] = BoolGetDatum(OUTBOX_CLAIM_IN_FLIGHT(claim));
			tuplestore_putvalues(rsinfo->setResult, rsinfo->setDesc, values,
								 nulls);
		}
	}
	return (Datum) 0;
}

#define LOCKED_COLS 7

/*
 * Rows of this database that its workers have found locked; whether they still are,
 * and by whom, outbox_locked_rows() finds out.
 */
Datum
outbox_locked_claims(PG_FUNCTION_ARGS)
{
	ReturnSetInfo *rsinfo = (ReturnSetInfo *) fcinfo->resultinfo;

	InitMaterializedSRF(fcinfo, 0);
	for (int i = 0; outbox_shared != NULL && i < outbox_shared->nslots; i++)
	{
		OutboxSlot *slot = &outbox_shared->slots[i];
		OutboxLockedId locked[2 * OUTBOX_LOCKED_IDS];
		int32		unsettled = (int32) pg_atomic_read_u32(&slot->counters.locked);
		bool		ours;
		int			worker;

		SpinLockAcquire(&slot->mutex);
		ours = slot->in_use && slot->dboid == MyDatabaseId;
		worker = slot->worker;
		memcpy(locked, slot->locked, sizeof(locked));
		SpinLockRelease(&slot->mutex);
		for (int j = 0; ours && j < (int) lengthof(locked); j++)
		{
			Datum		values[LOCKED_COLS];
			bool		nulls[LOCKED_COLS] = {false};

			if (!outbox_mono_is_set(locked[j].seen))
				continue;
			values[0] = Int32GetDatum(worker);
			values[1] = UUIDPGetDatum(&locked[j].id);
			values[2] = Int64GetDatum(locked[j].seq);
			values[3] = TimestampTzGetDatum(locked[j].since);
			values[4] = Int32GetDatum(locked[j].in_flight);
			values[5] = Int32GetDatum(unsettled);
			values[6] = BoolGetDatum(unsettled >= OUTBOX_LOCKED_MAX + outbox_window);
			tuplestore_putvalues(rsinfo->setResult, rsinfo->setDesc, values,
								 nulls);
		}
	}
	return (Datum) 0;
}

#define UNREADABLE_COLS 7

/* Rows of this database that its workers have set aside, as they cannot be read. */
Datum
outbox_unreadable_rows(PG_FUNCTION_ARGS)
{
	ReturnSetInfo *rsinfo = (ReturnSetInfo *) fcinfo->resultinfo;
	OutboxUnreadableId *rows = palloc(sizeof(OutboxUnreadableId) * OUTBOX_UNREADABLE_SHOWN);

	InitMaterializedSRF(fcinfo, 0);
	for (int i = 0; outbox_shared != NULL && i < outbox_shared->nslots; i++)
	{
		OutboxSlot *slot = &outbox_shared->slots[i];
		int			count = 0;
		int			worker;

		SpinLockAcquire(&slot->mutex);
		if (slot->in_use && slot->dboid == MyDatabaseId)
			count = slot->unreadable_count;
		worker = slot->worker;
		if (count > 0)
			memcpy(rows, slot->unreadable, sizeof(slot->unreadable));
		SpinLockRelease(&slot->mutex);
		for (int j = 0; j < Min(count, OUTBOX_UNREADABLE_SHOWN); j++)
		{
			Datum		values[UNREADABLE_COLS];
			bool		nulls[UNREADABLE_COLS] = {false};

			values[0] = Int32GetDatum(worker);
			values[1] = Int64GetDatum(rows[j].seq);
			values[2] = UUIDPGetDatum(&rows[j].id);
			values[3] = TimestampTzGetDatum(rows[j].since);
			values[4] = CStringGetTextDatum(rows[j].text);
			values[5] = CStringGetTextDatum(rows[j].sqlstate);
			values[6] = Int32GetDatum(count);
			tuplestore_putvalues(rsinfo->setResult, rsinfo->setDesc, values,
								 nulls);
		}
	}
	return (Datum) 0;
}

#define STATS_COLS 27

/* reason, reason_text, reason_since, sqlstate, tls_not_after, clock_jump, clock_jumped_at, twin, twin_since */
static int
put_error(const SlotCopy *copy, Datum *values, bool *nulls)
{
	const OutboxCurrentError *error = &copy->error;
	bool		none = error->reason == OUTBOX_REASON_NONE;
	bool		alone = copy->twin.reason == OUTBOX_REASON_NONE;

	values[0] = text_or_null(outbox_reason_name(error->reason), &nulls[0]);
	values[1] = text_or_null(none ? NULL : error->text, &nulls[1]);
	values[2] = time_or_null(none ? 0 : error->since, &nulls[2]);
	values[3] = text_or_null(none ? NULL : error->sqlstate, &nulls[3]);
	values[4] = time_or_null(copy->tls_not_after, &nulls[4]);
	values[5] = interval_or_null(copy->clock_jump_ms, &nulls[5]);
	values[6] = time_or_null(copy->clock_jumped_at, &nulls[6]);
	values[7] = text_or_null(alone ? NULL : copy->twin.text, &nulls[7]);
	values[8] = time_or_null(alone ? 0 : copy->twin.since, &nulls[8]);
	return 9;
}

Datum
outbox_worker_stats(PG_FUNCTION_ARGS)
{
	ReturnSetInfo *rsinfo = (ReturnSetInfo *) fcinfo->resultinfo;

	InitMaterializedSRF(fcinfo, 0);
	for (int i = 0; outbox_shared != NULL && i < outbox_shared->nslots; i++)
	{
		OutboxSlot *slot = &outbox_shared->slots[i];
		OutboxCounters *counters = &slot->counters;
		SlotCopy	copy;
		Datum		values[STATS_COLS];
		bool		nulls[STATS_COLS];
		int			n = 0;

		if (!copy_slot(slot, &copy))
			continue;
		memset(nulls, 0, sizeof(nulls));
		values[n++] = Int32GetDatum(copy.worker);
		nulls[n] = copy.pid == 0;
		values[n++] = Int32GetDatum(copy.pid);
		values[n++] = CStringGetTextDatum(outbox_worker_state_name(copy.state));
		values[n] = text_or_null(copy.broker, &nulls[n]);
		n++;
		values[n] = time_or_null(copy.since, &nulls[n]);
		n++;
		values[n] = time_or_null(copy.started_at, &nulls[n]);
		n++;
		values[n++] = Int32GetDatum((int32) pg_atomic_read_u32(&counters->claimed));
		values[n++] = Int32GetDatum((int32) copy.in_flight);
		values[n++] = Int64GetDatum((int64) pg_atomic_read_u64(&counters->published));
		values[n++] = Int64GetDatum((int64) pg_atomic_read_u64(&counters->returned));
		values[n++] = Int64GetDatum((int64) pg_atomic_read_u64(&counters->nacked));
		values[n++] = Int64GetDatum((int64) pg_atomic_read_u64(&counters->failed));
		values[n++] = Int64GetDatum((int64) pg_atomic_read_u64(&counters->retried));
		values[n++] = Int64GetDatum((int64) pg_atomic_read_u64(&counters->reconnects));
		values[n] = text_or_null(copy.last_error, &nulls[n]);
		n++;
		values[n] = time_or_null(copy.last_error_at, &nulls[n]);
		n++;
		values[n] = text_or_null(copy.archive_error, &nulls[n]);
		n++;
		values[n] = time_or_null(copy.archive_error_since, &nulls[n]);
		n++;
		n += put_error(&copy, &values[n], &nulls[n]);
		Assert(n == STATS_COLS);
		tuplestore_putvalues(rsinfo->setResult, rsinfo->setDesc, values, nulls);
	}
	return (Datum) 0;
}

/* Is the state explained by the worker's current error? */
static bool
state_has_reason(OutboxWorkerState state)
{
	return state == OUTBOX_WORKER_BROKER_DOWN ||
		state == OUTBOX_WORKER_BLOCKED ||
		state == OUTBOX_WORKER_CONFIG_ERROR ||
		state == OUTBOX_WORKER_DATABASE_ERROR;
}

/* What to do about a state; NULL when nothing is wrong. */
static const char *
state_hint(const SlotCopy *copy)
{
	if (state_has_reason(copy->state) &&
		copy->error.reason != OUTBOX_REASON_NONE)
		return outbox_reason_advice(copy->error.reason)->hint;
	switch (copy->state)
	{
		case OUTBOX_WORKER_BROKER_DOWN:
			return "See last_error. Messages wait and the relay reconnects by itself; check that RabbitMQ runs at the address of outbox.broker_uri and accepts the login.";
		case OUTBOX_WORKER_BLOCKED:
			return "RabbitMQ has a memory or disk alarm and accepts no messages; look at the broker with rabbitmq-diagnostics alarms. Publishing resumes by itself.";
		case OUTBOX_WORKER_PAUSED:
			return "Call outbox_resume() to publish again.";
		case OUTBOX_WORKER_NOT_ADOPTED:
			return "This database is a copy (restored dump, template, pg_upgrade), or got messages of another one (logical replication). Discard what must not be published twice, then call outbox_adopt().";
		case OUTBOX_WORKER_OTHER_ENVIRONMENT:
			return "This server's outbox.environment is not the one that its messages belong to, see last_error. If it is a copy of another server, look at what is pending and discard what must not be published twice. Call outbox_adopt() when this server is to publish.";
		case OUTBOX_WORKER_RESTORED:
			return "This server was restored to a point in time, and some of its messages may have been published after that, see last_error. Discard what must not be published twice, then call outbox_adopt().";
		case OUTBOX_WORKER_DISABLED:
			return "Set outbox.enabled to on and reload the configuration.";
		case OUTBOX_WORKER_CONFIG_ERROR:
			return "See last_error; correct the setting (outbox.broker_uri, outbox.passfile, outbox.environment) and reload the configuration.";
		case OUTBOX_WORKER_DATABASE_ERROR:
			return "See last_error and the server log; the relay tries again by itself.";
		case OUTBOX_WORKER_WAITS_STANDBY:
			return "A standby of synchronous_standby_names is missing, and nothing is published that it does not have. Bring it back, or change synchronous_standby_names.";
		case OUTBOX_WORKER_EXTENSION_OLDER:
			return "The extension is older than the library: run ALTER EXTENSION outbox UPDATE in this database.";
		case OUTBOX_WORKER_EXTENSION_NEWER:
			return "The library that is loaded is older than the extension: install the package of the extension's version and restart the server.";
		case OUTBOX_WORKER_STOPPING:
		case OUTBOX_WORKER_STOPPED:
			return "A worker is leaving; the launcher starts another one at once, unless the server is being stopped.";
		default:
			return NULL;
	}
}

/* The higher, the more a person should know of it. */
static int
state_severity(OutboxWorkerState state)
{
	static const OutboxWorkerState order[] = {
		OUTBOX_WORKER_IDLE, OUTBOX_WORKER_PUBLISHING, OUTBOX_WORKER_STOPPED,
		OUTBOX_WORKER_STOPPING, OUTBOX_WORKER_STARTING,
		OUTBOX_WORKER_CONNECTING, OUTBOX_WORKER_BLOCKED,
		OUTBOX_WORKER_BROKER_DOWN, OUTBOX_WORKER_WAITS_STANDBY,
		OUTBOX_WORKER_DATABASE_ERROR,
		OUTBOX_WORKER_PAUSED, OUTBOX_WORKER_NOT_ADOPTED,
		OUTBOX_WORKER_OTHER_ENVIRONMENT, OUTBOX_WORKER_RESTORED,
		OUTBOX_WORKER_DISABLED,
		OUTBOX_WORKER_CONFIG_ERROR,
		OUTBOX_WORKER_EXTENSION_OLDER, OUTBOX_WORKER_EXTENSION_NEWER
	};

	for (int i = 0; i < (int) lengthof(order); i++)
		if (order[i] == state)
			return i;
	return 0;
}

/* What the workers of this database say together. */
typedef struct Summary
{
	int			nslots;
	int			running;
	int			wanted;			/* outbox.workers, as they have it */
	bool		broken_routes;
	bool		twin;
	int64		in_flight;
	SlotCopy	worst;			/* whose state most needs a look */
	SlotCopy	teller;			/* whose error says most about it */
} Summary;

/* Of equal states the one that has lasted longest, for alerts ask for that. */
static bool
is_worse(const SlotCopy *a, const SlotCopy *b)
{
	int			diff = state_severity(a->state) - state_severity(b->state);

	if (diff != 0)
		return diff > 0;
	/* 0: registered and not there yet */
	return a->since != 0 && (b->since == 0 || a->since < b->since);
}

/*
 * The last error stays when it is over, so that of a worker with an error now comes before a
 * newer one of a worker that is well.
 */
static bool
tells_more(const SlotCopy *a, const SlotCopy *b)
{
	int			rank_a = state_hint(a) != NULL ? state_severity(a->state) : 0;
	int			rank_b = state_hint(b) != NULL ? state_severity(b->state) : 0;

	if (rank_a != rank_b)
		return rank_a > rank_b;
	if ((a->broken_routes > 0) != (b->broken_routes > 0))
		return a->broken_routes > 0;
	return a->last_error_at > b->last_error_at;
}

static void
summarize(Summary *sum)
{
	memset(sum, 0, sizeof(*sum));
	for (int i = 0; outbox_shared != NULL && i < outbox_shared->nslots; i++)
	{
		SlotCopy	copy;

		if (!copy_slot(&outbox_shared->slots[i], &copy))
			continue;
		if (copy.pid != 0)
			sum->running++;
		sum->wanted = Max(sum->wanted, copy.nworkers);
		sum->broken_routes |= copy.broken_routes > 0;
		sum->twin |= copy.twin.reason != OUTBOX_REASON_NONE;
		sum->in_flight += copy.in_flight;
		if (sum->nslots++ == 0 || is_worse(&copy, &sum->worst))
			sum->worst = copy;
		if (copy.last_error_at != 0 &&
			(sum->teller.last_error_at == 0 || tells_more(&copy, &sum->teller)))
			sum->teller = copy;
	}
}

/* State and hint when no worker can say them. */
static const char *
absent_state(const char **hint)
{
	if (outbox_shared == NULL)
	{
		*hint = "Add outbox to shared_preload_libraries and restart the server. Until then messages are stored and not published.";
		return "not preloaded";
	}
	if (RecoveryInProgress())
	{
		*hint = "The relay runs on the primary; it starts here after promotion.";
		return "standby";
	}
	if (outbox_shared->launcher_procno < 0)
		*hint = "The outbox launcher does not run, so that nobody starts workers. The server starts it again within 5 seconds; if this lasts, the server log says why: with too few max_worker_processes it was not even registered.";
	else if (outbox_shared->out_of_workers)
		*hint = outbox_workers_advice();
	else
		*hint = "The launcher starts workers within seconds; if this lasts, look into the server log.";
	return "stopped";
}

/* The workers that run are well, but not all is. */
static const char *
partial_hint(const Summary *sum)
{
	bool		missing = sum->running < sum->wanted && outbox_shared->out_of_workers;

	if (sum->twin)
		return outbox_reason_advice(OUTBOX_REASON_TWIN)->hint;
	if (missing && sum->broken_routes)
		return psprintf("Not all of outbox.workers could be started. %s And a route cannot be published to and its messages wait, see last_error.",
						outbox_workers_advice());
	if (missing)
		return psprintf("Not all of outbox.workers could be started, and the keys of the missing ones wait. %s",
						outbox_workers_advice());
	if (sum->broken_routes)
		return "A route cannot be published to and its messages wait, see last_error: check its exchange and the permissions of the login.";
	return NULL;
}

#define RELAY_COLS 8

Datum
outbox_relay_state(PG_FUNCTION_ARGS)
{
	TupleDesc	desc;
	Datum		values[RELAY_COLS];
	bool		nulls[RELAY_COLS];
	Summary		sum;
	const char *state;
	const char *hint = NULL;

	if (get_call_result_type(fcinfo, NULL, &desc) != TYPEFUNC_COMPOSITE)
		elog(ERROR, "return type must be a row type");
	summarize(&sum);
	if (sum.running > 0)
	{
		state = outbox_worker_state_name(sum.worst.state);
		hint = state_hint(&sum.worst);
		if (hint == NULL)
			hint = partial_hint(&sum);
	}
	else
		state = absent_state(&hint);

	memset(nulls, 0, sizeof(nulls));
	values[0] = CStringGetTextDatum(state);
	values[1] = time_or_null(sum.running > 0 ? sum.worst.since : 0, &nulls[1]);
	values[2] = text_or_null(hint, &nulls[2]);
	values[3] = text_or_null(sum.worst.broker, &nulls[3]);
	values[4] = text_or_null(sum.teller.last_error, &nulls[4]);
	values[5] = time_or_null(sum.teller.last_error_at, &nulls[5]);
	values[6] = Int32GetDatum(sum.running);
	values[7] = Int64GetDatum(sum.in_flight);
	PG_RETURN_DATUM(HeapTupleGetDatum(heap_form_tuple(BlessTupleDesc(desc),
													  values, nulls)));
}

#define LAUNCHER_COLS 4

Datum
outbox_launcher_state(PG_FUNCTION_ARGS)
{
	TupleDesc	desc;
	Datum		values[LAUNCHER_COLS];
	bool		nulls[LAUNCHER_COLS] = {false};
	const char *advice = NULL;
	Summary		sum;

	if (get_call_result_type(fcinfo, NULL, &desc) != TYPEFUNC_COMPOSITE)
		elog(ERROR, "return type must be a row type");
	summarize(&sum);
	values[0] = BoolGetDatum(outbox_shared != NULL && outbox_shared->launcher_procno >= 0);
	if (outbox_shared != NULL && (outbox_shared->out_of_workers || outbox_shared->fewer_workers))
		advice = outbox_workers_advice();
	values[1] = text_or_null(advice, &nulls[1]);

	/*
	 * Before there is one, what the setting says; where some could not be
	 * had, too.
	 */
	values[2] = Int32GetDatum(Max(sum.wanted, outbox_workers));
	values[3] = Int32GetDatum(sum.running);
	PG_RETURN_DATUM(HeapTupleGetDatum(heap_form_tuple(BlessTupleDesc(desc),
													  values, nulls)));
}

Datum
outbox_worker_restart(PG_FUNCTION_ARGS)
{
	(void) fcinfo;
	if (outbox_shared == NULL)
		PG_RETURN_INT32(0);
	PG_RETURN_INT32(outbox_shared_tell_workers(MyDatabaseId,
											   OUTBOX_SIGNAL_RESTART));
}
