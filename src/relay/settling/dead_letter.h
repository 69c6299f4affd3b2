/*-------------------------------------------------------------------------
 *
 * dead_letter.h
 *		What becomes of a message that is given up: does it go to another route?
 *
 *-------------------------------------------------------------------------
 */
#ifndef OUTBOX_DEAD_LETTER_H
#define OUTBOX_DEAD_LETTER_H

#include "broker.h"
#include "queue.h"
#include "route_states.h"

/*
 * Its death, in the current context, if it goes to the failed_route of its route;
 * NULL if it becomes failed.  *error is what is stored as its last_error, and gets a
 * note if it should have gone there and cannot.
 */
extern OutboxDeath *outbox_dead_letter(OutboxQueue *queue, OutboxRoutes *routes,
									   OutboxLink *link, OutboxItem *item,
									   const char **error);

#endif							/* OUTBOX_DEAD_LETTER_H */
