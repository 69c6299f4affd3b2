# A fast shutdown ends the worker within seconds whatever the broker does, and
# what was in flight is confirmed and settled before: no duplicates after the
# restart.  Also: the state "blocked", and its end.
#
# suite: test core faults
# takes: 30 s

use strict;
use warnings;

use IPC::Run;
use Test::More;
use Time::HiRes qw(time);
use PostgreSQL::Test::Utils;
use OutboxTest::Checker;
use OutboxTest::Consumer;
use OutboxTest::FakeBroker;
use OutboxTest::Node;
use OutboxTest::Proxy;
use OutboxTest::Rabbit;
use OutboxTest::Util;

my $LIMIT = 5;

my $rabbit = OutboxTest::Rabbit->start;
my $node = OutboxTest::Node->create(
	broker => $rabbit,
	conf => <<'END');
outbox.window = 500
outbox.retry_max = 1s
END
my $checker = OutboxTest::Checker->install($node);
my $state = 'SELECT state FROM outbox_status';

sub stop_within_limit
{
	my ($when) = @_;
	my $offset = $node->log_end;
	my $start = time;

	$node->stop('fast');
	my $took = time - $start;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	cmp_ok($took, '<', $LIMIT, "pg_ctl stop -m fast $when ends in time");
	unlike($node->log_text($offset), qr/PANIC|terminated by signal|SIGKILL/,
		'and without violence');
	note sprintf 'stop %s: %.2f s', $when, $took;
	return;
}

# --- during a drain, over a link on which it takes about eight seconds

my $total = 20000;
my $proxy = OutboxTest::Proxy->start($rabbit);
$proxy->do('rate up 500000');
$node->set('outbox.broker_uri', $proxy->uri);
$node->set('outbox.enabled', 'off');
$node->wait_sql($state, 'disabled');
$checker->enqueue($total / 2, keys => 500, per_tx => 1000);
$checker->enqueue($total / 2, per_tx => 1000);
my $consumer = OutboxTest::Consumer->start($rabbit, exchange => 'outbox');
$node->set('outbox.enabled', 'on');
for my $i (1 .. 3)
{
	$consumer->wait_count($i * $total / 5, 60);
	stop_within_limit("during a drain ($i)");
	cmp_ok($consumer->unique, '<', $total, 'it was during the drain');
	$node->start;
}
$consumer->wait_count($total, 60);
$node->wait_drained;
my $v = $checker->check('after clean stops during a drain',
	[ $consumer->records ], interruptions => 0);
is($v->{duplicates}, 0, 'a clean stop during a drain makes no duplicates');
$node->unset('outbox.broker_uri');
$proxy->stop;

# --- while idle

$node->wait_sql($state, 'idle');
stop_within_limit('while idle');
$node->start;

# --- the broker process is stopped (SIGSTOP), with messages in flight

$checker->enqueue(100);
$node->wait_drained;
$rabbit->pause;
$checker->enqueue(1900);
$node->wait_sql('SELECT in_flight > 0 FROM outbox_status');
stop_within_limit('with a full window and a broker that does not answer');
$rabbit->resume;
$node->start;
$consumer->wait_count($total + 2000, 60);
$node->wait_drained;

# again, while the worker declares the exchange on a new connection
$node->restart;
$node->wait_sql($state, 'idle');
$rabbit->pause;
$checker->enqueue(100);
stop_within_limit('while a broker that does not answer is asked for an exchange');
$rabbit->resume;
$node->start;
$consumer->wait_count($total + 2100, 60);
$node->wait_drained;

# again, while the worker tries to connect
$rabbit->pause;
$node->restart;
$node->wait_sql('SELECT pid IS NOT NULL FROM outbox_workers');
stop_within_limit('while connecting to a broker that does not answer');
$rabbit->resume;
$node->start;
$checker->check('after stops with a broker that does not answer',
	[ $consumer->records ], interruptions => 1, window => 500);

# --- the broker is unreachable

$rabbit->stop;
$checker->enqueue(100);
$node->wait_sql($state, 'broker down');
stop_within_limit('with an unreachable broker');
$node->start;
$node->wait_sql($state, 'broker down');
$rabbit->restart;
$consumer->wait_count($total + 2200, 60);
$node->wait_drained;

# --- memory alarm

$rabbit->memory_alarm(1);
$checker->enqueue(3000);
$node->wait_sql($state, 'blocked');
isnt($node->sql('SELECT hint FROM outbox_status'),
	'', 'blocked comes with a hint');
like($node->sql('SELECT last_error FROM outbox_status'),
	qr/block/, 'and with the reason');
is($node->sql('SELECT count(*) FROM outbox WHERE attempts > 0'),
	'0', 'an alarm costs no attempt');
my $before = $consumer->unique;
$rabbit->memory_alarm(0);
my $start = time;
wait_until('publishing resumes',
	sub { $consumer->unique > $before }, 30);
my $took = time - $start;

# rabbitmqctl itself returns some time after the alarm is cleared
$consumer->wait_count($total + 5200, 60);
$node->wait_drained;
$node->wait_sql($state, 'idle');
$start = time;
$checker->enqueue(1);
$consumer->wait_count($total + 5201, 60);
cmp_ok($took, '<', 2 + 10 * (time - $start), 'publishing resumes at once after the alarm is cleared');

$rabbit->memory_alarm(1);
$checker->enqueue(3000);
$node->wait_sql($state, 'blocked');
stop_within_limit('under a memory alarm');
$node->start;
$checker->enqueue(1);
$node->wait_sql("SELECT state IN ('blocked', 'connecting', 'broker down') FROM outbox_status");
stop_within_limit('when started and stopped under a memory alarm');
$node->start;
$rabbit->memory_alarm(0);
$start = time;
$consumer->wait_count($total + 8202, 60);
note sprintf 'all delivered %.2f s after the alarm was cleared',
  time - $start;
$node->wait_drained;
is($node->sql(q{SELECT count(*) FROM outbox WHERE status = 'failed'}),
	'0', 'no message has failed');
$checker->check('after all of it', [ $consumer->stop ],
	interruptions => 3, window => 500);

# --- DROP DATABASE, whose relay has taken the order to leave when its commit begins to wait for a standby

my $waits = OutboxTest::Node->create(name => 'waits', broker => $rabbit, extension => 0);
$waits->sql('CREATE DATABASE waits');
$waits->sql('CREATE EXTENSION outbox', 'waits');
$waits->sql(q{SELECT outbox_enqueue('e', '{}')}, 'waits');
$waits->wait_drained(30, 'waits');
$waits->set('synchronous_standby_names', 'missing');
$waits->test_point('before_snapshot wait 1');
$waits->sql(q{SET synchronous_commit = local; SELECT outbox_enqueue('e', '{}')}, 'waits');
$waits->wait_test_point('before_snapshot');
my ($said, $drop) = ('');
$drop = IPC::Run::start([ 'psql', '-XAtq', '-d', $waits->connstr('postgres'),
	'-c', 'SET synchronous_commit = local', '-c', 'DROP DATABASE waits' ], '>&', \$said, IPC::Run::timeout(60));
$waits->wait_sql(q{SELECT wait_event_type FROM pg_stat_activity WHERE query = 'DROP DATABASE waits' AND state = 'active'}, 'Extension');
$waits->test_point_over;
$drop->finish;
is($said, '', 'DROP DATABASE while its relay waits for a standby');
$waits->stop('immediate');

# --- a worker that ends in the middle of a look for forgotten rows: what it has not sent is not
# forgotten, but left to the next one (OutboxTest::Node fails the test)

my $fake = OutboxTest::FakeBroker->start;
my $looks = OutboxTest::Node->create(name => 'looks', broker => $fake, conf => 'outbox.window = 100');
$looks->sql(q{INSERT INTO outbox_route (name, paused) VALUES ('paused', true)});
$looks->sql(q{SELECT count(outbox_enqueue('e', '{}', route => 'paused')) FROM generate_series(1, 2500)});
$fake->do('answer hold');
$looks->sql(q{SELECT count(outbox_enqueue('e', '{}')) FROM generate_series(1, 200)});
$looks->wait_sql('SELECT in_flight FROM outbox_status', 100);
$looks->test_point('sweep_step wait 1');
$looks->wait_test_point('sweep_step');
my ($pid) = $looks->backend_pids;
kill 'TERM', $pid;
$looks->test_point_over;
$fake->do('now ack multiple', 'answer ack');
$looks->wait_sql(q{SELECT count(*) FROM outbox WHERE route = 'default'}, 0);
$looks->sql(q{UPDATE outbox_route SET paused = false});
$looks->wait_drained;
$looks->stop;

done_testing();
