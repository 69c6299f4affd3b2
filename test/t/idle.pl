# An idle relay costs nothing: no WAL, no transaction, no snapshot that holds
# vacuum back, hardly a wake-up.  Also with rows in the table that cannot go.
#
# OUTBOX_TEST_FULL=1: more than a minute instead of 15 s.
#
# suite: test

use strict;
use warnings;

use Test::More;
use Time::HiRes qw(time);
use PostgreSQL::Test::Utils;
use OutboxTest::Consumer;
use OutboxTest::Node;
use OutboxTest::Rabbit;
use OutboxTest::Util;

my $seconds = $ENV{OUTBOX_TEST_FULL} ? 75 : 15;

# What writes WAL on an idle server without us: checkpoints, autovacuum, and
# snapshots for standbys, of which wal_level = minimal knows none.
my $rabbit = OutboxTest::Rabbit->start;
my $node = OutboxTest::Node->create(
	broker => $rabbit,
	conf => <<'END');
autovacuum = off
checkpoint_timeout = 1h
wal_level = minimal
max_wal_senders = 0
outbox.retry_initial = 20ms
track_functions = 'pl'
END
$node->sql('CREATE DATABASE other');
$node->sql('CREATE EXTENSION outbox', 'other');
my $consumer = OutboxTest::Consumer->start($rabbit, exchange => 'outbox');

# rows that stay: failed, scheduled, of a paused route, and due behind either
$node->sql(<<'SQL');
INSERT INTO outbox_route (name, exchange, exchange_type, max_attempts, paused, on_failed)
	VALUES ('nowhere', 'nowhere', 'topic', 1, false, 'block'),
		('paused', 'outbox', 'topic', 1, true, 'skip');
SELECT outbox_enqueue('idle.event', '{}') FROM generate_series(1, 100);
SELECT outbox_enqueue('idle.event', '{}', route => 'nowhere', aggregate_id => 'k');
SELECT outbox_enqueue('idle.event', '{}', route => 'paused');
SELECT outbox_enqueue('idle.event', '{}', available_at => now() + '1 h');
SELECT outbox_enqueue('idle.event', '{}', route => 'nowhere', aggregate_id => 'k', available_at => clock_timestamp() + '0.1 s');
SELECT outbox_enqueue('idle.event', '{}', route => 'paused', available_at => clock_timestamp() + '0.1 s');
SQL
$consumer->wait_count(100);
$node->wait_sql(
	q{SELECT string_agg(route || ' ' || status, ', ' ORDER BY seq) FROM outbox},
	'nowhere failed, paused pending, default pending, nowhere pending, paused pending');
$node->wait_sql('SELECT state FROM outbox_status', 'idle', undef, $_)
  foreach qw(postgres other);

sub position
{
	return $node->sql(
		'SELECT pg_current_wal_insert_lsn(), pg_snapshot_xmax(pg_current_snapshot())'
	);
}

# Before 17 an extension's waits have no names.
my @waits = $node->sql('SHOW server_version_num') >= 170000
  ? qw(OutboxLauncherMain OutboxRelayMain)
  : qw(Extension Extension);
$node->wait_sql(
	q{SELECT string_agg(DISTINCT wait_event_type || ' ' || wait_event, ', ')
		FROM pg_stat_activity WHERE backend_type = '} . $_->[0] . q{'},
	"Extension $_->[1]") foreach [ 'outbox launcher', $waits[0] ], [ 'outbox relay', $waits[1] ];

# The statistics of single backends, as doc/monitoring.md has them.
if ($node->sql('SHOW server_version_num') >= 180000)
{
	is($node->sql(
			'SELECT sum(s.wal_records) > 0 FROM outbox_workers w, pg_stat_get_backend_wal(w.pid) s'),
		't', 'the WAL of the relay is counted');
	is($node->sql(
			q{SELECT sum(s.hits) > 0 FROM outbox_workers w, pg_stat_get_backend_io(w.pid) s WHERE object = 'relation'}),
		't', 'its reads and writes are, too');
}

# The archive's partitions are made, hint bits are set, pages pruned.
$node->sql('VACUUM', $_) foreach qw(postgres other);
$node->sql('CHECKPOINT');
my $last = '';
my $still_since = time;
wait_until(
	'the server is quiet',
	sub {
		my $now = position();
		$still_since = time if $now ne $last;
		$last = $now;
		return time - $still_since > 3;
	},
	60);

# In the database that no query of this test is in.
sub transactions
{
	return $node->sql(q{SELECT xact_commit + xact_rollback FROM pg_stat_database WHERE datname = 'other'});
}

# Each minute, were it not for nothing having happened.
sub maintenances
{
	return $node->sql(q{SELECT calls FROM pg_stat_user_functions WHERE funcname = 'outbox_archive_maintain'}, 'other');
}
my $maintenances = $ENV{OUTBOX_TEST_FULL} ? maintenances() : undef;

my @pids = ($node->backend_pids('outbox relay%'),
	$node->backend_pids('outbox launcher'));
is(scalar @pids, 3, 'two workers and the launcher');

my $before = position();
my $transactions = transactions();
my %switches = map { $_ => switches($_) } @pids;
my $start = time;
my %held;
wait_until(
	'time passes',
	sub {
		my $held = $node->sql(
			q{SELECT count(*) FROM pg_stat_activity WHERE backend_type LIKE 'outbox%'
			  AND (backend_xmin IS NOT NULL OR backend_xid IS NOT NULL)});
		$held{$held}++;
		return time - $start >= $seconds;
	},
	$seconds + 10);
my $elapsed = time - $start;

is(position(), $before, "no WAL and no transaction id in $seconds s");
# a test build looks for forgotten rows each 5 s
cmp_ok(transactions() - $transactions, '<', $elapsed / 2, 'the polls, one a second, open no transaction');
is(maintenances(), $maintenances, 'nothing is maintained') if $ENV{OUTBOX_TEST_FULL};
my $looks = 0;
$looks += $_ foreach values %held;
cmp_ok(($held{0} // 0) / $looks, '>', 0.9,
	'no snapshot and no transaction id is held');
foreach my $pid (@pids)
{
	my $rate = (switches($pid) - $switches{$pid}) / $elapsed;
	cmp_ok($rate, '<=', 2, 'at most two wake-ups a second');
	note sprintf '%.2f wake-ups a second: %s', $rate,
	  $node->sql("SELECT backend_type FROM pg_stat_activity WHERE pid = $pid");
}

# and it was not dead
$node->sql(q{SELECT outbox_enqueue('idle.event', '{}')});
$consumer->wait_count(101);
$consumer->stop;

done_testing();
