/*-------------------------------------------------------------------------
 *
 * restore.h
 *		Whether this session restores a dump.
 *
 *-------------------------------------------------------------------------
 */
#ifndef OUTBOX_RESTORE_H
#define OUTBOX_RESTORE_H

extern bool outbox_in_restore(void);

#endif							/* OUTBOX_RESTORE_H */
