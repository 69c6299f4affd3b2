/*-------------------------------------------------------------------------
 *
 * wall_clock.h
 *		Has somebody set the clock?
 *
 *-------------------------------------------------------------------------
 */
#ifndef OUTBOX_WALL_CLOCK_H
#define OUTBOX_WALL_CLOCK_H

typedef struct OutboxWallClock OutboxWallClock;

extern OutboxWallClock *outbox_wall_clock_create(MemoryContext cxt);

/* Once a turn: a jump since the last one is told in the slot and in the log. */
extern void outbox_wall_clock_look(OutboxWallClock *clock);

#endif							/* OUTBOX_WALL_CLOCK_H */
