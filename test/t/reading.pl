# What the worker reads: a transaction's own rows, and not those that were enqueued while
# it was open; and at its start nothing of what is scheduled.
#
# Counted are the entries of indexes.  As long as a transaction is open, those of what was
# published meanwhile stay, and whoever reads from its first to its last row reads them.
#
# suite: test
# takes: 5 s

use strict;
use warnings;

use Test::More;
use Time::HiRes qw(time usleep);
use PostgreSQL::Test::Utils;
use OutboxTest::FakeBroker;
use OutboxTest::Node;
use OutboxTest::Util;

my $TRANSACTIONS = 20;
my $PLACES = 5;
my $OTHERS = 40_000;
# Seen: 20, and 76,000 when a transaction announced one range from its first to its last row.
my $MAX = 200;
# The sweep of test builds reads all entries, so often; each twice, to see how many there are.
my $SWEEP_S = 5;
my $POLLS = 40;

my $fake = OutboxTest::FakeBroker->start;
my $node = OutboxTest::Node->create(
	broker => $fake,
	conf => <<'END');
autovacuum = off
outbox.retention = 0
outbox.poll_interval = 100ms
END

sub entries_read
{
	return $node->sql(q{SELECT sum(idx_tup_read) FROM pg_stat_user_indexes WHERE relname = 'outbox'});
}

# A process reports what it has read once a second.
sub all_entries_read
{
	my ($before, $read) = ('', '');
	wait_until('all that was read is counted',
		sub {
			usleep(1_200_000);
			($before, $read) = ($read, entries_read());
			return $before eq $read;
		});
	return $read;
}

# What sweeps have read since then, at most.
sub swept
{
	my ($began) = @_;
	return 2 * $OTHERS * (1 + int((time - $began) / $SWEEP_S));
}

my @sessions = map { $node->session } 1 .. $TRANSACTIONS;
$_->query_safe('BEGIN') foreach @sessions;
foreach my $place (1 .. $PLACES)
{
	$_->query_safe(q{SELECT outbox_enqueue('own', '{}')}) foreach @sessions;
	next if $place == $PLACES;
	$node->sql("INSERT INTO outbox (event_type, payload)
		SELECT 'other', '{}' FROM generate_series(1, $OTHERS / ($PLACES - 1))");
	$node->wait_sql(q{SELECT backlog FROM outbox_status}, 0, 60);
}

# --- a route is paused, and the worker has nothing to do

$node->sql(q{INSERT INTO outbox_route (name, paused) VALUES ('paused', true)});
my $id = $node->sql(q{SELECT outbox_enqueue('waits', '{}', route => 'paused')});
usleep(1_500_000);
my $began = time;
my $before = entries_read();
usleep($POLLS * 100_000);
my $idle = entries_read() - $before;
note sprintf 'a worker that does nothing: %d entries read, at most %d of them by the sweep', $idle, swept($began);
cmp_ok($idle, '<', swept($began) + $POLLS * $OTHERS / 10,
	'polls do not pass what was published while a route is paused');
$node->sql("SELECT outbox_discard('$id')");

# --- transactions around others

$began = time;
$before = all_entries_read();
$fake->begin_case;
foreach my $i (1 .. $TRANSACTIONS)
{
	$sessions[ $i - 1 ]->query_safe('COMMIT');
	$fake->wait_case($i * $PLACES);
}
my $read = all_entries_read() - $before;
my $swept = swept($began);
note sprintf '%d transactions: %d entries read, at most %d of them by the sweep', $TRANSACTIONS, $read, $swept;
cmp_ok($read, '<', $swept + $TRANSACTIONS * $MAX,
	'a transaction around others costs what its own rows do');
$_->quit foreach @sessions;

# --- a start, beside many that are scheduled, and more that have failed

$node->sql("INSERT INTO outbox (event_type, payload, aggregate_type, aggregate_id, available_at)
	SELECT 'later', '{}', 'a', i::text, now() + interval '1 year' FROM generate_series(1, 20000) i");
$node->sql("SET session_replication_role = replica; INSERT INTO outbox (event_type, payload, aggregate_type, aggregate_id, status)
	SELECT 'failed', '{}', 'b', i::text, 'failed' FROM generate_series(1, 40000) i");
$node->sql('VACUUM ANALYZE outbox');
all_entries_read();
my $waiting = q{SELECT idx_tup_read FROM pg_stat_user_indexes WHERE indexrelname = 'outbox_waiting'};
$before = $node->sql($waiting);
$node->sql('SELECT outbox_worker_restart()');
$fake->begin_case;
$node->sql(q{SELECT outbox_enqueue('after', '{}')});
$fake->wait_case(1);
all_entries_read();
$read = $node->sql($waiting) - $before;
note "a start reads $read of 20000 entries of what is scheduled";
cmp_ok($read, '<', 100, 'a start does not read what is scheduled');
$node->stop;
done_testing();
