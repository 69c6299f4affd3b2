# One launcher serves every database that has the extension, found without
# configuration: more of them than worker processes take turns, and what is wrong
# with one is no matter to the others.  doc/dev/fault-cases.md A18, B18, B19.
#
# OUTBOX_TEST_FULL=1: 20 databases instead of 8.
#
# suite: test faults
# takes: 61 s

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
my $DATABASES = $FULL ? 20 : 8;
# Launchers of outbox and of logical replication need one each.
my $PROCESSES = $FULL ? 8 : 5;
my $WORKERS = $PROCESSES - 2;
# All that are busy have had a turn after so long.
my $ROUND_S = 5 * $DATABASES / $WORKERS + 10;

my $rabbit = OutboxTest::Rabbit->start;
my $node = OutboxTest::Node->create(
	broker => $rabbit,
	extension => 0,
	conf => "max_worker_processes = $PROCESSES\noutbox.max_workers = 100");
my @names = map { "db$_" } 1 .. $DATABASES;
my %checker;
my %consumer;

my $from = $node->log_end;
foreach my $db (@names)
{
	$node->sql("CREATE DATABASE $db");
	$node->sql('CREATE EXTENSION outbox', $db);
	$node->sql("UPDATE outbox_route SET exchange = 'x_$db', exchange_type = 'topic'", $db);
	$checker{$db} = OutboxTest::Checker->install($node, dbname => $db);
	$consumer{$db} = OutboxTest::Consumer->start($rabbit,
		queue => "q_$db", exchange => "x_$db");
}

# --- little to do everywhere: each is served soon after its commit

my $at = time;
$checker{$_}->enqueue(20, keys => 5) foreach @names;
$consumer{$_}->wait_count(20, $ROUND_S) foreach @names;
note sprintf '%d databases, %d processes: 20 messages of each delivered after %.1f s',
  $DATABASES, $WORKERS, time - $at;

my (@seconds, @there);
foreach my $round (1 .. 3)
{
	foreach my $db (@names)
	{
		my $before = $consumer{$db}->unique;
		$at = time;
		$checker{$db}->enqueue(1);
		$consumer{$db}->wait_count($before + 1, 10);
		push @seconds, time - $at;
		# once more, where the worker is
		$at = time;
		$checker{$db}->enqueue(1);
		$consumer{$db}->wait_count($before + 2, 10);
		push @there, time - $at;
	}
}
note sprintf 'one message in one database after the other: median %.2f s, maximum %.2f s',
  median(@seconds), percentile(100, @seconds);
note sprintf 'with its worker: median %.2f s', median(@there);
cmp_ok(median(@seconds), '<', 2 + 10 * median(@there), 'an idle database makes room at once');

# --- busy everywhere: none starves

my %load = map { $_ => $checker{$_}->load($FULL ? 20_000 : 4_000, keys => 50, per_tx => 50) } @names;
my %first;
wait_until('every database is served while all are busy',
	sub {
		foreach my $db (@names)
		{
			$first{$db} //= time if $consumer{$db}->unique > 133;
		}
		return keys %first == @names;
	}, $ROUND_S);
ok($load{$_}->wait, "$_: load went through") foreach @names;
ok($node->wait_drained($FULL ? 300 : 100, $_), "$_: drained") foreach @names;
my @lines = $node->log_text($from) =~ /no worker process is free/g;
is(scalar @lines, 1, 'one line in the log says that processes are scarce');
like($node->log_text($from), qr/HINT: .*max_worker_processes/, 'with a hint');
@lines = $node->log_text($from) =~ /is connected to the broker/g;
cmp_ok(scalar @lines, '<=', 2 * $DATABASES, 'and a turn is not worth a line');
note scalar(@lines) . ' lines about connections';

# --- a schedule and a prepared transaction keep their time, though their database rests

my ($resting) = @names;
$node->sql(q{SELECT outbox_enqueue('later', '{}', available_at => clock_timestamp() + interval '3 seconds')}, $resting);
my $before = $consumer{$resting}->unique;
$at = time;
foreach my $db (@names[ 1 .. $#names ])
{
	$checker{$db}->enqueue(1);
}
$consumer{$resting}->wait_count($before + 1, 15);
cmp_ok(time - $at, '<', 10, 'a scheduled message of a database that rests comes in time');

$node->sql(q{BEGIN; SELECT outbox_enqueue('later', '{}'); PREPARE TRANSACTION 'rests'}, $resting);
foreach my $db (@names[ 1 .. $#names ])
{
	$checker{$db}->enqueue(1);
	$node->wait_drained($ROUND_S, $db);
}
$node->sql(q{COMMIT PREPARED 'rests'}, $resting);
$at = time;
$consumer{$resting}->wait_count($before + 2, 15);
cmp_ok(time - $at, '<', 10, 'and so does one of a transaction that was prepared');

# --- one has a broker that does not answer, another a wrong password

my ($down, $wrong) = @names[ -1, -2 ];
$node->sql("ALTER DATABASE $down SET outbox.broker_uri = 'amqp://guest\@127.0.0.1:1/'");
$node->sql("ALTER DATABASE $wrong SET outbox.broker_uri = 'amqp://nobody\@127.0.0.1/'");
$node->sql('SELECT outbox_worker_restart()', $_) foreach $down, $wrong;
my @healthy = @names[ 0 .. $#names - 2 ];
$checker{$_}->enqueue(50, keys => 5) foreach $down, $wrong;
$before = { map { $_ => $consumer{$_}->unique } @healthy };
$at = time;
$checker{$_}->enqueue(200, keys => 5) foreach @healthy;
$consumer{$_}->wait_count($before->{$_} + 200, $ROUND_S) foreach @healthy;
note sprintf 'beside a broker that is down and one that refuses: all others after %.1f s', time - $at;
$node->sql("ALTER DATABASE $_ RESET outbox.broker_uri") foreach $down, $wrong;
$node->sql('SELECT outbox_worker_restart()', $_) foreach $down, $wrong;
ok($node->wait_drained(90, $_), "$_: drained when its setting is mended") foreach $down, $wrong;

# --- everything was delivered, in order

foreach my $db (@names)
{
	my @records = grep { ($_->{type} // '') ne 'later' } $consumer{$db}->stop;
	$checker{$db}->check("$db", \@records, case => 'B19: databases take turns');
}

# --- processes come back: nobody has to wait any more

$node->adjust_conf('postgresql.conf', 'max_worker_processes', $DATABASES + 4);
$node->restart;
ok($node->wait_sql(
	q{SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'outbox relay'}, $DATABASES, 60),
	'with enough processes all have their worker');
$node->stop;
done_testing();
