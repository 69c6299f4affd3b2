/*-------------------------------------------------------------------------
 *
 * shared_waiters.c
 *		Who waits for a message, and what was settled recently; see waiters.h.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "common/hashfn.h"
#include "miscadmin.h"
#include "shared_internal.h"
#include "storage/shmem.h"
#include "waiters.h"

/* So many ids a database are remembered: 64 kB each. */
#define RECENT_IDS		4096

typedef struct Waiter
{
	slock_t		mutex;
	Oid			dboid;			/* InvalidOid: nobody */
	pg_uuid_t	id;
	OutboxVerdict verdict;
} Waiter;

typedef struct OutboxWaiters
{
	pg_atomic_uint32 count;		/* entries in use, of any database */
	Waiter		entries[FLEXIBLE_ARRAY_MEMBER]; /* MaxBackends */
} OutboxWaiters;

/*
 * Ids in two halves, so that no reader needs a lock.  The lower one is XORed with the
 * hash of the route's name: the reader of an id gets the hash.
 */
struct OutboxRecentlySettled
{
	pg_atomic_uint64 added;		/* the next one goes to added % RECENT_IDS */
	struct
	{
		pg_atomic_uint64 high;
		pg_atomic_uint64 low;
	}			ids[RECENT_IDS];
};

OutboxWaiters *outbox_waiters = NULL;
OutboxRecentlySettled *outbox_recent_rings = NULL;

static bool waiting = false;

Size
outbox_waiters_size(void)
{
	return add_size(offsetof(OutboxWaiters, entries),
					mul_size(MaxBackends, sizeof(Waiter)));
}

void
outbox_waiters_init(void)
{
	pg_atomic_init_u32(&outbox_waiters->count, 0);
	for (int i = 0; i < MaxBackends; i++)
		SpinLockInit(&outbox_waiters->entries[i].mutex);
}

Size
outbox_recent_size(void)
{
	return mul_size(OUTBOX_STATS_DATABASES, sizeof(OutboxRecentlySettled));
}

void
outbox_recent_init(void)
{
	for (int i = 0; i < OUTBOX_STATS_DATABASES; i++)
	{
		OutboxRecentlySettled *ring = &outbox_recent_rings[i];

		pg_atomic_init_u64(&ring->added, 0);
		for (int j = 0; j < RECENT_IDS; j++)
		{
			pg_atomic_init_u64(&ring->ids[j].high, 0);
			pg_atomic_init_u64(&ring->ids[j].low, 0);
		}
	}
}

/* ----------------------------------------------------------------- waiters */

static Waiter *
my_entry(void)
{
	int			procno = outbox_my_procno();

	/* Auxiliary processes come behind, and call no functions. */
	Assert(procno >= 0 && procno < MaxBackends);
	return &outbox_waiters->entries[procno];
}

void
outbox_waiter_begin(const pg_uuid_t *id)
{
	Waiter	   *entry = my_entry();

	if (waiting)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_IN_USE),
				 errmsg("outbox_wait() was called while it waits")));
	SpinLockAcquire(&entry->mutex);
	entry->dboid = MyDatabaseId;
	entry->id = *id;
	entry->verdict = OUTBOX_VERDICT_NONE;
	SpinLockRelease(&entry->mutex);
	waiting = true;
	/* A barrier, too: whatever commits behind this sees it. */
	pg_atomic_fetch_add_u32(&outbox_waiters->count, 1);
}

OutboxVerdict
outbox_waiter_verdict(void)
{
	Waiter	   *entry = my_entry();
	OutboxVerdict verdict;

	SpinLockAcquire(&entry->mutex);
	verdict = entry->verdict;
	entry->verdict = OUTBOX_VERDICT_NONE;
	SpinLockRelease(&entry->mutex);
	return verdict;
}

void
outbox_waiter_end(void)
{
	Waiter	   *entry;

	if (!waiting)
		return;
	entry = my_entry();
	SpinLockAcquire(&entry->mutex);
	entry->dboid = InvalidOid;
	SpinLockRelease(&entry->mutex);
	waiting = false;
	pg_atomic_fetch_sub_u32(&outbox_waiters->count, 1);
}

/* Returns false when nobody waits there in that database. */
static bool
read_entry(Waiter *entry, Oid dboid, pg_uuid_t *id)
{
	bool		there;

	if (entry->dboid != dboid)
		return false;
	SpinLockAcquire(&entry->mutex);
	there = entry->dboid == dboid;
	*id = entry->id;
	SpinLockRelease(&entry->mutex);
	return there;
}

/* What is settled stays so, whatever is to be looked at besides. */
static bool
tell_entry(Waiter *entry, Oid dboid, const pg_uuid_t *id,
		   OutboxVerdict verdict)
{
	bool		told;

	SpinLockAcquire(&entry->mutex);
	told = entry->dboid == dboid &&
		memcmp(&entry->id, id, sizeof(pg_uuid_t)) == 0 &&
		entry->verdict < verdict;
	if (told)
		entry->verdict = verdict;
	SpinLockRelease(&entry->mutex);
	return told;
}

bool
outbox_waiters_exist(Oid dboid)
{
	if (pg_atomic_read_u32(&outbox_waiters->count) == 0)
		return false;
	for (int i = 0; i < MaxBackends; i++)
		if (outbox_waiters->entries[i].dboid == dboid)
			return true;
	return false;
}

void
outbox_waiters_tell(Oid dboid, OutboxAskVerdict ask, void *arg)
{
	/* The commit that this is about comes before the look. */
	pg_memory_barrier();
	if (outbox_waiters == NULL ||
		pg_atomic_read_u32(&outbox_waiters->count) == 0)
		return;
	for (int i = 0; i < MaxBackends; i++)
	{
		Waiter	   *entry = &outbox_waiters->entries[i];
		OutboxVerdict verdict;
		pg_uuid_t	id;

		if (!read_entry(entry, dboid, &id))
			continue;
		verdict = ask(&id, arg);
		if (verdict != OUTBOX_VERDICT_NONE &&
			tell_entry(entry, dboid, &id, verdict))
			outbox_wake_procno(i);
	}
}

/* OutboxAskVerdict */
static OutboxVerdict
say_look(const pg_uuid_t *id, void *arg)
{
	(void) id;
	(void) arg;
	return OUTBOX_VERDICT_LOOK;
}

void
outbox_waiters_look(Oid dboid)
{
	outbox_waiters_tell(dboid, say_look, NULL);
}

/* ---------------------------------------------------------- recently settled */

void
outbox_recent_clear(int index)
{
	pg_atomic_write_u64(&outbox_recent_rings[index].added, 0);
}

OutboxRecentlySettled *
outbox_recent_find(Oid dboid)
{
	OutboxDatabaseStats *stats = outbox_stats_find(dboid);

	return stats == NULL ? NULL : &outbox_recent_rings[stats - outbox_stats->databases];
}

static void
split(const pg_uuid_t *id, uint64 *high, uint64 *low)
{
	memcpy(high, id->data, sizeof(uint64));
	memcpy(low, id->data + sizeof(uint64), sizeof(uint64));
}

uint64
outbox_recent_hash(const char *route)
{
	return hash_bytes_extended((const unsigned char *) route,
							   (int) strlen(route), 0);
}

/*
 * Several workers may add at once, each at a place of its own.  A reader that meets
 * one half of an id and the other half of another gets a hash that no route has.
 */
void
outbox_recent_add(OutboxRecentlySettled *recent, const pg_uuid_t *id, const char *route)
{
	uint64		place = pg_atomic_fetch_add_u64(&recent->added, 1);
	uint64		high;
	uint64		low;

	place %= RECENT_IDS;
	split(id, &high, &low);
	pg_atomic_write_u64(&recent->ids[place].high, high);
	pg_atomic_write_u64(&recent->ids[place].low, low ^ outbox_recent_hash(route));
}

bool
outbox_recent_has(OutboxRecentlySettled *recent, const pg_uuid_t *id, OutboxAskRoute ask,
				  void *arg)
{
	uint64		n = pg_atomic_read_u64(&recent->added);
	uint64		high;
	uint64		low;

	n = Min(n, RECENT_IDS);
	split(id, &high, &low);
	for (uint64 i = 0; i < n; i++)
		if (pg_atomic_read_u64(&recent->ids[i].high) == high &&
			ask(pg_atomic_read_u64(&recent->ids[i].low) ^ low, arg))
			return true;
	return false;
}
