# on_failed = 'block' follows from the rows: whoever has failed them, and when, whatever the
# route said then, and whichever worker looks.
#
# suite: test core faults
# takes: 20 s

use strict;
use warnings;

use Test::More;
use OutboxTest::FakeBroker;
use OutboxTest::Node;
use OutboxTest::Util;

my $fake = OutboxTest::FakeBroker->start;
my $node = OutboxTest::Node->create(
	broker => $fake,
	conf => "outbox.poll_interval = 1h\n");
$node->sql(q{INSERT INTO outbox_route (name, exchange, max_attempts) VALUES ('r', 'outbox', 1)});

sub enqueue
{
	my ($type, $key) = @_;
	return "SELECT outbox_enqueue('$type', '{}', route => 'r', aggregate_type => 't', aggregate_id => '$key')";
}

sub on_failed
{
	my ($what) = @_;
	return $node->sql("UPDATE outbox_route SET on_failed = '$what' WHERE name = 'r'");
}

# Two that have failed, and nothing else.
sub begin
{
	my ($on_failed) = @_;
	$fake->do('forget');
	on_failed('skip');
	# what the case before has left held goes now, and not into this one
	$node->wait_sql(q{SELECT count(*) FROM outbox WHERE status = 'pending'}, 0);
	$node->sql('TRUNCATE outbox');
	$fake->begin_case;
	$fake->do("when type=$_ : nack") foreach qw(first second);
	$node->sql(enqueue($_, 'k')) foreach qw(first second);
	$node->wait_sql('SELECT count(*) FROM outbox_failed', 2);
	on_failed($on_failed);
	return;
}

sub remove
{
	my ($type) = @_;
	return $node->sql("SELECT outbox_discard(id) FROM outbox WHERE event_type = '$type'");
}

# What was committed before is held, as a message of another key that came later has gone.
my $passed = 0;

sub is_held
{
	my ($type, $when) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	$passed++;
	$node->sql(enqueue("other $passed", "other $_")) foreach 1 .. 4;
	wait_until('all others', sub { 4 == grep { $_ eq "other $passed" } $fake->types });
	return is(scalar(grep { $_ eq $type } $fake->types), 0, "$when: held");
}

subtest 'a route that becomes blocking' => sub {
	begin('block');
	$node->sql(enqueue('later', 'k'));
	is_held('later', 'failed while the route said skip');
	remove('first');
	is_held('later', 'one of two is discarded');
	$node->sql('SELECT outbox_worker_restart()');
	is_held('later', 'a new worker');
	$node->set('outbox.workers', 2);
	$node->wait_workers(2);
	is_held('later', 'two workers');
	$node->unset('outbox.workers');
	$node->wait_workers(1);
	is_held('later', 'one again');
	remove('second');
	ok($fake->wait_type('later'), 'the other one is discarded: it goes');
};

subtest 'a route that blocks no more' => sub {
	begin('block');
	$node->sql(enqueue('later', 'k'));
	is_held('later', 'blocking');
	on_failed('skip');
	ok($fake->wait_type('later'), 'skip: it goes');
};

subtest 'the newer of two comes back' => sub {
	begin('block');
	$node->sql(enqueue('later', 'k'));
	$fake->do('forget');
	$node->sql(q{SELECT outbox_requeue(id) FROM outbox WHERE event_type = 'second'});
	is_held('later', 'behind the older one');
	is(scalar(grep { $_ eq 'second' } $fake->types), 1, 'which holds the one that is requeued, too');
	$node->sql(q{SELECT outbox_requeue(id) FROM outbox WHERE event_type = 'first'});
	$fake->wait_type('later');
	is(join(' ', grep { !/other/ } $fake->types), 'first second first second later',
		'in their order when the older one is requeued');
};

subtest 'what was claimed before' => sub {
	begin('skip');
	$fake->do('when type=head : silent');
	$node->sql(join '; ', map { enqueue($_, 'k') } qw(head later));
	$fake->wait_type('head');
	on_failed('block');
	$node->wait_turn;
	$fake->do('now ack');
	$node->wait_sql(q{SELECT count(*) FROM outbox WHERE event_type = 'head'}, 0);
	is_held('later', 'claimed while the route said skip');
	remove($_) foreach qw(first second);
	ok($fake->wait_type('later'), 'they are discarded: it goes');
};

subtest 'an older one commits late' => sub {
	begin('skip');
	remove($_) foreach qw(first second);
	on_failed('block');
	my $late = $node->session;
	$late->query_safe('BEGIN; ' . enqueue('older', 'k'));
	$node->sql(enqueue('first', 'k'));
	$node->wait_sql('SELECT count(*) FROM outbox_failed', 1);
	$node->sql(enqueue('later', 'k'));
	$late->query_safe('COMMIT');
	ok($fake->wait_type('older'), 'it does not wait for the one that has failed');
	is_held('later', 'the newer one');
	$late->quit;
};

subtest 'a failed one that is of another key now' => sub {
	begin('block');
	remove('second');
	$node->sql(enqueue('later', 'k'));
	is_held('later', 'before');
	$node->sql(q{UPDATE outbox SET aggregate_id = 'another' WHERE event_type = 'first'});
	ok($fake->wait_type('later'), 'its key goes on');
};

# A role that may enqueue to one route chooses an aggregate_id whose outbox_key_hash() is
# that of another route's key: hash(mal, t, 6ZV6dP1GXqil) = hash(r, t, k).
subtest 'a key of another route with the same hash' => sub {
	my $other = q{SELECT outbox_enqueue('%s', '{}', route => 'mal', aggregate_type => 't', aggregate_id => '6ZV6dP1GXqil')};
	$node->sql(q{INSERT INTO outbox_route (name, exchange, max_attempts) VALUES ('mal', 'outbox', 1)});
	is($node->sql(q{SELECT outbox_internal.outbox_key_hash('mal', 't', '6ZV6dP1GXqil') = outbox_internal.outbox_key_hash('r', 't', 'k')}), 't', 'the hashes are the same');

	begin('block');
	$fake->do('when type=failed : nack');
	$node->sql(sprintf $other, 'failed');
	$node->wait_sql(q{SELECT count(*) FROM outbox_failed WHERE event_type = 'failed'}, 1);
	$node->sql(enqueue('later', 'k'));
	is_held('later', 'its own failed messages');
	remove($_) foreach qw(first second);
	ok($fake->wait_type('later'), 'it goes when they are discarded');

	$node->set('outbox.retry_initial', '1h');
	$node->sql(q{UPDATE outbox_route SET max_attempts = 9 WHERE name = 'mal'});
	$fake->do('when type=retry : nack');
	$node->sql(sprintf $other, 'retry');
	$node->wait_sql(q{SELECT attempts FROM outbox WHERE event_type = 'retry'}, 1);
	$node->sql(enqueue('beside', 'k'));
	ok($fake->wait_type('beside'), 'it goes beside the other one, which waits for its next attempt');
	$node->sql(sprintf $other, 'behind');
	is_held('behind', 'the other one');
	is($node->sql(q{SELECT behind FROM outbox_held_keys WHERE route = 'mal'}), 1, 'outbox_held_keys has what waits');
};

done_testing();
