/*-------------------------------------------------------------------------
 *
 * broker_name.c
 *		Takes a name that only one connection to the broker can have.
 *
 * The name is that of an exclusive queue, which RabbitMQ gives to one connection
 * and deletes with it.  A second connection that declares it is refused with 405
 * (RESOURCE_LOCKED).  The relay asks for it beside publishing, on a channel of its
 * own, and nothing here waits: what belongs to a question goes out only while the
 * send buffer has room for it, and outbox_link_receive() meets the answer.
 *
 *		CLOSED --channel.open--> OPENING --open-ok--> OPEN
 *		ASKED --declare-ok--> HELD --queue.delete--> OPEN
 *		HELD, OPEN --queue.declare--> ASKED
 *		any --channel.close, which is answered at once--> CLOSED
 *
 * The queue says x-queue-type = classic because a virtual host's default type may
 * be quorum, which cannot be exclusive.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "broker_internal.h"
#include "wait_event.h"
#include "watchdog.h"

/* More than all that is sent for a question. */
#define QUESTION_MAX_BYTES	1024

/* As the broker says it of a channel too many. */
#define TOO_MANY_CHANNELS	AMQP_NOT_ALLOWED

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

/* May a question be sent, which must neither wait nor stand in a burst? */
static bool
may_send(OutboxLink *link)
{
	if (link->state != OUTBOX_LINK_OPEN || link->in_burst || link->rest.len > 0)
		return false;
	outbox_link_measure_room(link);
	return link->room > QUESTION_MAX_BYTES;
}

static int
send_declare(OutboxLink *link)
{
	amqp_queue_declare_t declare = {0};
	amqp_table_entry_t type;
	int			status;

	memset(&type, 0, sizeof(type));
	type.key = amqp_cstring_bytes("x-queue-type");
	type.value.kind = AMQP_FIELD_KIND_UTF8;
	type.value.value.bytes = amqp_cstring_bytes("classic");
	declare.queue = amqp_cstring_bytes(link->name);
	declare.exclusive = 1;
	declare.arguments.num_entries = 1;
	declare.arguments.entries = &type;
	status = amqp_send_method(link->conn, OUTBOX_CHANNEL_NAME,
							  AMQP_QUEUE_DECLARE_METHOD, &declare);
	if (status == AMQP_STATUS_OK)
		set_name_state(link, OUTBOX_NAME_ASKED);
	return status;
}

static int
send_open(OutboxLink *link)
{
	amqp_channel_open_t open = {0};
	int			status = amqp_send_method(link->conn, OUTBOX_CHANNEL_NAME,
										  AMQP_CHANNEL_OPEN_METHOD, &open);

	if (status == AMQP_STATUS_OK)
		set_name_state(link, OUTBOX_NAME_OPENING);
	return status;
}

static int
send_delete(OutboxLink *link)
{
	amqp_queue_delete_t delete = {0};
	int			status;

	delete.queue = amqp_cstring_bytes(link->name);
	delete.nowait = 1;
	status = amqp_send_method(link->conn, OUTBOX_CHANNEL_NAME,
							  AMQP_QUEUE_DELETE_METHOD, &delete);
	if (status == AMQP_STATUS_OK)
		set_name_state(link, OUTBOX_NAME_OPEN);
	return status;
}

typedef int (*Send) (OutboxLink *link);

static OutboxLinkStatus
guarded(OutboxLink *link, Send what)
{
	int			status;

	outbox_link_note_read(link);
	outbox_link_guard(link, OUTBOX_SOCKET_LIMIT_MS);
	outbox_wait_start(OUTBOX_WAIT_SEND);
	status = what(link);
	outbox_wait_end();
	if (outbox_link_unguard(link))
		status = AMQP_STATUS_TIMEOUT;
	if (status != AMQP_STATUS_OK)
		return outbox_link_fail_library(link, "connection", status);
	return OUTBOX_LINK_OK;
}

OutboxLinkStatus
outbox_link_release_name(OutboxLink *link)
{
	if (link->state == OUTBOX_LINK_CLOSED)
		return OUTBOX_LINK_LOST;
	if (link->name_state == OUTBOX_NAME_CLOSED ||
		link->name_state == OUTBOX_NAME_OPEN)
		return OUTBOX_LINK_OK;
	if (link->name_state != OUTBOX_NAME_HELD || !may_send(link))
		return OUTBOX_LINK_AGAIN;
	return guarded(link, send_delete);
}

OutboxLinkStatus
outbox_link_ask_name(OutboxLink *link, const char *name)
{
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
	return guarded(link, link->name_state == OUTBOX_NAME_CLOSED ?
				   send_open : send_declare);
}

OutboxLinkStatus
outbox_link_name_answer(OutboxLink *link, int *code, const char **text)
{
	OutboxLinkStatus status;

	/* The channel is open by now. */
	if (link->name_state == OUTBOX_NAME_OPEN && may_send(link))
	{
		status = guarded(link, send_declare);
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

/* The connection is gone, and the name with it. */
void
outbox_link_forget_name(OutboxLink *link)
{
	link->name_refused = false;
	set_name_state(link, OUTBOX_NAME_CLOSED);
}

/*
 * Did the broker close the connection because of the request that is under way?
 * A limit on channels, or a broker without exclusive queues, ends the connection
 * and not the channel.  RabbitMQ names the class of the method that it closes for,
 * or none.
 */
bool
outbox_link_name_closed(const OutboxLink *link, int code, int class_id)
{
	return (link->name_state == OUTBOX_NAME_OPENING ||
			link->name_state == OUTBOX_NAME_ASKED) &&
		code >= AMQP_FRAME_ERROR && class_id != AMQP_BASIC_CLASS;
}

/* A frame on its channel; false when it is not expected there. */
bool
outbox_link_take_name(OutboxLink *link, const amqp_frame_t *frame, int *status)
{
	amqp_channel_close_ok_t close_ok = {0};
	const amqp_channel_close_t *close;

	*status = AMQP_STATUS_OK;
	if (frame->frame_type != AMQP_FRAME_METHOD ||
		link->name_state == OUTBOX_NAME_CLOSED)
		return false;
	switch (frame->payload.method.id)
	{
		case AMQP_CHANNEL_OPEN_OK_METHOD:
			if (link->name_state != OUTBOX_NAME_OPENING)
				return false;
			set_name_state(link, OUTBOX_NAME_OPEN);
			return true;
		case AMQP_QUEUE_DECLARE_OK_METHOD:
			if (link->name_state != OUTBOX_NAME_ASKED)
				return false;
			set_name_state(link, OUTBOX_NAME_HELD);
			return true;
		case AMQP_CHANNEL_CLOSE_METHOD:
			break;
		default:
			return false;
	}

	/* the number may be used again once the broker has our answer */
	close = frame->payload.method.decoded;
	link->name_refused = true;
	link->name_code = close->reply_code;
	outbox_link_words(link, link->name_text, sizeof(link->name_text),
					  close->reply_text);
	set_name_state(link, OUTBOX_NAME_CLOSED);
	*status = amqp_send_method(link->conn, OUTBOX_CHANNEL_NAME,
							   AMQP_CHANNEL_CLOSE_OK_METHOD, &close_ok);
	return true;
}
