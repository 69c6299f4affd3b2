/*-------------------------------------------------------------------------
 *
 * shared_slots.c
 *		Slots of workers: whose they are, and what a worker says of itself.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "mb/pg_wchar.h"
#include "miscadmin.h"
#include "shared_internal.h"
#include "utils/timestamp.h"

OutboxSlot *MySlot = NULL;

static uint64 my_generation = 0;

/* Forgets what the previous owner of a slot has done. */
static void
clear_history(OutboxSlot *slot)
{
	pg_atomic_write_u64(&slot->counters.published, 0);
	pg_atomic_write_u64(&slot->counters.returned, 0);
	pg_atomic_write_u64(&slot->counters.nacked, 0);
	pg_atomic_write_u64(&slot->counters.failed, 0);
	pg_atomic_write_u64(&slot->counters.retried, 0);
	pg_atomic_write_u64(&slot->counters.reconnects, 0);
	slot->last_error[0] = '\0';
	slot->last_error_at = 0;
	slot->archive_error[0] = '\0';
	slot->archive_error_since = 0;
	slot->broker[0] = '\0';
	slot->tls_not_after = 0;
	slot->clock_jump_ms = 0;
	slot->clock_jumped_at = 0;
}

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
		clear_history(slot);
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
	slot->wakeups_off = false;
	slot->napping = false;
	pg_atomic_write_u64(&slot->beat, 0);
	slot->told_at = OUTBOX_MONO_UNSET;
	slot->ready = false;
	slot->broken_routes = 0;
	slot->wanted_workers = nworkers;
	slot->state = OUTBOX_WORKER_STARTING;
	slot->since = 0;
	slot->commit_since = 0;
	outbox_slot_forget_errors(slot);
	slot->inbox.signals = 0;
	slot->inbox.next_due = 0;
	slot->inbox.nranges = 0;
	slot->inbox.nprepared = 0;
	slot->inbox.lost.lo = slot->inbox.lost.hi = 0;
	pg_atomic_write_u64(&slot->counters.lowest_seq, 0);
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
		slot->state = OUTBOX_WORKER_STARTING;
		slot->since = now;
		outbox_beat(&slot->beat, 0);
	}
	SpinLockRelease(&slot->mutex);
	if (!mine)
		return false;

	MySlot = slot;
	my_generation = generation;
	return true;
}

bool
outbox_slot_is_mine(void)
{
	return MySlot != NULL && MySlot->in_use &&
		MySlot->generation == my_generation;
}

bool
outbox_slot_lock_mine(void)
{
	SpinLockAcquire(&MySlot->mutex);
	if (outbox_slot_is_mine())
		return true;
	SpinLockRelease(&MySlot->mutex);
	return false;
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
		pg_atomic_write_u32(&MySlot->counters.locked, 0);
	}
	if (outbox_slot_lock_mine())
	{
		MySlot->pid = 0;
		MySlot->procno = -1;
		SpinLockRelease(&MySlot->mutex);
	}
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
		unread = slot->inbox.signals != 0 || slot->inbox.nranges > 0 ||
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
	if (!outbox_slot_lock_mine())
		return;
	MySlot->wanted_workers = wanted_workers;
	MySlot->ready = true;
	SpinLockRelease(&MySlot->mutex);
	outbox_shared_wake_launcher();
}

#ifdef USE_ASSERT_CHECKING
/* What comes between STARTING and STOPPING comes in any order. */
static bool
may_become(OutboxWorkerState from, OutboxWorkerState to)
{
	if (from == OUTBOX_WORKER_STOPPING)
		return to == OUTBOX_WORKER_STOPPED;
	return from != OUTBOX_WORKER_STOPPED && to != OUTBOX_WORKER_STARTING &&
		to != OUTBOX_WORKER_WAITS_STANDBY;
}
#endif

/* The only writer of a worker's state once it has attached. */
void
outbox_slot_set_state(OutboxWorkerState state)
{
	OutboxWorkerState before PG_USED_FOR_ASSERTS_ONLY;
	TimestampTz now;

	if (MySlot->state == state)
		return;
	now = GetCurrentTimestamp();
	if (!outbox_slot_lock_mine())
		return;
	before = MySlot->state;
	MySlot->state = state;
	MySlot->since = now;
	MySlot->published_before = pg_atomic_read_u64(&MySlot->counters.published);
	SpinLockRelease(&MySlot->mutex);
	Assert(may_become(before, state));
}

void
outbox_slot_set_committing(bool committing)
{
	TimestampTz now = committing ? GetCurrentTimestamp() : 0;

	if (!outbox_slot_lock_mine())
		return;
	MySlot->commit_since = now;
	SpinLockRelease(&MySlot->mutex);
}

void
outbox_shared_copy_text(char *dst, size_t size, const char *src)
{
	int			left = (int) strlen(src);
	size_t		used = 0;

	while (left > 0)
	{
		int			len = pg_encoding_verifymbchar(GetDatabaseEncoding(), src, left);
		bool		legal = len > 0;

		len = Max(len, 1);
		if (used + len >= size)
			break;
		if (legal)
			memcpy(dst + used, src, len);
		else
			dst[used] = '?';
		used += len;
		src += len;
		left -= len;
	}
	dst[used] = '\0';
}

void
outbox_slot_set_broker(const char *broker)
{
	char		text[OUTBOX_TEXT_SIZE];

	outbox_shared_copy_text(text, sizeof(text), broker);
	if (!outbox_slot_lock_mine())
		return;
	strlcpy(MySlot->broker, text, sizeof(MySlot->broker));
	SpinLockRelease(&MySlot->mutex);
}

void
outbox_slot_set_last_error(const char *error)
{
	char		text[OUTBOX_TEXT_SIZE];
	TimestampTz now = GetCurrentTimestamp();

	outbox_shared_copy_text(text, sizeof(text), error);
	if (!outbox_slot_lock_mine())
		return;
	strlcpy(MySlot->last_error, text, sizeof(MySlot->last_error));
	MySlot->last_error_at = now;
	SpinLockRelease(&MySlot->mutex);
}

void
outbox_slot_set_archive_error(const char *error)
{
	char		text[OUTBOX_TEXT_SIZE];
	TimestampTz now;

	if (error == NULL && MySlot->archive_error_since == 0)
		return;
	now = GetCurrentTimestamp();
	outbox_shared_copy_text(text, sizeof(text), error != NULL ? error : "");
	if (!outbox_slot_lock_mine())
		return;
	strlcpy(MySlot->archive_error, text, sizeof(MySlot->archive_error));
	if (error == NULL)
		MySlot->archive_error_since = 0;
	else if (MySlot->archive_error_since == 0)
		MySlot->archive_error_since = now;
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
		case OUTBOX_WORKER_OTHER_ENVIRONMENT:
		case OUTBOX_WORKER_RESTORED:
			return "not adopted";
		case OUTBOX_WORKER_DISABLED:
			return "disabled";
		case OUTBOX_WORKER_CONFIG_ERROR:
			return "config error";
		case OUTBOX_WORKER_DATABASE_ERROR:
			return "database error";
		case OUTBOX_WORKER_WAITS_STANDBY:
			return "waiting for standby";
		case OUTBOX_WORKER_EXTENSION_OLDER:
		case OUTBOX_WORKER_EXTENSION_NEWER:
			return "version mismatch";
		case OUTBOX_WORKER_STOPPING:
			return "stopping";
		case OUTBOX_WORKER_STOPPED:
			return "stopped";
	}
	return "unknown";
}
