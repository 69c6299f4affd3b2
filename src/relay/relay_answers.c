/*-------------------------------------------------------------------------
 *
 * relay_answers.c
 *		What the broker says of the messages in flight: confirms and returns.
 *
 * Never called inside a transaction.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "relay_internal.h"
#include "stats.h"
#include "test_point.h"
#include "utils/timestamp.h"

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
		outbox_relay_give_link_up(relay, OUTBOX_REASON_PROTOCOL,
					 "the broker confirmed or returned a message that was not outstanding",
					 "The broker confirmed or returned a message that was not outstanding.");
	else
		outbox_relay_show_alarm(relay);
	relay->answers.protocol_error = false;
}
