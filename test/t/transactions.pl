# A message exists if and only if its transaction committed, however that ended
# and whatever wrote the row; and the relay hears of it at once.
#
# suite: test faults

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

# A poll cannot be what finds a message in the first part.
my $NEVER = '3600s';
# Only a sweep would find it otherwise, a minute after the start of a worker; and what
# the sweep finds fails the test, see OutboxTest::Node.
my $AT_ONCE = 20;

seed();
my $rabbit = OutboxTest::Rabbit->start;
my $node = OutboxTest::Node->create(
	broker => $rabbit,
	conf => "outbox.poll_interval = $NEVER");
my $checker = OutboxTest::Checker->install($node);
my $consumer = OutboxTest::Consumer->start($rabbit, exchange => 'outbox');

my $number = 0;

# SQL that enqueues a message and notes it; the body has its number.
sub enqueue_sql
{
	$number++;
	return "SELECT test_enqueue(1, 1, 'key')";
}

sub has_arrived
{
	my ($n) = @_;
	return grep { $_->{body} =~ /"n": $n,/ } $consumer->records;
}

sub sent_count { return $node->sql('SELECT count(*) FROM test_sent') }

# Everything committed so far is there, and since the call of this it took no
# longer than that.
sub all_arrive
{
	my ($name, $limit) = @_;
	my $start = time;
	my $n = sent_count();

	local $Test::Builder::Level = $Test::Builder::Level + 1;
	$consumer->wait_count($n);
	my $took = time - $start;
	cmp_ok($took, '<', $limit // $AT_ONCE, "$name: delivered in time");
	note sprintf '%s: %.2f s', $name, $took;
	return;
}

$node->sql(enqueue_sql());
$consumer->wait_count(1);

# --- rollback and savepoints

$node->sql('BEGIN; ' . enqueue_sql() . '; ROLLBACK');
$node->sql('BEGIN; '
	  . enqueue_sql()
	  . '; SAVEPOINT a; '
	  . enqueue_sql()
	  . '; ROLLBACK TO a; '
	  . enqueue_sql()
	  . '; SAVEPOINT b; '
	  . enqueue_sql()
	  . '; RELEASE b; COMMIT');
is(sent_count(), '4', 'a savepoint that was rolled back leaves nothing');
all_arrive('savepoints');
$node->sql(<<'SQL');
DO $$
BEGIN
	PERFORM test_enqueue(1);
	BEGIN
		PERFORM test_enqueue(1);
		RAISE division_by_zero;
	EXCEPTION WHEN division_by_zero THEN
		PERFORM test_enqueue(1);
	END;
END $$
SQL
is(sent_count(), '6', 'nor does a block whose exception was caught');
all_arrive('exception block');

# more subtransactions than a snapshot has room for
$node->sql(<<'SQL');
DO $$
BEGIN
	FOR i IN 1 .. 200 LOOP
		BEGIN
			PERFORM test_enqueue(1, 5);
			IF i % 3 = 0 THEN
				RAISE division_by_zero;
			END IF;
		EXCEPTION WHEN division_by_zero THEN NULL;
		END;
	END LOOP;
END $$
SQL
is(sent_count(), '140', 'two hundred subtransactions, a third of them undone');
all_arrive('many subtransactions');

# --- a message is not seen before its commit, and a late one not overlooked

my $late = $node->session;
my $later = $node->session;
$late->query_safe('BEGIN');
$late->query_safe(q{SELECT test_enqueue(3, 3, 'late')});
$later->query_safe('BEGIN');
$later->query_safe(q{SELECT test_enqueue(3, 3, 'later')});
$checker->enqueue(300, keys => 10, prefix => 'meanwhile');
all_arrive('newer ones pass an open transaction');
$later->query_safe('COMMIT');
all_arrive('commit of an older transaction');
$checker->enqueue(300, keys => 10, prefix => 'meanwhile');
all_arrive('newer ones pass the oldest transaction');
$late->query_safe('COMMIT');
all_arrive('commit of the oldest transaction');

# many of them, in any order
my @sessions = map { $node->session } 1 .. 8;
for my $round (1 .. 5)
{
	foreach my $i (0 .. $#sessions)
	{
		$sessions[$i]->query_safe('BEGIN');
		$sessions[$i]->query_safe("SELECT test_enqueue(5, 2, 's$i.')");
	}
	$checker->enqueue(50);
	foreach my $i (sort { rand() <=> 0.5 } 0 .. $#sessions)
	{
		$sessions[$i]->query_safe(rand() < 0.3 ? 'ROLLBACK' : 'COMMIT');
	}
}
all_arrive('transactions that commit in any order');
$_->quit foreach @sessions, $late, $later;

# --- INSERT and COPY

$node->sql(<<'SQL');
WITH i AS (
	INSERT INTO outbox (event_type, payload)
	SELECT 'plain.insert', jsonb_build_object('n', 1000000 + g, 'pad', '')
	FROM generate_series(1, 3) g RETURNING id, payload)
INSERT INTO test_sent SELECT (payload->>'n')::bigint, id FROM i
SQL
all_arrive('plain INSERT');
my @ids = map { $node->sql('SELECT gen_random_uuid()') } 1 .. 3;
$node->sql("COPY outbox (id, event_type, aggregate_id, payload) FROM stdin;\n"
	  . join('', map { "$_\tplain.copy\tc\t{\"n\": 1, \"pad\": \"\"}\n" } @ids)
	  . "\\.\n");
$node->sql('INSERT INTO test_sent SELECT 2000000 + row_number() OVER (), id, '
	  . "'c' FROM unnest('{"
	  . join(',', @ids)
	  . "}'::uuid[]) WITH ORDINALITY u (id, o) ORDER BY o");
all_arrive('COPY');

# --- durable first: a producer that does not wait for the disk
#
# With the WAL writer stopped only the relay can bring its commit to the disk,
# and has to, before it publishes.

my ($walwriter) = $node->backend_pids('walwriter');
kill 'STOP', $walwriter;
my $session = $node->session;
$session->query_safe('SET synchronous_commit = off');
my @durable;
for my $i (1 .. 20)
{
	$session->query_safe('BEGIN');
	$session->query_safe(q{SELECT test_enqueue(1)});
	my $n = $session->query_safe(
		'SELECT max(n) FROM test_sent WHERE n < 1000000');

	# its commit record begins here or later
	my $lsn = $session->query_safe('SELECT pg_current_wal_insert_lsn()');
	$session->query_safe('COMMIT');
	wait_until("message $i of an asynchronous commit arrives",
		sub { has_arrived($n) });
	push @durable, $node->sql("SELECT pg_current_wal_flush_lsn() > '$lsn'");
}
is(scalar(grep { $_ eq 't' } @durable),
	20, 'nothing is sent before its commit is on disk');
$session->query_safe(q{SELECT test_enqueue(1)});
my $n = $session->query_safe('SELECT max(n) FROM test_sent WHERE n < 1000000');
wait_until('the last one arrives', sub { has_arrived($n) });
$node->crash;
eval { $session->quit };
$node->start;
is($node->sql("SELECT count(*) FROM test_sent WHERE n = $n"),
	'1', 'and a crash at that moment does not undo it');
$node->wait_drained;

# --- two-phase commit

# a reload applies at once, not when the old interval is over
$node->adjust_conf('postgresql.conf', 'outbox.poll_interval', '1s');
$node->reload;
my $PREPARED = $AT_ONCE;

sub prepare
{
	my ($name, $sql) = @_;
	$node->sql("BEGIN; $sql; PREPARE TRANSACTION '$name'");
	return;
}

my $before = sent_count();
prepare('p1', q{SELECT test_enqueue(2, 1, 'p1.')});
prepare('p2', q{SELECT test_enqueue(2, 1, 'p2.')});
prepare('p3',
	q{SELECT test_enqueue(1, 1, 'p3.'); SAVEPOINT s; SELECT test_enqueue(1, 1, 'p3.'); ROLLBACK TO s}
);
$checker->enqueue(100, keys => 3, prefix => 'free');
all_arrive('newer ones pass prepared transactions');
is(sent_count(), $before + 100, 'nothing of a prepared transaction is there');
$node->sql(q{COMMIT PREPARED 'p1'});
all_arrive('COMMIT PREPARED', $PREPARED);
is(sent_count(), $before + 102, 'it was delivered');
$node->sql(q{ROLLBACK PREPARED 'p2'});
$node->sql(q{COMMIT PREPARED 'p3'});
all_arrive('COMMIT PREPARED with a savepoint undone', $PREPARED);
is(sent_count(), $before + 103,
	'nothing of ROLLBACK PREPARED or of the savepoint');

# across a restart, and across a crash
prepare('r1', q{SELECT test_enqueue(2, 1, 'r1.')});
prepare('r2', q{SELECT test_enqueue(2, 1, 'r2.')});
prepare('r3', q{SELECT test_enqueue(2, 1, 'r3.')});
$node->restart;
$checker->enqueue(10);
all_arrive('newer ones pass prepared transactions after a restart', 10);
$node->sql(q{COMMIT PREPARED 'r1'});
all_arrive('COMMIT PREPARED after a restart', $PREPARED);
$node->crash;
$node->start;
$checker->enqueue(10);
all_arrive('newer ones pass prepared transactions after a crash', 10);
$node->sql(q{COMMIT PREPARED 'r2'});
$node->sql(q{ROLLBACK PREPARED 'r3'});
all_arrive('COMMIT PREPARED after a crash', $PREPARED);

# more of them than fit anywhere
my $script = '';
$script .=
  "BEGIN; SELECT test_enqueue(1, 1, 'm$_.'); PREPARE TRANSACTION 'm$_';\n"
  foreach 1 .. 20;
$node->sql($script);
$checker->enqueue(10);
all_arrive('newer ones pass twenty prepared transactions');
$node->sql(join ";\n",
	map { ($_ % 4 ? 'COMMIT' : 'ROLLBACK') . " PREPARED 'm$_'" } 1 .. 20);
all_arrive('twenty of COMMIT PREPARED', $PREPARED);

$node->wait_drained;

# The order of a key is that of enqueue within a session, which rows of the
# same key in two open transactions do not have.
$checker->check('all of it', [ $consumer->stop ], interruptions => 2, window => 50);

done_testing();
