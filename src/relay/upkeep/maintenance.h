/*-------------------------------------------------------------------------
 *
 * maintenance.h
 *		Partitions of the archive: made ahead, dropped when they are old; and
 *		old rows of the history.
 *
 *-------------------------------------------------------------------------
 */
#ifndef OUTBOX_MAINTENANCE_H
#define OUTBOX_MAINTENANCE_H

#include "clock.h"

typedef struct OutboxMaintenance OutboxMaintenance;

extern OutboxMaintenance *outbox_maintenance_create(MemoryContext cxt);
extern bool outbox_maintenance_due(const OutboxMaintenance *maintenance,
								   OutboxMonoTime now);
extern OutboxMonoTime outbox_maintenance_deadline(const OutboxMaintenance *maintenance);
/* Of what is due a step each, in a transaction of its own. */
extern void outbox_maintenance_run(OutboxMaintenance *maintenance,
								   OutboxMonoTime now, MemoryContext scratch);

#endif							/* OUTBOX_MAINTENANCE_H */
