/*-------------------------------------------------------------------------
 *
 * stats.h
 *		Statistics of a database and of its routes, since the server was started.
 *
 * They belong to the database and not to a worker, so that a worker which is
 * restarted, or one more, goes on counting where the others are; a crash of the
 * server wipes them with all shared memory.  A worker counts in memory of its own
 * and adds that to what is shared once a turn (outbox_stats_flush()), so that a
 * message costs no atomic operation.
 *
 * How much there is room for is fixed: what does not fit is counted under
 * OUTBOX_STATS_OTHER_ROUTES.  Where there are more databases than entries, an
 * entry whose database has no worker is given to another one.
 *
 *-------------------------------------------------------------------------
 */
#ifndef OUTBOX_STATS_H
#define OUTBOX_STATS_H

#include "datatype/timestamp.h"
#include "port/atomics.h"
#include "storage/spin.h"

#define OUTBOX_STATS_DATABASES		64
#define OUTBOX_STATS_ROUTES			32
#define OUTBOX_STATS_WAITS			512 /* routes that wait, of all databases */
/* The last entry: routes that have none of their own, and messages without one. */
#define OUTBOX_STATS_OTHER_ROUTES	OUTBOX_STATS_ROUTES
#define OUTBOX_STATS_NAME			256 /* a route's name has 255 bytes at
										 * most */
#define OUTBOX_STATS_TEXT			256
#define OUTBOX_STATS_SECONDS		16

typedef enum OutboxCount
{
	OUTBOX_COUNT_PUBLISHED,		/* confirmed and settled */
	OUTBOX_COUNT_RETURNED,		/* attempts that reached no queue */
	OUTBOX_COUNT_NACKED,		/* attempts that the broker refused */
	OUTBOX_COUNT_FAILED,		/* messages given up */
	OUTBOX_COUNT_RETRIED,		/* attempts after which another one follows */
	OUTBOX_COUNT_DEAD_LETTERED, /* messages given up that went to failed_route */
	OUTBOX_NCOUNTS
} OutboxCount;

/* Of the whole database. */
typedef enum OutboxEvent
{
	OUTBOX_EVENT_RECONNECT,		/* connections after the first of a process */
	OUTBOX_EVENT_DATABASE_ERROR,	/* rounds that ended with an ERROR */
	OUTBOX_EVENT_CRASH,			/* workers that ended with an error */
	OUTBOX_NEVENTS
} OutboxEvent;

/*
 * How long it took until the broker's confirm: from the commit that enqueued it
 * (its created_at without track_commit_timestamp; of a scheduled message, from when
 * it was due), and from when it was sent.
 */
typedef enum OutboxTiming
{
	OUTBOX_TIMING_COMMIT,
	OUTBOX_TIMING_PUBLISH,
	OUTBOX_NTIMINGS
} OutboxTiming;

#define OUTBOX_TIMING_BOUNDS		20
/* Upper ends of the buckets but the last, in microseconds. */
extern const int64 outbox_timing_bounds[OUTBOX_TIMING_BOUNDS];

typedef struct OutboxTimingStats
{
	pg_atomic_uint64 buckets[OUTBOX_TIMING_BOUNDS + 1];
	pg_atomic_uint64 sum_us;
} OutboxTimingStats;

typedef struct OutboxRouteStats
{
	pg_atomic_uint64 counts[OUTBOX_NCOUNTS];
	/* In the database's encoding; under its mutex. */
	char		name[OUTBOX_STATS_NAME];
} OutboxRouteStats;

/* A route whose messages wait for its destination, whether it has an entry or not. */
typedef struct OutboxRouteWait
{
	Oid			dboid;			/* InvalidOid: unused */
	int			worker;			/* the last one that has met it */
	char		name[OUTBOX_STATS_NAME];
	char		because[OUTBOX_STATS_TEXT];
	char		reason[32];		/* the same as a kind */
	TimestampTz since;
	TimestampTz retry_at;
} OutboxRouteWait;

typedef struct OutboxDatabaseStats
{
	slock_t		mutex;
	Oid			dboid;			/* InvalidOid: unused */
	int			nroutes;		/* names are never taken away */
	pg_atomic_uint64 events[OUTBOX_NEVENTS];
	TimestampTz crashed_at;		/* the last of OUTBOX_EVENT_CRASH */
	OutboxTimingStats timings[OUTBOX_NTIMINGS];
	/* second of Unix time << 32 | messages published in it */
	pg_atomic_uint64 seconds[OUTBOX_STATS_SECONDS];
	OutboxRouteStats routes[OUTBOX_STATS_ROUTES + 1];
} OutboxDatabaseStats;

typedef struct OutboxStats
{
	slock_t		mutex;			/* guards whose the entries are, and waits */
	TimestampTz started_at;		/* the counters begin here */
	OutboxDatabaseStats databases[OUTBOX_STATS_DATABASES];
	OutboxRouteWait waits[OUTBOX_STATS_WAITS];
} OutboxStats;

/* NULL when the library was not preloaded. */
extern OutboxStats *outbox_stats;

/*
 * In a worker.  All of these cannot fail; what is counted before the worker has
 * attached, or when there is no entry left for its database, is not kept.
 */
extern void outbox_stats_attach(Oid dboid, int worker, int nworkers);

/* The entry of a route; name in the database's encoding. */
extern int	outbox_stats_route(const char *name);
extern void outbox_stats_count(int route, OutboxCount count);
extern void outbox_stats_time(OutboxTiming timing, int64 us);
extern void outbox_stats_event(OutboxEvent event);
extern void outbox_stats_flush(void);

/*
 * Why messages of a route wait for its destination; because NULL: this worker has none
 * that do.
 */
extern void outbox_stats_route_waits(const char *name, const char *because,
									 const char *reason, TimestampTz retry_at);

/* In the launcher: a worker of that database has ended with an error. */
extern void outbox_stats_crashed(Oid dboid);

/* The entry of a database; NULL if none of its workers has counted yet. */
extern OutboxDatabaseStats *outbox_stats_find(Oid dboid);

/* Messages published in each of the last seconds that are over, the oldest first. */
extern void outbox_stats_seconds(OutboxDatabaseStats *stats, uint32 *published,
								 int seconds);

#endif							/* OUTBOX_STATS_H */
