# A bad network between the relay and its broker loses nothing: connections
# that end after any byte, resets, half-open ones, slow ones, stalled ones; and
# no state of the network delays a stop.  doc/dev/fault-cases.md F4, F5, F6, F29, A4, A6.
#
# OUTBOX_TEST_FULL=1: every byte, and hundreds of resets.
#
# suite: test faults
# takes: 60 s

use strict;
use warnings;

use Test::More;
use Time::HiRes qw(time usleep);
use PostgreSQL::Test::Utils;
use OutboxTest::Checker;
use OutboxTest::Consumer;
use OutboxTest::Node;
use OutboxTest::Proxy;
use OutboxTest::Rabbit;
use OutboxTest::Util;

my $FULL = $ENV{OUTBOX_TEST_FULL};
my $WINDOW = 100;
my $STOP_LIMIT = 5;
my $POSITIONS = 20;                     # of a cut, in each sweep
my $RESETS = $FULL ? 1000 : 40;
seed();

my $rabbit = OutboxTest::Rabbit->start;
my $proxy = OutboxTest::Proxy->start($rabbit);
my $node = OutboxTest::Node->create(
	broker => $proxy,
	conf => <<"END");
outbox.window = $WINDOW
outbox.retry_initial = 10ms
outbox.retry_max = 40ms
outbox.heartbeat = 60s
outbox.confirm_timeout = 20s
END
my $checker = OutboxTest::Checker->install($node);
my $consumer;

# Each case has its own ledger and consumer; nothing is left of the one before.
my $log_mark;

sub begin
{
	my ($what) = @_;

	note "--- $what";
	$proxy->do('forward');
	$node->wait_drained;
	$node->sql('TRUNCATE test_sent, outbox_archive');
	$consumer = OutboxTest::Consumer->start($rabbit, exchange => 'outbox');
	$node->wait_sql('SELECT state FROM outbox_status', 'idle');
	$proxy->mark_connections;
	$log_mark = $node->log_end;
	return;
}

# Every case ends here.
sub finish
{
	my ($what, %params) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;

	$node->wait_drained($FULL ? 180 : 60);
	$consumer->wait_count($node->sql('SELECT count(*) FROM test_sent'));
	my $v = $checker->check($what, [ $consumer->stop ],
		window => $WINDOW, %params);
	is( $node->sql(
			'SELECT (SELECT count(*) FROM outbox_archive WHERE attempts > 0)
				+ (SELECT count(*) FROM outbox WHERE attempts > 0)'),
		'0',
		"$what: no attempt is counted");
	return $v;
}

# Sockets and the like, but not files, of which the server keeps some open.
sub descriptors
{
	my ($pid) = @_;
	return scalar grep { (readlink // '') =~ /^(socket|anon_inode|pipe):/ }
	  glob "/proc/$pid/fd/*";
}

# --- F4: the connection ends after any byte

# Enqueues one message and waits until it is settled.
my $keys = 0;

sub one_message
{
	my $key = ++$keys % 5;
	return $node->sql(<<"SQL");
SELECT test_enqueue(1, 1, 'cut$key');
DO \$\$BEGIN
	FOR i IN 1 .. 6000 LOOP
		IF NOT EXISTS (SELECT FROM outbox) THEN
			RETURN;
		END IF;
		PERFORM pg_sleep(0.005);
	END LOOP;
	RAISE 'message is not settled';
END\$\$;
SQL
}

# Bytes in both directions while code runs.
sub bytes
{
	my ($code) = @_;
	my $before = $proxy->stats;
	$code->();
	my $after = $proxy->stats;
	return map { $_ => $after->{$_} - $before->{$_} } qw(up down);
}

sub positions
{
	my ($most) = @_;
	return 0 .. $most if $FULL || $most < $POSITIONS;
	my %at = (0 => 1, 1 => 1, $most - 1 => 1, $most => 1);
	$at{ int rand $most }++ while keys %at < $POSITIONS;
	return sort { $a <=> $b } keys %at;
}

# the worker makes its second set of events with a message on a connection that has proven itself
begin('warming up');
one_message() for 1 .. 5;
finish('warming up');

begin('cuts');
my $pid = $node->worker;
my $descriptors = descriptors($pid);
my %publish = bytes(\&one_message);
my %whole = bytes(
	sub {
		$proxy->do('close');
		$proxy->wait_reconnects(1);
		one_message();
	});
note "bytes of a publish: $publish{up} up, $publish{down} down; "
  . "of a connection with one: $whole{up} up, $whole{down} down";
my $start = time;
my $cuts = $proxy->stats->{cuts};
my $tries = 0;
my $forced = 0;

foreach my $direction (qw(up down))
{
	# within the frames of a message and of its confirm
	foreach my $at (positions($publish{$direction}))
	{
		$proxy->cut_once($direction, $at, pick(qw(fin rst)));
		one_message();
		$tries++;
	}

	# from the first byte of a connection to the last one
	foreach my $at (positions($whole{$direction}))
	{
		$proxy->do("cut $direction off", 'close');
		$forced++;
		$proxy->cut_once($direction, $at, pick(qw(fin rst)));
		one_message();
		$tries++;
	}
	$proxy->do("cut $direction off");
}
$cuts = $proxy->stats->{cuts} - $cuts;
note sprintf '%d cuts in %d tries, %.1f s', $cuts, $tries, time - $start;
cmp_ok($cuts, '>=', $tries - 8, 'nearly all cuts took place');
my $v = finish('cuts after any byte', interruptions => $cuts + $forced);
cmp_ok($v->{duplicates}, '<=', $cuts, 'at most one duplicate a cut');
cmp_ok($v->{most}, '<=', 3, 'and none came again and again');
is($node->worker, $pid, 'the worker is still the same');
cmp_ok(descriptors($pid), '<=', $descriptors, 'and has no more descriptors');

# --- F5: resets at random times

begin('resets');
my $load = $checker->load(
	$FULL ? 100_000 : 5000,
	keys => 50,
	per_tx => 20,
	size => 500);
my $hits = 0;
for (1 .. $RESETS)
{
	usleep(rand 60_000);
	$hits += $proxy->stats->{open};
	$proxy->do('rst');
}
ok($load->wait(300), 'producers notice nothing') or diag $load->error;
cmp_ok($hits, '>', 0, "$hits of $RESETS resets hit a connection");
note $proxy->reconnects . ' reconnects';
finish("$RESETS resets at random times", interruptions => $proxy->reconnects + 1);
is($node->worker, $pid, 'the worker is still the same');
cmp_ok(descriptors($pid), '<=', $descriptors, 'and has no more descriptors');

# --- F6: half-open connections

foreach my $heartbeat (1, 2)
{
	$proxy->mark_connections;
	$node->set('outbox.heartbeat', "${heartbeat}s");
	$proxy->wait_reconnects(1);

	begin("half-open while idle, heartbeat $heartbeat s");
	$proxy->half_open;
	$start = time;
	$proxy->wait_reconnects(1);
	# what notices it otherwise is confirm_timeout, 20 s, or nothing
	cmp_ok(time - $start, '<', 2 * $heartbeat + 8,
		'noticed by the lack of heartbeats');
	note sprintf 'after %.2f s', time - $start;
	$checker->enqueue(10, keys => 3);
	$v = finish("half-open while idle, heartbeat $heartbeat s");
	is($v->{duplicates}, 0, 'nothing was in flight');

	begin("half-open, then messages, heartbeat $heartbeat s");
	$proxy->half_open;
	$checker->enqueue(500, keys => 10);
	$start = time;
	finish("half-open, then messages, heartbeat $heartbeat s",
		interruptions => 1);
	cmp_ok(time - $start, '<', 2 * $heartbeat + 5, 'delivered in time');
	note sprintf 'after %.2f s', time - $start;
	last unless $FULL;
}

# Only the broker's side is lost: it goes on, and its confirms are.
begin('half-open in one direction');
$proxy->do('swallow down', 'forward');
$checker->enqueue(100, keys => 10);
$v = finish('half-open in one direction', interruptions => 1);
cmp_ok($v->{duplicates}, '>', 0, 'messages whose confirms were lost come twice');

# --- F29: a slow network is no fault

begin('slow network');
$proxy->do('delay both 100', 'rate both 64000');
$checker->enqueue(300, keys => 100, size => 200);
$start = time;
$v = finish('slow network');
note sprintf '300 messages with 200 ms and 64 kB/s: %.1f s', time - $start;
is($v->{duplicates} + $proxy->reconnects, 0, 'no reconnect, no duplicate');

begin('a large message over a slow network');
$proxy->do('delay both 100', 'rate both 64000');
$checker->enqueue(1, size => 250_000);
$checker->enqueue(20, keys => 5);
$start = time;
$v = finish('a large message over a slow network');
note sprintf '250 kB with 64 kB/s, heartbeat 1 s: %.1f s', time - $start;
is($v->{duplicates} + $proxy->reconnects, 0, 'no reconnect, no duplicate');

# --- stalls, and connections that cannot be made: a stop does not wait

$proxy->do('forward');
$proxy->mark_connections;
$node->set('outbox.heartbeat', '15s');
$proxy->wait_reconnects(1);

sub stop_in_time
{
	my ($when) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	my $from = time;

	$node->stop('fast');
	my $took = time - $from;
	cmp_ok($took, '<', $STOP_LIMIT, "stop $when");
	note sprintf 'stop %s: %.2f s', $when, $took;
	return;
}

foreach my $stall ('up', 'down', 'both')
{
	foreach my $size (200, 20_000, 4_000_000)
	{
		my $what = "stalled $stall, messages of $size bytes";
		my $count = $size > 1_000_000 ? 2 : 300;

		# the rest by OUTBOX_TEST_FULL
		next unless $FULL || $size == 20_000 || "$stall $size" eq 'up 4000000';
		begin($what);
		$checker->enqueue(1);
		$consumer->wait_count(1);
		$node->wait_drained;
		$proxy->do("stall $stall");
		$checker->enqueue($count, size => $size, per_tx => 300);
		$node->wait_sql('SELECT in_flight > 0 FROM outbox_status')
		  if $size < 1_000_000;
		usleep(300_000);
		stop_in_time($what);
		is($consumer->unique, 1, 'it was stalled') unless $stall eq 'down';
		$proxy->do('forward', 'rst');
		$node->start;
		finish($what, interruptions => 1);
	}
}

# Without a stop: it goes on when the stall ends, also in the middle of a message.
# (One that lasts for two heartbeats is in link_slow.pl.)
foreach my $case ([ 1, 200, 20_000 ], [ 4, 1, 12_000_000 ],
	($FULL ? ([ 8, 200, 20_000 ], [ 1, 1, 12_000_000 ]) : ()))
{
	my ($seconds, $count, $size) = @$case;
	my $what = "a stall of $seconds s, messages of $size bytes";

	begin($what);
	$proxy->do('stall up');
	$checker->enqueue($count, keys => 50, size => $size);
	$start = time;
	wait_until('stalled', sub { time - $start > $seconds });
	$proxy->do('forward');
	$v = finish($what, interruptions => $proxy->reconnects);
	is($v->{duplicates} + $proxy->reconnects, 0, "$what: no reconnect, no duplicate");
}

foreach my $door (qw(refuse silent blackhole))
{
	begin("$door");
	$proxy->do($door, 'rst');
	$checker->enqueue(20, keys => 5);
	$node->wait_sql(q{SELECT state IN ('broker down', 'connecting')
		FROM outbox_status});
	usleep(rand 300_000);
	stop_in_time("with door $door");
	$proxy->do('accept', 'rst');
	$node->start;
	finish("stop with door $door");
}

unlike($node->log_text(0), qr/PANIC|terminated by signal|TRAP:/,
	'the server survives all of it');
done_testing();
