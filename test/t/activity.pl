# What the tools that administrators have say of the relay: pg_stat_activity and
# pg_stat_statements.
#
# suite: test
# takes: 12 s

use strict;
use warnings;

use Test::More;
use OutboxTest::FakeBroker;
use OutboxTest::Node;
use OutboxTest::Util;

my $fake = OutboxTest::FakeBroker->start;
my $at = '127.0.0.1:' . $fake->port;
my $node = OutboxTest::Node->create(
	broker => $fake,
	conf => <<'END');
shared_preload_libraries = 'pg_stat_statements, outbox'
pg_stat_statements.track = all
pg_stat_statements.track_planning = off
outbox.workers = 2
outbox.retry_initial = 50ms
outbox.retry_max = 100ms
END

# --- pg_stat_activity

my $version = $node->sql('SELECT outbox_version()');

sub shows
{
	my ($what, $state, $text) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	my $expected = join ', ', map { "outbox relay $_ ($version) $state outbox relay $_: $text" } 0, 1;
	return ok($node->wait_sql(
			q{SELECT string_agg(concat_ws(' ', application_name, state, query), ', ' ORDER BY application_name)
			FROM pg_stat_activity WHERE backend_type = 'outbox relay'},
			$expected), $what);
}

shows('workers that have nothing to do', 'idle', "publishing to $at");
is($node->sql(
		q{SELECT application_name, state, query FROM pg_stat_activity WHERE backend_type = 'outbox launcher'}),
	"outbox launcher ($version)|idle|outbox launcher: starting relay workers", 'the launcher');

$node->hold_relay;
is($node->sql(
		q{SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'outbox relay' AND state = 'active' AND query ~ 'publishing to'}) > 0,
	1, 'one that works is active');
$node->test_point_over;

$node->sql('SELECT outbox_pause()');
shows('paused', 'idle', 'paused');
$node->sql('SELECT outbox_resume()');
shows('resumed', 'idle', "publishing to $at");
$fake->do('now blocked low on memory');
ok($node->wait_sql(
		qq{SELECT count(*) FROM pg_stat_activity WHERE query ~ '^outbox relay [01]: blocked, $at\$' AND state = 'idle'}, '1'),
	'blocked');
$fake->do('now unblocked');

# While work is done no worker is ever idle in a transaction.
$node->sql(q{SELECT outbox_enqueue('e', '{}', aggregate_id => (i % 5)::text) FROM generate_series(1, 3000) i});
my %seen;
wait_until('all are sent', sub {
	$seen{$_->[0]}++ foreach $node->rows(q{SELECT state FROM pg_stat_activity WHERE backend_type = 'outbox relay'});
	return $node->sql('SELECT count(*) FROM outbox') == 0;
});
like(join(' ', sort keys %seen), qr/^(?:active|idle|active idle)$/, 'nothing but active and idle');

# Who switches it off gets a relay all the same.
$node->set('track_activities', 'off');
$node->sql(q{SELECT outbox_enqueue('e', '{}') FROM generate_series(1, 10)});
$node->wait_drained;
ok($node->wait_sql(
		q{SELECT string_agg(DISTINCT state, ' ') FROM pg_stat_activity WHERE backend_type = 'outbox relay'},
		'disabled'), 'track_activities = off');
$node->unset('track_activities');

# --- pg_stat_statements: each statement of ours is there once, however many messages

$node->sql('CREATE EXTENSION pg_stat_statements');
$node->sql(q{INSERT INTO outbox_route (name, exchange, failed_route, max_attempts) VALUES
	('dead', 'dead', NULL, 1), ('bad', 'bad', 'dead', 2), ('worse', 'worse', NULL, 1)});
$fake->do('when exchange=bad : nack', 'when exchange=worse : return 312 NO_ROUTE');

# All that a message can meet, so many times.
sub traffic
{
	my ($n, $name) = @_;
	my $client = $node->client;

	foreach my $i (1 .. $n)
	{
		$client->query("SELECT outbox_enqueue('$name', jsonb_build_object('i', $i), aggregate_type => 't', aggregate_id => 'k" . $i % 3 . "')");
		$client->query("INSERT INTO outbox (event_type, body) VALUES ('$name', 'x$i')");
		$client->query("SELECT outbox_enqueue('$name', '{}', route => 'bad')") if $i % 4 == 0;
		$client->query("SELECT outbox_enqueue('$name', '{}', available_at => clock_timestamp() + interval '50 ms')") if $i % 4 == 1;
		$client->query("SELECT outbox_enqueue('$name', '{}', aggregate_id => 'f', route => 'worse')") if $i % 20 == 0;
	}
	$node->wait_sql("SELECT count(*) FROM outbox WHERE status = 'pending'", '0');
	$client->query('SELECT outbox_requeue_failed()');
	$node->wait_sql("SELECT count(*) FROM outbox WHERE status = 'pending'", '0');
	$client->query("SELECT outbox_discard(id) FROM outbox");
	return;
}

my $ours = q{FROM pg_stat_statements WHERE query ~ 'outbox' AND query !~ 'pg_stat_'};
# CREATE EXTENSION has left what is in its script. The first time, each statement that there is.
$node->sql('SELECT pg_stat_statements_reset()');
traffic(60, 'first');
my %before = map { $_->[0] => 1 } $node->rows("SELECT DISTINCT regexp_replace(query, '[|[:space:]]+', ' ', 'g') $ours");
my $entries = $node->sql("SELECT count(*) $ours");
traffic(400, 'second');
my @new = grep { !$before{$_} } map { $_->[0] } $node->rows("SELECT DISTINCT regexp_replace(query, '[|[:space:]]+', ' ', 'g') $ours");
# A statement for what happens now and then may come; none for a message.
cmp_ok(scalar @new, '<=', 3, 'pg_stat_statements: no entry more for 800 messages more');
note join "\n", @new;
cmp_ok($entries, '<', 80, 'pg_stat_statements: few entries in all');
note "$entries entries of statements that name outbox";
is($node->sql("SELECT count(*) $ours AND query ~ '(first|second|k[012]|x[0-9]+)'''"), '0',
	'pg_stat_statements: nothing of a message is in any of them');
is($node->sql("SELECT count(*) > 0 $ours AND query ~ 'SKIP LOCKED' AND calls > 10"), 't',
	'pg_stat_statements: the statements of the relay are there');

# By default (track = top) what the daily partitions need is one entry.
is($node->sql("SELECT count(*) $ours AND toplevel AND query ~ 'outbox_archive_p[0-9]'"), '0',
	'pg_stat_statements: no partition is in a statement of the top level');

done_testing();
