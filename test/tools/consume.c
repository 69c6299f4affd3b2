/*-------------------------------------------------------------------------
 *
 * consume.c
 *		A consumer for tests and measurements: records what arrives.
 *
 * usage: consume --port PORT --queue NAME --out FILE [options]
 *
 *	--host, --user, --password, --vhost
 *						default 127.0.0.1, guest, guest, /
 *	--port PORT			may be given several times: the nodes of a cluster, which
 *						are tried in turn
 *	--exchange NAME		bind the queue to it; declared durable first, unless
 *						its name is empty or starts with "amq."
 *	--exchange-type T	default topic
 *	--key KEY			binding key, default #; may be given several times
 *	--queue-type T		classic (default) or quorum
 *	--transient			queue (and exchange) not durable, queue auto-delete
 *	--passive			declare and bind nothing, the queue exists
 *	--prefetch N		default 1000
 *	--ack-every N		acks for that many at once; default prefetch / 4
 *	--no-ack			let the broker forget a message when it is sent
 *	--body N			bytes of the body to record, default 64
 *	--id-header NAME	where the id is for want of a message_id: publishers that
 *						set no properties have it in a header
 *	--delay-us N		wait so long after each message: a slow consumer
 *	--count N			end after N different messages
 *	--idle MS			end when nothing has come for so long
 *	--deadline MS		end after so long in any case
 *	--reconnect			come back after a lost connection
 *	--heartbeat S		default 10
 *	--declare-only		end as soon as the queue is there
 *
 * SIGTERM and SIGINT end it, too.  "ready" is printed when the queue is bound
 * and the subscription confirmed: what is published afterwards will arrive.
 * The last line printed is
 *
 *	received N unique U repeated R redelivered D seconds S rate X reason WHY
 *
 * repeated: deliveries of a message_id that was there before; redelivered:
 * deliveries with the broker's flag (it has sent that copy before); reason:
 * count, idle, deadline, signal, or lost.  Exit status 0 for count, or for
 * idle, deadline and signal when no --count was given; 3 when --count was not
 * reached; 1 on an error.
 *
 * FILE gets one line a delivery, fields separated by tabs, before the message
 * is acknowledged: microseconds of the Unix epoch, redelivered (0 or 1),
 * message_id, type, routing key, header aggregate_type, header aggregate_id,
 * beginning of the body.  In the text fields control characters and backslashes
 * are written \xNN, and an absent property is \N.  The file is appended to.
 *
 *-------------------------------------------------------------------------
 */
#include "amqp_tool.h"

#include <errno.h>
#include <getopt.h>
#include <signal.h>
#include <sys/time.h>
#include <unistd.h>

#define MAX_KEYS 64
#define MAX_PORTS 16

static struct broker broker = BROKER_DEFAULT;
static int	ports[MAX_PORTS];
static int	nports;
static int	heartbeat_s = 10;
static const char *queue;
static const char *out_path;
static const char *exchange;
static const char *id_header;
static const char *exchange_type = "topic";
static const char *keys[MAX_KEYS];
static int	nkeys;
static const char *queue_type = "classic";
static bool transient;
static bool passive;
static bool no_ack;
static bool reconnect;
static bool declare_only;
static bool ready;				/* has had a subscription */
static int	prefetch = 1000;
static int	ack_every;
static int	body_bytes = 64;
static long delay_us;
static long want;
static long idle_ms;
static long deadline_ms;

static volatile sig_atomic_t stop;

static FILE *out;
static long received;
static long repeated;
static long redelivered;
static long unique;

/* wall clock, to be compared with the server's clock_timestamp() */
static int64_t
now_us(void)
{
	struct timeval tv;

	gettimeofday(&tv, NULL);
	return (int64_t) tv.tv_sec * 1000000 + tv.tv_usec;
}

/* a clock that only moves forward, for deadlines and rates */
static int64_t
ticks_ms(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (int64_t) ts.tv_sec * 1000 + ts.tv_nsec / 1000000;
}

static void
on_signal(int signo)
{
	(void) signo;
	stop = 1;
}

/*
 * Which ids have been seen: an open hash table of 128-bit digests.  Two
 * different ids with one digest do not happen.
 */
typedef struct
{
	uint64_t	a;
	uint64_t	b;
} Digest;

static Digest *seen;
static size_t seen_size;

static Digest
digest(const unsigned char *p, size_t len)
{
	Digest		d = {UINT64_C(14695981039346656037), UINT64_C(88172645463325252)};
	size_t		i;

	for (i = 0; i < len; i++)
	{
		d.a = (d.a ^ p[i]) * UINT64_C(1099511628211);
		d.b = (d.b + p[i]) * UINT64_C(6364136223846793005) + 1442695040888963407;
	}
	if (d.a == 0 && d.b == 0)
		d.a = 1;				/* all zeros means a free place */
	return d;
}

static bool
seen_place(Digest d, size_t *place)
{
	size_t		i = (size_t) (d.a ^ (d.b >> 17)) & (seen_size - 1);

	while (seen[i].a != 0 || seen[i].b != 0)
	{
		if (seen[i].a == d.a && seen[i].b == d.b)
			return true;
		i = (i + 1) & (seen_size - 1);
	}
	*place = i;
	return false;
}

/* Returns true if the id was not there before. */
static bool
seen_add(const unsigned char *p, size_t len)
{
	Digest		d = digest(p, len);
	size_t		place;

	if ((size_t) unique * 2 >= seen_size)
	{
		Digest	   *old = seen;
		size_t		old_size = seen_size;
		size_t		i;

		seen_size = seen_size == 0 ? 1 << 16 : seen_size * 2;
		seen = calloc(seen_size, sizeof(Digest));
		if (seen == NULL)
			die("out of memory");
		for (i = 0; i < old_size; i++)
		{
			if ((old[i].a != 0 || old[i].b != 0) && !seen_place(old[i], &place))
				seen[place] = old[i];
		}
		free(old);
	}
	if (seen_place(d, &place))
		return false;
	seen[place] = d;
	return true;
}

static void
put_text(const void *data, size_t len)
{
	const unsigned char *p = data;
	size_t		i;

	for (i = 0; i < len; i++)
	{
		if (p[i] < 0x20 || p[i] == '\\' || p[i] == 0x7f)
			fprintf(out, "\\x%02x", p[i]);
		else
			putc_unlocked(p[i], out);
	}
}

static void
put_field(bool present, amqp_bytes_t value)
{
	putc_unlocked('\t', out);
	if (present)
		put_text(value.bytes, value.len);
	else
		fputs("\\N", out);
}

/* A header that is a string. */
static bool
find_header(const amqp_basic_properties_t *props, const char *name,
			amqp_bytes_t *value)
{
	int			i;

	if (!(props->_flags & AMQP_BASIC_HEADERS_FLAG))
		return false;
	for (i = 0; i < props->headers.num_entries; i++)
	{
		const amqp_table_entry_t *e = &props->headers.entries[i];

		if (e->key.len == strlen(name) &&
			memcmp(e->key.bytes, name, e->key.len) == 0 &&
			e->value.kind == AMQP_FIELD_KIND_UTF8)
		{
			*value = e->value.value.bytes;
			return true;
		}
	}
	return false;
}

static void
put_header(const amqp_basic_properties_t *props, const char *name)
{
	amqp_bytes_t value = amqp_empty_bytes;
	bool		present = find_header(props, name, &value);

	put_field(present, value);
}

static bool
find_id(const amqp_basic_properties_t *props, amqp_bytes_t *id)
{
	if (props->_flags & AMQP_BASIC_MESSAGE_ID_FLAG)
	{
		*id = props->message_id;
		return true;
	}
	return id_header && find_header(props, id_header, id);
}

static void
record(const amqp_envelope_t *env)
{
	const amqp_basic_properties_t *props = &env->message.properties;
	amqp_bytes_t id = amqp_empty_bytes;
	bool		has_id = find_id(props, &id);
	size_t		len = env->message.body.len;

	received++;
	if (env->redelivered)
		redelivered++;
	if (!has_id)
		unique++;				/* nothing to recognise it by */
	else if (seen_add(id.bytes, id.len))
		unique++;
	else
		repeated++;

	fprintf(out, "%" PRId64 "\t%d", now_us(), env->redelivered ? 1 : 0);
	put_field(has_id, id);
	put_field((props->_flags & AMQP_BASIC_TYPE_FLAG) != 0, props->type);
	put_field(true, env->routing_key);
	put_header(props, "aggregate_type");
	put_header(props, "aggregate_id");
	putc_unlocked('\t', out);
	put_text(env->message.body.bytes,
			 len < (size_t) body_bytes ? len : (size_t) body_bytes);
	putc_unlocked('\n', out);
}

/* A refusal is final, unless the queue was there before. */
static bool
check(amqp_connection_state_t conn, const char *what)
{
	amqp_rpc_reply_t reply = amqp_get_rpc_reply(conn);

	if (reply.reply_type == AMQP_RESPONSE_NORMAL)
		return true;
	if (!reconnect || !ready)
		die("%s: %s", what, reply_text(reply));
	return false;
}

static bool
declare(amqp_connection_state_t conn)
{
	amqp_table_entry_t entry;
	amqp_table_t arguments = {1, &entry};
	int			i;

	entry.key = bytes("x-queue-type");
	entry.value.kind = AMQP_FIELD_KIND_UTF8;
	entry.value.value.bytes = bytes(queue_type);

	if (exchange != NULL && exchange[0] != '\0' &&
		strncmp(exchange, "amq.", 4) != 0)
	{
		amqp_exchange_declare(conn, 1, bytes(exchange), bytes(exchange_type),
							  0, !transient, 0, 0, amqp_empty_table);
		if (!check(conn, "exchange.declare"))
			return false;
	}
	amqp_queue_declare(conn, 1, bytes(queue), 0, !transient, 0, transient,
					   arguments);
	if (!check(conn, "queue.declare"))
		return false;
	if (exchange == NULL || exchange[0] == '\0')
		return true;
	for (i = 0; i < nkeys; i++)
	{
		amqp_queue_bind(conn, 1, bytes(queue), bytes(exchange), bytes(keys[i]),
						amqp_empty_table);
		if (!check(conn, "queue.bind"))
			return false;
	}
	return true;
}

static bool
subscribe(amqp_connection_state_t conn)
{
	amqp_basic_qos(conn, 1, 0, prefetch, 0);
	if (!check(conn, "basic.qos"))
		return false;
	amqp_basic_consume(conn, 1, bytes(queue), amqp_empty_bytes, 0, no_ack,
					   0, amqp_empty_table);
	return check(conn, "basic.consume");
}

/* The file has the lines before the broker may forget the messages. */
static bool
acknowledge(amqp_connection_state_t conn, uint64_t tag, int *unacked)
{
	if (fflush(out) != 0)
		die("could not write to %s: %s", out_path, strerror(errno));
	if (*unacked == 0)
		return true;
	*unacked = 0;
	return no_ack || amqp_basic_ack(conn, 1, tag, true) == AMQP_STATUS_OK;
}

/*
 * Receives until there is a reason to end.  Returns the reason, or NULL when
 * the connection is lost.
 */
static const char *
receive(amqp_connection_state_t conn, int64_t started, int64_t *last_ms)
{
	uint64_t	tag = 0;
	int			unacked = 0;

	for (;;)
	{
		struct timeval timeout = {0, unacked > 0 ? 2000 : 50000};
		amqp_envelope_t env;
		amqp_rpc_reply_t reply;
		const char *reason = NULL;

		amqp_maybe_release_buffers(conn);
		reply = amqp_consume_message(conn, &env, &timeout, 0);
		if (reply.reply_type == AMQP_RESPONSE_NORMAL)
		{
			record(&env);
			tag = env.delivery_tag;
			unacked++;
			amqp_destroy_envelope(&env);
			if (unacked >= ack_every && !acknowledge(conn, tag, &unacked))
				return NULL;
			if (delay_us > 0)
				usleep(delay_us);
			if (want > 0 && unique >= want)
				reason = "count";
			/* the clock costs as much as a message; look now and then */
			if (received % 256 != 0 && reason == NULL && !stop)
				continue;
			*last_ms = ticks_ms();
		}
		else if (reply.reply_type == AMQP_RESPONSE_LIBRARY_EXCEPTION &&
				 reply.library_error == AMQP_STATUS_TIMEOUT)
		{
			if (unacked > 0)
			{
				*last_ms = ticks_ms();
				if (!acknowledge(conn, tag, &unacked))
					return NULL;
			}
		}
		else if (reply.reply_type == AMQP_RESPONSE_LIBRARY_EXCEPTION &&
				 reply.library_error == AMQP_STATUS_UNEXPECTED_STATE)
		{
			/*
			 * Some other frame came.  Nothing is expected but channel.close,
			 * connection.close and basic.cancel (queue deleted): it is over.
			 */
			return NULL;
		}
		else
			return NULL;

		if (reason == NULL && stop)
			reason = "signal";
		if (reason == NULL && deadline_ms > 0 &&
			ticks_ms() - started >= deadline_ms)
			reason = "deadline";
		if (reason == NULL && idle_ms > 0 && ticks_ms() - *last_ms >= idle_ms)
			reason = "idle";
		if (reason != NULL)
		{
			acknowledge(conn, tag, &unacked);
			return reason;
		}
	}
}

static bool
time_is_over(int64_t started)
{
	return stop || (deadline_ms > 0 && ticks_ms() - started >= deadline_ms);
}

static void
say(const char *line)
{
	puts(line);
	fflush(stdout);
}

static const char *
run(int64_t started, int64_t *last_ms)
{
	int			turn = 0;

	for (;;)
	{
		const char *why = "";
		const char *reason = NULL;
		amqp_connection_state_t conn;

		broker.port = ports[turn++ % nports];
		conn = broker_open(&broker, heartbeat_s, &why);
		if (conn == NULL)
		{
			if (!reconnect)
				die("could not connect to port %d: %s", broker.port, why);
			goto retry;
		}
		if (!passive && !declare(conn))
			goto retry;
		if (declare_only)
		{
			amqp_connection_close(conn, AMQP_REPLY_SUCCESS);
			amqp_destroy_connection(conn);
			return "count";
		}
		if (!subscribe(conn))
			goto retry;
		if (!ready)
			say("ready");
		ready = true;
		turn--;					/* lost: this one again, then the next */
		reason = receive(conn, started, last_ms);
		if (reason != NULL)
		{
			amqp_connection_close(conn, AMQP_REPLY_SUCCESS);
			amqp_destroy_connection(conn);
			return reason;
		}
		amqp_destroy_connection(conn);
		if (!reconnect)
			return "lost";
		continue;

retry:
		if (conn != NULL)
			amqp_destroy_connection(conn);
		if (time_is_over(started))
			return stop ? "signal" : "deadline";
		usleep(50000);
	}
}

static void
parse(int argc, char **argv)
{
	static const struct option options[] = {
		{"host", required_argument, NULL, 'h'},
		{"port", required_argument, NULL, 'p'},
		{"user", required_argument, NULL, 'u'},
		{"password", required_argument, NULL, 'w'},
		{"vhost", required_argument, NULL, 'v'},
		{"queue", required_argument, NULL, 'q'},
		{"out", required_argument, NULL, 'o'},
		{"exchange", required_argument, NULL, 'e'},
		{"exchange-type", required_argument, NULL, 't'},
		{"key", required_argument, NULL, 'k'},
		{"queue-type", required_argument, NULL, 'T'},
		{"transient", no_argument, NULL, 1},
		{"passive", no_argument, NULL, 2},
		{"prefetch", required_argument, NULL, 3},
		{"ack-every", required_argument, NULL, 4},
		{"no-ack", no_argument, NULL, 5},
		{"body", required_argument, NULL, 6},
		{"delay-us", required_argument, NULL, 7},
		{"count", required_argument, NULL, 8},
		{"idle", required_argument, NULL, 9},
		{"deadline", required_argument, NULL, 10},
		{"reconnect", no_argument, NULL, 11},
		{"declare-only", no_argument, NULL, 12},
		{"id-header", required_argument, NULL, 14},
		{"heartbeat", required_argument, NULL, 13},
		{NULL, 0, NULL, 0}
	};
	int			c;
	int			i;

	while ((c = getopt_long(argc, argv, "", options, &i)) != -1)
	{
		switch (c)
		{
			case 'h': broker.host = optarg; break;
			case 'p':
				if (nports == MAX_PORTS)
					die("too many --port");
				ports[nports++] = (int) number("port", optarg, 1);
				break;
			case 'u': broker.user = optarg; break;
			case 'w': broker.password = optarg; break;
			case 'v': broker.vhost = optarg; break;
			case 'q': queue = optarg; break;
			case 'o': out_path = optarg; break;
			case 'e': exchange = optarg; break;
			case 't': exchange_type = optarg; break;
			case 'k':
				if (nkeys == MAX_KEYS)
					die("too many --key");
				keys[nkeys++] = optarg;
				break;
			case 'T': queue_type = optarg; break;
			case 1: transient = true; break;
			case 2: passive = true; break;
			case 3: prefetch = (int) number("prefetch", optarg, 1); break;
			case 4: ack_every = (int) number("ack-every", optarg, 1); break;
			case 5: no_ack = true; break;
			case 6: body_bytes = (int) number("body", optarg, 0); break;
			case 7: delay_us = number("delay-us", optarg, 0); break;
			case 8: want = number("count", optarg, 0); break;
			case 9: idle_ms = number("idle", optarg, 1); break;
			case 10: deadline_ms = number("deadline", optarg, 1); break;
			case 11: reconnect = true; break;
			case 12: declare_only = true; break;
			case 13: heartbeat_s = (int) number("heartbeat", optarg, 0); break;
			case 14: id_header = optarg; break;
			default: exit(1);
		}
	}
	if (queue == NULL || optind != argc)
		die("usage: %s --port PORT --queue NAME --out FILE [options]", progname);
	if (out_path == NULL && !declare_only)
		die("--out is missing");
	if (nports == 0)
		ports[nports++] = broker.port;
	if (nkeys == 0)
		keys[nkeys++] = "#";
	if (ack_every == 0)
		ack_every = prefetch >= 4 ? prefetch / 4 : 1;
}

int
main(int argc, char **argv)
{
	struct sigaction action = {.sa_handler = on_signal};
	int64_t		started = ticks_ms();
	int64_t		last_ms = started;
	const char *reason;
	double		seconds;

	progname = "consume";
	parse(argc, argv);
	sigaction(SIGTERM, &action, NULL);
	sigaction(SIGINT, &action, NULL);
	signal(SIGPIPE, SIG_IGN);
	if (out_path != NULL)
	{
		out = fopen(out_path, "a");
		if (out == NULL)
			die("could not open %s: %s", out_path, strerror(errno));
		setvbuf(out, NULL, _IOFBF, 1 << 18);
	}
	reason = run(started, &last_ms);
	if (out != NULL && fclose(out) != 0)
		die("could not write to %s: %s", out_path, strerror(errno));
	seconds = (double) (last_ms - started) / 1000;
	printf("received %ld unique %ld repeated %ld redelivered %ld seconds %.3f "
		   "rate %.0f reason %s\n", received, unique, repeated, redelivered,
		   seconds, seconds > 0 ? received / seconds : 0.0, reason);
	if (strcmp(reason, "lost") == 0)
		return 1;
	return want > 0 && unique < want && !declare_only ? 3 : 0;
}
