/*-------------------------------------------------------------------------
 *
 * broker_tls.c
 *		Opens the link's socket with TLS.
 *
 * Verification is on unless a superuser turned it off.  It happens inside the
 * TLS handshake, so nothing of ours (no password) is sent to a stranger, and
 * there is no way back to plain TCP.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509_vfy.h>
#include <openssl/x509v3.h>
#include <time.h>

#include "broker_internal.h"
#include "wait_event.h"
#include "watchdog.h"

/*
 * What OpenSSL tells of the connection while it calls us back.  The library shows
 * neither, in none of its versions, and keeps the SSL object to itself; there is
 * no better place for it, and one link in a process.
 */
static int	verify_error;		/* why the verification failed; X509_V_OK */
static int	alert_received = -1;	/* why the other end gives up; -1: it does not */
static int64 certificate_ends;	/* the broker's; seconds of Unix, 0: not known */

static void
note_certificate(const X509 *certificate)
{
	struct tm	ends;

	if (certificate != NULL &&
		ASN1_TIME_to_tm(X509_get0_notAfter(certificate), &ends) == 1)
		certificate_ends = (int64) timegm(&ends);
}

static int
note_verify_result(int ok, X509_STORE_CTX *store)
{
	/* also of one that is not accepted, which nobody shows us later */
	note_certificate(X509_STORE_CTX_get0_cert(store));
	if (!ok)
		verify_error = X509_STORE_CTX_get_error(store);
	return ok;
}

static const char *
verify_text(int error)
{
	return error == X509_V_ERR_HOSTNAME_MISMATCH ?
		"it is for another host name" : X509_verify_cert_error_string(error);
}

/*
 * The link whose handshake is under way.  The library, which is given an address,
 * tells that to the server as the name that it wants (SNI): before anything is sent,
 * put the true one in its place.  And from then on there is a socket that the
 * watchdog can shut down, should somebody not want to wait for the handshake.
 */
static OutboxLink *opening;

static void
heed_progress(const SSL *ssl, int where, int ret)
{
	if ((where & SSL_CB_HANDSHAKE_START) != 0 && opening != NULL)
	{
		(void) SSL_set_tlsext_host_name(unconstify(SSL *, ssl),
										opening->target.host);
		outbox_watchdog_guard_socket(SSL_get_fd(ssl), OUTBOX_CONNECT_MS);
		opening->guarded = true;
	}
	if ((where & SSL_CB_HANDSHAKE_DONE) != 0)
	{
		X509	   *certificate = SSL_get_peer_certificate(ssl);

		/* where nothing is verified nobody has seen it yet */
		note_certificate(certificate);
		X509_free(certificate);
	}
	/* with close_notify it says goodbye, and nothing of a reason */
	if ((where & SSL_CB_READ_ALERT) == SSL_CB_READ_ALERT &&
		(ret & 0xff) != SSL_AD_CLOSE_NOTIFY)
		alert_received = ret & 0xff;
}

int
outbox_link_tls_alert(const OutboxLink *link, const char **name)
{
	if (!link->target.tls || alert_received < 0)
	{
		*name = NULL;
		return -1;
	}
	/* a name that OpenSSL lacks up to 3.x */
	*name = alert_received == SSL_AD_CERTIFICATE_REQUIRED ?
		"certificate required" : SSL_alert_desc_string_long(alert_received);
	return alert_received;
}

static const char *
openssl_reason(void)
{
	unsigned long code = ERR_peek_last_error();
	const char *reason = code != 0 ? ERR_reason_error_string(code) : NULL;

	return reason != NULL ? reason : "no further detail";
}

static OutboxLinkStatus
fail_tls(OutboxLink *link, OutboxReason reason, const char *what,
		 const char *text)
{
	return outbox_link_fail(link, reason,
							"could not connect to \"%s:%d\": %s: %s",
							link->target.host, link->target.port, what, text);
}

static OutboxLinkStatus
set_verification(OutboxLink *link, amqp_socket_t *sock)
{
	SSL_CTX    *context = amqp_ssl_socket_get_context(sock);
	X509_VERIFY_PARAM *param = SSL_CTX_get0_param(context);
	bool		verify = link->target.tls_verify;

	/* the library knows the address only, and would compare that */
	amqp_ssl_socket_set_verify_hostname(sock, 0);
	amqp_ssl_socket_set_verify_peer(sock, verify);
	SSL_CTX_set_info_callback(context, heed_progress);
	if (!verify)
		return OUTBOX_LINK_OK;

	SSL_CTX_set_verify(context, SSL_VERIFY_PEER, note_verify_result);
	X509_VERIFY_PARAM_set_hostflags(param, X509_CHECK_FLAG_NO_PARTIAL_WILDCARDS);
	if (X509_VERIFY_PARAM_set1_ip_asc(param, link->target.host) != 1 &&
		X509_VERIFY_PARAM_set1_host(param, link->target.host, 0) != 1)
		return fail_tls(link, OUTBOX_REASON_TLS_HANDSHAKE,
						"could not verify the host name", openssl_reason());

	if (link->target.tls_ca_file[0] == '\0')
	{
		if (SSL_CTX_set_default_verify_paths(context) != 1)
			return fail_tls(link, OUTBOX_REASON_TLS_FILES,
							"could not load the system's CA certificates",
							openssl_reason());
	}
	else if (amqp_ssl_socket_set_cacert(sock, link->target.tls_ca_file) !=
			 AMQP_STATUS_OK)
		return fail_tls(link, OUTBOX_REASON_TLS_FILES,
						"could not load the CA file", openssl_reason());
	return OUTBOX_LINK_OK;
}

static OutboxLinkStatus
set_certificate(OutboxLink *link, amqp_socket_t *sock)
{
	const char *cert = link->target.tls_cert_file;
	const char *key = link->target.tls_key_file;

	/*
	 * Always: without it OpenSSL would ask for the passphrase of an encrypted
	 * key on the terminal, and wait.
	 */
	amqp_ssl_socket_set_key_passwd(sock, "");
	if (cert[0] == '\0')
		return OUTBOX_LINK_OK;
	if (amqp_ssl_socket_set_key(sock, cert, key[0] != '\0' ? key : cert) !=
		AMQP_STATUS_OK)
		return fail_tls(link, OUTBOX_REASON_TLS_FILES,
						"could not load the client certificate or its key",
						openssl_reason());
	return OUTBOX_LINK_OK;
}

static OutboxLinkStatus
fail_open(OutboxLink *link, int status)
{
	int			save_errno = errno;
	const char *alert_name;
	int			alert = outbox_link_tls_alert(link, &alert_name);

	link->certificate_ends = certificate_ends;
	if (verify_error != X509_V_OK)
		return fail_tls(link, outbox_reason_of_verify(verify_error),
						"server certificate was not accepted",
						verify_text(verify_error));
	if (alert >= 0)
		return fail_tls(link, outbox_reason_of_alert(alert),
						"TLS was refused by the broker", alert_name);
	switch (status)
	{
		case AMQP_STATUS_SSL_PEER_VERIFY_FAILED:
			return fail_tls(link, OUTBOX_REASON_TLS_UNTRUSTED,
							"server certificate was not accepted",
							openssl_reason());
		case AMQP_STATUS_SSL_ERROR:
		case AMQP_STATUS_SSL_CONNECTION_FAILED:
			return fail_tls(link, OUTBOX_REASON_TLS_HANDSHAKE,
							"TLS handshake failed", openssl_reason());
		case AMQP_STATUS_TIMEOUT:
			return fail_tls(link, OUTBOX_REASON_TLS_TIMEOUT,
							"TCP or TLS handshake", "timed out");
		case AMQP_STATUS_SOCKET_ERROR:
			(void) fail_tls(link, outbox_reason_of_errno(save_errno),
							"connection failed", strerror(save_errno));
			link->error.unreachable = true;
			return OUTBOX_LINK_LOST;
		default:
			return fail_tls(link, OUTBOX_REASON_TLS_HANDSHAKE,
							"connection failed", amqp_error_string2(status));
	}
}

/*
 * Connects to the address, as the host that was asked for.  Blocks for up to
 * OUTBOX_CONNECT_MS.  Returns AGAIN when TLS is up, for the socket is writable and
 * the login comes next.
 */
OutboxLinkStatus
outbox_link_open_tls(OutboxLink *link, const char *address)
{
	int			limit_ms = Max(outbox_watchdog_stop_left(OUTBOX_CONNECT_MS), 1);
	struct timeval patience = {limit_ms / 1000, (limit_ms % 1000) * 1000};
	amqp_socket_t *sock;
	OutboxLinkStatus status;
	int			rc;

	link->conn = amqp_new_connection();
	sock = link->conn != NULL ? amqp_ssl_socket_new(link->conn) : NULL;
	if (sock == NULL)
		return fail_tls(link, OUTBOX_REASON_NO_RESOURCES, "TLS",
						"out of memory");

	ERR_clear_error();
	verify_error = X509_V_OK;
	alert_received = -1;
	certificate_ends = 0;
	status = set_verification(link, sock);
	if (status == OUTBOX_LINK_OK)
		status = set_certificate(link, sock);
	if (status != OUTBOX_LINK_OK)
		return status;
	if (amqp_ssl_socket_set_ssl_versions(sock, AMQP_TLSv1_2,
										 AMQP_TLSvLATEST) != AMQP_STATUS_OK)
		return fail_tls(link, OUTBOX_REASON_TLS_HANDSHAKE, "TLS",
						"this library knows no TLS 1.2");

	outbox_wait_start(OUTBOX_WAIT_LOGIN);
	opening = link;
	rc = amqp_socket_open_noblock(sock, address, link->target.port, &patience);
	opening = NULL;
	outbox_wait_end();
	if (outbox_link_unguard(link))
		rc = AMQP_STATUS_TIMEOUT;
	if (rc != AMQP_STATUS_OK)
		return fail_open(link, rc);
	link->certificate_ends = certificate_ends;
	link->fd = amqp_get_sockfd(link->conn);
	outbox_link_socket_options(link->fd, link->target.heartbeat_s > 0);
	return OUTBOX_LINK_AGAIN;
}
