# A relay asks its broker whether another relay of its database is connected, and
# the broker answers in each way that there is, or not at all: only the refusal of
# a name that lasts for three heartbeats is a twin, every other answer is told once,
# and the connection that publishes is none the worse.  (Twins: twins.pl.)
# doc/dev/fault-cases.md M2.
#
# suite: test faults
# takes: 50 s

use strict;
use warnings;

use Test::More;
use Time::HiRes qw(time);
use PostgreSQL::Test::Utils;
use OutboxTest::Checker;
use OutboxTest::FakeBroker;
use OutboxTest::Node;
use OutboxTest::Util;

my $BEAT = 1;
my $TAKEN = 'channel-close 405 "RESOURCE_LOCKED - cannot obtain exclusive access"';
my $PROBLEM = q{SELECT count(*) FROM outbox_problems WHERE problem = 'twin'};
my $UNKNOWN = qr/cannot tell whether another relay of this database is connected to the broker/;

my $fake = OutboxTest::FakeBroker->start;
my $node = OutboxTest::Node->create(
	broker => $fake,
	conf => <<"END");
outbox.workers = 2
outbox.heartbeat = ${BEAT}s
outbox.retry_initial = 20ms
outbox.retry_max = 100ms
END
my $checker = OutboxTest::Checker->install($node);
my ($log, $violations);

sub restart_workers
{
	my $now = $node->sql('SELECT clock_timestamp()');

	$fake->forget_events;
	$node->sql('SELECT outbox_worker_restart()');
	$node->wait_sql("SELECT count(*) FROM outbox_workers WHERE started_at > '$now' AND state = 'idle'",
		$node->sql('SHOW outbox.workers'));
	return;
}

# New workers, which meet what the broker was told to do.
sub begin
{
	my ($what, @commands) = @_;

	note "--- $what";
	$fake->do('forget');
	$node->wait_drained;
	$node->sql('TRUNCATE test_sent, outbox_archive');
	# what was told is told again once the name was held
	restart_workers();
	$fake->wait_event(qr/^queue /);
	$fake->begin_case($what);
	$fake->do(@commands) if @commands;
	$log = $node->log_end;
	restart_workers();
	$fake->mark_connections;
	$violations = $fake->stats->{violations};
	return;
}

sub log_lines
{
	my ($re) = @_;
	return scalar(() = $node->log_text($log) =~ /$re/g);
}

# Publishing went on, at once and on the connections that were there.
sub unharmed
{
	my ($what, $reconnects) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;

	$checker->enqueue(200, keys => 20);
	$node->wait_drained;
	$checker->check_copies("$what: all messages", [ $fake->of_case ], window => 100);
	is($fake->reconnects, $reconnects // 0, "$what: connections made again");
	is($node->sql('SELECT count(*) FROM outbox_archive WHERE attempts > 0'), 0, "$what: no attempt is counted");
	is($fake->stats->{violations}, $violations, "$what: no violation of the protocol");
	return;
}

# --- nobody else has the name

begin('alone');
unharmed('alone');
is(log_lines($UNKNOWN), 0, 'alone: nothing to tell');
$fake->wait_event(qr/^queue \d+ outbox-identity\.[0-9a-f]{16}$/);
is(scalar(() = $fake->events(qr/^queue /)), 1, 'one worker asks, for the name of an identity');
is($node->sql($PROBLEM), 0, 'which is its own');
$node->set('outbox.workers', 1);
$node->wait_workers("postgres", 1);

# --- another connection has it

begin('taken', "stage queue : $TAKEN");
my $from = time;
$node->wait_sql($PROBLEM, 1, 10 * $BEAT);
my $took = time - $from;
# the workers have just started, and the first refusal came then
cmp_ok($took, '>', 2 * $BEAT, sprintf 'taken: a twin, after %.1f s', $took);
my ($host) = '127.0.0.1:' . $fake->port;
like($node->sql(q{SELECT severity, subject, since > now() - interval '1 minute', detail, command FROM outbox_problems WHERE problem = 'twin'}),
	qr/^critical\|worker 0\|t\|at "$host" another connection holds .*"outbox-identity\.\w+": RESOURCE_LOCKED.*\|rabbitmqctl list_connections/,
	'the problem says where, since when, and in whose words');
like($node->sql('SELECT state, hint FROM outbox_status'), qr/^idle\|Another server publishes/, 'outbox_status has the hint');
is($node->sql(q{SELECT value FROM outbox_metrics WHERE name = 'outbox_twin'}), 1, 'outbox_metrics too');
is($node->sql('SELECT count(twin), count(twin_since), count(reason) FROM outbox_workers'), '1|1|0', 'and outbox_workers, beside the reason');
like($node->log_text($log), qr/LOG:  another relay of this database is connected to the broker\n.*DETAIL:  at "$host"/, 'and the log');
unharmed('taken');
my $asked = () = $fake->events(qr/^queue /);
cmp_ok($asked, '<=', (time - $from) / $BEAT + 1, 'asked once a heartbeat');
is(log_lines(qr/another relay of this database is/), 1, 'and told once');

$fake->do('now fin');
$node->wait_sql('SELECT sum(reconnects) > 0 FROM outbox_workers', 't');
is($node->sql($PROBLEM), 1, 'a new connection is no news of it');
$fake->do('forget', 'stage queue : channel-close 403 "ACCESS_REFUSED - configure access to queue refused"');
$node->wait_log($UNKNOWN, $log, 10 * $BEAT);
$node->wait_turn;
like($node->sql(q{SELECT detail FROM outbox_problems WHERE problem = 'twin'}), qr/RESOURCE_LOCKED/,
	'the loss of the right to ask is no news of it either');
$asked = () = $fake->events(qr/^queue /);
$fake->do('forget', "stage queue : $TAKEN", 'now fin');
$fake->wait_event(qr/^queue /, $asked + 1, 10 * $BEAT);

# the next question is due, and a broker that blocks reads none
$fake->do('now blocked low on memory');
$node->wait_sql('SELECT state FROM outbox_status', 'blocked');
$node->sql('SELECT pg_sleep(2)');
my $worker = $node->worker;
my $switches = switches($worker);
$node->sql('SELECT pg_sleep(4)');
my $rate = (switches($worker) - $switches) / 4;
cmp_ok($rate, '<', 11, sprintf 'blocked: %.1f wake-ups a second', $rate);
$fake->do('now unblocked');

$fake->do('forget');
$from = time;
$node->wait_sql($PROBLEM, 0, 10 * $BEAT);
note sprintf 'gone after %.1f s', time - $from;
like($node->log_text($log), qr/no other relay of this database is connected to the broker any more/, 'that it is gone is told');
is($node->sql(q{SELECT hint IS NULL FROM outbox_status}), 't', 'and no hint is left');
is($node->sql(q{SELECT value FROM outbox_metrics WHERE name = 'outbox_twin'}), 0, 'nor a metric');

# --- for two heartbeats: a connection of our own that the broker had not missed yet

begin('taken for a while', "stage queue times=3 : $TAKEN");
$fake->wait_event(qr/^queue /, 4, 10 * $BEAT);
unharmed('taken for a while');
is(log_lines(qr/another relay/), 0, 'taken for a while: not a word');

# --- a copy that is silent holds no name, and is nobody's twin

begin('silent');
$node->sql(q{UPDATE outbox_control SET database_oid = 1});
$node->wait_sql('SELECT state FROM outbox_status', 'not adopted');
$fake->wait_event(qr/^queue-deleted/);
$fake->forget_events;
$node->sql('SELECT outbox_adopt()');
$fake->wait_event(qr/^queue /, 1, 10 * $BEAT);
unharmed('adopted again');

# --- answers that say nothing

foreach my $close ('403 "ACCESS_REFUSED - configure access to queue refused"',
	'406 "PRECONDITION_FAILED - inequivalent arg"', '404 "NOT_FOUND - home node is down"')
{
	my ($code, $words) = $close =~ /(\d+) "(.*)"/;

	# times: the same answer on every connection, and the log has one line
	begin($code, "stage queue : channel-close $close");
	$node->wait_log(qr/$UNKNOWN\n.*DETAIL:  \Q$words\E/, $log);
	unharmed($code);
	$fake->wait_event(qr/^queue /, 2, 20 * $BEAT) if $code != 403;
	$fake->do('now fin');
	$node->wait_turn;
	unharmed("$code, once more", 1);
	is(log_lines($UNKNOWN), 1, "$code: told once");
	is($node->sql($PROBLEM), 0, "$code: no problem");
}

# --- none at all

foreach my $stage ('channel channel=4', 'queue')
{
	begin("no answer ($stage)", "stage $stage : silent");
	unharmed("no answer ($stage)");
	$node->wait_log(qr/$UNKNOWN\n.*DETAIL:  The broker does not answer/, $log, 20 * $BEAT);
	is(log_lines($UNKNOWN), 1, "no answer ($stage): told once");
	is($node->sql($PROBLEM), 0, "no answer ($stage): no problem");
}
begin('a late answer', 'stage queue : slow 5000');
$node->wait_log($UNKNOWN, $log, 20 * $BEAT);
unharmed('a late answer');

# --- from the question on not a byte comes through: as soon as that is noticed, publishing goes on

begin('a partition', 'stage queue times=1 : mute');
$from = time;
my $id = $node->sql(q{SELECT outbox_enqueue('partition', '{}')});
is($node->sql("SELECT outbox_wait('$id', '20 s')"), 'published', 'a partition: published');
cmp_ok(time - $from, '<', 3 * $BEAT + 3, sprintf 'a partition: after %.1f s', time - $from);
is($fake->reconnects, 1, 'a partition: on the next connection');
is($node->sql($PROBLEM), 0, 'a partition: no problem');

# --- a connection that is closed for it, with nothing in flight; and not again

foreach my $case ([ 'channel channel=4', '530 "NOT_ALLOWED - number of channels opened for user has reached the limit"' ],
	[ 'queue', '540 "NOT_IMPLEMENTED - exclusive queues"' ])
{
	my ($stage, $close) = @$case;
	my ($code, $words) = $close =~ /(\d+) "(.*)"/;

	begin("$code, which closes the connection");
	$fake->do("stage $stage : connection-close $close", 'now fin');
	$node->wait_log(qr/$UNKNOWN\n.*DETAIL:  .*\Q$words\E/, $log);
	$node->wait_sql('SELECT state FROM outbox_status', 'idle');
	sleep 2 * $BEAT;
	my $before = $fake->reconnects;
	unharmed("$code, which closes the connection", $before);
	cmp_ok($before, '<=', 3, "$code: it is not asked again");
	is(log_lines($UNKNOWN), 1, "$code: told once");
}

# --- fewer channels than it needs: it does not even ask

begin('three channels', 'tune channel_max=3');
$node->wait_log(qr/$UNKNOWN\n.*DETAIL:  the broker allows too few channels/, $log);
unharmed('three channels');
is(scalar(() = $fake->events(qr/^queue /)), 0, 'three channels: nothing is asked');

done_testing();
