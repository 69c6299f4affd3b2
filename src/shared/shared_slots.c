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
	slot->broker[0] = '\0';
	memset(&slot->report, 0, sizeof(slot->report));
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
	slot->rests = false;
	slot->told = OUTBOX_TOLD_NOTHING;
	slot->wakeups_off = false;
	slot->napping = false;
	pg_atomic_write_u64(&slot->beat, 0);
	slot->told_at = OUTBOX_MONO_UNSET;
	slot->published_at = OUTBOX_MONO_UNSET;
	slot->reading = false;
	slot->ready = false;
	slot->broken_routes = 0;
	slot->wanted_workers = nworkers;
	slot->state = OUTBOX_WORKER_STARTING;
	slot->report.since = 0;
	slot->report.commit_since = 0;
	memset(slot->report.errors, 0, sizeof(slot->report.errors));
	memset(slot->locked, 0, sizeof(slot->locked));
	slot->unreadable_count = 0;
	memset(&slot->inbox, 0, OUTBOX_INBOX_HEAD);
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
		slot->report.started_at = now;
		slot->report.since = now;
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
	OutboxWorkerState before;
	TimestampTz now;

	if (MySlot->state == state)
		return;
	now = GetCurrentTimestamp();
	if (!outbox_slot_lock_mine())
		return;
	before = MySlot->state;
	if (before == OUTBOX_WORKER_PUBLISHING || state == OUTBOX_WORKER_PUBLISHING)
		MySlot->published_at = outbox_mono_now();
	MySlot->state = state;
	MySlot->report.since = now;
	MySlot->report.published_before = pg_atomic_read_u64(&MySlot->counters.published);
	SpinLockRelease(&MySlot->mutex);
	Assert(may_become(before, state));
}

void
outbox_slot_set_committing(bool committing)
{
	TimestampTz now = committing ? GetCurrentTimestamp() : 0;

	if (!outbox_slot_lock_mine())
		return;
	MySlot->report.commit_since = now;
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
	strlcpy(MySlot->report.last_error, text, sizeof(MySlot->report.last_error));
	MySlot->report.last_error_at = now;
	SpinLockRelease(&MySlot->mutex);
}

void
outbox_slot_set_archive_error(const char *error)
{
	char		text[OUTBOX_TEXT_SIZE];
	TimestampTz now;

	if (error == NULL && MySlot->report.archive_error_since == 0)
		return;
	now = GetCurrentTimestamp();
	outbox_shared_copy_text(text, sizeof(text), error != NULL ? error : "");
	if (!outbox_slot_lock_mine())
		return;
	strlcpy(MySlot->report.archive_error, text, sizeof(MySlot->report.archive_error));
	if (error == NULL)
		MySlot->report.archive_error_since = 0;
	else if (MySlot->report.archive_error_since == 0)
		MySlot->report.archive_error_since = now;
	SpinLockRelease(&MySlot->mutex);
}

const char *
outbox_worker_state_name(OutboxWorkerState state)
{
	static const char *const names[] = {
		[OUTBOX_WORKER_STARTING] = "starting",
		[OUTBOX_WORKER_IDLE] = "idle",
		[OUTBOX_WORKER_PUBLISHING] = "publishing",
		[OUTBOX_WORKER_CONNECTING] = "connecting",
		[OUTBOX_WORKER_BROKER_DOWN] = "broker down",
		[OUTBOX_WORKER_BLOCKED] = "blocked",
		[OUTBOX_WORKER_PAUSED] = "paused",
		[OUTBOX_WORKER_NOT_ADOPTED] = "not adopted",
		[OUTBOX_WORKER_OTHER_ENVIRONMENT] = "not adopted",
		[OUTBOX_WORKER_RESTORED] = "not adopted",
		[OUTBOX_WORKER_DISABLED] = "disabled",
		[OUTBOX_WORKER_CONFIG_ERROR] = "config error",
		[OUTBOX_WORKER_DATABASE_ERROR] = "database error",
		[OUTBOX_WORKER_WAITS_STANDBY] = "waiting for standby",
		[OUTBOX_WORKER_EXTENSION_OLDER] = "version mismatch",
		[OUTBOX_WORKER_EXTENSION_NEWER] = "version mismatch",
		[OUTBOX_WORKER_STOPPING] = "stopping",
		[OUTBOX_WORKER_STOPPED] = "stopped",
	};

	return names[state];
}

/* ---------------------------------------------------------- what is wrong */

/*
 * Only the worker itself writes here once it has attached, so that it may look at
 * its own words without the mutex, and takes it to change them.
 */

/*
 * A locked row is met again at least every second (outbox_recheck_ms()) as long as it is;
 * one that was not for so long has been taken, or has gone.
 */
#define LOCKED_FORGOTTEN_MS		10000

void
outbox_slot_set_current_error(OutboxErrorKind kind, OutboxReason reason,
							  const char *text, const char *sqlstate)
{
	OutboxCurrentError *mine = &MySlot->report.errors[kind];
	OutboxCurrentError error;

	Assert(reason != OUTBOX_REASON_NONE);
	memset(&error, 0, sizeof(error));
	error.reason = reason;
	outbox_shared_copy_text(error.text, sizeof(error.text), text);
	if (sqlstate != NULL)
		strlcpy(error.sqlstate, sqlstate, sizeof(error.sqlstate));
	if (mine->reason == reason && strcmp(mine->text, error.text) == 0 &&
		strcmp(mine->sqlstate, error.sqlstate) == 0)
		return;
	error.since = mine->reason != OUTBOX_REASON_NONE ? mine->since :
		GetCurrentTimestamp();
	if (!outbox_slot_lock_mine())
		return;
	*mine = error;
	SpinLockRelease(&MySlot->mutex);
}

void
outbox_slot_clear_current_error(OutboxErrorKind kind)
{
	if (MySlot->report.errors[kind].reason == OUTBOX_REASON_NONE ||
		!outbox_slot_lock_mine())
		return;
	MySlot->report.errors[kind].reason = OUTBOX_REASON_NONE;
	SpinLockRelease(&MySlot->mutex);
}

void
outbox_slot_set_certificate(int64 ends)
{
	TimestampTz not_after = 0;

	if (ends != 0)
		not_after = (ends - (POSTGRES_EPOCH_JDATE - UNIX_EPOCH_JDATE) *
					 (int64) SECS_PER_DAY) * USECS_PER_SEC;
	if (MySlot->report.tls_not_after == not_after || !outbox_slot_lock_mine())
		return;
	MySlot->report.tls_not_after = not_after;
	SpinLockRelease(&MySlot->mutex);
}

void
outbox_slot_set_clock_jump(int64 jump_ms)
{
	TimestampTz now = GetCurrentTimestamp();

	if (!outbox_slot_lock_mine())
		return;
	MySlot->report.clock_jump_ms = jump_ms;
	MySlot->report.clock_jumped_at = now;
	SpinLockRelease(&MySlot->mutex);
}

/* Its place, or one where nothing is that still counts; NULL: there is no room. */
static OutboxLockedId *
place_of_locked(const pg_uuid_t *id, OutboxMonoTime now)
{
	OutboxLockedId *room = NULL;

	for (int i = 0; i < OUTBOX_LOCKED_IDS; i++)
	{
		OutboxLockedId *locked = &MySlot->locked[i];
		bool		counts = outbox_mono_is_set(locked->seen) &&
			!outbox_mono_reached(outbox_mono_plus(locked->seen, LOCKED_FORGOTTEN_MS),
								 now);

		if (counts && memcmp(&locked->id, id, UUID_LEN) == 0)
			return locked;
		if (!counts && room == NULL)
			room = locked;
	}
	if (room != NULL)
		room->seen = OUTBOX_MONO_UNSET;
	return room;
}

void
outbox_slot_note_locked(const pg_uuid_t *id, int64 seq)
{
	TimestampTz since = GetCurrentTimestamp();
	OutboxMonoTime now = outbox_mono_now();
	OutboxLockedId *locked;

	if (!outbox_slot_lock_mine())
		return;
	locked = place_of_locked(id, now);
	if (locked != NULL)
	{
		if (!outbox_mono_is_set(locked->seen))
			locked->since = since;
		locked->id = *id;
		locked->seq = seq;
		locked->seen = now;
	}
	SpinLockRelease(&MySlot->mutex);
}

void
outbox_slot_show_locked(const OutboxLockedId *shown, int n)
{
	OutboxLockedId *places;

	if (!outbox_slot_lock_mine())
		return;
	places = &MySlot->locked[OUTBOX_LOCKED_IDS];
	memcpy(places, shown, sizeof(OutboxLockedId) * n);
	memset(places + n, 0, sizeof(OutboxLockedId) * (OUTBOX_LOCKED_IDS - n));
	SpinLockRelease(&MySlot->mutex);
}

void
outbox_slot_show_unreadable(const OutboxUnreadableId *shown, int n, int count)
{
	if (!outbox_slot_lock_mine())
		return;
	memcpy(MySlot->unreadable, shown, sizeof(OutboxUnreadableId) * n);
	MySlot->unreadable_count = count;
	SpinLockRelease(&MySlot->mutex);
}
