/*-------------------------------------------------------------------------
 *
 * launcher_old.c
 *		Workers that a launcher finds which was started after another one.
 *
 * We have no handle for them, and two workers must never share a number in one
 * database: they are told to leave, and none of ours starts in their database
 * before their processes are gone.  One may be stuck, in its start (behind an
 * ALTER DATABASE that is not committed) or in a statement, for as long as
 * somebody likes; other databases do not wait for it.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "launcher_internal.h"
#include "storage/procarray.h"

#define LOOK_MS			100
/* One that stays longer is looked at less often, and reported. */
#define PATIENCE_MS		10000
#define LOOK_LATER_MS	1000

static bool any_left;
static bool reported;
static uint64 last_old;			/* generations up to this are not ours */
static OutboxMonoTime since;

static bool
is_old(const OutboxSlot *slot)
{
	return slot->in_use && slot->generation <= last_old;
}

void
outbox_old_workers_init(void)
{
	last_old = outbox_shared->last_generation;
	since = outbox_mono_now();
	any_left = true;
}

bool
outbox_old_workers_exist(Oid dboid)
{
	for (int i = 0; any_left && i < outbox_shared->nslots; i++)
		if (is_old(&outbox_shared->slots[i]) &&
			outbox_shared->slots[i].dboid == dboid)
			return true;
	return false;
}

static void
report(Oid dboid)
{
	ereport(LOG,
			(errmsg("outbox launcher waits for a relay worker of its predecessor in database %u to leave",
					dboid),
			 errdetail("No other worker starts in that database before.")));
	reported = true;
}

OutboxMonoTime
outbox_old_workers_check(OutboxMonoTime now)
{
	bool		late = outbox_mono_reached(outbox_mono_plus(since, PATIENCE_MS),
										   now);

	if (!any_left)
		return OUTBOX_MONO_UNSET;
	any_left = false;
	for (int i = 0; i < outbox_shared->nslots; i++)
	{
		OutboxSlot *slot = &outbox_shared->slots[i];

		if (!is_old(slot))
			continue;
		/* Who has not attached yet never will: the slot is not its own then. */
		if (slot->pid == 0 || BackendPidGetProc(slot->pid) == NULL)
		{
			(void) outbox_slot_free(slot, slot->generation);
			continue;
		}
		(void) outbox_shared_tell_workers(slot->dboid, OUTBOX_SIGNAL_STOP);
		any_left = true;
		if (late && !reported)
			report(slot->dboid);
	}
	return any_left ? outbox_mono_plus(now, late ? LOOK_LATER_MS : LOOK_MS) :
		OUTBOX_MONO_UNSET;
}
