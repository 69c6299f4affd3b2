# A worker or the launcher that is alive and does nothing while work waits (it is stopped,
# hangs deaf to signals, or loops) is named within 10 s, whatever outbox.poll_interval is.
# It is no problem any more when it goes on.  One that works, idles or waits for its broker
# is never named.  A synchronous standby that is missing is named while the relay idles.
# doc/dev/fault-cases.md M1.
#
# suite: test
# takes: 120 s

use strict;
use warnings;

use Test::More;
use Time::HiRes qw(time);
use PostgreSQL::Test::Utils;
use OutboxTest::Checker;
use OutboxTest::FakeBroker;
use OutboxTest::Node;
use OutboxTest::States;
use OutboxTest::Util;

my $fake = OutboxTest::FakeBroker->start;
my $node = OutboxTest::Node->create(broker => $fake, conf => 'outbox.heartbeat = 60s');
my $checker = OutboxTest::Checker->install($node);
$checker->enqueue(1);
$node->wait_drained;

sub silent
{
	my ($type, $subject, $work, $stop, $go_on) = @_;

	$stop ? $stop->() : kill 'STOP', $node->backend_pids($type);
	$work->();
	my $from = time;
	ok( wait_until("$subject is named", sub {
			$node->sql("SELECT severity, subject FROM outbox_problems WHERE problem = 'process silent'") eq "critical|$subject";
		}, 12), "$subject is named");
	my ($pid) = $node->backend_pids($type);
	cmp_ok(time - $from, '<', 10.5, sprintf('%s: after %.1f s', $subject, time - $from));
	like($node->sql("SELECT detail FROM outbox_problems WHERE problem = 'process silent'"), qr/^process $pid has done nothing for \d+ s/, 'with its process');
	like($node->sql('SELECT hint FROM outbox_status'), $subject =~ /^worker/ ? qr/outbox_problems|alarm/ : qr/^$/, 'and outbox_status says so');
	$go_on ? $go_on->() : kill 'CONT', $pid;
	ok( wait_until("$subject goes on", sub {
			$node->sql("SELECT count(*) FROM outbox_problems WHERE problem = 'process silent'") eq '0';
		}, 20), "$subject goes on");
	return;
}

sub at_point
{
	my ($order) = @_;
	return (sub { $node->test_point($order) }, sub { $node->test_point_over });
}

# Who is named in 12 s.
sub never_silent
{
	my ($what) = @_;
	my $until = time + 12;
	my $silent = '';

	while (time < $until)
	{
		$silent .= $node->sql("SELECT subject FROM outbox_problems WHERE problem = 'process silent'");
		select undef, undef, undef, 0.5;
	}
	is($silent, '', $what);
	return;
}

# --- a worker that has more to do than it can: bursts are longer than the answers take, so it never waits

$node->sql('SELECT outbox_pause()');
$checker->enqueue(4000, per_tx => 4000);
$node->test_point('mid_publish nap 0');
$node->sql('SELECT outbox_resume()');
never_silent('not while it has more to do than it can');
cmp_ok($node->sql('SELECT count(*) FROM outbox'), '>', 0, 'which it had all the time');
$node->test_point_over;
$node->wait_drained;

# --- a worker that has work, to which nothing is told any more

$node->set('outbox.poll_interval', '10min');
$fake->do('answer hold');
$checker->enqueue(100);
$node->wait_sql('SELECT sum(in_flight) FROM outbox_workers', 100);
# Until it waits for the answers and for nothing else.
$node->sql('SELECT pg_sleep(3)');
silent('outbox relay', 'worker 0', sub { });
$fake->do('answer ack', 'now ack multiple');
$node->wait_drained;
$node->unset('outbox.poll_interval');

# --- a worker that does not get through its start, with work that its predecessor was told of

$fake->do('now blocked low on memory');
$node->wait_sql('SELECT state FROM outbox_status', 'blocked');
my $work = sub { $checker->enqueue(100, keys => 10) };
$work->();
$node->wait_turn;
silent('outbox relay', 'worker 0', sub { }, sub { $node->test_point('start wait 1'); $node->sql('SELECT outbox_worker_restart()'); $node->wait_test_point('start') },
	sub { $node->test_point_over });
$node->wait_drained;

# --- the launcher

my $other = 0;
my $new_database = sub { $node->sql('CREATE DATABASE other' . ++$other) };
silent('outbox launcher', 'launcher', $new_database);
silent('outbox launcher', 'launcher', $new_database, at_point("launch $_ 1")) foreach qw(wait spin);

# --- a worker to which commits tell something

silent('outbox relay', 'worker 0', $work);
$node->wait_drained;
silent('outbox relay', 'worker 0', $work, at_point("all_sent $_ 1")), $node->wait_drained foreach qw(wait spin);
silent('outbox relay', 'worker 0', $work, (at_point('all_sent wait 1'))[0], sub {
	my ($pid) = $node->backend_pids('outbox relay');
	paste_problem($node, 'process silent');
	$node->test_point_over;
	ok($node->wait_sql("SELECT state FROM outbox_workers WHERE pid <> $pid", 'idle'), 'it is ended, and another one takes its place');
});
$node->wait_drained;

# --- a worker that waits for its broker

$fake->do('now blocked low on memory');
$checker->enqueue(1);
never_silent('not while the broker is blocked');
$fake->do('now unblocked');
$node->wait_drained;

# --- a standby that is missing

$node->append_conf('postgresql.conf', "synchronous_standby_names = 'nobody'");
$node->reload;
ok( wait_until('the standby is missed', sub {
		$node->sql("SELECT severity FROM outbox_problems WHERE problem = 'standby missing'") eq 'critical';
	}, 10), 'a missing synchronous standby is named while the relay idles');
$node->append_conf('postgresql.conf', "synchronous_standby_names = ''");
$node->reload;
ok( wait_until('it is not needed', sub {
		$node->sql("SELECT count(*) FROM outbox_problems WHERE problem = 'standby missing'") eq '0';
	}, 10), 'until none is needed');

$checker->check('M1: stopped, and hanging', [ $fake->published ], window => 1000);
done_testing();
