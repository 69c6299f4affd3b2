/*-------------------------------------------------------------------------
 *
 * poll.c
 *		The baselines POLL, a tuned relay outside of the server, and SEED, the
 *		loop of most tutorials.
 *
 * usage: poll --conninfo TEXT --table NAME --port PORT --exchange NAME [options]
 *
 *	--batch N		rows claimed at once, default 500
 *	--interval MS	wait when there was less than a batch, default 100
 *	--count N		end after N messages; default 0: SIGTERM ends it
 *	--seed			SEED instead of POLL
 *
 * The usual loop: claim a batch by UPDATE with SKIP LOCKED, publish it
 * (persistent, mandatory, on one confirm channel), wait for the confirms, mark
 * it as published by UPDATE.  The statements are prepared, and the session runs
 * with synchronous_commit = off, as what a crash of the server takes back here
 * is only published again.  The table is made by LIKE outbox with the same
 * indexes and without triggers; its status may also be processing and
 * published.
 *
 * SEED: one transaction a message, which locks the oldest row by SELECT with SKIP
 * LOCKED, publishes it, waits for its confirm, marks it by UPDATE and commits; a
 * second's sleep when there is none, and settings as the server has them.
 *
 * "ready" is printed when both connections are open, and at the end
 *
 *	published N seconds S rate X cpu_us U returned R
 *
 * S from the first claim that found something to the last settling; U is the CPU
 * time of this process a message, the server's is extra.
 *
 *-------------------------------------------------------------------------
 */
#include "../tools/amqp_tool.h"

#include <getopt.h>
#include <libpq-fe.h>
#include <poll.h>
#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

static struct broker broker = BROKER_DEFAULT;
static const char *conninfo;
static const char *table;
static const char *exchange = "";
static long batch = 500;
static long interval_ms = 100;
static long want;
static bool seed;

static PGconn *db;
static amqp_connection_state_t conn;
static uint64_t last_tag;		/* published last */
static uint64_t low_tag = 1;	/* all below are confirmed */
static bool *done;				/* of the current batch, by tag % batch */
static long outstanding;
static long returned;
static volatile sig_atomic_t stop;

static void
on_signal(int signo)
{
	(void) signo;
	stop = 1;
}

static double
ticks(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (double) ts.tv_sec + (double) ts.tv_nsec / 1e9;
}

static PGresult *
checked(PGresult *result, ExecStatusType expected)
{
	if (PQresultStatus(result) != expected)
		die("%s", PQerrorMessage(db));
	return result;
}

static void
open_database(void)
{
	char		text[1024];

	db = PQconnectdb(conninfo);
	if (PQstatus(db) != CONNECTION_OK)
		die("%s", PQerrorMessage(db));
	if (!seed)
		PQclear(checked(PQexec(db, "SET synchronous_commit = off"), PGRES_COMMAND_OK));
	snprintf(text, sizeof(text), seed ?
			 "SELECT id, event_type, aggregate_type, aggregate_id, payload "
			 "FROM %s WHERE status = 'pending' AND available_at IS NULL "
			 "ORDER BY seq LIMIT 1 FOR UPDATE SKIP LOCKED" :
			 "WITH c AS (UPDATE %s SET status = 'processing' WHERE seq = ANY (ARRAY("
			 "SELECT seq FROM %s WHERE status = 'pending' AND available_at IS NULL "
			 "ORDER BY seq LIMIT %ld FOR UPDATE SKIP LOCKED)) "
			 "AND status = 'pending' AND available_at IS NULL "
			 "RETURNING seq, id, event_type, aggregate_type, aggregate_id, payload) "
			 "SELECT id, event_type, aggregate_type, aggregate_id, payload "
			 "FROM c ORDER BY seq", table, table, batch);
	PQclear(checked(PQprepare(db, "claim", text, 0, NULL), PGRES_COMMAND_OK));
	snprintf(text, sizeof(text),
			 "UPDATE %s SET status = 'published' WHERE id = ANY ($1::uuid[])", table);
	PQclear(checked(PQprepare(db, "settle", text, 0, NULL), PGRES_COMMAND_OK));
}

static void
open_broker(void)
{
	const char *why = "";

	conn = broker_open(&broker, 0, &why);
	if (conn == NULL)
		die("could not connect: %s", why);
	amqp_confirm_select(conn, 1);
	if (amqp_get_rpc_reply(conn).reply_type != AMQP_RESPONSE_NORMAL)
		die("confirm.select: %s", reply_text(amqp_get_rpc_reply(conn)));
}

static amqp_bytes_t
field(const PGresult *rows, int row, int column)
{
	return (amqp_bytes_t) {(size_t) PQgetlength(rows, row, column),
		PQgetvalue(rows, row, column)};
}

static void
publish(const PGresult *rows, int row)
{
	amqp_table_entry_t entries[2];
	amqp_basic_properties_t props = {0};
	int			status;

	entries[0].key = bytes("aggregate_type");
	entries[0].value.kind = AMQP_FIELD_KIND_UTF8;
	entries[0].value.value.bytes = field(rows, row, 2);
	entries[1].key = bytes("aggregate_id");
	entries[1].value.kind = AMQP_FIELD_KIND_UTF8;
	entries[1].value.value.bytes = field(rows, row, 3);
	props._flags = AMQP_BASIC_DELIVERY_MODE_FLAG | AMQP_BASIC_MESSAGE_ID_FLAG |
		AMQP_BASIC_TYPE_FLAG | AMQP_BASIC_CONTENT_TYPE_FLAG |
		AMQP_BASIC_TIMESTAMP_FLAG | AMQP_BASIC_HEADERS_FLAG;
	props.delivery_mode = 2;
	props.message_id = field(rows, row, 0);
	props.type = field(rows, row, 1);
	props.content_type = bytes("application/json");
	props.timestamp = (uint64_t) time(NULL);
	props.headers.num_entries = 2;
	props.headers.entries = entries;
	status = amqp_basic_publish(conn, 1, bytes(exchange), props.type, true, 0,
								&props, field(rows, row, 4));
	if (status != AMQP_STATUS_OK)
		die("could not publish: %s", amqp_error_string2(status));
	last_tag++;
}

static void
confirm(uint64_t tag, bool multiple)
{
	uint64_t	t;

	for (t = multiple ? low_tag : tag; t <= tag; t++)
	{
		if (!done[t % (uint64_t) batch])
			outstanding--;
		done[t % (uint64_t) batch] = true;
	}
	while (low_tag <= last_tag && done[low_tag % (uint64_t) batch])
		low_tag++;
}

static void
take_frame(void)
{
	amqp_frame_t frame;
	struct timeval patience = {30, 0};
	int			status = amqp_simple_wait_frame_noblock(conn, &frame, &patience);

	if (status != AMQP_STATUS_OK)
		die("no confirm: %s", amqp_error_string2(status));
	if (frame.frame_type != AMQP_FRAME_METHOD)
		return;
	switch (frame.payload.method.id)
	{
		case AMQP_BASIC_ACK_METHOD:
			{
				amqp_basic_ack_t *m = frame.payload.method.decoded;

				confirm(m->delivery_tag, m->multiple);
				break;
			}
		case AMQP_BASIC_RETURN_METHOD:
			returned++;
			break;
		case AMQP_BASIC_NACK_METHOD:
			die("nacked");
		case AMQP_CHANNEL_CLOSE_METHOD:
		case AMQP_CONNECTION_CLOSE_METHOD:
			die("closed by the broker");
		default:
			break;
	}
}

static void
settle(const PGresult *rows)
{
	int			n = PQntuples(rows);
	char	   *ids = malloc((size_t) n * 37 + 3);
	const char *values[1] = {ids};
	size_t		len = 0;
	int			i;

	if (ids == NULL)
		die("out of memory");
	for (i = 0; i < n; i++)
	{
		ids[len++] = i == 0 ? '{' : ',';
		memcpy(ids + len, PQgetvalue(rows, i, 0), 36);
		len += 36;
	}
	memcpy(ids + len, "}", 2);
	PQclear(checked(PQexecPrepared(db, "settle", 1, values, NULL, NULL, 0),
					PGRES_COMMAND_OK));
	free(ids);
}

/* Returns how many messages there were. */
static int
run_batch(void)
{
	PGresult   *rows;
	int			n;
	int			i;

	if (seed)
		PQclear(checked(PQexec(db, "BEGIN"), PGRES_COMMAND_OK));
	rows = checked(PQexecPrepared(db, "claim", 0, NULL, NULL, NULL, 0), PGRES_TUPLES_OK);
	n = PQntuples(rows);

	memset(done, 0, (size_t) batch * sizeof(bool));
	outstanding = n;
	for (i = 0; i < n; i++)
		publish(rows, i);
	while (outstanding > 0)
	{
		take_frame();
		amqp_maybe_release_buffers(conn);
	}
	if (n > 0)
		settle(rows);
	if (seed)
		PQclear(checked(PQexec(db, "COMMIT"), PGRES_COMMAND_OK));
	PQclear(rows);
	return n;
}

static void
parse(int argc, char **argv)
{
	static const struct option options[] = {
		{"conninfo", required_argument, NULL, 'd'},
		{"table", required_argument, NULL, 't'},
		{"port", required_argument, NULL, 'p'},
		{"exchange", required_argument, NULL, 'e'},
		{"batch", required_argument, NULL, 'b'},
		{"interval", required_argument, NULL, 'i'},
		{"count", required_argument, NULL, 'c'},
		{"seed", no_argument, NULL, 's'},
		{NULL, 0, NULL, 0}
	};
	int			c;

	while ((c = getopt_long(argc, argv, "", options, NULL)) != -1)
	{
		switch (c)
		{
			case 'd': conninfo = optarg; break;
			case 't': table = optarg; break;
			case 'p': broker.port = (int) number("port", optarg, 1); break;
			case 'e': exchange = optarg; break;
			case 'b': batch = number("batch", optarg, 1); break;
			case 'i': interval_ms = number("interval", optarg, 1); break;
			case 'c': want = number("count", optarg, 0); break;
			case 's': seed = true; batch = 1; interval_ms = 1000; break;
			default: exit(1);
		}
	}
	if (conninfo == NULL || table == NULL || optind != argc)
		die("usage: %s --conninfo TEXT --table NAME --port PORT --exchange NAME [options]",
			progname);
}

int
main(int argc, char **argv)
{
	struct sigaction action = {.sa_handler = on_signal};
	double		first = 0;
	double		last = 0;
	double		cpu;
	long		published = 0;
	struct rusage usage;

	progname = "poll";
	parse(argc, argv);
	sigaction(SIGTERM, &action, NULL);
	sigaction(SIGINT, &action, NULL);
	signal(SIGPIPE, SIG_IGN);
	done = calloc((size_t) batch, sizeof(bool));
	if (done == NULL)
		die("out of memory");
	open_database();
	open_broker();
	puts("ready");
	fflush(stdout);
	while (!stop && (want == 0 || published < want))
	{
		double		start = ticks();
		int			n = run_batch();

		if (n > 0)
		{
			if (published == 0)
				first = start;
			last = ticks();
			published += n;
		}
		if (n < batch && (want == 0 || published < want))
			poll(NULL, 0, (int) interval_ms);
	}
	getrusage(RUSAGE_SELF, &usage);
	cpu = (double) (usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) * 1e6 +
		(double) (usage.ru_utime.tv_usec + usage.ru_stime.tv_usec);
	printf("published %ld seconds %.3f rate %.0f cpu_us %.2f returned %ld\n",
		   published, last - first,
		   last > first ? (double) published / (last - first) : 0.0,
		   published > 0 ? cpu / (double) published : 0.0, returned);
	amqp_connection_close(conn, AMQP_REPLY_SUCCESS);
	amqp_destroy_connection(conn);
	PQfinish(db);
	return returned == 0 ? 0 : 1;
}
