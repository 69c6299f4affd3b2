/*-------------------------------------------------------------------------
 *
 * reasons.h
 *		What to do about each reason.
 *
 *-------------------------------------------------------------------------
 */
#ifndef OUTBOX_REASONS_H
#define OUTBOX_REASONS_H

#include "reason.h"

typedef struct OutboxAdvice
{
	OutboxReason reason;
	const char *severity;		/* critical, warning, info */
	const char *hint;
	const char *command;		/* of a shell, or SQL; NULL: none */
} OutboxAdvice;

/* There is one for each reason but NONE. */
extern const OutboxAdvice *outbox_reason_advice(OutboxReason reason);

#endif							/* OUTBOX_REASONS_H */
