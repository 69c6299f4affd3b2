/*-------------------------------------------------------------------------
 *
 * shared_holds.c
 *		Holds: commands that need a database without its workers.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "miscadmin.h"
#include "shared.h"
#include "storage/procarray.h"

bool
outbox_hold_set(Oid dboid)
{
	bool		done = false;

	SpinLockAcquire(&outbox_shared->mutex);
	for (int i = 0; i < OUTBOX_MAX_HOLDS && !done; i++)
	{
		OutboxHold *hold = &outbox_shared->holds[i];

		if (!OidIsValid(hold->dboid))
		{
			hold->dboid = dboid;
			hold->pid = MyProcPid;
			done = true;
		}
	}
	SpinLockRelease(&outbox_shared->mutex);
	return done;
}

void
outbox_hold_release(Oid dboid, bool restart)
{
	SpinLockAcquire(&outbox_shared->mutex);
	for (int i = 0; i < OUTBOX_MAX_HOLDS; i++)
	{
		OutboxHold *hold = &outbox_shared->holds[i];

		if (hold->dboid == dboid && hold->pid == MyProcPid)
			hold->dboid = InvalidOid;
	}
	SpinLockRelease(&outbox_shared->mutex);
	if (restart)
		outbox_shared_request_database(dboid);
}

/* A hold whose backend is gone (killed amid the command) counts no more. */
bool
outbox_hold_exists(Oid dboid)
{
	bool		exists = false;

	for (int i = 0; i < OUTBOX_MAX_HOLDS; i++)
	{
		OutboxHold	hold;

		SpinLockAcquire(&outbox_shared->mutex);
		hold = outbox_shared->holds[i];
		SpinLockRelease(&outbox_shared->mutex);
		if (!OidIsValid(hold.dboid) || hold.dboid != dboid)
			continue;
		if (BackendPidGetProc(hold.pid) != NULL)
			exists = true;
		else
		{
			SpinLockAcquire(&outbox_shared->mutex);
			if (outbox_shared->holds[i].pid == hold.pid)
				outbox_shared->holds[i].dboid = InvalidOid;
			SpinLockRelease(&outbox_shared->mutex);
		}
	}
	return exists;
}
