/*-------------------------------------------------------------------------
 *
 * test_broker_reason.c
 *		Unit tests of src/broker/broker_reason.c.
 *
 * The texts are RabbitMQ's, of several versions.
 *
 *-------------------------------------------------------------------------
 */
#include "broker_reason.h"
#include "check.h"

#include <errno.h>
#include <openssl/ssl.h>
#include <openssl/x509_vfy.h>

static void
is(OutboxReason reason, OutboxReason expected, const char *what)
{
	check(reason == expected, "%s: \"%s\"", what, outbox_reason_name(reason));
}

static void
login(int code, const char *text, OutboxReason expected)
{
	is(outbox_reason_of_login(code, text), expected, text);
}

static void
test_login(void)
{
	login(403, "ACCESS_REFUSED - Login was refused using authentication mechanism PLAIN. For details see the broker logfile.",
		  OUTBOX_REASON_LOGIN_REFUSED);
	login(530, "NOT_ALLOWED - vhost shop not found",
		  OUTBOX_REASON_VHOST_MISSING);
	login(402, "INVALID_PATH - unknown virtual host",
		  OUTBOX_REASON_VHOST_MISSING);
	login(530, "NOT_ALLOWED - access to vhost 'shop' refused for user 'app'",
		  OUTBOX_REASON_VHOST_FORBIDDEN);
	login(530, "NOT_ALLOWED - access to vhost 'shop' refused for user 'app': connection limit (10) is reached",
		  OUTBOX_REASON_CONNECTION_LIMIT);
	login(530, "NOT_ALLOWED - connection refused for user 'app': user connection limit (1) is reached",
		  OUTBOX_REASON_CONNECTION_LIMIT);
	login(530, "NOT_ALLOWED - connection refused: node connection limit (1) is reached",
		  OUTBOX_REASON_CONNECTION_LIMIT);
	login(530, "NOT_ALLOWED - number of channels opened for user 'app' has reached the maximum allowed user limit of (1)",
		  OUTBOX_REASON_CONNECTION_LIMIT);
	login(541, "INTERNAL_ERROR - access to vhost 'shop' refused for user 'app': vhost 'shop' is down",
		  OUTBOX_REASON_VHOST_DOWN);
	login(320, "CONNECTION_FORCED - broker forced connection closure with reason 'shutdown'",
		  OUTBOX_REASON_CLOSED);
	login(541, "INTERNAL_ERROR", OUTBOX_REASON_CLOSED);
}

static void
test_alarms(void)
{
	is(outbox_reason_of_alarm("low on memory"), OUTBOX_REASON_ALARM_MEMORY,
	   "low on memory");
	is(outbox_reason_of_alarm("low on disk"), OUTBOX_REASON_ALARM_DISK,
	   "low on disk");
	is(outbox_reason_of_alarm("low on memory & disk"),
	   OUTBOX_REASON_ALARM_OTHER, "low on memory & disk");
	is(outbox_reason_of_alarm(""), OUTBOX_REASON_ALARM_OTHER,
	   "an alarm without a word");
}

static void
test_errno(void)
{
	is(outbox_reason_of_errno(ECONNREFUSED), OUTBOX_REASON_REFUSED, "ECONNREFUSED");
	is(outbox_reason_of_errno(ETIMEDOUT), OUTBOX_REASON_TCP_TIMEOUT, "ETIMEDOUT");
	is(outbox_reason_of_errno(EHOSTUNREACH), OUTBOX_REASON_UNREACHABLE, "EHOSTUNREACH");
	is(outbox_reason_of_errno(ENETUNREACH), OUTBOX_REASON_UNREACHABLE, "ENETUNREACH");
	is(outbox_reason_of_errno(EMFILE), OUTBOX_REASON_NO_RESOURCES, "EMFILE");
	is(outbox_reason_of_errno(ECONNRESET), OUTBOX_REASON_RESET, "ECONNRESET");
}

static void
test_tls(void)
{
	is(outbox_reason_of_verify(X509_V_ERR_HOSTNAME_MISMATCH), OUTBOX_REASON_TLS_HOST, "another name");
	is(outbox_reason_of_verify(X509_V_ERR_IP_ADDRESS_MISMATCH), OUTBOX_REASON_TLS_HOST, "another address");
	is(outbox_reason_of_verify(X509_V_ERR_CERT_HAS_EXPIRED), OUTBOX_REASON_TLS_EXPIRED, "expired");
	is(outbox_reason_of_verify(X509_V_ERR_CERT_NOT_YET_VALID), OUTBOX_REASON_TLS_NOT_YET, "not yet valid");
	is(outbox_reason_of_verify(X509_V_ERR_SELF_SIGNED_CERT_IN_CHAIN), OUTBOX_REASON_TLS_UNTRUSTED, "a CA that is not known");
	is(outbox_reason_of_verify(X509_V_ERR_UNABLE_TO_GET_ISSUER_CERT_LOCALLY), OUTBOX_REASON_TLS_UNTRUSTED, "no CA");
	is(outbox_reason_of_alert(SSL_AD_CERTIFICATE_REQUIRED), OUTBOX_REASON_TLS_CLIENT, "certificate_required");
	is(outbox_reason_of_alert(SSL_AD_UNKNOWN_CA), OUTBOX_REASON_TLS_CLIENT, "unknown_ca");
	is(outbox_reason_of_alert(SSL_AD_PROTOCOL_VERSION), OUTBOX_REASON_TLS_VERSION, "protocol_version");
	is(outbox_reason_of_alert(SSL_AD_HANDSHAKE_FAILURE), OUTBOX_REASON_TLS_HANDSHAKE, "handshake_failure");
	is(outbox_reason_of_ssl(SSL_R_UNSUPPORTED_PROTOCOL), OUTBOX_REASON_TLS_VERSION, "unsupported protocol");
	is(outbox_reason_of_ssl(SSL_R_WRONG_VERSION_NUMBER), OUTBOX_REASON_TLS_NONE, "wrong version number");
	is(outbox_reason_of_ssl(SSL_R_NO_CIPHERS_AVAILABLE), OUTBOX_REASON_TLS_HANDSHAKE, "no ciphers available");
}

int
main(void)
{
	test_login();
	test_alarms();
	test_errno();
	test_tls();
	return done();
}
