# What piled up does not stand in front of what is committed now, and a key's
# order holds all the same: a backlog of an outage, a transaction that commits
# late, one of very many messages, a key that is held with very many behind it.
#
# OUTBOX_TEST_FULL=1: a million messages where quick mode has 30,000.
#
# suite: test faults
# takes: 74 s

use strict;
use warnings;

use Test::More;
use Time::HiRes qw(time);
use PostgreSQL::Test::Utils;
use OutboxTest::Checker;
use OutboxTest::Consumer;
use OutboxTest::Node;
use OutboxTest::Rabbit;
use OutboxTest::Util;

my $FULL = $ENV{OUTBOX_TEST_FULL};
my $MANY = $FULL ? 1_000_000 : 30_000;
my $DRAIN_S = $FULL ? 400 : 60;
# The worker's memory must not grow with what waits.
my $OWN_MB = 50;

my $rabbit = OutboxTest::Rabbit->start;
my $node = OutboxTest::Node->create(
	broker => $rabbit,
	conf => "track_commit_timestamp = on\nmax_wal_size = 4GB");
my $checker = OutboxTest::Checker->install($node);
my $consumer = OutboxTest::Consumer->start($rabbit, exchange => 'outbox');

# Of the worker alone; what it has touched of the shared buffers is no growth.
sub own_mb
{
	my ($pid) = $node->backend_pids('outbox relay%');
	my ($kb) = slurp_file("/proc/$pid/status") =~ /^RssAnon:\s+(\d+)/m;
	return $kb / 1024;
}

sub pending
{
	return $node->sql('SELECT count(*) FROM outbox');
}

# Milliseconds from commit to consumer of the messages whose key begins so.
sub latencies
{
	my ($prefix) = @_;
	my %committed = map { @$_ } $node->rows(<<"SQL");
SELECT id, (extract(epoch FROM pg_xact_commit_timestamp(xmin)) * 1000000)::bigint
FROM test_sent WHERE key LIKE '$prefix%'
SQL
	return map { ($_->{us} - $committed{ $_->{id} }) / 1000 }
	  grep { $committed{ $_->{id} } } $consumer->records;
}

# Commits some messages of new keys, and of keys of the backlog, one by one,
# as long as the backlog lasts; returns how many.
sub commit_beside
{
	my ($prefix, $old_prefix) = @_;
	my $n = 0;

	for (1 .. 40)
	{
		last if pending() < 2_000;
		$node->sql("SELECT test_enqueue(1, 1, '$prefix$_-');
			SELECT test_enqueue(1, 1, '$old_prefix')");
		$n++;
	}
	return $n;
}

# Whoever waits for a backlog waits for half of what it takes, in the median. The
# queue of the broker is one, too: what counts is when the relay was done with it.
sub check_beside
{
	my ($name, $prefix, $n, $seconds) = @_;
	my @ms = latencies($prefix);
	my @published = map { $_->[0] } $node->rows(<<"SQL");
SELECT extract(epoch FROM a.published_at - pg_xact_commit_timestamp(s.xmin)) * 1000
FROM test_sent s JOIN outbox_archive a ON a.id = s.id WHERE s.key LIKE '$prefix%'
SQL

	cmp_ok($n, '>', 5, "$name: messages are committed beside it");
	is(scalar @ms, $n, "$name: all of them arrived");
	my $median = median(@ms);
	note sprintf '%s: beside it, commit to consumer: median %.1f ms, maximum %.1f ms of %d; '
	  . 'to published: median %.1f ms of %d; it took %.1f s',
	  $name, $median, percentile(100, @ms), scalar @ms, median(@published), scalar @published, $seconds;
	cmp_ok(median(@published), '<', 1000 * $seconds / 5, "$name: they did not wait for it");
	return;
}

# --- after an outage

$node->sql('SELECT outbox_pause()');
$checker->enqueue($MANY, keys => 500, prefix => 'old', per_tx => 1000);
my $at = time;
$node->sql('SELECT outbox_resume()');
my $n = commit_beside('fresh', 'old');
ok($node->wait_drained($DRAIN_S), 'backlog: drained');
my $took = time - $at;
$consumer->wait_count($node->sql('SELECT count(*) FROM test_sent'));
check_beside('backlog', 'fresh', $n, $took);
$checker->check('new messages beside a backlog', [ $consumer->records ], case => 'backlog');

# --- a transaction that commits late, one message and very many

foreach my $count (1, $MANY)
{
	my $name = "late commit of $count";
	my $late = $node->session;
	$late->query_safe('BEGIN');
	$late->query_safe("SELECT test_enqueue($count, 100, 'late$count-')");
	$checker->enqueue(5_000, keys => 300, prefix => 'pass');
	ok($node->wait_sql("SELECT NOT EXISTS (SELECT FROM outbox)"), "$name: others pass it");
	my $at = time;
	$late->query_safe('COMMIT');
	if ($count == 1)
	{
		$consumer->wait_count($node->sql('SELECT count(*) FROM test_sent'));
		my ($ms) = latencies("late$count-");
		note sprintf '%s: delivered %.1f ms after its commit', $name, $ms;
		cmp_ok($ms, '<', 500, "$name: delivered at once");
	}
	else
	{
		$n = commit_beside('beside', "late$count-");
		my $mb = own_mb();
		ok($node->wait_drained($DRAIN_S), "$name: drained");
		$took = time - $at;
		note sprintf '%s: drained in %.1f s, worker of %.0f MB', $name, $took, $mb;
		$consumer->wait_count($node->sql('SELECT count(*) FROM test_sent'));
		check_beside($name, 'beside', $n, $took);
		cmp_ok($mb, '<', $OWN_MB, "$name: bounded memory");
	}
	$late->quit;
	$checker->check($name, [ $consumer->records ], case => 'late commit');
}

# --- bodies larger than what a round claims or settles (OUTBOX_CLAIM_BYTES,
# OUTBOX_SETTLE_BYTES), of keys that wait for each other

$node->sql('TRUNCATE test_sent');
$consumer->stop;
$consumer = OutboxTest::Consumer->start($rabbit, exchange => 'outbox');
$node->set('outbox.enabled', 'off');
$node->wait_sql('SELECT state FROM outbox_status', 'disabled');
foreach my $size (3_000_000, 700_000)
{
	$checker->enqueue(12, keys => 3, prefix => "large$size-", size => $size, per_tx => 4);
	$checker->enqueue(12, prefix => "alone$size-", size => $size, per_tx => 4);
}
$node->set('outbox.enabled', 'on');
$consumer->wait_count(48, 60);
ok($node->wait_drained, 'large bodies: drained');
$checker->check('large bodies, beyond what a round settles', [ $consumer->records ], case => 'large');

# a worker that stops settles all that is confirmed, however large: here 24 MB,
# confirmed while somebody had the rows locked
$node->sql('TRUNCATE test_sent');
$consumer->stop;
$consumer = OutboxTest::Consumer->start($rabbit, exchange => 'outbox');
$rabbit->pause;
$checker->enqueue(24, prefix => 'stop', size => 1_000_000);
$node->wait_sql('SELECT count(*) FROM outbox_internal.outbox_claims()', '24');
my $locker = $node->session;
$locker->query_safe('BEGIN');
$locker->query_safe('SELECT count(*) FROM (SELECT FROM outbox FOR UPDATE) AS l');
$rabbit->resume;
$consumer->wait_count(24);
is($node->sql('SELECT count(*) FROM outbox'), '24', 'large bodies: all are sent, and none settled');
$locker->query_safe('COMMIT; SELECT pg_terminate_backend(pid) FROM outbox_workers');
$locker->quit;
ok($node->wait_drained, 'large bodies: settled by the worker that stops');
$checker->enqueue(1, prefix => 'next');
$consumer->wait_count(25);
$checker->check('large bodies, a worker that stops', [ $consumer->records ],
	interruptions => 0, case => 'large');

# --- a key that is held, with very many behind it

$node->sql(<<'SQL');
INSERT INTO outbox_route (name, exchange, routing_key, max_attempts, on_failed)
VALUES ('blocking', '', 'no-such-queue', 1, 'block');
SQL
$node->sql("SELECT test_enqueue(1, 1, 'held', 0, 'blocking')");
ok($node->wait_sql("SELECT count(*) = 1 FROM outbox_failed"), 'held key: its head has failed');
$checker->enqueue($MANY, keys => 1, prefix => 'held', route => 'blocking', per_tx => 10_000);
is($node->sql('SELECT reason, behind FROM outbox_held_keys'), "failed|$MANY",
	'held key: a view shows it and what is behind');

sub drain_others
{
	my ($name) = @_;
	my $before = $consumer->unique;
	$checker->enqueue(3_000, keys => 100, prefix => "other$name");
	$consumer->wait_count($before + 3_000);
	my @ms = latencies("other$name");
	note sprintf 'held key, %s: others: median %.1f ms, maximum %.1f ms', $name, median(@ms),
	  percentile(100, @ms);
	cmp_ok(percentile(100, @ms), '<', 3_000, "held key, $name: others pass it");
	return;
}
drain_others('behind it');
$node->sql('SELECT outbox_worker_restart()');
drain_others('after a restart of the worker');
my $mb = own_mb();
cmp_ok($mb, '<', $OWN_MB, 'held key: bounded memory');
$node->sql("UPDATE outbox_route SET routing_key = 'test.event', exchange = 'outbox' WHERE name = 'blocking'");
$at = time;
$node->sql('SELECT outbox_requeue_failed()');
$n = commit_beside('aside', 'beheld');
# one confirm and one flush a message
ok($node->wait_sql("SELECT behind < $MANY - 1000 FROM outbox_held_keys
		UNION ALL SELECT count(*) < $MANY - 1000 FROM outbox LIMIT 1"), 'held key: it goes on');
note sprintf 'held key: the first 1000 in %.1f s', time - $at;
my $sent = $checker->committed;
my @in_order = map { $sent->{ $_->{id} }[0] } grep { $sent->{ $_->{id} }[1] eq 'held1 blocking' } $consumer->records;
cmp_ok(scalar @in_order, '>', 500, 'held key: much of it has arrived');
is_deeply(\@in_order, [ sort { $a <=> $b } @in_order ], 'held key: in the order of enqueue');
# the rest need not
$node->sql("UPDATE outbox_route SET ordering = 'none' WHERE name = 'blocking'");
ok($node->wait_drained($DRAIN_S), 'held key: drained');
$took = time - $at;
note sprintf 'held key: drained in %.1f s', $took;
$consumer->wait_count($node->sql('SELECT count(*) FROM test_sent'));
check_beside('held key', 'aside', $n, $took);
$checker->check('a key that was held', [ $consumer->stop ], skip_order => 1, case => 'held key');
$node->stop;
done_testing();
