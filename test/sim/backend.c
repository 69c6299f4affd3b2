/*-------------------------------------------------------------------------
 *
 * backend.c
 *		Producers and operators.
 *
 * Each is a backend with the state that wake.c and shared_intents.c keep in one:
 * these two are included here, and their static variables are put in place of the
 * backend whose turn it is.  shared_flushed.c is, as backends write it.
 *
 *-------------------------------------------------------------------------
 */
#include "wake.c"
#include "shared_intents.c"
#include "shared_flushed.c"

#include "sim.h"
#include "utils/fmgrprotos.h"
#include "utils/timestamp.h"

#define FIRST_XID		1000
#define MAX_PREPARED	300
#define MAX_CHANGES		1024

SimBackend	sim_backends[SIM_BACKENDS];

typedef struct Saved
{
	char		wake[sizeof(pending)];
	bool		early;
} Saved;

static Saved saved[SIM_BACKENDS];
static XactCallback at_end;

/* Prepared transactions; resolvable: PREPARE has returned. */
static struct
{
	int			label;
	int			tx;
	bool		resolvable;
}			prepared[MAX_PREPARED];
static int	nprepared;

/* Of routes, by transactions that have not committed. */
static struct
{
	int			tx;
	SimOp		op;
	int			route;
}			changes[MAX_CHANGES];
static int	nchanges;

static long last_sends;			/* at an announcement */
static int	last_worker;
static int64 highest;			/* that was announced */

static int	current;			/* transaction of the backend whose turn it is */

void
RegisterXactCallback(XactCallback callback, void *arg)
{
	at_end = callback;
}

TransactionId
GetTopTransactionIdIfAny(void)
{
	return current != 0 && sim_txs[current].wrote ? FIRST_XID + current :
		InvalidTransactionId;
}

FullTransactionId
GetTopFullTransactionIdIfAny(void)
{
	return FullTransactionIdFromEpochAndXid(0, GetTopTransactionIdIfAny());
}

bool
XLogNeedsFlush(XLogRecPtr record)
{
	return record > sim_flushed;
}

TransactionId
GetTopTransactionId(void)
{
	sim_txs[current].wrote = true;
	return GetTopTransactionIdIfAny();
}

void
sim_backends_init(void)
{
	/* What is prepared outlives a crash, and the history before is forgotten. */
	int			n = 0;

	for (int i = 0; i < nprepared; i++)
		if (sim_points > 0 && sim_tx_open(prepared[i].tx))
		{
			prepared[n] = prepared[i];
			prepared[n++].resolvable = true;
		}
	nprepared = n;
	n = 0;
	for (int i = 0; i < nchanges; i++)
		if (sim_points > 0 && sim_tx_open(changes[i].tx))
			changes[n++] = changes[i];
	nchanges = n;
	last_sends = 0;
	last_worker = 0;
	highest = 0;
	memset(sim_backends, 0, sizeof(sim_backends));
	memset(saved, 0, sizeof(saved));
}

/* ---------------------------------------------------------------- one's turn */

static void
enter(int p)
{
	sim_proc = p;
	current = sim_backends[p].tx;
	memcpy(&pending, saved[p].wake, sizeof(pending));
	published = saved[p].early;
}

static void
leave(int p)
{
	memcpy(saved[p].wake, &pending, sizeof(pending));
	saved[p].early = published;
	current = 0;
}

static void
event(XactEvent what)
{
	XLogRecPtr	of_relay = XactLastCommitEnd;

	if (at_end == NULL || !callback_registered)
		return;
	XactLastCommitEnd = sim_txs[current].lsn;
	at_end(what, NULL);
	XactLastCommitEnd = of_relay;
}

static bool
open_before_commit(int p)
{
	return sim_backends[p].tx != 0 && sim_backends[p].phase <= 1;
}

static bool
running(int p)
{
	return sim_backends[p].tx != 0 && sim_backends[p].phase == 0;
}

void
sim_backend_begin(int p, bool async)
{
	if (sim_backends[p].tx != 0)
		return;
	sim_backends[p].tx = sim_tx_begin(async);
	sim_backends[p].phase = 0;
	sim_backends[p].locks = false;
}

/* ---------------------------------------------------------------------- rows */

SimRow *
sim_backend_row(int p, int label, int key, int route, int64 due_ms, int size,
				bool silent)
{
	SimRow	   *row;
	int64		due = due_ms > 0 ? GetCurrentTimestamp() + due_ms * 1000 : 0;

	if (!running(p))
		return NULL;
	enter(p);
	row = sim_row_add(current, label, key, route, due, size);
	if (row != NULL)
	{
		row->silent = silent;
		if (silent)
			;
		else if (due != 0)
			outbox_wake_due(due);
		else
			outbox_wake_row(row->seq);
	}
	leave(p);
	return row;
}

void
sim_backend_gap(int p)
{
	if (!running(p))
		return;
	enter(p);
	outbox_wake_row(sim_next_seq++);
	sim_txs[current].wrote = true;
	leave(p);
}

bool
sim_row_claimed(const SimRow *row)
{
	uint64		hash = DatumGetUInt64(DirectFunctionCall2(uuid_hash_extended,
														  UUIDPGetDatum(&row->id),
														  Int64GetDatum(0)));
	OutboxSlot *slot = &outbox_shared->slots[0];

	for (int i = 0; i < OUTBOX_MAX_CLAIMS; i++)
	{
		uint64		claim = pg_atomic_read_u64(&slot->claims[i]);

		if (claim != 0 && (uint64) OUTBOX_CLAIM_HASH(claim) == hash << 2 >> 2)
			return true;
	}
	return false;
}

/* The row trigger, of an update. */
static void
updated(const SimRow *row, const SimVersion *version)
{
	outbox_wake_signal(OUTBOX_SIGNAL_REMOVED);
	if (version->failed)
		return;
	if (version->available_at == 0)
		outbox_wake_row(row->seq);
	else
		outbox_wake_due(version->available_at);
}

static void
change_row(SimOp op, SimRow *row, SimVersion *version)
{
	switch (op)
	{
		case OP_lock:
			row->locker = current;
			row->was_locked = true;
			sim_txs[current].wrote = true;
			break;
		case OP_touch:
			row->was_locked = true;
			if (version->unreadable && !sim_row_always_blocks(row))
				row->touched = true;	/* later ones may have gone */
			version = sim_row_update(row, version, current);
			version->unreadable = false;
			updated(row, version);
			break;
		case OP_requeue:
			if (!version->failed)
				break;
			version = sim_row_update(row, version, current);
			version->failed = false;
			version->attempts = 0;
			version->available_at = 0;
			/* Later ones may have gone. */
			if (!sim_routes[version->route].blocks || sim_routes[version->route].blocks_by != 0)
				row->touched = true;
			updated(row, version);
			break;
		case OP_discard:
			if (sim_row_claimed(row))
				break;
			sim_row_delete(row, version, current);
			row->discarded_by = current;
			outbox_wake_signal(OUTBOX_SIGNAL_REMOVED);
			break;
		case OP_remove:
			sim_row_delete(row, version, current);
			row->touched = true;
			outbox_wake_signal(OUTBOX_SIGNAL_REMOVED);
			break;
		default:
			break;
	}
}

void
sim_backend_on_row(int p, SimOp op, SimRow *row)
{
	SimVersion *version;

	if (row == NULL || !running(p))
		return;
	enter(p);
	version = sim_row_lockable(row, current);
	if (version != NULL)
		row->locked_by = current;
	/* Its own new rows are no business of an operator. */
	if (version != NULL && version->xmin != current)
	{
		change_row(op, row, version);
		sim_backends[p].locks = true;
	}
	leave(p);
}

/* -------------------------------------------------------------------- routes */

void
sim_backend_route(int p, SimOp op, int route)
{
	if (!running(p) || nchanges >= MAX_CHANGES)
		return;
	enter(p);
	changes[nchanges].tx = current;
	changes[nchanges].op = op;
	changes[nchanges++].route = route;
	sim_txs[current].wrote = true;
	sim_txs[current].async = false;
	sim_backends[p].locks = true;
	outbox_wake_signal(OUTBOX_SIGNAL_CONFIG);
	leave(p);
}

/*
 * Later ones may go until the requeue of a failed row is visible, also of one that
 * has been requeued while its route still held them.
 */
static void
let_pass_requeued(int route)
{
	for (int i = 0; i < sim_nrows; i++)
	{
		SimVersion *before = sim_row_current(sim_rows[i]);

		if (before != NULL && before->failed && before->route == route &&
			!sim_rows[i]->version->failed)
			sim_rows[i]->touched = true;
	}
}

/* What is there has no order from now on, also when the route has one again. */
static void
lose_order(int route)
{
	for (int i = 0; i < sim_nrows; i++)
		if (sim_row_route(sim_rows[i]) == route)
			sim_rows[i]->unordered = true;
}

/* What a transaction has changed is so from now on. */
static void
apply_changes(int tx)
{
	for (int i = 0; i < nchanges;)
	{
		SimRoute   *route = &sim_routes[changes[i].route];

		if (changes[i].tx != tx)
		{
			i++;
			continue;
		}
		switch (changes[i].op)
		{
			case OP_pause:
			case OP_resume:
				route->paused = changes[i].op == OP_pause;
				route->waited |= route->paused;
				route->paused_by = tx;
				route->paused_turn = -1;
				break;
			case OP_exchange:
				route->exchange++;
				sim_late_route_changed(changes[i].route);
				break;
			case OP_order:
			case OP_pipeline:
			case OP_unorder:
				if (changes[i].op == OP_unorder)
					lose_order(changes[i].route);
				else if (!route->ordered)
					route->ordered_worker = sim_worker_number;
				route->ordered = changes[i].op != OP_unorder;
				if (route->pipelined && changes[i].op != OP_pipeline)
				{
					route->strict_by = tx;
					route->strict_turn = -1;
				}
				route->pipelined = changes[i].op == OP_pipeline;
				break;
			case OP_hold:
				if (!route->blocks)
					route->blocks_by = tx;
				route->blocks_turn = route->blocks ? route->blocks_turn : -1;
				route->blocks = true;
				break;
			case OP_skip:
				route->blocks = false;
				let_pass_requeued(changes[i].route);
				break;
			default:
				sim_paused = changes[i].op == OP_pause_all;
				sim_paused_by = tx;
				sim_paused_turn = -1;
				break;
		}
		sim_store_invalidate();
		changes[i] = changes[--nchanges];
	}
}

/* ------------------------------------------------------------------- endings */

void
sim_backend_word(int p)
{
	if (!running(p))
		return;
	enter(p);
	event(XACT_EVENT_PRE_COMMIT);
	sim_backends[p].phase = 1;
	leave(p);
}

void
sim_backend_commit(int p)
{
	sim_backend_word(p);
	if (!open_before_commit(p))
		return;
	sim_tx_commit(sim_backends[p].tx);
	apply_changes(sim_backends[p].tx);
	sim_backends[p].phase = 2;
}

/*
 * Must rows that are announced now go soon?  Not those that come together with very
 * many others, or with the worker: these are its backlog.
 */
static bool
comes_alone(int tx)
{
	int64		before = highest;
	bool		alone = sim_sends > last_sends + 2 * sim_config.window &&
		sim_worker_number == last_worker;

	for (int i = 0; i < sim_nrows; i++)
		if (sim_rows[i]->inserted_by == tx)
			highest = Max(highest, sim_rows[i]->seq);
	last_sends = sim_sends;
	last_worker = sim_worker_number;
	return alone && highest < before + 3 * sim_config.window;
}

/* The relay knows of it from its next turn on. */
static void
told(int tx)
{
	sim_oracle_told();
	if (comes_alone(tx))
		for (int i = 0; i < sim_nrows; i++)
			if (sim_rows[i]->inserted_by == tx && sim_rows[i]->told_sends < 0)
			{
				sim_rows[i]->told_sends = sim_sends;
				sim_rows[i]->told_worker = sim_worker_number;
			}
	for (int i = 0; i < SIM_ROUTES; i++)
		if (sim_routes[i].paused && sim_routes[i].paused_by == tx)
			sim_routes[i].paused_turn = sim_turns;
	for (int i = 0; i < SIM_ROUTES; i++)
		if (sim_routes[i].blocks && sim_routes[i].blocks_by == tx)
			sim_routes[i].blocks_turn = sim_turns;
	for (int i = 0; i < SIM_ROUTES; i++)
		if (!sim_routes[i].pipelined && sim_routes[i].strict_by == tx)
			sim_routes[i].strict_turn = sim_turns;
	if (sim_paused && sim_paused_by == tx)
		sim_paused_turn = sim_turns;
}

void
sim_backend_announce(int p)
{
	SimBackend *backend = &sim_backends[p];

	sim_backend_commit(p);
	if (backend->tx == 0)
		return;
	enter(p);
	if (backend->phase == 3)
	{
		event(XACT_EVENT_PREPARE);
		for (int i = 0; i < nprepared; i++)
			if (prepared[i].tx == backend->tx)
				prepared[i].resolvable = true;
	}
	else
	{
		event(XACT_EVENT_COMMIT);
		told(backend->tx);
	}
	leave(p);
	backend->tx = 0;
}

void
sim_backend_abort(int p)
{
	if (!open_before_commit(p))
		return;
	enter(p);
	sim_tx_abort(current);
	event(XACT_EVENT_ABORT);
	leave(p);
	sim_backends[p].tx = 0;
}

void
sim_backend_prepare(int p, int label)
{
	SimTx	   *tx;

	if (!running(p) || nprepared >= MAX_PREPARED)
		return;
	for (int i = 0; i < nprepared; i++)
		if (prepared[i].label == label)
			return;
	enter(p);
	event(XACT_EVENT_PRE_PREPARE);
	leave(p);
	tx = &sim_txs[sim_backends[p].tx];
	tx->state = TX_PREPARED;
	tx->async = false;
	tx->wrote = true;
	sim_inserted += 16;
	sim_flushed = sim_inserted;
	prepared[nprepared].label = label;
	prepared[nprepared].tx = sim_backends[p].tx;
	prepared[nprepared++].resolvable = false;
	sim_backends[p].phase = 3;
}

void
sim_prepared_end(int label, bool commit)
{
	for (int i = 0; i < nprepared; i++)
	{
		int			tx = prepared[i].tx;

		if (prepared[i].label != label || !prepared[i].resolvable)
			continue;
		prepared[i] = prepared[--nprepared];
		if (!commit)
			sim_tx_abort(tx);
		else
		{
			sim_tx_commit(tx);
			apply_changes(tx);
		}
		sim_late_prepared_ended();
		return;
	}
}

bool
sim_prepared_next(int *label)
{
	for (int i = 0; i < nprepared; i++)
		if (prepared[i].resolvable)
		{
			*label = prepared[i].label;
			return true;
		}
	return false;
}

TransactionId *
sim_prepared_xids(int *n)
{
	TransactionId *xids = palloc(sizeof(TransactionId) * (nprepared + 1));

	for (int i = 0; i < nprepared; i++)
	{
		xids[i] = FIRST_XID + prepared[i].tx;
		sim_learn(xids[i]);
	}
	*n = nprepared;
	return xids;
}

/* When nobody else has anything open: else it waits, and so is not done here. */
void
sim_backend_truncate(bool restart)
{
	if (sim_relay_tx != 0 || nprepared > 0)
		return;
	for (int p = 0; p < SIM_BACKENDS; p++)
		if (sim_backends[p].tx != 0 && sim_backends[p].phase != 2)
			return;
	sim_store_truncate(restart);
	(void) outbox_shared_tell_workers(SIM_DATABASE, OUTBOX_SIGNAL_REMOVED);
}

/* -------------------------------------------------------------------- states */

static uint64
mix(uint64 hash, uint64 value)
{
	hash = (hash ^ value) * UINT64CONST(0x9E3779B97F4A7C15);
	return hash ^ hash >> 29;
}

static uint64
mix_ranges(uint64 hash, const OutboxRange *ranges, int n)
{
	for (int i = 0; i < n; i++)
		hash = mix(hash, ranges[i].lo * 1000 + ranges[i].hi);
	return hash;
}

/* With what is in shared memory. */
uint64
sim_backends_hash(uint64 hash)
{
	const OutboxInbox *inbox = &outbox_shared->slots[0].inbox;

	for (int p = 0; p < SIM_BACKENDS; p++)
	{
		hash = mix(hash, sim_backends[p].tx == 0 ? 0 : sim_backends[p].phase + 1);
		hash = mix(hash, outbox_commit_intents[p].dboid);
		if (outbox_commit_intents[p].dboid != InvalidOid)
			hash = mix_ranges(hash, outbox_commit_intents[p].ranges, outbox_commit_intents[p].nranges);
	}
	for (int i = 0; i < nprepared; i++)
		hash = mix(hash, prepared[i].label * 2 + prepared[i].resolvable);
	hash = mix(hash, inbox->signals);
	hash = mix_ranges(hash, inbox->ranges, inbox->nranges);
	hash = mix(hash, inbox->nprepared);
	hash = mix(hash, inbox->next_due);
	return hash;
}
