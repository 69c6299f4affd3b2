/*-------------------------------------------------------------------------
 *
 * nullbroker.c
 *		The baseline NULL BROKER: confirms every publish at once.
 *
 * usage: nullbroker [--port PORT]
 *
 * Listens on 127.0.0.1 (by default on a free port), prints "port N", and
 * speaks as much of AMQP 0-9-1 as a publisher needs: login with anything,
 * channels, confirms, heartbeats, and an ok for every declaration.  What was
 * published is counted and forgotten; one basic.ack with the multiple bit
 * answers all that one read brought.  So what a publisher costs can be seen
 * without the broker's own cost beside it.
 *
 * Bodies that begin as those of the benchmark do, {"k": KEY, "n": NUMBER
 * (KEY may be null), are checked as they come: a number that came before is a
 * duplicate, one that is not above the last of its key an inversion.
 *
 * Commands on stdin, one a line, answered by one line:
 *
 *	reset		forgets what came		ok
 *	stats		messages M unique U duplicates D inversions I other O bytes B
 *	away		closes all connections and does not listen		ok
 *	back		listens again, on the same port				ok
 *
 * where other are the messages without a number.  It ends with stdin.
 *
 *-------------------------------------------------------------------------
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define FRAME_MAX		131072
#define MAX_CHANNELS	64
#define INPUT_SIZE		(1 << 20)	/* holds several frames */
#define HEAD_SIZE		64			/* of a body, as much as the check reads */

#define FRAME_METHOD	1
#define FRAME_HEADER	2
#define FRAME_BODY		3
#define FRAME_HEARTBEAT	8
#define FRAME_END		0xCE

#define METHOD(class, id) (((uint32_t) (class) << 16) | (id))

typedef struct Channel
{
	bool		confirms;
	uint64_t	tag;			/* last one that was published completely */
	uint64_t	acked;
	uint64_t	left;			/* bytes of the current body that are to come */
	size_t		head_len;
	char		head[HEAD_SIZE];
} Channel;

typedef struct Connection
{
	int			fd;
	bool		greeted;		/* the protocol header was seen */
	bool		closing;		/* close when the output is gone */
	int			heartbeat_s;
	int64_t		beat_ms;		/* when the last heartbeat was sent */
	size_t		input_len;
	size_t		output_len;
	size_t		output_sent;
	size_t		output_size;
	unsigned char *output;
	unsigned char *input;
	Channel		channels[MAX_CHANNELS];
	struct Connection *next;
} Connection;

static int	epoll_fd;
static int	listen_fd;
static int	listen_port;
static Connection *connections;

static void
die(const char *what)
{
	fprintf(stderr, "nullbroker: %s: %s\n", what, strerror(errno));
	exit(1);
}

static int64_t
ticks_ms(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (int64_t) ts.tv_sec * 1000 + ts.tv_nsec / 1000000;
}

/* ------------------------------------------------------------------------
 * What came
 */

#define MAX_NUMBER	(UINT64_C(1) << 32)
#define MAX_KEY		(UINT64_C(1) << 28)

static uint64_t messages;
static uint64_t unique;
static uint64_t duplicates;
static uint64_t inversions;
static uint64_t other;
static uint64_t body_bytes;

/* Both are sparse: only what is touched takes memory. */
static unsigned char *seen;		/* a bit for each number */
static uint32_t *last;			/* by key; 0: none yet, numbers begin with 1 */

static void *
map_zeros(size_t size)
{
	void	   *p = mmap(NULL, size, PROT_READ | PROT_WRITE,
						 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	if (p == MAP_FAILED)
		die("mmap");
	return p;
}

static void
reset(void)
{
	if (seen != NULL)
	{
		munmap(seen, MAX_NUMBER / 8);
		munmap(last, MAX_KEY * sizeof(uint32_t));
	}
	seen = map_zeros(MAX_NUMBER / 8);
	last = map_zeros(MAX_KEY * sizeof(uint32_t));
	messages = unique = duplicates = inversions = other = body_bytes = 0;
}

static bool
take_text(const char **p, const char *end, const char *text)
{
	size_t		len = strlen(text);

	if ((size_t) (end - *p) < len || memcmp(*p, text, len) != 0)
		return false;
	*p += len;
	return true;
}

static bool
take_number(const char **p, const char *end, uint64_t *value)
{
	const char *start = *p;

	*value = 0;
	while (*p < end && **p >= '0' && **p <= '9' && *p - start < 18)
		*value = *value * 10 + (uint64_t) (*(*p)++ - '0');
	return *p > start;
}

static void
note_message(const Channel *channel)
{
	const char *p = channel->head;
	const char *end = p + channel->head_len;
	uint64_t	key = 0;
	uint64_t	n;
	bool		keyed;

	messages++;
	keyed = take_text(&p, end, "{\"k\": ") && take_number(&p, end, &key);
	if (!keyed && !take_text(&p, end, "null"))
	{
		other++;
		return;
	}
	if (!take_text(&p, end, ", \"n\": ") || !take_number(&p, end, &n) ||
		n == 0 || n >= MAX_NUMBER || key >= MAX_KEY)
	{
		other++;
		return;
	}
	if (seen[n / 8] & (1 << (n % 8)))
	{
		duplicates++;
		return;
	}
	seen[n / 8] |= (unsigned char) (1 << (n % 8));
	unique++;
	if (!keyed)
		return;
	if (n <= last[key])
		inversions++;
	else
		last[key] = (uint32_t) n;
}

/* ------------------------------------------------------------------------
 * Output
 */

static void
put(Connection *c, const void *data, size_t len)
{
	if (c->output_len + len > c->output_size)
	{
		c->output_size = (c->output_len + len) * 2 + 4096;
		c->output = realloc(c->output, c->output_size);
		if (c->output == NULL)
			die("realloc");
	}
	memcpy(c->output + c->output_len, data, len);
	c->output_len += len;
}

static void
put_int(Connection *c, uint64_t value, int size)
{
	unsigned char b[8];
	int			i;

	for (i = 0; i < size; i++)
		b[i] = (unsigned char) (value >> (8 * (size - 1 - i)));
	put(c, b, (size_t) size);
}

static void
put_frame(Connection *c, int type, int channel, const void *payload, size_t len)
{
	put_int(c, (uint64_t) type, 1);
	put_int(c, (uint64_t) channel, 2);
	put_int(c, len, 4);
	put(c, payload, len);
	put_int(c, FRAME_END, 1);
}

/* A method whose arguments are all zero: most of what a broker answers. */
static void
put_method(Connection *c, int channel, uint32_t method, size_t arguments_len)
{
	unsigned char payload[32] = {0};
	int			i;

	for (i = 0; i < 4; i++)
		payload[i] = (unsigned char) (method >> (8 * (3 - i)));
	put_frame(c, FRAME_METHOD, channel, payload, 4 + arguments_len);
}

static void
put_ack(Connection *c, int channel, uint64_t tag)
{
	unsigned char payload[13] = {0, 60, 0, 80};
	int			i;

	for (i = 0; i < 8; i++)
		payload[4 + i] = (unsigned char) (tag >> (8 * (7 - i)));
	payload[12] = 1;			/* multiple */
	put_frame(c, FRAME_METHOD, channel, payload, sizeof(payload));
}

static void
put_start(Connection *c)
{
	/* version 0-9, server-properties with capabilities, PLAIN, en_US */
	static const char text[] =
		"\x00\x0a\x00\x0a\x00\x09"
		"\x00\x00\x00\x34"
		"\x0c" "capabilities" "F" "\x00\x00\x00\x22"
		"\x12" "publisher_confirms" "t\x01"
		"\x0a" "basic.nack" "t\x01"
		"\x00\x00\x00\x05" "PLAIN" "\x00\x00\x00\x05" "en_US";

	put_frame(c, FRAME_METHOD, 0, text, sizeof(text) - 1);
}

static void
put_tune(Connection *c)
{
	unsigned char payload[12] = {
		0, 10, 0, 30, 0, MAX_CHANNELS - 1,
		(FRAME_MAX >> 24) & 255, (FRAME_MAX >> 16) & 255,
		(FRAME_MAX >> 8) & 255, FRAME_MAX & 255,
		0, 60
	};

	put_frame(c, FRAME_METHOD, 0, payload, sizeof(payload));
}

static void
watch(Connection *c)
{
	struct epoll_event event = {.events = EPOLLIN, .data.ptr = c};

	if (c->output_len > 0)
		event.events |= EPOLLOUT;
	epoll_ctl(epoll_fd, EPOLL_CTL_MOD, c->fd, &event);
}

/* Returns false when the connection is lost. */
static bool
flush_output(Connection *c)
{
	bool		waiting = c->output_sent > 0;

	while (c->output_sent < c->output_len)
	{
		ssize_t		n = send(c->fd, c->output + c->output_sent,
							 c->output_len - c->output_sent, MSG_NOSIGNAL);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
		{
			watch(c);
			return true;
		}
		if (n < 0)
			return false;
		c->output_sent += (size_t) n;
	}
	c->output_sent = c->output_len = 0;
	if (waiting)
		watch(c);
	return !c->closing;
}

/* ------------------------------------------------------------------------
 * Input
 */

static uint64_t
get_int(const unsigned char *p, int size)
{
	uint64_t	value = 0;

	while (size-- > 0)
		value = value << 8 | *p++;
	return value;
}

/* Past so many short strings, which begin at an offset; 0 if they are cut. */
static size_t
skip_strings(const unsigned char *p, size_t len, size_t at, int count)
{
	while (count-- > 0)
	{
		if (at >= len)
			return 0;
		at += 1 + (size_t) p[at];
	}
	return at < len ? at : 0;
}

/*
 * Answers a declaration unless its bit no-wait is set: the bits stand behind
 * the reserved short and so many strings.
 */
static void
answer(Connection *c, int channel, uint32_t answer_method,
	   const unsigned char *p, size_t len, int strings, int nowait_bit)
{
	size_t		at = skip_strings(p, len, 6, strings);

	if (at != 0 && !(p[at] & nowait_bit))
		put_method(c, channel, answer_method, 0);
}

static void
answer_queue(Connection *c, int channel, const unsigned char *p, size_t len)
{
	unsigned char payload[4 + 256 + 8] = {0, 50, 0, 11};
	size_t		name_len = len > 6 ? 1 + (size_t) p[6] : 0;

	if (name_len == 0 || 6 + name_len >= len || (p[6 + name_len] & 16))
		return;
	memcpy(payload + 4, p + 6, name_len);
	put_frame(c, FRAME_METHOD, channel, payload, 4 + name_len + 8);
}

static void
take_method(Connection *c, int number, const unsigned char *p, size_t len)
{
	Channel    *channel = &c->channels[number];

	switch (len >= 4 ? get_int(p, 4) : 0)
	{
		case METHOD(60, 40):	/* basic.publish; the header follows */
			break;
		case METHOD(10, 11):	/* connection.start-ok */
			put_tune(c);
			break;
		case METHOD(10, 31):	/* tune-ok */
			if (len >= 12)
				c->heartbeat_s = (int) get_int(p + 10, 2);
			c->beat_ms = ticks_ms();
			break;
		case METHOD(10, 40):	/* open */
			put_method(c, 0, METHOD(10, 41), 1);
			break;
		case METHOD(10, 50):	/* close */
			put_method(c, 0, METHOD(10, 51), 0);
			c->closing = true;
			break;
		case METHOD(20, 10):	/* channel.open */
			memset(channel, 0, sizeof(*channel));
			put_method(c, number, METHOD(20, 11), 4);
			break;
		case METHOD(20, 40):	/* close */
			put_method(c, number, METHOD(20, 41), 0);
			break;
		case METHOD(40, 10):	/* exchange.declare */
			answer(c, number, METHOD(40, 11), p, len, 2, 16);
			break;
		case METHOD(50, 10):	/* queue.declare */
			answer_queue(c, number, p, len);
			break;
		case METHOD(50, 20):	/* bind */
			answer(c, number, METHOD(50, 21), p, len, 3, 1);
			break;
		case METHOD(85, 10):	/* confirm.select */
			channel->confirms = true;
			if (len >= 5 && !(p[4] & 1))
				put_method(c, number, METHOD(85, 11), 0);
			break;
		default:				/* flow-ok, close-ok: no answer is due */
			break;
	}
}

static void
end_message(Channel *channel)
{
	channel->tag++;
	note_message(channel);
	channel->head_len = 0;
}

/* Returns false for what is not AMQP. */
static bool
take_frame(Connection *c, int type, int number, const unsigned char *p, size_t len)
{
	Channel    *channel;

	if (number >= MAX_CHANNELS)
		return false;
	channel = &c->channels[number];
	switch (type)
	{
		case FRAME_METHOD:
			take_method(c, number, p, len);
			return true;
		case FRAME_HEADER:
			if (len < 12)
				return false;
			channel->left = get_int(p + 4, 8);
			channel->head_len = 0;
			body_bytes += channel->left;
			if (channel->left == 0)
				end_message(channel);
			return true;
		case FRAME_BODY:
			if (len > channel->left)
				return false;
			if (channel->head_len < HEAD_SIZE)
			{
				size_t		n = HEAD_SIZE - channel->head_len;

				if (n > len)
					n = len;
				memcpy(channel->head + channel->head_len, p, n);
				channel->head_len += n;
			}
			channel->left -= len;
			if (channel->left == 0)
				end_message(channel);
			return true;
		case FRAME_HEARTBEAT:
			return true;
		default:
			return false;
	}
}

/* Returns the bytes that were used, or -1 for what is not AMQP. */
static ssize_t
take_input(Connection *c)
{
	size_t		at = 0;

	if (!c->greeted)
	{
		if (c->input_len < 8)
			return 0;
		if (memcmp(c->input, "AMQP\0\0\x09\x01", 8) != 0)
			return -1;
		c->greeted = true;
		put_start(c);
		at = 8;
	}
	while (c->input_len - at >= 8)
	{
		const unsigned char *p = c->input + at;
		size_t		len = get_int(p + 3, 4);

		if (len > FRAME_MAX)
			return -1;
		if (c->input_len - at < len + 8)
			break;
		if (p[len + 7] != FRAME_END ||
			!take_frame(c, p[0], (int) get_int(p + 1, 2), p + 7, len))
			return -1;
		at += len + 8;
	}
	return (ssize_t) at;
}

static void
acknowledge(Connection *c)
{
	int			i;

	for (i = 1; i < MAX_CHANNELS; i++)
	{
		Channel    *channel = &c->channels[i];

		if (channel->confirms && channel->tag > channel->acked)
		{
			put_ack(c, i, channel->tag);
			channel->acked = channel->tag;
		}
	}
}

/* Returns false when the connection is lost or of no use. */
static bool
readable(Connection *c)
{
	ssize_t		n = recv(c->fd, c->input + c->input_len,
						 INPUT_SIZE - c->input_len, 0);
	ssize_t		used;

	if (n < 0)
		return errno == EINTR || errno == EAGAIN || errno == EWOULDBLOCK;
	if (n == 0)
		return false;
	c->input_len += (size_t) n;
	used = take_input(c);
	if (used < 0)
	{
		fprintf(stderr, "nullbroker: not AMQP 0-9-1, connection closed\n");
		return false;
	}
	c->input_len -= (size_t) used;
	memmove(c->input, c->input + used, c->input_len);
	acknowledge(c);
	return flush_output(c);
}

/* ------------------------------------------------------------------------
 * Connections
 */

static void
accept_one(void)
{
	struct epoll_event event = {.events = EPOLLIN};
	int			on = 1;
	int			fd = accept4(listen_fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
	Connection *c;

	if (fd < 0)
		return;
	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
	c = calloc(1, sizeof(*c));
	if (c == NULL || (c->input = malloc(INPUT_SIZE)) == NULL)
		die("malloc");
	c->fd = fd;
	c->next = connections;
	connections = c;
	event.data.ptr = c;
	if (epoll_ctl(epoll_fd, EPOLL_CTL_ADD, fd, &event) != 0)
		die("epoll_ctl");
}

static void
forget(Connection *c)
{
	Connection **p = &connections;

	while (*p != c)
		p = &(*p)->next;
	*p = c->next;
	close(c->fd);
	free(c->input);
	free(c->output);
	free(c);
}

static void
beat(void)
{
	int64_t		now = ticks_ms();
	Connection *c;
	Connection *next;

	for (c = connections; c != NULL; c = next)
	{
		next = c->next;
		if (c->heartbeat_s == 0 || now - c->beat_ms < c->heartbeat_s * 500)
			continue;
		c->beat_ms = now;
		put_frame(c, FRAME_HEARTBEAT, 0, "", 0);
		if (!flush_output(c))
			forget(c);
	}
}

static void
listen_on(int port)
{
	struct sockaddr_in address = {.sin_family = AF_INET,
	.sin_port = htons((uint16_t) port)};
	struct epoll_event event = {.events = EPOLLIN, .data.ptr = &listen_fd};
	socklen_t	len = sizeof(address);
	int			on = 1;

	address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	listen_fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	if (listen_fd < 0)
		die("socket");
	setsockopt(listen_fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
	if (bind(listen_fd, (struct sockaddr *) &address, sizeof(address)) != 0 ||
		listen(listen_fd, 64) != 0 ||
		getsockname(listen_fd, (struct sockaddr *) &address, &len) != 0)
		die("could not listen");
	if (epoll_ctl(epoll_fd, EPOLL_CTL_ADD, listen_fd, &event) != 0)
		die("epoll_ctl");
	listen_port = ntohs(address.sin_port);
}

static void
command(void)
{
	char		line[64];

	/* the other side waits for each answer, so there is one line at a time */
	if (fgets(line, sizeof(line), stdin) == NULL)
		exit(0);
	if (strcmp(line, "reset\n") == 0)
	{
		reset();
		puts("ok");
	}
	else if (strcmp(line, "stats\n") == 0)
		printf("messages %" PRIu64 " unique %" PRIu64 " duplicates %" PRIu64
			   " inversions %" PRIu64 " other %" PRIu64 " bytes %" PRIu64 "\n",
			   messages, unique, duplicates, inversions, other, body_bytes);
	else if (strcmp(line, "away\n") == 0)
	{
		close(listen_fd);
		listen_fd = -1;
		while (connections != NULL)
			forget(connections);
		puts("ok");
	}
	else if (strcmp(line, "back\n") == 0)
	{
		listen_on(listen_port);
		puts("ok");
	}
	else
		puts("unknown command");
	fflush(stdout);
}

int
main(int argc, char **argv)
{
	struct epoll_event event = {.events = EPOLLIN, .data.ptr = stdin};
	struct epoll_event events[64];
	int			port = 0;

	if (argc == 3 && strcmp(argv[1], "--port") == 0)
		port = atoi(argv[2]);
	else if (argc != 1)
	{
		fprintf(stderr, "usage: nullbroker [--port PORT]\n");
		return 2;
	}
	signal(SIGPIPE, SIG_IGN);
	setvbuf(stdin, NULL, _IONBF, 0);
	reset();
	epoll_fd = epoll_create1(EPOLL_CLOEXEC);
	if (epoll_fd < 0 || epoll_ctl(epoll_fd, EPOLL_CTL_ADD, 0, &event) != 0)
		die("epoll");
	listen_on(port);
	printf("port %d\n", listen_port);
	fflush(stdout);
	for (;;)
	{
		int			n = epoll_wait(epoll_fd, events, 64, 1000);
		int			i;

		for (i = 0; i < n; i++)
		{
			Connection *c = events[i].data.ptr;
			bool		ok = true;

			if (events[i].data.ptr == stdin)
			{
				command();
				break;			/* it may have closed what the other events are about */
			}
			if (events[i].data.ptr == &listen_fd)
				accept_one();
			else
			{
				if (events[i].events & EPOLLOUT)
					ok = flush_output(c);
				if (ok && (events[i].events & (EPOLLIN | EPOLLHUP | EPOLLERR)))
					ok = readable(c);
				if (!ok)
					forget(c);
			}
		}
		beat();
	}
}
