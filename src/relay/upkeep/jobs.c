/*-------------------------------------------------------------------------
 *
 * jobs.c
 *		Jobs: replays and the like, chunk by chunk beside publishing.
 *
 * A chunk is one short transaction, after which the loop goes on to publish.  So
 * that live messages find no long queue before them, a chunk is done only when
 * nearly all of the one before last is published: what a job has put into outbox
 * and is not published yet stays within OUTBOX_CHUNKS_AHEAD chunks, whichever worker
 * publishes it.  Two kinds of messages do not count.  Dead letters on a paused
 * failed_route may wait there for days.  Messages of an earlier job, which may be on a
 * paused route, hold up no later job.
 *
 * Nothing of a job is remembered here but that, and its errors in a row; where it
 * is stands in its row.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "backoff.h"
#include "common/pg_prng.h"
#include "settings.h"
#include "test_point.h"
#include "upkeep.h"
#include "utils/memutils.h"

/*
 * Chunks of so many messages at most: half a window, but not so few that the
 * transaction costs more than they do.  Where publishing is the slower of the two
 * they become smaller, until one is published in CHUNK_MS: what is ahead of a live
 * message is OUTBOX_CHUNKS_AHEAD of them.
 */
#define CHUNK_MESSAGES	500
#define CHUNK_LEAST		50
#define CHUNK_MS		25
#define CHUNK_BYTES		(1024 * 1024)
/* How long until it is looked whether the earlier chunk is published. */
#define BUSY_MS			10
#define BUSY_MAX_MS		500
/* After so many looks, some 3 s, the job's last_error says so. */
#define BUSY_TELL		20
/* The same while somebody has locked what is needed, or after an error. */
#define RETRY_MS		100
#define RETRY_MAX_MS	30000
/* So many errors in a row, other than locks, end the job. */
#define MAX_FAILURES	8

void
outbox_jobs_look(OutboxJobs *jobs)
{
	if (!jobs->wanted)
		jobs->at = outbox_mono_now();
	jobs->wanted = true;
}

static OutboxMonoTime
after_backoff(int first_ms, int most_ms, uint32 times)
{
	return outbox_mono_after(outbox_backoff_ms(first_ms, most_ms, times,
											   pg_prng_uint32(&pg_global_prng_state)));
}

/* The oldest is published, as far as is asked for; this one comes behind. */
static void
put_behind(OutboxJobs *jobs, const OutboxJobChunk *put)
{
	OutboxJobChunk *last = &jobs->ahead[OUTBOX_CHUNKS_AHEAD - 1];
	pg_uuid_t  *ids = NULL;

	if (put->n > 0)
	{
		ids = MemoryContextAlloc(TopMemoryContext, sizeof(pg_uuid_t) * put->n);
		memcpy(ids, put->ids, sizeof(pg_uuid_t) * put->n);
	}
	if (jobs->ahead[0].ids != NULL)
		pfree(jobs->ahead[0].ids);
	for (int i = 1; i < OUTBOX_CHUNKS_AHEAD; i++)
		jobs->ahead[i - 1] = jobs->ahead[i];
	last->ids = ids;
	last->n = put->n;
}

/* A later job waits for none of its messages. */
static void
forget_job(OutboxJobs *jobs)
{
	for (int i = 0; i < OUTBOX_CHUNKS_AHEAD; i++)
		if (jobs->ahead[i].ids != NULL)
			pfree(jobs->ahead[i].ids);
	memset(jobs->ahead, 0, sizeof(jobs->ahead));
	jobs->put_at = OUTBOX_MONO_UNSET;
	jobs->busy = 0;
	jobs->failures = 0;
}

static int
chunk_messages(const OutboxJobs *jobs)
{
	int			most = Min(CHUNK_MESSAGES, Max(outbox_window / 2, CHUNK_LEAST));

	return jobs->chunk == 0 ? most : Min(jobs->chunk, most);
}

/*
 * From one chunk to the next it takes as long as to publish one, if that had to be
 * waited for.  Never by more than half at once: one pause says little.
 */
static void
adapt_chunk(OutboxJobs *jobs, OutboxMonoTime now)
{
	int			chunk = chunk_messages(jobs);
	int64		took_ms = (now.us - jobs->put_at.us) / 1000;

	if (jobs->busy == 0 || took_ms < CHUNK_MS)
		jobs->chunk = Min(chunk + chunk / 4 + 1, CHUNK_MESSAGES);
	else if (outbox_mono_is_set(jobs->put_at))
		jobs->chunk = Max(Max(chunk / 2, CHUNK_LEAST),
						  (int) (chunk * CHUNK_MS / took_ms));
	jobs->put_at = now;
}

/* The transaction has committed. */
static void
chunk_committed(OutboxJobs *jobs, OutboxJobOutcome outcome,
				const OutboxJobChunk *put)
{
	OutboxMonoTime at = outbox_mono_now();

	jobs->failures = 0;
	if (outcome == OUTBOX_JOB_PUT)
		adapt_chunk(jobs, at);
	jobs->busy = outcome == OUTBOX_JOB_BUSY ? jobs->busy + 1 : 0;
	jobs->locked = outcome == OUTBOX_JOB_LOCKED ? jobs->locked + 1 : 0;
	switch (outcome)
	{
		case OUTBOX_JOB_NONE:
			jobs->wanted = false;
			jobs->chunk = 0;
			break;
		case OUTBOX_JOB_BUSY:
			/* At first often, as it is a matter of milliseconds. */
			at = jobs->busy < 10 ? outbox_mono_after(BUSY_MS) :
				after_backoff(BUSY_MS, BUSY_MAX_MS, jobs->busy - 9);
			break;
		case OUTBOX_JOB_LOCKED:
			at = after_backoff(RETRY_MS, RETRY_MAX_MS, jobs->locked);
			break;
		case OUTBOX_JOB_PUT:
			put_behind(jobs, put);
			break;
	}
	jobs->at = at;
}

/* Asked before the chunk, so that an error is known to be of this job. */
static void
look_which(OutboxJobs *jobs)
{
	int64		job = outbox_store_job_next();

	if (job != jobs->job)
		forget_job(jobs);
	jobs->job = job;
}

static void
run_chunk(OutboxJobs *jobs, MemoryContext scratch)
{
	OutboxJobOutcome outcome;
	OutboxJobChunk put;

	if (!outbox_store_begin("running a job", true))
	{
		/* A table has changed: after the round that looks it up. */
		jobs->at = after_backoff(RETRY_MS, RETRY_MAX_MS, 1);
		return;
	}
	look_which(jobs);
	outcome = outbox_store_job_step(chunk_messages(jobs), CHUNK_BYTES,
									&jobs->ahead[0], jobs->busy >= BUSY_TELL,
									scratch, &put);
	if (outcome == OUTBOX_JOB_PUT)
		OUTBOX_TEST_POINT("in_job");
	outbox_store_end(false);
	chunk_committed(jobs, outcome, &put);
	if (outcome == OUTBOX_JOB_PUT)
		OUTBOX_TEST_POINT("after_job");
}

/* The error of the chunk; the first one in a row is logged. */
static ErrorData *
take_error(OutboxJobs *jobs, MemoryContext scratch)
{
	ErrorData  *edata;

	MemoryContextSwitchTo(scratch);
	outbox_database_hide_row();
	edata = CopyErrorData();
	if (edata->sqlerrcode == ERRCODE_LOCK_NOT_AVAILABLE)
	{
		jobs->locked++;
		jobs->at = after_backoff(RETRY_MS, RETRY_MAX_MS, jobs->locked);
	}
	else
	{
		if (jobs->failures == 0)
			EmitErrorReport();
		jobs->failures++;
		jobs->at = after_backoff(RETRY_MS, RETRY_MAX_MS, jobs->failures);
	}
	FlushErrorState();
	outbox_store_abort();
	return edata;
}

/* In the job's row, where its operator looks; it ends there after some in a row. */
static void
note_error(OutboxJobs *jobs, const char *error)
{
	bool		final = jobs->failures >= MAX_FAILURES;

	if (!outbox_store_begin("noting the error of a job", true))
		return;
	outbox_store_job_error(jobs->job, error, final);
	outbox_store_end(false);
	if (final)
		jobs->failures = 0;
}

void
outbox_jobs_run(OutboxJobs *jobs, MemoryContext scratch)
{
	ErrorData  *volatile edata = NULL;

	PG_TRY();
	{
		run_chunk(jobs, scratch);
	}
	PG_CATCH();
	{
		edata = take_error(jobs, scratch);
	}
	PG_END_TRY();
	if (edata == NULL)
		return;
	PG_TRY();
	{
		note_error(jobs, edata->message);
	}
	PG_CATCH();
	{
		/* It is noted when the chunk has failed again. */
		(void) take_error(jobs, scratch);
	}
	PG_END_TRY();
}
