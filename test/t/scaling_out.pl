# examples/scaling-out: consumers that are added and killed under load, behind a
# consistent-hash exchange with a single active consumer a queue; a queue that is
# added, with a drain and without; streams and the partitions of a super stream;
# at-least-once dead lettering.  Order per key, and nothing lost.
#
# suite: faults
# takes: 27 s

use strict;
use warnings;

use IPC::Run ();
use JSON::PP;
use Test::More;
use PostgreSQL::Test::Utils;
use OutboxTest::Checker;
use OutboxTest::Node;
use OutboxTest::Rabbit;
use OutboxTest::Util;

my $COUNT = $ENV{OUTBOX_TEST_FULL} ? 6000 : 2400;
my $KEYS = 60;
my $PREFETCH = 20;

my $here = 'examples/scaling-out';
my $python = '/usr/bin/python3';
my $rabbit = OutboxTest::Rabbit->start(plugins => ['rabbitmq_consistent_hash_exchange']);
my $uri = sprintf 'amqp://guest:guest@127.0.0.1:%d/%%2f', $rabbit->port;

# how soon what found no dead letter queue is tried again: three minutes by default
$rabbit->erlang('application:set_env(rabbit, dead_letter_worker_publisher_confirm_timeout, 1000)');

my $node = OutboxTest::Node->create(broker => $rabbit);
my $checker = OutboxTest::Checker->install($node);
$node->sql(slurp_file("$here/routes.sql"));

my (@consumers, $files);

sub topology
{
	my ($queues) = @_;
	command_ok([ $python, "$here/topology.py", $uri, $queues ], "the topology, with $queues queues");
	return;
}

# What it processes is appended to the file.
sub start_consumer
{
	my ($file, @args) = @_;
	my $err = $node->basedir . '/consumer' . ++$files;
	my $run = IPC::Run::start([ $python, "$here/consumer.py", '--prefetch', $PREFETCH, @args ],
		'>>', $file, '2>', $err);
	push @consumers, $run;
	wait_until("consumer $files is ready", sub { slurp_file($err) =~ /ready/ }) or diag slurp_file($err);
	return { run => $run, pid => $run->{KIDS}[0]{PID} };
}

sub stop_consumer
{
	my ($consumer, $signal) = @_;
	$consumer->{run}->signal($signal // 'TERM');
	$consumer->{run}->finish;
	return;
}

END
{
	local $?;
	$_->kill_kill foreach grep { $_->pumpable || $_->{STATE} } @consumers;
}

sub records
{
	my ($file) = @_;
	return map { decode_json($_) } grep { /\}$/ } split /\n/, -e $file ? slurp_file($file) : '';
}

sub processed
{
	my ($file) = @_;
	my %ids = map { $_->{id} => 1 } records($file);
	return scalar keys %ids;
}

sub wait_processed
{
	my ($what, $file, $count) = @_;
	return wait_until($what, sub { processed($file) >= $count }, 120) || diag processed($file) . " of $count";
}

# The checker judges what is sent from now on.
sub begin_anew
{
	$node->sql('TRUNCATE test_sent');
	return;
}

# --- consumers come and go under load

my @queues = map { "hashed.$_" } 0 .. 2;
my $file = $node->basedir . '/hashed';
topology(scalar @queues);
my $load = $checker->load($COUNT, keys => $KEYS, route => 'hashed', per_tx => $KEYS, pause_ms => 50);
my @work = ('--work-ms', 2, $uri);
my $one = start_consumer($file, @work, @queues);
wait_processed('one consumer has some', $file, $COUNT / 10);
my $two = start_consumer($file, @work, @queues);
my $three = start_consumer($file, @work, @queues[ 1, 2, 0 ]);
wait_processed('three have more', $file, $COUNT / 4);
is(scalar(grep { $_->{consumer} != $one->{pid} } records($file)), 0, 'those that are added wait while the first is there');
stop_consumer($one, 'KILL');
ok(processed($file) < $COUNT, 'killed in mid-work');
wait_processed('the others have taken over', $file, $COUNT / 2);
my $four = start_consumer($file, @work, @queues[ 2, 0, 1 ]);
stop_consumer($two, 'KILL');
ok(processed($file) < $COUNT, 'and another one');
ok($load->wait, 'load') or diag $load->error;
wait_processed('all are processed', $file, $COUNT);
$node->wait_drained;
my $v = $checker->check('consumers come and go', [ records($file) ]);
my $again = $v->{deliveries} - $v->{received};
cmp_ok($again, '<=', 2 * $PREFETCH * @queues, 'two kills: no more came again than was sent ahead');
my %consumers = map { $_->{consumer} => 1 } records($file);
cmp_ok(scalar keys %consumers, '>=', 3, 'three or more had their turn');
note("processed again: $again; by " . keys(%consumers) . ' consumers');
my %of_queue;
$of_queue{ $_->{queue} }{ $_->{aggregate_id} } = 1 foreach records($file);
is(scalar keys %of_queue, 3, 'each queue had a part');
my $homes = 0;
$homes += keys %$_ foreach values %of_queue;
is($homes, $KEYS, 'a key has one queue');

# --- a queue is added: pause, drain, bind, resume

$load = $checker->load($COUNT, keys => $KEYS, route => 'hashed', per_tx => $KEYS, pause_ms => 50);
wait_processed('more comes', $file, $COUNT + $COUNT / 10);    # by now of every key
$node->sql(q{SELECT outbox_pause('hashed', 'a queue is added')});
$node->wait_turn;
$node->wait_sql('SELECT sum(in_flight) FROM outbox_workers', 0);

# exact, where the broker's counts of a quorum queue are those of its last tick
wait_until('what was published is processed',
	sub {
		processed($file) == $node->sql(q{SELECT count(*) FROM test_sent s
			WHERE NOT EXISTS (SELECT FROM outbox o WHERE o.id = s.id)});
	}, 120);
topology(4);
my $five = start_consumer($file, @work, 'hashed.3');
$node->sql(q{SELECT outbox_resume('hashed')});
ok($load->wait, 'load') or diag $load->error;
$checker->enqueue($KEYS, keys => $KEYS, route => 'hashed');
wait_processed('all are processed', $file, 2 * $COUNT + $KEYS);
$node->wait_drained;
$checker->check('a queue is added', [ records($file) ]);
%of_queue = ();
$of_queue{ $_->{queue} }{ $_->{aggregate_id} } = 1 foreach records($file);
my $new = $of_queue{'hashed.3'};
my @moved = grep { my $key = $_; grep { $of_queue{$_}{$key} } @queues } keys %$new;
note('keys of ', map { "$_: " . keys(%{ $of_queue{$_} }) . ' ' } sort keys %of_queue);
cmp_ok(scalar @moved, '>', 0, 'keys have moved to it');
note(@moved . " of $KEYS keys moved");
stop_consumer($_) foreach $three, $four, $five;

# --- and without that

begin_anew();
$file = $node->basedir . '/undrained';
$checker->enqueue($KEYS, keys => $KEYS, route => 'hashed');
$node->wait_drained;
topology(5);
$checker->enqueue($KEYS, keys => $KEYS, route => 'hashed');
$node->wait_drained;
my $moved = $rabbit->depth('hashed.4');
my $early = start_consumer($file, $uri, 'hashed.4');
wait_processed('the new queue is processed', $file, $moved);
my $late = start_consumer($file, $uri, map { "hashed.$_" } 0 .. 3);
wait_processed('and then the others', $file, 2 * $KEYS);
stop_consumer($_) foreach $early, $late;
my $disorder = $checker->verdict([ records($file) ])->{disorder};
cmp_ok($moved, '>', 0, 'a queue is added without a drain: keys move');
is(scalar @$disorder, $moved, 'and the checker sees each of them out of order');

# --- a stream

begin_anew();
my $events = 500;
$file = $node->basedir . '/log';
$checker->enqueue($events, keys => $KEYS, route => 'log');
my $reader = start_consumer($file, '--offset', 'first', $uri, 'log');
wait_processed('the stream is read', $file, $events);
$node->wait_drained;
stop_consumer($reader);
my @first = records($file);
$checker->check('a stream', \@first);
my $from = $first[ $events / 2 ]{offset};
$file = $node->basedir . '/log_again';
$reader = start_consumer($file, '--offset', $from, $uri, 'log');
my @rest = grep { $_->{offset} >= $from } @first;
wait_processed('and read once more', $file, scalar @rest);
stop_consumer($reader);
is_deeply([ map { "$_->{offset} $_->{id}" } records($file) ],
	[ map { "$_->{offset} $_->{id}" } @rest ], 'from an offset: the same in the same order');

# --- the partitions of a super stream

begin_anew();
my @parts = map { "parted-$_" } 0 .. 2;
$file = $node->basedir . '/parted';
$checker->enqueue($events, keys => $KEYS, route => 'parted');
my @readers = map { start_consumer($file, '--offset', 'first', $uri, $_) } @parts;
wait_processed('the partitions are read', $file, $events);
$node->wait_drained;
stop_consumer($_) foreach @readers;
$checker->check('a super stream', [ records($file) ]);
my %part;
$part{ $_->{aggregate_id} }{ $_->{queue} } = 1 foreach records($file);
is(scalar(grep { keys %$_ > 1 } values %part), 0, 'a key has one partition');
my %used = map { $_->{queue} => 1 } records($file);
is(scalar keys %used, 3, 'each partition had a part');

# --- dead letters, at least once

begin_anew();
my $bad = 50;
$file = $node->basedir . '/guarded';
my $picky = start_consumer($file, '--reject', 'test.bad', $uri, 'guarded');
$checker->enqueue($bad, keys => 5, route => 'guarded', event_type => 'test.bad');
$checker->enqueue($bad, keys => 5, route => 'guarded');
wait_processed('what can be processed', $file, $bad);
wait_until('what is rejected is in the dead letter queue', sub { $rabbit->depth('guarded.dead') == $bad });
$rabbit->amqp('unbind', 'guarded.dead', 'guarded.dead');
$checker->enqueue($bad, keys => 5, route => 'guarded', event_type => 'test.bad');
$checker->enqueue($bad, keys => 5, route => 'guarded');
wait_processed('beside rejected ones that have nowhere to go', $file, 2 * $bad);
$node->wait_drained;
is($rabbit->depth('guarded.dead'), $bad, 'those are not in the dead letter queue');
$rabbit->amqp('bind', 'guarded.dead', 'guarded.dead');
wait_until('and come when it is bound', sub { $rabbit->depth('guarded.dead') >= 2 * $bad });
stop_consumer($picky);
my $dead = $node->basedir . '/dead';
my $undertaker = start_consumer($dead, $uri, 'guarded.dead');
wait_processed('the dead letters are read', $dead, 2 * $bad);
stop_consumer($undertaker);
my @dead = records($dead);
$checker->check('dead letters', [ records($file), @dead ], skip_order => 1);
my %dead = map { $_->{id} => 1 } @dead;
is(scalar keys %dead, 2 * $bad, 'each that was rejected is there');
note('dead letters: ' . @dead . ', different ones: ' . keys %dead);

done_testing();
