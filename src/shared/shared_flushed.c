/*-------------------------------------------------------------------------
 *
 * shared_flushed.c
 *		Transactions that have enqueued and whose commit is on disk.
 *
 * Before it publishes, the relay waits for the commit of each row (store_fence.c).  The
 * commit log tells the position of 32 transactions together, among them the asynchronous
 * commits by which the relay itself settles.  At 1000 messages a second, each committed
 * durably, that made it flush the WAL 60 times a second for nothing: 9 % of its time
 * (perf).  So who commits tells here that its own commit is flushed.
 *
 * An entry is written after the commit, and before the transaction announces itself.  It
 * may be overwritten or come late, and then the commit log is asked.  It holds the number
 * with its epoch, so none stands for another transaction; what is on disk stays there,
 * and a crash of the server wipes all entries.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/xlog.h"
#include "shared_internal.h"

/* More than commit between a commit and its claim; a power of two. */
#define FLUSHED_ENTRIES	1024

/* U64FromFullTransactionId(); 0: none */
pg_atomic_uint64 *outbox_flushed = NULL;

Size
outbox_flushed_size(void)
{
	return mul_size(FLUSHED_ENTRIES, sizeof(pg_atomic_uint64));
}

void
outbox_flushed_init(void)
{
	for (int i = 0; i < FLUSHED_ENTRIES; i++)
		pg_atomic_init_u64(&outbox_flushed[i], 0);
}

static pg_atomic_uint64 *
entry_of(FullTransactionId xid)
{
	return &outbox_flushed[U64FromFullTransactionId(xid) % FLUSHED_ENTRIES];
}

void
outbox_flushed_note(FullTransactionId xid, XLogRecPtr commit)
{
	if (FullTransactionIdIsValid(xid) && !XLogNeedsFlush(commit))
		pg_atomic_write_u64(entry_of(xid), U64FromFullTransactionId(xid));
}

bool
outbox_flushed_has(FullTransactionId xid)
{
	return pg_atomic_read_u64(entry_of(xid)) == U64FromFullTransactionId(xid);
}
