/*-------------------------------------------------------------------------
 *
 * broker_publish.c
 *		Sends messages in bursts.
 *
 * A message is encoded, measured, and put into the link's sink as frames: its method
 * and header, and then as much of its body as there is room for.  Room is what is
 * left of three quarters of the socket's send buffer, so that sending, which has no
 * deadline, finds place at once even when the broker has stopped reading.  Most
 * messages have room as a whole.  The others are sent frame by frame, over as many
 * turns of the worker as that takes: it may take as long as it likes, and everything
 * else goes on meanwhile.  Between two of its frames nothing else is published, but
 * the library may send what belongs to other channels, heartbeats above all.
 *
 * The sink is used in a burst and in send_rest; both arm the watchdog before,
 * and end in finish().
 *
 * An ERROR that leaves this file (see outbox_encode) has sent nothing.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "utils/memutils.h"

#include "broker_internal.h"
#include "watchdog.h"

/* Method frame without its two strings: overhead, ids, ticket, lengths, bits. */
#define PUBLISH_METHOD_SIZE (OUTBOX_FRAME_OVERHEAD + 4 + 2 + 1 + 1 + 1)

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

/* The end of all that puts messages: nothing stays in the sink, nor the guard. */
static OutboxLinkStatus
finish(OutboxLink *link, int status)
{
	if (status == AMQP_STATUS_OK)
		status = link->sink->flush(link);
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
	if (link->state == OUTBOX_LINK_CLOSED)
		return OUTBOX_LINK_LOST;
	return link->in_burst ? finish(link, AMQP_STATUS_OK) : OUTBOX_LINK_OK;
}

typedef const char *(*Encode) (const OutboxMessage *message,
							   const OutboxFormat *format, MemoryContext scratch, OutboxEncoded *out);

/*
 * Encodes into scratch.  What is the message's own fault
 * (characters, size, depth) becomes a reason; anything else is thrown on, with
 * the burst ended properly.
 */
static const char *
encode(OutboxLink *link, const OutboxMessage *message, const OutboxFormat *format,
	   Encode what, MemoryContext scratch, OutboxEncoded *encoded)
{
	MemoryContext old = CurrentMemoryContext;
	const char *volatile reason = NULL;

	PG_TRY();
	{
		reason = what(message, format, scratch, encoded);
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

const char *
outbox_link_header_error(OutboxLink *link, const OutboxMessage *message,
						 const OutboxFormat *format, size_t bytes)
{
	OutboxEncoded encoded;
	int64		room = link->frame_max > 0 ? link->frame_max : OUTBOX_FRAME_MAX;
	const char *reason;

	/*
	 * The link's own scratch may have the rest of a message that is being
	 * sent.
	 */
	reason = encode(link, message, format, outbox_encode_header, CurrentMemoryContext,
					&encoded);
	if (reason == NULL &&
		encoded.header_size + bytes > room - OUTBOX_FRAME_OVERHEAD)
		reason = "its headers have no room for the reason";
	return reason;
}

/* Method and header of a message on the wire. */
static int64
head_size(const OutboxEncoded *encoded, amqp_bytes_t exchange,
		  amqp_bytes_t routing_key)
{
	return PUBLISH_METHOD_SIZE + exchange.len + routing_key.len +
		OUTBOX_FRAME_OVERHEAD + encoded->header_size;
}

/* Bytes of a body that a frame can have at most. */
static int64
largest_part(const OutboxLink *link)
{
	return link->frame_max - OUTBOX_FRAME_OVERHEAD;
}

/* The body on the wire, in as few frames as can be. */
static int64
body_size(const OutboxLink *link, const OutboxEncoded *encoded)
{
	int64		part = largest_part(link);
	int64		frames = (encoded->body.len + part - 1) / part;

	return encoded->body.len + frames * OUTBOX_FRAME_OVERHEAD;
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
		status = link->sink->put_body(link, part);
		if (status != AMQP_STATUS_OK)
			return status;
		link->rest.bytes = (char *) link->rest.bytes + part.len;
		link->rest.len -= part.len;
		link->room -= part.len + OUTBOX_FRAME_OVERHEAD;
		put += part.len;
	}
	return AMQP_STATUS_OK;
}

OutboxLinkStatus
outbox_link_publish(OutboxLink *link, const OutboxMessage *message,
					const OutboxFormat *format, const char *exchange,
					const char *routing_key)
{
	amqp_bytes_t exchange_bytes = amqp_cstring_bytes(exchange);
	amqp_bytes_t key_bytes = amqp_cstring_bytes(routing_key);
	OutboxEncoded encoded;
	const char *reason;
	int64		head;
	int64		bytes;
	bool		whole;
	int			status;

	if (link->state == OUTBOX_LINK_CLOSED)
		return OUTBOX_LINK_LOST;
	if (!link->in_burst)
		return OUTBOX_LINK_AGAIN;	/* no guard: begin one first */
	/* the second: not worth encoding it, and perhaps again and again */
	if (link->rest.len > 0 ||
		!has_room(link, Min((int64) message->size, usual_part(link))))
		return OUTBOX_LINK_AGAIN;

	MemoryContextReset(link->scratch);
	reason = encode(link, message, format, outbox_encode, link->scratch, &encoded);
	if (reason == NULL)
		reason = check_encodable(link, &encoded, exchange_bytes, key_bytes);
	if (reason != NULL)
	{
		outbox_link_refuse(link, reason);
		return OUTBOX_LINK_REFUSED;
	}
	head = head_size(&encoded, exchange_bytes, key_bytes);
	bytes = head + body_size(link, &encoded);
	/* all of it, or at least its beginning */
	if (!has_room(link, Min(bytes, head + usual_part(link) +
							OUTBOX_FRAME_OVERHEAD)))
		return OUTBOX_LINK_AGAIN;
	if (outbox_link_is_silent(link))
		return fail_silent(link);

	whole = bytes <= Min(link->sink->whole_bytes, link->room);
	status = link->sink->put_head(link, &encoded, exchange_bytes, key_bytes);
	if (status == AMQP_STATUS_OK)
	{
		link->room -= head;
		link->rest = encoded.body;
		status = put_rest(link, whole);
	}
	if (status != AMQP_STATUS_OK)
		return finish(link, status);
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
