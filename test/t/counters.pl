# What is counted of a database and its routes: survives the worker, begins anew with
# the server, has room for so many routes; and the histograms of latency.
#
# suite: test
# takes: 8 s

use strict;
use warnings;

use Test::More;
use PostgreSQL::Test::Utils;
use OutboxTest::FakeBroker;
use OutboxTest::Node;
use OutboxTest::Util;

my $fake = OutboxTest::FakeBroker->start;
my $node = OutboxTest::Node->create(
	broker => $fake,
	conf => "outbox.retry_initial = 50ms\noutbox.retry_max = 100ms\noutbox.workers = 2\ntrack_commit_timestamp = on\n");

sub metric
{
	my ($name, $labels) = @_;
	return $node->sql("SELECT value FROM outbox_metrics WHERE name = '$name' AND labels = '" . ($labels // '{}') . "'");
}

is(metric('outbox_published_total', '{"route": "default"}'), 0, 'each series is there at 0');
is(metric('outbox_commit_to_confirm_seconds_bucket', '{"le": "+Inf"}'), 0, 'those of the histograms, too');
my $series = $node->sql('SELECT count(*) FROM outbox_metrics');

$node->sql(q{INSERT INTO outbox_route (name, exchange, max_attempts) VALUES ('lost', 'lost', 2)});
$fake->do('when exchange=lost : return 312 NO_ROUTE');
$node->sql(q{SELECT outbox_enqueue('e', '{}', aggregate_id => i::text) FROM generate_series(1, 100) i});
$node->sql(q{SELECT outbox_enqueue('e', '{}', route => 'lost') FROM generate_series(1, 5)});
$node->wait_sql(q{SELECT failed FROM outbox_status}, 5);
$node->wait_sql(q{SELECT published FROM outbox_routes_status WHERE route = 'default'}, 100);
is($node->sql(q{SELECT published, returned, nacked, retried, gave_up, failed, dead_lettered, known, retry_at IS NULL
		FROM outbox_routes_status WHERE route = 'lost'}),
	'0|10|0|5|5|5|0|t|t', 'a route has its own counts, of both workers');
is(metric('outbox_returned_total', '{"route": "lost"}'), 10, 'and its own series');
$node->wait_sql('SELECT rate > 0 FROM outbox_status', 't');

foreach my $timing (qw(commit publish))
{
	my $name = "outbox_${timing}_to_confirm_seconds";

	is(metric("${name}_count"), 100, "$timing to confirm: each message once");
	is(metric("${name}_bucket", '{"le": "+Inf"}'), 100, "$timing to confirm: the last bucket has all");
	is($node->sql(qq{SELECT bool_and(value >= lag) FROM (SELECT value, lag(value, 1, 0)
			OVER (ORDER BY CASE labels->>'le' WHEN '+Inf' THEN 'Infinity' ELSE labels->>'le' END::float)
			FROM outbox_metrics WHERE name = '${name}_bucket') b}), 't', "$timing to confirm: cumulative");
	cmp_ok(metric("${name}_sum"), '>', 0, "$timing to confirm: the sum");
}
is($node->sql(q{SELECT outbox_quantile(0.5, bounds, commit_to_confirm) BETWEEN 0.00001 AND 30,
		outbox_quantile(0.99, bounds, publish_to_confirm) >= outbox_quantile(0.5, bounds, publish_to_confirm)
	FROM outbox_database_stats()}), 't|t', 'quantiles');
is($node->sql(q{SELECT outbox_quantile(0.5, '{1,2,4}', '{0,10,20,20}'), outbox_quantile(0.75, '{1,2,4}', '{0,10,20,20}'),
		outbox_quantile(0.99, '{1,2,4}', '{0,0,0,7}'), outbox_quantile(0.5, '{1,2,4}', '{0,0,0,0}') IS NULL}),
	'2|3|4|t', 'of a histogram that is known');

# --- a worker that is blocked is connected; of equal states the one counts that has lasted longest

$node->wait_sql(q{SELECT count(*) FROM outbox_workers WHERE state = 'idle'}, 2);
is($node->sql(q{SELECT since = (SELECT min(since) FROM outbox_workers) AND (SELECT count(DISTINCT since) FROM outbox_workers) = 2
	FROM outbox_status}), 't', 'idle since the first one is');
$fake->do('now blocked low on memory');
$node->wait_sql('SELECT state FROM outbox_status', 'blocked');
is($node->sql(q{SELECT min(value), max(value) FROM outbox_metrics WHERE name = 'outbox_broker_connected'}), '1|1', 'blocked is connected');
$fake->do('now unblocked');

# --- other workers; they forget old keys of outbox_enqueue_once(), and what an old snapshot
# keeps of these they read once

my $reader = $node->session;
$reader->query_safe('BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT 1');
$node->sql(q{INSERT INTO outbox_internal.outbox_once
	SELECT 'default', 'old' || i, outbox_uuid7(), now() - interval '25 hours' + i * interval '1 ms' FROM generate_series(1, 5000) i
	UNION ALL SELECT 'default', 'young', outbox_uuid7(), now() - interval '23 hours'});
my $reconnects = metric('outbox_reconnects_total');
$node->wait_workers('postgres', 2);
my $told = $node->sql('SELECT clock_timestamp()');
is($node->sql('SELECT outbox_worker_restart()'), 2, 'both workers are told to start again')
  or diag $node->sql('SELECT string_agg(w::text, $$ $$) FROM outbox_workers w');
$node->wait_sql("SELECT count(*) FROM outbox_workers WHERE pid IS NOT NULL AND state = 'idle' AND started_at > '$told'", 2);
$node->sql(q{SELECT outbox_enqueue('e', '{}') FROM generate_series(1, 10)});
$node->wait_sql(q{SELECT published FROM outbox_routes_status WHERE route = 'default'}, 110);
$node->wait_sql(q{SELECT string_agg(key, ' ') FROM outbox_internal.outbox_once}, 'young');
$node->wait_sql(q{SELECT idx_tup_read >= 5000 FROM pg_stat_all_indexes WHERE indexrelname = 'outbox_once_at'}, 't');
cmp_ok($node->sql(q{SELECT idx_tup_read FROM pg_stat_all_indexes WHERE indexrelname = 'outbox_once_at'}), '<', 7000,
	'each is read once');
$reader->quit;
is(metric('outbox_returned_total', '{"route": "lost"}'), 10, 'nothing is lost with a worker');
is(metric('outbox_published_total', '{"route": "default"}'), 110, 'and the next one goes on');

# --- room for so many routes

$node->sql(q{INSERT INTO outbox_route (name) SELECT 'r' || i FROM generate_series(1, 40) i});
$node->sql(q{SELECT outbox_enqueue('e', '{}', route => 'r' || i) FROM generate_series(1, 40) i});
$node->wait_drained;
$node->wait_sql(q{SELECT sum(published) FROM outbox_internal.outbox_route_stats()}, 150);
is($node->sql(q{SELECT count(*) FROM outbox_internal.outbox_route_stats() WHERE route IS NOT NULL}), 32, 'so many have an entry');
is($node->sql(q{SELECT count(DISTINCT labels), sum(value) FROM outbox_metrics WHERE name = 'outbox_published_total'}),
	'33|150', 'the others share one series, and none is lost');

# --- a route that waits is named, however many there are

sub missing
{
	return q{SELECT count(DISTINCT subject) FROM outbox_problems WHERE problem = 'exchange missing'};
}

$node->set("outbox.retry_$_", '60s') foreach qw(max initial);
$fake->do('when exchange=gone : channel-close 404 "NOT_FOUND - no exchange"');
$node->sql(q{UPDATE outbox_route SET exchange = 'gone' WHERE name ~ '^r'});
$node->sql(q{SELECT outbox_enqueue('e', '{}', 'a', i::text, route => 'r' || i) FROM generate_series(1, 40) i});
$node->wait_sql(missing(), 40);
is($node->sql(q{SELECT count(*), count(waits_because), count(waits_since), count(retry_at), min(reason)
		FROM outbox_routes_status WHERE route ~ '^r'}), '40|40|40|40|exchange missing', 'each says why');
is(metric('outbox_route_waiting', '{"route": ""}'), 1, 'so do the series of those that share one');

# A route of a worker that does not come back.
$fake->do('forget');
$node->set('outbox.workers', 1);
$node->wait_drained;
$node->wait_sql(missing(), 0);

# Names that were used once have no share in what is counted.
$fake->do('when exchange=gone : channel-close 404 "NOT_FOUND - no exchange"');
$node->set("outbox.retry_$_", '100ms') foreach qw(initial max);
$node->sql(q{DELETE FROM outbox_route WHERE name ~ '^r'});
$node->sql(q{INSERT INTO outbox_route (name, exchange) VALUES ('late', 'gone')});
$node->sql(q{SELECT outbox_enqueue('e', '{}', route => 'late')});
$node->wait_sql(missing(), 1);
is($node->sql(q{SELECT labels, value FROM outbox_metrics WHERE name = 'outbox_backlog_messages' AND (value > 0 OR labels->>'route' = 'late')}),
	'{"route": ""}|1', 'what has no place for counters has one series');
$node->sql(q{SELECT outbox_pause(), outbox_discard(id), outbox_resume() FROM outbox});
is($node->sql('SELECT count(*) FROM outbox'), 0, 'discarded');
$node->wait_sql(missing(), 0);
$fake->do('forget');
$node->unset($_) foreach qw(outbox.workers outbox.retry_max outbox.retry_initial);

# --- what a worker takes over of another database's are no counts

foreach my $database (qw(second third))
{
	my $workers = 'SELECT coalesce(sum(published), 0) FROM outbox_workers';

	$node->sql("CREATE DATABASE $database");
	$node->safe_psql($database, 'CREATE EXTENSION outbox');
	$node->wait_sql(q{SELECT count(*) FROM outbox_workers WHERE state = 'idle'}, 2, undef, $database);
	is($node->sql($workers, $database), 0, "$database database: its workers have published nothing");
	$node->sql(q{SELECT outbox_enqueue('e', '{}')}, $database);
	$node->wait_sql($workers, 1, undef, $database);
	$node->sql("DROP DATABASE $database WITH (FORCE)");
}

# --- the server

my $began = metric('outbox_start_time_seconds');
$node->restart;
$node->wait_sql(q{SELECT count(*) FROM outbox_workers WHERE state = 'idle'}, 2);
is($node->sql(q{SELECT sum(value) FROM outbox_metrics WHERE type = 'counter' OR name LIKE '%_count'}), 0,
	'counters begin anew with the server');
cmp_ok(metric('outbox_start_time_seconds'), '>', $began, 'which says when');
cmp_ok($node->sql('SELECT count(*) FROM outbox_metrics'), '>', $series, 'every route has its series at once');
done_testing();
