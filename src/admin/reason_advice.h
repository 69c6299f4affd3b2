/*-------------------------------------------------------------------------
 *
 * reason_advice.h
 *		What to do about each reason.
 *
 *-------------------------------------------------------------------------
 */
#ifndef OUTBOX_REASON_ADVICE_H
#define OUTBOX_REASON_ADVICE_H

#include "reason_codes.h"

typedef struct OutboxAdvice
{
	OutboxReason reason;
	const char *severity;		/* critical, warning, info */
	const char *hint;
	const char *command;		/* of a shell, or SQL; NULL: none */
} OutboxAdvice;

/* There is one for each reason but NONE. */
extern const OutboxAdvice *outbox_reason_advice(OutboxReason reason);

#endif							/* OUTBOX_REASON_ADVICE_H */
