/*-------------------------------------------------------------------------
 *
 * heartbeat.c
 *		Processes of ours that do nothing, and standbys that are missing.
 *
 * A process that is stopped, loops, or hangs in a library cannot say so.  Whoever
 * reads the views judges by its heartbeat (shared.h), and by how long a worker has
 * left alone what commits have told it.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "fmgr.h"
#include "funcapi.h"
#include "miscadmin.h"
#include "replication/syncrep.h"
#include "shared.h"
#include "storage/proc.h"
#include "storage/procarray.h"
#include "utils/builtins.h"
#include "utils/timestamp.h"
#include "utils/tuplestore.h"
#include "utils/wait_event.h"

PG_FUNCTION_INFO_V1(outbox_silent_processes);
PG_FUNCTION_INFO_V1(outbox_missing_standbys);

#define SILENT_COLS 4

typedef struct Silence
{
	const char *subject;
	int			pid;
	OutboxMonoTime since;		/* unset: it is not silent */
} Silence;

/* told_at: unset for who has not been told anything. */
static OutboxMonoTime
silent_since(pg_atomic_uint64 *beat, OutboxMonoTime told_at)
{
	OutboxMonoTime now = outbox_mono_now();
	OutboxMonoTime late = {(int64) pg_atomic_read_u64(beat)};

	if (outbox_mono_is_set(told_at))
		outbox_mono_earlier(&late, outbox_mono_plus(told_at, OUTBOX_SILENCE_MS));
	if (!outbox_mono_is_set(late) || !outbox_mono_reached(late, now))
		return OUTBOX_MONO_UNSET;
	return outbox_mono_plus(late, -OUTBOX_SILENCE_MS);
}

static void
put_silence(ReturnSetInfo *rsinfo, const Silence *silence)
{
	PGPROC	   *proc = silence->pid == 0 ? NULL : BackendPidGetProc(silence->pid);
	uint32		waits = proc == NULL ? 0 : proc->wait_event_info;
	Datum		values[SILENT_COLS];
	bool		nulls[SILENT_COLS] = {false};

	/* A commit that waits for a standby is told as such. */
	if (proc == NULL || !outbox_mono_is_set(silence->since) ||
		waits == WAIT_EVENT_SYNC_REP)
		return;
	values[0] = CStringGetTextDatum(silence->subject);
	values[1] = Int32GetDatum(silence->pid);
	values[2] = TimestampTzGetDatum(GetCurrentTimestamp() -
									(outbox_mono_now().us - silence->since.us));
	nulls[3] = waits == 0;
	if (!nulls[3])
		values[3] = CStringGetTextDatum(psprintf("%s %s", pgstat_get_wait_event_type(waits),
												 pgstat_get_wait_event(waits)));
	tuplestore_putvalues(rsinfo->setResult, rsinfo->setDesc, values, nulls);
}

static void
put_launcher(ReturnSetInfo *rsinfo)
{
	int			procno = outbox_shared->launcher_procno;
	Silence		silence = {"launcher", 0, OUTBOX_MONO_UNSET};
	OutboxMonoTime told_at;

	if (procno < 0)
		return;
	silence.pid = GetPGProcByNumber(procno)->pid;
	told_at.us = (int64) pg_atomic_read_u64(&outbox_shared->launcher_told);
	silence.since = silent_since(&outbox_shared->launcher_beat, told_at);
	put_silence(rsinfo, &silence);
}

/* The launcher, and the workers of this database. */
Datum
outbox_silent_processes(PG_FUNCTION_ARGS)
{
	ReturnSetInfo *rsinfo = (ReturnSetInfo *) fcinfo->resultinfo;

	InitMaterializedSRF(fcinfo, 0);
	if (outbox_shared == NULL)
		return (Datum) 0;
	put_launcher(rsinfo);
	for (int i = 0; i < outbox_shared->nslots; i++)
	{
		OutboxSlot *slot = &outbox_shared->slots[i];
		OutboxMonoTime told_at;
		Silence		silence;
		bool		ours;
		int			worker;

		SpinLockAcquire(&slot->mutex);
		ours = slot->in_use && slot->dboid == MyDatabaseId && slot->pid != 0;
		worker = slot->worker;
		silence.pid = slot->pid;
		/* Commits need not wake it, which is then not to come sooner. */
		told_at = slot->wakeups_off ? OUTBOX_MONO_UNSET : slot->told_at;
		SpinLockRelease(&slot->mutex);
		if (!ours)
			continue;
		silence.subject = psprintf("worker %d", worker);
		silence.since = silent_since(&slot->beat, told_at);
		put_silence(rsinfo, &silence);
	}
	return (Datum) 0;
}

/* How many synchronous standbys are not there of those that a commit waits for. */
Datum
outbox_missing_standbys(PG_FUNCTION_ARGS)
{
	SyncRepStandbyData *standbys;
	int			found;

	(void) fcinfo;
	if (SyncRepConfig == NULL)
		PG_RETURN_INT32(0);
	found = SyncRepGetCandidateStandbys(&standbys);
	PG_RETURN_INT32(Max(SyncRepConfig->num_sync - found, 0));
}
