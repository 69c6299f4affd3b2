/*-------------------------------------------------------------------------
 *
 * store_fence.c
 *		What must be on disk before claimed messages may be published.
 *
 * No byte of a message may leave before the commit that enqueued it is on disk.
 * A claim sees rows of transactions that have committed; with synchronous_commit
 * on, their commit record was flushed before anybody could see them, and with it
 * off the commit log remembers up to where the WAL has to be flushed first
 * (TransactionIdGetCommitLSN(), by which PostgreSQL itself decides when a hint bit
 * may say "committed").  So a claim asks that for the transaction of each row, and
 * most often there is nothing to wait for: the producers have done it.
 *
 * The row locks of a claim need not outlive a crash, so its own commit record
 * need not be on disk.  With synchronous standbys it must, since the wait for
 * them is by the commit record and covers all that came before.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/transam.h"
#include "access/xlog.h"
#include "compat.h"
#include "replication/syncrep.h"
#include "storage/lwlock.h"
#include "store.h"
#include "store_internal.h"

static XLogRecPtr fence = InvalidXLogRecPtr;
static TransactionId last_xid = InvalidTransactionId;

void
outbox_store_fence_reset(void)
{
	fence = InvalidXLogRecPtr;
	last_xid = InvalidTransactionId;
}

/*
 * A row that was just locked, by the transaction that wrote this version of it.
 * What the commit log does not know, or not yet, is frozen: the number is one of
 * long ago, all before it was flushed when the commit log was truncated.
 */
void
outbox_store_fence_row(TransactionId xid)
{
	XLogRecPtr	lsn = InvalidXLogRecPtr;
	TransactionId next;

	if (xid == last_xid || !TransactionIdIsNormal(xid))
		return;
	last_xid = xid;
	next = ReadNextTransactionId();
	LWLockAcquire(XactTruncationLock, LW_SHARED);
	if (TransactionIdPrecedesOrEquals(compat_oldest_clog_xid(), xid) &&
		TransactionIdPrecedes(xid, next))
		lsn = TransactionIdGetCommitLSN(xid);
	LWLockRelease(XactTruncationLock);
	fence = Max(fence, lsn);
}

bool
outbox_store_fence_is_commit(void)
{
	return SyncRepStandbyNames != NULL && SyncRepStandbyNames[0] != '\0';
}

void
outbox_store_fence_wait(void)
{
	if (!XLogRecPtrIsInvalid(fence))
		XLogFlush(fence);
}
