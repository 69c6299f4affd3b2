# Beside a long reader of the archive the relay neither waits for it nor makes
# others wait, and makes and drops partitions when it is gone.  A large partition
# is dropped in pieces, partitions are made in the archive's tablespace, and routes
# have a retention of their own.
#
# suite: test faults

use strict;
use warnings;

use List::Util qw(max);
use Test::More;
use Time::HiRes qw(time);
use PostgreSQL::Test::Utils;
use OutboxTest::Checker;
use OutboxTest::FakeBroker;
use OutboxTest::Node;
use OutboxTest::Util;

my $MESSAGES = 120;
# A wait for a lock in the publishing process, which comes every 5 s, made 5 to 14 of
# the messages so late. The machine does that as well when others use it: what a nap
# or a commit of this session takes too long does not count, and the best of a few
# rounds does.
my $SLOW_S = 0.1;
my $ROUNDS = 3;

seed();
my $fake = OutboxTest::FakeBroker->start;
my $node = OutboxTest::Node->create(broker => $fake);
my $checker = OutboxTest::Checker->install($node);
my $parts = q{SELECT string_agg(to_date(right(c.relname, 8), 'YYYYMMDD')
		- (clock_timestamp() AT TIME ZONE 'UTC')::date || '', ' ' ORDER BY c.relname)
	FROM pg_inherits JOIN pg_class c ON c.oid = inhrelid
	WHERE inhparent = 'outbox_archive'::regclass AND c.relname <> 'outbox_archive_default'};
clear_of_midnight(60);
$node->wait_sql($parts, '0 1 2');

# Old ones to be dropped, and one to be made, while somebody reads.
$node->hold_relay;
$node->sql('SELECT outbox_pause()');
$node->sql(<<'SQL');
DO $$
DECLARE
	day date;
	part text;
BEGIN
	FOR ago IN 3..5 LOOP
		day := (clock_timestamp() AT TIME ZONE 'UTC')::date - ago;
		part := 'outbox_archive_p' || to_char(day, 'YYYYMMDD');
		EXECUTE format('CREATE TABLE outbox_internal.%I PARTITION OF outbox_archive FOR VALUES FROM (%L) TO (%L)',
			part, day || ' 00:00+00', day + 1 || ' 00:00+00');
		EXECUTE format('ALTER EXTENSION outbox ADD TABLE outbox_internal.%I', part);
	END LOOP;
	part := 'outbox_archive_p' || to_char((clock_timestamp() AT TIME ZONE 'UTC')::date + 2, 'YYYYMMDD');
	EXECUTE format('ALTER EXTENSION outbox DROP TABLE outbox_internal.%I', part);
	EXECUTE format('DROP TABLE outbox_internal.%I', part);
END
$$;
SQL
my $reader = $node->session;
$reader->query_safe('BEGIN');
$reader->query_safe('SELECT count(*) FROM outbox_archive');
my $reader_pid = $reader->query_safe('SELECT pg_backend_pid()');
my $offset = $node->log_end;
# a new worker looks after the archive at once, and reports without patience
append_to_file($node->data_dir . '/outbox_test_point.patience', '');
$node->sql('SELECT outbox_worker_restart()');
$node->test_point_over;
$node->sql('SELECT outbox_resume()');
$node->wait_sql('SELECT state FROM outbox_status', 'idle');
$node->wait_log(qr/cannot maintain the archive.*process \Q$reader_pid\E\./s, $offset);
like($node->sql('SELECT last_error FROM outbox_status'), qr/locked by process \Q$reader_pid\E\b/,
	'who has locked the archive is shown');

like($node->sql('SELECT archive_error FROM outbox_workers WHERE worker = 0'),
	qr/^could not obtain lock on relation "(?:public\.outbox_archive|outbox_internal\.outbox_archive_default)"; held by process .*\b\Q$reader_pid\E\b/,
	q{in the server's words});
my $since = $node->sql('SELECT archive_error_since FROM outbox_workers WHERE worker = 0');
like($since, qr/^2/, 'and since when');

# Enqueued in one session, so that a message costs no process.
my $session = $node->session;
my (@records, $fewest);
foreach my $round (1 .. $ROUNDS)
{
	my (%sent, %machine);
	my $other = 0;
	foreach my $n (1 .. $MESSAGES)
	{
		my $at = time;
		my $id = $session->query_safe(q{INSERT INTO test_sent
			SELECT nextval('test_sent_n'), outbox_enqueue('beside', '{}') RETURNING id});
		$sent{$id} = $at;
		$machine{$id} = time - $at;
		# others who read and write the archive do not wait either
		my $began = time;
		$session->query_safe('SELECT count(*) FROM outbox_archive') if $n % 4 == 0;
		$other = time - $began if time - $began > $other;
		$began = time;
		select undef, undef, undef, 0.1;
		$machine{$id} += time - $began - 0.1;
	}
	$node->wait_drained;
	@records = $fake->published;
	my ($slow, $longest, $compared) = (0, 0, 0);
	foreach my $record (@records)
	{
		my $id = $record->{id};
		my $latency = $record->{us} / 1e6 - ($sent{$id} // next);
		$compared++;
		$slow++ if $latency - $machine{$id} > $SLOW_S;
		$longest = $latency if $latency > $longest;
	}
	is($compared, $MESSAGES, 'each message has a time');
	note sprintf '%d of %d, at most %.0f ms; another reader at most %.0f ms; commits and naps %.0f ms too long',
	  $slow, $MESSAGES, 1000 * $longest, 1000 * $other, 1000 * max(values %machine);
	$fewest = $slow if !defined $fewest || $slow < $fewest;
	last if $fewest <= 1;
}
cmp_ok($fewest, '<=', 1, "hardly any of $MESSAGES messages took more than $SLOW_S s beside a long reader");
is($node->sql($parts), '-5 -4 -3 0 1', 'the partitions are as they were');
unlike($node->log_text($offset), qr/lock timeout/, q{and nobody's wait ended in an error});
is(scalar(() = $node->log_text($offset) =~ /cannot maintain the archive/g), 1, 'one line in the log');

is($node->sql('SELECT archive_error_since FROM outbox_workers WHERE worker = 0'),
	$since, 'since then it has been so');

$session->quit;
$reader->query_safe('COMMIT');
$reader->quit;
$node->wait_sql($parts, '0 1 2', 60);
$node->wait_log(qr/can maintain the archive again/, $offset);
is($node->sql('SELECT archive_error, archive_error_since FROM outbox_workers'),
	'|', 'nothing is wrong any more');
$checker->check('a long reader of the archive', \@records, interruptions => 0);

is($node->sql('SELECT ahead, overdue, error FROM outbox_archive_status'), '2|0|', 'also in outbox_archive_status');

# --- a large one, as the file system makes its drop wait

my $today = q{(clock_timestamp() AT TIME ZONE 'UTC')::date};
clear_of_midnight(60);
$node->set('log_min_messages', 'debug1');
$offset = $node->log_end;
$node->sql(<<"SQL");
SELECT outbox_internal.outbox_archive_make_day($today - 3);
INSERT INTO outbox_archive (seq, id, route, event_type, body, created_at, attempts, published_at)
	SELECT i, outbox_uuid7(), 'default', 'large', decode(repeat('00', 1000000), 'hex'), now(), 0, now() - interval '3 days'
	FROM generate_series(1, 70) i
SQL
cmp_ok($node->sql('SELECT size FROM outbox_archive_status'), '>', 70e6, 'a large partition');
$node->sql('SELECT outbox_worker_restart()');
$node->wait_log(qr/outbox archive: dropped outbox_archive_dropping_\d+/, $offset);
my ($steps) = $node->log_text($offset) =~ /(outbox archive: detached .*)/s;
is(scalar(() = $steps =~ /outbox archive: shrunk outbox_archive_dropping_\d+/g), 4,
	'it leaves the archive and is cut down before it is dropped');
is($node->sql('SELECT overdue, dropping FROM outbox_archive_status'), '0|0', 'nothing is left of it');
$node->unset('log_min_messages');

# --- a tablespace, and routes

sub make_today_anew
{
	$node->hold_relay;
	$node->sql(<<'SQL');
DO $$
DECLARE
	part text;
BEGIN
	FOR part IN SELECT relname FROM pg_class WHERE relname ~ '^outbox_archive_p' AND relkind IN ('r', 'p')
		ORDER BY 1 DESC
	LOOP
		EXECUTE format('ALTER EXTENSION outbox DROP TABLE outbox_internal.%I', part);
		EXECUTE format('DROP TABLE outbox_internal.%I', part);
	END LOOP;
END
$$;
SQL
	$node->sql('SELECT outbox_worker_restart()');
	$node->test_point_over;
	return $node->wait_sql($parts, '0 1 2');
}

$node->sql(q{SET allow_in_place_tablespaces = on; CREATE TABLESPACE archive LOCATION ''});
$node->sql('ALTER TABLE outbox_archive SET TABLESPACE archive');
$node->sql(q{INSERT INTO outbox_route (name, retention) VALUES ('forgotten', '0'), ('kept', '10 days')});
make_today_anew();
is( $node->sql(q{SELECT string_agg(DISTINCT coalesce(t.spcname, '-'), ' ') FROM pg_class c LEFT JOIN pg_tablespace t ON t.oid = c.reltablespace
		WHERE c.relname ~ '^outbox_archive_p' AND c.relkind IN ('r', 'i')}),
	'archive', 'tables and their indexes are made in the tablespace of the archive');
$fake->begin_case;
$node->sql(q{SELECT outbox_enqueue('routed', '{}', route => r) FROM unnest(ARRAY['forgotten', 'default', 'kept']) r, generate_series(1, 20)});
$fake->wait_type('routed', 60);
$node->wait_drained;
is( $node->sql(q{SELECT string_agg(route || ' ' || n || ' ' || part, ', ' ORDER BY route) FROM (
		SELECT route, count(*) AS n, regexp_replace(tableoid::regclass::text, '.*_p\d{8}|_[0-9a-f]{8}$', '', 'g') AS part
		FROM outbox_archive WHERE event_type = 'routed' GROUP BY 1, 3) a}),
	'default 20 _rest, kept 20 _864000', 'a route without retention leaves nothing, others have their own partitions');
$node->set('outbox.retention', '0');
$node->sql(q{SELECT outbox_enqueue('routed', '{}', route => r) FROM unnest(ARRAY['forgotten', 'default', 'kept']) r, generate_series(1, 20)});
$node->wait_drained;
is( $node->sql(q{SELECT string_agg(route || ' ' || n, ', ' ORDER BY route) FROM (
		SELECT route, count(*) AS n FROM outbox_archive WHERE event_type = 'routed' GROUP BY 1) a}),
	'default 20, kept 40', 'also where all others keep nothing');

$node->stop;
done_testing();
