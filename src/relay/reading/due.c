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

void
outbox_due_told(OutboxDue *due, TimestampTz at)
{
	if (due->next == 0 || at < due->next)
		due->next = at;
	/* Committed late; or the wall clock was set back. */
	if (at <= due->cursor)
		due->again_at = outbox_mono_now();
}

void
outbox_due_look_up(OutboxDue *due)
{
	due->unknown = true;
}

void
outbox_due_restart(OutboxDue *due)
{
	due->cursor = DT_NOBEGIN;
	due->cursor_seq = 0;
	due->unknown = true;
}

bool
outbox_due_wanted(const OutboxDue *due)
{
	return due->next != 0 && GetCurrentTimestamp() >= due->next;
}

void
outbox_due_claim(OutboxDue *due, OutboxBatch *batch, TimestampTz wall)
{
	OutboxSegment *segment = outbox_batch_add_segment(batch, OUTBOX_SOURCE_DUE,
													  0, PG_INT64_MAX);
	OutboxClaim claim;

	outbox_batch_fill_claim(batch, &claim);
	if (outbox_store_claim_due(&claim, due->cursor, due->cursor_seq,
							   wall) >= claim.limit)
		segment->cut = true;
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
		return;
	if (segment->visited > 0)
	{
		due->cursor = segment->last_due;
		due->cursor_seq = segment->last_seq;
	}

	/*
	 * For rows that were locked, or whose key was held; others do not delay
	 * it.
	 */
	outbox_mono_earlier(&due->again_at, outbox_mono_after(outbox_recheck_ms()));
}

/*
 * What was due and was not claimed by this batch cannot be claimed now (locked,
 * or of a route that waits): it must not make us look again at once, again_at
 * does so later.
 */
void
outbox_due_find(OutboxDue *due, OutboxBatch *batch, TimestampTz wall,
				bool force)
{
	OutboxSegment *segment = outbox_batch_next(batch, OUTBOX_SOURCE_DUE, NULL);
	TimestampTz after = due->cursor;
	int64		after_seq = due->cursor_seq;

	due->found = false;
	if (!due->unknown && !force && segment == NULL)
		return;
	if (segment != NULL && !segment->cut)
	{
		after = Max(wall, segment->visited > 0 ? segment->last_due : due->cursor);
		after_seq = PG_INT64_MAX;
	}
	due->found_next = outbox_store_next_due(after, after_seq);
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
	if (outbox_mono_expired(&due->again_at, now))
		outbox_due_restart(due);
}
