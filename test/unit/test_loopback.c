/*-------------------------------------------------------------------------
 *
 * test_loopback.c
 *		Unit tests of src/broker/loopback.h.
 *
 *-------------------------------------------------------------------------
 */
#include "check.h"
#include "loopback.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/un.h>

static void
is(const char *text, bool expected)
{
	struct sockaddr_storage address;
	struct sockaddr_in *in = (struct sockaddr_in *) &address;
	struct sockaddr_in6 *in6 = (struct sockaddr_in6 *) &address;

	memset(&address, 0, sizeof(address));
	if (inet_pton(AF_INET, text, &in->sin_addr) == 1)
		in->sin_family = AF_INET;
	else if (inet_pton(AF_INET6, text, &in6->sin6_addr) == 1)
		in6->sin6_family = AF_INET6;
	check(outbox_is_loopback((struct sockaddr *) &address) == expected,
		  "%s is %sloopback", text, expected ? "" : "not ");
}

int
main(void)
{
	struct sockaddr_un un = {.sun_family = AF_UNIX};

	is("127.0.0.1", true);
	is("127.0.1.1", true);
	is("127.255.255.254", true);
	is("::1", true);
	is("::ffff:127.0.0.1", true);
	is("::ffff:127.1.2.3", true);

	is("126.255.255.255", false);
	is("128.0.0.1", false);
	is("1.0.0.127", false);
	is("10.0.0.1", false);
	is("0.0.0.0", false);
	is("255.255.255.255", false);
	is("::", false);
	is("::2", false);
	is("1::1", false);
	is("::127.0.0.1", false);
	is("::ffff:10.0.0.1", false);
	is("::ffff:0.0.0.127", false);
	is("fe80::1", false);
	is("64:ff9b::7f00:1", false);
	check(!outbox_is_loopback((struct sockaddr *) &un), "another family is not");
	return done();
}
