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
use OutboxTest::Proxy;
use OutboxTest::Util;

my $MANY = 2000;

my $fake = OutboxTest::FakeBroker->start;
my $proxy = OutboxTest::Proxy->start($fake);
my $node = OutboxTest::Node->create(broker => $proxy, conf => <<'END');
outbox.retry_initial = 20ms
outbox.retry_max = 50ms
END

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
	$node->wait_sql(q{SELECT string_agg(event_type, ' ' ORDER BY seq) FROM outbox}, 'before after');
	is_deeply([ $fake->types ], [qw(other1 other2 other3)], 'they wait, and others do not');
	$node->sql(q{INSERT INTO outbox_route (name, exchange) VALUES ('gone', '')});
	$node->sql(q{SELECT outbox_enqueue('last', '{}', route => 'gone')});
	drained();
	is_deeply([ sort grep { !/other/ } $fake->types ], [ sort qw(before after last) ], 'and go when it is there again');
};

# --- exchanges

my $all = q{SELECT count(outbox_enqueue('shared', '{}', route => 'shared' || i)) FROM generate_series(1, 40) i};
my @declared;

# Names of the exchanges that were declared since the last call.
sub declared
{
	@declared = map { /^declare \d+ (\S*)/ ? $1 : () } $fake->events(qr/^declare /);
	$fake->forget_events;
	return @declared;
}

# Copies of each message of the type.
sub copies
{
	my ($type) = @_;
	my %n;

	$n{ $_->{id} }++ foreach grep { $_->{type} eq $type } $fake->of_case;
	return values %n;
}

subtest 'an exchange is declared once a connection' => sub {
	$node->sql(q{INSERT INTO outbox_route (name, exchange, exchange_type)
		SELECT 'shared' || i, 'shared', 'topic' FROM generate_series(1, 40) i});
	$fake->forget_events;
	$node->sql($all);
	drained();
	is_deeply([ declared() ], ['shared'], 'of 40 routes');
	foreach my $change (
		q{UPDATE outbox_route SET max_attempts = max_attempts + 1 WHERE name = 'shared1'},
		'ANALYZE outbox_route', 'SELECT pg_reload_conf()', q{SELECT outbox_pause('shared2')}, q{SELECT outbox_resume('shared2')})
	{
		$node->sql($change);
		$node->sql(q{SELECT outbox_enqueue('live', '{}')});
		$node->sql($all) unless $change =~ /pause/;
		drained() unless $change =~ /pause/;
		is_deeply([ declared() ], [], "not again: $change");
	}
	$node->sql(q{UPDATE outbox_route SET exchange_type = 'fanout' WHERE name = 'shared1'});
	$node->sql($all);
	drained();
	is_deeply([ declared() ], ['shared'], 'another type is another declaration');
	$proxy->mark_connections;
	$proxy->do('rst', 'forward');
	$node->sql($all);
	drained();
	is_deeply([ sort { $a cmp $b } grep { $_ eq 'shared' } declared() ], [ 'shared', 'shared' ], 'and again on another connection');
};

subtest 'messages of others go while an exchange is being declared' => sub {
	$node->sql(q{INSERT INTO outbox_route (name, exchange, exchange_type) VALUES ('slow', 'slow', 'topic')});
	$node->sql(q{SELECT outbox_enqueue('first', '{}')});
	drained();
	$fake->do('stage declare exchange=slow times=1 : slow 3000');
	$fake->begin_case;
	$node->sql(q{SELECT count(outbox_enqueue('slow', '{}', route => 'slow')) FROM generate_series(1, 5000)});
	$fake->wait_event(qr/^declare \d+ slow/);
	$node->sql(q{SELECT outbox_enqueue('other', '{}')});
	$fake->wait_type('other');
	is((grep { $_ eq 'slow' } $fake->types), 0, 'before the first that waits for its exchange');
	drained();
	is((grep { $_ == 1 } copies('slow')), 5000, 'and those go, once each');
	$fake->do('forget');
};

subtest 'a refusal concerns the routes that want the exchange' => sub {
	$node->sql(q{INSERT INTO outbox_route (name, exchange, exchange_type)
		VALUES ('good', 'good', 'topic'), ('bad', 'bad', 'topic'), ('strange', 'strange', 'x-strange')});
	foreach my $case ([ 'bad', 'channel-close 406 "PRECONDITION_FAILED - inequivalent arg"' ],
		[ 'strange', 'connection-close 503 "COMMAND_INVALID - unknown exchange type"' ])
	{
		my ($route, $close) = @$case;

		$proxy->mark_connections;
		$fake->do("stage declare exchange=$route : $close", 'answer delay 20');
		$fake->begin_case;
		$node->sql(qq{SELECT count(outbox_enqueue('innocent', '{}', route => r))
			FROM generate_series(1, 300) i, unnest(ARRAY['good', 'default', '$route']) r WHERE r <> '$route' OR i % 100 = 0});
		$node->wait_sql(qq{SELECT string_agg(DISTINCT route, ' ') FROM outbox}, $route);
		$node->wait_log(qr/cannot publish on route "$route"/);
		is($proxy->reconnects, 0, "$route: the connection lives") if $close =~ /channel/;
		$fake->do('forget');
		drained();
		is((grep { $_ == 1 } copies('innocent')), 603, "$route: each message was sent once");
		$fake->forget_events;
	}
};

subtest 'an exchange that is deleted is declared again' => sub {
	$node->sql(q{SELECT outbox_enqueue('here', '{}', route => 'good')});
	drained();
	$fake->forget_events;
	$fake->do(q{when exchange=good times=1 : channel-close 404 "NOT_FOUND - no exchange 'good'"});
	$node->sql(q{SELECT outbox_enqueue('gone', '{}', route => 'good')});
	drained();
	is_deeply([ grep { $_ eq 'good' } declared() ], ['good'], 'before the message goes again');
};

subtest 'an answer that does not come' => sub {
	$node->set('outbox.confirm_timeout', '1s');
	$node->sql(q{INSERT INTO outbox_route (name, exchange, exchange_type) VALUES ('silent', 'silent', 'topic')});
	$fake->do('stage declare exchange=silent times=1 : silent');
	$proxy->mark_connections;
	$node->sql(q{SELECT outbox_enqueue('silent', '{}', route => 'silent')});
	drained();
	is($proxy->reconnects, 1, 'is waited for as a confirm is');
	$node->wait_log(qr/an exchange was not declared within/);
};

done_testing();
