# What a promise hangs on, one line of code each, shown without chance: the relay
# or a committing backend is held at a fault point until everything is in place,
# the WAL writer is stopped so that nothing gets to the disk by itself, and then
# all processes of the server are killed.  test/tools/mutate takes these lines away,
# one at a time; these tests are what notices it.
#
# suite: test faults
# takes: 33 s

use strict;
use warnings;

use Test::More;
use Time::HiRes qw(time usleep);
use PostgreSQL::Test::Utils;
use OutboxTest::FakeBroker;
use OutboxTest::Node;
use OutboxTest::Util;

my $fake = OutboxTest::FakeBroker->start;
my $node = OutboxTest::Node->create(
	broker => $fake,
	conf => <<'END');
outbox.retry_initial = 20ms
outbox.retry_max = 100ms
wal_writer_delay = 10s
wal_buffers = 16MB
autovacuum = off
END
$node->sql(<<'SQL');
INSERT INTO outbox_route (name, exchange, max_attempts, on_failed) VALUES ('blocking', 'outbox', 1, 'block');
CREATE FUNCTION send(type text, key text DEFAULT NULL, route text DEFAULT 'default') RETURNS uuid
LANGUAGE sql AS $$
	SELECT outbox_enqueue(event_type => type, payload => '{}', aggregate_type => CASE WHEN key IS NOT NULL THEN 'case' END,
		aggregate_id => key, route => route)
$$;
CREATE PROCEDURE burn_xids() LANGUAGE plpgsql AS $$
BEGIN
	FOR i IN 1 .. 100 LOOP
		PERFORM pg_current_xact_id();
		ROLLBACK;
	END LOOP;
END
$$;
SQL


# A case starts with an empty table, and with the relay idle.
sub begin
{
	$fake->do('forget');
	$node->wait_drained;
	$node->wait_sql('SELECT state FROM outbox_status', 'idle');
	$fake->begin_case;
	return;
}

sub crash_and_start
{
	$node->crash;
	$fake->do('forget');
	$node->start;
	$node->wait_drained;
	return;
}

# The commit log remembers one position for 32 transactions: those before this one
# and those after it have different ones then.
sub burn_xids
{
	$node->sql('CALL burn_xids()');
	return;
}

# What came after the first $type.
sub after
{
	my ($type) = @_;
	my ($seen, @after) = (0);
	foreach my $one ($fake->types)
	{
		push @after, $one if $seen;
		$seen = 1 if $one eq $type;
	}
	return @after;
}

# ---------------------------------------------------------------------------
# What is read, and in which order

subtest 'nothing newer is read while a late range is unread' => sub {
	my $RANGES = 28;    # a claim reads 23
	my @sessions;

	begin();
	foreach my $i (1 .. $RANGES)
	{
		my $session = $node->session;
		push @sessions, $session;
		$session->query_safe("BEGIN; SELECT send('old', 'late $i')");
		# So far apart that they are not made one.
		$node->sql(q{SELECT count(nextval(pg_get_serial_sequence('outbox', 'seq'))) FROM generate_series(1, 100)});
	}
	$node->sql(q{SELECT send('passes them')});
	$fake->wait_type('passes them');
	$node->hold_relay or return;
	$_->query_safe('COMMIT') foreach @sessions;
	$node->sql("SELECT send('new', 'late $RANGES')");
	$node->test_point_over;
	$node->wait_drained;
	is(scalar(grep { $_ eq 'old' } $fake->types), $RANGES, 'all of them were published');
	my @last = map { $_->{type} }
	  grep { ($_->{aggregate_id} // '') eq "late $RANGES" } $fake->of_case;
	is("@last", 'old new', 'the key of the last range is in order');
	$_->quit foreach @sessions;
};

subtest 'a commit that is visible and not announced is known by its commit intent' => sub {
	begin();
	my $session = $node->session;
	$session->query_safe(q{BEGIN; SELECT send('first', 'early')});
	$node->sql(q{SELECT send('passes it')});
	$fake->wait_type('passes it');
	$node->test_point('before_announce wait 1');
	$session->{stdin} .= "COMMIT;\n";
	$node->wait_test_point('before_announce', sub { $session->{run}->pump_nb }) or return;
	is($node->sql(q{SELECT count(*) FROM outbox_messages WHERE event_type = 'first'}), 1, 'its row can be seen');
	$node->sql(q{SELECT send('second', 'early')});
	$fake->wait_type('second');
	$node->test_point_over;
	$node->wait_drained;
	is(join(' ', $fake->types), 'passes it first second', 'who saw it comes after it');
	$session->quit;
};

subtest 'a commit intent that came before the commit is remembered until then' => sub {
	begin();
	my $session = $node->session;
	$session->query_safe(q{BEGIN; SELECT send('first', 'early')});
	$node->test_point('after_commit_intent wait 1');
	$session->{stdin} .= "COMMIT;\n";
	$node->wait_test_point('after_commit_intent', sub { $session->{run}->pump_nb }) or return;
	# A claim, with a snapshot that does not see it.
	$node->sql(q{SELECT send('passes it')});
	$fake->wait_type('passes it');
	$node->test_point_over('before_announce wait 1');
	$node->wait_test_point('before_announce') or return;
	$node->sql(q{SELECT send('second', 'early')});
	$fake->wait_type('second');
	$node->test_point_over;
	$node->wait_drained;
	is(join(' ', $fake->types), 'passes it first second', 'who saw it comes after it');
	$session->quit;
};

# The sweep looks at all rows a minute after the start of a worker, and must not be
# needed here.
sub restart_worker
{
	my ($old) = $node->backend_pids;
	$node->sql('SELECT outbox_worker_restart()');
	return $node->wait_sql("SELECT count(*) FROM outbox_workers WHERE pid <> $old AND state = 'idle'", 1);
}

subtest 'a late range that is longer than a claim is read to its end' => sub {
	my $ROWS = 2500;    # the window is 1000, and from 4000 on it were a backlog

	restart_worker() or return;
	begin();
	my $session = $node->session;
	$session->query_safe("BEGIN; SELECT count(send('long', i::text)) FROM generate_series(1, $ROWS) i");
	$node->sql(q{SELECT send('passes it')});
	$fake->wait_type('passes it');
	$session->query_safe('COMMIT');
	ok($node->wait_drained(20), 'without a sweep');
	is(scalar $fake->types, $ROWS + 1, 'and each once');
	$session->quit;
};

subtest 'a late range of a route that waits is read when the route goes on' => sub {
	restart_worker() or return;
	begin();
	my $session = $node->session;
	$session->query_safe(q{BEGIN; SELECT send('late', NULL, 'blocking')});
	$node->sql(q{SELECT send('passes it')});
	$fake->wait_type('passes it');
	$node->sql(q{SELECT outbox_pause('blocking')});
	$session->query_safe('COMMIT');
	$node->wait_turn or return;
	is(scalar(grep { $_ eq 'late' } $fake->types), 0, 'it waits');
	$node->sql(q{SELECT outbox_resume('blocking')});
	ok($node->wait_drained(20), 'without a sweep');
	$session->quit;
};

# The relay takes its inbox once more when it has its snapshot; a row that is not in
# that is for the next round, and so is all that is not about rows.
subtest 'what is announced during a claim is heeded' => sub {
	restart_worker() or return;
	begin();
	my ($old) = $node->backend_pids;
	$node->test_point('before_claim wait 1');
	$node->sql(q{SELECT send('claimed')});
	$node->wait_test_point('before_claim') or return;
	$node->sql(q{SELECT outbox_enqueue('due', '{}', available_at => clock_timestamp() + interval '100 ms')});
	$node->test_point_over;
	$fake->wait_type('due');
	cmp_ok($OutboxTest::Util::waited, '<', 15, 'when a message is due');

	$node->test_point('before_claim wait 1');
	$node->sql(q{SELECT send('claimed')});
	$node->wait_test_point('before_claim') or return;
	$node->sql('SELECT outbox_worker_restart()');
	$node->test_point_over;
	ok($node->wait_sql("SELECT count(*) FROM outbox_workers WHERE pid <> $old AND state = 'idle'", 1, 15),
		'that the worker should leave');
};

# Without the row trigger nobody announces the row that holds the key; another
# one's news make the relay look at what holds keys.
subtest 'a row that has held its key goes before what waited for it' => sub {
	begin();
	$fake->do('when type=held times=1 : nack', 'when type=other times=1 : nack');
	$node->sql(q{SELECT send('held', 'a', 'blocking'), send('other', 'b', 'blocking')});
	$node->wait_sql(q{SELECT count(*) FROM outbox WHERE status = 'failed'}, 2);
	$node->sql(q{SELECT send('waits', 'a', 'blocking'), send('marker')});
	$fake->wait_type('marker');
	is(scalar(grep { $_ eq 'waits' } $fake->types), 0, 'the key is held');
	$node->sql(q{SET session_replication_role = replica;
		UPDATE outbox SET status = 'pending', attempts = 0, available_at = NULL WHERE event_type = 'held'});
	$node->sql(q{SELECT outbox_discard(id) FROM outbox WHERE event_type = 'other'});
	$node->wait_drained;
	is(join(' ', grep { /held|waits/ } $fake->types), 'held held waits', 'and goes on in order');
};

# ---------------------------------------------------------------------------
# What must be on the disk before something is published

subtest 'what was enqueued is on the disk, whichever transaction was the last' => sub {
	begin();
	my $session = $node->session;
	$session->query_safe(q{BEGIN; SET LOCAL synchronous_commit = off; SELECT send('asynchronous')});
	burn_xids();
	$node->stop_wal_writer or return;
	$fake->do('when type=asynchronous : silent');
	$node->hold_relay or return;
	$node->sql(q{SELECT send('synchronous')});
	$session->query_safe('COMMIT');
	$node->test_point_over;
	$fake->wait_type('asynchronous');
	crash_and_start();
	eval { $session->quit };
	is($node->sql(q{SELECT count(*) FROM outbox_messages WHERE event_type = 'asynchronous'}), 1,
		'a message that was published is of a transaction that was not lost');
};

subtest 'the settling of a message that another one waits for' => sub {
	begin();
	$node->stop_wal_writer or return;
	$fake->do('when type=two : silent');
	$node->sql(q{SELECT send('one', 'waiting'), send('two', 'waiting')});
	$fake->wait_type('two');
	crash_and_start();
	is(join(' ', grep { $_ eq 'one' } after('two')), '', 'is not lost after the other was published');
	is(scalar(grep { $_ eq 'two' } $fake->types), 2, 'which comes again, as nobody has confirmed it');
};

# The second one is on the disk before the first is settled, so that waiting for
# the enqueuing transaction brings nothing to the disk.
subtest 'the settling of a message whose key goes on later' => sub {
	begin();
	$node->stop_wal_writer or return;
	$node->test_point('all_acks wait 1');
	$fake->do('when type=two : silent');
	$node->sql(q{SELECT send('one', 'later')});
	$node->wait_test_point('all_acks') or return;
	$node->sql(q{SELECT send('two', 'later')});
	burn_xids();
	$node->test_point_over;
	$fake->wait_type('two');
	crash_and_start();
	is(join(' ', grep { $_ eq 'one' } after('two')), '', 'is not lost after the other was published');
	is(scalar(grep { $_ eq 'two' } $fake->types), 2, 'which comes again, as nobody has confirmed it');
};

subtest 'a claim is on the disk once it has committed' => sub {
	begin();
	$node->sql(q{INSERT INTO outbox_route (name, relay) VALUES ('leased', 'external');
		CREATE FUNCTION claim() RETURNS bigint LANGUAGE sql SET synchronous_commit = off
			AS 'SELECT count(*) FROM outbox_claim(''leased'')';
		SELECT send('leased', NULL, 'leased')});
	$node->stop_wal_writer or return;
	is($node->sql('SET synchronous_commit = off; SELECT claim()'),
		1, 'a function claims that has its own synchronous_commit');
	$node->crash;
	$node->start;
	is($node->sql('SELECT messages FROM outbox_leases'), 1, 'and the lease is there after a crash');
	$node->sql(q{DELETE FROM outbox WHERE route = 'leased'});
};

subtest 'no more comes twice than the window holds' => sub {
	my $WINDOW = 1000;

	begin();
	$node->stop_wal_writer or return;
	$fake->do('answer hold');
	$node->sql('SELECT count(send(i::text)) FROM generate_series(1, 2 * ' . $WINDOW . ') i');
	foreach my $part (1, 2)
	{
		wait_until("window $part is full", sub { $fake->types == $part * $WINDOW });
		$fake->do('now ack multiple');
	}
	$node->wait_drained;
	crash_and_start();
	my $again = $fake->types - 2 * $WINDOW;
	cmp_ok($again, '>', 0, 'something was not on the disk');
	cmp_ok($again, '<=', $WINDOW, 'and it is within the window');
};

# ---------------------------------------------------------------------------
# Bounds

subtest 'the worker keeps 32 MB in its memory' => sub {
	my $SIZE = 4 * 1024 * 1024;
	my $LIMIT = 8;    # of these

	begin();
	$fake->do('answer hold');
	$node->sql("SELECT count(outbox_enqueue_bytes('large', convert_to(repeat('x', $SIZE), 'UTF8')))
		FROM generate_series(1, 2 * $LIMIT)");
	my $claims = 'SELECT count(*) FROM outbox_internal.outbox_claims()';
	wait_until('that is full', sub { $node->sql($claims) >= $LIMIT });
	wait_until('and sent', sub { $fake->types >= $LIMIT });
	$node->sql(q{SELECT send('one more')});
	$node->wait_turn or return;
	is($node->sql($claims), $LIMIT, 'and nothing more is claimed');
	$fake->do('answer ack', 'now ack multiple');
	ok($node->wait_drained(60), 'then the rest');
};

# A call of the library ends after 3 s, and half a second after the server wants
# to stop: it is the watchdog that ends it, for the library's own limit is for each
# answer, and knows of no stop.
subtest 'a broker that never answers' => sub {
	begin();
	$fake->do('stage channel : slow 2500', 'stage confirm : silent', 'now fin');
	my $took = best_of(4.5, sub {
		$fake->forget_events;
		$fake->wait_event(qr/^stage \d+ channel slow/);
		my $start = time;
		my ($conn) = map { /^stage (\d+) channel slow/ ? $1 : () } $fake->events;
		$fake->wait_event(qr/^closed $conn /);
		return time - $start;
	});
	cmp_ok($took, '<', 4.5, sprintf 'two answers have one limit (%.2f s)', $took);

	$fake->do('forget');
	$node->wait_sql('SELECT state FROM outbox_status', 'idle');
	$fake->do('stage start-ok : silent', 'now fin');
	my $stops = 0;
	$took = best_of(2.2, sub {
		$node->start if $stops++;
		$fake->forget_events;
		# At the beginning of such a call, so that its own limit is far away.
		wait_until('another one begins', sub { $fake->events(qr/^stage \d+ start-ok/) > 1 });
		my $start = time;
		$node->stop('fast');
		return time - $start;
	});
	cmp_ok($took, '<', 2.2, sprintf 'a stop does not wait for it (%.2f s)', $took);
};

done_testing();
