# The rules for Prometheus, by promtool and without any server: they are correct, each
# alert comes when it should and no other with it, and the unit tests notice when one
# is missing. The links of the runbook lead somewhere.

use strict;
use warnings;

use IPC::Run ();
use Test::More;
use PostgreSQL::Test::Utils;
use OutboxTest::Prometheus;

my $missing = OutboxTest::Prometheus::missing();
plan skip_all => "not installed: $missing (make test-monitoring installs them)" if $missing;

my $rules = 'monitoring/prometheus/outbox.rules.yml';
my $tests = 'test/monitoring/outbox.rules.test.yml';

sub promtool
{
	my $out = '';
	my $ok = IPC::Run::run([ 'promtool', @_ ], '<', \undef, '>&', \$out);
	return wantarray ? ($ok, $out) : $ok;
}

sub passes
{
	my ($name, @arguments) = @_;
	my ($ok, $out) = promtool(@arguments);
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	ok($ok, $name) or diag $out;
	return;
}

passes('the rules are valid', 'check', 'rules', $rules);
passes('so is the example of a configuration',
	'check', 'config', '--syntax-only', 'monitoring/prometheus/prometheus.yml');
passes('the unit tests of the rules', 'test', 'rules', $tests);

# --- without a rule they fail

my $text = slurp_file($rules);
my ($head, @rules) = split /(?=^      - alert:)/m, $text;
my $dir = PostgreSQL::Test::Utils::tempdir;
my $unit = slurp_file($tests) =~ s{^rule_files:\n.*}{rule_files:\n  - $dir/rules.yml}mr;
cmp_ok(scalar @rules, '>', 15, 'alerts');
append_to_file("$dir/tests.yml", $unit);

foreach my $i (0 .. $#rules)
{
	my ($name) = $rules[$i] =~ /alert: (\S+)/;
	my @left = @rules[ grep { $_ != $i } 0 .. $#rules ];
	unlink "$dir/rules.yml";
	append_to_file("$dir/rules.yml", join '', $head, @left);
	ok(!promtool('test', 'rules', "$dir/tests.yml"), "the unit tests miss $name");
}

# --- each has a severity that is one of two, and a place to read on

foreach my $rule (@rules)
{
	my ($name) = $rule =~ /alert: (\S+)/;
	like($rule, qr/labels: \{severity: (?:critical|warning)\}/, "$name has a severity");
	my ($page, $anchor) = $rule =~ m{runbook_url: (doc/\w+\.md)#(\S+)};
	my %anchors = map { lc($_) =~ s/[^\w\- ]//gr =~ tr/ /-/r => 1 } slurp_file($page) =~ /^#+ +(.*)$/mg;
	ok($anchors{$anchor}, "$name: $page#$anchor is there");
}

done_testing();
