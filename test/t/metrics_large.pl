# What it costs to look when the backlog is large: outbox_metrics, outbox_status and
# outbox_problems with ten million messages (in make test 50,000), some of each kind.
#
# suite: test faults alone (times are measured)
# takes: 15 s

use strict;
use warnings;

use Test::More;
use PostgreSQL::Test::Utils;
use OutboxTest::FakeBroker;
use OutboxTest::Node;
use OutboxTest::Util;

my $messages = $ENV{OUTBOX_TEST_FULL} ? 10_000_000 : 50_000;
my $fake = OutboxTest::FakeBroker->start;
my $node = OutboxTest::Node->create(
	broker => $fake,
	conf => "max_wal_size = 8GB\nsynchronous_commit = off\n");

$node->sql(q{INSERT INTO outbox_route (name) SELECT 'r' || i FROM generate_series(1, 9) i});
$node->sql('SELECT outbox_pause()');
$node->wait_sql('SELECT state FROM outbox_status', 'paused');
foreach my $part (1 .. 10)
{
	$node->psql('postgres', qq{
		INSERT INTO outbox (event_type, payload, route, aggregate_type, aggregate_id)
		SELECT 'e', '{}', 'r' || (1 + i % 9), 'a', (i % 100000)::text FROM generate_series(1, $messages / 10) i},
		timeout => 900, on_error_die => 1);
}
$node->sql(q{INSERT INTO outbox (event_type, payload, available_at) SELECT 'later', '{}', '2100-01-01' FROM generate_series(1, 3000)});
$node->sql(q{INSERT INTO outbox (event_type, payload, status, attempts, last_error)
	SELECT 'failed', '{}', 'failed', 10, 'returned' FROM generate_series(1, 500)});
$node->psql('postgres', 'ANALYZE outbox', timeout => 900, on_error_die => 1);

# The rows that one look reads of the table and its indexes; the statistics of the
# session say so, whatever else the machine does.
sub rows_read
{
	my ($relation) = @_;

	return $node->sql(<<"SQL");
BEGIN;
SET LOCAL stats_fetch_consistency = none;
SELECT count(*) AS n FROM $relation \\gset
SELECT pg_stat_get_xact_tuples_returned('outbox'::regclass) + coalesce(sum(
	pg_stat_get_xact_tuples_returned(indexrelid)), 0) FROM pg_index WHERE indrelid = 'outbox'::regclass;
COMMIT;
SQL
}

# In one session, as an exporter has one: the plans are there from the second time on.
sub milliseconds
{
	my ($relation, $dbname) = @_;
	my ($rc, $out) = $node->psql($dbname // 'postgres', "\\timing on\n" . ("SELECT count(*) FROM $relation;\n" x 41));
	is($rc, 0, "$relation: can be read");
	my @ms = sort { $a <=> $b } (my @all = $out =~ /Time: ([\d.]+)/g)[ 1 .. 40 ];

	return ($all[0], $ms[20], $ms[-1]);
}

$node->sql('CREATE DATABASE empty');
$node->sql(q{CREATE EXTENSION outbox; INSERT INTO outbox_route (name) SELECT 'r' || i FROM generate_series(1, 9) i}, 'empty');
foreach my $view (qw(outbox_metrics outbox_status outbox_problems outbox_routes_status outbox_top()))
{
	my ($first, $median, $worst) = milliseconds($view);

	note sprintf '%s with %d messages: %.1f ms the first time, median %.1f ms, worst %.1f ms',
	  $view, $messages, $first, $median, $worst;
	my (undef, $empty) = milliseconds($view, 'empty');
	note sprintf '%s with none: median %.1f ms', $view, $empty;
	cmp_ok($median, '<', 10 + 5 * $empty, "$view: milliseconds, not much more than with no message") if $view ne 'outbox_top()';
	my $rows = rows_read($view);
	cmp_ok($rows, '<', 60_000, "$view: rows that it reads ($rows)");
}

my ($backlog, $estimated, $scheduled, $failed) =
  @{ ($node->rows('SELECT backlog, estimated, scheduled, failed FROM outbox_status'))[0] };
is($estimated, 't', 'the numbers are estimates');
cmp_ok(abs($backlog - $messages), '<', $messages * 0.02, "backlog $backlog of $messages");
is($failed, 500, 'what is few is counted');
cmp_ok($node->sql(q{SELECT max(abs(backlog - }
		  . $messages / 9
		  . q{)) FROM outbox_routes_status WHERE route <> 'default'}),
	'<', $messages * 0.02, 'by route');

# With a lock on the table everybody gets an answer, soon.
my $session = $node->session;
$session->query_safe('BEGIN; LOCK TABLE outbox IN ACCESS EXCLUSIVE MODE');
foreach my $view (qw(outbox_metrics outbox_status outbox_problems outbox_routes_status outbox_top()))
{
	my ($rc) = $node->psql('postgres', "SET statement_timeout = '5s'; SELECT count(*) FROM $view");
	is($rc, 0, "$view: answers while the table is locked");
}
$session->query_safe('ROLLBACK');
$session->quit;
done_testing();
