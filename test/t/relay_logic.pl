# The relay's own logic: whatever is done to it from the database's side, each
# message goes out, in order, and is settled once.
# doc/dev/fault-cases.md I2 to I4, I6 to I10, I12.
#
# OUTBOX_TEST_FULL=1: the sizes that the cases name.
# OUTBOX_TEST_STEPS=N: length of the random history.
#
# suite: test faults
# takes: 93 s

use strict;
use warnings;

use Test::More;
use Time::HiRes qw(time usleep);
use PostgreSQL::Test::Utils;
use OutboxTest::Checker;
use OutboxTest::Consumer;
use OutboxTest::Node;
use OutboxTest::Proxy;
use OutboxTest::Rabbit;
use OutboxTest::Util;

my $FULL = $ENV{OUTBOX_TEST_FULL};
my $WINDOW = 100;
my $seed = seed();

my $rabbit = OutboxTest::Rabbit->start;
my $proxy = OutboxTest::Proxy->start($rabbit);
my $node = OutboxTest::Node->create(
	broker => $proxy,
	conf => <<"END");
outbox.window = $WINDOW
outbox.retry_initial = 20ms
outbox.retry_max = 200ms
END
my $checker = OutboxTest::Checker->install($node);
my $state = 'SELECT state FROM outbox_status';
my $consumer;

# Each case has its own ledger and consumer; nothing is left of the one before.
sub begin
{
	my ($what) = @_;

	note "--- $what";
	$node->wait_drained;
	$node->sql('TRUNCATE test_sent, outbox_archive');
	$consumer = OutboxTest::Consumer->start($rabbit, exchange => 'outbox');
	$node->wait_sql($state, 'idle');
	$proxy->mark_connections;
	return;
}

# Every case ends here.
sub finish
{
	my ($what, %params) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;

	return $checker->finish($what, $consumer,
		wait => $FULL ? 300 : 60,
		window => $WINDOW, %params);
}

# --- I8: pause and resume under load, of everything and of a route

my $times = $FULL ? 1000 : 250;
begin('I8: paused and resumed under load');
$node->sql(q{INSERT INTO outbox_route (name, exchange) VALUES ('other', 'outbox')});
my @load = map {
	$checker->load(
		$FULL ? 30_000 : 4000,
		keys => $_,
		per_tx => $_,
		prefix => "load$_",
		route => $_ == 25 ? 'other' : 'default')
} (2, 10, 25);
my $job = $checker->run(
	"SET client_min_messages = warning; SET synchronous_commit = off;\n"
	  . join '',
	map {
			"SELECT outbox_pause($_); SELECT pg_sleep(random() * 0.004);"
		  . "SELECT outbox_resume($_); SELECT pg_sleep(random() * 0.004);\n"
	} map { pick('', q{'other'}, q{'default'}) } 1 .. $times);
ok($job->wait(120), "I8: $times times") or diag $job->error;
ok($_->wait(300), 'I8: producers notice nothing') or diag $_->error foreach @load;
my $v = finish('I8: paused and resumed under load', interruptions => 0);
is($v->{duplicates} + $proxy->reconnects, 0, 'I8: no reconnect, no duplicate');

# --- I12: the wake-up is lost

my $order = $node->data_dir . '/outbox_test_point';

foreach my $point (qw(latch announce))
{
	my $poll = 1;
	my $slowest = 0;
	begin("I12: $point lost");
	my $late = $node->session;
	$late->query_safe('BEGIN');
	$late->query_safe(q{SELECT test_enqueue(2, 2, 'late')});
	$checker->enqueue(10, keys => 2);
	$consumer->wait_count(10);
	$node->wait_sql($state, 'idle');
	append_to_file("$order.$point", '');
	foreach my $round (1 .. ($FULL ? 30 : 3))
	{
		usleep(rand 500_000);
		my $from = time;
		# before, as they may be there by the time that the command has ended
		my $there = $consumer->unique;
		# what is told nobody and lies behind the cursor waits for a sweep
		if ($round == 2 && $point eq 'latch')
		{
			$late->query_safe('COMMIT');
		}
		else
		{
			$checker->enqueue(2, keys => 2);
		}
		$consumer->wait_count($there + 2);
		$slowest = time - $from if time - $from > $slowest;
	}
	unlink "$order.$point";
	cmp_ok($slowest, '<', $poll + 1,
		"I12: $point lost: delivered within poll_interval (and some)");
	note sprintf 'slowest %.2f s', $slowest;
	$late->query_safe('ROLLBACK') if $point eq 'announce';
	$late->quit;
	finish("I12: $point lost", interruptions => 0);
}

# --- I4: settling fails time and again, after publishing

my $failures = $FULL ? 20 : 6;
$node->sql(<<'SQL');
CREATE SEQUENCE test_settle;
CREATE TABLE test_fails (until bigint);
INSERT INTO test_fails VALUES (0);
CREATE FUNCTION test_settle() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
	IF pg_catalog.nextval('public.test_settle') <= (SELECT until FROM public.test_fails) THEN
		RAISE EXCEPTION 'no settling' USING ERRCODE = 'disk_full';
	END IF;
	RETURN NULL;
END
$$;
CREATE TRIGGER test_settle BEFORE DELETE ON outbox EXECUTE FUNCTION test_settle();
SQL

sub fail_settling
{
	my ($n) = @_;
	$node->sql("UPDATE test_fails SET until = nextval('test_settle') + $n");
	return;
}
begin('I4: settling fails');
fail_settling($failures);
$checker->enqueue(500, keys => 20);
$node->wait_sql($state, 'database error');
my $sent = 0;
$node->wait_sql(
	'SELECT last_value >= until FROM test_settle, test_fails', 't', 120);
$v = finish("I4: settling fails $failures times", interruptions => 0);
is($v->{duplicates} + $proxy->reconnects, 0,
	'I4: the same process sends nothing twice');

begin('I4: and the worker dies');
fail_settling(1_000_000);
$checker->enqueue(500, keys => 20);
$node->wait_sql($state, 'database error');
my $received = $consumer->unique;
cmp_ok($received, '<=', $WINDOW, 'I4: nothing new is sent meanwhile');
$node->kill_backends('TERM');
wait_until('the new worker sends what was sent',
	sub { $consumer->records > $received });
$node->wait_sql($state, 'database error');
$node->sql('DROP TRIGGER test_settle ON outbox');
$v = finish('I4: settling fails, and the worker dies', interruptions => 1);
note "$v->{duplicates} duplicates";

# --- I6: operators are at failed messages while the relay is

$rabbit->amqp('exchange', 'picky', ',', 'bind', 'q', 'picky', 'good.#');
$node->sql(<<'SQL');
INSERT INTO outbox_route (name, exchange, max_attempts, ordering)
	VALUES ('picky', 'picky', 1, 'none');
CREATE TABLE test_discarded (id uuid PRIMARY KEY);
CREATE PROCEDURE test_operate(seconds float) LANGUAGE plpgsql AS $$
DECLARE
	stop_at timestamptz := clock_timestamp() + seconds * interval '1 s';
	m record;
BEGIN
	WHILE clock_timestamp() < stop_at LOOP
		CASE floor(random() * 4)
		WHEN 0 THEN PERFORM outbox_requeue_failed(route => 'picky', max_messages => 10);
		WHEN 1 THEN
			FOR m IN SELECT id FROM outbox WHERE route = 'picky' ORDER BY random() LIMIT 1 LOOP
				BEGIN
					IF outbox_discard(m.id) THEN
						INSERT INTO test_discarded VALUES (m.id);
					END IF;
				EXCEPTION WHEN object_in_use THEN NULL;
				END;
			END LOOP;
		WHEN 2 THEN
			UPDATE outbox SET routing_key = 'good.edited' WHERE id IN (
				SELECT id FROM outbox WHERE route = 'picky' AND status = 'failed'
				ORDER BY random() LIMIT 3 FOR UPDATE SKIP LOCKED);
		ELSE
			FOR m IN SELECT id FROM outbox_failed ORDER BY random() LIMIT 1 LOOP
				BEGIN
					PERFORM outbox_requeue(m.id);
				EXCEPTION WHEN no_data_found THEN NULL;
				END;
			END LOOP;
		END CASE;
		COMMIT;
	END LOOP;
END
$$;
SQL
begin('I6: operators');
my $seconds = $FULL ? 60 : 4;
@load = (
	$checker->load(
		$FULL ? 6000 : 600,
		route => 'picky',
		event_type => 'bad.event',
		per_tx => 2),
	$checker->load($FULL ? 20_000 : 2000, keys => 10, per_tx => 10));
my @operators = map { $checker->run("CALL test_operate($seconds)") } 1 .. 3;
ok($_->wait(120), 'I6: operators get no error') or diag $_->error
  foreach @operators;
ok($_->wait(120), 'I6: producers get none') or diag $_->error foreach @load;
$rabbit->amqp('bind', 'q', 'picky', '#');
# what was under way then comes back after it
wait_until('I6: all go out now', sub {
	$node->sql('SELECT outbox_requeue_failed()');
	return $node->sql('SELECT count(*) FROM outbox') == 0;
});
my ($discarded, $edited) = @{
	($node->rows(
			q{SELECT (SELECT count(*) FROM test_discarded),
				(SELECT count(*) FROM outbox_messages WHERE routing_key = 'good.edited')}
		))[0]};
note "$discarded discarded, $edited edited";
cmp_ok($discarded * $edited, '>', 0, 'I6: some were discarded, some edited');
# A discarded one is as if it had never been: received, it would be a ghost.
$node->sql('DELETE FROM test_sent WHERE id IN (SELECT id FROM test_discarded)');
$v = finish('I6: operators at failed messages', interruptions => 0);
is($v->{duplicates}, 0, 'I6: each has one outcome');
is( $node->sql(
		'SELECT count(*) FROM test_sent JOIN outbox_archive USING (id)'),
	$v->{committed}, 'I6: and the archive has it');

# --- I7: retention of very many rows

my $rows = $FULL ? 1_000_000 : 200_000;
$node->set('outbox.retention', '30d');
begin('I7: retention');
$node->sql(<<"SQL");
DO \$\$
DECLARE
	day date;
	part text;
BEGIN
	FOR ago IN 3 .. 4 LOOP
		day := (clock_timestamp() AT TIME ZONE 'UTC')::date - ago;
		part := 'outbox_archive_p' || to_char(day, 'YYYYMMDD');
		EXECUTE format('CREATE TABLE outbox_internal.%I PARTITION OF outbox_archive FOR VALUES FROM (%L) TO (%L)',
			part, day || ' 00:00+00', day + 1 || ' 00:00+00');
		EXECUTE format('ALTER EXTENSION outbox ADD TABLE outbox_internal.%I', part);
		INSERT INTO outbox_archive (seq, id, route, event_type, payload, created_at, attempts, published_at)
			SELECT -i, gen_random_uuid(), 'default', 'old', '{}', day, 0, day + interval '12 h'
			FROM generate_series(1, $rows / 2) i;
	END LOOP;
END
\$\$;
CREATE TABLE test_worst (ms float);
CREATE PROCEDURE test_latency(n int) LANGUAGE plpgsql AS \$\$
DECLARE
	worst interval := '0';
	since timestamptz;
BEGIN
	FOR i IN 1 .. n LOOP
		since := clock_timestamp();
		PERFORM test_enqueue(1);
		COMMIT;
		worst := greatest(worst, clock_timestamp() - since);
	END LOOP;
	INSERT INTO test_worst VALUES (extract(epoch FROM worst) * 1000);
END
\$\$;
SQL
$proxy->do('delay down 100');           # so that much is in flight
my $producer = $checker->run('CALL test_latency(' . ($FULL ? 20_000 : 3000) . ')');
$consumer->wait_count(100);
my $reader = $node->session;
$reader->query_safe('BEGIN; SELECT count(*) FROM outbox_archive');
$node->set('outbox.retention', '1d');
$node->sql('SELECT outbox_worker_restart()');
$consumer->wait_count($consumer->unique + 200);
is($node->sql(q{SELECT count(*) FROM outbox_archive WHERE event_type = 'old'}),
	$rows, 'I7: nothing is dropped under a reader');
$reader->query_safe('COMMIT');
$reader->quit;
$node->sql('SELECT outbox_worker_restart()');
$node->wait_sql(q{SELECT count(*) FROM outbox_archive WHERE event_type = 'old'},
	0, 60);
$proxy->do('forward');
ok($producer->wait(120), 'I7: the producer gets no error')
  or diag $producer->error;
my $worst = $node->sql('SELECT ms FROM test_worst');
cmp_ok($worst, '<', 1000, 'I7: no enqueue waited for a second');
note sprintf 'worst enqueue %.0f ms', $worst;
$v = finish('I7: retention of very many rows', interruptions => 0);
is($v->{duplicates}, 0, 'I7: no duplicate');
is($node->sql('SELECT count(*) FROM outbox_archive'),
	$v->{committed}, 'I7: only what is out of retention has gone');

# --- I10: many claimers, and statistics that are wrong

$node->sql('SELECT outbox_pause()');
$node->sql(<<'SQL');
CREATE EXTENSION outbox_test;
ALTER TABLE outbox SET (autovacuum_enabled = off);
VACUUM ANALYZE outbox;
CREATE TABLE test_taken (who int, round int, tid tid, seq bigint, id uuid);
CREATE PROCEDURE test_claimer(who int) LANGUAGE plpgsql AS $$
DECLARE
	n int;
	r int := 0;
BEGIN
	IF who % 2 = 0 THEN
		PERFORM outbox_test_worker_session();
	END IF;
	LOOP
		r := r + 1;
		INSERT INTO test_taken
			SELECT who, r, c.tid, c.seq, c.id FROM outbox_test_claim(max_rows => 10) c;
		GET DIAGNOSTICS n = ROW_COUNT;
		EXIT WHEN n = 0;
		PERFORM outbox_test_settle(array_agg(t.tid), array_agg(t.id))
			FROM test_taken t WHERE t.who = test_claimer.who AND t.round = r;
		COMMIT;
	END LOOP;
END
$$;
SQL
my $claimable = $FULL ? 50_000 : 5000;
$checker->enqueue($claimable, keys => 50, per_tx => 5000);
my @claimers = map { $checker->run("CALL test_claimer($_)") } 1 .. 16;
is( join('', map { $_->wait(120) ? '' : $_->error . "\n" } @claimers),
	'', 'I10: claimers get no error');
is( $node->sql(
		'SELECT count(*), count(DISTINCT id), (SELECT max(n) FROM (SELECT count(*) AS n
			FROM test_taken GROUP BY who, round) g), (SELECT count(*) FROM outbox) FROM test_taken'
	),
	"$claimable|$claimable|10|0",
	'I10: each row once, and at most as many as asked for');
note $node->sql('SELECT count(DISTINCT who) FROM test_taken') . ' took some';
$node->sql('ALTER TABLE outbox RESET (autovacuum_enabled);
	TRUNCATE test_sent, test_taken; SELECT outbox_resume()');

# --- I2: a second worker

my ($pid) = $node->backend_pids;
is($node->sql('SELECT outbox_test_second_worker(0)'),
	't', 'I2: a second process for a slot leaves at once');
is($node->sql('SELECT outbox_test_second_worker(1)'),
	't', 'I2: so does one with a generation that was not assigned');
is(join(' ', $node->backend_pids), $pid, 'I2: and the first one stays');

sub wait_gone
{
	my ($gone) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	return wait_until('the replaced worker leaves',
		sub { !OutboxTest::Node::alive($gone) });
}

# The launcher knows nothing of the second one, and will start its own.
sub send_second_home
{
	my ($second) = @_;
	kill 'TERM', $second;
	wait_gone($second);
	return;
}
begin('I2: two workers');
my $log_mark = $node->log_end;
my $load = $checker->load($FULL ? 20_000 : 4000, keys => 20, per_tx => 20);
$consumer->wait_count(200);
my $second = $node->sql('SELECT outbox_test_replace_worker()');
wait_gone($pid);
send_second_home($second);
like($node->log_text($log_mark), qr/outbox worker was replaced/,
	'I2: the one that was replaced stops by itself');
$load->wait;
$v = finish('I2: two workers', interruptions => 1);
is($node->sql('SELECT count(*), count(DISTINCT id) FROM outbox_archive'),
	"$v->{committed}|$v->{committed}", 'I2: each message is settled once');
note "$v->{duplicates} duplicates";
$node->restart;

# --- I3: a worker is stopped, replaced, and goes on

begin('I3: stopped, replaced, continued');
($pid) = $node->backend_pids;
$log_mark = $node->log_end;
$proxy->do('delay down 300');
$checker->enqueue(500, keys => 200);
$node->wait_sql('SELECT in_flight > 0 FROM outbox_status');
kill 'STOP', $pid;
$second = $node->sql('SELECT outbox_test_replace_worker()');
$proxy->do('forward');
$checker->enqueue(500, keys => 200);
$node->wait_drained;
$consumer->wait_count(1000);
my @before = $consumer->records;
my $archived = $node->sql('SELECT count(*) FROM outbox_archive');
kill 'CONT', $pid;
wait_gone($pid);
send_second_home($second);
like($node->log_text($log_mark), qr/outbox worker was replaced/,
	'I3: the stale worker stops');
$checker->enqueue(100, keys => 10, prefix => 'after');
$v = finish('I3: stopped, replaced, continued', interruptions => 1);
is($node->sql('SELECT count(*), count(DISTINCT id) FROM outbox_archive'),
	'1100|1100', 'I3: each message is settled once');
is($archived, 1000, 'I3: all before the stale worker went on');
is($v->{duplicates}, @before - 1000, 'I3: which sent nothing more');
note "$v->{duplicates} duplicates";
$node->restart;

# --- I9: a random history.  Three sessions do what applications do, each with
# keys of its own; meanwhile things happen to the relay, to the broker and to the
# tables.  What was committed is the model.

my $steps = $ENV{OUTBOX_TEST_STEPS} // ($FULL ? 10_000 : 100);
my $limit = $FULL ? 3600 : 30;
my $SESSIONS = 3;
my (@session, @in_transaction, @prepared, %did);
my $interruptions = 0;
my $gid = 0;

sub new_sessions
{
	foreach my $i (0 .. $SESSIONS - 1)
	{
		$session[$i] = $node->session;
		$in_transaction[$i] = 0;
	}
	return;
}

sub in_session
{
	my ($i, $sql) = @_;
	$session[$i]->query_safe($sql);
	return;
}

sub write_in_transaction
{
	my ($i) = @_;
	in_session($i, 'BEGIN') unless $in_transaction[$i]++;
	in_session($i, sprintf 'SELECT test_enqueue(%d, %d, \'s%d\')',
		1 + rand 5, pick(0, 1, 3), $i);
	return;
}

sub end_transaction
{
	my ($i, $how) = @_;
	in_session($i, $how) if $in_transaction[$i];
	$in_transaction[$i] = 0;
	return;
}

# What may wait for a lock of a session does not wait long.
sub try_sql
{
	my ($sql) = @_;
	$node->psql('postgres', "SET lock_timeout = '100ms'; SET client_min_messages = error;\n$sql");
	return;
}

my %weight_and_step = (
	enqueue => [ 30, sub { write_in_transaction($_[0]) } ],
	commit => [ 15, sub { end_transaction($_[0], 'COMMIT') } ],
	rollback => [ 5, sub { end_transaction($_[0], 'ROLLBACK') } ],
	savepoint => [
		6,
		sub {
			my ($i) = @_;
			in_session($i, 'BEGIN') unless $in_transaction[$i]++;
			in_session($i, 'SAVEPOINT a');
			write_in_transaction($i);
			in_session($i, pick('ROLLBACK TO a', 'RELEASE a'));
		}
	],
	autocommit => [ 10, sub { $checker->enqueue(1 + rand 20) } ],
	'other route' => [
		6, sub { $checker->enqueue(4, keys => 2, prefix => 'o', route => 'other') }
	],
	prepare => [
		5,
		sub {
			my $g = 'g' . ++$gid;
			return if @prepared > 10;
			$node->sql("BEGIN; SELECT test_enqueue(3, 1, '$g'); PREPARE TRANSACTION '$g'");
			push @prepared, $g;
		}
	],
	'end prepared' => [
		5,
		sub {
			my $g = shift @prepared or return;
			$node->sql(pick('COMMIT', 'COMMIT', 'ROLLBACK') . " PREPARED '$g'");
		}
	],
	'terminate worker' => [ 3, sub { $node->kill_backends('TERM') } ],
	'restart worker' => [ 2, sub { $node->sql('SELECT outbox_worker_restart()') } ],
	'kill worker' => [
		1,
		sub {
			# what was open is rolled back
			eval { $_->quit } foreach @session;
			if ($node->kill_backends('KILL'))
			{
				$interruptions++;
				$node->wait_restarted;
			}
			$node->wait_sql('SELECT pg_postmaster_start_time() IS NOT NULL
				AND count(*) = 1 FROM outbox_workers WHERE pid IS NOT NULL');
			new_sessions();
		}
	],
	'broken connection' => [
		4,
		sub {
			$proxy->do(pick('rst', 'close'));
			$interruptions++;
		}
	],
	'broken in a message' => [
		3,
		sub {
			$proxy->cut_once(pick('up', 'down'), int rand 3000, pick('fin', 'rst'));
			$interruptions++;
		}
	],
	'network' => [
		4,
		sub {
			my $bad = pick('stall up', 'delay both 50', 'refuse', 'rate both 100000');
			$proxy->do($bad);
			usleep(rand 200_000);
			$proxy->do('forward', 'accept');
		}
	],
	pause => [
		3,
		sub {
			my $what = pick('', q{'other'}, q{'default'});
			$node->sql("SELECT outbox_pause($what)");
			usleep(rand 50_000);
			$node->sql("SELECT outbox_resume($what)");
		}
	],
	'alter route' => [
		2,
		sub {
			try_sql('UPDATE outbox_route SET max_attempts = '
				  . int(5 + rand 20) . q{ WHERE name = 'other'});
		}
	],
	DDL => [
		4,
		sub {
			try_sql(pick(
				'ALTER TABLE outbox SET (autovacuum_analyze_threshold = '
				  . int(100 + rand 1000) . ')',
				'VACUUM outbox', 'ANALYZE outbox', 'VACUUM FULL outbox',
				'REINDEX TABLE outbox', 'CREATE INDEX test_i ON outbox (event_type)',
				'DROP INDEX IF EXISTS test_i'));
		}
	],
	database => [
		1,
		sub { try_sql("CREATE DATABASE probe;\nDROP DATABASE probe") }
	]);
my @deck = map { ($_) x $weight_and_step{$_}[0] } sort keys %weight_and_step;

begin('I9: random history');
new_sessions();
my $start = time;
my $done = 0;
while ($done < $steps && time - $start < $limit)
{
	my $step = pick(@deck);
	$weight_and_step{$step}[1]->(int rand $SESSIONS);
	$did{$step}++;
	$done++;
}
end_transaction($_, 'COMMIT') foreach 0 .. $SESSIONS - 1;
$_->quit foreach @session;
$node->sql("COMMIT PREPARED '$_'") foreach @prepared;
note sprintf '%d steps in %.1f s: %s', $done, time - $start, join ', ',
  map { "$_ $did{$_}" } sort keys %did;
$v = finish("I9: random history", interruptions => $interruptions + $proxy->reconnects);
note "seed $seed: $v->{committed} messages, $interruptions interruptions, "
  . $proxy->reconnects . " reconnects, $v->{duplicates} duplicates";
is( $node->sql(
		q{SELECT count(*) FROM outbox_messages WHERE attempts > 0 OR status = 'failed'}
	),
	0,
	'I9: no attempt is counted');

unlike($node->log_text(0), qr/PANIC|terminated by signal (?!9:)|TRAP:/,
	'no process crashed by itself');
done_testing();
