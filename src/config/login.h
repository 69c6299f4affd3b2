/*-------------------------------------------------------------------------
 *
 * login.h
 *		What the relay logs in with, as the settings have it.
 *
 *-------------------------------------------------------------------------
 */
#ifndef OUTBOX_LOGIN_H
#define OUTBOX_LOGIN_H

#include "uri.h"

/*
 * The password for that host of the URI, palloc'd; an empty one where the client
 * certificate takes its place, and no file is read.  NULL on success, else a detail
 * sentence, and *reason.
 */
extern const char *outbox_login_password(const OutboxUri *uri, int host,
										 char **password, OutboxReason *reason);

#endif							/* OUTBOX_LOGIN_H */
