/*-------------------------------------------------------------------------
 *
 * wake.c
 *		Telling the relay, once after commit, what a transaction enqueued.
 *
 * Triggers note here which rows the current transaction touched, as a few ranges of seq:
 * one that lasts while others enqueue has its rows far apart, and the relay need not read
 * theirs again.  One callback per backend hands the ranges over after commit, when the
 * rows are visible to others (ProcArrayEndTransaction precedes XACT_EVENT_COMMIT), and
 * forgets them after an abort.  The ranges may contain more than the transaction's rows:
 * those of a subtransaction that rolled back, and what lies between two that became one.
 *
 * Before it commits, a transaction publishes its intent to commit: its ranges and its xid,
 * which stand in shared memory until it has announced itself.  Otherwise another one
 * could see its rows, enqueue more for the same key, commit and announce first; and the
 * relay, whose cursor had passed the first rows while they were invisible, would publish
 * the later ones first.  The relay reads the ranges when its snapshot sees the xid.  A
 * transaction without an xid has written no row, whatever the triggers have seen.
 *
 * A transaction that prepares hands over one range and its signals with its xid, and the
 * relay looks at them once the xid is no longer in progress: there is no callback at
 * COMMIT PREPARED.
 *
 * Nothing is done here when the library was not preloaded: there is no relay.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/transam.h"
#include "access/xact.h"
#include "access/xlog.h"
#include "enqueue.h"
#include "miscadmin.h"
#include "nodes/pg_list.h"
#include "shared.h"
#include "test_point.h"
#include "utils/memutils.h"

/* A database that has been created or altered. */
typedef struct TouchedDatabase
{
	Oid			dboid;
	int			signals;		/* for its workers, if it has any */
} TouchedDatabase;

typedef struct Pending
{
	bool		armed;			/* something to tell at commit */
	int			nranges;
	TimestampTz next_due;		/* 0: none */
	int			signals;
	List	   *databases;		/* TouchedDatabase, in TopTransactionContext */
	bool		committing;		/* its commit intent is published; each row
								 * changes it */
	TransactionId prepared_xid; /* set between PRE_PREPARE and PREPARE */
	/* nranges of these count: nothing is pending when all before them is 0. */
	OutboxRange ranges[OUTBOX_TRANSACTION_RANGES + 1];	/* see
														 * outbox_ranges_add() */
} Pending;

static Pending pending;

static bool callback_registered = false;

static void
publish_intent(TransactionId xid)
{
	if (pending.nranges > 0 && TransactionIdIsValid(xid))
		outbox_intent_publish(pending.ranges, pending.nranges, xid);
}

static void
announce(bool prepared)
{
	ListCell   *cell;

	/* Visible to others, and not announced. */
	OUTBOX_TEST_POINT("before_announce");
	if (OUTBOX_TEST_OMITS("announce"))
		return;
	if (pending.nranges > 0 || pending.next_due != 0 || pending.signals != 0)
		outbox_shared_announce(MyDatabaseId, pending.ranges, pending.nranges,
							   prepared ? pending.prepared_xid : InvalidTransactionId,
							   pending.next_due, pending.signals);
	foreach(cell, pending.databases)
	{
		TouchedDatabase *touched = lfirst(cell);

		outbox_shared_announce(touched->dboid, NULL, 0, InvalidTransactionId, 0,
							   touched->signals);
	}
}

static void
wake_at_end(XactEvent event, void *arg)
{
	(void) arg;
	switch (event)
	{
		case XACT_EVENT_PRE_PREPARE:
			/* XACT_EVENT_PREPARE is too late to ask for the xid. */
			pending.prepared_xid = GetTopTransactionIdIfAny();
			return;
		case XACT_EVENT_PRE_COMMIT:
			/* Another callback may still enqueue. */
			pending.committing = true;
			publish_intent(GetTopTransactionIdIfAny());
			if (pending.armed)
				OUTBOX_TEST_POINT("after_commit_intent");
			return;
		case XACT_EVENT_COMMIT:
		case XACT_EVENT_PREPARE:
			if (event == XACT_EVENT_COMMIT && pending.nranges > 0)
				outbox_flushed_note(GetTopFullTransactionIdIfAny(), XactLastCommitEnd);
			if (pending.armed)
				announce(event == XACT_EVENT_PREPARE);
			break;
		case XACT_EVENT_ABORT:
			break;
		default:
			return;
	}
	/* Not before it is announced. */
	outbox_intent_withdraw();
	memset(&pending, 0, offsetof(Pending, ranges));
}

/* Returns false when there is no relay to be told. */
static bool
arm(void)
{
	if (outbox_shared == NULL)
		return false;
	if (!callback_registered)
	{
		RegisterXactCallback(wake_at_end, NULL);
		callback_registered = true;
		/* Should that be in a callback itself, ours is not called any more. */
		pending.committing = true;
	}
	pending.armed = true;
	return true;
}

void
outbox_wake_row(int64 seq)
{
	OutboxRange row = {seq, seq};
	int			n = pending.nranges;

	if (!arm())
		return;
	/* Nearly each number follows the one before. */
	if (n > 0 && seq - 1 == pending.ranges[n - 1].hi)
		pending.ranges[n - 1].hi = seq;
	else
		outbox_ranges_add(pending.ranges, &pending.nranges, OUTBOX_TRANSACTION_RANGES, row);
	if (pending.committing)
		publish_intent(GetTopTransactionId());
}

void
outbox_wake_due(TimestampTz due)
{
	if (arm() && (pending.next_due == 0 || due < pending.next_due))
		pending.next_due = due;
}

void
outbox_wake_signal(int signals)
{
	if (arm())
		pending.signals |= signals;
}

void
outbox_wake_database(Oid dboid, int signals)
{
	MemoryContext old;
	TouchedDatabase *touched;

	if (!OidIsValid(dboid) || !arm())
		return;
	old = MemoryContextSwitchTo(TopTransactionContext);
	touched = palloc(sizeof(TouchedDatabase));
	touched->dboid = dboid;
	touched->signals = signals;
	pending.databases = lappend(pending.databases, touched);
	MemoryContextSwitchTo(old);
}
