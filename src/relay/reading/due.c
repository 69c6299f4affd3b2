/*-------------------------------------------------------------------------
 *
 * due.c
 *		Rows whose time comes: retries and scheduled messages.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "reading.h"
#include "settings.h"
#include "utils/timestamp.h"

static bool
is_before(const OutboxDuePlace *place, TimestampTz at, int64 seq)
{
	return place->at < at || (place->at == at && place->seq < seq);
}

/* Rows behind it are to be claimed, and so need not be checked. */
static void
set_cursor(OutboxDue *due, TimestampTz at, int64 seq)
{
	due->cursor.at = at;
	due->cursor.seq = seq;
	if (!is_before(&due->checked, at, seq))
		due->checked = due->cursor;
}

void
outbox_due_told(OutboxDue *due, TimestampTz at)
{
	at = outbox_due_time(at);
	if (due->next == 0 || at < due->next)
		due->next = at;
	/* Committed late, or locked; or the wall clock was set back. */
	if (at <= due->cursor.at)
		set_cursor(due, at, PG_INT64_MIN);
	if (due->goes_on && at <= due->goes_on_at.at)
		due->goes_on_at = (OutboxDuePlace) {at, PG_INT64_MIN};
}

void
outbox_due_look_up(OutboxDue *due)
{
	due->unknown = true;
	due->check = true;
	due->checked = (OutboxDuePlace) {DT_NOBEGIN, PG_INT64_MIN};
}

void
outbox_due_restart(OutboxDue *due)
{
	due->unknown = true;
	due->cut = true;
	due->goes_on = false;
	due->read_to = GetCurrentTimestamp();
	/* In this round: a key that goes on has rows that are not due, too. */
	due->next = DT_NOBEGIN;
	set_cursor(due, DT_NOBEGIN, 0);
}

void
outbox_due_restart_later(OutboxDue *due)
{
	due->restart_later = true;
	outbox_mono_earlier(&due->again_at, outbox_mono_after(outbox_recheck_ms()));
}

/*
 * Due rows were left behind keys that go on now.  The next batch begins with the first
 * ones; but a read that has not ended goes on after it, and is followed by another one:
 * else those that are further back would never be reached.
 */
void
outbox_due_freed(OutboxDue *due)
{
	OutboxDuePlace place = due->goes_on ? due->goes_on_at : due->cursor;
	bool		goes_on = due->cut && place.at != DT_NOBEGIN;
	TimestampTz read_to = due->read_to;

	outbox_due_restart(due);
	if (!goes_on)
		return;
	due->read_to = read_to;
	due->goes_on = true;
	due->goes_on_at = place;
	due->restart_later = true;
}

/* What is written now may be due before what was read, when the wall clock was set back. */
static void
look_at_clock(OutboxDue *due)
{
	if (due->cursor.at > GetCurrentTimestamp())
		outbox_due_restart(due);
}

bool
outbox_due_wanted(const OutboxDue *due)
{
	return due->next != 0 && GetCurrentTimestamp() >= due->next;
}

/* Where it is not cut, all that is due is read. */
void
outbox_due_claim(OutboxDue *due, OutboxBatch *batch, TimestampTz wall)
{
	OutboxSegment *segment = outbox_batch_add_segment(batch, OUTBOX_SOURCE_DUE,
													  0, PG_INT64_MAX);
	OutboxClaim claim;

	outbox_batch_fill_claim(batch, &claim);
	if (outbox_store_claim_due(&claim, due->cursor.at, due->cursor.seq,
							   wall) >= claim.limit)
		segment->cut = true;
	if (segment->cut)
		return;
	/* Rows of routes that wait are left: outbox_relay_resume() restarts. */
	segment->last_due = wall;
	segment->last_seq = PG_INT64_MAX;
}

void
outbox_due_committed(OutboxDue *due, OutboxBatch *batch)
{
	OutboxSegment *segment = outbox_batch_next(batch, OUTBOX_SOURCE_DUE, NULL);

	if (due->found)
	{
		due->found = false;
		due->unknown = false;
		due->next = due->found_next;
	}
	if (segment == NULL)
	{
		/* There was nothing to be read. */
		due->cut = due->cut && outbox_due_wanted(due);
		if (due->restart_later && !due->cut)
			outbox_due_restart_later(due);
		return;
	}
	set_cursor(due, segment->last_due, segment->last_seq);
	if (due->goes_on && is_before(&due->cursor, due->goes_on_at.at, due->goes_on_at.seq))
		set_cursor(due, due->goes_on_at.at, due->goes_on_at.seq);
	due->goes_on = false;
	/* What has become due since does not belong to it. */
	due->cut = segment->cut && due->cursor.at < due->read_to;

	/* For rows that were locked; others do not delay it. */
	outbox_mono_earlier(&due->again_at, outbox_mono_after(outbox_recheck_ms()));
}

/* Rows that the batch has read do not count, claimed or not: a check sees to them. */
void
outbox_due_find(OutboxDue *due, OutboxBatch *batch, bool force)
{
	OutboxSegment *segment = outbox_batch_next(batch, OUTBOX_SOURCE_DUE, NULL);

	due->found = false;
	if (!due->unknown && !force && segment == NULL)
		return;
	due->found_next = segment != NULL ?
		outbox_store_next_due(segment->last_due, segment->last_seq) :
		outbox_store_next_due(due->cursor.at, due->cursor.seq);
	due->found = true;
}

/*
 * The wall clock decides, and somebody may set it while we wait: the poll then
 * looks again.
 */
OutboxMonoTime
outbox_due_deadline(const OutboxDue *due, OutboxMonoTime now)
{
	OutboxMonoTime deadline = due->again_at;
	TimestampTz wall;

	if (due->next == 0 || due->next == DT_NOEND)
		return deadline;
	wall = GetCurrentTimestamp();
	/* One that has passed waits for something else than time. */
	if (due->next > wall)
		outbox_mono_earlier(&deadline,
							outbox_mono_plus(now,
											 TimestampDifferenceMilliseconds(wall,
																			 due->next)));
	return deadline;
}

void
outbox_due_timers(OutboxDue *due, OutboxMonoTime now)
{
	if (!outbox_mono_expired(&due->again_at, now))
		return;
	/* A read that has not ended does so first (outbox_due_committed()). */
	if (!due->restart_later || due->cut)
	{
		due->check = true;
		return;
	}
	due->restart_later = false;
	outbox_due_restart(due);
}

/* OutboxRowVisit: was the row passed over, and nothing else leads to it? */
static void
check_row(const OutboxRow *row, void *arg)
{
	OutboxReader *reader = arg;
	OutboxDue  *due = &reader->due;

	/* The rest is to be claimed, and the check goes on after that. */
	if (is_before(&due->cursor, row->available_at, row->seq))
	{
		due->check = false;
		return;
	}
	due->checked.at = row->available_at;
	due->checked.seq = row->seq;
	if (outbox_queue_has(reader->queue, &row->id) ||
		(row->keyed && outbox_routes_find(reader->routes, row->route)->ordered &&
		 outbox_queue_leaves_due(reader->queue, row->key_hash, row->seq, &row->id)))
		return;
	outbox_due_told(due, row->available_at);
	due->check = false;
}

void
outbox_due_check(OutboxReader *reader)
{
	OutboxDue  *due = &reader->due;
	OutboxClaim claim = {
		.limit = OUTBOX_SWEEP_ROWS,
		.excluded_routes = outbox_routes_excluded(reader->routes),
		.worker = MySlot->worker,
		.nworkers = MySlot->nworkers,
		.arg = reader
	};

	look_at_clock(due);
	if (!due->check)
		return;
	claim.after = due->checked.seq;
	claim.unreadable = outbox_unreadable_left_out(&reader->unreadable, &claim.nunreadable);
	if (outbox_store_list_due(&claim, due->checked.at, due->cursor.at,
							  check_row) == OUTBOX_SWEEP_ROWS)
		return;
	due->checked = due->cursor;
	due->check = false;
}
