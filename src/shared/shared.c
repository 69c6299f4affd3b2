/*-------------------------------------------------------------------------
 *
 * shared.c
 *		Shared memory: its set-up, whose latch is where, and what is under its own mutex:
 *		holds and known replication slots.
 *
 * See shared.h for what is guarded by which lock.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <fcntl.h>
#include <sys/stat.h>

#include "miscadmin.h"
#include "settings.h"
#include "shared_internal.h"
#include "storage/ipc.h"
#include "storage/latch.h"
#include "storage/proc.h"
#include "storage/shmem.h"
#include "utils/timestamp.h"
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

/*
 * A crash of the server wipes shared memory, and has it set up again by the same
 * postmaster, whose own variables outlive that.
 */
static void
count_server_crashes(void)
{
	static int	starts = 0;

	if (starts++ == 0)
		return;
	outbox_shared->server_crashes = starts - 1;
	outbox_shared->server_crashed_at = GetCurrentTimestamp();
}

static void
init_shared(void)
{
	count_server_crashes();
	SpinLockInit(&outbox_shared->mutex);
	outbox_shared->nslots = max_worker_processes;
	outbox_shared->launcher_procno = -1;
	pg_atomic_init_u64(&outbox_shared->launcher_beat, 0);
	pg_atomic_init_u64(&outbox_shared->launcher_told, 0);
	for (int i = 0; i < outbox_shared->nslots; i++)
		shared_init_slot(&outbox_shared->slots[i]);
}

/* All parts; init gets memory that is 0. */
static const struct
{
	const char *name;
	void	  **memory;
	Size		(*size) (void);
	void		(*init) (void);
}			parts[] = {
	{"outbox", (void **) &outbox_shared, shared_size, init_shared},
	{"outbox commit intents", (void **) &outbox_commit_intents, outbox_intent_size, outbox_intent_init},
	{"outbox flushed transactions", (void **) &outbox_flushed, outbox_flushed_size, outbox_flushed_init},
	{"outbox statistics", (void **) &outbox_stats, outbox_stats_size, outbox_stats_init},
	{"outbox waiters", (void **) &outbox_waiters, outbox_waiters_size, outbox_waiters_init},
	{"outbox recently settled", (void **) &outbox_recent_rings, outbox_recent_size, outbox_recent_init},
	{"outbox caps", (void **) &outbox_cap_buckets, outbox_caps_size, outbox_caps_init},
};

static void
shared_request(void)
{
	if (prev_shmem_request_hook)
		prev_shmem_request_hook();
	for (int i = 0; i < (int) lengthof(parts); i++)
		RequestAddinShmemSpace(parts[i].size());
}

static void
shared_startup(void)
{
	if (prev_shmem_startup_hook)
		prev_shmem_startup_hook();

	LWLockAcquire(AddinShmemInitLock, LW_EXCLUSIVE);
	for (int i = 0; i < (int) lengthof(parts); i++)
	{
		bool		found;

		*parts[i].memory = ShmemInitStruct(parts[i].name, parts[i].size(), &found);
		if (found)
			continue;
		memset(*parts[i].memory, 0, parts[i].size());
		parts[i].init();
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
	return psprintf("The databases of this server have all %d workers that outbox.max_workers allows: raise it (0 is half of max_worker_processes) and reload, or lower outbox.workers.",
					outbox_worker_limit());
}

void
outbox_shared_wake_launcher(void)
{
	if (pg_atomic_read_u64(&outbox_shared->launcher_told) == 0)
		pg_atomic_write_u64(&outbox_shared->launcher_told, outbox_mono_now().us);
	outbox_wake_procno(outbox_shared->launcher_procno);
}

void
outbox_shared_set_resting(const Oid *dboids, int count)
{
	SpinLockAcquire(&outbox_shared->mutex);
	memcpy(outbox_shared->resting, dboids, count * sizeof(Oid));
	outbox_shared->nresting = count;
	SpinLockRelease(&outbox_shared->mutex);
}

bool
outbox_shared_is_resting(Oid dboid)
{
	bool		found = false;

	SpinLockAcquire(&outbox_shared->mutex);
	for (int i = 0; i < outbox_shared->nresting; i++)
		found |= outbox_shared->resting[i] == dboid;
	SpinLockRelease(&outbox_shared->mutex);
	return found;
}

/* ------------------------------------------------------------------- holds */

/*
 * A backend takes its holds with it, however it ends: by its exit callback, or
 * with all shared memory.  So none is left of which nobody knows whether it counts.
 */
static void
release_at_exit(int code, Datum arg)
{
	(void) code;
	(void) arg;
	for (int i = 0; i < OUTBOX_MAX_HOLDS; i++)
	{
		OutboxHold *hold = &outbox_shared->holds[i];

		/* One that is ours stays as it is until we release it. */
		if (OidIsValid(hold->dboid) && hold->pid == MyProcPid)
			outbox_hold_release(hold->dboid, true);
	}
}

bool
outbox_hold_set(Oid dboid)
{
	static bool registered = false;
	bool		done = false;

	if (!registered)
		before_shmem_exit(release_at_exit, (Datum) 0);
	registered = true;
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
		outbox_shared_request_database(dboid, false);
}

bool
outbox_hold_exists(Oid dboid)
{
	bool		exists = false;

	SpinLockAcquire(&outbox_shared->mutex);
	for (int i = 0; i < OUTBOX_MAX_HOLDS && !exists; i++)
		exists = outbox_shared->holds[i].dboid == dboid;
	SpinLockRelease(&outbox_shared->mutex);
	return exists;
}

/* ------------------------------------------------------- replication slots */

/*
 * The server gives a slot no identity but its name.  A slot that is dropped and made
 * again begins at the end of the write-ahead log, and what its reader had not read is
 * lost to it.  But it is a new directory: its inode and, since these are used again,
 * the time of its birth tell.  Known since the server's start, as all shared memory.
 *
 * The files of slots are below the data directory, where each process is.
 */
static bool
identify_cdc_slot(const char *name, OutboxCdcSlot *slot)
{
	char		path[MAXPGPATH];
#ifdef STATX_BTIME
	struct statx st;
#else
	struct stat st;
#endif

	snprintf(path, sizeof(path), "pg_replslot/%s", name);
#ifdef STATX_BTIME
	if (statx(AT_FDCWD, path, 0, STATX_INO | STATX_BTIME, &st) != 0)
		return false;
	slot->inode = st.stx_ino;
	slot->born_ns = (st.stx_mask & STATX_BTIME) == 0 ? 0 :
		(int64) st.stx_btime.tv_sec * 1000000000 + st.stx_btime.tv_nsec;
#else
	if (stat(path, &st) != 0)
		return false;
	slot->inode = st.st_ino;
	slot->born_ns = 0;
#endif
	return true;
}

/*
 * Under the mutex.  One that is not known gets an unused entry, or that which was
 * looked at least recently: its database may be gone, or the extension there.
 */
static OutboxCdcSlot *
find_cdc_slot(const char *name, bool *known)
{
	OutboxCdcSlot *oldest = NULL;

	*known = true;
	for (int i = 0; i < OUTBOX_CDC_SLOTS; i++)
	{
		OutboxCdcSlot *slot = &outbox_shared->cdc_slots[i];

		if (slot->dboid == MyDatabaseId && strcmp(NameStr(slot->name), name) == 0)
			return slot;
		if (oldest == NULL || slot->looked_at < oldest->looked_at)
			oldest = slot;
	}
	*known = false;
	return oldest;
}

bool
outbox_cdc_slot_look(const char *name)
{
	OutboxCdcSlot now;
	OutboxCdcSlot *slot;
	TimestampTz moment = GetCurrentTimestamp();
	bool		known;

	if (outbox_shared == NULL || !identify_cdc_slot(name, &now))
		return false;
	SpinLockAcquire(&outbox_shared->mutex);
	slot = find_cdc_slot(name, &known);
	if (!known || slot->inode != now.inode || slot->born_ns != now.born_ns)
	{
		slot->dboid = MyDatabaseId;
		strlcpy(NameStr(slot->name), name, NAMEDATALEN);
		slot->inode = now.inode;
		slot->born_ns = now.born_ns;
		slot->remade_at = known ? moment : 0;
	}
	slot->looked_at = moment;
	SpinLockRelease(&outbox_shared->mutex);
	return true;
}

void
outbox_cdc_slot_forget(const char *name)
{
	OutboxCdcSlot *slot;
	bool		known;

	if (outbox_shared == NULL)
		return;
	SpinLockAcquire(&outbox_shared->mutex);
	slot = find_cdc_slot(name, &known);
	if (known)
	{
		slot->dboid = InvalidOid;
		slot->looked_at = 0;
	}
	SpinLockRelease(&outbox_shared->mutex);
}

bool
outbox_cdc_slot_get(int i, OutboxCdcSlot *slot)
{
	/* Again, as the look may have found another one. */
	for (int looked = 0; looked < 2; looked++)
	{
		SpinLockAcquire(&outbox_shared->mutex);
		*slot = outbox_shared->cdc_slots[i];
		SpinLockRelease(&outbox_shared->mutex);
		if (slot->dboid != MyDatabaseId)
			return false;
		if (looked == 0)
			(void) outbox_cdc_slot_look(NameStr(slot->name));
	}
	return true;
}
