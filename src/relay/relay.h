/*-------------------------------------------------------------------------
 *
 * relay.h
 *		The relay worker: entry point of the process.
 *
 *-------------------------------------------------------------------------
 */
#ifndef OUTBOX_RELAY_H
#define OUTBOX_RELAY_H

extern PGDLLEXPORT void outbox_relay_main(Datum main_arg);

#endif							/* OUTBOX_RELAY_H */
