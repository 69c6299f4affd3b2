# An outage of the broker is not a failure of a message: all are delivered after
# it, no attempt is counted, none becomes failed, few come twice.
#
# OUTBOX_TEST_FULL=1: 100,000 messages and an outage of 20 s.
#
# suite: test core faults
# takes: 36 s

use strict;
use warnings;

use Test::More;
use Time::HiRes qw(time);
use PostgreSQL::Test::Utils;
use OutboxTest::Checker;
use OutboxTest::Consumer;
use OutboxTest::Node;
use OutboxTest::Rabbit;
use OutboxTest::Util;

my $full = $ENV{OUTBOX_TEST_FULL};
my $total = $full ? 100_000 : 20_000;
my $outage = $full ? 20 : 5;
my $window = 1000;

my $rabbit = OutboxTest::Rabbit->start;
my $node = OutboxTest::Node->create(
	broker => $rabbit,
	conf => <<"END");
outbox.window = $window
outbox.retry_max = 2s
END
my $checker = OutboxTest::Checker->install($node);
my $state = 'SELECT state FROM outbox_status';

# --- the broker stops half way

$node->set('outbox.enabled', 'off');
$node->wait_sql($state, 'disabled');
$checker->enqueue($total / 2, keys => 1000, per_tx => 5000);
$checker->enqueue($total / 2, per_tx => 5000);
my $consumer = OutboxTest::Consumer->start($rabbit, exchange => 'outbox');
$node->set('outbox.enabled', 'on');
# not what has come: a slow consumer sees it when all is sent
$node->wait_sql("SELECT count(*) < $total * 2 / 3 FROM outbox", 't', 120);
my $offset = $node->log_end;
my $reconnects = $node->sql('SELECT reconnects FROM outbox_workers');
$rabbit->kill9;
my $down_at = time;
my $left = $node->sql('SELECT count(*) FROM outbox');
cmp_ok($left, '>', 0, 'the outage comes in the midst of it');
note "$left messages left";
$node->wait_sql($state, 'broker down');
my ($hint, $error, $workers) = @{
	($node->rows('SELECT hint, last_error, workers FROM outbox_status'))[0]};
like($hint, qr/RabbitMQ/, 'broker down comes with a hint');
like($error, qr/\w/, 'and with the reason');
note "last_error: $error";
is($workers, 1, 'the worker runs on');
$checker->enqueue(500, keys => 10, prefix => 'during');
wait_until('the outage has lasted long enough',
	sub { time - $down_at > $outage }, $outage + 10);
is($node->sql($state), 'broker down', 'it is down all the time');
$node->nobody_paid('during the outage');
is($node->sql('SELECT backlog >= 500 FROM outbox_status'),
	't', 'the backlog shows what waits');
my @lines = $node->relay_lines($offset);
ok(@lines == 1 || @lines == 2, 'the log has a line for the change of state') or diag join "\n", @lines;
note $_ foreach @lines;

$rabbit->restart;
my $up_at = time;
$consumer->wait_count($total + 500, 120);
$node->wait_drained;
note sprintf 'drained %.1f s after the broker was back', time - $up_at;
$node->nobody_paid('after the outage');
cmp_ok(scalar $node->relay_lines($offset),
	'<=', @lines + 1, 'and one for the change back');
like(($node->relay_lines($offset))[-1], qr/is connected to the broker/, 'which says that');
$node->wait_sql($state, 'idle');
is($node->sql('SELECT hint IS NULL FROM outbox_status'),
	't', 'no hint when nothing is wrong');
is($node->sql('SELECT reconnects FROM outbox_workers'),
	$reconnects + 1, 'the reconnect is counted');

# A broker killed with SIGKILL gives those back that the consumer had not
# acknowledged; these are told apart by their flag.
$checker->check('after the outage', [ $consumer->records ],
	interruptions => 1, window => $window);

# --- an orderly stop of the broker while messages trickle in

my $load = $checker->load(2000, keys => 50, prefix => 'trickle', per_tx => 5);
$consumer->wait_count($total + 700);
$rabbit->stop;
ok($load->wait, 'producers are not affected by an outage') or diag $load->error;
$rabbit->restart;
$consumer->wait_count($total + 2500, 60);
$node->wait_drained;
$node->nobody_paid('after a stop of the broker');
$checker->check('after a stop of the broker', [ $consumer->stop ],
	interruptions => 2, window => $window);

# --- login refused, vhost missing, no access to the vhost

my $expected = 0;

sub refused
{
	my ($name, $pattern, $break, $mend) = @_;

	$offset = $node->log_end;
	$break->();
	$rabbit->ctl('close_all_connections', 'test');
	$node->wait_sql($state, 'broker down');
	$node->wait_sql(
		"SELECT last_error ~ '$pattern' FROM outbox_status");
	note $node->sql('SELECT last_error FROM outbox_status');
	$checker->enqueue(20, keys => 2, prefix => 'refused');
	$expected += 20;
	$node->nobody_paid($name);
	my $lines = () = $node->relay_lines($offset);
	ok($lines >= 1 && $lines <= 4, "$name: few log lines") or diag "$lines lines";
	$mend->();
	wait_until("$name: messages arrive",
		sub { $rabbit->depth('after') == $expected });
	$node->wait_drained;
	$node->nobody_paid("$name, after it");
	return;
}

$rabbit->amqp('queue', 'after', ',', 'bind', 'after', 'outbox');
refused(
	'login refused',
	'ACCESS_REFUSED|403',
	sub { $rabbit->ctl('change_password', 'guest', 'other') },
	sub { $rabbit->ctl('change_password', 'guest', 'guest') });
refused(
	'no access to the vhost',
	'NOT_ALLOWED|530',
	sub { $rabbit->ctl('clear_permissions', '-p', '/', 'guest') },
	sub { $rabbit->ctl('set_permissions', '-p', '/', 'guest', '.*', '.*', '.*') }
);
refused(
	'vhost missing',
	'NOT_ALLOWED|530|vhost',
	sub { $node->set('outbox.broker_uri', $rabbit->uri . '/nowhere') },
	sub { $node->unset('outbox.broker_uri') });

done_testing();
