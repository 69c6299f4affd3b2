# A queue, an exchange or a broker that does not answer, or answers a message by closing
# the channel: other messages wait for a try of it, and no longer.
#
# takes: 60 s
# suite: test

use strict;
use warnings;

use Test::More;
use Time::HiRes qw(time);
use PostgreSQL::Test::Utils;
use OutboxTest::FakeBroker;
use OutboxTest::Node;
use OutboxTest::Util;

my $fake = OutboxTest::FakeBroker->start;
my $node = OutboxTest::Node->create(broker => $fake, conf => <<'END');
outbox.retry_initial = 1s
outbox.retry_max = 1s
outbox.confirm_timeout = 5s
END
$node->sql(q{INSERT INTO outbox_route (name, exchange, exchange_type)
	VALUES ('good', 'good', NULL), ('stuck', 'stuck', NULL), ('mute', 'mute', 'topic'), ('strange', 'strange', 'x-strange')});
$node->wait_sql('SELECT state FROM outbox_status', 'idle');

# Messages of another route for so long; returns for how long one of them has waited.
sub others
{
	my ($seconds) = @_;
	my $from = $node->sql('SELECT clock_timestamp()');
	my $end = time + $seconds;

	while (time < $end)
	{
		$node->sql(q{SELECT outbox_enqueue('other', '{}'), pg_sleep(0.2)});
	}
	$node->wait_sql(q{SELECT count(*) FROM outbox WHERE route = 'default'}, 0);
	return $node->sql(qq{SELECT max(extract(epoch FROM published_at - created_at)) FROM outbox_archive WHERE created_at > '$from'});
}

sub named
{
	my ($route, $problem) = @_;

	local $Test::Builder::Level = $Test::Builder::Level + 1;
	is($node->sql(q{SELECT problem, subject FROM outbox_problems WHERE subject ~ 'route'}), qq{$problem|route "$route"}, 'the problem names the route');
	is($node->sql('SELECT max(attempts) FROM outbox'), 0, 'no attempt is counted');
	return;
}

# RabbitMQ's channel stands still at a message for a quorum queue without a leader.
subtest 'a message that is never confirmed' => sub {
	$fake->do('when exchange=stuck : mute', 'answer delay 100');
	my $mark = $node->log_end;
	$node->sql(q{SELECT outbox_enqueue('before', '{}', route => 'default'), outbox_enqueue('before', '{}', route => 'good'),
		outbox_enqueue('stuck', '{}', route => 'stuck'), outbox_enqueue('behind', '{}', route => 'good')});
	$node->wait_sql(q{SELECT string_agg(DISTINCT route, ' ') FROM outbox}, 'stuck', 15);
	unlike($node->log_text($mark), qr/cannot publish on route "(?!stuck)/, 'stops its route, and none of what was sent before it');
	cmp_ok(others(8), '<', 4.5, 'others wait for a try, and not for outbox.confirm_timeout');
	named('stuck', 'no confirms');
	$fake->do('forget');
	$node->wait_drained;
};

subtest 'so many are confirmed behind one that its place is needed' => sub {
	$node->set('outbox.confirm_timeout', '30s');
	$fake->do('when exchange=stuck : silent');
	$node->sql(q{SELECT outbox_enqueue('stuck', '{}', route => 'stuck')});
	$node->sql(q{SELECT count(outbox_enqueue('many', '{}')) FROM generate_series(1, 21000)});
	my $start = time;
	$node->wait_sql(q{SELECT string_agg(DISTINCT route, ' ') FROM outbox}, 'stuck');
	cmp_ok(time - $start, '<', 20, 'they do not wait for outbox.confirm_timeout');
	note sprintf '%.2f s', time - $start;
	$fake->do('forget');
	$node->wait_drained;
};

subtest 'a broker that confirms nothing' => sub {
	$node->set('outbox.confirm_timeout', '1s');
	$fake->do('answer none');
	$fake->mark_connections;
	$node->sql(q{SELECT outbox_enqueue('late', '{}', route => r) FROM unnest(ARRAY['default', 'good', 'stuck']) r});
	$fake->wait_reconnects(8, 30);
	$fake->do('answer ack');
	my $start = time;
	$node->wait_drained;
	cmp_ok(time - $start, '<', 6, 'stops no route for long');
	note sprintf '%.2f s', time - $start;
	is($node->sql(q{SELECT max(attempts) FROM outbox_archive WHERE event_type = 'late'}), 0, 'no attempt is counted');
	$node->set('outbox.confirm_timeout', '5s');
};

subtest 'a declaration that is not answered' => sub {
	$fake->do('stage declare exchange=mute : silent');
	$node->sql(q{SELECT outbox_enqueue('e', '{}', route => 'mute')});
	cmp_ok(others(10), '<', 4.5, 'others wait for a try, and not for outbox.confirm_timeout');
	named('mute', 'exchange error');
	$fake->do('forget');
	$node->wait_drained;
};

subtest 'an exchange type that the broker does not know' => sub {
	$fake->do('stage declare exchange=strange : connection-close 503 "COMMAND_INVALID - unknown exchange type"');
	$node->sql(q{SELECT outbox_enqueue('e', '{}', route => 'strange')});
	cmp_ok(others(5), '<', 0.8, 'others do not wait for its backoff');
	named('strange', 'exchange type unknown');
	$fake->do('forget');
	$node->wait_drained;
};

subtest 'an exchange whose plugin is gone' => sub {
	$fake->do('when exchange=good : channel-close 406 "PRECONDITION_FAILED - Cannot route message through exchange \'good\' in vhost \'/\': exchange type x-random not found"');
	$node->sql(q{SELECT outbox_enqueue('e', '{}', route => 'good')});
	$node->wait_sql(q{SELECT waits_because IS NOT NULL FROM outbox_routes_status WHERE route = 'good'}, 't');
	named('good', 'exchange differs');
	$fake->do('forget');
	$node->wait_drained;
};

done_testing();
