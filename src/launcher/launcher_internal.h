/*-------------------------------------------------------------------------
 *
 * launcher_internal.h
 *		What the files of the launcher share; nobody else includes it.
 *
 * launcher.c			the process, and which databases there are
 * launcher_workers.c	starting and ending the workers of one
 * launcher_turns.c		whose turn it is when there are too few processes
 *
 *-------------------------------------------------------------------------
 */
#ifndef OUTBOX_LAUNCHER_INTERNAL_H
#define OUTBOX_LAUNCHER_INTERNAL_H

#include "clock.h"
#include "nodes/pg_list.h"
#include "postmaster/bgworker.h"
#include "shared.h"

typedef struct WorkerEntry
{
	BackgroundWorkerHandle *handle; /* NULL: not running */
	OutboxSlot *slot;
	uint64		generation;
	OutboxMonoTime started_at;
	OutboxLinkTold told;		/* by its last process, if that made room */
	int			twin_told;		/* by its last process */
} WorkerEntry;

/*
 * A database's life.  outbox_database_set_state() changes the state, and tells the
 * workers of one that is to lose them.
 *
 *		AWAY --worker 0 starts--> STARTING --it has tried what it needs--> RUNNING
 *		AWAY --no process is free--> WAITING --worker 0 starts--> STARTING
 *		WAITING --a command needs it empty--> AWAY
 *		RUNNING --others wait, and it idles or its turn is over--> YIELDING
 *		RUNNING --more workers run than may--> YIELDING
 *		STARTING, RUNNING --the same, and worker 0 hangs in its start: it is
 *			terminated--> YIELDING
 *		STARTING, RUNNING --another number of workers--> REGROUPING
 *		any with workers, when the last of them has left--> AWAY
 *		any --no extension, or dropped--> ABSENT --the last has left--> forgotten
 *		ABSENT --a request--> REGROUPING
 *
 * No states are: a hold, which somebody else sets and releases at any time; the
 * room; the backoff of crashes; and whether worker 0 has found the extension
 * (slot->ready), before which it is alone.
 */
typedef enum DatabaseState
{
	/* May start workers, in this order. */
	DATABASE_WAITING,			/* none runs, for want of a process */
	DATABASE_AWAY,				/* none runs, until retry_at */
	DATABASE_STARTING,			/* its turn has not begun yet */
	DATABASE_RUNNING,			/* its turn has begun, perhaps long ago */
	/* All of its workers are told to leave. */
	DATABASE_YIELDING,			/* to make room for another database */
	DATABASE_REGROUPING,		/* to come back */
	DATABASE_ABSENT				/* for good */
} DatabaseState;

typedef struct DatabaseEntry
{
	Oid			dboid;
	DatabaseState state;
	OutboxMonoTime since;		/* it has that state */
	int			nworkers;		/* by which its keys are divided now */
	uint32		failures;		/* crashes in a row */
	OutboxMonoTime retry_at;	/* no start before */
	OutboxMonoTime asked_at;	/* a transaction asked for a worker; unset:
								 * none */
	bool		found;			/* the extension, by a worker that has left */
	OutboxMonoTime work_at;		/* AWAY: no work is known before; unset: it is */
	TimestampTz due_at;			/* work_at by the wall clock, which may be
								 * set: what is scheduled is by that */
	bool		rests;			/* ... and nothing kept its workers from it */
	int64		written;		/* outbox_rows_written(), when its worker
								 * began */
	int			room;			/* so many workers is all there is room for */
	OutboxMonoTime room_until;	/* then look for more; unset: any number */

	WorkerEntry workers[OUTBOX_MAX_WORKERS];
} DatabaseEntry;

/* The launcher's memory, and the databases it knows, see outbox_turns_sort(). */
extern MemoryContext outbox_launcher_cxt;
extern List *outbox_databases;

/* launcher.c */
extern bool outbox_database_exists(Oid dboid);

/* Is it locked, so that a worker would wait in its start? */
extern bool outbox_database_is_locked(Oid dboid);

/* Does a worker of an earlier launcher still run there? */
extern bool outbox_old_workers_exist(Oid dboid);

/* Changes nothing, not even since, when it has that state. */
extern void outbox_database_set_state(DatabaseEntry *db, DatabaseState state);

/* launcher_workers.c */

/* Notices workers that have ended; true: the database is to be forgotten. */
extern bool outbox_database_check(DatabaseEntry *db, OutboxMonoTime now);

/* Starts what is missing. */
extern void outbox_database_start(DatabaseEntry *db, OutboxMonoTime now);

/* When a database may start because others take too long; unset: none starts. */
extern OutboxMonoTime outbox_probes_check(OutboxMonoTime now);

/* How many workers it has now. */
extern int	outbox_database_running(const DatabaseEntry *db);

/* How many more all databases may have; less than 0: so many too many. */
extern int	outbox_workers_left(void);

/* Could another worker be started now? */
extern bool outbox_worker_process_is_free(void);

/* launcher_turns.c */

/* A worker could not be started; running: how many its database has. */
extern void outbox_turn_no_process(DatabaseEntry *db, int running);

/* Its first worker starts. */
extern void outbox_turn_started(DatabaseEntry *db);

/* Its turn begins, if it has come so far. */
extern void outbox_turn_begin(DatabaseEntry *db, OutboxMonoTime now);

/* A worker has left; rest_ms, rests: as its slot has them. */
extern void outbox_turn_left(DatabaseEntry *db, int rest_ms, bool rests);

/* Nothing is to be done there: look again later. */
extern bool outbox_turn_rests(DatabaseEntry *db, OutboxMonoTime now);

/* How many workers a database that wants so many can have. */
extern int	outbox_turn_room(DatabaseEntry *db, int wanted);

/* Puts the databases in the order in which they may start workers. */
extern void outbox_turns_sort(void);

/* When to look again, for a turn that will be over; unset: nobody waits. */
extern OutboxMonoTime outbox_turns_check(OutboxMonoTime now);

#endif							/* OUTBOX_LAUNCHER_INTERNAL_H */
