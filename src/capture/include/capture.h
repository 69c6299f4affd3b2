/*-------------------------------------------------------------------------
 *
 * capture.h
 *		Messages of the changes of tables.
 *
 *-------------------------------------------------------------------------
 */
#ifndef OUTBOX_CAPTURE_H
#define OUTBOX_CAPTURE_H

/* capture_create.c: looks at triggers with outbox_capture() when they are created. */
extern void outbox_capture_init(void);

#endif							/* OUTBOX_CAPTURE_H */
