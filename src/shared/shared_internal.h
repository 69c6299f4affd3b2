/*-------------------------------------------------------------------------
 *
 * shared_internal.h
 *		What the files of the shared memory share.
 *
 *-------------------------------------------------------------------------
 */
#ifndef OUTBOX_SHARED_INTERNAL_H
#define OUTBOX_SHARED_INTERNAL_H

#include "shared.h"

/* shared_early.c: its part of the memory. */
extern Size outbox_early_size(void);
extern void outbox_early_init(void);

#endif							/* OUTBOX_SHARED_INTERNAL_H */
