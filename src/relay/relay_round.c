/*-------------------------------------------------------------------------
 *
 * relay_round.c
 *		The transaction of the relay: settle, claim.
 *
 * One short transaction settles what was confirmed or rejected and claims what
 * comes next.  After it the relay waits until the enqueuing transactions of all
 * that it has claimed are on disk (store_fence.c), so that nothing that is
 * published can be lost by a crash.  The commit itself waits for the disk when a
 * key must not go on before (queue.h and relay_unflushed.c say why), and for the
 * synchronous standbys where there are some; else it is asynchronous.  What it
 * settled counts against the window until it is on disk, which keeps the
 * duplicates after a crash within outbox.window.
 *
 * An ERROR ends the transaction and nothing else: the link stays, what was
 * confirmed is remembered, and nothing new is published until settling works
 * again.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/xact.h"
#include "backoff.h"
#include "common/pg_prng.h"
#include "fault.h"
#include "relay_claim.h"
#include "relay_settle.h"
#include "settings.h"
#include "utils/memutils.h"
#include "utils/timestamp.h"

#define DATABASE_RETRY_MS		100
#define DATABASE_RETRY_MAX_MS	5000

/* ---------------------------------------------------------- database faults */

void
outbox_relay_database_works(OutboxRelay *relay)
{
	if (relay->db_error)
		ereport(LOG, (errmsg("outbox relay can use the database again")));
	relay->db_error = false;
	relay->db_failures = 0;
}

/*
 * Called in PG_CATCH.  The first error in a row is logged in full; what
 * follows only counts.
 */
void
outbox_relay_database_failed(OutboxRelay *relay)
{
	ErrorData  *edata;

	MemoryContextSwitchTo(relay->scratch);
	edata = CopyErrorData();
	if (!relay->db_error)
		EmitErrorReport();
	FlushErrorState();
	outbox_store_abort();
	outbox_slot_set_committing(false);
	outbox_slot_set_error(edata->message);

	relay->db_error = true;
	relay->db_failures++;
	relay->db_retry_at =
		outbox_mono_after(outbox_backoff_ms(DATABASE_RETRY_MS,
											DATABASE_RETRY_MAX_MS,
											relay->db_failures,
											pg_prng_uint32(&pg_global_prng_state)));
	if (edata->sqlerrcode == ERRCODE_LOCK_NOT_AVAILABLE ||
		edata->sqlerrcode == ERRCODE_QUERY_CANCELED ||	/* the watchdog's way */
		edata->sqlerrcode == ERRCODE_T_R_DEADLOCK_DETECTED)
		relay->settle_slowly = true;
	if (edata->sqlerrcode == ERRCODE_UNDEFINED_TABLE ||
		edata->sqlerrcode == ERRCODE_INVALID_SCHEMA_NAME)
		relay->attached = false;
	FreeErrorData(edata);
}

/* ------------------------------------------------------------------- round */

bool
outbox_relay_wants_round(OutboxRelay *relay, OutboxMonoTime now)
{
	if (relay->db_error)
		return outbox_mono_reached(relay->db_retry_at, now);
	if (relay->version_mismatch)
		return relay->recheck_extension || outbox_store_stale();
	return !relay->attached || outbox_store_stale() || relay->touch ||
		relay->recheck_extension || relay->recheck_settings || relay->config_dirty ||
		!relay->holders_loaded || relay->check_holders ||
		relay->find_prepared || relay->find_next_due || outbox_settling_wanted(relay, now) ||
		relay->sweep_from != 0 ||
		outbox_batch_wanted(relay);
}

/* The segment that claimed rows whose time has come, which is the first. */
static OutboxSegment *
due_segment(OutboxBatch *batch)
{
	if (batch->nsegments > 0 && batch->segments[0].origin == OUTBOX_FROM_DUE)
		return &batch->segments[0];
	return NULL;
}

/*
 * When the next waiting row is due.  What was due and was not claimed by this
 * batch cannot be claimed now (locked, or of a route that waits): it must not
 * make us look again at once, due_again_at does so later.
 */
static TimestampTz
find_next_due(OutboxRelay *relay, OutboxBatch *batch, TimestampTz wall)
{
	OutboxSegment *due = due_segment(batch);

	if (due == NULL || due->cut)
		return outbox_store_next_due(relay->due_cursor);
	return outbox_store_next_due(Max(wall, due->visited > 0 ?
									 due->last_due : relay->due_cursor));
}

/*
 * Must the round's commit be on disk before what it has claimed, or a key that
 * waits, goes on?  What was enqueued with is not the question: see store_fence.c.
 */
static bool
commits_durably(OutboxRelay *relay, const OutboxSettling *settling,
				const OutboxBatch *batch)
{
	if (OUTBOX_FAULT_LEAVES_OUT("fence"))
		return false;
	if (relay->queue->key_waits_for_settling)
		return true;
	if (batch->count == 0)
		return false;
	if (outbox_store_fence_is_commit())
		return true;
	/* Keys are read again when something of theirs may have gone otherwise. */
	if (batch->reread || outbox_unflushed_concerns(&relay->unflushed, batch))
		return true;
	/* What is not on disk takes room from the window. */
	return relay->unflushed.count + settling->nconfirmed +
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
		outbox_relay_count_claim(relay);
	outbox_settling_committed(relay, settling);
	outbox_batch_committed(batch);
}

static void
round_transaction(OutboxRelay *relay, OutboxSettling *settling, OutboxBatch *batch)
{
	TimestampTz wall = GetCurrentTimestamp();
	bool		find_due;
	TimestampTz next_due = relay->next_due;
	bool		durable;

	if (relay->config_dirty)
		outbox_relay_load_config_tables(relay);
	if (!relay->holders_loaded)
		outbox_relay_load_start(relay);
	if (relay->find_prepared)
		outbox_relay_find_prepared(relay);
	if (relay->check_holders)
		outbox_relay_check_holders(relay);
	/* A stale worker, replaced while it was stopped, has no say any more. */
	if (!outbox_slot_is_mine())
		elog(FATAL, "outbox worker was replaced");
	outbox_settling_run(relay, settling);
	if (settling->nconfirmed + settling->nrejected > 0)
		OUTBOX_FAULT("after_settle");
	/* Before the claim, of which the relay remembers all after the commit only. */
	if (relay->sweep_from != 0)
		outbox_relay_sweep(relay);
	outbox_batch_init(relay, batch, relay->scratch);
	if (outbox_batch_wanted(relay))
	{
		OUTBOX_FAULT("before_claim");
		outbox_batch_claim(batch, wall);
		if (batch->count > 0)
		{
			outbox_relay_check_control(relay, batch);
			OUTBOX_FAULT("after_claim");
		}
	}
	find_due = relay->find_next_due || settling->nrejected > 0 ||
		due_segment(batch) != NULL;
	if (find_due)
		next_due = find_next_due(relay, batch, wall);
	durable = commits_durably(relay, settling, batch);
	if (durable)
		outbox_slot_set_committing(true);
	outbox_store_end(durable);
	if (durable)
		outbox_slot_set_committing(false);
	if (batch->count > 0 && !OUTBOX_FAULT_LEAVES_OUT("fence"))
		outbox_store_fence_wait();
	if (batch->count > 0)
		OUTBOX_FAULT("after_claim_commit");
	if (settling->nconfirmed + settling->nrejected > 0)
		OUTBOX_FAULT("after_settle_commit");
	relay->queue->key_waits_for_settling &= settling->more;

	/* What has been told of since the transaction began counts, too. */
	if (find_due)
	{
		relay->find_next_due = false;
		relay->next_due = next_due;
	}
}

/* A look for new rows that finds none is over at once; all else may last. */
static bool
may_take_long(OutboxRelay *relay)
{
	return outbox_settling_ready(relay) > 0 || relay->nrescans > 0 ||
		outbox_backlog_exists(relay) || relay->sweep_from != 0 ||
		relay->config_dirty || !relay->holders_loaded || relay->check_holders ||
		!dlist_is_empty(&relay->queue->reread) || relay->queue->count > 0;
}

void
outbox_relay_round(OutboxRelay *relay)
{
	OutboxSettling	settling;
	OutboxBatch batch;
	volatile bool committed = false;

	memset(&batch, 0, sizeof(batch));
	PG_TRY();
	{
		relay->touch = false;
		if (!relay->attached || relay->recheck_extension ||
			outbox_store_stale())
			outbox_relay_attach(relay);
		if (relay->attached && relay->recheck_settings)
			outbox_relay_check_settings(relay);
		/* Needed after the commit: not in the transaction's memory. */
		outbox_settling_collect(relay, &settling);
		if (!relay->attached)
			outbox_relay_database_works(relay);
		else if (outbox_store_begin("relaying messages", may_take_long(relay)))
		{
			round_transaction(relay, &settling, &batch);
			committed = true;
		}
		/* Else a table has changed, and nothing was tried yet. */
	}
	PG_CATCH();
	{
		outbox_batch_forget(&batch);
		outbox_relay_database_failed(relay);
	}
	PG_END_TRY();
	if (!committed)
		return;
	round_committed(relay, &settling, &batch);
	outbox_relay_database_works(relay);
}
