/*-------------------------------------------------------------------------
 *
 * broker_declare.c
 *		Makes sure that an exchange exists.
 *
 * On a channel of its own: a refusal closes the channel, and on the publishing
 * channel that would swallow the confirms of good messages.  Frames of the
 * other channels that arrive meanwhile are queued by the library and delivered
 * by the next receive.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "broker_internal.h"
#include "wait_event.h"
#include "watchdog.h"

static bool
is_channel_close(const amqp_rpc_reply_t *reply)
{
	return reply->reply_type == AMQP_RESPONSE_SERVER_EXCEPTION &&
		reply->reply.id == AMQP_CHANNEL_CLOSE_METHOD;
}

/*
 * Under the caller's guard.  The channel is gone on the broker's side until it
 * has our answer; the next declare opens it again.
 */
static OutboxLinkStatus
take_refusal(OutboxLink *link, const amqp_rpc_reply_t *reply,
			 int *code, char *text, size_t text_size)
{
	const amqp_channel_close_t *close = reply->reply.decoded;
	amqp_channel_close_ok_t close_ok = {0};
	int			status;

	link->declare_open = false;
	*code = close->reply_code;
	outbox_link_words(link, text, text_size, close->reply_text);
	status = amqp_send_method(link->conn, OUTBOX_CHANNEL_DECLARE,
							  AMQP_CHANNEL_CLOSE_OK_METHOD, &close_ok);
	if (status != AMQP_STATUS_OK)
		return outbox_link_fail_library(link, "declaring an exchange", status);
	return OUTBOX_LINK_REFUSED;
}

static amqp_rpc_reply_t
declare(OutboxLink *link, const char *exchange, const char *type)
{
	amqp_rpc_reply_t reply;

	if (!link->declare_open)
	{
		(void) amqp_channel_open(link->conn, OUTBOX_CHANNEL_DECLARE);
		reply = amqp_get_rpc_reply(link->conn);
		if (reply.reply_type != AMQP_RESPONSE_NORMAL)
			return reply;
		link->declare_open = true;
	}
	(void) amqp_exchange_declare(link->conn, OUTBOX_CHANNEL_DECLARE,
								 amqp_cstring_bytes(exchange),
								 amqp_cstring_bytes(type != NULL ? type : ""),
								 type == NULL, type != NULL, 0, 0,
								 amqp_empty_table);
	return amqp_get_rpc_reply(link->conn);
}

OutboxLinkStatus
outbox_link_declare(OutboxLink *link, const char *exchange, const char *type,
					int *code, char *text, size_t text_size)
{
	amqp_rpc_reply_t reply;
	OutboxLinkStatus status;

	*code = 0;
	text[0] = '\0';
	if (link->state == OUTBOX_LINK_CLOSED)
		return OUTBOX_LINK_LOST;
	if (link->state != OUTBOX_LINK_OPEN || link->in_burst)
		return OUTBOX_LINK_AGAIN;

	/* the default exchange is always there, and nobody may ask for it */
	if (exchange[0] == '\0')
		return OUTBOX_LINK_OK;
	if (strlen(exchange) > OUTBOX_SHORT_STRING_MAX ||
		(type != NULL && strlen(type) > OUTBOX_SHORT_STRING_MAX))
	{
		strlcpy(text, "name of exchange or exchange type is longer than 255 bytes",
				text_size);
		return OUTBOX_LINK_REFUSED;
	}

	outbox_link_note_read(link);
	outbox_link_guard_reading(link, OUTBOX_SOCKET_LIMIT_MS);
	outbox_wait_start(OUTBOX_WAIT_DECLARE);
	reply = declare(link, exchange, type);
	outbox_wait_end();
	if (reply.reply_type == AMQP_RESPONSE_NORMAL)
		status = OUTBOX_LINK_OK;
	else if (is_channel_close(&reply))
		status = take_refusal(link, &reply, code, text, text_size);
	else
	{
		/* some refusals (an unknown type) close the whole connection */
		status = outbox_link_fail_rpc(link, "declaring an exchange", &reply);
		link->error.message = false;
		*code = link->error.code;
		strlcpy(text, link->error.text, text_size);
	}
	if (status == OUTBOX_LINK_LOST)
		return status;
	if (outbox_link_unguard(link))
		return outbox_link_fail_library(link, "declaring an exchange",
										AMQP_STATUS_TIMEOUT);
	amqp_maybe_release_buffers(link->conn);
	return status;
}
