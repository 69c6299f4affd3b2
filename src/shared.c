/*-------------------------------------------------------------------------
 *
 * shared.c
 *		Shared memory: worker slots, wake-ups, counters.
 *
 * See shared.h for what is guarded by which lock.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "fault.h"
#include "miscadmin.h"
#include "shared.h"
#include "storage/ipc.h"
#include "storage/latch.h"
#include "storage/proc.h"
#include "storage/procarray.h"
#include "storage/shmem.h"
#include "utils/timestamp.h"

/* Ranges that lie closer together than this become one. */
#define RANGE_MERGE_DISTANCE 64

OutboxShared *outbox_shared = NULL;
OutboxSlot *MySlot = NULL;

static uint64 my_generation = 0;

static shmem_request_hook_type prev_shmem_request_hook = NULL;
static shmem_startup_hook_type prev_shmem_startup_hook = NULL;

static Size
shared_size(void)
{
	return add_size(offsetof(OutboxShared, slots),
					mul_size(max_worker_processes, sizeof(OutboxSlot)));
}

/* Forgets what the previous owner of a slot has done. */
static void
shared_clear_history(OutboxSlot *slot)
{
	pg_atomic_write_u64(&slot->counters.published, 0);
	pg_atomic_write_u64(&slot->counters.returned, 0);
	pg_atomic_write_u64(&slot->counters.nacked, 0);
	pg_atomic_write_u64(&slot->counters.failed, 0);
	pg_atomic_write_u64(&slot->counters.retried, 0);
	pg_atomic_write_u64(&slot->counters.reconnects, 0);
	slot->last_error[0] = '\0';
	slot->last_error_at = 0;
	slot->broker[0] = '\0';
}

static void
shared_init_slot(OutboxSlot *slot)
{
	SpinLockInit(&slot->mutex);
	slot->procno = -1;
	pg_atomic_init_u64(&slot->counters.published, 0);
	pg_atomic_init_u64(&slot->counters.returned, 0);
	pg_atomic_init_u64(&slot->counters.nacked, 0);
	pg_atomic_init_u64(&slot->counters.failed, 0);
	pg_atomic_init_u64(&slot->counters.retried, 0);
	pg_atomic_init_u64(&slot->counters.reconnects, 0);
	pg_atomic_init_u32(&slot->counters.claimed, 0);
	pg_atomic_init_u32(&slot->counters.in_flight, 0);
	for (int i = 0; i < OUTBOX_MAX_CLAIMS; i++)
		pg_atomic_init_u64(&slot->claims[i], 0);
}

static void
shared_request(void)
{
	if (prev_shmem_request_hook)
		prev_shmem_request_hook();
	RequestAddinShmemSpace(shared_size());
}

static void
shared_startup(void)
{
	bool		found;

	if (prev_shmem_startup_hook)
		prev_shmem_startup_hook();

	LWLockAcquire(AddinShmemInitLock, LW_EXCLUSIVE);
	outbox_shared = ShmemInitStruct("outbox", shared_size(), &found);
	if (!found)
	{
		memset(outbox_shared, 0, shared_size());
		SpinLockInit(&outbox_shared->mutex);
		outbox_shared->nslots = max_worker_processes;
		outbox_shared->launcher_procno = -1;
		for (int i = 0; i < outbox_shared->nslots; i++)
			shared_init_slot(&outbox_shared->slots[i]);
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

void
outbox_shared_wake_launcher(void)
{
	outbox_wake_procno(outbox_shared->launcher_procno);
}

/* ---------------------------------------------------------------- wake-ups */

void
outbox_range_add(OutboxRange *ranges, int *nranges, int max,
				 OutboxRange range)
{
	int			nearest = 0;
	int64		nearest_gap = PG_INT64_MAX;

	for (int i = 0; i < *nranges; i++)
	{
		int64		gap = 0;

		if (range.lo > ranges[i].hi)
			gap = range.lo - ranges[i].hi;
		else if (range.hi < ranges[i].lo)
			gap = ranges[i].lo - range.hi;
		if (gap < nearest_gap)
		{
			nearest_gap = gap;
			nearest = i;
		}
	}

	if (*nranges < max && nearest_gap > RANGE_MERGE_DISTANCE)
	{
		ranges[(*nranges)++] = range;
		return;
	}
	/* Reading rows between two ranges once more is harmless. */
	ranges[nearest].lo = Min(ranges[nearest].lo, range.lo);
	ranges[nearest].hi = Max(ranges[nearest].hi, range.hi);
}

/* Caller has slot->mutex. */
static void
inbox_add(OutboxInbox *inbox, const OutboxRange *range,
		  TransactionId prepared_xid, TimestampTz next_due, int news)
{
	inbox->news |= news;
	if (next_due != 0 &&
		(inbox->next_due == 0 || next_due < inbox->next_due))
		inbox->next_due = next_due;
	if (range == NULL)
		return;
	if (!TransactionIdIsValid(prepared_xid))
		outbox_range_add(inbox->ranges, &inbox->nranges,
						 OUTBOX_INBOX_RANGES, *range);
	else if (inbox->nprepared < OUTBOX_INBOX_PREPARED)
	{
		inbox->prepared[inbox->nprepared].xid = prepared_xid;
		inbox->prepared[inbox->nprepared].range = *range;
		inbox->prepared[inbox->nprepared].early = false;
		inbox->nprepared++;
	}
	else
		/* The worker looks the prepared transactions up itself. */
		inbox->news |= OUTBOX_NEWS_RESCAN;
}

/* Asks the launcher to look at a database. */
static void
request_database(Oid dboid)
{
	bool		known = false;

	SpinLockAcquire(&outbox_shared->mutex);
	for (int i = 0; i < outbox_shared->nrequests && !known; i++)
		known = outbox_shared->requests[i] == dboid;
	if (!known && outbox_shared->nrequests < OUTBOX_MAX_REQUESTS)
		outbox_shared->requests[outbox_shared->nrequests++] = dboid;
	else if (!known)
		outbox_shared->requests_lost = true;
	SpinLockRelease(&outbox_shared->mutex);
	if (!known)
		outbox_shared_wake_launcher();
}

void
outbox_shared_announce(Oid dboid, const OutboxRange *range,
					   TransactionId prepared_xid, TimestampTz next_due,
					   int news)
{
	bool		found = false;

	/*
	 * No lock to find the slots: a worker whose slot is assigned only now
	 * takes its first snapshot later than this commit, and sees the rows.
	 */
	for (int i = 0; i < outbox_shared->nslots; i++)
	{
		OutboxSlot *slot = &outbox_shared->slots[i];

		int			procno = -1;

		if (!slot->in_use || slot->dboid != dboid)
			continue;
		SpinLockAcquire(&slot->mutex);
		/* Look again: it may have been freed, and nobody reads it then. */
		if (slot->in_use && slot->dboid == dboid)
		{
			inbox_add(&slot->inbox, range, prepared_xid, next_due, news);
			/* The poll is soon enough, or what ends that state. */
			procno = (slot->deaf && news == 0) || slot->napping ?
				-1 : slot->procno;
			found = true;
		}
		SpinLockRelease(&slot->mutex);
		if (!OUTBOX_FAULT_LEAVES_OUT("latch"))
			outbox_wake_procno(procno);
	}
	if (!found)
		request_database(dboid);
}

void
outbox_shared_announce_early(Oid dboid, const OutboxRange *range,
							 TransactionId xid)
{
	for (int i = 0; i < outbox_shared->nslots; i++)
	{
		OutboxSlot *slot = &outbox_shared->slots[i];

		/* One that claims nothing now takes nothing out of order. */
		if (!slot->in_use || slot->dboid != dboid || slot->deaf)
			continue;
		SpinLockAcquire(&slot->mutex);
		if (slot->in_use && slot->dboid == dboid &&
			slot->inbox.nprepared < OUTBOX_INBOX_PREPARED)
		{
			inbox_add(&slot->inbox, range, xid, 0, 0);
			slot->inbox.prepared[slot->inbox.nprepared - 1].early = true;
		}
		SpinLockRelease(&slot->mutex);
	}
}

void
outbox_slot_take_inbox(OutboxInbox *inbox)
{
	SpinLockAcquire(&MySlot->mutex);
	inbox->news = MySlot->inbox.news;
	inbox->next_due = MySlot->inbox.next_due;
	inbox->nranges = MySlot->inbox.nranges;
	inbox->nprepared = MySlot->inbox.nprepared;
	memcpy(inbox->ranges, MySlot->inbox.ranges,
		   sizeof(OutboxRange) * inbox->nranges);
	memcpy(inbox->prepared, MySlot->inbox.prepared,
		   sizeof(OutboxPrepared) * inbox->nprepared);
	MySlot->inbox.news = 0;
	MySlot->inbox.next_due = 0;
	MySlot->inbox.nranges = 0;
	MySlot->inbox.nprepared = 0;
	SpinLockRelease(&MySlot->mutex);
}

int
outbox_shared_tell_workers(Oid dboid, int news)
{
	int			told = 0;

	for (int i = 0; i < outbox_shared->nslots; i++)
	{
		OutboxSlot *slot = &outbox_shared->slots[i];

		if (!slot->in_use || slot->dboid != dboid)
			continue;
		SpinLockAcquire(&slot->mutex);
		slot->inbox.news |= news;
		SpinLockRelease(&slot->mutex);
		outbox_wake_procno(slot->procno);
		if (slot->pid != 0)
			told++;
	}
	return told;
}

int
outbox_shared_count_slots(Oid dboid)
{
	int			count = 0;

	for (int i = 0; i < outbox_shared->nslots; i++)
	{
		OutboxSlot *slot = &outbox_shared->slots[i];

		if (slot->in_use && slot->dboid == dboid)
			count++;
	}
	return count;
}

int
outbox_shared_take_requests(Oid *dboids, bool *lost)
{
	int			count;

	SpinLockAcquire(&outbox_shared->mutex);
	count = outbox_shared->nrequests;
	memcpy(dboids, outbox_shared->requests, sizeof(Oid) * count);
	*lost = outbox_shared->requests_lost;
	outbox_shared->nrequests = 0;
	outbox_shared->requests_lost = false;
	SpinLockRelease(&outbox_shared->mutex);
	return count;
}

/* ------------------------------------------------------------------- slots */

/* Only the launcher assigns and frees, so in_use cannot change under it. */
static OutboxSlot *
choose_slot(Oid dboid, int worker)
{
	OutboxSlot *chosen = NULL;

	for (int i = 0; i < outbox_shared->nslots; i++)
	{
		OutboxSlot *slot = &outbox_shared->slots[i];

		if (slot->in_use)
			continue;
		if (chosen == NULL)
			chosen = slot;
		/* The one that this worker had before still has its counters. */
		if (slot->dboid == dboid && slot->worker == worker)
			return slot;
	}
	return chosen;
}

OutboxSlot *
outbox_slot_assign(Oid dboid, int worker, int nworkers, uint64 *generation)
{
	OutboxSlot *slot = choose_slot(dboid, worker);

	if (slot == NULL)
		return NULL;
	if (slot->dboid != dboid || slot->worker != worker)
		shared_clear_history(slot);
	*generation = ++outbox_shared->last_generation;
	SpinLockAcquire(&slot->mutex);
	slot->dboid = dboid;
	slot->worker = worker;
	slot->nworkers = nworkers;
	slot->generation = *generation;
	slot->pid = 0;
	slot->procno = -1;
	slot->exit_reason = OUTBOX_EXIT_CRASHED;
	slot->rest_ms = 0;
	slot->told = OUTBOX_TOLD_NOTHING;
	slot->deaf = false;
	slot->napping = false;
	slot->ready = false;
	slot->broken_routes = 0;
	slot->wanted_workers = nworkers;
	slot->state = OUTBOX_WORKER_STARTING;
	slot->since = 0;
	slot->commit_since = 0;
	slot->inbox.news = 0;
	slot->inbox.next_due = 0;
	slot->inbox.nranges = 0;
	slot->inbox.nprepared = 0;
	slot->in_use = true;
	SpinLockRelease(&slot->mutex);
	return slot;
}

bool
outbox_slot_attach(int index, uint64 generation)
{
	OutboxSlot *slot;
	bool		mine;
	TimestampTz now = GetCurrentTimestamp();

	if (index < 0 || index >= outbox_shared->nslots)
		return false;
	slot = &outbox_shared->slots[index];
	SpinLockAcquire(&slot->mutex);
	mine = slot->in_use && slot->generation == generation && slot->pid == 0;
	if (mine)
	{
		slot->pid = MyProcPid;
		slot->procno = outbox_my_procno();
		slot->started_at = now;
	}
	SpinLockRelease(&slot->mutex);
	if (!mine)
		return false;

	MySlot = slot;
	my_generation = generation;
	outbox_slot_set_state(OUTBOX_WORKER_STARTING);
	return true;
}

bool
outbox_slot_is_mine(void)
{
	return MySlot != NULL && MySlot->in_use &&
		MySlot->generation == my_generation;
}

void
outbox_slot_detach(void)
{
	if (MySlot == NULL)
		return;
	if (outbox_slot_is_mine())
	{
		for (int i = 0; i < OUTBOX_MAX_CLAIMS; i++)
			pg_atomic_write_u64(&MySlot->claims[i], 0);
		pg_atomic_write_u32(&MySlot->counters.claimed, 0);
		pg_atomic_write_u32(&MySlot->counters.in_flight, 0);
	}
	SpinLockAcquire(&MySlot->mutex);
	if (MySlot->in_use && MySlot->generation == my_generation)
	{
		MySlot->pid = 0;
		MySlot->procno = -1;
	}
	SpinLockRelease(&MySlot->mutex);
	MySlot = NULL;
	outbox_shared_wake_launcher();
}

bool
outbox_slot_free(OutboxSlot *slot, uint64 generation)
{
	bool		unread = false;

	SpinLockAcquire(&slot->mutex);
	if (slot->in_use && slot->generation == generation)
	{
		unread = slot->inbox.news != 0 || slot->inbox.nranges > 0 ||
			slot->inbox.nprepared > 0 || slot->inbox.next_due != 0;
		slot->in_use = false;
	}
	SpinLockRelease(&slot->mutex);
	return unread;
}

void
outbox_slot_set_ready(int wanted_workers)
{
	if (MySlot->ready && MySlot->wanted_workers == wanted_workers)
		return;
	MySlot->wanted_workers = wanted_workers;
	MySlot->ready = true;
	outbox_shared_wake_launcher();
}

void
outbox_slot_set_state(OutboxWorkerState state)
{
	TimestampTz now;

	if (MySlot->state == state && MySlot->since != 0)
		return;
	now = GetCurrentTimestamp();
	SpinLockAcquire(&MySlot->mutex);
	MySlot->state = state;
	MySlot->since = now;
	SpinLockRelease(&MySlot->mutex);
}

void
outbox_slot_set_committing(bool committing)
{
	TimestampTz now = committing ? GetCurrentTimestamp() : 0;

	SpinLockAcquire(&MySlot->mutex);
	MySlot->commit_since = now;
	SpinLockRelease(&MySlot->mutex);
}

void
outbox_slot_set_broker(const char *broker)
{
	SpinLockAcquire(&MySlot->mutex);
	strlcpy(MySlot->broker, broker, sizeof(MySlot->broker));
	SpinLockRelease(&MySlot->mutex);
}

void
outbox_slot_set_error(const char *error)
{
	TimestampTz now = GetCurrentTimestamp();

	SpinLockAcquire(&MySlot->mutex);
	strlcpy(MySlot->last_error, error, sizeof(MySlot->last_error));
	MySlot->last_error_at = now;
	SpinLockRelease(&MySlot->mutex);
}

const char *
outbox_worker_state_name(OutboxWorkerState state)
{
	switch (state)
	{
		case OUTBOX_WORKER_STARTING:
			return "starting";
		case OUTBOX_WORKER_IDLE:
			return "idle";
		case OUTBOX_WORKER_PUBLISHING:
			return "publishing";
		case OUTBOX_WORKER_CONNECTING:
			return "connecting";
		case OUTBOX_WORKER_BROKER_DOWN:
			return "broker down";
		case OUTBOX_WORKER_BLOCKED:
			return "blocked";
		case OUTBOX_WORKER_PAUSED:
			return "paused";
		case OUTBOX_WORKER_NOT_ADOPTED:
			return "not adopted";
		case OUTBOX_WORKER_DISABLED:
			return "disabled";
		case OUTBOX_WORKER_CONFIG_ERROR:
			return "config error";
		case OUTBOX_WORKER_DATABASE_ERROR:
			return "database error";
		case OUTBOX_WORKER_WAITS_STANDBY:
			return "waiting for standby";
		case OUTBOX_WORKER_VERSION:
			return "version mismatch";
		case OUTBOX_WORKER_STOPPING:
			return "stopping";
		case OUTBOX_WORKER_STOPPED:
			return "stopped";
	}
	return "unknown";
}

/* ------------------------------------------------------------------- holds */

bool
outbox_hold_set(Oid dboid)
{
	bool		done = false;

	SpinLockAcquire(&outbox_shared->mutex);
	for (int i = 0; i < OUTBOX_MAX_HOLDS && !done; i++)
	{
		OutboxHold *hold = &outbox_shared->holds[i];

		if (!OidIsValid(hold->dboid))
		{
			hold->dboid = dboid;
			hold->pid = MyProcPid;
			done = true;
		}
	}
	SpinLockRelease(&outbox_shared->mutex);
	return done;
}

void
outbox_hold_release(Oid dboid, bool restart)
{
	SpinLockAcquire(&outbox_shared->mutex);
	for (int i = 0; i < OUTBOX_MAX_HOLDS; i++)
	{
		OutboxHold *hold = &outbox_shared->holds[i];

		if (hold->dboid == dboid && hold->pid == MyProcPid)
			hold->dboid = InvalidOid;
	}
	SpinLockRelease(&outbox_shared->mutex);
	if (restart)
		request_database(dboid);
}

/* A hold whose backend is gone (killed amid the command) counts no more. */
bool
outbox_hold_exists(Oid dboid)
{
	bool		exists = false;

	for (int i = 0; i < OUTBOX_MAX_HOLDS; i++)
	{
		OutboxHold	hold;

		SpinLockAcquire(&outbox_shared->mutex);
		hold = outbox_shared->holds[i];
		SpinLockRelease(&outbox_shared->mutex);
		if (!OidIsValid(hold.dboid) || hold.dboid != dboid)
			continue;
		if (BackendPidGetProc(hold.pid) != NULL)
			exists = true;
		else
		{
			SpinLockAcquire(&outbox_shared->mutex);
			if (outbox_shared->holds[i].pid == hold.pid)
				outbox_shared->holds[i].dboid = InvalidOid;
			SpinLockRelease(&outbox_shared->mutex);
		}
	}
	return exists;
}
