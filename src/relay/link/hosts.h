/*-------------------------------------------------------------------------
 *
 * hosts.h
 *		To which host of the broker to connect next, and when.
 *
 * Plain C without a PostgreSQL header, so that test/unit can drive it alone.
 *
 *		connect to current --failed--> the next one whose wait is over, at once,
 *							           or the first whose wait will be
 *				\--opened, and closed because of a message--> again, soon
 *
 *-------------------------------------------------------------------------
 */
#ifndef OUTBOX_HOSTS_H
#define OUTBOX_HOSTS_H

#include "clock.h"
#include "uri.h"

/* What came of the connects to one host. */
typedef struct OutboxHostTries
{
	uint32_t	failures;		/* of one kind, in a row */
	bool		unreachable;	/* that kind */
	OutboxMonoTime at;			/* not before */
} OutboxHostTries;

typedef struct OutboxHosts
{
	uint32_t	(*random) (void);	/* of all 32 bits */
	int			n;				/* at least one */
	int			current;
	OutboxMonoTime connect_at;	/* to the current one, not before; unset: now */
	uint32_t	failures;		/* to connect, in a row; a stable connection
								 * ends it */
	uint32_t	closes;			/* by the broker, in a row, without progress */
	OutboxHostTries tries[OUTBOX_MAX_HOSTS];
} OutboxHosts;

/* What was of the last connect, or connection. */
typedef struct OutboxHostFailure
{
	bool		unreachable;	/* no host answered; else one refused the
								 * connection */
	bool		stable;			/* it was connected, and for long */
	int64_t		initial_ms;		/* as is set: the first wait, and the longest */
	int64_t		max_ms;
	OutboxMonoTime wake_at;		/* somebody wakes up then anyhow */
} OutboxHostFailure;

extern void outbox_hosts_init(OutboxHosts *hosts, uint32_t (*random) (void));

/* There are n hosts, and nothing is known of them: begin with the first one. */
extern void outbox_hosts_set(OutboxHosts *hosts, int n);

/* Other settings, or another wish: all hosts are as good as new. */
extern void outbox_hosts_anew(OutboxHosts *hosts);

/* Go on with the next one. */
extern void outbox_hosts_pass(OutboxHosts *hosts);

/* The current one has failed. */
extern void outbox_hosts_failed(OutboxHosts *hosts,
								const OutboxHostFailure *failure,
								OutboxMonoTime now);

/*
 * A message, and not the broker: no reason to wait, unless one close follows the
 * other without progress: a confirm, or a route that rests from now on.
 */
extern void outbox_hosts_closed(OutboxHosts *hosts, bool progress,
								OutboxMonoTime now);

/* Have connects to all hosts failed since the last stable connection? */
extern bool outbox_hosts_all_failed(const OutboxHosts *hosts);

#endif							/* OUTBOX_HOSTS_H */
