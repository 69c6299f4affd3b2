/*-------------------------------------------------------------------------
 *
 * upkeep.h
 *		The session of the database, what holds everything up, and work beside messages.
 *
 *-------------------------------------------------------------------------
 */
#ifndef OUTBOX_UPKEEP_H
#define OUTBOX_UPKEEP_H

#include "reading.h"

/*
 * database.c: the worker's database: session, extension, settings, and its errors
 */

#define OUTBOX_RECHECK_TABLES		0x01	/* hear of DROP EXTENSION */
#define OUTBOX_RECHECK_EXTENSION	0x02	/* attach again */
#define OUTBOX_RECHECK_SETTINGS		0x04	/* compare ALTER DATABASE SET */

typedef struct OutboxDatabase
{
	bool		attached;		/* the extension is there and fits */
	int			mismatch;
	Oid			relid;			/* table outbox, once attached */
	bool		started;		/* what the first claim needs is known */
	int			recheck;		/* with the next transaction */
	char	   *settings;		/* ALTER DATABASE SET, as at the start */
	bool		leave;			/* end the process, for exit_reason */
	OutboxExit	leaving;		/* so, once the broker has answered for what
								 * is in flight; CRASHED: the worker stays */
	OutboxMonoTime leave_by;	/* at the latest, then */

	/* errors */
	bool		failing;
	uint32		failures;		/* in a row */
	OutboxMonoTime retry_at;
} OutboxDatabase;

extern void outbox_database_connect(Oid dboid);

/* The next round is to have a transaction, and to look at that again. */
extern void outbox_database_recheck(OutboxDatabase *database, int what);

/* Has it to look at something of it? */
extern bool outbox_database_wants_round(const OutboxDatabase *database);

/* With an extension that does not fit nothing else counts. */
extern bool outbox_database_wants_attach(const OutboxDatabase *database);

/*
 * Attaches, if that is wanted.  True: all that was read of the extension's tables may be
 * something else now.
 */
extern bool outbox_database_attach(OutboxDatabase *database);

/* Compares ALTER DATABASE SET, if that is wanted. */
extern void outbox_database_check_settings(OutboxDatabase *database);

/* What must be known before the first claim was looked up. */
extern void outbox_database_started(OutboxDatabase *database);

extern void outbox_database_works(OutboxDatabase *database);

/*
 * Called in PG_CATCH.  Errors of values, and details of constraints, have values of a row
 * and so of a message.  The name of the constraint is in the error all the same.
 */
extern void outbox_database_hide_row(void);

/* Called in PG_CATCH. */
extern void outbox_database_failed(OutboxDatabase *database,
								   const OutboxUnreadableRow *row,
								   MemoryContext scratch);

/* Something is known that only a round can look up. */
extern bool outbox_database_touched(const OutboxDatabase *database);

/* The process is to end, for that reason. */
extern void outbox_database_leave(OutboxDatabase *database, OutboxExit reason);

/* The same, but nothing in flight may be left unanswered; see relay_inbox.c. */
extern void outbox_database_leave_answered(OutboxDatabase *database, OutboxExit reason);

/* control.c: may messages be published from here? The control row, and copies */

typedef struct OutboxControlState
{
	bool		stale;			/* control row and routes must be read again */
	bool		paused;			/* by the control row, or a copy */
	OutboxCopy	copy;			/* not adopted */
	char	   *copy_detail;	/* what was told of it last */
	bool		foreign;		/* so a row says; until outbox_adopt() */
	TimestampTz foreign_since;	/* adopted_at when it was found */
} OutboxControlState;

/* The control row, or a route, may have changed: nothing is sent meanwhile. */
extern void outbox_control_invalidate(OutboxControlState *state);

/*
 * This is what was read; a signal from now on makes it stale again.  unusable: why the name of the environment cannot be
 * believed, or NULL.  True: what is in memory may not be sent any more.
 */
extern bool outbox_control_loaded(OutboxControlState *state,
								  const OutboxControl *control,
								  const char *unusable);

/* After a claim, in its transaction: does it say otherwise?  See control.c. */
extern void outbox_control_check(OutboxControlState *state,
								 const OutboxBatch *batch);

/* prepared.c: prepared transactions, which tell nobody how they end */

typedef struct OutboxPreparedList
{
	int			n;
	int			max;			/* room in list */
	OutboxPrepared *list;
	bool		find;			/* look up which there are; in range */
	OutboxRange range;
} OutboxPreparedList;

/*
 * Of a prepared transaction of which only the xid is known: it may have changed any
 * of these.
 */
#define OUTBOX_PREPARED_SIGNALS \
	(OUTBOX_SIGNAL_CONFIG | OUTBOX_SIGNAL_REMOVED | OUTBOX_SIGNAL_JOBS)

typedef void (*OutboxPreparedEnded) (const OutboxPrepared *prepared, void *arg);

/* Room for so many more: adding them cannot fail then. */
extern void outbox_prepared_reserve(OutboxPreparedList *list, int n);

/* One that is known already is known with both. */
extern void outbox_prepared_add(OutboxPreparedList *list,
								const OutboxPrepared *prepared);

/* Some of that range were lost: which are they?  To be looked up. */
extern void outbox_prepared_lost(OutboxPreparedList *list,
								 const OutboxRange *range);

/*
 * Called in a transaction: looks them up.  Those that are not found have ended;
 * returns the range in which their rows are.
 */
extern OutboxRange outbox_prepared_find(OutboxPreparedList *list);

/* Calls visit for those that have ended, and forgets them. */
extern void outbox_prepared_check(OutboxPreparedList *list,
								  bool (*ended) (TransactionId xid),
								  OutboxPreparedEnded visit, void *arg);
#ifdef OUTBOX_TEST_POINTS
/* Does one that the snapshot sees lead to this row? */
extern bool outbox_prepared_leads_to(const OutboxPreparedList *list, int64 seq);
#endif

/*
 * maintenance.c: partitions of the archive: made ahead, dropped when they are old; and old rows of the history
 */

typedef struct OutboxChore
{
	OutboxMonoTime at;			/* the next time */
	bool		failing;		/* the error is in the log */
	OutboxMonoTime done_at;		/* when nothing was left to do */
	uint64		ended;			/* outbox_transactions_ended() at that time;
								 * 0: something is left */
	TimestampTz since;			/* rows before it are gone, but for a few */
	OutboxMonoTime all_at;		/* when these are looked for again */
} OutboxChore;

typedef struct OutboxMaintenance
{
	OutboxChore archive;
	OutboxChore history;
	OutboxChore once;
	/* Somebody has the archive locked. */
	OutboxMonoTime locked_since;	/* unset: nobody */
	uint32		locked_tries;
	bool		reported;
} OutboxMaintenance;

extern OutboxMonoTime outbox_maintenance_deadline(const OutboxMaintenance *maintenance);

/* Of what is due a step each, in a transaction of its own. */
extern void outbox_maintenance_run(OutboxMaintenance *maintenance,
								   OutboxMonoTime now, MemoryContext scratch);

/* How long something is kept may have changed. */
extern void outbox_maintenance_reload(OutboxMaintenance *maintenance);

/* jobs.c: jobs: replays and the like, chunk by chunk beside publishing */

/* How many chunks of a job are not published at most. */
#define OUTBOX_CHUNKS_AHEAD	2

typedef struct OutboxJobs
{
	bool		wanted;			/* there may be a job */
	OutboxMonoTime at;			/* the next chunk */
	OutboxJobChunk ahead[OUTBOX_CHUNKS_AHEAD];	/* what was put last, the
												 * oldest first */
	int			chunk;			/* messages of the next one; 0: as many as may
								 * be */
	OutboxMonoTime put_at;		/* the last one; unset: of another job */
	uint32		busy;			/* looks in a row that found it not published */
	uint32		locked;			/* tries in a row */
	int64		job;			/* the one last looked at; 0: none */
	uint32		failures;		/* of it, in a row; the first is in the log */
} OutboxJobs;

/*
 * There may be a job: one was filed or changed, it is time to look, or one was running
 * when the last worker ended.
 */
extern void outbox_jobs_look(OutboxJobs *jobs);

/* One chunk, in a transaction of its own. */
extern void outbox_jobs_run(OutboxJobs *jobs, MemoryContext scratch);

#endif							/* OUTBOX_UPKEEP_H */
