# Two servers with one identity at different nodes of a cluster are named.  One
# server goes on through a rolling restart of the nodes, and through the loss of the
# node that it is connected to, which the others miss only later, and is no twin of
# its own.  (One broker: twins.pl.)  doc/dev/fault-cases.md M2.
#
# suite: test faults
# takes: 120 s

use strict;
use warnings;

use Test::More;
use Time::HiRes qw(time);
use PostgreSQL::Test::Utils;
use OutboxTest::Node;
use OutboxTest::RabbitCluster;
use OutboxTest::Util;

my $BEAT = 1;
my $TWIN = q{SELECT count(*) FROM outbox_problems WHERE problem = 'twin'};

my $cluster = OutboxTest::RabbitCluster->start;
my ($first, $second, $third) = $cluster->nodes;
my $node = OutboxTest::Node->create(
	name => 'original',
	broker => $cluster,
	allows_streaming => 1,
	conf => <<"END");
outbox.heartbeat = ${BEAT}s
outbox.poll_interval = 200ms
outbox.retry_initial = 100ms
outbox.retry_max = 500ms
END
$cluster->amqp(split " ", "exchange outbox , queue q x-queue-type=quorum , bind q outbox");
$cluster->wait_quorum_queues;

# Seconds until a message that is enqueued now is published.
sub publishes
{
	my ($what) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	my $from = time;

	my $id = $node->sql(q{SELECT outbox_enqueue('first', '{}')});
	is($node->sql("SELECT outbox_wait('$id', '60 s')"), 'published', "$what: publishes");
	note sprintf '%s: published after %.2f s', $what, time - $from;
	return;
}

sub broker_of
{
	my ($server) = @_;
	$server->wait_sql(q{SELECT state FROM outbox_status}, 'idle');
	return $cluster->at($server->sql('SELECT broker FROM outbox_workers WHERE worker = 0'));
}

# How often the nodes have refused the name.
sub refused
{
	return scalar map { slurp_file($_->log) =~ /locked queue 'outbox-identity/g } $cluster->nodes;
}

# --- each at another node

publishes('the original');
my $at = broker_of($node);
$node->backup('copy');
my $copy = OutboxTest::Node->new('copy');
$copy->init_from_backup($node, 'copy');
my ($other) = grep { $_->port != $at->port } $cluster->nodes;
$copy->adjust_conf('postgresql.conf', 'outbox.broker_uri', "'" . $other->uri . "'");
my $from = time;
$copy->start;
$copy->wait_sql($TWIN, 1, 3 * $BEAT + 20);
note sprintf 'at another node: found after %.1f s', time - $from;
is($copy->sql('SELECT count(*) FROM outbox_workers WHERE broker = ' . "'127.0.0.1:" . $other->port . "'"),
	1, 'a server at another node of the cluster is a twin');
is($node->sql($TWIN), 0, 'which one of them shows');
$copy->stop;

# --- a rolling restart

my $log = $node->log_end;
my $shown = 0;
foreach my $broker ($first, $second, $third)
{
	$broker->stop;
	publishes('a node is stopped');
	$shown += $node->sql($TWIN);
	$cluster->restart($broker);
	$cluster->wait_members('q');
	publishes('a node is back');
	$shown += $node->sql($TWIN);
}

# --- the node with our connection stands still, and is missed after its net_ticktime

$at = broker_of($node);
my $refused = refused();
$from = time;
$at->pause;
$node->wait_sql("SELECT broker <> '127.0.0.1:" . $at->port . q{' AND state IN ('idle', 'publishing') FROM outbox_workers}, 't');
note sprintf 'a node stands still: connected to another one after %.1f s', time - $from;
publishes('a node stands still');
while (time < $from + 20)
{
	$shown += $node->sql($TWIN);
	$node->sql('SELECT pg_sleep(0.2)');
}
cmp_ok(refused(), '>', $refused, 'a node stands still: the name was refused for a while');
$at->resume;
publishes('it goes on');
is($shown + $node->sql($TWIN), 0, 'no twin was shown');
unlike($node->log_text($log), qr/another relay of this database is/, 'nor told');

done_testing();
