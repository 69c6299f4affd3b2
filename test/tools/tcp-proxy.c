/*-------------------------------------------------------------------------
 *
 * tcp-proxy.c
 *		A TCP proxy on the loopback interface that behaves as bad networks do.
 *
 * usage: tcp-proxy --to PORT [--port PORT] [--lifetime SECONDS]
 *
 * Listens on 127.0.0.1 (on any free port, unless told), prints "ready PORT",
 * and connects each client to the port --to of 127.0.0.1.  Lines on stdin say
 * what is to be done, and each is answered by "ok ..." or "error ...".  It ends
 * with the line quit, with the end of stdin, when its parent dies, or after its
 * lifetime (900 s).
 *
 * DIR is up (what the client sends), down (what the server sends), or both.
 * What is said applies to the connections that there are and to later ones.
 *
 *	forward				all faults off, except that what was swallowed is lost:
 *						a connection that was swallowed goes on being so
 *	delay DIR MS		each byte arrives so much later
 *	rate DIR BYTES		at most so many bytes a second, with a small buffer; 0:
 *						no limit
 *	stall DIR			read nothing, so that the sender's buffers fill up
 *	swallow DIR			read and throw away; not even the end of the connection
 *						gets through (a half-open connection)
 *	cut DIR N [rst|fin]	the connection ends when N more bytes have passed: for
 *						each connection once, counted from now or from its
 *						start.  What has passed is delivered to the server, and
 *						(fin only) to the client.  cut DIR off
 *	once				the next cut that happens is the last: switches cutting
 *						off for all other connections
 *	rst | close			end all connections now, by RST or by FIN
 *	refuse				new connections are refused
 *	silent				new connections are taken, and nothing is read
 *	blackhole			new connections are not answered at all (SYN is dropped)
 *	accept				new connections work again; those that were taken
 *						silently stay as they are
 *	stats				connections=N open=N up=BYTES down=BYTES cuts=N, the
 *						bytes of all connections as they arrived here
 *	quit
 *
 *-------------------------------------------------------------------------
 */
#define _GNU_SOURCE

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "commands.h"

#define MAX_CONNECTIONS	256
#define CHUNK_BYTES		65536
#define QUEUE_BYTES		(8 * 1024 * 1024)	/* held back by a delay */
#define RATE_QUEUE_BYTES 16384	/* held back by a rate */
#define BLACKHOLE_FILLERS 8

/* Small and fixed, so that a stall is felt soon and in all kernels alike. */
#define RECEIVE_BUFFER	65536

enum
{
	UP, DOWN, DIRECTIONS
};

static const char *const direction_names[] = {"up", "down"};

/* What is on its way, in the order of arrival. */
struct chunk
{
	struct chunk *next;
	int64_t		due_us;
	size_t		start;
	size_t		end;
	char		data[];
};

struct flow
{
	struct chunk *head;
	struct chunk *tail;
	size_t		queued;
	bool		swallow;
	bool		got_end;		/* the sender has finished */
	bool		sent_end;		/* and the receiver knows */
	int64_t		cut_left;		/* bytes until the end; -1: no cut */
	double		tokens;			/* bytes that the rate allows now */
	int64_t		tokens_us;		/* when they were counted */
};

struct connection
{
	bool		used;
	bool		silent;
	bool		connecting;		/* to the server */
	bool		dying;			/* a cut happened: deliver, then end */
	bool		by_rst;
	int			fd[DIRECTIONS];	/* of the client and of the server */
	struct flow flow[DIRECTIONS];
};

static struct
{
	int64_t		delay_us;
	int64_t		rate;
	bool		stall;
	bool		swallow;
	int64_t		cut;			/* for connections to come; -1: none */
} fault[DIRECTIONS];

static enum
{
	ACCEPT, REFUSE, SILENT, BLACKHOLE
} door = ACCEPT;

static struct connection connections[MAX_CONNECTIONS];
static bool cut_by_rst;
static bool cut_once;
static int	listener = -1;
static int	fillers[BLACKHOLE_FILLERS];
static int	nfillers;
static int	port;
static int	to_port;
static uint64_t total_connections;
static uint64_t total_cuts;
static uint64_t total_bytes[DIRECTIONS];

static void
die(const char *what)
{
	fprintf(stderr, "tcp-proxy: %s: %s\n", what, strerror(errno));
	exit(1);
}

static int64_t
now_us(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (int64_t) now.tv_sec * 1000000 + now.tv_nsec / 1000;
}

static struct sockaddr_in
loopback(int number)
{
	struct sockaddr_in address;

	memset(&address, 0, sizeof(address));
	address.sin_family = AF_INET;
	address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	address.sin_port = htons(number);
	return address;
}

/* Before listen or connect, or the window is agreed on without it. */
static int
new_socket(void)
{
	int			fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	int			size = RECEIVE_BUFFER;

	if (fd < 0)
		die("socket");
	setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &size, sizeof(size));
	return fd;
}

/* ---------------------------------------------------------------- listening */

static void
start_listening(int backlog)
{
	struct sockaddr_in address = loopback(port);
	socklen_t	len = sizeof(address);
	int			on = 1;

	if (listener >= 0)
		return;
	listener = new_socket();
	setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
	if (bind(listener, (struct sockaddr *) &address, sizeof(address)) != 0)
		die("bind");
	if (listen(listener, backlog) != 0)
		die("listen");
	getsockname(listener, (struct sockaddr *) &address, &len);
	port = ntohs(address.sin_port);
}

static void
stop_listening(void)
{
	if (listener >= 0)
		close(listener);
	listener = -1;
	while (nfillers > 0)
		close(fillers[--nfillers]);
}

/* Fills the accept queue, so that the kernel drops any further SYN. */
static void
start_blackhole(void)
{
	struct sockaddr_in address = loopback(port);

	stop_listening();
	start_listening(0);
	address.sin_port = htons(port);
	while (nfillers < BLACKHOLE_FILLERS)
	{
		int			fd = new_socket();
		struct pollfd waiting = {.fd = fd,.events = POLLOUT};

		(void) connect(fd, (struct sockaddr *) &address, sizeof(address));
		fillers[nfillers++] = fd;
		if (poll(&waiting, 1, 50) == 0)
			break;				/* this one is not answered any more */
	}
}

static void
set_door(int state)
{
	if (state == BLACKHOLE)
		start_blackhole();
	else
	{
		if (state == REFUSE || door == BLACKHOLE)
			stop_listening();
		if (state != REFUSE)
			start_listening(64);
	}
	door = state;
}

/* -------------------------------------------------------------- connections */

static void
empty_flow(struct flow *flow)
{
	while (flow->head != NULL)
	{
		struct chunk *chunk = flow->head;

		flow->head = chunk->next;
		free(chunk);
	}
	flow->tail = NULL;
	flow->queued = 0;
}

static void
end_connection(struct connection *c, bool by_rst)
{
	struct linger linger = {1, 0};

	for (int side = 0; side < DIRECTIONS; side++)
	{
		if (c->fd[side] < 0)
			continue;
		if (by_rst)
			setsockopt(c->fd[side], SOL_SOCKET, SO_LINGER, &linger,
					   sizeof(linger));
		close(c->fd[side]);
		empty_flow(&c->flow[side]);
	}
	c->used = false;
}

static void
set_small(int fd)
{
	int			on = 1;

	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
}

static void
take_connection(void)
{
	struct sockaddr_in address = loopback(to_port);
	struct connection *c = NULL;
	int			fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);

	if (fd < 0)
		return;
	for (int i = 0; i < MAX_CONNECTIONS && c == NULL; i++)
		if (!connections[i].used)
			c = &connections[i];
	if (c == NULL)
	{
		close(fd);
		return;
	}
	memset(c, 0, sizeof(*c));
	c->used = true;
	c->fd[UP] = fd;
	c->fd[DOWN] = -1;
	total_connections++;
	set_small(fd);
	for (int d = 0; d < DIRECTIONS; d++)
	{
		c->flow[d].cut_left = fault[d].cut;
		c->flow[d].swallow = fault[d].swallow;
		c->flow[d].tokens_us = now_us();
	}
	if (door == SILENT)
	{
		c->silent = true;
		return;
	}
	c->fd[DOWN] = new_socket();
	set_small(c->fd[DOWN]);
	c->connecting = true;
	if (connect(c->fd[DOWN], (struct sockaddr *) &address, sizeof(address)) != 0 &&
		errno != EINPROGRESS)
		end_connection(c, true);
}

static void
finish_connecting(struct connection *c)
{
	int			error = 0;
	socklen_t	len = sizeof(error);

	getsockopt(c->fd[DOWN], SOL_SOCKET, SO_ERROR, &error, &len);
	c->connecting = false;
	if (error != 0)
		end_connection(c, true);
}

/* ------------------------------------------------------------------ forward */

static size_t
queue_limit(int d)
{
	return fault[d].rate > 0 && fault[d].delay_us == 0 ? RATE_QUEUE_BYTES :
		QUEUE_BYTES;
}

static bool
wants_input(const struct connection *c, int d)
{
	const struct flow *flow = &c->flow[d];

	if (c->silent || c->connecting || c->dying || flow->got_end)
		return false;
	if (flow->swallow)
		return true;
	return !fault[d].stall && flow->queued < queue_limit(d);
}

static void
cut_connection(struct connection *c)
{
	c->dying = true;
	c->by_rst = cut_by_rst;
	total_cuts++;
	if (!cut_once)
		return;
	for (int d = 0; d < DIRECTIONS; d++)
	{
		fault[d].cut = -1;
		for (int i = 0; i < MAX_CONNECTIONS; i++)
			connections[i].flow[d].cut_left = -1;
	}
	cut_once = false;
}

static void
take_input(struct connection *c, int d)
{
	struct flow *flow = &c->flow[d];
	struct chunk *chunk = malloc(sizeof(struct chunk) + CHUNK_BYTES);
	ssize_t		n;

	if (chunk == NULL)
		die("malloc");
	n = recv(c->fd[d], chunk->data, CHUNK_BYTES, 0);
	if (n <= 0)
	{
		free(chunk);
		if (n < 0 && (errno == EAGAIN || errno == EINTR))
			return;
		flow->got_end = true;
		if (flow->swallow)
			return;
		if (n < 0)
			end_connection(c, true);
		return;
	}
	total_bytes[d] += n;
	if (flow->swallow)
	{
		free(chunk);
		return;
	}
	if (flow->cut_left >= 0 && n >= flow->cut_left)
	{
		n = flow->cut_left;
		cut_connection(c);
	}
	else if (flow->cut_left >= 0)
		flow->cut_left -= n;
	chunk->next = NULL;
	chunk->due_us = now_us() + fault[d].delay_us;
	chunk->start = 0;
	chunk->end = n;
	if (flow->tail != NULL)
		flow->tail->next = chunk;
	else
		flow->head = chunk;
	flow->tail = chunk;
	flow->queued += n;
}

/* Bytes that may go now; *wait_us is lowered to when there will be more. */
static size_t
allowance(struct flow *flow, int d, int64_t now, int64_t *wait_us)
{
	struct chunk *chunk = flow->head;
	int64_t		most;

	if (chunk == NULL)
		return 0;
	if (chunk->due_us > now)
	{
		if (chunk->due_us - now < *wait_us)
			*wait_us = chunk->due_us - now;
		return 0;
	}
	most = chunk->end - chunk->start;
	if (fault[d].rate > 0)
	{
		/* a tenth of a second's worth at once */
		double		burst = fault[d].rate / 10.0 + 1;

		flow->tokens += (now - flow->tokens_us) * (double) fault[d].rate / 1e6;
		flow->tokens_us = now;
		if (flow->tokens > burst)
			flow->tokens = burst;
		if (flow->tokens < 1)
		{
			if (*wait_us > 10000)
				*wait_us = 10000;
			return 0;
		}
		if (most > (int64_t) flow->tokens)
			most = (int64_t) flow->tokens;
	}
	return most;
}

static void
drop_sent(struct flow *flow, size_t n)
{
	struct chunk *chunk = flow->head;

	flow->queued -= n;
	flow->tokens -= n;
	chunk->start += n;
	if (chunk->start < chunk->end)
		return;
	flow->head = chunk->next;
	if (flow->head == NULL)
		flow->tail = NULL;
	free(chunk);
}

/*
 * Sends on what is due.  Returns true when the receiver's buffer is full, and
 * one has to wait for it.
 */
static bool
send_output(struct connection *c, int d, int64_t now, int64_t *wait_us)
{
	struct flow *flow = &c->flow[d];
	int			fd = c->fd[!d];
	size_t		most;

	/* an empty chunk is what a cut leaves before its first byte */
	while (flow->head != NULL && flow->head->start == flow->head->end)
		drop_sent(flow, 0);
	while ((most = allowance(flow, d, now, wait_us)) > 0)
	{
		ssize_t		n = send(fd, flow->head->data + flow->head->start, most,
							 MSG_NOSIGNAL);

		if (n < 0)
		{
			if (errno == EAGAIN || errno == EINTR)
				return true;
			end_connection(c, true);
			return false;
		}
		drop_sent(flow, n);
		while (flow->head != NULL && flow->head->start == flow->head->end)
			drop_sent(flow, 0);
	}
	if (flow->head == NULL && flow->got_end && !flow->sent_end &&
		!flow->swallow && !fault[d].stall)
	{
		shutdown(fd, SHUT_WR);
		flow->sent_end = true;
	}
	return false;
}

/* After its last bytes, or when nobody is left. */
static void
bury(struct connection *c)
{
	if (c->dying && c->flow[UP].head == NULL && c->flow[DOWN].head == NULL)
		end_connection(c, c->by_rst);
	else if (c->flow[UP].got_end && c->flow[DOWN].got_end &&
			 ((c->flow[UP].sent_end && c->flow[DOWN].sent_end) ||
			  c->flow[UP].swallow || c->flow[DOWN].swallow))
		end_connection(c, false);
}

/* ----------------------------------------------------------------- commands */

static void
reply(const char *fmt,...)
{
	va_list		args;

	va_start(args, fmt);
	vprintf(fmt, args);
	va_end(args);
	putchar('\n');
	fflush(stdout);
}

static void
forward(void)
{
	for (int d = 0; d < DIRECTIONS; d++)
	{
		memset(&fault[d], 0, sizeof(fault[d]));
		fault[d].cut = -1;
		for (int i = 0; i < MAX_CONNECTIONS; i++)
			connections[i].flow[d].cut_left = -1;
	}
	cut_once = false;
	set_door(ACCEPT);
}

static void
swallow(int d)
{
	fault[d].swallow = true;
	for (int i = 0; i < MAX_CONNECTIONS; i++)
	{
		if (!connections[i].used)
			continue;
		connections[i].flow[d].swallow = true;
		empty_flow(&connections[i].flow[d]);
	}
}

static void
set_cut(int d, int64_t bytes)
{
	fault[d].cut = bytes;
	for (int i = 0; i < MAX_CONNECTIONS; i++)
		connections[i].flow[d].cut_left = bytes;
}

static void
end_all(bool by_rst)
{
	for (int i = 0; i < MAX_CONNECTIONS; i++)
		if (connections[i].used)
			end_connection(&connections[i], by_rst);
}

static void
show_stats(void)
{
	int			open = 0;

	for (int i = 0; i < MAX_CONNECTIONS; i++)
		open += connections[i].used;
	reply("ok connections=%llu open=%d up=%llu down=%llu cuts=%llu",
		  (unsigned long long) total_connections, open,
		  (unsigned long long) total_bytes[UP],
		  (unsigned long long) total_bytes[DOWN],
		  (unsigned long long) total_cuts);
}

/* Commands of one direction; false when there is no such one. */
static bool
set_fault(int d, const char *word, const char *value, const char *how)
{
	if (strcmp(word, "stall") == 0)
		fault[d].stall = true;
	else if (strcmp(word, "swallow") == 0)
		swallow(d);
	else if (value == NULL)
		return false;
	else if (strcmp(word, "delay") == 0)
		fault[d].delay_us = atoll(value) * 1000;
	else if (strcmp(word, "rate") == 0)
		fault[d].rate = atoll(value);
	else if (strcmp(word, "cut") == 0)
	{
		cut_by_rst = how != NULL && strcmp(how, "rst") == 0;
		set_cut(d, strcmp(value, "off") == 0 ? -1 : atoll(value));
	}
	else
		return false;
	return true;
}

static bool
run_directed(const char *word, const char *where, const char *value,
			 const char *how)
{
	bool		known = false;

	for (int d = 0; d < DIRECTIONS; d++)
		if (where != NULL && (strcmp(where, "both") == 0 ||
							  strcmp(where, direction_names[d]) == 0))
			known = set_fault(d, word, value, how);
	return known;
}

static void
run_command(char *line)
{
	char	   *save = NULL;
	char	   *word[4];

	for (int i = 0; i < 4; i++)
		word[i] = strtok_r(i == 0 ? line : NULL, " \r\n", &save);
	if (word[0] == NULL)
		reply("error empty line");
	else if (strcmp(word[0], "quit") == 0)
		exit(0);
	else if (strcmp(word[0], "stats") == 0)
		show_stats();
	else
	{
		if (strcmp(word[0], "forward") == 0)
			forward();
		else if (strcmp(word[0], "once") == 0)
			cut_once = true;
		else if (strcmp(word[0], "rst") == 0)
			end_all(true);
		else if (strcmp(word[0], "close") == 0)
			end_all(false);
		else if (strcmp(word[0], "refuse") == 0)
			set_door(REFUSE);
		else if (strcmp(word[0], "silent") == 0)
			set_door(SILENT);
		else if (strcmp(word[0], "blackhole") == 0)
			set_door(BLACKHOLE);
		else if (strcmp(word[0], "accept") == 0)
			set_door(ACCEPT);
		else if (!run_directed(word[0], word[1], word[2], word[3]))
		{
			reply("error no such command");
			return;
		}
		reply("ok");
	}
}

/* --------------------------------------------------------------------- loop */

/* One turn: sends what can be sent, and waits for whatever comes next. */
static void
turn(void)
{
	static struct pollfd polled[2 + 2 * MAX_CONNECTIONS];
	static struct connection *owner[2 + 2 * MAX_CONNECTIONS];
	int64_t		now = now_us();
	int64_t		wait_us = 200000;
	int			n = 0;

	polled[n++] = (struct pollfd) {.fd = STDIN_FILENO,.events = POLLIN};
	polled[n++] = (struct pollfd) {.fd = door == BLACKHOLE ? -1 : listener,.events = POLLIN};
	for (int i = 0; i < MAX_CONNECTIONS; i++)
	{
		struct connection *c = &connections[i];
		bool		full[DIRECTIONS] = {false, false};

		if (!c->used || c->silent)
			continue;
		if (!c->connecting)
		{
			for (int d = 0; d < DIRECTIONS && c->used; d++)
				if (!(fault[d].stall && !c->dying) && !c->flow[d].swallow)
					full[d] = send_output(c, d, now, &wait_us);
			if (c->used)
				bury(c);
			if (!c->used)
				continue;
		}
		for (int side = 0; side < DIRECTIONS; side++)
		{
			short		events = 0;

			if (wants_input(c, side))
				events |= POLLIN;
			if (full[!side] || (c->connecting && side == DOWN))
				events |= POLLOUT;
			if (events == 0)
				continue;		/* nor would we look at a hang-up */
			owner[n] = c;
			polled[n++] = (struct pollfd) {.fd = c->fd[side],.events = events};
		}
	}
	if (poll(polled, n, (int) ((wait_us + 999) / 1000)) <= 0)
		return;
	if (polled[0].revents != 0)
	{
		/* it may end connections, whose descriptors are then not to be read */
		read_commands(run_command);
		return;
	}
	for (int i = 2; i < n; i++)
	{
		struct connection *c = owner[i];

		if (polled[i].revents == 0 || !c->used)
			continue;
		if (c->connecting)
		{
			if (polled[i].fd == c->fd[DOWN])
				finish_connecting(c);
			continue;
		}
		for (int side = 0; side < DIRECTIONS; side++)
			if (c->used && polled[i].fd == c->fd[side] && wants_input(c, side) &&
				(polled[i].revents & (POLLIN | POLLHUP | POLLERR)))
				take_input(c, side);
	}
	if (polled[1].revents != 0 && listener >= 0)
		take_connection();
}

int
main(int argc, char **argv)
{
	static const struct option options[] = {
		{"to", required_argument, NULL, 't'},
		{"port", required_argument, NULL, 'p'},
		{"lifetime", required_argument, NULL, 'l'},
		{NULL, 0, NULL, 0}
	};
	int64_t		ends_us = now_us() + (int64_t) 900 * 1000000;
	pid_t		parent = getppid();
	int			option;

	while ((option = getopt_long(argc, argv, "", options, NULL)) != -1)
	{
		if (option == 't')
			to_port = atoi(optarg);
		else if (option == 'p')
			port = atoi(optarg);
		else if (option == 'l')
			ends_us = now_us() + (int64_t) (atof(optarg) * 1e6);
		else
			return 2;
	}
	if (to_port == 0 || optind < argc)
	{
		fprintf(stderr, "usage: tcp-proxy --to PORT [--port PORT] [--lifetime SECONDS]\n");
		return 2;
	}
	signal(SIGPIPE, SIG_IGN);
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	fcntl(STDIN_FILENO, F_SETFL, fcntl(STDIN_FILENO, F_GETFL) | O_NONBLOCK);
	forward();
	printf("ready %d\n", port);
	fflush(stdout);
	while (now_us() < ends_us && getppid() == parent)
		turn();
	return 0;
}
