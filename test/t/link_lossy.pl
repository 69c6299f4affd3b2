# A real network between the relay and its broker, with 200 ms latency, jitter,
# lost packets and packets out of order: nothing is taken for a fault, as much
# goes through as the network and the window allow, and a stop does not wait.
# doc/dev/fault-cases.md J3.
#
# OUTBOX_TEST_FULL=1: more of everything.
#
# suite: test faults
# takes: 48 s

use strict;
use warnings;

use Test::More;

# Real TCP over an interface that test/tools/lossy-link makes (its head has the
# commands), in a network namespace of the test's own. That needs no root, but a kernel
# that lets everybody have one; elsewhere the test is skipped with the reason.
package LossyLink
{
	use parent 'OutboxTest::LineTool';

	my @UNSHARE;
	BEGIN { @UNSHARE = qw(unshare --user --map-current-user --keep-caps --net) }

	# Starts the test again in a namespace of its own.
	sub own_network
	{
		return if $ENV{OUTBOX_OWN_NETWORK};
		my $said = `@UNSHARE ip link add outbox0 type veth peer name outbox1 2>&1`;
		Test::More::plan(skip_all =>
			  "no network namespace with interfaces of its own: " . ($said // $!))
		  if $? != 0;
		local $ENV{OUTBOX_OWN_NETWORK} = 1;
		exec @UNSHARE, $^X, $0, @ARGV or die "unshare: $!\n";
	}

	sub start { return $_[0]->start_tool('lossy-link', '--lifetime', 3600) }

	# Where a broker has to listen.
	sub broker_address { return '10.99.0.1' }
	sub host { return '10.99.0.2' }

	# The broker as it is reached by way of the link, for Node->create.
	sub in_front_of
	{
		my ($self, $broker) = @_;
		$self->{uri} = $broker->uri =~ s/\@[^:]+:/'@' . $self->host . ':'/er;
		return $self;
	}

	sub uri { return $_[0]{uri} }
}

BEGIN { LossyLink->own_network }

use Time::HiRes qw(time);
use PostgreSQL::Test::Utils;
use OutboxTest::Checker;
use OutboxTest::FakeBroker;
use OutboxTest::Node;
use OutboxTest::Util;

my $FULL = $ENV{OUTBOX_TEST_FULL};
my $WINDOW = 100;
my $LIMIT = 5;
my $ENOUGH = 0.6;              # of RAW's rate; others share the machine
my $state = 'SELECT state FROM outbox_status';
my $seed = seed();

my $link = LossyLink->start;
my $fake = OutboxTest::FakeBroker->start(
	listen => $link->broker_address,
	lifetime => 3600);
my $node = OutboxTest::Node->create(
	broker => $link->in_front_of($fake),
	conf => <<"END");
outbox.allow_plaintext = on
outbox.window = $WINDOW
outbox.heartbeat = 5s
outbox.retry_initial = 50ms
outbox.retry_max = 500ms
END
my $checker = OutboxTest::Checker->install($node);
my $interruptions = 0;
my ($mark, $connections);

sub begin
{
	my ($what, @commands) = @_;
	note "--- $what";
	$fake->do('forget', 'heartbeats strict');
	$link->do('delay 0', 'rate 0', 'loss 0', 'reorder 0', "seed $seed", @commands);
	$node->wait_drained(60);
	$node->wait_sql($state, 'idle');
	$mark = scalar $fake->published;
	$connections = $fake->stats->{connections};
	return;
}

sub arrived
{
	my @published = $fake->published;
	my %count;
	$count{ $_->{id} }++
	  foreach grep { $_->{type} ne 'raw.test' } @published[ $mark .. $#published ];
	return \%count;
}

sub once
{
	my ($what, $count) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	my $start = time;

	$node->wait_drained($FULL ? 300 : 90);
	is($fake->stats->{connections}, $connections, "$what: the connection lives");
	my $arrived = arrived();
	is(scalar keys %$arrived, $count, "$what: all messages");
	is_deeply([ grep { $_ > 1 } values %$arrived ], [], "$what: each once");
	return;
}

# Seconds that a plain publisher takes for the same messages.
sub raw_seconds
{
	my ($count, $size) = @_;
	my (undef, $seconds) = plain_publisher(host => $link->host, port => $fake->port,
		exchange => 'outbox', key => 'raw', count => $count, window => $WINDOW,
		size => $size, mandatory => undef);
	$connections = $fake->stats->{connections};
	return $seconds;
}

foreach my $case ($FULL ?
	([ 300, 20_000 ], [ 100, 60_000 ], [ 5000, 200 ], [ 3, 1_500_000 ]) :
	([ 100, 20_000 ], [ 1000, 200 ], [ 2, 1_000_000 ]))
{
	my ($count, $size) = @$case;
	my $what = "$count messages of $size bytes, 200 ms, 1 MB/s";

	subtest $what => sub {
		my @ratios;
		my $took = 0;

		foreach my $try (1 .. 3)
		{
			begin($what, 'delay 100', 'rate 1000000');
			my $raw = raw_seconds($count, $size);
			my $start = time;
			$checker->enqueue($count, size => $size, per_tx => $count);
			once($what, $count);
			$took = time - $start;
			push @ratios, $raw / $took;
			note sprintf '%.1f s, RAW %.1f s, ratio %.2f', $took, $raw, $ratios[-1];
			last if $ratios[-1] >= $ENOUGH && !$FULL;
		}
		my $best = (sort { $b <=> $a } @ratios)[0];
		cmp_ok($best, '>=', $ENOUGH, 'as fast as a plain publisher');
	};
}

subtest 'lost packets, jitter' => sub {
	begin('loss', 'delay 50 50', 'loss 10', 'rate 1000000');
	my $lost = $link->stats->{lost};
	$checker->enqueue(300, size => 500, keys => 50, per_tx => 300);
	$checker->enqueue($_->[0], size => $_->[1], per_tx => 20)
	  foreach [ 20, 20_000 ], [ 3, 300_000 ], ($FULL ? [ 1, 15_000_000 ] : ());
	once('loss', 323 + ($FULL ? 1 : 0));
	cmp_ok($link->stats->{lost}, '>', $lost, 'loss: packets were lost');
};

subtest 'packets out of order' => sub {
	begin('reorder', 'delay 50', 'reorder 50', 'rate 1000000');
	$checker->enqueue(300, size => 500, keys => 50, per_tx => 300);
	$checker->enqueue(3, size => 300_000);
	once('reorder', 303);
};

subtest 'a stop, and DROP DATABASE, in the middle' => sub {
	begin('stop', 'delay 100', 'loss 10', 'rate 100000');
	$checker->enqueue(1, size => 5_000_000);
	$node->wait_sql('SELECT in_flight = 1 FROM outbox_status');
	my ($pid) = $node->backend_pids;
	my $start = time;
	kill 'TERM', $pid;
	wait_until('it ends', sub { !OutboxTest::Node::alive($pid) }, 60);
	cmp_ok(time - $start, '<', $LIMIT, 'SIGTERM');
	begin('drop');
	$node->sql('CREATE DATABASE victim');
	$node->sql('CREATE EXTENSION outbox', 'victim');
	$node->wait_sql($state, 'idle', 30, 'victim');
	$link->do('delay 100', 'loss 10', 'rate 100000');
	$node->sql(q{SELECT outbox_enqueue_bytes('e', convert_to(repeat('x', 5000000), 'UTF8'))},
		'victim');
	$node->wait_sql('SELECT in_flight = 1 FROM outbox_status', 't', 30, 'victim');
	$start = time;
	is($node->sql_fails('DROP DATABASE victim') // '', '', 'DROP DATABASE succeeds');
	cmp_ok(time - $start, '<', $LIMIT, 'and is in time');
	begin('after');
	$interruptions++;
};

$checker->check('a lossy link',
	[ grep { $_->{type} ne 'raw.test' } $fake->records ],
	interruptions => $interruptions, window => $WINDOW, case => 'J3 lossy link');
is($fake->stats->{violations}, 0, 'the broker has nothing to complain of')
  or diag join "\n", $fake->events(qr/violation/);
done_testing();
