# From commit to the consumer, one message at a time on an idle system: the
# server's time of commit against the consumer's clock, which are one clock.
#
# Compared with a plain publisher that sends one message, waits for its confirm and
# then for the disk, in the same seconds: what the broker and the machine need, the
# relay's way needs, too.
#
# suite: test alone (times are measured)

use strict;
use warnings;

use Test::More;
use PostgreSQL::Test::Utils;
use OutboxTest::Consumer;
use OutboxTest::Node;
use OutboxTest::Rabbit;
use OutboxTest::Util;

# About 1 with RabbitMQ 3.10 and 3 with 4.3; a poll, a delayed acknowledgement of TCP
# (40 ms) or a second commit on the way are beyond it.
my $MAX_RATIO = 4;
my $COUNT = 200;
my $ROUNDS = 3;

my $rabbit = OutboxTest::Rabbit->start;
my $node = OutboxTest::Node->create(
	broker => $rabbit,
	conf => 'track_commit_timestamp = on');
my $consumer = OutboxTest::Consumer->start(
	$rabbit,
	exchange => 'outbox',
	ack_every => 1);
$node->sql('CREATE TABLE sent (id uuid)');
$rabbit->amqp('queue', 'plain');

# A poll would show: it comes once a second.
is($node->sql('SHOW outbox.poll_interval'), '1s', 'the poll is rare');

# Returns milliseconds of one message each.
sub measure
{
	my $before = $consumer->unique;
	my @sql;

	$node->sql('TRUNCATE sent');
	foreach (1 .. $COUNT)
	{
		push @sql,
		  q{INSERT INTO sent SELECT outbox_enqueue('latency.event', '{"a": 1}')},
		  'SELECT pg_sleep(0.02)';
	}
	$node->sql(join ";\n", @sql);
	$consumer->wait_count($before + $COUNT);
	my %committed = map { @$_ } $node->rows(
		'SELECT id, (extract(epoch FROM pg_xact_commit_timestamp(xmin)) * 1000000)::bigint FROM sent'
	);
	return map { ($_->{us} - $committed{ $_->{id} }) / 1000 }
	  grep { $committed{ $_->{id} } } $consumer->records;
}

# Milliseconds of a message of the plain publisher.
sub plain_ms
{
	return 1000 / plain_publisher(port => $rabbit->port, key => 'plain', count => $COUNT,
		window => 1, flush => $node->basedir . '/flushed');
}

# The best of a few counts.
measure();
my $best;
for my $round (1 .. $ROUNDS)
{
	my $plain = plain_ms();
	my @ms = measure();
	my $median = median(@ms);
	my $ratio = $median / (($plain + plain_ms()) / 2);
	note sprintf
	  'round %d: median %.2f ms, p90 %.2f ms, p99 %.2f ms, maximum %.2f ms of %d',
	  $round, $median, percentile(90, @ms), percentile(99, @ms),
	  percentile(100, @ms), scalar @ms;
	note sprintf '%.2f of the plain publisher, %.2f ms', $ratio, $median / $ratio;
	is(scalar @ms, $COUNT, 'every message has a time');
	cmp_ok(percentile(0, @ms), '>', 0, 'none arrives before its commit');
	$best = $ratio if !defined $best || $ratio < $best;
	last
}
cmp_ok($best, '<', $MAX_RATIO,
	"commit to consumer: median below $MAX_RATIO times that of a plain publisher");
$consumer->stop;

done_testing();
