/*-------------------------------------------------------------------------
 *
 * loopback.h
 *		Does what is sent to an address leave this host?
 *
 * Asked of the address that is connected to, and never of a name: "localhost" is
 * what a resolver makes of it.  0.0.0.0 and ::, which the kernel takes for this
 * host, are no addresses of anybody and count as foreign.  Plain C without a
 * PostgreSQL header, so that test/unit can drive it alone.
 *
 *-------------------------------------------------------------------------
 */
#ifndef OUTBOX_LOOPBACK_H
#define OUTBOX_LOOPBACK_H

#include <netinet/in.h>
#include <stdbool.h>
#include <string.h>
#include <sys/socket.h>

#define OUTBOX_LOOPBACK_NET 127 /* the first of four bytes */

/* 127.0.0.0/8, also mapped into IPv6, and ::1; false for all else. */
static inline bool
outbox_is_loopback(const struct sockaddr *address)
{
	if (address->sa_family == AF_INET)
	{
		struct sockaddr_in in;

		memcpy(&in, address, sizeof(in));
		return ntohl(in.sin_addr.s_addr) >> 24 == OUTBOX_LOOPBACK_NET;
	}
	if (address->sa_family == AF_INET6)
	{
		struct sockaddr_in6 in6;

		memcpy(&in6, address, sizeof(in6));
		if (IN6_IS_ADDR_V4MAPPED(&in6.sin6_addr))
			return in6.sin6_addr.s6_addr[12] == OUTBOX_LOOPBACK_NET;
		return IN6_IS_ADDR_LOOPBACK(&in6.sin6_addr);
	}
	return false;
}

#endif							/* OUTBOX_LOOPBACK_H */
