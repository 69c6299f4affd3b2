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

#include <netdb.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509_vfy.h>
#include <openssl/x509v3.h>
#include <time.h>

#include "broker_internal.h"
#include "settings.h"
#include "wait_event.h"
#include "watchdog.h"

/*
 * What OpenSSL tells of the connection while it calls us back.  The library shows
 * neither, in none of its versions, and keeps the SSL object to itself; there is
 * no better place for it, and one link in a process.
 */
static int	verify_error;		/* why the verification failed; X509_V_OK */
static int	alert_received = -1;	/* why the other end gives up; -1: it does
									 * not */
static bool certificate_wanted; /* of ours, which there is not */
static OutboxLink *opening;		/* whose handshake is under way, or NULL */
static char server_name[NI_MAXHOST];	/* as certificates have it */
static bool server_is_address;

static void
note_certificate(const X509 *certificate)
{
	struct tm	ends;

	if (opening != NULL && certificate != NULL &&
		ASN1_TIME_to_tm(X509_get0_notAfter(certificate), &ends) == 1)
		opening->certificate_ends = (int64) timegm(&ends);
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

/* Called when the broker asks for one, and we have none that fits. */
static int
note_certificate_wanted(SSL *ssl, X509 **certificate, EVP_PKEY **key)
{
	(void) ssl;
	(void) certificate;
	(void) key;
	certificate_wanted = true;
	return 0;
}

static const char *
verify_text(int error)
{
	return error == X509_V_ERR_HOSTNAME_MISMATCH ?
		"it is for another host name" : X509_verify_cert_error_string(error);
}

/*
 * The library, which is given an address, tells that to the server as the name that
 * it wants (SNI): before anything is sent, put the true one in its place, or nothing,
 * as an address must not be told so.  And from then on there is a socket that the
 * watchdog can shut down, should somebody not want to wait for the handshake, and
 * the connection that messages are written to.
 */
static void
note_progress(const SSL *ssl, int where, int ret)
{
	if ((where & SSL_CB_HANDSHAKE_START) != 0 && opening != NULL)
	{
		(void) SSL_set_tlsext_host_name(unconstify(SSL *, ssl),
										server_is_address ? NULL : server_name);
		outbox_watchdog_guard_socket(SSL_get_fd(ssl), OUTBOX_CONNECT_MS);
		opening->guarded = true;
		opening->ssl = unconstify(SSL *, ssl);
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

OutboxReason
outbox_link_tls_refusal(const OutboxLink *link, bool closed, const char **text)
{
	OutboxReason reason;

	*text = NULL;
	if (!link->target.tls || (alert_received < 0 && !closed))
		return OUTBOX_REASON_NONE;
	reason = alert_received < 0 ? OUTBOX_REASON_NONE :
		outbox_reason_of_alert(alert_received);
	if (reason != OUTBOX_REASON_NONE)
		*text = SSL_alert_desc_string_long(alert_received);

	/*
	 * TLS 1.2 has no alert for it, and OpenSSL up to 3.x no name for that of
	 * 1.3, which can get lost with the connection when we are about to send.
	 */
	if (certificate_wanted && (reason == OUTBOX_REASON_NONE ||
							   reason == OUTBOX_REASON_TLS_CLIENT ||
							   alert_received == SSL_AD_HANDSHAKE_FAILURE))
	{
		reason = OUTBOX_REASON_TLS_CLIENT_WANTED;
		*text = outbox_tls_cert_file[0] == '\0' ?
			"it wants a certificate of ours, and outbox.tls_cert_file is not set" :
			"it wants a certificate of another kind than that of outbox.tls_cert_file";
	}
	return reason;
}

const char *
outbox_link_openssl_text(void)
{
	unsigned long code = ERR_peek_last_error();
	const char *reason = code != 0 ? ERR_reason_error_string(code) : NULL;

	return reason != NULL ? reason : "no further detail";
}

OutboxLinkStatus
outbox_link_fail_tls(OutboxLink *link, OutboxReason reason, const char *what,
					 const char *text)
{
	return outbox_link_fail(link, reason,
							"could not connect to \"%s:%d\": %s: %s",
							link->target.host, link->target.port, what, text);
}

OutboxLinkStatus
outbox_link_fail_tls_memory(OutboxLink *link)
{
	return outbox_link_fail_tls(link, OUTBOX_REASON_NO_RESOURCES, "TLS",
								"out of memory");
}

/*
 * The host as certificates have it: without the dot that keeps a resolver from
 * trying domains, and without the zone of an address.
 */
static void
name_server(const char *host)
{
	size_t		len = strcspn(host, "%");

	if (len > 1 && host[len - 1] == '.')
		len--;
	strlcpy(server_name, host, Min(len + 1, sizeof(server_name)));
}

static OutboxLinkStatus
set_verification(OutboxLink *link, amqp_socket_t *sock)
{
	SSL_CTX    *context = amqp_ssl_socket_get_context(sock);
	X509_VERIFY_PARAM *param = SSL_CTX_get0_param(context);
	bool		verify = outbox_tls_verify;

	/* the library knows the address only, and would compare that */
	amqp_ssl_socket_set_verify_hostname(sock, 0);
	amqp_ssl_socket_set_verify_peer(sock, verify);
	SSL_CTX_set_info_callback(context, note_progress);
	SSL_CTX_set_client_cert_cb(context, note_certificate_wanted);
	/* a broker has no use for it, and could keep us busy with it */
	SSL_CTX_set_options(context, SSL_OP_NO_RENEGOTIATION);
	name_server(link->target.host);
	server_is_address = X509_VERIFY_PARAM_set1_ip_asc(param, server_name) == 1;
	if (!verify)
		return OUTBOX_LINK_OK;

	SSL_CTX_set_verify(context, SSL_VERIFY_PEER, note_verify_result);
	X509_VERIFY_PARAM_set_hostflags(param, X509_CHECK_FLAG_NO_PARTIAL_WILDCARDS);
	if (!server_is_address &&
		X509_VERIFY_PARAM_set1_host(param, server_name, 0) != 1)
		return outbox_link_fail_tls(link, OUTBOX_REASON_TLS_HANDSHAKE,
									"could not verify the host name",
									outbox_link_openssl_text());
	return OUTBOX_LINK_OK;
}

/* Neither side has said why; the last error of OpenSSL may. */
static OutboxLinkStatus
fail_handshake(OutboxLink *link)
{
	unsigned long error = ERR_peek_last_error();
	OutboxReason reason = ERR_GET_LIB(error) == ERR_LIB_SSL ?
		outbox_reason_of_ssl(ERR_GET_REASON(error)) :
		OUTBOX_REASON_TLS_HANDSHAKE;
	const char *text = outbox_link_openssl_text();

	/* as who expects something else may do, without a word */
	if (error == 0)
		text = "the other end closed the connection";
	if (reason == OUTBOX_REASON_TLS_NONE)
		text = "what answers there does not speak TLS";
	return outbox_link_fail_tls(link, reason, "TLS handshake failed", text);
}

static OutboxLinkStatus
fail_open(OutboxLink *link, int status)
{
	int			save_errno = errno;
	const char *refusal_text;
	OutboxReason refusal = outbox_link_tls_refusal(link, false, &refusal_text);

	if (verify_error != X509_V_OK)
		return outbox_link_fail_tls(link, outbox_reason_of_verify(verify_error),
									"server certificate was not accepted",
									verify_text(verify_error));
	if (refusal != OUTBOX_REASON_NONE)
		return outbox_link_fail_tls(link, refusal,
									"TLS was refused by the broker",
									refusal_text);
	switch (status)
	{
		case AMQP_STATUS_SSL_PEER_VERIFY_FAILED:
			return outbox_link_fail_tls(link, OUTBOX_REASON_TLS_UNTRUSTED,
										"server certificate was not accepted",
										outbox_link_openssl_text());
		case AMQP_STATUS_SSL_ERROR:
		case AMQP_STATUS_SSL_CONNECTION_FAILED:
			return fail_handshake(link);
		case AMQP_STATUS_TIMEOUT:
			return outbox_link_fail_tls(link, OUTBOX_REASON_TLS_TIMEOUT,
										"TCP or TLS handshake", "timed out");
		case AMQP_STATUS_SOCKET_ERROR:
			(void) outbox_link_fail_tls(link, outbox_reason_of_errno(save_errno),
										"connection failed",
										strerror(save_errno));
			link->error.unreachable = true;
			return OUTBOX_LINK_LOST;
		default:
			return outbox_link_fail_tls(link, OUTBOX_REASON_TLS_HANDSHAKE,
										"connection failed",
										amqp_error_string2(status));
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
		return outbox_link_fail_tls_memory(link);

	ERR_clear_error();
	verify_error = X509_V_OK;
	alert_received = -1;
	certificate_wanted = false;
	status = set_verification(link, sock);
	if (status == OUTBOX_LINK_OK)
		status = outbox_link_load_tls_files(link,
											amqp_ssl_socket_get_context(sock));
	if (status != OUTBOX_LINK_OK)
		return status;
	if (amqp_ssl_socket_set_ssl_versions(sock, AMQP_TLSv1_2,
										 AMQP_TLSvLATEST) != AMQP_STATUS_OK)
		return outbox_link_fail_tls(link, OUTBOX_REASON_TLS_HANDSHAKE, "TLS",
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
	/* Without it messages would go out as they are. */
	if (link->ssl == NULL)
		return outbox_link_fail_tls(link, OUTBOX_REASON_TLS_HANDSHAKE, "TLS",
						"this library has not told of its handshake");
	link->fd = amqp_get_sockfd(link->conn);
	outbox_link_socket_options(link->fd, link->target.heartbeat_s > 0);
	return OUTBOX_LINK_AGAIN;
}
