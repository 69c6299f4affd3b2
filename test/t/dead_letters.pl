# Dead letters: what is given up goes to the failed_route of its route.
#
# suite: test
# takes: 12 s

use strict;
use warnings;

use Test::More;
use OutboxTest::Node;
use OutboxTest::Rabbit;
use OutboxTest::Util;

my $rabbit = OutboxTest::Rabbit->start(conf => "max_message_size = 65536\n");
my $node = OutboxTest::Node->create(
	broker => $rabbit,
	conf => <<'END');
outbox.retry_initial = 50ms
outbox.retry_max = 100ms
END

sub enqueue
{
	my ($route, $event_type, $more) = @_;
	return $node->sql("SELECT outbox_enqueue('$event_type', '{\"n\": 1}', route => '$route'"
		  . (defined $more ? ", $more" : '') . ')');
}

# The next message of a queue, when it is there.
sub arrives
{
	my ($what, $queue) = @_;
	wait_until("$what: arrives", sub { $rabbit->depth($queue) > 0 });
	my ($message) = $rabbit->get($queue);
	return $message;
}

# The newest death, without its time, which is looked at.
sub death
{
	my ($message) = @_;
	my %death = %{ $message->{headers}{'x-outbox-death'}[0] };
	like(delete $death{time}, qr/^20\d\d-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$/, 'its time');
	return \%death;
}

# A queue of dead letters on the default exchange, as with x-dead-letter-routing-key, and
# an exchange for them that keeps what was the routing key.
$rabbit->amqp('queue', 'graves', ',', 'queue', 'graveyard', ',', 'exchange', 'dlx', 'topic',
	',', 'bind', 'graveyard', 'dlx', '#');
$rabbit->amqp('queue', 'full', 'x-max-length=1', 'x-overflow=reject-publish',
	',', 'publish', '', 'full', 'x');
$node->sql(<<'SQL');
INSERT INTO outbox_route (name, exchange, exchange_type, routing_key, max_attempts, on_failed, failed_route) VALUES
	('graves', '', NULL, 'graves', 1, 'skip', NULL),
	('dlx', 'dlx', 'topic', '{event_type}', 1, 'skip', NULL),
	('lonely', 'lonely', 'topic', '{event_type}', 3, 'block', 'graves'),
	('full', '', NULL, 'full', 2, 'skip', 'dlx'),
	('lost', 'lonely', NULL, 'lost', 1, 'skip', NULL),
	('chain', 'lonely', NULL, 'chain', 1, 'skip', 'link'),
	('link', 'lonely', NULL, 'link', 1, 'skip', 'graves'),
	('nowhere', 'lonely', NULL, 'k', 1, 'skip', 'lost')
SQL

# --- returned: after the last attempt, with what it was

my $id = enqueue('lonely', 'order.placed',
	q{aggregate_type => 'order', aggregate_id => '7', routing_key => 'of.its.own', headers => '{"h": "x"}'});
my $later = enqueue('lonely', 'order.paid', q{aggregate_type => 'order', aggregate_id => '7'});
my $message = arrives('returned', 'graves');
is($message->{message_id}, $id, 'returned: the same message');
is($message->{headers}{h}, 'x', 'returned: with its headers');
is($message->{headers}{aggregate_id}, '7', 'returned: and its key');
my $death = death($message);
like(delete $death->{error}, qr/312.*NO_ROUTE/, 'returned: the words of the broker');
is_deeply($death,
	{ reason => 'returned', route => 'lonely', exchange => 'lonely',
		'routing-key' => 'of.its.own', attempts => 3 },
	'returned: the reason in the header');
is(arrives('the later one of its key', 'graves')->{message_id}, $later,
	'returned: on_failed = block does not hold the key, as nothing of it has failed');
$node->wait_drained;
like($rabbit->ctl('-q', 'list_exchanges', 'name', 'durable'), qr/^lonely\s+true$/m,
	'an exchange that the relay has declared is durable');
is($node->sql('SELECT count(*) FROM outbox'), '0', 'returned: nothing is left');
is($node->sql("SELECT route, attempts, routing_key IS NULL, aggregate_id FROM outbox_archive WHERE id = '$id'"),
	'graves|0|t|7', 'returned: published on its failed route');

# --- nacked

$id = enqueue('full', 'mail.sent');
$message = arrives('nacked', 'graveyard');
is($message->{message_id}, $id, 'nacked: goes to its failed route');
is($message->{routing_key}, 'mail.sent', 'nacked: by the template of that');
$death = death($message);
like(delete $death->{error}, qr/basic\.nack/, 'nacked: the reason');
is_deeply($death,
	{ reason => 'rejected', route => 'full', exchange => '', 'routing-key' => 'full',
		attempts => 2 }, 'nacked: what it was');

# --- a chain: the newest death comes first

$id = enqueue('chain', 'e');
$message = arrives('a chain', 'graves');
is(join(' ', map { "$_->{route}:$_->{'routing-key'}" } @{ $message->{headers}{'x-outbox-death'} }),
	'link:link chain:chain', 'a chain of failed routes: the newest death is the first');

# --- given up there, too: it is failed, and stays

$id = enqueue('nowhere', 'e');
$node->wait_sql("SELECT status FROM outbox WHERE id = '$id'", 'failed');
is($node->sql("SELECT route, attempts, headers #>> '{x-outbox-death,0,route}' FROM outbox WHERE id = '$id'"),
	'lost|1|nowhere', 'given up on the failed route: failed there');
$node->sql("SELECT outbox_discard('$id')");

# --- larger than the broker takes: at the first attempt; nor does it take it there

$id = $node->sql(
	q{SELECT outbox_enqueue_bytes('big', convert_to(repeat('x', 70000), 'UTF8'), route => 'lonely')});
$node->wait_sql("SELECT status FROM outbox WHERE id = '$id'", 'failed');
is($node->sql("SELECT route, attempts, headers #>> '{x-outbox-death,0,reason}', headers #>> '{x-outbox-death,0,attempts}' FROM outbox WHERE id = '$id'"),
	'graves|1|rejected|1', 'too large: given up once, and on the failed route once more');
$node->sql("SELECT outbox_discard('$id')");

# --- no room in the headers: failed where it is, with a note

$id = enqueue('chain', 'e', q{headers => jsonb_build_object('h', repeat('x', 130700))});
$node->wait_sql("SELECT status FROM outbox WHERE id = '$id'", 'failed');
my ($row) = $node->rows("SELECT route, last_error, headers ? 'x-outbox-death', last_error_reason FROM outbox WHERE id = '$id'");
is($row->[0], 'chain', 'no room for the reason: failed where it is');
like($row->[1], qr/NO_ROUTE.*\(not sent to the failed_route, as its headers have no room for the reason\)$/,
	'no room for the reason: said in last_error');
is($row->[2], 'f', 'no room for the reason: its headers are as they were');
is($row->[3], 'unroutable', 'no room for the reason: the row keeps why it was refused');
$node->sql("SELECT outbox_discard('$id')");

# --- a failed route that is paused: it waits there, and its key goes on

$rabbit->amqp('queue', 'ok', ',', 'bind', 'ok', 'lonely', 'ok');
$node->sql(q{UPDATE outbox_route SET paused = true WHERE name = 'graves'});
$id = enqueue('lonely', 'bad', q{aggregate_id => 'p'});
$node->wait_sql("SELECT route, status FROM outbox WHERE id = '$id'", 'graves|pending');
$later = enqueue('lonely', 'ok', q{aggregate_id => 'p'});
is(arrives('paused', 'ok')->{message_id}, $later, 'a paused failed route steps aside with its messages');
$node->sql(q{SELECT outbox_resume('graves')});
is(arrives('resumed', 'graves')->{message_id}, $id, 'and sends them when it is resumed');
$node->wait_drained;

# --- the messages of a key keep their order, and so do its dead letters, on their route

$node->sql(<<'SQL');
INSERT INTO outbox_route (name, exchange, routing_key, max_attempts, failed_route)
VALUES ('mixed', '', '{event_type}', 1, 'graves');
SELECT outbox_enqueue(CASE WHEN i % 7 = 0 THEN 'no.such.queue' ELSE 'graves' END, to_jsonb(i),
	aggregate_type => 'k', aggregate_id => (i % 3)::text, route => 'mixed')
FROM generate_series(1, 300) i
SQL
$node->wait_drained;
my %last;
my $back = 0;
my $dead = 0;
my @graves = $rabbit->get('graves', 301);
is(scalar @graves, 300, 'in the midst of others: all of them arrive');
foreach my $got (@graves)
{
	my $is_dead = exists $got->{headers}{'x-outbox-death'};
	my $key = ($is_dead ? 'dead ' : '') . $got->{headers}{aggregate_id};
	my $n = $got->{body};

	$back++ if $n < ($last{$key} // 0);
	$dead++ if $is_dead;
	$last{$key} = $n;
}
is($dead, 42, 'in the midst of others: those that no queue takes go to the failed route');
is($back, 0, 'in the midst of others: the order of each key is kept');
is($node->sql('SELECT count(*) FROM outbox'), '0', 'in the midst of others: none is left');

# --- a trigger that takes the route away is an error, and crashes nothing

$node->sql(<<'SQL');
CREATE FUNCTION take_route() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN NEW.route := NULL; RETURN NEW; END';
CREATE TRIGGER added BEFORE UPDATE OF route ON outbox FOR EACH ROW EXECUTE FUNCTION take_route();
SQL
$id = enqueue('mixed', 'no.such.queue');
$node->wait_sql(q{SELECT detail FROM outbox_problems}, 'route must not be null');
$node->sql('DROP FUNCTION take_route CASCADE');
is(arrives('without the trigger', 'graves')->{message_id}, $id, 'a trigger has taken the route away: it goes when that is dropped');

done_testing();
