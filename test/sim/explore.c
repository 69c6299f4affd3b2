/*-------------------------------------------------------------------------
 *
 * explore.c
 *		All histories of small worlds.
 *
 * A world has a few actors, each with a short script: the steps of a producer, a
 * lock and its end, an answer of the broker, a crash.  At each point of the relay that
 * counts, either it goes on or one of the actors does its next step.  All of these
 * choices are tried, depth first: a history is begun anew and led to the choice that
 * is next.  How many points the relay may pass bounds it; then things come to rest.
 *
 * A state that was there before is not followed again.  What the relay is, in all its
 * memory, follows from what it has learnt at its walls since it began; so a state is
 * that (sim_learnt), how far it has come, and the world around it.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <time.h>

#include "sim.h"

#undef printf

#define MAX_ACTORS		8
#define MAX_SCRIPT		14
#define MAX_DEPTH		4096

typedef struct Script
{
	SimStep		steps[MAX_SCRIPT];
} Script;

typedef struct World
{
	const char *name;
	SimConfig	config;
	int			points;			/* of the relay, until it comes to rest */
	int			full_points;
	Script		before;			/* done before the relay begins */
	Script		actors[MAX_ACTORS];
} World;

#define CONFIG(w) ORDERED(w, 1)
#define PIPELINED(w) ORDERED(w, 2)
#define ORDERED(w, o) \
	{.seed = 1,.window = (w),.poll_ms = 3600000,.retry_ms = 100,.retry_max_ms = 1000, \
	 .merge = 1,.waiting = 2,.ordered = {(o), (o), (o), (o)},.block = {0, 1, 0, 0}, \
	 .max_attempts = {2, 2, 2, 2}}
#define END {.op = OP_COUNT}
#define DO(...) {.steps = {__VA_ARGS__, END}}
#define STEP(name, ...) {.op = OP_##name,.arg = {__VA_ARGS__}}

/* A producer with one row, whose transaction has begun, and all that it does. */
#define PRODUCER(p, label, k) \
	STEP(row, p, label, k), STEP(word, p), STEP(commit, p), STEP(announce, p)

/* The relay is there, and waits. */
#define IDLE STEP(idle, 0)

static const World worlds[] = {
	{"the start", CONFIG(2), 24, 60, DO(STEP(begin, 0, 1), PRODUCER(0, 1, 1), STEP(begin, 1), STEP(begin, 2)), {
			DO(PRODUCER(1, 2, 1)), DO(STEP(row, 2, 3), STEP(announce, 2)), DO(STEP(crash, 0))
	}},
	{"two producers of a key", CONFIG(2), 24, 60, DO(IDLE, STEP(begin, 0, 1), STEP(begin, 1)), {
			DO(PRODUCER(0, 1, 1)), DO(PRODUCER(1, 2, 1)),
			DO(STEP(ack, 1)), DO(STEP(ack, 2)), DO(STEP(crash, 0))
	}},
	{"a transaction of two ranges", CONFIG(2), 20, 50, DO(IDLE, STEP(begin, 0, 1), STEP(row, 0, 1, 1), STEP(begin, 1), PRODUCER(1, 2, 0), STEP(idle, 0), STEP(begin, 1)), {
			DO(PRODUCER(0, 3, 2)), DO(STEP(row, 1, 4, 1), STEP(row, 1, 5, 2), STEP(commit, 1), STEP(announce, 1)),
			DO(STEP(ack, 1)), DO(STEP(ack, 3)), DO(STEP(crash, 0))
	}},
	{"a lock", CONFIG(2), 28, 60, DO(IDLE, STEP(begin, 0), PRODUCER(0, 1, 1), STEP(begin, 1), STEP(begin, 2, 1)), {
			DO(STEP(lock, 1, 1), STEP(abort, 1)),
			DO(STEP(row, 2, 2, 1), STEP(commit, 2), STEP(announce, 2)),
			DO(STEP(ack, 1)), DO(STEP(ack, 2)), DO(STEP(crash, 0))
	}},
	{"a nack", CONFIG(2), 60, 120, DO(IDLE, STEP(begin, 0), PRODUCER(0, 1, 1), STEP(begin, 0, 1), PRODUCER(0, 2, 1), STEP(begin, 1)), {
			DO(STEP(nack, 1)), DO(STEP(ack, 1)), DO(STEP(ack, 2)),
			DO(STEP(row, 1, 3, 1), STEP(announce, 1)), DO(STEP(crash, 0))
	}},
	{"a prepared transaction", CONFIG(2), 26, 60, DO(IDLE, STEP(begin, 0), STEP(row, 0, 1, 1), STEP(begin, 1, 1)), {
			DO(STEP(prepare, 0, 1), STEP(announce, 0), STEP(commit_prepared, 1)),
			DO(STEP(row, 1, 2, 1), STEP(commit, 1), STEP(announce, 1)),
			DO(STEP(ack, 1)), DO(STEP(ack, 2)), DO(STEP(crash, 0))
	}},
	{"a pause", CONFIG(2), 22, 70, DO(IDLE, STEP(begin, 0), PRODUCER(0, 1, 1), STEP(begin, 1), STEP(begin, 2)), {
			DO(STEP(pause, 1), STEP(announce, 1), STEP(begin, 1), STEP(resume, 1), STEP(announce, 1)),
			DO(STEP(row, 2, 2, 1), STEP(announce, 2)),
			DO(STEP(ack, 1)), DO(STEP(ack, 2)), DO(STEP(drop, 0))
	}},
	{"a lost connection", CONFIG(3), 70, 140, DO(IDLE, STEP(begin, 0), PRODUCER(0, 1, 1), STEP(begin, 0), STEP(row, 0, 2), STEP(row, 0, 3, 1), STEP(announce, 0)), {
			DO(STEP(drop, 0)), DO(STEP(ack, 2, 1)), DO(STEP(ack, 1)), DO(STEP(ack, 3)),
			DO(STEP(bounce, 1)), DO(STEP(kill, 0))
	}},
	{"an error in a round", CONFIG(2), 22, 80, DO(IDLE, STEP(begin, 0, 1), PRODUCER(0, 1, 1), STEP(begin, 1), STEP(begin, 2)), {
			DO(PRODUCER(1, 2, 1)), DO(STEP(error, 0)), DO(STEP(ack, 1)), DO(STEP(nack, 1)),
			DO(STEP(row, 2, 3, 1), STEP(announce, 2))
	}},
	{"requeued while it holds", CONFIG(2), 80, 160, DO(IDLE, STEP(begin, 0), STEP(row, 0, 1, 1, 1), STEP(row, 0, 2, 1, 1), STEP(announce, 0), STEP(fail, CALL_refuse, 1), STEP(begin, 1)), {
			DO(STEP(requeue, 1, 1), STEP(commit, 1), STEP(announce, 1)),
			DO(STEP(ack, 1)), DO(STEP(ack, 2)), DO(STEP(crash, 0))
	}},
	{"a discard", CONFIG(1), 70, 140, DO(IDLE, STEP(begin, 0), PRODUCER(0, 1, 1), STEP(begin, 0), PRODUCER(0, 2, 1), STEP(begin, 1, 1)), {
			DO(STEP(discard, 1, 1), STEP(commit, 1), STEP(announce, 1)),
			DO(STEP(nack, 1)), DO(STEP(ack, 1)), DO(STEP(crash, 0))
	}},
	{"a pipelined key", PIPELINED(3), 70, 140, DO(IDLE, STEP(begin, 0), STEP(row, 0, 1, 1), STEP(row, 0, 2, 1), STEP(row, 0, 3, 1), STEP(announce, 0), STEP(idle, 0)), {
			DO(STEP(ack, 1)), DO(STEP(ack, 3), STEP(ack, 2)), DO(STEP(drop, 0)), DO(STEP(crash, 0))
	}},
	{"a pipelined key is refused", PIPELINED(3), 26, 60, DO(IDLE, STEP(begin, 0), STEP(row, 0, 1, 1), STEP(row, 0, 2, 1), STEP(row, 0, 3, 1), STEP(announce, 0), STEP(idle, 0), STEP(begin, 1)), {
			DO(STEP(nack, 1)), DO(STEP(ack, 2)), DO(STEP(bounce, 3), STEP(ack, 3)),
			DO(STEP(row, 1, 4, 1), STEP(announce, 1)), DO(STEP(drop, 0))
	}},
	{"a pipelined key waits again", PIPELINED(2), 32, 70, DO(IDLE, STEP(begin, 0), STEP(row, 0, 1, 1), STEP(row, 0, 2, 1), STEP(row, 0, 3, 1), STEP(announce, 0), STEP(idle, 0), STEP(begin, 1)), {
			DO(STEP(order, 1), STEP(announce, 1)), DO(STEP(ack, 1)), DO(STEP(ack, 2)),
			DO(STEP(ack, 3)), DO(STEP(drop, 0)), DO(STEP(crash, 0))
	}},
	{"three producers", CONFIG(2), 12, 40, DO(IDLE, STEP(begin, 0, 1), STEP(begin, 1), STEP(begin, 2)), {
			DO(STEP(row, 0, 1, 1), STEP(commit, 0), STEP(announce, 0)),
			DO(STEP(row, 1, 2, 1), STEP(commit, 1), STEP(announce, 1)),
			DO(STEP(row, 2, 3, 1), STEP(announce, 2)),
			DO(STEP(ack, 1)), DO(STEP(ack, 2))
	}},
};

/* ---------------------------------------------------------------------- states */

static uint64 *seen;
static size_t nseen;
static size_t seen_size;

static bool
note_state(uint64 hash)
{
	size_t		at;

	if (hash == 0)
		hash = 1;
	if (nseen * 2 >= seen_size)
	{
		size_t		size = Max(2 * seen_size, (size_t) 1 << 16);
		uint64	   *table = calloc(size, sizeof(uint64));

		for (size_t i = 0; i < seen_size; i++)
			if (seen[i] != 0)
			{
				for (at = seen[i] % size; table[at] != 0;)
					at = (at + 1) % size;
				table[at] = seen[i];
			}
		free(seen);
		seen = table;
		seen_size = size;
	}
	for (at = hash % seen_size; seen[at] != 0; at = (at + 1) % seen_size)
		if (seen[at] == hash)
			return false;
	seen[at] = hash;
	nseen++;
	return true;
}

/* --------------------------------------------------------------------- choices */

static struct
{
	const World *world;
	int			points_max;
	int			at[MAX_ACTORS];	/* the next step of each */
	int			before;
	int			points;			/* that count, passed */
	int			depth;
	int			prefix;			/* choices that are given */
	int			choice[MAX_DEPTH];
	int			choices[MAX_DEPTH];
	SimHistory	history;
	bool		pruned;
}			run;

/* Where it matters when a step comes: between two of these nothing is learnt or done. */
static bool
counts(const char *point)
{
	static const char *const names[] = {
		"wait", "the inbox", "commit intents", "the snapshot", "claim", "claim of what is due",
		"list", "keys", "control row", "settle", "settle what is not locked", "fail",
		"begin", "commit", "commit, durable", "committed", "flush", "publish", "receive",
		"next due", "holders", "prepared transactions", "do they hold", "no worker",
		"a slot is assigned", "the worker has gone", "last row", "waiting for a lock",
	};

	for (int i = 0; i < (int) lengthof(names); i++)
		if (strcmp(point, names[i]) == 0)
			return true;
	return false;
}

static bool
is_outstanding(int label)
{
	SimRow	   *rows[16];
	int			n = sim_link_outstanding(rows, lengthof(rows));

	for (int i = 0; i < n; i++)
		if (rows[i]->label == label)
			return true;
	return false;
}

static bool
is_possible(const SimStep *step)
{
	SimRow	   *row;
	int			label;

	switch (step->op)
	{
		case OP_ack:
		case OP_nack:
		case OP_bounce:
			return is_outstanding(step->arg[0]);
		case OP_lock:
		case OP_requeue:
		case OP_discard:
			row = sim_row_find(step->arg[1]);
			return row != NULL && sim_row_current(row) != NULL && !sim_row_locked(row) &&
				(step->op != OP_requeue || sim_row_current(row)->failed);
		case OP_commit_prepared:
			return sim_prepared_next(&label);
		case OP_drop:
			return sim_link_is_open() || sim_link_connecting();
		case OP_error:
			return sim_relay_tx != 0;
		case OP_kill:
			return sim_relay_runs;
		default:
			return true;
	}
}

static const SimStep *
next_of(int actor)
{
	const SimStep *step = &run.world->actors[actor].steps[run.at[actor]];

	return step->op == OP_COUNT || run.world->actors[actor].steps[0].op == OP_relay ?
		NULL : step;
}

static uint64
state(void)
{
	uint64		hash = sim_learnt;

	hash = sim_link_hash(sim_backends_hash(sim_store_hash(hash)));
	for (int i = 0; i < MAX_ACTORS; i++)
		hash = (hash ^ (uint64) run.at[i]) * UINT64CONST(0x9E3779B97F4A7C15);
	for (int i = 0; i < CALL_COUNT; i++)
		hash = hash * 31 + sim_fail[i];
	hash = (hash ^ (uint64) (sim_points - sim_worker_began)) * UINT64CONST(0xBF58476D1CE4E5B9);
	hash ^= hash >> 31;
	hash = (hash ^ (uint64) sim_now) * UINT64CONST(0x94D049BB133111EB);
	hash = hash * 4 + sim_relay_runs * 2 + sim_latch_is_set();
	return hash ^ hash >> 29;
}

/* The choices here: 0 is that the relay goes on, the others are actors. */
static int
possible(int *actors)
{
	int			n = 0;

	actors[n++] = -1;
	for (int i = 0; i < MAX_ACTORS; i++)
	{
		const SimStep *step = next_of(i);

		if (step != NULL && is_possible(step))
			actors[n++] = i;
	}
	return n;
}

static bool
next_choice(SimStep *step)
{
	int			actors[MAX_ACTORS + 1];
	int			n;
	int			chosen;
	bool		any = false;

	memset(step, 0, sizeof(*step));
	if (run.world->before.steps[run.before].op != OP_COUNT)
	{
		*step = run.world->before.steps[run.before++];
		sim_history_add(&run.history, step);
		return true;
	}
	for (int i = 0; i < MAX_ACTORS; i++)
		any |= next_of(i) != NULL;
	if (!any || run.points >= run.points_max || run.depth >= MAX_DEPTH - 1)
		return false;
	step->op = OP_relay;
	step->arg[0] = 1;
	n = counts(sim_point_name) ? possible(actors) : 1;
	if (n > 1)
	{
		if (run.depth >= run.prefix)
		{
			if (!note_state(state()))
			{
				run.pruned = true;
				sim_stop();
			}
			run.choice[run.depth] = 0;
			run.choices[run.depth] = n;
		}
		chosen = run.choice[run.depth++];
		if (chosen > 0)
			*step = run.world->actors[actors[chosen]].steps[run.at[actors[chosen]]++];
	}
	if (step->op == OP_relay && counts(sim_point_name))
		run.points++;
	sim_history_add(&run.history, step);
	return true;
}

/* The last choice that has another one; false: all were tried. */
static bool
backtrack(void)
{
	for (int i = run.depth - 1; i >= 0; i--)
		if (run.choice[i] + 1 < run.choices[i])
		{
			run.choice[i]++;
			run.prefix = i + 1;
			return true;
		}
	return false;
}

/* ------------------------------------------------------------------------ all */

static double
cpu_seconds(void)
{
	struct timespec now;

	(void) clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
	return now.tv_sec + now.tv_nsec / 1e9;
}

/* false: a promise is broken. */
static bool
explore_world(const World *world, double until, bool full, long *histories, bool *complete)
{
	size_t		before = nseen;
	double		start = cpu_seconds();
	long		ended = 0;
	bool		more = true;

	memset(run.choice, 0, sizeof(run.choice));
	run.world = world;
	run.points_max = full ? world->full_points : world->points;
	run.prefix = 0;
	/* States of one world are none of another one. */
	memset(seen, 0, sizeof(uint64) * seen_size);
	nseen = before = 0;
	while (more && cpu_seconds() < until)
	{
		memset(run.at, 0, sizeof(run.at));
		run.before = 0;
		run.points = 0;
		run.depth = 0;
		run.pruned = false;
		run.history.nsteps = 0;
		run.history.config = world->config;
		sim_run(&world->config, next_choice);
		if (sim_verdict.failed)
			return false;
		if (!run.pruned)
			ended++;
		more = backtrack();
	}
	*histories += ended;
	*complete &= !more;
	printf("sim: %-24s %9zu states, %8ld histories, %5.1f s, up to %d points: %s\n", world->name,
		   nseen - before, ended, cpu_seconds() - start, run.points_max,
		   more ? "stopped by the time" : "all");
	fflush(stdout);
	return true;
}

bool
sim_explore(double seconds, bool full)
{
	double		start = cpu_seconds();
	long		histories = 0;
	size_t		states = 0;
	bool		complete = true;

	(void) note_state(1);
	for (int i = 0; i < (int) lengthof(worlds); i++)
	{
		double		left = start + seconds - cpu_seconds();

		/* What one leaves of its share is the others'. */
		if (!explore_world(&worlds[i], cpu_seconds() + left / (lengthof(worlds) - i),
						   full, &histories, &complete))
		{
			SimVerdict	verdict = sim_verdict;

			printf("BROKEN %s in the world \"%s\": %s\n", verdict.check, worlds[i].name,
				   verdict.text);
			sim_history_shrink(&run.history);
			sim_history_write(&run.history, stdout, &sim_verdict);
			return false;
		}
		states += nseen;
	}
	printf("sim: %zu states in %ld histories of %zu small worlds%s, all promises kept\n",
		   states, histories, lengthof(worlds), complete ? ", all there are" : "");
	return true;
}
