# Durable first: no byte goes to the broker before the commit that enqueued it is
# on disk, and on the synchronous standbys where there are any, whatever
# synchronous_commit the producers use.  doc/dev/fault-cases.md C5, C6, D9, A9, A11.
#
# C5 kills all processes of the server at random moments, with producers that do
# not wait for the disk, and asks the recovered database about each message that
# a consumer has received.  test_sent, written in the transaction that enqueues,
# knows whether it survived.  What a process has written to a file survives its
# death, so the WAL writer is stopped in most rounds: then only the relay brings
# the producers' commits to the disk.  That this test would notice is shown by
# rounds in which the relay does not wait for the disk, which must make ghosts.
#
# OUTBOX_TEST_FULL=1: 500 rounds instead of 25.
#
# suite: test faults
# takes: 76 s

use strict;
use warnings;

use IPC::Run ();
use Test::More;
use Time::HiRes qw(time usleep);
use PostgreSQL::Test::Utils;
use OutboxTest::Checker;
use OutboxTest::Consumer;
use OutboxTest::Node;
use OutboxTest::Rabbit;
use OutboxTest::Util;

my $ROUNDS = $ENV{OUTBOX_TEST_FULL} ? 500 : 25;
my $CONTROL_ROUNDS = 3;
my $WINDOW = 50;    # less than what arrives in most rounds
my $STOP_LIMIT = 5;

# A message that may be sent is there in a tenth of that.
my $SILENCE = 1.5;

seed();
my $rabbit = OutboxTest::Rabbit->start;
my $node = OutboxTest::Node->create(
	broker => $rabbit,
	allows_streaming => 1,
	conf => <<"END");
outbox.window = $WINDOW
wal_writer_delay = 10s
wal_buffers = 16MB
autovacuum = off
END
my $checker = OutboxTest::Checker->install($node);
my $state = 'SELECT state FROM outbox_status';
my $consumer;

sub begin
{
	$node->sql('TRUNCATE test_sent, outbox, outbox_archive');
	$consumer = OutboxTest::Consumer->start($rabbit, exchange => 'outbox');
	return;
}

# --- C5: crashes of the whole server

# How producers come to use synchronous_commit = off.  The first script has no
# keys, the second one of each session.
my $keyless = 'SELECT test_enqueue(1);';
my $keyed = q{SELECT test_enqueue(2, 1, 'k' || :client_id || '.');};
my %ways = (
	session => { options => '-c synchronous_commit=off' },
	'SET LOCAL' => { before => "BEGIN;\nSET LOCAL synchronous_commit = off;\n", after => "\nCOMMIT;" },
	role => { user => 'careless' },
	database => { setting => 'DATABASE postgres' });
$node->sql(<<'SQL');
CREATE ROLE careless LOGIN SUPERUSER;
ALTER ROLE careless SET synchronous_commit = off;
SQL

sub script
{
	my ($way, $number, $sql) = @_;
	my $name = $way =~ s/\W/_/gr;
	my $file = "$PostgreSQL::Test::Utils::tmp_check/durable_${name}_$number.sql";

	return $file if -e $file;
	append_to_file($file,
		($ways{$way}{before} // '') . $sql . ($ways{$way}{after} // '') . "\n");
	return $file;
}

# Three producers, until the server dies.
sub start_producers
{
	my ($way, @sql) = @_;
	my $number = 0;
	my $producers = { out => '', err => '' };

	local $ENV{PGOPTIONS} = $ways{$way}{options} // '';
	local $ENV{PGUSER} = $ways{$way}{user} if $ways{$way}{user};
	$producers->{run} = IPC::Run::start(
		[
			'pgbench', '-n', '-c', 3, '-T', 600, '-R', 1500,
			(map { ('-f', script($way, $_ eq $keyed ? 2 : 1, $_)) } @sql),
			'-h', $node->host, '-p', $node->port, 'postgres'
		],
		'<', \undef, '>', \$producers->{out}, '2>', \$producers->{err});
	return $producers;
}

# The consumer has what was published before the server died; so many records.
sub received_all
{
	wait_until('the queue is empty', sub { $rabbit->depth('q') == 0 });
	return scalar(my @records = $consumer->records);
}

# From a start to a crash, while messages arrive.
sub round
{
	my ($way, $stop_writer, @sql) = @_;
	my $before = () = $consumer->records;
	my $wanted = 1 + int rand 150;
	my $arrived = 0;

	$node->start;
	$node->stop_wal_writer if $stop_writer;
	my $producers = start_producers($way, @sql);
	wait_until("$wanted messages arrive",
		sub { ($arrived = () = $consumer->records) >= $before + $wanted });
	usleep(int rand 100_000);
	$node->crash;
	eval { $producers->{run}->finish };
	diag $producers->{err} if $arrived < $before + $wanted;
	return;
}

sub all_received
{
	$node->wait_drained(60);
	my $ids = $checker->committed;
	wait_until(
		'all that is committed is received',
		sub {
			$consumer->records;
			return !grep { !$consumer->{unique}{$_} } keys %$ids;
		});
	return;
}

# The control: without the fence
begin();
my $fence = $node->data_dir . '/outbox_test_point.fence';
append_to_file($fence, '');
$node->crash;
round('session', 1, $keyless) foreach 1 .. $CONTROL_ROUNDS;
unlink $fence;
$node->start;
all_received();
my $v = $checker->verdict([ $consumer->stop ]);
cmp_ok(scalar @{ $v->{ghosts} },
	'>', 0, 'control: without the synchronous claim, messages of lost transactions are sent');
note sprintf 'control: %d ghosts among %d messages in %d rounds',
  scalar @{ $v->{ghosts} }, $v->{received} + @{ $v->{ghosts} }, $CONTROL_ROUNDS;

sub rounds
{
	my ($name, $case, $retention, $count, @names) = @_;

	$node->sql("ALTER SYSTEM SET outbox.retention = $retention");
	begin();
	my $start = time;
	my @ends;
	for my $i (1 .. $count)
	{
		my $way = $names[ ($i - 1) * @names / $count ];
		if ($ways{$way}{setting} && !$ways{$way}{done})
		{
			$node->start if $i > 1;
			$node->sql("ALTER $ways{$way}{setting} SET synchronous_commit = off");
			$ways{$way}{done} = 1;
			$node->crash;
		}
		$node->crash if $i == 1;
		round($way, $i % 4 != 0, $keyless, $keyed);
		push @ends, received_all();
	}
	my $took = time - $start;
	$node->start;
	$node->sql('ALTER DATABASE postgres RESET synchronous_commit');
	delete $_->{done} foreach values %ways;
	all_received();
	if ($retention)
	{
		is($node->sql(<<'SQL'), '0|0', "$name: published and archived, or not there at all");
SELECT count(*) FILTER (WHERE m.id IS NULL), count(*) FILTER (WHERE s.id IS NULL)
FROM test_sent s FULL JOIN outbox_archive m ON m.id = s.id
SQL
	}
	my $got = $checker->check($name, [ $consumer->stop ],
		interruptions => $count, window => $WINDOW, rounds => \@ends, case => $case);
	note sprintf '%s: %d rounds in %.1f s, %d messages, %d duplicates', $name,
	  $count, $took, $got->{committed}, $got->{duplicates};
	return;
}

my $part = int($ROUNDS / 5);
rounds("C5: synchronous_commit = off, the whole server killed",
	'C5: kill -9 of the server, asynchronous producers', 86400, 2 * $part,
	'session', 'SET LOCAL', 'role');
rounds('C5: the same with retention 0',
	'C5: kill -9 of the server, asynchronous producers', 0, 2 * $part,
	'session', 'SET LOCAL', 'role');
rounds('D9: synchronous_commit = off for the database',
	'D9: the same, set for the database', 86400, $ROUNDS - 4 * $part, 'database');

# --- What a producer has flushed is not flushed for again

# The worker commits asynchronously between the commit of 'second' and its claim.
begin();
$node->stop_wal_writer;
$checker->enqueue(1, prefix => 'settled');
$consumer->wait_count(1);
$node->test_point('after_claim wait 1');
$checker->enqueue(1, prefix => 'first');
$node->wait_test_point('after_claim');
$checker->enqueue(1, prefix => 'second');
my $flushed = $node->sql('SELECT pg_current_wal_flush_lsn()');
$node->test_point_over;
$consumer->wait_count(3);
is($node->sql('SELECT pg_current_wal_flush_lsn()'), $flushed, 'a message of a flushed commit is sent without a flush');
cmp_ok($node->sql(q{SELECT pg_current_wal_insert_lsn() - pg_current_wal_flush_lsn()}),
	'>', 0, 'though the worker has committed since');
$checker->check('flushed by the producer', [ $consumer->stop ]);

# --- What a trigger enqueues in the relay's own transaction

# The worker settles what was refused, and claims, in one transaction.
begin();
$node->sql(<<'SQL');
INSERT INTO outbox_route (name, exchange, exchange_type, max_attempts) VALUES ('lost', 'lonely', 'topic', 1);
CREATE FUNCTION tell() RETURNS trigger LANGUAGE plpgsql SET search_path = public AS
	'BEGIN PERFORM test_enqueue(1); RETURN NULL; END';
CREATE TRIGGER tell AFTER UPDATE ON outbox FOR EACH ROW WHEN (NEW.status = 'failed') EXECUTE FUNCTION tell();
SELECT outbox_enqueue('warm', '{}', route => 'lost');
SQL
$consumer->wait_count(1);
$node->stop_wal_writer;
$node->test_point('all_sent wait 1');
$node->sql(q{SELECT outbox_enqueue('one', '{}', route => 'lost')});
$node->wait_test_point('all_sent');
usleep 300_000;    # until the broker has refused it
$checker->enqueue(1);
$node->test_point_over('all_sent wait 1');
$node->wait_test_point('all_sent');
$consumer->wait_count(3);
$node->crash;
$node->test_point_over;
$node->start;
all_received();
$node->sql('DROP TRIGGER tell ON outbox');
$checker->check('C5: enqueued by the relay itself', [ $consumer->stop ], interruptions => 1, window => $WINDOW, failed => 2);

# --- A11: immediate shutdown under load

begin();
my $stops = $ENV{OUTBOX_TEST_FULL} ? 20 : 3;
my @ends;
for my $i (1 .. $stops)
{
	my $before = $consumer->unique;
	my $producers = start_producers('session', $keyless, $keyed);
	wait_until('messages arrive', sub { $consumer->unique > $before + 50 + rand 200 });
	$node->stop('immediate');
	eval { $producers->{run}->finish };
	push @ends, received_all();
	$node->start;
}
all_received();
$checker->check("A11: immediate shutdown under load, $stops times",
	[ $consumer->stop ], interruptions => $stops, window => $WINDOW, rounds => \@ends,
	case => 'A11: pg_ctl stop -m immediate under load');

# --- C6, A9: a synchronous standby that was never there

# Commits as the producer likes, without waiting for a standby.
sub enqueue_without_waiting
{
	my ($count, $prefix) = @_;
	my $part = int($count / 2);
	$node->sql("SET synchronous_commit = local; SELECT test_enqueue($part, 3, '$prefix.l')");
	$node->sql("SET synchronous_commit = off; SELECT test_enqueue($count - $part, 3, '$prefix.o')");
	return;
}

# The relay has found them, and keeps them to itself.
sub nothing_is_sent
{
	my ($when) = @_;
	my $before = $consumer->unique;
	my $start = time;

	local $Test::Builder::Level = $Test::Builder::Level + 1;
	$node->wait_sql($state, 'waiting for standby');
	wait_until('time passes',
		sub { $consumer->unique > $before || time - $start > $SILENCE });
	is($consumer->unique, $before, "$when: nothing is sent");
	is($node->sql(q{SELECT count(*) FROM outbox WHERE attempts > 0 OR status <> 'pending'}),
		'0', "$when: and no attempt is counted");
	return;
}

sub stop_within_limit
{
	my ($when) = @_;
	my $start = time;

	$node->stop('fast');
	my $took = time - $start;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	cmp_ok($took, '<', $STOP_LIMIT, "A9: pg_ctl stop -m fast $when ends in time");
	note sprintf 'stop %s: %.2f s', $when, $took;
	return;
}

begin();
my $offset = $node->log_end;
$checker->enqueue(10);
$consumer->wait_count(10);
$node->wait_drained;

# A round that runs already has not read the setting.
$node->test_point('before_claim wait 1');
$checker->enqueue(1);
$node->wait_test_point('before_claim');
$node->set('synchronous_standby_names', 'ghost');

# The setting counts when the checkpointer has read it, which a commit shows.
my $waits = q{SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'SyncRep'};
my $hung = $checker->load(10, keys => 2, prefix => 'hung');
$node->wait_sql($waits, '1');
enqueue_without_waiting(20, 'a');
$node->test_point_over;
nothing_is_sent('C6: the standby was never there');
my ($hint, $since, $event) = @{ ($node->rows(
	"SELECT hint, since < now() - interval '1 s', wait_event FROM outbox_status, pg_stat_activity
	 WHERE backend_type LIKE 'outbox relay%'"))[0] };
like($hint, qr/synchronous_standby_names/, 'outbox_status says what is missing');
is($since, 't', 'and since when');
is($event, 'SyncRep', 'pg_stat_activity agrees');
is($node->sql('SELECT state FROM outbox_workers'), 'waiting for standby', 'and so does outbox_workers');
is($node->sql($waits), '2', 'the relay waits, and a producer that wants to');
my ($relay) = $node->backend_pids;
kill 'INT', $relay;
nothing_is_sent('A9: the wait is cancelled (SIGINT)');
is(($node->backend_pids)[0], $relay, 'which the relay survives');
kill 'TERM', $relay;
wait_until('the relay leaves', sub { !OutboxTest::Node::alive($relay) });
nothing_is_sent('A9: the relay is terminated (SIGTERM)');

stop_within_limit('with the standby missing');
eval { $hung->wait };
$node->start;
nothing_is_sent('A9: after a restart');
is($node->sql(q{SELECT count(*) FROM test_sent WHERE key LIKE 'hung%'}),
	'10', 'the producer that waited has committed');
$node->stop('immediate');
$node->start;
nothing_is_sent('A11: after an immediate shutdown');
enqueue_without_waiting(10, 'b');
$node->crash;
$node->start;
nothing_is_sent('C6: after a crash');
$node->set('synchronous_standby_names', '');
all_received();
$node->wait_sql($state, 'idle');
is($node->sql('SELECT hint FROM outbox_status'), '', 'no hint is left');
$checker->check('C6: nothing goes out before the standby has it, a ghost standby',
	[ $consumer->stop ], case => 'C6, A9: synchronous standby missing');

# --- C6: one that goes and comes back

begin();
$node->backup('base');
my $standby = OutboxTest::Node->new('standby');
$standby->init_from_backup($node, 'base', has_streaming => 1);
$standby->start;
$node->set('synchronous_standby_names', 'standby');
$node->wait_sql(q{SELECT sync_state FROM pg_stat_replication}, 'sync');
$checker->enqueue(100, keys => 5, prefix => 'c');
$consumer->wait_count(100);
$node->wait_drained;
my $seen = $node->sql($state);
isnt($seen, 'waiting for standby', 'with the standby there, nothing is reported');

my $load = $checker->load(5000, keys => 20, prefix => 'd', per_tx => 10);
wait_until('messages flow', sub { $consumer->unique > 300 });
$standby->stop('fast');
enqueue_without_waiting(30, 'e');
nothing_is_sent('C6: the standby was stopped under load');
stop_within_limit('with a stopped standby');
eval { $load->wait };
$node->start;
nothing_is_sent('C6: restarted while the standby is stopped');
$standby->start;
my $start = time;
all_received();
note sprintf 'all delivered %.2f s after the standby was started', time - $start;
cmp_ok($node->sql('SELECT count(*) FROM outbox_archive'), '>', 300, 'delivered when the standby is back');

# What ALTER DATABASE says about synchronous_commit does not weaken the relay, and
# remote_apply makes it wait for more, also one that runs already.
foreach (qw(server:remote_apply server:on database:remote_apply database:remote_write database:local database:off))
{
	my ($scope, $mode) = split /:/;
	if ($scope eq 'server')
	{
		$node->sql("ALTER SYSTEM SET synchronous_commit = $mode");
		$node->set('outbox.enabled', 'off');
		$node->wait_sql($state, 'disabled');
	}
	else
	{
		$node->sql("ALTER DATABASE postgres SET synchronous_commit = $mode");
		my ($old) = $node->backend_pids;
		$node->sql('SELECT outbox_worker_restart()');
		wait_until('another worker', sub { my ($new) = $node->backend_pids; $new && $new != $old });
	}
	my $receiver;
	if ($mode eq 'remote_apply')
	{
		$standby->sql('SELECT pg_wal_replay_pause()');
		$standby->wait_sql('SELECT pg_get_wal_replay_pause_state()', 'paused');
	}
	else
	{
		($receiver) = $standby->backend_pids('walreceiver');
		kill 'STOP', $receiver;
	}
	enqueue_without_waiting(10, "$scope.$mode.");
	$node->set('outbox.enabled', 'on');
	nothing_is_sent("C6: $scope with synchronous_commit = $mode");
	like($node->sql(q{SELECT detail FROM outbox_problems WHERE problem = 'standby missing'}),
		qr/missing: none, all are connected and behind/, 'which is not missing');
	$receiver ? kill 'CONT', $receiver : $standby->sql('SELECT pg_wal_replay_resume()');
	all_received();
}
$checker->check('C6: nothing goes out before the standby has it, a real standby',
	[ $consumer->stop ], interruptions => 1, window => $WINDOW,
	case => 'C6, A9: synchronous standby missing');
is($node->log_text($offset) =~ /TRAP:|PANIC:|server process .* was terminated by signal/ ? 1 : 0,
	0, 'no crash in the log');
$node->sql('ALTER DATABASE postgres RESET synchronous_commit');
$standby->stop('immediate');
$node->stop('immediate');

done_testing();
