/*-------------------------------------------------------------------------
 *
 * shared_waiters.c
 *		Who waits for a message, and what was settled recent; see waiters.h.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "common/hashfn.h"
#include "miscadmin.h"
#include "shared_internal.h"
#include "storage/shmem.h"
#include "waiters.h"

OutboxWaiters *outbox_waiters = NULL;

/* One for each entry of outbox_stats, which says whose it is. */
static OutboxRecentlySettled *rings = NULL;

static bool waiting = false;

static Size
waiters_size(void)
{
	return add_size(offsetof(OutboxWaiters, entries),
					mul_size(MaxBackends, sizeof(OutboxWaiter)));
}

static Size
rings_size(void)
{
	return mul_size(OUTBOX_STATS_DATABASES, sizeof(OutboxRecentlySettled));
}

Size
outbox_waiters_size(void)
{
	return add_size(waiters_size(), rings_size());
}

static void
init_ring(OutboxRecentlySettled *ring)
{
	pg_atomic_init_u64(&ring->added, 0);
	for (int i = 0; i < OUTBOX_RECENT_IDS; i++)
	{
		pg_atomic_init_u64(&ring->ids[i].high, 0);
		pg_atomic_init_u64(&ring->ids[i].low, 0);
	}
}

void
outbox_waiters_startup(void)
{
	bool		found;

	outbox_waiters = ShmemInitStruct("outbox waiters", waiters_size(), &found);
	rings = ShmemInitStruct("outbox recent settled", rings_size(), &found);
	if (found)
		return;
	memset(outbox_waiters, 0, waiters_size());
	pg_atomic_init_u32(&outbox_waiters->count, 0);
	outbox_waiters->nentries = MaxBackends;
	for (int i = 0; i < outbox_waiters->nentries; i++)
		SpinLockInit(&outbox_waiters->entries[i].mutex);
	for (int i = 0; i < OUTBOX_STATS_DATABASES; i++)
		init_ring(&rings[i]);
}

/* ----------------------------------------------------------------- waiters */

static OutboxWaiter *
my_entry(void)
{
	int			procno = outbox_my_procno();

	/* Auxiliary processes come behind, and call no functions. */
	Assert(procno >= 0 && procno < outbox_waiters->nentries);
	return &outbox_waiters->entries[procno];
}

void
outbox_waiter_begin(const pg_uuid_t *id)
{
	OutboxWaiter *entry = my_entry();

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
	OutboxWaiter *entry = my_entry();
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
	OutboxWaiter *entry;

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
read_entry(OutboxWaiter *entry, Oid dboid, pg_uuid_t *id)
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
tell_entry(OutboxWaiter *entry, Oid dboid, const pg_uuid_t *id,
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

void
outbox_waiters_tell(Oid dboid, OutboxAskVerdict ask, void *arg)
{
	/* The commit that this is about comes before the look. */
	pg_memory_barrier();
	if (outbox_waiters == NULL ||
		pg_atomic_read_u32(&outbox_waiters->count) == 0)
		return;
	for (int i = 0; i < outbox_waiters->nentries; i++)
	{
		OutboxWaiter *entry = &outbox_waiters->entries[i];
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

/* ---------------------------------------------------------- recent settled */

void
outbox_recent_clear(int index)
{
	pg_atomic_write_u64(&rings[index].added, 0);
}

OutboxRecentlySettled *
outbox_recent_find(Oid dboid)
{
	OutboxDatabaseStats *stats = outbox_stats_find(dboid);

	return stats == NULL ? NULL : &rings[stats - outbox_stats->databases];
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

	place %= OUTBOX_RECENT_IDS;
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

	n = Min(n, OUTBOX_RECENT_IDS);
	split(id, &high, &low);
	for (uint64 i = 0; i < n; i++)
		if (pg_atomic_read_u64(&recent->ids[i].high) == high &&
			ask(pg_atomic_read_u64(&recent->ids[i].low) ^ low, arg))
			return true;
	return false;
}
