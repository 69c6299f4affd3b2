# A standby has no relay; when it is promoted, it publishes by itself and at once.
# With synchronous replication nothing is lost and nothing was published that the
# new primary does not know; with asynchronous replication what was not replicated
# is counted.  Guarantees 2 and 3; doc/dev/fault-cases.md B13.  (One worker, a fake broker, the
# old primary that comes back without its standby, logical replication:
# copies.pl.  Prepared transactions and restarts of one server:
# transactions.pl.)
#
# OUTBOX_TEST_FULL=1: more failovers, more messages.
#
# suite: test faults
# takes: 82 s

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
# The n-th server is the standby of the one before, and takes over from it.
my @SYNCHRONOUS = $FULL ? (1, 0, 1, 0, 1, 1) : (1, 0, 1);
my $FLOW = $FULL ? 5000 : 1000;
my $WINDOW = 100;
my $WORKERS = 3;
my $PUBLISHES_S = 5;
my $RELAY = q{SELECT count(*) FROM pg_stat_activity WHERE backend_type LIKE 'outbox%'};

seed();
my $rabbit = OutboxTest::Rabbit->start;
my $node = OutboxTest::Node->create(
	name => 'server0',
	broker => $rabbit,
	allows_streaming => 'logical',
	conf => <<"END");
outbox.window = $WINDOW
outbox.workers = $WORKERS
outbox.poll_interval = 200ms
wal_keep_size = 256MB
wal_log_hints = on
END
my $checker = OutboxTest::Checker->install($node);

# Every message that anybody has ever received, in the order of its arrival.
my $consumer = OutboxTest::Consumer->start($rabbit, exchange => 'outbox');

# --- producers, that go on where the primary is

my $phase = 0;
my @load;

sub start_load
{
	$phase++;
	@load = map {
		my $keys = $_;
		$checker->of($node)->run("SET client_min_messages = warning;\n"
			  . "SELECT test_enqueue(@{[ 1 + int rand 6 ]}, $keys, 'l$keys.'); SELECT pg_sleep(0.003);\n" x 20_000);
	} (2, 10, 40, 0);
	return;
}

# A primary that fails ends their sessions; nothing else may.
sub stop_load
{
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	$_->running foreach @load;
	is(join('', map { $_->complaints } @load), '', 'producers have met no error');
	$_->stop foreach @load;
	@load = ();
	return;
}

sub end_load
{
	stop_load();
	return $node->wait_sql(
		q{SELECT count(*) FROM pg_stat_activity WHERE query LIKE 'SELECT test_enqueue%' AND pid <> pg_backend_pid()},
		0);
}

# --- a standby

sub make_standby
{
	my ($name) = @_;

	$node->backup("for_$name");
	my $standby = OutboxTest::Node->new($name);
	$standby->init_from_backup($node, "for_$name", has_streaming => 1);
	$standby->append_conf('postgresql.auto.conf', "synchronous_standby_names = ''");
	$standby->start;
	return $standby;
}

# A primary that has failed becomes the standby of the one that took over.
sub rejoin
{
	my ($old) = @_;
	my $port = $old->port;

	$node->sql('CHECKPOINT');
	command_ok(
		[
			'pg_rewind', '-D', $old->data_dir, '--source-server',
			$node->connstr('postgres')
		],
		'pg_rewind of the old primary');
	# The files of the other server, with its port.
	$old->append_conf('postgresql.conf', "port = $port");
	$old->append_conf('postgresql.auto.conf', "synchronous_standby_names = ''");
	$old->enable_streaming($node);
	$old->start;
	return $old;
}

sub follow
{
	my ($standby, $synchronous) = @_;

	$node->set('synchronous_standby_names', $synchronous ? $standby->name : '');
	$node->wait_sql(
		"SELECT state, sync_state FROM pg_stat_replication WHERE application_name = '${\ $standby->name}'",
		'streaming|' . ($synchronous ? 'sync' : 'async'));
	return;
}

sub is_silent
{
	my ($standby) = @_;
	my $name = $standby->name;
	local $Test::Builder::Level = $Test::Builder::Level + 1;

	is($standby->sql($RELAY), '0', "$name: a standby has no relay and no launcher");
	is($standby->sql('SELECT state, workers FROM outbox_status'),
		'standby|0', "$name: and says why");
	like($standby->sql_fails(q{SELECT outbox_wait('00000000-0000-7000-8000-000000000001')}),
		qr/cannot execute outbox_wait\(\) during recovery/, "$name: nobody waits there");
	like($standby->sql_fails(q{SELECT outbox_enqueue('x', '{}')}),
		qr/cannot execute|read-only|recovery/, "$name: enqueue is refused");
	return;
}

# Seconds until a message that is enqueued when the server takes writes arrives.
sub first_message
{
	my ($server) = @_;

	my $start = time;
	my $id = $server->sql(q{SELECT outbox_enqueue('first', '{}')});
	wait_until('a message arrives after the promotion',
		sub { grep { ($_->{id} // '') eq $id } $consumer->records });
	return time - $start;
}

# Messages that the new primary does not know are none with a synchronous standby;
# with another they are counted and left out.  So are, then, second copies, of
# which a key may have more than one: each of what was settled and not replicated.
sub judge
{
	my ($name, $synchronous) = @_;
	my $copy = $checker->of($node);
	my $known = $copy->committed;
	my @records = grep { $_->{type} ne 'first' } $consumer->records;
	my %unknown = map { $_->{id} => 1 } grep { !$known->{ $_->{id} } } @records;
	my $lag = 0;
	local $Test::Builder::Level = $Test::Builder::Level + 1;

	if (!$synchronous)
	{
		my %copies;
		my @first = grep { $known->{ $_->{id} } && !$copies{ $_->{id} }++ } @records;

		$lag = grep({ $known->{ $_->{id} } } @records) - @first;
		@records = @first;
		note scalar(keys %unknown)
		  . " messages were published that the new primary does not know, and $lag twice";
		cmp_ok(scalar(keys %unknown), '>', 0, "$name: some were not replicated");
		cmp_ok($lag, '<=', 10 * $WORKERS * $WINDOW, "$name: few duplicates");
	}
	# Settlings need not have got to a synchronous standby; claims have.
	my $v = $copy->check(
		$name, \@records,
		interruptions => $synchronous ? 1 : 0,
		window => 2 * $WORKERS * $WINDOW,
		case => "B13: $name");
	note "$v->{committed} messages, "
	  . ($v->{duplicates} + $lag)
	  . " duplicates, window $WINDOW, $WORKERS workers";
	return;
}

# Begins anew: nothing is pending, the ledger and the consumer are empty.
sub begin
{
	my ($what) = @_;

	note "--- $what";
	$node->wait_drained;
	$node->sql('TRUNCATE test_sent');
	$consumer->stop;
	$consumer = OutboxTest::Consumer->start($rabbit, exchange => 'outbox');
	return;
}

# --- failovers in a row, each under load

my $number = 0;
my $former;
foreach my $synchronous (@SYNCHRONOUS)
{
	my $what = $synchronous ? 'synchronous' : 'asynchronous';
	my $name = 'server' . ++$number;

	begin("$name, $what");
	my $standby = $number > 1 && $number % 2 ? rejoin($former) : make_standby($name);
	$name = $standby->name;
	follow($standby, $synchronous);
	is_silent($standby);

	# what is not committed yet when the primary fails
	$node->sql("BEGIN; SELECT test_enqueue(5, 5, 'prepared'); PREPARE TRANSACTION 'commit$number'");
	$node->sql("BEGIN; SELECT test_enqueue(5, 5, 'undone'); PREPARE TRANSACTION 'rollback$number'");
	$node->sql(q{SELECT outbox_enqueue('first', '{}', available_at => now() + interval '1 hour')});
	$node->wait_for_catchup($standby, 'replay', $node->lsn('insert'));

	start_load();
	$consumer->wait_flow('from the old primary', $FLOW);

	# DROP DATABASE has to be replayed beside the load
	my $start = time;
	$node->sql('CREATE DATABASE passing');
	$node->sql('CREATE EXTENSION outbox', 'passing');
	$node->sql('DROP DATABASE passing');
	$node->wait_for_catchup($standby, 'replay', $node->lsn('insert'));
	note sprintf 'DROP DATABASE replayed, %.2f s with CREATE', time - $start;
	cmp_ok(time - $start, '<', 20, "$name: DROP DATABASE is replayed without a stall");
	is($standby->sql($RELAY), '0', "$name: still no relay");

	# The standby receives nothing more: what happens from here on it does not
	# know of, if there is anything.
	my ($receiver) = $standby->backend_pids('walreceiver');
	kill 'STOP', $receiver;
	if ($synchronous)
	{
		# (producers wait for it as well: this one does not, so there is a claim)
		$node->sql(q{SET synchronous_commit = local; SELECT test_enqueue(1, 1, 'local')});
		$node->wait_sql('SELECT state FROM outbox_status', 'waiting for standby');
	}
	else
	{
		$consumer->wait_flow('to nobody else', $FLOW / 5);
	}
	my $old = $node;
	$old->crash;
	kill 'CONT', $receiver;
	stop_load();
	$start = time;
	$standby->sql('SELECT pg_promote(false)');
	$standby->wait_sql('SELECT NOT pg_is_in_recovery()');
	my $writable = time - $start;
	$node = $standby;
	my $took = first_message($node);
	cmp_ok($took, '<', $PUBLISHES_S, "$name: publishes soon after it can be written to");
	note sprintf '%s: promoted in %.2f s, delivers %.2f s after that', $name, $writable, $took;
	$node->wait_sql(
		"SELECT count(*) FILTER (WHERE state IN ('idle', 'publishing')) = $WORKERS FROM outbox_workers");
	start_load();
	$consumer->wait_flow('from the new primary', $FLOW);
	$node->sql("COMMIT PREPARED 'commit$number'");
	$node->sql("ROLLBACK PREPARED 'rollback$number'");
	wait_until('what was prepared before is delivered after the failover',
		sub { 5 == grep { ($_->{aggregate_id} // '') =~ /^prepared/ } $consumer->records });
	is(scalar(grep { ($_->{aggregate_id} // '') =~ /^undone/ } $consumer->records),
		0, "$name: and what was rolled back is not");
	end_load();
	is($node->sql(q{DELETE FROM outbox WHERE available_at > now() RETURNING event_type}),
		'first', "$name: what is scheduled is still there");
	$node->wait_drained;
	wait_until('the last message arrives', sub {
		my %got = map { ($_->{id} // '') => 1 } $consumer->records;
		return !grep { !$got{$_} } keys %{ $checker->of($node)->committed };
	});

	judge("$what failover under load", $synchronous);

	$former = $old;
}
# --- logical replication of other tables is no business of the relay

begin('logical replication of another table');
my $subscriber = OutboxTest::Node->create(name => 'subscriber', broker => $rabbit);
OutboxTest::Checker->install($subscriber);
$subscriber->wait_sql('SELECT state FROM outbox_status', 'idle');
$node->sql('CREATE PUBLICATION ledger FOR TABLE test_sent');
my $connstr = $node->connstr('postgres') =~ s/'/''/gr;
$subscriber->sql("CREATE SUBSCRIPTION ledger CONNECTION '$connstr' PUBLICATION ledger");
start_load();
$consumer->wait_flow('beside logical replication', $FLOW);
end_load();
$node->wait_drained;
my $count = $node->sql('SELECT count(*) FROM test_sent');
$consumer->wait_count($count);
$subscriber->wait_sql('SELECT count(*) FROM test_sent', $count);
$checker->of($node)->check('logical replication of another table', [ $consumer->records ],
	case => 'logical replication of another table');
is($subscriber->sql('SELECT coalesce(sum(published), 0) FROM outbox_workers'),
	'0', 'a subscriber of another table publishes nothing');
$subscriber->stop;
$node->stop;
done_testing();
