/*-------------------------------------------------------------------------
 *
 * world.c
 *		Time, points, processes, and what a step does.
 *
 * The relay is run from outbox_relay_main() on.  It comes to a wall, passes a
 * point (sim_point()), and there the steps of others are done, on top of its stack.
 * At its one wait they are done until something wakes it.  The end of a process is
 * a jump out of it, whatever it was at; the next one begins with memory, and static
 * variables, that are as new.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "identity.h"
#include "miscadmin.h"
#include "pgstat.h"
#include "postmaster/bgworker.h"
#include "postmaster/interrupt.h"
#include "relay_internal.h"
#include "settings.h"
#include "shared.h"
#include "shared_internal.h"
#include "sim.h"
#include "storage/ipc.h"
#include "storage/latch.h"
#include "tcop/tcopprot.h"
#include "uri.h"
#include "utils/guc.h"
#include "utils/memutils.h"
#include "utils/timestamp.h"
#include "utils/wait_event.h"
#include "wait_event.h"
#include "waiters.h"
#include "watchdog.h"
#if PG_VERSION_NUM >= 180000
#include "storage/waiteventset.h"
#endif

#undef vsnprintf
#undef printf
#undef vprintf

#define START_US		INT64CONST(1000000)
/* A turn takes so long. */
#define TURN_US			20
/* A relay that waits for longer has nothing to wait for. */
#define REST_MS			15000
#define REST_LIMIT_US	(INT64CONST(30) * 1000000)
#define POINTS_LIMIT	400000

SimConfig	sim_config;
SimVerdict	sim_verdict;
bool		sim_verbose;
int64		sim_now;
long		sim_points;
int			sim_turns;
int			sim_proc;
bool		sim_relay_runs;
bool		sim_relay_waits;
bool		sim_resting;
int			sim_worker_number;
int			sim_fail[CALL_COUNT];
uint64		sim_learnt;
int			sim_sweep_ms;
const char *sim_point_name;
long		sim_worker_began;
int			sim_merge_distance;
int			sim_key_waiting_max;
int			sim_held_keys_max;

static SimSource source;
static int	budget;				/* points to pass before the next step */
static bool until_idle;			/* the same until it waits */
static bool in_step;			/* others run: their points are not ours */
static sigjmp_buf history_end;
static long turn_points;		/* when the relay last waited, or began */
static bool crashed;
static bool clean;				/* the process ended by itself */
static int64 rest_since;
static int	rest_phase;
static bool stopping;
static bool stop_asked;

static void begin_rest(void);

/* ------------------------------------------------------------------ verdicts */

void
sim_say(const char *fmt,...)
{
	va_list		args;

	va_start(args, fmt);
	vprintf(fmt, args);
	va_end(args);
	printf("\n");
}

void
sim_broken(const char *check, const char *fmt,...)
{
	va_list		args;

	sim_verdict.failed = true;
	strlcpy(sim_verdict.check, check, sizeof(sim_verdict.check));
	va_start(args, fmt);
	vsnprintf(sim_verdict.text, sizeof(sim_verdict.text), fmt, args);
	va_end(args);
	sim_trace("BROKEN %s: %s", check, sim_verdict.text);
	siglongjmp(history_end, 1);
}

void
sim_stop(void)
{
	siglongjmp(history_end, 1);
}

bool
sim_latch_is_set(void)
{
	return MyLatch->is_set;
}

/* -------------------------------------------------------------------- points */

/* Steps of others, until the relay may go on; true: time is to pass. */
static bool
others(void)
{
	SimStep		step;

	if (sim_resting || until_idle)
		return true;
	if (budget > 0)
	{
		budget--;
		return true;
	}
	if (!source(&step))
	{
		begin_rest();
		return true;
	}
	sim_verdict.steps++;
	if (step.op == OP_relay)
	{
		budget = Max(step.arg[0], 1);
		return false;
	}
	if (step.op == OP_idle)
	{
		until_idle = true;
		return false;
	}
	sim_do(&step);
	return false;
}

void
sim_point(const char *name)
{
	if (in_step)
		return;
	sim_trace("  . %s", name);
	sim_point_name = name;
	sim_points++;
	sim_verdict.steps++;
	if (sim_points - turn_points > 20000)
		sim_broken("spin", "the relay has not waited for 20000 points (%s)", name);
	if (sim_points > POINTS_LIMIT)
		sim_broken("rest", "%d points and no end", POINTS_LIMIT);
	while (!others())
		;
}

bool
sim_fails(SimCall call)
{
	if (sim_fail[call] == 0 || --sim_fail[call] > 0)
		return false;
	sim_learn(call);
	return true;
}

/* ---------------------------------------------------------------------- rest */

/* The history is over.  What others have half done they finish. */
static void
begin_rest(void)
{
	bool		was = in_step;

	sim_trace("-- rest");
	sim_resting = true;
	rest_since = sim_now;
	rest_phase = 0;
	in_step = true;
	memset(sim_fail, 0, sizeof(sim_fail));
	sim_link_block(false);
	if (!outbox_enabled)
	{
		outbox_enabled = true;
		ConfigReloadPending = true;
		sim_wake_relay();
	}
	for (int p = 0; p < SIM_BACKENDS; p++)
		if (sim_backends[p].tx != 0 && sim_backends[p].phase >= 2)
			sim_backend_announce(p);
	/* Who has ended by COMMIT PREPARED tells nobody: there is the poll. */
	sim_wake_relay();
	in_step = was;
}

/* Nothing stands in the way of anything any more. */
static void
resolve(void)
{
	int			label;

	sim_trace("-- resolve");
	rest_phase = 1;
	rest_since = sim_now;
	in_step = true;
	for (int p = 0; p < SIM_BACKENDS; p++)
		if (sim_backends[p].tx != 0)
			sim_backend_announce(p);
	while (sim_prepared_next(&label))
	{
		sim_prepared_end(label, true);
		sim_wake_relay();
	}
	sim_backend_begin(0, false);
	sim_backend_route(0, OP_resume_all, 0);
	for (int i = 0; i < SIM_ROUTES; i++)
		sim_backend_route(0, OP_resume, i);
	for (int i = 0; i < sim_nrows; i++)
		sim_backend_on_row(0, OP_requeue, sim_rows[i]);
	sim_backend_announce(0);
	in_step = false;
}

/* At the wait, with nothing there: true, if something is now. */
static bool
rest(int64 deadline)
{
	if (sim_link_answer_all())
		return true;
	/* With a short poll, or a lock that is looked at each second, it never rests. */
	if (deadline - sim_now < REST_MS * INT64CONST(1000) &&
		sim_now - rest_since < REST_LIMIT_US)
		return false;
	sim_oracle_rest(rest_phase == 1);
	if (rest_phase == 1)
		siglongjmp(history_end, 1);
	resolve();
	return true;
}

/* --------------------------------------------------------------------- waits */

static struct Latch latch;
struct Latch *MyLatch = &latch;

void
SetLatch(struct Latch *which)
{
	which->is_set = true;
}

void
ResetLatch(struct Latch *which)
{
	which->is_set = false;
}

void
sim_wake_relay(void)
{
	latch.is_set = true;
}

int
outbox_my_procno(void)
{
	return sim_proc;
}

void
outbox_wake_procno(int procno)
{
	if (procno == SIM_BACKENDS)
		sim_wake_relay();
}

void
outbox_shared_wake_launcher(void)
{
}

/* ------------------------------------------------- nobody waits for a message */

bool
outbox_waiters_exist(Oid dboid)
{
	return false;
}

void
outbox_waiters_tell(Oid dboid, OutboxAskVerdict ask, void *arg)
{
}

void
outbox_waiters_look(Oid dboid)
{
}

OutboxRecentlySettled *
outbox_recent_find(Oid dboid)
{
	return NULL;
}

void
outbox_recent_add(OutboxRecentlySettled *recent, const pg_uuid_t *id, const char *route)
{
}

void
outbox_recent_clear(int index)
{
}

/* ------------------------------------------------------------------- waiting */

/* Nothing wakes the relay before. */
static void
pass_until(int64 deadline)
{
	sim_late_wait(deadline);
	sim_now = deadline;
}

/* Events as of WaitLatch(). */
static uint32
wait_until(int64 timeout_ms, uint32 wanted)
{
	int64		deadline = sim_now + timeout_ms * 1000;
	uint32		events = 0;

	sim_point("wait");
	sim_point_name = "wait";
	turn_points = sim_points;
	sim_relay_waits = true;
	while (events == 0)
	{
		if (latch.is_set && (wanted & WL_LATCH_SET))
			events = WL_LATCH_SET;
		else if (sim_link_readable() && (wanted & WL_SOCKET_READABLE))
			events = WL_SOCKET_READABLE;
		else if (sim_link_connecting() && (wanted & WL_SOCKET_WRITEABLE))
			events = WL_SOCKET_WRITEABLE;
		else if (sim_now >= deadline)
			events = WL_TIMEOUT;
		else if (sim_resting)
		{
			if (!rest(deadline))
				pass_until(deadline);
		}
		else if (until_idle)
			until_idle = false;
		else if (others() && !sim_resting && !until_idle)
			pass_until(deadline);
	}
	sim_relay_waits = false;
	sim_learn(events);
	return events;
}

/* A set is the events that it waits for. */
#if PG_VERSION_NUM >= 170000
#define SET_OWNER ResourceOwner
#else
#define SET_OWNER MemoryContext
#endif

WaitEventSet *
CreateWaitEventSet(SET_OWNER owner, int nevents)
{
	return MemoryContextAllocZero(TopMemoryContext, sizeof(uint32));
}

void
FreeWaitEventSet(WaitEventSet *set)
{
	pfree(set);
}

int
AddWaitEventToSet(WaitEventSet *set, uint32 events, pgsocket fd,
				  struct Latch *which, void *user_data)
{
	*(uint32 *) set |= events;
	return 0;
}

int
WaitEventSetWait(WaitEventSet *set, long timeout, WaitEvent *occurred_events,
				 int nevents, uint32 wait_event_info)
{
	uint32		events = wait_until(timeout, *(uint32 *) set & (WL_LATCH_SET | WL_SOCKET_READABLE));

	if (events & WL_TIMEOUT)
		return 0;
	occurred_events[0].events = events;
	return 1;
}

int
WaitLatchOrSocket(struct Latch *which, int wakeEvents, pgsocket sock,
				  long timeout, uint32 wait_event_info)
{
	return (int) wait_until(timeout, wakeEvents);
}

void
pg_usleep(long microsec)
{
	sim_point("nap");
	turn_points = sim_points;
	sim_now += microsec;
}

int64
outbox_rows_written(Oid dboid)
{
	return sim_wrote;
}

uint64
outbox_transactions_ended(void)
{
	return (uint64) sim_visible;
}

uint32
outbox_wait_event(OutboxWait wait)
{
	return 0;
}

void
outbox_wait_start(OutboxWait wait)
{
}

void
outbox_wait_end(void)
{
}

/* ---------------------------------------------------------------------- time */

extern int	sim_clock_gettime(clockid_t clock, struct timespec *now);

int
sim_clock_gettime(clockid_t clock, struct timespec *now)
{
	sim_learn((uint64) sim_now);
	now->tv_sec = sim_now / 1000000;
	now->tv_nsec = sim_now % 1000000 * 1000;
	return 0;
}

TimestampTz
GetCurrentTimestamp(void)
{
	sim_learn((uint64) sim_now);
	return SIM_EPOCH + sim_now;
}

long
TimestampDifferenceMilliseconds(TimestampTz start_time, TimestampTz stop_time)
{
	if (stop_time <= start_time)
		return 0;
	return (long) ((stop_time - start_time + 999) / 1000);
}

/* ------------------------------------------------------------------ settings */

bool		outbox_enabled;
char	   *outbox_broker_uri = "amqp://sim@one,two";
char	   *outbox_passfile = "";
char	   *outbox_tls_ca_file = "";
char	   *outbox_tls_cert_file = "";
char	   *outbox_tls_key_file = "";
char	   *outbox_tls_key_passfile = "";
bool		outbox_tls_verify = true;
int			outbox_auth_mechanism = OUTBOX_AUTH_PLAIN;
bool		outbox_allow_plaintext = false;
int			outbox_workers = 1;
int			outbox_window;
int			outbox_poll_interval_ms;
int			outbox_retry_initial_ms;
int			outbox_retry_max_ms;
int			outbox_confirm_timeout_ms;
int			outbox_heartbeat_s = 10;
int			outbox_retention_s = 0;
int			outbox_history_retention_s = -1;
int			outbox_once_window_s = -1;
int			outbox_max_message_size = 1 << 30;
bool		outbox_strict_keys = false;
char	   *outbox_environment = "";

volatile sig_atomic_t ConfigReloadPending;

void
ProcessConfigFile(GucContext context)
{
}

void
outbox_override_commit(void)
{
}

const char *
GetConfigOption(const char *name, bool missing_ok, bool restrict_privileged)
{
	return "on";
}

void
SetConfigOption(const char *name, const char *value, GucContext context,
				GucSource source_of_it)
{
}

Oid
GetAuthenticatedUserId(void)
{
	return 10;
}

char *
GetUserNameFromId(Oid roleid, bool noerr)
{
	return "postgres";
}

const char *
outbox_login_password(const OutboxUri *uri, int host, char **password,
					  OutboxReason *reason)
{
	*password = pstrdup("secret");
	*reason = OUTBOX_REASON_NONE;
	return NULL;
}

void
outbox_override_settings(const char *library_path)
{
	(void) library_path;
}

const char *
outbox_environment_unusable(void)
{
	return NULL;
}

TimeLineID
outbox_environment_restored(char **how)
{
	*how = "";
	return 0;
}

int64
outbox_own_origin(void)
{
	return 1;
}

/* ------------------------------------------------------------------- process */

BackgroundWorker *MyBgworkerEntry;
static BackgroundWorker entry;

static pg_on_exit_callback exit_callback;

void
before_shmem_exit(pg_on_exit_callback function, Datum arg)
{
	exit_callback = function;
}

void
sim_end_process(void)
{
	siglongjmp(*sim_process_end, 1);
}

void
proc_exit(int code)
{
	clean = code == 0;
	sim_end_process();
}

#undef pqsignal
#if PG_VERSION_NUM >= 180000
void
pqsignal_be(int signo, pqsigfunc func)
{
}
#else
pqsigfunc
pqsignal(int signo, pqsigfunc func)
{
	return NULL;
}
#endif

void
die(SIGNAL_ARGS)
{
}

void
SignalHandlerForConfigReload(SIGNAL_ARGS)
{
}

void
outbox_watchdog_sigterm(SIGNAL_ARGS)
{
}

void
BackgroundWorkerUnblockSignals(void)
{
}

void
BackgroundWorkerInitializeConnectionByOid(Oid dboid, Oid useroid, uint32 flags)
{
	sim_point("connecting to the database");
}

void
StartTransactionCommand(void)
{
}

void
CommitTransactionCommand(void)
{
}

void
pgstat_report_appname(const char *appname)
{
}

long
pgstat_report_stat(bool force)
{
	return 0;
}

void
pgstat_report_activity(BackendState state, const char *cmd_str)
{
}

bool
outbox_hold_exists(Oid dboid)
{
	return false;
}

static bool (*told_to_stop) (void);

void
outbox_watchdog_init(bool (*told) (void))
{
	told_to_stop = told;
	stopping = false;
}

bool
outbox_watchdog_stopping(void)
{
	if (stop_asked || told_to_stop())
		stopping = true;
	if (stopping)
		sim_learn(1);
	return stopping;
}

int
outbox_watchdog_stop_left(int limit_ms)
{
	return limit_ms;
}

/* --------------------------------------------------------------- life of them */

OutboxShared *outbox_shared;
OutboxCommitIntent *outbox_commit_intents;
static Size shared_bytes;

static void
init_shared(void)
{
	if (outbox_shared == NULL)
	{
		shared_bytes = offsetof(OutboxShared, slots) + sizeof(OutboxSlot);
		outbox_shared = calloc(1, shared_bytes);
		outbox_commit_intents = calloc(1, outbox_intent_size());
		outbox_flushed = calloc(1, outbox_flushed_size());
	}
	memset(outbox_shared, 0, shared_bytes);
	memset(outbox_commit_intents, 0, outbox_intent_size());
	memset(outbox_flushed, 0, outbox_flushed_size());
	SpinLockInit(&outbox_shared->mutex);
	outbox_shared->nslots = 1;
	outbox_shared->launcher_procno = -1;
	SpinLockInit(&outbox_shared->slots[0].mutex);
	outbox_shared->slots[0].procno = -1;
	outbox_intent_init();
}

/* The static variables of the relay's files, see the Makefile. */
extern char __start_relay_data[];
extern char __stop_relay_data[];
extern char __start_relay_bss[];
extern char __stop_relay_bss[];

static void
init_statics(void)
{
	static char *data = NULL;
	static char *bss;
	size_t		data_size = __stop_relay_data - __start_relay_data;
	size_t		bss_size = __stop_relay_bss - __start_relay_bss;

	if (data == NULL)
	{
		data = malloc(data_size);
		memcpy(data, __start_relay_data, data_size);
		bss = malloc(bss_size);
		memcpy(bss, __start_relay_bss, bss_size);
	}
	memcpy(__start_relay_data, data, data_size);
	memcpy(__start_relay_bss, bss, bss_size);
}

static void
end_process(void)
{
	if (!crashed && exit_callback != NULL)
	{
		in_step = true;
		sim_proc = SIM_BACKENDS;
		exit_callback(1, (Datum) 0);
		in_step = false;
	}
	sim_oracle_process_ends(clean);
	sim_late_process_ends();
	sim_store_process_ends();
	sim_link_process_ends();
	sim_relay_runs = false;
	sim_relay_waits = false;
	sim_memory_forget();
}

/* The worker's process, from its beginning to its end. */
static void
run_worker(OutboxSlot *slot, uint64 generation)
{
	sigjmp_buf	end;
	OutboxWorkerArgs args = {.dboid = SIM_DATABASE,.slot = 0,.generation = generation};

	(void) slot;
	sim_trace("-- worker %d starts", sim_worker_number + 1);
	sim_worker_number++;
	init_statics();
	sim_memory_init();
	memcpy(entry.bgw_extra, &args, sizeof(args));
	MyBgworkerEntry = &entry;
	PG_exception_stack = NULL;
	exit_callback = NULL;
	crashed = false;
	clean = false;
	stop_asked = false;
	ConfigReloadPending = false;
	latch.is_set = false;
	sim_proc = SIM_BACKENDS;
	sim_relay_runs = true;
	sim_process_end = &end;
	turn_points = sim_points;
	sim_worker_began = sim_points;
	sim_learnt = 0;
	sim_learn((uint64) sim_now);
	if (sigsetjmp(end, 0) == 0)
		outbox_relay_main((Datum) 0);
	sim_trace("-- worker %d ended", sim_worker_number);
	end_process();
}

void
sim_run(const SimConfig *config, SimSource from)
{
	sim_config = *config;
	memset(&sim_verdict, 0, sizeof(sim_verdict));
	source = from;
	budget = 0;
	until_idle = false;
	in_step = false;
	sim_now = START_US;
	sim_points = 0;
	turn_points = 0;
	sim_turns = 0;
	sim_worker_number = 0;
	sim_worker_began = 0;
	sim_resting = false;
	sim_relay_runs = false;
	sim_relay_waits = false;
	sim_learnt = 0;
	memset(sim_fail, 0, sizeof(sim_fail));
	sim_jitter_seed(config->seed);
	outbox_enabled = true;
	outbox_window = config->window;
	outbox_poll_interval_ms = config->poll_ms;
	outbox_retry_initial_ms = config->retry_ms;
	outbox_retry_max_ms = config->retry_max_ms;
	outbox_confirm_timeout_ms = config->confirm_ms != 0 ? config->confirm_ms : 3000000;
	sim_sweep_ms = config->sweep_ms != 0 ? config->sweep_ms : 1000000000;
	sim_merge_distance = config->merge != 0 ? config->merge : 64;
	sim_key_waiting_max = config->waiting != 0 ? config->waiting : 128;
	sim_held_keys_max = config->held != 0 ? config->held : 60000;
	MySlot = NULL;
	init_shared();
	sim_backends_init();
	sim_store_init();
	sim_link_init();
	sim_oracle_init();
	sim_late_init();

	if (sigsetjmp(history_end, 0) == 0)
		for (;;)
		{
			OutboxSlot *slot;
			uint64		generation;
			int64		ended_at;

			turn_points = sim_points;
			sim_point("no worker");
			slot = outbox_slot_assign(SIM_DATABASE, 0, 1, &generation);
			sim_point("a slot is assigned");
			/* A crash wipes it. */
			if (slot->in_use)
				run_worker(slot, generation);
			ended_at = sim_now;
			sim_point("the worker has gone");
			if (!outbox_slot_free(slot, generation) && slot->exit_reason == OUTBOX_EXIT_YIELDED)
				sim_late_rest(ended_at + slot->rest_ms * INT64CONST(1000));
		}
	sim_memory_forget();
	sim_verdict.rows = sim_nrows;
	sim_verdict.sent = (int) sim_sends;
}

/* --------------------------------------------------------------------- crash */

static void
crash(void)
{
	sim_store_crash();
	sim_backends_init();
	init_shared();
	sim_link_process_ends();
	crashed = true;
	in_step = false;
	if (sim_relay_runs)
	{
		MySlot = NULL;
		sim_end_process();
	}
	/* What the last worker had settled may be undone, too. */
	sim_oracle_process_ends(false);
}

/* --------------------------------------------------------------------- steps */

static void
describe(const SimStep *step)
{
	char		text[128] = "";

	for (int i = 0; i < SIM_ARGS; i++)
		snprintf(text + strlen(text), sizeof(text) - strlen(text), " %d", step->arg[i]);
	sim_say("%s%s", sim_op_names[step->op], text);
}

/* A step that cannot be done is none: so a history can be shortened anywhere. */
static void
act(const SimStep *step)
{
	const int  *arg = step->arg;
	int			p = (unsigned) arg[0] % SIM_BACKENDS;

	switch (step->op)
	{
		case OP_relay:
		case OP_idle:
		case OP_COUNT:
			break;
		case OP_time:
			sim_now += arg[0] * INT64CONST(1000);
			sim_late_shift(arg[0] * INT64CONST(1000));
			break;
		case OP_begin:
			sim_backend_begin(p, arg[1] != 0);
			break;
		case OP_row:
			(void) sim_backend_row(p, arg[1], arg[2], (unsigned) arg[3] % SIM_ROUTES,
								   arg[4], arg[5], false);
			break;
		case OP_silent:
			(void) sim_backend_row(p, arg[1], arg[2], (unsigned) arg[3] % SIM_ROUTES,
								   0, 0, true);
			break;
		case OP_gap:
			sim_backend_gap(p);
			break;
		case OP_word:
			sim_backend_word(p);
			break;
		case OP_commit:
			sim_backend_commit(p);
			break;
		case OP_announce:
			sim_backend_announce(p);
			break;
		case OP_abort:
			sim_backend_abort(p);
			break;
		case OP_number:
			if (arg[0] > 0)
				sim_next_seq = arg[0];
			break;
		case OP_prepare:
			sim_backend_prepare(p, arg[1]);
			break;
		case OP_commit_prepared:
		case OP_rollback_prepared:
			sim_prepared_end(arg[0], step->op == OP_commit_prepared);
			break;
		case OP_lock:
		case OP_touch:
		case OP_requeue:
		case OP_discard:
		case OP_remove:
			sim_backend_on_row(p, step->op, sim_row_find(arg[1]));
			break;
		case OP_spoil:
			sim_row_spoil(sim_row_find(arg[0]));
			break;
		case OP_pause:
		case OP_resume:
		case OP_pause_all:
		case OP_resume_all:
		case OP_exchange:
		case OP_order:
		case OP_pipeline:
		case OP_unorder:
		case OP_hold:
		case OP_skip:
			sim_backend_route(p, step->op, (unsigned) arg[1] % SIM_ROUTES);
			break;
		case OP_truncate:
			sim_backend_truncate(arg[0] != 0);
			break;
		case OP_flush:
			sim_flushed = sim_inserted;
			break;
		case OP_ack:
		case OP_nack:
			sim_link_answer(sim_row_find(arg[0]), step->op == OP_ack, arg[1] != 0);
			break;
		case OP_bounce:
			sim_link_return(sim_row_find(arg[0]));
			break;
		case OP_drop:
			sim_link_drop();
			break;
		case OP_close:
			sim_link_close_channel(arg[0]);
			break;
		case OP_block:
		case OP_unblock:
			sim_link_block(step->op == OP_block);
			break;
		case OP_fail:
			sim_fail[(unsigned) arg[0] % CALL_COUNT] = arg[1];
			break;
		case OP_error:
			/* Where a statement could: not after the commit. */
			if (sim_relay_runs && sim_relay_tx != 0)
			{
				in_step = false;
				sim_proc = SIM_BACKENDS;
				elog(ERROR, "a step");
			}
			break;
		case OP_kill:
			if (sim_relay_runs)
			{
				in_step = false;
				sim_end_process();
			}
			break;
		case OP_stop:
			stop_asked = true;
			sim_wake_relay();
			break;
		case OP_restart:
			(void) outbox_shared_tell_workers(SIM_DATABASE, OUTBOX_SIGNAL_RESTART);
			sim_late_leaves();
			break;
		case OP_yield:
			(void) outbox_shared_tell_workers(SIM_DATABASE, OUTBOX_SIGNAL_YIELD);
			sim_late_leaves();
			break;
		case OP_enable:
			outbox_enabled = arg[0] != 0;
			ConfigReloadPending = true;
			sim_wake_relay();
			break;
		case OP_crash:
			crash();
			break;
	}
}

void
sim_do(const SimStep *step)
{
	MemoryContext cxt = CurrentMemoryContext;

	if (sim_verbose)
		describe(step);
	in_step = true;
	act(step);
	in_step = false;
	sim_proc = SIM_BACKENDS;
	CurrentMemoryContext = cxt;
}

/* ---------------------------------------- walls without a wall: see Makefile */

extern void __real_outbox_slot_take_inbox(OutboxInbox *inbox);
extern void __wrap_outbox_slot_take_inbox(OutboxInbox *inbox);
extern void __real_outbox_intent_visit(OutboxIntentVisit visit, void *arg);
extern void __wrap_outbox_intent_visit(OutboxIntentVisit visit, void *arg);

void
__wrap_outbox_slot_take_inbox(OutboxInbox *inbox)
{
	sim_point("the inbox");
	if (sim_relay_tx == 0)
	{
		sim_now += TURN_US;
		sim_turns++;
		sim_oracle_turn();
	}
	__real_outbox_slot_take_inbox(inbox);
	sim_learn(inbox->signals);
	sim_learn(inbox->next_due);
	for (int i = 0; i < inbox->nranges; i++)
	{
		sim_learn(inbox->ranges[i].lo);
		sim_learn(inbox->ranges[i].hi);
	}
	for (int i = 0; i < inbox->nprepared; i++)
		sim_learn(inbox->prepared[i].xid);
	sim_learn(inbox->lost.hi);
}

extern bool __real_outbox_sweep_start(OutboxSweep *sweep, bool written, OutboxMonoTime now);
extern bool __wrap_outbox_sweep_start(OutboxSweep *sweep, bool written, OutboxMonoTime now);

bool
__wrap_outbox_sweep_start(OutboxSweep *sweep, bool written, OutboxMonoTime now)
{
	bool		starts = __real_outbox_sweep_start(sweep, written, now);

	if (starts)
		sim_oracle_pass_begins(written);
	return starts;
}

extern void __real_outbox_sweep_step(OutboxSweep *sweep, OutboxRelay *relay);
extern void __wrap_outbox_sweep_step(OutboxSweep *sweep, OutboxRelay *relay);

void
__wrap_outbox_sweep_step(OutboxSweep *sweep, OutboxRelay *relay)
{
	int64		began = sim_now;

	__real_outbox_sweep_step(sweep, relay);
	sim_oracle_swept(began, sweep->whole && sweep->from == 0);
}

typedef struct Heard
{
	OutboxIntentVisit visit;
	void	   *arg;
} Heard;

static void
hear(TransactionId xid, const OutboxRange *range, void *arg)
{
	Heard	   *heard = arg;

	sim_learn(xid);
	sim_learn(range->hi);
	heard->visit(xid, range, heard->arg);
}

extern bool __real_outbox_flushed_has(FullTransactionId xid);
extern bool __wrap_outbox_flushed_has(FullTransactionId xid);

bool
__wrap_outbox_flushed_has(FullTransactionId xid)
{
	bool		has = __real_outbox_flushed_has(xid);

	sim_learn(has);
	return has;
}

void
__wrap_outbox_intent_visit(OutboxIntentVisit visit, void *arg)
{
	Heard		heard = {visit, arg};

	sim_point("commit intents");
	__real_outbox_intent_visit(hear, &heard);
}
