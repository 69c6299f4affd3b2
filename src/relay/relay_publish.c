/*-------------------------------------------------------------------------
 *
 * relay_publish.c
 *		Sending what is ready.
 *
 * Never called inside a transaction.  The window counts everything that a crash
 * could send twice: what is in flight, what is confirmed and not settled, and
 * what is settled by a commit that is not on disk yet.  What cannot be settled
 * because somebody has locked its row leaves it, up to OUTBOX_LOCKED_MAX: he may
 * keep it for hours.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "relay_internal.h"
#include "settings.h"
#include "test_point.h"

/* Messages of one burst; between bursts the broker's answers are read. */
#define BURST_MESSAGES 200

/* ------------------------------------------------------------------ sender */

/*
 * The send buffer is half full, or the broker blocks us.  Its answers wake us;
 * "writable" would come long before there is room, so we come back by time: at
 * first soon, since with large messages a buffer is empty after a millisecond,
 * and with every try in vain after twice as long.
 */
static void
send_later(OutboxSender *sender)
{
	sender->wait_ms = Min(Max(2 * sender->wait_ms, 1), OUTBOX_LINK_AGAIN_MS);
	sender->send_at = outbox_mono_after(sender->wait_ms);
}

void
outbox_relay_sender_reset(OutboxRelay *relay)
{
	relay->sender.send_at = OUTBOX_MONO_UNSET;
}

void
outbox_relay_send_not_before(OutboxRelay *relay, OutboxMonoTime time)
{
	relay->sender.send_at = time;
}

/* ------------------------------------------------------------------- window */

/* Is it likely that the broker closes the channel, or worse, because of it? */
bool
outbox_relay_is_risky(OutboxRelay *relay, const OutboxItem *item)
{
	return item->route->failures > 0 || item->route->half_open ||
		outbox_poison_is_known(&relay->poison, item->message);
}

/*
 * Must what is sent next, or was sent last, be alone in flight? A message that
 * may be poison must, and so must the one that tries a half-open route, and a
 * known poison message: if the broker closes the channel once more, no other
 * message becomes unknown, and the poison message is known.
 */
static bool
goes_alone(OutboxRelay *relay)
{
	OutboxConfirms *window = &relay->window;
	OutboxItem *item = outbox_queue_peek(relay->queue);

	if (relay->queue->nmaybe_poison > 0 || (item != NULL && outbox_relay_is_risky(relay, item)))
		return true;
	if (window->outstanding != 1)
		return false;
	item = window->ring[window->oldest % window->size];
	return item != NULL && outbox_relay_is_risky(relay, item);
}

/* What a crash could let us send twice, but for what stands beside the window. */
static int
window_used(OutboxRelay *relay)
{
	OutboxQueue *queue = relay->queue;

	return queue->nsent + queue->nconfirmed + queue->nrejected -
		outbox_locked_beside(queue) + relay->settler.unflushed.count;
}

/*
 * How many more messages may be sent and unsettled.  None when the confirm of
 * the oldest is missing for so long that there is no place for another tag.
 */
static int
window_room(OutboxRelay *relay)
{
	int			room = Max(outbox_window - window_used(relay), 0);

	if (outbox_confirms_full(&relay->window) || outbox_relay_declares_alone(relay))
		return 0;
	if (goes_alone(relay))
		return relay->queue->nsent == 0 ? Min(room, 1) : 0;
	return room;
}

bool
outbox_relay_publishes(OutboxRelay *relay)
{
	return relay->database.attached && !relay->database.leave &&
		relay->database.leaving == OUTBOX_EXIT_CRASHED && outbox_enabled && !relay->control.paused &&
		!relay->connection.reconnect && !outbox_watchdog_stopping() &&
		outbox_link_state(relay->link) == OUTBOX_LINK_OPEN;
}

/*
 * Not while it is known that the database says something else by now (paused,
 * a copy, the extension gone): the next round looks, and it comes at once.
 */
bool
outbox_relay_may_send(OutboxRelay *relay)
{
	return relay->queue->nready > 0 && !outbox_link_sending(relay->link) &&
		outbox_relay_publishes(relay) && !relay->control.stale &&
		!outbox_database_touched(&relay->database) && !relay->database.failing &&
		window_room(relay) > 0 && !outbox_mono_is_set(relay->sender.send_at);
}

/* On the wire, at least its beginning, or perhaps so. */
static void
item_sent(OutboxRelay *relay, OutboxItem *item, OutboxMonoTime now)
{
	(void) outbox_confirms_add(&relay->window, item);
	outbox_queue_sent(relay->queue, item, now,
					  outbox_link_published(relay->link));
	relay->sender.wait_ms = 0;
}

/*
 * A message that has begun goes on whatever keeps new ones from being sent, but
 * the broker's own word.  Returns true when there is none.
 */
bool
outbox_relay_send_rest(OutboxRelay *relay)
{
	uint64		before;

	if (!outbox_link_sending(relay->link))
		return true;
	if (outbox_link_state(relay->link) != OUTBOX_LINK_OPEN ||
		outbox_mono_is_set(relay->sender.send_at))
		return false;
	before = outbox_link_unsent(relay->link);
	switch (outbox_link_send_rest(relay->link))
	{
		case OUTBOX_LINK_LOST:
			outbox_relay_link_lost(relay);
			return false;
		case OUTBOX_LINK_AGAIN:
			if (outbox_link_unsent(relay->link) != before)
				relay->sender.wait_ms = 0;
			send_later(&relay->sender);
			return false;
		default:
			relay->sender.wait_ms = 0;
			return true;
	}
}

static OutboxLinkStatus
send_item(OutboxRelay *relay, OutboxItem *item)
{
	OutboxMessage *message = item->message;
	char		rendered[OUTBOX_SHORT_STRING_MAX + 2];	/* what is cut is
														 * refused */
	const char *routing_key = message->routing_key;

	if (routing_key == NULL)
	{
		/* The template may have changed since enqueue. */
		(void) outbox_route_render(item->route->routing_key, message->event_type,
								   message->aggregate_type, message->aggregate_id,
								   rendered, sizeof(rendered));
		routing_key = rendered;
	}
	return outbox_link_publish(relay->link, message, item->route->format,
							   item->route->exchange, routing_key);
}

/* Returns whether others may be sent at once: not where there is no memory for it. */
static bool
item_refused(OutboxRelay *relay, OutboxItem *item)
{
	const OutboxLinkError *error = outbox_link_error(relay->link);

	outbox_queue_rejected(relay->queue, item, OUTBOX_REASON_MESSAGE_REFUSED,
						  error->text, error->permanent);
	return error->permanent;
}

/* Sends until something says stop; OK when only the burst's size did. */
static OutboxLinkStatus
send_burst(OutboxRelay *relay, OutboxMonoTime now)
{
	OutboxLinkStatus status = OUTBOX_LINK_OK;

	for (int i = 0; i < BURST_MESSAGES && status == OUTBOX_LINK_OK; i++)
	{
		OutboxItem *item = outbox_queue_peek(relay->queue);

		if (item == NULL || window_room(relay) == 0)
			break;
		if (!outbox_relay_is_declared(relay, item->route))
			break;
		status = send_item(relay, item);
		if (status == OUTBOX_LINK_OK)
		{
			item_sent(relay, item, now);
			OUTBOX_TEST_POINT("mid_publish");
		}
		else if (status == OUTBOX_LINK_REFUSED)
			status = item_refused(relay, item) ? OUTBOX_LINK_OK : OUTBOX_LINK_AGAIN;
		else if (status == OUTBOX_LINK_LOST)
		{
			/*
			 * Perhaps it got through: it is one of the unknown.  No other
			 * kind of loss leaves a message out of the window.
			 */
			item_sent(relay, item, now);
		}
	}
	return status;
}

/*
 * What was settled asynchronously counts against the window until it is on
 * disk.  When that is all that keeps messages waiting, do not wait for the WAL
 * writer, which sleeps for wal_writer_delay.
 */
static void
flush_settled(OutboxRelay *relay)
{
	if (relay->settler.unflushed.count == 0 || relay->queue->nready == 0 ||
		window_used(relay) < outbox_window)
		return;
	outbox_unflushed_flush(&relay->settler.unflushed);
}

void
outbox_relay_publish(OutboxRelay *relay, OutboxMonoTime now)
{
	OutboxLinkStatus status;
	OutboxLinkStatus end;

	(void) outbox_mono_expired(&relay->sender.send_at, now);
	outbox_relay_declare(relay, now);
	if (!outbox_relay_send_rest(relay))
		return;
	flush_settled(relay);
	if (!outbox_relay_may_send(relay))
		return;
	if (!outbox_relay_next_is_declared(relay, now))
		return;
	outbox_relay_socket_readable(relay);
	status = outbox_link_burst_begin(relay->link);
	if (status == OUTBOX_LINK_OK)
	{
		status = send_burst(relay, now);
		end = outbox_link_burst_end(relay->link);
		if (end == OUTBOX_LINK_LOST)
			status = end;
		OUTBOX_TEST_POINT("all_sent");
	}
	if (status == OUTBOX_LINK_LOST)
		outbox_relay_link_lost(relay);
	else if (status == OUTBOX_LINK_AGAIN || outbox_link_sending(relay->link))
		send_later(&relay->sender);
}
