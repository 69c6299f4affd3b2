/*-------------------------------------------------------------------------
 *
 * maintenance.c
 *		Partitions of the archive: made ahead, dropped when they are old; and
 *		old rows of the history, which go in pieces.
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
#include "fault.h"
#include "maintenance.h"
#include "settings.h"
#include "shared.h"
#include "store.h"
#include "utils/memutils.h"
#include "watchdog.h"

/* Partitions of the archive are looked after this often. */
#define MAINTAIN_MS		60000
/* The same after an error. */
#define RETRY_MS		5000
/*
 * While somebody reads the archive: at first soon, as others who publish only
 * touch it for a moment, then less and less often.  Reported after so long.
 */
#define LOCKED_MS		100
#define REPORT_MS		(10 * 60000)

struct OutboxMaintenance
{
	OutboxMonoTime at;			/* the next time */
	bool		failing;		/* the error is in the log */
	/* Somebody has the archive locked. */
	OutboxMonoTime locked_since;	/* unset: nobody */
	uint32		locked_tries;
	bool		reported;
};

OutboxMaintenance *
outbox_maintenance_create(MemoryContext cxt)
{
	return MemoryContextAllocZero(cxt, sizeof(OutboxMaintenance));
}

bool
outbox_maintenance_due(const OutboxMaintenance *maintenance, OutboxMonoTime now)
{
	return outbox_mono_reached(maintenance->at, now);
}

static void
not_locked(OutboxMaintenance *maintenance)
{
	if (maintenance->reported)
		ereport(LOG, (errmsg("outbox relay can maintain the archive again")));
	maintenance->locked_since = OUTBOX_MONO_UNSET;
	maintenance->locked_tries = 0;
	maintenance->reported = false;
}

static void
report_locked(OutboxMaintenance *maintenance, MemoryContext scratch)
{
	char	   *pids;
	char		text[OUTBOX_TEXT_SIZE];

	if (!outbox_store_begin("looking for who has locked the archive", true))
		return;
	pids = outbox_store_archive_lockers(scratch);
	outbox_store_end(false);
	if (pids == NULL)
		return;
	maintenance->reported = true;
	snprintf(text, sizeof(text),
			 "partitions of the archive cannot be made or dropped: it is locked by process %s",
			 pids);
	outbox_slot_set_error(text);
	ereport(LOG,
			(errmsg("outbox relay cannot maintain the archive"),
			 errdetail("It has been locked for a long time, now by process %s.",
					   pids),
			 errhint("Publishing goes on. Partitions are made and dropped when nobody reads outbox_archive; see pg_stat_activity for what these processes do.")));
}

static void
note_locked(OutboxMaintenance *maintenance, MemoryContext scratch)
{
	if (!outbox_mono_is_set(maintenance->locked_since))
		maintenance->locked_since = outbox_mono_now();
	maintenance->locked_tries++;
	maintenance->at =
		outbox_mono_after(outbox_backoff_ms(LOCKED_MS,
											MAINTAIN_MS, maintenance->locked_tries,
											pg_prng_uint32(&pg_global_prng_state)));
	if (!maintenance->reported &&
		(outbox_mono_reached(outbox_mono_plus(maintenance->locked_since,
											  REPORT_MS),
							 outbox_mono_now()) ||
		 OUTBOX_FAULT_LEAVES_OUT("patience")))
		report_locked(maintenance, scratch);
}

/* Returns whether somebody's lock was in the way. */
static bool
note_error(OutboxMaintenance *maintenance, MemoryContext scratch)
{
	ErrorData  *edata;

	MemoryContextSwitchTo(scratch);
	edata = CopyErrorData();
	if (edata->sqlerrcode == ERRCODE_LOCK_NOT_AVAILABLE)
	{
		FlushErrorState();
		outbox_store_abort();
		return true;
	}
	if (!maintenance->failing)
		EmitErrorReport();
	FlushErrorState();
	outbox_store_abort();
	outbox_slot_set_error(edata->message);
	maintenance->failing = true;
	maintenance->at = outbox_mono_after(RETRY_MS);
	return false;
}

/*
 * One step, in a transaction of its own; true: there may be another one.  Archive
 * and history are apart, so that what stops the one does not stop the other.
 */
typedef bool (*Step) (OutboxMaintenance *maintenance, MemoryContext scratch);

static bool
archive_step(OutboxMaintenance *maintenance, MemoryContext scratch)
{
	char	   *done;

	if (!outbox_store_begin("maintaining the archive", true))
	{
		/* A table has changed: after the round that looks it up. */
		maintenance->at = OUTBOX_MONO_UNSET;
		return false;
	}
	done = outbox_store_maintain_archive(outbox_retention_s, scratch);
	if (done != NULL)
		OUTBOX_FAULT("archiving");
	outbox_store_end(false);
	not_locked(maintenance);
	if (done != NULL)
		ereport(DEBUG1, (errmsg_internal("outbox archive: %s", done)));
	return done != NULL;
}

static bool
history_step(OutboxMaintenance *maintenance, MemoryContext scratch)
{
	bool		more;

	(void) scratch;
	if (outbox_history_retention_s < 0)
		return false;
	if (!outbox_store_begin("forgetting old history", true))
	{
		maintenance->at = OUTBOX_MONO_UNSET;
		return false;
	}
	more = outbox_store_maintain_history(outbox_history_retention_s);
	outbox_store_end(false);
	return more;
}

typedef enum Outcome
{
	OUTCOME_DONE,
	OUTCOME_LOCKED,				/* somebody's lock was in the way */
	OUTCOME_FAILED
} Outcome;

static Outcome
run_steps(OutboxMaintenance *maintenance, Step step, MemoryContext scratch)
{
	volatile bool again = true;
	volatile Outcome outcome = OUTCOME_DONE;

	for (int i = 0; i < 16 && again && !outbox_watchdog_stopping(); i++)
	{
		PG_TRY();
		{
			again = step(maintenance, scratch);
		}
		PG_CATCH();
		{
			outcome = note_error(maintenance, scratch) ?
				OUTCOME_LOCKED : OUTCOME_FAILED;
			again = false;
		}
		PG_END_TRY();
	}
	return outcome;
}

void
outbox_maintenance_run(OutboxMaintenance *maintenance, MemoryContext scratch)
{
	Outcome		archive;
	Outcome		history;

	maintenance->at = outbox_mono_after(MAINTAIN_MS);
	archive = run_steps(maintenance, archive_step, scratch);
	history = run_steps(maintenance, history_step, scratch);
	if (archive == OUTCOME_DONE && history == OUTCOME_DONE)
		maintenance->failing = false;
	if (archive != OUTCOME_LOCKED)
		return;
	PG_TRY();
	{
		note_locked(maintenance, scratch);
	}
	PG_CATCH();
	{
		(void) note_error(maintenance, scratch);
	}
	PG_END_TRY();
}
