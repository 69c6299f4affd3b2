/*-------------------------------------------------------------------------
 *
 * admin.h
 *		What operators look at and do.
 *
 *-------------------------------------------------------------------------
 */
#ifndef OUTBOX_ADMIN_H
#define OUTBOX_ADMIN_H

/* ddl.c: keeps workers out of a database while DROP DATABASE and the like run. */
extern void outbox_ddl_install_hook(void);

#endif							/* OUTBOX_ADMIN_H */
