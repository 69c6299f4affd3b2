# outbox_route.max_pending and what the relay itself puts on a route: a replay is not refused,
# and counts.  What others enqueue: sql/route_cap.sql.
#
# suite: test
# takes: 3 s

use strict;
use warnings;

use Test::More;
use PostgreSQL::Test::Utils;
use OutboxTest::FakeBroker;
use OutboxTest::Node;
use OutboxTest::Util;

clear_of_midnight(30);
my $fake = OutboxTest::FakeBroker->start;
my $node = OutboxTest::Node->create(broker => $fake);

# Paused, so that what is there stays.
$node->sql(q{INSERT INTO outbox_route (name, max_pending, paused) VALUES ('roomy', 4, true), ('full', 1, true)});
# An INSERT by hand must not meet the relay that makes the first partitions.
$node->wait_sql(q{SELECT count(*) FROM pg_inherits WHERE inhparent = 'outbox_archive'::regclass}, '4');
$node->sql(q{INSERT INTO outbox_archive (seq, id, route, event_type, payload, created_at, attempts, published_at)
	SELECT nextval('outbox_seq_seq'), outbox_uuid7(), r, 'e', '1', now(), 0, now()
	FROM unnest(ARRAY['roomy', 'roomy', 'full']) r});
$node->sql("SELECT outbox_enqueue('e', '1', route => '$_')") foreach 'roomy', 'full';
$node->sql(q{SELECT outbox_replay('-infinity')});
$node->wait_sql('SELECT state, done, skipped FROM outbox_job', 'done|3|0');
is($node->sql(q{SELECT count(*) FROM outbox WHERE route = 'full'}), '2', 'a full route takes a replay');
is($node->sql_fails(q{SELECT outbox_enqueue('e', '1', route => 'roomy')}), undef, 'there is room for one more');
like($node->sql_fails(q{SELECT outbox_enqueue('e', '1', route => 'roomy')}) // 'stored', qr/route "roomy" is full/,
	'what was replayed counts');

$node->stop;
done_testing();
