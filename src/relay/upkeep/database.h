/*-------------------------------------------------------------------------
 *
 * database.h
 *		The worker's database: session, extension, settings, and its faults.
 *
 *-------------------------------------------------------------------------
 */
#ifndef OUTBOX_DATABASE_H
#define OUTBOX_DATABASE_H

#include "clock.h"
#include "shared.h"
#include "store.h"

typedef struct OutboxDatabase OutboxDatabase;

extern void outbox_database_connect(Oid dboid);
extern OutboxDatabase *outbox_database_create(MemoryContext cxt);

/* ------------------------------------------------------------ before a round */

/* The next round is to have a transaction: to hear of DROP EXTENSION, */
extern void outbox_database_touch(OutboxDatabase *database);
/* to attach anew, */
extern void outbox_database_recheck_extension(OutboxDatabase *database);
/* to compare ALTER DATABASE SET. */
extern void outbox_database_recheck_settings(OutboxDatabase *database);
/* Is there one of them? */
extern bool outbox_database_wants_round(const OutboxDatabase *database);
/* With an extension that does not fit nothing else counts. */
extern bool outbox_database_wants_attach(const OutboxDatabase *database);

/*
 * Attaches, if that is wanted.  True: the extension was looked up, and all that was
 * read of its tables may be something else now.
 */
extern bool outbox_database_attach(OutboxDatabase *database);
/* Compares ALTER DATABASE SET, if that is wanted. */
extern void outbox_database_check_settings(OutboxDatabase *database,
										   MemoryContext scratch);
/* What must be known before the first claim was looked up. */
extern void outbox_database_started(OutboxDatabase *database);

/* ------------------------------------------------------------------- faults */

extern void outbox_database_works(OutboxDatabase *database);
/* Called in PG_CATCH. */
extern void outbox_database_failed(OutboxDatabase *database,
								   const OutboxUnreadableRow *row,
								   MemoryContext scratch);
extern bool outbox_database_failing(const OutboxDatabase *database);
extern OutboxMonoTime outbox_database_retry_at(const OutboxDatabase *database);

/* -------------------------------------------------------------------- state */

/* The extension is there and fits. */
extern bool outbox_database_attached(const OutboxDatabase *database);
/*
 * Below 0: the extension is older than the library; above: newer; 0: they fit.
 */
extern int	outbox_database_mismatch(const OutboxDatabase *database);
/* Something is known that only a round can look up. */
extern bool outbox_database_touched(const OutboxDatabase *database);
extern bool outbox_database_has_started(const OutboxDatabase *database);
/* The process is to end, for that reason. */
extern void outbox_database_leave(OutboxDatabase *database, OutboxExit reason);
extern bool outbox_database_leaving(const OutboxDatabase *database);

#endif							/* OUTBOX_DATABASE_H */
