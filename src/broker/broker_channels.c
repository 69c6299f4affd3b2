/*-------------------------------------------------------------------------
 *
 * broker_channels.c
 *		What is asked of the broker beside publishing, on channels of their own.
 *
 * A refusal closes the channel, and on the publishing channel that would swallow
 * the confirms of good messages.  The next question opens the channel again.
 *
 * An exchange is declared beside publishing, and nothing here waits for the answer,
 * which outbox_link_receive() meets.
 *
 * May we publish to an exchange?  AMQP has no question for that.  So a message is
 * published in a transaction of the broker's (tx.select), which is rolled back:
 * RabbitMQ looks at the rights and for the exchange when the message comes, and gives
 * it to queues at the commit, which does not come.  Nothing waits for the answer: an
 * alarm of the broker's shows only now, as connection.blocked, since it is sent to
 * those who publish; and then the rollback is read when the alarm is over, or never,
 * which has the same effect.
 *
 * A name that only one connection can have is that of an exclusive queue, which
 * RabbitMQ gives to one connection and deletes with it.  A second connection that
 * declares it is refused with 405 (RESOURCE_LOCKED).  The relay asks for it beside
 * publishing, and nothing here waits: what belongs to the question goes out only
 * while the send buffer has room for it, and outbox_link_receive() meets the answer.
 *
 *		CLOSED --channel.open--> OPENING --open-ok--> OPEN
 *		ASKED --declare-ok--> HELD --queue.delete--> OPEN
 *		HELD, OPEN --queue.declare--> ASKED
 *		any --channel.close, which is answered at once--> CLOSED
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "broker_internal.h"

/* More than all that is sent for a name. */
#define QUESTION_MAX_BYTES	1024

/* As the broker says it of a channel too many. */
#define TOO_MANY_CHANNELS	AMQP_NOT_ALLOWED

/*
 * x-recent-history keeps the last messages that it has seen, whatever becomes of
 * them, unless they have this header.
 */
static const char *const DoNotKeep = "x-recent-history-no-store";

/* The channel's number may be used again once the broker has our answer. */
static int
answer_close(OutboxLink *link, amqp_channel_t channel,
			 const amqp_channel_close_t *close, int *code, char *text,
			 size_t text_size)
{
	amqp_channel_close_ok_t close_ok = {0};

	*code = close->reply_code;
	outbox_link_words(link, text, text_size, close->reply_text);
	return amqp_send_method(link->conn, channel, AMQP_CHANNEL_CLOSE_OK_METHOD,
							&close_ok);
}

/* May a question be sent, which must neither wait nor stand in a burst? */
static bool
may_send(OutboxLink *link)
{
	if (link->state != OUTBOX_LINK_OPEN || link->in_burst || link->rest.len > 0)
		return false;
	outbox_link_measure_room(link);
	return link->room > QUESTION_MAX_BYTES;
}

/* -------------------------------------------------------------- an exchange */

/* The channel's open-ok is not waited for: RabbitMQ takes what follows in its order. */
static int
open_and_declare(OutboxLink *link, amqp_exchange_declare_t *declare)
{
	amqp_channel_open_t open = {0};
	int			status = AMQP_STATUS_OK;

	if (!link->declare_open)
	{
		status = amqp_send_method(link->conn, OUTBOX_CHANNEL_DECLARE,
								  AMQP_CHANNEL_OPEN_METHOD, &open);
		link->declare_open = link->declare_opening = true;
	}
	if (status == AMQP_STATUS_OK)
		status = amqp_send_method(link->conn, OUTBOX_CHANNEL_DECLARE,
								  AMQP_EXCHANGE_DECLARE_METHOD, declare);
	return status;
}

OutboxLinkStatus
outbox_link_declare(OutboxLink *link, const char *exchange, const char *type)
{
	amqp_exchange_declare_t declare = {
		.exchange = amqp_cstring_bytes(exchange),
		.type = amqp_cstring_bytes(type != NULL ? type : ""),
		.passive = type == NULL,
		.durable = type != NULL
	};
	OutboxLinkStatus status;

	if (link->state == OUTBOX_LINK_CLOSED)
		return OUTBOX_LINK_LOST;
	if (!may_send(link))
		return OUTBOX_LINK_AGAIN;
	if (strlen(exchange) > OUTBOX_SHORT_STRING_MAX ||
		(type != NULL && strlen(type) > OUTBOX_SHORT_STRING_MAX))
		return outbox_link_refuse(link, "name of exchange or exchange type is longer than 255 bytes",
								  true);
	outbox_link_begin_call(link, OUTBOX_WAIT_DECLARE);
	status = outbox_link_end_call(link, "declaring an exchange",
								  open_and_declare(link, &declare));
	if (status == OUTBOX_LINK_OK)
		link->declares++;
	return status;
}

/*
 * Some refusals (an unknown type) close the whole connection.  Of several questions it may
 * be any; and another class is that of another method.
 */
bool
outbox_link_declare_closed(const OutboxLink *link, int code, int class_id)
{
	return link->declares == 1 && code >= AMQP_FRAME_ERROR &&
		(class_id == AMQP_EXCHANGE_CLASS ||
		 (class_id == 0 && !outbox_link_name_closed(link, code, class_id)));
}

/* The channel has ended; what stands behind the refused one has no answer. */
static void
declare_refused(OutboxLink *link, int code, const char *text)
{
	bool		asked = link->declares > 0;

	link->declare_open = link->declare_opening = false;
	link->declares = 0;
	if (asked)
		link->events.declared(link->events.arg, code, text);
}

static bool
take_declare_ok(OutboxLink *link, amqp_method_number_t id)
{
	if (id == AMQP_CHANNEL_OPEN_OK_METHOD && link->declare_opening)
		link->declare_opening = false;
	else if (id == AMQP_EXCHANGE_DECLARE_OK_METHOD && link->declares > 0)
	{
		link->declares--;
		link->events.declared(link->events.arg, 0, NULL);
	}
	else
		return false;
	return true;
}

/* ------------------------------------------------------ may we publish there? */

static OutboxLinkStatus
open_transactions(OutboxLink *link)
{
	amqp_rpc_reply_t reply;

	(void) amqp_channel_open(link->conn, OUTBOX_CHANNEL_TRY);
	reply = amqp_get_rpc_reply(link->conn);
	if (reply.reply_type == AMQP_RESPONSE_NORMAL)
	{
		(void) amqp_tx_select(link->conn, OUTBOX_CHANNEL_TRY);
		reply = amqp_get_rpc_reply(link->conn);
	}
	return outbox_link_end_rpc(link, "opening a channel with transactions", &reply);
}

static int
publish_and_roll_back(OutboxLink *link, const char *exchange,
					  const char *routing_key)
{
	amqp_tx_rollback_t rollback = {0};
	amqp_table_entry_t entry = OUTBOX_TABLE_TRUE(DoNotKeep);
	amqp_basic_properties_t properties = {
		._flags = AMQP_BASIC_HEADERS_FLAG,
		.headers = {.num_entries = 1, .entries = &entry}
	};
	int			status;

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
	OutboxLinkStatus status = OUTBOX_LINK_OK;

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

	if (!link->try_open)
	{
		outbox_link_begin_call(link, OUTBOX_WAIT_DECLARE);
		status = open_transactions(link);
		link->try_open = status == OUTBOX_LINK_OK;
	}
	if (status == OUTBOX_LINK_OK)
	{
		outbox_link_begin_call(link, OUTBOX_WAIT_DECLARE);
		status = outbox_link_end_call(link, "publishing in a transaction",
									  publish_and_roll_back(link, exchange,
															routing_key));
	}
	if (status == OUTBOX_LINK_OK)
		link->try_status = OUTBOX_LINK_AGAIN;
	return status;
}

OutboxLinkStatus
outbox_link_tried(const OutboxLink *link, int *code, const char **text)
{
	*code = link->try_code;
	*text = link->try_text;
	return link->state == OUTBOX_LINK_CLOSED ? OUTBOX_LINK_LOST :
		link->try_status;
}

/* ------------------------------------------------------------------- a name */

/* The only writer of link->name_state; the diagram is above. */
static void
set_name_state(OutboxLink *link, OutboxNameState state)
{
	switch (state)
	{
		case OUTBOX_NAME_CLOSED:
			break;
		case OUTBOX_NAME_OPENING:
			Assert(link->name_state == OUTBOX_NAME_CLOSED);
			break;
		case OUTBOX_NAME_OPEN:
			Assert(link->name_state == OUTBOX_NAME_OPENING ||
				   link->name_state == OUTBOX_NAME_HELD);
			break;
		case OUTBOX_NAME_ASKED:
			Assert(link->name_state == OUTBOX_NAME_OPEN ||
				   link->name_state == OUTBOX_NAME_HELD);
			break;
		case OUTBOX_NAME_HELD:
			Assert(link->name_state == OUTBOX_NAME_ASKED);
			break;
	}
	link->name_state = state;
}

/* RabbitMQ closes the whole connection for a channel too many. */
static bool
channel_allowed(OutboxLink *link)
{
	int			most = amqp_get_channel_max(link->conn);

	return most == 0 || most >= OUTBOX_CHANNEL_NAME;
}

static OutboxLinkStatus
send_method(OutboxLink *link, amqp_method_number_t id, void *method,
			OutboxNameState next)
{
	OutboxLinkStatus status;

	outbox_link_begin_call(link, OUTBOX_WAIT_SEND);
	status = outbox_link_end_call(link, "connection",
								  amqp_send_method(link->conn,
												   OUTBOX_CHANNEL_NAME, id,
												   method));
	if (status == OUTBOX_LINK_OK)
		set_name_state(link, next);
	return status;
}

/* The type is given, as a virtual host's default may be quorum: never exclusive. */
static OutboxLinkStatus
send_declare(OutboxLink *link)
{
	amqp_table_entry_t type = OUTBOX_TABLE_TEXT("x-queue-type", "classic");
	amqp_queue_declare_t declare = {
		.queue = amqp_cstring_bytes(link->name),
		.exclusive = 1,
		.arguments = {.num_entries = 1, .entries = &type}
	};

	return send_method(link, AMQP_QUEUE_DECLARE_METHOD, &declare,
					   OUTBOX_NAME_ASKED);
}

OutboxLinkStatus
outbox_link_release_name(OutboxLink *link)
{
	amqp_queue_delete_t delete = {
		.queue = amqp_cstring_bytes(link->name), .nowait = 1
	};

	if (link->state == OUTBOX_LINK_CLOSED)
		return OUTBOX_LINK_LOST;
	if (link->name_state == OUTBOX_NAME_CLOSED ||
		link->name_state == OUTBOX_NAME_OPEN)
		return OUTBOX_LINK_OK;
	if (link->name_state != OUTBOX_NAME_HELD || !may_send(link))
		return OUTBOX_LINK_AGAIN;
	return send_method(link, AMQP_QUEUE_DELETE_METHOD, &delete, OUTBOX_NAME_OPEN);
}

OutboxLinkStatus
outbox_link_ask_name(OutboxLink *link, const char *name)
{
	amqp_channel_open_t open = {0};
	OutboxLinkStatus status;

	if (link->state == OUTBOX_LINK_CLOSED)
		return OUTBOX_LINK_LOST;
	if (link->name_state == OUTBOX_NAME_OPENING ||
		link->name_state == OUTBOX_NAME_ASKED || !may_send(link))
		return OUTBOX_LINK_AGAIN;
	link->name_refused = false;
	if (link->name_state == OUTBOX_NAME_CLOSED && !channel_allowed(link))
	{
		link->name_refused = true;
		link->name_code = TOO_MANY_CHANNELS;
		strlcpy(link->name_text, "the broker allows too few channels on a connection",
				sizeof(link->name_text));
		return OUTBOX_LINK_REFUSED;
	}
	if (strcmp(link->name, name) != 0)
	{
		status = outbox_link_release_name(link);
		if (status != OUTBOX_LINK_OK)
			return status;
		strlcpy(link->name, name, sizeof(link->name));
	}
	return link->name_state != OUTBOX_NAME_CLOSED ? send_declare(link) :
		send_method(link, AMQP_CHANNEL_OPEN_METHOD, &open, OUTBOX_NAME_OPENING);
}

OutboxLinkStatus
outbox_link_name_answer(OutboxLink *link, int *code, const char **text)
{
	OutboxLinkStatus status;

	/* The channel is open by now. */
	if (link->name_state == OUTBOX_NAME_OPEN && may_send(link))
	{
		status = send_declare(link);
		if (status != OUTBOX_LINK_OK)
			return status;
	}
	*code = link->name_code;
	*text = link->name_text;
	if (link->state == OUTBOX_LINK_CLOSED)
		return OUTBOX_LINK_LOST;
	if (link->name_refused)
		return OUTBOX_LINK_REFUSED;
	return link->name_state == OUTBOX_NAME_HELD ? OUTBOX_LINK_OK :
		OUTBOX_LINK_AGAIN;
}

/*
 * Did the broker close the connection because of the question that is under way?
 * A limit on channels, or a broker without exclusive queues, ends the connection
 * and not the channel.  RabbitMQ names the class of the method that it closes for,
 * or none.
 */
bool
outbox_link_name_closed(const OutboxLink *link, int code, int class_id)
{
	return (link->name_state == OUTBOX_NAME_OPENING ||
			link->name_state == OUTBOX_NAME_ASKED) &&
		code >= AMQP_FRAME_ERROR && class_id != AMQP_BASIC_CLASS &&
		class_id != AMQP_EXCHANGE_CLASS;
}

/* ------------------------------------------------------------------ answers */

/* That is what was asked for; false: nothing was. */
static bool
take_ok(OutboxLink *link, amqp_channel_t channel, amqp_method_number_t id)
{
	if (channel == OUTBOX_CHANNEL_DECLARE)
		return take_declare_ok(link, id);
	if (channel == OUTBOX_CHANNEL_TRY && id == AMQP_TX_ROLLBACK_OK_METHOD &&
		link->try_status == OUTBOX_LINK_AGAIN)
		link->try_status = OUTBOX_LINK_OK;
	else if (channel == OUTBOX_CHANNEL_NAME && id == AMQP_CHANNEL_OPEN_OK_METHOD &&
			 link->name_state == OUTBOX_NAME_OPENING)
		set_name_state(link, OUTBOX_NAME_OPEN);
	else if (channel == OUTBOX_CHANNEL_NAME && id == AMQP_QUEUE_DECLARE_OK_METHOD &&
			 link->name_state == OUTBOX_NAME_ASKED)
		set_name_state(link, OUTBOX_NAME_HELD);
	else
		return false;
	return true;
}

bool
outbox_link_take_answer(OutboxLink *link, const amqp_frame_t *frame, int *status)
{
	const amqp_method_t *method = &frame->payload.method;
	int			code;
	char		text[256];

	*status = AMQP_STATUS_OK;
	if (frame->frame_type != AMQP_FRAME_METHOD)
		return false;
	if (method->id != AMQP_CHANNEL_CLOSE_METHOD)
		return take_ok(link, frame->channel, method->id);
	switch (frame->channel)
	{
		case OUTBOX_CHANNEL_DECLARE:
			*status = answer_close(link, frame->channel, method->decoded, &code,
								   text, sizeof(text));
			declare_refused(link, code, text);
			return true;
		case OUTBOX_CHANNEL_TRY:
			link->try_open = false;
			link->try_status = OUTBOX_LINK_REFUSED;
			*status = answer_close(link, frame->channel, method->decoded,
								   &link->try_code, link->try_text,
								   sizeof(link->try_text));
			return true;
		default:
			if (link->name_state == OUTBOX_NAME_CLOSED)
				return false;
			set_name_state(link, OUTBOX_NAME_CLOSED);
			link->name_refused = true;
			*status = answer_close(link, frame->channel, method->decoded,
								   &link->name_code, link->name_text,
								   sizeof(link->name_text));
			return true;
	}
}
