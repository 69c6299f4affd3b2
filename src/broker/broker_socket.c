/*-------------------------------------------------------------------------
 *
 * broker_socket.c
 *		The link's socket: its options, how full it is, and writing to it.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/time.h>
#ifdef __linux__
#include <linux/sockios.h>
#endif

#include "broker_internal.h"
#include "wait_event.h"
#include "watchdog.h"

/*
 * A peer that vanishes is noticed by heartbeats within two of them.  Only where
 * they are off must the kernel bound how long sent bytes may remain without an
 * acknowledgement: TCP_USER_TIMEOUT counts a closed window too, so it would cut
 * every link that a broker's memory or disk alarm holds up for that long
 * (measured: after 20 s, with the connection otherwise in good health).
 */
#define UNACKNOWLEDGED_MS	60000
#define KEEPALIVE_IDLE_S	30
#define KEEPALIVE_INTERVAL_S 10
#define KEEPALIVE_COUNT		3

/* More than the confirms of the default window; of more bytes the time is that of the first ones. */
#define PEEKED_BYTES		32768

/* How often a write that does not go looks whether the watchdog ended it. */
#define POLL_MS				100

static void
set_option(int fd, int level, int name, int value)
{
	/* each is an improvement only: never fail a connect for the lack of one */
	(void) setsockopt(fd, level, name, &value, sizeof(value));
}

void
outbox_link_socket_options(int fd, bool heartbeats)
{
	set_option(fd, IPPROTO_TCP, TCP_NODELAY, 1);
	set_option(fd, SOL_SOCKET, SO_KEEPALIVE, 1);
	set_option(fd, SOL_SOCKET, SO_TIMESTAMP, 1);
#ifdef TCP_KEEPIDLE
	set_option(fd, IPPROTO_TCP, TCP_KEEPIDLE, KEEPALIVE_IDLE_S);
	set_option(fd, IPPROTO_TCP, TCP_KEEPINTVL, KEEPALIVE_INTERVAL_S);
	set_option(fd, IPPROTO_TCP, TCP_KEEPCNT, KEEPALIVE_COUNT);
#endif
#ifdef TCP_USER_TIMEOUT
	if (!heartbeats)
		set_option(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, UNACKNOWLEDGED_MS);
#endif
}

/* The time at which the kernel got them; 0: it does not say (only Linux does, of TCP). */
static int64
arrival_us(struct msghdr *message)
{
	struct timeval at = {0};

	for (struct cmsghdr *header = CMSG_FIRSTHDR(message); header != NULL;
		 header = CMSG_NXTHDR(message, header))
		if (header->cmsg_level == SOL_SOCKET && header->cmsg_type == SCM_TIMESTAMP)
			memcpy(&at, CMSG_DATA(header), sizeof(at));
	return (int64) at.tv_sec * 1000000 + at.tv_usec;
}

/*
 * How many bytes has the socket to read?  unread_us: since when; 0: unknown.  Answers may be left
 * unread for a while (relay_wait_set.c), and their times are counted by when they came.
 * Of several segments that is the last one that is read whole.  FIONREAD is asked first,
 * since a look at an empty socket would take its error away from the library.
 */
int
outbox_link_bytes_wait(int fd, int64 *unread_us)
{
	static char peeked[PEEKED_BYTES];
	struct iovec bytes = {peeked, sizeof(peeked)};
	union
	{
		struct cmsghdr header;
		char		space[CMSG_SPACE(sizeof(struct timeval))];
	}			control;
	struct msghdr message = {0};
	struct timeval now;
	int64		arrived;
	int			waiting = 0;

	*unread_us = 0;
	if (ioctl(fd, FIONREAD, &waiting) != 0 || waiting <= 0)
		return 0;
	message.msg_iov = &bytes;
	message.msg_iovlen = 1;
	message.msg_control = &control;
	message.msg_controllen = sizeof(control);
	if (recvmsg(fd, &message, MSG_PEEK | MSG_DONTWAIT) <= 0)
		return waiting;
	arrived = arrival_us(&message);
	if (arrived != 0 && gettimeofday(&now, NULL) == 0)
		*unread_us = (int64) now.tv_sec * 1000000 + now.tv_usec - arrived;
	return waiting;
}

/* Bytes that were put and that the other side has not acknowledged. */
int64
outbox_link_unacknowledged(const OutboxLink *link)
{
	int			queued = 0;

#ifdef SIOCOUTQ
	if (ioctl(link->fd, SIOCOUTQ, &queued) != 0)
		queued = 0;
#endif
	return (int64) link->frames.len + queued;
}

/*
 * How much may be sent so that at most three quarters of the send buffer are in
 * use: the buffer counts its own overhead too, so that so much always goes in
 * without waiting, even if the broker has stopped reading.  (Measured, in sends of
 * 100 bytes to 128 kB over the loopback interface and over one with packets of 1500
 * bytes.)
 */
void
outbox_link_measure_room(OutboxLink *link)
{
	int			size = 0;
	socklen_t	len = sizeof(size);

	if (getsockopt(link->fd, SOL_SOCKET, SO_SNDBUF, &size, &len) != 0)
		size = 0;
	link->send_limit = (int64) size * 3 / 4;
	link->room = link->send_limit - outbox_link_unacknowledged(link);
}

/*
 * Tells the kernel that we would send more.  It enlarges the buffer as the network
 * turns out to carry more, but only for whoever has found it full.  We never do,
 * and on a network with 200 ms latency would stay at the 200 kB/s that the first
 * buffer allows.  Two thirds are full enough for poll() to note that somebody
 * waits, hence three quarters above.
 */
void
outbox_link_want_room(const OutboxLink *link)
{
	struct pollfd wanted = {.fd = link->fd, .events = POLLOUT};

	(void) poll(&wanted, 1, 0);
}

/* Bytes that were taken; 0: none now, poll for *events; -1: it is dead. */
static ssize_t
write_some(OutboxLink *link, const char *bytes, size_t len, short *events)
{
	ssize_t		n;
	int			error;

	*events = POLLOUT;
	if (link->ssl == NULL)
	{
		n = send(link->fd, bytes, len, MSG_NOSIGNAL);
		if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR))
			return 0;
		return n > 0 ? n : -1;
	}
	ERR_clear_error();
	n = SSL_write(link->ssl, bytes, (int) len);
	if (n > 0)
		return n;
	error = SSL_get_error(link->ssl, (int) n);
	if (error == SSL_ERROR_WANT_READ)
		*events = POLLIN;
	return error == SSL_ERROR_WANT_READ || error == SSL_ERROR_WANT_WRITE ? 0 : -1;
}

/*
 * Sends all that is in the link's buffer, or fails with a status of the library: the
 * watchdog ends what takes too long.
 */
int
outbox_link_flush(OutboxLink *link)
{
	size_t		len = link->frames.len;
	size_t		sent = 0;

	link->frames.len = 0;
	while (sent < len)
	{
		struct pollfd wait = {.fd = link->fd};
		ssize_t		n;

		n = write_some(link, link->frames.data + sent, len - sent, &wait.events);
		if (n < 0)
			return AMQP_STATUS_SOCKET_ERROR;
		sent += n;
		if (n > 0)
			continue;
		outbox_wait_start(OUTBOX_WAIT_SEND);
		(void) poll(&wait, 1, POLL_MS);
		outbox_wait_end();
	}
	return AMQP_STATUS_OK;
}
