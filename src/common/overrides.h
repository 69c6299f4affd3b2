/*-------------------------------------------------------------------------
 *
 * overrides.h
 *		Settings that processes of ours have whatever somebody has set.
 *
 *-------------------------------------------------------------------------
 */
#ifndef OUTBOX_OVERRIDES_H
#define OUTBOX_OVERRIDES_H

/* Called once, as soon as the process is connected, outside of a transaction. */
extern void outbox_override_settings(void);

#endif							/* OUTBOX_OVERRIDES_H */
