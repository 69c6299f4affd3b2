/*-------------------------------------------------------------------------
 *
 * prepared.h
 *		Prepared transactions, which tell nobody how they end.
 *
 *-------------------------------------------------------------------------
 */
#ifndef OUTBOX_PREPARED_H
#define OUTBOX_PREPARED_H

#include "shared.h"

typedef struct OutboxPreparedList OutboxPreparedList;
typedef void (*OutboxPreparedEnded) (const OutboxPrepared *prepared, void *arg);

extern OutboxPreparedList *outbox_prepared_create(MemoryContext cxt);

/* Room for so many more: adding them cannot fail then. */
extern void outbox_prepared_reserve(OutboxPreparedList *list, int n);
extern void outbox_prepared_add(OutboxPreparedList *list,
								const OutboxPrepared *prepared);
/* Some of that range were lost: which are they?  To be looked up. */
extern void outbox_prepared_lost(OutboxPreparedList *list,
								 const OutboxRange *range);
extern bool outbox_prepared_unknown(const OutboxPreparedList *list);
/*
 * Called in a transaction: looks them up.  Those that are not found have ended;
 * returns the range in which their rows are.
 */
extern OutboxRange outbox_prepared_find(OutboxPreparedList *list);

/* Calls visit for those that have ended, and forgets them. */
extern void outbox_prepared_check(OutboxPreparedList *list,
								  bool (*ended) (TransactionId xid),
								  OutboxPreparedEnded visit, void *arg);
extern int	outbox_prepared_count(const OutboxPreparedList *list);
#ifdef OUTBOX_FAULTS
/* Does one that the snapshot sees lead to this row? */
extern bool outbox_prepared_leads_to(const OutboxPreparedList *list, int64 seq);
#endif

#endif							/* OUTBOX_PREPARED_H */
