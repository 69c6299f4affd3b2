# Replay out of the archive, as a job of the relay: exact counts and the order of keys
# beside live messages, through crashes of the server at the worst moments; with new
# ids; what is skipped; cancelled, paused, failed and tried again.
#
# OUTBOX_TEST_FULL=1: a million of two million archived messages (or OUTBOX_TEST_MESSAGES),
# and what live ones feel of it; errors until the job is given up.
#
# suite: test faults
# takes: 25 s

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
my $WINDOW = 200;
my $CHUNK = $WINDOW / 2;
my $N = 2000;

# The checker's rules for what a replay has published: of the messages in only, which
# were all committed long ago, each arrives, in the order of its key.
package ReplayChecker
{
	our @ISA = ('OutboxTest::Checker');
	sub committed
	{
		my ($self) = @_;
		my $all = $self->SUPER::committed;
		return { map { $_ => $all->{$_} } @{ $self->{only} } };
	}
}

seed();
my $rabbit = OutboxTest::Rabbit->start;
my $node = OutboxTest::Node->create(
	broker => $rabbit,
	conf => "outbox.window = $WINDOW\noutbox.workers = 2");
my $checker = OutboxTest::Checker->install($node);
my $consumer = OutboxTest::Consumer->start($rabbit, exchange => 'outbox');

sub job
{
	my ($id) = @_;
	return $node->sql("SELECT state, total, done, skipped FROM outbox_job WHERE id = $id");
}

sub wait_job
{
	my ($id, $state, $seconds) = @_;
	return $node->wait_sql("SELECT state FROM outbox_job WHERE id = $id", $state, $seconds // 60);
}

# Waits until there are $more records than $since, and returns these.
sub came
{
	my ($since, $more, $seconds) = @_;
	my @records;

	local $Test::Builder::Level = $Test::Builder::Level + 1;
	wait_until("$more messages came", sub { (@records = $consumer->records) >= $since + $more }, $seconds // 60);
	return @records[ $since .. $#records ];
}

# Of what came, the rules for a replay of $only: by their own ids, or the first ones.
sub check_replay
{
	my ($name, $only, $came, %params) = @_;
	my %only = map { $_ => 1 } @$only;
	my %first = map { $_->[0] => $_->[1] } $node->rows(
		q{SELECT id, headers->>'x-outbox-replayed-from' FROM outbox_archive
		WHERE headers ? 'x-outbox-replayed-from'});
	my @copies = map { { %$_, id => $first{ $_->{id} } // $_->{id} } } @$came;
	my $replayed = bless { %$checker, only => $only }, 'ReplayChecker';

	local $Test::Builder::Level = $Test::Builder::Level + 1;
	return $replayed->check($name, [ grep { $only{ $_->{id} } } @copies ], window => $WINDOW, %params);
}

# --- beside live messages, with the same ids

$node->sql(q{UPDATE outbox_route SET sequence = 'seq' WHERE name = 'default'});
$checker->enqueue($N, keys => 20);
$node->wait_drained;
$consumer->wait_count($N);
my @all = map { $_->[0] } $node->rows('SELECT id FROM outbox_archive ORDER BY seq');
is(scalar @all, $N, 'all are archived');
my $since = $consumer->records;
my $load = $checker->load(1000, keys => 20, prefix => 'live', per_tx => 5);
my $job = $node->sql(q{SELECT outbox_replay('-infinity')});
my $total = $node->sql("SELECT total FROM outbox_job WHERE id = $job");
cmp_ok($total, '>=', $N, 'what is published is listed');
wait_job($job, 'done');
is(job($job), "done|$total|$total|0", 'a replay is counted exactly');
is($node->sql(q{SELECT (SELECT count(*) FROM outbox_internal.outbox_job_list), (SELECT count(*) FROM outbox_progress WHERE kind = 'replay')}),
	'0|0', 'nothing of it is left');
ok($load->wait, 'producers notice nothing');
$node->wait_drained;
check_replay('replay beside load', \@all, [ came($since, $total + 1000) ]);
is($node->sql("SELECT count(*), count(DISTINCT id) FROM outbox_archive
		WHERE (headers->>'x-outbox-replay')::int = $job AND headers ? 'x-outbox-replayed-timestamp'"),
	"$total|$total", 'what is replayed says so, and is archived again');
is($node->sql(q{SELECT count(*) FROM (SELECT FROM outbox_archive GROUP BY id
		HAVING count(DISTINCT headers->'x-outbox-seq') <> 1) other}),
	0, 'with the number that it had');
is($node->sql(q{SELECT action, subject, messages FROM outbox_history WHERE action LIKE 'replay%' ORDER BY id}),
	"replay|job $job|$total\nreplay done|job $job|$total", 'and is remembered');

# --- crashes of the server at the worst moments: nothing twice, nothing left out

$node->sql('TRUNCATE outbox_archive');
$checker->enqueue($N, keys => 20, prefix => 'crash');
$node->wait_drained;
@all = map { $_->[0] } $node->rows('SELECT id FROM outbox_archive ORDER BY seq');
$consumer->wait_count($N + $N + 1000);
$since = $consumer->records;
my @points = ('in_job wait 3', 'after_job wait 4', 'in_job wait 1', 'after_job wait 1');
$node->test_point($points[0]);
$job = $node->sql(q{SELECT outbox_replay('-infinity', new_ids => true)});
foreach my $i (0 .. $#points)
{
	my ($point) = split / /, $points[$i];
	my $pid = $node->wait_test_point($point);
	# what the crash may lose, as its commit was asynchronous, counts as not done
	$node->kill_process($pid);
	wait_until('killed worker gone', sub { !OutboxTest::Node::alive($pid) });
	$node->test_point_over($points[ $i + 1 ]);
	$node->wait_restarted;
	my ($state, $done) = split /\|/, $node->sql("SELECT state, done FROM outbox_job WHERE id = $job");
	note "$points[$i]: $state, $done done";
}
wait_job($job, 'done');
$node->wait_drained;
is(job($job), "done|$N|$N|0", 'a replay through crashes is counted exactly');
is($node->sql("SELECT count(*), count(DISTINCT headers->>'x-outbox-replayed-from') FROM outbox_archive
		WHERE (headers->>'x-outbox-replay')::int = $job"), "$N|$N", 'each is replayed once');
check_replay('replay through crashes', \@all, [ came($since, $N) ], interruptions => scalar @points);

# --- not faster than it is published; cancelled

$rabbit->pause;
$job = $node->sql(q{SELECT outbox_replay('-infinity', new_ids => true)});
$total = $node->sql("SELECT total FROM outbox_job WHERE id = $job");
is($total, 2 * $N, 'a replay is of what was replayed, too');
$node->wait_sql("SELECT done FROM outbox_job WHERE id = $job", 2 * $CHUNK);
$node->wait_turn;
is(job($job), "running|$total|" . 2 * $CHUNK . '|0', 'it waits for what it has put into outbox');
like($node->sql(q{SELECT kind, subject, state, total, estimated, done, percent, rate > 0, estimated_end > now() FROM outbox_progress WHERE kind = 'replay'}),
	qr/^replay\|job $job\|running\|$total\|f\|200\|5\|t\|t$/, 'as outbox_progress shows');
is($node->sql("SELECT outbox_job_cancel($job)"), 't', 'it is cancelled');
$rabbit->resume;
$node->wait_drained;
is($node->sql("SELECT count(*) FROM outbox_archive WHERE (headers->>'x-outbox-replay')::int = $job"),
	2 * $CHUNK, 'what it has put into outbox is published, and no more');
is(job($job), "cancelled|$total|" . 2 * $CHUNK . '|0', 'and counted');

# --- paused with the relay; while its row is locked the relay publishes

$node->sql('SELECT outbox_pause()');
$job = $node->sql(q{SELECT outbox_replay('-infinity', max_messages => 500, new_ids => true)});
$node->wait_turn;
is(job($job), 'waiting|500|0|0', 'paused with the relay');
my $session = $node->session;
$session->query_safe("BEGIN; SELECT outbox_job_cancel($job)");
$node->sql('SELECT outbox_resume()');
$checker->enqueue(10);
$node->wait_drained;
$session->query_safe('ROLLBACK');
$session->quit;
wait_job($job, 'done');
is(job($job), 'done|500|500|0', 'a job that somebody had locked goes on');
$node->wait_drained;

# --- refused one by one; live ones go on

$node->sql('TRUNCATE outbox_archive');
$checker->enqueue(300, keys => 5, prefix => 'poison');
$node->wait_drained;
$node->sql(q{ALTER TABLE outbox ADD CONSTRAINT poison CHECK (NOT (headers ? 'x-outbox-replay' AND (payload->>'n')::int % 100 = 50))});
my $poison = $node->sql(q{SELECT count(*) FROM outbox_archive WHERE (payload->>'n')::int % 100 = 50});
$job = $node->sql(q{SELECT outbox_replay('-infinity')});
wait_job($job, 'done');
is(job($job), 'done|300|' . (300 - $poison) . "|$poison", 'messages that are refused are skipped');
like($node->sql("SELECT last_error FROM outbox_job WHERE id = $job"), qr/^the message of seq \d+ was skipped: .*"poison"/,
	'and it says why');
$node->sql('ALTER TABLE outbox DROP CONSTRAINT poison');
$node->wait_drained;

# --- a job that waits for a paused route says so; what it has left there holds up no later job

$node->sql('TRUNCATE outbox_archive');
$node->sql(q{INSERT INTO outbox_route (name) VALUES ('held'), ('free')});
$node->sql(q{SELECT outbox_enqueue('m', '{}', route => r) FROM unnest('{held,free}'::text[]) r, generate_series(1, 500)});
$node->wait_drained;
$node->sql(q{SELECT outbox_pause('held')});
$job = $node->sql(q{SELECT outbox_replay('-infinity', route => 'held')});
$node->wait_sql("SELECT last_error FROM outbox_job WHERE id = $job", 'waits for messages of route "held", which is paused');
cmp_ok($node->sql('SELECT count(*) FROM outbox'), '<=', 2 * $CHUNK, 'no more than it may put ahead');
$node->sql(q{SELECT outbox_resume('held')});
wait_job($job, 'done');
is($node->sql("SELECT last_error FROM outbox_job WHERE id = $job"), '', 'it waits no more');
$node->wait_drained;
$node->sql(q{SELECT outbox_pause('held')});
$job = $node->sql(q{SELECT outbox_replay('-infinity', route => 'held')});
$node->wait_sql("SELECT last_error LIKE 'waits for %' FROM outbox_job WHERE id = $job", 't');
$node->sql("SELECT outbox_job_cancel($job)");
$job = $node->sql(q{SELECT outbox_replay('-infinity', route => 'free')});
wait_job($job, 'done', 30);
# nor does a dead letter's route take more at once
$node->sql(q{DELETE FROM outbox WHERE route = 'held'});
$node->wait_drained;
$node->sql(q{UPDATE outbox_route SET failed_route = 'held' WHERE name = 'free'});
$job = $node->sql(q{SELECT outbox_replay('-infinity', route => 'held')});
$node->wait_sql("SELECT last_error LIKE 'waits for %' FROM outbox_job WHERE id = $job", 't');
cmp_ok($node->sql('SELECT count(*) FROM outbox'), '<=', 2 * $CHUNK, 'nor to the failed_route of another');
$node->sql(q{SELECT outbox_resume('held')});
wait_job($job, 'done');
$node->wait_drained;

full() if $FULL;

# --- a drain: one key, so that it takes some seconds

$node->sql('SELECT outbox_pause()');
$node->sql(q{INSERT INTO outbox (event_type, payload, aggregate_id) SELECT 'drain', '1', 'one' FROM generate_series(1, 20000)});
is($node->sql('SELECT count(*) FROM outbox_progress'), '0', 'a backlog that waits is no drain');
$node->sql('SELECT outbox_resume()');
$node->wait_sql(q{SELECT kind, subject, state, started_at < now(), total > 10000, done > 0,
	percent > 0, rate > 0, estimated_end > now() FROM outbox_progress}, 'drain|backlog|running|t|t|t|t|t|t');

$node->sql('TRUNCATE outbox');
$node->stop;
done_testing();

# --- a million of two, and what live ones feel of it; errors that do not end

sub full
{
	my $million = $ENV{OUTBOX_TEST_MESSAGES} // 1_000_000;

	$node->sql('TRUNCATE outbox_archive, test_sent');
	$consumer->stop;
	$node->append_conf('postgresql.conf', 'outbox.window = 1000');
	$node->sql('SELECT pg_reload_conf()');
	# as if published in the last two hours; of every two one is about something else
	$node->sql(<<"SQL");
INSERT INTO outbox_archive (seq, id, route, event_type, aggregate_type, aggregate_id, payload,
	created_at, attempts, published_at)
SELECT nextval('outbox_seq_seq'), outbox_uuid7(), 'default', 'test.event',
	CASE WHEN i % 2 = 0 THEN 'test' ELSE 'other' END, i % 5000, jsonb_build_object('n', i, 'pad', repeat('x', 100)),
	now() - interval '2 hours' + i * interval '3 ms', 0, now() - interval '2 hours' + i * interval '3 ms'
FROM generate_series(1, 2 * $million) i;
INSERT INTO test_sent SELECT (payload->>'n')::bigint, id, aggregate_id FROM outbox_archive WHERE aggregate_type = 'test';
SELECT setval('test_sent_n', 3 * $million);
CHECKPOINT;
SQL
	my @only = map { $_->[0] } $node->rows('SELECT id FROM test_sent');
	$consumer = OutboxTest::Consumer->start($rabbit, exchange => 'outbox', prefetch => 2000);
	my @before = latencies('before');
	my $start = time;
	$job = $node->sql(q{SELECT outbox_replay('-infinity', aggregate_type => 'test')});
	note sprintf 'filed in %.1f s; the list has %s', time - $start,
	  $node->sql(q{SELECT pg_size_pretty(pg_total_relation_size('outbox_internal.outbox_job_list'))});
	$start = time;
	my @during = latencies('during', 20);
	note $node->sql('SELECT done, percent, rate, estimated_end - now() FROM outbox_progress');
	wait_job($job, 'done', 1800);
	note sprintf '%d messages/s', $million / (time - $start);
	is(job($job), "done|$million|$million|0", 'a million is counted exactly');
	$node->wait_drained(600);
	wait_until('all came', sub { $consumer->unique >= $million }, 600);
	my @came = map { { id => $_->{id}, redelivered => $_->{redelivered} } } $consumer->records;
	check_replay('a million replayed', \@only, \@came);
	note $node->sql(q{SELECT pg_size_pretty(pg_relation_size('outbox')), pg_size_pretty(pg_total_relation_size('outbox_internal.outbox_job_list'))});

	# Errors that are not the messages' fault end it, and it can be tried again.
	$node->sql(q{CREATE FUNCTION busy() RETURNS trigger LANGUAGE plpgsql AS $$
		BEGIN RAISE EXCEPTION 'not now' USING ERRCODE = 'object_in_use'; END $$});
	$node->sql(q{CREATE TRIGGER busy BEFORE INSERT ON outbox FOR EACH ROW
		WHEN (NEW.headers ? 'x-outbox-replay') EXECUTE FUNCTION busy()});
	$job = $node->sql(q{SELECT outbox_replay('-infinity', max_messages => 10)});
	wait_job($job, 'failed', 120);
	is($node->sql("SELECT last_error FROM outbox_job WHERE id = $job"), 'not now', 'errors end it');
	$node->sql('DROP TRIGGER busy ON outbox');
	is($node->sql("SELECT outbox_job_retry($job)"), 't', 'tried again');
	wait_job($job, 'done');
	return;
}

# Some seconds of one message after the other, 200 a second: from enqueue to settled.
sub latencies
{
	my ($name, $seconds) = @_;
	$seconds //= 10;
	my $live = $checker->load(200 * $seconds, per_tx => 1, pause_ms => 5, event_type => "live.$name");
	$live->wait($seconds * 30) or diag $live->error;
	$node->wait_drained if $name eq 'before';
	my @p = split /\|/, $node->sql("SELECT count(*), percentile_disc(ARRAY[0.5, 0.9, 0.99, 1]) WITHIN GROUP
			(ORDER BY round(1000 * extract(epoch FROM published_at - created_at), 1))
		FROM outbox_archive WHERE event_type = 'live.$name'");
	note "latency of live messages $name the replay, ms: @p";
	return @p;
}
