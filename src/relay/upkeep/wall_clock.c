/*-------------------------------------------------------------------------
 *
 * wall_clock.c
 *		Has somebody set the clock?
 *
 * The relay itself waits by a clock that nobody sets (clock.h).  But what is
 * scheduled, the ages in the views and the days of the archive are of the wall
 * clock, and after a jump of it people ask why messages are late, or early.
 *
 * A machine that slept, or was moved, looks the same: its monotonic clock stood
 * still meanwhile.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "clock.h"
#include "shared.h"
#include "upkeep.h"
#include "utils/memutils.h"
#include "utils/timestamp.h"

/* Less than that NTP makes good without a jump. */
#define JUMP_MS			5000

/* Looked at one after the other: who is stopped in between has seen nothing. */
#define AT_ONCE_MS		1000

struct OutboxWallClock
{
	bool		known;
	int64		ahead_us;		/* of the monotonic clock, in the last turn */
};

OutboxWallClock *
outbox_wall_clock_create(MemoryContext cxt)
{
	return MemoryContextAllocZero(cxt, sizeof(OutboxWallClock));
}

void
outbox_wall_clock_look(OutboxWallClock *clock)
{
	OutboxMonoTime before = outbox_mono_now();
	TimestampTz wall = GetCurrentTimestamp();
	int64		ahead_us = wall - before.us;
	int64		jump_ms = (ahead_us - clock->ahead_us) / 1000;

	if (outbox_mono_reached(outbox_mono_plus(before, AT_ONCE_MS),
							outbox_mono_now()))
		return;
	if (clock->known && (jump_ms > JUMP_MS || jump_ms < -JUMP_MS))
	{
		outbox_slot_set_clock_jump(jump_ms);
		if (MySlot->worker == 0)
			ereport(LOG,
					(errmsg("outbox relay: the server's clock was set %s by %lld ms",
							jump_ms > 0 ? "forward" : "back",
							(long long) (jump_ms > 0 ? jump_ms : -jump_ms)),
					 errdetail("Messages that are scheduled become due by the clock as it is now.")));
	}
	clock->known = true;
	clock->ahead_us = ahead_us;
}
