/*-------------------------------------------------------------------------
 *
 * relay_load.c
 *		What a round looks up beside messages: keys that are held, prepared
 *		transactions, routes, the control row.
 *
 * All of it is called in the round's transaction.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "environment.h"
#include "origin.h"
#include "relay_claim.h"
#include "settings.h"

/* ----------------------------------------------------------------- holders */

/* OutboxRowVisit */
static void
hold_row(const OutboxRow *row, void *arg)
{
	OutboxRelay *relay = arg;
	OutboxRoute *route = outbox_relay_find_route(relay, row->route);

	if (!route->ordered || outbox_queue_has(relay->queue, &row->id))
		return;
	outbox_queue_hold_row(relay->queue, row->key_hash, row->seq, &row->id,
						  row->failed, route);
}

/*
 * Keys whose holder was removed or requeued by somebody, or whose route does
 * not block any more.  Returns how many.
 */
static int
find_released(OutboxQueue *queue, OutboxKey ***released)
{
	dlist_iter	iter;
	int			max = (int) hash_get_num_entries(queue->keys);
	pg_uuid_t  *ids = palloc(sizeof(pg_uuid_t) * (max + 1));
	OutboxKey **keys = palloc(sizeof(OutboxKey *) * (max + 1));
	bool	   *still = palloc(sizeof(bool) * (max + 1));
	int			n = 0;

	dlist_foreach(iter, &queue->held)
	{
		OutboxKey  *key = dlist_container(OutboxKey, node, iter.cur);

		if (key->hold == OUTBOX_HOLD_LOCKED)
			continue;
		keys[n] = key;
		ids[n++] = key->holder_id;
	}
	if (n > 0)
		outbox_store_check_holders(ids, n, still);
	max = n;
	n = 0;
	for (int i = 0; i < max; i++)
		if (!still[i] || (keys[i]->hold == OUTBOX_HOLD_FAILED &&
						  !keys[i]->holder_route->block_on_failed))
			keys[n++] = keys[i];
	*released = keys;
	return n;
}

/* They go on. */
void
outbox_relay_check_holders(OutboxRelay *relay)
{
	OutboxKey **keys;
	int			n = find_released(relay->queue, &keys);

	relay->check_holders = false;
	for (int i = 0; i < n; i++)
		outbox_queue_release(relay->queue, keys[i]);
}

#ifdef OUTBOX_FAULTS
bool
outbox_relay_has_released(OutboxRelay *relay)
{
	OutboxKey **keys;

	return find_released(relay->queue, &keys) > 0;
}
#endif

/* ------------------------------------------------------------------- start */

/*
 * Transactions that are prepared: at start, and when more than the inbox has room
 * for have told us.  Those that are not among them have ended, and are seen from
 * now on; of these we do not know what they have changed.
 */
void
outbox_relay_find_prepared(OutboxRelay *relay)
{
	OutboxPrepared prepared;
	int			n;
	TransactionId *xids = outbox_store_prepared(&n);

	prepared.news = OUTBOX_NEWS_CONFIG | OUTBOX_NEWS_REMOVED;
	prepared.range = relay->prepared_range;
	for (int i = 0; i < n; i++)
	{
		prepared.xid = xids[i];
		outbox_relay_add_prepared(relay, &prepared);
	}
	outbox_relay_rescan(relay, prepared.range.lo, prepared.range.hi);
	relay->find_next_due = true;
	relay->find_prepared = false;
}

/*
 * What a worker must know before its first claim: transactions that are
 * prepared, which will tell nobody, and keys that are held.
 */
void
outbox_relay_load_start(OutboxRelay *relay)
{
	relay->prepared_range.lo = 1;
	relay->prepared_range.hi = PG_INT64_MAX;
	outbox_relay_find_prepared(relay);
	outbox_store_list_holders(MySlot->worker, MySlot->nworkers, hold_row,
							  relay);
	/* All that is there is read as a backlog, beside what comes from now on. */
	relay->news_hi = Max(relay->news_hi, outbox_store_last_ready());
	outbox_backlog_jump(relay);
	relay->holders_loaded = true;
	relay->find_next_due = true;
}

/*
 * Why nothing may be published from here, for the log and for last_error: of a
 * copy that says itself what it is there is nothing to add.
 */
static char *
describe_copy(OutboxCopy copy, const OutboxControl *control,
			  const char *unusable)
{
	char	   *how;

	switch (copy)
	{
		case OUTBOX_COPY_ENVIRONMENT:
			return psprintf("\"outbox.environment\" is \"%s\" here, and the messages belong to \"%s\"",
							outbox_environment, control->environment);
		case OUTBOX_COPY_RESTORED:
			(void) outbox_environment_restored(&how);
			return psprintf("this server was restored to a point in time: %s", how);
		case OUTBOX_COPY_UNKNOWN:
			return pstrdup(unusable);
		default:
			return NULL;
	}
}

static void
tell_copy(OutboxRelay *relay, OutboxCopy copy, const char *detail)
{
	if (detail == NULL)
		ereport(LOG,
				(errmsg("outbox relay is silent: this database is a copy"),
				 errdetail("Its messages belong to another database, whose relay publishes them."),
				 errhint("Call outbox_adopt() in it when they are to be published from here.")));
	else if (copy == OUTBOX_COPY_UNKNOWN)
		ereport(LOG,
				(errcode(ERRCODE_CONFIG_FILE_ERROR),
				 errmsg("outbox relay cannot use its settings"),
				 errdetail_internal("%s", detail),
				 errhint("Set it on the server's command line, in its environment (OUTBOX_ENVIRONMENT), or in a file outside of the data directory.")));
	else
		ereport(LOG,
				(errmsg("outbox relay is silent: this server may be a copy"),
				 errdetail_internal("%s", detail),
				 errhint("Call outbox_adopt() in each of its databases when their messages are to be published from here.")));
	if (detail != NULL)
		outbox_slot_set_error(detail);
}

/* Tells of it once, and again when it is another one. */
static void
set_copy(OutboxRelay *relay, OutboxCopy copy, const char *detail)
{
	bool		told = relay->copy == copy &&
		strcmp(relay->copy_detail ? relay->copy_detail : "",
			   detail ? detail : "") == 0;

	relay->copy = copy;
	if (told)
		return;
	if (relay->copy_detail != NULL)
		pfree(relay->copy_detail);
	relay->copy_detail =
		detail != NULL ? MemoryContextStrdup(relay->cxt, detail) : NULL;
	if (copy != OUTBOX_COPY_NONE)
		tell_copy(relay, copy, detail);
}

/* Asked only where there is a name, for it is a look at all settings. */
static char *
environment_unusable(void)
{
	if (outbox_environment[0] == '\0')
		return NULL;
	return outbox_environment_unusable(outbox_store_environment_source());
}

/* The control row or a route has changed. */
void
outbox_relay_load_config_tables(OutboxRelay *relay)
{
	bool		was_paused = relay->paused;
	OutboxControl control;
	OutboxCopy	copy;
	char	   *unusable = environment_unusable();
	bool		found_foreign = relay->foreign;

	outbox_relay_load_routes(relay, &control);
	relay->config_dirty = false;
	/* Somebody has called outbox_adopt(): the next claim finds what is left. */
	if (relay->foreign && control.adopted_at != relay->foreign_since)
		relay->foreign = false;
	copy = control.copy;
	if (copy == OUTBOX_COPY_NONE && relay->foreign)
		copy = OUTBOX_COPY_DATABASE;
	/* A name that proves nothing must not agree with one that is recorded. */
	if (unusable != NULL && copy != OUTBOX_COPY_DATABASE)
		copy = OUTBOX_COPY_UNKNOWN;
	set_copy(relay, copy, describe_copy(copy, &control, unusable));
	relay->paused = control.paused || copy != OUTBOX_COPY_NONE;
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
void
outbox_relay_check_control(OutboxRelay *relay, const OutboxBatch *batch)
{
	OutboxControl control;

	outbox_store_load_control(&control);
	if (has_foreign(batch, &control))
	{
		relay->foreign = true;
		relay->foreign_since = control.adopted_at;
	}
	if (control.paused || control.copy != OUTBOX_COPY_NONE || relay->foreign)
		relay->config_dirty = true;
}
