/*-------------------------------------------------------------------------
 *
 * store.h
 *		All SQL that settles, and all SQL of the worker, through SPI.
 *
 * Values travel as parameters.  Nothing here knows AMQP.
 *
 * store.c			transactions of the worker, extension
 * store_statement.c	what runs a statement, its values
 * store_route.c	routes
 * store_control.c	the control row
 * store_upkeep.c	maintenance, jobs, prepared transactions
 * store_claim.c	claims
 * store_claim_direct.c	the same without an executor
 * store_message.c	from a row to a message
 * store_look.c		rows that are looked at and not claimed
 * store_fence.c	what must be on disk before they are published
 * store_settle.c	what became of claimed messages
 * store_settle_direct.c	the same without a statement
 * store_lease.c	leases of external relays, for sessions
 *
 *-------------------------------------------------------------------------
 */
#ifndef OUTBOX_STORE_H
#define OUTBOX_STORE_H

#include "access/transam.h"
#include "identity.h"
#include "message.h"
#include "nodes/pg_list.h"
#include "outcome.h"
#include "route.h"
#include "utils/relcache.h"

/* ------------------------------------------------------------------ store.c */

typedef enum OutboxExtensionState
{
	OUTBOX_EXTENSION_ABSENT,	/* not created, or not completely */
	OUTBOX_EXTENSION_VERSION,	/* its version is not the library's */
	OUTBOX_EXTENSION_READY
} OutboxExtensionState;

/*
 * A transaction of the worker: begin starts it with a fresh statement time,
 * switches to the owner of the tables in a security-restricted context, and
 * connects SPI; end undoes that and commits.  durable: the commit waits for
 * the WAL flush and the synchronous standbys.  An ERROR in between is cleaned
 * up by outbox_store_abort().
 *
 * begin returns false, with nothing open, when the extension must be attached
 * (again) first.  guarded: the transaction may take long, so that the watchdog
 * has to be able to end it when we must stop; it costs a wake-up some time
 * later, which an idle worker does without.
 */
extern bool outbox_store_begin(const char *activity, bool guarded);
extern void outbox_store_end(bool durable);
extern void outbox_store_abort(void);

/*
 * SIGINT, by which lock_timeout and pg_cancel_backend() end a statement.  It is
 * heard inside a transaction up to its commit, and not while that waits for a
 * synchronous standby: a cancelled wait would let us publish what the standby
 * does not have.
 */
extern void outbox_store_sigint(SIGNAL_ARGS);

/*
 * Looks the extension up (its schema, version and tables), in a transaction
 * of its own.  version gets the extension's when it is not the library's.
 */
extern OutboxExtensionState outbox_store_attach(char *version, size_t size);

/* The table outbox that was attached last. */
extern Oid	outbox_store_relid(void);

/* True when the extension or its tables may have changed since attach. */
extern bool outbox_store_stale(void);

/* The rest is called between begin and end. */

/* ---------------------------------------------------------- store_control.c */

/* What the control row says. */
typedef struct OutboxControl
{
	bool		paused;
	TimestampTz adopted_at;		/* changes with each outbox_adopt() */
	OutboxIdentity recorded;	/* valid until it is loaded again, in this
								 * transaction */
} OutboxControl;

extern void outbox_store_load_control(OutboxControl *control);

/* ------------------------------------------------------------ store_route.c */

/* Is the route of that name loaded already, from a row of that version? */
typedef bool (*OutboxRouteLoaded) (const char *name, uint64 version, void *arg);

/*
 * The routes of the database, allocated in cxt, without those that are loaded already.
 * NULL: none is.
 */
extern List *outbox_store_load_routes(MemoryContext cxt, OutboxRouteLoaded loaded,
									  void *arg);

/* ----------------------------------------------------------- store_upkeep.c */

/* xids of transactions of this database that are prepared and not resolved. */
extern TransactionId *outbox_store_prepared(int *n);

/* Makes or drops one partition; what it did, or NULL (see the SQL function). */
extern char *outbox_store_maintain_archive(int retention_s, MemoryContext cxt);

/* Forgets old rows of outbox_history; false: there are no more of them. */
extern bool outbox_store_maintain_history(int retention_s, TimestampTz *since);

/* The same of keys of outbox_enqueue_once(), from *since on, which becomes the last one's time. */
extern bool outbox_store_maintain_once(int window_s, TimestampTz *since);

/* Who has locked the archive: process ids as text, in cxt; NULL: nobody. */
extern char *outbox_store_archive_lockers(MemoryContext cxt);

/*
 * ALTER DATABASE ... SET of this database, as text, "" if none; in cxt.  In a transaction
 * of its own, whether the extension is there or not.
 */
extern char *outbox_store_database_settings(MemoryContext cxt);

typedef enum OutboxJobOutcome
{
	OUTBOX_JOB_NONE,			/* there is no job */
	OUTBOX_JOB_BUSY,			/* too much of an earlier chunk is not
								 * published */
	OUTBOX_JOB_LOCKED,			/* somebody has locked the job */
	OUTBOX_JOB_PUT				/* a chunk was done */
} OutboxJobOutcome;

/* The messages that a chunk has put into outbox, the latest first. */
typedef struct OutboxJobChunk
{
	pg_uuid_t  *ids;			/* NULL if n is 0 */
	int			n;
} OutboxJobChunk;

/* The id of the next job; 0: there is none. */
extern int64 outbox_store_job_next(void);

/*
 * Does a chunk of the next job, of so many messages and bytes at most, unless of the
 * earlier chunk more than a tenth is still to be published; tell: then the job's
 * last_error says so.  What was put is allocated in cxt.
 */
extern OutboxJobOutcome outbox_store_job_step(int max_messages, int64 max_bytes,
											  const OutboxJobChunk *earlier,
											  bool tell, MemoryContext cxt,
											  OutboxJobChunk *put);

/*
 * Notes with a job, unless it has ended, what stands in its way; final: it has
 * failed.
 */
extern void outbox_store_job_error(int64 job, const char *error, bool final);

/* ------------------------------------------------------------ store_claim.c */

/*
 * Takes over the message (one chunk in the context given to the claim).
 * Returns false to stop the claim after this message.
 */
typedef bool (*OutboxClaimVisit) (OutboxMessage *message, void *arg);

/*
 * Called before that: is the message in memory already?  Then it is visited no more,
 * and its values are not read, which need not be readable.
 */
typedef bool (*OutboxClaimKnown) (int64 seq, const pg_uuid_t *id,
								  TimestampTz available_at, void *arg);

typedef struct OutboxRow
{
	int64		seq;
	pg_uuid_t	id;
	bool		keyed;			/* has an aggregate_id, and so */
	int64		key_hash;
	const char *route;			/* as in OutboxMessage */
	TimestampTz available_at;	/* likewise */
} OutboxRow;

/* A version of a row of which a value cannot be read. */
typedef struct OutboxUnreadableRow
{
	OutboxRow	row;
	ItemPointerData tid;
} OutboxUnreadableRow;

/* A key that waits, and is not claimed. */
typedef struct OutboxExcludedKey
{
	int64		hash;
	const char *route;
	int64		upto;			/* but for its rows that are due up to that
								 * number, */
	pg_uuid_t	id;				/* and for this one */
} OutboxExcludedKey;

/* What a claim looks at. */
typedef struct OutboxClaim
{
	int64		after;			/* seq > after */
	int64		upto;			/* seq <= upto */
	int			limit;			/* rows */
	List	   *excluded_routes;	/* of char *, routes that wait */
	int			nexcluded_keys;
	const OutboxExcludedKey *excluded_keys;
	int			worker;			/* this worker's share of the keys */
	int			nworkers;
	bool		one_key;		/* rows of this key only; then excluded keys */
	int64		key_hash;		/* and share are not looked at */
	const char *key_route;
	int			nunreadable;	/* these are left out */
	const OutboxUnreadableRow *unreadable;
	MemoryContext cxt;			/* where messages are allocated */
	OutboxClaimKnown known;		/* NULL: none is */
	OutboxClaimVisit visit;
	void	   *arg;
} OutboxClaim;

/* Takes the snapshot that claims and lists of this transaction read from now on. */
extern void outbox_store_claim_snapshot(void);

/* Had the transaction ended when that was taken, so that it sees its rows? */
extern bool outbox_store_sees(TransactionId xid);

/*
 * Claims rows that are ready, in the order of seq, passing over locked ones; skipped:
 * there were some, or may have been.  Returns how many were visited.
 */
extern int	outbox_store_claim(const OutboxClaim *claim, bool *skipped);

/*
 * Claims retries and scheduled messages that are due, behind (after_due, after), up to
 * (upto_due, upto).
 */
extern int	outbox_store_claim_due(const OutboxClaim *claim, TimestampTz after_due,
								   TimestampTz upto_due);

/*
 * Visits, without claiming, the rows that the last claim was entitled to, in
 * (after, upto].  The caller finds by it which ones were locked.
 */
typedef void (*OutboxRowVisit) (const OutboxRow *row, void *arg);
extern int	outbox_store_list(const OutboxClaim *claim, OutboxRowVisit visit);

/* The same of retries and scheduled messages, as outbox_store_claim_due(). */
extern int	outbox_store_list_due(const OutboxClaim *claim, TimestampTz after_due,
								  TimestampTz upto_due, OutboxRowVisit visit);

/* ---------------------------------------------------------- store_message.c */

/*
 * Called after an ERROR and before outbox_store_abort(): the row whose values the
 * claim was reading; NULL: the error came from elsewhere.  route is NULL when the
 * row's route or key could not be read.
 */
extern OutboxUnreadableRow *outbox_store_unreadable(void);

/* ---------------------------------------------------------- store_entries.c */

/*
 * Up to where [lo, hi] has at most *n entries of rows that are ready, or were; takes
 * those from *n.
 */
extern int64 outbox_store_reach(int64 lo, int64 hi, int *n);

/* The number of the last one; 0: there is none. */
extern int64 outbox_store_last_entry(void);

/* ------------------------------------------------------------- store_look.c */

/* Which of these keys have a row that is ready in [los[i], his[i]]. */
extern void outbox_store_find_keys(const int64 *hashes, const char *const *routes,
								   const int64 *los, const int64 *his, int n,
								   bool *found);

/* The highest seq that is ready, of those from there on; 0: there is none. */
extern int64 outbox_store_last_ready(int64 from);

/* When the next waiting row is due, of those behind that one; 0 if there is none. */
extern TimestampTz outbox_store_next_due(TimestampTz after_due, int64 after_seq);

/*
 * Are there more than n waiting rows behind (after_due, after_seq) that are due by upto?
 * Then (at, seq) is where the n-th is, or one behind it.
 */
extern bool outbox_store_reach_due(TimestampTz after_due, int64 after_seq, TimestampTz upto,
								   int n, TimestampTz *at, int64 *seq);

/* Which of these versions are still what their messages are. */
extern void outbox_store_find_unchanged(const OutboxUnreadableRow *rows, int n,
										bool *same);

/* Visits the retries that wait, which hold their key. */
extern void outbox_store_list_retries(int worker, int nworkers,
									  OutboxRowVisit visit, void *arg);

/*
 * Visits the oldest row of each of these keys that has failed, as the last claim's
 * snapshot sees it.
 */
extern void outbox_store_visit_failed(const int64 *hashes, const char *const *routes,
									  int n, OutboxRowVisit visit, void *arg);

/* The same of the oldest two that wait for their next attempt. */
extern void outbox_store_visit_retries(const int64 *hashes, const char *const *routes,
									   int n, OutboxRowVisit visit, void *arg);

/* Which of these messages still hold their key (pending with attempts, or failed). */
extern void outbox_store_check_holders(const pg_uuid_t *ids, const int64 *hashes,
									   const char *const *routes, int n, bool *still);

/* ------------------------------------------------------------ store_fence.c */

/*
 * After the commit of a claim: waits until the transactions that wrote what was
 * claimed are on disk.  is_commit: it has to be the claim's commit that waits, for
 * synchronous standbys or because its own transaction wrote a row that it claims.
 */
extern bool outbox_store_fence_is_commit(void);
extern void outbox_store_fence_wait(void);

/* known: is the commit of that transaction known to be on disk? */
extern void outbox_store_fence_ask(bool (*known) (FullTransactionId xid));

/* ----------------------------------------------------------- store_settle.c */

/* Deletes published messages, and copies to outbox_archive what archive says of them. */
typedef struct OutboxSettled
{
	ItemPointerData tid;
	pg_uuid_t	id;
} OutboxSettled;

/* Rows that somebody has locked are left, and marked in remains (n bools). */
extern void outbox_store_settle(const OutboxSettled *rows, int n,
								OutboxArchive archive, bool *remains);

/*
 * For a session: the same of n rows, by id, waiting for whoever has locked them.  Returns
 * how many there were.  table: outbox.
 */
extern int	outbox_store_settle_waiting(Oid table, const pg_uuid_t *ids, int n,
										OutboxArchive archive);

/*
 * Counts failed attempts.  Rows that somebody has locked are left, and marked in
 * remains (n bools), and so are those of a session whose death has a target that does not
 * exist.  The worker's that cannot be moved now become attempts that are not final.
 * Returns false when some are not there any more, or not pending.
 */
extern bool outbox_store_fail(OutboxFailure *failures, int n, bool *remains);

/*
 * Who has each of these rows locked: the same number for rows of the same transactions,
 * savepoints included; 0 where nobody has, or the row is gone.
 */
extern void outbox_store_lockers(const pg_uuid_t *ids, int n, uint64 *lockers);

/* ------------------------------------------------------------ store_lease.c */

/*
 * Of external relays.  Called in sessions, with SPI connected, as the owner of the
 * tables.  Memory is that of SPI.
 */
typedef struct OutboxLease
{
	int64		token;
	char	   *route;			/* in the database's encoding */
	int			n;				/* messages, in the order of seq */
	pg_uuid_t  *ids;
	Datum	   *keys;			/* int8: hashes of their keys; */
	bool	   *no_key;			/* without one */
} OutboxLease;

/*
 * Locks the lease, which is the fence: until the caller commits nobody takes it
 * over.  False: it is not there.
 */
extern bool outbox_store_lock_lease(int64 token, OutboxLease *lease);

/* Takes the marked messages (n bools) out of it; without any it is over. */
extern void outbox_store_shorten_lease(const OutboxLease *lease, const bool *gone);

/* Lets it end so long from now, and returns when that is. */
extern TimestampTz outbox_store_extend_lease(int64 token, Datum interval);

/*
 * Locks a message that is pending, waiting for whoever has it, and fills what
 * outcome.h asks for.  False: it is not there, or not pending.
 */
extern bool outbox_store_lock_message(const pg_uuid_t *id, OutboxMessage *message);

#endif							/* OUTBOX_STORE_H */
