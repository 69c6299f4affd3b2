# Many routes, routes that are deleted, and exchanges: what a message and a change of
# one route cost does not depend on how many routes there are or were.
#
# takes: 12 s
# suite: test

use strict;
use warnings;

use Test::More;
use PostgreSQL::Test::Utils;
use OutboxTest::FakeBroker;
use OutboxTest::Node;
use OutboxTest::Util;

my $MANY = 2000;

my $fake = OutboxTest::FakeBroker->start;
my $node = OutboxTest::Node->create(broker => $fake);

# Bytes that the worker uses for its routes.
sub used
{
	my $end = $node->log_end;

	$node->sql('SELECT pg_log_backend_memory_contexts(' . $node->worker . ')');
	$node->wait_log(qr/outbox relay routes: .* used/, $end);
	my ($used) = $node->log_text($end) =~ /outbox relay routes: .* (\d+) used/;
	return $used;
}

sub drained
{
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	return $node->wait_drained;
}

subtest 'a route that is deleted is forgotten' => sub {
	my $one = q{INSERT INTO outbox_route (name, exchange, failed_route)
		SELECT 'many' || i, '', 'default' FROM generate_series(1, %d) i};

	$node->sql(sprintf $one, 1);
	$node->sql(q{SELECT outbox_enqueue('e', '{}', route => 'many1')});
	drained();
	$node->sql(q{DELETE FROM outbox_route WHERE name ~ 'many'});
	$node->sql(q{SELECT outbox_enqueue('e', '{}')});
	drained();
	my $before = used();
	$node->sql(sprintf $one, $MANY);
	$node->sql(qq{SELECT count(outbox_enqueue('e', '{}', route => 'many' || i))
		FROM generate_series(1, $MANY) i});
	drained();
	cmp_ok(used(), '>', $before + 100 * $MANY, 'a route takes memory');
	# A transaction may lock so many routes.
	$node->sql(qq{DELETE FROM outbox_route WHERE name IN
		(SELECT 'many' || i FROM generate_series($_, $_ + 499) i)})
	  foreach map { 1 + 500 * $_ } 0 .. $MANY / 500 - 1;
	wait_until('and gives it back', sub { used() < $before + 1000 });
};

# As logical replication does it.
sub past_triggers { return "SET session_replication_role = replica; $_[0]; RESET session_replication_role" }

subtest 'messages of a route whose row is gone wait for it' => sub {
	$node->sql(q{INSERT INTO outbox_route (name, exchange) VALUES ('gone', '')});
	$node->sql(q{SELECT outbox_pause('gone')});
	$node->sql(q{SELECT outbox_enqueue('before', '{}', route => 'gone')});
	$node->sql(past_triggers(q{DELETE FROM outbox_route WHERE name = 'gone'}));
	$node->sql(past_triggers(q{INSERT INTO outbox (event_type, payload, route) VALUES ('after', '{}', 'gone')}));
	$fake->begin_case;
	foreach (1 .. 3)
	{
		$node->sql(qq{SELECT outbox_enqueue('other$_', '{}')});
		$fake->wait_type("other$_");
	}
	is($node->sql(q{SELECT string_agg(event_type, ' ' ORDER BY seq) FROM outbox}), 'before after', 'they wait, and others do not');
	$node->sql(q{INSERT INTO outbox_route (name, exchange) VALUES ('gone', '')});
	$node->sql(q{SELECT outbox_enqueue('last', '{}', route => 'gone')});
	drained();
	is_deeply([ sort grep { !/other/ } $fake->types ], [ sort qw(before after last) ], 'and go when it is there again');
};

done_testing();
