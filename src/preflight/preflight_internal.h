/*-------------------------------------------------------------------------
 *
 * preflight_internal.h
 *		What the preflight*.c files share; nobody else includes this.
 *
 *-------------------------------------------------------------------------
 */
#ifndef OUTBOX_PREFLIGHT_INTERNAL_H
#define OUTBOX_PREFLIGHT_INTERNAL_H

#include "broker.h"
#include "clock.h"
#include "fmgr.h"
#include "uri.h"

/*
 * All that has to do with the broker, which is to leave the caller some of ten
 * seconds; and what of it is kept for exchanges when hosts do not answer.
 */
#define OUTBOX_PREFLIGHT_MS				8000
#define OUTBOX_PREFLIGHT_EXCHANGES_MS	2500

typedef enum OutboxVerdict
{
	OUTBOX_VERDICT_BAD,
	OUTBOX_VERDICT_GOOD,
	OUTBOX_VERDICT_SKIPPED		/* not tried, for the reason in detail */
} OutboxVerdict;

/* What is published to, as outbox_route says; all in the database's encoding. */
typedef struct OutboxPreflightExchange
{
	const char *name;
	const char *type;			/* NULL: it has to exist */
	const char *routes;			/* names of those that use it, for people */
} OutboxPreflightExchange;

typedef struct OutboxPreflight
{
	FunctionCallInfo fcinfo;	/* whose result gets the rows */
	OutboxMonoTime until;		/* the deadline of all of it */
	bool		usable;			/* the settings, and thus uri */
	OutboxUri	uri;
	char	   *passwords[OUTBOX_MAX_HOSTS];	/* NULL: there is none */
	OutboxLink *links[OUTBOX_MAX_HOSTS];
	OutboxLink *link;			/* of them, the first that is open; or NULL */
	const char *linked;			/* to which host */

	bool		routes_known;
	int			nexchanges;
	OutboxPreflightExchange *exchanges;
	const char *routing_key;	/* to try; NULL: none was named */
	bool		publish;		/* a real message, too */

	/* What the broker said of that message. */
	bool		answered;
	bool		acked;
	char		returned[512];	/* "": it was not */

	/* And of the exchange. */
	bool		declared;
	int			refused_code;
	char		refused[256];	/* "": it was not */
} OutboxPreflight;

/* in preflight.c */
extern void outbox_preflight_say(OutboxPreflight *preflight, const char *check,
								 OutboxVerdict verdict, const char *hint,
								 const char *detail);

/* What to do is known of the reason (outbox_reason_hint() in SQL). */
extern void outbox_preflight_fail(OutboxPreflight *preflight, const char *check,
								  OutboxReason reason, const char *detail);
extern int	outbox_preflight_left_ms(const OutboxPreflight *preflight);
extern bool outbox_preflight_wait(OutboxLink *link, int events, int limit_ms);

/* in preflight_connect.c */
extern void outbox_preflight_connect(OutboxPreflight *preflight);

/* in preflight_publish.c */
extern void outbox_preflight_exchanges(OutboxPreflight *preflight);
extern void outbox_preflight_binding(OutboxPreflight *preflight);
extern void outbox_preflight_confirmed(void *arg, bool ack, uint64 tag,
									   bool multiple);
extern void outbox_preflight_declared(void *arg, int code, const char *text);
extern void outbox_preflight_returned(void *arg, const pg_uuid_t *id, const char *text);

#endif							/* OUTBOX_PREFLIGHT_INTERNAL_H */
