# What order costs.  A single key goes at the pace of one confirm and one settling
# commit a message: compared with a plain librabbitmq publisher that waits for each
# confirm and then for the disk.  Many keys go as fast as no order.  Guarantee 6.
#
# OUTBOX_TEST_FULL=1: more messages.
#
# suite: test alone (two rates are compared, of the relay and of another program)

use strict;
use warnings;

use List::Util qw(max);
use Test::More;
use PostgreSQL::Test::Utils;
use OutboxTest::Consumer;
use OutboxTest::Node;
use OutboxTest::Rabbit;
use OutboxTest::Util;

my $FULL = $ENV{OUTBOX_TEST_FULL};
my $HOT = $FULL ? 10_000 : 700;
my $MANY = $FULL ? 50_000 : 8000;
my $ROUNDS = 4;
my $BODY = 256;
# Floors for a machine with other things to do; the best of up to four rounds counts.
# One key: 0.9 with RabbitMQ 3.10, 0.6 with 4.0 and 0.4 with 4.3; below it are a wait
# for a poll, and a message that needs several commits or flushes.
my $MIN_HOT = 0.35;
my $MIN_DISTINCT = 0.8;

my $rabbit = OutboxTest::Rabbit->start;
my $node = OutboxTest::Node->create(broker => $rabbit);
# The queue without a consumer: it would take the processor from both.
OutboxTest::Consumer->start($rabbit, exchange => 'outbox')->stop;
$node->sql(q{INSERT INTO outbox_route (name, exchange, exchange_type, ordering)
	SELECT 'free', exchange, exchange_type, 'none' FROM outbox_route WHERE name = 'default'});

sub raw_rate
{
	my ($count, %options) = @_;

	$rabbit->amqp('purge', 'q');
	return plain_publisher(port => $rabbit->port, exchange => 'outbox', key => 'rate.event',
		count => $count, size => $BODY, mandatory => undef, window => 1, %options);
}

# Messages a second, from outbox_resume() to the last settling.
sub drain_rate
{
	my ($count, $keys, $route) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;

	$rabbit->amqp('purge', 'q');
	$node->sql('SELECT outbox_pause()');
	$node->sql(qq{SELECT count(outbox_enqueue('rate.event',
		jsonb_build_object('pad', repeat('x', $BODY - 12)),
		aggregate_type => 'rate', aggregate_id => (i % $keys)::text, route => '$route'))
		FROM generate_series(1, $count) i});
	my $start = $node->sql('SELECT clock_timestamp() FROM outbox_resume()');
	$start =~ s/^\n//;
	$node->wait_drained(120);
	is($rabbit->depth('q'), $count, "$count messages of $keys keys, route $route");
	return $node->sql(qq{SELECT round($count / extract(epoch FROM max(published_at) - '$start'))
		FROM outbox_archive});
}

# How long a commit takes that waits for the disk, in ms.
sub flush_ms
{
	my $n = 200;
	return $node->sql(<<"END") =~ s/.*\n//sr;
CREATE TABLE IF NOT EXISTS flushed (n int);
DO \$\$
DECLARE start timestamptz := clock_timestamp();
BEGIN
	FOR i IN 1 .. $n LOOP INSERT INTO flushed VALUES (i); COMMIT; END LOOP;
	PERFORM set_config('test.ms', round((extract(epoch FROM clock_timestamp() - start) * 1000 / $n)::numeric, 3)::text, false);
END \$\$;
SELECT current_setting('test.ms');
END
}

my (@hot, @hundred, @distinct);
foreach my $round (1 .. $ROUNDS)
{
	my $raw = raw_rate($HOT);
	my $flushing = raw_rate($HOT, flush => $node->basedir . '/flushed');
	my $hot = drain_rate($HOT, 1, 'default');
	my $flush = flush_ms();

	push @hot, $hot / $flushing;
	note sprintf 'one key: %d a second, plain publisher that waits for the disk %d, ratio %.2f; '
	  . '%.2f ms a message, of the publisher %.2f, without the disk %.2f; %.2f a commit',
	  $hot, $flushing, $hot[-1], 1000 / $hot, 1000 / $flushing, 1000 / $raw, $flush;

	# In turns, as the table and the archive grow.
	my %rate;
	my @kinds = ([ free => $MANY ], [ hundred => 100 ], [ distinct => $MANY ]);
	foreach my $kind ($round % 2 ? @kinds : reverse @kinds)
	{
		my ($name, $keys) = @$kind;
		$rate{$name} = drain_rate($MANY, $keys, $name eq 'free' ? 'free' : 'default');
	}
	my ($free, $hundred, $distinct) = @rate{qw(free hundred distinct)};
	push @hundred, $hundred / $free;
	push @distinct, $distinct / $free;
	note sprintf 'without order %d a second, 100 keys %d, ratio %.2f; distinct keys %d, ratio %.2f',
	  $free, $hundred, $hundred[-1], $distinct, $distinct[-1];
	last if max(@hot) >= $MIN_HOT && max(@distinct) >= $MIN_DISTINCT;
}
cmp_ok(max(@hot), '>=', $MIN_HOT,
	sprintf 'one key: %.2f of a plain publisher that waits for each confirm and the disk', max(@hot));
cmp_ok(max(@distinct), '>=', $MIN_DISTINCT,
	sprintf 'distinct keys: %.2f of the rate without order', max(@distinct));
note sprintf 'medians: one key %.2f, 100 keys %.2f, distinct keys %.2f',
  median(@hot), median(@hundred), median(@distinct);
is($node->sql('SELECT max(attempts) FROM outbox_archive'), 0, 'no attempt failed');
$node->stop;
done_testing();
