/*-------------------------------------------------------------------------
 *
 * broker_reason.h
 *		The reason of an error of the link.
 *
 * Plain C without a PostgreSQL header, so that test/unit can drive it alone.
 *
 *-------------------------------------------------------------------------
 */
#ifndef OUTBOX_BROKER_REASON_H
#define OUTBOX_BROKER_REASON_H

#include "reason_codes.h"

/* connect() or the socket said that. */
extern OutboxReason outbox_reason_of_errno(int error);

/* The broker closed the connection with that code and text. */
extern OutboxReason outbox_reason_of_login(int code, const char *text);

/* What connection.blocked says. */
extern OutboxReason outbox_reason_of_alarm(const char *text);

/* OpenSSL did not accept the broker's certificate: X509_V_ERR_... */
extern OutboxReason outbox_reason_of_verify(int error);

/*
 * The broker sent an alert of TLS (RFC 8446, 6.2): it did not like our
 * certificate, or something else.
 */
extern OutboxReason outbox_reason_of_alert(int alert);

/* OpenSSL gave the handshake up for that reason: SSL_R_... */
extern OutboxReason outbox_reason_of_ssl(int reason);

#endif							/* OUTBOX_BROKER_REASON_H */
