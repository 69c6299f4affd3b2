/*-------------------------------------------------------------------------
 *
 * broker_connect.c
 *		From a target to an open confirm channel.
 *
 * TCP is connected here rather than by the library, so that the worker can
 * wait for it with its latch, and one address of a name that answers nothing does
 * not hide the others.  With TLS the library insists on connecting by itself: it is
 * given the address that has just answered us (broker_tls.c).
 *
 * getaddrinfo() has no deadline but the resolver's own, and blocks meanwhile:
 * with glibc these are made short for this process, and an address instead of a
 * name avoids them.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <limits.h>
#include <netdb.h>
#include <poll.h>
#ifdef __GLIBC__
#include <resolv.h>
#endif
#include <sys/socket.h>
#include <unistd.h>

#include "storage/fd.h"
#include "utils/memutils.h"

#include "broker_internal.h"
#include "loopback.h"
#include "own_version.h"
#include "settings.h"
#include "wait_event.h"
#include "watchdog.h"

#define HANDSHAKE_MS	3000
#define RPC_MS			3000

/* Nothing in the protocol allows less; it also shields the library. */
#define FRAME_MAX_LOWEST 4096

/* Whatever is thrown in between, the link has no pointers of the caller's. */
static void
copy_target(OutboxLink *link, const OutboxLinkTarget *target)
{
	OutboxLinkTarget copy = *target;
	MemoryContext old;

	memset(&link->target, 0, sizeof(link->target));
	MemoryContextReset(link->target_context);
	old = MemoryContextSwitchTo(link->target_context);
	copy.host = pstrdup(target->host);
	copy.vhost = pstrdup(target->vhost);
	copy.user = pstrdup(target->user);
	copy.application_name = pstrdup(target->application_name);
	/* the last, so that it is wiped wherever it is */
	copy.password = pstrdup(target->password);
	link->target = copy;
	MemoryContextSwitchTo(old);
}

static OutboxLinkStatus
fail_connect(OutboxLink *link, OutboxReason reason, const char *text)
{
	(void) outbox_link_fail(link, reason, "could not connect to \"%s:%d\": %s",
							link->target.host, link->target.port, text);
	link->error.unreachable = true;
	return OUTBOX_LINK_LOST;
}

/*
 * While getaddrinfo() waits for a name server the process hears nothing: a stop
 * of the server waits for it, and so does DROP DATABASE of any other database.
 * By default that is 5 s, twice, for each server and for a domain to search in;
 * here it is 1 s, once.  glibc keeps what was set by hand and then no longer
 * looks whether resolv.conf has changed, so it is read before each connect; and
 * after it, as in a session others may ask for names, and mean the system's settings.
 */
static void
read_resolver_settings(bool bounded)
{
#ifdef __GLIBC__
	if (res_init() != 0 || !bounded)
		return;
	_res.retrans = 1;
	_res.retry = 1;
#endif
}

static OutboxLinkStatus
resolve(OutboxLink *link)
{
	struct addrinfo hints = {0};
	struct addrinfo *address;
	char		port[16];
	int			rc;

	hints.ai_family = AF_UNSPEC;
	hints.ai_socktype = SOCK_STREAM;
	snprintf(port, sizeof(port), "%d", link->target.port);
	outbox_wait_start(OUTBOX_WAIT_RESOLVE);
	read_resolver_settings(true);
	rc = getaddrinfo(link->target.host, port, &hints, &link->addresses);
	read_resolver_settings(false);
	outbox_wait_end();
	if (rc != 0)
	{
		link->addresses = NULL;
		return outbox_link_fail(link, OUTBOX_REASON_HOST_UNKNOWN,
								"could not resolve host \"%s\": %s",
								link->target.host, gai_strerror(rc));
	}
	link->naddresses = 0;
	for (address = link->addresses; address; address = address->ai_next)
		link->naddresses++;
	link->tried = 0;
	return OUTBOX_LINK_OK;
}

/* Returns a socket that connects or is connected, or -1 with errno set. */
static int
begin_connect(const struct addrinfo *address, bool heartbeats)
{
	int			fd = socket(address->ai_family,
							address->ai_socktype | SOCK_NONBLOCK | SOCK_CLOEXEC,
							address->ai_protocol);
	int			save_errno;

	if (fd < 0)
		return -1;
	outbox_link_socket_options(fd, heartbeats);
	if (connect(fd, address->ai_addr, address->ai_addrlen) == 0 ||
		errno == EINPROGRESS || errno == EINTR)
		return fd;

	save_errno = errno;
	close(fd);
	errno = save_errno;
	return -1;
}

/* The address that is tried, as digits. */
static int
address_text(const OutboxLink *link, char *text, size_t size)
{
	return getnameinfo(link->address->ai_addr, link->address->ai_addrlen,
					   text, size, NULL, 0, NI_NUMERICHOST);
}

static OutboxLinkStatus
fail_plaintext(OutboxLink *link)
{
	char		address[NI_MAXHOST];

	if (address_text(link, address, sizeof(address)) != 0)
		strlcpy(address, "its address", sizeof(address));
	return outbox_link_fail(link, OUTBOX_REASON_PLAINTEXT,
							"did not connect to \"%s:%d\": %s is not a loopback address, and without TLS nothing is sent to any other (outbox.allow_plaintext is off)",
							link->target.host, link->target.port, address);
}

/*
 * Begins with the next address, or fails with what is wrong with the last one.
 * Which one is the first is the outcome of earlier connects.  Whether password and
 * messages may go there as they are is decided by that address: what a name was
 * resolved to a moment ago says nothing.
 */
static OutboxLinkStatus
try_next_address(OutboxLink *link, int last_errno)
{
	bool		anywhere = link->target.tls || outbox_allow_plaintext;
	bool		allowed = true;

	while (link->tried < link->naddresses)
	{
		int			skip = (link->turn + link->tried++) % link->naddresses;

		link->address = link->addresses;
		while (skip-- > 0)
			link->address = link->address->ai_next;
		allowed = anywhere || outbox_is_loopback(link->address->ai_addr);
		if (!allowed)
			continue;
		link->address_until_ms = outbox_link_now_ms() +
			(link->naddresses > 1 ? OUTBOX_NEXT_ADDRESS_MS : OUTBOX_CONNECT_MS);
		link->fd = begin_connect(link->address, link->target.heartbeat_s > 0);
		if (link->fd >= 0)
			return OUTBOX_LINK_OK;
		last_errno = errno;
	}
	if (!allowed)
		return fail_plaintext(link);
	return fail_connect(link, outbox_reason_of_errno(last_errno),
						strerror(last_errno));
}

OutboxLinkStatus
outbox_link_connect_start(OutboxLink *link, const OutboxLinkTarget *target)
{
	OutboxLinkStatus status;

	Assert(link->state == OUTBOX_LINK_CLOSED);
	copy_target(link, target);
	memset(&link->error, 0, sizeof(link->error));
	link->certificate_ends = 0;
	outbox_link_set_state(link, OUTBOX_LINK_CONNECTING);

	/* nothing from here to the end of the connect can throw */
	link->fd_acquired = AcquireExternalFD();
	if (!link->fd_acquired)
		return fail_connect(link, OUTBOX_REASON_NO_RESOURCES,
							"too many open files");
	status = resolve(link);
	if (status == OUTBOX_LINK_OK)
		status = try_next_address(link, EHOSTUNREACH);
	return status == OUTBOX_LINK_OK ? OUTBOX_LINK_AGAIN : status;
}

/* Looks how far TCP is: OK when it is up. */
static OutboxLinkStatus
check_connect(OutboxLink *link)
{
	struct pollfd poller = {link->fd, POLLOUT, 0};
	int			error = 0;
	socklen_t	len = sizeof(error);
	OutboxLinkStatus status;

	if (poll(&poller, 1, 0) <= 0)
	{
		if (outbox_link_connect_due_ms(link) > 0)
			return OUTBOX_LINK_AGAIN;
		error = ETIMEDOUT;
	}
	else if (getsockopt(link->fd, SOL_SOCKET, SO_ERROR, &error, &len) != 0)
		error = errno;
	if (error == 0)
		return OUTBOX_LINK_OK;

	close(link->fd);
	link->fd = -1;
	status = try_next_address(link, error);
	return status == OUTBOX_LINK_OK ? OUTBOX_LINK_AGAIN : status;
}

/*
 * TLS, to the address that has just answered.  Our connection to it has done its
 * work: the library wants one of its own.
 */
static OutboxLinkStatus
open_tls(OutboxLink *link)
{
	char		address[NI_MAXHOST];
	int			rc = address_text(link, address, sizeof(address));

	close(link->fd);
	link->fd = -1;
	if (rc != 0)
		return fail_connect(link, OUTBOX_REASON_UNREACHABLE, gai_strerror(rc));
	return outbox_link_open_tls(link, address);
}

/* Hands the connected socket over to the library. */
static OutboxLinkStatus
adopt_socket(OutboxLink *link)
{
	amqp_connection_state_t conn = amqp_new_connection();
	amqp_socket_t *sock = conn != NULL ? amqp_tcp_socket_new(conn) : NULL;

	if (sock == NULL)
	{
		if (conn != NULL)
			(void) amqp_destroy_connection(conn);
		return fail_connect(link, OUTBOX_REASON_NO_RESOURCES, "out of memory");
	}
	amqp_tcp_socket_set_sockfd(sock, link->fd);
	link->conn = conn;
	return OUTBOX_LINK_OK;
}

/*
 * Logs in.  Without connection.blocked among the capabilities the broker would
 * stop reading in an alarm without telling us.  With EXTERNAL the broker knows from
 * the certificate who we are, and RabbitMQ does not look at the name; but the
 * library cannot send an empty one.
 */
static OutboxLinkStatus
login(OutboxLink *link)
{
	const OutboxLinkTarget *target = &link->target;
	bool		external = outbox_auth_mechanism == OUTBOX_AUTH_EXTERNAL;
	amqp_table_entry_t capabilities[] = {
		OUTBOX_TABLE_TRUE("connection.blocked"),
		OUTBOX_TABLE_TRUE("publisher_confirms"),
		OUTBOX_TABLE_TRUE("basic.nack"),
		OUTBOX_TABLE_TRUE("authentication_failure_close")
	};
	amqp_table_entry_t properties[] = {
		OUTBOX_TABLE_TEXT("product", "outbox"),
		OUTBOX_TABLE_TEXT("version", outbox_library_version()),
		OUTBOX_TABLE_TEXT("platform", "PostgreSQL " PG_VERSION),
		OUTBOX_TABLE_TEXT("connection_name", target->application_name),
		{.key = amqp_cstring_bytes("capabilities"),
			.value = {.kind = AMQP_FIELD_KIND_TABLE,
			.value.table = {lengthof(capabilities), capabilities}}}
	};
	amqp_table_t table = {lengthof(properties), properties};
	struct timeval handshake = {HANDSHAKE_MS / 1000, 0};
	struct timeval rpc = {RPC_MS / 1000, 0};
	amqp_rpc_reply_t reply;

	(void) amqp_set_handshake_timeout(link->conn, &handshake);
	(void) amqp_set_rpc_timeout(link->conn, &rpc);
	outbox_link_begin_call(link, OUTBOX_WAIT_LOGIN);
	/* the last argument is read with PLAIN only */
	reply = amqp_login_with_properties(link->conn, target->vhost, 0,
									   OUTBOX_FRAME_MAX, target->heartbeat_s, &table,
									   external ? AMQP_SASL_METHOD_EXTERNAL :
									   AMQP_SASL_METHOD_PLAIN,
									   target->user, target->password);
	return outbox_link_end_rpc(link, "handshake", &reply);
}

static OutboxLinkStatus
open_channel(OutboxLink *link)
{
	amqp_rpc_reply_t reply;

	outbox_link_begin_call(link, OUTBOX_WAIT_LOGIN);
	(void) amqp_channel_open(link->conn, OUTBOX_CHANNEL_PUBLISH);
	reply = amqp_get_rpc_reply(link->conn);
	if (reply.reply_type == AMQP_RESPONSE_NORMAL)
	{
		(void) amqp_confirm_select(link->conn, OUTBOX_CHANNEL_PUBLISH);
		reply = amqp_get_rpc_reply(link->conn);
	}
	return outbox_link_end_rpc(link, "opening a channel", &reply);
}

/*
 * In two steps, because each may block for as long as a library call may, and
 * the worker must be heard of in between.
 */
static OutboxLinkStatus
handshake(OutboxLink *link)
{
	OutboxLinkStatus status;

	if (!link->logged_in)
	{
		status = login(link);
		link->logged_in = status == OUTBOX_LINK_OK;
		return link->logged_in ? OUTBOX_LINK_AGAIN : status;
	}

	/*
	 * the library has seen to it, but a buffer is as large as we have asked
	 * for
	 */
	link->frame_max = Min((uint32) amqp_get_frame_max(link->conn),
						  OUTBOX_FRAME_MAX);
	if (link->frame_max < FRAME_MAX_LOWEST)
		return outbox_link_fail(link, OUTBOX_REASON_NOT_RABBITMQ,
								"the broker allows frames of only %u bytes",
								link->frame_max);
	status = open_channel(link);
	if (status != OUTBOX_LINK_OK)
		return status;

	amqp_maybe_release_buffers(link->conn);
	link->heartbeat_ms = (int64) amqp_get_heartbeat(link->conn) * 1000;
	link->last_read_ms = outbox_link_now_ms();
	link->last_receive_ms = link->last_read_ms;
	outbox_link_weigh(link);
	outbox_link_set_state(link, OUTBOX_LINK_OPEN);
	return OUTBOX_LINK_OK;
}

/* As far as it can be done now. */
static OutboxLinkStatus
go_on(OutboxLink *link)
{
	OutboxLinkStatus status;

	if (link->conn != NULL)
		return handshake(link);
	status = check_connect(link);
	if (status != OUTBOX_LINK_OK)
		return status;
	if (link->target.tls)
		return open_tls(link);
	status = adopt_socket(link);
	return status == OUTBOX_LINK_OK ? handshake(link) : status;
}

OutboxLinkStatus
outbox_link_connect_poll(OutboxLink *link)
{
	OutboxLinkStatus status;

	if (link->state != OUTBOX_LINK_CONNECTING)
		return OUTBOX_LINK_LOST;
	status = go_on(link);

	/*
	 * The next connect begins with the address that works, or behind the one
	 * that does not: it may take connections and answer nothing.
	 */
	if (status == OUTBOX_LINK_OK)
		link->turn += link->tried - 1;
	else if (status == OUTBOX_LINK_LOST)
		link->turn += link->tried;
	return status;
}

int
outbox_link_connect_due_ms(const OutboxLink *link)
{
	int64		due_ms;

	if (link->state != OUTBOX_LINK_CONNECTING)
		return INT_MAX;
	if (link->conn != NULL)
		return 0;				/* the handshake goes on */
	due_ms = link->address_until_ms - outbox_link_now_ms();
	return (int) Max(due_ms, 0);
}
