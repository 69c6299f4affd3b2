/*-------------------------------------------------------------------------
 *
 * openloop.c
 *		Enqueues at times that are fixed in advance, whatever the server does.
 *
 * usage: openloop --conninfo TEXT --sql TEXT --rate N --seconds N [options]
 *
 *	--connections N		default 8
 *	--first N			number of the first message, default 1
 *	--keys N			keys, taken in turn; default 0: each message its own
 *	--size N			bytes of each body, at least; default 256
 *	--out FILE			one line a message: number, then intended, sent, and
 *						committed time in microseconds of the Unix epoch
 *
 * The statement is prepared on every connection with two parameters, the body
 * (JSON text) and the key, and executed in a transaction of its own for each
 * message.  Message i is due at start + i / rate.  When it is due and no
 * connection is free it waits, and its latency counts from when it was due: a
 * slow server makes long latencies, not fewer messages (no coordinated
 * omission).  Prints
 *
 *	sent N failed F seconds S rate X late L
 *
 * S from the first due time to the last commit; L messages were sent more than
 * 1 ms after they were due.  SIGTERM ends it early, after what is under way.
 * Exit status 0 if all that was sent was committed.
 *
 *-------------------------------------------------------------------------
 */
#define _GNU_SOURCE
#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <libpq-fe.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <time.h>

#define MAX_CONNECTIONS 64

typedef struct Message
{
	int64_t		due;			/* microseconds of the Unix epoch */
	int64_t		sent;
	int64_t		committed;		/* 0: failed or never sent */
} Message;

static const char *conninfo;
static const char *sql;
static const char *out_path;
static long rate;
static long seconds;
static long nconns = 8;
static long first = 1;
static long keys;
static long size = 256;

static PGconn *conns[MAX_CONNECTIONS];
static long current[MAX_CONNECTIONS];	/* message under way, or -1 */
static Message *messages;
static char *body;
static long failed;
static volatile sig_atomic_t stop;

__attribute__((format(printf, 1, 2), noreturn))
static void
die(const char *format,...)
{
	va_list		args;

	fputs("openloop: ", stderr);
	va_start(args, format);
	vfprintf(stderr, format, args);
	va_end(args);
	fputc('\n', stderr);
	exit(1);
}

static void
on_signal(int signo)
{
	(void) signo;
	stop = 1;
}

static int64_t
now_us(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_REALTIME, &ts);
	return (int64_t) ts.tv_sec * 1000000 + ts.tv_nsec / 1000;
}

static void
open_connections(void)
{
	long		i;

	for (i = 0; i < nconns; i++)
	{
		PGresult   *result;

		conns[i] = PQconnectdb(conninfo);
		if (PQstatus(conns[i]) != CONNECTION_OK)
			die("%s", PQerrorMessage(conns[i]));
		result = PQprepare(conns[i], "m", sql, 2, NULL);
		if (PQresultStatus(result) != PGRES_COMMAND_OK)
			die("%s", PQerrorMessage(conns[i]));
		PQclear(result);
		current[i] = -1;
	}
}

/* {"k": KEY, "n": NUMBER, "pad": "xxx..."} */
static void
make_body(long key, long number)
{
	int			len = snprintf(body, (size_t) size + 96,
							   "{\"k\": %ld, \"n\": %ld, \"pad\": \"", key, number);

	while (len < size - 2)
		body[len++] = 'x';
	memcpy(body + len, "\"}", 3);
}

static void
send_message(long conn, long i)
{
	char		key_text[24];
	const char *values[2] = {body, key_text};
	long		number = first + i;
	long		key = keys > 0 ? number % keys : number;

	make_body(key, number);
	snprintf(key_text, sizeof(key_text), "%ld", key);
	messages[i].sent = now_us();
	if (!PQsendQueryPrepared(conns[conn], "m", 2, values, NULL, NULL, 0))
		die("%s", PQerrorMessage(conns[conn]));
	current[conn] = i;
}

static void
take_result(long conn)
{
	PGresult   *result;
	bool		ok = true;

	if (!PQconsumeInput(conns[conn]))
		die("%s", PQerrorMessage(conns[conn]));
	while (!PQisBusy(conns[conn]))
	{
		result = PQgetResult(conns[conn]);
		if (result == NULL)
		{
			if (ok)
				messages[current[conn]].committed = now_us();
			current[conn] = -1;
			return;
		}
		if (PQresultStatus(result) != PGRES_TUPLES_OK &&
			PQresultStatus(result) != PGRES_COMMAND_OK)
		{
			if (failed++ == 0)
				fprintf(stderr, "openloop: %s", PQresultErrorMessage(result));
			ok = false;
		}
		PQclear(result);
	}
}

/* Returns when an answer may have come or the time is over. */
static void
wait_until(int64_t due)
{
	struct pollfd fds[MAX_CONNECTIONS];
	struct timespec timeout = {1, 0};
	long		i;

	if (due > 0)
	{
		int64_t		left = due - now_us();

		if (left < 0)
			left = 0;
		if (left < 1000000)
			timeout = (struct timespec) {0, left * 1000};
	}
	for (i = 0; i < nconns; i++)
		fds[i] = (struct pollfd) {PQsocket(conns[i]),
			current[i] >= 0 ? POLLIN : 0, 0};
	if (ppoll(fds, (nfds_t) nconns, &timeout, NULL) <= 0)
		return;
	for (i = 0; i < nconns; i++)
	{
		if (fds[i].revents != 0 && current[i] >= 0)
			take_result(i);
	}
}

static long
free_connection(void)
{
	long		i;

	for (i = 0; i < nconns; i++)
	{
		if (current[i] < 0)
			return i;
	}
	return -1;
}

static bool
all_free(void)
{
	long		i;

	for (i = 0; i < nconns; i++)
	{
		if (current[i] >= 0)
			return false;
	}
	return true;
}

/* Returns how many were sent. */
static long
run(long count)
{
	int64_t		start = now_us() + 10000;
	long		next = 0;
	long		i;

	for (i = 0; i < count; i++)
		messages[i].due = start + (int64_t) ((double) i * 1e6 / (double) rate);
	while (next < count && !stop)
	{
		long		conn = free_connection();

		if (conn >= 0 && messages[next].due <= now_us())
			send_message(conn, next++);
		else
			wait_until(conn >= 0 ? messages[next].due : 0);
	}
	while (!all_free())
		wait_until(0);
	return next;
}

static void
write_out(long sent)
{
	FILE	   *out = fopen(out_path, "w");
	long		i;

	if (out == NULL)
		die("could not open %s: %s", out_path, strerror(errno));
	for (i = 0; i < sent; i++)
		fprintf(out, "%ld\t%" PRId64 "\t%" PRId64 "\t%" PRId64 "\n", first + i,
				messages[i].due, messages[i].sent, messages[i].committed);
	if (fclose(out) != 0)
		die("could not write to %s: %s", out_path, strerror(errno));
}

static void
report(long sent)
{
	int64_t		last_us = 0;
	long		late = 0;
	long		i;
	double		s;

	for (i = 0; i < sent; i++)
	{
		if (messages[i].committed > last_us)
			last_us = messages[i].committed;
		if (messages[i].sent - messages[i].due > 1000)
			late++;
	}
	s = sent > 0 && last_us > 0 ? (double) (last_us - messages[0].due) / 1e6 : 0;
	printf("sent %ld failed %ld seconds %.3f rate %.0f late %ld\n",
		   sent, failed, s, s > 0 ? (double) sent / s : 0.0, late);
}

static long
number(const char *name, const char *text, long min)
{
	char	   *end;
	long		value = strtol(text, &end, 10);

	if (*text == '\0' || *end != '\0' || value < min)
		die("--%s: bad number \"%s\"", name, text);
	return value;
}

static void
parse(int argc, char **argv)
{
	static const struct option options[] = {
		{"conninfo", required_argument, NULL, 'd'},
		{"sql", required_argument, NULL, 'q'},
		{"rate", required_argument, NULL, 'r'},
		{"seconds", required_argument, NULL, 's'},
		{"connections", required_argument, NULL, 'c'},
		{"first", required_argument, NULL, 'f'},
		{"keys", required_argument, NULL, 'k'},
		{"size", required_argument, NULL, 'b'},
		{"out", required_argument, NULL, 'o'},
		{NULL, 0, NULL, 0}
	};
	int			c;

	while ((c = getopt_long(argc, argv, "", options, NULL)) != -1)
	{
		switch (c)
		{
			case 'd': conninfo = optarg; break;
			case 'q': sql = optarg; break;
			case 'r': rate = number("rate", optarg, 1); break;
			case 's': seconds = number("seconds", optarg, 1); break;
			case 'c': nconns = number("connections", optarg, 1); break;
			case 'f': first = number("first", optarg, 1); break;
			case 'k': keys = number("keys", optarg, 0); break;
			case 'b': size = number("size", optarg, 0); break;
			case 'o': out_path = optarg; break;
			default: exit(1);
		}
	}
	if (conninfo == NULL || sql == NULL || rate == 0 || seconds == 0 ||
		nconns > MAX_CONNECTIONS || optind != argc)
		die("usage: openloop --conninfo TEXT --sql TEXT --rate N --seconds N [options]");
}

int
main(int argc, char **argv)
{
	struct sigaction action = {.sa_handler = on_signal};
	long		count;
	long		sent;
	long		i;

	parse(argc, argv);
	sigaction(SIGTERM, &action, NULL);
	sigaction(SIGINT, &action, NULL);
	/* the kernel may be late by 50 us otherwise */
	prctl(PR_SET_TIMERSLACK, 1000UL);
	count = rate * seconds;
	messages = calloc((size_t) count, sizeof(Message));
	body = malloc((size_t) size + 96);
	if (messages == NULL || body == NULL)
		die("out of memory");
	open_connections();
	sent = run(count);
	report(sent);
	if (out_path != NULL)
		write_out(sent);
	for (i = 0; i < nconns; i++)
		PQfinish(conns[i]);
	return failed == 0 ? 0 : 1;
}
