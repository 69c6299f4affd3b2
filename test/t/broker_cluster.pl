# A cluster of three brokers with quorum queues: nodes are killed under load, two
# at a time, frozen, partitioned and drained.  Nothing is lost, the order holds,
# and the relay goes on to the next node at once.  doc/dev/fault-cases.md F19, F20, F22, F27.
#
# There are two quorum queues.  q is consumed all the time, by a consumer that
# goes from node to node; what the broker delivers again to it tells little of
# order.  audit is read when all is over, and has each copy in the order in which
# it was stored: order and duplicates are looked for there.
#
# OUTBOX_TEST_FULL=1: 20 kills, two minutes without a majority.
#
# suite: test faults
# takes: 135 s

use strict;
use warnings;

use IO::Socket::INET;
use Test::More;
use Time::HiRes qw(time usleep);
use PostgreSQL::Test::Utils;
use OutboxTest::Checker;
use OutboxTest::Consumer;
use OutboxTest::Node;
use OutboxTest::Preload;
use OutboxTest::RabbitCluster;
use OutboxTest::Util;

my $FULL = $ENV{OUTBOX_TEST_FULL};
my $WINDOW = 100;
my $KILLS = $FULL ? 20 : 3;
my $NO_MAJORITY = $FULL ? 120 : 5;      # seconds
my %FREEZE = (short => 4, long => 14);  # seconds; dead for the others after 6 to 10
my $BACKOFF = 4;                        # seconds, of the whole list of hosts
my $AT_ONCE = 2;                        # far below the shortest backoff
seed();

my $begun = time;
my $cluster = OutboxTest::RabbitCluster->start;
my @brokers = $cluster->nodes;
my $took = time - $begun;
cmp_ok($took, '<', 60, 'three nodes start');
note sprintf 'the cluster took %.1f s', $took;

my $preload = OutboxTest::Preload->build;
my $node = OutboxTest::Node->create(
	broker => $cluster,
	start => 0,
	conf => <<"END");
outbox.window = $WINDOW
outbox.retry_initial = ${BACKOFF}s
outbox.retry_max = ${BACKOFF}s
END
$preload->start($node);
$node->sql('CREATE EXTENSION outbox');
my $checker = OutboxTest::Checker->install($node);
$cluster->amqp(
	qw(exchange outbox),
	map { (',', 'queue', $_, 'x-queue-type=quorum', ',', 'bind', $_, 'outbox') }
	  qw(q audit));
$cluster->wait_quorum_queues;

my ($consumer, $reconnects, $log_mark, $load, $start);

# Where the workers are, or are about to be.
sub brokers
{
	return
	  map { $cluster->at($_->[0]) }
	  $node->rows('SELECT broker FROM outbox_workers ORDER BY worker');
}

sub number
{
	my ($what) = @_;
	return $node->sql("SELECT coalesce(sum($what), 0) FROM outbox_workers");
}

# All workers are on nodes that are up; seconds that this took since $from.
sub wait_connected
{
	my ($what, $limit, $from) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	my %up = map { ('127.0.0.1:' . $_->port) => 1 } $cluster->up;
	my $hosts = join ',', map { "'$_'" } keys %up;

	$node->wait_sql(
		qq{SELECT bool_and(state IN ('idle', 'publishing') AND broker IN ($hosts))
			FROM outbox_workers}, 't', 60);
	my $seconds = time - $from;
	cmp_ok($seconds, '<', $limit, "$what: on to the next node at once")
	  if defined $limit;
	note sprintf '%s: connected after %.2f s', $what, $seconds;
	return $seconds;
}

# Confirms for more than was in flight; seconds that this took.
sub wait_flow
{
	my ($what, $limit) = @_;
	my $from = time;
	my $published = number('published');
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	wait_until("$what: messages flow",
		sub { number('published') > $published + 3 * $WINDOW }, $limit // 30)
	  or diag $node->sql('SELECT * FROM outbox_workers') . "\n"
	  . $node->sql('SELECT last_error, count(*), max(attempts) FROM outbox GROUP BY 1');
	return time - $from;
}

sub begin
{
	my ($what, %params) = @_;

	note sprintf '--- %s (%.0f s)', $what, time - $begun;
	$node->wait_drained;
	$node->sql('TRUNCATE test_sent, outbox_archive');
	$consumer = OutboxTest::Consumer->start(
		$cluster,
		exchange => 'outbox',
		queue_type => 'quorum',
		heartbeat => 2);
	$reconnects = number('reconnects');
	$log_mark = $node->log_end;
	return;
}

sub start_load
{
	$load = $checker->load(1_000_000, keys => 200, per_tx => 20, pause_ms => 20);
	return;
}

# Every case ends here.
sub finish
{
	my ($what, %params) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	my $interruptions = number('reconnects') - $reconnects;

	$node->wait_drained($FULL ? 300 : 60);
	$consumer->wait_count($node->sql('SELECT count(*) FROM test_sent'), 60);
	my @live = $consumer->stop;
	my $audit = OutboxTest::Consumer->start(
		$cluster,
		queue => 'audit',
		passive => 1,
		idle => 1000);
	$audit->wait_end(60);
	my $v = $checker->check(
		$what, [ $audit->records ],
		case => $what,
		window => $WINDOW,
		interruptions => $interruptions,
		%params);
	my $of_live = $checker->verdict(\@live);
	is_deeply([ @{ $of_live->{lost} }, @{ $of_live->{ghosts} } ],
		[], "$what: the consumer that reconnects has everything, too");
	my $attempts = $node->sql(
		'SELECT coalesce(max(attempts), 0), count(*) FILTER (WHERE attempts > 0)
			FROM outbox_archive');
	note "$what: $v->{committed} messages, $interruptions reconnects, "
	  . "$v->{duplicates} duplicates ($v->{late} late), most attempts and messages "
	  . "with any $attempts";
	$v->{interruptions} = $interruptions;
	return $v;
}

sub lines
{
	my ($re) = @_;
	return grep { /$re/ } split /\n/, $node->log_text($log_mark);
}

# --- F22: connections closed by force, and a node that is drained.  The host after
# the first of the list is dead.

my ($first, $second, $third) = @brokers;
my ($address1, $address2, $address3) = map { '127.0.0.1:' . $_->port } @brokers;

$node->wait_sql('SELECT state FROM outbox_status', 'idle');
is_deeply([ brokers() ], [$first],
	'outbox_workers.broker is the first of the list');
$node->wait_log(qr/is connected to the broker at "$address1"/, 0);
$node->set('outbox.broker_uri',
	"amqp://guest\@$address1,127.0.0.1:1,$address2,$address3");

begin('F22: forced close, and a drained node');
start_load();
wait_flow('before the close');
$log_mark = $node->log_end;
$start = time;
$first->erlang(
	'[rabbit_networking:close_connection(P, "maintenance") || P <- rabbit_networking:connections()]'
);
$node->wait_sql('SELECT broker FROM outbox_workers', $address2, 5);
wait_connected('F22: forced close, next host dead', $AT_ONCE, $start);
is($node->sql('SELECT broker FROM outbox_status'),
	$address2, 'outbox_status.broker is the next one that lives');
is(scalar lines('lost its connection to the broker'),
	1, 'the log says that the connection was lost');
is(scalar lines('CONNECTION_FORCED - maintenance'), 1, 'and why');
is(scalar lines(qq(is connected to the broker at "$address2")),
	1, 'and where it is connected now');
wait_flow('after the close');

$start = time;
$second->erlang('rabbit_maintenance:drain()');
$node->wait_sql('SELECT broker FROM outbox_workers', $address3, 5);
wait_connected('F22: drained', undef, $start);
wait_flow('beside the drained node');
$second->erlang('rabbit_maintenance:revive()');
$checker->stop_load($load, 'F22');
my $v = finish('F22: forced close, and a drained node');
cmp_ok($v->{interruptions}, '>=', 2, 'F22: two reconnects');

# --- F19: the other two nodes are killed, so that there is no majority

# A broker without a majority may refuse messages, too, and a refusal counts.
$node->set('outbox.confirm_timeout', '2s');
$node->sql('UPDATE outbox_route SET max_attempts = 1000');
begin('F19');
start_load();
wait_flow('before the loss of the majority');
$log_mark = $node->log_end;
$start = time;
$_->kill9 foreach $first, $second;
$node->wait_log(qr/not confirmed within "outbox.confirm_timeout"/, $log_mark);
wait_until('some time without a majority',
	sub { time - $start > $NO_MAJORITY }, $NO_MAJORITY + 10);
is($node->sql(q{SELECT count(*) FROM outbox WHERE status = 'failed'}),
	0, 'F19: no message has failed');
cmp_ok($node->sql('SELECT backlog FROM outbox_status'),
	'>', 0, 'F19: messages wait');
note 'F19: most attempts without a majority: '
  . $node->sql('SELECT max(attempts) FROM outbox');
$cluster->restart($first, $second);
$start = time;
wait_flow('F19');
note sprintf 'F19: flow %.2f s after the nodes are back', time - $start;
$checker->stop_load($load, 'F19');
# A node without a majority keeps what it had received, and publishes it when there is
# one again, after what came on later connections meanwhile (delivery.md).
finish("F19: $NO_MAJORITY s without a majority", late_copies => 1);
$node->sql('UPDATE outbox_route SET max_attempts = DEFAULT');
$node->unset('outbox.confirm_timeout');
$node->unset('outbox.broker_uri');
$cluster->wait_whole;
$cluster->wait_members(qw(q audit));

# --- F20: leader and connected node, killed again and again, two workers

$node->set('outbox.retry_initial', '500ms');
$node->set('outbox.workers', '2');
$node->wait_sql('SELECT count(*) FROM outbox_workers', 2);
wait_connected('two workers', undef, time);
begin('F20: nodes killed under load, 2 workers');
start_load();
wait_flow('before the kills');
my @stalls;
foreach my $kill (1 .. $KILLS)
{
	my $what = $kill % 2 ? 'leader' : 'connected';
	my $victim =
	  $what eq 'leader' ? $cluster->wait_leader('audit') : (brokers())[0];
	my $hit = grep { $_ == $victim } brokers();

	$victim->kill9;
	my $seconds = wait_flow("kill $kill");
	push @stalls, $seconds;
	note sprintf 'kill %d: %s node, %d of 2 workers on it, %d messages flow after %.2f s',
	  $kill, $what, $hit, 3 * $WINDOW, $seconds;
	$victim->restart;
	$cluster->wait_whole;
	$cluster->wait_members(qw(q audit));
}
$checker->stop_load($load, 'F20');
finish("F20: $KILLS nodes killed under load, 2 workers");
note sprintf 'F20: longest wait for a flow %.2f s', (sort { $b <=> $a } @stalls)[0];

# --- a node that freezes, and goes on

# Bytes that it had not read are a problem of their own: it publishes them when it
# goes on, after what the relay has sent to others meanwhile.  After the long
# freezes it leads the queue, is dead for the others when it goes on, and has to
# be restarted to be one of them again.
$node->set('outbox.heartbeat', '1s');
wait_until('reconnects with another heartbeat',
	sub { number('reconnects') >= $reconnects + 2 });
foreach my $freeze ($FULL ? qw(short long long) : 'short')
{
	begin("freeze, $freeze");
	my $victim = (brokers())[0];
	my ($other) = grep { $_ != $victim } $cluster->up;
	$cluster->transfer($_, $freeze eq 'long' ? $victim : $other)
	  foreach qw(q audit);
	start_load();
	wait_flow('before the freeze');
	$start = time;
	$victim->pause;
	my $seconds = wait_flow('while a node is frozen', 60);
	note sprintf 'frozen node: flow after %.2f s', $seconds;
	is(scalar(grep { $_ == $victim } brokers()), 0, 'no worker is on it');
	wait_until('the freeze is over',
		sub { time - $start > $FREEZE{$freeze} }, $FREEZE{$freeze} + 10);
	$victim->resume;
	wait_flow('after the freeze');
	if ($freeze eq 'long')
	{
		$victim->kill9;
		$victim->restart;
	}
	$cluster->wait_whole;
	$checker->stop_load($load, 'freeze');
	finish("F20: connected node frozen, $freeze",
		late_copies => 1);
}
$node->unset('outbox.heartbeat');

# --- F27: a host with two addresses, of which the first one is dead

$node->set('outbox.workers', '1');
$node->wait_sql('SELECT count(*) FROM outbox_workers', 1);

# Connections are taken by the kernel, and nobody reads them.
sub silence
{
	my ($port) = @_;
	return IO::Socket::INET->new(
		LocalAddr => '127.0.0.2',
		LocalPort => $port,
		Listen => 20,
		ReuseAddr => 1) // die "127.0.0.2:$port: $!";
}

foreach my $dead (qw(refuses silent))
{
	my $broker = ($cluster->up)[0];
	my $port = $broker->port;
	my $listener = $dead eq 'silent' && silence($port);
	my $host = "127.0.0.2-and-127.0.0.1:$port";

	begin("F27: first address $dead");
	$start = time;
	$node->set('outbox.broker_uri',
		"amqp://guest\@$host" . ($dead eq 'silent' ? '/%2F' : ''));
	$checker->enqueue(200, keys => 20);
	$node->wait_drained(15);
	cmp_ok(time - $start, '<', 3 + 2 + $AT_ONCE,
		"F27: first address $dead: delivered within the connect timeout and a backoff");
	note sprintf 'first address %s: %.2f s', $dead, time - $start;
	is($node->sql('SELECT broker FROM outbox_workers'), $host,
		'F27: outbox_workers.broker is the host');
	finish("F27: host with two addresses, the first one $dead");
}

unlike($node->log_text(0), qr/PANIC|terminated by signal|TRAP:/,
	'the server survives all of it');
done_testing();
