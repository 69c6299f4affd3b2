/*-------------------------------------------------------------------------
 *
 * shared_inbox.c
 *		What backends tell the workers and the launcher.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/transam.h"
#include "shared_internal.h"
#include "test_point.h"
#include "waiters.h"

/* Caller has slot->mutex. */
static void
add_prepared(OutboxInbox *inbox, TransactionId xid, OutboxRange range,
			 TimestampTz next_due, int signals)
{
	if (inbox->nprepared < OUTBOX_INBOX_PREPARED)
	{
		inbox->prepared[inbox->nprepared].xid = xid;
		inbox->prepared[inbox->nprepared].signals = signals;
		inbox->prepared[inbox->nprepared].range = range;
		inbox->prepared[inbox->nprepared].next_due = next_due;
		inbox->nprepared++;
		return;
	}
	/* The worker looks up which they are; one without rows has 0 to 0. */
	outbox_range_widen(&inbox->lost, range);
	inbox->signals |= OUTBOX_SIGNAL_PREPARED;
}

/* Caller has slot->mutex: the worker gets all that a transaction tells, or nothing yet. */
static void
inbox_add(OutboxInbox *inbox, const OutboxRange *ranges, int nranges,
		  TransactionId prepared_xid, TimestampTz next_due, int signals)
{
	if (TransactionIdIsValid(prepared_xid))
	{
		add_prepared(inbox, prepared_xid, outbox_ranges_hull(ranges, nranges), next_due, signals);
		return;
	}
	inbox->signals |= signals;
	if (next_due != 0 &&
		(inbox->next_due == 0 || next_due < inbox->next_due))
		inbox->next_due = next_due;
	for (int i = 0; i < nranges; i++)
		outbox_ranges_add(inbox->ranges, &inbox->nranges, OUTBOX_INBOX_RANGES, ranges[i]);
}

void
outbox_shared_request_database(Oid dboid, bool work)
{
	bool		known = false;

	SpinLockAcquire(&outbox_shared->mutex);
	for (int i = 0; i < outbox_shared->nrequests && !known; i++)
	{
		known = outbox_shared->requests[i].dboid == dboid;
		outbox_shared->requests[i].work |= known && work;
	}
	if (!known && outbox_shared->nrequests < OUTBOX_MAX_REQUESTS)
	{
		outbox_shared->requests[outbox_shared->nrequests].dboid = dboid;
		outbox_shared->requests[outbox_shared->nrequests++].work = work;
	}
	else if (!known)
	{
		outbox_shared->requests_lost = true;
		outbox_shared->lost_work |= work;
	}
	SpinLockRelease(&outbox_shared->mutex);
	if (!known)
		outbox_shared_wake_launcher();
}

void
outbox_shared_announce(Oid dboid, const OutboxRange *ranges, int nranges,
					   TransactionId prepared_xid, TimestampTz next_due,
					   int signals)
{
	bool		found = false;
	OutboxMonoTime now = outbox_mono_now();

	/*
	 * No lock to find the slots: a worker whose slot is assigned only now
	 * takes its first snapshot later than this commit, and sees the rows.
	 */
	for (int i = 0; i < outbox_shared->nslots; i++)
	{
		OutboxSlot *slot = &outbox_shared->slots[i];

		int			procno = -1;

		if (!slot->in_use || slot->dboid != dboid)
			continue;
		SpinLockAcquire(&slot->mutex);
		/* Look again: it may have been freed, and nobody reads it then. */
		if (slot->in_use && slot->dboid == dboid)
		{
			inbox_add(&slot->inbox, ranges, nranges, prepared_xid, next_due, signals);
			if (!outbox_mono_is_set(slot->told_at))
				slot->told_at = now;
			/* The poll is soon enough, or what ends that state. */
			procno = (slot->wakeups_off && signals == 0) || slot->napping ?
				-1 : slot->procno;
			found = true;
		}
		SpinLockRelease(&slot->mutex);
		if (!OUTBOX_TEST_OMITS("latch"))
			outbox_wake_procno(procno);
	}
	/* An altered database is no work: its owner can alter it all the time. */
	if (!found)
		outbox_shared_request_database(dboid, nranges > 0 || next_due != 0 ||
									   (signals & ~OUTBOX_SIGNAL_STOP) != 0);
	if ((signals & OUTBOX_SIGNAL_REMOVED) != 0)
		outbox_waiters_look(dboid);
}

void
outbox_slot_take_inbox(OutboxInbox *inbox)
{
	if (!outbox_slot_lock_mine())
	{
		memset(inbox, 0, sizeof(*inbox));
		return;
	}
	memcpy(inbox, &MySlot->inbox, OUTBOX_INBOX_HEAD);
	memcpy(inbox->ranges, MySlot->inbox.ranges,
		   sizeof(OutboxRange) * inbox->nranges);
	memcpy(inbox->prepared, MySlot->inbox.prepared,
		   sizeof(OutboxPrepared) * inbox->nprepared);
	memset(&MySlot->inbox, 0, OUTBOX_INBOX_HEAD);
	MySlot->told_at = OUTBOX_MONO_UNSET;
	SpinLockRelease(&MySlot->mutex);
}

int
outbox_shared_tell_workers(Oid dboid, int signals)
{
	int			told = 0;

	for (int i = 0; i < outbox_shared->nslots; i++)
	{
		OutboxSlot *slot = &outbox_shared->slots[i];
		int			procno = -1;

		if (!slot->in_use || slot->dboid != dboid)
			continue;
		SpinLockAcquire(&slot->mutex);
		/* Look again: it may be another database's by now. */
		if (slot->in_use && slot->dboid == dboid)
		{
			slot->inbox.signals |= signals;
			/* Now, since it may be gone as soon as it is awake. */
			if (slot->pid != 0)
				told++;
			procno = slot->procno;
		}
		SpinLockRelease(&slot->mutex);
		outbox_wake_procno(procno);
	}
	return told;
}

int
outbox_shared_count_slots(Oid dboid)
{
	int			count = 0;

	for (int i = 0; i < outbox_shared->nslots; i++)
	{
		OutboxSlot *slot = &outbox_shared->slots[i];

		if (slot->in_use && slot->dboid == dboid)
			count++;
	}
	return count;
}

int
outbox_shared_take_requests(OutboxRequest *requests, bool *lost, bool *lost_work)
{
	int			count;

	SpinLockAcquire(&outbox_shared->mutex);
	count = outbox_shared->nrequests;
	memcpy(requests, outbox_shared->requests, sizeof(OutboxRequest) * count);
	*lost = outbox_shared->requests_lost;
	*lost_work = outbox_shared->lost_work;
	outbox_shared->nrequests = 0;
	outbox_shared->requests_lost = outbox_shared->lost_work = false;
	SpinLockRelease(&outbox_shared->mutex);
	return count;
}
