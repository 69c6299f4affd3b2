# The narrow ways past the order of a key and past the relay's memory, each made
# sure of: a backend or the relay is held at a fault point until everything is in
# place.
#
# suite: test faults
# takes: 45 s

use strict;
use warnings;

use Test::More;
use Time::HiRes qw(time usleep);
use PostgreSQL::Test::Utils;
use OutboxTest::FakeBroker;
use OutboxTest::Node;
use OutboxTest::Util;

# Sooner than a sweep can come.
my $SOON = 20;

my $fake = OutboxTest::FakeBroker->start;
my $node = OutboxTest::Node->create(
	broker => $fake,
	conf => <<'END');
outbox.retry_initial = 20ms
outbox.retry_max = 100ms
END
$node->sql(<<'SQL');
CREATE FUNCTION send(type text, key text DEFAULT NULL, due timestamptz DEFAULT NULL) RETURNS uuid
LANGUAGE sql AS $$
	SELECT outbox_enqueue(event_type => type, payload => '{}',
		aggregate_type => CASE WHEN key IS NOT NULL THEN 'case' END,
		aggregate_id => key, available_at => due)
$$;
SQL


# A case starts with an empty table, and with the relay idle.
sub begin
{
	$fake->do('forget');
	$node->wait_drained;
	$node->sql('TRUNCATE outbox_archive');
	$node->wait_sql('SELECT state FROM outbox_status', 'idle');
	$fake->begin_case;
	return;
}

# Commits in a session that is held at a point on its way.
sub commit_held
{
	my ($session, $point) = @_;
	$node->test_point("$point wait 1");
	$session->{stdin} .= "COMMIT;\n";
	return $node->wait_test_point($point, sub { $session->{run}->pump_nb });
}

# A transaction with a message of the key "k", whose number the relay has passed.
sub open_first
{
	my $session = $node->session;
	$session->query_safe(q{BEGIN; SELECT send('first', 'k')});
	$node->sql(q{SELECT send('passes it')});
	$fake->wait_type('passes it', $SOON);
	return $session;
}

sub in_order
{
	my ($name) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	return is(join(' ', grep { /^(first|second)$/ } $fake->types), 'first second', $name);
}

# Who sees its row, while the session is held before it tells of it, comes after it.
sub second_follows
{
	my ($session) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	is($node->sql(q{SELECT count(*) FROM outbox_messages WHERE event_type = 'first'}), 1, 'its row can be seen');
	$node->sql(q{SELECT send('second', 'k')});
	$fake->wait_type('second', $SOON);
	$node->test_point_over;
	$node->wait_drained;
	in_order('who saw it comes after it');
	$session->quit;
	return;
}

# ---------------------------------------------------------------------------
# Who has seen a transaction comes after it, although it has not announced itself

subtest 'a worker that is deaf while a transaction is about to commit' => sub {
	begin();
	my $session = open_first();
	$node->sql('SELECT outbox_pause()');
	$node->wait_sql('SELECT state FROM outbox_status', 'paused');
	commit_held($session, 'before_announce') or return;
	$node->sql('SELECT outbox_resume()');
	$node->wait_sql('SELECT state FROM outbox_status', 'idle');
	second_follows($session);
};

subtest 'a worker that starts while a transaction is about to commit' => sub {
	begin();
	my $session = $node->session;
	$session->query_safe(q{BEGIN; SELECT send('first', 'k')});
	commit_held($session, 'after_commit_intent') or return;
	my ($old) = $node->backend_pids;
	$node->sql('SELECT outbox_worker_restart()');
	wait_until('another worker is there', sub { my ($new) = $node->backend_pids; $new && $new != $old });
	$node->sql(q{SELECT send('passes it')});
	$fake->wait_type('passes it', $SOON);
	$node->test_point_over('before_announce wait 1');
	$node->wait_test_point('before_announce', sub { $session->{run}->pump_nb }) or return;
	second_follows($session);
};

# The worker has emptied its inbox, and has yet to take its snapshot.
subtest 'transactions that are announced while a claim begins' => sub {
	my $full = join "\n", map { "BEGIN; SELECT send('undone'); PREPARE TRANSACTION 'p'; ROLLBACK PREPARED 'p';" } 1 .. 200;
	foreach my $case ([ 'a commit', '', 'COMMIT' ],
		[ 'a prepared one', '', q{PREPARE TRANSACTION 'first'; COMMIT PREPARED 'first'} ],
		[ 'a prepared one and a full inbox', $full, q{PREPARE TRANSACTION 'first'; COMMIT PREPARED 'first'} ])
	{
		my ($name, $before, $end) = @$case;
		begin();
		my $session = open_first();
		$node->test_point('before_snapshot wait 1');
		$node->sql(q{SELECT send('poke')});
		$node->wait_test_point('before_snapshot') or return;
		$node->sql($before);
		$session->query_safe($end);
		$node->sql(q{SELECT send('second', 'k')});
		$node->test_point_over;
		$node->wait_drained;
		in_order("$name: who saw it comes after it");
		$session->quit;
	}
};

subtest 'a transaction that is prepared when the inbox is full' => sub {
	my $full = join "\n", map { "BEGIN; SELECT send('undone'); PREPARE TRANSACTION 'p'; ROLLBACK PREPARED 'p';" } 1 .. 600;

	begin();
	my $session = open_first();
	$node->hold_relay or return;
	$node->sql($full);
	$session->query_safe(q{PREPARE TRANSACTION 'first'});
	$node->test_point_over;
	$node->sql(q{SELECT send('then')});
	$fake->wait_type('then', $SOON);
	$node->hold_relay or return;
	$node->sql(q{COMMIT PREPARED 'first'});
	$node->sql(q{SELECT send('second', 'k')});
	$node->test_point_over;
	$fake->wait_type('second', $SOON);
	$fake->wait_type('first', $SOON);
	in_order('who saw it comes after it');
	$session->quit;

	# It has ended when the relay looks which there are.
	begin();
	$session = open_first();
	$node->hold_relay or return;
	$node->sql($full);
	$session->query_safe(q{PREPARE TRANSACTION 'first'; COMMIT PREPARED 'first'});
	$node->test_point_over;
	ok($fake->wait_type('first', $SOON), 'one that has ended meanwhile');
	$session->quit;
};

subtest 'a commit without rows, beside a prepared transaction' => sub {
	begin();
	my $session = $node->session;
	$node->sql(q{INSERT INTO outbox (id, event_type, payload, available_at)
		VALUES ('00000000-0000-0000-0000-000000000001', 'there', '{}', now() + '1 hour')});
	$node->hold_relay or return;
	my $due = $node->sql(q{SELECT now() + interval '2 s'});
	$session->query_safe("BEGIN; SELECT send('first', due => '$due'); PREPARE TRANSACTION 'due'");
	# Without an xid, except where it is time for the sequence to be logged.
	$node->sql(q{INSERT INTO outbox (id, event_type, payload)
		VALUES ('00000000-0000-0000-0000-000000000001', 'twice', '{}') ON CONFLICT DO NOTHING;}) foreach 1 .. 3;
	$node->test_point_over;
	# It is looked for when it is due, and cannot be seen yet.
	$node->wait_sql("SELECT clock_timestamp() > '$due'");
	$node->wait_turn or return;
	$session->query_safe(q{COMMIT PREPARED 'due'});
	ok($fake->wait_type('first', $SOON), 'the prepared one is published');
	$node->sql(q{SELECT outbox_discard('00000000-0000-0000-0000-000000000001')});
	$session->quit;
};

subtest 'a prepared transaction that pauses' => sub {
	begin();
	foreach my $change ([ pause => 'paused' ], [ resume => 'idle' ])
	{
		my ($call, $state) = @$change;
		$node->sql("BEGIN; SELECT outbox_$call(); PREPARE TRANSACTION '$call'");
		$node->sql(q{SELECT send('first')}) if $call eq 'pause';
		$fake->wait_type('first', $SOON);
		$node->sql("COMMIT PREPARED '$call'");
		ok($node->wait_sql('SELECT state FROM outbox_status', $state, $SOON), "$state, when it commits");
	}
};

subtest 'a prepared transaction that takes a message away' => sub {
	begin();
	$fake->do('when type=first times=1 : nack');
	$node->sql(q{INSERT INTO outbox_route (name, exchange, max_attempts, on_failed) VALUES ('blocking', 'outbox', 1, 'block')});
	$node->sql(qq{SELECT outbox_enqueue(event_type => '$_', payload => '{}', aggregate_id => 'k', route => 'blocking')})
	  foreach qw(first second);
	$node->wait_sql(q{SELECT count(*) FROM outbox_failed}, 1);
	$node->sql(q{BEGIN; SELECT outbox_discard(id) FROM outbox_failed; SELECT send('third'); PREPARE TRANSACTION 'discard'});
	$node->sql(q{COMMIT PREPARED 'discard'});
	ok($fake->wait_type('second', $SOON), 'its key goes on');
};

# ---------------------------------------------------------------------------
# A number need not be a message's own

# Takes a number as it is given, as a subscriber gets its publisher's.
$node->sql(<<'SQL');
CREATE FUNCTION put(number bigint, type text, key text DEFAULT NULL, due timestamptz DEFAULT NULL) RETURNS uuid
LANGUAGE sql AS $$
	INSERT INTO outbox (seq, event_type, payload, aggregate_type, aggregate_id, available_at)
	OVERRIDING SYSTEM VALUE
	VALUES (number, type, '{}', CASE WHEN key IS NOT NULL THEN 'case' END, key, due) RETURNING id
$$;
SQL
my $next = q{nextval(pg_get_serial_sequence('outbox', 'seq'))};

subtest 'rows of the same number' => sub {
	begin();
	$node->sql("SELECT put(n, 'twin ' || i, 'key ' || i), put(n, 'twin', 'other ' || i)
		FROM (SELECT $next AS n, i FROM generate_series(1, 50) i) s");
	$node->sql(q{SELECT send('after', 'key 1')});
	$fake->wait_type('after', $SOON);
	ok($node->wait_drained($SOON), 'all of them are published');
	is(scalar(grep { /^twin/ } $fake->types), 100, 'once each');
};

subtest 'more rows of the same number than a claim takes' => sub {
	begin();
	$node->set('outbox."window"', 20);
	$node->sql("SELECT put(n, 'twin', 'key ' || i) FROM (SELECT $next AS n) s, generate_series(1, 50) i");
	$node->sql(q{SELECT send('after', 'key ' || i) FROM generate_series(1, 50) i});
	ok($node->wait_drained($SOON), 'all of them are published');
	my %seen;
	my $wrong = 0;
	foreach my $record ($fake->of_case)
	{
		$seen{ $record->{aggregate_id} }++ if $record->{type} eq 'twin';
		$wrong++ if $record->{type} eq 'after' && !$seen{ $record->{aggregate_id} };
	}
	is($wrong, 0, 'in the order of their keys');
	is(scalar($fake->types), 100, 'once each');
	$node->unset('outbox."window"');
};

subtest 'numbers that begin anew' => sub {
	begin();
	$fake->do('answer hold');
	$node->sql(q{TRUNCATE outbox RESTART IDENTITY; SELECT count(send('old ' || i, 'key ' || i)) FROM generate_series(1, 20) i});
	wait_until('all are sent', sub { $fake->types == 20 });
	$node->sql('TRUNCATE outbox RESTART IDENTITY');
	# Of the same numbers, in two transactions for each key.
	$node->sql(q{SELECT count(send('first', 'key ' || i)) FROM generate_series(1, 20) i});
	$node->sql(q{SELECT count(send('second', 'key ' || i)) FROM generate_series(1, 20) i});
	# They wait for the old ones of their keys.
	$fake->do('answer ack', 'now ack multiple');
	ok($node->wait_drained($SOON), 'all that is new is published');
	is(scalar(grep { !/^old/ } $fake->types), 40, 'once each');
	my %last;
	foreach my $record ($fake->of_case)
	{
		push @{ $last{ $record->{aggregate_id} } }, $record->{type} =~ s/ .*//r;
	}
	is(scalar(grep { join(' ', @$_) ne 'old first second' } values %last), 0, 'in the order of their keys');
};

subtest 'what is said of a message whose number another one has' => sub {
	begin();
	$fake->do('answer hold');
	my $number = $node->sql("SELECT $next");
	$node->sql("SELECT put($number, 'sent')");
	$fake->wait_type('sent', $SOON);
	my $id = $node->sql("SELECT put($number, 'waits', due => now() + '1 hour')");
	is($node->sql('SELECT event_type, status FROM outbox_messages ORDER BY 1'), "sent|processing\nwaits|pending", 'the view');
	is($node->sql("SELECT outbox_discard('$id')"), 't', 'it can be discarded');
	like($node->sql_fails('SELECT outbox_discard(id) FROM outbox'), qr/is being published/, 'the other one cannot');
	$fake->do('answer ack', 'now ack multiple');
};

subtest 'what is enqueued in an adopted database comes after what it has adopted' => sub {
	begin();
	$node->sql('SELECT outbox_pause()');
	# As logical replication brings it.
	$node->sql(qq{SET session_replication_role = replica;
		INSERT INTO outbox (seq, event_type, payload, aggregate_id, origin) OVERRIDING SYSTEM VALUE
		SELECT $next + 1000000, 'first', '{}', 'k', 42});
	is($node->sql('SELECT outbox_adopt()'), 't', 'it is adopted');
	$node->sql(q{INSERT INTO outbox (event_type, payload, aggregate_id) VALUES ('second', '{}', 'k')});
	is($node->sql('SELECT outbox_adopt()'), 'f', 'there is nothing more to adopt');
	$node->sql(q{INSERT INTO outbox (event_type, payload, aggregate_id) VALUES ('third', '{}', 'k')});
	$node->sql('SELECT outbox_resume()');
	$node->wait_drained($SOON);
	is(join(' ', $fake->types), 'first second third', 'in the order of its key');
};

# ---------------------------------------------------------------------------

subtest 'a route without an order behind a key that is held' => sub {
	begin();
	$fake->do('when type=first times=1 : nack');
	$node->sql(qq{SELECT outbox_enqueue(event_type => '$_->[0]', payload => '{}', aggregate_id => 'k', route => '$_->[1]')})
	  foreach [qw(first blocking)], [qw(second default)];
	$node->wait_sql(q{SELECT count(*) FROM outbox_failed}, 1);
	$node->sql(q{UPDATE outbox_route SET ordering = 'none' WHERE name = 'default'});
	ok($fake->wait_type('second', $SOON), 'its messages do not wait any more');
	$node->sql(q{UPDATE outbox_route SET ordering = 'key' WHERE name = 'default'});
	$node->sql(q{SELECT outbox_requeue_failed()});
};

# ---------------------------------------------------------------------------
# Memory

subtest 'an error after the commit of a claim' => sub {
	begin();
	my $from = $node->log_end;
	$node->sql('SELECT outbox_pause()');
	$node->sql(q{SELECT send(i::text, 'k' || i % 2) FROM generate_series(1, 10) i});
	$node->test_point('amid_admit error 3');
	$node->sql('SELECT outbox_resume()');
	ok($node->wait_log(qr/outbox test point at amid_admit/, $from), 'it comes');
	ok($node->wait_drained($SOON), 'another worker publishes all');
	is(join(' ', grep { $_ % 2 } $fake->types), '1 3 5 7 9', 'once each, in order');
	is(scalar($fake->types), 10, 'all of them');
	unlike($node->log_text($from), qr/terminated by signal/, 'and nothing has crashed');
};

subtest 'commands that were ended leave no holds' => sub {
	my $HOLDS = 32;

	$node->sql('CREATE DATABASE used');
	$node->sql('CREATE DATABASE other');
	$node->sql('CREATE EXTENSION outbox', 'other');
	$node->wait_sql('SELECT state FROM outbox_status', 'idle', undef, 'other');
	my $user = $node->session('used');
	my @sessions = map { $node->session } 1 .. $HOLDS;
	foreach my $session (@sessions)
	{
		$session->{stdin} .= "DROP DATABASE used;\n";
		$session->{run}->pump_nb;
	}
	my $drops = q{FROM pg_stat_activity WHERE query LIKE 'DROP DATABASE used%' AND state = 'active'};
	$node->wait_sql("SELECT count(*) $drops", $HOLDS);
	$node->sql("SELECT pg_terminate_backend(pid) $drops");
	$node->wait_sql("SELECT count(*) $drops", 0);
	eval { $_->quit } foreach @sessions;
	is($node->sql_fails('DROP DATABASE other'), undef, 'the workers of another database can be sent away');
	$user->quit;
	$node->sql('DROP DATABASE used');
};

# ---------------------------------------------------------------------------
# Texts in the encoding of their database

subtest 'an error that is longer than what is kept of it' => sub {
	begin();
	$node->sql(<<'SQL');
CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
	RAISE EXCEPTION '%', repeat('ü', 400);
END
$$;
CREATE TRIGGER refuse BEFORE DELETE ON outbox EXECUTE FUNCTION refuse();
SQL
	$node->sql(q{SELECT send('refused')});
	$node->wait_sql('SELECT state FROM outbox_status', 'database error');
	my $error = pack 'H*', $node->sql(q{SELECT encode(convert_to(last_error, 'UTF8'), 'hex') FROM outbox_status});
	ok(utf8::decode($error), 'is cut between two characters');
	like($error, qr/^\x{fc}{200,}$/, 'and is all there before');
	$node->sql('DROP TRIGGER refuse ON outbox; DROP FUNCTION refuse');
};

subtest 'names in a database of another encoding' => sub {
	$node->sql(q{CREATE DATABASE latin ENCODING 'LATIN1' LOCALE 'C' TEMPLATE template0});
	$node->sql('CREATE EXTENSION outbox', 'latin');
	my $from = $node->log_end;
	$fake->do("when exchange=elsewhere : channel-close 404 no exchange \xc3\xbc");
	my $client = q{SET client_encoding = 'UTF8'; };
	$node->sql($client . q{INSERT INTO outbox_route (name, exchange) VALUES ('käse', 'elsewhere')}, 'latin');
	$node->sql($client . q{SELECT outbox_enqueue(event_type => 'e', payload => '{}', route => 'käse')}, 'latin');
	$node->wait_sql(q{SELECT last_error IS NOT NULL FROM outbox_status}, 't', undef, 'latin');
	like($node->sql($client . 'SELECT last_error FROM outbox_status', 'latin'), qr/^route "käse": /, 'the view shows the name');
	ok($node->wait_log(qr/cannot publish on route "k\xe4se"/, $from), 'and so does the log');
	$node->sql('DROP DATABASE latin');
};

# The net works, and is seen to work.
subtest 'what nobody announces is told of in a build for tests' => sub {
	my $silent = $node->data_dir . '/outbox_test_point.announce';

	begin();
	$node->forgets;
	$fake->do('when type=held times=1 : nack');
	$node->sql(q{SELECT outbox_enqueue(event_type => 'held', payload => '{}', aggregate_id => 'k', route => 'blocking')});
	$node->wait_sql('SELECT count(*) FROM outbox_failed', 1);
	my $late = open_first();
	my $from = $node->log_end;
	append_to_file($silent, '');
	$late->query_safe('COMMIT');
	$node->sql(q{SELECT send('due', due => now() + '1 hour'); SELECT outbox_discard(id) FROM outbox_failed});
	unlink $silent;
	ok($node->wait_log(qr/found a forgotten $_/, $from), "a $_") foreach qw(row time holder);
	$node->sql('DELETE FROM outbox');
	$late->quit;
};

done_testing();
