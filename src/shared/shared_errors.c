/*-------------------------------------------------------------------------
 *
 * shared_errors.c
 *		Slots of workers: what is wrong, as the worker tells it.
 *
 * Only the worker itself writes here once it has attached, so that it may look at
 * its own words without the mutex, and takes it to change them.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "shared_internal.h"
#include "utils/timestamp.h"

/*
 * A locked row is met again at least every second (outbox_recheck_ms()) as long as it is;
 * one that was not for so long has been taken, or has gone.
 */
#define LOCKED_FORGOTTEN_MS		10000

void
outbox_slot_forget_errors(OutboxSlot *slot)
{
	memset(slot->errors, 0, sizeof(slot->errors));
	memset(slot->locked, 0, sizeof(slot->locked));
	slot->unreadable_count = 0;
}

void
outbox_slot_set_current_error(OutboxErrorKind kind, OutboxReason reason,
							  const char *text, const char *sqlstate)
{
	OutboxCurrentError *mine = &MySlot->errors[kind];
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
	if (MySlot->errors[kind].reason == OUTBOX_REASON_NONE ||
		!outbox_slot_lock_mine())
		return;
	MySlot->errors[kind].reason = OUTBOX_REASON_NONE;
	SpinLockRelease(&MySlot->mutex);
}

void
outbox_slot_set_certificate(int64 ends)
{
	TimestampTz not_after = 0;

	if (ends != 0)
		not_after = (ends - (POSTGRES_EPOCH_JDATE - UNIX_EPOCH_JDATE) *
					 (int64) SECS_PER_DAY) * USECS_PER_SEC;
	if (MySlot->tls_not_after == not_after || !outbox_slot_lock_mine())
		return;
	MySlot->tls_not_after = not_after;
	SpinLockRelease(&MySlot->mutex);
}

void
outbox_slot_set_clock_jump(int64 jump_ms)
{
	TimestampTz now = GetCurrentTimestamp();

	if (!outbox_slot_lock_mine())
		return;
	MySlot->clock_jump_ms = jump_ms;
	MySlot->clock_jumped_at = now;
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
