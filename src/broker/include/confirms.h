/*-------------------------------------------------------------------------
 *
 * confirms.h
 *		Window of unconfirmed deliveries: delivery tag to item.
 *
 * Plain C without a PostgreSQL header, so that test/unit can drive it alone.
 * Tags count from 1 on every channel and die with it: reset the window after
 * each reconnect.
 *
 *-------------------------------------------------------------------------
 */
#ifndef OUTBOX_CONFIRMS_H
#define OUTBOX_CONFIRMS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct OutboxConfirms
{
	void	  **ring;			/* item of tag t is at t % size; NULL =
								 * settled */
	uint32_t	size;			/* most tags between oldest and next */
	uint32_t	outstanding;	/* items still unconfirmed */
	uint64_t	oldest;			/* lowest unconfirmed tag, == next if none */
	uint64_t	next;			/* tag of the next publish */
} OutboxConfirms;

typedef void (*OutboxConfirmsVisit) (void *item, uint64_t tag, void *arg);
typedef bool (*OutboxConfirmsMatch) (void *item, const void *key);

/* Bytes of ring that a window of that size needs; the caller allocates. */
extern size_t outbox_confirms_ring_bytes(uint32_t size);

/* Takes over ring (any content) and empties the window; next tag is 1. */
extern void outbox_confirms_init(OutboxConfirms *window, void **ring,
								 uint32_t size);

/* Forgets everything outstanding; next tag is 1 again (a new channel). */
extern void outbox_confirms_reset(OutboxConfirms *window);

/* True when no further tag fits: size tags lie between oldest and next. */
extern bool outbox_confirms_full(const OutboxConfirms *window);

/* Notes that item (not NULL) was published; returns its delivery tag. */
extern uint64_t outbox_confirms_add(OutboxConfirms *window, void *item);

/*
 * Settles tag, or with multiple every outstanding tag up to and including it
 * (tag 0 with multiple: every outstanding one), calling visit for each item in
 * ascending order of tags.  Serves acks and nacks alike.  Returns false, with
 * nothing visited, when the broker broke the protocol: a tag that was never
 * published, or a single tag that is settled already.
 */
extern bool outbox_confirms_answer(OutboxConfirms *window, uint64_t tag,
								   bool multiple, OutboxConfirmsVisit visit,
								   void *arg);

/* The oldest outstanding item that match accepts, or NULL. */
extern void *outbox_confirms_find(const OutboxConfirms *window,
								  OutboxConfirmsMatch match, const void *key);

/* Visits every outstanding item in ascending order of tags; keeps them. */
extern void outbox_confirms_each(const OutboxConfirms *window,
								 OutboxConfirmsVisit visit, void *arg);

#endif							/* OUTBOX_CONFIRMS_H */
