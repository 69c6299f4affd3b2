/*-------------------------------------------------------------------------
 *
 * session.h
 *		What the library has to prepare for sessions, when it is loaded.
 *
 *-------------------------------------------------------------------------
 */
#ifndef OUTBOX_SESSION_H
#define OUTBOX_SESSION_H

/* owner.c: the setting outbox.as_owner, and what is refused while it is on. */
extern void outbox_owner_init(void);

/* capture_create.c: looks at triggers with outbox_capture() when they are created. */
extern void outbox_capture_init(void);

/* ddl.c: keeps workers out of a database while DROP DATABASE and the like run. */
extern void outbox_ddl_install_hook(void);

#endif							/* OUTBOX_SESSION_H */
