/*-------------------------------------------------------------------------
 *
 * sim.h
 *		The simulator: the relay's decisions without servers.
 *
 * One process, one thread.  The relay runs as it is, from outbox_relay_main() on;
 * what is behind its walls (store.h, broker.h, shared memory, the clock, the
 * server's functions) is here.  Whenever it comes to a wall it passes a point, and
 * there others get their turn: producers, operators, the broker, the WAL writer,
 * a crash.  What they do is a list of steps, the history, which is drawn from a
 * seed, read from a file, or enumerated; it determines everything.
 *
 * pg.c			the server's functions that the relay uses
 * world.c		time, points, processes, what a step does
 * store.c		the tables (store.h)
 * backend.c	producers and operators: wake.c and shared_intents.c, one state each
 * link.c		the broker (broker.h)
 * oracle.c		what must hold
 * late.c		and by when
 * history.c	drawing, reading, writing, shrinking
 * explore.c	all histories of small worlds
 *
 *-------------------------------------------------------------------------
 */
#ifndef SIM_H
#define SIM_H

#include "postgres.h"

#include "access/xlogdefs.h"
#include "message.h"
#include "route.h"
#include "shared.h"
#include "store.h"

#include <setjmp.h>

/* ------------------------------------------------------------------- worlds */

#define SIM_BACKENDS	6
#define SIM_ROUTES		4
#define SIM_DATABASE	((Oid) 5)
/* What a walk over entries of the index takes. */
#define SIM_STEP_US		100

/* Of the wall clock, when sim_now is 0. */
#define SIM_EPOCH		INT64CONST(700000000000000)

/* What a history begins with. */
typedef struct SimConfig
{
	uint64		seed;			/* of jitter */
	int			window;
	int			poll_ms;
	int			sweep_ms;		/* 0: never */
	int			merge;			/* ranges closer together are merged; 0: 64 */
	int			waiting;		/* messages of a key in memory; 0: 128 */
	int			held;			/* keys that are remembered as held; 0: all */
	int			retry_ms;
	int			retry_max_ms;
	int			confirm_ms;		/* how long confirms are waited for; 0: for ever */
	int			standby;		/* claims wait for one */
	int			alike;			/* keys of one number have one hash on all routes */
	int			slow_declares;	/* are answered with the next message, or return */
	int			ordered[SIM_ROUTES];	/* 0 'none', 1 'key', 2 'pipelined' */
	int			block[SIM_ROUTES];
	int			max_attempts[SIM_ROUTES];
	int			failed_route[SIM_ROUTES];	/* 0: none; else one more than its number */
} SimConfig;

/* The steps, with their names and what they do. */
#define SIM_OPS(X) \
	X(relay, "passes N points, or waits until its deadline") \
	X(idle, "passes points until it waits") \
	X(time, "MS: time passes") \
	X(begin, "P ASYNC: a transaction of backend P") \
	X(row, "P ROW KEY ROUTE DUE SIZE: enqueues; key 0: none; due in ms, 0: now; size in kB") \
	X(gap, "P: a number is drawn in a savepoint that is rolled back") \
	X(silent, "P ROW KEY ROUTE: enqueues and tells nobody") \
	X(word, "P: says its commit intent") \
	X(commit, "P: is visible from now on") \
	X(announce, "P: tells the relay") \
	X(abort, "P") \
	X(number, "N: setval(), the next number is that") \
	X(prepare, "P XACT: PREPARE TRANSACTION, and tells the relay with the next announce") \
	X(commit_prepared, "XACT") \
	X(rollback_prepared, "XACT") \
	X(lock, "P ROW: SELECT FOR UPDATE") \
	X(touch, "P ROW: an UPDATE that changes nothing, or makes an unreadable row readable") \
	X(spoil, "ROW: it cannot be read from now on") \
	X(requeue, "P ROW: outbox_requeue()") \
	X(discard, "P ROW: outbox_discard()") \
	X(remove, "P ROW: a plain DELETE") \
	X(pause, "P ROUTE: paused, in P's transaction") \
	X(resume, "P ROUTE") \
	X(exchange, "P ROUTE: its exchange is another one") \
	X(order, "P ROUTE: ordering = 'key' from now on") \
	X(pipeline, "P ROUTE: ordering = 'pipelined' from now on") \
	X(unorder, "P ROUTE: ordering = 'none' from now on") \
	X(hold, "P ROUTE: on_failed = 'block'") \
	X(skip, "P ROUTE: on_failed = 'skip'") \
	X(pause_all, "P: outbox_pause()") \
	X(resume_all, "P: outbox_resume()") \
	X(truncate, "RESTART: TRUNCATE outbox, in a transaction of its own") \
	X(flush, "the WAL writer") \
	X(ack, "ROW MULTIPLE: the broker confirms") \
	X(nack, "ROW MULTIPLE") \
	X(bounce, "ROW: the broker returns it; an ack is still to come") \
	X(drop, "the connection is lost") \
	X(close, "KIND: the broker closes the channel; 0 a message, 1 a permanent one, 2 its exchange") \
	X(block, "the broker blocks publishing") \
	X(unblock, "") \
	X(fail, "WHAT N: the Nth next call of that kind fails, see SIM_CALLS") \
	X(error, "an ERROR in the relay's transaction, here") \
	X(kill, "the worker ends at once, by an error") \
	X(stop, "SIGTERM to the worker") \
	X(restart, "the worker is told to leave") \
	X(yield, "the worker makes room for another database's") \
	X(enable, "B: outbox.enabled, and a reload") \
	X(crash, "the whole server; what is not flushed is lost")

typedef enum SimOp
{
#define SIM_OP(name, help) OP_##name,
	SIM_OPS(SIM_OP)
#undef SIM_OP
	OP_COUNT
} SimOp;

#define SIM_ARGS 6

typedef struct SimStep
{
	SimOp		op;
	int			arg[SIM_ARGS];
} SimStep;

/* Calls that a step can let fail. */
#define SIM_CALLS(X) \
	X(connect) X(poll) X(declare) X(again) X(refuse) X(lost_before) X(lost_after) \
	X(partial) X(statement) X(commit)

typedef enum SimCall
{
#define SIM_CALL(name) CALL_##name,
	SIM_CALLS(SIM_CALL)
#undef SIM_CALL
	CALL_COUNT
} SimCall;

typedef struct SimHistory
{
	SimConfig	config;
	int			nsteps;
	int			max;
	SimStep    *steps;
} SimHistory;

/* Where the next step comes from; false: no more, things come to rest. */
typedef bool (*SimSource) (SimStep *step);

typedef struct SimVerdict
{
	bool		failed;
	char		check[32];		/* which promise */
	char		text[512];
	long		steps;			/* points passed and steps taken */
	int			rows;
	int			sent;
} SimVerdict;

/* ------------------------------------------------------------------ world.c */

extern SimConfig sim_config;
extern SimVerdict sim_verdict;
extern bool sim_verbose;
extern int64 sim_now;			/* microseconds */
extern long sim_points;
extern int	sim_turns;			/* looks into the inbox */
extern int	sim_proc;			/* who runs: SIM_BACKENDS: the relay */
extern bool sim_relay_runs;
extern bool sim_relay_waits;	/* at its one wait */
extern bool sim_resting;		/* the history is over, things come to rest */
extern int	sim_worker_number;	/* how many have been started */
extern int	sim_fail[CALL_COUNT];	/* 0: no; n: the nth next one */

/* Runs a history from its beginning to rest. */
extern void sim_run(const SimConfig *config, SimSource source);

/* Is it the turn of that call to fail? */
extern bool sim_fails(SimCall call);

/* What the relay has learnt, for explore.c. */
extern uint64 sim_learnt;
static inline void
sim_learn(uint64 value)
{
	sim_learnt = (sim_learnt ^ value) * UINT64CONST(0x9E3779B97F4A7C15);
	sim_learnt ^= sim_learnt >> 29;
}

extern void sim_say(const char *fmt,...) pg_attribute_printf(1, 2);
#define sim_trace(...) \
	do { if (sim_verbose) sim_say(__VA_ARGS__); } while (0)

/* The promise is broken: ends the history. */
extern void sim_broken(const char *check, const char *fmt,...) pg_attribute_printf(2, 3) __attribute__((noreturn));

/* The relay comes to a wall: others get their turn. */
extern void sim_point(const char *name);
extern const char *sim_point_name;	/* where it is */
extern long sim_worker_began;	/* points that had been passed then */
extern bool sim_latch_is_set(void);
/* Ends the history here, whatever it was at. */
extern void sim_stop(void) __attribute__((noreturn));
extern void sim_do(const SimStep *step);
extern void sim_wake_relay(void);
/* Lets the process end at once, from wherever it is. */
extern void sim_end_process(void) __attribute__((noreturn));

/* --------------------------------------------------------------------- pg.c */

extern Size sim_memory_used;
extern Size sim_memory_peak;
extern Size sim_message_bytes;	/* of claimed messages that are in memory */
extern void sim_memory_init(void);
extern void sim_memory_forget(void);
extern void *sim_message_alloc(MemoryContext cxt, Size size, Size counts);
extern void sim_jitter_seed(uint64 seed);
extern uint32 sim_random(uint64 *state);
extern sigjmp_buf *sim_process_end;

/* ------------------------------------------------------------------ store.c */

typedef enum SimTxState
{
	TX_RUNNING,
	TX_PREPARED,
	TX_COMMITTED,
	TX_ABORTED
} SimTxState;

typedef struct SimTx
{
	SimTxState	state;
	int			order;			/* of becoming visible; 0: it is not */
	XLogRecPtr	lsn;			/* of its commit */
	bool		async;
	bool		wrote;			/* has an xid */
	int			rows;			/* enqueued by it */
	int64		ended_at;
} SimTx;

typedef struct SimVersion
{
	int			xmin;			/* transactions */
	int			xmax;			/* 0: none */
	int64		available_at;	/* 0: none */
	int			attempts;
	int			route;
	int64		seq;			/* its place there */
	bool		failed;
	bool		truncated;		/* xmax is a TRUNCATE */
	bool		unreadable;
	struct SimVersion *older;
} SimVersion;

typedef enum SimFlight
{
	ROW_UNSENT,
	ROW_SENT,					/* on the connection of today */
	ROW_ACKED,					/* and the relay knows it */
	ROW_REJECTED,
	ROW_UNKNOWN					/* was sent on a connection that was lost */
} SimFlight;

typedef struct SimRow
{
	int			label;
	int64		seq;			/* of the newest version */
	pg_uuid_t	id;
	int			key;			/* of any route; 0: none */
	int			size;
	int			inserted_by;
	int			locker;			/* transaction that has locked or changes it */
	SimVersion *version;		/* the newest one */

	/* the oracle's */
	int			entered_by;		/* transaction: its route, */
	int			entered_order;	/* and visible ones by then */
	bool		silent;			/* nobody was told */
	bool		scheduled;
	bool		touched;		/* by an operator: no order, may be sent twice */
	int			discarded_by;	/* transaction of outbox_discard() */
	SimFlight	flight;
	int			settled_by;		/* transaction that deletes it, or counts an attempt */
	int			left_by;		/* transaction that has moved it to a failed route; 0: none */
	int			left_route;		/* from that one */
	int64		left_seq;		/* and its place there */
	bool		returned;
	int			rejections;		/* since its attempts were counted last */
	bool		permanent;
	bool		excused;		/* a refusal of it need not count */
	int			times_sent;
	long		sent_no;		/* the last time: of all that are sent */
	bool		together;		/* sent while its route was pipelined */
	bool		acked;			/* and so it counts, to the relay ... */
	int			acked_worker;	/* ... of that number */
	bool		was_locked;		/* by an operator */
	bool		met_locked;		/* answered, and the relay could not settle it */
	int			settled_before;	/* settled_by then: of an attempt before */
	int			locked_by;		/* transaction of the last one */
	bool		unordered;		/* entered while its route had no order */
	int64		due;			/* late.c: to be sent by then; 0: it is held */
	bool		recheck;		/* and was due when it was */
	bool		gone;			/* for good */
	long		told_sends;		/* messages sent when it was announced; -1: not */
	int			told_worker;	/* who ran then */
} SimRow;

typedef struct SimRoute
{
	bool		paused;			/* as committed */
	int			paused_by;		/* transaction */
	int			paused_turn;	/* the relay was told in that turn; -1: not */
	bool		waited;			/* ever */
	bool		ordered;
	bool		pipelined;		/* its order is that of sending */
	int			strict_by;		/* transaction that has ended that; 0: always */
	int			strict_turn;	/* the relay was told in that turn; -1: not */
	int			ordered_worker;	/* which ran when it became so; 0: always */
	int			exchange;		/* changes of it */
	bool		blocks;			/* what has failed holds its key */
	int			blocks_by;		/* transaction; 0: always */
	int			blocks_turn;	/* the relay was told in that turn; -1: not */
} SimRoute;

extern SimTx *sim_txs;
extern int	sim_ntxs;
extern int	sim_visible;		/* transactions that are */
extern int	sim_wrote;			/* transactions that have written, also in vain */
extern SimRow **sim_rows;		/* in the order of seq */
extern int	sim_nrows;
extern SimRoute sim_routes[SIM_ROUTES];
extern bool sim_paused;
extern int	sim_paused_by;
extern int	sim_paused_turn;
extern XLogRecPtr sim_inserted;
extern XLogRecPtr sim_flushed;
extern XLogRecPtr sim_standby;
extern int64 sim_next_seq;
extern int	sim_relay_tx;		/* 0: none */

extern void sim_store_init(void);
extern void sim_store_process_ends(void);
extern void sim_store_crash(void);
extern int	sim_tx_begin(bool async);
extern void sim_tx_commit(int tx);
extern void sim_tx_abort(int tx);
extern bool sim_tx_open(int tx);
extern bool sim_tx_durable(int tx);
extern bool sim_tx_unannounced(int tx);
extern SimRow *sim_row_add(int tx, int label, int key, int route, int64 due, int size);
extern SimRow *sim_row_find(int label);
extern SimRow *sim_row_by_id(const pg_uuid_t *id);
extern SimVersion *sim_row_current(const SimRow *row);	/* committed, not deleted */
/* The newest version, if nobody else has it locked and it is there; else NULL. */
extern SimVersion *sim_row_lockable(SimRow *row, int tx);
extern SimVersion *sim_row_update(SimRow *row, SimVersion *current, int tx);
extern void sim_row_delete(SimRow *row, SimVersion *current, int tx);
extern bool sim_row_locked(const SimRow *row);
extern bool sim_row_ordered(const SimRow *row);
extern bool sim_row_claimed(const SimRow *row);	/* by the relay, as outbox_discard() looks */
extern void sim_row_spoil(SimRow *row);
/* Has its route held keys from the beginning? */
extern bool sim_row_always_blocks(const SimRow *row);
extern bool sim_row_holds(const SimRow *row, const SimVersion *current);	/* as it has failed */
extern int	sim_row_route(const SimRow *row);	/* as it is, or is about to be */
extern bool sim_same_key(const SimRow *a, const SimRow *b);
extern void sim_store_truncate(bool restart);
extern void sim_store_invalidate(void);
extern int64 sim_key_hash(int key, int route);
extern const char *sim_route_name(int route);
extern uint64 sim_store_hash(uint64 hash);

/* ---------------------------------------------------------------- backend.c */

typedef struct SimBackend
{
	int			tx;				/* 0: none */
	int			phase;			/* 0 before the commit intent, 1 after it, 2 visible,
								 * 3 prepared; neither has been announced */
	int			label;			/* of a prepared transaction */
	bool		locks;			/* it has other things than rows of its own */
} SimBackend;

extern SimBackend sim_backends[SIM_BACKENDS];

extern void sim_backends_init(void);
extern void sim_backend_begin(int p, bool async);
extern SimRow *sim_backend_row(int p, int label, int key, int route, int64 due, int size,
							bool silent);
extern void sim_backend_gap(int p);
extern void sim_backend_word(int p);
extern void sim_backend_commit(int p);
extern void sim_backend_announce(int p);
extern void sim_backend_abort(int p);
extern void sim_backend_prepare(int p, int label);
extern void sim_prepared_end(int label, bool commit);
extern bool sim_prepared_next(int *label);
extern void sim_backend_on_row(int p, SimOp op, SimRow *row);
extern void sim_backend_route(int p, SimOp op, int route);
extern void sim_backend_truncate(bool restart);
extern TransactionId *sim_prepared_xids(int *n);
extern uint64 sim_backends_hash(uint64 hash);

/* ------------------------------------------------------------------- link.c */

extern void sim_link_init(void);
extern void sim_link_process_ends(void);
extern void sim_link_answer(SimRow *row, bool ack, bool multiple);
extern void sim_link_return(SimRow *row);
extern void sim_link_drop(void);
extern void sim_link_close_channel(int kind);
extern void sim_link_block(bool block);
extern bool sim_link_is_open(void);
extern bool sim_link_readable(void);	/* there is something to receive */
extern bool sim_link_connecting(void);
extern bool sim_link_is_blocked(void);
extern bool sim_link_awaits(int route); /* that its exchange is declared, or another one's */
extern bool sim_link_answer_all(void);	/* returns whether there was anything */
extern int	sim_link_outstanding(SimRow **rows, int max);
extern uint64 sim_link_hash(uint64 hash);

/* ----------------------------------------------------------------- oracle.c */

extern long sim_sends;

extern void sim_oracle_init(void);
extern void sim_oracle_starts(int64 last);	/* a worker, which finds that one */
extern void sim_oracle_told(void);	/* the worker is, of a transaction */
extern void sim_oracle_published(SimRow *row);
extern void sim_oracle_refused(SimRow *row);
extern void sim_oracle_answered(SimRow *row, bool ack);
extern void sim_oracle_link_lost(void);
extern void sim_oracle_unsendable(SimRow *row);
extern void sim_oracle_settled(SimRow *row);
extern bool sim_oracle_is_behind(const SimRow *row);	/* one that is not answered */
extern void sim_oracle_let_go(void);
extern void sim_oracle_returned(SimRow *row);
/* moved: to another route, from which it came. */
extern void sim_oracle_failed(SimRow *row, int from, int attempts, bool final,
							  bool moved);
extern void sim_oracle_process_ends(bool clean);
extern void sim_oracle_turn(void);
extern void sim_oracle_paused(void);
/* A claim has passed so many rows that it leaves out. */
extern void sim_oracle_walked(int rows);
extern void sim_oracle_listed(int entries, int limit);
extern void sim_oracle_pass_begins(bool written);
extern void sim_oracle_swept(int64 began, bool ends);	/* a step of the sweep, which has ended */
/* At rest: everything that can be is sent. */
extern void sim_oracle_rest(bool all);

/* ------------------------------------------------------------------- late.c */

extern void sim_late_init(void);
extern void sim_late_process_ends(void);
extern void sim_late_error(void);
extern void sim_late_prepared_ended(void);
extern void sim_late_route_broken(int route);
extern void sim_late_route_closed(int route);
extern void sim_late_route_poison(int route);
extern void sim_late_route_changed(int route);
extern void sim_late_sent(SimRow *row);
extern void sim_late_answered(int route, bool ack);
extern void sim_late_link_opened(void);
extern void sim_late_link_lost(bool message, bool unreachable);
extern void sim_late_shift(int64 us);
extern void sim_late_leaves(void);
extern void sim_late_retry(const SimRow *row, int attempts, int64 wait_us);
extern void sim_late_wait(int64 wakes_at);
extern void sim_late_rest(int64 ends_at);

/* ---------------------------------------------------------------- history.c */

extern const char *const sim_op_names[OP_COUNT];
extern const char *const sim_call_names[CALL_COUNT];

extern void sim_history_add(SimHistory *history, const SimStep *step);
extern bool sim_history_read(SimHistory *history, const char *path);
extern void sim_history_write(const SimHistory *history, FILE *file,
							  const SimVerdict *verdict);
extern void sim_history_replay(const SimHistory *history);
extern void sim_history_draw(SimHistory *history, uint64 seed);
extern void sim_history_shrink(SimHistory *history);

/* ---------------------------------------------------------------- explore.c */

extern bool sim_explore(double seconds, bool full);

#endif							/* SIM_H */
