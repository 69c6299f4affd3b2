# The failure table of an outbox: a crash before commit, a worker killed between
# claim and publish, between publish and settle, and again and again during a
# drain.  kill -9 of a background worker makes the server restart all of its
# processes, so every session is lost with it.
#
# suite: test core faults

use strict;
use warnings;

use List::Util qw(max);
use Test::More;
use Time::HiRes qw(time);
use PostgreSQL::Test::Utils;
use OutboxTest::Checker;
use OutboxTest::Consumer;
use OutboxTest::Node;
use OutboxTest::Rabbit;
use OutboxTest::Util;

my $WINDOW = 200;

# No lease is waited for: what was claimed goes on as soon as there is a worker
# and a connection.  This is far above what that takes, and below any lease.
my $SOON = 10;

seed();
my $rabbit = OutboxTest::Rabbit->start;
my $node = OutboxTest::Node->create(
	broker => $rabbit,
	conf => "outbox.window = $WINDOW");
my $checker = OutboxTest::Checker->install($node);
my $consumer = OutboxTest::Consumer->start($rabbit, exchange => 'outbox');

# Kills the worker; returns when the server takes connections again.
sub kill_worker
{
	my @pids = $node->kill_backends('KILL');
	is(scalar @pids, 1, 'one worker was killed');
	wait_until('killed worker gone',
		sub { !grep { OutboxTest::Node::alive($_) } @pids });
	return $node->wait_restarted;
}

# --- crash before commit: nothing

my $session = $node->session;
$session->query_safe('BEGIN');
$session->query_safe('SELECT test_enqueue(3)');
my $ghost = $session->query_safe(
	q{SELECT outbox_enqueue('test.event', '{"n": 0}')});
like($ghost, qr/^[0-9a-f-]{36}$/, 'a message is enqueued, and not committed');
$node->crash;
eval { $session->quit };
$node->start;
is($node->sql('SELECT count(*) FROM outbox'),
	'0', 'crash before commit: no message is left in the table');
is($node->sql('SELECT count(*) FROM test_sent'),
	'0', 'and no business row either');
$checker->enqueue(1);
$consumer->wait_count(1);
is(scalar $consumer->copies($ghost), 0,
	'crash before commit: nothing was sent, but what came later was');
$node->wait_drained;

# --- crash just after commit: everything, although nobody is there to tell

$rabbit->pause;
$checker->enqueue(50);
$node->crash;
$rabbit->resume;
$node->start;
my $start = time;
$consumer->wait_count(51);
cmp_ok(time - $start, '<', $SOON,
	'crash just after commit: delivered soon after the start');
$node->wait_drained;

# --- killed after claim, before publish
#
# Of messages with one key only the first is in flight, and the broker does not
# answer: the others are claimed and not sent.

$rabbit->pause;
$checker->enqueue(6, keys => 1, prefix => 'claimed');
$node->wait_sql(
	'SELECT count(*) FILTER (WHERE in_flight), count(*) FROM outbox_internal.outbox_claims()',
	'1|6');
kill_worker();
$start = time;
$rabbit->resume;
$consumer->wait_count(57);
cmp_ok(time - $start, '<', $SOON,
	'killed after claim, before publish: delivered soon after, no lease is waited for'
);
note sprintf 'delivered %.2f s after the server was back', time - $start;
$node->wait_drained;

# --- killed after publish, before settle

$rabbit->pause;
$checker->enqueue(1, prefix => 'sent', keys => 1);
my $id = $node->sql(q{SELECT id FROM test_sent WHERE key = 'sent1'});
$node->wait_sql('SELECT in_flight FROM outbox_internal.outbox_claims()', 't');
is( $node->sql("SELECT status FROM outbox_messages WHERE id = '$id'"),
	'processing',
	'the message on its way is shown as processing');
is(scalar($node->kill_backends('STOP')), 1, 'the worker is stopped');
$rabbit->resume;
wait_until('published message arrives', sub { $consumer->copies($id) == 1 });
is($node->sql("SELECT count(*) FROM outbox WHERE id = '$id'"),
	'1', 'the message has arrived and is not settled');
kill_worker();
$start = time;
wait_until('the message arrives again', sub { $consumer->copies($id) == 2 });
cmp_ok(time - $start, '<', $SOON,
	'killed after publish, before settle: delivered again soon');
my ($first, $second) = $consumer->copies($id);
is($second->{id}, $first->{id},
	'the second copy has the same message_id, and is published by us');
is($second->{redelivered}, 0, 'and not redelivered by the broker');
$node->wait_drained;
is(scalar $consumer->copies($id), 2, 'and no third time');

$checker->check('the failure table, told by the history',
	[ $consumer->stop ], interruptions => 4, window => $WINDOW);

# --- kill -9 during a drain, ten times

my $KILLS = 10;
my $STEP = 2500;
# A kill must find something left, however slow a look at it is: so many messages
# are there whenever the drain goes on.
my $LEFT = 10 * $STEP;
my $total = $LEFT;
my @killed_at;
my @back_after;

# The messages with few keys are sent one at a time a key, between the others.
sub fill
{
	my ($count) = @_;

	$node->sql('TRUNCATE test_sent');
	$node->set('outbox.enabled', 'off');
	$node->wait_sql('SELECT state FROM outbox_status', 'disabled');
	foreach my $part (1 .. 10)
	{
		$checker->enqueue($count / 20, per_tx => 1000);
		$checker->enqueue($count / 20 - 10, keys => 700, per_tx => 1000);
		$checker->enqueue(10, keys => 3, prefix => 'busy');
	}
	return;
}

# Waits until at most so many messages are left in the table.  Returns how many are
# and the pids of the workers at that moment.  The server itself looks, for on a
# busy machine each psql takes so long that all is delivered meanwhile.
$node->sql(<<'SQL');
CREATE FUNCTION test_wait_left(most bigint) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	deadline timestamptz := clock_timestamp() + interval '60 s';
BEGIN
	WHILE (SELECT count(*) > most FROM public.outbox) LOOP
		IF clock_timestamp() > deadline THEN
			RAISE EXCEPTION 'more than % messages are left', most;
		END IF;
		PERFORM pg_sleep(0.005);
	END LOOP;
	RETURN (SELECT count(*) FROM public.outbox) || (
		SELECT coalesce(string_agg(' ' || pid, ''), '') FROM pg_stat_activity
		WHERE backend_type LIKE 'outbox relay%');
END $$;
SQL

sub wait_left
{
	my ($left) = @_;
	return split / /, $node->sql("SELECT test_wait_left($left)");
}

# Nothing is under way any more, and the consumer has what was published: whatever
# comes a second time from now on is the next kill's.  Returns its records so far.
sub round_ends
{
	my ($left, @records);

	$node->sql('SELECT outbox_pause()');
	$node->wait_sql('SELECT state, in_flight FROM outbox_status', 'paused|0');
	$left = $node->sql('SELECT count(*) FROM outbox');
	wait_until('the consumer has all that is settled',
		sub { $consumer->unique >= $total - $left && $rabbit->depth('q') == 0 });
	@records = $consumer->records;
	if ($left < $LEFT)
	{
		$checker->enqueue($LEFT - $left, keys => 700, per_tx => 1000);
		$total += $LEFT - $left;
	}
	$node->sql('SELECT outbox_resume()');
	return scalar @records;
}

fill($total);
my @rounds;
$consumer = OutboxTest::Consumer->start($rabbit, exchange => 'outbox');
$node->set('outbox.enabled', 'on');

for my $i (1 .. $KILLS)
{
	my ($then, @pids) = wait_left($LEFT - $STEP + int rand($STEP / 2));
	push @killed_at, time;
	kill 'KILL', @pids;
	wait_until('killed worker gone',
		sub { !grep { OutboxTest::Node::alive($_) } @pids });

	# The postmaster may still have to notice.
	wait_until(
		'server restarts',
		sub {
			my @after = eval { $node->backend_pids };
			return @after && $after[0] != ($pids[0] // 0);
		});
	my $back = time;
	my $left = $node->sql('SELECT count(*) FROM outbox');
	ok(@pids == 1 && $then > 0, "kill $i hit the worker during the drain")
	  or diag "$then left, workers @pids";
	wait_left(max(0, $left - 100));
	push @back_after, time - $back;
	push @rounds, round_ends() if $i < $KILLS;
}
is(scalar @killed_at, $KILLS, "the worker was killed $KILLS times");
cmp_ok(max(@back_after), '<', $SOON,
	'delivery goes on within seconds after each kill');
note 'delivery went on after: ' . join ', ',
  map { sprintf '%.2f s', $_ } @back_after;
$consumer->wait_count($total, 90);
$node->wait_drained;
my @records = $consumer->stop;
$checker->check("kill -9 of the worker $KILLS times during a drain",
	\@records, interruptions => $KILLS, window => $WINDOW, rounds => \@rounds);

# A copy was in flight at one of the kills before it arrived.
my (%seen, @extra);
foreach my $record (@records)
{
	next unless $seen{ $record->{id} }++;
	my $kill = grep { $_ * 1e6 < $record->{us} } @killed_at;
	$extra[$kill]++;
}
$_ //= 0 foreach @extra[ 0 .. $KILLS ];
is($extra[0], 0, 'none before the first kill');
note "duplicates between the kills: @extra[1 .. $KILLS]";
is( $node->sql('SELECT count(*) FROM outbox'),
	'0', 'nothing is left in the table');

# --- the whole server at once, as a power cut would: what was settled without
# waiting for the disk comes again, within the window

fill(6000);
$consumer = OutboxTest::Consumer->start($rabbit, exchange => 'outbox');
$node->set('outbox.enabled', 'on');
my $crashes = 0;
for my $i (1 .. 2)
{
	wait_left(6000 - 2000 * $i + int rand 1000);
	push @killed_at, time;
	$node->crash;
	$crashes++;
	$node->start;
}
$consumer->wait_count(6000, 60);
$node->wait_drained;
$checker->check('crash of the whole server during a drain',
	[ $consumer->stop ], interruptions => $crashes, window => $WINDOW);

done_testing();
