/*-------------------------------------------------------------------------
 *
 * relay_answers.c
 *		What the broker says of the messages in flight: confirms, returns, or nothing.
 *
 * Never called inside a transaction.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "relay_internal.h"
#include "settings.h"
#include "stats.h"
#include "test_point.h"
#include "utils/timestamp.h"

/* A message that goes alone may keep others waiting for its confirm, at least so long. */
#define TRY_MS			Max(outbox_confirm_timeout_ms / OUTBOX_TRY_SHARE, 1000)

/* By when the answer came: it may have been left unread, see relay_wait_set.c. */
static void
count_timings(const OutboxRelay *relay, const OutboxItem *item)
{
	const OutboxAnswers *answers = &relay->answers;
	int64		publish_us = answers->received_at.us - item->sent_at.us;
	int64		unread_us = outbox_link_unread_us(relay->link);

	/* The wall clock was set. */
	if (unread_us < 0 || unread_us > publish_us)
		unread_us = 0;
	outbox_stats_time(OUTBOX_TIMING_PUBLISH,
					  publish_us - unread_us);
	outbox_stats_time(OUTBOX_TIMING_COMMIT,
					  answers->received_wall - unread_us - item->message->ready_at);
}

/* Acked or nacked, the exchange has taken it. */
static void
item_answered(OutboxRelay *relay, const OutboxItem *item)
{
	if (relay->connection.unproven)
		outbox_relay_link_works(relay);
	outbox_stall_answered(&relay->stall, item->sent_at);
	outbox_route_works(item->route, relay->answers.received_at);
}

static void
item_confirmed(void *item, uint64_t tag, void *arg)
{
	OutboxRelay *relay = arg;
	OutboxItem *confirmed = item;

	(void) tag;
	item_answered(relay, confirmed);
	outbox_relay_link_acked(relay);
	/* The broker acks what it has returned, too. */
	if (confirmed->reason == OUTBOX_REASON_UNROUTABLE)
	{
		pg_atomic_fetch_add_u64(&MySlot->counters.returned, 1);
		outbox_stats_count(confirmed->route->stats, OUTBOX_COUNT_RETURNED);
		outbox_queue_rejected(relay->queue, confirmed, confirmed->reason,
							  confirmed->error, false);
	}
	else
	{
		count_timings(relay, confirmed);
		outbox_queue_confirmed(relay->queue, confirmed);
	}
}

static void
item_nacked(void *item, uint64_t tag, void *arg)
{
	OutboxRelay *relay = arg;
	OutboxItem *nacked = item;

	(void) tag;
	item_answered(relay, nacked);
	outbox_renewal_nacked(&relay->renewal, nacked->message->attempts > 0,
						  relay->connection.opened_at);
	pg_atomic_fetch_add_u64(&MySlot->counters.nacked, 1);
	outbox_stats_count(nacked->route->stats, OUTBOX_COUNT_NACKED);
	outbox_queue_rejected(relay->queue, nacked, OUTBOX_REASON_QUEUE_REFUSES,
						  "the broker refused the message (basic.nack): a queue rejected it or failed",
						  false);
}

void
outbox_relay_answered(void *arg, bool ack, uint64 tag, bool multiple)
{
	OutboxRelay *relay = arg;

	/* After one answer that cannot be, no other is to be believed. */
	if (relay->answers.protocol_error)
		return;
	/* Nobody can have what is still being sent; and it is not to be freed. */
	if (outbox_link_sending(relay->link) &&
		(tag == 0 || tag + 1 == relay->window.next))
		relay->answers.protocol_error = true;
	else if (!outbox_confirms_answer(&relay->window, tag, multiple,
									 ack ? item_confirmed : item_nacked, relay))
		relay->answers.protocol_error = true;
}

static bool
item_has_id(void *item, const void *key)
{
	return memcmp(&((OutboxItem *) item)->message->id, key, UUID_LEN) == 0;
}

void
outbox_relay_returned(void *arg, const pg_uuid_t *id, const char *text)
{
	OutboxRelay *relay = arg;
	OutboxItem *item;

	if (relay->answers.protocol_error)
		return;
	item = outbox_confirms_find(&relay->window, item_has_id, id);
	if (item == NULL)
	{
		relay->answers.protocol_error = true;
		return;
	}
	outbox_queue_returned(relay->queue, item, text);
}

void
outbox_relay_socket_readable(OutboxRelay *relay)
{
	relay->answers.readable = true;
}

void
outbox_relay_receive(OutboxRelay *relay)
{
	static const OutboxLinkError protocol_error = {
		.kind = OUTBOX_LINK_ERR_CONNECTION,
		.reason = OUTBOX_REASON_PROTOCOL,
		.text = "the broker confirmed or returned a message that was not outstanding"
	};
	int			received = 0;
	OutboxLinkStatus status;

	if (!outbox_relay_link_open(relay))
		return;
	/* An idle wake-up costs no library call, and no timer for its watchdog. */
	if (!relay->answers.readable && outbox_link_heartbeat_due_ms(relay->link) > 0)
		return;
	relay->answers.readable = false;
	relay->answers.received_at = outbox_mono_now();
	relay->answers.received_wall = GetCurrentTimestamp();
	status = outbox_link_receive(relay->link, &received);
	if (received > 0 && relay->window.outstanding > 0)
		OUTBOX_TEST_POINT("some_acks");
	if (received > 0 && relay->window.outstanding == 0 &&
		relay->queue->nconfirmed > 0)
		OUTBOX_TEST_POINT("all_acks");
	if (status == OUTBOX_LINK_LOST)
		outbox_relay_link_lost(relay);
	else if (relay->answers.protocol_error)
		outbox_relay_give_link_up(relay, &protocol_error);
	else
		outbox_relay_show_alarm(relay);
	relay->answers.protocol_error = false;
}

/* ------------------------------------------------------------- no answer */

/*
 * While others wait, a route that has failed is tried for a short time only: a channel
 * of RabbitMQ may stand still because of one queue.  The longer the route has rested,
 * the longer that is, as its queue may be slow.
 */
int
outbox_relay_patience_ms(OutboxRelay *relay, const OutboxRoute *route)
{
	if (!outbox_route_has_neighbours(&relay->routes, route, outbox_mono_now()))
		return outbox_confirm_timeout_ms;
	return Min(outbox_confirm_timeout_ms, Max(TRY_MS, route->try_ms));
}

/* Those that go alone; and one behind which as many others were confirmed as can be. */
static int
confirm_patience_ms(OutboxRelay *relay)
{
	const OutboxConfirms *window = &relay->window;
	const OutboxItem *oldest;

	if (window->outstanding == 0)
		return outbox_confirm_timeout_ms;
	oldest = window->ring[window->oldest % window->size];
	return oldest->maybe_poison || outbox_relay_is_risky(relay, oldest) ||
		outbox_confirms_full(window) ?
		outbox_relay_patience_ms(relay, oldest->route) : outbox_confirm_timeout_ms;
}

/* Of the messages that are not confirmed one may be the reason, as with a closed channel. */
static bool
find_late(OutboxRelay *relay, OutboxMonoTime now, OutboxLinkError *error)
{
	const char *late;

	*error = (OutboxLinkError) {.kind = OUTBOX_LINK_ERR_CONNECTION};
	late = outbox_stall_late(&relay->stall, confirm_patience_ms(relay), now, &error->reason);
	if (late != NULL && error->reason == OUTBOX_REASON_NO_CONFIRM)
	{
		error->message = error->destination = true;
		error->code = OUTBOX_CODE_NO_CONFIRM;
	}
	else if (late == NULL && (late = outbox_relay_declare_late(relay, now)) != NULL)
	{
		error->declaration = true;
		error->reason = OUTBOX_REASON_NO_CONFIRM;
	}
	if (late != NULL)
		strlcpy(error->text, late, sizeof(error->text));
	return late != NULL;
}

void
outbox_relay_check_late(OutboxRelay *relay, OutboxMonoTime now)
{
	OutboxLinkError error;

	if (!find_late(relay, now, &error))
		return;

	/*
	 * It was this process that took its time, perhaps, and the answer is
	 * there.
	 */
	relay->answers.readable = true;
	outbox_relay_receive(relay);
	if (outbox_relay_link_open(relay) && find_late(relay, now, &error))
		outbox_relay_give_link_up(relay, &error);
}

OutboxMonoTime
outbox_relay_late_deadline(OutboxRelay *relay, OutboxMonoTime now)
{
	OutboxMonoTime deadline = outbox_relay_declare_deadline(relay, now);

	outbox_mono_earlier(&deadline, outbox_stall_deadline(&relay->stall,
														 confirm_patience_ms(relay), now));
	return deadline;
}
