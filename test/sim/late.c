/*-------------------------------------------------------------------------
 *
 * late.c
 *		Everything in time: how long each message may wait.
 *
 * A row that nothing holds has a time by which it must be sent, or settled when it
 * was answered.  The model derives it from what it knows: the end of what held the
 * row, and how the relay hears of that end.  Whenever the relay is about to let time
 * pass, no row may have a deadline before the end of that wait.
 *
 * Only time that the relay chooses to wait counts: a step "time" moves all deadlines.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "settings.h"
#include "sim.h"

/*
 * What passes before a message that nothing holds is on the wire: the pace of claims
 * (relay_wait_set.c), a settling that waits for others (settler.c), a full send buffer
 * (broker.h), and turns.
 */
#define SLACK_US		INT64CONST(50000)

/* Passes that come to the row of a key that is forgotten, and to what held it. */
#define FORGOTTEN_US	INT64CONST(500000)

/* Of hosts.c, relay_link.c, route_states.c and database.c. */
#define UNREACHABLE_MS	1000
#define TOGETHER_MS		250
#define CLOSES_FREE		3
#define CLOSES_MS		50
#define CLOSES_MAX_MS	1000
#define STABLE_MS		10000
#define REST_ROUTE_MS	2000
#define DATABASE_MS		100
#define DATABASE_MAX_MS	5000

#define KEYS			256
#define NEVER			PG_INT64_MAX

typedef struct Wait
{
	int			failures;		/* in a row */
	int64		until;			/* it ends by then */
} Wait;

static Wait database;
static Wait link;
static Wait routes[SIM_ROUTES];
static int	closes;				/* of the channel, no progress between */
static bool progress;			/* on this connection: a confirm, or a route's error */
static int64 opened_at;			/* 0: the link is not open */
static bool leaves;				/* the worker only waits for answers */
static int64 prepared_at;		/* what ended without a word is known then */

void
sim_late_init(void)
{
	memset(&database, 0, sizeof(database));
	memset(&link, 0, sizeof(link));
	memset(routes, 0, sizeof(routes));
	closes = 0;
	leaves = false;
	opened_at = 0;
	prepared_at = 0;
}

/* What a worker has learnt of failures goes with it. */
void
sim_late_process_ends(void)
{
	sim_late_init();
	for (int i = 0; i < sim_nrows; i++)
		sim_rows[i]->due = 0;
}

/* The longest that a backoff can be. */
static int64
backoff_us(int64 initial_ms, int64 max_ms, int failures)
{
	int64		ms = initial_ms;

	for (int i = 1; i < failures && ms < max_ms; i++)
		ms *= 2;
	return Min(Min(ms, max_ms) * 5 / 4, max_ms) * 1000 + 1000;
}

static int64
recheck_us(void)
{
	return Min(sim_config.poll_ms, 1000) * INT64CONST(1000);
}

/* A pass that has come past a row, and the next one, each with its rests. */
static int64
swept_us(void)
{
	int			steps = sim_nrows / OUTBOX_SWEEP_ROWS + 2;

	return sim_config.sweep_ms * INT64CONST(2000) +
		2 * steps * (OUTBOX_SWEEP_PAUSE + 10) * SIM_STEP_US;
}

/* -------------------------------------------------------------------- events */

void
sim_late_error(void)
{
	database.failures++;
	database.until = sim_now + backoff_us(DATABASE_MS, DATABASE_MAX_MS, database.failures);
}

/* Nobody is told; each turn looks, and the poll makes one. */
void
sim_late_prepared_ended(void)
{
	prepared_at = sim_now + sim_config.poll_ms * INT64CONST(1000);
}

void
sim_late_leaves(void)
{
	leaves = true;
}

void
sim_late_route_broken(int route)
{
	routes[route].failures++;
	routes[route].until = sim_now + backoff_us(sim_config.retry_ms, sim_config.retry_max_ms,
											   routes[route].failures);
}

/* ... because the broker has closed the channel. */
void
sim_late_route_closed(int route)
{
	sim_late_route_broken(route);
	progress = true;
}

/* The broker has closed the channel because of a message: perhaps its route rests. */
void
sim_late_route_poison(int route)
{
	routes[route].until = Max(routes[route].until, sim_now + REST_ROUTE_MS * 1000);
}

void
sim_late_route_changed(int route)
{
	memset(&routes[route], 0, sizeof(Wait));
}

/* Its deadline has been met; a next attempt has another one. */
void
sim_late_sent(SimRow *row)
{
	row->due = 0;
	row->recheck = false;
}

void
sim_late_answered(int route, bool ack)
{
	routes[route].failures = 0;
	progress |= ack;
}

void
sim_late_link_opened(void)
{
	opened_at = sim_now;
	progress = false;
}

/* message: a message is the reason; else the next host, or a wait. */
void
sim_late_link_lost(bool message, bool unreachable)
{
	if (message)
	{
		closes = progress ? 1 : closes + 1;
		link.until = sim_now;
		if (closes > CLOSES_FREE)
			link.until += backoff_us(CLOSES_MS, CLOSES_MAX_MS, closes - CLOSES_FREE);
		opened_at = 0;
		return;
	}
	if (opened_at != 0 && sim_now >= opened_at + STABLE_MS * 1000)
		link.failures = 0;
	link.failures++;
	link.until = sim_now + TOGETHER_MS * 1000 +
		backoff_us(sim_config.retry_ms, unreachable ? Min(sim_config.retry_max_ms, UNREACHABLE_MS) :
				   sim_config.retry_max_ms, link.failures);
	opened_at = 0;
}

/* Time has passed that the relay has not chosen to wait. */
void
sim_late_shift(int64 us)
{
	for (int i = 0; i < sim_nrows; i++)
		sim_rows[i]->due += sim_rows[i]->due != 0 ? us : 0;
	for (int i = 1; i < sim_ntxs; i++)
		sim_txs[i].ended_at += us;
	database.until += us;
	link.until += us;
	opened_at += opened_at != 0 ? us : 0;
	prepared_at += us;
	for (int i = 0; i < SIM_ROUTES; i++)
		routes[i].until += us;
}

/* An attempt is counted, and the next one is at. */
void
sim_late_retry(const SimRow *row, int attempts, int64 wait_us)
{
	int64		most = backoff_us(sim_config.retry_ms, sim_config.retry_max_ms, attempts);

	if (wait_us > most)
		sim_broken("late", "attempt %d of row %d is made after %lld ms, not %lld", attempts + 1,
				   row->label, (long long) wait_us / 1000, (long long) most / 1000);
}

/* --------------------------------------------------------------------- rows */

/* What is known of all rows before one is judged. */
typedef struct Look
{
	bool		sent;			/* something is in flight */
	bool		alone;			/* something may go, or be declared, alone */
	int			due;			/* rows that may wait in the queue behind others of their key, */
	int			rest;			/* and the other ones */
	int			locked_rows;
	int64		all_until;		/* holds of everything; NEVER: no end is known */
	int			live[KEYS];		/* rows of the key */
	SimRow	   *first[KEYS];	/* the oldest of them */
	bool		held[KEYS];		/* by a row that is not the oldest */
	int64		locked[KEYS];	/* rows of it on any route were (one may have moved
								 * since), the relay looks then; NEVER: are */
} Look;

static bool
is_operated(void)
{
	for (int p = 0; p < SIM_BACKENDS; p++)
		if (sim_backends[p].tx != 0 && sim_backends[p].phase == 2 && sim_backends[p].locks)
			return true;
	return false;
}

static int64
locked_until(const SimRow *row)
{
	if (row->locked_by == 0)
		return 0;
	return sim_tx_open(row->locked_by) ? NEVER : sim_txs[row->locked_by].ended_at + recheck_us();
}

/* Does a younger one keep the others of its key?  One that has failed does not. */
static bool
holds_key(const SimRow *row, const SimVersion *current)
{
	return row->flight != ROW_UNSENT || (current->attempts > 0 && !current->failed);
}

static bool
is_gone(const SimRow *row)
{
	if (sim_txs[row->inserted_by].state == TX_ABORTED)
		return true;
	for (SimVersion *version = row->version; version != NULL; version = version->older)
		if (sim_txs[version->xmin].state == TX_COMMITTED)
			return version->xmax != 0 && sim_tx_durable(version->xmax);
	return false;
}

/* 0: it has none. */
static int
key_of(const SimRow *row)
{
	return row->key == 0 ? 0 : (row->key * SIM_ROUTES + sim_row_route(row)) % KEYS;
}

static void
look(Look *of)
{
	memset(of, 0, sizeof(*of));
	of->all_until = Max(database.until, prepared_at);
	if (sim_paused || !outbox_enabled || is_operated() ||
		MySlot->state == OUTBOX_WORKER_STOPPING)
		of->all_until = NEVER;
	for (int i = 0; i < SIM_ROUTES; i++)
		of->alone |= routes[i].failures > 0;
	for (int i = 0; i < sim_nrows; i++)
	{
		SimRow	   *row = sim_rows[i];
		int			key = key_of(row);
		SimVersion *current;
		int64		locked = locked_until(row);

		of->sent |= row->flight == ROW_SENT;
		of->locked_rows += locked > sim_now;
		if (locked != 0)
			of->locked[row->key % KEYS] = Max(of->locked[row->key % KEYS], locked);
		if (row->gone)
			continue;
		current = sim_row_current(row);
		if (current == NULL)
		{
			/* Nothing brings it back. */
			row->gone = is_gone(row);
			continue;
		}
		of->alone |= row->flight != ROW_SENT ? row->times_sent > 0 : row->times_sent > 1;
		of->rest++;
		if (key == 0)
			continue;
		of->held[key] |= current->unreadable;
		if (of->live[key]++ == 0)
			of->first[key] = row;
		else
		{
			of->held[key] |= holds_key(row, current);
			of->due += current->available_at != 0;
			of->rest -= current->available_at != 0;
		}
	}
}

/* To be settled.  A confirm that a lost link may have taken back is none: it is sent again. */
static bool
is_answered(const SimRow *row)
{
	return (row->flight == ROW_ACKED && row->acked) ||
		(row->flight != ROW_SENT && row->rejections > 0);
}

/*
 * May others that are in memory keep the row from being read, or sent?  What is answered
 * and locked takes no room, up to OUTBOX_LOCKED_MAX of it.
 */
static bool
is_crowded_out(const Look *of, const SimRow *row, const SimVersion *current)
{
	if (of->locked_rows >= 3 * sim_config.window)
		return true;
	if (current->available_at != 0 && of->due >= sim_config.window / 4)
		return true;
	return of->sent &&
		(leaves || of->alone || of->rest >= sim_config.window / 4 ||
		 row->times_sent > 0 || row->key != 0 || current->available_at != 0);
}

/* Until when the row cannot go; 0: it can. */
static int64
held_until(const Look *of, const SimRow *row, const SimVersion *current)
{
	int			key = key_of(row);
	int64		until = of->all_until;

	if (sim_tx_unannounced(current->xmin))
		return NEVER;
	until = Max(until, row->key != 0 ? of->locked[row->key % KEYS] : locked_until(row));
	/* What is answered is to be settled; nothing else is asked of it. */
	if (is_answered(row))
		return sim_oracle_is_behind(row) ? NEVER : until;
	if (is_crowded_out(of, row, current) || !sim_link_is_open() || sim_link_is_blocked() ||
		sim_routes[current->route].paused)
		return NEVER;
	if (current->unreadable || (key != 0 && (of->first[key] != row || of->held[key])))
		return NEVER;
	if (sim_link_awaits(current->route))
		return NEVER;
	until = Max(until, routes[current->route].until);
	if (current->available_at != 0)
		until = Max(until, current->available_at - SIM_EPOCH);
	return until;
}

/* Of two rows of one number the relay takes one for locked. */
static bool
shares_number(int i)
{
	return (i > 0 && sim_rows[i - 1]->seq == sim_rows[i]->seq) ||
		(i + 1 < sim_nrows && sim_rows[i + 1]->seq == sim_rows[i]->seq);
}

static void
check_row(const Look *of, int i, int64 wakes_at)
{
	SimRow	   *row = sim_rows[i];
	SimVersion *current = row->gone ? NULL : sim_row_current(row);
	int64		until;

	if (current == NULL || (current->failed && !is_answered(row)) ||
		(row->silent && sim_config.sweep_ms == 0))
	{
		row->due = 0;
		return;
	}
	until = held_until(of, row, current);
	if (until == NEVER)
	{
		/* What is due and cannot go is looked at from time to time. */
		row->recheck = current->available_at != 0;
		row->due = 0;
		return;
	}
	if (until > sim_now || row->due == 0)
	{
		int64		at = Max(until, sim_now);

		if (current->available_at != 0 && current->available_at - SIM_EPOCH < at)
			row->recheck = true;
		row->due = at + (row->recheck || shares_number(i) ? recheck_us() : 0) +
			(row->key != 0 && sim_config.held != 0 ? FORGOTTEN_US : 0) +
			(row->silent ? swept_us() : 0);
		row->recheck = false;
	}
	if (row->due + SLACK_US < wakes_at)
		sim_broken("late", "row %d can be %s in %.3f s, and the relay waits for %.3f s",
				   row->label, is_answered(row) ? "settled" : "sent", (row->due - sim_now) / 1e6,
				   (wakes_at - sim_now) / 1e6);
}

/* The relay is about to let time pass. */
void
sim_late_wait(int64 wakes_at)
{
	Look		of;

	if (wakes_at < sim_now + SLACK_US / 2 || !sim_relay_runs || MySlot == NULL)
		return;
	/* Which routes rest because of a message without a confirm is not known here. */
	if (sim_config.confirm_ms != 0)
		return;
	if (!sim_link_is_open() && !sim_link_connecting() && outbox_enabled &&
		MySlot->state != OUTBOX_WORKER_STOPPING &&
		Max(Max(link.until, database.until), sim_now) + SLACK_US < wakes_at)
		sim_broken("late", "the link can be opened in %.3f s, and the relay waits for %.3f s",
				   (link.until - sim_now) / 1e6, (wakes_at - sim_now) / 1e6);
	if (database.failures == 0)
		sim_oracle_paused();
	if (sim_now >= database.until)
		database.failures = 0;
	/* Of what the relay has judged since its last call to the link, when that was lost. */
	sim_oracle_let_go();
	look(&of);
	for (int i = 0; i < sim_nrows; i++)
		check_row(&of, i, wakes_at);
}

/* A worker has made room, and the next one comes then, unless somebody tells of work. */
void
sim_late_rest(int64 ends_at)
{
	for (int i = 0; i < sim_nrows; i++)
	{
		SimRow	   *row = sim_rows[i];
		SimVersion *current = sim_row_current(row);
		int64		due;

		if (current == NULL || current->failed || row->silent || sim_tx_unannounced(current->xmin) ||
			sim_paused || sim_routes[current->route].paused || !outbox_enabled)
			continue;
		due = current->available_at - SIM_EPOCH;
		/* One that came back: what is known of its route goes with the worker. */
		if (row->times_sent > 0 && current->older == NULL)
			due = Max(due, sim_now);
		if (due >= sim_now && due + SLACK_US < ends_at)
			sim_broken("late", "row %d can be sent in %.3f s, and its database rests for %.3f s",
					   row->label, (due - sim_now) / 1e6, (ends_at - sim_now) / 1e6);
	}
}
