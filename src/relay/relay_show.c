/*-------------------------------------------------------------------------
 *
 * relay_show.c
 *		What others see of the worker: its state, and its line in pg_stat_activity.
 *
 * Called once a turn, when it is known what the turn came to.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "miscadmin.h"
#include "pgstat.h"
#include "relay_internal.h"
#include "settings.h"
#include "storage/latch.h"

/* No broker is down that we do not talk to because a setting forbids it. */
static OutboxWorkerState
down_worker_state(OutboxRelay *relay)
{
	return outbox_link_error(relay->link)->reason == OUTBOX_REASON_PLAINTEXT ?
		OUTBOX_WORKER_CONFIG_ERROR : OUTBOX_WORKER_BROKER_DOWN;
}

static OutboxWorkerState
link_worker_state(OutboxRelay *relay)
{
	switch (outbox_link_state(relay->link))
	{
		case OUTBOX_LINK_CLOSED:
		case OUTBOX_LINK_CONNECTING:
			return outbox_relay_broker_down(relay) ?
				down_worker_state(relay) : OUTBOX_WORKER_CONNECTING;
		case OUTBOX_LINK_BLOCKED:
			return OUTBOX_WORKER_BLOCKED;
		case OUTBOX_LINK_OPEN:
			break;
	}
	return relay->queue->count > 0 ? OUTBOX_WORKER_PUBLISHING :
		OUTBOX_WORKER_IDLE;
}

static OutboxWorkerState
copy_worker_state(OutboxCopy copy)
{
	switch (copy)
	{
		case OUTBOX_COPY_ENVIRONMENT:
			return OUTBOX_WORKER_OTHER_ENVIRONMENT;
		case OUTBOX_COPY_RESTORED:
			return OUTBOX_WORKER_RESTORED;
		case OUTBOX_COPY_UNKNOWN:
			return OUTBOX_WORKER_CONFIG_ERROR;
		default:
			return OUTBOX_WORKER_NOT_ADOPTED;
	}
}

/*
 * While nothing can be published a commit need not wake us, which costs the one
 * who commits a system call.  What was left in the inbox is taken in the turn
 * that comes at once when we are all ears again.
 */
static void
set_wakeups_off(bool off)
{
	bool		were_off = MySlot->wakeups_off;

	MySlot->wakeups_off = off;
	pg_memory_barrier();		/* before the inbox is taken */
	if (were_off && !off)
		SetLatch(MyLatch);
}

/*
 * pg_stat_activity: state is 'active' while the worker works and 'idle' while it waits
 * for work; never 'idle in transaction', as no transaction is open then.  query is not
 * SQL, which changes too quickly to tell anything, but this text, in the words of
 * outbox_workers.  It is made when it changes; to show it costs what a statement of any
 * session does, twice a turn.
 */
static struct
{
	OutboxWorkerState state;
	char		broker[sizeof(((OutboxSlot *) NULL)->broker)];
	char		text[sizeof(((OutboxSlot *) NULL)->broker) + 64];	/* "": nothing yet */
} shown;

const char *
outbox_relay_activity(void)
{
	return shown.text;
}

void
outbox_relay_show_activity(OutboxWorkerState state, const char *broker)
{
	/* Between two messages a worker is not another thing. */
	if (state == OUTBOX_WORKER_IDLE)
		state = OUTBOX_WORKER_PUBLISHING;
	if (shown.text[0] != '\0' && shown.state == state &&
		strcmp(shown.broker, broker) == 0)
		return;
	shown.state = state;
	strlcpy(shown.broker, broker, sizeof(shown.broker));
	if (state == OUTBOX_WORKER_PUBLISHING)
		snprintf(shown.text, sizeof(shown.text),
				 "outbox relay %d: publishing to %s", MySlot->worker, broker);
	else if (broker[0] != '\0' &&
			 (state == OUTBOX_WORKER_CONNECTING ||
			  state == OUTBOX_WORKER_BROKER_DOWN || state == OUTBOX_WORKER_BLOCKED))
		snprintf(shown.text, sizeof(shown.text), "outbox relay %d: %s, %s",
				 MySlot->worker, outbox_worker_state_name(state), broker);
	else
		snprintf(shown.text, sizeof(shown.text), "outbox relay %d: %s",
				 MySlot->worker, outbox_worker_state_name(state));
	pgstat_report_activity(STATE_RUNNING, shown.text);
}

void
outbox_relay_show_state(OutboxRelay *relay)
{
	OutboxWorkerState state;
	int			mismatch = relay->database.mismatch;
	OutboxCopy	copy = relay->control.copy;

	if (mismatch)
		state = mismatch > 0 ?
			OUTBOX_WORKER_EXTENSION_NEWER : OUTBOX_WORKER_EXTENSION_OLDER;
	else if (!outbox_enabled)
		state = OUTBOX_WORKER_DISABLED;
	else if (relay->database.failing)
		state = OUTBOX_WORKER_DATABASE_ERROR;
	else if (copy != OUTBOX_COPY_NONE)
		state = copy_worker_state(copy);
	else if (relay->control.paused)
		state = OUTBOX_WORKER_PAUSED;
	/* Over a connection that is there, publishing goes on. */
	else if (relay->config.error != NULL && !outbox_relay_link_open(relay))
		state = OUTBOX_WORKER_CONFIG_ERROR;
	else
		state = link_worker_state(relay);
	if (state == OUTBOX_WORKER_BLOCKED && MySlot->state != state)
	{
		outbox_slot_set_last_error(psprintf("the broker blocks publishing: %s",
											outbox_link_blocked_reason(relay->link)));
		ereport(LOG,
				(errmsg("outbox relay is blocked by the broker"),
				 errdetail_internal("%s",
									outbox_link_blocked_reason(relay->link))));
	}
	else if (MySlot->state == OUTBOX_WORKER_BLOCKED && state != MySlot->state &&
			 outbox_relay_link_open(relay))
		ereport(LOG, (errmsg("outbox relay is no longer blocked by the broker")));
	MySlot->broken_routes = outbox_routes_count_broken(&relay->routes);
	MySlot->reading = state == OUTBOX_WORKER_IDLE &&
		(!relay->database.started || outbox_reader_reads_much(&relay->reader));
	outbox_slot_set_state(state);
	outbox_relay_show_activity(state, MySlot->broker);
	set_wakeups_off(state != OUTBOX_WORKER_IDLE && state != OUTBOX_WORKER_PUBLISHING);
}
