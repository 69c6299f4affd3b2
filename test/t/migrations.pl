# doc/migrations.md, with what is in examples/migrations: tables of the other products as they
# document them are filled, moved and published by a real broker, and nothing is lost, doubled
# or out of order: amid writers, with a failure in the middle, twice side by side, and
# out again. What their own code has filled is test/clients/migrations.pl.
#
# suite: test
# takes: 15 s

use strict;
use warnings;

use IPC::Run ();
use JSON::PP ();
use POSIX ();
use Test::More;
use Time::HiRes qw(sleep);
use PostgreSQL::Test::Utils;
use OutboxTest::Client;
use OutboxTest::Node;
use OutboxTest::Rabbit;
use OutboxTest::Util;

my $rabbit = OutboxTest::Rabbit->start;
my $node = OutboxTest::Node->create(broker => $rabbit, extension => 0);

# psql -f of a script; a true value for what went well, and what it said.
sub script
{
	my ($db, $file, %variables) = @_;
	my ($out, $err) = ('', '');
	my $ok = IPC::Run::run(
		[
			$node->installed_command('psql'), '-XAtq', '-d', $node->connstr($db),
			(map { ('-v', "$_=$variables{$_}") } sort keys %variables), '-f', "examples/migrations/$file.sql"
		],
		'<', \undef, '>', \$out, '2>', \$err);
	note $err if $err ne '';
	return ($ok, $out, $err);
}

sub runs
{
	my ($db, $file, %variables) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	my ($ok, $out, $err) = script($db, $file, %variables);

	ok($ok, "$db: $file.sql") or diag $err;
	chomp $out;
	return $out;
}

# What it says when it refuses.
sub runs_not
{
	my ($db, $file, %variables) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	my ($ok, $out, $err) = script($db, $file, %variables);

	ok(!$ok, "$db: $file.sql refuses");
	return $err;
}

# A database with the extension, and a queue that gets all of an exchange.
sub database
{
	my ($db, @exchanges) = @_;
	my @words = map { ('exchange', @$_[ 0, 1 ], ',', 'bind', $db, $_->[0], '#', ',') } @exchanges;

	$node->sql("CREATE DATABASE $db");
	$node->sql('CREATE EXTENSION outbox', $db);
	$rabbit->amqp('queue', $db, ',', @words[ 0 .. $#words - 1 ]);
	return;
}

# All that has come, when everything is published.
sub arrived
{
	my ($db) = @_;
	$node->wait_sql(q{SELECT count(*) = 0 FROM outbox WHERE status = 'pending' AND available_at IS NULL}, 't', undef, $db);
	return $rabbit->get($db, 100_000);
}

# --- a hand-written outbox

database('polling', [ 'outbox', 'topic' ]);
$node->sql(<<'SQL', 'polling');
CREATE SCHEMA shop;
CREATE TABLE shop.outbox_events (
	id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
	aggregate_type text NOT NULL, aggregate_id text NOT NULL, event_name text NOT NULL, payload text NOT NULL,
	created_at timestamptz NOT NULL DEFAULT now(), processed_at timestamptz);
INSERT INTO shop.outbox_events (aggregate_type, aggregate_id, event_name, payload, processed_at)
SELECT 'order', 'old ' || n % 5, 'order.created', json_build_object('n', n), CASE WHEN n <= 20 THEN now() END
FROM generate_series(1, 220) n;
INSERT INTO shop.outbox_events (aggregate_type, aggregate_id, event_name, payload)
VALUES ('order', 'bad', repeat('x', 256), '{}'), ('order', 'bad', 'order.created', 'no JSON');
CREATE ROLE shop_app;
GRANT USAGE ON SCHEMA shop TO shop_app;
GRANT INSERT ON shop.outbox_events TO shop_app;
SQL
my %old = (old_table => 'shop.outbox_events', type => 'event_name');
runs('polling', 'polling', %old);
is($node->sql('SELECT count(*), count(*) FILTER (WHERE processed_at IS NULL) FROM shop.outbox_events', 'polling'),
	'222|202', 'to install changes nothing');
is($node->sql('SELECT old_id, error_code FROM outbox_from_polling.refused()', 'polling'),
	"221|22001\n222|22P02", 'what would be refused is told');

# Writers, each with a key of its own, who roll some of it back.
sub writer
{
	my ($n) = @_;
	my $pid = fork // die "fork: $!";
	return $pid if $pid;

	my $done = eval {
		my $client = OutboxTest::Client->connect($node->connstr('polling'));
		foreach my $round (1 .. 150)
		{
			$client->query('BEGIN');
			$client->query(q{INSERT INTO shop.outbox_events (aggregate_type, aggregate_id, event_name, payload)
				SELECT 'order', 'writer } . $n . q{', 'order.changed', '{}' FROM generate_series(1, 2)});
			$client->query($round % 10 == 0 ? 'ROLLBACK' : 'COMMIT');
			sleep 0.005;
		}
		1;
	};
	diag $@ unless $done;
	# Neither the test's plan nor its servers are this process's.
	POSIX::_exit($done ? 0 : 1);
}
my @writers = map { writer($_) } 1 .. 4;
$node->wait_sql(q{SELECT count(*) > 20 FROM shop.outbox_events WHERE aggregate_id LIKE 'writer%'}, 't', undef, 'polling');

my ($ok, undef, $err) = script('polling', 'move', chunk => 50);
ok(!$ok && $err =~ /event_type|type json/, 'a row that is refused ends it');
my ($left, $moved, undef, undef, undef, $missing) = split /\|/, runs('polling', 'check');
ok($left > 0 && $moved % 50 == 0 && $moved >= 150 && $missing == 0, 'in whole chunks') or diag "$left left, $moved moved, $missing missing";
$node->sql('DELETE FROM shop.outbox_events WHERE id IN (221, 222)', 'polling');

# two of them side by side
my @both = map {
	IPC::Run::start([ $node->installed_command('psql'), '-XAtq', '-d', $node->connstr('polling'), '-v', 'chunk=20', '-f', 'examples/migrations/move.sql' ],
		'<', \undef, '&>', \my $out)
} 1 .. 2;
ok((grep { $_->finish } @both) == 2, 'two move side by side');

# It gives up when writers keep it waiting, and is run again.
sub cut_over
{
	my ($db, %variables) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;

	ok(wait_until("$db: the cut-over", sub {
			return 1 if (script($db, 'cut-over', %variables))[0];
			note $node->sql('SELECT pid, state, wait_event_type, wait_event, pg_blocking_pids(pid), query FROM pg_stat_activity', $db);
			return 0;
		}), "$db: cut-over.sql");
	return;
}
cut_over('polling');
is($node->sql('SELECT count(*) FROM outbox_from_polling.pending', 'polling'), 0, 'nothing is left at the cut-over');
cut_over('polling');
runs('polling', 'move');
is(scalar(grep { waitpid $_, 0; $? != 0 } @writers), 0, 'no writer has met an error');
$node->sql(q{SET ROLE shop_app; INSERT INTO shop.outbox_events (aggregate_type, aggregate_id, event_name, payload)
	VALUES ('order', 'app', 'order.created', '{}')}, 'polling');
# an application that knows outbox already, and one that does not, with one event
$node->sql(q{SELECT outbox_pause(); BEGIN; INSERT INTO outbox (id, event_type, payload, aggregate_type, aggregate_id)
	SELECT outbox_from_polling.message_id('shop.outbox_events', last_value::text), 'order.created', '{}', 'order', 'both'
	FROM (SELECT last_value + 1 AS last_value FROM shop.outbox_events_id_seq) s;
	INSERT INTO shop.outbox_events (aggregate_type, aggregate_id, event_name, payload) VALUES ('order', 'both', 'order.created', '{}');
	COMMIT; SELECT outbox_resume()}, 'polling');

my @messages = arrived('polling');
my %old_id = map { $_->[1] => $_->[0] } $node->rows('SELECT old_id, message_id FROM outbox_from_polling.moved', 'polling');
my (%seen, %last, $disorder);
foreach my $message (@messages)
{
	my $id = $old_id{ $message->{message_id} } // die "an unknown message\n";
	my $key = $message->{headers}{aggregate_id};

	$seen{$id}++;
	$disorder .= " $key: $id" if $id <= ($last{$key} // 0);
	$last{$key} = $id;
}
my @due = map { $_->[0] } $node->rows('SELECT id FROM shop.outbox_events WHERE id > 20', 'polling');
is_deeply([ sort { $a <=> $b } keys %seen ], [ sort { $a <=> $b } @due ], 'every row that was not sent is published, and no other');
is(scalar(grep { $_ > 1 } values %seen), 0, 'none of them twice');
is($disorder, undef, 'in the order of each key');
is(runs('polling', 'check'), '0|' . @due . '|0|0|' . @due . '|0', 'what was there is what is published');

# a row that somebody makes unsent again is not published again
$node->sql('UPDATE shop.outbox_events SET processed_at = NULL WHERE id = 30', 'polling');
runs('polling', 'move');
is($node->sql('SELECT count(*) FROM outbox', 'polling'), 0, 'a row is moved once');

# back to the old relay
$node->sql('SELECT outbox_pause()', 'polling');
$node->sql(q{INSERT INTO shop.outbox_events (aggregate_type, aggregate_id, event_name, payload)
	SELECT 'order', 'back', 'order.created', '{}' FROM generate_series(1, 5)}, 'polling');
is(runs('polling', 'back-out'), "5\n0", 'what waits goes back');
is($node->sql('SELECT count(*) FROM shop.outbox_events WHERE processed_at IS NULL', 'polling'), 5, 'and is to be sent there');
$node->sql(q{INSERT INTO shop.outbox_events (aggregate_type, aggregate_id, event_name, payload) VALUES ('order', 'back', 'order.created', '{}')}, 'polling');
is($node->sql('SELECT count(*) FROM outbox', 'polling'), 0, 'nothing is forwarded any more');
# and once more
$node->sql('SELECT outbox_resume()', 'polling');
cut_over('polling');
is(scalar(arrived('polling')), 6, 'the second time');
is($node->sql_fails('DROP SCHEMA outbox_from_polling CASCADE', 'polling'), undef, 'the schema can be dropped');
is($node->sql_fails(q{SET ROLE shop_app; INSERT INTO shop.outbox_events (aggregate_type, aggregate_id, event_name, payload)
	VALUES ('order', 'app', 'order.created', '{}')}, 'polling'), undef, 'with the trigger');

# ids that are UUIDs, and rows that are deleted when they were sent
$node->sql(q{CREATE TABLE shop.events ("Id" uuid PRIMARY KEY, type text, key text, payload jsonb, "at" timestamp NOT NULL);
	INSERT INTO shop.events SELECT gen_random_uuid(), 'e', n::text, '{}', now() + n * interval '1 s' FROM generate_series(1, 10) n}, 'polling');
my $ids = $node->sql('SELECT string_agg("Id"::text, \' \' ORDER BY "at") FROM shop.events', 'polling');
runs('polling', 'polling', old_table => 'shop.events', id => 'Id', id_type => 'uuid', ready => 'true', deletes => 1, position => '"at"',
	aggregate_type => "'thing'", aggregate_id => "'one'", created_at => '"at"', headers => "jsonb_build_object('key', key)");
$node->sql('SELECT outbox_pause()', 'polling');
cut_over('polling');
is($node->sql('SELECT count(*) FROM shop.events', 'polling'), 0, 'rows are gone from the old table');
runs('polling', 'back-out');
is($node->sql('SELECT string_agg("Id"::text, \' \' ORDER BY "at") FROM shop.events', 'polling'), $ids, 'and are there again');
cut_over('polling');
$node->sql('SELECT outbox_resume()', 'polling');
is(join(' ', map { $_->{message_id} } arrived('polling')), $ids, 'their ids are those of the messages');

# --- pgmq (the tables of 1.5)

database('pgmq', [ 'outbox', 'topic' ]);
my $pgmq = <<'SQL';
CREATE SCHEMA pgmq;
CREATE TABLE pgmq.q_tasks (
	msg_id bigint PRIMARY KEY GENERATED ALWAYS AS IDENTITY, read_ct int DEFAULT 0 NOT NULL,
	enqueued_at timestamptz DEFAULT now() NOT NULL, vt timestamptz NOT NULL, message jsonb, headers jsonb);
CREATE FUNCTION pgmq.send(queue_name text, msg jsonb, headers jsonb, delay timestamptz) RETURNS SETOF bigint
LANGUAGE sql AS 'INSERT INTO pgmq.q_tasks (vt, message, headers) VALUES (delay, msg, headers) RETURNING msg_id';
SQL
$node->sql(<<"SQL", 'pgmq');
$pgmq
SELECT pgmq.send('tasks', jsonb_build_object('n', n), '{"h": 1}', now()) FROM generate_series(1, 3) n;
SELECT pgmq.send('tasks', '{"type": "later"}', NULL, now() + interval '1 hour');
UPDATE pgmq.q_tasks SET vt = now() + interval '1 hour', read_ct = 1 WHERE msg_id = 2;
SQL
$rabbit->amqp('queue', 'tasks');
runs('pgmq', 'pgmq', queue => 'tasks');
cut_over('pgmq', migration => 'outbox_from_pgmq');
is(runs('pgmq', 'check', migration => 'outbox_from_pgmq') =~ /^0\|3\|/, 1, 'what is being read stays');
is($node->sql('SELECT string_agg(msg_id::text, \' \') FROM pgmq.q_tasks', 'pgmq'), '2', 'in the queue');
is($node->sql(q{SELECT event_type, available_at > now() + interval '50 min' FROM outbox WHERE available_at IS NOT NULL}, 'pgmq'), 'later|t', 'a delay is kept');
$node->sql(q{UPDATE pgmq.q_tasks SET vt = now(); SELECT pgmq.send('tasks', '{"n": 5}', NULL, now())}, 'pgmq');
runs('pgmq', 'move', migration => 'outbox_from_pgmq');
$node->wait_sql(q{SELECT count(*) FROM outbox}, 1, undef, 'pgmq');
@messages = $rabbit->get('tasks', 100);
is(join(' ', sort map { $_->{body} =~ /(\d)/ } @messages), '1 2 3 5', 'in the queue of the same name');
is($messages[0]{headers}{h}, 1, 'with their headers');

# --- CAP

my $cap = <<'SQL';
CREATE SCHEMA cap;
CREATE TABLE cap.published (
	"Id" bigint PRIMARY KEY NOT NULL, "Version" varchar(20) NOT NULL, "Name" varchar(200) NOT NULL, "Content" text NULL,
	"Retries" int NOT NULL, "Added" timestamp NOT NULL, "ExpiresAt" timestamp NULL, "StatusName" varchar(50) NOT NULL);
SQL
database('cap', [ 'cap.default.router', 'topic' ]);
$node->sql(<<"SQL", 'cap');
$cap
CREATE FUNCTION content(id bigint, value text) RETURNS text LANGUAGE sql AS \$\$
	SELECT format('{"Headers":{"cap-callback-name":null,"cap-msg-id":"%s","cap-corr-id":"%1\$s","cap-corr-seq":"0","cap-msg-name":"order.created",'
		'"cap-msg-type":"Order","cap-senttime":"11/22/2026 08:30:00"},"Value":%s}', id, value)\$\$;
INSERT INTO cap.published VALUES
	(101, 'v1', 'order.created', content(101, '{"Id":7,"Total":12.50}'), 0, now(), NULL, 'Scheduled'),
	(102, 'v1', 'order.created', content(102, 'null'), 3, now(), NULL, 'Failed'),
	(103, 'v1', 'order.created', content(103, '{"Id":8}'), 0, now(), now() + interval '1 day', 'Succeeded'),
	(104, 'v1', 'order.created', content(104, '{"Id":9}'), 50, now(), now() + interval '15 day', 'Failed'),
	(105, 'v1', 'order.created', content(105, '{"Id":10}'), 0, now(), now() + interval '1 hour', 'Delayed');
SQL
runs('cap', 'cap');
runs('cap', 'move', migration => 'outbox_from_cap');
is($node->sql(q{SELECT string_agg("StatusName", ' ' ORDER BY "Id") FROM cap.published}, 'cap'),
	'Succeeded Succeeded Succeeded Failed Succeeded', 'CAP takes them for sent');
@messages = sort { $a->{headers}{'cap-msg-id'} <=> $b->{headers}{'cap-msg-id'} } arrived('cap');
is(join(' ', map { "$_->{headers}{'cap-msg-id'} $_->{routing_key} [$_->{body}]" } @messages),
	'101 order.created [{"Id": 7, "Total": 12.50}] 102 order.created []', 'what CAP had not sent');
is_deeply($messages[0]{headers},
	{
		'cap-callback-name' => undef, 'cap-msg-id' => '101', 'cap-corr-id' => '101', 'cap-corr-seq' => '0',
		'cap-msg-name' => 'order.created', 'cap-msg-type' => 'Order', 'cap-senttime' => '11/22/2026 08:30:00'
	}, 'with its headers');
is($node->sql('SELECT count(*) FROM outbox WHERE available_at > now()', 'cap'), 1, 'and what it was to send later, later');

# --- MassTransit

my $masstransit = <<'SQL';
CREATE TABLE "OutboxState" (
	"OutboxId" uuid PRIMARY KEY, "LockId" uuid NOT NULL, "RowVersion" bytea, "Created" timestamptz NOT NULL,
	"Delivered" timestamptz, "LastSequenceNumber" bigint);
CREATE TABLE "OutboxMessage" (
	"SequenceNumber" bigint GENERATED BY DEFAULT AS IDENTITY PRIMARY KEY, "EnqueueTime" timestamptz, "SentTime" timestamptz NOT NULL,
	"Headers" text, "Properties" text, "InboxMessageId" uuid, "InboxConsumerId" uuid, "OutboxId" uuid REFERENCES "OutboxState",
	"MessageId" uuid NOT NULL, "ContentType" varchar(256) NOT NULL, "MessageType" text NOT NULL, "Body" text NOT NULL,
	"ConversationId" uuid, "CorrelationId" uuid, "InitiatorId" uuid, "RequestId" uuid, "SourceAddress" varchar(256),
	"DestinationAddress" varchar(256), "ResponseAddress" varchar(256), "FaultAddress" varchar(256), "ExpirationTime" timestamptz);
SQL
database('masstransit', [ 'Shop:OrderPlaced', 'fanout' ], [ 'billing', 'fanout' ]);
$node->sql(<<"SQL", 'masstransit');
$masstransit
CREATE FUNCTION message(outbox uuid, id uuid, destination text, properties text, expires interval DEFAULT NULL) RETURNS void LANGUAGE sql AS \$\$
	INSERT INTO "OutboxMessage" ("SentTime", "Headers", "Properties", "OutboxId", "MessageId", "ContentType", "MessageType", "Body",
		"CorrelationId", "DestinationAddress", "ExpirationTime")
	SELECT now(), '{"MT-Activity-Id":"00-aa"}', properties, outbox, id, 'application/vnd.masstransit+json', 'urn:message:Shop:OrderPlaced;urn:message:Shop:IEvent',
		format('{"messageId":"%s","messageType":["urn:message:Shop:OrderPlaced"],"message":{"orderId":7}}', id), id, destination, now() + expires\$\$;
INSERT INTO "OutboxState" VALUES ('00000000-0000-0000-0000-0000000000aa', '00000000-0000-0000-0000-000000000000', NULL, now());
SELECT message('00000000-0000-0000-0000-0000000000aa', '00000000-0000-0000-0000-000000000001', 'rabbitmq://host:5672/vhost/Shop:OrderPlaced?durable=true', NULL, '1 hour'),
	message('00000000-0000-0000-0000-0000000000aa', '00000000-0000-0000-0000-000000000001', 'queue:billing', '{"RMQ-RoutingKey":"key","RMQ-Priority":3}');
SQL
runs('masstransit', 'masstransit');
# Of one MessageId, the first is published and gone when the second is moved.
is($node->sql('SELECT outbox_from_masstransit.move(1)', 'masstransit'), 1, 'the first row');
$node->wait_sql('SELECT count(*) FROM outbox', 0, undef, 'masstransit');
cut_over('masstransit', migration => 'outbox_from_masstransit');
$node->sql(q{SELECT message('00000000-0000-0000-0000-0000000000aa', '00000000-0000-0000-0000-000000000003', 'exchange:Shop:OrderPlaced', NULL)}, 'masstransit');
@messages = arrived('masstransit');
is(join(' ', map { "$_->{exchange}/$_->{routing_key}" } @messages), 'Shop:OrderPlaced/ billing/key Shop:OrderPlaced/', 'to the exchanges, in order');
my ($first, $second, $third) = @messages;
is_deeply([ @$first{qw(message_id content_type correlation_id delivery_mode)} ],
	[ '00000000-0000-0000-0000-000000000001', 'application/vnd.masstransit+json', '00000000-0000-0000-0000-000000000001', 2 ], 'the properties');
is($first->{headers}{'MT-Activity-Id'}, '00-aa', 'the headers');
is(JSON::PP::decode_json($first->{body})->{message}{orderId}, 7, 'the envelope as it was');
ok($first->{expiration} > 3_000_000 && $second->{priority} == 3 && $second->{message_id} ne $first->{message_id}, 'expiration, priority, one id for each');
is($third->{message_id}, '00000000-0000-0000-0000-000000000003', 'what was written after the cut-over');
is($third->{expiration}, undef, 'what does not expire with MassTransit does not with us');

# --- pg_amqp

database('pg_amqp', [ 'orders', 'topic' ]);
runs('pg_amqp', 'pg_amqp');
$node->sql(q{SELECT amqp.add_exchange(1, 'orders'); CREATE ROLE amqp_app;
	GRANT EXECUTE ON FUNCTION outbox_enqueue_bytes TO amqp_app}, 'pg_amqp');
is($node->sql(q{SET ROLE amqp_app; SELECT amqp.publish(1, 'orders', 'order.created', '{"id": 1}', 2, 'application/json', 'replies', 'c-1');
	BEGIN; SELECT amqp.publish(1, 'orders', 'rolled.back', 'x'); ROLLBACK;
	SELECT amqp.publish(1, 'orders', 'order.created', 'zwei', 1), amqp.exchange_declare(1, 'orders', 'topic', false, true), amqp.exchange_declare(1, 'no', 'topic', true, true),
		amqp.disconnect(1), amqp.publish(NULL, 'orders', 'k', 'x')}, 'pg_amqp'), "t\nt\nt|t|f||f", 'the results of pg_amqp');
like($node->sql_fails(q{SELECT amqp.publish(2, 'orders', 'k', 'x')}, 'pg_amqp'), qr/no route for exchange "orders" of broker 2.*SELECT amqp\.add_exchange\(2, 'orders'\)/s, 'an unknown broker');
like($node->sql_fails(q{SELECT amqp.autonomous_publish(1, 'orders', 'k', 'x')}, 'pg_amqp'), qr/whether or not its transaction commits/, 'autonomous_publish()');
like($node->sql_fails(q{SELECT amqp.exchange_declare(1, 'gone', 'topic', false, false)}, 'pg_amqp'), qr/would not outlive the broker/, 'an exchange that is not durable');
like($node->sql_fails(q{SET ROLE amqp_app; SELECT amqp.exchange_declare(1, 'new', 'topic', false, true)}, 'pg_amqp'), qr/permission denied/, 'an application makes no routes');
@messages = arrived('pg_amqp');
is_deeply([ map { [ @$_{qw(exchange routing_key body delivery_mode content_type reply_to correlation_id)} ] } @messages ],
	[
		[ 'orders', 'order.created', '{"id": 1}', 2, 'application/json', 'replies', 'c-1' ],
		[ 'orders', 'order.created', 'zwei', 2, 'application/octet-stream', undef, undef ]
	], 'what pg_amqp would have sent, persistent');

# --- out again

$node->sql(q{ALTER DATABASE polling SET outbox.enabled = off}, 'polling');
$node->sql(<<"SQL", 'polling');
$pgmq
$cap
$masstransit
CREATE TABLE outbox_events (id bigint GENERATED ALWAYS AS IDENTITY, aggregate_type text, aggregate_id text, type text, payload jsonb,
	created_at timestamptz, processed_at timestamptz);
INSERT INTO outbox_route (name, exchange) VALUES ('to_pgmq', 'x'), ('to_cap', 'x'), ('to_masstransit', 'Shop:OrderPlaced');
SELECT outbox_pause();
SELECT outbox_enqueue('e' || n % 10, jsonb_build_object('n', n), 'order', (n % 3)::text, route => r)
FROM unnest('{default,to_pgmq,to_cap,to_masstransit}'::text[]) r, generate_series(1, 25) n;
INSERT INTO outbox (event_type, payload, aggregate_type, aggregate_id, status) VALUES ('gave up', '{"n": 26}', 'order', '1', 'failed');
SQL
$node->sql(q{SELECT outbox_enqueue_bytes('bytes', '\x00', route => r) FROM unnest('{default,to_pgmq,to_cap}'::text[]) r}, 'polling');
foreach my $way ([ table => 'default' ], [ pgmq => 'to_pgmq', queue => 'tasks' ], [ cap => 'to_cap' ])
{
	my ($script, $route, @more) = @$way;
	my $before = $node->sql('SELECT count(*) FROM outbox', 'polling');
	like(runs_not('polling', "leave-$script", route => $route, @more), qr/has messages of bytes/, "leave-$script does not lose bytes");
	is($node->sql('SELECT count(*) FROM outbox', 'polling'), $before, 'nothing was removed');
}
$node->sql(q{SELECT outbox_discard(id) FROM outbox WHERE event_type = 'bytes'}, 'polling');
is((split /\n/, runs('polling', 'leave-table', chunk => 10))[-1], 0, 'nothing is left');
is($node->sql(q{SELECT string_agg(payload ->> 'n', ' ' ORDER BY id) FROM outbox_events}, 'polling'), join(' ', 1 .. 26), 'a table of one\'s own has it all, in order');
runs('polling', 'leave-table', chunk => 10);
is($node->sql('SELECT count(*) FROM outbox_events', 'polling'), 26, 'once');
runs('polling', 'leave-pgmq', route => 'to_pgmq', queue => 'tasks');
is($node->sql(q{SELECT string_agg(message ->> 'n', ' ' ORDER BY msg_id), count(headers ->> 'message_id') FROM pgmq.q_tasks}, 'polling'), join(' ', 1 .. 25) . '|25', 'a queue of pgmq');
runs('polling', 'leave-cap', route => 'to_cap');
is($node->sql(q{SELECT string_agg("Content"::jsonb -> 'Value' ->> 'n', ' ' ORDER BY "Id"), bool_and("Content"::jsonb -> 'Headers' ->> 'cap-msg-id' = "Id"::text AND "Content"::jsonb -> 'Headers' ->> 'cap-msg-name' = "Name")
	FROM cap.published}, 'polling'), join(' ', 1 .. 25) . '|t', 'CAP');
runs('polling', 'leave-masstransit', route => 'to_masstransit');
is($node->sql(q{SELECT string_agg("Body"::jsonb -> 'message' ->> 'n', ' ' ORDER BY "SequenceNumber"), count(DISTINCT "OutboxId"), min("DestinationAddress") FROM "OutboxMessage" JOIN "OutboxState" USING ("OutboxId")}, 'polling'),
	join(' ', 1 .. 25) . '|1|exchange:Shop:OrderPlaced', 'MassTransit');
is($node->sql('SELECT count(*) FROM outbox', 'polling'), 0, 'outbox is empty');
is($node->sql_fails('DROP SCHEMA IF EXISTS outbox_from_polling CASCADE; DROP EXTENSION outbox', 'polling'), undef, 'and can be dropped');

done_testing();
