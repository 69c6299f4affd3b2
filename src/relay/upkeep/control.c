/*-------------------------------------------------------------------------
 *
 * control.c
 *		May messages be published from here?  The control row, and copies.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "identity.h"
#include "settings.h"
#include "upkeep.h"
#include "utils/memutils.h"

void
outbox_control_invalidate(OutboxControlState *state)
{
	state->stale = true;
}

/* Why nothing may be published from here. */
static char *
describe_copy(OutboxCopy copy, const OutboxControl *control,
			  const char *unusable)
{
	char	   *how;

	switch (copy)
	{
		case OUTBOX_COPY_DATABASE:
			return pstrdup("messages or outbox_control are those of another database");
		case OUTBOX_COPY_ENVIRONMENT:
			return psprintf("\"outbox.environment\" is \"%s\" here, and the messages belong to \"%s\"",
							outbox_environment, control->recorded.environment);
		case OUTBOX_COPY_RESTORED:
			(void) outbox_environment_restored(&how);
			return psprintf("this server was restored to a point in time: %s", how);
		case OUTBOX_COPY_UNKNOWN:
			return pstrdup(unusable);
		case OUTBOX_COPY_NONE:
			break;
	}
	return NULL;
}

static void
tell_copy(OutboxCopy copy, const char *detail)
{
	if (copy == OUTBOX_COPY_DATABASE)
		ereport(LOG,
				(errmsg("outbox relay is silent: this database is a copy"),
				 errdetail("Its messages belong to another database, whose relay publishes them."),
				 errhint("Call outbox_adopt() in it when they are to be published from here.")));
	else if (copy == OUTBOX_COPY_UNKNOWN)
	{
		ereport(LOG,
				(errcode(ERRCODE_CONFIG_FILE_ERROR),
				 errmsg("outbox relay cannot use its settings"),
				 errdetail_internal("%s", detail),
				 errhint("Set it on the server's command line, in its environment (OUTBOX_ENVIRONMENT), or in a file outside of the data directory.")));
		outbox_slot_set_last_error(detail);
	}
	else
		ereport(LOG,
				(errmsg("outbox relay is silent: this server may be a copy"),
				 errdetail_internal("%s", detail),
				 errhint("Call outbox_adopt() in each of its databases when their messages are to be published from here.")));
}

static void
show(OutboxErrorKind kind, bool lasts, const char *detail)
{
	if (lasts)
		outbox_slot_set_current_error(kind, OUTBOX_REASON_ENVIRONMENT, detail, NULL);
	else
		outbox_slot_clear_current_error(kind);
}

/* Tells of it once, and again when it is another one. */
static void
set_copy(OutboxControlState *state, OutboxCopy copy, const char *detail)
{
	bool		told = state->copy == copy &&
		strcmp(state->copy_detail ? state->copy_detail : "",
			   detail ? detail : "") == 0;

	state->copy = copy;
	show(OUTBOX_ERROR_ENVIRONMENT, copy == OUTBOX_COPY_UNKNOWN, detail);
	show(OUTBOX_ERROR_COPY, copy != OUTBOX_COPY_NONE && copy != OUTBOX_COPY_UNKNOWN, detail);
	if (told)
		return;
	if (state->copy_detail != NULL)
		pfree(state->copy_detail);
	state->copy_detail =
		detail != NULL ? MemoryContextStrdup(TopMemoryContext, detail) : NULL;
	if (copy != OUTBOX_COPY_NONE)
		tell_copy(copy, detail);
}

bool
outbox_control_loaded(OutboxControlState *state, const OutboxControl *control,
					  const char *unusable)
{
	bool		was_paused = state->paused;
	bool		found_foreign = state->foreign;
	OutboxCopy	copy;

	state->stale = false;
	/* Somebody has called outbox_adopt(): the next claim finds what is left. */
	if (state->foreign && control->adopted_at != state->foreign_since)
		state->foreign = false;
	copy = outbox_identity_compare(&control->recorded, state->foreign, unusable);
	set_copy(state, copy, describe_copy(copy, control, unusable));
	state->paused = control->paused || copy != OUTBOX_COPY_NONE;
	/* Also when it was adopted meanwhile: perhaps not all of it. */
	return (state->paused || found_foreign) && !was_paused;
}

/* Was a message of the batch enqueued in a database that is not adopted? */
static bool
has_foreign(const OutboxBatch *batch, const OutboxIdentity *recorded)
{
	int64		accepted = outbox_own_origin();

	for (int i = 0; i < batch->count; i++)
	{
		/* Given up: it will be claimed again. */
		if (batch->messages[i] == NULL)
			continue;
		if (batch->messages[i]->origin == accepted)
			continue;
		if (!outbox_identity_accepts(recorded, batch->messages[i]->origin))
			return true;
		accepted = batch->messages[i]->origin;
	}
	return false;
}

/*
 * Messages can commit together with the word that they are not ours to publish
 * (a restored dump) or not now (outbox_pause()), or before it (a parallel
 * restore), or without it (logical replication); then they say so themselves.
 * Its signal comes after the commit, so a claim may see the messages first;
 * but what is read after the claim sees both.  Nothing is sent then before the
 * next round has dealt with it, as the control row is stale: that round takes
 * all that is unsent out of the queue again and remembers from where to read
 * it when we may.
 */
void
outbox_control_check(OutboxControlState *state, const OutboxBatch *batch)
{
	OutboxControl control;

	outbox_store_load_control(&control);
	if (has_foreign(batch, &control.recorded))
	{
		state->foreign = true;
		state->foreign_since = control.adopted_at;
	}
	if (control.paused ||
		outbox_identity_compare(&control.recorded, state->foreign,
								NULL) != OUTBOX_COPY_NONE)
		state->stale = true;
}
