/*-------------------------------------------------------------------------
 *
 * prelude.h
 *		Comes before everything in each source of the relay that is simulated.
 *
 * The points of test_point.h are points of the simulator, where others get their turn,
 * and the numbers of sizes.h are its own.
 *
 *-------------------------------------------------------------------------
 */
#ifndef SIM_PRELUDE_H
#define SIM_PRELUDE_H

extern void sim_point(const char *name);

#define OUTBOX_TEST_POINT_H
#define OUTBOX_TEST_POINT(point) sim_point(point)
#define OUTBOX_TEST_OMITS(what) 0

/* sizes.h: little room, so that it is often full. */
#define OUTBOX_SIZES_H

extern int	sim_sweep_ms;
extern int	sim_merge_distance;
extern int	sim_key_waiting_max;
extern int	sim_held_keys_max;

#define OUTBOX_MAX_WINDOW		256
#define OUTBOX_TRANSACTION_RANGES 2
#define OUTBOX_INBOX_RANGES		4
#define OUTBOX_INBOX_PREPARED	1
#define OUTBOX_RANGE_MERGE_DISTANCE sim_merge_distance
#define OUTBOX_UNREAD_MAX		8
#define OUTBOX_MERGED_MAX		64
#define OUTBOX_BATCH_SEGMENTS	12
#define OUTBOX_KEY_WAITING_MAX	sim_key_waiting_max
#define OUTBOX_CLAIM_BYTES		((size_t) 2 * 1024 * 1024)
#define OUTBOX_QUEUE_BYTES		((size_t) 32 * 1024 * 1024)
#define OUTBOX_WAITING_BYTES	(OUTBOX_QUEUE_BYTES / 2)
#define OUTBOX_HELD_KEYS_MAX	sim_held_keys_max
#define OUTBOX_FORGOTTEN_MS		100
#define OUTBOX_FORGOTTEN_PAUSE	4
#define OUTBOX_SWEEP_MS			sim_sweep_ms
#define OUTBOX_SWEEP_PAUSE		20
#define OUTBOX_SWEEP_LATEST_MS	sim_sweep_ms
#define OUTBOX_SWEEP_IDLE_PAUSE	10
#define OUTBOX_SWEEP_ROWS		4
#define OUTBOX_DECLARES_MAX		2
#define OUTBOX_CHECKED_KEYS		2
#define OUTBOX_EXCLUDED_KEYS	3
#define OUTBOX_RELEASED_MANY	2
#define OUTBOX_STRIDE			8

#endif							/* SIM_PRELUDE_H */
