/*-------------------------------------------------------------------------
 *
 * wait_event.c
 *		What our processes say that they wait for, in pg_stat_activity.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "compat.h"
#include "utils/wait_event.h"
#include "wait_event.h"

#define WAIT_NAME(id, name) name,
static const char *const names[] = {OUTBOX_WAIT_EVENTS(WAIT_NAME)};

/*
 * The server keeps the numbers in shared memory and finds one by its name under
 * a lock, so each process asks once for each.
 */
uint32
outbox_wait_event(OutboxWait wait)
{
	static uint32 events[OUTBOX_WAITS];

	if (events[wait] == 0)
		events[wait] = compat_new_wait_event(names[wait]);
	return events[wait];
}

void
outbox_wait_start(OutboxWait wait)
{
	if (COMPAT_HAVE_WAIT_EVENTS)
		pgstat_report_wait_start(outbox_wait_event(wait));
}

void
outbox_wait_end(void)
{
	if (COMPAT_HAVE_WAIT_EVENTS)
		pgstat_report_wait_end();
}
