/*-------------------------------------------------------------------------
 *
 * broker_publish.c
 *		Sends messages in bursts.
 *
 * Small ones are framed in broker_frames.c, the others by the library.
 *
 * The bytes of a burst stay below half of the socket's send buffer, so the
 * library's send, which has no deadline, finds room at once even when the
 * broker has stopped reading.  A message that is larger than that goes frame
 * by frame, waiting for room here and not in the library: it may take as long
 * as it makes progress, however slow the network is.
 *
 * An ERROR that leaves this file (see outbox_encode) never leaves a message
 * half sent without link->sending being set, and the next call on such a link
 * ends it.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "miscadmin.h"
#include "storage/latch.h"
#include "storage/procsignal.h"
#include "utils/memutils.h"
#include "utils/wait_event.h"

#include "broker_internal.h"
#include "watchdog.h"

/* Method frame without its two strings: overhead, ids, ticket, lengths, bits. */
#define PUBLISH_METHOD_SIZE (OUTBOX_FRAME_OVERHEAD + 4 + 2 + 1 + 1 + 1)

/* Body frames of a large message: small enough to wait between them. */
#define LARGE_FRAME_BYTES	32768
#define LARGE_WAIT_MS		1
#define LARGE_STALLED_MS	3000	/* no byte acknowledged for so long */

static OutboxLinkStatus
fail_interrupted(OutboxLink *link)
{
	return outbox_link_fail(link, OUTBOX_FAULT_CONNECTION, 0,
							"publishing was interrupted in the middle of a message");
}

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
	if (link->sending)
		return fail_interrupted(link);
	if (link->in_burst)
	{
		/* an ERROR cut the last one */
		OutboxLinkStatus status = outbox_link_burst_end(link);

		if (status != OUTBOX_LINK_OK)
			return status;
	}
	if (link->state != OUTBOX_LINK_OPEN)
		return OUTBOX_LINK_AGAIN;

	outbox_link_note_read(link);
	if (outbox_link_is_silent(link))
		return fail_silent(link);

	outbox_link_measure_room(link);
	if (link->room <= 0)
		return OUTBOX_LINK_AGAIN;
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
	if (link->sending)
		return fail_interrupted(link);
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

/* The body is cut into frames of at most "chunk" bytes. */
static int64
wire_size(const OutboxEncoded *encoded, amqp_bytes_t exchange,
		  amqp_bytes_t routing_key, int64 chunk)
{
	int64		frames = (encoded->body.len + chunk - 1) / chunk;

	return PUBLISH_METHOD_SIZE + exchange.len + routing_key.len +
		OUTBOX_FRAME_OVERHEAD + encoded->header_size +
		frames * OUTBOX_FRAME_OVERHEAD + encoded->body.len;
}

/*
 * Waits until bytes fit, or the kernel holds nothing at all.  Returns false
 * when the broker takes nothing for too long, or the server wants us to stop.
 * The short wait is not on the socket, which counts as writable long before.
 */
static bool
wait_for_room(OutboxLink *link, int64 bytes)
{
	int64		last_room;
	int64		progress_ms = outbox_link_now_ms();
	int64		stop_ms = 0;

	outbox_link_measure_room(link);
	last_room = link->room;
	while (link->room < bytes && link->room < link->half_buffer)
	{
		int64		now_ms = outbox_link_now_ms();

		if (link->room > last_room)
			progress_ms = now_ms;
		last_room = link->room;
		if (now_ms - progress_ms >= LARGE_STALLED_MS)
			return false;
		if (outbox_watchdog_stopping())
		{
			if (stop_ms == 0)
				stop_ms = now_ms;
			if (now_ms - stop_ms >= OUTBOX_SOCKET_STOP_MS)
				return false;
		}
		(void) WaitLatch(NULL, WL_TIMEOUT | WL_EXIT_ON_PM_DEATH, LARGE_WAIT_MS,
						 PG_WAIT_EXTENSION);
		if (ProcSignalBarrierPending)
			ProcessProcSignalBarrier();
		outbox_link_measure_room(link);
	}
	return true;
}

static int
send_when_room(OutboxLink *link, const amqp_frame_t *frame, int64 bytes)
{
	int			status;

	if (!wait_for_room(link, bytes))
		return AMQP_STATUS_TIMEOUT;
	outbox_link_guard(link, OUTBOX_SOCKET_LIMIT_MS);
	status = amqp_send_frame(link->conn, frame);
	return outbox_link_unguard(link) ? AMQP_STATUS_TIMEOUT : status;
}

/* As amqp_basic_publish(), but never with more than fits into the kernel. */
static int
publish_large(OutboxLink *link, const OutboxEncoded *encoded,
			  amqp_basic_publish_t *method)
{
	amqp_frame_t frame = {0};
	int64		chunk = Min(LARGE_FRAME_BYTES,
							link->frame_max - OUTBOX_FRAME_OVERHEAD);
	size_t		sent = 0;
	int			status;

	frame.channel = OUTBOX_CHANNEL_PUBLISH;
	frame.frame_type = AMQP_FRAME_METHOD;
	frame.payload.method.id = AMQP_BASIC_PUBLISH_METHOD;
	frame.payload.method.decoded = method;
	status = send_when_room(link, &frame, PUBLISH_METHOD_SIZE +
							2 * OUTBOX_SHORT_STRING_MAX);
	if (status != AMQP_STATUS_OK)
		return status;

	frame.frame_type = AMQP_FRAME_HEADER;
	frame.payload.properties.class_id = AMQP_BASIC_CLASS;
	frame.payload.properties.body_size = encoded->body.len;
	frame.payload.properties.decoded = unconstify(amqp_basic_properties_t *,
												  &encoded->properties);
	status = send_when_room(link, &frame, encoded->header_size +
							OUTBOX_FRAME_OVERHEAD);

	frame.frame_type = AMQP_FRAME_BODY;
	while (status == AMQP_STATUS_OK && sent < encoded->body.len)
	{
		amqp_bytes_t *part = &frame.payload.body_fragment;

		part->bytes = (char *) encoded->body.bytes + sent;
		part->len = Min((size_t) chunk, encoded->body.len - sent);
		sent += part->len;
		status = send_when_room(link, &frame, part->len + OUTBOX_FRAME_OVERHEAD);
	}
	return status;
}

/* Puts one message on the wire; the stream is broken unless it returns OK. */
static int
put_on_wire(OutboxLink *link, const OutboxEncoded *encoded,
			amqp_bytes_t exchange, amqp_bytes_t routing_key, int64 bytes,
			bool large)
{
	amqp_basic_publish_t method = {0};
	int			status;

	if (!large && outbox_frames_fit(link, bytes))
		return outbox_frames_add(link, encoded, exchange, routing_key, bytes);
	status = outbox_frames_flush(link);
	if (status != AMQP_STATUS_OK)
		return status;
	if (!large)
	{
		if (!link->corked)
			outbox_link_cork(link, true);
		status = amqp_basic_publish(link->conn, OUTBOX_CHANNEL_PUBLISH, exchange,
									routing_key, 1, 0, &encoded->properties,
									encoded->body);
		/* our own frames need none, and may come next */
		if (!link->target.tls)
			outbox_link_cork(link, false);
		return status;
	}

	/* this takes its time: let each frame go, and arm the watchdog for each */
	if (link->corked)
		outbox_link_cork(link, false);
	if (outbox_link_unguard(link))
		return AMQP_STATUS_TIMEOUT;
	method.exchange = exchange;
	method.routing_key = routing_key;
	method.mandatory = 1;
	return publish_large(link, encoded, &method);
}

/*
 * Finds out whether the message may go now: OK, and how, or AGAIN.  What the
 * burst has already sent counts, corked or not.
 */
static OutboxLinkStatus
check_room(OutboxLink *link, int64 bytes, bool *large)
{
	if (bytes > link->room)
		outbox_link_measure_room(link);
	*large = bytes > link->half_buffer;
	if (*large ? link->room < link->half_buffer : bytes > link->room)
		return OUTBOX_LINK_AGAIN;
	return OUTBOX_LINK_OK;
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
	bool		large;
	int			status;

	if (link->state == OUTBOX_LINK_CLOSED)
		return OUTBOX_LINK_LOST;
	if (link->sending)
		return fail_interrupted(link);
	if (!link->in_burst)
		return OUTBOX_LINK_AGAIN;	/* no guard, no cork: begin one first */

	reason = encode(link, message, &encoded);
	if (reason == NULL)
		reason = check_encodable(link, &encoded, exchange_bytes, key_bytes);
	if (reason != NULL)
	{
		outbox_link_refuse(link, reason);
		return OUTBOX_LINK_REFUSED;
	}
	bytes = wire_size(&encoded, exchange_bytes, key_bytes,
					  link->frame_max - OUTBOX_FRAME_OVERHEAD);
	if (check_room(link, bytes, &large) != OUTBOX_LINK_OK)
		return OUTBOX_LINK_AGAIN;
	if (outbox_link_is_silent(link))
		return fail_silent(link);

	link->sending = true;
	status = put_on_wire(link, &encoded, exchange_bytes, key_bytes, bytes, large);
	if (status != AMQP_STATUS_OK)
		return end_of_sending(link, status);
	link->sending = false;
	if (large)
	{
		/* the rest of the burst, under a fresh guard */
		outbox_link_measure_room(link);
		outbox_link_guard(link, OUTBOX_SOCKET_LIMIT_MS);
	}
	else
		link->room -= bytes;
	return OUTBOX_LINK_OK;
}
