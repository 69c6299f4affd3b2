/*-------------------------------------------------------------------------
 *
 * relay_maintain.c
 *		Partitions of the archive: made ahead, dropped when they are old.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "fault.h"
#include "relay_internal.h"
#include "settings.h"
#include "utils/memutils.h"

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
