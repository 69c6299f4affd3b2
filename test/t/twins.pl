# Two servers that publish the same messages are named, as RabbitMQ sees both: a
# data directory that was copied and started beside the original, and both sides
# of a promotion whose old primary lives on.  A server that goes on after a
# restart, a crash, a lost connection or a failover is none, and nothing of this
# delays what it publishes.  (Each answer of a broker: twin_answers.pl.)
# doc/dev/fault-cases.md M2.
#
# OUTBOX_TEST_FULL=1: more restarts.
#
# suite: test faults
# takes: 90 s

use strict;
use warnings;

use Test::More;
use Time::HiRes qw(time);
use PostgreSQL::Test::Utils;
use OutboxTest::Checker;
use OutboxTest::Node;
use OutboxTest::Proxy;
use OutboxTest::Rabbit;
use OutboxTest::Util;

my $FULL = $ENV{OUTBOX_TEST_FULL};
my $BEAT = 2;
# three heartbeats, a moment, and what a busy machine adds
my $FOUND_S = 3 * $BEAT + 10;
my $PUBLISHES_S = 5;
my $TWIN = q{SELECT count(*) FROM outbox_problems WHERE problem = 'twin'};
my $CONF = <<"END";
outbox.heartbeat = ${BEAT}s
outbox.poll_interval = 200ms
outbox.retry_initial = 100ms
outbox.retry_max = 500ms
END

my $rabbit = OutboxTest::Rabbit->start;
my $node = OutboxTest::Node->create(
	name => 'original',
	broker => $rabbit,
	allows_streaming => 1,
	conf => $CONF);
$rabbit->amqp('exchange', 'outbox', ',', 'queue', 'q', ',', 'bind', 'q', 'outbox');

sub holds_name
{
	my ($server) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;

	$server->wait_sql(q{SELECT state FROM outbox_status}, 'idle');
	return wait_until('a connection holds the name',
		sub { $rabbit->erlang('length([Q || Q <- rabbit_amqqueue:list(), amqqueue:get_exclusive_owner(Q) =/= none])') =~ /^1$/ });
}

# Seconds until a message that is enqueued now is published.
sub publishes
{
	my ($what, $server) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	my $from = time;

	my $id = $server->sql(q{SELECT outbox_enqueue('first', '{}')});
	is($server->sql("SELECT outbox_wait('$id', '20 s')"), 'published', "$what: publishes");
	my $seconds = time - $from;
	cmp_ok($seconds, '<', $PUBLISHES_S, sprintf '%s: after %.2f s', $what, $seconds);
	return;
}

# Nothing is said of a twin for longer than one takes to be found.
sub no_twin
{
	my ($what, $server, $log) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	my $until = time + 4 * $BEAT;
	my $seen = 0;

	while (time < $until)
	{
		$seen += $server->sql($TWIN);
		$server->sql('SELECT pg_sleep(0.2)');
	}
	is($seen, 0, "$what: no twin is shown");
	unlike($server->log_text($log), qr/another relay of this database/, "$what: nor told");
	return;
}

# The second one says so; the first one cannot know.
sub found
{
	my ($what, $first, $second, $from, $log) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	my $host = '127.0.0.1:' . $rabbit->port;

	$second->wait_sql($TWIN, 1, $FOUND_S);
	note sprintf '%s: found after %.1f s, heartbeats of %d s', $what, time - $from, $BEAT;
	is($first->sql($TWIN), 0, "$what: the one that has the name shows nothing");
	like($second->sql(q{SELECT severity, detail FROM outbox_problems WHERE problem = 'twin'}),
		qr/^critical\|at "\Q$host\E" another connection holds .*RESOURCE_LOCKED/, "$what: where, and the broker's words");
	like($second->log_text($log), qr/LOG:  another relay of this database is connected to the broker/, "$what: in the log");
	publishes("$what, the first", $first);
	publishes("$what, the second", $second);
	is($second->sql('SELECT sum(reconnects) FROM outbox_workers'), 0, "$what: its connection is none the worse");
	return;
}

# --- a data directory that was copied and started beside the original

holds_name($node);
$node->set('outbox.enabled', 'off');
$node->wait_sql('SELECT state FROM outbox_status', 'disabled');
$node->sql(q{SELECT outbox_enqueue('backlog', '{}') FROM generate_series(1, 200)});
$node->backup('copy');
my $copy = OutboxTest::Node->new('copy');
$copy->init_from_backup($node, 'copy');
$copy->append_conf('postgresql.auto.conf', 'outbox.enabled = on');
$node->unset('outbox.enabled');
$node->wait_drained;
holds_name($node);
my $from = time;
$copy->start;
found('a copy', $node, $copy, $from, 0);
$copy->wait_drained;
is($rabbit->depth('q'), 2 * 200 + 2, 'a copy: the backlog came twice, which no alarm prevents');

my $log = $copy->log_end;
$from = time;
$node->stop;
$copy->wait_sql($TWIN, 0, $FOUND_S);
note sprintf 'the original is stopped: gone after %.1f s', time - $from;
like($copy->log_text($log), qr/no other relay of this database/, 'the original is stopped: the copy says so');
publishes('alone', $copy);
$copy->stop;

# --- restarts, crashes, lost connections: the same server

$log = $node->log_end;
$node->start;
foreach (1 .. ($FULL ? 10 : 2))
{
	$node->restart;
	publishes('a restart', $node);
	$node->kill_backends;
	$node->wait_restarted;
	publishes('a crash of the worker', $node);
	$node->sql('SELECT outbox_worker_restart()');
	publishes('another process', $node);
	$rabbit->erlang('[rabbit_networking:close_connection(P, "test") || P <- rabbit_networking:connections()]');
	publishes('a closed connection', $node);
}
$rabbit->stop;
$rabbit->restart;
publishes('a restart of the broker', $node);
no_twin('restarts', $node, $log);
holds_name($node);

# --- our own connection that the broker still takes for alive

my $proxy = OutboxTest::Proxy->start($rabbit);
$node->set('outbox.broker_uri', $proxy->uri);
holds_name($node);
$node->wait_sql(q{SELECT broker LIKE '%:} . $proxy->port . q{' FROM outbox_workers}, 't');
$log = $node->log_end;
my $rabbit_log = -s $rabbit->log;
$proxy->half_open;
$from = time;
$node->sql('SELECT outbox_worker_restart()');
publishes('a half-open connection', $node);
like($rabbit->erlang('length(rabbit_networking:connections())'), qr/^[2-9]/, 'a half-open connection: the broker has both');
no_twin('a half-open connection', $node, $log);
holds_name($node);
like(slurp_file($rabbit->log, $rabbit_log), qr/locked queue 'outbox-identity/, 'a half-open connection: the broker refused the name for a while');
$node->unset('outbox.broker_uri');
$node->set('outbox.broker_uri', $rabbit->uri);

# --- a standby is promoted, and the old primary lives on

holds_name($node);
$node->backup('standby');
my $standby = OutboxTest::Node->new('standby');
$standby->init_from_backup($node, 'standby', has_streaming => 1);
$standby->start;
$node->wait_for_catchup($standby, 'replay', $node->lsn('insert'));
$from = time;
$standby->promote;
found('a split', $node, $standby, $from, 0);
$log = $standby->log_end;
$node->stop('immediate');
$standby->wait_sql($TWIN, 0, $FOUND_S);
publishes('a split that is over', $standby);

# --- a failover as it should be: the old primary is gone, the new one is no twin

$standby->backup('next');
my $next = OutboxTest::Node->new('next');
$next->init_from_backup($standby, 'next', has_streaming => 1);
$next->start;
$standby->wait_for_catchup($next, 'replay', $standby->lsn('insert'));
$standby->stop('immediate');
$next->promote;
publishes('a failover', $next);
no_twin('a failover', $next, 0);
$next->stop;

done_testing();
