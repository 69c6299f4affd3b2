/*-------------------------------------------------------------------------
 *
 * relay_maintain.c
 *		Partitions of the archive: made ahead, dropped when they are old.
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
#include "relay_internal.h"
#include "settings.h"
#include "utils/memutils.h"

static bool failing = false;	/* the error is in the log */

/* Somebody has the archive locked. */
static struct
{
	OutboxMonoTime since;		/* unset: nobody */
	uint32		tries;
	bool		reported;
}			locked;

static void
not_locked(void)
{
	if (locked.reported)
		ereport(LOG, (errmsg("outbox relay can maintain the archive again")));
	memset(&locked, 0, sizeof(locked));
}

static void
report_locked(OutboxRelay *relay)
{
	char	   *pids;
	char		text[OUTBOX_TEXT_SIZE];

	if (!outbox_store_begin("looking for who has locked the archive", true))
		return;
	pids = outbox_store_archive_lockers(relay->scratch);
	outbox_store_end(false);
	if (pids == NULL)
		return;
	locked.reported = true;
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
note_locked(OutboxRelay *relay)
{
	if (!outbox_mono_is_set(locked.since))
		locked.since = outbox_mono_now();
	locked.tries++;
	relay->maintain_at =
		outbox_mono_after(outbox_backoff_ms(OUTBOX_MAINTAIN_LOCKED_MS,
											OUTBOX_MAINTAIN_MS, locked.tries,
											pg_prng_uint32(&pg_global_prng_state)));
	if (!locked.reported &&
		(outbox_mono_reached(outbox_mono_plus(locked.since,
											  OUTBOX_MAINTAIN_REPORT_MS),
							 outbox_mono_now()) ||
		 OUTBOX_FAULT_LEAVES_OUT("patience")))
		report_locked(relay);
}

/* Returns whether somebody's lock was in the way. */
static bool
note_error(OutboxRelay *relay)
{
	ErrorData  *edata;

	MemoryContextSwitchTo(relay->scratch);
	edata = CopyErrorData();
	if (edata->sqlerrcode == ERRCODE_LOCK_NOT_AVAILABLE)
	{
		FlushErrorState();
		outbox_store_abort();
		return true;
	}
	if (!failing)
		EmitErrorReport();
	FlushErrorState();
	outbox_store_abort();
	outbox_slot_set_error(edata->message);
	failing = true;
	relay->maintain_at = outbox_mono_after(OUTBOX_MAINTAIN_RETRY_MS);
	return false;
}

/* One step, in a transaction of its own; true: there may be another one. */
static bool
maintain_step(OutboxRelay *relay)
{
	char	   *done;

	if (!outbox_store_begin("maintaining the archive", true))
	{
		/* A table has changed: after the round that looks it up. */
		relay->maintain_at = OUTBOX_MONO_UNSET;
		return false;
	}
	done = outbox_store_maintain_archive(outbox_retention_s, relay->scratch);
	if (done != NULL)
		OUTBOX_FAULT("archiving");
	outbox_store_end(false);
	failing = false;
	not_locked();
	if (done != NULL)
		ereport(DEBUG1, (errmsg_internal("outbox archive: %s", done)));
	return done != NULL;
}

void
outbox_relay_maintain(OutboxRelay *relay)
{
	volatile bool again = true;
	volatile bool is_locked = false;

	relay->maintain_at = outbox_mono_after(OUTBOX_MAINTAIN_MS);
	for (int i = 0; i < 16 && again && !outbox_watchdog_stopping(); i++)
	{
		PG_TRY();
		{
			again = maintain_step(relay);
		}
		PG_CATCH();
		{
			is_locked = note_error(relay);
			again = false;
		}
		PG_END_TRY();
	}
	if (!is_locked)
		return;
	PG_TRY();
	{
		note_locked(relay);
	}
	PG_CATCH();
	{
		(void) note_error(relay);
	}
	PG_END_TRY();
}
