/*-------------------------------------------------------------------------
 *
 * reader.c
 *		Which rows are read next, and what becomes of them.
 *
 * After the commit of a claim its messages go to the queue, in the order of seq,
 * and what the claim has passed over is remembered.  Not before, because what is
 * in the queue may be published; an error in there ends the process.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "reading.h"
#include "route.h"
#include "settings.h"
#include "test_point.h"
#include "utils/memutils.h"

/*
 * While so many keys are under way, rows that would only wait behind them are
 * not claimed.  With fewer, the scan goes on past busy keys, leaving their rows
 * to be read again later, to find others: that read has to pass the rows of
 * the keys in between, so it must not become the rule.
 */
#define BUSY_KEYS 16

#define SHOW_LOWEST_MS 1000

/*
 * All that is in memory is looked at for that so many times as seldom as it takes: 0.1 s
 * with 200,000 held keys.
 */
#define LOOK_PAUSE 2000

void
outbox_reader_init(OutboxReader *reader, OutboxQueue *queue,
				   OutboxRoutes *routes)
{
	reader->queue = queue;
	reader->routes = routes;
	outbox_due_restart(&reader->due);
	outbox_scan_init(&reader->scan);
	reader->lowest_read = 1;
	reader->read_since = true;
}

/* ------------------------------------------------------------ what to read */

void
outbox_reader_add(OutboxReader *reader, int64 lo, int64 hi, int why)
{
	outbox_scan_add(&reader->scan, lo, hi, OUTBOX_MONO_UNSET, why);
}

void
outbox_reader_look(OutboxReader *reader)
{
	outbox_reader_add(reader, outbox_reader_end(reader), PG_INT64_MAX,
					  OUTBOX_UNREAD_NEW);
}

/* -------------------------------------------------- rows that are set aside */

bool
outbox_reader_set_aside(OutboxReader *reader, const OutboxUnreadableRow *row,
						const char *error, const char *sqlstate)
{
	if (row->row.route == NULL ||
		!outbox_unreadable_set_aside(&reader->unreadable,
									 outbox_routes_find(reader->routes, row->row.route),
									 row, error, sqlstate))
		return false;
	/* A retry that is set aside need not hold its key. */
	outbox_keys_invalidate_holders(reader);
	return true;
}

/* They may be ready, or wait for their time. */
static void
read_again(OutboxReader *reader, const int64 *seqs, int n)
{
	if (n == 0)
		return;
	for (int i = 0; i < n; i++)
		outbox_reader_add(reader, seqs[i], seqs[i], OUTBOX_UNREAD_RETURNED);
	outbox_due_restart(&reader->due);
	outbox_keys_invalidate_holders(reader);
}

void
outbox_reader_ask_unreadable(OutboxReader *reader)
{
	int64		seqs[OUTBOX_UNREADABLE_MAX];

	read_again(reader, seqs, outbox_unreadable_ask(&reader->unreadable, seqs));
}

/* ------------------------------------------------------------------- claim */

/* Is what is in memory little enough? */
static bool
has_room(const OutboxQueue *queue)
{
	/* Not for the sake of a few rows while there is enough to do. */
	if (queue->nready > 0 && queue->nready >= outbox_window / 2)
		return false;
	if (queue->nwaiting > queue->ndue_waiting &&
		queue->nwaiting - queue->ndue_waiting >= outbox_window / 2 &&
		queue->nready + queue->nsent - queue->njoined >= BUSY_KEYS)
		return false;
	return queue->count - outbox_locked_beside(queue) < OUTBOX_QUEUE_MAX &&
		queue->bytes < OUTBOX_QUEUE_BYTES;
}

bool
outbox_reader_wanted(const OutboxReader *reader, OutboxMonoTime now)
{
	return has_room(reader->queue) &&
		(outbox_unread_due(&reader->scan.unread, now) ||
		 outbox_queue_wants_reread(reader->queue) ||
		 (outbox_due_wanted(&reader->due) && outbox_queue_due_room(reader->queue) > 0));
}

bool
outbox_reader_needs_lookup(const OutboxReader *reader)
{
	return outbox_keys_are_stale(reader) ||
		reader->due.unknown || reader->due.check || reader->queue->due_freed;
}

bool
outbox_reader_check_holders(OutboxReader *reader)
{
	int64		seqs[OUTBOX_UNREADABLE_MAX];

	if (!outbox_keys_are_stale(reader))
		return false;
	read_again(reader, seqs, outbox_unreadable_check(&reader->unreadable, seqs));
	return outbox_keys_check_holders(reader);
}

void
outbox_reader_check_due(OutboxReader *reader)
{
	if (outbox_queue_take_due_freed(reader->queue))
	{
		/*
		 * A key that is forgotten may be held all the same, and be freed
		 * again by what reads its rows.
		 */
		if (reader->queue->forgotten_low != 0)
			outbox_due_restart_later(&reader->due);
		else
			outbox_due_freed(&reader->due);
	}
	outbox_due_check(reader);
}

/*
 * Due rows, keys, and the scan, in this order: the scan leaves out keys that are
 * read by themselves.  Who comes first leaves half of the room to the others.
 */
void
outbox_reader_claim(OutboxReader *reader, OutboxBatch *batch, TimestampTz wall)
{
	OutboxMonoTime now = outbox_mono_now();
	MemoryContext old = MemoryContextSwitchTo(batch->cxt);
	bool		want_keys = outbox_queue_wants_reread(reader->queue);
	bool		want_scan = outbox_unread_due(&reader->scan.unread, now);
	TimestampTz next = reader->due.next;

	batch->turn = reader->batches++;
	batch->excluded_routes = outbox_routes_excluded(reader->routes);
	batch->unreadable = outbox_unreadable_left_out(&reader->unreadable, &batch->nunreadable);
	if (want_keys || want_scan)
		outbox_batch_keep_half(batch, OUTBOX_BEFORE_KEYS);
	if (next != 0 && wall >= next && outbox_queue_due_room(reader->queue) > 0 &&
		!outbox_batch_full(batch))
		outbox_due_claim(&reader->due, batch, wall);
	outbox_batch_keep_nothing(batch);
	if (want_keys)
	{
		if (want_scan)
			outbox_batch_keep_half(batch, OUTBOX_BEFORE_SCAN);
		outbox_keys_claim(reader, batch);
		outbox_batch_keep_nothing(batch);
	}
	if (want_scan)
		outbox_scan_claim(&reader->scan, batch, now);
	outbox_recall_look_up(batch, outbox_reader_end(reader));
	outbox_keys_check_failed(batch);
	OUTBOX_TEST_POINT("amid_claim");
	MemoryContextSwitchTo(old);
}

/* --------------------------------------------------------------- committed */

/* Later rows of their keys must wait; of what has no order, only they. */
static void
hold_locked(OutboxReader *reader, OutboxBatch *batch)
{
	OutboxMonoTime until = outbox_mono_after(outbox_recheck_ms());
	ListCell   *cell;

	foreach(cell, batch->locked)
	{
		const OutboxRow *row = lfirst(cell);
		OutboxRoute *route;

		/* One without a route stands for all from there on. */
		if (row->route[0] != '\0')
			outbox_slot_note_locked(&row->id, row->seq);
		route = row->keyed ? outbox_routes_find(reader->routes, row->route) : NULL;
		if (route != NULL && route->ordered)
			outbox_keys_hold_locked(reader, outbox_key_id(row->key_hash, route),
									row->seq, until);
		else
			outbox_scan_add(&reader->scan, row->seq, row->seq, until,
							OUTBOX_UNREAD_LOCKED);
	}
}

/* A claimed message: where it is in the batch, and how it came there. */
typedef struct Admission
{
	int64		seq;
	int			index;
	bool		due;
} Admission;

static int
compare_admissions(const void *a, const void *b)
{
	const Admission *left = a;
	const Admission *right = b;

	if (left->seq != right->seq)
		return left->seq < right->seq ? -1 : 1;
	return left->index - right->index;
}

/* Hands a message to the queue, or drops it; remembers what was dropped. */
static void
admit(OutboxReader *reader, OutboxBatch *batch, const Admission *admission)
{
	OutboxMessage *message = batch->messages[admission->index];
	OutboxRoute *route = outbox_routes_find(reader->routes, message->route);

	/* A route that is not loaded yet: its turn comes when it is. */
	if (outbox_route_is_excluded(route))
	{
		outbox_route_refuse(reader->routes, route, admission->seq);
		outbox_batch_release(batch, admission->index);
		return;
	}
	if (outbox_route_waits(route))
	{
		outbox_route_skip(reader->routes, route, admission->seq);
		batch->unknown_route = true;
		outbox_batch_release(batch, admission->index);
		return;
	}
	(void) outbox_queue_admit(reader->queue, message, route, admission->due);
}

/*
 * In the order of seq over all segments: a row never depends on one with a
 * higher number, whichever was found first.
 */
static void
admit_all(OutboxReader *reader, OutboxBatch *batch)
{
	Admission  *admissions = MemoryContextAlloc(batch->cxt, sizeof(Admission) *
												Max(batch->count, 1));
	int			n = 0;

	for (int i = 0; i < batch->nsegments; i++)
	{
		OutboxSegment *segment = &batch->segments[i];

		for (int j = segment->start; j < segment->end; j++)
		{
			if (batch->messages[j] == NULL)
				continue;		/* given up */
			outbox_unreadable_read(&reader->unreadable, &batch->messages[j]->id);
			admissions[n].seq = batch->messages[j]->seq;
			admissions[n].index = j;
			admissions[n++].due = segment->source == OUTBOX_SOURCE_DUE;
		}
	}
	qsort(admissions, n, sizeof(Admission), compare_admissions);
	for (int i = 0; i < n; i++)
	{
		admit(reader, batch, &admissions[i]);
		OUTBOX_TEST_POINT("amid_admit");
	}
}

/* The first row that may be ready and was not read. */
static int64
lowest_unread(const OutboxReader *reader)
{
	const OutboxUnread *unread = &reader->scan.unread;

	return unread->n > 0 ? unread->ranges[0].lo : unread->rest.lo;
}

/*
 * First what was read is no longer unread, then what of it must be read again is:
 * locked rows, and what the queue does not keep.
 */
void
outbox_reader_committed(OutboxReader *reader, OutboxBatch *batch)
{
	ListCell   *cell;

	if (batch->count > 0 || batch->locked != NIL)
	{
		reader->lowest_read = Min(reader->lowest_read, lowest_unread(reader));
		reader->read_since = true;
	}
	outbox_due_committed(&reader->due, batch);
	outbox_keys_committed(reader, batch);
	outbox_scan_committed(&reader->scan, batch);
	outbox_recall_begin(batch);
	hold_locked(reader, batch);
	foreach(cell, batch->failed)
	{
		const OutboxRow *row = lfirst(cell);

		outbox_queue_block(reader->queue,
						   outbox_key_id(row->key_hash,
										 outbox_routes_find(reader->routes, row->route)),
						   row->seq, &row->id,
						   outbox_batch_next(batch, OUTBOX_SOURCE_DUE, NULL) != NULL);
	}
	admit_all(reader, batch);
	outbox_keys_admitted(reader, batch);
	for (int i = 0; i < batch->nrecalled && batch->nunreadable > 0; i++)
		if (batch->recalled[i].waits)	/* for one that is set aside, perhaps */
			outbox_keys_invalidate_holders(reader);
	outbox_recall_end(batch);
	batch->count = 0;
	batch->nsegments = 0;
}

/* ------------------------------------------------------------------- state */

int64
outbox_reader_end(const OutboxReader *reader)
{
	return reader->scan.unread.rest.lo;
}

bool
outbox_reader_leads_to(const OutboxReader *reader, int64 seq)
{
	return outbox_unread_contains(&reader->scan.unread, seq) ||
		outbox_unreadable_leads_to(&reader->unreadable, seq);
}

bool
outbox_reader_behind(const OutboxReader *reader, OutboxMonoTime now)
{
	return reader->scan.unread.n > 0 ||
		outbox_unread_due(&reader->scan.unread, now) ||
		!dlist_is_empty(&reader->queue->reread) ||
		outbox_mono_is_set(reader->locked_at) ||
		outbox_keys_are_stale(reader) ||
		outbox_mono_is_set(reader->due.again_at) ||
		reader->due.check || reader->queue->due_freed;
}

bool
outbox_reader_reads_much(const OutboxReader *reader)
{
	return reader->scan.unread.n > 0 ||
		!dlist_is_empty(&reader->queue->reread) ||
		outbox_keys_are_stale(reader);
}

OutboxMonoTime
outbox_reader_deadline(const OutboxReader *reader, OutboxMonoTime now)
{
	OutboxMonoTime deadline = outbox_unread_next(&reader->scan.unread, now);

	outbox_mono_earlier(&deadline, reader->locked_at);
	outbox_mono_earlier(&deadline, outbox_due_deadline(&reader->due, now));
	return deadline;
}

/* Where what is in memory begins, from what is known of it to where it does. */
static void
look_for_lowest(OutboxReader *reader, OutboxMonoTime now)
{
	int64		took_ms;

	reader->read_since = false;
	reader->lowest_read = outbox_queue_lowest(reader->queue);
	took_ms = outbox_mono_ms_until(outbox_mono_now(), now);
	reader->look_at = outbox_mono_plus(now, took_ms * LOOK_PAUSE);
}

/* So that who counts the rows need not pass those that are gone and not vacuumed. */
static void
show_lowest(OutboxReader *reader, OutboxMonoTime now)
{
	int64		lowest;

	if (reader->read_since && outbox_mono_reached(reader->look_at, now))
		look_for_lowest(reader, now);
	lowest = Min(lowest_unread(reader), Min(reader->lowest_read,
											outbox_routes_lowest(reader->routes)));
	pg_atomic_write_u64(&MySlot->counters.lowest_seq, (uint64) lowest);
}

void
outbox_reader_timers(OutboxReader *reader, OutboxMonoTime now)
{
	if (outbox_mono_reached(reader->shown_at, now))
	{
		show_lowest(reader, now);
		reader->shown_at = outbox_mono_plus(now, SHOW_LOWEST_MS);
	}
	outbox_keys_timers(reader, now);
	outbox_due_timers(&reader->due, now);
}
