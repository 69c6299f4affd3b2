/*-------------------------------------------------------------------------
 *
 * broker_publish.c
 *		Sends messages in bursts.
 *
 * Small ones are framed in broker_frames.c, the others by the library.
 *
 * The bytes of a burst stay below three quarters of the socket's send buffer, so
 * the library's send, which has no deadline, finds room at once even when the
 * broker has stopped reading.  A message that does not fit is sent frame by frame
 * as there is room, over as many turns of the worker as that takes: it may take
 * as long as it likes, and everything else goes on meanwhile.  Between two of its
 * frames nothing else is published, but the library may send what belongs to
 * other channels, heartbeats above all.
 *
 * An ERROR that leaves this file (see outbox_encode) has sent nothing.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "utils/memutils.h"

#include "broker_internal.h"
#include "wait_event.h"
#include "watchdog.h"

/* Method frame without its two strings: overhead, ids, ticket, lengths, bits. */
#define PUBLISH_METHOD_SIZE (OUTBOX_FRAME_OVERHEAD + 4 + 2 + 1 + 1 + 1)

/*
 * The body frames of a message that is sent as there is room: many of them in the
 * room that there can be, so that hardly any of it is left unused; and so many
 * bytes of them at most in a turn.
 */
#define FRAMES_IN_ROOM		16
#define FRAME_LEAST_BYTES	4096
#define TURN_BYTES			(1024 * 1024)

static OutboxLinkStatus
fail_silent(OutboxLink *link)
{
	return outbox_link_fail_library(link, "connection",
									AMQP_STATUS_HEARTBEAT_TIMEOUT);
}

static OutboxLinkStatus
end_of_sending(OutboxLink *link, int status)
{
	if (status == AMQP_STATUS_TIMEOUT && !outbox_watchdog_stopping())
		return outbox_link_fail(link, OUTBOX_FAULT_CONNECTION, 0,
								"publishing to \"%s:%d\" timed out: the broker takes no data, perhaps because of a memory or disk alarm",
								link->target.host, link->target.port);
	if (status != AMQP_STATUS_OK)
		return outbox_link_fail_library(link, "publishing", status);
	return OUTBOX_LINK_OK;
}

OutboxLinkStatus
outbox_link_burst_begin(OutboxLink *link)
{
	if (link->state == OUTBOX_LINK_CLOSED)
		return OUTBOX_LINK_LOST;
	if (link->in_burst)
	{
		/* an ERROR cut the last one */
		OutboxLinkStatus status = outbox_link_burst_end(link);

		if (status != OUTBOX_LINK_OK)
			return status;
	}
	if (link->state != OUTBOX_LINK_OPEN || link->rest.len > 0)
		return OUTBOX_LINK_AGAIN;

	outbox_link_note_read(link);
	if (outbox_link_is_silent(link))
		return fail_silent(link);

	outbox_link_measure_room(link);
	if (link->room <= 0)
	{
		outbox_link_want_room(link);
		return OUTBOX_LINK_AGAIN;
	}
	outbox_link_guard(link, OUTBOX_SOCKET_LIMIT_MS);
	link->in_burst = true;
	return OUTBOX_LINK_OK;
}

OutboxLinkStatus
outbox_link_burst_end(OutboxLink *link)
{
	int			status;

	if (link->state == OUTBOX_LINK_CLOSED)
		return OUTBOX_LINK_LOST;
	if (!link->in_burst)
		return OUTBOX_LINK_OK;
	status = outbox_frames_flush(link);
	link->in_burst = false;
	if (link->corked)
		outbox_link_cork(link, false);
	if (outbox_link_unguard(link))
		status = AMQP_STATUS_TIMEOUT;
	return end_of_sending(link, status);
}

/*
 * Encodes into the link's scratch context.  What is the message's own fault
 * (characters, size, depth) becomes a reason; anything else is thrown on, with
 * the burst ended properly.
 */
static const char *
encode(OutboxLink *link, const OutboxMessage *message, OutboxEncoded *encoded)
{
	MemoryContext old = CurrentMemoryContext;
	const char *volatile reason = NULL;

	MemoryContextReset(link->scratch);
	PG_TRY();
	{
		reason = outbox_encode(message, link->scratch, encoded);
	}
	PG_CATCH();
	{
		int			category = ERRCODE_TO_CATEGORY(geterrcode());
		ErrorData  *error;

		if (category != ERRCODE_DATA_EXCEPTION &&
			category != ERRCODE_PROGRAM_LIMIT_EXCEEDED)
		{
			(void) outbox_link_burst_end(link);
			PG_RE_THROW();
		}
		MemoryContextSwitchTo(link->scratch);
		error = CopyErrorData();
		FlushErrorState();
		reason = error->message;
	}
	PG_END_TRY();
	MemoryContextSwitchTo(old);
	return reason;
}

/* What the library would complain about after it has sent the first frame. */
static const char *
check_encodable(const OutboxLink *link, const OutboxEncoded *encoded,
				amqp_bytes_t exchange, amqp_bytes_t routing_key)
{
	if (exchange.len > OUTBOX_SHORT_STRING_MAX)
		return "exchange name is longer than 255 bytes";
	if (routing_key.len > OUTBOX_SHORT_STRING_MAX)
		return "routing key is longer than 255 bytes";
	if (encoded->header_size > link->frame_max - OUTBOX_FRAME_OVERHEAD)
		return "headers and properties do not fit into one frame of the broker";
	/* A few bytes of jsonb can become a long text; see check.c. */
	if (encoded->body.len > link->target.max_body)
		return "the body is larger than outbox.max_message_size";
	return NULL;
}

/* Method and header of a message on the wire. */
static int64
head_size(const OutboxEncoded *encoded, amqp_bytes_t exchange,
		  amqp_bytes_t routing_key)
{
	return PUBLISH_METHOD_SIZE + exchange.len + routing_key.len +
		OUTBOX_FRAME_OVERHEAD + encoded->header_size;
}

/* All of it, with its body in as few frames as can be. */
static int64
wire_size(const OutboxLink *link, const OutboxEncoded *encoded,
		  amqp_bytes_t exchange, amqp_bytes_t routing_key)
{
	int64		frame = link->frame_max - OUTBOX_FRAME_OVERHEAD;
	int64		frames = (encoded->body.len + frame - 1) / frame;

	return head_size(encoded, exchange, routing_key) +
		frames * OUTBOX_FRAME_OVERHEAD + encoded->body.len;
}

/* Bytes of the body in a frame, when they go as there is room. */
static int64
frame_bytes(const OutboxLink *link)
{
	return Min(link->frame_max - OUTBOX_FRAME_OVERHEAD,
			   Max(link->send_limit / FRAMES_IN_ROOM, FRAME_LEAST_BYTES));
}

/* Is there room, or can there not be more? */
static bool
has_room(OutboxLink *link, int64 bytes)
{
	if (link->room < bytes)
		outbox_link_measure_room(link);
	if (link->room >= bytes || link->room == link->send_limit)
		return true;
	outbox_link_want_room(link);
	return false;
}

/* Sends of the rest what there is room for, but not for ever. */
static int
send_rest(OutboxLink *link)
{
	amqp_frame_t frame = {0};
	int64		sent = 0;

	frame.channel = OUTBOX_CHANNEL_PUBLISH;
	frame.frame_type = AMQP_FRAME_BODY;
	while (link->rest.len > 0 && sent < TURN_BYTES)
	{
		size_t		len = Min(link->rest.len, (size_t) frame_bytes(link));
		int			status;

		if (!has_room(link, len + OUTBOX_FRAME_OVERHEAD))
			break;
		frame.payload.body_fragment.bytes = link->rest.bytes;
		frame.payload.body_fragment.len = len;
		status = amqp_send_frame(link->conn, &frame);
		if (status != AMQP_STATUS_OK)
			return status;
		link->rest.bytes = (char *) link->rest.bytes + len;
		link->rest.len -= len;
		link->room -= len + OUTBOX_FRAME_OVERHEAD;
		sent += len;
	}
	return AMQP_STATUS_OK;
}

/* As amqp_basic_publish(), but never with more than fits into the kernel. */
static int
begin_sending(OutboxLink *link, const OutboxEncoded *encoded,
			  amqp_bytes_t exchange, amqp_bytes_t routing_key)
{
	amqp_basic_publish_t method = {0};
	amqp_frame_t frame = {0};
	int			status;

	method.exchange = exchange;
	method.routing_key = routing_key;
	method.mandatory = 1;
	frame.channel = OUTBOX_CHANNEL_PUBLISH;
	frame.frame_type = AMQP_FRAME_METHOD;
	frame.payload.method.id = AMQP_BASIC_PUBLISH_METHOD;
	frame.payload.method.decoded = &method;
	status = amqp_send_frame(link->conn, &frame);
	if (status != AMQP_STATUS_OK)
		return status;

	frame.frame_type = AMQP_FRAME_HEADER;
	frame.payload.properties.class_id = AMQP_BASIC_CLASS;
	frame.payload.properties.body_size = encoded->body.len;
	frame.payload.properties.decoded = unconstify(amqp_basic_properties_t *,
												  &encoded->properties);
	status = amqp_send_frame(link->conn, &frame);
	if (status != AMQP_STATUS_OK)
		return status;

	link->room -= head_size(encoded, exchange, routing_key);
	link->rest = encoded->body;
	return send_rest(link);
}

/* Puts one message on the wire, or as much of it as there is room for. */
static int
put_on_wire(OutboxLink *link, const OutboxEncoded *encoded,
			amqp_bytes_t exchange, amqp_bytes_t routing_key, int64 bytes)
{
	int			status;

	if (outbox_frames_fit(link, bytes) && bytes <= link->room)
	{
		link->room -= bytes;
		return outbox_frames_add(link, encoded, exchange, routing_key, bytes);
	}
	status = outbox_frames_flush(link);
	if (status != AMQP_STATUS_OK)
		return status;
	if (!link->corked)
		outbox_link_cork(link, true);
	outbox_wait_start(OUTBOX_WAIT_SEND);
	status = begin_sending(link, encoded, exchange, routing_key);
	outbox_wait_end();
	/* our own frames need none, and may come next; nor may a rest wait for it */
	if (!link->target.tls || link->rest.len > 0)
		outbox_link_cork(link, false);
	return status;
}

/*
 * May the message go now, at least its beginning?  Small ones in one piece: only
 * so are they framed together with others.
 */
static bool
may_begin(OutboxLink *link, const OutboxEncoded *encoded, int64 head, int64 bytes)
{
	int64		part = Min((int64) encoded->body.len, frame_bytes(link));

	return bytes <= link->room ||
		has_room(link, head + part + OUTBOX_FRAME_OVERHEAD);
}

OutboxLinkStatus
outbox_link_publish(OutboxLink *link, const OutboxMessage *message,
					const char *exchange, const char *routing_key)
{
	amqp_bytes_t exchange_bytes = amqp_cstring_bytes(exchange);
	amqp_bytes_t key_bytes = amqp_cstring_bytes(routing_key);
	OutboxEncoded encoded;
	const char *reason;
	int64		bytes;
	int			status;

	if (link->state == OUTBOX_LINK_CLOSED)
		return OUTBOX_LINK_LOST;
	if (!link->in_burst)
		return OUTBOX_LINK_AGAIN;	/* no guard, no cork: begin one first */
	/* the second: not worth encoding it, and perhaps again and again */
	if (link->rest.len > 0 ||
		!has_room(link, Min((int64) message->size, frame_bytes(link))))
		return OUTBOX_LINK_AGAIN;

	reason = encode(link, message, &encoded);
	if (reason == NULL)
		reason = check_encodable(link, &encoded, exchange_bytes, key_bytes);
	if (reason != NULL)
	{
		outbox_link_refuse(link, reason);
		return OUTBOX_LINK_REFUSED;
	}
	bytes = wire_size(link, &encoded, exchange_bytes, key_bytes);
	if (!may_begin(link, &encoded,
				   head_size(&encoded, exchange_bytes, key_bytes), bytes))
		return OUTBOX_LINK_AGAIN;
	if (outbox_link_is_silent(link))
		return fail_silent(link);

	status = put_on_wire(link, &encoded, exchange_bytes, key_bytes, bytes);
	if (status != AMQP_STATUS_OK)
		return end_of_sending(link, status);
	link->published += bytes;
	return OUTBOX_LINK_OK;
}

/* ---------------------------------------------------------------- the rest */

bool
outbox_link_sending(const OutboxLink *link)
{
	return link->rest.len > 0;
}

uint64
outbox_link_unsent(const OutboxLink *link)
{
	return link->rest.len;
}

OutboxLinkStatus
outbox_link_send_rest(OutboxLink *link)
{
	int			status;

	if (link->state == OUTBOX_LINK_CLOSED)
		return OUTBOX_LINK_LOST;
	if (link->rest.len == 0)
		return OUTBOX_LINK_OK;
	if (link->state != OUTBOX_LINK_OPEN)
		return OUTBOX_LINK_AGAIN;
	outbox_link_measure_room(link);
	outbox_link_guard(link, OUTBOX_SOCKET_LIMIT_MS);
	outbox_wait_start(OUTBOX_WAIT_SEND);
	status = send_rest(link);
	outbox_wait_end();
	if (outbox_link_unguard(link))
		status = AMQP_STATUS_TIMEOUT;
	if (status != AMQP_STATUS_OK)
		return end_of_sending(link, status);
	return link->rest.len > 0 ? OUTBOX_LINK_AGAIN : OUTBOX_LINK_OK;
}

uint64
outbox_link_published(const OutboxLink *link)
{
	return link->published;
}

/* Heartbeats and the like that are on their way make it less than it is. */
uint64
outbox_link_acknowledged(OutboxLink *link)
{
	uint64		under_way = link->rest.len + link->frames_len +
		outbox_link_unacknowledged(link);

	return link->published - Min(link->published, under_way);
}
