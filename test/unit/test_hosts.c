/*-------------------------------------------------------------------------
 *
 * test_hosts.c
 *		Unit tests of src/relay/link/hosts.c.
 *
 *-------------------------------------------------------------------------
 */
#include "check.h"
#include "hosts.h"

#include <stdlib.h>

#define INITIAL_MS 1000
#define MAX_MS 600000

static uint32_t
middle(void)
{
	return (uint32_t) 1 << 31;	/* jitter of exactly nothing */
}

static OutboxHosts *
make(int n)
{
	OutboxHosts *hosts = malloc(sizeof(OutboxHosts));

	outbox_hosts_init(hosts, middle);
	outbox_hosts_set(hosts, n);
	return hosts;
}

static OutboxMonoTime
at(int64_t ms)
{
	return (OutboxMonoTime) {(1000000 + ms) * 1000};
}

static bool
connects_at(const OutboxHosts *hosts, int host, int64_t ms)
{
	return hosts->current == host &&
		hosts->connect_at.us == at(ms).us;
}

static void
fail(OutboxHosts *hosts, bool unreachable, int64_t now, int64_t wake)
{
	OutboxHostFailure failure = {unreachable, false, INITIAL_MS, MAX_MS, at(wake)};

	outbox_hosts_failed(hosts, &failure, at(now));
}

static void
test_one(void)
{
	OutboxHosts *hosts = make(1);

	check(hosts->current == 0 &&
		  !outbox_mono_is_set(hosts->connect_at),
		  "the first connect is at once");
	check(hosts->failures == 0 && !outbox_hosts_all_failed(hosts),
		  "nothing has failed yet");
	fail(hosts, false, 0, 100000);
	check(connects_at(hosts, 0, 1000), "the second one is after retry_initial");
	check(outbox_hosts_all_failed(hosts), "one of one is all");
	fail(hosts, false, 1000, 100000);
	check(connects_at(hosts, 0, 3000), "the third one is after twice as long");
	for (int i = 0; i < 10; i++)
		fail(hosts, false, 3000, 100000);
	check(connects_at(hosts, 0, 33000), "no wait is longer than 30 s");
	fail(hosts, true, 40000, 100000);
	check(connects_at(hosts, 0, 41000), "nobody answers: that is news");
	fail(hosts, true, 41000, 100000);
	check(connects_at(hosts, 0, 42000), "and asked once a second");
	outbox_hosts_anew(hosts);
	check(!outbox_mono_is_set(hosts->connect_at) &&
		  hosts->failures == 0, "other settings: at once");
	free(hosts);
}

static void
test_short(void)
{
	OutboxHosts *hosts = make(1);
	OutboxHostFailure failure = {false, false, 100, 150, at(100000)};

	for (int i = 0; i < 5; i++)
		outbox_hosts_failed(hosts, &failure, at(0));
	check(connects_at(hosts, 0, 150), "retry_max is kept");
	failure.stable = true;
	outbox_hosts_failed(hosts, &failure, at(0));
	check(connects_at(hosts, 0, 100), "after a stable connection it begins anew");
	check(outbox_hosts_all_failed(hosts), "which is one failure");
	free(hosts);
}

static void
test_several(void)
{
	OutboxHosts *hosts = make(3);

	fail(hosts, false, 0, 100000);
	check(connects_at(hosts, 1, 0), "the second host is tried at once");
	check(hosts->failures > 0 && !outbox_hosts_all_failed(hosts),
		  "one of three is not all");
	fail(hosts, false, 10, 100000);
	check(connects_at(hosts, 2, 10), "and the third");
	fail(hosts, false, 20, 100000);
	check(outbox_hosts_all_failed(hosts), "all have failed");
	check(connects_at(hosts, 0, 1020),
		  "the first again, with the same wake-up as the others");
	fail(hosts, false, 1020, 100000);
	check(connects_at(hosts, 1, 1020), "the second is due then");
	outbox_hosts_pass(hosts);
	outbox_hosts_pass(hosts);
	check(hosts->current == 0, "after the last one comes the first");
	outbox_hosts_set(hosts, 2);
	check(hosts->current == 0 && hosts->failures == 0,
		  "other hosts: nothing is known of them");
	free(hosts);
}

static void
test_wake(void)
{
	OutboxHosts *hosts = make(1);

	fail(hosts, false, 0, 1200);
	check(connects_at(hosts, 0, 1200), "who wakes up a moment later anyhow connects then");
	fail(hosts, false, 0, 2250);
	check(connects_at(hosts, 0, 2000), "but not for one that is later");
	fail(hosts, false, 0, 3900);
	check(connects_at(hosts, 0, 4000), "nor for one before");
	free(hosts);
}

static void
test_closed(void)
{
	OutboxHosts *hosts = make(2);

	for (int i = 0; i < 3; i++)
		outbox_hosts_closed(hosts, false, at(i));
	check(connects_at(hosts, 0, 2), "three closes cost no wait");
	outbox_hosts_closed(hosts, false, at(3));
	check(connects_at(hosts, 0, 53), "the fourth does");
	for (int i = 0; i < 10; i++)
		outbox_hosts_closed(hosts, false, at(10));
	check(connects_at(hosts, 0, 1010), "at most a second");
	outbox_hosts_closed(hosts, true, at(20));
	check(connects_at(hosts, 0, 20), "unless there was progress");
	check(hosts->failures == 0, "none of it is a host's failure");
	free(hosts);
}

int
main(void)
{
	test_one();
	test_short();
	test_several();
	test_wake();
	test_closed();
	return done();
}
