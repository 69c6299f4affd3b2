/*-------------------------------------------------------------------------
 *
 * due.c
 *		Rows whose time comes: retries and scheduled messages.
 *
 * Which rows the next batch reads (due->read, which only set_read() changes):
 *
 *		   +------------------ restart, freed ----------------+
 *		   |                                                  v
 *		FOLLOWS <--read_to is reached, or nothing is due-- FROM_START
 *		   ^                                                |   ^
 *		   |                         freed, some are read   v   |  one batch
 *		   +--------- the same, or nothing is due --------- ONE_BATCH
 *
 * Keys that go on free rows again and again; each time the first rows are read, and still
 * a read of all comes to its end.  A clock that is set back restarts from anywhere.
 *
 * Beside it, and independent: unknown (look up when the next one is due), check (look
 * whether claimed rows were passed over), restart_later (one more read of all).  The
 * last two wait for again_at, and restart_later for FOLLOWS.
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
	due->cursor = (OutboxDuePlace) {at, seq};
	if (!is_before(&due->checked, at, seq))
		due->checked = due->cursor;
}

/* The only writer of due->read. */
static void
set_read(OutboxDue *due, OutboxDueRead read)
{
	Assert(read != OUTBOX_DUE_ONE_BATCH || due->read == OUTBOX_DUE_FROM_START);
	due->read = read;
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
	if (due->read == OUTBOX_DUE_ONE_BATCH && at <= due->goes_on_at.at)
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
	set_read(due, OUTBOX_DUE_FROM_START);
	set_cursor(due, DT_NOBEGIN, 0);
	due->read_to = GetCurrentTimestamp();
	due->unknown = true;
	/* In this round: a key that goes on has rows that are not due, too. */
	due->next = DT_NOBEGIN;
}

void
outbox_due_restart_later(OutboxDue *due)
{
	due->restart_later = true;
	outbox_mono_earlier(&due->again_at, outbox_mono_after(outbox_recheck_ms()));
}

/* Due rows were left behind keys that go on now: the first ones are read, at least. */
void
outbox_due_freed(OutboxDue *due)
{
	OutboxDuePlace place = due->read == OUTBOX_DUE_ONE_BATCH ? due->goes_on_at : due->cursor;
	bool		goes_on = due->read != OUTBOX_DUE_FOLLOWS && place.at != DT_NOBEGIN;
	TimestampTz read_to = due->read_to;

	outbox_due_restart(due);
	if (!goes_on)
		return;
	set_read(due, OUTBOX_DUE_ONE_BATCH);
	due->read_to = read_to;
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

/* OutboxKeyFilter */
static bool
is_left(const OutboxKey *key, const void *arg, OutboxExcludedKey *excluded)
{
	(void) arg;
	return outbox_queue_due_left(key, &excluded->upto, &excluded->id);
}

/*
 * Where it is not cut, all that is due is read.  Rows of routes and keys that wait are left:
 * outbox_relay_resume() and outbox_due_freed() restart.  There may be millions of them
 * which no limit of a claim counts: they are passed in steps.
 */
void
outbox_due_claim(OutboxDue *due, OutboxBatch *batch, TimestampTz wall)
{
	OutboxSegment *segment = outbox_batch_add_segment(batch, OUTBOX_SOURCE_DUE,
													  due->cursor.seq, PG_INT64_MAX);
	OutboxDuePlace upto = {wall, PG_INT64_MAX};
	bool		step = false;
	OutboxClaim claim;

	outbox_batch_fill_claim(batch, &claim);
	claim.limit = Min(claim.limit, outbox_queue_due_room(batch->queue));
	outbox_keys_exclude(batch, &claim, is_left, NULL);
	if (claim.excluded_routes != NIL || claim.nexcluded_keys > 0)
		step = outbox_store_reach_due(due->cursor.at, due->cursor.seq, wall,
									  OUTBOX_STRIDE, &upto.at, &upto.seq);
	claim.upto = upto.seq;
	if (outbox_store_claim_due(&claim, due->cursor.at, upto.at) >= claim.limit)
		segment->cut = true;
	if (segment->cut)
		return;
	segment->last_due = upto.at;
	segment->last_seq = upto.seq;
	segment->cut = step;
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
		/* There was nothing to be read, or no room. */
		if (!outbox_due_wanted(due))
			set_read(due, OUTBOX_DUE_FOLLOWS);
		if (due->restart_later && due->read == OUTBOX_DUE_FOLLOWS)
			outbox_due_restart_later(due);
		return;
	}
	set_cursor(due, segment->last_due, segment->last_seq);
	if (due->read == OUTBOX_DUE_ONE_BATCH &&
		is_before(&due->cursor, due->goes_on_at.at, due->goes_on_at.seq))
		set_cursor(due, due->goes_on_at.at, due->goes_on_at.seq);
	/* What has become due since does not belong to a read of all. */
	if (due->read != OUTBOX_DUE_FOLLOWS)
		set_read(due, segment->cut && due->cursor.at < due->read_to ?
				 OUTBOX_DUE_FROM_START : OUTBOX_DUE_FOLLOWS);

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
	/* A read of all ends first: outbox_due_committed() arms the timer again. */
	if (!due->restart_later || due->read != OUTBOX_DUE_FOLLOWS)
	{
		due->check = true;
		return;
	}
	due->restart_later = false;
	outbox_due_restart(due);
}

typedef struct DueCheck
{
	OutboxReader *reader;
	int			n;
	OutboxRecalled forgotten[OUTBOX_SWEEP_ROWS];	/* rows of such keys */
} DueCheck;

/* Claim from there on; then the check goes on. */
static void
check_later(OutboxDue *due, TimestampTz at)
{
	outbox_due_told(due, at);
	due->check = false;
}

/* OutboxRowVisit: was the row passed over, and nothing else leads to it? */
static void
check_row(const OutboxRow *row, void *arg)
{
	DueCheck   *check = arg;
	OutboxReader *reader = check->reader;
	OutboxDue  *due = &reader->due;
	OutboxKeyId key_id = {row->key_hash, outbox_routes_find(reader->routes, row->route)};
	bool		has_key = row->keyed && key_id.route->ordered;

	/* The rest is to be claimed, and the check goes on after that. */
	if (is_before(&due->cursor, row->available_at, row->seq))
	{
		due->check = false;
		return;
	}
	due->checked = (OutboxDuePlace) {row->available_at, row->seq};
	if (outbox_queue_has(reader->queue, &row->id))
		return;
	if (has_key && !outbox_queue_knows(reader->queue, key_id))
	{
		OutboxRecalled met = {.id = key_id, .seq = row->seq, .due = row->available_at};

		check->forgotten[check->n++] = met;
	}
	else if (!has_key ||
			 !outbox_queue_leaves_due(reader->queue, key_id, row->seq, &row->id))
		check_later(due, row->available_at);
}

void
outbox_due_check(OutboxReader *reader)
{
	OutboxDue  *due = &reader->due;
	DueCheck   *check;
	OutboxClaim claim = {
		.upto = PG_INT64_MAX,
		.limit = OUTBOX_SWEEP_ROWS,
		.excluded_routes = outbox_routes_excluded(reader->routes),
		.worker = MySlot->worker,
		.nworkers = MySlot->nworkers
	};
	OutboxDuePlace before,
				reached;
	TimestampTz free_at;
	int			n;

	look_at_clock(due);
	if (!due->check)
		return;
	before = due->checked;
	claim.arg = check = palloc(sizeof(DueCheck));
	check->reader = reader;
	check->n = 0;
	claim.after = due->checked.seq;
	claim.unreadable = outbox_unreadable_left_out(&reader->unreadable, &claim.nunreadable);
	n = outbox_store_list_due(&claim, due->checked.at, due->cursor.at, check_row);
	/* Not passed before the statements of that have succeeded. */
	reached = due->checked;
	due->checked = before;
	free_at = outbox_recall_free_due(reader->queue, reader->routes, &reader->unreadable,
									 check->forgotten, check->n, due->cursor.at);
	due->checked = reached;
	if (free_at != DT_NOEND)
		check_later(due, free_at);
	if (n == OUTBOX_SWEEP_ROWS)
		return;
	due->checked = due->cursor;
	due->check = false;
}
