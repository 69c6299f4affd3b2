/*-------------------------------------------------------------------------
 *
 * launcher.c
 *		The launcher: which databases have relay workers.
 *
 * One static process, connected to no database, that starts when recovery is
 * over (so also at a promotion).  It never exits with 0, which would be for
 * good.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "launcher.h"
#include "launcher_internal.h"
#include "miscadmin.h"
#include "overrides.h"
#include "own_version.h"
#include "pgstat.h"
#include "postmaster/interrupt.h"
#include "storage/ipc.h"
#include "storage/latch.h"
#include "tcop/tcopprot.h"
#include "test_point.h"
#include "utils/guc.h"
#include "utils/memutils.h"
#include "utils/wait_event.h"
#include "wait_event.h"

#define MAX_WAIT_MS			60000

/* Milliseconds until some database has to be looked at again. */
static long
manage_databases(void)
{
	OutboxMonoTime now = outbox_mono_now();
	OutboxMonoTime next = outbox_mono_plus(now, MAX_WAIT_MS);
	ListCell   *cell;

	outbox_mono_earlier(&next, outbox_old_workers_check(now));
	foreach(cell, outbox_databases)
	{
		DatabaseEntry *db = lfirst(cell);

		if (!outbox_database_check(db, now))
			continue;
		outbox_databases = foreach_delete_current(outbox_databases, cell);
		pfree(db);
	}
	outbox_turns_sort();
	foreach(cell, outbox_databases)
		outbox_database_start(lfirst(cell), now);
	outbox_mono_earlier(&next, outbox_turns_check(now));
	outbox_mono_earlier(&next, outbox_probes_check(now));
	foreach(cell, outbox_databases)
	{
		DatabaseEntry *db = lfirst(cell);

		if (!outbox_mono_reached(db->retry_at, now))
			outbox_mono_earlier(&next, db->retry_at);
		if (!outbox_mono_reached(db->room_until, now))
			outbox_mono_earlier(&next, db->room_until);
	}
	return (long) outbox_mono_ms_until(next, outbox_mono_now());
}

/* ------------------------------------------------------------- the process */

static void
launcher_exit(int code, Datum arg)
{
	(void) code;
	(void) arg;
	outbox_shared->launcher_procno = -1;
}

void
outbox_launcher_main(Datum main_arg)
{
	(void) main_arg;
	before_shmem_exit(launcher_exit, (Datum) 0);
	pqsignal(SIGTERM, die);
	pqsignal(SIGHUP, SignalHandlerForConfigReload);
	BackgroundWorkerUnblockSignals();
	/* Shared catalogs only. */
	BackgroundWorkerInitializeConnection(NULL, NULL, 0);
	outbox_override_settings(NULL);
	/* It has nothing else to do than what it waits for. */
	SetConfigOption("lock_timeout", "0", PGC_SUSET, PGC_S_OVERRIDE);
	outbox_beat(&outbox_shared->launcher_beat, 0);
	outbox_shared->launcher_procno = outbox_my_procno();

	SetConfigOption("application_name",
					psprintf("outbox launcher (%s)", outbox_library_version()),
					PGC_USERSET, PGC_S_OVERRIDE);
	outbox_launcher_cxt = AllocSetContextCreate(TopMemoryContext, "outbox launcher",
										 ALLOCSET_DEFAULT_SIZES);
	MemoryContextSwitchTo(outbox_launcher_cxt);
	outbox_old_workers_init();
	outbox_databases_scan();
	for (;;)
	{
		long		timeout;

		pgstat_report_activity(STATE_RUNNING, "outbox launcher: starting relay workers");
		/* Before it looks: what comes from here on is for the next turn. */
		pg_atomic_write_u64(&outbox_shared->launcher_told, 0);
		outbox_databases_take_requests();
		OUTBOX_TEST_POINT("launch");
		timeout = manage_databases();
		pgstat_report_activity(STATE_IDLE, NULL);
		outbox_beat(&outbox_shared->launcher_beat, Max(timeout, 10));
		(void) WaitLatch(MyLatch,
						 WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH,
						 Max(timeout, 10),
						 outbox_wait_event(OUTBOX_WAIT_LAUNCHER));
		outbox_beat(&outbox_shared->launcher_beat, 0);
		ResetLatch(MyLatch);
		/* An ordinary stop is not worth a FATAL in the log. */
		if (ProcDiePending)
			proc_exit(1);
		CHECK_FOR_INTERRUPTS();
		if (ConfigReloadPending)
		{
			ConfigReloadPending = false;
			ProcessConfigFile(PGC_SIGHUP);
		}
	}
}

void
outbox_launcher_register(void)
{
	BackgroundWorker worker;

	memset(&worker, 0, sizeof(worker));
	worker.bgw_flags = BGWORKER_SHMEM_ACCESS |
		BGWORKER_BACKEND_DATABASE_CONNECTION;
	worker.bgw_start_time = BgWorkerStart_RecoveryFinished;
	worker.bgw_restart_time = 5;
	snprintf(worker.bgw_library_name, sizeof(worker.bgw_library_name),
			 "outbox");
	snprintf(worker.bgw_function_name, sizeof(worker.bgw_function_name),
			 CppAsString(outbox_launcher_main));
	snprintf(worker.bgw_name, BGW_MAXLEN, "outbox launcher");
	snprintf(worker.bgw_type, BGW_MAXLEN, "outbox launcher");
	RegisterBackgroundWorker(&worker);
}
