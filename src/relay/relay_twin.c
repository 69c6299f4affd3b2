/*-------------------------------------------------------------------------
 *
 * relay_twin.c
 *		Asks the broker whether another relay of this database is connected.
 *
 * Two servers that both publish the same messages (a data directory that was copied
 * and started beside the original, a promotion whose old primary lives on) differ in
 * nothing that a database could look at.  They meet at the broker: worker 0 of the
 * database asks there for a name made of its identity, which one connection can have.
 * twin.c decides when to ask and what the answers mean.
 *
 * This finds a twin and stops none: outbox.environment is the fence.  It is no part
 * of publishing, which goes on whatever comes of it.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "identity.h"
#include "miscadmin.h"
#include "relay_internal.h"
#include "settings.h"

/* Reply codes of AMQP. */
#define ACCESS_REFUSED		403
#define RESOURCE_LOCKED		405
#define NOT_ALLOWED			530 /* too many channels */

/* MySlot->twin_told: none of AMQP's. */
#define TOLD_NOTHING		0
#define TOLD_NO_ANSWER		(-1)

/*
 * Why nothing is known of a twin.  Once for each code, whatever becomes of connection
 * and process, since a login without the right stays without it.
 */
static void
tell_unknown(int code, const char *text)
{
	if (MySlot->twin_told == code)
		return;
	MySlot->twin_told = code;
	ereport(LOG,
			(errmsg("outbox relay cannot tell whether another relay of this database is connected to the broker"),
			 errdetail_internal("%s", text),
			 code == ACCESS_REFUSED ?
			 errhint("Publishing goes on. The login needs the right to configure queues named \"outbox-identity.*\".") :
			 errhint("Publishing goes on.")));
}

void
outbox_relay_twin_opened(OutboxRelay *relay)
{
	outbox_twin_opened(&relay->twin, outbox_link_heartbeat_ms(relay->link),
					   relay->config.uri.nhosts > 1,
					   outbox_mono_now());
}

void
outbox_relay_twin_closed(OutboxRelay *relay, const OutboxLinkError *error)
{
	bool		asking = error != NULL && error->name;

	outbox_twin_closed(&relay->twin, asking, outbox_mono_now());
	if (asking)
		tell_unknown(error->code, error->text);
}

/* Does this relay publish, as far as the database and the settings go? */
static bool
publishes(OutboxRelay *relay)
{
	return outbox_enabled && relay->database.attached &&
		relay->database.started &&
		relay->control.copy == OUTBOX_COPY_NONE;
}

static bool
is_idle(OutboxRelay *relay)
{
	return relay->window.outstanding == 0 && relay->queue->count == 0 &&
		!outbox_link_sending(relay->link);
}

static void
show_twin(OutboxTwinState before, const char *text)
{
	char		detail[OUTBOX_TEXT_SIZE];
	char		name[OUTBOX_IDENTITY_NAME_SIZE];

	outbox_identity_name(name);
	snprintf(detail, sizeof(detail),
			 "at \"%s\" another connection holds the name of this database's relay, \"%s\": %s",
			 MySlot->broker, name, text);
	outbox_slot_set_current_error(OUTBOX_ERROR_TWIN, OUTBOX_REASON_TWIN, detail, NULL);
	if (before != OUTBOX_TWIN_FOUND)
		ereport(LOG,
				(errmsg("another relay of this database is connected to the broker"),
				 errdetail_internal("%s", detail),
				 errhint("Two servers publish the same messages: a copy of this one, or an old primary. Stop the wrong one, or set its outbox.enabled to off.")));
}

/* After an answer that says something. */
static void
show_answer(OutboxRelay *relay, OutboxTwinState before, const char *text)
{
	OutboxTwinState after = relay->twin.state;

	if (after == OUTBOX_TWIN_FOUND)
	{
		show_twin(before, text);
		return;
	}
	outbox_slot_clear_current_error(OUTBOX_ERROR_TWIN);
	if (before == OUTBOX_TWIN_FOUND && after == OUTBOX_TWIN_ALONE)
		ereport(LOG,
				(errmsg("no other relay of this database is connected to the broker any more")));
}

static void
take_refusal(OutboxRelay *relay, int code, const char *text, OutboxMonoTime now)
{
	OutboxTwinState before = relay->twin.state;

	if (code == RESOURCE_LOCKED)
	{
		outbox_twin_answered(&relay->twin, OUTBOX_TWIN_LOCKED, now);
		show_answer(relay, before, text);
		return;
	}
	tell_unknown(code, text);
	outbox_twin_answered(&relay->twin, code == ACCESS_REFUSED || code == NOT_ALLOWED ?
						 OUTBOX_TWIN_FORBIDDEN : OUTBOX_TWIN_OTHER, now);
}

static void
take_answer(OutboxRelay *relay, OutboxMonoTime now)
{
	OutboxTwinState before = relay->twin.state;
	int			code;
	const char *text;

	switch (outbox_link_name_answer(relay->link, &code, &text))
	{
		case OUTBOX_LINK_OK:
			MySlot->twin_told = TOLD_NOTHING;
			outbox_twin_answered(&relay->twin, OUTBOX_TWIN_HELD, now);
			show_answer(relay, before, text);
			break;
		case OUTBOX_LINK_REFUSED:
			take_refusal(relay, code, text, now);
			break;
		case OUTBOX_LINK_AGAIN:
			/* A broker that blocks us reads nothing. */
			if (outbox_link_state(relay->link) == OUTBOX_LINK_OPEN &&
				outbox_twin_late(&relay->twin, now))
				tell_unknown(TOLD_NO_ANSWER, "The broker does not answer the question.");
			break;
		case OUTBOX_LINK_LOST:
			outbox_relay_link_lost(relay);
			break;
	}
}

static void
ask(OutboxRelay *relay, OutboxMonoTime now)
{
	char		name[OUTBOX_IDENTITY_NAME_SIZE];

	outbox_identity_name(name);
	switch (outbox_link_ask_name(relay->link, name))
	{
		case OUTBOX_LINK_OK:
			outbox_twin_asked(&relay->twin, now);
			break;
		case OUTBOX_LINK_REFUSED:
			outbox_twin_asked(&relay->twin, now);
			take_answer(relay, now);
			break;
		case OUTBOX_LINK_AGAIN:
			outbox_twin_put_off(&relay->twin, now);
			break;
		case OUTBOX_LINK_LOST:
			outbox_relay_link_lost(relay);
			break;
	}
}

static void
stand_by(OutboxRelay *relay, OutboxMonoTime now)
{
	outbox_twin_stand_by(&relay->twin, now);
	outbox_slot_clear_current_error(OUTBOX_ERROR_TWIN);
	if (outbox_relay_link_open(relay) &&
		outbox_link_release_name(relay->link) == OUTBOX_LINK_LOST)
		outbox_relay_link_lost(relay);
}

/* Called in every turn; mostly there is nothing to do. */
void
outbox_relay_twin_step(OutboxRelay *relay, OutboxMonoTime now)
{
	bool		open = outbox_relay_link_open(relay);

	if (MySlot->worker != 0)
		return;
	if (open && relay->twin.asking)
		take_answer(relay, now);
	if (!publishes(relay))
		stand_by(relay, now);
	/* A broker that blocks us reads no question; its end is a reason to look. */
	else if (outbox_link_state(relay->link) == OUTBOX_LINK_OPEN &&
			 !relay->control.stale &&
			 outbox_twin_due(&relay->twin, is_idle(relay), now))
		ask(relay, now);
}
