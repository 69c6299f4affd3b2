/*-------------------------------------------------------------------------
 *
 * test_twin.c
 *		Unit tests of src/relay/link/twin.c.
 *
 *-------------------------------------------------------------------------
 */
#include "check.h"
#include "twin.h"

#include <stdlib.h>

#define BEAT_MS 10000

static uint32_t
middle(void)
{
	return (uint32_t) 1 << 31;	/* jitter of exactly nothing */
}

static OutboxMonoTime
at(int64_t ms)
{
	return (OutboxMonoTime) {(1000000 + ms) * 1000};
}

static OutboxTwin *
make(void)
{
	OutboxTwin *twin = malloc(sizeof(OutboxTwin));

	outbox_twin_init(twin, middle);
	check(!outbox_twin_due(twin, true, at(0)) &&
		  !outbox_mono_is_set(outbox_twin_deadline(twin, at(0))),
		  "without a connection nothing is asked");
	outbox_twin_opened(twin, BEAT_MS, false, at(0));
	return twin;
}

static void
answer(OutboxTwin *twin, OutboxTwinAnswer what, int64_t ms)
{
	outbox_twin_asked(twin, at(ms));
	outbox_twin_answered(twin, what, at(ms));
}

/* The next question is then, and not before. */
static bool
asks_at(OutboxTwin *twin, int64_t ms)
{
	return !outbox_twin_due(twin, true, at(ms - 1)) &&
		outbox_twin_due(twin, true, at(ms)) &&
		outbox_twin_deadline(twin, at(ms - 1)).us == at(ms).us;
}

static void
test_idle(void)
{
	OutboxTwin *twin = make();

	check(outbox_twin_due(twin, true, at(0)), "an idle connection is asked at once");
	check(!outbox_twin_due(twin, false, at(BEAT_MS - 1)) &&
		  outbox_twin_due(twin, false, at(BEAT_MS)),
		  "one that is never idle after a heartbeat");
	check(outbox_twin_deadline(twin, at(1)).us == at(BEAT_MS).us,
		  "which is waited for");
	check(!outbox_mono_is_set(outbox_twin_deadline(twin, at(BEAT_MS))),
		  "and when it is over nothing is");
	outbox_twin_put_off(twin, at(BEAT_MS));
	check(asks_at(twin, BEAT_MS + 100), "no room: a moment later");
	outbox_twin_asked(twin, at(0));
	check(!outbox_twin_due(twin, true, at(BEAT_MS * 100)), "one question at a time");
	free(twin);
}

static void
test_alone(void)
{
	OutboxTwin *twin = make();

	answer(twin, OUTBOX_TWIN_HELD, 0);
	check(twin->state == OUTBOX_TWIN_ALONE, "the name is ours");
	check(asks_at(twin, 300000), "asked again after five minutes");
	outbox_twin_closed(twin, false, at(1000));
	check(twin->state == OUTBOX_TWIN_UNKNOWN,
		  "without the connection nothing is known");
	outbox_twin_opened(twin, BEAT_MS, false, at(2000));
	check(outbox_twin_due(twin, true, at(2000)), "a new one is asked at once");
	free(twin);
}

/* Questions at each time that the machine asks for, until the answer counts. */
static int64_t
found_at(OutboxTwin *twin, int64_t ms)
{
	answer(twin, OUTBOX_TWIN_LOCKED, ms);
	while (twin->state == OUTBOX_TWIN_TAKEN)
	{
		ms = (outbox_twin_deadline(twin, at(ms)).us - at(0).us) / 1000;
		answer(twin, OUTBOX_TWIN_LOCKED, ms);
	}
	return ms;
}

static void
test_found(void)
{
	OutboxTwin *twin = make();
	int64_t		ms;

	answer(twin, OUTBOX_TWIN_LOCKED, 5);
	check(twin->state == OUTBOX_TWIN_TAKEN, "one refusal is no twin");
	check(asks_at(twin, 5 + BEAT_MS + 334), "asked again after a heartbeat");
	answer(twin, OUTBOX_TWIN_LOCKED, 5 + 3 * BEAT_MS);
	check(twin->state == OUTBOX_TWIN_TAKEN,
		  "nor one after three heartbeats to the millisecond");
	ms = found_at(twin, 5 + 3 * BEAT_MS + 999);
	check(twin->state == OUTBOX_TWIN_FOUND, "later it is");
	outbox_twin_closed(twin, false, at(ms));
	check(twin->state == OUTBOX_TWIN_FOUND,
		  "a lost connection is no news of it");
	outbox_twin_opened(twin, BEAT_MS, false, at(ms));
	answer(twin, OUTBOX_TWIN_LOCKED, ms);
	check(twin->state == OUTBOX_TWIN_FOUND, "it is still there");
	answer(twin, OUTBOX_TWIN_OTHER, ms);
	check(twin->state == OUTBOX_TWIN_FOUND,
		  "an answer that says nothing changes nothing");
	answer(twin, OUTBOX_TWIN_FORBIDDEN, ms);
	check(twin->state == OUTBOX_TWIN_FOUND,
		  "nor does the loss of the right to ask");
	outbox_twin_opened(twin, BEAT_MS, false, at(ms));
	answer(twin, OUTBOX_TWIN_HELD, ms);
	check(twin->state == OUTBOX_TWIN_ALONE, "it is gone");
	check(found_at(twin, 1000000) - 1000000 == 3 * (BEAT_MS + 334),
		  "found by the third question after the first, in 31.002 s");
	answer(twin, OUTBOX_TWIN_HELD, 2000000);
	outbox_twin_stand_by(twin, at(2000001));
	check(twin->state == OUTBOX_TWIN_UNKNOWN, "a copy that is silent has none");
	check(outbox_twin_due(twin, true, at(2000001)), "and asks when it publishes");
	free(twin);
}

/* What held the name was our own connection, of which the broker had not heard. */
static void
test_half_open(void)
{
	OutboxTwin *twin = make();

	answer(twin, OUTBOX_TWIN_HELD, 0);
	outbox_twin_closed(twin, false, at(50000));
	outbox_twin_opened(twin, 1000, false, at(51000));
	answer(twin, OUTBOX_TWIN_LOCKED, 51000);
	answer(twin, OUTBOX_TWIN_LOCKED, 51000 + 3 * BEAT_MS);
	check(twin->state == OUTBOX_TWIN_TAKEN,
		  "the longest of our heartbeats counts, and not only the last");
	outbox_twin_closed(twin, false, at(81000));
	outbox_twin_opened(twin, 1000, false, at(81500));
	answer(twin, OUTBOX_TWIN_HELD, 81500);
	check(twin->state == OUTBOX_TWIN_ALONE, "it was none");
	outbox_twin_closed(twin, false, at(82000));
	outbox_twin_opened(twin, 1000, false, at(82000));
	answer(twin, OUTBOX_TWIN_LOCKED, 82000);
	check(twin->state == OUTBOX_TWIN_TAKEN,
		  "once the name was ours the time runs anew");
	outbox_twin_closed(twin, false, at(83000));
	outbox_twin_opened(twin, 1000, false, at(82000 + 3 * BEAT_MS + 1000));
	answer(twin, OUTBOX_TWIN_LOCKED, 82000 + 3 * BEAT_MS + 1000);
	check(twin->state == OUTBOX_TWIN_FOUND,
		  "a connection that is lost meanwhile does not stop it");
	free(twin);
}

static void
test_no_heartbeat(void)
{
	OutboxTwin *twin = malloc(sizeof(OutboxTwin));

	outbox_twin_init(twin, middle);
	outbox_twin_opened(twin, 0, false, at(0));
	check(found_at(twin, 0) == 3 * 60334, "without heartbeats a minute stands for one");
	free(twin);
}

/* A node that vanished with our connection is missed later. */
static void
test_cluster(void)
{
	OutboxTwin *twin = malloc(sizeof(OutboxTwin));

	outbox_twin_init(twin, middle);
	outbox_twin_opened(twin, BEAT_MS, true, at(0));
	check(found_at(twin, 0) == 8 * (BEAT_MS + 334),
		  "with several hosts, 80 s at least");
	outbox_twin_opened(twin, 60000, true, at(100000));
	answer(twin, OUTBOX_TWIN_HELD, 100000);
	check(found_at(twin, 100000) == 100000 + 3 * 60334,
		  "and three heartbeats, if that is longer");
	free(twin);
}

static void
test_others(void)
{
	OutboxTwin *twin = make();

	answer(twin, OUTBOX_TWIN_OTHER, 0);
	check(twin->state == OUTBOX_TWIN_UNKNOWN && asks_at(twin, BEAT_MS),
		  "an answer that says nothing: again after a heartbeat");
	answer(twin, OUTBOX_TWIN_OTHER, 10000);
	check(asks_at(twin, 10000 + 2 * BEAT_MS), "then after two");
	for (int i = 0; i < 20; i++)
		answer(twin, OUTBOX_TWIN_OTHER, 10000);
	check(asks_at(twin, 10000 + 600000), "at most after ten minutes");
	answer(twin, OUTBOX_TWIN_FORBIDDEN, 10000);
	check(!outbox_twin_due(twin, true, at(INT32_MAX)) &&
		  !outbox_mono_is_set(outbox_twin_deadline(twin, at(10000))),
		  "forbidden: not again on this connection");
	outbox_twin_opened(twin, BEAT_MS, false, at(20000));
	check(outbox_twin_due(twin, true, at(20000)), "but on the next one");

	outbox_twin_asked(twin, at(20000));
	check(!outbox_twin_late(twin, at(20000 + 3 * BEAT_MS - 1)) &&
		  outbox_twin_deadline(twin, at(20000)).us == at(20000 + 3 * BEAT_MS).us,
		  "an answer has three heartbeats of time");
	check(outbox_twin_late(twin, at(20000 + 3 * BEAT_MS)) &&
		  !outbox_twin_late(twin, at(20000 + 3 * BEAT_MS)), "which is told once");
	check(!outbox_mono_is_set(outbox_twin_deadline(twin, at(20000 + 3 * BEAT_MS))),
		  "and not waited for");
	outbox_twin_answered(twin, OUTBOX_TWIN_HELD, at(100000));
	check(twin->state == OUTBOX_TWIN_ALONE, "a late one counts all the same");
	free(twin);
}

/* The question cost us the connection. */
static void
test_closed(void)
{
	OutboxTwin *twin = make();

	outbox_twin_asked(twin, at(0));
	outbox_twin_closed(twin, true, at(0));
	outbox_twin_opened(twin, BEAT_MS, false, at(1000));
	check(asks_at(twin, 600000), "not again for ten minutes");
	check(!outbox_twin_due(twin, false, at(INT32_MAX)) &&
		  !outbox_mono_is_set(outbox_twin_deadline(twin, at(600000))),
		  "and only when the connection is idle");
	outbox_twin_closed(twin, false, at(2000));
	outbox_twin_opened(twin, BEAT_MS, false, at(3000));
	check(asks_at(twin, 600000), "whatever becomes of the connection");
	outbox_twin_asked(twin, at(600000));
	outbox_twin_closed(twin, true, at(600000));
	outbox_twin_opened(twin, BEAT_MS, false, at(600000));
	check(asks_at(twin, 600000 + 1200000), "then after twice as long");
	answer(twin, OUTBOX_TWIN_HELD, 1800000);
	outbox_twin_closed(twin, false, at(1800000));
	outbox_twin_opened(twin, BEAT_MS, false, at(1800000));
	check(outbox_twin_due(twin, true, at(1800000)), "until there was an answer");
	free(twin);
}

int
main(void)
{
	test_idle();
	test_alone();
	test_found();
	test_half_open();
	test_no_heartbeat();
	test_cluster();
	test_others();
	test_closed();
	return done();
}
