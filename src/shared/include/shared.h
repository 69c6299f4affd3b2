/*-------------------------------------------------------------------------
 *
 * shared.h
 *		Shared memory: worker slots, wake-ups, counters.
 *
 * Plain data only: no pointer and no file descriptor of a process, because a
 * crash-restart leaves nothing to interpret them.  The whole of it is wiped
 * then, and every worker starts with a full scan.
 *
 * Locks.  Each slot's mutex guards whose it is, its inbox and its texts;
 * OutboxShared->mutex guards requests, holds and replication slots, and each commit
 * intent has its own.  All are spinlocks, as they are taken in transaction callbacks
 * that must not fail; they are held to copy plain data (the most is a worker's
 * report, about 4 kB) or to look through a short array, and never two at once.  Only the launcher
 * gives slots away and takes them back.  Counters are atomics with one writer.
 *
 *-------------------------------------------------------------------------
 */
#ifndef OUTBOX_SHARED_H
#define OUTBOX_SHARED_H

#include "access/transam.h"
#include "clock.h"
#include "datatype/timestamp.h"
#include "port/atomics.h"
#include "reason_codes.h"
#include "seq_ranges.h"
#include "settings.h"
#include "storage/spin.h"
#include "utils/uuid.h"

/*
 * A worker holds at most twice its window, sent and ready to be sent, and as many
 * that it cannot settle because somebody has locked their rows.
 */
#define OUTBOX_MAX_CLAIMS		(4 * OUTBOX_MAX_WINDOW)

/*
 * So many of the latter take no room from the window.  A statement that locks a
 * backlog meets no more that are claimed.
 */
#define OUTBOX_LOCKED_MAX		(2 * outbox_window)

#define OUTBOX_MAX_REQUESTS		64
#define OUTBOX_MAX_HOLDS		32
#define OUTBOX_TEXT_SIZE		512

/*
 * A transaction that was prepared.  One range is enough for it: it is read once, when the
 * transaction has ended, and 128 entries of eight ranges would be copied under a spinlock.
 */
typedef struct OutboxPrepared
{
	TransactionId xid;
	int			signals;		/* what becomes true when it commits */
	OutboxRange range;			/* 0 to 0: no rows */
	TimestampTz next_due;		/* its first row that waits for a time; 0:
								 * none; DT_NOBEGIN: unknown */
} OutboxPrepared;

/* What a transaction tells the workers when it ends; inbox bits. */
#define OUTBOX_SIGNAL_CONFIG	0x01	/* a route or the control row changed */
#define OUTBOX_SIGNAL_REMOVED	0x02	/* rows were deleted by somebody */
#define OUTBOX_SIGNAL_RESTART	0x04	/* leave, to be started again */
#define OUTBOX_SIGNAL_STOP		0x08	/* leave */
#define OUTBOX_SIGNAL_PREPARED	0x10	/* more were prepared than fit, see
										 * lost */
#define OUTBOX_SIGNAL_YIELD		0x20	/* leave, others wait for a process */
#define OUTBOX_SIGNAL_EXTENSION	0x40	/* perhaps of another version now */
#define OUTBOX_SIGNAL_JOBS		0x80	/* one was filed, or changed */

typedef struct OutboxInbox
{
	int			signals;
	int			nranges;
	int			nprepared;
	TimestampTz next_due;		/* earliest available_at enqueued, 0 = none */
	OutboxRange lost;			/* SIGNAL_PREPARED: of those that did not fit */
	/* So many of each count: an inbox is empty when all before them is 0. */
	OutboxRange ranges[OUTBOX_INBOX_RANGES + 1];	/* see outbox_ranges_add() */
	OutboxPrepared prepared[OUTBOX_INBOX_PREPARED];
} OutboxInbox;

#define OUTBOX_INBOX_HEAD		offsetof(OutboxInbox, ranges)

/* What a transaction of a backend that is about to commit will announce. */
typedef struct OutboxCommitIntent
{
	slock_t		mutex;
	Oid			dboid;			/* InvalidOid: nothing */
	TransactionId xid;
	int			nranges;
	OutboxRange ranges[OUTBOX_TRANSACTION_RANGES];
} OutboxCommitIntent;

/* As the views show them.  Once it has attached, outbox_slot_set_state() alone changes it. */
typedef enum OutboxWorkerState
{
	OUTBOX_WORKER_STARTING,
	OUTBOX_WORKER_IDLE,
	OUTBOX_WORKER_PUBLISHING,
	OUTBOX_WORKER_CONNECTING,
	OUTBOX_WORKER_BROKER_DOWN,
	OUTBOX_WORKER_BLOCKED,
	OUTBOX_WORKER_PAUSED,
	OUTBOX_WORKER_NOT_ADOPTED,	/* this and the next two have one name */
	OUTBOX_WORKER_OTHER_ENVIRONMENT,
	OUTBOX_WORKER_RESTORED,
	OUTBOX_WORKER_DISABLED,
	OUTBOX_WORKER_CONFIG_ERROR,
	OUTBOX_WORKER_DATABASE_ERROR,
	OUTBOX_WORKER_WAITS_STANDBY,	/* never stored, see relay_state.c */
	OUTBOX_WORKER_EXTENSION_OLDER,
	OUTBOX_WORKER_EXTENSION_NEWER,
	OUTBOX_WORKER_STOPPING,
	OUTBOX_WORKER_STOPPED
} OutboxWorkerState;

/* Why a worker left; the launcher decides by it whether to start another. */
typedef enum OutboxExit
{
	OUTBOX_EXIT_CRASHED,		/* error or signal: again, with backoff */
	OUTBOX_EXIT_ABSENT,			/* the database has no extension: forget it */
	OUTBOX_EXIT_RESTART,		/* told to leave: start it again at once */
	OUTBOX_EXIT_STOPPED,		/* told to stop */
	OUTBOX_EXIT_YIELDED			/* made room for another database */
} OutboxExit;

/* What the server log has been told last about a worker's link. */
typedef enum OutboxLinkTold
{
	OUTBOX_TOLD_NOTHING,
	OUTBOX_TOLD_CONNECTED,
	OUTBOX_TOLD_DOWN
} OutboxLinkTold;

typedef struct OutboxCounters
{
	pg_atomic_uint64 published;
	pg_atomic_uint64 returned;
	pg_atomic_uint64 nacked;
	pg_atomic_uint64 failed;
	pg_atomic_uint64 retried;
	pg_atomic_uint64 reconnects;
	pg_atomic_uint32 claimed;
	pg_atomic_uint32 in_flight;
	pg_atomic_uint32 locked;	/* of them, those that cannot be settled */

	pg_atomic_uint64 lowest_seq;	/* of what is ready and known, a second
									 * ago */
} OutboxCounters;

/* What may be wrong with a worker: each begins and ends without the others, and hides none. */
typedef enum OutboxErrorKind
{
	OUTBOX_ERROR_SETTINGS,		/* outbox.broker_uri, outbox.passfile */
	OUTBOX_ERROR_ENVIRONMENT,	/* outbox.environment */
	OUTBOX_ERROR_DATABASE,
	OUTBOX_ERROR_LINK,
	OUTBOX_ERROR_TWIN,			/* shown beside the others */
	OUTBOX_ERROR_COPY,			/* shown as the last error while it lasts; its
								 * reason says nothing */
	OUTBOX_ERROR_KINDS
} OutboxErrorKind;

typedef struct OutboxCurrentError
{
	OutboxReason reason;		/* NONE: all else is of no meaning */
	char		sqlstate[6];	/* DATABASE; else "" */
	TimestampTz since;			/* without an interruption, whatever the
								 * reason */
	char		text[OUTBOX_TEXT_SIZE];
} OutboxCurrentError;

/*
 * A row that a worker would have taken, or settled, and that somebody has locked.  One of
 * those in flight stands for all that the same transaction has.
 */
typedef struct OutboxLockedId
{
	pg_uuid_t	id;
	uint64		locker;			/* of those in flight, 0: it is gone */
	int			in_flight;		/* how many it stands for; 0: it is not sent */
	int64		seq;
	TimestampTz since;			/* met for the first time */
	OutboxMonoTime seen;		/* met the last time; unset: unused */
} OutboxLockedId;

/* So many that it would have taken, and behind them those in flight of so many lockers. */
#define OUTBOX_LOCKED_IDS	8

/* A row that a worker has set aside, as it cannot be read. */
typedef struct OutboxUnreadableId
{
	pg_uuid_t	id;
	int64		seq;
	TimestampTz since;
	char		sqlstate[6];
	char		text[OUTBOX_TEXT_SIZE]; /* the error */
} OutboxUnreadableId;

#define OUTBOX_UNREADABLE_SHOWN	8

/* What a worker tells of itself. */
typedef struct OutboxWorkerReport
{
	TimestampTz since;			/* it has its state */
	uint64		published_before;	/* counters.published at that time */
	TimestampTz commit_since;	/* in a synchronous commit, 0: not */
	TimestampTz started_at;
	TimestampTz last_error_at;
	TimestampTz archive_error_since;	/* 0: all is well with the archive */
	char		last_error[OUTBOX_TEXT_SIZE];
	char		archive_error[OUTBOX_TEXT_SIZE];
	OutboxCurrentError errors[OUTBOX_ERROR_KINDS];
	TimestampTz tls_not_after;	/* of the broker's certificate; 0: no TLS */
	int64		clock_jump_ms;	/* the last jump of the wall clock ... */
	TimestampTz clock_jumped_at;	/* ... and when, by the clock as it is now */
} OutboxWorkerReport;

typedef struct OutboxSlot
{
	slock_t		mutex;

	/* Under mutex; written by the launcher. */
	bool		in_use;
	Oid			dboid;
	int			worker;			/* 0 .. nworkers - 1 */
	int			nworkers;		/* keys are divided by this */
	uint64		generation;		/* of this occupation; never 0 */

	/* Under mutex; written by the worker that has the generation. */
	int			pid;			/* 0 while no process runs */
	int			procno;			/* whose latch to set, -1 if none */
	bool		ready;			/* the database has the extension ... */
	int			wanted_workers; /* ... and wants so many workers */

	/* Of the worker alone; the launcher reads them when the process is gone. */
	OutboxExit	exit_reason;
	int			rest_ms;		/* YIELDED: no work is known for so long ... */
	bool		rests;			/* ... and nothing keeps it from working */
	OutboxLinkTold told;		/* YIELDED: so that the next one need not
								 * repeat it */
	int			twin_told;		/* the same in any case, see relay_twin.c */

	/* Of the worker, without a lock, each read by itself. */
	int			broken_routes;	/* that wait after a destination error */
	bool		wakeups_off;	/* commits need not wake it, it could do
								 * nothing */
	bool		napping;		/* ... it will look in a moment */
	pg_atomic_uint64 beat;		/* by when it looks around again, see below */
	bool		reading;		/* ... much, and publishes nothing yet */
	OutboxMonoTime published_at;	/* it was publishing last; unset: never */

	/* Under mutex: written by committing backends, taken by the worker. */
	OutboxInbox inbox;
	OutboxMonoTime told_at;		/* the inbox has something since; unset:
								 * nothing */
	/* Under mutex: written by the worker. */
	OutboxWorkerState state;
	char		broker[OUTBOX_TEXT_SIZE];
	OutboxWorkerReport report;
	OutboxLockedId locked[2 * OUTBOX_LOCKED_IDS];
	int			unreadable_count;	/* the first are these: */
	OutboxUnreadableId unreadable[OUTBOX_UNREADABLE_SHOWN];

	OutboxCounters counters;

	/*
	 * Claimed messages, 0 where unused, see OUTBOX_CLAIM().  Written by the
	 * worker without a lock.
	 */
	pg_atomic_uint64 claims[OUTBOX_MAX_CLAIMS];
} OutboxSlot;

/* Keeps the workers of a database away while a command needs it empty. */
typedef struct OutboxHold
{
	Oid			dboid;			/* InvalidOid: unused */
	int			pid;			/* backend that holds */
} OutboxHold;

/*
 * A replication slot that a route with relay = 'cdc' names, as the server's directory
 * of it was when a message was enqueued for it first: one that is made again has another.
 */
typedef struct OutboxCdcSlot
{
	Oid			dboid;			/* InvalidOid: unused */
	NameData	name;
	uint64		inode;
	int64		born_ns;		/* 0: the file system does not know */
	TimestampTz remade_at;		/* when another one was met; 0: never */
	TimestampTz looked_at;		/* 0: unused */
} OutboxCdcSlot;

#define OUTBOX_CDC_SLOTS		16

/* A database that the launcher is asked to look at. */
typedef struct OutboxRequest
{
	Oid			dboid;
	bool		work;			/* there is some */
} OutboxRequest;

/* Databases that rest; the views take any more for ones without their worker. */
#define OUTBOX_MAX_RESTING		1024

typedef struct OutboxShared
{
	slock_t		mutex;			/* see above */
	int			nslots;
	int			launcher_procno;	/* -1: no launcher */
	pg_atomic_uint64 launcher_beat; /* as that of a worker */
	pg_atomic_uint64 launcher_told; /* it was woken then and has not looked;
									 * 0: it has */
	uint32		server_crashes; /* of any process, since the server started */
	TimestampTz server_crashed_at;	/* the last one; 0: none */
	uint64		last_generation;
	bool		requests_lost;	/* more databases than OUTBOX_MAX_REQUESTS, */
	bool		lost_work;		/* and one of those has work */
	bool		out_of_workers; /* a worker could not be started */
	bool		at_limit;		/* the last one, because of outbox.max_workers */
	bool		fewer_workers;	/* so that those that could share all keys */
	int			nrequests;
	OutboxRequest requests[OUTBOX_MAX_REQUESTS];
	int			nresting;
	Oid			resting[OUTBOX_MAX_RESTING];	/* by the launcher */
	OutboxHold	holds[OUTBOX_MAX_HOLDS];
	OutboxCdcSlot cdc_slots[OUTBOX_CDC_SLOTS];
	OutboxSlot	slots[FLEXIBLE_ARRAY_MEMBER];
} OutboxShared;

/*
 * An entry of claims: a hash of the message's id, as SQL can compute it too, and
 * whether it is in flight.  That two messages share a hash makes outbox_discard()
 * refuse one that could go, and nothing worse.
 */
#define OUTBOX_CLAIM(hash, in_flight)	((hash) << 2 | 2 | ((in_flight) ? 1 : 0))
#define OUTBOX_CLAIM_HASH(claim)		((int64) ((claim) >> 2))
#define OUTBOX_CLAIM_IN_FLIGHT(claim)	(((claim) & 1) != 0)

/* NULL when the library was not preloaded. */
extern OutboxShared *outbox_shared;
extern OutboxCommitIntent *outbox_commit_intents;

/* The slot of this process; NULL unless it is a worker. */
extern OutboxSlot *MySlot;

/* What a worker is started with, in bgw_extra. */
typedef struct OutboxWorkerArgs
{
	Oid			dboid;
	int			slot;			/* index in shared memory */
	uint64		generation;		/* that the slot must have */
	OutboxLinkTold told;		/* by the one that made room before */
	int			twin_told;		/* by the last one, see relay_twin.c */
} OutboxWorkerArgs;

/*
 * The heartbeat of workers and launcher: when it starts, in each turn of its loop, and
 * before each wait a process says by when it is back, in microseconds of the monotonic
 * clock.  A turn ends in OUTBOX_SILENCE_MS, or something is wrong.
 */
#define OUTBOX_SILENCE_MS		8000

static inline void
outbox_beat(pg_atomic_uint64 *beat, int64 wait_ms)
{
	pg_atomic_write_u64(beat, outbox_mono_after(wait_ms + OUTBOX_SILENCE_MS).us);
}

/* Workers of all databases; those that have ended and were not reaped count. */
static inline int
outbox_slots_in_use(void)
{
	int			count = 0;

	for (int i = 0; i < outbox_shared->nslots; i++)
		if (outbox_shared->slots[i].in_use)
			count++;
	return count;
}

/* ----------------------------------------------------------------- shared.c */

/* In the postmaster: asks for the memory and arranges for its set-up. */
extern void outbox_shared_request(void);

extern int	outbox_my_procno(void);
extern void outbox_shared_wake_launcher(void);

/* What an operator can do when a worker could not be started. */
extern const char *outbox_workers_advice(void);

/* Databases that have made room and have nothing to publish, as the launcher knows. */
extern void outbox_shared_set_resting(const Oid *dboids, int count);
extern bool outbox_shared_is_resting(Oid dboid);

/* Holds (DDL on whole databases); false when all are in use. */
extern bool outbox_hold_set(Oid dboid);

/* restart: ask the launcher to look at the database at once. */
extern void outbox_hold_release(Oid dboid, bool restart);
extern bool outbox_hold_exists(Oid dboid);

/* Looks at the replication slot of that name; false: it is not there. */
extern bool outbox_cdc_slot_look(const char *name);

/* The column that names it was written: what was met before is known.  Cannot fail. */
extern void outbox_cdc_slot_forget(const char *name);

/* The i-th, if it is of this database; its slot is looked at first. */
extern bool outbox_cdc_slot_get(int i, OutboxCdcSlot *slot);

/* ----------------------------------------------------------- shared_inbox.c */

/*
 * Tells the workers of a database what a transaction did; if there are none,
 * asks the launcher for them.  Called after commit: cannot fail.
 */
extern void outbox_shared_announce(Oid dboid, const OutboxRange *ranges, int nranges,
								   TransactionId prepared_xid,
								   TimestampTz next_due, int signals);

/* Sends signals to each worker of a database and wakes it; returns how many. */
extern int	outbox_shared_tell_workers(Oid dboid, int signals);

/* Takes everything out of this worker's inbox. */
extern void outbox_slot_take_inbox(OutboxInbox *inbox);

/* Slots of a database that are occupied, whether or not a process runs yet. */
extern int	outbox_shared_count_slots(Oid dboid);

/*
 * Takes the databases that were asked for.  *lost: look at all of them; *lost_work: there
 * is work in one that was not noted.
 */
extern int	outbox_shared_take_requests(OutboxRequest *requests, bool *lost,
										bool *lost_work);

/* --------------------------------------------------------- shared_intents.c */

/*
 * The commit intent of the current transaction, for the sake of order; see wake.c.
 * It is withdrawn when the transaction is announced, or has aborted.  Wakes
 * nobody, and cannot fail.
 */
extern void outbox_intent_publish(const OutboxRange *ranges, int nranges,
								  TransactionId xid);
extern void outbox_intent_withdraw(void);

/* Visits each range of those of this database. */
typedef void (*OutboxIntentVisit) (TransactionId xid, const OutboxRange *range,
								   void *arg);
extern void outbox_intent_visit(OutboxIntentVisit visit, void *arg);

/* --------------------------------------------------------- shared_flushed.c */

/* Called when that transaction has committed, and commit is where its record ends. */
extern void outbox_flushed_note(FullTransactionId xid, XLogRecPtr commit);

/* Is it known that its commit is on disk? */
extern bool outbox_flushed_has(FullTransactionId xid);

/* ----------------------------------------------------------- shared_slots.c */

/*
 * Slots: the launcher assigns one before it starts a process (NULL: none
 * free), the process attaches to it by generation (false: it was given to
 * somebody else), and releases its share when it ends.
 */
extern OutboxSlot *outbox_slot_assign(Oid dboid, int worker, int nworkers,
									  uint64 *generation);
extern bool outbox_slot_attach(int index, uint64 generation);
extern void outbox_slot_detach(void);

/* Returns true when the inbox was not empty. */
extern bool outbox_slot_free(OutboxSlot *slot, uint64 generation);

/* True while nobody has been given this worker's slot. */
extern bool outbox_slot_is_mine(void);

/* Tells the launcher that the extension is here, and how many workers it wants. */
extern void outbox_slot_set_ready(int wanted_workers);
extern void outbox_slot_set_state(OutboxWorkerState state);
extern const char *outbox_worker_state_name(OutboxWorkerState state);

/* Around a synchronous commit, which nobody can announce once it waits. */
extern void outbox_slot_set_committing(bool committing);

/*
 * Copies what fits of a text that the views will show: whole characters of the
 * database's encoding, and '?' for each byte that belongs to none.
 */
extern void outbox_shared_copy_text(char *dst, size_t size, const char *src);

/* Texts are in the database's encoding; what does not fit is cut. */
extern void outbox_slot_set_broker(const char *broker);
extern void outbox_slot_set_last_error(const char *error);

/*
 * Why partitions of the archive cannot be made or dropped now; NULL: they can.
 * Unlike the last error it goes when it is over, and nothing else replaces it.
 */
extern void outbox_slot_set_archive_error(const char *error);

/*
 * What is wrong, until it is cleared; the same again costs no lock.  sqlstate: NULL
 * but for DATABASE.
 */
extern void outbox_slot_set_current_error(OutboxErrorKind kind, OutboxReason reason,
										  const char *text, const char *sqlstate);
extern void outbox_slot_clear_current_error(OutboxErrorKind kind);

/* Until when the broker's certificate is valid, in seconds of Unix; 0: no TLS. */
extern void outbox_slot_set_certificate(int64 ends);
extern void outbox_slot_set_clock_jump(int64 jump_ms);

/* A row to take was found locked; as many are remembered as there is room for. */
extern void outbox_slot_note_locked(const pg_uuid_t *id, int64 seq);

/* All in flight that are locked, one of each locker; n: OUTBOX_LOCKED_IDS at most. */
extern void outbox_slot_show_locked(const OutboxLockedId *shown, int n);

/* These n of count rows are set aside, as they cannot be read. */
extern void outbox_slot_show_unreadable(const OutboxUnreadableId *shown, int n,
										int count);

#endif							/* OUTBOX_SHARED_H */
