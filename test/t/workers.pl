# Several workers for one database: keys are divided among them, and whatever
# happens to a worker, or to their number, nothing is lost, published again
# beyond the window, or put out of order.  Guarantee 6.  (A worker that was
# replaced while it was stopped: relay_logic.pl, I2.)
#
# OUTBOX_TEST_FULL=1: more of everything.
# OUTBOX_TEST_STEPS=N: length of the random history.
#
# suite: test faults
# takes: 63 s

use strict;
use warnings;

use List::Util qw(max sum0);
use Test::More;
use Time::HiRes qw(time);
use PostgreSQL::Test::Utils;
use OutboxTest::Checker;
use OutboxTest::Consumer;
use OutboxTest::Node;
use OutboxTest::Rabbit;
use OutboxTest::Util;

my $FULL = $ENV{OUTBOX_TEST_FULL};
my $STEPS = $ENV{OUTBOX_TEST_STEPS} // ($FULL ? 150 : 12);
my $WINDOW = 100;
my $MOST = 8;

# Launchers of outbox and of logical replication need one process each.
my $STATIC = 2;
# Seconds, far above what it takes, on a machine with other things to do.
my $BACK = 10;
# A group of workers that was too large for the free processes tries again.
my $GROWS = 40;

seed();
my $rabbit = OutboxTest::Rabbit->start;
my $node = OutboxTest::Node->create(
	broker => $rabbit,
	conf => <<"END");
outbox.window = $WINDOW
outbox.poll_interval = 200ms
max_worker_processes = 20
outbox.max_workers = 20
END
my $checker = OutboxTest::Checker->install($node);
my $order = $node->data_dir . '/outbox_test_point';
my $consumer;

# What may be published twice since begin().
my $interruptions;
my $twice;

sub begin
{
	my ($what) = @_;

	note "--- $what";
	$node->wait_drained;
	$node->sql('TRUNCATE test_sent');
	$consumer = OutboxTest::Consumer->start($rabbit, exchange => 'outbox');
	$interruptions = $twice = 0;
	return;
}

sub finish
{
	my ($what) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;

	$node->wait_drained($FULL ? 300 : 60);
	$consumer->wait_count($node->sql('SELECT count(*) FROM test_sent'));
	my $v = $checker->check($what, [ $consumer->stop ],
		case => $what,
		interruptions => $interruptions,
		window => $twice / max(1, $interruptions));
	note "$v->{committed} messages, $v->{duplicates} duplicates, $twice allowed";
	return;
}

sub interrupted
{
	my ($workers) = @_;

	$interruptions++;
	$twice += $WINDOW * $workers;
	return;
}

# --- producers: a key is written to by one session

my @load;

sub start_load
{
	@load = map {
		$checker->run(
			"SET client_min_messages = warning;\n"
			  . "SELECT test_enqueue(@{[ 1 + int rand 6 ]}, $_, 'l$_.'); SELECT pg_sleep(0.004);\n"
			  x 20_000)
	} (2, 10, 30, 0);
	return;
}

# A server that ends, ends their sessions; nothing else may.
sub stop_load
{
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	$_->running foreach @load;
	is(join('', map { $_->complaints } @load), '', 'producers have met no error');
	$_->stop foreach @load;
	@load = ();
	return $node->wait_sql(
		q{SELECT count(*) FROM pg_stat_activity WHERE query LIKE 'SELECT test_enqueue%' AND pid <> pg_backend_pid()},
		0);
}

# --- workers

# Each number from 0 has its worker, and they all work.
sub all_work
{
	my ($n) = @_;
	return "SELECT count(pid) = $n AND count(*) FILTER (WHERE state IN ('idle', 'publishing') AND worker < $n) = $n FROM outbox_workers";
}

sub wait_workers
{
	my ($n, $seconds) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	return $node->wait_sql(all_work($n), 't', $seconds // $BACK)
	  || diag $node->sql('SELECT worker, pid, state, last_error FROM outbox_workers');
}

my $count = 1;

# By one or the other of the two ways; the database's own setting counts more.
sub set_workers
{
	my ($n, $way) = @_;

	$count = $n;
	if ($way eq 'system')
	{
		$node->sql('ALTER DATABASE postgres RESET outbox.workers');
		$node->set('outbox.workers', $n);
	}
	else
	{
		$node->sql("ALTER DATABASE postgres SET outbox.workers = $n");
		$node->sql('SELECT pg_reload_conf()');
	}
	return;
}

# A prefix p for each of four workers such that the key p1 is one of its.
my @prefixes = map { $_->[0] } $node->rows(q{SELECT min(p)
	FROM (SELECT p, (outbox_internal.outbox_key_hash('default', 'test', p || '1') & 9223372036854775807) % 4 AS worker
		FROM (SELECT 'own' || g || '.' AS p FROM generate_series(1, 1000) g) s) s
	GROUP BY worker ORDER BY worker});

sub own
{
	my %ids = map { $_->{id} => 1 } grep { ($_->{aggregate_id} // '') =~ /^own/ } $consumer->records;
	return scalar keys %ids;
}

# A message of a key of each of four workers is delivered; seconds from $since.
sub serves_all
{
	my ($since, $limit, $name) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	my $before = own();

	$node->sql(join ';', map { "SELECT test_enqueue(1, 1, '$_')" } @prefixes);
	wait_until("$name: messages arrive", sub { own() == $before + 4 }, $limit + 20);
	my $took = time - $since;
	cmp_ok($took, '<', $limit, "$name: keys of every worker are served");
	note sprintf '%s: after %.2f s', $name, $took;
	return $took;
}

# --- another number, under load

begin('outbox.workers 1, 4, 2, 8, 1 under load');
start_load();
$consumer->wait_flow('one worker', 100);
foreach my $change ([ 4, 'system' ], [ 2, 'database' ], [ 8, 'database' ], [ 1, 'system' ])
{
	my ($n, $way) = @$change;
	my $start = time;

	set_workers($n, $way);
	wait_workers($n);
	note sprintf 'outbox.workers = %d by ALTER %s: %.2f s', $n, uc $way, time - $start;
	$consumer->wait_flow("$n workers", 100);
}
stop_load();
finish('outbox.workers 1, 4, 2, 8, 1 under load');

# --- a worker's keys after its end: how soon they go on

set_workers(4, 'system');
wait_workers(4);
begin('a worker ends, and its keys go on');
my %takeover;
foreach my $i (1 .. ($FULL ? 10 : 2))
{
	$node->sql(q{SELECT pg_terminate_backend(pid) FROM outbox_workers WHERE worker = } . int rand 4);
	push @{ $takeover{terminated} }, serves_all(time, $BACK, 'one is terminated');
	wait_workers(4);
	$node->sql('SELECT pg_terminate_backend(pid) FROM outbox_workers');
	push @{ $takeover{'all terminated'} }, serves_all(time, $BACK, 'all are terminated');
	wait_workers(4);
}
# One that ends by a FATAL error waits for a second or more, the others go on.
append_to_file("$order.new", "before_claim fatal 1\n");
rename "$order.new", $order or die "$order: $!";
push @{ $takeover{FATAL} }, serves_all(time, $BACK, 'one ends by FATAL');
ok(!-e $order, 'one has ended by FATAL');
interrupted(4);
wait_workers(4);
foreach my $i (1 .. ($FULL ? 5 : 1))
{
	my ($pid) = $node->backend_pids;
	my $offset = $node->log_end;
	my $start = time;
	kill 'KILL', $pid;
	$node->wait_log(qr/ready to accept connections/, $offset);
	$node->wait_restarted;
	interrupted(4);
	push @{ $takeover{'SIGKILL, server restarts'} },
	  serves_all($start, 2 * $BACK, 'one is killed');
	wait_workers(4);
}
note sprintf 'take-over, %s: median %.2f s, maximum %.2f s', $_,
  median(@{ $takeover{$_} }), max(@{ $takeover{$_} })
  foreach sort keys %takeover;
finish('a worker ends, and its keys go on');

# --- fewer processes than workers

$node->adjust_conf('postgresql.conf', 'max_worker_processes', $STATIC + 4);
set_workers(1, 'system');
$node->restart;
wait_workers(1);
$node->sql(<<'SQL');
CREATE TABLE sleepers (n int, pad text);
ALTER TABLE sleepers ALTER pad SET STORAGE PLAIN;
INSERT INTO sleepers SELECT g, repeat('x', 7000) FROM generate_series(1, 100) g;
ANALYZE sleepers;
CREATE FUNCTION sleeps(int) RETURNS int PARALLEL SAFE LANGUAGE plpgsql AS $$
BEGIN PERFORM pg_sleep(20); RETURN $1; END $$;
SQL

# A parallel query takes n of the processes, as far as they are free, until it is
# ended.
my $occupant;

sub occupy
{
	my ($n, $got) = @_;

	$occupant = $checker->run(<<"END");
SET client_min_messages = warning;
SET parallel_setup_cost = 0; SET parallel_tuple_cost = 0;
SET min_parallel_table_scan_size = 0;
ALTER TABLE sleepers SET (parallel_workers = $n);
SET max_parallel_workers = $n; SET max_parallel_workers_per_gather = $n;
SELECT sum(sleeps(n)) FROM sleepers;
END
	return $node->wait_sql(
		q{SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'parallel worker'},
		$got // $n, 10) || diag $occupant->error;
}

sub vacate
{
	$node->sql(q{SELECT pg_terminate_backend(pid) FROM pg_stat_activity
		WHERE query LIKE '%FROM sleepers%' AND backend_type = 'client backend' AND pid <> pg_backend_pid()});
	$node->wait_sql(
		q{SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'parallel worker'}, 0);
	$occupant->wait;
	return;
}

begin('fewer processes than outbox.workers');
my $offset = $node->log_end;
start_load();
occupy(1);
set_workers(4, 'system');
wait_workers(3);
stop_load();
my $start = time;
serves_all($start, $BACK, 'three of four could start');
like($node->log_text($offset), qr/no worker process is free.*\n.*\n.*max_worker_processes/,
	'the log says so, with a hint');
start_load();
$consumer->wait_flow('three of four workers', 100);
vacate();
$start = time;
wait_workers(4, $GROWS);
note sprintf 'all four run %.1f s after a process became free', time - $start;
$consumer->wait_flow('four workers again', 100);
stop_load();

# Somebody else takes the process of a worker that ended, before the launcher.
foreach my $worker (0, 3)
{
	my ($launcher) = $node->backend_pids('outbox launcher');

	kill 'STOP', $launcher;
	$node->sql("SELECT pg_terminate_backend(pid, 5000) FROM outbox_workers WHERE worker = $worker");
	occupy(1);
	kill 'CONT', $launcher;
	$start = time;
	serves_all($start, $BACK, "the process of worker $worker was taken");
	wait_workers(3);
	vacate();
	$start = time;
	wait_workers(4, $GROWS);
	note sprintf 'all four run %.1f s after a process became free', time - $start;
}

# And all of them.
my ($launcher) = $node->backend_pids('outbox launcher');
kill 'STOP', $launcher;
$node->sql('SELECT pg_terminate_backend(pid, 5000) FROM outbox_workers');
occupy(4);
kill 'CONT', $launcher;
$checker->enqueue(100, keys => 20, prefix => 'none');
$node->wait_sql('SELECT state FROM outbox_status', 'stopped');
is($node->sql('SELECT workers FROM outbox_status'), '0', 'no process at all: no worker');
like($node->sql('SELECT hint FROM outbox_status'), qr/max_worker_processes/, 'with a hint');
vacate();
$start = time;
serves_all($start, $BACK, 'when processes become free again');
wait_workers(4, $GROWS);
finish('fewer processes than outbox.workers');

# --- a random history

$node->adjust_conf('postgresql.conf', 'max_worker_processes', 20);
$node->restart;
wait_workers(4);
begin("$STEPS random steps");

sub some_pid
{
	return pick($node->backend_pids) // 0;
}

my %deed = (
	'another number' => sub {
		set_workers(1 + int rand $MOST, pick('system', 'database'));
	},
	'one terminated' => sub { kill 'TERM', some_pid() || return },
	'all terminated' => sub { $node->kill_backends('TERM') },
	'outbox_worker_restart()' => sub { $node->sql('SELECT outbox_worker_restart()') },
	'launcher terminated' => sub { $node->kill_backends('TERM', 'outbox launcher') },
	'one ends by FATAL' => sub {
		my $point = pick(qw(before_claim after_claim after_claim_commit mid_publish
			  all_sent some_acks after_settle after_settle_commit));

		append_to_file("$order.new", "$point fatal 1\n");
		rename "$order.new", $order or die "$order: $!";
		wait_until("FATAL at $point", sub { !-e $order });
		# More than one may have seen the order.
		interrupted($MOST);
	},
	'one killed, server restarts' => sub {
		my $at = $node->log_end;

		kill 'KILL', some_pid() || return;
		$node->wait_log(qr/ready to accept connections/, $at);
		$node->wait_restarted;
		stop_load();
		interrupted($MOST);
		start_load();
	},
	'server restarts at once' => sub {
		$node->stop('immediate');
		$node->start;
		stop_load();
		interrupted($MOST);
		start_load();
	});
# The launcher comes back after 5 s, a server that was killed after 1 s.
my @deck = ((grep { !/killed|immediate|launcher/ } sort keys %deed) x 3, sort keys %deed);
my %done;

start_load();
foreach my $step (1 .. $STEPS)
{
	my $deed = pick(@deck);

	$consumer->wait_flow("before $deed", 20 + int rand 200) || last;
	$deed{$deed}->();
	$done{$deed}++;
}
$consumer->wait_flow('after the last step', 100);
stop_load();
wait_workers($count, 60);
note join ', ', map { "$_: $done{$_}" } sort keys %done;
finish("$STEPS random steps with workers");
# --- the extension goes and comes back while one of two workers stands still: what
# is committed then is told to that one

$node->sql('ALTER DATABASE postgres SET outbox.workers = 1');
$node->sql('SELECT outbox_worker_restart()');
wait_workers(1);
$node->sql('CREATE DATABASE again');
$node->sql('ALTER DATABASE again SET outbox.workers = 2');
$node->sql('CREATE EXTENSION outbox', 'again');
$node->wait_sql(all_work(2), 't', 30, 'again');
my %pid = map { @$_ } $node->rows('SELECT worker, pid FROM outbox_workers', 'again');
kill 'STOP', $pid{1};
$node->sql('DROP EXTENSION outbox', 'again');
wait_until('worker 0 has left', sub { !OutboxTest::Node::alive($pid{0}) });
$node->sql('CREATE EXTENSION outbox', 'again');
$node->sql(q{SELECT outbox_enqueue('again', '{}')}, 'again');
kill 'CONT', $pid{1};
ok($node->wait_sql(all_work(2), 't', 10, 'again'), 'the database is not forgotten');

unlike($node->log_text, qr/TRAP:|PANIC:|terminated by signal (?!9:)/,
	'no process crashed by itself');
$node->stop;
done_testing();
