/*-------------------------------------------------------------------------
 *
 * watch.h
 *		How long the broker is waited for.
 *
 *-------------------------------------------------------------------------
 */
#ifndef OUTBOX_WATCH_H
#define OUTBOX_WATCH_H

#include "broker.h"
#include "clock.h"
#include "confirms.h"

typedef struct OutboxWatch OutboxWatch;

/* window: of OutboxItem. */
extern OutboxWatch *outbox_watch_create(MemoryContext cxt, OutboxLink *link,
										const OutboxConfirms *window);

/* A new connection: of what was before it nothing is known. */
extern void outbox_watch_reset(OutboxWatch *watch);
/* A message was confirmed or refused that was sent at that time. */
extern void outbox_watch_answered(OutboxWatch *watch, OutboxMonoTime sent_at);
extern void outbox_watch_look(OutboxWatch *watch, OutboxMonoTime now);

/* Is the oldest unconfirmed message not even there yet? */
extern bool outbox_watch_bytes_under_way(const OutboxWatch *watch);
/* It has been there for long, and nothing has come. */
extern bool outbox_watch_quiet(const OutboxWatch *watch, OutboxMonoTime now);
/* Did a confirm come just now that was not long in coming? */
extern bool outbox_watch_answers_quickly(const OutboxWatch *watch,
										 OutboxMonoTime now);
/* When there was progress the last time; unset: nothing is waited for. */
extern OutboxMonoTime outbox_watch_progress_at(const OutboxWatch *watch);

extern OutboxMonoTime outbox_watch_deadline(OutboxWatch *watch,
											OutboxMonoTime now);
/* Why the connection is to be given up, or NULL; and the kind of it. */
extern const char *outbox_watch_late(OutboxWatch *watch, OutboxMonoTime now,
									 OutboxReason *reason);

#endif							/* OUTBOX_WATCH_H */
