# One row that cannot be read (bytes outside of the encoding, a lost TOAST chunk) in a backlog
# of many keys: it is set aside and named, everything else goes out, and later messages of its
# key follow on_failed.  doc/dev/fault-cases.md M4.
#
# suite: test faults
# takes: 8 s

use strict;
use warnings;

use Test::More;
use PostgreSQL::Test::Utils;
use OutboxTest::Checker;
use OutboxTest::FakeBroker;
use OutboxTest::Node;
use OutboxTest::States;
use OutboxTest::Util;

my $fake = OutboxTest::FakeBroker->start;
# SQL_ASCII takes any bytes, so that a row can have those that are no UTF-8.
my $node = OutboxTest::Node->create(
	broker => $fake,
	extra => [ '-E', 'SQL_ASCII' ],
	conf => <<'END');
outbox.window = 100
outbox.workers = 2
outbox.retry_initial = 10ms
outbox.retry_max = 100ms
autovacuum = off
ignore_checksum_failure = on
END
my $checker = OutboxTest::Checker->install($node);
my $unreadable = q{SELECT count(*) FROM outbox_problems WHERE problem = 'message unreadable'};

$node->sql(<<'SQL');
CREATE EXTENSION pg_surgery;
ALTER TABLE outbox ALTER payload SET STORAGE EXTERNAL;
INSERT INTO outbox_route (name, exchange, on_failed) VALUES ('skips', 'outbox', 'skip'), ('blocks', 'outbox', 'block');

/* A message with a payload out of line, whose chunks are killed; returns the payload that it had. */
CREATE FUNCTION test_lose_chunk(message uuid) RETURNS jsonb LANGUAGE plpgsql AS $$
DECLARE
	old jsonb := (SELECT payload FROM outbox WHERE id = message);
	toast regclass := (SELECT reltoastrelid FROM pg_class WHERE oid = 'outbox'::regclass);
	before oid[];
	chunks tid[];
BEGIN
	PERFORM set_config('session_replication_role', 'replica', true);
	EXECUTE format('SELECT array_agg(DISTINCT chunk_id) FROM %s', toast) INTO before;
	UPDATE outbox SET payload = old || jsonb_build_object('pad', repeat('y', 5000)) WHERE id = message;
	EXECUTE format('SELECT array_agg(ctid) FROM %s WHERE chunk_id <> ALL ($1)', toast)
		INTO chunks USING coalesce(before, '{}');
	EXECUTE format('SELECT heap_force_kill(%L, $1)', toast) USING chunks;
	RETURN old;
END
$$;

CREATE FUNCTION test_spoil_bytes(message uuid) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
	PERFORM set_config('session_replication_role', 'replica', true);
	UPDATE outbox SET event_type = E'bad\xff' WHERE id = message;
END
$$;

/* The 8th message of that key of a route. */
CREATE FUNCTION test_middle(route text, key text) RETURNS uuid LANGUAGE sql AS
	'SELECT id FROM outbox o WHERE o.route = $1 AND aggregate_id = $2 ORDER BY seq OFFSET 7 LIMIT 1';
CREATE TABLE damaged (route text, what text, id uuid, old jsonb);
SQL

# Sets the size in each pointer into that TOAST table to the most that its field holds; those of the dead rows do not matter.
sub spoil_size
{
	my ($file, $toast) = @_;
	my $bytes = slurp_file($file);
	my $oid = pack 'L', $toast;
	$bytes =~ s/(\x01\x12.{4}).{4}(.{4}\Q$oid\E)/$1 . pack('L', 0x3fffffff) . $2/gse or die 'no pointer';
	open my $out, '>:raw', $file or die $!;
	print {$out} $bytes;
	close $out or die $!;
	return;
}

# --- two rows of each route, in a backlog

$node->sql('SELECT outbox_pause()');
$checker->enqueue(300, keys => 20, route => $_, per_tx => 1000) foreach qw(skips blocks default);
$node->sql($_) foreach map { (
	"INSERT INTO damaged SELECT '$_', 'chunk', id, test_lose_chunk(id) FROM test_middle('$_', 'k3') id",
	"INSERT INTO damaged SELECT '$_', 'bytes', id FROM test_middle('$_', 'k7') id, test_spoil_bytes(id)") } qw(skips blocks);
like($node->sql_fails(q{SELECT length(o.payload::text) FROM outbox o JOIN damaged d USING (id) WHERE what = 'chunk'}),
	qr/missing chunk|unexpected chunk/, 'a chunk is lost');
my $places = q{SELECT d.route, d.what, o.ctid, o.xmin, o.attempts, o.status FROM damaged d JOIN outbox o USING (id) ORDER BY 1, 2};
my $before = $node->sql($places);
my $log = $node->log_end;
$node->sql('SELECT outbox_resume()');

my $left = q{SELECT string_agg(concat_ws(' ', route, aggregate_id, n), ', ' ORDER BY route, aggregate_id)
	FROM (SELECT route, aggregate_id, count(*) AS n FROM outbox GROUP BY 1, 2) o};
ok($node->wait_sql($left, 'blocks k3 8, blocks k7 8, skips k3 1, skips k7 1'),
	'all but the unreadable rows goes out, and what is behind them on the route that blocks')
  or diag $node->sql($left), $node->sql('SELECT problem, subject, detail FROM outbox_problems');
is($node->sql($places), $before, 'nobody has written to them');
ok($node->wait_sql($unreadable, 4), 'each is a problem row');
is($node->sql(q{SELECT count(*) FROM damaged d JOIN outbox o USING (id)
		JOIN outbox_problems p ON p.problem = 'message unreadable' AND p.severity = 'critical'
			AND p.subject = 'message ' || o.id AND p.command = format('SELECT public.outbox_discard(%L::uuid)', o.id)
			AND p.detail ~ CASE d.what WHEN 'chunk' THEN '^seq ' || o.seq || ': (missing|unexpected) chunk .* \(XX001\)$'
				ELSE '^seq ' || o.seq || ': invalid byte sequence for encoding "UTF8": 0xff \(22021\)$' END}),
	4, 'which names id, seq and error, and how to discard it');
is($node->sql(q{SELECT count(*) FROM outbox_problems WHERE problem IN ('trigger or constraint', 'data damaged', 'key held')}),
	0, 'and nothing else is said of it');
ok($node->wait_sql('SELECT state FROM outbox_status', 'idle'), 'the relay works');
my @told = $node->log_text($log) =~ /relay has set aside message (\S+?),/g;
is(scalar(@told), 4, 'the log tells of each once');

# --- what comes later

$checker->enqueue(200, keys => 20, route => $_, per_tx => 20) foreach qw(skips blocks default);
ok($node->wait_sql($left, 'blocks k3 18, blocks k7 18, skips k3 1, skips k7 1'), 'later messages: the same')
  or diag $node->sql($left);

# Other news, reloads and a new worker: it is asked again, and set aside again.
$node->sql(q{SELECT outbox_enqueue('x', '{}', available_at => now() + interval '1 hour')});
$node->sql(q{DELETE FROM outbox WHERE event_type = 'x'});
$node->sql(q{UPDATE outbox_route SET max_attempts = 7 WHERE name = 'default'});
$node->reload;
$node->sql('SELECT outbox_worker_restart()');
$checker->enqueue(20, keys => 20, route => 'blocks');
ok($node->wait_sql($left, 'blocks k3 19, blocks k7 19, skips k3 1, skips k7 1') && $node->wait_sql($unreadable, 4),
	'after a restart: the same') or diag $node->sql($left);
is($node->sql($places), $before, 'nobody has written to them');

# --- a change of on_failed

$node->sql(q{UPDATE outbox_route SET on_failed = 'block' WHERE name = 'skips'});
$checker->enqueue(20, keys => 20, route => 'skips');
ok($node->wait_sql($left, 'blocks k3 19, blocks k7 19, skips k3 2, skips k7 2'), 'skip becomes block: later messages wait')
  or diag $node->sql($left);
$node->sql(q{UPDATE outbox_route SET on_failed = 'skip' WHERE name = 'skips'});
ok($node->wait_sql($left, 'blocks k3 19, blocks k7 19, skips k3 1, skips k7 1'), 'block becomes skip: they go on')
  or diag $node->sql($left);

# --- repaired and discarded

$node->sql(q{UPDATE outbox o SET event_type = 'test.event' FROM damaged d WHERE o.id = d.id AND d.what = 'bytes' AND d.route = 'blocks'});
ok($node->wait_sql($left, 'blocks k3 19, skips k3 1, skips k7 1'), 'bytes are corrected: its key goes on')
  or diag $node->sql($left);
$node->sql(q{UPDATE outbox o SET payload = d.old FROM damaged d WHERE o.id = d.id AND d.what = 'chunk' AND d.route = 'blocks'});
ok($node->wait_sql($left, 'skips k3 1, skips k7 1'), 'the payload is given again: its key goes on') or diag $node->sql($left);
is($node->sql(q{SELECT outbox_discard_messages('lost', 'pending', ids => ARRAY(SELECT id FROM damaged WHERE route = 'skips' AND what = 'chunk'))}),
	1, 'a row with a lost chunk is discarded');
$node->sql(q{DELETE FROM outbox o USING damaged d WHERE o.id = d.id});
ok($node->wait_sql($unreadable, 0), 'no problem is left');
$node->sql(q{DELETE FROM test_sent s USING damaged d WHERE s.id = d.id AND d.route = 'skips'});

# --- scheduled messages and retries, and the first of a key

$node->sql('SELECT outbox_pause()');
$checker->enqueue(60, keys => 20, route => $_) foreach qw(skips blocks);
$node->sql(<<'SQL');
TRUNCATE damaged;
INSERT INTO damaged SELECT o.route, 'bytes', o.id
	FROM (SELECT DISTINCT ON (route) route, id FROM outbox WHERE aggregate_id = 'k5' ORDER BY route, seq) o, test_spoil_bytes(o.id);
SET session_replication_role = replica;
UPDATE outbox o SET attempts = 1, available_at = now() FROM damaged d WHERE o.id = d.id;
-- In this order: the worker of before has heard of no retry.
SELECT outbox_worker_restart();
SELECT outbox_resume();
SQL
ok($node->wait_sql($left, 'blocks k5 3, skips k5 1') && $node->wait_sql($unreadable, 2), 'a retry cannot be read: the same')
  or diag $node->sql($left);
paste_problem($node, 'message unreadable');
is($node->sql('SELECT count(*) FROM damaged d JOIN outbox o USING (id)'), 0, 'they are discarded');
ok($node->wait_drained && $node->wait_sql($unreadable, 0), 'the rest goes on');
$node->sql(q{DELETE FROM test_sent s USING damaged d WHERE s.id = d.id});

# --- more than a worker remembers

$node->sql('SELECT outbox_pause()');
$checker->enqueue(400, keys => 200, route => 'skips', per_tx => 400);
$node->sql(<<'SQL');
TRUNCATE damaged;
INSERT INTO damaged SELECT 'skips', 'bytes', o.id FROM (SELECT DISTINCT ON (aggregate_id) id FROM outbox ORDER BY aggregate_id, seq) o, test_spoil_bytes(o.id);
SELECT outbox_resume();
SQL
ok($node->wait_sql(q{SELECT count(*) FROM outbox_problems WHERE problem = 'message unreadable' AND subject ~ '^worker [01]$' AND detail ~ '^message [-0-9a-f]+, seq \d+: invalid byte'}, 2),
	'too many: publishing stops, and the problem says so') or diag $node->sql('SELECT problem, subject, detail FROM outbox_problems');
is($node->sql('SELECT DISTINCT reason, sqlstate FROM outbox_workers'), 'message unreadable|22021', 'and so does outbox_workers');
like($node->sql($unreadable), qr/^\d\d$/, 'not all have a row');
$node->sql(q{SELECT outbox_discard_messages('spoilt', 'pending', ids => ARRAY(SELECT id FROM damaged))});
ok($node->wait_drained && $node->wait_sql($unreadable, 0), 'until they are discarded');
$node->sql(q{DELETE FROM test_sent s USING damaged d WHERE s.id = d.id});

# --- a damaged row of which the server does not say that it is damaged: more than it allocates

$node->sql('SELECT outbox_pause()');
my $big = $node->sql(q{SELECT outbox_enqueue('big', to_jsonb(repeat('y', 5000)), route => 'skips')});
my ($path, $toast) = split /\|/, $node->sql(q{SELECT pg_relation_filepath(oid), reltoastrelid FROM pg_class WHERE oid = 'outbox'::regclass});
$node->stop;
spoil_size($node->data_dir . "/$path", $toast);
$node->start;
$checker->enqueue(20, keys => 20, route => 'skips');
$node->sql('SELECT outbox_resume()');
ok($node->wait_sql(q{SELECT count(*) FROM outbox}, 1), 'a size that cannot be allocated: all but the row goes out');
like($node->sql(q{SELECT detail FROM outbox_problems WHERE problem = 'message unreadable'}), qr/invalid memory alloc request size/,
	'and it is a problem row');
$node->sql("SELECT outbox_discard('$big')");
ok($node->wait_sql($unreadable, 0), 'until it is discarded');

# --- a column of a table whose name is no UTF-8

my $capture = 'CREATE TRIGGER t AFTER INSERT ON named FOR EACH ROW EXECUTE FUNCTION outbox_capture';
$node->sql(q{DO $$ BEGIN EXECUTE E'CREATE TABLE named (id int PRIMARY KEY, "c\xe9" text)'; END $$});
like($node->sql_fails("$capture()"), qr/cannot be in the payload of a message.*by the argument 'except="c\xe9"' of trigger "t"/s,
	'outbox_capture() names it, and the way out');
is( $node->sql(qq{BEGIN;
		DO \$\$ BEGIN EXECUTE E'$capture(''except="c\\xe9"'')'; END \$\$;
		INSERT INTO named VALUES (1);
		SELECT payload FROM outbox;
		ROLLBACK}),
	'{"id": 1}',
	'which works');

# Waits for outbox_worker_restart() have no copies: nothing was in flight.
$checker->check('M4: rows that cannot be read', [ $fake->published ]);
$node->stop;
done_testing();
