/*-------------------------------------------------------------------------
 *
 * poll_times.c
 *		Timers of the poll and of the sweep.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "settings.h"
#include "sizes.h"
#include "upkeep.h"
#include "utils/memutils.h"

struct OutboxTimers
{
	OutboxMonoTime poll_at;
	OutboxMonoTime sweep_at;
};

OutboxTimers *
outbox_timers_create(MemoryContext cxt)
{
	OutboxTimers *timers = MemoryContextAllocZero(cxt, sizeof(OutboxTimers));
	OutboxMonoTime now = outbox_mono_now();

	timers->poll_at = outbox_mono_plus(now, outbox_poll_interval_ms);
	timers->sweep_at = outbox_mono_plus(now, OUTBOX_SWEEP_MS);
	return timers;
}

OutboxMonoTime
outbox_timers_poll_at(const OutboxTimers *timers)
{
	return timers->poll_at;
}

void
outbox_timers_poll_soon(OutboxTimers *timers)
{
	outbox_mono_earlier(&timers->poll_at,
						outbox_mono_after(outbox_poll_interval_ms));
}

bool
outbox_timers_poll_due(OutboxTimers *timers, OutboxMonoTime now)
{
	if (!outbox_mono_reached(timers->poll_at, now))
		return false;
	timers->poll_at = outbox_mono_after(outbox_poll_interval_ms);
	return true;
}

bool
outbox_timers_sweep_due(OutboxTimers *timers, OutboxMonoTime now)
{
	if (!outbox_mono_reached(timers->sweep_at, now))
		return false;
	timers->sweep_at = outbox_mono_after(OUTBOX_SWEEP_MS);
	return true;
}
