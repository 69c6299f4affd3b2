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

typedef struct CapBucket
{
	slock_t		mutex;
	int			next;			/* whose place is taken when there is none */
	CapEntry	entries[OUTBOX_CAPS_IN_BUCKET];
} CapBucket;

static CapBucket *buckets = NULL;

Size
outbox_caps_size(void)
{
	return mul_size(OUTBOX_CAPS_BUCKETS, sizeof(CapBucket));
}

void
outbox_caps_startup(void)
{
	bool		found;

	buckets = ShmemInitStruct("outbox caps", outbox_caps_size(), &found);
	if (found)
		return;
	memset(buckets, 0, outbox_caps_size());
	for (int i = 0; i < OUTBOX_CAPS_BUCKETS; i++)
		SpinLockInit(&buckets[i].mutex);
}

static CapBucket *
bucket_of(const OutboxCap *cap)
{
	return &buckets[(cap->route ^ cap->dboid) % OUTBOX_CAPS_BUCKETS];
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

/* The caller gives its mutex back.  *entry: what is known, or NULL. */
static CapBucket *
lock_bucket(const OutboxCap *cap, CapEntry **entry)
{
	CapBucket  *bucket = bucket_of(cap);

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

OutboxCapVerdict
outbox_cap_admit(const OutboxCap *cap)
{
	CapBucket  *bucket;
	CapEntry   *entry;
	OutboxCapVerdict verdict;

	if (buckets == NULL)
		return OUTBOX_CAP_UNKNOWN;
	bucket = lock_bucket(cap, &entry);
	verdict = judge(entry, cap);
	if (verdict == OUTBOX_CAP_ROOM)
		entry->count++;
	SpinLockRelease(&bucket->mutex);
	return verdict;
}

void
outbox_cap_add(const OutboxCap *cap)
{
	CapBucket  *bucket;
	CapEntry   *entry;

	if (buckets == NULL)
		return;
	bucket = lock_bucket(cap, &entry);
	if (entry != NULL)
		entry->count++;
	SpinLockRelease(&bucket->mutex);
}

OutboxCapVerdict
outbox_cap_look(const OutboxCap *cap, int64 *known)
{
	CapBucket  *bucket;
	CapEntry   *entry;
	OutboxCapVerdict verdict;

	*known = -1;
	if (buckets == NULL)
		return OUTBOX_CAP_UNKNOWN;
	bucket = lock_bucket(cap, &entry);
	verdict = judge(entry, cap);
	if (entry != NULL && entry->cap.most == cap->most)
		*known = entry->count;
	SpinLockRelease(&bucket->mutex);
	return verdict;
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
	CapBucket  *bucket;
	CapEntry   *entry;

	if (buckets == NULL)
		return;
	bucket = lock_bucket(cap, &entry);
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
