/*-------------------------------------------------------------------------
 *
 * relay_link.c
 *		The relay's side of the link: opening it, closing it, losing it.
 *
 * Never called inside a transaction.  What becomes of the messages that were in
 * flight when the link is lost is in poison.c.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "common/pg_prng.h"
#include "miscadmin.h"
#include "relay_internal.h"
#include "settings.h"
#include "stats.h"
#include "test_point.h"
#include "uri.h"
#include "utils/memutils.h"

/* A connection that lived shorter counts as a failure to connect. */
#define STABLE_MS		10000

/* Another queue that is only slow acks something within this time. */
#define RENEW_DRAIN_MS	5000

bool
outbox_relay_link_open(OutboxRelay *relay)
{
	OutboxLinkState state = outbox_link_state(relay->link);

	return state == OUTBOX_LINK_OPEN || state == OUTBOX_LINK_BLOCKED;
}

bool
outbox_relay_broker_down(OutboxRelay *relay)
{
	return !outbox_relay_link_open(relay) &&
		outbox_hosts_all_failed(&relay->hosts);
}

/* ------------------------------------------------------------ what is wrong */

/*
 * The link has ended, or is about to.  Where the broker took our messages and said
 * nothing the next connection is made at once, and proves nothing.
 */
static void
link_failed(OutboxRelay *relay, OutboxReason reason, const char *text)
{
	relay->connection.alarmed = false;
	/* Neither a poison message nor the worker's stop is an error of the link. */
	if (reason == OUTBOX_REASON_NONE)
		return;
	relay->connection.unproven = reason == OUTBOX_REASON_STALLED ||
		reason == OUTBOX_REASON_NO_CONFIRM;
	outbox_slot_set_current_error(OUTBOX_ERROR_LINK, reason, text, NULL);
}

void
outbox_relay_link_works(OutboxRelay *relay)
{
	relay->connection.unproven = false;
	outbox_slot_clear_current_error(OUTBOX_ERROR_LINK);
}

void
outbox_relay_show_alarm(OutboxRelay *relay)
{
	OutboxReason alarm = outbox_link_alarm(relay->link);

	if (alarm != OUTBOX_REASON_NONE)
		outbox_slot_set_current_error(OUTBOX_ERROR_LINK, alarm,
									  outbox_link_blocked_reason(relay->link), NULL);
	else if (relay->connection.alarmed)
		outbox_relay_link_works(relay);
	relay->connection.alarmed = alarm != OUTBOX_REASON_NONE;
}

/* ------------------------------------------------------------------ set-up */

static uint32
random_bits(void)
{
	return pg_prng_uint32(&pg_global_prng_state);
}

OutboxLink *
outbox_relay_link_create(OutboxRelay *relay, MemoryContext cxt)
{
	OutboxLinkEvents events = {
		outbox_relay_answered, outbox_relay_returned, outbox_relay_declared, relay
	};
	OutboxLink *link = outbox_link_create(cxt, &events);

	outbox_link_config_init(&relay->config);
	outbox_hosts_init(&relay->hosts, random_bits);
	outbox_twin_init(&relay->twin, random_bits);
	/* Twice over: acks may come out of order, and the oldest last. */
	outbox_confirms_init(&relay->window,
						 MemoryContextAlloc(cxt, outbox_confirms_ring_bytes(2 * OUTBOX_MAX_WINDOW)),
						 2 * OUTBOX_MAX_WINDOW);
	outbox_stall_init(&relay->stall, link, &relay->window);
	return link;
}

/* Reads the settings of the link; where they have changed, it is made again. */
void
outbox_relay_load_config(OutboxRelay *relay)
{
	OutboxLinkConfigChange news = outbox_link_config_load(&relay->config);

	/* A connect that has begun reads some settings as it goes on. */
	if (relay->config.error != NULL &&
		outbox_link_state(relay->link) == OUTBOX_LINK_CONNECTING)
		outbox_relay_close(relay, false);
	if (news == OUTBOX_LINK_CONFIG_SAME)
		return;
	if (news == OUTBOX_LINK_CONFIG_CHANGED)
	{
		relay->connection.reconnect = true;
		relay->connection.renews = false;
	}
	outbox_hosts_set(&relay->hosts, relay->config.uri.nhosts);
}

/* -------------------------------------------------------------------- loss */

/* The host has failed; the next one's turn, or a wait. */
static void
schedule_connect(OutboxRelay *relay, bool unreachable)
{
	OutboxMonoTime now = outbox_mono_now();
	OutboxHostFailure failure = {.unreachable = unreachable};

	failure.stable = outbox_mono_is_set(relay->connection.opened_at) &&
		outbox_mono_reached(outbox_mono_plus(relay->connection.opened_at,
											 STABLE_MS), now);
	failure.initial_ms = outbox_retry_initial_ms;
	failure.max_ms = outbox_retry_max_ms;
	failure.wake_at = relay->timers.poll_at;
	relay->connection.opened_at = OUTBOX_MONO_UNSET;
	outbox_hosts_failed(&relay->hosts, &failure, now);
}

static void
schedule_after_close(OutboxRelay *relay, const OutboxLinkError *error)
{
	/*
	 * A route that rests cannot close the next connection, and its own wait
	 * bounds how often it does: the others need not wait.
	 */
	outbox_hosts_closed(&relay->hosts, relay->connection.route_rests ||
						relay->renewal.acked,
						outbox_mono_now());
	/* Perhaps it is the node all the same. */
	if (error->kind == OUTBOX_LINK_ERR_CONNECTION)
		outbox_hosts_pass(&relay->hosts);
}

/* What was in flight is unknown; error: NULL if we have closed the link. */
static bool
reclaim_unknown(OutboxRelay *relay, const OutboxLinkError *error)
{
	OutboxPoisonFound found;
	bool		was_in_flight = relay->window.outstanding > 0;

	relay->connection.route_rests = error != NULL && error->declaration;
	outbox_relay_declare_ended(relay, error);
	found = outbox_poison_reclaim(&relay->poison, relay->queue, &relay->window, error);
	Assert(error != NULL || (found.broken == NULL && found.route == NULL));
	if (found.broken != NULL)
	{
		outbox_relay_route_broken(relay, found.broken, error->code,
								  error->text);
		relay->connection.route_rests = true;
	}
	if (found.route != NULL)
		relay->connection.route_rests =
			outbox_route_met_poison(&relay->routes, found.route,
									outbox_reader_end(&relay->reader));
	outbox_relay_stop_routes(relay, was_in_flight);
	return found.any;
}

static void
connection_ended(OutboxRelay *relay, const OutboxLinkError *error)
{
	outbox_relay_sender_reset(relay);
	outbox_renewal_closed(&relay->renewal);
	outbox_relay_twin_closed(relay, error);
}

void
outbox_relay_link_lost(OutboxRelay *relay)
{
	const OutboxLinkError *error = outbox_link_error(relay->link);
	bool		poison;

	outbox_slot_set_last_error(error->text);
	link_failed(relay, error->reason, error->text);
	/* That of a broker that we could not even ask is still the last one. */
	if (outbox_link_certificate_ends(relay->link) != 0)
		outbox_slot_set_certificate(outbox_link_certificate_ends(relay->link));
	poison = reclaim_unknown(relay, error);
	relay->connection.channel_lost = poison || relay->connection.route_rests ||
		error->kind == OUTBOX_LINK_ERR_CHANNEL;
	if (relay->connection.channel_lost)
		ereport(DEBUG1,
				(errmsg_internal("outbox channel closed: %s", error->text)));
	else if (relay->connection.was_open)
		ereport(LOG,
				(errmsg("outbox relay lost its connection to the broker"),
				 errdetail_internal("%s", error->text)));
	else if (relay->hosts.failures == 0)
		ereport(MySlot->told == OUTBOX_TOLD_DOWN ? DEBUG1 : LOG,
				(errmsg("outbox relay could not connect to the broker"),
				 errdetail_internal("%s", error->text),
				 errhint("It tries again by itself; messages wait and no attempt is counted.")));
	if (!relay->connection.channel_lost)
		MySlot->told = OUTBOX_TOLD_DOWN;
	connection_ended(relay, error);
	/* Another node has died. */
	if (relay->connection.was_open && !relay->connection.channel_lost)
		outbox_renewal_other_broker(&relay->renewal);
	/* What is unknown is sent again from memory: is it still there? */
	outbox_database_recheck(&relay->database, OUTBOX_RECHECK_TABLES);
	if (error->message || error->name || error->declaration)
		schedule_after_close(relay, error);
	else
		schedule_connect(relay, error->unreachable);
	relay->connection.was_open = false;
}

static void
close_link(OutboxRelay *relay, bool polite, const OutboxLinkError *error)
{
	outbox_link_close(relay->link, polite);
	(void) reclaim_unknown(relay, error);
	connection_ended(relay, NULL);
	relay->connection.was_open = false;
}

void
outbox_relay_close(OutboxRelay *relay, bool polite)
{
	close_link(relay, polite, NULL);
}

/* -------------------------------------------------------------- connecting */

static void
link_opened(OutboxRelay *relay)
{
	outbox_confirms_reset(&relay->window);
	if (!relay->connection.unproven)
		outbox_relay_link_works(relay);
	outbox_slot_set_certificate(outbox_link_certificate_ends(relay->link));
	if (relay->connection.ever_connected)
	{
		pg_atomic_fetch_add_u64(&MySlot->counters.reconnects, 1);
		outbox_stats_event(OUTBOX_EVENT_RECONNECT);
	}
	/* A line per change of state; a closed channel was none of the broker. */
	if (relay->connection.ever_connected)
		OUTBOX_TEST_POINT("reconnecting");
	/* Nor is a process that takes its turn, see launcher_turns.c. */
	ereport(relay->connection.channel_lost ||
			(!relay->connection.ever_connected && MySlot->told == OUTBOX_TOLD_CONNECTED) ?
			DEBUG1 : LOG,
			(errmsg("outbox relay is connected to the broker at \"%s\"",
					MySlot->broker)));
	MySlot->told = OUTBOX_TOLD_CONNECTED;
	relay->connection.channel_lost = false;
	relay->connection.ever_connected = true;
	outbox_relay_socket_readable(relay);
	relay->connection.was_open = true;
	outbox_renewal_opened(&relay->renewal);
	outbox_relay_twin_opened(relay);
	outbox_stall_init(&relay->stall, relay->link, &relay->window);
	relay->connection.opened_at = outbox_mono_now();
	outbox_relay_sender_reset(relay);
	outbox_reader_look(&relay->reader);
}

static void
connect_goes_on(OutboxRelay *relay, OutboxLinkStatus status)
{
	if (status == OUTBOX_LINK_OK)
		link_opened(relay);
	else if (status != OUTBOX_LINK_AGAIN)
		outbox_relay_link_lost(relay);
}

static void
connect_start(OutboxRelay *relay)
{
	const OutboxUri *uri = &relay->config.uri;
	int			current = relay->hosts.current;
	const OutboxHost *host = &uri->hosts[current];
	OutboxLinkTarget target;
	char		text[OUTBOX_TEXT_SIZE];
	char	   *password;
	const char *detail;
	OutboxReason reason;

	/* Read each time: it may have been changed without a reload. */
	detail = outbox_login_password(uri, current, &password, &reason);
	if (detail != NULL)
	{
		outbox_relay_load_config(relay);
		schedule_connect(relay, false);
		return;
	}

	memset(&target, 0, sizeof(target));
	target.host = host->host;
	target.port = host->port;
	target.vhost = uri->vhost;
	target.user = uri->user;
	target.password = password;
	target.heartbeat_s = outbox_heartbeat_s;
	snprintf(text, sizeof(text), "%s:%d", host->host, host->port);
	outbox_slot_set_broker(text);
	snprintf(text, sizeof(text), "outbox worker %d of database %u",
			 MySlot->worker, MyDatabaseId);
	target.application_name = text;
	target.tls = uri->tls;

	OUTBOX_TEST_POINT("connecting");
	connect_goes_on(relay, outbox_link_connect_start(relay->link, &target));
	explicit_bzero(password, strlen(password));
}

/* A message that takes long to get there is no sign of anything. */
static OutboxMonoTime
renewal_deadline(OutboxRelay *relay, OutboxMonoTime now)
{
	const OutboxConnection *connection = &relay->connection;
	OutboxMonoTime deadline = !connection->reconnect ?
		outbox_renewal_deadline(&relay->renewal) :
		connection->renews ? connection->renew_by : OUTBOX_MONO_UNSET;

	/* The kernel is asked last. */
	if (!outbox_mono_is_set(deadline) ||
		outbox_link_state(relay->link) != OUTBOX_LINK_OPEN ||
		!outbox_stall_has_left(&relay->stall, now))
		return OUTBOX_MONO_UNSET;
	return deadline;
}

static bool
renewal_due(OutboxRelay *relay, OutboxMonoTime now)
{
	OutboxMonoTime deadline = renewal_deadline(relay, now);

	return outbox_mono_is_set(deadline) && outbox_mono_reached(deadline, now);
}

static void
put_renewal_off(OutboxRelay *relay, OutboxMonoTime now)
{
	relay->connection.renew_by = outbox_mono_plus(now, RENEW_DRAIN_MS);
}

void
outbox_relay_link_acked(OutboxRelay *relay)
{
	outbox_renewal_acked(&relay->renewal);
	if (relay->connection.renews)
		put_renewal_off(relay, relay->answers.received_at);
}

/*
 * The connection works, so the messages in flight on it are waited for: to close it
 * would publish them twice.  stall.c says for how long the broker may take; but where a
 * channel looks for a leader that is frozen, each refusal takes seconds.
 */
static void
drain_for_reconnect(OutboxRelay *relay, OutboxMonoTime now)
{
	OutboxConnection *connection = &relay->connection;

	if (relay->window.outstanding > 0 &&
		outbox_link_state(relay->link) == OUTBOX_LINK_OPEN &&
		!renewal_due(relay, now))
		return;
	if (connection->renews && outbox_relay_link_open(relay))
	{
		outbox_hosts_pass(&relay->hosts);
		connection->channel_lost = relay->renewal.renewals > 1;
	}
	outbox_relay_close(relay, true);
	outbox_hosts_anew(&relay->hosts);
	connection->renews = false;
	connection->reconnect = false;
}

void
outbox_relay_give_link_up(OutboxRelay *relay, const OutboxLinkError *error)
{
	outbox_slot_set_last_error(error->text);
	close_link(relay, false, error);
	link_failed(relay, error->reason, error->text);
	/* That of the route is logged. */
	relay->connection.channel_lost = relay->connection.route_rests;
	ereport(relay->connection.channel_lost ? DEBUG1 : LOG,
			(error->reason == OUTBOX_REASON_PROTOCOL ?
			 errcode(ERRCODE_PROTOCOL_VIOLATION) : 0,
			 errmsg("outbox relay gives its connection to the broker up"),
			 errdetail_internal("%s", error->text)));
	if (error->message || error->declaration)
		schedule_after_close(relay, error);
	else
		schedule_connect(relay, false);
}

/* Only the first one in a row is logged; a queue may be full for days. */
static void
check_renewal(OutboxRelay *relay, OutboxMonoTime now)
{
	if (relay->connection.reconnect || !renewal_due(relay, now))
		return;
	outbox_renewal_begun(&relay->renewal);
	put_renewal_off(relay, now);
	ereport(relay->renewal.renewals == 1 ? LOG : DEBUG1,
			(errmsg("outbox relay connects to the broker again when no message is in flight"),
			 errdetail("Messages were refused (basic.nack); another node may find a leader of their queue.")));
	relay->connection.reconnect = true;
	relay->connection.renews = true;
}

/*
 * Called in every turn, whatever keeps the relay from working: a deadline of the
 * link that nobody looks at any more would end each wait at once.
 */
void
outbox_relay_link_step(OutboxRelay *relay, OutboxMonoTime now)
{
	outbox_relay_check_late(relay, now);
	check_renewal(relay, now);
	if (relay->connection.reconnect)
		drain_for_reconnect(relay, now);

	if (outbox_link_state(relay->link) == OUTBOX_LINK_CONNECTING)
		connect_goes_on(relay, outbox_link_connect_poll(relay->link));
	/* Refused: the next host, with the same wake-up. */
	if (outbox_link_state(relay->link) == OUTBOX_LINK_CLOSED &&
		outbox_enabled && relay->database.attached && relay->config.error == NULL &&
		outbox_mono_reached(relay->hosts.connect_at,
							outbox_mono_now()))
		connect_start(relay);
	outbox_relay_twin_step(relay, now);
}

OutboxMonoTime
outbox_relay_link_deadline(OutboxRelay *relay, OutboxMonoTime now)
{
	OutboxMonoTime deadline = OUTBOX_MONO_UNSET;

	if (outbox_link_state(relay->link) == OUTBOX_LINK_CONNECTING)
		outbox_mono_earlier(&deadline,
							outbox_mono_plus(now, outbox_link_connect_due_ms(relay->link)));
	else if (outbox_relay_link_open(relay))
	{
		outbox_mono_earlier(&deadline,
							outbox_mono_plus(now, outbox_link_heartbeat_due_ms(relay->link)));
		outbox_mono_earlier(&deadline, outbox_relay_late_deadline(relay, now));
		if (MySlot->worker == 0)
			outbox_mono_earlier(&deadline, outbox_twin_deadline(&relay->twin, now));
		outbox_mono_earlier(&deadline, renewal_deadline(relay, now));
	}
	else if (relay->config.error == NULL && outbox_enabled && relay->database.attached)
		outbox_mono_earlier(&deadline,
							relay->hosts.connect_at);
	return deadline;
}
