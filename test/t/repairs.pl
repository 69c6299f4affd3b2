# Repairs of many messages in one call while applications enqueue and the relay
# publishes: nobody waits for them, nothing is lost, sent twice, or out of order.
# And repairs of what a worker has in its memory.
#
# OUTBOX_TEST_FULL=1: 100,000 messages a call, and what it costs others.
#
# suite: test faults
# takes: 12 s

use strict;
use warnings;

use IPC::Run;
use Test::More;
use Time::HiRes qw(time);
use PostgreSQL::Test::Utils;
use OutboxTest::Checker;
use OutboxTest::Consumer;
use OutboxTest::Node;
use OutboxTest::Rabbit;
use OutboxTest::Util;

my $FULL = $ENV{OUTBOX_TEST_FULL};
my $MANY = $FULL ? 100_000 : 2_000;
# Of commits before a call, for comparison.
my $BASE_S = $FULL ? 10 : 1;
my $CLIENTS = 4;
my $RATE = 200;

my $rabbit = OutboxTest::Rabbit->start;
my $node = OutboxTest::Node->create(
	broker => $rabbit,
	conf => "track_commit_timestamp = on\nmax_wal_size = 4GB");
my $checker = OutboxTest::Checker->install($node);
my $consumer = OutboxTest::Consumer->start($rabbit, exchange => 'outbox');
$node->sql(q{INSERT INTO outbox_route (name, exchange) VALUES ('broken', 'outbox'), ('other', 'outbox')});

# Failed messages of keys that begin so.
sub fail_many
{
	my ($prefix) = @_;
	$node->sql(q{SELECT outbox_pause('broken', 'to be broken')});
	$checker->enqueue($MANY, keys => 500, prefix => $prefix, route => 'broken', per_tx => 1000);
	$node->sql(q{UPDATE outbox SET status = 'failed', attempts = 10,
		last_error = 'returned by the broker: 312 NO_ROUTE' WHERE route = 'broken';
		SELECT outbox_resume('broken')});
	return;
}

# --- the load: short transactions, each client with keys of its own, so many that none of
# them waits for the one before

my $script = "$PostgreSQL::Test::Utils::tmp_check/repairs_load.sql";
append_to_file($script, "\\set k random(1, 2000)\nSELECT test_enqueue(1, 1, 'live' || :client_id || '-' || :k || '-');\n");
my ($log, $load, $err);
my $loads = 0;

sub start_load
{
	my $out = '';
	$log = "$PostgreSQL::Test::Utils::tmp_check/repairs_load" . ++$loads;
	$err = '';
	$load = IPC::Run::start(
		[
			'pgbench', '-n', '-c', $CLIENTS, '-T', 600, '-R', $RATE, '-l', "--log-prefix=$log",
			'-f', $script, '-h', $node->host, '-p', $node->port, 'postgres'
		],
		'<', \undef, '>', \$out, '2>', \$err);
	my $from = $node->sql('SELECT count(*) FROM test_sent');
	return $node->wait_sql("SELECT count(*) > $from + $BASE_S * $RATE FROM test_sent", 't', 60);
}

sub stop_load
{
	$load->signal('TERM');
	$load->finish;
	$node->wait_sql(q{SELECT count(*) FROM pg_stat_activity WHERE application_name = 'pgbench'}, 0);
	unlike($err, qr/ERROR|aborted/, 'producers notice nothing');
	return;
}

# Milliseconds that transactions took which began before $to and ended after $from.
sub enqueue_ms
{
	my ($from, $to) = @_;
	my @ms;
	foreach my $line (map { split /\n/, slurp_file($_) } glob "$log.*")
	{
		my (undef, undef, $us, undef, $s, $rest) = split / /, $line;
		my $end = $s + $rest / 1e6;
		push @ms, $us / 1000 if $end > $from && $end - $us / 1e6 < $to;
	}
	return @ms;
}

# The same from commit until the relay was done with the message, of those committed in
# that time: the queue of the broker is a queue, too, and not what is asked here.
sub publish_ms
{
	my ($from, $to) = @_;
	return map { $_->[0] } $node->rows(<<"SQL");
SELECT extract(epoch FROM a.published_at - pg_xact_commit_timestamp(s.xmin)) * 1000
FROM test_sent s JOIN outbox_archive a ON a.id = s.id
WHERE s.key LIKE 'live%' AND extract(epoch FROM pg_xact_commit_timestamp(s.xmin)) BETWEEN $from AND $to
SQL
}

sub show_times
{
	my ($when, $what, @ms) = @_;
	note sprintf '  %-8s %-7s %6d, median %7.2f ms, p99 %8.2f ms, maximum %8.2f ms', $what, $when, scalar @ms,
	  map { @ms ? percentile($_, @ms) : 0 } 50, 99, 100;
	return;
}

# Calls a repair under load: it changes all of them, is remembered, and in FULL
# mode nobody waits as long as it takes.
sub under_load
{
	my ($name, $call, $action) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;

	start_load();
	my $start = time;
	is($node->sql("SELECT $call"), $MANY, "$name: it says how many");
	my $end = time;
	$node->wait_sql(q{SELECT NOT EXISTS (SELECT FROM outbox WHERE route = 'broken' AND status = 'pending')},
		't', $FULL ? 300 : 60);
	my $drained = time;
	stop_load();
	is($node->sql("SELECT messages FROM outbox_history WHERE action = '$action' ORDER BY id DESC LIMIT 1"),
		$MANY, "$name: and so does the history");
	$node->wait_drained(60);
	$consumer->wait_count($node->sql(q{SELECT count(*) FROM test_sent s WHERE NOT EXISTS
		(SELECT FROM outbox o WHERE o.id = s.id)}), 60) if $action eq 'requeue';
	note sprintf '%s of %d messages took %.2f s, and %.2f s until they were out', $name, $MANY,
	  $end - $start, $drained - $start;
	my %when = (before => [ $start - $BASE_S, $start ], during => [ $start, $end ], after => [ $end, $drained ]);
	foreach my $when (qw(before during after))
	{
		show_times($when, 'enqueue', enqueue_ms(@{ $when{$when} }));
		show_times($when, 'publish', publish_ms(@{ $when{$when} }));
	}
	if ($FULL)
	{
		cmp_ok(percentile(100, enqueue_ms($start, $end)), '<', 1000 * ($end - $start) / 2,
			"$name: no producer waits for it");
		cmp_ok(percentile(95, publish_ms($start, $end)), '<', 1000 * ($end - $start),
			"$name: and the relay does not");
	}
	return;
}

fail_many('again');
under_load('requeue of all', 'outbox_requeue_failed()', 'requeue');
fail_many('ids');
under_load('requeue by ids',
	q{outbox_requeue_ids(ARRAY(SELECT id FROM outbox WHERE status = 'failed'))}, 'requeue');
fail_many('gone');
under_load('discard', q{outbox_discard_messages('too late', last_error_like => '%NO_ROUTE%')}, 'discard');
# What was discarded must not have been sent.
is($node->sql(q{WITH d AS (DELETE FROM test_sent WHERE key LIKE 'gone%' RETURNING 1) SELECT count(*) FROM d}),
	$MANY, 'discard: those of the broken route');

# --- held up when all of it is done but for the history: nobody else waits for it

my $holder = $node->session;
foreach my $call ('outbox_requeue_failed()', q{outbox_requeue_ids(ARRAY(SELECT id FROM outbox WHERE status = 'failed'))},
	q{outbox_discard_messages('too late')})
{
	my ($name) = $call =~ /^(\w+)/;
	$node->sql(q{SELECT outbox_pause('broken', 'to be broken')});
	$checker->enqueue(5, keys => 5, prefix => "$name.", route => 'broken');
	$node->sql(q{UPDATE outbox SET status = 'failed' WHERE route = 'broken'; SELECT outbox_resume('broken')});
	$holder->query_safe('BEGIN; LOCK TABLE outbox_history IN SHARE MODE');
	my $repair = $checker->run("SELECT $call;");
	$node->wait_sql("SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query ~ '^SELECT $name'", 1);
	is($node->sql_fails("SET lock_timeout = '10s'; SELECT test_enqueue(1, 1, 'beside $name ')"), undef, "$name(): producers do not wait for it");
	ok($node->wait_sql("SELECT count(*) FROM outbox_archive WHERE aggregate_id = 'beside $name 1'", 1), "$name(): nor does the relay");
	$holder->query_safe('COMMIT');
	ok($repair->wait, "$name(): goes on") or diag $repair->error;
}
$holder->quit;
$node->sql(q{DELETE FROM test_sent WHERE key LIKE 'outbox_discard_messages.%'});
$checker->finish('repairs under load', $consumer, case => 'repairs under load');

# --- what a worker has in its memory

$consumer = OutboxTest::Consumer->start($rabbit, exchange => 'outbox');
$node->sql('TRUNCATE test_sent');
$rabbit->pause;
my $id = $node->sql(q{INSERT INTO test_sent SELECT 1000000000, outbox_enqueue('e', '{}', 'person', '7'), 'person 7' RETURNING id});
$node->wait_sql('SELECT count(*) FROM outbox_internal.outbox_claims()', 1);
like($node->sql_fails("SELECT outbox_edit('$id', '1')"), qr/is being published/, 'in flight: it cannot be edited');
is($node->sql(q{SELECT outbox_discard_messages('r', 'pending')}), 0, 'nor discarded by a filter');
is($node->sql(q{SELECT * FROM outbox_erase('person', '7')}), '0|0|0|1', 'nor erased, and that is told');
$rabbit->resume;
$node->wait_drained;
is($node->sql(q{SELECT * FROM outbox_erase('person', '7')}), '0|1|0|0', 'later it is');

# Waiting ones, which no worker has: of a paused route, edited and sent elsewhere.
$node->sql(q{SELECT outbox_pause('broken')});
$id = $node->sql(q{INSERT INTO test_sent SELECT 1000000001, outbox_enqueue('e', '{}', route => 'broken') RETURNING id});
$node->sql(q{SELECT outbox_enqueue('e', '{}', route => 'broken') FROM generate_series(1, 50)});
$node->wait_sql('SELECT count(*) FROM outbox_internal.outbox_claims()', 0);
is($node->sql(qq{SELECT outbox_edit('$id', '{"edited": true}', headers => '{"h": 1}', route => 'other')}), 't',
	'waiting: it is edited');
$consumer->wait_count(2);
my ($record) = grep { $_->{id} eq $id } $consumer->records;
is($record->{body}, '{"edited": true}', 'and goes out as it is now, on its new route');
is($node->sql(q{SELECT outbox_discard_messages('stopped', 'pending', route => 'broken')}), 50, 'the others are discarded');
$node->sql(q{SELECT outbox_resume('broken')});
# a failed one, edited and requeued in one statement
$id = $node->sql(q{INSERT INTO test_sent SELECT 1000000002, outbox_enqueue('e', '{}', available_at => now() + '1 hour') RETURNING id});
$node->sql("UPDATE outbox SET status = 'failed' WHERE id = '$id'");
is($node->sql(qq{SELECT outbox_edit('$id', '2', reason => 'mended'), outbox_requeue('$id')}), 't|t', 'failed: edited and requeued');
$checker->finish('what was edited', $consumer, case => 'edited messages');

$node->stop;
done_testing();
