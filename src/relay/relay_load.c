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
#include "relay_internal.h"
#include "settings.h"

/* ----------------------------------------------------------------- holders */

/* OutboxRowVisit: what has failed, the claims find. */
static void
hold_retry(const OutboxRow *row, void *arg)
{
	OutboxRelay *relay = arg;
	OutboxRoute *route = outbox_routes_find(relay->routes, row->route);

	if (outbox_unreadable_passes(outbox_reader_unreadable(relay->reader), &row->id))
		return;
	if (!route->ordered || outbox_queue_has(relay->queue, &row->id))
		return;
	outbox_queue_hold_retry(relay->queue, row->key_hash, row->seq, &row->id);
}

void
outbox_relay_hold_retries(OutboxRelay *relay)
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
void
outbox_relay_find_prepared(OutboxRelay *relay)
{
	OutboxRange range = outbox_prepared_find(relay->prepared);

	outbox_reader_add(relay->reader, range.lo, range.hi, OUTBOX_UNREAD_LATE);
	outbox_reader_look_up_due(relay->reader);
}

/*
 * What a worker must know before its first claim: transactions that are
 * prepared, which will tell nobody, and keys that are held.
 */
void
outbox_relay_load_start(OutboxRelay *relay)
{
	OutboxRange all = {1, PG_INT64_MAX};

	outbox_prepared_lost(relay->prepared, &all);
	outbox_relay_find_prepared(relay);
	outbox_relay_hold_retries(relay);
	/* All that is there is read beside what comes from now on. */
	outbox_reader_add(relay->reader, 1, outbox_store_last_ready(),
					  OUTBOX_UNREAD_LEFT);
	outbox_database_started(relay->database);
	outbox_reader_look_up_due(relay->reader);
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
	OutboxControl control;
	char	   *unusable = environment_unusable();
	OutboxResumed resumed;

	outbox_routes_load(relay->routes, &control,
					   outbox_reader_end(relay->reader), &resumed);
	outbox_relay_resume(relay, &resumed);
	outbox_control_reading(relay->control);
	if (outbox_control_loaded(relay->control, &control, unusable))
		outbox_relay_drop_unsent(relay);
	outbox_reader_look(relay->reader);
	outbox_reader_invalidate_holders(relay->reader);
	outbox_reader_ask_unreadable(relay->reader);
}
