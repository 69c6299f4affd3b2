# The five tests that the literature on the outbox pattern asks of every
# implementation.
#
# suite: test core

use strict;
use warnings;

use IPC::Run ();
use JSON::PP ();
use Test::More;
use PostgreSQL::Test::Utils;
use OutboxTest::Checker;
use OutboxTest::Consumer;
use OutboxTest::Node;
use OutboxTest::Rabbit;
use OutboxTest::Util;

my $rabbit = OutboxTest::Rabbit->start;
my $node = OutboxTest::Node->create(
	broker => $rabbit,
	conf => <<'END');
outbox.retry_initial = 50ms
outbox.retry_max = 500ms
END
my $checker = OutboxTest::Checker->install($node);
my $consumer = OutboxTest::Consumer->start($rabbit, exchange => 'outbox');

$node->sql(<<'SQL');
CREATE TABLE orders (
	id int PRIMARY KEY, amount bigint NOT NULL CHECK (amount > 0),
	status text NOT NULL DEFAULT 'created');
CREATE FUNCTION create_order(id int, amount bigint) RETURNS uuid
LANGUAGE sql AS $$
	INSERT INTO orders VALUES (id, amount);
	SELECT outbox_enqueue('order.created',
		jsonb_build_object('id', id, 'amount', amount),
		aggregate_id => id::text, aggregate_type => 'order')
$$;
SQL

# What was enqueued earlier has gone before this one has arrived: no message has
# a key that could hold it back.
sub wait_marker
{
	my $id =
	  $node->sql(q{SELECT outbox_enqueue('test.marker', '{"marker": true}')});
	return wait_until('marker arrives', sub { $consumer->copies($id) });
}

# --- 1: business row and message are written together or not at all

my $id = $node->sql('SELECT create_order(1, 1999)');
wait_until('first message arrives', sub { $consumer->copies($id) });
my ($record) = $consumer->copies($id);
is($record->{body}, '{"id": 1, "amount": 1999}',
	'1: the message has the payload that was enqueued');
is($record->{aggregate_id}, '1', '1: and the id of its aggregate');
is($record->{aggregate_type}, 'order', '1: and its type');
$node->wait_drained;
is( $node->sql(
		'SELECT o.id, o.amount, m.aggregate_id, m.payload, m.status, m.attempts'
		  . " FROM orders o JOIN outbox_messages m ON m.id = '$id'"),
	'1|1999|1|{"id": 1, "amount": 1999}|published|0',
	'1: a commit leaves the business row, and the message as published');

$node->sql('BEGIN; SELECT create_order(2, 100); ROLLBACK');
like($node->sql_fails('SELECT create_order(3, 0)'),
	qr/check constraint/, '1: a business row that is refused is an error');
like(
	$node->sql_fails(
		q{BEGIN; INSERT INTO orders VALUES (4, 5);
		  SELECT outbox_enqueue('', '{}', aggregate_id => '4'); COMMIT}),
	qr/event_type/,
	'1: a message that is refused is an error');
like(
	$node->sql_fails(
		'BEGIN; SELECT create_order(5, 100); INSERT INTO orders VALUES (5, 1); COMMIT'
	),
	qr/duplicate key/,
	'1: an error after the message was enqueued');
wait_marker();
$node->wait_drained;
is($node->sql('SELECT string_agg(id::text, $$,$$) FROM orders'),
	'1', '1: no business row remains of any transaction that failed');
is($node->sql(q{SELECT count(*) FROM outbox_messages
				WHERE aggregate_id IN ('2', '3', '4', '5')}),
	'0', '1: and no message');
is(scalar(grep { ($_->{aggregate_id} // '') =~ /^[2-5]$/ } $consumer->records),
	0, '1: and none was sent');

# --- 2: the gap between two writes, shown naively and closed

my $session = $node->session;

# publish, then roll back
$session->query_safe('BEGIN; INSERT INTO orders VALUES (10, 100)');
$rabbit->amqp('publish', 'outbox', 'order.created', '{"id": 10}');
$session->query_safe('ROLLBACK');
wait_until('ghost arrives',
	sub { grep { $_->{body} eq '{"id": 10}' } $consumer->records });
is($node->sql('SELECT count(*) FROM orders WHERE id = 10'),
	'0', '2: naively: an event without an order');

# commit, then die before publishing
sub die_after
{
	my ($sql) = @_;
	my $app = $node->session;
	$app->query_safe($sql);
	my $pid = $app->{run}{KIDS}[0]{PID};
	kill 'KILL', $pid;
	eval { $app->{run}->finish };
	return;
}
die_after('INSERT INTO orders VALUES (11, 100)');
is($node->sql('SELECT count(*) FROM orders WHERE id = 11'),
	'1', '2: naively: an order');
wait_marker();
is(scalar(grep { $_->{body} =~ /"id": 11/ } $consumer->records),
	0, '2: naively: without an event');

# the same with the outbox
$session->query_safe('BEGIN; SELECT create_order(12, 100)');
$session->query_safe('ROLLBACK');
die_after('BEGIN; SELECT create_order(13, 100)');
die_after('SELECT create_order(14, 100)');
wait_until('message of the dead application arrives',
	sub { grep { $_->{body} =~ /"id": 14/ } $consumer->records });
wait_marker();
is(scalar(grep { $_->{body} =~ /"id": 1[23]/ } $consumer->records),
	0, '2: outbox: no event without an order, after rollback and crash');
is($node->sql('SELECT string_agg(id::text, $$,$$) FROM orders WHERE id > 11'),
	'14', '2: outbox: and no order without an event');
is(scalar(grep { $_->{body} =~ /"id": 14/ } $consumer->records),
	1, '2: outbox: an application that dies after its commit loses nothing');
$session->quit;
$node->wait_drained;

# --- 3: concurrent claimers over the same rows

$node->set('outbox.enabled', 'off');
$node->wait_sql('SELECT state FROM outbox_status', 'disabled');
$node->sql('CREATE TABLE claimed (seq bigint, pid int)');
$node->sql('CREATE UNLOGGED TABLE starter ()');
$node->sql('SELECT test_enqueue(2000)');
my $starter = $node->session;
$starter->query_safe('BEGIN; LOCK starter');
my @claimers = map {
	IPC::Run::start(
		[
			'psql', '-XAtq', '-v', 'ON_ERROR_STOP=1', '-d',
			$node->connstr('postgres'), '-c', 'SELECT FROM starter', '-c', <<'SQL'
DO $$
DECLARE
	n int;
BEGIN
	LOOP
		WITH claim AS (
			SELECT seq FROM outbox
			WHERE status = 'pending' AND available_at IS NULL AND seq > 0
			ORDER BY seq LIMIT 20 FOR UPDATE SKIP LOCKED),
		settled AS (DELETE FROM outbox o USING claim c WHERE o.seq = c.seq)
		INSERT INTO claimed SELECT seq, pg_backend_pid() FROM claim;
		GET DIAGNOSTICS n = ROW_COUNT;
		COMMIT;
		PERFORM pg_sleep(0.001);
		-- others may still hold rows that they give back
		EXIT WHEN n = 0 AND NOT EXISTS (SELECT FROM outbox);
	END LOOP;
END
$$
SQL
		],
		'<', \undef, '>', \my $out, '2>', \my $err)
} 1 .. 4;
$node->wait_sql(
	q{SELECT count(*) FROM pg_locks WHERE relation = 'starter'::regclass AND NOT granted},
	'4');
$starter->quit;
ok($_->finish, '3: a claimer ends without an error') foreach @claimers;
is( $node->sql('SELECT count(*), count(DISTINCT seq) FROM claimed'),
	'2000|2000',
	'3: concurrent claimers never take a row twice and take all together');
cmp_ok($node->sql('SELECT count(DISTINCT pid) FROM claimed'),
	'>', 1, '3: and more than one of them had some');
note $node->sql(
	'SELECT string_agg(n::text, $$, $$) FROM (SELECT count(*) n FROM claimed GROUP BY pid) x'
);
$consumer->stop;

# the relay itself, with three workers
$node->sql('TRUNCATE test_sent');
$node->set('outbox.workers', 3);
$consumer = OutboxTest::Consumer->start($rabbit, exchange => 'outbox');
$checker->enqueue(3000, keys => 100);
$checker->enqueue(3000);
$node->set('outbox.enabled', 'on');
$node->wait_sql('SELECT count(pid) FROM outbox_workers', '3');
$checker->enqueue(2000, keys => 100);
$consumer->wait_count(8000, 60);
$node->wait_drained;
$checker->check('3: three workers', [ $consumer->stop ], interruptions => 0);
my @published = split /\n/,
  $node->sql('SELECT published FROM outbox_workers ORDER BY worker');
is(scalar(grep { $_ > 0 } @published),
	3, '3: each of the three workers has published some');
note "published: @published";
$node->unset('outbox.workers');
$node->wait_sql('SELECT count(pid) FROM outbox_workers', '1');

# --- 4: end to end, every property and every type of header

my $look = $node->basedir . '/look.py';
PostgreSQL::Test::Utils::append_to_file($look, <<'PYTHON');
"""Takes n messages from a queue; prints every property, header by header with
the type tag that it had on the wire."""
import json
import struct
import sys

import pika
import pika.data

tags = []
decode_value = pika.data.decode_value


def recording(encoded, offset):
    tag = encoded[offset:offset + 1]
    tags.append(tag.decode())
    # pika makes these two an integer, and an integer without a sign
    if tag == b"d":
        return struct.unpack_from(">d", encoded, offset + 1)[0], offset + 9
    if tag == b"l":
        return struct.unpack_from(">q", encoded, offset + 1)[0], offset + 9
    return decode_value(encoded, offset)


pika.data.decode_value = recording
connection = pika.BlockingConnection(pika.ConnectionParameters(
    "127.0.0.1", int(sys.argv[1])))
channel = connection.channel()
for _ in range(int(sys.argv[3])):
    tags.clear()
    method, properties, body = channel.basic_get(sys.argv[2], auto_ack=True)
    seen = {key: value for key, value in vars(properties).items()
            if value is not None}
    seen["tags"] = "".join(sorted(tags))
    seen["exchange"] = method.exchange
    seen["routing_key"] = method.routing_key
    seen["body_hex"] = body.hex()
    print(json.dumps(seen, sort_keys=True))
PYTHON

sub look
{
	my ($queue, $n) = @_;
	my ($out, $err) = ('', '');
	wait_until("$n messages in $queue", sub { $rabbit->depth($queue) >= $n });
	IPC::Run::run([ '/usr/bin/python3', $look, $rabbit->port, $queue, $n ],
		'<', \undef, '>', \$out, '2>', \$err)
	  or die $err;
	my $json = JSON::PP->new->allow_nonref;
	return map { $json->decode($_) } split /\n/, $out;
}

$rabbit->amqp('queue', 'look', ',', 'bind', 'look', 'outbox', 'look.#');
$id = $node->sql(<<'SQL');
SELECT outbox_enqueue('look.all', '{"text": "Grüße", "n": 1.50, "deep": [1, {"a": null}]}',
	aggregate_id => 'A-1', aggregate_type => 'thing',
	headers => '{"string": "süß", "empty": "", "yes": true, "no": false,
		"int": 42, "negative": -9007199254740993, "big": 9223372036854775807,
		"double": 1.5, "huge": 1e300, "beyond": 9223372036854775808,
		"null": null, "array": [1, "two", 3.5, null, [true]],
		"object": {"a": {"b": 1}},
		"traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
		"tracestate": "vendor=1"}',
	properties => '{"content_encoding": "identity", "correlation_id": "c-1",
		"reply_to": "answers", "priority": 7, "expiration": "600000",
		"type": "look.type", "app_id": "shop"}')
SQL
my ($m) = look('look', 1);
my $sent_at = $node->sql("SELECT created_at FROM outbox_messages WHERE id = '$id'");
is($m->{message_id}, $id, '4: message_id is the id that enqueue returned');
is($m->{type}, 'look.type', '4: type, as the properties ask for');
is($m->{content_type}, 'application/json', '4: content_type of a payload');
is($m->{delivery_mode}, 2, '4: persistent');
is($m->{content_encoding}, 'identity', '4: content_encoding');
is($m->{correlation_id}, 'c-1', '4: correlation_id');
is($m->{reply_to}, 'answers', '4: reply_to');
is($m->{priority}, 7, '4: priority');
is($m->{expiration}, '600000', '4: expiration');
is($m->{app_id}, 'shop', '4: app_id');
is($m->{user_id}, undef, '4: no user_id');
is($m->{exchange}, 'outbox', '4: exchange of the route');
is($m->{routing_key}, 'look.all', '4: routing key is the event type');
is( $node->sql(
		"SELECT extract(epoch FROM date_trunc('second', '$sent_at'::timestamptz))::bigint"
	),
	$m->{timestamp},
	'4: timestamp is created_at in seconds');
is( pack('H*', $m->{body_hex}),
	$node->sql(
		q{SELECT '{"text": "Grüße", "n": 1.50, "deep": [1, {"a": null}]}'::jsonb}),
	'4: body is the payload, as jsonb prints it, in UTF-8');
my $h = $m->{headers};
is($h->{string}, "s\x{fc}\x{df}", '4: header string, in UTF-8');
is($h->{empty}, '', '4: header empty string');
ok(JSON::PP::is_bool($h->{yes}) && $h->{yes}, '4: header true');
ok(JSON::PP::is_bool($h->{no}) && !$h->{no}, '4: header false');
is("$h->{int}", '42', '4: header integer');
is("$h->{negative}", '-9007199254740993', '4: header integer of 64 bits');
is("$h->{big}", '9223372036854775807', '4: header greatest integer');
is($h->{double}, 1.5, '4: header double');
is($h->{huge}, 1e300, '4: header huge number');
cmp_ok($h->{beyond}, '==', 9223372036854775808.0,
	'4: header integer beyond 64 bits is a double');
ok(exists $h->{null} && !defined $h->{null}, '4: header null');
is_deeply($h->{array}, [ 1, 'two', 3.5, undef, [JSON::PP::true] ],
	'4: header array');
is_deeply($h->{object}, { a => { b => 1 } }, '4: header object');
is( $h->{traceparent},
	'00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01',
	'4: traceparent is an ordinary header');
is($h->{tracestate}, 'vendor=1', '4: tracestate too');
is($h->{aggregate_id}, 'A-1', '4: header aggregate_id');
is($h->{aggregate_type}, 'thing', '4: header aggregate_type');
is($m->{tags}, join('', sort qw(S S t t l l l d d d V), 'A', qw(l S d V A t),
		qw(F F l), qw(S S), qw(S S)),
	'4: types on the wire: S, t, l, d, V, A, F');

$id = $node->sql(
	q{SELECT outbox_enqueue_bytes('look.bytes', '\x00ff0a80', routing_key => 'look.here')}
);
my $id2 = $node->sql(
	q{SELECT outbox_enqueue_bytes('look.bytes', 'abc', content_type => 'text/plain')});
my $big = $node->sql(<<'SQL');
SELECT outbox_enqueue_bytes('look.big',
	convert_to(repeat('0123456789', 50000), 'UTF8'))
SQL
my $empty = $node->sql(q{SELECT outbox_enqueue_bytes('look.empty', '')});
my %m = map { $_->{message_id} => $_ } look('look', 4);
is($m{$id}{body_hex}, '00ff0a80', '4: bytes arrive as they are');
is($m{$id}{content_type}, 'application/octet-stream',
	'4: content_type of bytes');
is($m{$id}{routing_key}, 'look.here', '4: routing key of the message');
is($m{$id}{type}, 'look.bytes', '4: type is the event type');
is($m{$id}{delivery_mode}, 2, '4: bytes are persistent, too');
is($m{$id}{priority}, undef, '4: no property that nobody asked for');
is($m{$id2}{content_type}, 'text/plain', '4: content_type of the argument');
is($m{$big}{body_hex}, unpack('H*', '0123456789' x 50000),
	'4: half a megabyte arrives in several frames, unharmed');
is($m{$empty}{body_hex}, '', '4: an empty body');

$node->sql($_) foreach (
	'CREATE TABLE captured (id integer PRIMARY KEY, n numeric)',
	q{CREATE TRIGGER events AFTER INSERT OR UPDATE OR DELETE ON captured
		FOR EACH ROW EXECUTE FUNCTION outbox_capture('event=look.row', 'headers=op')},
	'INSERT INTO captured VALUES (7, 1.50)', 'UPDATE captured SET n = 2', 'DELETE FROM captured');
is_deeply([ map { [ $_->{type}, $_->{headers}{op}, pack('H*', $_->{body_hex}) ] } look('look', 3) ],
	[
		[ 'look.row.inserted', 'INSERT', '{"n": 1.50, "id": 7}' ],
		[ 'look.row.updated', 'UPDATE', '{"n": 2, "id": 7}' ],
		[ 'look.row.deleted', 'DELETE', '{"n": 2, "id": 7}' ]
	],
	'4: changes of a table arrive as messages, in their order');

# --- 5: a publish failure is visible, recoverable, and harms nobody

$node->sql(<<'SQL');
INSERT INTO outbox_route (name, exchange, exchange_type, max_attempts)
	VALUES ('lonely', 'lonely', 'topic', 3);
SQL
$id = $node->sql(<<'SQL');
WITH o AS (INSERT INTO orders VALUES (20, 77) RETURNING id)
SELECT outbox_enqueue('order.created', jsonb_build_object('id', id),
	aggregate_id => id::text, route => 'lonely') FROM o
SQL
$node->wait_sql("SELECT status, attempts FROM outbox WHERE id = '$id'",
	'failed|3');
like(
	$node->sql("SELECT last_error FROM outbox_failed WHERE id = '$id'"),
	qr/312.*NO_ROUTE/,
	'5: the failure is visible, with the reason in the words of the broker');
is( $node->sql("SELECT status, attempts FROM outbox_messages WHERE id = '$id'"),
	'failed|3', '5: with status and attempts');
is($node->sql('SELECT failed FROM outbox_status'),
	'1', '5: and in outbox_status');
is($node->sql('SELECT * FROM orders WHERE id = 20'),
	'20|77|created', '5: the business row is untouched');
$rabbit->amqp('queue', 'found', ',', 'bind', 'found', 'lonely', '#');
is($node->sql("SELECT outbox_requeue('$id')"), 't', '5: it can be requeued');
my ($found) = look('found', 1);
is($found->{message_id}, $id, '5: and arrives after the fix');
$node->wait_sql("SELECT status FROM outbox_messages WHERE id = '$id'",
	'published');
is($node->sql('SELECT failed, backlog FROM outbox_status'),
	'0|0', '5: nothing remains of the failure');
is($node->sql('SELECT * FROM orders WHERE id = 20'),
	'20|77|created', '5: the business row is still untouched');

done_testing();
