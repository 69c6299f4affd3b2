/*-------------------------------------------------------------------------
 *
 * recheck.h
 *		How long to leave alone what somebody has locked.
 *
 *-------------------------------------------------------------------------
 */
#ifndef OUTBOX_RECHECK_H
#define OUTBOX_RECHECK_H

#include "settings.h"

static inline int
outbox_recheck_ms(void)
{
	return Min(outbox_poll_interval_ms, 1000);
}

#endif							/* OUTBOX_RECHECK_H */
