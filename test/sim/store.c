/*-------------------------------------------------------------------------
 *
 * store.c
 *		The tables: all of store.h that the relay calls, without SQL.
 *
 * Rows have versions, written and ended by transactions, which become visible in
 * an order of their own; a snapshot is a place in that order.  So a claim sees, and
 * locks, what PostgreSQL would let it: rows that it sees and that nobody has locked,
 * in their newest version if that still fits.  A commit has a place in the WAL, and
 * what a crash finds behind the flushed part of it has not been.
 *
 * The fence is the real one, store_fence.c.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/transam.h"
#include "access/xact.h"
#include "access/xlog.h"
#include "identity.h"
#include "miscadmin.h"
#include "own_version.h"
#include "replication/syncrep.h"
#include "route.h"
#include "settings.h"
#include "sim.h"
#include "storage/procarray.h"
#include "store_internal.h"
#include "utils/timestamp.h"
#include "watchdog.h"

#undef qsort

#define FIRST_XID		1000
#define COMMIT_BYTES	16
#define MAX_ROWS		8192
#define MAX_TXS			65536
#define MAX_VERSIONS	32768

SimTx	   *sim_txs;
int			sim_ntxs;			/* the first is never used */
int			sim_visible;
int			sim_wrote;
SimRow	  **sim_rows;
int			sim_nrows;
SimRoute	sim_routes[SIM_ROUTES];
bool		sim_paused;
int			sim_paused_by;
int			sim_paused_turn;
XLogRecPtr	sim_inserted;
XLogRecPtr	sim_flushed;
XLogRecPtr	sim_standby;
int64		sim_next_seq;
int			sim_relay_tx;

static SimRow *rows;			/* as they were made; label is not an index */
static SimRow **by_label;
static SimVersion *versions;
static int	nversions;
static SimVersion *free_versions;
static int	lowest_label;

static bool attached;
static bool stale;
static bool invalid;			/* an invalidation is on its way */
static int	snapshot;			/* of the relay's transaction */
static MemoryContext save_memory;
static int	adopted = 1;
static OutboxUnreadableRow reading;	/* what the last claim could not read */
static bool is_reading;
static OutboxRange moved;		/* rows that the relay's transaction has moved; lo 0: none */

XLogRecPtr	XactLastCommitEnd;
char	   *SyncRepStandbyNames;

void
sim_store_init(void)
{
	if (rows == NULL)
	{
		sim_txs = malloc(sizeof(SimTx) * MAX_TXS);
		rows = malloc(sizeof(SimRow) * MAX_ROWS);
		sim_rows = malloc(sizeof(SimRow *) * MAX_ROWS);
		by_label = calloc(MAX_ROWS, sizeof(SimRow *));
		versions = malloc(sizeof(SimVersion) * MAX_VERSIONS);
	}
	memset(by_label, 0, sizeof(SimRow *) * (lowest_label + 1));
	lowest_label = 0;
	nversions = 0;
	free_versions = NULL;
	sim_ntxs = 1;
	sim_visible = 0;
	sim_wrote = 0;
	sim_nrows = 0;
	memset(sim_routes, 0, sizeof(sim_routes));
	for (int i = 0; i < SIM_ROUTES; i++)
	{
		sim_routes[i].paused_turn = -1;
		sim_routes[i].ordered = sim_config.ordered[i] != 0;
		sim_routes[i].pipelined = sim_config.ordered[i] == 2;
		sim_routes[i].strict_turn = -1;
		sim_routes[i].blocks = sim_config.block[i];
		sim_routes[i].blocks_turn = -1;
	}
	sim_paused = false;
	sim_paused_turn = -1;
	sim_inserted = sim_flushed = sim_standby = 1000;
	sim_next_seq = 1;
	sim_relay_tx = 0;
	attached = false;
	stale = false;
	invalid = false;
	XactLastCommitEnd = InvalidXLogRecPtr;
	SyncRepStandbyNames = sim_config.standby ? "standby" : "";
}

/* ------------------------------------------------------------- transactions */

int
sim_tx_begin(bool async)
{
	SimTx	   *tx = &sim_txs[sim_ntxs];

	if (sim_ntxs >= MAX_TXS - 1)
		sim_broken("simulator", "too many transactions");
	memset(tx, 0, sizeof(*tx));
	tx->async = async;
	return sim_ntxs++;
}

/* Its record is written, flushed unless it need not be; then it is visible. */
void
sim_tx_commit(int id)
{
	SimTx	   *tx = &sim_txs[id];

	tx->state = TX_COMMITTED;
	tx->ended_at = sim_now;
	if (tx->wrote)
	{
		sim_wrote++;
		tx->lsn = sim_inserted += COMMIT_BYTES;
		if (!tx->async)
		{
			sim_flushed = tx->lsn;
			if (sim_config.standby)
				sim_standby = tx->lsn;
		}
	}
	tx->order = ++sim_visible;
}

void
sim_tx_abort(int id)
{
	sim_wrote += sim_txs[id].wrote;
	sim_txs[id].state = TX_ABORTED;
	sim_txs[id].ended_at = sim_now;
}

bool
sim_tx_open(int id)
{
	return id != 0 && sim_txs[id].state <= TX_PREPARED;
}

bool
sim_tx_durable(int id)
{
	const SimTx *tx = &sim_txs[id];

	return tx->state == TX_COMMITTED && tx->lsn <= sim_flushed &&
		(!sim_config.standby || tx->lsn <= sim_standby);
}

/* It can be seen, and has not announced itself. */
bool
sim_tx_unannounced(int tx)
{
	for (int p = 0; p < SIM_BACKENDS; p++)
		if (sim_backends[p].tx == tx && sim_backends[p].phase == 2)
			return true;
	return false;
}

static bool
sees_tx(int id)
{
	const SimTx *tx = &sim_txs[id];

	return id == sim_relay_tx ||
		(tx->state == TX_COMMITTED && tx->order <= snapshot);
}

/* --------------------------------------------------------------------- rows */

static SimVersion *
make_version(void)
{
	SimVersion *version = free_versions;

	if (version != NULL)
		free_versions = version->older;
	else if (nversions < MAX_VERSIONS)
		version = &versions[nversions++];
	else
		sim_broken("simulator", "too many versions");
	memset(version, 0, sizeof(*version));
	return version;
}

/* The older versions that nobody can see any more. */
static void
prune(SimRow *row)
{
	for (SimVersion **at = &row->version; *at != NULL;)
	{
		SimVersion *version = *at;
		bool		gone = sim_txs[version->xmin].state == TX_ABORTED;

		if (version->xmax != 0 && sim_tx_durable(version->xmax) &&
			row->version != version &&
			(sim_relay_tx == 0 || sim_txs[version->xmax].order <= snapshot))
			gone = true;
		if (gone && (row->version != version || version->older != NULL))
		{
			*at = version->older;
			version->older = free_versions;
			free_versions = version;
		}
		else
			at = &version->older;
	}
}

/* Up to its place from there; the same numbers stand as they came. */
static void
place_row(SimRow *row, int from)
{
	int			at = from;

	for (; at > 0 && sim_rows[at - 1]->seq > row->seq; at--)
		sim_rows[at] = sim_rows[at - 1];
	sim_rows[at] = row;
}

SimRow *
sim_row_add(int tx, int label, int key, int route, int64 due, int size)
{
	SimRow	   *row;

	if (label <= 0 || label >= MAX_ROWS || by_label[label] != NULL ||
		sim_nrows >= MAX_ROWS - 1)
		return NULL;
	row = &rows[sim_nrows];
	memset(row, 0, sizeof(*row));
	row->label = label;
	row->seq = sim_next_seq++;
	row->id.data[0] = 1;
	memcpy(&row->id.data[8], &label, sizeof(label));
	row->key = key;
	row->size = size;
	row->inserted_by = row->entered_by = tx;
	row->entered_order = sim_visible;
	row->told_sends = -1;
	row->version = make_version();
	row->version->xmin = tx;
	row->version->available_at = due;
	row->version->route = route;
	row->version->seq = row->seq;
	row->scheduled = due != 0;
	row->unordered = !sim_routes[route].ordered;
	sim_txs[tx].wrote = true;
	sim_txs[tx].rows++;
	by_label[label] = row;
	lowest_label = Max(lowest_label, label);
	place_row(row, sim_nrows++);
	return row;
}

SimRow *
sim_row_find(int label)
{
	return label > 0 && label < MAX_ROWS ? by_label[label] : NULL;
}

SimRow *
sim_row_by_id(const pg_uuid_t *id)
{
	int			label;

	memcpy(&label, &id->data[8], sizeof(label));
	return sim_row_find(label);
}

/* As the latest snapshot sees it. */
SimVersion *
sim_row_current(const SimRow *row)
{
	for (SimVersion *version = row->version; version != NULL; version = version->older)
		if (sim_txs[version->xmin].state == TX_COMMITTED)
			return version->xmax != 0 &&
				sim_txs[version->xmax].state == TX_COMMITTED ? NULL : version;
	return NULL;
}

bool
sim_row_locked(const SimRow *row)
{
	return sim_tx_open(row->locker);
}

bool
sim_row_ordered(const SimRow *row)
{
	return sim_routes[sim_row_route(row)].ordered;
}

bool
sim_row_holds(const SimRow *row, const SimVersion *current)
{
	return current->failed && row->key != 0 && sim_routes[current->route].blocks &&
		sim_routes[current->route].ordered;
}

/* As it is committed; NULL: there is none. */
void
sim_row_spoil(SimRow *row)
{
	SimVersion *current = row == NULL ? NULL : sim_row_current(row);

	if (current != NULL)
		current->unreadable = true;
}

bool
sim_row_always_blocks(const SimRow *row)
{
	const SimRoute *route = &sim_routes[sim_row_route(row)];

	return route->blocks && route->blocks_by == 0 && route->ordered && !row->unordered;
}

static const SimVersion *
newest(const SimRow *row)
{
	const SimVersion *version = row->version;

	while (sim_txs[version->xmin].state == TX_ABORTED && version->older != NULL)
		version = version->older;
	return version;
}

int
sim_row_route(const SimRow *row)
{
	return newest(row)->route;
}

bool
sim_same_key(const SimRow *a, const SimRow *b)
{
	return a->key == b->key && a->key != 0 && sim_row_route(a) == sim_row_route(b);
}

/*
 * Rows whose move to another route was undone are where they were.  Others of their
 * key may have gone before them meanwhile.
 */
static void
undo_moves(void)
{
	for (int i = 0; i < sim_nrows; i++)
	{
		SimRow	   *row = sim_rows[i];

		if (row->seq == newest(row)->seq)
			continue;
		row->seq = newest(row)->seq;
		row->entered_by = row->inserted_by;
		row->touched = true;
		place_row(row, i);
	}
}

SimVersion *
sim_row_lockable(SimRow *row, int tx)
{
	SimVersion *version = row->version;

	if (row->locker != tx && sim_tx_open(row->locker))
		return NULL;
	while (version != NULL && sim_txs[version->xmin].state == TX_ABORTED)
		version = version->older;
	if (version == NULL)
		return NULL;
	if (sim_txs[version->xmin].state != TX_COMMITTED && version->xmin != tx)
		return NULL;
	if (version->xmax != 0 && (version->xmax == tx ||
							   sim_txs[version->xmax].state != TX_ABORTED))
		return NULL;
	return version;
}

SimVersion *
sim_row_update(SimRow *row, SimVersion *current, int tx)
{
	SimVersion *version = make_version();

	*version = *current;
	version->xmin = tx;
	version->xmax = 0;
	version->older = row->version;
	current->xmax = tx;
	row->version = version;
	row->locker = tx;
	sim_txs[tx].wrote = true;
	prune(row);
	return version;
}

void
sim_row_delete(SimRow *row, SimVersion *current, int tx)
{
	current->xmax = tx;
	row->locker = tx;
	sim_txs[tx].wrote = true;
}

void
sim_store_truncate(bool restart)
{
	int			tx = sim_tx_begin(false);

	for (int i = 0; i < sim_nrows; i++)
	{
		SimVersion *version = sim_row_lockable(sim_rows[i], tx);

		if (version == NULL)
			continue;
		sim_row_delete(sim_rows[i], version, tx);
		version->truncated = true;
	}
	sim_txs[tx].wrote = true;
	sim_tx_commit(tx);
	/* It is not MVCC: whoever looks finds nothing. */
	if (restart)
		sim_next_seq = 1;
	sim_store_invalidate();
}

void
sim_store_invalidate(void)
{
	invalid = true;
}

int64
sim_key_hash(int key, int route)
{
	if (sim_config.alike)
		route = 0;
	return (int64) ((uint64) (key * SIM_ROUTES + route) * UINT64CONST(0x9E3779B97F4A7C15)) >> 1;
}

const char *
sim_route_name(int route)
{
	static const char *const names[SIM_ROUTES] = {"r0", "r1", "r2", "r3"};

	return names[route];
}

/* -------------------------------------------------------------------- crash */

void
sim_store_process_ends(void)
{
	if (sim_relay_tx != 0)
		sim_tx_abort(sim_relay_tx);
	sim_relay_tx = 0;
	undo_moves();
	attached = false;
	stale = false;
}

void
sim_store_crash(void)
{
	sim_store_process_ends();
	for (int i = 1; i < sim_ntxs; i++)
	{
		SimTx	   *tx = &sim_txs[i];

		if (tx->state == TX_RUNNING ||
			(tx->state == TX_COMMITTED && tx->lsn > sim_flushed))
			tx->state = TX_ABORTED;
	}
	undo_moves();
	sim_inserted = sim_flushed;
	invalid = false;
}

/* --------------------------------------------------- transactions of the relay */

/* A statement of the relay. */
static void
statement(const char *name)
{
	sim_point(name);
	if (sim_fails(CALL_statement))
		elog(ERROR, "a statement fails");
}

static void
latest_snapshot(void)
{
	snapshot = sim_visible;
}

bool
outbox_store_begin(const char *activity, bool guarded)
{
	if (!attached)
		return false;
	sim_point("begin");
	save_memory = CurrentMemoryContext;
	is_reading = false;
	sim_relay_tx = sim_tx_begin(false);
	moved.lo = 0;
	latest_snapshot();
	if (invalid)
		stale = true;
	invalid = false;
	sim_learn(stale);
	if (stale)
	{
		outbox_store_end(false);
		return false;
	}
	return true;
}

void
outbox_store_end(bool durable)
{
	SimTx	   *tx = &sim_txs[sim_relay_tx];

	sim_point(durable ? "commit, durable" : "commit");
	if (sim_fails(CALL_commit))
		elog(ERROR, "a commit fails");
	tx->async = !durable;
	sim_tx_commit(sim_relay_tx);
	/* It waits for the standby even if the disk was first. */
	if (tx->wrote)
		XactLastCommitEnd = tx->lsn;
	if (durable && sim_config.standby)
		sim_standby = Max(sim_standby, sim_flushed);
	sim_relay_tx = 0;
	CurrentMemoryContext = save_memory;
	if (moved.lo != 0)
		outbox_shared_announce(SIM_DATABASE, &moved, 1, InvalidTransactionId, 0, 0);
	sim_point("committed");
}

void
outbox_store_abort(void)
{
	if (sim_relay_tx != 0)
	{
		sim_tx_abort(sim_relay_tx);
		undo_moves();
		CurrentMemoryContext = save_memory;
	}
	sim_relay_tx = 0;
}

void
outbox_store_sigint(SIGNAL_ARGS)
{
}

OutboxExtensionState
outbox_store_attach(char *version, size_t size)
{
	sim_point("attach");
	outbox_store_fence_forget();
	if (sim_fails(CALL_statement))
		elog(ERROR, "a statement fails");
	strlcpy(version, outbox_library_version(), size);
	stale = false;
	invalid = false;
	attached = true;
	return OUTBOX_EXTENSION_READY;
}

Oid
outbox_store_relid(void)
{
	return 1;
}

bool
outbox_store_stale(void)
{
	return stale;
}

/* ------------------------------------------------------------ configuration */

void
outbox_store_load_control(OutboxControl *control)
{
	statement("control row");
	memset(control, 0, sizeof(*control));
	control->paused = sim_paused;
	control->adopted_at = adopted;
	control->recorded.origin = outbox_own_origin();
	control->recorded.environment = "";
	control->recorded.timeline = 1;
	sim_learn(sim_paused);
}

/* All are plain. */
void
outbox_format_free(struct OutboxFormat *format)
{
}

/*
 * Of some the row is gone while they are paused, which is the same to everybody; not of
 * one that takes dead letters, which the triggers would refuse.
 */
static bool
is_gone(int route)
{
	for (int i = 0; i < SIM_ROUTES; i++)
		if (sim_config.failed_route[i] == route + 1)
			return false;
	return sim_routes[route].paused && route % 2 == 1;
}

static void
free_text(char *text)
{
	if (text != NULL)
		pfree(text);
}

void
outbox_route_free_values(OutboxRoute *route)
{
	free_text(route->name);
	free_text(route->shown);
	free_text(route->exchange);
	free_text(route->routing_key);
	free_text(route->failed_route);
}

List *
outbox_store_load_routes(MemoryContext cxt, OutboxRouteLoaded is_loaded, void *arg)
{
	List	   *loaded = NIL;
	MemoryContext old = MemoryContextSwitchTo(cxt);

	for (int i = 0; i < SIM_ROUTES; i++)
	{
		uint64		version = 1 + sim_routes[i].paused + 2 * sim_routes[i].blocks +
			4 * sim_routes[i].ordered + 8 * sim_routes[i].pipelined +
			16 * (uint64) sim_routes[i].exchange;
		OutboxRoute *route;

		sim_learn(version);
		if (is_gone(i) || is_loaded(sim_route_name(i), version, arg))
			continue;
		route = palloc0(sizeof(OutboxRoute));
		route->version = version;
		route->name = pstrdup(sim_route_name(i));
		route->shown = pstrdup(sim_route_name(i));
		route->exchange = psprintf("%s.%d", sim_route_name(i), sim_routes[i].exchange);
		route->outlet = &outbox_internal_outlet;
		route->routing_key = pstrdup("k");
		route->max_attempts = sim_config.max_attempts[i];
		if (sim_config.failed_route[i] != 0)
			route->failed_route = pstrdup(sim_route_name(sim_config.failed_route[i] - 1));
		route->ordered = sim_routes[i].ordered;
		route->pipelined = sim_routes[i].pipelined;
		route->block_on_failed = sim_routes[i].blocks;
		route->paused = sim_routes[i].paused;
		loaded = lappend(loaded, route);
	}
	MemoryContextSwitchTo(old);
	return loaded;
}

TransactionId *
outbox_store_prepared(int *n)
{
	statement("prepared transactions");
	return sim_prepared_xids(n);
}

char *
outbox_store_maintain_archive(int retention_s, MemoryContext cxt)
{
	return NULL;
}

bool
outbox_store_maintain_history(int retention_s, TimestampTz *since)
{
	return false;
}

bool
outbox_store_maintain_once(int window_s, TimestampTz *since)
{
	return false;
}

int64
outbox_store_job_next(void)
{
	return 0;
}

OutboxJobOutcome
outbox_store_job_step(int max_messages, int64 max_bytes, const OutboxJobChunk *earlier,
					  bool tell, MemoryContext cxt, OutboxJobChunk *put)
{
	put->ids = NULL;
	put->n = 0;
	return OUTBOX_JOB_NONE;
}

void
outbox_store_job_error(int64 job, const char *error, bool final)
{
}

char *
outbox_store_archive_lockers(MemoryContext cxt)
{
	return NULL;
}

char *
outbox_store_database_settings(MemoryContext cxt)
{
	return MemoryContextStrdup(cxt, "");
}

/* ------------------------------------------------------------------ reading */

static SimVersion *
seen_version(const SimRow *row)
{
	for (SimVersion *version = row->version; version != NULL; version = version->older)
		if (sees_tx(version->xmin))
			return version->xmax != 0 &&
				(version->truncated || sees_tx(version->xmax)) &&
				sim_txs[version->xmax].state != TX_ABORTED ? NULL : version;
	return NULL;
}

static bool
is_ready(const SimVersion *version)
{
	return !version->failed && version->available_at == 0;
}

static bool
is_waiting(const SimVersion *version)
{
	return !version->failed && version->available_at != 0;
}

/* Where it is. */
static ItemPointerData
tid_of(const SimVersion *version)
{
	ItemPointerData tid;

	ItemPointerSet(&tid, (BlockNumber) (version - versions), 1);
	return tid;
}

static bool
is_version(const OutboxUnreadableRow *unreadable, const SimRow *row, const SimVersion *version)
{
	ItemPointerData tid = tid_of(version);

	return memcmp(&unreadable->row.id, &row->id, UUID_LEN) == 0 &&
		memcmp(&unreadable->tid, &tid, sizeof(tid)) == 0;
}

/* Is it of that key? */
static bool
is_of_key(const SimRow *row, const SimVersion *seen, int64 hash, const char *route)
{
	return row->key != 0 && sim_key_hash(row->key, seen->route) == hash &&
		strcmp(sim_route_name(seen->route), route) == 0;
}

static bool
is_excluded(const OutboxClaim *claim, const SimRow *row,
			const SimVersion *seen)
{
	ListCell   *cell;

	foreach(cell, claim->excluded_routes)
		if (strcmp(lfirst(cell), sim_route_name(seen->route)) == 0)
			return true;
	for (int i = 0; i < claim->nunreadable; i++)
		if (is_version(&claim->unreadable[i], row, seen))
			return true;
	if (claim->one_key)
		return !is_of_key(row, seen, claim->key_hash, claim->key_route);
	for (int i = 0; i < claim->nexcluded_keys; i++)
	{
		const OutboxExcludedKey *key = &claim->excluded_keys[i];

		if (is_of_key(row, seen, key->hash, key->route))
			return is_ready(seen) ||
				(row->seq > key->upto && memcmp(&row->id, &key->id, UUID_LEN) != 0);
	}
	return false;
}

/* The first row with a greater number. */
static int
first_after(int64 seq)
{
	int			low = 0;
	int			high = sim_nrows;

	while (low < high)
	{
		int			middle = (low + high) / 2;

		if (sim_rows[middle]->seq <= seq)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

void
outbox_store_claim_snapshot(void)
{
	outbox_store_fence_reset();
	sim_point("the snapshot");
	latest_snapshot();
}

bool
outbox_store_sees(TransactionId xid)
{
	const SimTx *tx = &sim_txs[xid - FIRST_XID];
	bool		sees = tx->state == TX_ABORTED ||
		(tx->state == TX_COMMITTED && tx->order <= snapshot);

	sim_learn(sees);
	return sees;
}

static OutboxMessage *
make_message(const SimRow *row, const SimVersion *version, MemoryContext cxt)
{
	Size		size = sizeof(OutboxMessage) + 16 + (Size) row->size * 1024;
	OutboxMessage *message = sim_message_alloc(cxt, sizeof(OutboxMessage), size);

	memset(message, 0, sizeof(*message));
	message->seq = row->seq;
	message->id = row->id;
	message->attempts = version->attempts;
	message->available_at = version->available_at;
	message->route = sim_route_name(version->route);
	message->event_type = "e";
	if (row->key != 0)
	{
		message->key_hash = sim_key_hash(row->key, version->route);
		message->aggregate_type = "t";
		message->aggregate_id = "i";
	}
	message->origin = 1;
	message->body = "";
	message->size = size;
	sim_learn(row->label);
	sim_learn(version->attempts);
	return message;
}

static void
read_row(const SimRow *row, const SimVersion *version)
{
	if (!version->unreadable)
		return;
	reading = (OutboxUnreadableRow) {.row = {.seq = row->seq,.id = row->id,.keyed = row->key != 0,
		.route = sim_route_name(version->route)},.tid = tid_of(version)};
	if (row->key != 0)
		reading.row.key_hash = sim_key_hash(row->key, version->route);
	is_reading = true;
	ereport(ERROR, (errcode(ERRCODE_DATA_CORRUPTED), errmsg("row %d cannot be read", row->label)));
}

OutboxUnreadableRow *
outbox_store_unreadable(void)
{
	OutboxUnreadableRow *row;

	if (!is_reading)
		return NULL;
	row = palloc(sizeof(OutboxUnreadableRow));
	*row = reading;
	return row;
}

void
outbox_store_find_unchanged(const OutboxUnreadableRow *unreadable, int n, bool *same)
{
	int			at_claim = snapshot;

	statement("unreadable rows");
	latest_snapshot();
	for (int i = 0; i < n; i++)
	{
		SimRow	   *row = sim_row_by_id(&unreadable[i].row.id);
		SimVersion *seen = row == NULL ? NULL : seen_version(row);

		same[i] = seen != NULL && !seen->failed && is_version(&unreadable[i], row, seen);
		sim_learn(same[i]);
	}
	snapshot = at_claim;
}

/*
 * SELECT ... FOR UPDATE SKIP LOCKED of one row: it is locked in its newest version
 * if that fits as well.  Returns whether the claim goes on.
 */
static bool
claim_row(const OutboxClaim *claim, SimRow *row, SimVersion *seen, bool waiting,
		  int *count)
{
	SimVersion *version = sim_row_lockable(row, sim_relay_tx);

	if (version == NULL)
		return true;
	if (version != seen && !(waiting ? is_waiting(version) : is_ready(version)))
		return true;
	row->locker = sim_relay_tx;
	sim_txs[sim_relay_tx].wrote = true;
	sim_trace("    claims %d", row->label);
	(*count)++;
	outbox_store_fence_row(FIRST_XID + version->xmin);
	if (claim->known(row->seq, &row->id, version->available_at, claim->arg))
		return *count < claim->limit;
	read_row(row, version);
	return claim->visit(make_message(row, version, claim->cxt), claim->arg) &&
		*count < claim->limit;
}

int
outbox_store_claim(const OutboxClaim *claim, bool *skipped)
{
	int			count = 0;
	int			walked = 0;		/* rows that are left out */

	statement("claim");
	sim_trace("    of %lld to %lld, at most %d%s", (long long) claim->after + 1,
			  (long long) claim->upto, claim->limit, claim->one_key ? ", of a key" : "");
	/* The executor has the key's index, and does not say. */
	*skipped = claim->one_key;
	if (claim->limit <= 0)
		return 0;
	for (int i = first_after(claim->after); i < sim_nrows; i++)
	{
		SimRow	   *row = sim_rows[i];
		SimVersion *seen;
		int			before = count;

		if (row->seq > claim->upto)
			break;
		seen = seen_version(row);
		if (seen == NULL || !is_ready(seen))
			continue;
		if (is_excluded(claim, row, seen))
			walked += !row->silent && !sim_tx_unannounced(seen->xmin);
		else if (!claim_row(claim, row, seen, false, &count))
			break;
		else
			*skipped |= count == before;
	}
	if (!claim->one_key)
		sim_oracle_walked(walked);
	sim_learn(count);
	return count;
}

typedef struct Due
{
	int64		at;
	SimRow	   *row;
	SimVersion *seen;
} Due;

static int
compare_due(const void *a, const void *b)
{
	const Due  *left = a;
	const Due  *right = b;

	if (left->at != right->at)
		return left->at < right->at ? -1 : 1;
	if (left->row->seq != right->row->seq)
		return left->row->seq < right->row->seq ? -1 : 1;
	return left->row->label - right->row->label;
}

/* In their order; returns how many.  walked: as many were left out. */
static int
list_due(const OutboxClaim *claim, TimestampTz after_due, TimestampTz upto_due, Due **list,
		 int *walked)
{
	static Due *due;
	int			n = 0;

	*walked = 0;
	if (due == NULL)
		due = malloc(sizeof(Due) * MAX_ROWS);
	for (int i = 0; i < sim_nrows; i++)
	{
		SimRow	   *row = sim_rows[i];
		SimVersion *seen = seen_version(row);

		if (seen == NULL || !is_waiting(seen) ||
			seen->available_at > upto_due ||
			(seen->available_at == upto_due && row->seq > claim->upto) ||
			seen->available_at < after_due ||
			(seen->available_at == after_due && row->seq <= claim->after))
			continue;
		if (is_excluded(claim, row, seen))
			(*walked)++;
		else
			due[n++] = (Due) {seen->available_at, row, seen};
	}
	qsort(due, n, sizeof(Due), compare_due);
	*list = due;
	return n;
}

int
outbox_store_claim_due(const OutboxClaim *claim, TimestampTz after_due, TimestampTz upto_due)
{
	Due		   *due;
	int			n;
	int			count = 0;
	int			walked;

	statement("claim of what is due");
	if (claim->limit <= 0)
		return 0;
	n = list_due(claim, after_due, upto_due, &due, &walked);
	sim_oracle_walked(walked);
	for (int i = 0; i < n; i++)
		if (!claim_row(claim, due[i].row, due[i].seen, true, &count))
			break;
	sim_learn(count);
	return count;
}

static void
visit_row(const SimRow *row, const SimVersion *version, OutboxRowVisit visit,
		  void *arg)
{
	OutboxRow	found;

	memset(&found, 0, sizeof(found));
	found.seq = row->seq;
	found.id = row->id;
	found.keyed = row->key != 0;
	found.key_hash = row->key != 0 ? sim_key_hash(row->key, version->route) : 0;
	found.route = sim_route_name(version->route);
	found.available_at = version->available_at;
	sim_learn(row->label);
	visit(&found, arg);
}

int
outbox_store_list(const OutboxClaim *claim, OutboxRowVisit visit)
{
	int			count = 0;
	int			passed = 0;		/* entries, of deleted rows, too */

	statement("list");
	for (int i = first_after(claim->after); i < sim_nrows && count < claim->limit; i++)
	{
		SimRow	   *row = sim_rows[i];
		SimVersion *seen;

		if (row->seq > claim->upto)
			break;
		/* Of one number there may be more. */
		passed += i == 0 || sim_rows[i - 1]->seq != row->seq;
		seen = seen_version(row);
		if (seen == NULL || !is_ready(seen) || is_excluded(claim, row, seen))
			continue;
		count++;
		visit_row(row, seen, visit, claim->arg);
	}
	sim_oracle_listed(passed, claim->limit);
	sim_learn(count);
	return count;
}

int
outbox_store_list_due(const OutboxClaim *claim, TimestampTz after_due, TimestampTz upto_due,
					  OutboxRowVisit visit)
{
	Due		   *due;
	int			n;
	int			walked;

	statement("list of what is due");
	n = Min(list_due(claim, after_due, upto_due, &due, &walked), claim->limit);
	for (int i = 0; i < n; i++)
		visit_row(due[i].row, due[i].seen, visit, claim->arg);
	sim_learn(n);
	return n;
}

void
outbox_store_find_keys(const int64 *hashes, const char *const *routes,
					   const int64 *los, const int64 *his, int n, bool *found)
{
	int			at_claim = snapshot;

	statement("keys");
	latest_snapshot();
	for (int k = 0; k < n; k++)
		for (int i = first_after(los[k] - 1); i < sim_nrows && sim_rows[i]->seq <= his[k]; i++)
		{
			SimVersion *seen = seen_version(sim_rows[i]);

			if (seen != NULL && is_ready(seen) &&
				is_of_key(sim_rows[i], seen, hashes[k], routes[k]))
			{
				found[k] = true;
				sim_learn(k);
				break;
			}
		}
	snapshot = at_claim;
}

int64
outbox_store_last_ready(int64 from)
{
	int			at_claim = snapshot;
	int64		last = 0;

	statement("last row");
	latest_snapshot();
	for (int i = sim_nrows - 1; i >= 0 && sim_rows[i]->seq >= from && last == 0; i--)
	{
		SimVersion *seen = seen_version(sim_rows[i]);

		if (seen != NULL && is_ready(seen))
			last = sim_rows[i]->seq;
	}
	snapshot = at_claim;
	sim_learn(last);
	return last;
}

/* No row is vacuumed here: each has its entry. */
int64
outbox_store_reach(int64 lo, int64 hi, int *n)
{
	int64		reached = hi;
	int			i = first_after(lo - 1);

	statement("entries");
	sim_now += SIM_STEP_US;
	for (; *n > 0 && i < sim_nrows && sim_rows[i]->seq <= hi; i++, (*n)--)
		reached = sim_rows[i]->seq;
	if (i == sim_nrows || sim_rows[i]->seq > hi)
		reached = hi;
	sim_learn(reached);
	return reached;
}

int64
outbox_store_last_entry(void)
{
	int64		last = sim_nrows > 0 ? sim_rows[sim_nrows - 1]->seq : 0;

	statement("last entry");
	sim_oracle_starts(last);
	sim_learn(last);
	return last;
}

TimestampTz
outbox_store_next_due(TimestampTz after_due, int64 after_seq)
{
	int			at_claim = snapshot;
	TimestampTz next = 0;

	statement("next due");
	latest_snapshot();
	for (int i = 0; i < sim_nrows; i++)
	{
		SimVersion *seen = seen_version(sim_rows[i]);

		if (seen != NULL && is_waiting(seen) &&
			(seen->available_at > after_due ||
			 (seen->available_at == after_due && sim_rows[i]->seq > after_seq)) &&
			(next == 0 || seen->available_at < next))
			next = seen->available_at;
	}
	snapshot = at_claim;
	sim_learn(next);
	return next;
}

bool
outbox_store_reach_due(TimestampTz after_due, int64 after_seq, TimestampTz upto, int n,
					   TimestampTz *at, int64 *seq)
{
	OutboxClaim all = {.after = after_seq,.upto = PG_INT64_MAX};
	int			at_claim = snapshot;
	Due		   *due;
	bool		more;
	int			walked;

	statement("due rows");
	latest_snapshot();
	more = list_due(&all, after_due, upto, &due, &walked) > n;
	snapshot = at_claim;
	if (more)
	{
		*at = due[n].at;
		*seq = due[n].row->seq;
	}
	sim_learn(more);
	return more;
}

/* ------------------------------------------------------------------ holders */

void
outbox_store_list_retries(int worker, int nworkers, OutboxRowVisit visit,
						  void *arg)
{
	statement("retries");
	for (int i = 0; i < sim_nrows; i++)
	{
		SimRow	   *row = sim_rows[i];
		SimVersion *seen = seen_version(row);

		if (seen != NULL && row->key != 0 && is_waiting(seen) && seen->attempts > 0)
			visit_row(row, seen, visit, arg);
	}
}

static void
visit_holders(const int64 *hashes, const char *const *routes, int n,
			  bool (*holds) (const SimVersion *), int most, OutboxRowVisit visit,
			  void *arg)
{
	for (int k = 0; k < n; k++)
	{
		int			left = most;

		for (int i = 0; i < sim_nrows && left > 0; i++)
		{
			SimRow	   *row = sim_rows[i];
			SimVersion *seen = seen_version(row);

			if (seen == NULL || !holds(seen) ||
				!is_of_key(row, seen, hashes[k], routes[k]))
				continue;
			visit_row(row, seen, visit, arg);
			left--;
		}
	}
}

static bool
has_failed(const SimVersion *version)
{
	return version->failed;
}

static bool
is_retry(const SimVersion *version)
{
	return is_waiting(version) && version->attempts > 0;
}

void
outbox_store_visit_failed(const int64 *hashes, const char *const *routes, int n,
						  OutboxRowVisit visit, void *arg)
{
	statement("what has failed");
	visit_holders(hashes, routes, n, has_failed, 1, visit, arg);
}

void
outbox_store_visit_retries(const int64 *hashes, const char *const *routes, int n,
						   OutboxRowVisit visit, void *arg)
{
	statement("what is tried again");
	visit_holders(hashes, routes, n, is_retry, 2, visit, arg);
}

void
outbox_store_check_holders(const pg_uuid_t *ids, const int64 *hashes,
						   const char *const *routes, int n, bool *still)
{
	int			at_claim = snapshot;

	statement("do they hold");
	latest_snapshot();
	for (int i = 0; i < n; i++)
	{
		SimRow	   *row = sim_row_by_id(&ids[i]);
		SimVersion *seen = row == NULL ? NULL : seen_version(row);

		still[i] = seen != NULL && (seen->failed || seen->available_at != 0) &&
			is_of_key(row, seen, hashes[i], routes[i]);
		sim_learn(still[i]);
	}
	snapshot = at_claim;
}

/* ----------------------------------------------------------------- settling */

/* false: somebody else has it. */
static bool
settle_row(const OutboxSettled *settled)
{
	SimRow	   *row = sim_row_by_id(&settled->id);
	SimVersion *version;

	if (sim_row_current(row) == NULL)
		return true;			/* it is gone */
	version = sim_row_lockable(row, sim_relay_tx);
	if (version == NULL)
		return !sim_row_locked(row);
	sim_row_delete(row, version, sim_relay_tx);
	sim_oracle_settled(row);
	return true;
}

void
outbox_store_settle(const OutboxSettled *settled, int n, OutboxArchive archive,
					bool *remains)
{
	statement("settle");
	for (int i = 0; i < n; i++)
	{
		remains[i] = !settle_row(&settled[i]);
		if (remains[i])
			sim_row_by_id(&settled[i].id)->met_locked = true;
		sim_learn(remains[i]);
	}
}

void
outbox_store_lockers(const pg_uuid_t *ids, int n, uint64 *lockers)
{
	for (int i = 0; i < n; i++)
		lockers[i] = (uint64) sim_row_by_id(&ids[i])->locked_by;
}

/* It takes the last place in its new route, which whoever publishes that is told. */
static void
move_row(SimRow *row, SimVersion *version)
{
	int			at = 0;

	while (sim_rows[at] != row)
		at++;
	memmove(&sim_rows[at], &sim_rows[at + 1], sizeof(SimRow *) * (sim_nrows - 1 - at));
	row->seq = version->seq = sim_next_seq++;
	row->entered_by = sim_relay_tx;
	row->entered_order = sim_visible;
	row->unordered = !sim_routes[version->route].ordered;
	place_row(row, sim_nrows - 1);
	if (moved.lo == 0)
		moved.lo = row->seq;
	moved.hi = row->seq;
}

static void
count_attempt(SimRow *row, SimVersion *version, const OutboxFailure *failure)
{
	int			from = version->route;
	int			attempts = version->attempts + 1;

	version->attempts = attempts;
	version->failed = failure->final;
	version->available_at = failure->final ? 0 :
		GetCurrentTimestamp() + failure->retry_ms * 1000;
	if (!failure->final)
		sim_late_retry(row, attempts, version->available_at - GetCurrentTimestamp());
	if (failure->death != NULL)
	{
		version->attempts = 0;
		version->failed = false;
		for (int i = 0; i < SIM_ROUTES; i++)
			if (strcmp(failure->death->target, sim_route_name(i)) == 0)
				version->route = i;
		move_row(row, version);
		sim_trace("    %d goes to %s", row->label, failure->death->target);
	}
	sim_oracle_failed(row, from, attempts, failure->final,
					  failure->death != NULL);
}

bool
outbox_store_fail(OutboxFailure *failures, int n, bool *remains)
{
	bool		all = true;

	statement("fail");
	for (int i = 0; i < n; i++)
	{
		const OutboxFailure *failure = &failures[i];
		SimRow	   *row = sim_row_by_id(&failure->id);
		SimVersion *version = sim_row_lockable(row, sim_relay_tx);
		SimVersion *current = sim_row_current(row);

		remains[i] = false;
		if (current == NULL || current->failed)
		{
			all = false;
			sim_learn(1);
			continue;
		}
		remains[i] = version == NULL;
		sim_learn(remains[i]);
		if (version == NULL)
		{
			row->met_locked = true;
			row->settled_before = row->settled_by;
			continue;
		}
		version = sim_row_update(row, version, sim_relay_tx);
		count_attempt(row, version, failure);
	}
	return all;
}

/* ---------------------------------------------------------------------- WAL */

XLogRecPtr
GetXLogInsertRecPtr(void)
{
	return sim_inserted;
}

XLogRecPtr
GetFlushRecPtr(TimeLineID *insertTLI)
{
	sim_learn(sim_flushed);
	return sim_flushed;
}

void
XLogFlush(XLogRecPtr record)
{
	if (record > sim_inserted)
		sim_broken("assertion", "what is not written yet cannot be flushed");
	if (record <= sim_flushed)
		return;
	sim_point("flush");
	sim_flushed = Max(sim_flushed, record);
}

XLogRecPtr
TransactionIdGetCommitLSN(TransactionId xid)
{
	const SimTx *tx = &sim_txs[xid - FIRST_XID];

	return tx->async ? tx->lsn : InvalidXLogRecPtr;
}

bool
TransactionIdDidCommit(TransactionId xid)
{
	return sim_txs[xid - FIRST_XID].state == TX_COMMITTED;
}

FullTransactionId
ReadNextFullTransactionId(void)
{
	return FullTransactionIdFromEpochAndXid(0, FIRST_XID + sim_ntxs);
}

bool
TransactionIdIsCurrentTransactionId(TransactionId xid)
{
	return sim_relay_tx != 0 && xid == FIRST_XID + sim_relay_tx;
}

bool
TransactionIdIsInProgress(TransactionId xid)
{
	bool		open = sim_tx_open((int) xid - FIRST_XID);

	sim_learn(open);
	return open;
}

#if PG_VERSION_NUM >= 170000
static TransamVariablesData transam = {.oldestClogXid = 3};
TransamVariablesData *TransamVariables = &transam;
#else
static VariableCacheData transam = {.oldestClogXid = 3};
VariableCache ShmemVariableCache = &transam;
#endif

/* ------------------------------------------------------------------- states */

static uint64
mix(uint64 hash, uint64 value)
{
	hash = (hash ^ value) * UINT64CONST(0x9E3779B97F4A7C15);
	return hash ^ hash >> 29;
}

/* All that matters from here on, for explore.c. */
uint64
sim_store_hash(uint64 hash)
{
	for (int i = 0; i < sim_nrows; i++)
	{
		SimRow	   *row = sim_rows[i];

		hash = mix(hash, row->label);
		hash = mix(hash, row->seq);
		hash = mix(hash, row->flight * 8 + row->returned * 4 + (row->settled_by != 0) * 2 + row->acked);
		hash = mix(hash, row->entered_order);
		hash = mix(hash, row->times_sent * 16 + row->rejections);
		hash = mix(hash, row->sent_no);
		hash = mix(hash, sim_tx_open(row->locker) ? row->locker == sim_relay_tx ? 1 : 2 : 0);
		for (SimVersion *version = row->version; version != NULL; version = version->older)
		{
			const SimTx *min = &sim_txs[version->xmin];
			const SimTx *max = &sim_txs[version->xmax];

			hash = mix(hash, min->state * 4 + min->async * 2 + (min->lsn <= sim_flushed));
			hash = mix(hash, min->order * 2 +
					   outbox_flushed_has(FullTransactionIdFromEpochAndXid(0, FIRST_XID + version->xmin)));
			if (version->xmax != 0)
			{
				hash = mix(hash, max->state * 4 + max->async * 2 + (max->lsn <= sim_flushed));
				hash = mix(hash, max->order);
			}
			hash = mix(hash, version->available_at);
			hash = mix(hash, version->attempts * 8 + version->route * 2 + version->failed);
		}
	}
	for (int i = 0; i < SIM_ROUTES; i++)
		hash = mix(hash, sim_routes[i].paused + 2 * sim_routes[i].ordered + 4 * sim_routes[i].blocks +
				   8 * sim_routes[i].pipelined + 16 * sim_routes[i].exchange);
	hash = mix(hash, sim_inserted);
	hash = mix(hash, sim_flushed);
	hash = mix(hash, sim_visible);
	hash = mix(hash, sim_relay_tx != 0 ? snapshot + 1 : 0);
	return hash;
}
