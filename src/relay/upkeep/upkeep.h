/*-------------------------------------------------------------------------
 *
 * upkeep.h
 *		The session of the database, what holds everything up, and work beside messages.
 *
 *-------------------------------------------------------------------------
 */
#ifndef OUTBOX_UPKEEP_H
#define OUTBOX_UPKEEP_H

#include "clock.h"
#include "reading.h"
#include "shared.h"
#include "store.h"

/*
 * database.c: the worker's database: session, extension, settings, and its errors
 */

typedef struct OutboxDatabase OutboxDatabase;

extern void outbox_database_connect(Oid dboid);
extern OutboxDatabase *outbox_database_create(MemoryContext cxt);

/* ------------------------------------------------------------ before a round */

/* The next round is to have a transaction: to hear of DROP EXTENSION, */
extern void outbox_database_touch(OutboxDatabase *database);

/* to attach again, */
extern void outbox_database_recheck_extension(OutboxDatabase *database);

/* to compare ALTER DATABASE SET. */
extern void outbox_database_recheck_settings(OutboxDatabase *database);

/* Is there one of them? */
extern bool outbox_database_wants_round(const OutboxDatabase *database);

/* With an extension that does not fit nothing else counts. */
extern bool outbox_database_wants_attach(const OutboxDatabase *database);

/*
 * Attaches, if that is wanted.  True: the extension was looked up, and all that was
 * read of its tables may be something else now.
 */
extern bool outbox_database_attach(OutboxDatabase *database);

/* Compares ALTER DATABASE SET, if that is wanted. */
extern void outbox_database_check_settings(OutboxDatabase *database,
										   MemoryContext scratch);

/* What must be known before the first claim was looked up. */
extern void outbox_database_started(OutboxDatabase *database);

/* ------------------------------------------------------------------- errors */

extern void outbox_database_works(OutboxDatabase *database);

/* Called in PG_CATCH. */
extern void outbox_database_failed(OutboxDatabase *database,
								   const OutboxUnreadableRow *row,
								   MemoryContext scratch);
extern bool outbox_database_failing(const OutboxDatabase *database);
extern OutboxMonoTime outbox_database_retry_at(const OutboxDatabase *database);

/* -------------------------------------------------------------------- state */

/* The extension is there and fits. */
extern bool outbox_database_attached(const OutboxDatabase *database);

/*
 * Below 0: the extension is older than the library; above: newer; 0: they fit.
 */
extern int	outbox_database_mismatch(const OutboxDatabase *database);

/* Something is known that only a round can look up. */
extern bool outbox_database_touched(const OutboxDatabase *database);
extern bool outbox_database_has_started(const OutboxDatabase *database);

/* The process is to end, for that reason. */
extern void outbox_database_leave(OutboxDatabase *database, OutboxExit reason);
extern bool outbox_database_leaving(const OutboxDatabase *database);

/* control.c: may messages be published from here? The control row, and copies */

typedef struct OutboxControlState OutboxControlState;

extern OutboxControlState *outbox_control_create(MemoryContext cxt);

/* The control row, or a route, may have changed: nothing is sent meanwhile. */
extern void outbox_control_invalidate(OutboxControlState *state);
extern bool outbox_control_is_stale(const OutboxControlState *state);

/* It is being read; a signal from now on makes it stale again. */
extern void outbox_control_reading(OutboxControlState *state);

/*
 * This is what was read.  unusable: why the name of the environment cannot be
 * believed, or NULL.  True: what is in memory may not be sent any more.
 */
extern bool outbox_control_loaded(OutboxControlState *state,
								  const OutboxControl *control,
								  const char *unusable);

/* After a claim, in its transaction: does it say otherwise?  See control.c. */
extern void outbox_control_check(OutboxControlState *state,
								 const OutboxBatch *batch);

/* By the control row, or because this is a copy. */
extern bool outbox_control_paused(const OutboxControlState *state);

/* Not adopted. */
extern OutboxCopy outbox_control_copy(const OutboxControlState *state);

/* prepared.c: prepared transactions, which tell nobody how they end */

typedef struct OutboxPreparedList OutboxPreparedList;
typedef void (*OutboxPreparedEnded) (const OutboxPrepared *prepared, void *arg);

extern OutboxPreparedList *outbox_prepared_create(MemoryContext cxt);

/* Room for so many more: adding them cannot fail then. */
extern void outbox_prepared_reserve(OutboxPreparedList *list, int n);
extern void outbox_prepared_add(OutboxPreparedList *list,
								const OutboxPrepared *prepared);

/* Some of that range were lost: which are they?  To be looked up. */
extern void outbox_prepared_lost(OutboxPreparedList *list,
								 const OutboxRange *range);
extern bool outbox_prepared_unknown(const OutboxPreparedList *list);

/*
 * Called in a transaction: looks them up.  Those that are not found have ended;
 * returns the range in which their rows are.
 */
extern OutboxRange outbox_prepared_find(OutboxPreparedList *list);

/* Calls visit for those that have ended, and forgets them. */
extern void outbox_prepared_check(OutboxPreparedList *list,
								  bool (*ended) (TransactionId xid),
								  OutboxPreparedEnded visit, void *arg);
extern int	outbox_prepared_count(const OutboxPreparedList *list);
#ifdef OUTBOX_TEST_POINTS
/* Does one that the snapshot sees lead to this row? */
extern bool outbox_prepared_leads_to(const OutboxPreparedList *list, int64 seq);
#endif

/*
 * maintenance.c: partitions of the archive: made ahead, dropped when they are old; and old rows of the history
 */

typedef struct OutboxMaintenance OutboxMaintenance;

extern OutboxMaintenance *outbox_maintenance_create(MemoryContext cxt);
extern bool outbox_maintenance_due(const OutboxMaintenance *maintenance,
								   OutboxMonoTime now);
extern OutboxMonoTime outbox_maintenance_deadline(const OutboxMaintenance *maintenance);

/* Of what is due a step each, in a transaction of its own. */
extern void outbox_maintenance_run(OutboxMaintenance *maintenance,
								   OutboxMonoTime now, MemoryContext scratch);

/* jobs.c: jobs: replays and the like, chunk by chunk beside publishing */

typedef struct OutboxJobs OutboxJobs;

extern OutboxJobs *outbox_jobs_create(MemoryContext cxt);

/* There may be a job: one was filed or changed, or it is time to look. */
extern void outbox_jobs_look(OutboxJobs *jobs);

/* Is there one, as far as is known? */
extern bool outbox_jobs_wanted(const OutboxJobs *jobs);

/* When the next chunk may be, if there is a job. */
extern OutboxMonoTime outbox_jobs_at(const OutboxJobs *jobs);

/* One chunk, in a transaction of its own. */
extern void outbox_jobs_run(OutboxJobs *jobs, MemoryContext scratch);

/* poll_times.c: timers of the poll and of the sweep */

typedef struct OutboxTimers OutboxTimers;

extern OutboxTimers *outbox_timers_create(MemoryContext cxt);

/* The next look at the tables; outbox.poll_interval may have become shorter. */
extern OutboxMonoTime outbox_timers_poll_at(const OutboxTimers *timers);
extern void outbox_timers_poll_soon(OutboxTimers *timers);

/* Is it time?  Then the next time begins. */
extern bool outbox_timers_poll_due(OutboxTimers *timers, OutboxMonoTime now);
extern bool outbox_timers_sweep_due(OutboxTimers *timers, OutboxMonoTime now);

/* wall_clock.c: has somebody set the clock? */

typedef struct OutboxWallClock OutboxWallClock;

extern OutboxWallClock *outbox_wall_clock_create(MemoryContext cxt);

/* Once a turn: a jump since the last one is told in the slot and in the log. */
extern void outbox_wall_clock_look(OutboxWallClock *clock);

/* activity.c: what pg_stat_activity says of a worker: state and query */

/*
 * The worker is in that state, with that broker.  What is said then stays until the
 * next call that says another thing, also while the worker is idle.
 */
extern void outbox_activity_show(OutboxWorkerState state, const char *broker);

/* That text, for a transaction. */
extern const char *outbox_activity_text(void);

/* Around the wait for work. */
extern void outbox_activity_idle(void);
extern void outbox_activity_works(void);

#endif							/* OUTBOX_UPKEEP_H */
