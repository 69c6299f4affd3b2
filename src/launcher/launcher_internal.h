/*-------------------------------------------------------------------------
 *
 * launcher_internal.h
 *		What the files of the launcher share; nobody else includes it.
 *
 * launcher.c			the process
 * launcher_databases.c	which databases there are
 * launcher_workers.c	starting and ending the workers of one
 * launcher_turns.c		whose turn it is when there are too few processes
 * launcher_old.c		workers of a launcher before this one
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
} WorkerEntry;

typedef struct DatabaseEntry
{
	Oid			dboid;
	int			nworkers;		/* by which its keys are divided now */
	bool		regrouping;		/* all leave, to come back as nworkers */
	bool		absent;			/* has no extension: to be forgotten */
	uint32		failures;		/* crashes in a row */
	OutboxMonoTime retry_at;	/* no start before */
	bool		held;			/* kept away, for a command */

	/* when processes are scarce, see launcher_turns.c */
	bool		yielding;		/* told to make room ... */
	OutboxMonoTime yielding_since;	/* ... then */
	int			rest_ms;		/* until there is work, as those that left said */
	OutboxMonoTime waiting_since;	/* for a process; unset: it is not */
	OutboxMonoTime turn_at;		/* its turn began; unset: not yet */
	int			room;			/* so many workers is all there is room for */
	OutboxMonoTime room_until;	/* then look for more; unset: any number */
	uint32		room_failures;	/* times in a row that there was too little */

	WorkerEntry workers[OUTBOX_MAX_WORKERS];
} DatabaseEntry;

/* The launcher's memory, and the databases it knows, in no order. */
extern MemoryContext outbox_launcher_cxt;
extern List *outbox_databases;

/* launcher_databases.c */
extern bool outbox_database_exists(Oid dboid);
extern void outbox_databases_scan(void);
extern void outbox_databases_take_requests(void);

/* launcher_workers.c */

/* Notices workers that have ended; true: the database is to be forgotten. */
extern bool outbox_database_check(DatabaseEntry *db);
/* Starts what is missing. */
extern void outbox_database_start(DatabaseEntry *db, OutboxMonoTime now);
/* When a database may start because others take too long; unset: none starts. */
extern OutboxMonoTime outbox_probes_check(OutboxMonoTime now);
/* Could another worker be started now? */
extern bool outbox_worker_process_is_free(void);

/* launcher_old.c */

/* At the start: all workers that there are. */
extern void outbox_old_workers_init(void);
/* Sends them home, and notices who has gone; when to look again, or unset. */
extern OutboxMonoTime outbox_old_workers_check(OutboxMonoTime now);
extern bool outbox_old_workers_exist(Oid dboid);

/* launcher_turns.c */

/* A worker could not be started; running: how many its database has. */
extern void outbox_turn_no_process(DatabaseEntry *db, int running);
/* All workers of a database have been started. */
extern void outbox_turn_complete(DatabaseEntry *db);
/* One was started. */
extern void outbox_turn_started(DatabaseEntry *db, int number);
/* A worker has left; rest_ms: it knows of no work for so long. */
extern void outbox_turn_left(DatabaseEntry *db, int rest_ms);
/* All workers of a database that was told to make room have left. */
extern void outbox_turn_ended(DatabaseEntry *db);
/* How many workers a database that wants so many can have. */
extern int	outbox_turn_room(DatabaseEntry *db, int wanted);
/* Databases in the order in which they may start workers. */
extern List *outbox_turn_order(void);
/* When to look again, for a turn that will be over; unset: nobody waits. */
extern OutboxMonoTime outbox_turns_check(OutboxMonoTime now);

#endif							/* OUTBOX_LAUNCHER_INTERNAL_H */
