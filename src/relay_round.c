/*-------------------------------------------------------------------------
 *
 * relay_round.c
 *		The transaction of the relay: settle, claim.
 *
 * One short transaction settles what was confirmed or rejected and claims what
 * comes next.  With claims in it, it commits synchronously: that commit record
 * lies behind those of all transactions whose rows were claimed, so once it is
 * on disk (and on the synchronous standbys) nothing that is published can be
 * lost by a crash.  A transaction that only settles commits asynchronously,
 * unless a key waits for it (queue.h says why); what it settled counts against
 * the window until its commit is on disk, which keeps the duplicates after a
 * crash within outbox.window.
 *
 * An ERROR ends the transaction and nothing else: the link stays, what was
 * confirmed is remembered, and nothing new is published until settling works
 * again.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/xact.h"
#include "access/xlog.h"
#include "backoff.h"
#include "common/pg_prng.h"
#include "fault.h"
#include "origin.h"
#include "relay_claim.h"
#include "settings.h"
#include "utils/memutils.h"
#include "utils/timestamp.h"

#define DATABASE_RETRY_MS		100
#define DATABASE_RETRY_MAX_MS	5000

/* What a round settles, collected before its transaction. */
typedef struct Settling
{
	int			nconfirmed;
	OutboxItem **confirmed;
	OutboxSettled *rows;
	bool	   *remains;		/* locked by somebody, only if slowly */
	bool		slowly;
	int			nrejected;
	OutboxItem **rejected;
	OutboxFailure *failures;
	bool	   *rejected_remains;	/* locked by somebody */
} Settling;

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

/* ---------------------------------------------------------------- settling */

/* Confirmed and rejected items that can be settled now. */
static int
settleable(OutboxRelay *relay)
{
	return relay->queue->nconfirmed - relay->nstuck +
		relay->queue->nrejected - relay->nstuck_rejected;
}

static bool
settling_wanted(OutboxRelay *relay, OutboxMonoTime now)
{
	OutboxQueue *queue = relay->queue;
	int			n = settleable(relay);

	if (n == 0)
	{
		relay->settle_at = OUTBOX_MONO_UNSET;
		return false;
	}
	if (!outbox_mono_is_set(relay->settle_at))
		relay->settle_at = outbox_mono_after(OUTBOX_SETTLE_DELAY_MS);
	/* Many; or nothing else to do; or a key waits; or it was long enough. */
	return n >= Max(outbox_window / 4, 1) ||
		(queue->nready == 0 &&
		 (queue->nsent == 0 || queue->key_waits_for_settling)) ||
		outbox_mono_reached(relay->settle_at, now);
}

static void
collect_failure(Settling *settling, OutboxItem *item)
{
	OutboxFailure *failure = &settling->failures[settling->nrejected];
	int			attempts = item->message->attempts + 1;

	settling->rejected[settling->nrejected++] = item;
	failure->id = item->message->id;
	failure->reason = item->reason;
	failure->give_up = attempts >= item->route->max_attempts;
	failure->retry_ms = outbox_backoff_ms(outbox_retry_initial_ms,
										  outbox_retry_max_ms, attempts,
										  pg_prng_uint32(&pg_global_prng_state));
}

static void
collect_settling(OutboxRelay *relay, Settling *settling)
{
	OutboxQueue *queue = relay->queue;
	dlist_iter	iter;
	int			passed = 0;

	memset(settling, 0, sizeof(*settling));
	settling->slowly = relay->settle_slowly;
	settling->confirmed = palloc(sizeof(OutboxItem *) * (queue->nconfirmed + 1));
	settling->rows = palloc(sizeof(OutboxSettled) * (queue->nconfirmed + 1));
	settling->remains = palloc0(sizeof(bool) * (queue->nconfirmed + 1));
	settling->rejected = palloc(sizeof(OutboxItem *) * (queue->nrejected + 1));
	settling->failures = palloc(sizeof(OutboxFailure) * (queue->nrejected + 1));
	settling->rejected_remains = palloc0(sizeof(bool) * (queue->nrejected + 1));

	dlist_foreach(iter, &queue->confirmed)
	{
		OutboxItem *item = dlist_container(OutboxItem, node, iter.cur);
		OutboxSettled *row = &settling->rows[settling->nconfirmed];

		/* The stuck ones are the first in the list. */
		if (passed++ < relay->nstuck)
			continue;
		row->tid = item->message->tid;
		row->seq = item->message->seq;
		row->id = item->message->id;
		settling->confirmed[settling->nconfirmed++] = item;
	}
	passed = 0;
	dlist_foreach(iter, &queue->rejected)
		if (passed++ >= relay->nstuck_rejected)
			collect_failure(settling,
							dlist_container(OutboxItem, node, iter.cur));
}

/* Called in a transaction. */
static void
settle(Settling *settling)
{
	bool		archive = outbox_retention_s > 0;

	if (settling->nconfirmed > 0 && settling->slowly)
		outbox_store_settle_unlocked(settling->rows, settling->nconfirmed,
									 archive, settling->remains);
	else if (settling->nconfirmed > 0)
		outbox_store_settle(settling->rows, settling->nconfirmed, archive);
	if (settling->nrejected > 0)
		outbox_store_fail(settling->failures, settling->nrejected,
						  settling->rejected_remains);
}

static void
settle_committed(OutboxRelay *relay, Settling *settling, bool durable)
{
	int			nsettled = 0;

	for (int i = 0; i < settling->nconfirmed; i++)
	{
		OutboxItem *item = settling->confirmed[i];

		if (settling->remains[i])
		{
			/* Kept in front, where stuck ones are. */
			dlist_move_head(&relay->queue->confirmed, &item->node);
			relay->nstuck++;
			continue;
		}
		outbox_queue_settled(relay->queue, item);
		nsettled++;
	}
	for (int i = 0; i < settling->nrejected; i++)
	{
		bool		give_up = settling->failures[i].give_up;

		if (settling->rejected_remains[i])
		{
			dlist_move_head(&relay->queue->rejected,
							&settling->rejected[i]->node);
			relay->nstuck_rejected++;
			continue;
		}
		outbox_queue_failed(relay->queue, settling->rejected[i], give_up);
		pg_atomic_fetch_add_u64(give_up ? &MySlot->counters.failed :
								&MySlot->counters.retried, 1);
	}
	pg_atomic_fetch_add_u64(&MySlot->counters.published, nsettled);

	relay->settle_at = OUTBOX_MONO_UNSET;
	relay->settle_slowly = false;
	if (relay->nstuck + relay->nstuck_rejected > 0 &&
		!outbox_mono_is_set(relay->unstick_at))
		relay->unstick_at = outbox_mono_after(outbox_relay_recheck_ms());
	if (durable)
		relay->unflushed = 0;
	else if (nsettled + settling->nrejected > 0)
	{
		relay->unflushed += nsettled + settling->nrejected;
		relay->settled_lsn = XactLastCommitEnd;
	}
}

/* ----------------------------------------------------------------- holders */

/* OutboxRowVisit */
static void
hold_row(const OutboxRow *row, void *arg)
{
	OutboxRelay *relay = arg;
	OutboxRoute *route = outbox_relay_find_route(relay, row->route);

	if (!route->ordered || outbox_queue_has(relay->queue, row->seq))
		return;
	outbox_queue_hold_row(relay->queue, row->key_hash, row->seq, &row->id,
						  row->failed, route);
}

/*
 * Keys whose holder was removed or requeued by somebody, or whose route does
 * not block any more, go on.
 */
static void
check_holders(OutboxRelay *relay)
{
	OutboxQueue *queue = relay->queue;
	dlist_mutable_iter iter;
	int			max = (int) hash_get_num_entries(queue->keys);
	pg_uuid_t  *ids = palloc(sizeof(pg_uuid_t) * (max + 1));
	OutboxKey **keys = palloc(sizeof(OutboxKey *) * (max + 1));
	bool	   *still = palloc(sizeof(bool) * (max + 1));
	int			n = 0;

	dlist_foreach_modify(iter, &queue->held)
	{
		OutboxKey  *key = dlist_container(OutboxKey, node, iter.cur);

		if (key->hold == OUTBOX_HOLD_LOCKED)
			continue;
		keys[n] = key;
		ids[n++] = key->holder_id;
	}
	if (n > 0)
		outbox_store_check_holders(ids, n, still);
	relay->check_holders = false;
	for (int i = 0; i < n; i++)
		if (!still[i] || (keys[i]->hold == OUTBOX_HOLD_FAILED &&
						  !keys[i]->holder_route->block_on_failed))
			outbox_queue_release(queue, keys[i]);
}

/* ------------------------------------------------------------------- start */

/*
 * What a worker must know before its first claim: transactions that are
 * prepared, which will tell nobody, and keys that are held.
 */
static void
load_start(OutboxRelay *relay)
{
	TransactionId xids[OUTBOX_MAX_PREPARED];
	int			n = outbox_store_prepared(xids, OUTBOX_MAX_PREPARED);

	for (int i = 0; i < n; i++)
	{
		OutboxPrepared prepared = {xids[i], {1, PG_INT64_MAX}};

		outbox_relay_add_prepared(relay, &prepared);
	}
	outbox_store_list_holders(MySlot->worker, MySlot->nworkers, hold_row,
							  relay);
	/* All that is there is read as a backlog, beside what comes from now on. */
	relay->news_hi = Max(relay->news_hi, outbox_store_last_ready());
	outbox_backlog_jump(relay);
	relay->holders_loaded = true;
	relay->find_next_due = true;
}

/* The control row or a route has changed. */
static void
load_config_tables(OutboxRelay *relay)
{
	bool		was_paused = relay->paused;
	OutboxControl control;
	bool		copy;
	bool		found_foreign = relay->foreign;

	outbox_relay_load_routes(relay, &control);
	relay->config_dirty = false;
	/* Somebody has called outbox_adopt(): the next claim finds what is left. */
	if (relay->foreign && control.adopted_at != relay->foreign_since)
		relay->foreign = false;
	copy = control.copy || relay->foreign;
	if (copy && !relay->copy)
		ereport(LOG,
				(errmsg("outbox relay is silent: this database is a copy"),
				 errdetail("Its messages belong to another database, whose relay publishes them."),
				 errhint("Call outbox_adopt() in it when they are to be published from here.")));
	relay->copy = copy;
	relay->paused = control.paused || copy;
	/* Also when it was adopted meanwhile: perhaps not all of it. */
	if ((relay->paused || found_foreign) && !was_paused)
	{
		int64		lowest = outbox_queue_drop_all(relay->queue, NULL);

		if (lowest != 0)
			outbox_relay_rescan(relay, lowest, PG_INT64_MAX);
		relay->due_again_at = outbox_mono_now();
	}
	relay->main_pending = true;
	relay->check_holders = true;
}

/* Was a message of the batch enqueued in a database that is not adopted? */
static bool
has_foreign(const OutboxBatch *batch, const OutboxControl *control)
{
	int64		accepted = outbox_own_origin();

	for (int i = 0; i < batch->count; i++)
	{
		/* Given up: it will be claimed again. */
		if (batch->messages[i] == NULL)
			continue;
		if (batch->messages[i]->origin == accepted)
			continue;
		if (!outbox_store_accepts(control, batch->messages[i]->origin))
			return true;
		accepted = batch->messages[i]->origin;
	}
	return false;
}

/*
 * Messages can commit together with the word that they are not ours to publish
 * (a restored dump) or not now (outbox_pause()), or before it (a parallel
 * restore), or without it (logical replication); then they say so themselves.
 * The news of it come after the commit, so a claim may see the messages first;
 * but what is read after the claim sees both.  Nothing is sent then before the
 * next round has dealt with it, as config_dirty forbids it: that round takes
 * all that is unsent out of the queue again and remembers from where to read
 * it when we may.
 */
static void
check_control(OutboxRelay *relay, const OutboxBatch *batch)
{
	OutboxControl control;

	outbox_store_load_control(&control);
	if (has_foreign(batch, &control))
	{
		relay->foreign = true;
		relay->foreign_since = control.adopted_at;
	}
	if (control.paused || control.copy || relay->foreign)
		relay->config_dirty = true;
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
		relay->find_next_due || settling_wanted(relay, now) ||
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

static void
round_transaction(OutboxRelay *relay, Settling *settling, OutboxBatch *batch)
{
	TimestampTz wall = GetCurrentTimestamp();
	bool		find_due;
	TimestampTz next_due = relay->next_due;
	bool		durable;

	if (relay->config_dirty)
		load_config_tables(relay);
	if (!relay->holders_loaded)
		load_start(relay);
	if (relay->check_holders)
		check_holders(relay);
	/* A stale worker, replaced while it was stopped, has no say any more. */
	if (!outbox_slot_is_mine())
		elog(FATAL, "outbox worker was replaced");
	settle(settling);
	if (settling->nconfirmed + settling->nrejected > 0)
		OUTBOX_FAULT("after_settle");
	outbox_batch_init(relay, batch, relay->scratch);
	if (outbox_batch_wanted(relay))
	{
		OUTBOX_FAULT("before_claim");
		outbox_batch_claim(batch, wall);
		if (batch->count > 0)
		{
			check_control(relay, batch);
			OUTBOX_FAULT("after_claim");
		}
	}
	if (relay->sweep_from != 0)
		outbox_relay_sweep(relay);
	find_due = relay->find_next_due || settling->nrejected > 0 ||
		due_segment(batch) != NULL;
	if (find_due)
		next_due = find_next_due(relay, batch, wall);
	durable = (batch->count > 0 || relay->queue->key_waits_for_settling) &&
		!OUTBOX_FAULT_LEAVES_OUT("fence");
	if (durable)
		outbox_slot_set_committing(true);
	outbox_store_end(durable);
	if (durable)
		outbox_slot_set_committing(false);
	if (batch->count > 0)
		OUTBOX_FAULT("after_claim_commit");
	if (settling->nconfirmed + settling->nrejected > 0)
		OUTBOX_FAULT("after_settle_commit");
	relay->queue->key_waits_for_settling = false;

	relay->find_next_due = false;
	relay->next_due = next_due;
	settle_committed(relay, settling, durable);
	outbox_batch_committed(batch);
	if (find_due)
		relay->find_next_due = false;
}

/* A look for new rows that finds none is over at once; all else may last. */
static bool
may_take_long(OutboxRelay *relay)
{
	return settleable(relay) > 0 || relay->nrescans > 0 ||
		outbox_backlog_exists(relay) || relay->sweep_from != 0 ||
		relay->config_dirty || !relay->holders_loaded || relay->check_holders ||
		!dlist_is_empty(&relay->queue->reread) || relay->queue->count > 0;
}

void
outbox_relay_round(OutboxRelay *relay)
{
	Settling	settling;
	OutboxBatch batch;

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
		collect_settling(relay, &settling);
		if (!relay->attached)
			outbox_relay_database_works(relay);
		else if (outbox_store_begin("relaying messages", may_take_long(relay)))
		{
			round_transaction(relay, &settling, &batch);
			outbox_relay_database_works(relay);
		}
		/* Else a table has changed, and nothing was tried yet. */
	}
	PG_CATCH();
	{
		outbox_batch_forget(&batch);
		outbox_relay_database_failed(relay);
	}
	PG_END_TRY();
}

/* ----------------------------------------------------------------- archive */

/*
 * Makes partitions ahead and drops old ones, each in a transaction of its own
 * and with the session's lock_timeout, so that whoever reads the archive is
 * not in the way of publishing nor we in theirs.
 */
void
outbox_relay_maintain(OutboxRelay *relay)
{
	static bool failing = false;
	bool		again = true;

	relay->maintain_at = outbox_mono_after(OUTBOX_MAINTAIN_MS);
	for (int i = 0; i < 16 && again && !outbox_watchdog_stopping(); i++)
	{
		PG_TRY();
		{
			char	   *done = NULL;

			again = false;
			if (outbox_store_begin("maintaining the archive", true))
			{
				done = outbox_store_maintain_archive(outbox_retention_s,
													 relay->scratch);
				if (done != NULL)
					OUTBOX_FAULT("archiving");
				outbox_store_end(false);
				failing = false;
			}
			else
				/* A table has changed: after the round that looks it up. */
				relay->maintain_at = OUTBOX_MONO_UNSET;
			if (done != NULL)
			{
				ereport(DEBUG1, (errmsg_internal("outbox archive: %s", done)));
				again = true;
			}
		}
		PG_CATCH();
		{
			ErrorData  *edata;

			MemoryContextSwitchTo(relay->scratch);
			edata = CopyErrorData();
			if (!failing)
				EmitErrorReport();
			FlushErrorState();
			outbox_store_abort();
			outbox_slot_set_error(edata->message);
			failing = true;
			relay->maintain_at = outbox_mono_after(OUTBOX_MAINTAIN_RETRY_MS);
			again = false;
		}
		PG_END_TRY();
	}
}
