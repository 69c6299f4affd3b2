# A worker or the launcher that is alive and does nothing (it is stopped, or hangs deaf to
# signals) is named within 10 s, with work waiting or not, and is no problem any more when
# it goes on, where it was.  So is a synchronous standby that is missing, while the relay
# idles.  doc/fault-cases.md M1.
#
# suite: test
# takes: 60 s

use strict;
use warnings;

use Test::More;
use Time::HiRes qw(time);
use PostgreSQL::Test::Utils;
use OutboxTest::Checker;
use OutboxTest::FakeBroker;
use OutboxTest::Node;
use OutboxTest::Util;

my $fake = OutboxTest::FakeBroker->start;
my $node = OutboxTest::Node->create(broker => $fake);
my $checker = OutboxTest::Checker->install($node);
$checker->enqueue(1);
$node->wait_drained;

sub silent
{
	my ($type, $subject, $work, $stop, $go_on) = @_;
	my ($pid) = $node->backend_pids($type);

	$stop ? $stop->() : kill 'STOP', $pid;
	$work->();
	my $from = time;
	ok( wait_until("$subject is named", sub {
			$node->sql("SELECT severity, subject FROM outbox_problems WHERE problem = 'process silent'") eq "critical|$subject";
		}, 20), "$subject is named");
	cmp_ok(time - $from, '<', 10.5, sprintf('%s: after %.1f s', $subject, time - $from));
	like($node->sql("SELECT detail FROM outbox_problems WHERE problem = 'process silent'"), qr/^process $pid has done nothing for \d+ s/, 'with its process');
	$go_on ? $go_on->() : kill 'CONT', $pid;
	ok( wait_until("$subject goes on", sub {
			$node->sql("SELECT count(*) FROM outbox_problems WHERE problem = 'process silent'") eq '0';
		}, 20), "$subject goes on");
	return;
}

my $work = sub { $checker->enqueue(100, keys => 10) };
my $order = $node->data_dir . '/outbox_fault';
silent('outbox relay', 'worker 0', $work);
$node->wait_drained;
silent('outbox relay', 'worker 0', $work, sub { append_to_file($order, 'all_sent wait 1') }, sub { unlink "$order.hit" });
$node->wait_drained;
silent('outbox launcher', 'launcher', sub { $node->sql('CREATE DATABASE other') });

# A worker that idles or waits for its broker says so, and is not silent.
$fake->do('now blocked low on memory');
$checker->enqueue(1);
my $until = time + 12;
my $silent = '';
while (time < $until)
{
	$silent .= $node->sql("SELECT subject FROM outbox_problems WHERE problem = 'process silent'");
	select undef, undef, undef, 0.5;
}
is($silent, '', 'not while the broker is blocked');
$fake->do('now unblocked');
$node->wait_drained;

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
