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

static const char *const names[OUTBOX_WAITS] = {
	[OUTBOX_WAIT_LAUNCHER] = "OutboxLauncherMain",
	[OUTBOX_WAIT_RELAY] = "OutboxRelayMain",
	[OUTBOX_WAIT_CONFIRM] = "OutboxRelayConfirm",
	[OUTBOX_WAIT_CONNECT] = "OutboxRelayConnect",
	[OUTBOX_WAIT_RESOLVE] = "OutboxBrokerResolve",
	[OUTBOX_WAIT_LOGIN] = "OutboxBrokerLogin",
	[OUTBOX_WAIT_DECLARE] = "OutboxBrokerDeclare",
	[OUTBOX_WAIT_SEND] = "OutboxBrokerSend",
	[OUTBOX_WAIT_CLOSE] = "OutboxBrokerClose",
	[OUTBOX_WAIT_STOP] = "OutboxRelayStop",
	[OUTBOX_WAIT_WORKERS] = "OutboxWorkersStop",
	[OUTBOX_WAIT_PREFLIGHT] = "OutboxPreflight",
	[OUTBOX_WAIT_MESSAGE] = "OutboxWaitMessage",
};

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
