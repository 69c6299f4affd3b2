/*-------------------------------------------------------------------------
 *
 * raw.c
 *		The baseline RAW: a plain librabbitmq publisher with confirms.
 *
 * usage: raw --port PORT --exchange NAME --key KEY --count N [options]
 *
 *	--host, --user, --password, --vhost
 *					default 127.0.0.1, guest, guest, /
 *	--window N		unconfirmed messages at most, default 1000
 *	--size N		bytes of each body, default 256
 *	--mandatory		as the relay publishes; returned messages are counted
 *	--type TYPE		property type, default raw.test
 *	--bare			no properties but delivery_mode
 *	--ca-file FILE	TLS, with this certificate authority
 *	--rate N		open loop: message n is due at start + n / N
 *	--flush FILE	after each message its confirm is waited for, and a block
 *					written to FILE and brought to the disk, as WAL is
 *	--out FILE		with --rate, one line a message: number, due and sent time in
 *					microseconds of the Unix epoch
 *
 * One connection, one confirm channel, amqp_basic_publish for each message,
 * persistent, with the properties that the relay sets (message_id, type,
 * content_type, timestamp and two headers).  When the window is full it reads
 * confirms until there is room again.  Prints
 *
 *	published N seconds S rate X cpu_us U nacked A returned R window W size B
 *
 * where S runs from the first publish to the last confirm, and U is this
 * process's CPU time per message.  Exit status 0 if everything was confirmed.
 *
 *-------------------------------------------------------------------------
 */
#define _GNU_SOURCE			/* ppoll */
#include "amqp_tool.h"

#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <unistd.h>

static struct broker broker = BROKER_DEFAULT;
static const char *exchange = "";
static const char *key;
static long count;
static long window = 1000;
static long size = 256;
static bool mandatory;
static bool bare;
static const char *type = "raw.test";
static long rate;
static const char *out_path;
static const char *flush_path;

/* One bit per delivery tag: confirmed, one way or the other. */
static unsigned char *done;
static uint64_t all_done_below = 1; /* every tag below it is confirmed */
static long outstanding;
static long nacked;
static long returned;

static void
confirm(uint64_t tag, bool multiple, bool ack)
{
	uint64_t	first = multiple ? all_done_below : tag;
	uint64_t	t;

	for (t = first; t <= tag; t++)
	{
		if (t > (uint64_t) count || done[t])
			continue;
		done[t] = 1;
		outstanding--;
		if (!ack)
			nacked++;
	}
	while (all_done_below <= (uint64_t) count && done[all_done_below])
		all_done_below++;
}

/* Reads one frame, waiting at most so long; returns false if none came. */
static bool
read_frame(amqp_connection_state_t conn, struct timeval *timeout)
{
	amqp_frame_t frame;
	int			status = amqp_simple_wait_frame_noblock(conn, &frame, timeout);

	if (status == AMQP_STATUS_TIMEOUT)
		return false;
	if (status != AMQP_STATUS_OK)
		die("connection lost: %s", amqp_error_string2(status));
	if (frame.frame_type != AMQP_FRAME_METHOD)
		return true;			/* header and body of a returned message */
	switch (frame.payload.method.id)
	{
		case AMQP_BASIC_ACK_METHOD:
			{
				amqp_basic_ack_t *m = frame.payload.method.decoded;

				confirm(m->delivery_tag, m->multiple, true);
				break;
			}
		case AMQP_BASIC_NACK_METHOD:
			{
				amqp_basic_nack_t *m = frame.payload.method.decoded;

				confirm(m->delivery_tag, m->multiple, false);
				break;
			}
		case AMQP_BASIC_RETURN_METHOD:
			returned++;
			break;
		case AMQP_CHANNEL_CLOSE_METHOD:
			{
				amqp_channel_close_t *m = frame.payload.method.decoded;

				die("channel closed: %d %.*s", m->reply_code,
					(int) m->reply_text.len, (char *) m->reply_text.bytes);
			}
		case AMQP_CONNECTION_CLOSE_METHOD:
			die("connection closed by the broker");
		default:
			break;
	}
	return true;
}

static void
drain(amqp_connection_state_t conn, long limit)
{
	struct timeval none = {0, 0};
	struct timeval patience = {30, 0};

	while (outstanding > limit)
	{
		if (!read_frame(conn, &patience))
			die("no confirm for 30 s");
		/* whatever else is there already */
		while (read_frame(conn, &none))
			;
		amqp_maybe_release_buffers(conn);
	}
}

static int64_t
now_us(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_REALTIME, &ts);
	return (int64_t) ts.tv_sec * 1000000 + ts.tv_nsec / 1000;
}

/* Takes confirms until the time has come. */
static void
wait_until(amqp_connection_state_t conn, int64_t due)
{
	struct timeval none = {0, 0};
	int64_t		left;

	while ((left = due - now_us()) > 0)
	{
		struct pollfd fd = {amqp_get_sockfd(conn), POLLIN, 0};
		struct timespec timeout = {left / 1000000, left % 1000000 * 1000};

		if (ppoll(&fd, 1, &timeout, NULL) <= 0)
			continue;
		while (read_frame(conn, &none))
			;
		amqp_maybe_release_buffers(conn);
	}
}

static void
publish(amqp_connection_state_t conn, long n, amqp_bytes_t body)
{
	char		id[48];
	char		aggregate[24];
	amqp_table_entry_t entries[2];
	amqp_basic_properties_t props;
	int			status;

	memset(&props, 0, sizeof(props));
	props._flags = AMQP_BASIC_DELIVERY_MODE_FLAG;
	props.delivery_mode = 2;
	if (!bare)
	{
		snprintf(id, sizeof(id), "00000000-0000-7000-8000-%012lx", n);
		snprintf(aggregate, sizeof(aggregate), "%ld", n);
		entries[0].key = bytes("aggregate_type");
		entries[0].value.kind = AMQP_FIELD_KIND_UTF8;
		entries[0].value.value.bytes = bytes("raw");
		entries[1].key = bytes("aggregate_id");
		entries[1].value.kind = AMQP_FIELD_KIND_UTF8;
		entries[1].value.value.bytes = bytes(aggregate);
		props._flags |= AMQP_BASIC_MESSAGE_ID_FLAG | AMQP_BASIC_TYPE_FLAG |
			AMQP_BASIC_CONTENT_TYPE_FLAG | AMQP_BASIC_TIMESTAMP_FLAG |
			AMQP_BASIC_HEADERS_FLAG;
		props.message_id = bytes(id);
		props.type = bytes(type);
		props.content_type = bytes("application/json");
		props.timestamp = (uint64_t) time(NULL);
		props.headers.num_entries = 2;
		props.headers.entries = entries;
	}
	status = amqp_basic_publish(conn, 1, bytes(exchange), bytes(key),
								mandatory, 0, &props, body);
	if (status != AMQP_STATUS_OK)
		die("could not publish: %s", amqp_error_string2(status));
	outstanding++;
}

/* As a commit writes WAL: into a file that has its size, which is then synced. */
#define FLUSH_FILE_SIZE	(16 * 1024 * 1024)
static char flush_block[8192];

static int
open_flushed(void)
{
	int			fd = open(flush_path, O_RDWR | O_CREAT, 0600);
	off_t		at;

	for (at = 0; fd >= 0 && at < FLUSH_FILE_SIZE; at += (off_t) sizeof(flush_block))
	{
		if (pwrite(fd, flush_block, sizeof(flush_block), at) != (ssize_t) sizeof(flush_block))
			die("could not write to %s: %s", flush_path, strerror(errno));
	}
	if (fd < 0 || fsync(fd) != 0)
		die("could not make %s: %s", flush_path, strerror(errno));
	return fd;
}

static void
flush(int fd, long n)
{
	off_t		at = (off_t) ((uint64_t) n * sizeof(flush_block) % FLUSH_FILE_SIZE);

	if (pwrite(fd, flush_block, sizeof(flush_block), at) != (ssize_t) sizeof(flush_block) ||
		fdatasync(fd) != 0)
		die("could not write to %s: %s", flush_path, strerror(errno));
}

/* As fast as the window allows. */
static void
publish_all(amqp_connection_state_t conn, amqp_bytes_t body, int flushed)
{
	long		n;

	for (n = 1; n <= count; n++)
	{
		drain(conn, window - 1);
		publish(conn, n, body);
		if (flushed >= 0)
		{
			drain(conn, 0);
			flush(flushed, n);
		}
	}
	drain(conn, 0);
}

/* At times that are fixed in advance: the latency counts from when it was due. */
static void
publish_timed(amqp_connection_state_t conn, amqp_bytes_t body)
{
	int64_t    *sent = calloc((size_t) count + 1, sizeof(int64_t));
	int64_t		start = now_us() + 10000;
	FILE	   *out = NULL;
	long		n;

	if (sent == NULL)
		die("out of memory");
	if (out_path != NULL && (out = fopen(out_path, "w")) == NULL)
		die("could not open %s: %s", out_path, strerror(errno));
	prctl(PR_SET_TIMERSLACK, 1000UL);
	for (n = 1; n <= count; n++)
	{
		wait_until(conn, start + (int64_t) ((double) n * 1e6 / (double) rate));
		drain(conn, window - 1);
		sent[n] = now_us();
		publish(conn, n, body);
	}
	drain(conn, 0);
	for (n = 1; n <= count && out != NULL; n++)
		fprintf(out, "%ld\t%" PRId64 "\t%" PRId64 "\n", n,
				start + (int64_t) ((double) n * 1e6 / (double) rate), sent[n]);
	if (out != NULL && fclose(out) != 0)
		die("could not write to %s: %s", out_path, strerror(errno));
	free(sent);
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
		{"exchange", required_argument, NULL, 'e'},
		{"key", required_argument, NULL, 'k'},
		{"count", required_argument, NULL, 'c'},
		{"window", required_argument, NULL, 'W'},
		{"size", required_argument, NULL, 's'},
		{"type", required_argument, NULL, 't'},
		{"mandatory", no_argument, NULL, 'm'},
		{"bare", no_argument, NULL, 'b'},
		{"ca-file", required_argument, NULL, 'C'},
		{"rate", required_argument, NULL, 'r'},
		{"out", required_argument, NULL, 'o'},
		{"flush", required_argument, NULL, 'f'},
		{NULL, 0, NULL, 0}
	};
	int			c;

	while ((c = getopt_long(argc, argv, "", options, NULL)) != -1)
	{
		switch (c)
		{
			case 'h': broker.host = optarg; break;
			case 'p': broker.port = (int) number("port", optarg, 1); break;
			case 'u': broker.user = optarg; break;
			case 'w': broker.password = optarg; break;
			case 'v': broker.vhost = optarg; break;
			case 'e': exchange = optarg; break;
			case 'k': key = optarg; break;
			case 'c': count = number("count", optarg, 1); break;
			case 'W': window = number("window", optarg, 1); break;
			case 's': size = number("size", optarg, 0); break;
			case 't': type = optarg; break;
			case 'm': mandatory = true; break;
			case 'b': bare = true; break;
			case 'C': broker.ca_file = optarg; break;
			case 'r': rate = number("rate", optarg, 1); break;
			case 'o': out_path = optarg; break;
			case 'f': flush_path = optarg; break;
			default: exit(1);
		}
	}
	if (key == NULL || count == 0 || optind != argc)
		die("usage: %s --port PORT --exchange NAME --key KEY --count N [options]",
			progname);
}

static double
cpu_us(const struct rusage *usage)
{
	return (double) (usage->ru_utime.tv_sec + usage->ru_stime.tv_sec) * 1e6 +
		(double) (usage->ru_utime.tv_usec + usage->ru_stime.tv_usec);
}

int
main(int argc, char **argv)
{
	amqp_connection_state_t conn;
	const char *why = "";
	amqp_bytes_t body;
	struct timespec t0,
				t1;
	struct rusage before;
	struct rusage usage;
	double		seconds;
	double		cpu;
	int			flushed;

	progname = "raw";
	parse(argc, argv);
	signal(SIGPIPE, SIG_IGN);
	conn = broker_open(&broker, 0, &why);
	if (conn == NULL)
		die("could not connect: %s", why);
	amqp_confirm_select(conn, 1);
	if (amqp_get_rpc_reply(conn).reply_type != AMQP_RESPONSE_NORMAL)
		die("confirm.select: %s", reply_text(amqp_get_rpc_reply(conn)));

	done = calloc((size_t) count + 2, 1);
	body = amqp_bytes_malloc((size_t) (size > 0 ? size : 1));
	if (done == NULL || body.bytes == NULL)
		die("out of memory");
	body.len = (size_t) size;
	memset(body.bytes, 'x', body.len);
	flushed = flush_path != NULL ? open_flushed() : -1;

	clock_gettime(CLOCK_MONOTONIC, &t0);
	getrusage(RUSAGE_SELF, &before);
	if (rate > 0)
		publish_timed(conn, body);
	else
		publish_all(conn, body, flushed);
	clock_gettime(CLOCK_MONOTONIC, &t1);
	getrusage(RUSAGE_SELF, &usage);

	seconds = (double) (t1.tv_sec - t0.tv_sec) +
		(double) (t1.tv_nsec - t0.tv_nsec) / 1e9;
	cpu = cpu_us(&usage) - cpu_us(&before);
	printf("published %ld seconds %.3f rate %.0f cpu_us %.2f nacked %ld "
		   "returned %ld window %ld size %ld\n", count, seconds,
		   count / seconds, cpu / count, nacked, returned, window, size);

	amqp_connection_close(conn, AMQP_REPLY_SUCCESS);
	amqp_destroy_connection(conn);
	amqp_bytes_free(body);
	if (flushed >= 0)
		close(flushed);
	free(done);
	return nacked == 0 ? 0 : 1;
}
