/*-------------------------------------------------------------------------
 *
 * twin.c
 *		Is another relay of this database connected to the broker?
 *
 * The broker gives a name that is made of the database's identity to one connection
 * only (broker_channels.c).  Worker 0 of the database asks for it.  A refusal alone
 * proves nothing: a connection of our own that is lost without the broker's
 * knowledge keeps the name until the broker has missed its heartbeats, at the latest
 * three intervals after the last byte.  In a cluster it keeps the name as well while
 * the others have not missed a node that vanished.  So a refusal after that time
 * counts:
 *
 *		UNKNOWN --held--> ALONE
 *		UNKNOWN, ALONE --locked--> TAKEN --locked, that time later--> FOUND
 *		TAKEN, FOUND --held--> ALONE
 *		ALONE --connection closed--> UNKNOWN
 *		any --nothing is published from here--> UNKNOWN
 *
 * TAKEN and FOUND outlive our connections, and so does the time that runs: as long
 * as the name was never ours in between, the same one has it.  Any other answer, or
 * none, changes nothing; where the broker forbids the question, it is asked again on
 * the next connection only.
 *
 * The question must cost the publishing connection nothing.  A broker may close a
 * connection for it, for one channel too many, say.  So it is asked while nothing is
 * in flight; only a connection that is never idle is asked after a heartbeat all the
 * same, unless a connection was closed for it before.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "backoff.h"
#include "twin.h"

/* Three intervals until the broker gives a silent connection up, and a moment. */
#define HEARTBEATS			3
#define MARGIN_MS			1000
/* RabbitMQ's net_ticktime is 60 s, which is kept to a quarter. */
#define CLUSTER_MS			80000
/* What counts as an interval when the connection has none. */
#define NO_HEARTBEAT_MS		60000

/* That the name is still ours: a policy or an administrator can delete a queue. */
#define RENEW_MS			300000
/* After an answer that says nothing, and after a closed connection. */
#define OTHER_MAX_MS		600000
#define CLOSED_MS			600000
#define CLOSED_MAX_MS		86400000
/* When there was no room for the question. */
#define PUT_OFF_MS			100

void
outbox_twin_init(OutboxTwin *twin, uint32_t (*random) (void))
{
	memset(twin, 0, sizeof(*twin));
	twin->random = random;
}

/* The only writer of twin->state; the diagram is above. */
static void
set_state(OutboxTwin *twin, OutboxTwinState state)
{
	Assert(state != OUTBOX_TWIN_FOUND || twin->state == OUTBOX_TWIN_TAKEN);
	Assert(state != OUTBOX_TWIN_TAKEN || twin->state < OUTBOX_TWIN_TAKEN);
	twin->state = state;
}

static void
ask_after(OutboxTwin *twin, int64_t ms, OutboxMonoTime now)
{
	twin->ask_at = outbox_mono_plus(now, ms);
	twin->idle_until = twin->ask_at;
}

void
outbox_twin_opened(OutboxTwin *twin, int64_t heartbeat_ms, bool cluster,
				   OutboxMonoTime now)
{
	twin->connected = true;
	twin->asking = false;
	twin->forbidden = false;
	twin->cluster = cluster;
	twin->heartbeat_ms = heartbeat_ms > 0 ? heartbeat_ms : NO_HEARTBEAT_MS;
	if (twin->longest_ms < twin->heartbeat_ms)
		twin->longest_ms = twin->heartbeat_ms;
	if (twin->closes > 0)
		return;					/* closed() has said when */
	twin->ask_at = now;
	twin->idle_until = outbox_mono_plus(now, twin->heartbeat_ms);
}

void
outbox_twin_closed(OutboxTwin *twin, bool asking, OutboxMonoTime now)
{
	twin->connected = false;
	twin->asking = false;
	if (asking)
	{
		twin->ask_at =
			outbox_mono_plus(now, outbox_backoff_ms(CLOSED_MS, CLOSED_MAX_MS,
													++twin->closes,
													twin->random()));
		twin->idle_until = OUTBOX_MONO_UNSET;
	}
	if (twin->state == OUTBOX_TWIN_ALONE)
		set_state(twin, OUTBOX_TWIN_UNKNOWN);
}

void
outbox_twin_stand_by(OutboxTwin *twin, OutboxMonoTime now)
{
	if (twin->state == OUTBOX_TWIN_UNKNOWN)
		return;
	set_state(twin, OUTBOX_TWIN_UNKNOWN);
	ask_after(twin, 0, now);
}

bool
outbox_twin_due(const OutboxTwin *twin, bool idle, OutboxMonoTime now)
{
	if (!twin->connected || twin->asking || twin->forbidden ||
		!outbox_mono_reached(twin->ask_at, now))
		return false;
	return idle || (outbox_mono_is_set(twin->idle_until) &&
					outbox_mono_reached(twin->idle_until, now));
}

void
outbox_twin_put_off(OutboxTwin *twin, OutboxMonoTime now)
{
	twin->ask_at = outbox_mono_plus(now, PUT_OFF_MS);
}

void
outbox_twin_asked(OutboxTwin *twin, OutboxMonoTime now)
{
	twin->asking = true;
	twin->late = false;
	twin->asked_at = now;
}

/* For how long the name can be that of a connection of ours that is no more. */
static int64_t
kept_ms(const OutboxTwin *twin)
{
	int64_t		ms = HEARTBEATS * twin->longest_ms + MARGIN_MS;

	return twin->cluster && ms < CLUSTER_MS ? CLUSTER_MS : ms;
}

/* The name is another connection's: a twin's, or for a while perhaps our own. */
static void
taken(OutboxTwin *twin, OutboxMonoTime now)
{
	if (twin->state == OUTBOX_TWIN_UNKNOWN || twin->state == OUTBOX_TWIN_ALONE)
	{
		twin->taken_at = now;
		set_state(twin, OUTBOX_TWIN_TAKEN);
	}
	else if (twin->state == OUTBOX_TWIN_TAKEN &&
			 outbox_mono_reached(outbox_mono_plus(twin->taken_at, kept_ms(twin)),
								 now))
		set_state(twin, OUTBOX_TWIN_FOUND);
	/* So that the third one from now counts. */
	ask_after(twin, twin->heartbeat_ms + MARGIN_MS / HEARTBEATS + 1, now);
}

void
outbox_twin_answered(OutboxTwin *twin, OutboxTwinAnswer answer, OutboxMonoTime now)
{
	twin->asking = false;
	twin->closes = 0;
	if (answer != OUTBOX_TWIN_OTHER)
		twin->others = 0;
	switch (answer)
	{
		case OUTBOX_TWIN_HELD:
			set_state(twin, OUTBOX_TWIN_ALONE);
			ask_after(twin, RENEW_MS, now);
			break;
		case OUTBOX_TWIN_LOCKED:
			taken(twin, now);
			break;
		case OUTBOX_TWIN_FORBIDDEN:
			twin->forbidden = true;
			break;
		case OUTBOX_TWIN_OTHER:
			ask_after(twin, outbox_backoff_ms(twin->heartbeat_ms, OTHER_MAX_MS,
											  ++twin->others, twin->random()), now);
			break;
	}
}

static OutboxMonoTime
late_at(const OutboxTwin *twin)
{
	return outbox_mono_plus(twin->asked_at, HEARTBEATS * twin->heartbeat_ms);
}

bool
outbox_twin_late(OutboxTwin *twin, OutboxMonoTime now)
{
	if (!twin->asking || twin->late || !outbox_mono_reached(late_at(twin), now))
		return false;
	twin->late = true;
	return true;
}

OutboxMonoTime
outbox_twin_deadline(const OutboxTwin *twin, OutboxMonoTime now)
{
	OutboxMonoTime late = late_at(twin);

	if (!twin->connected || twin->forbidden)
		return OUTBOX_MONO_UNSET;
	if (twin->asking)
		return outbox_mono_reached(late, now) ? OUTBOX_MONO_UNSET : late;
	if (!outbox_mono_reached(twin->ask_at, now))
		return twin->ask_at;
	/* Whatever makes the connection idle is seen without a deadline. */
	return outbox_mono_reached(twin->idle_until, now) ?
		OUTBOX_MONO_UNSET : twin->idle_until;
}
