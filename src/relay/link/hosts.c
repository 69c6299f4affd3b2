/*-------------------------------------------------------------------------
 *
 * hosts.c
 *		To which host of the broker to connect next, and when.
 *
 *-------------------------------------------------------------------------
 */
#include "hosts.h"

#include "backoff.h"

#include <string.h>

/*
 * The longest wait between two connects to a host.  Shorter than
 * outbox.retry_max may be: when the broker is back, everything waits for this.  A
 * broker that is there and refuses the login (a wrong password, a limit) is asked less
 * often than an address where nobody answers, which costs next to nothing.
 */
#define RECONNECT_MAX_MS	30000
#define UNREACHABLE_MAX_MS	1000

/* What comes so soon after a connect waits for the same wake-up. */
#define TOGETHER_MS		250

/*
 * So many connections are closed because of a message without a wait before the
 * next one, when none makes progress; then there is one, and it grows.
 */
#define CLOSES_FREE		3
#define CLOSES_MS		50
#define CLOSES_MAX_MS	1000

void
outbox_hosts_init(OutboxHosts *hosts, uint32_t (*random) (void))
{
	memset(hosts, 0, sizeof(*hosts));
	hosts->random = random;
	hosts->n = 1;
}

void
outbox_hosts_set(OutboxHosts *hosts, int n)
{
	hosts->n = n;
	hosts->current = 0;
	outbox_hosts_anew(hosts);
}

void
outbox_hosts_anew(OutboxHosts *hosts)
{
	memset(hosts->tries, 0, sizeof(hosts->tries));
	hosts->failures = 0;
	hosts->connect_at = OUTBOX_MONO_UNSET;
}

void
outbox_hosts_pass(OutboxHosts *hosts)
{
	hosts->current = (hosts->current + 1) % hosts->n;
}

/*
 * The next host in turn whose wait is over, at once; or else the time when the
 * first of them is.  One wake-up does for all that comes within a moment.
 */
static void
choose(OutboxHosts *hosts, OutboxMonoTime wake_at, OutboxMonoTime now)
{
	OutboxMonoTime moment;
	int			last = hosts->current;

	hosts->connect_at = OUTBOX_MONO_UNSET;
	for (int i = 1; i <= hosts->n; i++)
	{
		int			host = (last + i) % hosts->n;

		if (outbox_mono_reached(hosts->tries[host].at, now))
		{
			hosts->current = host;
			hosts->connect_at = now;
			return;
		}
		if (!outbox_mono_is_set(hosts->connect_at) ||
			outbox_mono_before(hosts->tries[host].at, hosts->connect_at))
		{
			hosts->current = host;
			hosts->connect_at = hosts->tries[host].at;
		}
	}
	moment = outbox_mono_plus(hosts->connect_at, TOGETHER_MS);
	for (int host = 0; host < hosts->n; host++)
		if (outbox_mono_before(hosts->tries[host].at, moment) &&
			outbox_mono_before(hosts->connect_at, hosts->tries[host].at))
			hosts->connect_at = hosts->tries[host].at;
	if (outbox_mono_before(wake_at, moment) &&
		outbox_mono_before(hosts->connect_at, wake_at))
		hosts->connect_at = wake_at;
}

void
outbox_hosts_failed(OutboxHosts *hosts, const OutboxHostFailure *failure,
					OutboxMonoTime now)
{
	OutboxHostTries *tries = &hosts->tries[hosts->current];
	int64_t		max_ms =
		failure->unreachable ? UNREACHABLE_MAX_MS : RECONNECT_MAX_MS;

	if (failure->max_ms < max_ms)
		max_ms = failure->max_ms;
	if (failure->stable)
		hosts->failures = 0;
	hosts->failures++;

	/*
	 * No host answered, and now one refuses the connection: the state
	 * changed.
	 */
	if (failure->stable || tries->unreachable != failure->unreachable)
		tries->failures = 0;
	tries->unreachable = failure->unreachable;
	tries->failures++;
	tries->at = outbox_mono_plus(now, outbox_backoff_ms(failure->initial_ms,
														max_ms,
														tries->failures,
														hosts->random()));
	choose(hosts, failure->wake_at, now);
}

void
outbox_hosts_closed(OutboxHosts *hosts, bool progress, OutboxMonoTime now)
{
	if (progress)
		hosts->closes = 0;
	hosts->closes++;
	hosts->connect_at = now;
	if (hosts->closes > CLOSES_FREE)
		hosts->connect_at =
			outbox_mono_plus(now, outbox_backoff_ms(CLOSES_MS, CLOSES_MAX_MS,
													hosts->closes - CLOSES_FREE,
													hosts->random()));
}

bool
outbox_hosts_all_failed(const OutboxHosts *hosts)
{
	return hosts->failures >= (uint32_t) hosts->n;
}
