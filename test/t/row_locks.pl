# Somebody has locked rows of messages in flight: others are published, how large the
# locked ones are does not count, and the problem names who it is, steadily.
#
# suite: test
# takes: 25 s

use strict;
use warnings;

use Test::More;
use Time::HiRes qw(usleep);
use OutboxTest::FakeBroker;
use OutboxTest::Node;
use OutboxTest::Util;

my $fake = OutboxTest::FakeBroker->start;
my $node = OutboxTest::Node->create(
	broker => $fake,
	conf => <<'END');
outbox.retry_initial = 20ms
outbox.retry_max = 100ms
max_worker_processes = 12
END
my $claims = 'FROM outbox_internal.outbox_claims()';
my $row_locked = q{FROM outbox_problems WHERE problem = 'row locked'};
my $details = "SELECT string_agg(detail, E'\n' ORDER BY subject) $row_locked";

# Sent and not answered, as many as the queue has room for.
sub in_flight
{
	my ($condition) = @_;
	return $node->wait_sql("SELECT count(*) $condition AND bool_and(in_flight) $claims", 't');
}

# So many keys have one message each.
sub enqueue
{
	my ($type, $n, $more) = @_;
	return $node->sql(<<"SQL");
SELECT count(outbox_enqueue('$type', '{}', 'k', '$type' || i @{[ $more // '' ]})) FROM generate_series(1, $n) i
SQL
}

sub answer
{
	my ($answer) = @_;
	return $fake->do('answer ack', "now $answer " . $fake->stats->{tag} . ' multiple');
}

sub steady
{
	my ($query, $expected, $name) = @_;
	my %seen;

	local $Test::Builder::Level = $Test::Builder::Level + 1;
	$node->wait_sql($query, $expected) if defined $expected;
	for (1 .. 12)
	{
		$seen{ $node->sql($query) } = 1;
		usleep(300_000);
	}
	return is(scalar(keys %seen), 1, $name) || diag join "\n--\n", sort keys %seen;
}

subtest 'rejected and locked messages leave their contents' => sub {
	my $session = $node->session;
	my $pid = $session->query_safe('SELECT pg_backend_pid()');

	$node->sql(<<'SQL');
INSERT INTO outbox_route (name, routing_key, max_attempts, failed_route) VALUES ('fine', 'fine', 5, NULL), ('dead', '{event_type}.{aggregate_id}', 1, 'fine')
SQL
	# the link is up, and the routes are known
	enqueue('first', 1, ", route => 'dead'");
	$node->wait_drained;
	$fake->do('answer hold');
	enqueue('carried', 1, ", route => 'dead'");
	enqueue('unfit', 1, ", route => 'dead', headers => jsonb_build_object('h', repeat('x', 130700))");
	$node->sql(<<'SQL');
SELECT count(outbox_enqueue_bytes('large', convert_to(repeat('x', 1000000), 'UTF8'), aggregate_type => 'k', aggregate_id => 'large' || i)) FROM generate_series(1, 60) i
SQL
	in_flight('>= 34');
	my $n = $node->sql("SELECT count(*) $claims");
	cmp_ok($n, '<', 62, 'the queue is full');
	# the last one to its end, and one before them
	wait_until('all of them have arrived', sub { $fake->stats->{tag} == $n + 1 }, 20);
	$session->query_safe('BEGIN; SELECT FROM outbox FOR UPDATE');
	answer('nack');
	$node->wait_sql($details, "$n messages in flight wait for the row locks of process $pid");
	$fake->begin_case;
	enqueue('small', 10);
	wait_until('others are published', sub { grep({ $_->{type} eq 'small' } $fake->records) == 10 }, 20);
	is(scalar(() = $fake->of_case), 10, 'and only they');
	ok($node->wait_sql("SELECT count(*) $claims WHERE in_flight", $n), 'what is rejected stays known, when what was published is settled');
	$session->query_safe('COMMIT');
	$session->quit;

	$node->wait_sql(q{SELECT count(*) FROM outbox WHERE status = 'pending'}, 0);
	is($node->sql(q{SELECT route, headers #>> '{x-outbox-death,0,routing-key}', aggregate_id FROM outbox_archive WHERE event_type = 'carried'}),
		'fine|carried.carried1|carried1', 'a dead letter says what it was');
	like($node->sql('SELECT route, status, event_type, last_error FROM outbox'),
		qr/^dead\|failed\|unfit\|.*\(not sent to the failed_route, as its headers have no room for the reason\)$/,
		'what the failed_route cannot carry is failed where it is');
	is($node->sql(q{SELECT count(*), count(DISTINCT id), min(octet_length(body)) FROM outbox_archive WHERE event_type = 'large'}),
		'60|60|1000000', 'the others are tried again');
	is($node->sql(q{SELECT count(*) FROM outbox_archive WHERE event_type = 'large' AND attempts = 1}), $n - 2, 'each attempt is counted once');
	$node->sql(q{SELECT outbox_discard(id) FROM outbox});
};

subtest 'savepoints' => sub {
	my ($one, $other) = map { $node->session } 1, 2;
	my ($pid, $pid2) = map { $_->query_safe('SELECT pg_backend_pid()') } $one, $other;

	$fake->do('answer hold');
	enqueue('e', 20);
	in_flight('= 20');
	$one->query_safe(<<'SQL');
BEGIN;
DO $$
DECLARE
	message uuid;
BEGIN
	FOR message IN SELECT id FROM outbox ORDER BY seq LIMIT 10 LOOP
		BEGIN
			PERFORM FROM outbox WHERE id = message FOR UPDATE;
		EXCEPTION WHEN division_by_zero THEN
			NULL;
		END;
	END LOOP;
END
$$
SQL
	$other->query_safe('BEGIN; SELECT FROM outbox FOR UPDATE SKIP LOCKED');
	answer('ack');
	steady($details, join("\n", map { "20 messages in flight wait for row locks, 10 of them for those of process $_" } sort $pid, $pid2),
		'both are named with all that waits for them');
	is($node->sql('SELECT count(*) FROM outbox_locked_rows()'), 2, 'each by one row');
	$_->query_safe('COMMIT'), $_->quit foreach $one, $other;
	$node->wait_drained;
};

subtest 'more of them than are shown' => sub {
	$fake->do('answer hold');
	enqueue('e', 12);
	in_flight('= 12');
	$node->sql("BEGIN; SELECT FROM outbox ORDER BY seq LIMIT 1 FOR UPDATE SKIP LOCKED; PREPARE TRANSACTION 'p$_'") foreach 'a' .. 'l';
	answer('ack');
	$node->wait_sql("SELECT count(*) $row_locked", 8);
	steady("SELECT string_agg(subject, E'\n' ORDER BY subject) $row_locked", undef, 'the same are shown all the time');
	like($node->sql($details), qr/^12 messages in flight wait for row locks, at least 1 of them /, 'and counted');
	$node->sql("ROLLBACK PREPARED 'p$_'") foreach 'a' .. 'l';
	$node->wait_drained;
};

subtest 'dead letters whose key is being numbered on their route' => sub {
	my $session = $node->session;

	$node->sql(<<'SQL');
INSERT INTO outbox_route (name, routing_key, sequence) VALUES ('numbered', 'numbered', 'key');
INSERT INTO outbox_route (name, routing_key, max_attempts, failed_route) VALUES ('own', 'own', 1, 'numbered')
SQL
	$node->set('outbox."window"', 2);
	enqueue('first', 1, ", route => 'own'");
	$node->wait_drained;
	$session->query_safe(q{BEGIN; SELECT count(outbox_enqueue('e', '{}', 'k', 'dead' || i, route => 'numbered')) FROM generate_series(1, 8) i});
	$fake->do('when type=dead key=own : nack');
	enqueue('dead', 8, ", route => 'own'");
	$node->wait_sql(q{SELECT count(*) FROM outbox WHERE route = 'own' AND attempts > 0}, 8);
	like($node->sql(q{SELECT detail FROM outbox_problems WHERE problem = 'queue refuses'}), qr/^[^\n]*\(not sent to the failed_route yet, as another transaction has locked it or a number of its key\)[^\n]*$/,
		'they are tried again, and a problem says why');
	enqueue('others', 20);
	ok($node->wait_sql(q{SELECT count(*) FROM outbox WHERE event_type = 'others'}, 0), 'others are published');
	$session->query_safe('COMMIT');
	$session->quit;
	$node->wait_drained;
	is($node->sql(q{SELECT count(*), min(headers->>'x-outbox-key-seq'), max(headers->>'x-outbox-key-seq') FROM outbox_archive WHERE event_type = 'dead' AND route = 'numbered'}),
		'8|2|2', 'then they arrive');
	$fake->do('forget');
	$node->set('outbox."window"', 100);
};

subtest 'one of two workers' => sub {
	my $session = $node->session;
	my $pid = $session->query_safe('SELECT pg_backend_pid()');
	my $worker = '(outbox_internal.outbox_key_hash(route, aggregate_type, aggregate_id) & 9223372036854775807) % 2';
	my $enqueue_each = sub {
		my ($type, $n) = @_;
		$node->sql(<<"SQL") foreach 0, 1;
SELECT count(outbox_enqueue('$type', '{}', aggregate_type, aggregate_id)) FROM (
	SELECT * FROM (SELECT 'default' AS route, 'k' AS aggregate_type, '$type' || i AS aggregate_id FROM generate_series(1, 1000) i) k
	WHERE $worker = $_ LIMIT $n) k
SQL
	};

	$node->set('outbox.workers', 2);
	$node->wait_workers('postgres', 2);
	$enqueue_each->('first', 5);
	$node->wait_drained;
	$fake->do('answer hold');
	$enqueue_each->('e', 11);
	in_flight('= 22');
	$session->query_safe("BEGIN; SELECT FROM outbox WHERE $worker = 0 FOR UPDATE");
	$node->sql("BEGIN; SELECT FROM outbox WHERE $worker = 1 LIMIT 1 FOR UPDATE; PREPARE TRANSACTION E'oth\\ner'");
	# the answer to each worker's last one is for all that it has sent
	$fake->do('answer multiple 1');
	$enqueue_each->('e12', 1);
	my @said = map { "12 messages in flight wait for row locks, $_" }
	  '1 of them for those of prepared transaction "oth?er"', "11 of them for those of process $pid";
	$node->wait_sql($details, join "\n", @said);
	$fake->do('answer ack');

	# more than three times that
	$node->set('outbox."window"', 2);
	$said[1] .= '; nothing is published meanwhile by worker 0, with three times outbox.window of them';
	$node->wait_sql($details, join "\n", @said);
	$enqueue_each->('last', 5);
	$node->wait_sql("SELECT count(*) FROM outbox WHERE event_type = 'last' AND $worker = 1", 0);
	is($node->sql("SELECT count(*) FROM outbox WHERE event_type = 'last' AND $worker = 0"), 5, 'the other one goes on');
	$node->sql("ROLLBACK PREPARED E'oth\\ner'");
	$session->query_safe('COMMIT');
	$session->quit;
	$node->wait_drained;
};

$node->stop;
done_testing();
