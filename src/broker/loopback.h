/*-------------------------------------------------------------------------
 *
 * loopback.h
 *		Does what is sent to an address leave this host?
 *
 * Plain C without a PostgreSQL header, so that test/unit can drive it alone.
 *
 *-------------------------------------------------------------------------
 */
#ifndef OUTBOX_LOOPBACK_H
#define OUTBOX_LOOPBACK_H

#include <stdbool.h>
#include <sys/socket.h>

/* 127.0.0.0/8, also mapped into IPv6, and ::1; false for all else. */
extern bool outbox_is_loopback(const struct sockaddr *address);

#endif							/* OUTBOX_LOOPBACK_H */
