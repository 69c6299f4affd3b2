# Each setting of outbox alone at its extremes: what is enqueued comes, once, in order,
# and nobody pays for what a setting holds up.  The list is the server's: a setting of
# a kind that this file does not know fails.
#
# suite: test
# takes: 15 s

use strict;
use warnings;

use Test::More;
use PostgreSQL::Test::Utils;
use OutboxTest::FakeBroker;
use OutboxTest::Node;
use OutboxTest::Util;

# Strings, and what the server's limits do not say.
my %values = (
	'outbox.broker_uri' => [ '', 'amqp://', 'http://localhost/', 'amqp://guest@127.0.0.1:1/' ],
	'outbox.environment' => [ 'elsewhere', ' ' ],
	map { ("outbox.$_" => [ '/nonexistent', ' ' ]) } qw(passfile tls_ca_file tls_cert_file tls_key_file tls_key_passfile));
$values{'outbox.traceparent'} = [ '00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01', '00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00' ];
$values{'outbox.tracestate'} = [ 'a=b', '' ];

# The state in which nothing goes out; everywhere else all goes out.
my %silent = (
	'outbox.enabled=off' => 'disabled',
	(map { ("outbox.environment=$_" => 'config error') } 'elsewhere', ' '),
	'outbox.broker_uri=amqp://guest@127.0.0.1:1/' => 'broker down');

# Settings of a connection that none can be made with: the one that is there goes on (A22).
my %unusable = map { $_ => 1 } 'outbox.auth_mechanism=external',
  map { "outbox.passfile=$_" } '/nonexistent', ' ';

# What SET refuses; everything else it takes.
my %refused = map { ("outbox.broker_uri=$_" => 1) } '', 'amqp://', 'http://localhost/';

my $fake = OutboxTest::FakeBroker->start;
my $node = OutboxTest::Node->create(
	broker => $fake,
	conf => "outbox.retry_initial = 20ms\noutbox.retry_max = 50ms\nmax_worker_processes = 48\n");
my $counts = q{SELECT retried, gave_up, returned FROM outbox_routes_status WHERE route = 'default'};
$node->wait_sql('SELECT state FROM outbox_status', 'idle');

sub quoted
{
	my ($value) = @_;
	return q{'} . $value =~ s/'/''/gr . q{'};
}

sub reset_setting
{
	my ($name) = @_;

	$name eq 'outbox.environment' ? $node->adjust_conf('postgresql.conf', $name, undef) : $node->sql("ALTER SYSTEM RESET " . ($name =~ s/\.(.*)/."$1"/r));
	$node->reload;
	return;
}

sub scenario
{
	my ($name, $value) = @_;
	my $case = "$name=$value";
	my $silent = $silent{$case};
	my @before = split /\|/, $node->sql($counts);

	$fake->begin_case($case);
	$fake->do('forget', 'when type=again times=1 : nack');
	if ($name eq 'outbox.environment')
	{
		$node->append_conf('postgresql.conf', "$name = " . quoted($value));
	}
	else
	{
		my $error = $node->sql_fails("ALTER SYSTEM SET " . ($name =~ s/\.(.*)/."$1"/r) . " = " . quoted($value)) // '';
		like($error, $refused{$case} ? qr/invalid value for parameter "$name"/ : qr/^$/, "$case: is " . ($refused{$case} ? 'refused' : 'taken'));
		return if $error ne '';
	}
	$node->reload;
	$node->wait_sql(q{SELECT setting FROM pg_settings WHERE name = '} . $name . q{'}, $value);
	# The relay goes on over the connection that it has.
	$silent ? $node->wait_sql('SELECT state FROM outbox_status', $silent)
	  : $unusable{$case} ? $node->wait_sql(q{SELECT bool_and(reason IS NOT NULL AND state IN ('idle', 'publishing')) FROM outbox_workers WHERE pid IS NOT NULL}, 't')
	  : $node->wait_sql(q{SELECT bool_and(state IN ('idle', 'publishing')) FROM outbox_workers WHERE pid IS NOT NULL}, 't');
	$node->sql(q{SELECT outbox_enqueue(CASE WHEN i = 4 THEN 'again' ELSE 'e' END, to_jsonb(i), aggregate_id => (i % 3)::text)
		FROM generate_series(1, 12) i});
	$node->sql(q{SELECT outbox_enqueue('plain', to_jsonb(i)) FROM generate_series(13, 14) i});
	$node->sql(q{SELECT outbox_enqueue('due', '15', available_at => clock_timestamp() + interval '50 ms')});
	like($node->sql_fails(q{SELECT outbox_enqueue('e', to_jsonb(repeat('x', 2000)))}), qr/bytes/, "$case: larger ones are refused")
	  if $name eq 'outbox.max_message_size' && $value < 2000;
	if ($silent)
	{
		is($node->sql('SELECT count(*), sum(attempts) FROM outbox'), '15|0', "$case: waits");
		is(scalar(my @none = $fake->of_case), 0, "$case: nothing has come");
		reset_setting($name);
	}
	$node->wait_drained(30);
	my @came = map { $_->{body} } grep { $_->{fate} eq 'ack' } $fake->of_case;
	is(join(' ', sort { $a <=> $b } @came), join(' ', 1 .. 15), "$case: each came once");
	foreach my $key (0 .. 2)
	{
		my @of_key = grep { $_ <= 12 && $_ % 3 == $key } @came;
		is("@of_key", join(' ', sort { $a <=> $b } @of_key), "$case: key $key in order");
	}
	my $after = join '|', $before[0] + 1, @before[ 1, 2 ];
	ok($node->wait_sql($counts, $after), "$case: one attempt failed");
	reset_setting($name);
	$node->wait_sql(q{SELECT count(*), bool_and(state IN ('idle', 'publishing')) FROM outbox_workers WHERE pid IS NOT NULL}, '1|t');
	return;
}

my $settings = 0;
foreach my $setting ($node->rows(q{SELECT name, vartype, min_val, max_val, array_to_string(enumvals, ' '), context
		FROM pg_settings WHERE name LIKE 'outbox.%' AND name <> 'outbox.as_owner' ORDER BY name}))
{
	my ($name, $type, $min, $max, $enum, $context) = @$setting;
	my @values = $values{$name} ? @{ $values{$name} } : $type eq 'bool' ? qw(on off) : $type eq 'enum' ? split(/ /, $enum)
	  : $type =~ /^(integer|real)$/ ? ($min, $max) : ();

	$settings++;
	isnt(scalar @values, 0, "$name has values") or next;
	isnt($context, 'postmaster', "$name is changed by a reload") or next;
	scenario($name, $_) foreach @values;
}
cmp_ok($settings, '>', 20, 'settings');
$node->stop;
done_testing();
