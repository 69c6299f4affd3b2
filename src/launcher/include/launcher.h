/*-------------------------------------------------------------------------
 *
 * launcher.h
 *		The launcher: which databases have relay workers.
 *
 *-------------------------------------------------------------------------
 */
#ifndef OUTBOX_LAUNCHER_H
#define OUTBOX_LAUNCHER_H

/* In the postmaster: registers the process. */
extern void outbox_launcher_register(void);

extern PGDLLEXPORT void outbox_launcher_main(Datum main_arg);

#endif							/* OUTBOX_LAUNCHER_H */
