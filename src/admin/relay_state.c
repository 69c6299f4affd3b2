/*-------------------------------------------------------------------------
 *
 * relay_state.c
 *		States of the workers, and what they say together.
 *
 * Slots are copied under their lock and formatted outside of it.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/xlog.h"
#include "admin_internal.h"
#include "replication/syncrep.h"
#include "settings.h"
#include "stats.h"
#include "storage/proc.h"
#include "storage/procarray.h"
#include "utils/wait_event.h"

PG_FUNCTION_INFO_V1(outbox_worker_stats);
PG_FUNCTION_INFO_V1(outbox_relay_state);
PG_FUNCTION_INFO_V1(outbox_launcher_state);

/* Commits that wait no longer for a standby are ordinary ones. */
#define STANDBY_WAIT_MS	1000

/* What the views show of a slot. */
typedef struct SlotCopy
{
	int			worker;
	int			pid;
	int			nworkers;
	int			broken_routes;
	OutboxMonoTime late;
	uint32		in_flight;
	OutboxWorkerState state;
	char		broker[OUTBOX_TEXT_SIZE];
	OutboxWorkerReport report;
	int			error;			/* place in report.errors of the one for the
								 * state; or -1 */
} SlotCopy;

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
 * The kind of error that explains the state; else the first current one: a worker that is
 * paused may have no broker either.  -1: there is none.
 */
static int
error_of_state(OutboxWorkerState state, const OutboxCurrentError *errors)
{
	int			first = -1;
	int			preferred = -1;

	if (state == OUTBOX_WORKER_DATABASE_ERROR)
		preferred = OUTBOX_ERROR_DATABASE;
	else if (state == OUTBOX_WORKER_BROKER_DOWN ||
			 state == OUTBOX_WORKER_CONNECTING ||
			 state == OUTBOX_WORKER_BLOCKED)
		preferred = OUTBOX_ERROR_LINK;
	for (int i = OUTBOX_ERROR_TWIN - 1; i >= 0 && (first < 0 || first != preferred); i--)
		if (errors[i].reason != OUTBOX_REASON_NONE)
			first = i;
	return first;
}

static bool
has_twin(const SlotCopy *copy)
{
	return copy->report.errors[OUTBOX_ERROR_TWIN].reason != OUTBOX_REASON_NONE;
}

/* As long as a worker is silent, that is why; no later error takes its place. */
static void
tell_why_silent(SlotCopy *copy)
{
	const OutboxCurrentError *error = &copy->report.errors[OUTBOX_ERROR_COPY];

	if (strcmp(outbox_worker_state_name(copy->state), "not adopted") != 0 ||
		error->reason == OUTBOX_REASON_NONE)
		return;
	strlcpy(copy->report.last_error, error->text, sizeof(copy->report.last_error));
	copy->report.last_error_at = error->since;
}

/* False when the slot is not one of this database. */
static bool
copy_slot(int i, SlotCopy *copy)
{
	OutboxSlot *slot = lock_slot(i);

	if (slot == NULL)
		return false;
	copy->worker = slot->worker;
	copy->pid = slot->pid;
	copy->nworkers = slot->nworkers;
	copy->broken_routes = slot->broken_routes;
	copy->state = slot->state;
	memcpy(copy->broker, slot->broker, sizeof(copy->broker));
	copy->report = slot->report;
	copy->late = outbox_worker_late_at(slot);
	SpinLockRelease(&slot->mutex);
	copy->in_flight = pg_atomic_read_u32(&slot->counters.in_flight);
	copy->error = error_of_state(copy->state, copy->report.errors);
	tell_why_silent(copy);
	if (waits_for_standby(copy->pid, copy->report.commit_since))
	{
		copy->state = OUTBOX_WORKER_WAITS_STANDBY;
		copy->report.since = copy->report.commit_since;
	}
	return true;
}

static void
put_error(ResultRow *row, const SlotCopy *copy)
{
	static const OutboxCurrentError none;
	const OutboxCurrentError *error = copy->error < 0 ? &none : &copy->report.errors[copy->error];

	put_text(row, outbox_reason_name(error->reason));
	put_text(row, error->text);
	put_time(row, error->since);
	put_text(row, error->sqlstate);
}

static void
put_ms(ResultRow *row, int64 ms)
{
	Interval   *interval = palloc0(sizeof(Interval));

	interval->time = ms * 1000;
	if (ms == 0)
		put_null(row);
	else
		put(row, IntervalPGetDatum(interval));
}

static void
put_counters(ResultRow *row, OutboxCounters *counters)
{
	pg_atomic_uint64 *const counts[] = {
		&counters->published, &counters->returned, &counters->nacked,
		&counters->failed, &counters->retried, &counters->reconnects
	};

	for (int i = 0; i < (int) lengthof(counts); i++)
		put_int64(row, (int64) pg_atomic_read_u64(counts[i]));
}

Datum
outbox_worker_stats(PG_FUNCTION_ARGS)
{
	InitMaterializedSRF(fcinfo, 0);
	for (int i = 0; i < slot_count(); i++)
	{
		const OutboxWorkerReport *report;
		OutboxCounters *counters = &outbox_shared->slots[i].counters;
		ResultRow	row = {0};
		SlotCopy	copy;
		bool		twin;

		if (!copy_slot(i, &copy))
			continue;
		report = &copy.report;
		twin = has_twin(&copy);
		put_int32(&row, copy.worker);
		if (copy.pid == 0)
			put_null(&row);
		else
			put_int32(&row, copy.pid);
		put_text(&row, outbox_worker_state_name(copy.state));
		put_text(&row, copy.broker);
		put_time(&row, report->since);
		put_time(&row, report->started_at);
		put_int32(&row, (int32) pg_atomic_read_u32(&counters->claimed));
		put_int32(&row, (int32) copy.in_flight);
		put_counters(&row, counters);
		put_text(&row, report->last_error);
		put_time(&row, report->last_error_at);
		put_text(&row, report->archive_error);
		put_time(&row, report->archive_error_since);
		put_error(&row, &copy);
		put_time(&row, report->tls_not_after);
		put_ms(&row, report->clock_jump_ms);
		put_time(&row, report->clock_jumped_at);
		put_text(&row, twin ? report->errors[OUTBOX_ERROR_TWIN].text : NULL);
		put_time(&row, twin ? report->errors[OUTBOX_ERROR_TWIN].since : 0);
		return_next(fcinfo, &row);
	}
	return (Datum) 0;
}

/* ------------------------------------------------------------------- states */

#define LEAVES	"A worker is leaving; the launcher starts another one at once, unless the server is being stopped."

/* By severity: the later, the more a person should know of it. */
static const struct
{
	OutboxWorkerState state;
	bool		has_reason;		/* the worker's current error says more than
								 * the hint */
	const char *hint;			/* NULL: nothing is wrong */
}			states[] = {
	{OUTBOX_WORKER_IDLE},
	{OUTBOX_WORKER_PUBLISHING},
	{OUTBOX_WORKER_STOPPED, false, LEAVES},
	{OUTBOX_WORKER_STOPPING, false, LEAVES},
	{OUTBOX_WORKER_STARTING},
	{OUTBOX_WORKER_CONNECTING},
	{OUTBOX_WORKER_BLOCKED, true,
		"RabbitMQ has a memory or disk alarm and accepts no messages; look at the broker with rabbitmq-diagnostics alarms. Publishing resumes by itself."
	},
	{OUTBOX_WORKER_BROKER_DOWN, true,
		"See last_error. Messages wait and the relay reconnects by itself; check that RabbitMQ runs at the address of outbox.broker_uri and accepts the login."
	},
	{OUTBOX_WORKER_WAITS_STANDBY, false,
		"A standby of synchronous_standby_names is missing or behind, and nothing is published that it does not have. Bring it back or let it catch up, or change synchronous_standby_names."
	},
	{OUTBOX_WORKER_DATABASE_ERROR, true,
		"See last_error and the server log; the relay tries again by itself."
	},
	{OUTBOX_WORKER_PAUSED, false,
		"Call outbox_resume() to publish again."
	},
	{OUTBOX_WORKER_NOT_ADOPTED, false,
		"This database is a copy (restored dump, template, pg_upgrade), or got messages of another one (logical replication). Discard what must not be published twice, then call outbox_adopt()."
	},
	{OUTBOX_WORKER_OTHER_ENVIRONMENT, false,
		"This server's outbox.environment is not the one that its messages belong to, see last_error. If it is a copy of another server, look at what is pending and discard what must not be published twice. Call outbox_adopt() when this server is to publish."
	},
	{OUTBOX_WORKER_RESTORED, false,
		"This server was restored to a point in time, and some of its messages may have been published after that, see last_error. Discard what must not be published twice, then call outbox_adopt()."
	},
	{OUTBOX_WORKER_DISABLED, false,
		"Set outbox.enabled to on and reload the configuration."
	},
	{OUTBOX_WORKER_CONFIG_ERROR, true,
		"See last_error; correct the setting (outbox.broker_uri, outbox.passfile, outbox.environment) and reload the configuration."
	},
	{OUTBOX_WORKER_EXTENSION_OLDER, false,
		"The extension is older than the library: run ALTER EXTENSION outbox UPDATE in this database."
	},
	{OUTBOX_WORKER_EXTENSION_NEWER, false,
		"The library that is loaded is older than the extension: install the package of the extension's version and restart the server."
	},
};

static int
severity(OutboxWorkerState state)
{
	for (int i = 0; i < (int) lengthof(states); i++)
		if (states[i].state == state)
			return i;
	return 0;
}

/* What to do about a state; NULL when nothing is wrong. */
static const char *
state_hint(const SlotCopy *copy)
{
	int			i = severity(copy->state);

	return states[i].has_reason && copy->error >= 0 ?
		outbox_reason_advice(copy->report.errors[copy->error].reason)->hint : states[i].hint;
}

/* What the workers of this database say together. */
typedef struct Summary
{
	int			nslots;
	int			running;
	int			wanted;			/* outbox.workers, as they have it */
	bool		broken_routes;
	bool		twin;
	bool		silent;
	int64		in_flight;
	SlotCopy	worst;			/* whose state most needs a look */
	SlotCopy	teller;			/* whose error says most about it */
} Summary;

/* Of equal states the one that has lasted longest, for alerts ask for that. */
static bool
is_worse(const SlotCopy *a, const SlotCopy *b)
{
	int			diff = severity(a->state) - severity(b->state);

	if (diff != 0)
		return diff > 0;
	/* 0: registered and not there yet */
	return a->report.since != 0 && (b->report.since == 0 || a->report.since < b->report.since);
}

/*
 * The last error stays when it is over, so that of a worker with an error now comes before a
 * newer one of a worker that is well.
 */
static bool
tells_more(const SlotCopy *a, const SlotCopy *b)
{
	int			rank_a = state_hint(a) != NULL ? severity(a->state) : 0;
	int			rank_b = state_hint(b) != NULL ? severity(b->state) : 0;

	if (rank_a != rank_b)
		return rank_a > rank_b;
	if ((a->broken_routes > 0) != (b->broken_routes > 0))
		return a->broken_routes > 0;
	return a->report.last_error_at > b->report.last_error_at;
}

static void
summarize(Summary *sum)
{
	memset(sum, 0, sizeof(*sum));
	for (int i = 0; i < slot_count(); i++)
	{
		SlotCopy	copy;

		if (!copy_slot(i, &copy))
			continue;
		if (copy.pid != 0)
			sum->running++;
		sum->wanted = Max(sum->wanted, copy.nworkers);
		sum->broken_routes |= copy.broken_routes > 0;
		sum->twin |= has_twin(&copy);
		sum->silent |= outbox_is_silent(copy.late);
		sum->in_flight += copy.in_flight;
		if (sum->nslots++ == 0 || is_worse(&copy, &sum->worst))
			sum->worst = copy;
		if (copy.report.last_error_at != 0 &&
			(sum->teller.report.last_error_at == 0 || tells_more(&copy, &sum->teller)))
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
		*hint = "The outbox launcher does not run, so that no workers are started. The server starts it again within 5 seconds; if this lasts, the server log says why: with too few max_worker_processes it was not even registered.";
	else if (outbox_shared_is_resting(MyDatabaseId))
		return outbox_worker_state_name(OUTBOX_WORKER_IDLE);
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

	if (sum->silent)
		return "A worker does nothing: it is stopped, loops or hangs, and its messages wait. outbox_problems has its process, and what to do.";
	if (sum->twin)
		return outbox_reason_advice(OUTBOX_REASON_TWIN)->hint;
	/* Publishing goes on over the connection that is there. */
	if (sum->worst.error == OUTBOX_ERROR_SETTINGS)
		return outbox_reason_advice(sum->worst.report.errors[OUTBOX_ERROR_SETTINGS].reason)->hint;
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

Datum
outbox_relay_state(PG_FUNCTION_ARGS)
{
	ResultRow	row = {0};
	Summary		sum;
	const char *state;
	const char *hint = NULL;

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

	put_text(&row, state);
	put_time(&row, sum.running > 0 ? sum.worst.report.since : 0);
	put_text(&row, hint);
	put_text(&row, sum.worst.broker);
	put_text(&row, sum.teller.report.last_error);
	put_time(&row, sum.teller.report.last_error_at);
	put_int32(&row, sum.running);
	put_int64(&row, sum.in_flight);
	return return_row(fcinfo, &row);
}

/* Of workers of this database alone, and of the server with all of its processes. */
static void
put_crashes(ResultRow *row)
{
	OutboxDatabaseStats *stats = outbox_stats_find(MyDatabaseId);
	TimestampTz crashed_at = 0;

	if (stats != NULL)
	{
		SpinLockAcquire(&stats->mutex);
		crashed_at = stats->crashed_at;
		SpinLockRelease(&stats->mutex);
	}
	put_int64(row, stats == NULL ? 0 : (int64) pg_atomic_read_u64(&stats->events[OUTBOX_EVENT_CRASH]));
	put_time(row, crashed_at);
	put_int64(row, outbox_shared == NULL ? 0 : outbox_shared->server_crashes);
	put_time(row, outbox_shared == NULL ? 0 : outbox_shared->server_crashed_at);
}

/* How many synchronous standbys are not there of those that a commit waits for. */
static int
missing_standbys(void)
{
	SyncRepStandbyData *standbys;

	return SyncRepConfig == NULL ? 0 :
		Max(SyncRepConfig->num_sync - SyncRepGetCandidateStandbys(&standbys), 0);
}

Datum
outbox_launcher_state(PG_FUNCTION_ARGS)
{
	bool		loaded = outbox_shared != NULL;
	bool		scarce = loaded && (outbox_shared->out_of_workers || outbox_shared->fewer_workers);
	ResultRow	row = {0};
	Summary		sum;
	bool		rests;

	summarize(&sum);
	rests = sum.running == 0 && loaded && outbox_shared_is_resting(MyDatabaseId);
	put(&row, BoolGetDatum(loaded && outbox_shared->launcher_procno >= 0));
	put_text(&row, scarce ? outbox_workers_advice() : NULL);

	/*
	 * Before there is a worker, and where some could not be had, the setting
	 * says it.
	 */
	put_int32(&row, rests ? 0 : Max(sum.wanted, outbox_workers));
	put_int32(&row, sum.running);
	put_crashes(&row);
	put_int32(&row, missing_standbys());
	return return_row(fcinfo, &row);
}
