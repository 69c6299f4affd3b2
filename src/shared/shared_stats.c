/*-------------------------------------------------------------------------
 *
 * shared_stats.c
 *		Statistics of a database and of its routes; see stats.h.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "shared_internal.h"
#include "stats.h"
#include "utils/timestamp.h"

const int64 outbox_timing_bounds[OUTBOX_TIMING_BOUNDS] = {
	250, 500, 1000, 2000, 5000, 10000, 20000, 50000, 100000, 200000, 500000,
	1000000, 2000000, 5000000, 10000000, 30000000, 60000000, 300000000,
	1800000000, INT64CONST(7200000000)
};

OutboxStats *outbox_stats = NULL;

/* What this worker has counted since it has flushed last. */
typedef struct Pending
{
	bool		any;
	uint64		route_used;		/* a bit each, OUTBOX_STATS_ROUTES + 1 of them */
	uint32		routes[OUTBOX_STATS_ROUTES + 1][OUTBOX_NCOUNTS];
	uint32		events[OUTBOX_NEVENTS];
	uint32		buckets[OUTBOX_NTIMINGS][OUTBOX_TIMING_BOUNDS + 1];
	uint64		sums[OUTBOX_NTIMINGS];
} Pending;

static OutboxDatabaseStats *mine = NULL;
static int	my_worker = 0;
static Pending pending;

Size
outbox_stats_size(void)
{
	return sizeof(OutboxStats);
}

static void
init_value(pg_atomic_uint64 *value)
{
	pg_atomic_init_u64(value, 0);
}

static void
clear_value(pg_atomic_uint64 *value)
{
	pg_atomic_write_u64(value, 0);
}

static void
for_each_value(OutboxDatabaseStats *stats, void (*visit) (pg_atomic_uint64 *value))
{
	for (int i = 0; i < OUTBOX_NEVENTS; i++)
		visit(&stats->events[i]);
	for (int i = 0; i < OUTBOX_STATS_SECONDS; i++)
		visit(&stats->seconds[i]);
	for (int i = 0; i < OUTBOX_NTIMINGS; i++)
	{
		for (int j = 0; j <= OUTBOX_TIMING_BOUNDS; j++)
			visit(&stats->timings[i].buckets[j]);
		visit(&stats->timings[i].sum_us);
	}
	for (int i = 0; i <= OUTBOX_STATS_ROUTES; i++)
		for (int j = 0; j < OUTBOX_NCOUNTS; j++)
			visit(&stats->routes[i].counts[j]);
}

void
outbox_stats_init(void)
{
	SpinLockInit(&outbox_stats->mutex);
	outbox_stats->started_at = GetCurrentTimestamp();
	for (int i = 0; i < OUTBOX_STATS_DATABASES; i++)
	{
		SpinLockInit(&outbox_stats->databases[i].mutex);
		for_each_value(&outbox_stats->databases[i], init_value);
	}
}

/* ------------------------------------------------------------ whose is what */

/* Called with the mutex. */
static OutboxDatabaseStats *
find_entry(Oid dboid)
{
	for (int i = 0; i < OUTBOX_STATS_DATABASES; i++)
		if (outbox_stats->databases[i].dboid == dboid)
			return &outbox_stats->databases[i];
	return NULL;
}

OutboxDatabaseStats *
outbox_stats_find(Oid dboid)
{
	OutboxDatabaseStats *stats;

	if (outbox_stats == NULL)
		return NULL;
	SpinLockAcquire(&outbox_stats->mutex);
	stats = find_entry(dboid);
	SpinLockRelease(&outbox_stats->mutex);
	return stats;
}

/* Called with the mutex: what workers of that number, or higher ones, have met. */
static void
forget_waits(Oid dboid, int worker, int nworkers)
{
	for (int i = 0; i < OUTBOX_STATS_WAITS; i++)
	{
		OutboxRouteWait *wait = &outbox_stats->waits[i];

		if (wait->dboid == dboid &&
			(wait->worker == worker || wait->worker >= nworkers))
			wait->dboid = InvalidOid;
	}
}

/* One that nobody has; else one of a database for which nobody works now. */
static OutboxDatabaseStats *
choose_entry(void)
{
	OutboxDatabaseStats *databases = outbox_stats->databases;
	OutboxDatabaseStats *stats = outbox_stats_find(InvalidOid);

	for (int i = 0; stats == NULL && i < OUTBOX_STATS_DATABASES; i++)
		if (outbox_shared_count_slots(databases[i].dboid) == 0)
			stats = &databases[i];
	return stats;
}

/*
 * A worker of the database makes its entry, or the launcher when it has crashed
 * before; of several that start together, one makes it: the others find it.
 */
static OutboxDatabaseStats *
make_entry(Oid dboid)
{
	OutboxDatabaseStats *chosen = choose_entry();
	OutboxDatabaseStats *stats;
	Oid			before;

	if (chosen == NULL)
		return NULL;
	before = chosen->dboid;
	SpinLockAcquire(&outbox_stats->mutex);
	stats = find_entry(dboid);
	if (stats == NULL && chosen->dboid == before)
	{
		stats = chosen;
		forget_waits(before, 0, 0);
		stats->dboid = dboid;
		stats->nroutes = 0;
		stats->crashed_at = 0;
		outbox_recent_clear(stats - outbox_stats->databases);
		for_each_value(stats, clear_value);
	}
	SpinLockRelease(&outbox_stats->mutex);
	return stats;
}

void
outbox_stats_attach(Oid dboid, int worker, int nworkers)
{
	memset(&pending, 0, sizeof(pending));
	my_worker = worker;
	mine = outbox_stats_find(dboid);
	if (mine == NULL && outbox_stats != NULL)
		mine = make_entry(dboid);
	if (mine == NULL)
		return;
	/* What the one before had met, this one meets again. */
	SpinLockAcquire(&outbox_stats->mutex);
	forget_waits(dboid, worker, nworkers);
	SpinLockRelease(&outbox_stats->mutex);
}

int
outbox_stats_route(const char *name)
{
	int			found = OUTBOX_STATS_OTHER_ROUTES;

	if (mine == NULL || strlen(name) >= OUTBOX_STATS_NAME)
		return found;
	SpinLockAcquire(&mine->mutex);
	for (int i = 0; i < mine->nroutes && found == OUTBOX_STATS_OTHER_ROUTES; i++)
		if (strcmp(mine->routes[i].name, name) == 0)
			found = i;
	if (found == OUTBOX_STATS_OTHER_ROUTES && mine->nroutes < OUTBOX_STATS_ROUTES)
	{
		found = mine->nroutes++;
		strlcpy(mine->routes[found].name, name, OUTBOX_STATS_NAME);
	}
	SpinLockRelease(&mine->mutex);
	return found;
}

void
outbox_stats_crashed(Oid dboid)
{
	OutboxDatabaseStats *stats = outbox_stats_find(dboid);
	TimestampTz now = GetCurrentTimestamp();

	if (stats == NULL)
		stats = make_entry(dboid);
	if (stats == NULL)
		return;
	pg_atomic_fetch_add_u64(&stats->events[OUTBOX_EVENT_CRASH], 1);
	SpinLockAcquire(&stats->mutex);
	stats->crashed_at = now;
	SpinLockRelease(&stats->mutex);
}

/* ---------------------------------------------------------------- counting */

void
outbox_stats_count(int route, OutboxCount count)
{
	pending.routes[route][count]++;
	pending.route_used |= UINT64CONST(1) << route;
	pending.any = true;
}

void
outbox_stats_event(OutboxEvent event)
{
	pending.events[event]++;
	pending.any = true;
}

void
outbox_stats_time(OutboxTiming timing, int64 us)
{
	int			bucket = 0;

	/* Somebody has set the clock back. */
	us = Max(us, 0);
	while (bucket < OUTBOX_TIMING_BOUNDS && us > outbox_timing_bounds[bucket])
		bucket++;
	pending.buckets[timing][bucket]++;
	pending.sums[timing] += us;
	pending.any = true;
}

static void
flush_value(pg_atomic_uint64 *to, uint32 *from)
{
	if (*from == 0)
		return;
	pg_atomic_fetch_add_u64(to, *from);
	*from = 0;
}

/* Adds to what was published in this second; another one's entry begins again. */
static void
flush_second(uint32 published)
{
	uint64		second = (uint64) (GetCurrentTimestamp() / USECS_PER_SEC);
	pg_atomic_uint64 *entry = &mine->seconds[second % OUTBOX_STATS_SECONDS];
	uint64		before = pg_atomic_read_u64(entry);
	uint64		after;

	second &= 0xFFFFFFFF;
	do
	{
		uint32		count = before >> 32 == second ? (uint32) before : 0;

		after = second << 32 | (count + published);
	} while (!pg_atomic_compare_exchange_u64(entry, &before, after));
}

static void
flush_route(int route)
{
	uint32	   *counts = pending.routes[route];

	if (counts[OUTBOX_COUNT_PUBLISHED] > 0)
		flush_second(counts[OUTBOX_COUNT_PUBLISHED]);
	for (int i = 0; i < OUTBOX_NCOUNTS; i++)
		flush_value(&mine->routes[route].counts[i], &counts[i]);
}

void
outbox_stats_flush(void)
{
	if (!pending.any)
		return;
	if (mine == NULL)
	{
		memset(&pending, 0, sizeof(pending));
		return;
	}
	for (int i = 0; pending.route_used >> i != 0; i++)
		if (pending.route_used >> i & 1)
			flush_route(i);
	for (int i = 0; i < OUTBOX_NEVENTS; i++)
		flush_value(&mine->events[i], &pending.events[i]);
	for (int i = 0; i < OUTBOX_NTIMINGS; i++)
	{
		for (int j = 0; j <= OUTBOX_TIMING_BOUNDS; j++)
			flush_value(&mine->timings[i].buckets[j], &pending.buckets[i][j]);
		pg_atomic_fetch_add_u64(&mine->timings[i].sum_us, pending.sums[i]);
		pending.sums[i] = 0;
	}
	pending.route_used = 0;
	pending.any = false;
}

/*
 * Called with the mutex: that of the route, or an unused one while the database has fewer
 * than are left for others.
 */
static OutboxRouteWait *
find_wait(const char *name)
{
	OutboxRouteWait *unused = NULL;
	int			left = 0;

	for (int i = 0; i < OUTBOX_STATS_WAITS; i++)
	{
		OutboxRouteWait *wait = &outbox_stats->waits[i];

		if (wait->dboid == InvalidOid)
		{
			unused = wait;
			left++;
		}
		else if (wait->dboid == mine->dboid)
		{
			if (strcmp(wait->name, name) == 0)
				return wait;
			left--;
		}
	}
	return left > 0 ? unused : NULL;
}

void
outbox_stats_route_waits(const char *name, const char *because, const char *reason,
						 TimestampTz retry_at)
{
	OutboxRouteWait *wait;
	TimestampTz now;
	char		text[OUTBOX_STATS_TEXT];

	/* A route without a row has no name here. */
	if (mine == NULL || name[0] == '\0')
		return;
	now = GetCurrentTimestamp();
	outbox_shared_copy_text(text, sizeof(text), because == NULL ? "" : because);
	SpinLockAcquire(&outbox_stats->mutex);
	wait = find_wait(name);
	if (wait != NULL && because != NULL)
	{
		if (wait->dboid == InvalidOid)
			wait->since = now;
		wait->dboid = mine->dboid;
		wait->worker = my_worker;
		wait->retry_at = retry_at;
		strlcpy(wait->name, name, sizeof(wait->name));
		strlcpy(wait->because, text, sizeof(wait->because));
		strlcpy(wait->reason, reason, sizeof(wait->reason));
	}
	else if (wait != NULL && wait->worker == my_worker)
		wait->dboid = InvalidOid;
	SpinLockRelease(&outbox_stats->mutex);
}

void
outbox_stats_seconds(OutboxDatabaseStats *stats, uint32 *published, int seconds)
{
	uint64		now = (uint64) (GetCurrentTimestamp() / USECS_PER_SEC);

	Assert(seconds > 0 && seconds < OUTBOX_STATS_SECONDS);
	/* This second is not over. */
	for (int i = 0; i < seconds; i++)
	{
		uint64		second = now - seconds + i;
		uint64		entry = pg_atomic_read_u64(&stats->seconds[second % OUTBOX_STATS_SECONDS]);

		published[i] = entry >> 32 == (second & 0xFFFFFFFF) ? (uint32) entry : 0;
	}
}
