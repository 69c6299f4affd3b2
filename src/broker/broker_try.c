/*-------------------------------------------------------------------------
 *
 * broker_try.c
 *		May we publish to an exchange?  Tried, without leaving anything behind.
 *
 * AMQP has no question for that.  So a message is published in a transaction
 * of the broker's (tx.select), which is rolled back: RabbitMQ looks at the rights
 * and for the exchange when the message comes, and gives it to queues at the
 * commit, which does not come.  What could keep it before that is told not to by
 * the headers.  A confirm channel cannot have transactions, and a refusal closes
 * the channel, so it has one of its own.
 *
 * Nothing here waits for the answer: an alarm of the broker's shows only now, as
 * connection.blocked, since it is sent to those who publish; and then the rollback
 * is read when the alarm is over, or never, which has the same effect.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "broker_internal.h"
#include "wait_event.h"
#include "watchdog.h"

/*
 * x-recent-history keeps the last messages that it has seen, whatever becomes of
 * them, unless they have this header.
 */
static const char *const DoNotKeep = "x-recent-history-no-store";

static amqp_rpc_reply_t
open_channel(OutboxLink *link)
{
	amqp_rpc_reply_t reply;

	(void) amqp_channel_open(link->conn, OUTBOX_CHANNEL_TRY);
	reply = amqp_get_rpc_reply(link->conn);
	if (reply.reply_type != AMQP_RESPONSE_NORMAL)
		return reply;
	(void) amqp_tx_select(link->conn, OUTBOX_CHANNEL_TRY);
	return amqp_get_rpc_reply(link->conn);
}

static int
publish_and_roll_back(OutboxLink *link, const char *exchange,
					  const char *routing_key)
{
	amqp_tx_rollback_t rollback = {0};
	amqp_basic_properties_t properties;
	amqp_table_entry_t entry;
	int			status;

	memset(&entry, 0, sizeof(entry));
	entry.key = amqp_cstring_bytes(DoNotKeep);
	entry.value.kind = AMQP_FIELD_KIND_BOOLEAN;
	entry.value.value.boolean = 1;
	memset(&properties, 0, sizeof(properties));
	properties._flags = AMQP_BASIC_HEADERS_FLAG;
	properties.headers.num_entries = 1;
	properties.headers.entries = &entry;

	status = amqp_basic_publish(link->conn, OUTBOX_CHANNEL_TRY,
								amqp_cstring_bytes(exchange),
								amqp_cstring_bytes(routing_key), true, false,
								&properties, amqp_empty_bytes);
	if (status == AMQP_STATUS_OK)
		status = amqp_send_method(link->conn, OUTBOX_CHANNEL_TRY,
								  AMQP_TX_ROLLBACK_METHOD, &rollback);
	return status;
}

OutboxLinkStatus
outbox_link_try_publish(OutboxLink *link, const char *exchange,
						const char *routing_key)
{
	amqp_rpc_reply_t reply;
	int			status;

	if (link->state == OUTBOX_LINK_CLOSED)
		return OUTBOX_LINK_LOST;
	if (link->state != OUTBOX_LINK_OPEN || link->in_burst ||
		link->try_status == OUTBOX_LINK_AGAIN)
		return OUTBOX_LINK_AGAIN;
	if (strlen(exchange) > OUTBOX_SHORT_STRING_MAX ||
		strlen(routing_key) > OUTBOX_SHORT_STRING_MAX)
	{
		link->try_status = OUTBOX_LINK_REFUSED;
		link->try_code = 0;
		strlcpy(link->try_text, "exchange or routing key is longer than 255 bytes",
				sizeof(link->try_text));
		return OUTBOX_LINK_REFUSED;
	}

	outbox_link_note_read(link);
	outbox_link_guard_reading(link, OUTBOX_SOCKET_LIMIT_MS);
	outbox_wait_start(OUTBOX_WAIT_DECLARE);
	if (!link->try_open)
	{
		reply = open_channel(link);
		if (reply.reply_type != AMQP_RESPONSE_NORMAL)
		{
			outbox_wait_end();
			return outbox_link_fail_rpc(link, "opening a channel with transactions",
										&reply);
		}
		link->try_open = true;
	}
	status = publish_and_roll_back(link, exchange, routing_key);
	outbox_wait_end();
	if (outbox_link_unguard(link))
		status = AMQP_STATUS_TIMEOUT;
	if (status != AMQP_STATUS_OK)
		return outbox_link_fail_library(link, "publishing in a transaction",
										status);
	link->try_status = OUTBOX_LINK_AGAIN;
	return OUTBOX_LINK_OK;
}

OutboxLinkStatus
outbox_link_tried(const OutboxLink *link, int *code, const char **text)
{
	*code = link->try_code;
	*text = link->try_text;
	return link->state == OUTBOX_LINK_CLOSED ? OUTBOX_LINK_LOST :
		link->try_status;
}

/* A frame on its channel; false when there is no place for such a one. */
bool
outbox_link_take_try(OutboxLink *link, const amqp_frame_t *frame, int *status)
{
	amqp_channel_close_ok_t close_ok = {0};
	const amqp_channel_close_t *close;

	*status = AMQP_STATUS_OK;
	if (frame->frame_type != AMQP_FRAME_METHOD)
		return false;
	if (frame->payload.method.id == AMQP_TX_ROLLBACK_OK_METHOD &&
		link->try_status == OUTBOX_LINK_AGAIN)
	{
		link->try_status = OUTBOX_LINK_OK;
		return true;
	}
	if (frame->payload.method.id != AMQP_CHANNEL_CLOSE_METHOD)
		return false;

	/* the next one opens the channel again */
	close = frame->payload.method.decoded;
	link->try_open = false;
	link->try_status = OUTBOX_LINK_REFUSED;
	link->try_code = close->reply_code;
	outbox_link_words(link, link->try_text, sizeof(link->try_text),
					  close->reply_text);
	*status = amqp_send_method(link->conn, OUTBOX_CHANNEL_TRY,
							   AMQP_CHANNEL_CLOSE_OK_METHOD, &close_ok);
	return true;
}
