/*-------------------------------------------------------------------------
 *
 * broker_publish.c
 *		Sends messages in bursts.
 *
 * A message is encoded and put into the link's buffer as frames: its method and
 * header, and then as much of its body as there is room for.  Room is what is left
 * of three quarters of the socket's send buffer, so that sending, which has no
 * deadline, finds place at once even when the broker has stopped reading.  Most
 * messages have room as a whole.  The others are sent frame by frame, over as many
 * turns of the worker as that takes, and everything else goes on meanwhile: between
 * two of its frames nothing else is published, but the library may send what belongs
 * to other channels, heartbeats above all.
 *
 * The library would send each frame of a body in three pieces, at a system call
 * each: for small messages a third of what publishing costs (measured).  So frames
 * are made here, one behind the other, and sent when the buffer is full or the burst
 * ends.  The library encodes the properties, and does everything else on the
 * connection; the buffer is empty whenever it sends anything.
 *
 * The buffer is used in a burst and in send_rest; both arm the watchdog before,
 * and end in finish().
 *
 * An ERROR that leaves this file has sent nothing of its message.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "libpq/pqformat.h"
#include "utils/memutils.h"

#include "broker_internal.h"
#include "watchdog.h"

/* Sent when so much is there; a method frame and a full one fit behind it. */
#define FLUSH_BYTES			65536
StaticAssertDecl(FLUSH_BYTES + 1024 + OUTBOX_FRAME_MAX <= OUTBOX_FRAMES_BYTES,
				 "place for frames");

#define FRAME_HEAD_BYTES	(OUTBOX_FRAME_OVERHEAD - 1) /* without the end octet */
#define FRAME_END			0xCE

/* Method frame without its two strings: overhead, ids, ticket, lengths, bits. */
#define PUBLISH_METHOD_SIZE (OUTBOX_FRAME_OVERHEAD + 4 + 2 + 1 + 1 + 1)

/* In a content header, before the properties' flags. */
#define HEADER_FIXED_BYTES	(2 + 2 + 8) /* class, weight, body size */

/*
 * A body that is sent as there is room: many parts in the room that there can be, so
 * that hardly any of it is left unused; and so many bytes of it at most in a turn.
 */
#define PARTS_IN_ROOM		16
#define PART_LEAST_BYTES	4096
#define TURN_BYTES			(1024 * 1024)

static OutboxLinkStatus
fail_silent(OutboxLink *link)
{
	return outbox_link_fail_library(link, "connection",
									AMQP_STATUS_HEARTBEAT_TIMEOUT);
}

/* The end of all that puts messages: nothing stays in the buffer, nor the guard. */
static OutboxLinkStatus
finish(OutboxLink *link, int status)
{
	if (status == AMQP_STATUS_OK)
		status = outbox_link_flush(link);
	if (link->wants_room)
		outbox_link_want_room(link);
	link->wants_room = false;
	link->in_burst = false;
	if (outbox_link_unguard(link))
		status = AMQP_STATUS_TIMEOUT;
	if (status == AMQP_STATUS_TIMEOUT && !outbox_watchdog_stopping())
		return outbox_link_fail(link, OUTBOX_REASON_STALLED,
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

	if (outbox_link_is_silent(link))
		return fail_silent(link);

	/*
	 * The room of the last measure, less all that was sent since: there may
	 * be more.
	 */
	if (link->room <= link->send_limit / 2)
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
	if (link->state == OUTBOX_LINK_CLOSED)
		return OUTBOX_LINK_LOST;
	return link->in_burst ? finish(link, AMQP_STATUS_OK) : OUTBOX_LINK_OK;
}

/* ------------------------------------------------------------------ frames */

static void
put_short_string(StringInfo frames, amqp_bytes_t str)
{
	pq_writeint8(frames, (uint8) str.len);
	appendBinaryStringInfoNT(frames, str.bytes, (int) str.len);
}

static void
begin_frame(StringInfo frames, uint8 type, size_t payload)
{
	pq_writeint8(frames, type);
	pq_writeint16(frames, OUTBOX_CHANNEL_PUBLISH);
	pq_writeint32(frames, (uint32) payload);
}

/* Makes place for a message's head, or for a part of its body. */
static int
make_place(OutboxLink *link)
{
	return link->frames.len < FLUSH_BYTES ? AMQP_STATUS_OK :
		outbox_link_flush(link);
}

/* Where the properties of the next message are to be, and how many may be there. */
static amqp_bytes_t
properties_place(const OutboxLink *link, amqp_bytes_t exchange, amqp_bytes_t key)
{
	amqp_bytes_t place;

	place.bytes = link->frames.data + link->frames.len + PUBLISH_METHOD_SIZE +
		exchange.len + key.len + FRAME_HEAD_BYTES + HEADER_FIXED_BYTES;
	place.len = link->frame_max - OUTBOX_FRAME_OVERHEAD - HEADER_FIXED_BYTES;
	return place;
}

/* Method and header of a message, whose properties are in their place. */
static void
put_head(StringInfo frames, amqp_bytes_t exchange, amqp_bytes_t key,
		 amqp_bytes_t properties, size_t body_len)
{
	begin_frame(frames, AMQP_FRAME_METHOD, PUBLISH_METHOD_SIZE -
				OUTBOX_FRAME_OVERHEAD + exchange.len + key.len);
	pq_writeint32(frames, AMQP_BASIC_PUBLISH_METHOD);
	pq_writeint16(frames, 0);	/* reserved */
	put_short_string(frames, exchange);
	put_short_string(frames, key);
	pq_writeint8(frames, 0x01); /* mandatory, not immediate */
	pq_writeint8(frames, FRAME_END);
	begin_frame(frames, AMQP_FRAME_HEADER, HEADER_FIXED_BYTES + properties.len);
	pq_writeint16(frames, AMQP_BASIC_CLASS);
	pq_writeint16(frames, 0);
	pq_writeint64(frames, body_len);
	Assert(frames->data + frames->len == properties.bytes);
	frames->len += (int) properties.len;
	pq_writeint8(frames, FRAME_END);
}

static int
put_body(OutboxLink *link, amqp_bytes_t part)
{
	int			status = make_place(link);

	if (status != AMQP_STATUS_OK)
		return status;
	begin_frame(&link->frames, AMQP_FRAME_BODY, part.len);
	appendBinaryStringInfoNT(&link->frames, part.bytes, (int) part.len);
	pq_writeint8(&link->frames, FRAME_END);
	return AMQP_STATUS_OK;
}

/* -------------------------------------------------------------------- a message */

/*
 * Encodes into properties, and into scratch.  An ERROR becomes the message's own reason,
 * so that no other message waits for it, or goes out twice because of it.  Two kinds are
 * thrown on: a request to stop, and a lack of memory where lacks_memory is NULL.
 */
static const char *
encode(const OutboxMessage *message, const OutboxFormat *format, MemoryContext scratch,
	   amqp_bytes_t *properties, amqp_bytes_t *body, bool *lacks_memory)
{
	MemoryContext old = CurrentMemoryContext;
	const char *volatile reason = NULL;

	PG_TRY();
	{
		reason = outbox_encode(message, format, scratch, properties, body);
	}
	PG_CATCH();
	{
		int			category = ERRCODE_TO_CATEGORY(geterrcode());
		bool		lacks = category == ERRCODE_INSUFFICIENT_RESOURCES;
		ErrorData  *error;

		if (category == ERRCODE_OPERATOR_INTERVENTION || (lacks && lacks_memory == NULL))
			PG_RE_THROW();
		if (lacks)
			*lacks_memory = true;
		MemoryContextSwitchTo(scratch);
		error = CopyErrorData();
		FlushErrorState();
		reason = error->message;
		Assert(reason != NULL);
	}
	PG_END_TRY();
	MemoryContextSwitchTo(old);
	return reason;
}

const char *
outbox_link_header_error(OutboxLink *link, const OutboxMessage *message,
						 const OutboxFormat *format, size_t bytes)
{
	char	   *frame = palloc(OUTBOX_FRAME_MAX);
	amqp_bytes_t properties = {.len = OUTBOX_FRAME_MAX, .bytes = frame};
	size_t		room = link->frame_max > 0 ? link->frame_max : OUTBOX_FRAME_MAX;
	const char *reason;

	/* the link's scratch may have the rest of a message that is being sent */
	reason = encode(message, format, CurrentMemoryContext, &properties, NULL, NULL);
	pfree(frame);
	if (reason == NULL &&
		HEADER_FIXED_BYTES + properties.len + bytes > room - OUTBOX_FRAME_OVERHEAD)
		reason = "its headers have no room for the reason";
	return reason;
}

/* Bytes of a body that a frame can have at most. */
static int64
largest_part(const OutboxLink *link)
{
	return link->frame_max - OUTBOX_FRAME_OVERHEAD;
}

/* The body on the wire, in as few frames as can be. */
static int64
body_size(const OutboxLink *link, int64 len)
{
	int64		part = largest_part(link);

	return len + (len + part - 1) / part * OUTBOX_FRAME_OVERHEAD;
}

/* Those that it has when they go as there is room. */
static int64
usual_part(const OutboxLink *link)
{
	return Min(largest_part(link),
			   Max(link->send_limit / PARTS_IN_ROOM, PART_LEAST_BYTES));
}

/* Is there room, or can there not be more? */
static bool
has_room(OutboxLink *link, int64 bytes)
{
	if (link->room < bytes)
		outbox_link_measure_room(link);
	link->wants_room = link->room < bytes && link->room != link->send_limit;
	return !link->wants_room;
}

/* Puts of the rest what there is room for, in a limited time. */
static int
put_rest(OutboxLink *link, bool whole)
{
	int64		put = 0;

	while (link->rest.len > 0 && put < TURN_BYTES)
	{
		amqp_bytes_t part = link->rest;
		int			status;

		part.len = Min(part.len, whole ? largest_part(link) : usual_part(link));
		if (!has_room(link, part.len + OUTBOX_FRAME_OVERHEAD))
			break;
		status = put_body(link, part);
		if (status != AMQP_STATUS_OK)
			return status;
		link->rest.bytes = (char *) link->rest.bytes + part.len;
		link->rest.len -= part.len;
		link->room -= part.len + OUTBOX_FRAME_OVERHEAD;
		put += part.len;
	}
	return AMQP_STATUS_OK;
}

/* Puts a message that was encoded, if there is room for it. */
static OutboxLinkStatus
put_message(OutboxLink *link, amqp_bytes_t exchange, amqp_bytes_t key,
			amqp_bytes_t properties, amqp_bytes_t body)
{
	int64		head = PUBLISH_METHOD_SIZE + exchange.len + key.len +
		OUTBOX_FRAME_OVERHEAD + HEADER_FIXED_BYTES + properties.len;
	int64		bytes = head + body_size(link, body.len);
	int			status;

	/* all of it, or at least its beginning */
	if (!has_room(link, Min(bytes, head + usual_part(link) +
							OUTBOX_FRAME_OVERHEAD)))
		return OUTBOX_LINK_AGAIN;
	if (outbox_link_is_silent(link))
		return fail_silent(link);

	put_head(&link->frames, exchange, key, properties, body.len);
	link->rest = body;
	link->room -= head;
	status = put_rest(link, bytes <= Min(FLUSH_BYTES, link->room + head));
	if (status != AMQP_STATUS_OK)
		return finish(link, status);
	link->published += bytes;
	return OUTBOX_LINK_OK;
}

OutboxLinkStatus
outbox_link_publish(OutboxLink *link, const OutboxMessage *message,
					const OutboxFormat *format, const char *exchange,
					const char *routing_key)
{
	amqp_bytes_t exchange_bytes = amqp_cstring_bytes(exchange);
	amqp_bytes_t key_bytes = amqp_cstring_bytes(routing_key);
	amqp_bytes_t properties;
	amqp_bytes_t body;
	const char *reason;
	bool		lacks_memory = false;
	int			status;

	if (link->state == OUTBOX_LINK_CLOSED)
		return OUTBOX_LINK_LOST;
	if (!link->in_burst)
		return OUTBOX_LINK_AGAIN;	/* no guard: begin one first */
	/* the second: not worth encoding it, and perhaps again and again */
	if (link->rest.len > 0 ||
		!has_room(link, Min((int64) message->size, usual_part(link))))
		return OUTBOX_LINK_AGAIN;
	if (exchange_bytes.len > OUTBOX_SHORT_STRING_MAX)
		return outbox_link_refuse(link, "exchange name is longer than 255 bytes", true);
	if (key_bytes.len > OUTBOX_SHORT_STRING_MAX)
		return outbox_link_refuse(link, "the routing key is longer than 255 bytes", true);

	status = make_place(link);
	if (status != AMQP_STATUS_OK)
		return finish(link, status);
	properties = properties_place(link, exchange_bytes, key_bytes);
	MemoryContextReset(link->scratch);
	reason = encode(message, format, link->scratch, &properties, &body, &lacks_memory);
	if (reason != NULL)
	{
		(void) outbox_link_refuse(link, reason, !lacks_memory);
		MemoryContextReset(link->scratch);
		return OUTBOX_LINK_REFUSED;
	}
	return put_message(link, exchange_bytes, key_bytes, properties, body);
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
	if (link->state == OUTBOX_LINK_CLOSED)
		return OUTBOX_LINK_LOST;
	if (link->rest.len == 0)
		return OUTBOX_LINK_OK;
	if (link->state != OUTBOX_LINK_OPEN)
		return OUTBOX_LINK_AGAIN;
	outbox_link_measure_room(link);
	outbox_link_guard(link, OUTBOX_SOCKET_LIMIT_MS);
	if (finish(link, put_rest(link, false)) != OUTBOX_LINK_OK)
		return OUTBOX_LINK_LOST;
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
	uint64		under_way = link->rest.len + outbox_link_unacknowledged(link);

	return link->published - Min(link->published, under_way);
}
