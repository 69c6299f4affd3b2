# What monitoring/ names exists in outbox_metrics: in the rules, in the dashboard, and the
# labels in the configuration of the exporters.  The exporters and Prometheus
# themselves: make test-monitoring.
#
# suite: test
# takes: 4 s

use strict;
use warnings;

use IPC::Run ();
use JSON::PP ();
use Test::More;
use PostgreSQL::Test::Utils;
use OutboxTest::FakeBroker;
use OutboxTest::Node;

# What sql_exporter's configuration adds itself, and what has a series for each problem
# that there is, so none where all is well.
my %ADDED = map { $_ => 1 } qw(outbox_scrape_timestamp_seconds outbox_problem);

my $fake = OutboxTest::FakeBroker->start;
my $node = OutboxTest::Node->create(broker => $fake);
$node->wait_sql('SELECT state FROM outbox_status', 'idle');

# Before anything was published: all series are there.
my %names = map { $_->[0] => 1 } $node->rows('SELECT DISTINCT name FROM outbox_metrics');
my %states = map { $_->[0] => 1 }
  $node->rows(q{SELECT DISTINCT labels->>'state' FROM outbox_metrics WHERE name = 'outbox_state'});
my @labels = map { $_->[0] } $node->rows(
	q{SELECT DISTINCT k FROM outbox_metrics, jsonb_object_keys(labels) k ORDER BY 1});
cmp_ok(scalar keys %names, '>', 30, 'names of metrics');
is($node->sql('SELECT count(*) FROM outbox_metrics WHERE value IS NULL'), 0, 'each series has a value');

sub exist
{
	my ($what, $text) = @_;
	my @named = $text =~ /\b(outbox_\w+)/g;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	is(join(' ', grep { !$names{$_} && !$ADDED{$_} } @named), '', "$what names metrics that exist");
	cmp_ok(scalar @named, '>', 0, "$what: one or more of them");
	return;
}

# --- rules

my $rules = slurp_file('monitoring/prometheus/outbox.rules.yml');
my @exprs = $rules =~ /^        expr: (?:>-\n((?:^          .*\n)+)|(.*)\n)/mg;
my @alerts = $rules =~ /^      - alert: (\S+)/mg;
@exprs = grep { defined } @exprs;
cmp_ok(scalar @alerts, '>', 10, 'alerts');
is(scalar @exprs, scalar @alerts, 'each alert has an expression');
foreach my $i (0 .. $#exprs)
{
	my $expr = $exprs[$i] =~ s/query="\w+"//gr;
	exist($alerts[$i], $expr);
	my @unknown = grep { !$states{$_} } map { split /\|/ } $expr =~ /state=~?"([^"]+)"/g;
	is(join(', ', @unknown), '', "$alerts[$i]: ... and states") if $expr =~ /state=/;
}
my $page = slurp_file('doc/monitoring.md');
foreach my $alert (@alerts)
{
	like($page, qr/^\| .*`$alert`/m, "doc/monitoring.md has $alert");
}
is($page =~ /rules\.yml[`)] \| (\d+) alerts/ ? $1 : '', scalar @alerts, '... and how many there are');

# --- the dashboard

my $dashboard = JSON::PP::decode_json(slurp_file('monitoring/grafana/outbox.json'));
cmp_ok(scalar @{ $dashboard->{panels} }, '>', 10, 'panels');
foreach my $panel (@{ $dashboard->{panels} })
{
	exist("panel $panel->{title}", $_->{expr}) foreach @{ $panel->{targets} };
	cmp_ok(scalar @{ $panel->{targets} }, '>', 0, "panel $panel->{title} shows something");
}
exist('a variable', join ' ', map { $_->{query}{query} } grep { ref $_->{query} } @{ $dashboard->{templating}{list} });

# --- the exporters know each label

cmp_ok(scalar @labels, '>', 2, 'labels: ' . join ' ', @labels);

foreach my $file ('monitoring/postgres_exporter/queries.yaml', 'monitoring/sql_exporter/sql_exporter.yml')
{
	my $text = slurp_file($file);
	unlike($text, qr/^ *(?:FROM|JOIN) (?!public\.)/m, "$file: each relation has its schema");
	foreach my $label (@labels)
	{
		like($text, qr/labels->>'$label'(?:, '')?\)? AS $label\b/, "$file: label $label");
	}
}

# --- the exporters can log in, as printed, by Debian's pg_hba.conf
#
# Debian runs postgres_exporter as the user prometheus, and the page makes sql_exporter run so.
# The server's map makes that user of this one.

my ($createuser) = $page =~ /^sudo -u postgres createuser (.*)$/m;
my ($dsn) = $page =~ /^DATA_SOURCE_NAME='(.*)'$/m;
my ($url) = slurp_file('monitoring/sql_exporter/sql_exporter.yml') =~ m{^ +- '(postgres://\S+)'$}m;
my ($here, $port) = ($node->host, $node->port);

$node->sql('CREATE DATABASE shop');
$node->sql('CREATE EXTENSION outbox', 'shop');
run_log([ $node->installed_command('createuser'), '-h', $here, '-p', $port, split ' ', $createuser ]);
my $hba = $node->data_dir . '/pg_hba.conf';
my $others = slurp_file($hba);
unlink $hba;
append_to_file($hba, "local shop all peer map=debian\nhost shop all all scram-sha-256\n$others");
append_to_file($node->data_dir . '/pg_ident.conf', 'debian "' . getpwuid($<) . "\" prometheus\n");
$node->reload;
foreach my $printed ($dsn, $url)
{
	my ($out, $err) = ('', '');
	my $to = $printed =~ s{host=/run/postgresql}{host=$here}r;

	$to .= $to =~ /^postgres:/ ? "&port=$port" : " port=$port";
	IPC::Run::run([ $node->installed_command('psql'), '-XAt', '-d', $to, '-c', 'SELECT count(*) FROM outbox_metrics' ],
		'>', \$out, '2>', \$err);
	cmp_ok($out || 0, '>', 30, "log in by $printed") or diag $err;
}

# --- and read an extension in a schema of its own, with the lines that are for that

$node->sql('CREATE DATABASE own');
$node->sql('CREATE SCHEMA messages; CREATE EXTENSION outbox SCHEMA messages', 'own');
my %installed = $page =~ m{^sudo install .*?(monitoring/\S+) (/etc/\S+)$}mg;
my ($grant) = $page =~ /-c '(GRANT USAGE ON SCHEMA messages .*?)'/;
my %edits = reverse $page =~ m{^sudo sed -i '(.*?)' (/etc/\S+)}mg;
$node->sql($grant, 'own');
foreach my $file (grep { /exporter/ } sort keys %installed)
{
	my ($edited) = run_command([ 'sed', $edits{ $installed{$file} } // '', $file ]);
	my ($query) = $edited =~ /(SELECT\b.*?WHERE value IS NOT NULL)/s;
	cmp_ok(scalar(() = $node->sql("SET SESSION AUTHORIZATION prometheus; $query", 'own')), '>', 0, "$file reads it");
}

$node->stop;
done_testing();
