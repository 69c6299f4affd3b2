/*-------------------------------------------------------------------------
 *
 * overrides.h
 *		Settings that processes of ours have whatever somebody has set.
 *
 *-------------------------------------------------------------------------
 */
#ifndef OUTBOX_OVERRIDES_H
#define OUTBOX_OVERRIDES_H

/*
 * Called once, as soon as the process is connected, outside of a transaction.
 * library_path is what dynamic_library_path was before, in the files: an
 * installation may need it, and newer servers search it for what is in $libdir, too.
 * NULL: there are no other settings than those of the files.
 */
extern void outbox_override_settings(const char *library_path);

#endif							/* OUTBOX_OVERRIDES_H */
