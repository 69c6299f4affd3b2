/*-------------------------------------------------------------------------
 *
 * workers.c
 *		More worker processes than the launcher would ever start.
 *
 * The shared memory is looked up by its name, because outbox.so exports no
 * variables from PostgreSQL 16 on.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "fmgr.h"
#include "miscadmin.h"
#include "postmaster/bgworker.h"
#include "shared.h"
#include "storage/shmem.h"

PG_FUNCTION_INFO_V1(outbox_test_second_worker);
PG_FUNCTION_INFO_V1(outbox_test_replace_worker);

#define LEAVES_WITHIN_MS 5000

static OutboxShared *
shared_memory(void)
{
	bool		found;
	OutboxShared *shared =
	ShmemInitStruct("outbox",
					add_size(offsetof(OutboxShared, slots),
							 mul_size(max_worker_processes,
									  sizeof(OutboxSlot))),
					&found);

	if (!found)
		elog(ERROR, "outbox is not preloaded");
	return shared;
}

static OutboxSlot *
first_worker(OutboxShared *shared)
{
	for (int i = 0; i < shared->nslots; i++)
		if (shared->slots[i].in_use && shared->slots[i].worker == 0 &&
			shared->slots[i].dboid == MyDatabaseId)
			return &shared->slots[i];
	elog(ERROR, "database has no worker");
	return NULL;
}

/* As the launcher does. */
static BackgroundWorkerHandle *
start_worker(OutboxShared *shared, OutboxSlot *slot, uint64 generation)
{
	BackgroundWorker worker;
	OutboxWorkerArgs args;
	BackgroundWorkerHandle *handle;

	memset(&args, 0, sizeof(args));
	args.dboid = MyDatabaseId;
	args.slot = (int) (slot - shared->slots);
	args.generation = generation;
	memset(&worker, 0, sizeof(worker));
	worker.bgw_flags = BGWORKER_SHMEM_ACCESS |
		BGWORKER_BACKEND_DATABASE_CONNECTION;
	worker.bgw_start_time = BgWorkerStart_RecoveryFinished;
	worker.bgw_restart_time = BGW_NEVER_RESTART;
	snprintf(worker.bgw_library_name, sizeof(worker.bgw_library_name), "outbox");
	snprintf(worker.bgw_function_name, sizeof(worker.bgw_function_name),
			 "outbox_relay_main");
	snprintf(worker.bgw_name, BGW_MAXLEN, "outbox relay of a test");
	snprintf(worker.bgw_type, BGW_MAXLEN, "outbox relay");
	worker.bgw_notify_pid = MyProcPid;
	memcpy(worker.bgw_extra, &args, sizeof(args));
	if (!RegisterDynamicBackgroundWorker(&worker, &handle))
		elog(ERROR, "no worker process is free");
	return handle;
}

Datum
outbox_test_second_worker(PG_FUNCTION_ARGS)
{
	OutboxShared *shared = shared_memory();
	OutboxSlot *slot = first_worker(shared);
	BackgroundWorkerHandle *handle =
	start_worker(shared, slot, slot->generation + PG_GETARG_INT32(0));
	pid_t		pid;

	for (int ms = 0; ms < LEAVES_WITHIN_MS; ms += 10)
	{
		if (GetBackgroundWorkerPid(handle, &pid) == BGWH_STOPPED)
			PG_RETURN_BOOL(true);
		CHECK_FOR_INTERRUPTS();
		pg_usleep(10000);
	}
	PG_RETURN_BOOL(false);
}

Datum
outbox_test_replace_worker(PG_FUNCTION_ARGS)
{
	OutboxShared *shared = shared_memory();
	OutboxSlot *slot = first_worker(shared);
	uint64		generation = ++shared->last_generation;
	BackgroundWorkerHandle *handle;
	pid_t		pid;

	SpinLockAcquire(&slot->mutex);
	slot->generation = generation;
	slot->pid = 0;
	slot->procno = -1;
	SpinLockRelease(&slot->mutex);
	handle = start_worker(shared, slot, generation);
	if (WaitForBackgroundWorkerStartup(handle, &pid) != BGWH_STARTED)
		elog(ERROR, "worker did not start");
	PG_RETURN_INT32(pid);
}
