/*-------------------------------------------------------------------------
 *
 * link.c
 *		The broker and the link to it: all of broker.h.
 *
 * What was published waits at the broker until a step answers it; the answer lies
 * on the socket until the relay receives, and is gone when the connection is.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "broker.h"
#include "sim.h"

#define MAX_PUBLISHED	4096
#define MAX_EVENTS		8192

typedef struct Published
{
	SimRow	   *row;
	uint64		tag;
	bool		answered;
	bool		returned;
} Published;

typedef struct Event
{
	enum
	{
		EVENT_CONFIRM,
		EVENT_RETURN
	}			kind;
	bool		ack;
	bool		multiple;
	uint64		tag;
	SimRow	   *row;
} Event;

struct OutboxLink
{
	OutboxLinkState state;
	OutboxLinkEvents events;
	OutboxLinkError error;
	uint64		published;		/* bytes */
	uint64		unsent;			/* of a message that is being sent */
};

static OutboxLink *sim_link;	/* of the process that runs; NULL: none */
static bool peer_gone;			/* the next call that looks finds it lost */
static bool peer_blocks;
static bool blocked_told;
static Published published[MAX_PUBLISHED];
static int	npublished;
static uint64 next_tag;
static Event events[MAX_EVENTS];
static int	nevents;
static struct
{
	int			route;
	bool		fails;
}			asked[OUTBOX_DECLARES_MAX];	/* for its exchange */
static int	nasked;
static bool asked_answered;		/* the answers are on the socket */
static bool asks_alone;			/* perhaps: one was not answered, or a message may be
								 * poison */
static int	close_kind;			/* -1: none */

void
sim_link_init(void)
{
	sim_link = NULL;
	sim_link_process_ends();
	peer_blocks = false;
}

static void
forget_connection(void)
{
	npublished = 0;
	nevents = 0;
	asks_alone |= nasked > 0;
	nasked = 0;
	next_tag = 1;
	peer_gone = false;
	close_kind = -1;
	blocked_told = false;
}

void
sim_link_process_ends(void)
{
	sim_link = NULL;
	asks_alone = false;
	forget_connection();
}

/* ---------------------------------------------------------------- the broker */

bool
sim_link_is_open(void)
{
	return sim_link != NULL && (sim_link->state == OUTBOX_LINK_OPEN ||
							sim_link->state == OUTBOX_LINK_BLOCKED);
}

bool
sim_link_connecting(void)
{
	return sim_link != NULL && sim_link->state == OUTBOX_LINK_CONNECTING;
}

bool
sim_link_is_blocked(void)
{
	return sim_link != NULL && sim_link->state == OUTBOX_LINK_BLOCKED;
}

bool
sim_link_readable(void)
{
	return sim_link_is_open() &&
		(nevents > 0 || (nasked > 0 && asked_answered) || peer_gone || close_kind >= 0 ||
		 blocked_told != peer_blocks);
}

bool
sim_link_awaits(int route)
{
	for (int i = 0; i < nasked; i++)
		if (asks_alone || nasked == OUTBOX_DECLARES_MAX || asked[i].route == route)
			return true;
	return false;
}

static Published *
find_published(const SimRow *row)
{
	for (int i = npublished - 1; i >= 0; i--)
		if (published[i].row == row && !published[i].answered)
			return &published[i];
	return NULL;
}

static void
add_event(Event event)
{
	if (nevents >= MAX_EVENTS)
		sim_broken("simulator", "too many events");
	events[nevents++] = event;
}

/* The broker does not answer what it has not got all of. */
static bool
is_complete(const Published *message)
{
	return sim_link->unsent == 0 || message != &published[npublished - 1];
}

void
sim_link_answer(SimRow *row, bool ack, bool multiple)
{
	Published  *message;

	asked_answered = true;
	if (row == NULL || !sim_link_is_open() || peer_gone || close_kind >= 0)
		return;
	message = find_published(row);
	if (message == NULL || !is_complete(message))
		return;
	/* Nothing that was returned is refused. */
	if (!ack && message->returned)
		return;
	for (int i = 0; multiple && i < npublished; i++)
		if (published[i].tag < message->tag && !ack && published[i].returned &&
			!published[i].answered)
			return;
	add_event((Event) {.kind = EVENT_CONFIRM,.ack = ack,.multiple = multiple,
			  .tag = message->tag,.row = row});
	message->answered = true;
	for (int i = 0; multiple && i < npublished; i++)
		if (published[i].tag < message->tag)
			published[i].answered = true;
}

void
sim_link_return(SimRow *row)
{
	Published  *message;

	asked_answered = true;
	if (row == NULL || !sim_link_is_open() || peer_gone || close_kind >= 0)
		return;
	message = find_published(row);
	if (message == NULL || message->returned || !is_complete(message))
		return;
	message->returned = true;
	add_event((Event) {.kind = EVENT_RETURN,.row = row});
}

int
sim_link_outstanding(SimRow **found, int max)
{
	int			n = 0;

	if (!sim_link_is_open() || peer_gone || close_kind >= 0)
		return 0;
	for (int i = 0; i < npublished && n < max; i++)
		if (!published[i].answered && is_complete(&published[i]))
			found[n++] = published[i].row;
	return n;
}

bool
sim_link_answer_all(void)
{
	bool		any = nasked > 0 && !asked_answered;
	SimRow	   *row;

	asked_answered = true;

	while (sim_link_outstanding(&row, 1) > 0)
	{
		sim_link_answer(row, true, false);
		any = true;
	}
	return any;
}

void
sim_link_drop(void)
{
	if (sim_link != NULL && sim_link->state != OUTBOX_LINK_CLOSED)
		peer_gone = true;
}

/* Only with a message there that may have been the reason. */
void
sim_link_close_channel(int kind)
{
	SimRow	   *row;

	if (sim_link_outstanding(&row, 1) > 0)
		close_kind = (unsigned) kind % 3;
}

void
sim_link_block(bool block)
{
	peer_blocks = block;
}

/* ------------------------------------------------------------------ the link */

OutboxLink *
outbox_link_create(MemoryContext parent, const OutboxLinkEvents *to)
{
	OutboxLink *link = MemoryContextAllocZero(parent, sizeof(OutboxLink));

	link->events = *to;
	sim_link = link;
	forget_connection();
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
	return "an alarm";
}

OutboxReason
outbox_link_alarm(const OutboxLink *link)
{
	return link->state == OUTBOX_LINK_BLOCKED ?
		OUTBOX_REASON_ALARM_OTHER : OUTBOX_REASON_NONE;
}

int64
outbox_link_certificate_ends(const OutboxLink *link)
{
	return 0;
}

pgsocket
outbox_link_socket(const OutboxLink *link)
{
	return link->state == OUTBOX_LINK_CLOSED ? PGINVALID_SOCKET : 7;
}

static void
close_link(OutboxLink *link)
{
	link->state = OUTBOX_LINK_CLOSED;
	link->unsent = 0;
	sim_oracle_link_lost();
	forget_connection();
	sim_learn(77);
}

static OutboxLinkStatus
end_link(OutboxLink *link, const char *text)
{
	sim_trace("    the link is lost: %s", text);
	memset(&link->error, 0, sizeof(link->error));
	link->error.kind = OUTBOX_LINK_ERR_CONNECTION;
	link->error.reason = OUTBOX_REASON_RESET;
	strlcpy(link->error.text, text, sizeof(link->error.text));
	close_link(link);
	return OUTBOX_LINK_LOST;
}

/* Also when the broker had closed the channel, and nobody has read that. */
static OutboxLinkStatus
lost(OutboxLink *link, const char *text)
{
	sim_late_link_lost(false, false);
	return end_link(link, text);
}

/* A channel that the broker closed, because of one that was on it. */
static OutboxLinkStatus
lost_channel(OutboxLink *link)
{
	int			kind = close_kind;
	SimRow	   *row = npublished > 0 ? published[npublished - 1].row : NULL;
	int			open = 0;

	for (int i = 0; i < npublished; i++)
		if (published[i].row->flight == ROW_SENT)
		{
			open++;
			row = published[i].row;
		}
	/* It knows what was alone; what closes the channel with others is not known. */
	if (open == 1 && kind != 2)
	{
		sim_oracle_refused(row);
		row->permanent |= kind == 1;
	}
	if (open == 1 && kind == 2)
	{
		sim_routes[sim_row_route(row)].waited = true;
		sim_late_route_closed(sim_row_route(row));
	}
	else if (open == 1)
		sim_late_route_poison(sim_row_route(row));
	sim_late_link_lost(true, false);
	asks_alone = true;
	(void) end_link(link, "the channel is closed");
	link->error.kind = OUTBOX_LINK_ERR_CHANNEL;
	link->error.reason = OUTBOX_REASON_NONE;
	link->error.message = true;
	link->error.permanent = kind == 1;
	link->error.destination = kind == 2;
	return OUTBOX_LINK_LOST;
}

OutboxLinkStatus
outbox_link_connect_start(OutboxLink *link, const OutboxLinkTarget *target)
{
	sim_point("connect");
	sim_oracle_let_go();
	forget_connection();
	if (sim_fails(CALL_connect))
	{
		(void) lost(link, "nobody is there");
		link->error.unreachable = true;
		return OUTBOX_LINK_LOST;
	}
	link->state = OUTBOX_LINK_CONNECTING;
	return OUTBOX_LINK_AGAIN;
}

OutboxLinkStatus
outbox_link_connect_poll(OutboxLink *link)
{
	sim_point("login");
	if (peer_gone || sim_fails(CALL_poll))
		return lost(link, "turned away");
	link->state = OUTBOX_LINK_OPEN;
	sim_late_link_opened();
	link->published = 0;
	link->unsent = 0;
	return OUTBOX_LINK_OK;
}

int
outbox_link_connect_due_ms(const OutboxLink *link)
{
	return 3000;
}

OutboxLinkStatus
outbox_link_declare(OutboxLink *link, const char *exchange, const char *type)
{
	sim_point("declare");
	if (peer_gone)
		return lost(link, "gone");
	if (link->state == OUTBOX_LINK_BLOCKED || link->unsent > 0)
		return OUTBOX_LINK_AGAIN;
	if (nasked == OUTBOX_DECLARES_MAX)
		sim_broken("declarations", "more than %d at once", nasked);
	for (int i = 0; i < SIM_ROUTES; i++)
		if (strncmp(exchange, sim_route_name(i), 2) == 0)
			asked[nasked].route = i;
	asked[nasked++].fails = sim_fails(CALL_declare);
	asked_answered = !sim_config.slow_declares || sim_resting;
	return OUTBOX_LINK_OK;
}

/* A refusal closes the channel, and those behind it are not answered. */
static void
answer_declarations(OutboxLink *link)
{
	int			n = nasked;

	nasked = 0;
	for (int i = 0; i < n; i++)
	{
		int			route = asked[i].route;

		sim_learn(asked[i].fails);
		if (!asked[i].fails)
			link->events.declared(link->events.arg, 0, NULL);
		else
		{
			sim_routes[route].waited = true;
			sim_late_route_broken(route);
			link->events.declared(link->events.arg, 404, "no such exchange");
			return;
		}
	}
}

const char *
outbox_link_header_error(OutboxLink *link, const OutboxMessage *message,
						 const OutboxFormat *format, size_t bytes)
{
	return NULL;
}

/* A login without the right to ask. */
OutboxLinkStatus
outbox_link_ask_name(OutboxLink *link, const char *name)
{
	return OUTBOX_LINK_REFUSED;
}

OutboxLinkStatus
outbox_link_name_answer(OutboxLink *link, int *code, const char **text)
{
	*code = 403;
	*text = "";
	return OUTBOX_LINK_REFUSED;
}

OutboxLinkStatus
outbox_link_release_name(OutboxLink *link)
{
	return OUTBOX_LINK_OK;
}

int64
outbox_link_heartbeat_ms(const OutboxLink *link)
{
	return 15000;
}

bool
outbox_link_sending(const OutboxLink *link)
{
	return link->unsent > 0;
}

uint64
outbox_link_unsent(const OutboxLink *link)
{
	return link->unsent;
}

OutboxLinkStatus
outbox_link_send_rest(OutboxLink *link)
{
	sim_point("the rest");
	if (peer_gone)
		return lost(link, "gone");
	if (link->unsent > 1 && sim_fails(CALL_again))
	{
		link->unsent--;
		return OUTBOX_LINK_AGAIN;
	}
	link->unsent = 0;
	return OUTBOX_LINK_OK;
}

OutboxLinkStatus
outbox_link_burst_begin(OutboxLink *link)
{
	sim_point("burst");
	if (peer_gone)
		return lost(link, "gone");
	if (link->state == OUTBOX_LINK_BLOCKED || link->unsent > 0 ||
		sim_fails(CALL_again))
		return OUTBOX_LINK_AGAIN;
	return OUTBOX_LINK_OK;
}

OutboxLinkStatus
outbox_link_publish(OutboxLink *link, const OutboxMessage *message,
					const OutboxFormat *format, const char *exchange,
					const char *routing_key)
{
	SimRow	   *row = sim_row_by_id(&message->id);

	sim_oracle_let_go();
	sim_point("publish");
	if (sim_fails(CALL_refuse))
	{
		sim_oracle_unsendable(row);
		memset(&link->error, 0, sizeof(link->error));
		strlcpy(link->error.text, "it cannot be encoded", sizeof(link->error.text));
		link->error.permanent = true;
		return OUTBOX_LINK_REFUSED;
	}
	if (link->unsent > 0 || sim_fails(CALL_again))
		return OUTBOX_LINK_AGAIN;
	if (peer_gone || sim_fails(CALL_lost_before))
		return lost(link, "gone");
	sim_oracle_published(row);
	if (npublished >= MAX_PUBLISHED)
		sim_broken("window", "%d messages are not confirmed", npublished);
	published[npublished++] = (Published) {.row = row,.tag = next_tag++};
	link->published += message->size;
	if (sim_fails(CALL_lost_after))
		return lost(link, "gone, and nobody knows what it got");
	if (sim_fails(CALL_partial))
		link->unsent = 3;
	return OUTBOX_LINK_OK;
}

OutboxLinkStatus
outbox_link_burst_end(OutboxLink *link)
{
	if (link->state == OUTBOX_LINK_CLOSED)
		return OUTBOX_LINK_LOST;
	sim_oracle_let_go();
	sim_point("end of the burst");
	return peer_gone ? lost(link, "gone") : OUTBOX_LINK_OK;
}

uint64
outbox_link_published(const OutboxLink *link)
{
	return link->published;
}

uint64
outbox_link_acknowledged(OutboxLink *link)
{
	return link->published - link->unsent;
}

int
outbox_link_stalled_ms(const OutboxLink *link)
{
	return 20000;
}

uint64
outbox_link_return_left(const OutboxLink *link)
{
	return 0;
}

static void
deliver(OutboxLink *link, const Event *event)
{
	if (event->kind == EVENT_RETURN)
	{
		sim_oracle_returned(event->row);
		link->events.returned(link->events.arg, &event->row->id, "NO_ROUTE");
		sim_oracle_let_go();
		return;
	}
	for (int i = 0; i < npublished; i++)
		if (published[i].tag == event->tag ||
			(event->multiple && published[i].tag < event->tag))
			if (published[i].row->flight == ROW_SENT)
				sim_oracle_answered(published[i].row, event->ack);
	link->events.answered(link->events.arg, event->ack, event->tag, event->multiple);
	sim_oracle_let_go();
}

/* Answered, and so told: the window of the broker is empty in front. */
static void
forget_answered(void)
{
	int			n = 0;

	for (int i = 0; i < npublished; i++)
		if (!published[i].answered)
			published[n++] = published[i];
	npublished = n;
}

int64
outbox_link_unread_us(const OutboxLink *link)
{
	return 0;
}

OutboxLinkStatus
outbox_link_receive(OutboxLink *link, int *received)
{
	*received = 0;
	sim_point("receive");
	for (int i = 0; i < nevents; i++)
	{
		Event		event = events[i];

		(*received)++;
		sim_learn(event.tag * 4 + event.ack * 2 + event.multiple);
		deliver(link, &event);
	}
	nevents = 0;
	forget_answered();
	if (asked_answered)
	{
		*received += nasked;
		answer_declarations(link);
	}
	if (peer_gone)
		return lost(link, "reset by peer");
	if (close_kind >= 0)
		return lost_channel(link);
	blocked_told = peer_blocks;
	link->state = peer_blocks ? OUTBOX_LINK_BLOCKED : OUTBOX_LINK_OPEN;
	sim_learn(link->state);
	return OUTBOX_LINK_OK;
}

int
outbox_link_heartbeat_due_ms(const OutboxLink *link)
{
	return 3600 * 1000;
}

void
outbox_link_close(OutboxLink *link, bool polite)
{
	if (link->state == OUTBOX_LINK_CLOSED)
		return;
	sim_point("close");
	/* The first of what was asked is late; no confirm ever is. */
	if (!polite && nasked > 0)
	{
		sim_routes[asked[0].route].waited = true;
		sim_late_route_broken(asked[0].route);
	}
	if (!polite)
		sim_late_link_lost(false, false);
	close_link(link);
}

/* -------------------------------------------------------------------- states */

static uint64
mix(uint64 hash, uint64 value)
{
	hash = (hash ^ value) * UINT64CONST(0x9E3779B97F4A7C15);
	return hash ^ hash >> 29;
}

uint64
sim_link_hash(uint64 hash)
{
	hash = mix(hash, sim_link == NULL ? 9 : sim_link->state);
	hash = mix(hash, peer_gone * 2 + peer_blocks);
	hash = mix(hash, close_kind + 1);
	for (int i = 0; i < nasked; i++)
		hash = mix(hash, asked[i].route * 2 + asked[i].fails);
	hash = mix(hash, asked_answered * 2 + asks_alone);
	for (int i = 0; i < npublished; i++)
		hash = mix(hash, published[i].row->label * 4 + published[i].answered * 2 +
				   published[i].returned);
	for (int i = 0; i < nevents; i++)
		hash = mix(hash, events[i].tag * 8 + events[i].ack * 4 + events[i].multiple * 2 +
				   events[i].kind);
	return hash;
}
