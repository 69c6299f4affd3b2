# The grid of crash points: the relay is stopped at each of its steps, in each
# way, and nothing is lost, nothing is invented, the order of each key holds, and
# no more comes twice than was in flight.  doc/dev/fault-cases.md I1, src/base/test_point.h.
#
# Each cell has two kinds: "quiet", at the first pass with nothing sent before, and
# "busy", at a later one, in the middle of a drain.
#
# And: an ERROR after a claim has used up what it was told to read puts that back.
#
# OUTBOX_TEST_FULL=1: all cells instead of a sample, which has each point in both
# kinds, the cells that decide (@decisive), and else ways by chance.
# OUTBOX_TEST_CELLS=REGEXP: those whose name, as in the table, matches.
#
# suite: test core faults
# takes: 30 s

use strict;
use warnings;

use List::Util qw(shuffle sum0);
use Test::More;
use Time::HiRes qw(time);
use PostgreSQL::Test::Utils;
use OutboxTest::Checker;
use OutboxTest::Consumer;
use OutboxTest::Node;
use OutboxTest::Proxy;
use OutboxTest::Rabbit;
use OutboxTest::Util;

my $WINDOW = 50;
my $STOP_LIMIT = 5;
my $BACK_LIMIT = 15;

# Points of the relay, and the latest pass of the busy cells.
my %latest_pass = (
	before_claim => 5,
	after_claim => 5,
	after_claim_commit => 5,
	mid_publish => 250,
	all_sent => 6,
	some_acks => 4,
	all_acks => 6,
	after_settle => 6,
	after_settle_commit => 6,
	archiving => 1,
	connecting => 1,
	reconnecting => 1);
my @points = qw(before_claim after_claim after_claim_commit mid_publish all_sent
  some_acks all_acks after_settle after_settle_commit
  archiving connecting reconnecting);
my %in_transaction = map { $_ => 1 } qw(before_claim after_claim
  after_claim_commit after_settle after_settle_commit archiving);
my %before_first_byte =
  map { $_ => 1 } qw(before_claim after_claim after_claim_commit);

# What happens there, and what it takes: what the relay is told to do, what the
# test does to a relay that waits, and whether the memory of the server is lost,
# and with it what was settled without waiting for the disk.
my %ways = (
	ERROR => { action => 'error' },
	FATAL => { action => 'fatal' },
	SIGTERM => { action => 'wait', deed => \&terminate },
	SIGKILL => { action => 'wait', deed => \&kill_worker, crash => 1 },
	immediate => { action => 'wait', deed => \&stop_server, crash => 1 },
	'kill -9' => { action => 'wait', deed => \&kill_server, crash => 1 });
my @ways = ('ERROR', 'FATAL', 'SIGTERM', 'SIGKILL', 'immediate', 'kill -9');

# Where the crash matrix of doc/dev/internals.md says that something can be lost or come
# twice if a line is missing: what was claimed and not sent, sent and not confirmed,
# confirmed and not settled, settled and not on the disk.
my @decisive = (
	[ 'after_claim_commit', 'kill -9' ],
	[ 'all_sent', 'kill -9' ],
	[ 'all_acks', 'SIGKILL' ],
	[ 'after_settle_commit', 'kill -9' ]);

# Points that an ordinary drain does not pass, and what makes the relay do so.
my %provoke = (
	archiving => \&make_partitions_missing,
	connecting => \&restart_worker,
	reconnecting => \&close_connection);

my $seed = seed();
my $rabbit = OutboxTest::Rabbit->start;
my $proxy = OutboxTest::Proxy->start($rabbit);
my $node = OutboxTest::Node->create(
	broker => $proxy,
	conf => <<"END");
outbox.window = $WINDOW
outbox.retry_initial = 20ms
outbox.retry_max = 1s
# Else what was settled is on the disk before a crash can come.
wal_writer_delay = 10s
END
my $checker = OutboxTest::Checker->install($node);
my $consumer = OutboxTest::Consumer->start($rabbit, exchange => 'outbox');
my $order = $node->data_dir . '/outbox_test_point';
my $hit = "$order.hit";
my $state = 'SELECT state FROM outbox_status';
my @results;

# --- to the relay

# When busy, with some messages on it.
sub close_connection
{
	my ($cell) = @_;

	return $proxy->cut_once('up', 1 + int rand 50_000, 'rst')
	  if $cell->{busy};
	return $proxy->do('rst');
}

sub restart_worker
{
	$node->sql('SELECT outbox_worker_restart()');
	return;
}

# A new worker looks after the archive at once.  The day may end meanwhile: what it
# makes is counted from the day on which they went.
my $partitions_made;
sub expect_partitions
{
	my $today = $node->sql(q{SELECT to_char(now() AT TIME ZONE 'UTC', 'YYYYMMDD')});

	$partitions_made = "SELECT count(*) >= 2 FROM pg_inherits
		WHERE inhparent = 'outbox_archive'::regclass
			AND inhrelid::regclass::text > 'outbox_internal.outbox_archive_p$today'";
	return $today;
}

sub make_partitions_missing
{
	my $today = expect_partitions();

	$node->sql(<<'SQL' =~ s/TODAY/$today/r);
DO $$
DECLARE
	part regclass;
BEGIN
	SET LOCAL client_min_messages = warning;
	FOR part IN SELECT inhrelid FROM pg_inherits
		WHERE inhparent = 'outbox_archive'::regclass
			AND inhrelid::regclass::text > 'outbox_internal.outbox_archive_pTODAY'
	LOOP
		EXECUTE format('ALTER EXTENSION outbox DROP TABLE %s', part);
		EXECUTE format('DROP TABLE %s', part);
	END LOOP;
END
$$;
SQL
	return restart_worker();
}

# --- what happens to it

sub go_on
{
	unlink $hit or die "$hit: $!";
	return;
}

# In the busy cells somebody changes the table at this moment, so that the relay
# has to look at it anew before it can settle.
sub terminate
{
	my ($pid, $cell) = @_;
	$node->sql('ALTER TABLE outbox SET (autovacuum_analyze_threshold = '
		  . (100 + @results) . ')')
	  if $cell->{busy};
	kill 'TERM', $pid;
	go_on();
	my $gone = wait_until('terminated worker gone',
		sub { !OutboxTest::Node::alive($pid) });
	cmp_ok($OutboxTest::Util::waited, '<', $STOP_LIMIT, 'it stops in time')
	  if $gone;
	return;
}

sub kill_worker
{
	my ($pid) = @_;
	my $offset = $node->log_end;
	kill 'KILL', $pid;
	$node->wait_log(qr/ready to accept connections/, $offset);
	go_on();
	return;
}

sub stop_server
{
	$node->stop('immediate');
	go_on();
	$node->start;
	return;
}

sub kill_server
{
	$node->crash;
	go_on();
	$node->start;
	return;
}

# --- a cell

sub cell_name
{
	my ($cell) = @_;
	return "$cell->{point}, $cell->{way}, "
	  . ($cell->{busy} ? 'busy' : 'quiet');
}

# How many may come twice.
sub allowed
{
	my ($cell) = @_;
	my ($point, $busy) = @{$cell}{qw(point busy)};
	my $way = $ways{ $cell->{way} };

	# the connection was lost with what was in flight on it
	return $busy ? $WINDOW : 0 if $point eq 'reconnecting';

	# a clean stop; an ERROR in a transaction costs the transaction only
	return 0 if $cell->{way} eq 'SIGTERM';
	return 0 if $cell->{way} eq 'ERROR' && $in_transaction{$point};

	# nothing was sent, or only what was settled, for good, before
	return 0
	  if !$busy && ($before_first_byte{$point} || $provoke{$point}
		|| $point eq 'after_settle_commit');

	# after a clean stop, only the disk can lack what was settled
	return $way->{crash} ? $WINDOW : 0 if $provoke{$point};

	return 1 if !$busy && $point eq 'mid_publish';
	return $WINDOW;
}

sub load
{
	my ($cell) = @_;

	# The second waits until the first is settled for good: when it is, nothing
	# else is in flight.
	return $node->sql('SELECT test_enqueue(2, 1)')
	  if $cell->{point} eq 'after_settle_commit' && !$cell->{busy};

	# many at once, some that wait for each other, some one at a time
	$node->sql(<<'SQL');
SELECT test_enqueue(140);
SELECT test_enqueue(100, 50, 'some');
SELECT test_enqueue(60, 3, 'busy');
SQL
	return;
}

# A drain that lasts until the relay has been brought to where it does not come
# by itself.
sub start_endless_load
{
	return $checker->load(100_000, keys => 500, prefix => 'endless', per_tx => 10);
}

# What it has committed counts, and it commits nothing more.
sub stop_load
{
	my ($load) = @_;
	$load->stop;
	return $node->wait_sql(
		q{SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend'},
		1);
}

sub order_fault
{
	my ($cell) = @_;
	PostgreSQL::Test::Utils::append_to_file("$order.new",
		"$cell->{point} $ways{$cell->{way}}{action} $cell->{pass}\n");
	rename "$order.new", $order or die "$order: $!";
	return;
}

# The process that is, or was, at the point; with more to do if there was not
# enough to get it there.
sub wait_hit
{
	my ($cell, $offset) = @_;
	my $tries = 0;

	return wait_until(
		"relay at $cell->{point} for the ${\ $cell->{pass}}th time",
		sub {
			return $1
			  if -e $hit && slurp_file($hit) =~ /^$cell->{point} (\d+)$/;
			return $1
			  if !-e $order
			  && $node->log_text($offset) =~
			  /\[(\d+)\] outbox relay.* (?:ERROR|FATAL):  outbox test point at $cell->{point}$/m;
			load($cell)
			  if -e $order && ++$tries % 20 == 0 && !$provoke{ $cell->{point} };
			return 0;
		},
		60);
}

# Everything that was published before has arrived when this one has, as there
# is one queue and one consumer.
sub wait_arrived
{
	$node->wait_drained($BACK_LIMIT) or return 0;
	$checker->enqueue(1);
	my $id = $node->sql('SELECT id FROM test_sent ORDER BY n DESC LIMIT 1');
	return wait_until('the last message arrives',
		sub { grep { $_->{id} eq $id } reverse $consumer->records });
}

sub run_cell
{
	my ($cell) = @_;
	my ($point, $busy) = @{$cell}{qw(point busy)};
	my $name = cell_name($cell);
	my $provoke = $provoke{$point};
	my $way = $ways{ $cell->{way} };

	# Without a fault, nothing is in flight and the disk has everything.
	$node->wait_sql($state, 'idle') or return;
	$node->sql('TRUNCATE test_sent; SELECT outbox_pause()');
	$node->wait_sql($state, 'paused') or return;
	my $before = $consumer->records;
	load($cell);
	order_fault($cell);
	my $offset = $node->log_end;

	my $load = $busy && $provoke ? start_endless_load() : undef;
	$node->sql('SELECT outbox_resume()') if $busy || !$provoke;
	# or it is at the fault already, of its own accord, and nothing arrives
	wait_until('more than the first messages have arrived',
		sub { -e $hit || !-e $order || $consumer->records > $before + 400 })
	  if $load;
	$provoke->($cell) if $provoke;

	my $pid = wait_hit($cell, $offset);
	unlink $order;
	my $start = time;
	$way->{deed}->($pid, $cell) if $pid && $way->{deed};
	stop_load($load) if $load;
	$node->sql('SELECT outbox_resume()') if !$busy && $provoke;
	my $drained = $node->wait_drained($BACK_LIMIT);
	my $seconds = time - $start;
	wait_arrived() if $drained;

	# An ERROR in a transaction is no reason to leave; whoever left because of
	# one is started again later and later, but not for the next cell.
	if ($pid && $way->{action} ne 'wait')
	{
		my $survives = $cell->{way} eq 'ERROR' && $in_transaction{$point};
		is( OutboxTest::Node::alive($pid) ? 1 : 0,
			$survives ? 1 : 0,
			$survives ? "$name: the worker goes on" : "$name: the worker left");
		restart_worker();
		$node->wait_sql(
			"SELECT count(*) = 1 FROM outbox_workers WHERE pid <> $pid AND state = 'idle'"
		);
	}
	$node->wait_sql($partitions_made) if $point eq 'archiving';

	my @records = $consumer->records;
	splice @records, 0, $before;
	my $allowed = allowed($cell);
	my $v = $checker->check(
		"$name (pass $cell->{pass})", \@records,
		case => "crash point $point, $cell->{way}",
		seconds => $seconds,
		interruptions => $allowed > 0 ? 1 : 0,
		window => $allowed);
	push @results,
	  { %$cell, v => $v, allowed => $allowed, seconds => $seconds };
	return;
}

# --- which cells

sub make_cell
{
	my ($point, $way, $busy) = @_;
	my $latest = $latest_pass{$point};

	return {
		point => $point,
		way => $way,
		busy => $busy,
		pass => $busy && $latest > 1 ? 2 + int rand($latest - 1) : 1
	};
}

# Each point in both kinds; the decisive ones are busy.
sub sample
{
	my @w = shuffle((@ways) x 4);
	my %fixed = map { ("$_->[0] 1" => $_->[1]) } @decisive;

	return map { make_cell($_->[0], $fixed{"@$_"} // shift @w, $_->[1]) }
	  shuffle(map { ([ $_, 0 ], [ $_, 1 ]) } @points);
}

sub all_cells
{
	my @cells;
	foreach my $busy (0, 1)
	{
		foreach my $point (@points)
		{
			push @cells, map { make_cell($point, $_, $busy) } @ways;
		}
	}
	return @cells;
}

my $wanted = $ENV{OUTBOX_TEST_CELLS};
my @cells =
    defined $wanted ? grep { cell_name($_) =~ $wanted } all_cells()
  : $ENV{OUTBOX_TEST_FULL} ? all_cells()
  : sample();
# Else the first cell may have the relay wait in the middle of that, with locks that
# make_partitions_missing() needs.
expect_partitions();
$node->wait_sql($partitions_made);
run_cell($_) foreach @cells;

cmp_ok(scalar @cells, '>', 0, 'there are cells');
is(scalar @results, scalar @cells, 'all cells have run');

# --- an ERROR in a claim that has used up what it was told to read

sub write_order
{
	my ($text) = @_;
	PostgreSQL::Test::Utils::append_to_file("$order.new", "$text\n");
	rename "$order.new", $order or die "$order: $!";
	return;
}

# Rows that become visible behind the cursor, where nothing but the sweep would
# come by again, and that is a minute after the start of a worker.
sub error_in_claim
{
	my $name = 'ERROR in a claim that was told what to read again';

	$node->wait_sql($state, 'idle') or return;
	my $pid = $node->sql('SELECT pid FROM outbox_workers');
	restart_worker();
	$node->wait_sql(
		"SELECT count(*) = 1 FROM outbox_workers WHERE pid <> $pid AND state = 'idle'"
	) or return;
	$node->sql('TRUNCATE test_sent');
	my $before = $consumer->records;
	my $session = $node->session;
	$session->query_safe('BEGIN');
	$session->query_safe(q{SELECT test_enqueue(50, 5, 'older')});
	$checker->enqueue(20);
	$node->wait_sql('SELECT count(*) FROM outbox', 0);
	$node->wait_sql($state, 'idle');

	my $offset = $node->log_end;
	write_order('amid_claim error 1');
	$session->query_safe('COMMIT');
	$node->wait_log(qr/outbox test point at amid_claim/, $offset);
	unlink $order;
	my $start = time;
	$node->wait_drained($BACK_LIMIT);
	note sprintf '%s: drained after %.1f s', $name, time - $start;
	wait_arrived();
	$session->quit;
	my @records = $consumer->records;
	splice @records, 0, $before;
	$checker->check($name, \@records, case => "crash point amid_claim: $name");
	return;
}

# A table that changes between two partitions makes the relay look it up anew,
# which must not end the care of the archive for a minute.
sub change_between_partitions
{
	$node->wait_sql($state, 'idle') or return;
	write_order('archiving wait 1');
	make_partitions_missing();
	wait_until('relay between two partitions', sub { -e $hit }) or return;
	$node->sql('ALTER TABLE outbox SET (autovacuum_analyze_threshold = 99)');
	go_on();
	ok( $node->wait_sql($partitions_made, 't', $BACK_LIMIT),
		'the partitions are made although a table has changed meanwhile');
	return;
}

if (!defined $wanted)
{
	error_in_claim();
	change_between_partitions();
}

unlike($node->log_text, qr/TRAP:|PANIC:|terminated by signal (?!9:)/,
	'no process crashed by itself');
$consumer->stop;

# --- the table

my $format = '%-19s %-9s %4s %8s %5s %6s %10s %7s %10s %7s';
note sprintf $format,
  qw(point way pass messages lost ghosts duplicates allowed inversions seconds);
foreach my $r (@results)
{
	note sprintf $format, @{$r}{qw(point way pass)}, $r->{v}{committed},
	  @{ $r->{v}{lost} } + @{ $r->{v}{left} },
	  scalar @{ $r->{v}{ghosts} },
	  $r->{v}{duplicates}, $r->{allowed},
	  scalar @{ $r->{v}{disorder} },
	  sprintf '%.1f', $r->{seconds};
}
note sprintf '%d cells, %d messages, %d duplicates, seed %d',
  scalar @results, sum0(map { $_->{v}{committed} } @results),
  sum0(map { $_->{v}{duplicates} } @results), $seed;

done_testing();
