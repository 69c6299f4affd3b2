/*-------------------------------------------------------------------------
 *
 * broker_reason.c
 *		The reason of an error of the link.
 *
 * RabbitMQ says much with few codes, so that its words must be looked at; they
 * are those of 3.8 to 4.3.  What they quote (names of users and virtual hosts)
 * is of the administrator's own settings.
 *
 *-------------------------------------------------------------------------
 */
#include "broker_reason.h"

#include <errno.h>
#include <openssl/ssl.h>
#include <openssl/x509_vfy.h>
#include <stdbool.h>
#include <string.h>

/* AMQP reply codes; the library's header is not for plain C. */
#define INVALID_PATH	402
#define ACCESS_REFUSED	403
#define NOT_ALLOWED		530		/* RabbitMQ uses it for virtual hosts */

OutboxReason
outbox_reason_of_errno(int error)
{
	switch (error)
	{
		case ECONNREFUSED:
			return OUTBOX_REASON_REFUSED;
		case ETIMEDOUT:
			return OUTBOX_REASON_TCP_TIMEOUT;
		case EMFILE:
		case ENFILE:
		case ENOBUFS:
		case ENOMEM:
		case EADDRNOTAVAIL:		/* no local port is left */
			return OUTBOX_REASON_NO_RESOURCES;
		case ECONNRESET:
		case EPIPE:
			return OUTBOX_REASON_RESET;
		default:
			return OUTBOX_REASON_UNREACHABLE;
	}
}

OutboxReason
outbox_reason_of_login(int code, const char *text)
{
	/* of a virtual host, a user or a node; with 530 and with others */
	if (strstr(text, "connection limit") != NULL ||
		strstr(text, "number of channels opened") != NULL)
		return OUTBOX_REASON_CONNECTION_LIMIT;
	if (strstr(text, "vhost") != NULL && strstr(text, "is down") != NULL)
		return OUTBOX_REASON_VHOST_DOWN;
	switch (code)
	{
		case ACCESS_REFUSED:
			return OUTBOX_REASON_LOGIN_REFUSED;
		case INVALID_PATH:
			return OUTBOX_REASON_VHOST_MISSING;
		case NOT_ALLOWED:
			return strstr(text, "not found") != NULL ?
				OUTBOX_REASON_VHOST_MISSING : OUTBOX_REASON_VHOST_FORBIDDEN;
		default:
			return OUTBOX_REASON_CLOSED;
	}
}

OutboxReason
outbox_reason_of_alarm(const char *text)
{
	bool		memory = strstr(text, "low on memory") != NULL;
	bool		disk = strstr(text, "low on disk") != NULL ||
		strstr(text, "& disk") != NULL;

	/* Both: neither command alone would help. */
	if (memory == disk)
		return OUTBOX_REASON_ALARM_OTHER;
	return memory ? OUTBOX_REASON_ALARM_MEMORY : OUTBOX_REASON_ALARM_DISK;
}

OutboxReason
outbox_reason_of_verify(int error)
{
	switch (error)
	{
		case X509_V_ERR_HOSTNAME_MISMATCH:
		case X509_V_ERR_IP_ADDRESS_MISMATCH:
			return OUTBOX_REASON_TLS_HOST;
		case X509_V_ERR_CERT_HAS_EXPIRED:
			return OUTBOX_REASON_TLS_EXPIRED;
		case X509_V_ERR_CERT_NOT_YET_VALID:
			return OUTBOX_REASON_TLS_NOT_YET;
		default:
			return OUTBOX_REASON_TLS_UNTRUSTED;
	}
}

OutboxReason
outbox_reason_of_alert(int alert)
{
	switch (alert)
	{
		case SSL_AD_BAD_CERTIFICATE:
		case SSL_AD_UNSUPPORTED_CERTIFICATE:
		case SSL_AD_CERTIFICATE_REVOKED:
		case SSL_AD_CERTIFICATE_EXPIRED:
		case SSL_AD_CERTIFICATE_UNKNOWN:
		case SSL_AD_UNKNOWN_CA:
		case SSL_AD_ACCESS_DENIED:
		case SSL_AD_CERTIFICATE_REQUIRED:
			return OUTBOX_REASON_TLS_CLIENT;
		case SSL_AD_PROTOCOL_VERSION:
			return OUTBOX_REASON_TLS_VERSION;
		default:
			return OUTBOX_REASON_TLS_HANDSHAKE;
	}
}

OutboxReason
outbox_reason_of_ssl(int reason)
{
	switch (reason)
	{
		case SSL_R_UNSUPPORTED_PROTOCOL:
		case SSL_R_WRONG_SSL_VERSION:
		case SSL_R_VERSION_TOO_LOW:
			return OUTBOX_REASON_TLS_VERSION;
			/* what came is no record of TLS */
		case SSL_R_WRONG_VERSION_NUMBER:
		case SSL_R_PACKET_LENGTH_TOO_LONG:
		case SSL_R_HTTP_REQUEST:
			return OUTBOX_REASON_TLS_NONE;
		default:
			return OUTBOX_REASON_TLS_HANDSHAKE;
	}
}
