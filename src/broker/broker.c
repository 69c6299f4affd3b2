/*-------------------------------------------------------------------------
 *
 * broker.c
 *		The link to RabbitMQ: its state, its clock, its end.
 *
 * The relay's worker calls it, and outbox_preflight() in a session; never inside a
 * transaction.
 *
 * Every library call that may block stands between outbox_link_guard() and
 * outbox_link_unguard(): librabbitmq's sends have no deadline of their own.
 *
 * If the process dies in here the kernel closes the socket and the broker
 * forgets the channel; whatever was unconfirmed is sent again by the next
 * worker.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <limits.h>
#include <netdb.h>
#include <openssl/crypto.h>
#include <openssl/opensslv.h>
#include <sys/socket.h>
#include <unistd.h>

#include "broker_internal.h"
#include "clock.h"
#include "storage/fd.h"
#include "utils/memutils.h"
#include "wait_event.h"
#include "watchdog.h"

/* The polite goodbye may take this long; the broker needs a few ms for it. */
#define CLOSE_MS 1000

/*
 * A broker that hears nothing from us for two heartbeats takes the connection for
 * dead, so there is no use in waiting longer for it to take a byte; nor in
 * giving up sooner: that nothing arrives at all is noticed by its heartbeats, and
 * one that sends them reads again soon, when its disk is slow, say.  The
 * retransmissions of a network that loses segments take seconds, so short
 * heartbeats must not make it less than STALLED_LEAST_MS: a segment that is lost
 * three times in a row, on a link where the first repeat comes after a second, is
 * there after seven.
 */
#define STALLED_LEAST_MS	10000
#define STALLED_DEFAULT_MS	60000	/* when there are no heartbeats */

/*
 * Before the library believes that the broker is silent it would read "without
 * waiting", which in 0.11 to 0.13 means without end.  We decide this much
 * earlier, so that it never gets there.
 */
#define SILENCE_MARGIN_MS 100

static const char *const StateNames[] = {
	[OUTBOX_LINK_CLOSED] = "closed",
	[OUTBOX_LINK_CONNECTING] = "connecting",
	[OUTBOX_LINK_OPEN] = "open",
	[OUTBOX_LINK_BLOCKED] = "blocked"
};

/* The only writer of link->state; the diagram is in broker.h. */
void
outbox_link_set_state(OutboxLink *link, OutboxLinkState state)
{
	switch (state)
	{
		case OUTBOX_LINK_CLOSED:
			Assert(link->conn == NULL && link->fd == -1);
			break;
		case OUTBOX_LINK_CONNECTING:
			Assert(link->state == OUTBOX_LINK_CLOSED);
			break;
		case OUTBOX_LINK_OPEN:
			Assert(link->state == OUTBOX_LINK_CONNECTING ||
				   link->state == OUTBOX_LINK_BLOCKED);
			break;
		case OUTBOX_LINK_BLOCKED:
			Assert(link->state == OUTBOX_LINK_OPEN);
			break;
	}
	elog(DEBUG1, "outbox broker link: %s to %s",
		 StateNames[link->state], StateNames[state]);
	link->state = state;
	if (state != OUTBOX_LINK_BLOCKED)
		link->blocked_reason[0] = '\0';
}

OutboxLink *
outbox_link_create(MemoryContext parent, const OutboxLinkEvents *events)
{
	MemoryContext context = AllocSetContextCreate(parent, "outbox broker link",
												  ALLOCSET_SMALL_SIZES);
	OutboxLink *link = MemoryContextAllocZero(context, sizeof(OutboxLink));

	link->context = context;
	link->target_context = AllocSetContextCreate(context, "outbox link target",
												 ALLOCSET_SMALL_SIZES);
	link->scratch = AllocSetContextCreate(context, "outbox message scratch",
										  ALLOCSET_DEFAULT_SIZES);
	link->frames.data = MemoryContextAlloc(context, OUTBOX_FRAMES_BYTES);
	link->frames.maxlen = OUTBOX_FRAMES_BYTES;
	link->events = *events;
	link->state = OUTBOX_LINK_CLOSED;
	link->fd = -1;
	return link;
}

OutboxLinkState
outbox_link_state(const OutboxLink *link)
{
	return link->state;
}

const OutboxLinkError *
outbox_link_error(const OutboxLink *link)
{
	return &link->error;
}

const char *
outbox_link_blocked_reason(const OutboxLink *link)
{
	return link->blocked_reason;
}

OutboxReason
outbox_link_alarm(const OutboxLink *link)
{
	return link->state == OUTBOX_LINK_BLOCKED ?
		outbox_reason_of_alarm(link->blocked_reason) : OUTBOX_REASON_NONE;
}

int64
outbox_link_certificate_ends(const OutboxLink *link)
{
	return link->certificate_ends;
}

pgsocket
outbox_link_socket(const OutboxLink *link)
{
	return link->fd >= 0 ? (pgsocket) link->fd : PGINVALID_SOCKET;
}

/* A clock that nobody sets, as librabbitmq's own. */
int64
outbox_link_now_ms(void)
{
	return outbox_mono_now().us / 1000;
}

void
outbox_link_guard(OutboxLink *link, int limit_ms)
{
	outbox_watchdog_guard_socket(link->fd, limit_ms);
	link->guarded = true;
}

/* The same for a call in which the library keeps what the broker sends. */
void
outbox_link_guard_reading(OutboxLink *link, int limit_ms)
{
	outbox_watchdog_guard_reading(link->fd, limit_ms);
	link->guarded = true;
}

/* Returns true when the watchdog had to shut the socket down. */
bool
outbox_link_unguard(OutboxLink *link)
{
	if (!link->guarded)
		return false;
	link->guarded = false;
	return outbox_watchdog_release();
}

/* Before a call of the library that sends and waits for an answer, or only sends. */
void
outbox_link_begin_call(OutboxLink *link, OutboxWait wait)
{
	outbox_link_note_read(link);
	outbox_link_guard_reading(link, OUTBOX_SOCKET_LIMIT_MS);
	outbox_wait_start(wait);
}

/* After it.  LOST unless it went well, and in time; doing: what it was. */
OutboxLinkStatus
outbox_link_end_call(OutboxLink *link, const char *doing, int status)
{
	outbox_wait_end();
	if (status != AMQP_STATUS_OK)
		return outbox_link_fail_library(link, doing, status);
	if (outbox_link_unguard(link))
		return outbox_link_fail_library(link, doing, AMQP_STATUS_TIMEOUT);
	return OUTBOX_LINK_OK;
}

OutboxLinkStatus
outbox_link_end_rpc(OutboxLink *link, const char *doing,
					const amqp_rpc_reply_t *reply)
{
	if (reply->reply_type == AMQP_RESPONSE_NORMAL)
		return outbox_link_end_call(link, doing, AMQP_STATUS_OK);
	if (reply->reply_type == AMQP_RESPONSE_LIBRARY_EXCEPTION)
		return outbox_link_end_call(link, doing, reply->library_error);
	outbox_wait_end();
	if (reply->reply_type == AMQP_RESPONSE_SERVER_EXCEPTION &&
		(reply->reply.id == AMQP_CONNECTION_CLOSE_METHOD ||
		 reply->reply.id == AMQP_CHANNEL_CLOSE_METHOD))
		return outbox_link_fail_close(link, doing, &reply->reply);
	return outbox_link_fail_library(link, doing, AMQP_STATUS_CONNECTION_CLOSED);
}

/*
 * The library swallows heartbeats, so the only way to see that the broker
 * lives is to look whether bytes are there before the library takes them.
 */
void
outbox_link_note_read(OutboxLink *link)
{
	int64		unread_us;
	int			bytes = outbox_link_bytes_wait(link->fd, &unread_us);

	if (bytes == 0)
		return;
	link->unweighed_bytes += bytes;
	link->last_read_ms = outbox_link_now_ms();
	link->unread_us = unread_us;
}

int64
outbox_link_unread_us(const OutboxLink *link)
{
	return link->unread_us;
}

/* True when the broker has missed its heartbeats; the socket is asked before that is said. */
bool
outbox_link_is_silent(OutboxLink *link)
{
	int64		limit_ms = 2 * link->heartbeat_ms - SILENCE_MARGIN_MS;

	if (link->heartbeat_ms == 0 ||
		outbox_link_now_ms() - link->last_read_ms < limit_ms)
		return false;
	outbox_link_note_read(link);
	return outbox_link_now_ms() - link->last_read_ms >= limit_ms;
}

int
outbox_link_stalled_ms(const OutboxLink *link)
{
	if (link->heartbeat_ms == 0)
		return STALLED_DEFAULT_MS;
	return (int) Max(2 * link->heartbeat_ms, STALLED_LEAST_MS);
}

int64
outbox_link_heartbeat_ms(const OutboxLink *link)
{
	return link->heartbeat_ms;
}

int
outbox_link_heartbeat_due_ms(const OutboxLink *link)
{
	int64		due_ms;

	if (link->state != OUTBOX_LINK_OPEN && link->state != OUTBOX_LINK_BLOCKED)
		return INT_MAX;

	/* what the library holds already makes the socket no longer readable */
	if (link->more || amqp_frames_enqueued(link->conn) ||
		amqp_data_in_buffer(link->conn))
		return 0;
	if (link->heartbeat_ms == 0)
		return INT_MAX;

	/* often enough to send ours, and in time to notice that theirs is missing */
	due_ms = Min(link->last_receive_ms + link->heartbeat_ms / 2,
				 link->last_read_ms + 2 * link->heartbeat_ms + 1);
	due_ms -= outbox_link_now_ms();
	return (int) Max(due_ms, 0);
}

/*
 * What the kernel has not got rid of must not be delivered any more: on a slow
 * network it would arrive behind what is sent again on the next connection, and
 * be one more copy of it.  With this, closing the socket throws it away.
 */
static void
forget_unsent(OutboxLink *link)
{
	struct linger at_once = {1, 0};

	if (link->state != OUTBOX_LINK_CLOSED &&
		link->state != OUTBOX_LINK_CONNECTING &&
		outbox_link_unacknowledged(link) > 0)
		(void) setsockopt(link->fd, SOL_SOCKET, SO_LINGER, &at_once,
						  sizeof(at_once));
}

/*
 * Gives back everything that the link holds outside our memory, in whatever
 * state it is.  Idempotent; throws nothing, so that it may run at exit.
 */
void
outbox_link_drop(OutboxLink *link)
{
	(void) outbox_link_unguard(link);
	if (link->fd >= 0)
		forget_unsent(link);

	if (link->conn != NULL)
		(void) amqp_destroy_connection(link->conn);
	else if (link->fd >= 0)
		close(link->fd);
	if (link->fd_acquired)
		ReleaseExternalFD();
	if (link->addresses != NULL)
		freeaddrinfo(link->addresses);
	link->addresses = NULL;
	link->naddresses = 0;
	link->frames.len = 0;
	memset(&link->conn, 0, sizeof(OutboxLink) - offsetof(OutboxLink, conn));
	link->fd = -1;

	/*
	 * It was needed for the login, and to hide it in what the broker says.
	 * The library keeps it in its buffers for as long, and does not wipe
	 * them.
	 */
	if (link->target.password != NULL)
		explicit_bzero(unconstify(char *, link->target.password),
					   strlen(link->target.password));
}

void
outbox_link_close(OutboxLink *link, bool polite)
{
	int			limit_ms = outbox_watchdog_stop_left(CLOSE_MS);
	struct timeval patience = {limit_ms / 1000, (limit_ms % 1000) * 1000};

	if (link->state == OUTBOX_LINK_CLOSED)
		return;

	/* a broker that blocks us does not read what we would say */
	if (polite && link->state == OUTBOX_LINK_OPEN && link->rest.len == 0 &&
		limit_ms > 0)
	{
		outbox_link_guard_reading(link, limit_ms);
		(void) amqp_set_rpc_timeout(link->conn, &patience);
		outbox_wait_start(OUTBOX_WAIT_CLOSE);
		(void) amqp_connection_close(link->conn, AMQP_REPLY_SUCCESS);
		outbox_wait_end();
		(void) outbox_link_unguard(link);
	}
	outbox_link_drop(link);
	outbox_link_set_state(link, OUTBOX_LINK_CLOSED);
}

/* Both are loaded at run time, so that they may be others than those of the headers. */
void
outbox_link_versions(OutboxLinkVersions *versions)
{
	versions->librabbitmq = amqp_version();
	versions->librabbitmq_built = AMQP_VERSION_STRING;
	versions->openssl = OpenSSL_version(OPENSSL_VERSION);
	versions->openssl_built = OPENSSL_VERSION_TEXT;
}
