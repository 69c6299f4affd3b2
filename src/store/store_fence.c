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
 * them is by the commit record and covers all that came before.  So must that of a
 * claim with rows that its own transaction has written: dead letters, and what
 * triggers enqueue when it settles.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/transam.h"
#include "access/xact.h"
#include "access/xlog.h"
#include "compat.h"
#include "postmaster/interrupt.h"
#include "replication/syncrep.h"
#include "storage/lwlock.h"
#include "store.h"
#include "store_internal.h"

static XLogRecPtr fence = InvalidXLogRecPtr;
static TransactionId last_xid = InvalidTransactionId;
static bool own_row = false;	/* of the claim's transaction */

/* Asked first; see shared_flushed.c. */
static bool (*is_flushed) (FullTransactionId xid);

/*
 * The last transaction of this claim, if the commit log calls it committed, and that of
 * an earlier claim that has waited; with their epochs, as a number comes back.
 *
 * Without the memory a backlog of one transaction would be flushed for in each round: the
 * commit log knows positions of groups of transactions only, and the asynchronous commits
 * by which the relay settles are in the group, too.
 *
 * No wait that is needed is skipped.  The position that was waited for was read after the
 * transaction was seen as committed, so it covers its commit record; and what has been
 * flushed stays on disk, be synchronous_commit what it may.  A crash ends the worker, and
 * its memory with it.  Standbys are waited for by the claim's own commit, never by this
 * (outbox_store_fence_is_commit()).  The number in a row that is frozen may be one of an
 * earlier epoch, while its namesake of today is still running: that one is not committed,
 * and so is not remembered.
 */
static FullTransactionId last_committed;
static FullTransactionId flushed;

void
outbox_store_fence_ask(bool (*known) (FullTransactionId xid))
{
	is_flushed = known;
}

void
outbox_store_fence_reset(void)
{
	fence = InvalidXLogRecPtr;
	last_xid = InvalidTransactionId;
	own_row = false;
	last_committed = InvalidFullTransactionId;
}

void
outbox_store_fence_forget(void)
{
	outbox_store_fence_reset();
	flushed = InvalidFullTransactionId;
}

/* Nearest to the next one, with that number. */
static FullTransactionId
with_epoch(TransactionId xid, FullTransactionId next)
{
	int32		distance = (int32) (xid - XidFromFullTransactionId(next));

	return FullTransactionIdFromU64(U64FromFullTransactionId(next) + distance);
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
	FullTransactionId next;
	FullTransactionId full;

	if (xid == last_xid || !TransactionIdIsNormal(xid))
		return;
	last_xid = xid;
	if (TransactionIdIsCurrentTransactionId(xid))
	{
		own_row = true;
		return;
	}
	next = ReadNextFullTransactionId();
	full = with_epoch(xid, next);
	last_committed = InvalidFullTransactionId;
	if (is_flushed != NULL && is_flushed(full))
		return;
	if (FullTransactionIdEquals(full, flushed))
	{
		last_committed = full;
		return;
	}
	LWLockAcquire(XactTruncationLock, LW_SHARED);
	if (TransactionIdPrecedesOrEquals(compat_transam()->oldestClogXid, xid) &&
		FullTransactionIdPrecedes(full, next))
	{
		/* In this order: the position is there from when it is committed. */
		if (TransactionIdDidCommit(xid))
			last_committed = full;
		lsn = TransactionIdGetCommitLSN(xid);
	}
	LWLockRelease(XactTruncationLock);
	fence = Max(fence, lsn);
}

/* Names that a reload has set count at once; this process reads them after its round. */
bool
outbox_store_fence_is_commit(void)
{
	return own_row || ConfigReloadPending ||
		(SyncRepStandbyNames != NULL && SyncRepStandbyNames[0] != '\0');
}

void
outbox_store_fence_wait(void)
{
	if (!XLogRecPtrIsInvalid(fence))
		XLogFlush(fence);
	if (FullTransactionIdIsValid(last_committed))
		flushed = last_committed;
}
