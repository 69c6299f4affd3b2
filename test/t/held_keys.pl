# More keys are held than a worker remembers (OUTBOX_HELD_KEYS_MAX): its memory stays
# bounded, nothing overtakes a key that it has forgotten, and what is freed goes on.
# The simulator tries the rule with one to three keys; here is the bound itself.
#
# suite: test
# takes: 40 s

use strict;
use warnings;

use Test::More;
use PostgreSQL::Test::Utils;
use OutboxTest::FakeBroker;
use OutboxTest::Node;
use OutboxTest::Util;

my $KEYS = 300_000;    # more than the bound; 69 MB if there were none

my $fake = OutboxTest::FakeBroker->start;
my $node = OutboxTest::Node->create(broker => $fake, conf => "outbox.poll_interval = 1h\n");

sub memory_kb
{
	my ($kb) = slurp_file('/proc/' . $node->worker . '/status') =~ /^RssAnon:\s+(\d+) kB/m;
	return $kb;
}

# One message of each of these keys.
sub enqueue
{
	my ($type, $keys) = @_;
	return $node->sql("SELECT count(outbox_enqueue('$type', '{}', route => 'r', aggregate_type => 't', aggregate_id => key::text))
		FROM $keys key");
}

# A message of another key comes through, so what came before it was looked at.
my $markers = 0;
sub pass_by
{
	my $marker = 'marker ' . ++$markers;
	$node->sql("SELECT outbox_enqueue('$marker', '{}')");
	return $fake->wait_type($marker);
}

# What has come of the route, by key.
sub came
{
	my %came;
	push @{ $came{ $_->{aggregate_id} } }, $_->{type} foreach grep { $_->{type} !~ /marker/ } $fake->records;
	return { map { $_ => join ' ', @{ $came{$_} } } keys %came };
}

$node->sql(q{INSERT INTO outbox_route (name, exchange, on_failed) VALUES ('r', 'outbox', 'block')});
$node->sql(q{SELECT outbox_pause()});
enqueue('first', "generate_series(1, $KEYS)");
$node->sql(q{UPDATE outbox SET status = 'failed', attempts = 1, last_error = 'as if'});
enqueue('second', "generate_series(1, $KEYS)");
$node->sql(q{SELECT outbox_worker_restart()});
$node->wait_sql(q{SELECT state FROM outbox_status}, 'paused');
my $before = memory_kb();
$node->sql(q{SELECT outbox_resume()});
pass_by();
# the pass over all of them, and another one
$node->wait_sql(q{SELECT state FROM outbox_status}, 'idle');
pass_by();
is_deeply(came(), {}, 'all of them are held');

# spread over all, so that most of them are forgotten
my $step = $KEYS / 10;
my @some = map { 1 + $_ * $step } 0 .. 9;
enqueue('third', "generate_series(1, $KEYS, $step)");
pass_by();
is_deeply(came(), {}, 'a message of a forgotten key does not overtake');

$node->sql("SELECT outbox_discard(id) FROM outbox WHERE event_type = 'first' AND aggregate_id::int % $step = 1");
wait_until('what is freed goes on', sub { 20 == map { split / / } values %{ came() } });
is_deeply(came(), { map { $_ => 'second third' } @some }, 'and in order');
# each of them was read by now, which no marker waits for
my $grown;
my $bounded = wait_until('the memory of held keys is bounded', sub {
	$grown = memory_kb() - $before;
	return $grown < 56 * 1024;
});
ok($bounded, "the memory of held keys is bounded: $KEYS keys, $grown kB more");
enqueue('fourth', "generate_series(1, $KEYS, $step)");
wait_until('and so does what comes then', sub { 30 == map { split / / } values %{ came() } });
is_deeply(came(), { map { $_ => 'second third fourth' } @some }, 'in order, too');

# A new worker knows of no key at first.
$node->sql('SELECT outbox_worker_restart()');
enqueue('third', 'generate_series(2, 11)');
pass_by();
$node->sql(q{SELECT outbox_discard(id) FROM outbox WHERE event_type = 'first' AND aggregate_id IN ('2', '299999')});
wait_until('after a restart', sub { 33 == map { split / / } values %{ came() } });
is_deeply(came(), { (map { $_ => 'second third fourth' } @some), 2 => 'second third', 299_999 => 'second' },
	'they are held and go on as before');

# Very many behind keys that are held, and as many whose time has come: a claim locks what it
# claims, so that xmax tells of each row that was claimed. The marker is the last of what is left.
my $many = q{BEGIN; SELECT count(outbox_enqueue('many', '{}', route => 'r', aggregate_type => 't', aggregate_id => 'KEY', available_at => TIME))
	FROM generate_series(1, 20000); SELECT outbox_enqueue('marker KEY', '{}', available_at => TIME); COMMIT};
foreach ([ 50, 'NULL' ], [ 60, q{now() + '3 s'} ])
{
	my ($key, $time) = @$_;
	$node->sql($many =~ s/KEY/$key/gr =~ s/TIME/$time/gr);
	$fake->wait_type("marker $key");
	my $claimed = $node->sql(qq{SELECT count(*) FROM outbox WHERE event_type = 'many' AND aggregate_id = '$key' AND xmax <> 0});
	cmp_ok($claimed, '<', 5_000, 'of many behind a held key few are claimed in vain, however many keys are held');
	note "$claimed of 20,000";
}

done_testing();
