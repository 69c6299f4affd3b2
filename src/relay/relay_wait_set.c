/*-------------------------------------------------------------------------
 *
 * relay_wait_set.c
 *		Waiting for the latch, the socket, the time.
 *
 * WaitLatchOrSocket() makes a set of events for each wait and throws it away
 * after it: five system calls more.  As long as a connection is open the set is
 * kept.
 *
 * At everyday rates a message costs two wake-ups: for the commit, and for the broker's
 * answer.  An answer that is not waited for is left unread for up to
 * OUTBOX_SETTLE_DELAY_MS: the next commit reads it first, or that time ends.
 *
 * While commits come one after the other, each could have a round of its own: a
 * transaction that costs the server twenty times what a message costs in a round
 * of many.  So claims have a pace.  Up to PACE_BURST of them run as they come;
 * from then on there is one every PACE_US, before which the worker naps, and
 * takes what has come meanwhile together.  Committing backends see that it naps
 * and save the system call that would wake it.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "compat.h"
#include "miscadmin.h"
#include "pgstat.h"
#include "relay_internal.h"
#include "storage/latch.h"
#include "utils/memutils.h"
#include "utils/wait_event.h"
#include "wait_event.h"

#define PACE_US		1000
#define PACE_BURST	8

static void
drop_set(OutboxWaitSet *waiting)
{
	if (waiting->set != NULL)
		FreeWaitEventSet(waiting->set);
	waiting->set = NULL;
}

static void
make_set(OutboxRelay *relay)
{
	WaitEventSet *set = compat_create_wait_set(3);

	AddWaitEventToSet(set, WL_LATCH_SET, PGINVALID_SOCKET, MyLatch, NULL);
	AddWaitEventToSet(set, WL_EXIT_ON_PM_DEATH, PGINVALID_SOCKET, NULL, NULL);
	AddWaitEventToSet(set, WL_SOCKET_READABLE,
					  outbox_link_socket(relay->link), NULL, NULL);
	relay->waiting.set = set;
	relay->waiting.set_opened_at = relay->connection.opened_at;
}

/*
 * For how long answers may be left unread; 0: not at all.  Everything that could wait
 * for one has to be here.  An alarm of the broker and the end of the connection
 * do not matter before the next message, and the wake-up for that reads first.
 */
static int64
unread_ms(OutboxRelay *relay, OutboxMonoTime now)
{
	const OutboxItem *oldest;

	if (relay->window.outstanding == 0 || relay->connection.unproven ||
		relay->connection.reconnect || relay->twin.asking ||
		outbox_link_state(relay->link) != OUTBOX_LINK_OPEN ||
		outbox_link_sending(relay->link) ||
		outbox_declarations_pending(&relay->routes.declarations) ||
		outbox_routes_count_broken(&relay->routes) > 0 ||
		outbox_settler_awaits_answers(&relay->settler))
		return 0;
	oldest = relay->window.ring[relay->window.oldest % relay->window.size];
	if (oldest == NULL)
		return 0;
	return outbox_mono_ms_until(outbox_mono_plus(oldest->sent_at, OUTBOX_SETTLE_DELAY_MS), now);
}

/* What was answered is settled in the same wake-up, if nothing but the time has come. */
static void
wait_unread(OutboxRelay *relay, int64 unread_ms, int64 timeout_ms)
{
	OutboxWaitSet *waiting = &relay->waiting;
	WaitEvent	event;

	if (waiting->no_socket == NULL)
	{
		waiting->no_socket = compat_create_wait_set(2);
		AddWaitEventToSet(waiting->no_socket, WL_LATCH_SET, PGINVALID_SOCKET, MyLatch, NULL);
		AddWaitEventToSet(waiting->no_socket, WL_EXIT_ON_PM_DEATH, PGINVALID_SOCKET, NULL, NULL);
	}
	if (WaitEventSetWait(waiting->no_socket, Min(unread_ms, timeout_ms), &event, 1,
						 outbox_wait_event(OUTBOX_WAIT_CONFIRM)) == 0 &&
		unread_ms <= timeout_ms)
		outbox_settler_hurry(&relay->settler);
}

/* Waits with a set of the open connection; true: the socket may be readable. */
static bool
wait_open(OutboxRelay *relay, int64 timeout_ms)
{
	OutboxWaitSet *waiting = &relay->waiting;
	int64		unread = unread_ms(relay, outbox_mono_now());
	WaitEvent	events[3];
	int			n;

	if (unread > 0)
	{
		wait_unread(relay, unread, timeout_ms);
		return true;
	}
	if (waiting->set_opened_at.us != relay->connection.opened_at.us)
		drop_set(waiting);
	if (waiting->set == NULL)
		make_set(relay);
	n = WaitEventSetWait(waiting->set, timeout_ms, events, lengthof(events),
						 outbox_wait_event(relay->window.outstanding > 0 ?
										   OUTBOX_WAIT_CONFIRM :
										   OUTBOX_WAIT_RELAY));
	for (int i = 0; i < n; i++)
		if (events[i].events & WL_SOCKET_READABLE)
			return true;
	return false;
}

void
outbox_wait_set_claimed(OutboxWaitSet *waiting)
{
	int64		earliest = outbox_mono_now().us - PACE_BURST * PACE_US;

	waiting->pace.us = Max(waiting->pace.us, earliest) + PACE_US;
}

/*
 * Naps until the next claim may be, while nothing in memory needs a hand.  Afterwards
 * the caller looks into the inbox: what came into it during the nap has not set the
 * latch.
 */
static bool
nap(OutboxRelay *relay)
{
	int64		us = relay->waiting.pace.us - outbox_mono_now().us;

	if (us <= 0 || !outbox_relay_link_open(relay) ||
		relay->queue->nready > 0 || relay->queue->nwaiting > 0)
		return false;
	MySlot->napping = true;
	outbox_wait_start(OUTBOX_WAIT_RELAY);
	pg_usleep(Min(us, PACE_US));
	outbox_wait_end();
	MySlot->napping = false;
	pg_memory_barrier();		/* before the inbox is taken */
	return true;
}

static bool
wait_for(OutboxRelay *relay, int64 timeout_ms)
{
	pgsocket	sock = outbox_link_socket(relay->link);
	int			events = WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH;
	bool		connecting = false;

	if (nap(relay))
		return true;
	if (outbox_relay_link_open(relay))
		return wait_open(relay, timeout_ms);
	drop_set(&relay->waiting);
	/* Writable says that a connect has ended, and else nothing of use. */
	if (sock != PGINVALID_SOCKET)
	{
		connecting = outbox_link_state(relay->link) == OUTBOX_LINK_CONNECTING;
		events |= connecting ? WL_SOCKET_WRITEABLE : WL_SOCKET_READABLE;
	}
	return (WaitLatchOrSocket(MyLatch, events, sock, timeout_ms,
							  outbox_wait_event(connecting ?
												OUTBOX_WAIT_CONNECT :
												OUTBOX_WAIT_RELAY)) &
			WL_SOCKET_READABLE) != 0;
}

bool
outbox_relay_wait(OutboxRelay *relay, int64 timeout_ms)
{
	bool		readable;

	outbox_beat(&MySlot->beat, timeout_ms);
	pgstat_report_activity(STATE_IDLE, NULL);
	readable = wait_for(relay, timeout_ms);
	pgstat_report_activity(STATE_RUNNING, NULL);
	return readable;
}
