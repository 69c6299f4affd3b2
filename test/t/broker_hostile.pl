# A broker that means harm, and a server.  Whatever it sends without end, and wherever
# the worker reads it, the connection is given up before the server's memory is: the
# worker is still the same process, connects again, and all is delivered.  (What the
# link reads is fuzzed by itself: make test-broker-fuzz; broken frames at a server:
# F25 in resources.pl; single lies and absurd tunes: broker_fake.pl.)
#
# How much memory that takes is noted, and no more: it depends on how much comes
# between two ticks of the watchdog.  Without its limit it was 1 to 1.7 GB.
#
# OUTBOX_TEST_FULL=1: also frames of all channels that there can be, which cost the
# library seconds.  doc/dev/fault-cases.md F25.
#
# suite: test faults
# takes: 15 s

use strict;
use warnings;

use Test::More;
use PostgreSQL::Test::Utils;
use OutboxTest::Checker;
use OutboxTest::FakeBroker;
use OutboxTest::Node;
use OutboxTest::Util;

my $FLOOD_MB = 4000;
my $WINDOW = 100;
my $fake = OutboxTest::FakeBroker->start;
my $node = OutboxTest::Node->create(
	broker => $fake,
	conf => <<"END");
outbox.window = $WINDOW
outbox.retry_initial = 20ms
outbox.retry_max = 100ms
outbox.confirm_timeout = 5s
END
my $checker = OutboxTest::Checker->install($node);
$node->sql(q{UPDATE outbox_route SET max_attempts = 1000});
$node->wait_sql('SELECT state FROM outbox_status', 'idle');
my $pid = $node->worker;
my $routes = 0;

sub peak_mb
{
	my ($kb) = slurp_file("/proc/$pid/status") =~ /^VmHWM:\s+(\d+) kB/m;

	return $kb / 1024;
}

# The worker reads it while nothing is asked, or instead of the answer to a declare.
sub in_a_call
{
	my ($do) = @_;

	$fake->do("stage declare times=1 : $do");
	$routes++;
	$node->sql("UPDATE outbox_route SET exchange = 'exchange$routes' WHERE name = 'default'");
	return;
}

sub case
{
	my ($what, $how, $text) = @_;
	my $mark = $node->log_end;
	my $before = peak_mb();

	$fake->mark_connections;
	$how->();
	$checker->enqueue(20, keys => 5);
	ok($node->wait_log($text, $mark, 2 * $TIMEOUT), "$what: is noticed");
	$fake->do('forget');
	$fake->wait_reconnects(1);
	$node->wait_drained;
	is($node->worker, $pid, "$what: the worker is still the same");
	note sprintf '%s: at most %.0f MB, %.0f before', $what, peak_mb(), $before;
	return;
}

my $given_up = qr/outbox relay (?:lost|gives) its connection/;
my $endless = qr/the broker sends without end what has no place here/;

case('heartbeats', sub { $fake->do("now flood heartbeats $FLOOD_MB") }, $endless);
case('heartbeats instead of an answer',
	sub { in_a_call("flood heartbeats $FLOOD_MB") }, $endless);
case('a return instead of an answer',
	sub { in_a_call("flood return $FLOOD_MB") }, $given_up);
# A broker that blocks is waited for, and whether the worker looks while it is just blocked
# is chance: so this one ends, after some seconds.
case('blocked and unblocked instead of an answer',
	sub { in_a_call('flood blocked 400') }, qr/an exchange was not declared within/);
case('bodies of nothing', sub { $fake->do("now flood bodies $FLOOD_MB") },
	$given_up);
case('acks of one message', sub { $fake->do("now flood acks $FLOOD_MB") }, $given_up);
case('arrays in arrays', sub { $fake->do('now deep 26000') }, $given_up);
case('heartbeats of all channels', sub { $fake->do('now flood channels 1') }, $endless)
  if $ENV{OUTBOX_TEST_FULL};

$checker->check_copies('a hostile broker', [ $fake->published ],
	interruptions => 20, window => $WINDOW);
unlike($node->log_text(0), qr/terminated by signal|PANIC|TRAP:/, 'nothing crashes');
done_testing();
