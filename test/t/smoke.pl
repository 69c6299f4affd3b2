# Do the servers that the other tests build on work at all?
#
# suite: test

use strict;
use warnings;

use Test::More;
use PostgreSQL::Test::Utils;
use OutboxTest::Consumer;
use OutboxTest::Node;
use OutboxTest::Rabbit;
use OutboxTest::Util;

my $rabbit = OutboxTest::Rabbit->start;
like($rabbit->uri, qr/^amqp:/, 'broker started');
cmp_ok($rabbit->port, '<', 30000,
	'its port is not one that the kernel may give to a client');

# broker, consumer and tools, without PostgreSQL
my $consumer = OutboxTest::Consumer->start($rabbit, exchange => 'smoke');
$rabbit->amqp('publish', 'smoke', 'a.b', "tab\tand \\ backslash");
$consumer->wait_count(1);
my ($record) = $consumer->stop;
is($record->{key}, 'a.b', 'routing key arrives');
is($record->{body}, "tab\tand \\ backslash", 'body arrives unchanged');

$rabbit->amqp(split / /, 'queue kept , bind kept smoke , publish smoke c.d body');
$rabbit->kill9;
$rabbit->restart;
is($rabbit->depth('kept'), 1, 'a persistent message survives a killed broker');
my ($message) = $rabbit->get('kept');
is($message->{body}, 'body', 'and comes out with its body');
is($message->{delivery_mode}, 2, 'and its properties');

# PostgreSQL, as yet without the extension
my $node = OutboxTest::Node->create(
	broker => $rabbit,
	preload => 0,
	extension => 0);
is($node->sql('SELECT 1'), '1', 'server answers');
is($node->sql('SHOW fsync'), 'on', 'with fsync on');
is($node->sql('SHOW listen_addresses'), '', 'and no TCP port');
my $pid = $node->postmaster_pid;
$node->crash;
ok(!OutboxTest::Node::alive($pid), 'crash leaves no postmaster');
$node->start;
is($node->sql('SELECT 1'), '1', 'server is back after a crash');

# and with it
$node->append_conf('postgresql.conf', <<"END");
shared_preload_libraries = 'outbox'
outbox.broker_uri = '${\ $rabbit->uri}'
END
$node->restart;
$node->sql('CREATE EXTENSION outbox');
$consumer = OutboxTest::Consumer->start($rabbit,
	queue => 'events',
	exchange => 'outbox');
my $id = $node->sql(q{SELECT outbox_enqueue('smoke.event', '{"a": 1}')});
like($id, qr/^[0-9a-f-]{36}$/, 'a message can be enqueued');
$consumer->wait_count(1);
($record) = $consumer->stop;
is($record->{id}, $id, 'and arrives');
$node->wait_drained;

done_testing();
