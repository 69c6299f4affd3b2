# The history checker itself: a checker that accepts everything proves nothing.
# Histories are made up here; neither a broker nor the extension takes part.
#
# suite: test

use strict;
use warnings;

use Test::More;
use PostgreSQL::Test::Utils;
use OutboxTest::Checker;
use OutboxTest::Node;

my $node = OutboxTest::Node->create(preload => 0, extension => 0);
$node->sql('CREATE TABLE outbox (id text, status text)');
my $checker = OutboxTest::Checker->install($node);

# messages 1 .. 6: keys a b a b a, and one without
sub id { return sprintf '00000000-0000-0000-0000-%012d', $_[0] }
$node->sql(
	"INSERT INTO test_sent VALUES "
	  . join ', ',
	map { "($_->[0], '" . id($_->[0]) . "', $_->[1])" } [ 1, "'a'" ],
	[ 2, "'b'" ], [ 3, "'a'" ], [ 4, "'b'" ], [ 5, "'a'" ], [ 6, 'NULL' ]);

# "4" is a delivery of message 4, "4r" one with the flag redelivered
sub history
{
	return [
		map { { id => id(/(\d+)/), redelivered => /r/ ? 1 : 0 } }
		  split / /,
		$_[0]
	];
}

my @rules = qw(nothing lost left ghosts disorder excess repeated too_many_failed);

# Which rules does this history break?
sub broken
{
	my ($history, %params) = @_;
	my $v = $checker->verdict(history($history), %params);
	return join ' ', grep { @{ $v->{$_} } } @rules;
}

my %cut = (interruptions => 1, window => 2);

is(broken('1 2 3 4 5 6'), '', 'a perfect history');
is(broken('6 2 1 4 3 5'), '', 'across keys there is no order');
is(broken('1 2 3 5 6'), 'lost', 'a lost message');
is(broken('1 2 3 4 5 6 7'), 'ghosts', 'one that was never committed');
is(broken('3 1 2 4 5 6'), 'disorder', 'a later message first');
is(broken('3 1 2 4 5 6', skip_order => 1), '', 'where order does not matter');
is(broken('1 1 2 3 4 5 6'), 'excess repeated', 'a duplicate out of the blue');
is(broken('1 1 2 3 4 5 6', %cut), '', 'and after an interruption');
is(broken('1 2 3 1 4 5 6', %cut), 'disorder', 'an older one comes again');
is(broken('1 2 3 1 4 5 6', %cut, late_copies => 1), '', 'where its broker had lost the majority');
is(broken('3 1 2 4 5 6', %cut, late_copies => 1), 'disorder', 'but none of which it is the first copy');
is(broken('1 1 3 3 2 4 5 6', %cut), 'repeated', 'two of one key');
is(broken('1 1 2 2 3 4 5 6 6', %cut), 'excess', 'more than the window');
is(broken('1 2 3 4 5 6 6 6', interruptions => 1, window => 9), 'repeated', 'and two without a key');
is(broken('1 2 1 2 3 4 3 5 6', interruptions => 3, window => 2, rounds => [ 2, 6 ]),
	'', 'each round within the window');
is(broken('1 2 6 1 2 6 3 4 5', interruptions => 3, window => 2, rounds => [ 3, 6 ]),
	'excess', 'or one beyond it, which the sum does not show');
is(broken('1 2 1r 2r 3 4 5 6'), '', 'what the broker repeats is not ours');
is(broken('1r 2 3 4 5 6'), '', 'also when its first copy never arrived');

$node->sql("INSERT INTO outbox VALUES ('" . id(4) . "', 'pending')");
is(broken('1 2 3 5 6'), 'left', 'a message still pending');
is(broken('1 2 3 5 6', drained => 0), '', 'where that is all right');
$node->sql("UPDATE outbox SET status = 'failed'");
is(broken('1 2 3 5 6'), 'too_many_failed', 'a failed message');
is(broken('1 2 3 5 6', failed => 1), '', 'where one is expected');

my $v = $checker->check('as a subtest', history('1 2 2 3 5 6 6r'),
	failed => 1, %cut);
is("$v->{committed} $v->{received} $v->{deliveries} $v->{duplicates} "
	  . "$v->{redelivered}", '6 5 7 1 1', 'counts');

$node->sql('TRUNCATE test_sent, outbox');
is(broken(''), 'nothing', 'no history at all');

# The same aggregate is a key of each route.
$node->sql(<<'SQL');
CREATE FUNCTION outbox_enqueue(event_type text, payload jsonb, aggregate_id text, aggregate_type text, route text)
RETURNS uuid LANGUAGE sql AS $$
	SELECT ('00000000-0000-0000-0000-' || lpad(payload ->> 'n', 12, '0'))::uuid
$$;
SQL
$node->sql("SELECT test_enqueue(1, 1, 'same', route => '$_')") foreach qw(default other default);
is(broken('2 1 3'), '', 'another route has an order of its own');
is(broken('3 2 1'), 'disorder', 'each has one');

done_testing();
