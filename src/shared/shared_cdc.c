/*-------------------------------------------------------------------------
 *
 * shared_cdc.c
 *		Replication slots of routes with relay = 'cdc': is one made again?
 *
 * The server gives a slot no identity but its name.  A slot that is dropped and made
 * again begins at the end of the write-ahead log, and what its reader had not read is
 * lost to it.  But it is a new directory: its inode and, since these are used again,
 * the time of its birth tell.  Known since the server's start, as all shared memory.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <fcntl.h>
#include <sys/stat.h>

#include "miscadmin.h"
#include "shared_internal.h"
#include "utils/timestamp.h"

/* The files of slots are below the data directory, where each process is. */
static bool
identify(const char *name, OutboxCdcSlot *slot)
{
	char		path[MAXPGPATH];
#ifdef STATX_BTIME
	struct statx st;
#else
	struct stat st;
#endif

	snprintf(path, sizeof(path), "pg_replslot/%s", name);
#ifdef STATX_BTIME
	if (statx(AT_FDCWD, path, 0, STATX_INO | STATX_BTIME, &st) != 0)
		return false;
	slot->inode = st.stx_ino;
	slot->born_ns = (st.stx_mask & STATX_BTIME) == 0 ? 0 :
		(int64) st.stx_btime.tv_sec * 1000000000 + st.stx_btime.tv_nsec;
#else
	if (stat(path, &st) != 0)
		return false;
	slot->inode = st.st_ino;
	slot->born_ns = 0;
#endif
	return true;
}

/*
 * Under the mutex.  One that is not known gets an unused entry, or that which was
 * looked at least recently: its database may be gone, or the extension there.
 */
static OutboxCdcSlot *
find(const char *name, bool *known)
{
	OutboxCdcSlot *oldest = NULL;

	*known = true;
	for (int i = 0; i < OUTBOX_CDC_SLOTS; i++)
	{
		OutboxCdcSlot *slot = &outbox_shared->cdc_slots[i];

		if (slot->dboid == MyDatabaseId && strcmp(NameStr(slot->name), name) == 0)
			return slot;
		if (oldest == NULL || slot->looked_at < oldest->looked_at)
			oldest = slot;
	}
	*known = false;
	return oldest;
}

bool
outbox_cdc_slot_look(const char *name)
{
	OutboxCdcSlot now;
	OutboxCdcSlot *slot;
	TimestampTz moment = GetCurrentTimestamp();
	bool		known;

	if (outbox_shared == NULL || !identify(name, &now))
		return false;
	SpinLockAcquire(&outbox_shared->mutex);
	slot = find(name, &known);
	if (!known || slot->inode != now.inode || slot->born_ns != now.born_ns)
	{
		slot->dboid = MyDatabaseId;
		strlcpy(NameStr(slot->name), name, NAMEDATALEN);
		slot->inode = now.inode;
		slot->born_ns = now.born_ns;
		slot->remade_at = known ? moment : 0;
	}
	slot->looked_at = moment;
	SpinLockRelease(&outbox_shared->mutex);
	return true;
}

void
outbox_cdc_slot_forget(const char *name)
{
	OutboxCdcSlot *slot;
	bool		known;

	if (outbox_shared == NULL)
		return;
	SpinLockAcquire(&outbox_shared->mutex);
	slot = find(name, &known);
	if (known)
	{
		slot->dboid = InvalidOid;
		slot->looked_at = 0;
	}
	SpinLockRelease(&outbox_shared->mutex);
}

bool
outbox_cdc_slot_get(int i, OutboxCdcSlot *slot)
{
	SpinLockAcquire(&outbox_shared->mutex);
	*slot = outbox_shared->cdc_slots[i];
	SpinLockRelease(&outbox_shared->mutex);
	if (slot->dboid != MyDatabaseId)
		return false;
	(void) outbox_cdc_slot_look(NameStr(slot->name));
	SpinLockAcquire(&outbox_shared->mutex);
	*slot = outbox_shared->cdc_slots[i];
	SpinLockRelease(&outbox_shared->mutex);
	return slot->dboid == MyDatabaseId;
}
