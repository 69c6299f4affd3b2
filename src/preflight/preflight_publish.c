/*-------------------------------------------------------------------------
 *
 * preflight_publish.c
 *		Are the exchanges there, may we write to them, and does a message with a
 *		given routing key reach a queue?
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "mb/pg_wchar.h"
#include "miscadmin.h"
#include "preflight_internal.h"
#include "storage/latch.h"
#include "utils/builtins.h"
#include "utils/fmgrprotos.h"
#include "utils/timestamp.h"
#include "watchdog.h"

#define NOT_FOUND		404
#define ACCESS_REFUSED	403

/* What is tried with when nobody has named a routing key; and the message's type. */
#define PREFLIGHT_NAME	"outbox_preflight"

/* Nobody misses it: a queue whose consumers are away forgets it. */
#define EXPIRATION		"{\"expiration\": \"60000\"}"

/* The broker speaks UTF-8. */
static const char *
to_utf8(const char *text)
{
	return pg_server_to_any(text, strlen(text), PG_UTF8);
}

/* Why nothing can be asked any more; NULL when it can. */
static const char *
cannot_ask(OutboxPreflight *preflight)
{
	if (preflight->link == NULL)
		return "there is no connection to the broker.";
	if (outbox_link_state(preflight->link) == OUTBOX_LINK_CLOSED)
		return psprintf("the connection was lost: %s",
						outbox_link_error(preflight->link)->text);
	if (outbox_link_state(preflight->link) == OUTBOX_LINK_BLOCKED)
		return psprintf("the broker blocks who publishes: %s.",
						outbox_link_blocked_reason(preflight->link));
	if (outbox_preflight_left_ms(preflight) == 0)
		return "there was no time left.";
	return NULL;
}

static bool
skip(OutboxPreflight *preflight, const char *check, const char *what)
{
	const char *why = cannot_ask(preflight);

	CHECK_FOR_INTERRUPTS();
	if (why != NULL)
		outbox_preflight_say(preflight, check, OUTBOX_VERDICT_SKIPPED, NULL,
							 psprintf("Not tried%s: %s", what, why));
	return why != NULL;
}

/* Takes what has come, or waits for something to come; false: no use any more. */
static bool
receive(OutboxPreflight *preflight)
{
	OutboxLink *link = preflight->link;
	int			received;

	if (outbox_link_receive(link, &received) != OUTBOX_LINK_OK)
	{
		CHECK_FOR_INTERRUPTS();
		return false;
	}
	if (received == 0 && outbox_link_heartbeat_due_ms(link) > 0)
		(void) outbox_preflight_wait(link, WL_SOCKET_READABLE,
									 outbox_preflight_left_ms(preflight));
	CHECK_FOR_INTERRUPTS();
	return outbox_preflight_left_ms(preflight) > 0 &&
		outbox_link_state(link) == OUTBOX_LINK_OPEN;
}

/* --------------------------------------------------------------- exchanges */

static OutboxReason
reason_of(int code)
{
	switch (code)
	{
		case NOT_FOUND:
			return OUTBOX_REASON_EXCHANGE_MISSING;
		case ACCESS_REFUSED:
			return OUTBOX_REASON_EXCHANGE_FORBIDDEN;
		default:
			return OUTBOX_REASON_EXCHANGE_OTHER;
	}
}

static const char *
about(const OutboxPreflightExchange *exchange, const char *text)
{
	return psprintf("Exchange \"%s\", of %s: %s", exchange->name,
					exchange->routes, text);
}

/* There was no answer: blocked, lost, or no time left. */
static void
fail_link(OutboxPreflight *preflight, const char *check,
		  const OutboxPreflightExchange *exchange)
{
	OutboxLink *link = preflight->link;
	const OutboxLinkError *error = outbox_link_error(link);

	if (outbox_link_state(link) == OUTBOX_LINK_BLOCKED)
		outbox_preflight_fail(preflight, check, outbox_link_alarm(link),
							  psprintf("The broker blocks who publishes: %s.",
									   outbox_link_blocked_reason(link)));
	else if (outbox_link_state(link) == OUTBOX_LINK_CLOSED)
		/* it was about this very request, if there is no other reason */
		outbox_preflight_fail(preflight, check,
							  error->reason != OUTBOX_REASON_NONE ?
							  error->reason : OUTBOX_REASON_EXCHANGE_OTHER,
							  about(exchange, error->text));
	else
		outbox_preflight_fail(preflight, check, OUTBOX_REASON_STALLED,
							  about(exchange, "the broker did not answer in time."));
}

void
outbox_preflight_declared(void *arg, int code, const char *text)
{
	OutboxPreflight *preflight = arg;

	preflight->declared = true;
	preflight->refused_code = code;
	strlcpy(preflight->refused, text == NULL ? "" : text, sizeof(preflight->refused));
}

/* The default exchange is always there, and nobody may ask for it. */
static OutboxLinkStatus
ask_for(OutboxPreflight *preflight, const char *exchange)
{
	OutboxLink *link = preflight->link;
	OutboxLinkStatus status;

	if (exchange[0] == '\0')
		return OUTBOX_LINK_OK;
	preflight->declared = false;
	status = outbox_link_declare(link, exchange, NULL);
	while (status == OUTBOX_LINK_OK && !preflight->declared && receive(preflight))
		;
	CHECK_FOR_INTERRUPTS();
	if (status == OUTBOX_LINK_REFUSED)
		outbox_preflight_declared(preflight, 0, outbox_link_error(link)->text);
	else if (status != OUTBOX_LINK_OK)
		return status;
	if (!preflight->declared)
		return OUTBOX_LINK_LOST;
	return preflight->refused[0] == '\0' ? OUTBOX_LINK_OK : OUTBOX_LINK_REFUSED;
}

static void
check_exchange(OutboxPreflight *preflight,
			   const OutboxPreflightExchange *exchange)
{
	OutboxLinkStatus status;
	int			code;
	const char *text = preflight->refused;

	if (skip(preflight, "exchange", psprintf(" for \"%s\"", exchange->name)))
		return;
	status = ask_for(preflight, to_utf8(exchange->name));
	code = preflight->refused_code;
	if (status == OUTBOX_LINK_OK)
		outbox_preflight_say(preflight, "exchange", OUTBOX_VERDICT_GOOD, NULL,
							 exchange->name[0] == '\0' ?
							 psprintf("The default exchange is always there, of %s.",
									  exchange->routes) :
							 psprintf("Exchange \"%s\" is there, of %s.",
									  exchange->name, exchange->routes));
	else if (status == OUTBOX_LINK_REFUSED && code == NOT_FOUND &&
			 exchange->type != NULL)
		outbox_preflight_say(preflight, "exchange", OUTBOX_VERDICT_SKIPPED,
							 "The relay's user needs the right to configure it.",
							 psprintf("Exchange \"%s\" is not there; the relay declares it with type \"%s\" when it first publishes on %s.",
									  exchange->name, exchange->type, exchange->routes));
	else if (status == OUTBOX_LINK_AGAIN)
		(void) skip(preflight, "exchange",
					psprintf(" for \"%s\"", exchange->name));
	else if (status == OUTBOX_LINK_REFUSED)
		outbox_preflight_fail(preflight, "exchange", reason_of(code),
							  about(exchange, text));
	else
		fail_link(preflight, "exchange", exchange);
}

/* -------------------------------------------------------------------- write */

/*
 * Rights for topics look at the routing key, and are refused in other words, see
 * broker_error.c.
 */
static bool
concerns_key(const char *text)
{
	return strstr(text, "access to topic '") != NULL;
}

static void
say_refused(OutboxPreflight *preflight, const OutboxPreflightExchange *exchange,
			int code, const char *text)
{
	const char *name = exchange->name;

	if (code == NOT_FOUND && exchange->type != NULL)
		outbox_preflight_say(preflight, "write", OUTBOX_VERDICT_SKIPPED, NULL,
							 psprintf("The right to write to \"%s\" is there, the exchange is not yet.",
									  name));
	else if (code != ACCESS_REFUSED || !concerns_key(text))
		outbox_preflight_fail(preflight, "write", reason_of(code),
							  about(exchange, text));
	else if (preflight->routing_key == NULL)
		outbox_preflight_say(preflight, "write", OUTBOX_VERDICT_SKIPPED,
							 "Call outbox_preflight() with a route and a routing_key of its messages.",
							 psprintf("Exchange \"%s\" may be written to, but rights for topics decide by the routing key: %s",
									  name, text));
	else
		outbox_preflight_say(preflight, "write", OUTBOX_VERDICT_BAD,
							 "Let the relay's user write this routing key: rabbitmqctl set_topic_permissions.",
							 about(exchange, text));
}

static void
check_write(OutboxPreflight *preflight, const OutboxPreflightExchange *exchange)
{
	const char *key = preflight->routing_key != NULL ?
		preflight->routing_key : PREFLIGHT_NAME;
	OutboxLinkStatus status;
	const char *text;
	int			code;

	if (skip(preflight, "write", psprintf(" for \"%s\"", exchange->name)))
		return;
	status = outbox_link_try_publish(preflight->link, to_utf8(exchange->name),
									 to_utf8(key));
	while (status == OUTBOX_LINK_OK &&
		   outbox_link_tried(preflight->link, &code, &text) == OUTBOX_LINK_AGAIN &&
		   receive(preflight))
		;
	CHECK_FOR_INTERRUPTS();
	switch (outbox_link_tried(preflight->link, &code, &text))
	{
		case OUTBOX_LINK_OK:
			outbox_preflight_say(preflight, "write", OUTBOX_VERDICT_GOOD, NULL,
								 psprintf("Exchange \"%s\" takes messages with routing key \"%s\" from us (tried, and rolled back).",
										  exchange->name, key));
			break;
		case OUTBOX_LINK_REFUSED:
			say_refused(preflight, exchange, code, text);
			break;
		default:
			fail_link(preflight, "write", exchange);
			break;
	}
}

void
outbox_preflight_exchanges(OutboxPreflight *preflight)
{
	for (int i = 0; i < preflight->nexchanges; i++)
		check_exchange(preflight, &preflight->exchanges[i]);
	for (int i = 0; i < preflight->nexchanges; i++)
		check_write(preflight, &preflight->exchanges[i]);
	if (preflight->nexchanges > 0)
		return;
	if (preflight->routes_known)
		outbox_preflight_say(preflight, "exchange", OUTBOX_VERDICT_BAD,
							 "INSERT INTO outbox_route.",
							 "There is no route, so nothing can be enqueued.");
	else
		outbox_preflight_say(preflight, "exchange", OUTBOX_VERDICT_SKIPPED,
							 NULL, "Not tried: the routes could not be read.");
	outbox_preflight_say(preflight, "write", OUTBOX_VERDICT_SKIPPED, NULL,
						 "Not tried: there is no exchange to try it with.");
}

/* ------------------------------------------------------------------ binding */

void
outbox_preflight_confirmed(void *arg, bool ack, uint64 tag, bool multiple)
{
	OutboxPreflight *preflight = arg;

	(void) tag;
	(void) multiple;
	preflight->answered = true;
	preflight->acked = ack;
}

void
outbox_preflight_returned(void *arg, const pg_uuid_t *id, const char *text)
{
	OutboxPreflight *preflight = arg;

	(void) id;
	strlcpy(preflight->returned, text, sizeof(preflight->returned));
}

/* As the relay publishes it. */
static OutboxLinkStatus
publish(OutboxPreflight *preflight, const char *exchange)
{
	static const char body[] = "{\"outbox_preflight\": true}";
	OutboxLink *link = preflight->link;
	OutboxMessage message;
	OutboxLinkStatus status;

	memset(&message, 0, sizeof(message));
	if (!pg_strong_random(&message.id, sizeof(message.id)))
		ereport(ERROR,
				(errcode(ERRCODE_INTERNAL_ERROR),
				 errmsg("could not generate random values")));
	/* version 4, variant of RFC 9562 */
	message.id.data[6] = (message.id.data[6] & 0x0f) | 0x40;
	message.id.data[8] = (message.id.data[8] & 0x3f) | 0x80;
	message.created_at = GetCurrentTimestamp();
	message.event_type = PREFLIGHT_NAME;
	message.properties = DatumGetJsonbP(DirectFunctionCall1(jsonb_in,
															CStringGetDatum(EXPIRATION)));
	message.body = body;
	message.body_len = strlen(body);
	message.size = sizeof(message) + message.body_len;

	status = outbox_link_burst_begin(link);
	if (status == OUTBOX_LINK_OK)
	{
		OutboxLinkStatus ended;

		status = outbox_link_publish(link, &message, NULL, exchange,
									 to_utf8(preflight->routing_key));
		ended = outbox_link_burst_end(link);
		if (ended != OUTBOX_LINK_OK)
			status = ended;
	}
	return status;
}

static void
say_binding(OutboxPreflight *preflight, OutboxLinkStatus status)
{
	const char *key = preflight->routing_key;

	if (preflight->returned[0] != '\0')
		outbox_preflight_say(preflight, "binding", OUTBOX_VERDICT_BAD,
							 "Bind a queue to the exchange for this routing key.",
							 psprintf("A message with routing key \"%s\" reaches no queue: %s",
									  key, preflight->returned));
	else if (preflight->answered && preflight->acked)
		outbox_preflight_say(preflight, "binding", OUTBOX_VERDICT_GOOD, NULL,
							 psprintf("A message with routing key \"%s\" was published and confirmed, so at least one queue has it.",
									  key));
	else if (preflight->answered)
		outbox_preflight_say(preflight, "binding", OUTBOX_VERDICT_BAD,
							 "A queue is full with overflow = reject-publish, or has failed: look at the queues that are bound.",
							 psprintf("The broker refused a message with routing key \"%s\" (basic.nack).",
									  key));
	else if (status == OUTBOX_LINK_LOST || status == OUTBOX_LINK_REFUSED ||
			 outbox_link_state(preflight->link) == OUTBOX_LINK_CLOSED)
		outbox_preflight_say(preflight, "binding", OUTBOX_VERDICT_BAD, NULL,
							 psprintf("A message with routing key \"%s\": %s",
									  key, outbox_link_error(preflight->link)->text));
	else
		outbox_preflight_say(preflight, "binding", OUTBOX_VERDICT_BAD,
							 "Look at the broker: it may have an alarm, or hang. The message may arrive later.",
							 psprintf("The broker has not confirmed a message with routing key \"%s\" in time.",
									  key));
}

void
outbox_preflight_binding(OutboxPreflight *preflight)
{
	OutboxLinkStatus status;

	if (!preflight->publish)
	{
		outbox_preflight_say(preflight, "binding", OUTBOX_VERDICT_SKIPPED,
							 NULL,
							 "Not tried: it takes a real message, which consumers may get; see the argument publish.");
		return;
	}
	if (preflight->nexchanges == 0)
	{
		outbox_preflight_say(preflight, "binding", OUTBOX_VERDICT_SKIPPED,
							 NULL,
							 "Not tried: there is no exchange to try it with.");
		return;
	}
	if (skip(preflight, "binding", ""))
		return;
	status = publish(preflight, to_utf8(preflight->exchanges[0].name));
	while (status == OUTBOX_LINK_OK && !preflight->answered &&
		   receive(preflight))
		;
	CHECK_FOR_INTERRUPTS();
	say_binding(preflight, status);
}
