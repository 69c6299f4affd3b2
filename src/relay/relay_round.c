/*-------------------------------------------------------------------------
 *
 * relay_round.c
 *		The transaction of the relay: settle, claim.
 *
 * One short transaction settles what was confirmed or rejected and claims what
 * comes next.  After it the relay waits until the enqueuing transactions of all
 * that it has claimed are on disk (store_fence.c), so that nothing that is
 * published can be lost by a crash.  The commit itself waits for the disk when a
 * key must not go on before (queue.h and settling.h say why), and for the
 * synchronous standbys where there are some; else it is asynchronous.  What it
 * settled counts against the window until it is on disk, which keeps the
 * duplicates after a crash within outbox.window.
 *
 * An ERROR ends the transaction and nothing else: the link stays, what was
 * confirmed is remembered, and nothing new is published until settling works
 * again.  When it was one row that could not be read, the next round goes on
 * without it (unreadable.c).
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/xact.h"
#include "relay_internal.h"
#include "settings.h"
#include "test_point.h"
#include "utils/timestamp.h"

/* ----------------------------------------------------------------- look-ups */

/* OutboxRowVisit: what has failed, the claims find. */
static void
hold_retry(const OutboxRow *row, void *arg)
{
	OutboxRelay *relay = arg;
	OutboxRoute *route = outbox_routes_find(&relay->routes, row->route);
	const OutboxRoute *aside = outbox_unreadable_route(&relay->reader.unreadable, &row->id);

	if (aside != NULL && !outbox_route_blocks(aside))
		return;
	if (!route->ordered || outbox_queue_has(relay->queue, &row->id))
		return;
	outbox_queue_hold_retry(relay->queue, outbox_key_id(row->key_hash, route),
							row->seq, &row->id);
}

static void
hold_retries(OutboxRelay *relay)
{
	outbox_store_list_retries(MySlot->worker, MySlot->nworkers, hold_retry,
							  relay);
	outbox_queue_retries_known(relay->queue, true);
}

/* ------------------------------------------------------------------- start */

/*
 * Transactions that are prepared: at start, and when more than the inbox has room
 * for have told us.  Those that are not among them have ended, and are seen from
 * now on.
 */
static void
find_prepared(OutboxRelay *relay)
{
	OutboxRange range = outbox_prepared_find(&relay->prepared);

	outbox_reader_add(&relay->reader, range.lo, range.hi, OUTBOX_UNREAD_LATE);
	outbox_due_look_up(&relay->reader.due);
}

/*
 * What a worker must know before its first claim: transactions that are
 * prepared, which will tell nobody, and keys that are held.
 */
static void
load_start(OutboxRelay *relay)
{
	OutboxRange all = {1, PG_INT64_MAX};
	int64		last = outbox_store_last_entry();

	outbox_prepared_lost(&relay->prepared, &all);
	find_prepared(relay);
	hold_retries(relay);

	/*
	 * All that is there is read beside what comes from now on.  The last of
	 * it counts as new: a database may get its worker because of just that.
	 */
	outbox_reader_add(&relay->reader, 1, last, OUTBOX_UNREAD_LEFT);
	outbox_reader_add(&relay->reader, last - OUTBOX_LONG_RANGE + 1, last, OUTBOX_UNREAD_NEW);
	outbox_database_started(&relay->database);
	outbox_due_look_up(&relay->reader.due);
}

/* Of what is gone, what nothing points to any more. */
static void
forget_routes(OutboxRelay *relay)
{
	if (!outbox_routes_have_lost(&relay->routes))
		return;
	outbox_unreadable_need_routes(&relay->reader.unreadable);
	outbox_routes_forget(&relay->routes);
}

/* The control row or a route has changed. */
static void
load_config_tables(OutboxRelay *relay)
{
	OutboxControl control;
	OutboxResumed resumed;

	outbox_store_load_control(&control);
	if (outbox_routes_load(&relay->routes, outbox_reader_end(&relay->reader),
						   &resumed))
		outbox_keys_invalidate_holders(&relay->reader);
	forget_routes(relay);
	outbox_relay_resume(relay, &resumed);
	if (outbox_control_loaded(&relay->control, &control, outbox_environment_unusable()))
		outbox_relay_drop_unsent(relay);
	outbox_reader_look(&relay->reader);
	outbox_reader_ask_unreadable(&relay->reader);
}

/* ------------------------------------------------------------------- claim */

/* Is there something to claim that can be published? */
static bool
wants_claim(OutboxRelay *relay, OutboxMonoTime now)
{
	return outbox_relay_publishes(relay) && outbox_reader_wanted(&relay->reader, now);
}

/* OutboxIntentVisit: it has committed, and has not announced itself. */
static void
handle_commit_intent(TransactionId xid, const OutboxRange *range, void *arg)
{
	if (outbox_store_sees(xid))
		outbox_reader_add(arg, range->lo, range->hi, OUTBOX_UNREAD_LATE);
}

/*
 * All claims of a batch read one snapshot, and that is what keeps the order of
 * transactions that depend on each other: if it sees a row B, it sees every row
 * A that B's transaction had seen, and A's transaction had published its commit intent
 * before.  When the snapshot has been taken, that word still stands, or A's
 * transaction has announced its range to the inbox; if this worker's slot was not
 * in use at that time, all of its snapshots see A.  So commit intents and then the
 * inbox lead to A, and it is read before B is admitted.  Ranges in the inbox may be
 * of transactions that the snapshot does not see, so they are unread again after
 * this batch; what was there before the snapshot is taken out first, to make them
 * few.
 */
static void
take_snapshot(OutboxRelay *relay, OutboxInbox *late)
{
	outbox_relay_take_inbox(relay);
	OUTBOX_TEST_POINT("before_snapshot");
	outbox_store_claim_snapshot();
	outbox_intent_visit(handle_commit_intent, &relay->reader);
	outbox_prepared_reserve(&relay->prepared, OUTBOX_INBOX_PREPARED);
	outbox_slot_take_inbox(late);
	for (int i = 0; i < late->nranges; i++)
		outbox_reader_add(&relay->reader, late->ranges[i].lo,
						  late->ranges[i].hi, OUTBOX_UNREAD_LATE);
	if (late->signals & OUTBOX_SIGNAL_PREPARED)
		outbox_reader_add(&relay->reader, late->lost.lo, late->lost.hi,
						  OUTBOX_UNREAD_LATE);
	for (int i = 0; i < late->nprepared; i++)
		outbox_prepared_add(&relay->prepared, &late->prepared[i]);
	late->nprepared = 0;
	outbox_relay_check_prepared(relay, outbox_store_sees);
}

static void
claim(OutboxRelay *relay, OutboxBatch *batch, TimestampTz wall)
{
	OUTBOX_TEST_POINT("before_claim");
	take_snapshot(relay, &batch->late_inbox);
	outbox_reader_claim(&relay->reader, batch, wall);
	if (batch->count == 0)
		return;
	outbox_control_check(&relay->control, batch);
	OUTBOX_TEST_POINT("after_claim");
}

/* The transaction failed: nothing was claimed. */
static void
forget_claim(OutboxRelay *relay, OutboxBatch *batch)
{
	outbox_batch_forget(batch);
	outbox_relay_handle_inbox(relay, &batch->late_inbox);
}

static void
claim_committed(OutboxRelay *relay, OutboxBatch *batch)
{
	outbox_reader_committed(&relay->reader, batch);
	if (batch->unknown_route)
		outbox_control_invalidate(&relay->control);
	outbox_relay_handle_inbox(relay, &batch->late_inbox);
}

/* ------------------------------------------------------------------- round */

bool
outbox_relay_wants_round(OutboxRelay *relay, OutboxMonoTime now)
{
	const OutboxDatabase *database = &relay->database;

	if (database->failing)
		return outbox_mono_reached(database->retry_at, now);
	if (database->mismatch)
		return outbox_database_wants_attach(database);
	return outbox_database_wants_round(database) ||
		relay->control.stale ||
		relay->prepared.find ||
		outbox_reader_needs_lookup(&relay->reader) ||
		outbox_settler_wanted(&relay->settler, now) ||
		outbox_sweep_wanted(&relay->sweep, relay->queue, now) ||
		wants_claim(relay, now);
}

/*
 * Must the round's commit be on disk before what it has claimed, or a key that
 * waits, goes on?  What was enqueued with is not the question: see store_fence.c.
 */
static bool
commits_durably(OutboxRelay *relay, const OutboxSettling *settling,
				OutboxBatch *batch)
{
	if (OUTBOX_TEST_OMITS("fence"))
		return false;
	if (relay->queue->key_waits_for_settling &&
		settling->nconfirmed + settling->nrejected > 0)
		return true;
	if (batch->count == 0)
		return false;
	if (outbox_store_fence_is_commit())
		return true;
	/* Keys are read again when something of theirs may have gone otherwise. */
	if (outbox_batch_next(batch, OUTBOX_SOURCE_KEYS, NULL) != NULL ||
		outbox_unflushed_concerns(&relay->settler.unflushed, batch))
		return true;
	/* What is not on disk takes room from the window. */
	return relay->settler.unflushed.count + settling->nconfirmed +
		settling->nrejected >= OUTBOX_SETTLE_MANY;
}

/*
 * The transaction has committed: what it did becomes the relay's state.  An error
 * in here (there is no memory) would leave half of that, so nobody catches it: it
 * ends the process, and the next worker finds the rows.
 */
static void
round_committed(OutboxRelay *relay, OutboxSettling *settling, OutboxBatch *batch)
{
	if (batch->count > 0)
		outbox_wait_set_claimed(&relay->waiting);
	outbox_settler_committed(&relay->settler, settling);
	/* Their keys do not wait for what is not there. */
	if (settling->taken_away)
		outbox_keys_invalidate_holders(&relay->reader);
	claim_committed(relay, batch);
}

static void
round_transaction(OutboxRelay *relay, OutboxSettling *settling, OutboxBatch *batch)
{
	TimestampTz wall = GetCurrentTimestamp();
	bool		durable;

	if (relay->control.stale)
		load_config_tables(relay);
	if (!relay->database.started)
		load_start(relay);
	if (relay->prepared.find)
		find_prepared(relay);
	if (outbox_reader_check_holders(&relay->reader))
		hold_retries(relay);
	outbox_reader_check_due(&relay->reader);
	/* A stale worker, replaced while it was stopped, has no say any more. */
	if (!outbox_slot_is_mine())
		elog(FATAL, "outbox worker was replaced");
	outbox_settler_run(&relay->settler, settling);
	if (settling->nconfirmed + settling->nrejected > 0)
		OUTBOX_TEST_POINT("after_settle");

	/*
	 * Before the claim, of which the relay remembers all after the commit
	 * only.
	 */
	if (outbox_sweep_wanted(&relay->sweep, relay->queue, outbox_mono_now()))
		outbox_sweep_step(&relay->sweep, relay);
	outbox_batch_init(batch, relay->queue, &relay->routes, relay->scratch);
	if (wants_claim(relay, outbox_mono_now()))
		claim(relay, batch, wall);
	outbox_due_find(&relay->reader.due, batch, settling->nrejected > 0);
	durable = commits_durably(relay, settling, batch);
	if (durable)
		outbox_slot_set_committing(true);
	outbox_store_end(durable);
	if (durable)
		outbox_slot_set_committing(false);
	if (batch->count > 0 && !OUTBOX_TEST_OMITS("fence"))
		outbox_store_fence_wait();
	if (batch->count > 0)
		OUTBOX_TEST_POINT("after_claim_commit");
	if (settling->nconfirmed + settling->nrejected > 0)
		OUTBOX_TEST_POINT("after_settle_commit");
}

/* A look for new rows that finds none is over at once; all else may last. */
static bool
may_take_long(OutboxRelay *relay)
{
	return outbox_settler_ready(&relay->settler) > 0 ||
		outbox_reader_reads_much(&relay->reader) ||
		outbox_sweep_wanted(&relay->sweep, relay->queue, outbox_mono_now()) ||
		relay->control.stale ||
		!relay->database.started ||
		relay->queue->count > 0;
}

/*
 * Does the value itself, and nothing that may be over in a moment, make the error?  A
 * damaged one may have a size that the server does not allocate (XX000), or a compression
 * that it does not have (0A000).
 */
static bool
is_data_error(int sqlerrcode)
{
	int			category = ERRCODE_TO_CATEGORY(sqlerrcode);

	return category == ERRCODE_DATA_EXCEPTION ||
		category == ERRCODE_INTERNAL_ERROR ||
		category == ERRCODE_FEATURE_NOT_SUPPORTED;
}

/*
 * Called in PG_CATCH.  When a value of one row cannot be read, the row is set aside,
 * and the next round claims the others.
 */
static void
round_failed(OutboxRelay *relay)
{
	OutboxUnreadableRow *row;
	ErrorData  *edata;

	MemoryContextSwitchTo(relay->scratch);
	row = outbox_store_unreadable();
	edata = CopyErrorData();
	if (row != NULL && !is_data_error(edata->sqlerrcode))
		row = NULL;
	if (row != NULL &&
		outbox_reader_set_aside(&relay->reader, row, edata->message,
								unpack_sql_state(edata->sqlerrcode)))
	{
		FlushErrorState();
		outbox_store_abort();
		outbox_slot_set_committing(false);
	}
	else
		outbox_database_failed(&relay->database, row, relay->scratch);
	FreeErrorData(edata);
}

void
outbox_relay_round(OutboxRelay *relay)
{
	OutboxSettling settling;
	OutboxBatch batch;
	volatile bool committed = false;

	memset(&batch, 0, sizeof(batch));
	PG_TRY();
	{
		outbox_database_check_settings(&relay->database);
		if (outbox_database_attach(&relay->database))
		{
			outbox_control_invalidate(&relay->control);
			outbox_keys_invalidate_holders(&relay->reader);
		}
		/* Needed after the commit: not in the transaction's memory. */
		outbox_settler_collect(&relay->settler, &settling);
		if (!relay->database.attached)
			outbox_database_works(&relay->database);
		else if (outbox_store_begin(outbox_relay_activity(),
									may_take_long(relay)))
		{
			round_transaction(relay, &settling, &batch);
			committed = true;
		}
		/* Else a table has changed, and nothing was tried yet. */
	}
	PG_CATCH();
	{
		forget_claim(relay, &batch);
		round_failed(relay);
	}
	PG_END_TRY();
	if (!committed)
		return;
	round_committed(relay, &settling, &batch);
	outbox_database_works(&relay->database);
}
