/*-------------------------------------------------------------------------
 *
 * broker_frames.c
 *		Messages of a burst, framed here and sent together.
 *
 * The library sends each message in three pieces, at a system call each, and
 * wants a cork around them.  For small messages that is a third of what publishing
 * costs (measured), so their frames are put one after the other into a buffer
 * that goes out in one piece at the end of the burst, or when it is full.  The
 * library encodes the properties, and does everything else on the connection;
 * the buffer is empty whenever it sends anything.
 *
 * Not with TLS, where only the library can write, nor for what is too large for
 * the buffer.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <poll.h>
#include <sys/socket.h>

#include "port/pg_bswap.h"
#include "utils/memutils.h"

#include "broker_internal.h"
#include "wait_event.h"

/* Sent at once when so much is there; a message may be as large. */
#define FLUSH_BYTES		65536
#define BUFFER_BYTES	(2 * FLUSH_BYTES)

/* How often a send that does not go looks whether the watchdog ended it. */
#define POLL_MS			100

#define FRAME_HEADER_SIZE	7
#define FRAME_END			0xCE

bool
outbox_frames_fit(const OutboxLink *link, int64 bytes)
{
	return !link->target.tls && bytes <= FLUSH_BYTES;
}

/* ---------------------------------------------------------------- encoding */

static char *
put8(char *p, uint8 value)
{
	*p = (char) value;
	return p + 1;
}

static char *
put16(char *p, uint16 value)
{
	value = pg_hton16(value);
	memcpy(p, &value, sizeof(value));
	return p + sizeof(value);
}

static char *
put32(char *p, uint32 value)
{
	value = pg_hton32(value);
	memcpy(p, &value, sizeof(value));
	return p + sizeof(value);
}

static char *
put64(char *p, uint64 value)
{
	value = pg_hton64(value);
	memcpy(p, &value, sizeof(value));
	return p + sizeof(value);
}

static char *
put_bytes(char *p, const void *bytes, size_t len)
{
	if (len > 0)
		memcpy(p, bytes, len);
	return p + len;
}

static char *
put_short_string(char *p, amqp_bytes_t str)
{
	p = put8(p, (uint8) str.len);
	return put_bytes(p, str.bytes, str.len);
}

static char *
begin_frame(char *p, uint8 type, size_t payload)
{
	p = put8(p, type);
	p = put16(p, OUTBOX_CHANNEL_PUBLISH);
	return put32(p, (uint32) payload);
}

static char *
put_method(char *p, amqp_bytes_t exchange, amqp_bytes_t routing_key)
{
	p = begin_frame(p, AMQP_FRAME_METHOD,
					4 + 2 + 1 + exchange.len + 1 + routing_key.len + 1);
	p = put32(p, AMQP_BASIC_PUBLISH_METHOD);
	p = put16(p, 0);			/* reserved */
	p = put_short_string(p, exchange);
	p = put_short_string(p, routing_key);
	p = put8(p, 0x01);			/* mandatory, not immediate */
	return put8(p, FRAME_END);
}

/* Returns NULL when the library does not encode what was announced. */
static char *
put_header(char *p, const OutboxEncoded *encoded)
{
	const size_t fixed = 2 + 2 + 8; /* class, weight, body size */
	amqp_bytes_t space;
	int			len;

	p = begin_frame(p, AMQP_FRAME_HEADER, encoded->header_size);
	p = put16(p, AMQP_BASIC_CLASS);
	p = put16(p, 0);
	p = put64(p, encoded->body.len);
	space.bytes = p;
	space.len = encoded->header_size - fixed;
	len = amqp_encode_properties(AMQP_BASIC_CLASS,
								 unconstify(amqp_basic_properties_t *,
											&encoded->properties), space);
	if (len < 0 || (size_t) len != space.len)
		return NULL;
	return put8(p + len, FRAME_END);
}

static char *
put_body(char *p, amqp_bytes_t body, size_t chunk)
{
	for (size_t done = 0; done < body.len;)
	{
		size_t		len = Min(chunk, body.len - done);

		p = begin_frame(p, AMQP_FRAME_BODY, len);
		p = put_bytes(p, (char *) body.bytes + done, len);
		p = put8(p, FRAME_END);
		done += len;
	}
	return p;
}

/* ----------------------------------------------------------------- sending */

/* Everything or an error; the caller has armed the watchdog. */
int
outbox_frames_flush(OutboxLink *link)
{
	size_t		sent = 0;

	while (sent < link->frames_len)
	{
		ssize_t		n = send(link->fd, link->frames + sent,
							 link->frames_len - sent, MSG_NOSIGNAL);
		struct pollfd wait = {.fd = link->fd, .events = POLLOUT};

		if (n > 0)
			sent += n;
		else if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
		{
			outbox_wait_start(OUTBOX_WAIT_SEND);
			(void) poll(&wait, 1, POLL_MS);
			outbox_wait_end();
		}
		else if (n == 0 || errno != EINTR)
		{
			link->frames_len = 0;
			return AMQP_STATUS_SOCKET_ERROR;
		}
	}
	link->frames_len = 0;
	return AMQP_STATUS_OK;
}

/*
 * bytes: what the message takes, all frames included.  Returns a status of the
 * library; the buffer has the whole message or nothing of it.
 */
int
outbox_frames_add(OutboxLink *link, const OutboxEncoded *encoded,
				  amqp_bytes_t exchange, amqp_bytes_t routing_key, int64 bytes)
{
	char	   *start;
	char	   *p;

	if (link->frames == NULL)
		link->frames = MemoryContextAlloc(link->context, BUFFER_BYTES);
	start = link->frames + link->frames_len;
	p = put_method(start, exchange, routing_key);
	p = put_header(p, encoded);
	if (p == NULL)
		return AMQP_STATUS_BAD_AMQP_DATA;
	p = put_body(p, encoded->body, link->frame_max - OUTBOX_FRAME_OVERHEAD);
	Assert(p - start == bytes);
	link->frames_len += p - start;
	if (link->frames_len >= FLUSH_BYTES)
		return outbox_frames_flush(link);
	return AMQP_STATUS_OK;
}
