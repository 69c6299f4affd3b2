# examples/managed: a service on which outbox cannot be installed writes to a table
# of its own, and a subscriber that has outbox publishes: what was committed, once,
# in the order of the key, also when the subscriber dies in the middle.  And rows that
# outbox_capture() publishes as they are applied.
#
# suite: test

use strict;
use warnings;

use Test::More;
use PostgreSQL::Test::Utils;
use OutboxTest::FakeBroker;
use OutboxTest::Node;
use OutboxTest::Util;

my $TRANSACTIONS = 40;
my $ROWS = 25;

my $fake = OutboxTest::FakeBroker->start;
my $service = OutboxTest::Node->create(
	name => 'service',
	preload => 0,
	extension => 0,
	allows_streaming => 'logical');
my $relay = OutboxTest::Node->create(
	name => 'relay',
	broker => $fake,
	extension => 0,
	conf => "outbox.window = 50\nwal_retrieve_retry_interval = 200ms");

$service->sql(slurp_file('examples/managed/service.sql'));
$relay->sql(slurp_file('examples/managed/relay.sql'));

my $applied = 'CREATE TABLE applied (id int PRIMARY KEY, k text NOT NULL)';
$service->sql("$applied; ALTER PUBLICATION outgoing ADD TABLE applied");
$relay->sql("$applied;
	CREATE TRIGGER events AFTER INSERT ON applied FOR EACH ROW
		EXECUTE FUNCTION outbox_capture('event_type=applied', 'aggregate_type=case', 'key=k');
	CREATE FUNCTION hold() RETURNS trigger LANGUAGE plpgsql AS
		'BEGIN PERFORM pg_advisory_xact_lock(1); RETURN NULL; END';
	CREATE TRIGGER hold AFTER INSERT ON applied FOR EACH ROW EXECUTE FUNCTION hold();
	ALTER TABLE applied ENABLE ALWAYS TRIGGER events;
	ALTER TABLE applied ENABLE ALWAYS TRIGGER hold");
$relay->sql('CREATE SUBSCRIPTION outgoing CONNECTION $$'
	  . $service->connstr('postgres')
	  . '$$ PUBLICATION outgoing');
$relay->wait_sql("SELECT count(*) FROM pg_subscription_rel WHERE srsubstate = 'r'", 2);

# Each key has the numbers 1, 2, ... in the order of the commits.
sub order
{
	my ($n, $end) = @_;
	return "BEGIN;
		INSERT INTO outgoing (event_type, payload, aggregate_type, aggregate_id, headers)
		SELECT 'order.placed', jsonb_build_object('n', $n, 'key', k), 'order', k, '{\"from\": \"service\"}'
		FROM generate_series(1, $ROWS) k;
		$end;";
}

$fake->do('answer delay 2');
foreach my $n (1 .. $TRANSACTIONS)
{
	$service->sql(order($n, 'COMMIT'));
	$service->sql(order(1000 + $n, 'ROLLBACK')) if $n % 4 == 0;
	next unless $n == $TRANSACTIONS / 2;
	$relay->crash;
	$relay->start;
}

my %arrived;
my $all = sub {
	%arrived = map { $_->{id} => $_ } $fake->records;
	keys %arrived >= $TRANSACTIONS * $ROWS;
};
ok(wait_until('everything has arrived', $all), 'everything that was committed arrives');
$relay->wait_drained;

my @records = $fake->records;
my %last;
my ($inversions, $unknown) = (0, 0);
my %known = map { $_->[0] => 1 } $service->rows('SELECT id FROM outgoing');
is(scalar keys %known, $TRANSACTIONS * $ROWS, 'the service knows them');
foreach my $record (@records)
{
	my ($n) = $record->{body} =~ /"n": (\d+)/;
	my $key = $record->{aggregate_id};

	$unknown++ unless $known{ $record->{id} };
	$inversions++ if $n < ($last{$key} // 0);
	$last{$key} = $n;
}
is(scalar(grep { !$arrived{$_} } keys %known), 0, 'with the ids that the service has given');
is($unknown, 0, 'and nothing else');
is($inversions, 0, 'in the order of the key');
cmp_ok(@records - keys %arrived, '<=', 50, 'duplicates after the crash only');
is($relay->sql('SELECT count(*) FROM outgoing'), 0, 'the rows are not kept a second time');

# Idle again, a message must not wait for a poll or a sweep.
$relay->set('outbox.poll_interval', '60s');
$relay->wait_sql('SELECT state FROM outbox_status', 'idle');
$service->sql(order(5000, 'COMMIT'));
ok( wait_until('the last ones', sub { (grep { $_->{body} =~ /"n": 5000/ } $fake->records) == $ROWS }, 30),
	'what is applied wakes the relay');

# The relay passes the number of a row whose transaction stays open, and comes back to it.
sub enqueue
{
	my ($type, $key) = @_;
	$relay->sql("SELECT outbox_enqueue('$type', '{}', 'case', '$key')");
	return;
}

sub has_arrived
{
	my ($type) = @_;
	return ok(wait_until("$type has arrived", sub { grep { $_->{type} eq $type } $fake->records }),
		"$type arrives");
}

my $holder = $relay->session;
$holder->query_safe('SELECT pg_advisory_lock(1)');
$service->sql("INSERT INTO applied VALUES (1, 'k')");
$relay->wait_sql("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted", 1);
enqueue('other key', 'x');
has_arrived('other key');
$holder->quit;
$relay->wait_sql('SELECT count(*) FROM applied', 1);
enqueue('same key', 'k');
has_arrived('same key');
has_arrived('applied');
is_deeply(
	[ map { $_->{type} } grep { $_->{type} =~ /^(?:applied|same key)$/ } $fake->records ],
	[ 'applied', 'same key' ],
	'in the order of its key, though another message came between');

$relay->sql('DROP SUBSCRIPTION outgoing');
done_testing();
