/*-------------------------------------------------------------------------
 *
 * fuzz_link.c
 *		The link, as it is, with a broker that says anything.
 *
 * Three bytes of the input say how (TLS, in which pieces, how it ends, what the
 * worker does meanwhile), the rest is what the broker sends, from the first byte of
 * the connection on.  Whatever that is: no report of a sanitizer, no call that
 * throws or returns nothing, nothing that is not printable in a text, nothing left
 * behind; and afterwards the same link connects to a good broker and publishes.
 *
 * mutate.c changes inputs frame by frame.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "mb/pg_wchar.h"
#include "utils/memutils.h"

#include "broker_internal.h"
#include "confirms.h"
#include "fuzz.h"
#include "hostile.h"
#include "pg.h"
#include "watchdog.h"

#define WINDOW		64
#define LARGE_BODY	300000
#define STEPS		24
#define ANSWERS_LEAST 64		/* turns that wait for an answer */

static int	port;
static OutboxConfirms window;
static void *ring[WINDOW];
static bool breach;				/* the relay would drop the connection */
static int	nconfirmed;
static int	nreturned;
static OutboxLink *the_link;
static char large[LARGE_BODY];

/* ------------------------------------------------------------------- checks */

/* What goes into views and the log. */
static void
check_text(const char *what, const char *text, size_t size)
{
	size_t		len = strnlen(text, size);

	fuzz_check(len < size, "%s: no end", what);
	for (size_t i = 0; i < len;)
	{
		const unsigned char *at = (const unsigned char *) text + i;
		int			clen = pg_utf_mblen(at);

		fuzz_check(*at >= 0x20 && *at != 0x7f &&
				   !(at[0] == 0xc2 && at[1] < 0xa0), "%s: a control character", what);
		fuzz_check(i + clen <= len && pg_utf8_islegal(at, clen),
				   "%s: not UTF-8", what);
		i += clen;
	}
}

static void
check_link(OutboxLink *link, OutboxLinkStatus status)
{
	OutboxLinkState state = outbox_link_state(link);

	check_text("error", link->error.text, sizeof(link->error.text));
	check_text("blocked", link->blocked_reason, sizeof(link->blocked_reason));
	check_text("tried", link->try_text, sizeof(link->try_text));
	if (status == OUTBOX_LINK_LOST)
		fuzz_check(state == OUTBOX_LINK_CLOSED, "lost, but %d", state);
	if (state == OUTBOX_LINK_CLOSED)
	{
		fuzz_check(link->conn == NULL && link->fd == -1 && !link->guarded &&
				   fuzz_external_fds == 0, "closed, but something is open");
		fuzz_check(outbox_link_socket(link) == PGINVALID_SOCKET, "closed with a socket");
	}
	if (status == OUTBOX_LINK_LOST)
		fuzz_check(link->error.text[0] != '\0' &&
				   link->error.kind != OUTBOX_LINK_ERR_NONE, "lost without a reason");
}

/* ------------------------------------------------------------------- events */

static void
settled(void *item, uint64_t tag, void *arg)
{
	nconfirmed++;
}

/* As relay_answers.c does. */
static void
confirmed(void *arg, bool ack, uint64 tag, bool multiple)
{
	if (breach)
		return;
	if (outbox_link_sending(the_link) && (tag == 0 || tag + 1 == window.next))
		breach = true;
	else if (!outbox_confirms_answer(&window, tag, multiple, settled, NULL))
		breach = true;
}

static void
returned(void *arg, const pg_uuid_t *id, const char *text)
{
	check_text("returned", text, sizeof(the_link->return_text));
	nreturned++;
}

static void
declared(void *arg, int code, const char *text)
{
	if (text != NULL)
		check_text("declared", text, 256);
}

/* ------------------------------------------------------------------ the worker */

static void
make_message(OutboxMessage *message, int number, bool is_large)
{
	memset(message, 0, sizeof(*message));
	memset(message->id.data, number, UUID_LEN);
	message->route = "default";
	message->event_type = "order.created";
	message->aggregate_type = "order";
	message->aggregate_id = "42";
	message->attempts = number & 1;
	message->body = is_large ? large : "{}";
	message->body_len = is_large ? LARGE_BODY : 2;
	message->size = sizeof(*message) + message->body_len;
}

static OutboxLinkStatus
publish(OutboxLink *link, int n, bool with_large)
{
	static OutboxMessage message;	/* a rest is sent later */
	OutboxLinkStatus status = outbox_link_burst_begin(link);

	for (int i = 0; i < n && status == OUTBOX_LINK_OK; i++)
	{
		if (outbox_confirms_full(&window))
			break;
		make_message(&message, i, with_large && i == n - 1);
		status = outbox_link_publish(link, &message, NULL, "outbox", "key");
		if (status == OUTBOX_LINK_OK)
			outbox_confirms_add(&window, &window);
	}
	if (status == OUTBOX_LINK_LOST)
		return status;
	if (outbox_link_burst_end(link) == OUTBOX_LINK_LOST)
		return OUTBOX_LINK_LOST;
	return status;
}

static OutboxLinkStatus
receive(OutboxLink *link)
{
	int			received;
	OutboxLinkStatus status = outbox_link_receive(link, &received);

	if (status != OUTBOX_LINK_LOST && breach)
	{
		(void) outbox_link_fail(link, OUTBOX_REASON_PROTOCOL, "confirmed what was not sent");
		status = OUTBOX_LINK_LOST;
	}
	return status;
}

static OutboxLinkStatus
do_step(OutboxLink *link, unsigned what)
{
	const char *tried;
	int			code;
	OutboxLinkStatus status;

	switch (what)
	{
		case 0:
			return publish(link, 3, false);
		case 1:
			return publish(link, 2, true);
		case 2:
			return outbox_link_send_rest(link);
		case 3:
			return outbox_link_declare(link, "outbox", "topic");
		case 4:
			return outbox_link_declare(link, "other", NULL);
		case 5:
			status = outbox_link_try_publish(link, "outbox", "key");
			(void) outbox_link_tried(link, &code, &tried);
			return status;
		case 6:
			return outbox_link_ask_name(link, "outbox-identity.0123456789abcdef");
		case 7:
			return outbox_link_ask_name(link, "outbox-identity.fedcba9876543210");
		case 8:
			status = outbox_link_name_answer(link, &code, &tried);
			check_text("name", tried, sizeof(link->name_text));
			return status;
		case 9:
			return outbox_link_release_name(link);
		default:
			return receive(link);
	}
}

static OutboxLinkStatus
open_link(OutboxLink *link, bool with_tls)
{
	OutboxLinkTarget target = {
		.host = "127.0.0.1", .port = port, .vhost = "/", .user = "guest",
		.password = "guest", .heartbeat_s = 10,
		.application_name = "fuzz", .tls = with_tls
	};
	OutboxLinkStatus status = outbox_link_connect_start(link, &target);

	outbox_confirms_init(&window, ring, WINDOW);
	breach = false;
	nconfirmed = nreturned = 0;
	while (status == OUTBOX_LINK_AGAIN)
		status = outbox_link_connect_poll(link);
	return status;
}

/* Until the broker has said everything, or the link is lost. */
static void
work(OutboxLink *link, uint32_t steps)
{
	OutboxLinkStatus status = OUTBOX_LINK_OK;

	for (int i = 0; i < STEPS && status != OUTBOX_LINK_LOST; i++)
	{
		steps = steps * 1103515245 + 12345;
		status = do_step(link, (steps >> 16) % 14);
		check_link(link, status);
	}
	for (int i = 0; (i < ANSWERS_LEAST || fuzz_broker_left() > 0) &&
		 status != OUTBOX_LINK_LOST; i++)
	{
		status = receive(link);
		check_link(link, status);
		(void) outbox_link_heartbeat_due_ms(link);
	}
}

/* ---------------------------------------------------------------- the good broker */

static uint8_t good[1024];
static size_t good_size;

static void
add_frame(int type, int channel, const void *payload, size_t size)
{
	uint8_t    *at = good + good_size;

	at[0] = type;
	at[1] = channel >> 8;
	at[2] = channel;
	at[3] = at[4] = 0;
	at[5] = size >> 8;
	at[6] = size;
	memcpy(at + 7, payload, size);
	at[7 + size] = 0xCE;
	good_size += size + 8;
}

static void
make_good_script(void)
{
	add_frame(1, 0, "\0\12\0\12\0\11\0\0\0\0\0\0\0\5PLAIN\0\0\0\5en_US", 28);
	add_frame(1, 0, "\0\12\0\36\7\377\0\2\0\0\0\74", 12);
	add_frame(1, 0, "\0\12\0\51\0", 5);
	add_frame(1, 1, "\0\24\0\13\0\0\0\0", 8);
	add_frame(1, 1, "\0\125\0\13", 4);
	add_frame(1, 1, "\0\74\0\120\0\0\0\0\0\0\0\1\0", 13);
}

/* The same link, which has forgotten all of it. */
static void
recover(OutboxLink *link)
{
	FuzzScript	script = {.bytes = good, .size = good_size, .stays = true};

	fuzz_broker_play(&script);
	fuzz_check(open_link(link, false) == OUTBOX_LINK_OK,
			   "does not recover: %s", link->error.text);
	fuzz_check(publish(link, 1, false) == OUTBOX_LINK_OK, "does not publish: %s",
			   link->error.text);
	while (nconfirmed == 0)
		fuzz_check(receive(link) == OUTBOX_LINK_OK, "no confirm: %s", link->error.text);
	outbox_link_close(link, false);
	fuzz_broker_end();
}

/* ---------------------------------------------------------------------- entry */

static bool
not_told(void)
{
	return false;
}

int
LLVMFuzzerInitialize(int *argc, char ***argv)
{
	outbox_watchdog_init(not_told);
	port = fuzz_broker_start();
	make_good_script();
	return 0;
}

static OutboxLink *
new_link(void)
{
	OutboxLinkEvents events = {confirmed, returned, declared, NULL};

	fuzz_memory_reset();
	the_link = outbox_link_create(TopMemoryContext, &events);
	return the_link;
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	FuzzScript	script = {0};
	OutboxLink *link;
	OutboxLinkStatus status;

	if (size < FUZZ_LINK_HEAD)
		return 0;
	link = new_link();
	script.bytes = data + FUZZ_LINK_HEAD;
	script.size = size - FUZZ_LINK_HEAD;
	script.tls = data[0] & 1;
	script.reset = (data[0] & 2) != 0;
	script.pieces = data[1];
	fuzz_broker_play(&script);

	status = open_link(link, script.tls);
	check_link(link, status);
	if (status == OUTBOX_LINK_OK)
		work(link, data[2]);
	outbox_link_close(link, (data[0] & 4) != 0);
	check_link(link, OUTBOX_LINK_OK);
	fuzz_broker_end();
	recover(link);
	fuzz_memory_reset();
	return 0;
}
