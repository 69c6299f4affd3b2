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
#include "relay_internal.h"
#include "settings.h"

/* ----------------------------------------------------------------- holders */

/* OutboxRowVisit */
static void
hold_row(const OutboxRow *row, void *arg)
{
	OutboxRelay *relay = arg;
	OutboxRoute *route = outbox_routes_find(relay->routes, row->route);

	if (!route->ordered || outbox_queue_has(relay->queue, &row->id))
		return;
	outbox_queue_hold_row(relay->queue, row->key_hash, row->seq, &row->id,
						  row->failed, route);
}

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
	outbox_reader_add(relay->reader, prepared.range.lo, prepared.range.hi,
					  OUTBOX_UNREAD_LATE);
	outbox_reader_look_up_due(relay->reader);
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
	/* All that is there is read beside what comes from now on. */
	outbox_reader_add(relay->reader, 1, outbox_store_last_ready(),
					  OUTBOX_UNREAD_LEFT);
	relay->holders_loaded = true;
	outbox_reader_look_up_due(relay->reader);
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
	OutboxResumed resumed;

	outbox_routes_load(relay->routes, &control,
					   outbox_reader_end(relay->reader), &resumed);
	outbox_relay_resume(relay, &resumed);
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
		outbox_relay_drop_unsent(relay);
		outbox_reader_reread_due(relay->reader);
	}
	outbox_reader_look(relay->reader);
	outbox_reader_doubt_holders(relay->reader);
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
