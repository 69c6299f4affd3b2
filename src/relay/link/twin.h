/*-------------------------------------------------------------------------
 *
 * twin.h
 *		Is another relay of this database connected to the broker?
 *
 * Of the server it uses Assert() only, so that test/unit can drive it alone.
 *
 *-------------------------------------------------------------------------
 */
#ifndef OUTBOX_TWIN_H
#define OUTBOX_TWIN_H

#include "clock.h"

/* twin.c has the diagram. */
typedef enum OutboxTwinState
{
	OUTBOX_TWIN_UNKNOWN,
	OUTBOX_TWIN_ALONE,
	OUTBOX_TWIN_TAKEN,
	OUTBOX_TWIN_FOUND
} OutboxTwinState;

/* What has come of a question. */
typedef enum OutboxTwinAnswer
{
	OUTBOX_TWIN_HELD,			/* the name is ours */
	OUTBOX_TWIN_LOCKED,			/* another connection has it */
	OUTBOX_TWIN_FORBIDDEN,		/* asking is not allowed to us */
	OUTBOX_TWIN_OTHER			/* says nothing of the name */
} OutboxTwinAnswer;

typedef struct OutboxTwin
{
	uint32_t	(*random) (void);	/* of all 32 bits */
	OutboxTwinState state;		/* written by set_state() only */
	bool		connected;
	bool		asking;			/* a question is under way */
	bool		late;			/* ... for long, and that was told */
	bool		forbidden;		/* on this connection */
	int64_t		heartbeat_ms;	/* of this connection */
	int64_t		longest_ms;		/* of all: one of ours may be half open */
	bool		cluster;
	OutboxMonoTime asked_at;
	OutboxMonoTime taken_at;	/* the first refusal since we had the name */
	OutboxMonoTime ask_at;		/* the next question, not before */
	OutboxMonoTime idle_until;	/* ... and if not idle, not before; unset:
								 * never */
	uint32_t	others;			/* answers that say nothing, in a row */
	uint32_t	closes;			/* connections closed for a question, in a row */
} OutboxTwin;

extern void outbox_twin_init(OutboxTwin *twin, uint32_t (*random) (void));

/* cluster: there are several hosts, perhaps of one cluster. */
extern void outbox_twin_opened(OutboxTwin *twin, int64_t heartbeat_ms,
							   bool cluster, OutboxMonoTime now);

/* asking: the broker closed the connection because of the question. */
extern void outbox_twin_closed(OutboxTwin *twin, bool asking, OutboxMonoTime now);

/* This relay publishes nothing: it is none that another could be a twin of. */
extern void outbox_twin_stand_by(OutboxTwin *twin, OutboxMonoTime now);

/* Is it time to ask?  idle: nothing is in flight, or about to be. */
extern bool outbox_twin_due(const OutboxTwin *twin, bool idle, OutboxMonoTime now);

/* The question could not be sent now. */
extern void outbox_twin_put_off(OutboxTwin *twin, OutboxMonoTime now);
extern void outbox_twin_asked(OutboxTwin *twin, OutboxMonoTime now);
extern void outbox_twin_answered(OutboxTwin *twin, OutboxTwinAnswer answer,
								 OutboxMonoTime now);

/* Has an answer been missing for so long that it is worth a word?  True once. */
extern bool outbox_twin_late(OutboxTwin *twin, OutboxMonoTime now);

/* When to look next; unset: nothing is waited for. */
extern OutboxMonoTime outbox_twin_deadline(const OutboxTwin *twin,
										   OutboxMonoTime now);

#endif							/* OUTBOX_TWIN_H */
