# What a worker has claimed is not changed by operators: neither between its claim and the
# commit of that, where those wait that are about one message or a route, nor afterwards.  The same with external relays is in
# test/isolation/specs/operators-lease.spec.
#
# suite: test
# takes: 4 s

use strict;
use warnings;

use IPC::Run ();
use Test::More;
use PostgreSQL::Test::Utils;
use OutboxTest::FakeBroker;
use OutboxTest::Node;
use OutboxTest::Util;

my $fake = OutboxTest::FakeBroker->start;
my $node = OutboxTest::Node->create(broker => $fake);

# The statement begins when the worker has claimed the message, and waits until the claim has
# committed, or does not.  Returns what it says, its error as well.
sub beside_claim
{
	my ($statement, %params) = @_;
	my $said = '';

	$fake->begin_case;
	$fake->do('answer hold');
	$node->sql('SELECT outbox_pause()');
	$node->sql(q{SELECT outbox_enqueue('e', '1', 't', 'k')});
	$node->wait_turn;
	$node->test_point('after_claim wait 1');
	$node->sql('SELECT outbox_resume()');
	$node->wait_test_point('after_claim');
	my $run = IPC::Run::start(
		[ $node->installed_command('psql'), '-XAtq', '-d', $node->connstr('postgres'), '-c', $statement ],
		'<', \undef, '>&', \$said);
	if ($params{waits})
	{
		$node->wait_sql(q{SELECT count(*) FROM pg_stat_activity
			WHERE wait_event_type IN ('Lock', 'Extension') AND backend_type = 'client backend'}, '1');
	}
	else
	{
		$run->finish;
	}
	$node->test_point_over;
	$run->finish if $params{waits};
	$fake->wait_case(1);
	is($node->sql(q{SELECT outbox_discard_messages('none', 'pending')}), '0', 'of many, what is in flight is left');
	$fake->do('answer ack', 'now ack multiple');
	$node->wait_drained;
	is($node->sql('SELECT attempts, payload FROM outbox_archive'), '0|1', 'it was published as it was');
	$node->sql('TRUNCATE outbox_archive');
	return $said;
}

# The exchange is declared: a message that has to wait for that goes back to the table.
$node->sql(q{SELECT outbox_enqueue('first', '1')});
$node->wait_drained;
$node->sql('TRUNCATE outbox_archive');

like(beside_claim('SELECT outbox_discard(id) FROM outbox', waits => 1), qr/ERROR: .* is being published/, 'it is not discarded');
like(beside_claim(q{SELECT outbox_edit(id, '2') FROM outbox}, waits => 1), qr/ERROR: .* is being published/, 'nor changed');
like(beside_claim(q{UPDATE outbox_route SET relay = 'external' WHERE name = 'default'}, waits => 1),
	qr/ERROR:  messages of route "default" are being published/, 'nor given to another relay');
is(beside_claim(q{SELECT outbox_discard_messages('none', 'pending')}), "0\n", 'of many, what is claimed is left');
is(beside_claim(q{SELECT live, remaining FROM outbox_erase('t', 'k')}), "0|1\n", 'and of a key');

$node->stop;
done_testing();
