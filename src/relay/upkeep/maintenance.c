/*-------------------------------------------------------------------------
 *
 * maintenance.c
 *		Partitions of the archive: made ahead, dropped when they are old; and
 *		old rows of the history and of outbox_once, which go in pieces.
 *
 * In small steps, between which messages are published: a step is what one call of
 * outbox_archive_maintain() does, in a transaction of its own.  Archive, history
 * and keys are apart, so that what stops the one does not stop the others.
 *
 * Whoever waits for the lock that this needs holds up all who come after him, the
 * settling of other workers too, and this process publishes.  So nobody's lock is
 * waited for: while somebody reads the archive it is left alone and tried again.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "backoff.h"
#include "common/pg_prng.h"
#include "rows_written.h"
#include "settings.h"
#include "test_point.h"
#include "upkeep.h"
#include "utils/memutils.h"

/*
 * Each is looked after this often, or this often while no transaction that writes ends in
 * the server: then only the time can have made something due.
 */
#define MAINTAIN_MS		60000
#define UNDISTURBED_MS	(10 * MAINTAIN_MS)
/* The same after an error. */
#define RETRY_MS		5000
/* Where a step leads to another one, they take no more than one part in so many. */
#define STEP_SHARE		10
/*
 * While somebody reads the archive: at first soon, as others who publish only
 * touch it for a moment, then less and less often.  Reported after so long.
 */
#define LOCKED_MS		100
#define REPORT_MS		(10 * 60000)

OutboxMonoTime
outbox_maintenance_deadline(const OutboxMaintenance *maintenance)
{
	OutboxMonoTime deadline = maintenance->archive.at;

	outbox_mono_earlier(&deadline, maintenance->history.at);
	outbox_mono_earlier(&deadline, maintenance->once.at);
	return deadline;
}

/* It is looked after again until that has found nothing to do. */
static uint64
begin(OutboxChore *chore)
{
	chore->at = outbox_mono_after(MAINTAIN_MS);
	chore->ended = 0;
	return outbox_transactions_ended();
}

static void
is_done(OutboxChore *chore, uint64 ended)
{
	chore->ended = ended;
	chore->done_at = outbox_mono_now();
}

static bool
is_due(OutboxChore *chore, OutboxMonoTime now)
{
	if (!outbox_mono_reached(chore->at, now))
		return false;
	if (chore->ended != outbox_transactions_ended() ||
		outbox_mono_reached(outbox_mono_plus(chore->done_at, UNDISTURBED_MS), now))
		return true;
	chore->at = outbox_mono_plus(now, MAINTAIN_MS);
	return false;
}

void
outbox_maintenance_reload(OutboxMaintenance *maintenance)
{
	maintenance->archive.ended = 0;
	maintenance->history.ended = 0;
	maintenance->once.ended = 0;
	maintenance->once.all_at = OUTBOX_MONO_UNSET;
}

static void
all_is_well(OutboxMaintenance *maintenance)
{
	if (maintenance->reported)
		ereport(LOG, (errmsg("outbox relay can maintain the archive again")));
	maintenance->archive.failing = false;
	maintenance->locked_since = OUTBOX_MONO_UNSET;
	maintenance->locked_tries = 0;
	maintenance->reported = false;
	outbox_slot_set_archive_error(NULL);
}

/* Who has the archive locked now: process ids, NULL if nobody has any more. */
static char *
find_lockers(MemoryContext scratch)
{
	char	   *pids;

	if (!outbox_store_begin("looking for who has locked the archive", true))
		return NULL;
	pids = outbox_store_archive_lockers(scratch);
	outbox_store_end(false);
	return pids;
}

static void
report_locked(OutboxMaintenance *maintenance, const char *pids)
{
	char		text[OUTBOX_TEXT_SIZE];

	maintenance->reported = true;
	snprintf(text, sizeof(text),
			 "partitions of the archive cannot be made or dropped: it is locked by process %s",
			 pids);
	outbox_slot_set_last_error(text);
	ereport(LOG,
			(errmsg("outbox relay cannot maintain the archive"),
			 errdetail("It has been locked for a long time, now by process %s.",
					   pids),
			 errhint("Publishing goes on. Partitions are made and dropped when nobody reads outbox_archive; see pg_stat_activity for what these processes do.")));
}

static bool
is_patient(const OutboxMaintenance *maintenance)
{
	return !OUTBOX_TEST_OMITS("patience") &&
		!outbox_mono_reached(outbox_mono_plus(maintenance->locked_since,
											  REPORT_MS),
							 outbox_mono_now());
}

/* words: the server's, which do not say who it is. */
static void
note_locked(OutboxMaintenance *maintenance, const char *words,
			MemoryContext scratch)
{
	char		text[OUTBOX_TEXT_SIZE];
	char	   *pids;

	if (!outbox_mono_is_set(maintenance->locked_since))
		maintenance->locked_since = outbox_mono_now();
	maintenance->locked_tries++;
	maintenance->archive.at =
		outbox_mono_after(outbox_backoff_ms(LOCKED_MS,
											MAINTAIN_MS, maintenance->locked_tries,
											pg_prng_uint32(&pg_global_prng_state)));
	pids = find_lockers(scratch);
	if (pids == NULL)
		return;
	snprintf(text, sizeof(text), "%s; held by process %s", words, pids);
	outbox_slot_set_archive_error(text);
	if (!maintenance->reported && !is_patient(maintenance))
		report_locked(maintenance, pids);
}

/*
 * The transaction has failed.  Returns the server's words.  That somebody's lock
 * was in the way (*locked) is not an error.
 */
static char *
note_error(OutboxChore *chore, bool *locked, MemoryContext scratch)
{
	ErrorData  *edata;

	MemoryContextSwitchTo(scratch);
	edata = CopyErrorData();
	*locked = edata->sqlerrcode == ERRCODE_LOCK_NOT_AVAILABLE;
	if (!*locked && !chore->failing)
		EmitErrorReport();
	FlushErrorState();
	outbox_store_abort();
	if (*locked)
		return edata->message;
	outbox_slot_set_last_error(edata->message);
	chore->failing = true;
	/* Each try locks the archive, and with it readers on a standby. */
	chore->at = outbox_mono_after(edata->sqlerrcode == ERRCODE_DEPENDENT_OBJECTS_STILL_EXIST ?
								  MAINTAIN_MS : RETRY_MS);
	return edata->message;
}

/* A step was made that began then, and there may be another one. */
static void
go_on(OutboxChore *chore, OutboxMonoTime began)
{
	chore->at =
		outbox_mono_after((STEP_SHARE - 1) *
						  outbox_mono_ms_until(outbox_mono_now(), began));
}

static void
archive_step(OutboxMaintenance *maintenance, MemoryContext scratch)
{
	OutboxMonoTime began = outbox_mono_now();
	uint64		ended = begin(&maintenance->archive);
	char	   *done;

	if (!outbox_store_begin("maintaining the archive", true))
	{
		/* A table has changed: after the round that looks it up. */
		maintenance->archive.at = OUTBOX_MONO_UNSET;
		return;
	}
	done = outbox_store_maintain_archive(outbox_retention_s, scratch);
	if (done != NULL)
		OUTBOX_TEST_POINT("archiving");
	outbox_store_end(false);
	all_is_well(maintenance);
	if (done == NULL)
	{
		is_done(&maintenance->archive, ended);
		return;
	}
	ereport(DEBUG1, (errmsg_internal("outbox archive: %s", done)));
	go_on(&maintenance->archive, began);
}

static void
run_archive(OutboxMaintenance *maintenance, MemoryContext scratch)
{
	char	   *words = NULL;
	bool		locked = false;

	PG_TRY();
	{
		archive_step(maintenance, scratch);
	}
	PG_CATCH();
	{
		words = note_error(&maintenance->archive, &locked, scratch);
	}
	PG_END_TRY();
	if (words != NULL)
		outbox_slot_set_archive_error(words);
	if (!locked)
		return;
	PG_TRY();
	{
		note_locked(maintenance, words, scratch);
	}
	PG_CATCH();
	{
		(void) note_error(&maintenance->archive, &locked, scratch);
	}
	PG_END_TRY();
}

typedef bool (*Forget) (int age_s, TimestampTz *since);

static void
forget_step(OutboxChore *chore, Forget forget, int age_s, const char *activity)
{
	OutboxMonoTime began = outbox_mono_now();
	uint64		ended = begin(chore);
	TimestampTz since = chore->since;
	bool		more;

	if (!outbox_store_begin(activity, true))
	{
		chore->at = OUTBOX_MONO_UNSET;
		return;
	}
	/* Rows of a transaction that has ended late, or that were locked. */
	if (outbox_mono_reached(chore->all_at, began))
	{
		since = DT_NOBEGIN;
		chore->all_at = outbox_mono_plus(began, UNDISTURBED_MS);
	}
	more = forget(age_s, &since);
	outbox_store_end(false);
	chore->failing = false;
	if (more)
	{
		chore->since = since;
		go_on(chore, began);
	}
	else
		is_done(chore, ended);
}

/* age_s: below 0, nothing gets old. */
static void
run_forget(OutboxChore *chore, Forget forget, int age_s, const char *activity,
		   MemoryContext scratch)
{
	bool		locked;

	if (age_s < 0)
	{
		chore->at = outbox_mono_after(MAINTAIN_MS);
		return;
	}
	PG_TRY();
	{
		forget_step(chore, forget, age_s, activity);
	}
	PG_CATCH();
	{
		(void) note_error(chore, &locked, scratch);
	}
	PG_END_TRY();
}

void
outbox_maintenance_run(OutboxMaintenance *maintenance, OutboxMonoTime now,
					   MemoryContext scratch)
{
	if (is_due(&maintenance->archive, now))
		run_archive(maintenance, scratch);
	if (is_due(&maintenance->history, now))
		run_forget(&maintenance->history, outbox_store_maintain_history,
				   outbox_history_retention_s, "forgetting old history", scratch);
	if (is_due(&maintenance->once, now))
		run_forget(&maintenance->once, outbox_store_maintain_once,
				   outbox_once_window_s, "forgetting old keys", scratch);
}
