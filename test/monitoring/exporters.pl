# Both exporters and a Prometheus on a live server: what they carry is what
# outbox_metrics says, and outages make the alerts fire and end.  What the
# dashboard would have shown of it is recorded for test/monitoring/draw.

use strict;
use warnings;

use JSON::PP ();
use Test::More;
use Time::HiRes qw(time);
use PostgreSQL::Test::Utils;
use OutboxTest::Checker;
use OutboxTest::Consumer;
use OutboxTest::Node;
use OutboxTest::Prometheus;
use OutboxTest::Rabbit;
use OutboxTest::Util;

my $missing = OutboxTest::Prometheus::missing();
plan skip_all => "not installed: $missing (make test-monitoring installs them)" if $missing;

# A minute of the rules takes two seconds.
my $SPEED = 30;

my $rabbit = OutboxTest::Rabbit->start(name => 'broker');
my $node = OutboxTest::Node->create(broker => $rabbit, conf => <<'END');
outbox.workers = 2
outbox.retry_initial = 200ms
outbox.retry_max = 1s
END
my $checker = OutboxTest::Checker->install($node);
$node->sql(q{INSERT INTO outbox_route (name, exchange, exchange_type, max_attempts) VALUES
	('orders', 'shop', 'topic', 10), ('lost', 'nowhere', 'fanout', 3)});
my @consumers = (
	OutboxTest::Consumer->start($rabbit, exchange => 'outbox'),
	OutboxTest::Consumer->start($rabbit, queue => 'orders', exchange => 'shop', exchange_type => 'topic', key => '#'));
$checker->enqueue(200, keys => 20);
$checker->enqueue(200, keys => 20, route => 'orders');
$node->wait_drained;

my $prometheus = OutboxTest::Prometheus->start($node, speed => $SPEED);
my @jobs = (outbox => 'postgres', 'outbox-sql' => 'sql');
my %exporter = @jobs;

# --- what is carried is what the view says

# Rows of the view by the names of their series.
sub metrics
{
	return { map { OutboxTest::Prometheus::series($_->[0], JSON::PP::decode_json($_->[1])) => $_->[2] }
		  $node->rows(q{SELECT name, labels, value FROM outbox_metrics WHERE value IS NOT NULL}) };
}

# Values that move on are between what was read before and after.
sub same_values
{
	my ($name, $before, $carried, $after) = @_;
	my @wrong = keys %$before > 30 ? () : 'few series';

	foreach my $series (sort keys %$before)
	{
		my ($value, @limits) = ($carried->{$series}, sort { $a <=> $b } $before->{$series}, $after->{$series});

		# the client shows fifteen digits
		my $rounding = abs($limits[1]) * 1e-14;
		push @wrong, "$series: " . ($value // 'missing') . ", and not $limits[0] to $limits[1]"
		  unless defined $value && $value >= $limits[0] - $rounding && $value <= $limits[1] + $rounding;
	}
	push @wrong, "$_: not in outbox_metrics"
	  foreach grep { !exists $before->{$_} && $_ ne 'outbox_scrape_timestamp_seconds' } sort keys %$carried;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	is(join("\n", @wrong), '', $name);
	return;
}

# sql_exporter reads once a second, postgres_exporter when it is asked.
sub fresh
{
	my ($what, $since) = @_;
	my $carried;

	return $prometheus->exported($what) if $what eq 'postgres';
	wait_until("sql_exporter has read after $since",
		sub { $carried = $prometheus->exported($what); ($carried->{outbox_scrape_timestamp_seconds} // 0) > $since });
	return $carried;
}

sub compare_all
{
	my ($when) = @_;

	foreach my $what (qw(postgres sql))
	{
		my $since = time;
		my $before = metrics();
		my $carried = fresh($what, $since);
		same_values("$when: ${what}_exporter carries outbox_metrics", $before, $carried, metrics());
	}

	# Prometheus has them under their own names.
	foreach my $job (sort keys %exporter)
	{
		my $since = time;
		my $before = metrics();
		fresh($exporter{$job}, $since);
		my $read = time;
		wait_until("$job: Prometheus has read after $read",
			sub { ($prometheus->value("timestamp(outbox_up{job=\"$job\"})") // 0) > $read });
		my %carried = map { OutboxTest::Prometheus::series($_->{labels}{__name__}, $_->{labels}) => $_->{value} }
		  $prometheus->query("{__name__=~\"outbox_.+\",job=\"$job\"}");
		same_values("$when: Prometheus has outbox_metrics from $exporter{$job}_exporter", $before, \%carried, metrics());
	}
	return;
}

$node->sql('SELECT outbox_pause(); SELECT outbox_enqueue($$later$$, $${}$$, available_at => now() + interval $$1 day$$)');
$checker->enqueue(30, keys => 5, route => 'orders');
$node->wait_sql(q{SELECT state FROM outbox_status}, 'paused');
compare_all('paused, with a backlog');
$node->sql('SELECT outbox_resume()');
$node->wait_sql(q{SELECT count(*) FROM outbox WHERE available_at IS NULL}, 0);
compare_all('idle');

is(join(' ', map { $_->{labels}{job} } sort { $a->{labels}{job} cmp $b->{labels}{job} } $prometheus->query('up == 1')),
	'outbox outbox-sql', 'Prometheus reads both');
unlike($prometheus->log('postgres'), qr/level=(?:warn|error)|err=/, 'postgres_exporter has nothing to complain about');
foreach my $job (sort keys %exporter)
{
	is($prometheus->value("count(outbox_up{job=\"$job\",database=\"postgres\"})"), 1, "$job: the label database");
}
note sprintf 'outbox_metrics has %d rows, and takes %s ms', scalar keys %{ metrics() },
  $node->sql(q{DO $$DECLARE t timestamptz := clock_timestamp(); BEGIN
		FOR i IN 1..20 LOOP PERFORM * FROM outbox_metrics; END LOOP;
		PERFORM set_config('test.ms', round(extract(epoch FROM clock_timestamp() - t) * 50, 1)::text, false); END$$;
	SELECT current_setting('test.ms')});

# --- the roles of the printed recipe are the system users that the packages' services run as

sub service_user
{
	my ($what) = @_;
	my ($unit) = grep { -e } map { "$_/systemd/system/prometheus-$what-exporter.service" } '/lib', '/usr/lib';
	return slurp_file($unit) =~ /^User=(\w+)$/m ? $1 : 'root';
}

my $page = slurp_file('doc/monitoring.md');
my @roles = $page =~ /^sudo -u postgres createuser --role=pg_monitor (\w+)$/mg;
my ($drop_in) = $page =~ /^\[Service\]\nUser=(\w+)$/m;
is(service_user('postgres'), $roles[0], 'postgres_exporter runs as the user that the recipe makes a role for');
is($drop_in, $roles[1], 'sql_exporter runs as that user by the drop-in of the recipe');
note 'without it as ' . service_user('sql');

# --- names of the dashboard and of the rules

my %names = map { $_->[0] => 1 } $node->rows('SELECT DISTINCT name FROM outbox_metrics');
my $dashboard = JSON::PP::decode_json(slurp_file('monitoring/grafana/outbox.json'));
foreach my $panel (@{ $dashboard->{panels} })
{
	foreach my $target (@{ $panel->{targets} })
	{
		my $expr = expression($target->{expr});
		ok(eval { $prometheus->query($expr); 1 }, "dashboard, $panel->{title}: $target->{legendFormat}")
		  or diag $@;
		my @named = $expr =~ /\b(outbox_\w+)/g;
		ok(@named && !(grep { !$names{$_} } @named), '... it names metrics that exist') or diag "@named";
	}
}

sub expression
{
	my ($expr) = @_;
	$expr =~ s/"\$database"/".*"/g;
	$expr =~ s/"\$instance"/"127.0.0.1:$prometheus->{port}{postgres}"/g;
	$expr =~ s/\[\$__rate_interval\]/[4s]/g;
	return $expr;
}

# --- outages, and the alerts

my $started = time;
my @loads = (
	$checker->load(1_000_000, per_tx => 20, pause_ms => 40, keys => 50),
	$checker->load(1_000_000, per_tx => 5, pause_ms => 60, keys => 50, prefix => 'o', route => 'orders'));

sub quiet
{
	my ($when) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	wait_until("$when: no alert", sub { !$prometheus->firing }, 90)
	  or die 'firing: ' . join ' ', $prometheus->firing;
	return;
}

sub fires
{
	my ($when, @names) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;

	foreach my $job (sort keys %exporter)
	{
		wait_until("$when: $_ by $job", sub {
				my $name = $_;
				grep { $_ eq $name } $prometheus->firing(job => $job);
			}, 60) and pass("$when: $_ fires by the metrics of $exporter{$job}_exporter")
		  foreach @names;
	}
	note "$when, in all: " . join ' ', $prometheus->firing;
	return;
}

# Some normal work first, for the increases that the rules look at, and for the picture.
wait_until('Prometheus sees messages go out',
	sub { ($prometheus->value('sum(increase(outbox_published_total{job="outbox"}[8s]))') // 0) > 500 && time > $started + 15 });
quiet('at work');
is(join(' ', $prometheus->firing), '', 'at work: no alert');

$rabbit->stop;
fires('broker stopped', qw(OutboxBrokerDown OutboxNothingPublished OutboxMessagesLate OutboxProblem));
$rabbit->restart;
quiet('broker back');

$rabbit->memory_alarm(1);
fires('alarm', qw(OutboxBrokerBlocked));
$rabbit->memory_alarm(0);
quiet('alarm over');

$checker->enqueue(20, route => 'lost');
fires('no queue', qw(OutboxMessagesReturned OutboxMessagesFailed));
is($prometheus->value('max(outbox_failed_messages{route="lost"})'), 20, 'no queue: how many were given up');
$node->sql('SELECT outbox_discard(id) FROM outbox_failed');
quiet('discarded');

# --- nobody sees anything: neither stays unnoticed

$prometheus->stop_one('postgres');
wait_until('postgres_exporter gone: OutboxMetricsMissing',
	sub { grep { $_ eq 'OutboxMetricsMissing' } $prometheus->firing(job => 'outbox') }, 60)
  and pass('postgres_exporter gone: OutboxMetricsMissing fires');
$prometheus->start_one('postgres');
quiet('postgres_exporter back');

$node->sql('REVOKE SELECT ON outbox_metrics FROM pg_monitor');
wait_until('rights taken away', sub {
		my %now = map { $_ => 1 } $prometheus->firing;
		$now{OutboxMetricsMissing} && $now{OutboxMetricsStale};
	}, 60) and pass('rights taken away: OutboxMetricsMissing by the one, OutboxMetricsStale by the other');
$node->sql('GRANT SELECT ON outbox_metrics TO pg_monitor');
quiet('rights given back');

$_->stop foreach @loads;
my $ended = time;

# --- what was seen

foreach my $line ($prometheus->timeline($started, $ended))
{
	my ($name, $labels, $from, $to) = @$line;
	note sprintf '%5.0f s to %5s  %-24s %s', $from - $started, defined $to ? sprintf('%.0f s', $to - $started) : '...',
	  $name, join ' ', map { "$_=$labels->{$_}" } grep { defined $labels->{$_} } qw(job route state);
}

if (my ($out) = ($ENV{OUTBOX_TEST_SUMMARY} // '') =~ m{^(.*)/})
{
	my $step = int(($ended - $started) / 240) || 1;
	my %values;
	foreach my $target (map { @{ $_->{targets} } } @{ $dashboard->{panels} })
	{
		$values{ $target->{expr} } =
		  [ $prometheus->query_range(expression($target->{expr}), $started, $ended, $step) ];
	}
	mkdir "$out/monitoring";
	unlink "$out/monitoring/dashboard.json";
	append_to_file("$out/monitoring/dashboard.json", JSON::PP->new->canonical->encode({
		from => $started, to => $ended, step => $step, values => \%values,
		alerts => [ map { [ $_->[0], $_->[2], $_->[3] ] } $prometheus->timeline($started, $ended, 'outbox') ] }));
}

foreach my $consumer (@consumers) { $consumer->stop }
done_testing();
