/*-------------------------------------------------------------------------
 *
 * shared.c
 *		Shared memory: its set-up, and whose latch is where.
 *
 * See shared.h for what is guarded by which lock.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "miscadmin.h"
#include "shared_internal.h"
#include "storage/ipc.h"
#include "storage/latch.h"
#include "storage/proc.h"
#include "storage/shmem.h"
#include "worker_limit.h"

OutboxShared *outbox_shared = NULL;
OutboxCommitIntent *outbox_commit_intents = NULL;

static shmem_request_hook_type prev_shmem_request_hook = NULL;
static shmem_startup_hook_type prev_shmem_startup_hook = NULL;

static Size
shared_size(void)
{
	return add_size(offsetof(OutboxShared, slots),
					mul_size(max_worker_processes, sizeof(OutboxSlot)));
}

static void
shared_init_slot(OutboxSlot *slot)
{
	SpinLockInit(&slot->mutex);
	slot->procno = -1;
	pg_atomic_init_u64(&slot->beat, 0);
	pg_atomic_init_u64(&slot->counters.published, 0);
	pg_atomic_init_u64(&slot->counters.returned, 0);
	pg_atomic_init_u64(&slot->counters.nacked, 0);
	pg_atomic_init_u64(&slot->counters.failed, 0);
	pg_atomic_init_u64(&slot->counters.retried, 0);
	pg_atomic_init_u64(&slot->counters.reconnects, 0);
	pg_atomic_init_u32(&slot->counters.claimed, 0);
	pg_atomic_init_u32(&slot->counters.in_flight, 0);
	pg_atomic_init_u32(&slot->counters.locked, 0);
	pg_atomic_init_u64(&slot->counters.lowest_seq, 0);
	for (int i = 0; i < OUTBOX_MAX_CLAIMS; i++)
		pg_atomic_init_u64(&slot->claims[i], 0);
}

static void
shared_request(void)
{
	if (prev_shmem_request_hook)
		prev_shmem_request_hook();
	RequestAddinShmemSpace(shared_size());
	RequestAddinShmemSpace(outbox_intent_size());
	RequestAddinShmemSpace(outbox_stats_size());
	RequestAddinShmemSpace(outbox_waiters_size());
	RequestAddinShmemSpace(outbox_caps_size());
}

static void
shared_startup(void)
{
	bool		found;

	if (prev_shmem_startup_hook)
		prev_shmem_startup_hook();

	LWLockAcquire(AddinShmemInitLock, LW_EXCLUSIVE);
	outbox_waiters_startup();
	outbox_caps_startup();
	outbox_shared = ShmemInitStruct("outbox", shared_size(), &found);
	outbox_commit_intents = ShmemInitStruct("outbox commit intents",
											outbox_intent_size(), &found);
	outbox_stats = ShmemInitStruct("outbox statistics", outbox_stats_size(),
								   &found);
	if (!found)
	{
		memset(outbox_shared, 0, shared_size());
		memset(outbox_commit_intents, 0, outbox_intent_size());
		SpinLockInit(&outbox_shared->mutex);
		outbox_shared->nslots = max_worker_processes;
		outbox_shared->launcher_procno = -1;
		pg_atomic_init_u64(&outbox_shared->launcher_beat, 0);
		pg_atomic_init_u64(&outbox_shared->launcher_told, 0);
		for (int i = 0; i < outbox_shared->nslots; i++)
			shared_init_slot(&outbox_shared->slots[i]);
		outbox_intent_init();
		memset(outbox_stats, 0, outbox_stats_size());
		outbox_stats_init(outbox_stats);
	}
	LWLockRelease(AddinShmemInitLock);
}

void
outbox_shared_request(void)
{
	prev_shmem_request_hook = shmem_request_hook;
	shmem_request_hook = shared_request;
	prev_shmem_startup_hook = shmem_startup_hook;
	shmem_startup_hook = shared_startup;
}

/*
 * Index of this process in ProcGlobal->allProcs.  Computed rather than read,
 * as the field's name differs between server versions.
 */
int
outbox_my_procno(void)
{
	return (int) (MyProc - ProcGlobal->allProcs);
}

/*
 * Sets the latch of whoever has that PGPROC now.  PGPROCs are never unmapped,
 * so the worst that a stale number can do is to wake a stranger once.
 */
void
outbox_wake_procno(int procno)
{
	if (procno >= 0)
		SetLatch(&ProcGlobal->allProcs[procno].procLatch);
}

const char *
outbox_workers_advice(void)
{
	if (!outbox_shared->at_limit)
		return "All worker processes of the server are in use: raise max_worker_processes and restart, or lower outbox.workers.";
	return psprintf("The databases of this server have all %d workers that outbox.max_workers%s allows: raise it and reload, or lower outbox.workers.",
					outbox_worker_limit(), outbox_max_workers == 0 ? " (0: half of max_worker_processes)" : "");
}

void
outbox_shared_wake_launcher(void)
{
	if (pg_atomic_read_u64(&outbox_shared->launcher_told) == 0)
		pg_atomic_write_u64(&outbox_shared->launcher_told, outbox_mono_now().us);
	outbox_wake_procno(outbox_shared->launcher_procno);
}
