/*-------------------------------------------------------------------------
 *
 * environment.h
 *		Is this the server that the messages belong to, or a copy of it?
 *
 *-------------------------------------------------------------------------
 */
#ifndef OUTBOX_ENVIRONMENT_H
#define OUTBOX_ENVIRONMENT_H

#include "access/xlogdefs.h"

/* What outbox.environment is when no file sets it. */
extern const char *outbox_environment_default(void);

/*
 * NULL, or why outbox.environment tells nothing: it is in a file that a copy of
 * the data directory has, too.  source is the file that sets it, or NULL.
 */
extern char *outbox_environment_unusable(const char *source);

/*
 * The last timeline that was left by a recovery to a target that somebody had
 * set, and how (for the life of the process); 0 when there was none.
 */
extern TimeLineID outbox_environment_restored(char **how);

#endif							/* OUTBOX_ENVIRONMENT_H */
