/*-------------------------------------------------------------------------
 *
 * jobs.h
 *		Jobs: replays and the like, chunk by chunk beside publishing.
 *
 *-------------------------------------------------------------------------
 */
#ifndef OUTBOX_JOBS_H
#define OUTBOX_JOBS_H

#include "clock.h"

typedef struct OutboxJobs OutboxJobs;

extern OutboxJobs *outbox_jobs_create(MemoryContext cxt);
/* There may be a job: one was filed or changed, or it is time to look. */
extern void outbox_jobs_look(OutboxJobs *jobs);
/* Is there one, as far as is known? */
extern bool outbox_jobs_wanted(const OutboxJobs *jobs);
/* When the next chunk may be, if there is a job. */
extern OutboxMonoTime outbox_jobs_at(const OutboxJobs *jobs);
/* One chunk, in a transaction of its own. */
extern void outbox_jobs_run(OutboxJobs *jobs, MemoryContext scratch);

#endif							/* OUTBOX_JOBS_H */
