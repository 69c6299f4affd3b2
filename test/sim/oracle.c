/*-------------------------------------------------------------------------
 *
 * oracle.c
 *		What must hold, seen from outside of the relay.
 *
 * It knows what was enqueued, by whom and when; what was published, confirmed and
 * settled; and what is on disk.  It looks at nothing of the relay but what that
 * does at its walls, and the counters in shared memory.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "settings.h"
#include "sim.h"

/*
 * What of a claim may be in memory beside the queue's 32 MB: each of the four that share
 * it (due rows, keys, what is new, what is LEFT) may go beyond its share by one message.
 */
#define MESSAGE_BYTES	((Size) (32 + 2 + 4 * 4) * 1024 * 1024)
/* What the relay holds when it has nothing to do. */
#define IDLE_BYTES		((Size) 96 * 1024)

/* Rows of a transaction that is small. */
#define SMALL			4

long		sim_sends;
static long sent_no;
static struct Start
{
	int			worker;			/* the last one that has started */
	long		sends;			/* before that */
	int64		last;			/* number that it found */
	int			visible;		/* transactions that were */
	int			told;			/* what it was told since */
}			start;
static struct
{
	int			worker;			/* whose sweep has made the last step */
	int64		paid_at;
	int			pass_worker;	/* the same of a whole pass */
	int64		pass_began;
	int64		pass_paid_at;
}			swept;

void
sim_oracle_init(void)
{
	memset(&swept, 0, sizeof(swept));
	sent_no = 0;
	memset(&start, 0, sizeof(start));
	sim_sends = 0;
}

static bool
flushed(int tx)
{
	return sim_txs[tx].state == TX_COMMITTED && sim_txs[tx].lsn <= sim_flushed;
}

/* ------------------------------------------------------------------- sending */

/* Nobody may hear of what has not been, or may yet be undone. */
static void
check_exists(const SimRow *row)
{
	SimTxState	state = sim_txs[row->inserted_by].state;

	if (state != TX_COMMITTED)
		sim_broken("ghost", "row %d is published, and its transaction %s", row->label,
				   state == TX_ABORTED ? "has aborted" : "has not committed");
	if (!sim_tx_durable(row->inserted_by))
		sim_broken("durable", "row %d is published before its commit is %s", row->label,
				   flushed(row->inserted_by) ? "on the standby" : "on disk");
	if (row->discarded_by != 0 && sim_txs[row->discarded_by].state == TX_COMMITTED)
		sim_broken("discarded", "row %d is published, and outbox_discard() has removed it",
				   row->label);
}

static void
check_once(const SimRow *row)
{
	if (row->flight == ROW_SENT)
		sim_broken("twice", "row %d is published again before it is answered", row->label);
	if (row->acked && row->acked_worker == sim_worker_number && !row->touched)
		sim_broken("twice", "row %d is published again after it was confirmed", row->label);
}

static bool
has_order(const SimRow *row)
{
	return row->key != 0 && sim_row_ordered(row) && !row->scheduled &&
		!row->silent && !row->touched;
}

/*
 * Rows of a time without an order have one when both hold their key, by an attempt
 * that has failed, and for a worker that has begun since then.
 */
static bool
have_order_since(const SimRow *a, const SimRow *b)
{
	const SimRoute *route = &sim_routes[sim_row_route(a)];
	const SimVersion *first = sim_row_current(a);
	const SimVersion *second = sim_row_current(b);

	return sim_worker_number > route->ordered_worker && !route->waited &&
		first != NULL && first->attempts > 0 && second != NULL && second->attempts > 0;
}

/* Must a be gone before b is published?  b entered its route when a was to be seen. */
static bool
comes_before(const SimRow *a, const SimRow *b)
{
	const SimTx *tx = &sim_txs[a->entered_by];

	if (!sim_same_key(a, b) || a->seq >= b->seq || !has_order(a))
		return false;
	if (a->unordered || b->unordered)
		return have_order_since(a, b);
	return tx->state == TX_COMMITTED && tx->order <= b->entered_order;
}

/* Must those of a key wait for each other?  One turn to hear of it. */
static bool
is_strict(const SimRoute *route)
{
	return !route->pipelined &&
		(route->strict_by == 0 ||
		 (route->strict_turn >= 0 && sim_turns > route->strict_turn + 1));
}

/*
 * May b be published while a is pending?  a was sent on this connection, or was
 * confirmed, and neither was refused before.
 */
static bool
may_follow(const SimRow *a, const SimVersion *current, const SimRow *b)
{
	const SimVersion *its = sim_row_current(b);

	return !is_strict(&sim_routes[sim_row_route(b)]) &&
		current->attempts == 0 && (its == NULL || its->attempts == 0) &&
		((a->flight == ROW_SENT && !a->returned) || a->flight == ROW_ACKED);
}

static void
check_order(const SimRow *row)
{
	if (!has_order(row))
		return;
	for (int i = 0; i < sim_nrows && sim_rows[i]->seq < row->seq; i++)
	{
		const SimRow *older = sim_rows[i];
		SimVersion *current;

		if (!comes_before(older, row))
			continue;
		current = sim_row_current(older);
		/* One that cannot be read keeps the others where failed ones do. */
		if (current != NULL && current->unreadable && !sim_row_always_blocks(older))
			continue;
		if (current != NULL && !current->failed && !may_follow(older, current, row))
			sim_broken("order", "row %d is published before row %d of its key, which is pending",
					   row->label, older->label);
		if (older->settled_by != 0 && sim_txs[older->settled_by].state == TX_COMMITTED &&
			!flushed(older->settled_by) && !row->together &&
			is_strict(&sim_routes[sim_row_route(row)]))
			sim_broken("order", "row %d is published while a crash could bring back row %d of its key",
					   row->label, older->label);
	}
}

/* As a message that has left the key for its failed route. */
static void
check_left(const SimRow *row)
{
	for (int i = 0; i < sim_nrows; i++)
	{
		const SimRow *left = sim_rows[i];

		if (left->left_by != 0 && left->key == row->key &&
			left->left_route == sim_row_route(row) &&
			left->left_seq < row->seq && sim_txs[left->left_by].state == TX_COMMITTED &&
			!flushed(left->left_by) && has_order(row) && !row->unordered &&
			!row->together && is_strict(&sim_routes[sim_row_route(row)]))
			sim_broken("order", "row %d is published while a crash could bring back row %d to its key",
					   row->label, left->label);
	}
}

static void
check_unconfirmed(const SimRow *row)
{
	if (!sim_row_ordered(row) || sim_routes[sim_row_route(row)].ordered_worker != 0 ||
		!is_strict(&sim_routes[sim_row_route(row)]))
		return;
	for (int i = 0; i < sim_nrows; i++)
		if (sim_rows[i] != row && sim_same_key(sim_rows[i], row) &&
			sim_rows[i]->flight == ROW_SENT)
			sim_broken("unconfirmed", "rows %d and %d of a key are unconfirmed together",
					   sim_rows[i]->label, row->label);
}

/* Is its row gone, by whomever, and stays so? */
static bool
is_gone(const SimRow *row)
{
	for (SimVersion *version = row->version; version != NULL; version = version->older)
		if (sim_txs[version->xmin].state == TX_COMMITTED)
			return version->xmax != 0 && flushed(version->xmax);
	return false;
}

/*
 * What a crash, now, could let the next worker publish again.  Beside the window
 * stands what the relay knows to be locked, up to OUTBOX_LOCKED_MAX.
 */
static void
check_window(void)
{
	int			count = 0;
	int			locked = 0;

	for (int i = 0; i < sim_nrows; i++)
	{
		const SimRow *row = sim_rows[i];

		if (row->flight == ROW_SENT)
			count++;
		/* Of what somebody else has removed, he has to know. */
		else if (!row->touched &&
				 (row->flight == ROW_ACKED || row->flight == ROW_REJECTED))
		{
			bool		counts = (row->acked || row->flight != ROW_ACKED) && !(row->settled_by != 0 && flushed(row->settled_by)) && !is_gone(row);

			count += counts;
			locked += counts && row->met_locked;
		}
	}
	count -= Min(locked, 2 * sim_config.window);
	if (count > sim_config.window)
		sim_broken("window", "%d messages are sent or settled and not on disk, the window is %d",
				   count, sim_config.window);
}

/* One turn to hear of it. */
static void
check_paused(const SimRow *row)
{
	const SimRoute *route = &sim_routes[sim_row_route(row)];

	if (route->paused && route->paused_turn >= 0 && sim_turns > route->paused_turn + 1)
		sim_broken("paused", "row %d is published on a route that is paused", row->label);
	if (sim_paused && sim_paused_turn >= 0 && sim_turns > sim_paused_turn + 1)
		sim_broken("paused", "row %d is published although all is paused", row->label);
}

/* Then what is not in flight is only in the table, for its owner to change. */
void
sim_oracle_paused(void)
{
	int			claimed = (int) pg_atomic_read_u32(&MySlot->counters.claimed);
	int			in_flight = (int) pg_atomic_read_u32(&MySlot->counters.in_flight);

	if (sim_paused && sim_paused_turn >= 0 && sim_turns > sim_paused_turn + 1 &&
		claimed > in_flight)
		sim_broken("paused", "%d messages stay in memory although all is paused",
				   claimed - in_flight);
}

/* One turn to hear of it. */
static bool
is_known_to_block(const SimRoute *route)
{
	return route->blocks &&
		(route->blocks_by == 0 ||
		 (route->blocks_turn >= 0 && sim_turns > route->blocks_turn + 1));
}

/*
 * What has failed holds the later ones of its key, from when the route says so.  What
 * was sent before, and not answered, is sent again.
 */
static void
check_blocked(const SimRow *row)
{
	const SimRoute *route = &sim_routes[sim_row_route(row)];

	if (row->flight == ROW_UNKNOWN || !is_known_to_block(route) ||
		(route->ordered_worker != 0 && sim_worker_number <= route->ordered_worker))
		return;
	for (int i = 0; i < sim_nrows && sim_rows[i]->seq < row->seq; i++)
	{
		SimVersion *current = sim_row_current(sim_rows[i]);

		if (current != NULL && sim_same_key(sim_rows[i], row) && sim_row_holds(sim_rows[i], current))
			sim_broken("blocked", "row %d is published, and row %d of its key has failed",
					   row->label, sim_rows[i]->label);
	}
}

void
sim_oracle_starts(int64 last)
{
	if (start.worker != sim_worker_number)
		start = (struct Start) {sim_worker_number, sim_sends, last, sim_visible, 0};
}

void
sim_oracle_told(void)
{
	start.told++;
}

/*
 * What had been sent when this worker was told of the row; -1: it was not.  A worker that
 * starts reads the last of what is there first, unless it is told of so much that it
 * cannot keep that apart (OUTBOX_UNREAD_MAX).
 */
static long
sends_before(const SimRow *row)
{
	const SimTx *tx = &sim_txs[row->inserted_by];

	if (start.worker == sim_worker_number && start.told < 3 &&
		tx->order != 0 && tx->order <= start.visible &&
		row->seq > start.last - 4 * sim_config.window && row->seq <= start.last)
		return start.sends;
	return row->told_worker == sim_worker_number ? row->told_sends : -1;
}

/*
 * What was committed by a small transaction does not wait for all of a large one
 * that was before it: from then on so many others may be sent, and those of other
 * small ones.
 */
static void
check_starved(const SimRow *row)
{
	long		limit = 8L * sim_config.window + 100;
	long		before = sends_before(row);

	/* With a window of a few, a few numbers are a backlog. */
	if (sim_config.window < 8 || row->key != 0 || row->times_sent > 0 || before < 0 ||
		row->was_locked || row->scheduled || row->touched ||
		sim_txs[row->inserted_by].rows > SMALL || sim_routes[sim_row_route(row)].waited ||
		sim_sends - before <= limit)
		return;
	for (int i = 0; i < sim_nrows; i++)
		if (sim_txs[sim_rows[i]->inserted_by].rows <= SMALL)
			limit += 3;
	if (sim_sends - before > limit)
		sim_broken("starved", "row %d had to wait for %ld others", row->label,
				   sim_sends - before);
}

void
sim_oracle_published(SimRow *row)
{
	sim_trace("    publishes %d", row->label);
	check_exists(row);
	check_once(row);
	check_order(row);
	check_left(row);
	check_unconfirmed(row);
	check_paused(row);
	check_blocked(row);
	check_starved(row);
	if (row->flight == ROW_REJECTED && row->rejections > 0 && !row->excused && !row->touched)
		sim_broken("attempts", "row %d is published again, and its refusal was not counted",
				   row->label);
	row->excused = false;
	row->together |= !is_strict(&sim_routes[sim_row_route(row)]);
	row->flight = ROW_SENT;
	row->met_locked = false;
	row->returned = false;
	row->rejections = 0;
	row->permanent = false;
	row->settled_by = 0;
	row->times_sent++;
	row->sent_no = ++sent_no;
	sim_late_sent(row);
	check_window();
	if (row->times_sent == 1)
		sim_sends++;
}

/* ------------------------------------------------------------------- answers */

/* What was sent behind it need not count, if it is refused as well. */
static void
excuse_behind(const SimRow *row)
{
	for (int i = 0; i < sim_nrows; i++)
		if (sim_same_key(sim_rows[i], row) && sim_rows[i]->sent_no > row->sent_no)
			sim_rows[i]->excused = true;
}

/* The link itself refuses it, before it is sent. */
void
sim_oracle_unsendable(SimRow *row)
{
	row->flight = ROW_REJECTED;
	row->sent_no = ++sent_no;
	row->rejections++;
	row->permanent = true;
	row->excused = false;
}

void
sim_oracle_returned(SimRow *row)
{
	row->returned = true;
	excuse_behind(row);
}

void
sim_oracle_refused(SimRow *row)
{
	row->flight = ROW_REJECTED;
	row->rejections++;
	excuse_behind(row);
}

void
sim_oracle_answered(SimRow *row, bool ack)
{
	if (ack && !row->returned)
	{
		row->flight = ROW_ACKED;
		row->acked = true;
		row->acked_worker = sim_worker_number;
	}
	else
		sim_oracle_refused(row);
	sim_late_answered(sim_row_route(row), ack);
}

/* Was one of its key sent before it, and is not answered?  surely: and claimed with its key. */
static bool
is_behind(const SimRow *row, bool surely)
{
	for (int i = 0; i < sim_nrows; i++)
		if (sim_same_key(sim_rows[i], row) && sim_rows[i]->flight == ROW_SENT &&
			sim_rows[i]->sent_no < row->sent_no && !(surely && sim_rows[i]->unordered))
			return true;
	return false;
}

bool
sim_oracle_is_behind(const SimRow *row)
{
	return is_behind(row, false);
}

/*
 * What was refused behind another one that was, or whose fate is unknown, is not counted:
 * its turn comes again.
 */
void
sim_oracle_let_go(void)
{
	for (int i = 0; i < sim_nrows; i++)
	{
		SimRow	   *row = sim_rows[i];

		if (row->flight != ROW_REJECTED || row->rejections <= 0 || !row->excused ||
			sim_row_claimed(row))
			continue;
		row->flight = ROW_UNSENT;
		row->rejections = 0;
		row->permanent = false;
	}
}

/* What was confirmed behind one that was not, and is not settled, is sent again. */
void
sim_oracle_link_lost(void)
{
	for (int i = 0; i < sim_nrows; i++)
	{
		SimRow	   *row = sim_rows[i];

		if ((row->flight != ROW_ACKED && row->flight != ROW_REJECTED) || !sim_row_claimed(row) ||
			!sim_oracle_is_behind(row))
			continue;
		row->acked = false;
		row->excused = true;
		/* Nobody knows whether the relay has claimed both with their key. */
		if (row->unordered || !is_behind(row, true))
			continue;
		row->rejections = 0;
		row->permanent = false;
		row->flight = ROW_UNKNOWN;
	}
	for (int i = 0; i < sim_nrows; i++)
		if (sim_rows[i]->flight == ROW_SENT)
			sim_rows[i]->flight = ROW_UNKNOWN;
}

/* What was refused, and was not counted, is sent again. */
void
sim_oracle_process_ends(bool clean)
{
	for (int i = 0; i < sim_nrows; i++)
	{
		sim_rows[i]->flight = ROW_UNSENT;
		sim_rows[i]->met_locked = false;
		sim_rows[i]->rejections = 0;
		sim_rows[i]->permanent = false;
		if (sim_txs[sim_rows[i]->settled_by].state != TX_COMMITTED)
			sim_rows[i]->settled_by = 0;
	}
}

/* ------------------------------------------------------------------ settling */

/* What a crash brings back of a key begins with the first one that is not answered. */
static void
check_gap(const SimRow *row)
{
	if (sim_routes[sim_row_route(row)].ordered_worker != 0 || !has_order(row) || row->unordered)
		return;
	for (int i = 0; i < sim_nrows; i++)
	{
		const SimRow *before = sim_rows[i];

		if (sim_same_key(before, row) && before->sent_no < row->sent_no && has_order(before) &&
			!before->unordered && before->flight == ROW_SENT && sim_row_current(before) != NULL)
			sim_broken("gap", "row %d is settled, and row %d of its key, sent before it, is not answered",
					   row->label, before->label);
	}
}

void
sim_oracle_settled(SimRow *row)
{
	if (row->flight != ROW_ACKED)
		sim_broken("loss", "row %d is settled, and the broker has not confirmed it", row->label);
	check_gap(row);
	row->settled_by = sim_relay_tx;
}

/* Nothing is failed that has somewhere to go, and nothing else goes there. */
static void
check_moved(const SimRow *row, int from, bool final, bool moved)
{
	int			target = sim_config.failed_route[from] - 1;

	if (moved != (final && target >= 0))
		sim_broken("deadletter", "row %d %s", row->label,
				   moved ? "goes to another route, and is not given up" :
				   "is given up, and does not go to the failed route");
	if (moved && sim_row_route(row) != target)
		sim_broken("deadletter", "row %d goes to route %d and not to %d", row->label,
				   sim_row_route(row), target);
}

void
sim_oracle_failed(SimRow *row, int from, int attempts, bool final, bool moved)
{
	int			max = sim_config.max_attempts[from];

	/* The transaction before may have failed. */
	if (row->settled_by != 0 && sim_txs[row->settled_by].state == TX_ABORTED)
		row->rejections++;
	if (row->rejections <= 0)
		sim_broken("attempts", "an attempt of row %d is counted, and nobody has refused it",
				   row->label);
	row->rejections--;
	if (final && attempts < max && !row->permanent)
		sim_broken("attempts", "row %d is given up after %d of %d attempts", row->label,
				   attempts, max);
	if (!final && (attempts >= max || row->permanent))
		sim_broken("attempts", "row %d is not given up after %d of %d attempts", row->label,
				   attempts, max);
	check_moved(row, from, final, moved);
	if (moved)
	{
		row->left_by = sim_relay_tx;
		row->left_route = from;
		row->left_seq = row->version->older->seq;
	}
	/* Of what is sent together, those behind it may have gone. */
	if (final && !moved && !is_known_to_block(&sim_routes[from]) && !is_strict(&sim_routes[from]))
		row->touched = true;
	row->settled_by = sim_relay_tx;
	row->flight = ROW_REJECTED;
}

/* --------------------------------------------------------------------- claims */

/*
 * The others do not wait while one statement walks all that a paused route has.  Ranges
 * that lie together may have become one.
 */
void
sim_oracle_walked(int rows)
{
	if (rows > 8 * sim_config.window + 100)
		sim_broken("walked", "a claim has passed %d rows that it leaves out", rows);
}

/* Nor while one passes all that was deleted. */
void
sim_oracle_listed(int entries, int limit)
{
	if (entries > limit)
		sim_broken("listed", "a list of %d rows at most has passed %d entries", limit, entries);
}

/* Where nothing was written, the sweep pays for a pass as well. */
void
sim_oracle_pass_begins(bool written)
{
	if (!written && swept.pass_worker == sim_worker_number && sim_now < swept.pass_paid_at)
		sim_broken("pace", "an idle pass of the sweep begins %.4f s before the last one is paid for",
				   (swept.pass_paid_at - sim_now) / 1e6);
	swept.pass_worker = sim_worker_number;
	swept.pass_began = sim_now;
	swept.pass_paid_at = 0;
}

/* The sweep pays for each step, which may end a pass, by a rest before the next one. */
void
sim_oracle_swept(int64 began, bool ends)
{
	if (ends)
		swept.pass_paid_at = began + (began - swept.pass_began) / 1000 * 1000 * OUTBOX_SWEEP_IDLE_PAUSE;
	if (swept.worker == sim_worker_number && began < swept.paid_at)
		sim_broken("pace", "a step of the sweep begins %.4f s before the last one is paid for",
				   (swept.paid_at - began) / 1e6);
	swept.worker = sim_worker_number;
	swept.paid_at = sim_now +
		Min((sim_now - began) * (sim_config.held != 0 ? OUTBOX_FORGOTTEN_PAUSE : OUTBOX_SWEEP_PAUSE),
			OUTBOX_SWEEP_MS * INT64CONST(1000));
}

/* -------------------------------------------------------------------- memory */

void
sim_oracle_turn(void)
{
	int			claimed = (int) pg_atomic_read_u32(&MySlot->counters.claimed);
	int			locked = 0;

	for (int i = 0; i < sim_nrows; i++)
		locked += sim_rows[i]->met_locked &&
			(sim_rows[i]->settled_by == sim_rows[i]->settled_before ||
			 sim_txs[sim_rows[i]->settled_by].state != TX_COMMITTED);
	if (claimed > 2 * sim_config.window + Min(locked, 2 * sim_config.window))
		sim_broken("memory", "%d messages are claimed with a window of %d", claimed,
				   sim_config.window);
	if (sim_message_bytes > MESSAGE_BYTES)
		sim_broken("memory", "%zu bytes of messages are in memory", sim_message_bytes);
}

/* ---------------------------------------------------------------------- rest */

/* Can the row not go, for a reason of others? */
static bool
is_held(const SimRow *row)
{
	const SimVersion *current = sim_row_current(row);

	return sim_row_locked(row) || sim_routes[sim_row_route(row)].paused ||
		(current != NULL && current->unreadable);
}

static bool
key_is_held(const SimRow *row)
{
	for (int i = 0; i < sim_nrows; i++)
		if (sim_same_key(sim_rows[i], row))
		{
			SimVersion *current = sim_row_current(sim_rows[i]);

			if (current != NULL && (is_held(sim_rows[i]) ||
									(sim_rows[i]->seq < row->seq && sim_row_holds(sim_rows[i], current))))
				return true;
		}
	return false;
}

/* What is locked and answered takes room from the window only beyond OUTBOX_LOCKED_MAX. */
static bool
window_is_locked(void)
{
	int			locked = 0;

	for (int i = 0; i < sim_nrows; i++)
		locked += sim_row_locked(sim_rows[i]);
	return locked >= 3 * sim_config.window;
}

void
sim_oracle_rest(bool all)
{
	bool		left = false;

	if (sim_paused || (!all && window_is_locked()))
		return;
	for (int i = 0; i < sim_nrows; i++)
	{
		const SimRow *row = sim_rows[i];
		SimVersion *current = sim_row_current(row);

		if (current == NULL)
			continue;
		left = true;
		if (current->failed || (row->silent && sim_config.sweep_ms == 0))
			continue;
		if (is_held(row) || key_is_held(row))
			continue;
		sim_broken("forgotten", "row %d is pending, and the relay waits for nothing%s",
				   row->label, all ? "" : " of it");
	}
	if (!all || left)
		return;
	if (sim_message_bytes != 0)
		sim_broken("memory", "%zu bytes of messages are in memory, and none is left",
				   sim_message_bytes);
	if (sim_memory_used > IDLE_BYTES)
		sim_broken("memory", "%zu bytes are in use, and no message is left", sim_memory_used);
}
