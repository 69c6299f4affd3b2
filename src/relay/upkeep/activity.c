/*-------------------------------------------------------------------------
 *
 * activity.c
 *		What pg_stat_activity says of a worker: state and query.
 *
 * state is 'active' while it works and 'idle' while it waits for work; never 'idle
 * in transaction', as no transaction is open then.  query is not SQL, which changes
 * too quickly to tell anything: it is what the worker is there for, or what keeps
 * it from that, in the words of outbox_workers.  The text is made when it changes;
 * to show it costs what a statement of any session does, twice a turn.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "pgstat.h"
#include "upkeep.h"

static struct
{
	bool		known;
	OutboxWorkerState state;
	char		broker[sizeof(((OutboxSlot *) NULL)->broker)];
	char		text[sizeof(((OutboxSlot *) NULL)->broker) + 64];
} shown;

/* Between two messages a worker is not another thing. */
static OutboxWorkerState
lasting(OutboxWorkerState state)
{
	return state == OUTBOX_WORKER_IDLE ? OUTBOX_WORKER_PUBLISHING : state;
}

static bool
names_broker(OutboxWorkerState state)
{
	return state == OUTBOX_WORKER_CONNECTING ||
		state == OUTBOX_WORKER_BROKER_DOWN || state == OUTBOX_WORKER_BLOCKED;
}

void
outbox_activity_show(OutboxWorkerState state, const char *broker)
{
	state = lasting(state);
	if (shown.known && shown.state == state && strcmp(shown.broker, broker) == 0)
		return;
	shown.known = true;
	shown.state = state;
	strlcpy(shown.broker, broker, sizeof(shown.broker));
	if (state == OUTBOX_WORKER_PUBLISHING)
		snprintf(shown.text, sizeof(shown.text),
				 "outbox relay %d: publishing to %s", MySlot->worker, broker);
	else if (names_broker(state) && broker[0] != '\0')
		snprintf(shown.text, sizeof(shown.text), "outbox relay %d: %s, %s",
				 MySlot->worker, outbox_worker_state_name(state), broker);
	else
		snprintf(shown.text, sizeof(shown.text), "outbox relay %d: %s",
				 MySlot->worker, outbox_worker_state_name(state));
	pgstat_report_activity(STATE_RUNNING, shown.text);
}

const char *
outbox_activity_text(void)
{
	return shown.text;
}

void
outbox_activity_idle(void)
{
	pgstat_report_activity(STATE_IDLE, NULL);
}

void
outbox_activity_works(void)
{
	pgstat_report_activity(STATE_RUNNING, NULL);
}
