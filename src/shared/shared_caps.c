/*-------------------------------------------------------------------------
 *
 * shared_caps.c
 *		What is known of the routes that have a max_pending.
 *
 * Each bucket's mutex is held to look at its few entries.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "caps.h"
#include "shared_internal.h"
#include "storage/shmem.h"

/*
 * For how long a route that was found full is refused without another count: so
 * many times as long as the count took, that who is refused and tries again costs
 * the server little.
 */
#define REST_FACTOR		20
#define REST_MIN_US		1000
#define REST_MAX_US		1000000

typedef struct CapEntry
{
	OutboxCap	cap;			/* dboid InvalidOid: unused */
	int64		count;
	OutboxMonoTime full_until;
} CapEntry;

typedef struct OutboxCapBucket
{
	slock_t		mutex;
	int			next;			/* whose place is taken when there is none */
	CapEntry	entries[OUTBOX_CAPS_IN_BUCKET];
} CapBucket;

CapBucket  *outbox_cap_buckets = NULL;

Size
outbox_caps_size(void)
{
	return mul_size(OUTBOX_CAPS_BUCKETS, sizeof(CapBucket));
}

void
outbox_caps_init(void)
{
	for (int i = 0; i < OUTBOX_CAPS_BUCKETS; i++)
		SpinLockInit(&outbox_cap_buckets[i].mutex);
}

static CapEntry *
find_entry(CapBucket *bucket, const OutboxCap *cap)
{
	for (int i = 0; i < OUTBOX_CAPS_IN_BUCKET; i++)
	{
		CapEntry   *entry = &bucket->entries[i];

		if (entry->cap.dboid == cap->dboid && entry->cap.route == cap->route)
			return entry;
	}
	return NULL;
}

/*
 * The caller gives its mutex back.  *entry: what is known, or NULL.  NULL: there is no
 * memory.
 */
static CapBucket *
lock_bucket(const OutboxCap *cap, CapEntry **entry)
{
	CapBucket  *bucket;

	if (outbox_cap_buckets == NULL)
		return NULL;
	bucket = &outbox_cap_buckets[(cap->route ^ cap->dboid) % OUTBOX_CAPS_BUCKETS];
	SpinLockAcquire(&bucket->mutex);
	*entry = find_entry(bucket, cap);
	return bucket;
}

/* One that was counted up to another max_pending says nothing. */
static OutboxCapVerdict
judge(const CapEntry *entry, const OutboxCap *cap)
{
	if (entry == NULL || entry->cap.most != cap->most)
		return OUTBOX_CAP_UNKNOWN;
	if (entry->count < cap->most)
		return OUTBOX_CAP_ROOM;
	return outbox_mono_reached(entry->full_until, outbox_mono_now()) ?
		OUTBOX_CAP_UNKNOWN : OUTBOX_CAP_FULL;
}

/* *known: what is known before that, -1: nothing. */
static OutboxCapVerdict
ask(const OutboxCap *cap, bool admit, int64 *known)
{
	CapEntry   *entry;
	CapBucket  *bucket = lock_bucket(cap, &entry);
	OutboxCapVerdict verdict;

	*known = -1;
	if (bucket == NULL)
		return OUTBOX_CAP_UNKNOWN;
	verdict = judge(entry, cap);
	if (entry != NULL && entry->cap.most == cap->most)
		*known = entry->count;
	if (admit && verdict == OUTBOX_CAP_ROOM)
		entry->count++;
	SpinLockRelease(&bucket->mutex);
	return verdict;
}

OutboxCapVerdict
outbox_cap_admit(const OutboxCap *cap)
{
	int64		known;

	return ask(cap, true, &known);
}

OutboxCapVerdict
outbox_cap_look(const OutboxCap *cap, int64 *known)
{
	return ask(cap, false, known);
}

void
outbox_cap_add(const OutboxCap *cap)
{
	CapEntry   *entry;
	CapBucket  *bucket = lock_bucket(cap, &entry);

	if (bucket == NULL)
		return;
	if (entry != NULL)
		entry->count++;
	SpinLockRelease(&bucket->mutex);
}

/*
 * By the difference, since what was added while it was counted may have been missed.
 * What was counted as well as added makes it too high, which the next count mends.
 */
void
outbox_cap_counted(const OutboxCap *cap, int64 known, int64 found,
				   int64 took_us)
{
	int64		rest_us = Min(Max(took_us * REST_FACTOR, REST_MIN_US), REST_MAX_US);
	CapEntry   *entry;
	CapBucket  *bucket = lock_bucket(cap, &entry);

	if (bucket == NULL)
		return;
	if (entry != NULL && entry->cap.most == cap->most && known >= 0)
		entry->count += found - known;
	else
	{
		if (entry == NULL)
			entry = &bucket->entries[bucket->next++ % OUTBOX_CAPS_IN_BUCKET];
		entry->cap = *cap;
		entry->count = found;
	}
	entry->full_until = entry->count < cap->most ? OUTBOX_MONO_UNSET :
		(OutboxMonoTime) {outbox_mono_now().us + rest_us};
	SpinLockRelease(&bucket->mutex);
}
