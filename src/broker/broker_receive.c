/*-------------------------------------------------------------------------
 *
 * broker_receive.c
 *		Reads what the broker sends: confirms, returns, closes, alarms.
 *
 * Frames live in the library's pools until the buffers are released, which
 * happens after each frame: whatever is kept is copied before.  Only
 * amqp_maybe_release_buffers() is used; the other one aborts the process in
 * the middle of a frame.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#ifdef __GLIBC__
#include <malloc.h>
#endif

#include "utils/memutils.h"

#include "broker_internal.h"
#include "printable.h"
#include "watchdog.h"

/* A flood of frames must neither trip the watchdog nor keep the worker here. */
#define FRAMES_PER_GUARD	256
#define FRAMES_PER_RECEIVE	16384

#define UUID_TEXT_LEN 36

/*
 * The library makes a pool for each channel of which anything comes, be it a
 * heartbeat, and keeps them all: 500 kB make it hold 8 GB, and WEIGH_BYTES what may be
 * held.  So it is weighed now and then.  Four channels are in use, and their frames are released one by one.
 */
#define WEIGH_MS			100
#define WEIGH_BYTES			4096
#define HELD_MAX_BYTES		((size_t) OUTBOX_READING_MAX_MB * 1024 * 1024)

/* What is allocated beside the server's memory contexts; 0 where nobody tells. */
static size_t
foreign_bytes(void)
{
#if defined(__GLIBC__) && __GLIBC_PREREQ(2, 33)
	struct mallinfo2 info = mallinfo2();
	size_t		ours = MemoryContextMemAllocated(TopMemoryContext, true);
	size_t		all = info.uordblks + info.hblkhd;

	return all > ours ? all - ours : 0;
#else
	return 0;
#endif
}

void
outbox_link_weigh(OutboxLink *link)
{
	link->weighed_ms = outbox_link_now_ms();
	link->unweighed_bytes = 0;
	link->weight = foreign_bytes();
}

static bool
holds_too_much(OutboxLink *link)
{
	int64		now_ms = outbox_link_now_ms();

	if (link->unweighed_bytes < WEIGH_BYTES || now_ms - link->weighed_ms < WEIGH_MS)
		return false;
	link->weighed_ms = now_ms;
	link->unweighed_bytes = 0;
	return foreign_bytes() > link->weight + HELD_MAX_BYTES;
}

static OutboxLinkStatus
fail_unexpected(OutboxLink *link, const amqp_frame_t *frame)
{
	bool		method = frame->frame_type == AMQP_FRAME_METHOD;
	char		type[32];

	snprintf(type, sizeof(type), "frame of type %d", frame->frame_type);
	return outbox_link_fail(link, OUTBOX_REASON_PROTOCOL,
							"the broker sent an unexpected %s on channel %d",
							method ? amqp_method_name(frame->payload.method.id) :
							type, frame->channel);
}

/* Reads the text form of a uuid; all zeros unless it is one. */
static void
parse_uuid(const amqp_bytes_t *text, pg_uuid_t *id)
{
	const char *chars = text->bytes;
	pg_uuid_t	parsed;
	int			at = 0;
	int			i;

	memset(id, 0, sizeof(*id));
	if (text->len != UUID_TEXT_LEN)
		return;
	for (i = 0; i < UUID_LEN; i++)
	{
		int			high;
		int			low;

		if ((i == 4 || i == 6 || i == 8 || i == 10) && chars[at++] != '-')
			return;
		high = outbox_hex_digit(chars[at++]);
		low = outbox_hex_digit(chars[at++]);
		if (high < 0 || low < 0)
			return;
		parsed.data[i] = (unsigned char) (high << 4 | low);
	}
	*id = parsed;
}

/* Keeps what basic.return says until its content header tells the message. */
static void
note_return(OutboxLink *link, const amqp_basic_return_t *method)
{
	char		reason[128];
	char		exchange[256];
	char		routing_key[256];
	char		text[sizeof(link->return_text) + 256];

	outbox_link_words(link, reason, sizeof(reason), method->reply_text);
	outbox_link_words(link, exchange, sizeof(exchange), method->exchange);
	outbox_link_words(link, routing_key, sizeof(routing_key),
					  method->routing_key);
	snprintf(text, sizeof(text),
			 "returned by the broker: %d %s (exchange \"%s\", routing key \"%s\")",
			 method->reply_code, reason, exchange, routing_key);
	/* once more, because this may cut a character in two */
	outbox_link_printable(link->return_text, sizeof(link->return_text),
						  text, strlen(text));
	link->return_part = OUTBOX_RETURN_HEADER;
}

static void
deliver_return(OutboxLink *link, const amqp_frame_t *frame)
{
	const amqp_basic_properties_t *properties = frame->payload.properties.decoded;
	pg_uuid_t	id;

	memset(&id, 0, sizeof(id));
	if (properties->_flags & AMQP_BASIC_MESSAGE_ID_FLAG)
		parse_uuid(&properties->message_id, &id);

	link->return_body_left = frame->payload.properties.body_size;
	link->return_part = link->return_body_left > 0 ? OUTBOX_RETURN_BODY :
		OUTBOX_RETURN_NONE;
	link->events.returned(link->events.arg, &id, link->return_text);
}

static OutboxLinkStatus
handle_content(OutboxLink *link, const amqp_frame_t *frame)
{
	if (frame->frame_type == AMQP_FRAME_HEADER &&
		frame->payload.properties.class_id == AMQP_BASIC_CLASS &&
		link->return_part == OUTBOX_RETURN_HEADER)
	{
		deliver_return(link, frame);
		return OUTBOX_LINK_OK;
	}
	if (frame->frame_type == AMQP_FRAME_BODY &&
		link->return_part == OUTBOX_RETURN_BODY &&
		frame->payload.body_fragment.len <= link->return_body_left)
	{
		link->return_body_left -= frame->payload.body_fragment.len;
		if (link->return_body_left == 0)
			link->return_part = OUTBOX_RETURN_NONE;
		return OUTBOX_LINK_OK;
	}
	return fail_unexpected(link, frame);
}

uint64
outbox_link_return_left(const OutboxLink *link)
{
	return link->return_body_left;
}

/* The confirm channel. */
static OutboxLinkStatus
handle_publish_channel(OutboxLink *link, const amqp_frame_t *frame)
{
	const amqp_method_t *method = &frame->payload.method;

	if (frame->frame_type != AMQP_FRAME_METHOD)
		return handle_content(link, frame);

	if (method->id == AMQP_CHANNEL_CLOSE_METHOD)
		return outbox_link_fail_close(link, "publishing", method);

	/* a return must be complete as far as we tell of it before its ack */
	if (link->return_part == OUTBOX_RETURN_HEADER)
		return fail_unexpected(link, frame);

	if (method->id == AMQP_BASIC_ACK_METHOD)
	{
		const amqp_basic_ack_t *ack = method->decoded;

		link->events.answered(link->events.arg, true, ack->delivery_tag,
							   ack->multiple != 0);
		return OUTBOX_LINK_OK;
	}
	if (method->id == AMQP_BASIC_NACK_METHOD)
	{
		const amqp_basic_nack_t *nack = method->decoded;

		link->events.answered(link->events.arg, false, nack->delivery_tag,
							   nack->multiple != 0);
		return OUTBOX_LINK_OK;
	}
	if (method->id == AMQP_BASIC_RETURN_METHOD &&
		link->return_part == OUTBOX_RETURN_NONE)
	{
		note_return(link, method->decoded);
		return OUTBOX_LINK_OK;
	}
	return fail_unexpected(link, frame);
}

/* Channel 0: the connection itself. */
static OutboxLinkStatus
handle_connection(OutboxLink *link, const amqp_frame_t *frame)
{
	const amqp_method_t *method = &frame->payload.method;

	/* mostly the library keeps heartbeats to itself, but not queued ones */
	if (frame->frame_type == AMQP_FRAME_HEARTBEAT)
		return OUTBOX_LINK_OK;
	if (frame->frame_type != AMQP_FRAME_METHOD)
		return fail_unexpected(link, frame);

	if (method->id == AMQP_CONNECTION_CLOSE_METHOD)
		return outbox_link_fail_close(link, "connection", method);
	if (method->id == AMQP_CONNECTION_BLOCKED_METHOD)
	{
		const amqp_connection_blocked_t *blocked = method->decoded;

		if (link->state == OUTBOX_LINK_OPEN)
			outbox_link_set_state(link, OUTBOX_LINK_BLOCKED);
		outbox_link_words(link, link->blocked_reason,
						  sizeof(link->blocked_reason), blocked->reason);
		return OUTBOX_LINK_OK;
	}
	if (method->id == AMQP_CONNECTION_UNBLOCKED_METHOD)
	{
		if (link->state == OUTBOX_LINK_BLOCKED)
			outbox_link_set_state(link, OUTBOX_LINK_OPEN);
		return OUTBOX_LINK_OK;
	}
	return fail_unexpected(link, frame);
}

static OutboxLinkStatus
handle_answer(OutboxLink *link, const amqp_frame_t *frame)
{
	int			status;

	if (!outbox_link_take_answer(link, frame, &status))
		return fail_unexpected(link, frame);
	return status == AMQP_STATUS_OK ? OUTBOX_LINK_OK :
		outbox_link_fail_library(link, "connection", status);
}

static OutboxLinkStatus
handle_frame(OutboxLink *link, const amqp_frame_t *frame)
{
	switch (frame->channel)
	{
		case 0:
			return handle_connection(link, frame);
		case OUTBOX_CHANNEL_PUBLISH:
			return handle_publish_channel(link, frame);
		case OUTBOX_CHANNEL_DECLARE:
		case OUTBOX_CHANNEL_TRY:
		case OUTBOX_CHANNEL_NAME:
			return handle_answer(link, frame);
		default:
			return fail_unexpected(link, frame);
	}
}

/*
 * Has the library nothing left of what it has read?  Bytes that are still in the socket
 * wake the worker again, which costs less than to ask for them each time.  Those that
 * OpenSSL has taken out of it do not.
 */
static bool
is_drained(const OutboxLink *link)
{
	return link->ssl == NULL && !amqp_frames_enqueued(link->conn) &&
		!amqp_data_in_buffer(link->conn);
}

/*
 * Reads up to FRAMES_PER_GUARD frames under one guard; AGAIN when drained.  What the
 * library has read already no watchdog takes from it, and releasing a frame takes
 * it a second when there were frames of all channels, so we look ourselves.
 */
static OutboxLinkStatus
receive_some(OutboxLink *link, int *received)
{
	const struct timeval no_wait = {0, 0};
	OutboxLinkStatus status = OUTBOX_LINK_OK;
	int			i;

	outbox_link_note_read(link);
	outbox_link_guard_reading(link, OUTBOX_SOCKET_LIMIT_MS);
	for (i = 0; i < FRAMES_PER_GUARD && status == OUTBOX_LINK_OK &&
		 !outbox_watchdog_fired(); i++)
	{
		amqp_frame_t frame;
		int			rc = amqp_simple_wait_frame_noblock(link->conn, &frame,
														&no_wait);

		if (rc == AMQP_STATUS_TIMEOUT)
		{
			status = OUTBOX_LINK_AGAIN;
			break;
		}
		if (rc != AMQP_STATUS_OK)
			return outbox_link_fail_library(link, "connection", rc);
		(*received)++;
		status = handle_frame(link, &frame);
		if (link->state == OUTBOX_LINK_CLOSED)
			return OUTBOX_LINK_LOST;	/* perhaps by an event's receiver */
		if (status == OUTBOX_LINK_OK)
		{
			amqp_maybe_release_buffers(link->conn);
			if (is_drained(link))
				status = OUTBOX_LINK_AGAIN;
		}
	}
	if (outbox_link_unguard(link))
		return outbox_link_fail_library(link, "connection", AMQP_STATUS_TIMEOUT);
	return status;
}

OutboxLinkStatus
outbox_link_receive(OutboxLink *link, int *received)
{
	OutboxLinkStatus status = OUTBOX_LINK_OK;

	*received = 0;
	link->unread_us = 0;
	if (link->state == OUTBOX_LINK_CLOSED)
		return OUTBOX_LINK_LOST;
	if (link->state == OUTBOX_LINK_CONNECTING)
		return OUTBOX_LINK_OK;
	/* an ERROR has cut the burst off */
	if (link->in_burst && outbox_link_burst_end(link) != OUTBOX_LINK_OK)
		return OUTBOX_LINK_LOST;

	while (status == OUTBOX_LINK_OK && *received < FRAMES_PER_RECEIVE)
		status = receive_some(link, received);
	if (status == OUTBOX_LINK_LOST)
		return status;
	if (holds_too_much(link))
		return outbox_link_fail_flood(link, "connection");
	link->more = status == OUTBOX_LINK_OK;
	link->last_receive_ms = outbox_link_now_ms();
	return OUTBOX_LINK_OK;
}
