/*-------------------------------------------------------------------------
 *
 * shared_holds.c
 *		Holds: commands that need a database without its workers.
 *
 * A backend takes its holds with it, however it ends: by its exit callback, or
 * with all shared memory.  So none is left of which nobody knows whether it counts.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "miscadmin.h"
#include "shared_internal.h"
#include "storage/ipc.h"

/* Terminated amid the command: its cleanup does not run. */
static void
release_at_exit(int code, Datum arg)
{
	(void) code;
	(void) arg;
	for (int i = 0; i < OUTBOX_MAX_HOLDS; i++)
	{
		OutboxHold *hold = &outbox_shared->holds[i];

		/* One that is ours stays as it is until we release it. */
		if (OidIsValid(hold->dboid) && hold->pid == MyProcPid)
			outbox_hold_release(hold->dboid, true);
	}
}

bool
outbox_hold_set(Oid dboid)
{
	static bool registered = false;
	bool		done = false;

	if (!registered)
		before_shmem_exit(release_at_exit, (Datum) 0);
	registered = true;
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

bool
outbox_hold_exists(Oid dboid)
{
	bool		exists = false;

	SpinLockAcquire(&outbox_shared->mutex);
	for (int i = 0; i < OUTBOX_MAX_HOLDS && !exists; i++)
		exists = outbox_shared->holds[i].dboid == dboid;
	SpinLockRelease(&outbox_shared->mutex);
	return exists;
}
