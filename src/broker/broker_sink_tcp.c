/*-------------------------------------------------------------------------
 *
 * broker_sink_tcp.c
 *		The sink of a TCP connection: frames made here and sent together.
 *
 * The library sends each frame of a body in three pieces, at a system call each, and
 * wants a cork around them.  For small messages that is a third of what publishing
 * costs (measured), so frames are put one after the other into a buffer that goes
 * out in one piece when it is full or flushed.  The library encodes the properties,
 * and does everything else on the connection; the buffer is empty whenever it sends
 * anything.
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

/* Sent when so much is there; a method frame and a full one fit behind it. */
#define FLUSH_BYTES			65536
#define METHOD_MOST_BYTES	1024	/* two short strings and little else */
#define BUFFER_BYTES		(FLUSH_BYTES + METHOD_MOST_BYTES + OUTBOX_FRAME_MAX)

/* How often a send that does not go looks whether the watchdog ended it. */
#define POLL_MS				100

#define FRAME_END			0xCE

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

/* ----------------------------------------------------------------- sending */

/* Everything or an error: the watchdog ends what takes too long. */
static int
flush(OutboxLink *link)
{
	size_t		sent = 0;

	while (sent < link->buffered)
	{
		ssize_t		n = send(link->fd, link->buffer + sent,
							 link->buffered - sent, MSG_NOSIGNAL);
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
			link->buffered = 0;
			return AMQP_STATUS_SOCKET_ERROR;
		}
	}
	link->buffered = 0;
	return AMQP_STATUS_OK;
}

/* Makes place for what one call puts. */
static int
make_place(OutboxLink *link)
{
	if (link->buffer == NULL)
		link->buffer = MemoryContextAlloc(link->context, BUFFER_BYTES);
	return link->buffered < FLUSH_BYTES ? AMQP_STATUS_OK : flush(link);
}

static int
put_head(OutboxLink *link, const OutboxEncoded *encoded,
		 amqp_bytes_t exchange, amqp_bytes_t routing_key)
{
	int			status = make_place(link);
	char	   *p;

	if (status != AMQP_STATUS_OK)
		return status;
	p = put_method(link->buffer + link->buffered, exchange, routing_key);
	p = put_header(p, encoded);
	if (p == NULL)
		return AMQP_STATUS_BAD_AMQP_DATA;
	link->buffered = p - link->buffer;
	Assert(link->buffered <= BUFFER_BYTES);
	return AMQP_STATUS_OK;
}

static int
put_body(OutboxLink *link, amqp_bytes_t part)
{
	int			status = make_place(link);
	char	   *p;

	if (status != AMQP_STATUS_OK)
		return status;
	p = begin_frame(link->buffer + link->buffered, AMQP_FRAME_BODY, part.len);
	p = put_bytes(p, part.bytes, part.len);
	p = put8(p, FRAME_END);
	link->buffered = p - link->buffer;
	Assert(link->buffered <= BUFFER_BYTES);
	return AMQP_STATUS_OK;
}

const OutboxSink outbox_sink_tcp = {
	.put_head = put_head,
	.put_body = put_body,
	.flush = flush,
	.whole_bytes = FLUSH_BYTES,
};
