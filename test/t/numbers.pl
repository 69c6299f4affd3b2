# Every number of outbox_metrics, outbox_routes_status, outbox_workers and outbox_top()
# against what the broker has seen.  A metric without an expectation fails.
#
# suite: test
# takes: 12 s

use strict;
use warnings;

use List::Util qw(max min sum0);
use Test::More;
use Time::HiRes qw(time);
use PostgreSQL::Test::Utils;
use OutboxTest::FakeBroker;
use OutboxTest::Node;
use OutboxTest::Util;

my @TIMINGS = qw(commit publish);
my %exchange = (outbox => 'default');
my %max_attempts = (default => 1000, lost => 2, dead => 3, graves => 5, still => 5, gone => 5, ext => 1, crowd => 5);
my $REPLAYED = 7;

# The archive's partitions are counted.
clear_of_midnight(60);
my $created = time;
my $fake = OutboxTest::FakeBroker->start;
my $node = OutboxTest::Node->create(
	broker => $fake,
	conf => "outbox.workers = 1\noutbox.retry_initial = 20ms\noutbox.retry_max = 50ms\n"
	  . "outbox.retention = '1d'\ntrack_commit_timestamp = on\n");
$node->wait_sql('SELECT state FROM outbox_status', 'idle');
my $started = time;

sub metrics
{
	return map { ($_->[0] . ($_->[1] eq '{}' ? '' : $_->[1]) => $_->[2]) }
	  $node->rows(q{SELECT name, regexp_replace(labels::text, '": ', '":', 'g'), value FROM outbox_metrics});
}

# --- what the broker says: by route, and by connection

sub routes_seen
{
	my ($by) = @_;
	my (%seen, %attempts);

	foreach my $record ($fake->published)
	{
		my $route = $exchange{ $record->{exchange} } // $record->{exchange};
		my $seen = $seen{ $by eq 'route' ? $route : $record->{conn} } //= {};
		my $fate = { ack => 'published', return => 'returned', nack => 'nacked' }->{ $record->{fate} };

		next if !$fate;
		$seen->{$fate}++;
		next if $fate eq 'published';
		my $last = ++$attempts{"$route $record->{id}"} % $max_attempts{$route} == 0;
		$seen->{ !$last ? 'retried' : $route eq 'dead' ? 'dead_lettered' : 'failed' }++;
	}
	return %seen;
}

# --- histograms: each message's latency is between what the broker and the test have seen

my %counted = (n => 0, map { ("low_$_" => 0, "high_$_" => 0) } @TIMINGS);

sub timed_case
{
	my ($name, $n, $enqueue, $meanwhile, $due) = @_;
	my %before = metrics();

	$fake->begin_case($name);
	my $from = time;
	$enqueue->();
	my $committed = time;
	my $sent_from = $meanwhile && $meanwhile->($from) || $from;
	my $settled = $before{'outbox_published_total{"route":"default"}'} + $n;
	$node->wait_sql(q{SELECT value FROM outbox_metrics WHERE name = 'outbox_published_total' AND labels->>'route' = 'default'}, $settled);
	my $until = time;
	my @records = $fake->of_case;
	is(scalar @records, $n, "$name: so many have come");
	my %low = (
		commit => [ map { max(0, $_->{fate_us} / 1e6 - ($due // $committed)) } @records ],
		publish => [ map { $_->{fate_us} / 1e6 - $_->{us} / 1e6 } @records ]);
	my %high = (commit => $until - ($due // $from), publish => $until - $sent_from);
	my %after = metrics();

	foreach my $timing (@TIMINGS)
	{
		my $histogram = "outbox_${timing}_to_confirm_seconds";
		my $sum = $after{"${histogram}_sum"} - $before{"${histogram}_sum"};
		my @wrong;

		is($after{"${histogram}_count"} - $before{"${histogram}_count"}, $n, "$name: $timing to confirm: count");
		cmp_ok($sum, '>=', sum0(@{ $low{$timing} }) - 1e-3, "$name: $timing to confirm: sum");
		cmp_ok($sum, '<=', $n * $high{$timing} + 1e-3, "$name: $timing to confirm: sum");
		foreach my $bucket (grep { /^${histogram}_bucket/ } keys %after)
		{
			my $le = $bucket =~ /"le":"([\d.e+-]+)"/ && $1 ne '+Inf' ? $1 : 9**99;
			my $count = $after{$bucket} - $before{$bucket};
			my $least = $le >= $high{$timing} ? $n : 0;
			my $most = grep { $_ <= $le } @{ $low{$timing} };
			push @wrong, "$bucket: $count, not $least to $most" if $count < $least || $count > $most;
		}
		is(join("\n", @wrong), '', "$name: $timing to confirm: buckets")
		  or diag sprintf 'latencies from %.6f to %.6f', min(@{ $low{$timing} }), $high{$timing};
		$counted{"low_$timing"} += $sum;
	}
	return;
}

my $in_flight = q{SELECT (SELECT sum(in_flight) FROM outbox_workers), (SELECT sum(claimed) FROM outbox_workers),
	(SELECT in_flight FROM outbox_status), (SELECT value FROM outbox_metrics WHERE name = 'outbox_in_flight_messages')};

sub held
{
	my ($from) = @_;

	$fake->wait_case(23);
	is($node->sql($in_flight), '23|23|23|23', 'in flight');
	# So long that what is counted twice is above all that the rest has taken.
	my $arrived = time;
	wait_until('held long enough', sub { time > $arrived + 0.5 + 3 * ($arrived - $from) });
	$fake->release;
	return;
}

# What waits before it is sent: the other one's latency is short.
sub paused
{
	my ($from) = @_;
	my $paused_from = time;

	wait_until('paused long enough', sub { time > $paused_from + 1 });
	my $resumed = time;
	$node->sql(q{SELECT outbox_resume('default')});
	return $resumed;
}

$fake->do('answer hold');
timed_case('held back', 23, sub { $node->sql(q{SELECT outbox_enqueue('e', '{}', aggregate_id => i::text) FROM generate_series(1, 23) i}) }, \&held);
ok($node->wait_sql('SELECT rate * 10 FROM outbox_status', 23, 9), 'the rate of 10 seconds');
is($node->sql('SELECT sum(s) FROM unnest(outbox_internal.outbox_published_seconds()) s'), 23, 'what was published in each');
timed_case('at once', 30, sub { $node->sql(q{SELECT outbox_enqueue('e', '{}') FROM generate_series(1, 30)}) });
$node->sql(q{SELECT outbox_pause('default')});
timed_case('paused', 3, sub { $node->sql(q{SELECT outbox_enqueue('e', '{}') FROM generate_series(1, 3)}) }, \&paused);
my $due = time + 1.5;
timed_case('scheduled', 2, sub { $node->sql(qq{SELECT outbox_enqueue('e', '{}', available_at => to_timestamp($due)) FROM generate_series(1, 2)}) }, undef, $due);
is($node->sql($in_flight), '0|0|0|0', 'in flight: none');

# --- everything that can become of a message, with two workers

$node->set('outbox.workers', 2);
$node->wait_workers('postgres', 2);
wait_until('two more connections', sub { $fake->stats->{connections} == 3 });
$fake->do('when type=once times=3 : nack', 'when exchange=lost : return 312 NO_ROUTE', 'when exchange=dead : nack');
$node->sql(q{INSERT INTO outbox_route (name, exchange, max_attempts, failed_route) VALUES
	('graves', 'graves', 5, NULL), ('lost', 'lost', 2, NULL), ('dead', 'dead', 3, 'graves'),
	('still', 'still', 5, NULL), ('ext', 'ext', 1, NULL), ('gone', 'gone', 5, NULL)});
$node->sql(q{UPDATE outbox_route SET relay = 'external' WHERE name = 'ext'});
$node->sql(q{UPDATE outbox_route SET max_attempts = 1000 WHERE name = 'default'});
$node->sql(q{SELECT outbox_pause('still')});
$node->sql(q{SELECT outbox_enqueue('e', '{}', aggregate_id => (i % 20)::text) FROM generate_series(1, 100) i});
$node->sql(q{SELECT outbox_enqueue('once', '{}') FROM generate_series(1, 5) i});
$node->sql(q{SELECT outbox_enqueue('e', '{}', route => 'lost') FROM generate_series(1, 6)});
$node->sql(q{SELECT outbox_enqueue('e', '{}', route => 'dead') FROM generate_series(1, 3)});
$node->wait_drained;
$node->sql(qq{SELECT outbox_replay(to_timestamp($started), route => 'default', max_messages => $REPLAYED)});
$node->wait_sql(q{SELECT state FROM outbox_job}, 'done');
$node->wait_drained;
is($node->sql(q{SELECT outbox_requeue_failed(route => 'lost', max_messages => 4)}), 4, 'requeued');
$node->wait_sql(q{SELECT failed FROM outbox_status}, 6);
$fake->do('forget');
is($node->sql(q{SELECT outbox_requeue_failed(route => 'lost', max_messages => 2)}), 2, 'requeued once more');
$node->wait_drained;

$fake->do('now fin');
wait_until('connected again', sub { $fake->stats->{connections} == 4 });
$node->sql(q{SELECT outbox_enqueue('e', '{}', aggregate_id => (i % 20)::text) FROM generate_series(1, 40) i});
$node->wait_drained;

# Each try to settle them fails three times.
$node->sql(q{CREATE SEQUENCE tries;
	CREATE FUNCTION thrice() RETURNS trigger LANGUAGE plpgsql AS $$
	BEGIN
		IF nextval('public.tries') <= 3 THEN RAISE EXCEPTION 'not now'; END IF;
		RETURN OLD;
	END $$;
	CREATE TRIGGER thrice BEFORE DELETE ON outbox FOR EACH ROW EXECUTE FUNCTION thrice();
	ALTER TABLE outbox ENABLE ALWAYS TRIGGER thrice});
$node->sql(q{SELECT outbox_enqueue('e', '{}')});
$node->wait_drained;
$node->sql('DROP TRIGGER thrice ON outbox');
$node->wait_sql(q{SELECT count(*) FROM outbox_workers WHERE state = 'idle'}, 2);

# External relays do not count; their messages are there.
my $pending_from = time;
$node->sql(q{SELECT outbox_enqueue('e', '{}', route => 'ext') FROM generate_series(1, 6)});
my $token = $node->sql(q{SELECT DISTINCT token FROM outbox_claim('ext', 6, '1 hour')});
$node->sql(qq{SELECT outbox_ack($token, ARRAY(SELECT id FROM outbox WHERE route = 'ext' ORDER BY seq LIMIT 2))});
$node->sql(qq{SELECT outbox_nack($token, id, 'no') FROM outbox WHERE route = 'ext' ORDER BY seq LIMIT 1});
is($node->sql('SELECT messages FROM outbox_leases'), 3, 'leased');

# Numbers of messages that stay.
$node->sql(q{SELECT outbox_enqueue('later', '{}', available_at => '2100-01-01') FROM generate_series(1, 2)});
$node->sql(q{INSERT INTO outbox (event_type, payload, route, attempts, last_error) SELECT 'e', '{}', 'still', i, 'nacked' FROM generate_series(0, 2) i});
$fake->do('stage declare exchange=gone : channel-close 404 NOT_FOUND');
$node->sql(q{SELECT outbox_enqueue('e', '{}', route => 'gone')});
my $pending_until = time;
$node->wait_sql(q{SELECT reason FROM outbox_routes_status WHERE route = 'gone'}, 'exchange missing');
$node->sql(q{SELECT outbox_enqueue('e', '{}') FROM generate_series(1, 200)});
$node->wait_sql('SELECT rate >= 20 FROM outbox_status', 't', 9);
is($node->sql('SELECT time_to_drain = make_interval(secs => ceil(backlog / rate)) FROM outbox_status'), 't', 'time_to_drain');
$node->wait_sql(q{SELECT sum(in_flight) FROM outbox_workers}, 0);

# --- by route

my %stay = (default => { scheduled => 2 }, lost => { failed => 4 }, ext => { backlog => 3, failed => 1 }, still => { backlog => 3, retrying => 2 },
	gone => { backlog => 1 });
my %seen = routes_seen('route');
my @kinds = qw(published returned nacked retried failed dead_lettered);
is($seen{default}{published}, 23 + 30 + 3 + 2 + 100 + 5 + $REPLAYED + 40 + 1 + 200, 'all have come');
foreach my $route (qw(default dead ext gone graves lost still))
{
	my ($seen, $stay) = ($seen{$route} // {}, $stay{$route} // {});

	is($node->sql(qq{SELECT published, returned, nacked, retried, gave_up, dead_lettered, backlog, scheduled, retrying, failed
			FROM outbox_routes_status WHERE route = '$route'}),
		join('|', (map { $seen->{$_} // 0 } @kinds), (map { $stay->{$_} // 0 } qw(backlog scheduled retrying failed))),
		"outbox_routes_status: $route");
}
is($node->sql(q{SELECT backlog, scheduled, retrying, failed, in_flight, workers FROM outbox_status}), '7|2|2|5|0|2', 'outbox_status');

# --- by worker: the first connection was worker 0's, the last one belongs to the worker that has reconnected

my %conns = routes_seen('conn');
my @conns = sort { $a <=> $b } keys %conns;
my @reconnects = map { $_->[0] } $node->rows('SELECT reconnects FROM outbox_workers ORDER BY worker');
is(scalar @conns, 4, 'connections that have published');
is(join('|', sort @reconnects), '0|1', 'one has reconnected');
foreach my $worker (0, 1)
{
	my @its = map { $conns{ $conns[$_] } // {} } ($worker == 0 ? 0 : ()), $reconnects[$worker] ? (2, 3) : 1;

	is($node->sql("SELECT published, returned, nacked, retried, failed FROM outbox_workers WHERE worker = $worker"),
		join('|', map { my $kind = $_; sum0 map { $_->{$kind} // 0 } @its } @kinds[ 0 .. 4 ]), "outbox_workers: worker $worker");
}

# --- outbox_metrics, all of them

my %expected = (
	outbox_up => 1,
	outbox_workers => 2,
	outbox_workers_wanted => 2,
	outbox_launcher_up => 1,
	outbox_in_flight_messages => 0,
	outbox_counts_estimated => 0,
	outbox_paused => 0,
	outbox_start_time_seconds => [ $created, $started ],
	outbox_reconnects_total => 1,
	outbox_database_errors_total => 3,
	outbox_tls_certificate_expiry_timestamp_seconds => 0,
	outbox_archive_fault => 0,
	outbox_twin => 0,
	outbox_archive_partitions_ahead => 2,
	# It publishes in the moment in which it tries route "gone" again.
	(map { ("outbox_state{\"state\":\"$_\"}" => [ 0, 1 ]) } 'publishing', 'idle'),
	(map { ("outbox_state{\"state\":\"$_\"}" => 0) } 'starting', 'connecting', 'broker down',
		'blocked', 'paused', 'not adopted', 'disabled', 'config error', 'database error', 'waiting for standby', 'version mismatch',
		'stopping', 'stopped', 'standby', 'not preloaded'));
foreach my $worker (0, 1)
{
	@expected{ map { "outbox_$_\{\"worker\":\"$worker\"}" } qw(worker_up broker_connected broker_blocked) } = (1, 1, 0);
}
foreach my $route (qw(default dead ext gone graves lost still))
{
	my ($seen, $stay) = ($seen{$route} // {}, $stay{$route} // {});
	my $label = "{\"route\":\"$route\"}";

	$expected{"outbox_${_}_total$label"} = $seen->{$_} // 0 foreach @kinds;
	$expected{"outbox_${_}_messages$label"} = $stay->{$_} // 0 foreach qw(backlog scheduled retrying failed);
	$expected{"outbox_route_paused$label"} = $route eq 'still' ? 1 : 0;
	$expected{"outbox_route_waiting$label"} = $route eq 'gone' ? 1 : 0;
	$expected{"outbox_oldest_pending_seconds$label"} =
	  $stay->{backlog} ? [ time - $pending_until, undef ] : 0;
}
my $acked = sum0 map { $_->{published} // 0 } values %seen;
foreach my $timing (@TIMINGS)
{
	my $histogram = "outbox_${timing}_to_confirm_seconds";

	$expected{"${histogram}_count"} = $expected{"${histogram}_bucket{\"le\":\"+Inf\"}"} = $acked;
	# Each case was looked at before.
	$expected{"${histogram}_bucket{\"le\":\"$_\"}"} = [ 0, $acked ]
	  foreach qw(0.00025 0.0005 0.001 0.002 0.005 0.01 0.02 0.05 0.1 0.2 0.5 1 2 5 10 30 60 300 1800 7200);
	$expected{"${histogram}_sum"} = [ $counted{"low_$timing"}, $counted{"low_$timing"} + $acked * (time - $started) ];
}
my %problems = map { ($_->[0] => $_->[1]) }
  $node->rows(q{SELECT jsonb_build_object('severity', severity, 'problem', problem)::text, count(*) FROM outbox_problems GROUP BY 1});
my %severities = (critical => 0, warning => 0, info => 0);
foreach my $labels (keys %problems)
{
	$expected{ 'outbox_problem' . $labels =~ s/": /":/gr } = $problems{$labels};
	$severities{ ($labels =~ /"severity": "(\w+)"/)[0] } += $problems{$labels};
}
$expected{"outbox_problems{\"severity\":\"$_\"}"} = $severities{$_} foreach keys %severities;
is(join(', ', sort map { /"problem": "([^"]+)"/ } keys %problems), 'exchange missing, failed messages, route paused', 'outbox_problems');
my %metrics = metrics();
my %left = %expected;
foreach my $series (sort keys %metrics)
{
	my $want = delete $left{$series};
	my $value = $metrics{$series};

	if (!defined $want) { fail("$series has no expectation"); }
	elsif (!ref $want) { is($value, $want, $series); }
	else
	{
		my ($low, $high) = ($want->[0], $want->[1] // time - $pending_from);
		ok($value >= $low - 1e-3 && $value <= $high + 1e-3, $series) or diag "$value is not between $low and $high";
	}
}
is(join(' ', sort keys %left), '', 'no series is missing');

# --- outbox_top()

my $top = $node->sql('SELECT string_agg(t, chr(10)) FROM outbox_top() t');
foreach my $route (qw(default dead ext gone graves lost still))
{
	my ($seen, $stay) = ($seen{$route} // {}, $stay{$route} // {});
	my ($line) = $top =~ /^ *($route +\d.*)$/m;
	my @shown = split ' ', $line // '';

	is(join('|', @shown[ 1, -4 .. -1 ]), join('|', $stay->{backlog} // 0, (map { $seen->{$_} // 0 } @kinds[ 0 .. 2 ]), $stay->{failed} // 0),
		"outbox_top: $route") or diag $top;
}
like($top, qr/^ *backlog +7 .*scheduled 2   retrying 2   failed 5$/m, 'outbox_top: backlog');
like($top, qr/^ *failed +4 +returned.*\n *failed +1 +no$/m, 'outbox_top: errors');
my $latency = $node->sql(q{SELECT format('p50 %s   p99 %s   commit to confirm;   p50 %s   p99 %s   publish to confirm',
	outbox_internal.outbox_show_span(outbox_quantile(0.5, bounds, commit_to_confirm)), outbox_internal.outbox_show_span(outbox_quantile(0.99, bounds, commit_to_confirm)),
	outbox_internal.outbox_show_span(outbox_quantile(0.5, bounds, publish_to_confirm)), outbox_internal.outbox_show_span(outbox_quantile(0.99, bounds, publish_to_confirm)))
	FROM outbox_database_stats()});
like($top, qr/\Q$latency\E/, 'outbox_top: latency');
$node->stop;
done_testing();
