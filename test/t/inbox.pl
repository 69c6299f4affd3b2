# A consumer with the inbox is killed 20 times in mid-work, and loses
# acknowledgements: every message has its effect once.  The extension and its rows
# survive a dump.  What accepting costs beside an INSERT by hand.
#
# suite: test faults
# takes: 20 s

use strict;
use warnings;

use IPC::Run ();
use List::Util qw(min);
use Test::More;
use Time::HiRes ();
use PostgreSQL::Test::Utils;
use OutboxTest::Node;
use OutboxTest::Rabbit;
use OutboxTest::Util;

my $KILLS = 20;
# Measured 3 to 5 on an idle machine, 8 beside other tests.
my $MAX_TIMES = 16;
my $PER_KILL = $ENV{OUTBOX_TEST_FULL} ? 500 : 50;
my $COUNT = $KILLS * $PER_KILL;

my $rabbit = OutboxTest::Rabbit->start;
my $node = OutboxTest::Node->create(broker => $rabbit);

# The consumer's own, without a relay.
my $db = 'notifications';
$node->sql("CREATE DATABASE $db");
$node->sql('CREATE EXTENSION outbox_inbox', $db);
$node->sql('CREATE TABLE effect (message_id uuid NOT NULL)', $db);
$node->sql('CREATE TABLE seen_again (message_id uuid NOT NULL)', $db);
$rabbit->amqp('exchange', 'outbox', 'topic');
$rabbit->amqp('queue', 'work');
$rabbit->amqp('bind', 'work', 'outbox', '#');

sub start_consumer
{
	return IPC::Run::start(
		[ 'test/tools/inbox-consumer', $node->connstr($db), $rabbit->port, 'work' ],
		'>>', "$PostgreSQL::Test::Utils::log_path/inbox_consumer.log", '2>&1');
}

# --- killed in mid-work

my $consumer = start_consumer();
foreach my $i (1 .. $KILLS)
{
	$node->sql(qq{SELECT count(outbox_enqueue('inbox.test', '{}', 'order', (n % 20)::text))
		FROM generate_series(1, $PER_KILL) n});
	# some of these, and it is killed amid the others
	my $done = $i * $PER_KILL - 7 * $i % $PER_KILL;
	wait_until("effects before kill $i", sub { $node->sql('SELECT count(*) FROM effect', $db) >= $done });
	$consumer->signal('KILL');
	$consumer->finish;
	$consumer = start_consumer();
}
$node->wait_drained;
$node->wait_sql('SELECT count(DISTINCT message_id) FROM effect', $COUNT, undef, $db);
wait_until('the queue is empty', sub { $rabbit->depth('work') == 0 });
$consumer->signal('KILL');
$consumer->finish;
unlike(slurp_file("$PostgreSQL::Test::Utils::log_path/inbox_consumer.log"), qr/Traceback|Error/, 'the consumer has met no error');
is($node->sql('SELECT count(*), count(DISTINCT message_id) FROM effect', $db), "$COUNT|$COUNT",
	"$KILLS kills: each of $COUNT messages had its effect, once");
cmp_ok($node->sql('SELECT count(*) FROM seen_again', $db), '>', 0, 'and some were delivered again');
note('delivered again: ' . $node->sql('SELECT count(*) FROM seen_again', $db));

# --- dumped and restored

$node->sql(q{SELECT outbox_inbox_set_retention('9 days')}, $db);
my $dump = $node->basedir . '/inbox.sql';
$node->sql('CREATE DATABASE restored');
command_ok([ 'pg_dump', '-d', $node->connstr($db), '-f', $dump ], 'the database is dumped');
command_ok([ 'psql', '-X', '-q', '-v', 'ON_ERROR_STOP=1', '-d', $node->connstr('restored'), '-f', $dump ],
	'and restored');
is($node->sql('SELECT count(*) FROM outbox_inbox', 'restored'), $COUNT, 'with what was accepted');
is($node->sql(q{SELECT count(*) FROM effect WHERE outbox_inbox_accept('test', message_id)}, 'restored'), 0,
	'which is accepted no more');
is($node->sql('SELECT outbox_inbox_internal.outbox_inbox_retention()', 'restored'), '9 days', 'and how long it is kept');
my ($of_schema) = run_command([ 'pg_dump', '-d', $node->connstr($db), '-n', 'public', '-e', 'outbox_inbox', '--data-only' ]);
is(scalar(() = $of_schema =~ /^[0-9a-f-]{36}\ttest\t/mg), $COUNT, 'a dump of the chosen schema and the extension has what was accepted');

# --- beside an INSERT by hand

$node->sql('CREATE TABLE by_hand (message_id uuid PRIMARY KEY)', $db);
sub seconds
{
	my ($sql) = @_;
	my $start = Time::HiRes::time();
	$node->sql("DO \$\$ BEGIN FOR i IN 1 .. 2000 LOOP $sql; END LOOP; END \$\$", $db);
	return Time::HiRes::time() - $start;
}
# In turns, as others use the machine; the best of each counts.
my (@hand, @inbox);
my $times = best_of($MAX_TIMES, sub {
	push @hand, seconds('INSERT INTO by_hand VALUES (gen_random_uuid()) ON CONFLICT DO NOTHING');
	push @inbox, seconds(q{PERFORM outbox_inbox_accept('cost', gen_random_uuid())});
	return min(@inbox) / min(@hand);
});
cmp_ok($times, '<', $MAX_TIMES, sprintf 'outbox_inbox_accept(): %.1f times of INSERT ... ON CONFLICT, without their commits', $times);
is($node->sql(q{SELECT count(*) FROM by_hand}, $db), 2000 * @hand, 'each INSERT by hand was one');
is($node->sql(q{SELECT count(*) FROM outbox_inbox WHERE consumer = 'cost'}, $db), 2000 * @inbox, 'and so was each call');

done_testing();
