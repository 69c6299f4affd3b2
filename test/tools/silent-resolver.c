/*-------------------------------------------------------------------------
 *
 * silent-resolver.c
 *		LD_PRELOAD: the C library's resolver asks name servers that tests choose.
 *
 * With SILENT_RESOLVER_PORT set, each getaddrinfo() asks as many name servers
 * as SILENT_RESOLVER_COUNT says (default 1), all at that UDP port of 127.0.0.1,
 * instead of those of /etc/resolv.conf, and looks in the domain
 * SILENT_RESOLVER_SEARCH, if that is set, too.  All else is the library's own:
 * its retries, its timeouts, and what RES_OPTIONS makes of them.
 *
 *-------------------------------------------------------------------------
 */
#define _GNU_SOURCE

#include <arpa/inet.h>
#include <dlfcn.h>
#include <netdb.h>
#include <netinet/in.h>
#include <resolv.h>
#include <stdlib.h>

static void
redirect(const char *port)
{
	const char *count = getenv("SILENT_RESOLVER_COUNT");
	char	   *search = getenv("SILENT_RESOLVER_SEARCH");

	if (!(_res.options & RES_INIT) && res_init() != 0)
		abort();
	_res.nscount = count != NULL ? atoi(count) : 1;
	if (_res.nscount < 1 || _res.nscount > MAXNS)
		abort();
	for (int i = 0; i < _res.nscount; i++)
	{
		_res.nsaddr_list[i].sin_family = AF_INET;
		_res.nsaddr_list[i].sin_port = htons(atoi(port));
		_res.nsaddr_list[i].sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	}
	_res.dnsrch[0] = search;
	_res.dnsrch[1] = NULL;
}

int
getaddrinfo(const char *node, const char *service,
			const struct addrinfo *hints, struct addrinfo **result)
{
	int			(*next) (const char *, const char *, const struct addrinfo *,
						 struct addrinfo **) = dlsym(RTLD_NEXT, "getaddrinfo");
	const char *port = getenv("SILENT_RESOLVER_PORT");

	if (port != NULL)
		redirect(port);
	return next(node, service, hints, result);
}
