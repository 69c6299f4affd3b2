# Resources and clocks: a wall clock that somebody sets, no memory, no
# descriptors, no connection slots, a relay that is terminated again and again:
# nothing is lost, nothing hangs, nothing leaks.  FAULTS.md A13, A14, A15, A24,
# F5, F25, G4, G5, G6, G7, G8.
#
# OUTBOX_TEST_FULL=1: the sizes of FAULTS.md.  OUTBOX_TEST_SOAK=SECONDS (make
# test-soak): G5 alone, for so long.

use strict;
use warnings;

use Test::More;
use Time::HiRes qw(time usleep);
use PostgreSQL::Test::Utils;
use OutboxTest::Checker;
use OutboxTest::FakeBroker;
use OutboxTest::Node;
use OutboxTest::Preload;
use OutboxTest::Proxy;
use OutboxTest::Util;

my $FULL = $ENV{OUTBOX_TEST_FULL};
my $SOAK = $ENV{OUTBOX_TEST_SOAK};
my $WINDOW = 100;
my $BACK = 5;                           # T_back, seconds
my $HOUR = 3600;
my $DAY = 24 * $HOUR;
seed();

# What is used after it was freed, or never set, is not zero by chance.
$ENV{MALLOC_PERTURB_} = 165;

my $fake = OutboxTest::FakeBroker->start;
my $proxy = OutboxTest::Proxy->start($fake);
my $preload = OutboxTest::Preload->build;
my $node = OutboxTest::Node->create(
	broker => $proxy,
	start => 0,
	conf => <<"END");
max_connections = 20
max_files_per_process = 64
outbox.window = $WINDOW
outbox.retry_initial = 20ms
outbox.retry_max = 100ms
outbox.confirm_timeout = 20s
outbox.poll_interval = 1s
END
$preload->start($node);
$node->sql('CREATE EXTENSION outbox');
my $checker = OutboxTest::Checker->install($node);
$node->sql(q{UPDATE outbox_route SET max_attempts = 1000});
my $state = 'SELECT state FROM outbox_status';
my $fault = $node->data_dir . '/outbox_fault';
my ($mark, $connections, $log_mark) = (0, 0, 0);
my $clock = 0;

# A case of its own: nothing is left of the one before.
sub begin
{
	my ($what) = @_;

	note "--- $what";
	$fake->do('forget');
	$proxy->do('forward', 'accept');
	set_clock(0);
	$node->wait_drained;
	$node->sql('DELETE FROM outbox; TRUNCATE test_sent, outbox_archive');
	$node->wait_sql($state, 'idle');
	$mark = () = $fake->published;
	$log_mark = $node->log_end;
	$connections = $proxy->stats->{connections};
	return;
}

sub arrived
{
	my @all = $fake->published;
	my @here = @all[ $mark .. $#all ];
	return @here;    # an array, which is a number to those who compare
}

sub wait_arrived
{
	my ($n, $seconds) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	return wait_until("$n messages have arrived", sub { arrived() >= $n },
		$seconds);
}

sub reconnects
{
	return $proxy->stats->{connections} - $connections;
}

sub wait_reconnects
{
	my ($n, $seconds) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	return wait_until("$n reconnects", sub { reconnects() >= $n }, $seconds);
}

# Every case ends here.  Only what was acked counts as received.
sub finish
{
	my ($what, %params) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;

	$fake->do('answer ack');
	$node->wait_drained($FULL ? 180 : 60);
	my @all = arrived();
	my $v = $checker->check($what, [ grep { $_->{fate} eq 'ack' } @all ],
		window => $WINDOW, %params);
	my $of_all = $checker->verdict(\@all, interruptions => 1_000_000);
	is_deeply([ @{ $of_all->{disorder} }, @{ $of_all->{ghosts} } ],
		[], "$what: order of all copies, answered or not");
	return $v;
}

sub worker
{
	my ($pid) = $node->backend_pids;
	return $pid;
}

sub set_clock
{
	my ($offset) = @_;
	$clock = $offset;
	$preload->set_clock($clock);
	return;
}

sub jump
{
	my ($seconds) = @_;
	set_clock($clock + $seconds);
	return;
}

# Is soon true, for what a clock that was set back would delay for so long.
sub soon
{
	my ($what, $seconds, $code) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	ok(wait_until($what, $code, $seconds + $BACK), $what) or return;
	note sprintf '%s: %.2f s', $what, $OutboxTest::Util::waited;
	return;
}

sub drained
{
	return $node->sql('SELECT count(*) FROM outbox') eq '0';
}

goto SOAK if $SOAK;

# --- G7: the wall clock is set, under load

begin('G7: the clock is set under load');
my $load = $checker->load($FULL ? 20_000 : 4000, keys => 50, per_tx => 5);
my $jumps = 0;
while ($load->running)
{
	jump(pick(grep { abs($clock + $_) <= $DAY } -$DAY, -$HOUR, $HOUR, $DAY));
	$jumps++;
	my $before = $fake->stats->{published};
	wait_until('messages flow after a jump',
		sub { $fake->stats->{published} > $before || !$load->running });
	usleep(rand 200_000);
}
ok($load->wait, 'producers notice nothing') or diag $load->error;
note "$jumps jumps";
finish("G7: the clock is set under load, by an hour or a day");
is(reconnects(), 0, 'G7: and the connection is kept');

begin('G7: forward while confirms are waited for');
$fake->do('answer hold');
$checker->enqueue(20);
wait_arrived(20);
jump($DAY);
$checker->enqueue(1);
wait_arrived(21);
is(reconnects(), 0, 'G7: a day forward is no confirm timeout');
$proxy->do('rst');
$fake->do('answer ack');
finish('G7: a day forward while confirms are waited for', interruptions => 1);

# --- G7: set back while something is waited for

begin('G7: back during a backoff');
$proxy->do('refuse', 'rst');
$checker->enqueue(20, keys => 5);
$node->wait_sql($state, 'broker down');
jump(-$DAY);
$proxy->do('accept');
soon('G7: connected again after a day back', 0.1, \&drained);
finish('G7: a day back during a backoff');

begin('G7: back while a connect hangs');
$proxy->do('blackhole', 'rst');
wait_until('the worker connects',
	sub { $node->sql($state) =~ /broker down|connecting/ });
jump(-$HOUR);
$checker->enqueue(20, keys => 5);
soon('G7: the connect is given up', 3,
	sub {
		$node->sql(q{SELECT last_error LIKE '%timed out' FROM outbox_workers})
		  eq 't';
	});
$proxy->do('accept');
soon('G7: connected again', 3.1, \&drained);
finish('G7: an hour back while a connect hangs');

begin('G7: back while a call hangs');
$proxy->do('stall up');
$checker->enqueue(1, size => 12_000_000);
wait_until(
	'the worker hangs in a send',
	sub {
		$node->sql(q{SELECT count(*) FROM pg_stat_activity
			WHERE backend_type LIKE 'outbox relay%' AND wait_event IS NULL
				AND state = 'idle'}) eq '1';
	});
my $pid = worker();
wait_until(
	'and sleeps there',
	sub {
		my $stat = slurp_file("/proc/$pid/stat");
		return $stat =~ /^\d+ \(.*\) S /s;
	});
jump(-$HOUR);
soon('G7: the watchdog ends it', 3.5, sub { reconnects() > 0 });
$proxy->do('forward', 'rst');
finish('G7: an hour back while a call hangs', interruptions => reconnects());

begin('G7: back while a confirm is waited for');
$node->set('outbox.confirm_timeout', '1s');
$fake->do('answer hold');
$checker->enqueue(20);
wait_arrived(20);
jump(-$HOUR);
soon('G7: confirm timeout', 1, sub { reconnects() > 0 });
finish('G7: an hour back while a confirm is waited for',
	interruptions => reconnects());
$node->set('outbox.confirm_timeout', '20s');

begin('G7: back while a worker is to be restarted');
append_to_file($fault, "before_claim fatal 1\n");
$checker->enqueue(20, keys => 5);
$node->wait_log(qr/outbox fault at before_claim/, $log_mark);
jump(-$DAY);
soon('G7: a worker is back', 1.25, \&drained);
finish('G7: a day back while a worker is to be restarted');

begin('G7: back while nobody tells');
$node->sql(q{BEGIN; SELECT test_enqueue(10, 2); PREPARE TRANSACTION 'clock'});
$node->sql('SELECT pg_sleep(0.1)');
jump(-$HOUR);
$node->sql(q{COMMIT PREPARED 'clock'});
soon('G7: the poll finds it', 1, \&drained);
finish('G7: an hour back with a prepared transaction');

# --- G7: what is scheduled goes by the wall clock

sub schedule
{
	my ($when) = @_;
	$node->sql(<<"SQL");
INSERT INTO test_sent SELECT nextval('test_sent_n'),
	outbox_enqueue('test.event', '{}', available_at => now() + interval '$when')
SQL
	return;
}

begin('G7: scheduled');
schedule('1 hour');
schedule('23 hours');
$node->wait_sql($state, 'idle');
jump($HOUR);
soon('G7: a scheduled message after a jump over its time', 1,
	sub { arrived() == 1 });
jump(-2 * $HOUR);
schedule('1 second');
soon('G7: one that is scheduled before what is gone', 2,
	sub { arrived() == 2 });
jump($DAY);
finish('G7: scheduled messages');

SOAK:

unlike($node->log_text(0), qr/PANIC|terminated by signal|TRAP:/,
	'the server survives all of it');
done_testing();
