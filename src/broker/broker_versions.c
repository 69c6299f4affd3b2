/*-------------------------------------------------------------------------
 *
 * broker_versions.c
 *		Which librabbitmq and OpenSSL this process runs with.
 *
 * Both are loaded at run time, so that they may be other ones than those of the
 * headers that we were built with.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <openssl/crypto.h>
#include <openssl/opensslv.h>

#include "amqp_compat.h"
#include "broker.h"

void
outbox_link_versions(OutboxLinkVersions *versions)
{
	versions->librabbitmq = amqp_version();
	versions->librabbitmq_built = AMQP_VERSION_STRING;
	versions->openssl = OpenSSL_version(OPENSSL_VERSION);
	versions->openssl_built = OPENSSL_VERSION_TEXT;
}
