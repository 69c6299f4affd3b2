# Nothing spins, nothing waits without bound, and nobody is starved or sent
# again and again for somebody else's fault.  FAULTS.md F27, J6, J7.

use strict;
use warnings;

use IO::Socket::INET;
use Test::More;
use Time::HiRes qw(time);
use PostgreSQL::Test::Utils;
use OutboxTest::Checker;
use OutboxTest::FakeBroker;
use OutboxTest::Node;
use OutboxTest::Util;

seed();
my $fake = OutboxTest::FakeBroker->start;
my $node = OutboxTest::Node->create(
	broker => $fake,
	conf => <<'END');
outbox.window = 100
outbox.retry_initial = 100ms
outbox.retry_max = 1s
END
my $checker = OutboxTest::Checker->install($node);
my $state = 'SELECT state FROM outbox_status';

# --- a worker that can do nothing sleeps, also with work waiting

sub switches
{
	my ($pid) = @_;
	return slurp_file("/proc/$pid/status") =~ /^voluntary_ctxt_switches:\s+(\d+)/m
	  ? $1 : die "no context switches of $pid";
}

sub cpu_s
{
	my ($pid) = @_;
	my @stat = split / /, slurp_file("/proc/$pid/stat") =~ s/^.*\) //r;
	return ($stat[11] + $stat[12]) / 100;
}

# A loop makes 1000 wake-ups a second, or takes the processor and makes none.
# What has just begun may have something to do: there are three seconds for it.
sub sleeps
{
	my ($what) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	my ($pid) = $node->backend_pids;
	my ($rate, $cpu);

	foreach (1 .. 3)
	{
		my ($switches, $used, $start) = (switches($pid), cpu_s($pid), time);
		wait_until("$what: time passes", sub { time - $start >= 1 });
		$rate = (switches($pid) - $switches) / (time - $start);
		$cpu = (cpu_s($pid) - $used) / (time - $start);
		last if $rate < 30 && $cpu < 0.1;
	}
	ok($rate < 30 && $cpu < 0.1,
		sprintf '%s: the worker sleeps (%.1f wake-ups a second, %.0f %% of a processor)',
		$what, $rate, 100 * $cpu);
	return;
}

sub begin
{
	my ($what) = @_;
	note "--- $what";
	$fake->do('forget');
	$node->wait_drained;
	$node->wait_sql($state, 'idle');
	return;
}

# A port that takes no connection and refuses none: its backlog is full.
sub black_hole
{
	my ($host) = @_;
	my $listener = IO::Socket::INET->new(LocalAddr => $host, Listen => 1,
		ReuseAddr => 1)
	  or die "could not listen: $!";
	my @clients = map {
		IO::Socket::INET->new(PeerAddr => $host,
			PeerPort => $listener->sockport, Blocking => 0)
	} 1 .. 4;
	return { port => $listener->sockport, sockets => [ $listener, @clients ] };
}

# Some messages are at the broker, which has not confirmed them.
sub hold_some
{
	$fake->do('answer hold');
	$checker->enqueue(20, keys => 10);
	$checker->enqueue(300);
	$node->wait_sql('SELECT in_flight >= 100 FROM outbox_status');
	return;
}

sub let_go
{
	$fake->do('answer ack', 'now ack ' . $fake->stats->{tag} . ' multiple');
	return;
}

subtest 'a worker that can do nothing sleeps' => sub {
	begin('full window');
	hold_some();
	sleeps('full window');

	$node->set('outbox.enabled', 'off');
	$node->wait_sql($state, 'disabled');
	sleeps('disabled, in flight');
	let_go();
	$node->wait_sql('SELECT in_flight FROM outbox_status', 0);
	sleeps('disabled');
	$node->unset('outbox.enabled');

	begin('disabled while it lets in flight be confirmed before a new connection');
	hold_some();
	$node->set('outbox.heartbeat', '20s');
	$node->set('outbox.enabled', 'off');
	$node->wait_sql($state, 'disabled');
	sleeps('disabled, before a new connection');
	$fake->do('answer ack');
	$node->unset('outbox.enabled');
	$node->unset('outbox.heartbeat');

	begin('disabled after a nack, before the first ack');
	my $connections = $fake->stats->{connections};
	$fake->do('now fin');
	wait_until('another connection', sub { $fake->stats->{connections} > $connections });
	hold_some();
	$fake->do('now nack');
	$node->set('outbox.enabled', 'off');
	$node->wait_sql($state, 'disabled');
	sleeps('disabled, after a nack');
	$fake->do('answer ack');
	$node->unset('outbox.enabled');

	begin('the oldest confirm is missing');
	$fake->do('when total=' . ($fake->stats->{published} + 1) . ' times=1 : silent');
	$checker->enqueue(21000, per_tx => 7000);
	my $published = $fake->stats->{published};
	wait_until('nothing is sent any more', sub {
		my $now = $fake->stats->{published};
		my $still = $now == $published;
		$published = $now;
		$still && select undef, undef, undef, 0.3;
		$still && $fake->stats->{published} == $published;
	});
	sleeps('the oldest confirm is missing');
	let_go();

	begin('paused');
	$node->sql('SELECT outbox_pause()');
	$checker->enqueue(200, keys => 10);
	$node->wait_sql($state, 'paused');
	sleeps('paused');
	$node->sql('SELECT outbox_resume()');

	begin('blocked');
	$fake->do('now blocked low on memory');
	$checker->enqueue(200, keys => 10);
	$node->wait_sql($state, 'blocked');
	sleeps('blocked');
	$fake->do('now unblocked');

	begin('not adopted');
	$node->sql('UPDATE outbox_control SET system_identifier = system_identifier + 1');
	$checker->enqueue(200, keys => 10);
	$node->wait_sql($state, 'not adopted');
	sleeps('not adopted');
	$node->sql('SELECT outbox_adopt()');

	begin('version mismatch');
	$node->sql(q{UPDATE pg_extension SET extversion = '0.9' WHERE extname = 'outbox'});
	$node->sql('SELECT outbox_worker_restart()');
	$node->wait_sql($state, 'version mismatch');
	$checker->enqueue(200, keys => 10);
	sleeps('version mismatch');
	$node->sql(q{UPDATE pg_extension SET extversion = outbox_version() WHERE extname = 'outbox'});
	$node->sql('SELECT outbox_worker_restart()');

	begin('version mismatch, in flight');
	hold_some();
	$node->sql(q{UPDATE pg_extension SET extversion = '0.9' WHERE extname = 'outbox'});
	$node->sql('ALTER TABLE outbox SET (fillfactor = 100)');
	$node->wait_sql($state, 'version mismatch', 70);
	sleeps('version mismatch, in flight');
	$fake->do('answer ack');
	$node->sql(q{UPDATE pg_extension SET extversion = outbox_version() WHERE extname = 'outbox'});
	$node->sql('SELECT outbox_worker_restart()');

	begin('config error');
	$node->set('outbox.passfile', '/nowhere');
	$checker->enqueue(200, keys => 10);
	$node->wait_sql($state, 'config error');
	sleeps('config error');
	$node->unset('outbox.passfile');

	begin('database error');
	$node->sql('ALTER TABLE outbox_archive ADD CONSTRAINT no CHECK (false) NOT VALID');
	$checker->enqueue(200, keys => 10);
	$node->wait_sql($state, 'database error');
	sleeps('database error');
	$node->sql('ALTER TABLE outbox_archive DROP CONSTRAINT no');

	begin('broken route');
	$node->sql(q{INSERT INTO outbox_route (name, exchange) VALUES ('gone', 'gone')});
	$fake->do('when exchange=gone : channel-close 404 "NOT_FOUND - no exchange gone"');
	$checker->enqueue(100, route => 'gone', keys => 10);
	$node->wait_sql('SELECT last_error ~ $$route "gone"$$ FROM outbox_status');
	sleeps('broken route');
	$fake->do('forget');

	begin('rows that somebody has locked');
	$node->sql('SELECT outbox_pause()');
	$checker->enqueue(200, keys => 10);
	$checker->enqueue(200);
	my $session = $node->session;
	$session->query_safe('BEGIN');
	$session->query_safe('SELECT count(*) FROM (SELECT FROM outbox FOR UPDATE) o');
	$node->sql('SELECT outbox_resume()');
	sleeps('rows that somebody has locked');
	$session->quit;

	begin('broker down');
	my $hole = black_hole('127.0.0.1');
	$node->set('outbox.broker_uri', 'amqp://guest@127.0.0.1:1');
	$checker->enqueue(200, keys => 10);
	$node->wait_sql($state, 'broker down');
	sleeps('nobody listens');
	$node->set('outbox.broker_uri', "amqp://guest\@127.0.0.1:$hole->{port}");
	$node->wait_sql($state, 'connecting');
	sleeps('connecting');
	$node->set('outbox.enabled', 'off');
	sleeps('connecting, and disabled');
	$node->unset('outbox.enabled');
	$node->unset('outbox.broker_uri');

	begin('in the end');
};

$node->stop;
done_testing();
