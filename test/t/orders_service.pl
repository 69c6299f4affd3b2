# examples/orders as services: orders over HTTP, readiness with the relay's state, and a
# consumer that tries again what it cannot process, and then puts it aside.
#
# suite: test
# takes: 9 s

use strict;
use warnings;

use HTTP::Tiny;
use IPC::Run ();
use JSON::PP;
use Test::More;
use PostgreSQL::Test::Utils;
use OutboxTest::Node;
use OutboxTest::Rabbit;
use OutboxTest::Util;

my $here = 'examples/orders';
my $python = '/usr/bin/python3';
my $rabbit = OutboxTest::Rabbit->start;
my $node = OutboxTest::Node->create(broker => $rabbit,
	conf => "outbox.retry_initial = 100ms\noutbox.retry_max = 200ms\n");
$node->sql('CREATE DATABASE notifications');
$node->sql($_) foreach slurp_file("$here/shop.sql");
$node->sql(slurp_file("$here/notifications.sql"), 'notifications');

my $dsn = sprintf 'host=%s port=%s', $node->host, $node->port;
my (@running, %output);

# What they say is not to fill a pipe.
sub listen_to
{
	foreach my $running (@running)
	{
		$running->pump_nb if $running->pumpable;
	}
	return;
}

sub run_python
{
	my ($name, @args) = @_;
	my $out = \($output{$name} = '');
	push @running, IPC::Run::start([ $python, '-u', "$here/$name.py", @args ], '>', $out, '2>', $out);
	my $running = $running[-1];
	wait_until("$name is ready", sub { listen_to(); $$out =~ /ready/ })
	  or diag $$out;
	return $running;
}

END
{
	local $?;
	$_->kill_kill foreach grep { $_ } @running;
}

my ($service) = run_python('order_service', "$dsn dbname=postgres user=shop", 0, '--max-age', 60);
my ($port) = $output{order_service} =~ /port (\d+)/;
my ($consumer) = run_python('consumer', "$dsn dbname=notifications user=postgres",
	sprintf('amqp://guest:guest@127.0.0.1:%d/%%2f', $rabbit->port));
my $http = HTTP::Tiny->new(timeout => 60);

sub http
{
	my ($method, $path, $body, %headers) = @_;
	listen_to();
	my $got = $http->request($method, "http://127.0.0.1:$port$path",
		{ headers => \%headers, defined $body ? (content => $body) : () });
	return ($got->{status}, eval { decode_json($got->{content}) } // $got->{content}, $got->{headers});
}

sub notified
{
	my ($order_id) = @_;
	return $node->sql("SELECT count(*) FROM notifications WHERE order_id = '$order_id'", 'notifications');
}

# --- orders

my ($status, $order, $headers) = http('POST', '/orders', '{"customer": "Ada", "amount": 4200}');
is($status, 201, 'an order is created');
is("$order->{customer} $order->{amount} $order->{status}", 'Ada 4200 new', 'and answered');
is($headers->{location}, "/orders/$order->{id}", 'with its place');
is_deeply([ (http('GET', $headers->{location}))[ 0, 1 ] ], [ 200, $order ], 'where it is');
wait_until('the customer is thanked', sub { notified($order->{id}) == 1 });

my $key = '0191c2d3-0000-7000-8000-00000000000a';
is((http('POST', '/orders', '{"customer": "Bob", "amount": 1}', 'Idempotency-Key' => $key))[0], 201, 'with a key');
is((http('POST', '/orders', '{"customer": "Bob", "amount": 1}', 'Idempotency-Key' => $key))[0], 200, 'the same once more');
is((http('POST', '/orders', '{"customer": "Bob", "amount": 2}', 'Idempotency-Key' => $key))[0], 409, 'another one with the key');
is($node->sql("SELECT count(*) FROM outbox_messages WHERE aggregate_id = '$key'"), 1, 'one event');

foreach my $bad ('', '{', '[]', '{}', '{"customer": "", "amount": 1}', '{"customer": "A", "amount": "1"}',
	'{"customer": "A", "amount": 0}', '{"customer": "A", "amount": 9223372036854775808}', '{"customer": "a\u0000", "amount": 1}')
{
	my ($refused, $why) = http('POST', '/orders', $bad);
	ok($refused == 400 && $why->{error}, "refused: '$bad'") or diag explain $why;
}
is((http('POST', '/orders', '{"customer": "A", "amount": 1}', 'Idempotency-Key' => 'x'))[0], 400, 'refused: a key that is no UUID');
is((http('GET', '/orders/x'))[0], 400, 'refused: an id that is no UUID');
is((http('GET', '/orders/0191c2d3-0000-7000-8000-00000000000b'))[0], 404, 'no such order');
is((http('GET', '/'))[0], 404, 'no such page');
is((http('GET', '/healthz'))[0], 200, 'healthy');

# --- readiness

wait_until('ready', sub { (http('GET', '/readyz'))[1]{status} eq 'ok' });
$rabbit->stop;
$node->wait_sql('SELECT state FROM outbox_status', 'broker down');
($status, $order) = http('POST', '/orders', '{"customer": "Carl", "amount": 1}');
is($status, 201, 'broker down: orders are taken');
my ($ready, $why) = http('GET', '/readyz');
is("$ready $why->{status} $why->{relay}{state} $why->{relay}{backlog}", '200 degraded broker down 1', 'broker down: ready, and said');
$node->sql(q{UPDATE outbox SET created_at = now() - interval '2 minutes'});
($ready, $why) = http('GET', '/readyz');
is("$ready $why->{status}", '503 late', 'not ready, when events wait for too long');
$rabbit->restart;
wait_until('the event comes', sub { listen_to(); notified($order->{id}) == 1 }, 60);
$node->stop('immediate');
is((http('POST', '/orders', '{"customer": "Dora", "amount": 1}'))[0], 503, 'database down: the client may try again');
is((http('GET', '/readyz'))[0], 503, 'database down: not ready');
is((http('GET', '/healthz'))[0], 200, 'database down: but healthy');
$node->start;
wait_until('ready again', sub { (http('GET', '/readyz'))[1]{status} eq 'ok' });

# --- what the consumer cannot process

my $poison = $node->sql(q{SELECT outbox_enqueue('order.created', '{"order_id": "x"}')});
my $wrong = $node->sql(q{SELECT outbox_enqueue('order.created', '{"order_id": "x", "customer": "E", "amount": 1}')});
($status, $order) = http('POST', '/orders', '{"customer": "Edsger", "amount": 1}');
wait_until('others are not held up', sub { listen_to(); notified($order->{id}) == 1 }, 60);
wait_until('put aside', sub { listen_to(); $rabbit->depth('notifications.dead') == 2 }, 60);
my %dead = map { $_->{message_id} => $_ } $rabbit->get('notifications.dead', 2);
like($dead{$poison}{headers}{'x-reason'}, qr/KeyError/, 'with the reason: what it is not');
like($dead{$wrong}{headers}{'x-reason'}, qr/invalid input syntax for type uuid/, 'with the reason: what the database says');
my ($death) = grep { $_->{queue} eq 'notifications' } @{ $dead{$poison}{headers}{'x-death'} };
is($death->{count}, 2, 'after three tries');
is($rabbit->depth('notifications') + $rabbit->depth('notifications.retry'), 0, 'nothing is left behind');

foreach my $running ($service, $consumer)
{
	$running->signal('TERM');
	$running->finish;
	is(($running->full_results)[0], 0, 'ends by SIGTERM');
}
@running = ();
done_testing();
