/*-------------------------------------------------------------------------
 *
 * unflushed.c
 *		What was settled by commits that are not on disk yet.
 *
 * A crash can lose it, and then these messages are published again.  That is why
 * they count against the window, which bounds the duplicates, and why no other
 * message of their keys may be published before: it would be overtaken by an
 * older one.
 *
 * Keys are remembered by a bit for some of their hash: two keys that share one
 * cost a flush more.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/xlog.h"
#include "settling.h"
#include "utils/memutils.h"

#define UNFLUSHED_KEYS	65536

struct OutboxUnflushed
{
	int			count;			/* messages */
	XLogRecPtr	lsn;			/* where the last such commit ends */
	bool		dirty;			/* count or keys may not be empty */
	uint8		keys[UNFLUSHED_KEYS / 8];	/* a bit for their hash */
};

static uint32
bit_of(int64 hash)
{
	return (uint32) hash % UNFLUSHED_KEYS;
}

OutboxUnflushed *
outbox_unflushed_create(MemoryContext cxt)
{
	OutboxUnflushed *unflushed =
		MemoryContextAllocZero(cxt, sizeof(OutboxUnflushed));

	unflushed->dirty = true;
	memset(unflushed->keys, 0xFF, sizeof(unflushed->keys));
	unflushed->lsn = GetXLogInsertRecPtr();
	return unflushed;
}

void
outbox_unflushed_check(OutboxUnflushed *unflushed)
{
	if (!unflushed->dirty || GetFlushRecPtr(NULL) < unflushed->lsn)
		return;
	unflushed->count = 0;
	unflushed->dirty = false;
	memset(unflushed->keys, 0, sizeof(unflushed->keys));
}

void
outbox_unflushed_flush(OutboxUnflushed *unflushed)
{
	XLogFlush(unflushed->lsn);
	outbox_unflushed_check(unflushed);
}

void
outbox_unflushed_key(OutboxUnflushed *unflushed, int64 hash)
{
	uint32		bit = bit_of(hash);

	unflushed->keys[bit / 8] |= 1 << (bit % 8);
	unflushed->dirty = true;
}

void
outbox_unflushed_add(OutboxUnflushed *unflushed, int count, XLogRecPtr lsn)
{
	unflushed->count += count;
	unflushed->lsn = Max(unflushed->lsn, lsn);
	unflushed->dirty = true;
}

int
outbox_unflushed_count(const OutboxUnflushed *unflushed)
{
	return unflushed->count;
}

bool
outbox_unflushed_concerns(const OutboxUnflushed *unflushed,
						  const OutboxBatch *batch)
{
	if (!unflushed->dirty)
		return false;
	for (int i = 0; i < batch->count; i++)
	{
		const OutboxMessage *message = batch->messages[i];
		uint32		bit;

		if (message == NULL || message->aggregate_id == NULL)
			continue;
		bit = bit_of(message->key_hash);
		if (unflushed->keys[bit / 8] & (1 << (bit % 8)))
			return true;
	}
	return false;
}
