# Order of transactions that depend on each other, without outbox.strict_keys:
# whoever has seen an earlier transaction's effect and enqueues for the same key
# comes after it, however the relay's scans fall between their commits.  And rows
# whose numbers the scan has passed while they were invisible are found at once,
# not by the sweep.
#
# Only in the fault suite: it meets the moment between a commit and its announcement
# by chance. make test has it for sure, in promises and order_narrow, and in every order
# in the simulator.
#
# suite: faults

use strict;
use warnings;

use Test::More;
use IPC::Run;
use PostgreSQL::Test::Utils;
use OutboxTest::Consumer;
use OutboxTest::Node;
use OutboxTest::Rabbit;
use OutboxTest::Util;

my $SECONDS = 6;
# The sweep looks at all rows once a minute; this must not need it.
my $DRAIN_S = 20;

my $rabbit = OutboxTest::Rabbit->start;
my $node = OutboxTest::Node->create(broker => $rabbit);
my $consumer =
  OutboxTest::Consumer->start($rabbit, exchange => 'outbox', body => 20);

# Each transaction counts its key up under the row's lock and says so.
$node->sql(<<'SQL');
CREATE TABLE counter (key int PRIMARY KEY, n bigint NOT NULL);
CREATE FUNCTION count_up(k int) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
	v bigint;
BEGIN
	UPDATE counter SET n = n + 1 WHERE key = k RETURNING n INTO v;
	PERFORM outbox_enqueue('counted', to_jsonb(v), aggregate_type => 'counter', aggregate_id => k::text);
END
$$;
SQL

my $script = "$PostgreSQL::Test::Utils::tmp_check/dependent.sql";
my $seed = seed();

# A commit is visible for a moment before the relay is told of it.  With 16 sessions
# on a machine of two processors that moment is hardly ever met, so that it is made
# longer (5 ms) in the last round.  Who waits for the row's lock does not meet it, as
# locks go later; so there are as many keys as leave most sessions without a wait.
foreach my $round ([ 3, '3 keys' ], [ 1000, '1000 keys' ],
	[ 100, '100 keys, announced late', 'before_announce nap 0' ])
{
	my ($keys, $name, $fault) = @$round;
	$node->test_point($fault) if $fault;
	$node->sql("TRUNCATE counter; INSERT INTO counter SELECT i, 0 FROM generate_series(1, $keys) i");
	unlink $script;
	append_to_file($script, "\\set k random(1, $keys)\nSELECT count_up(:k);\n");
	my $before = $consumer->unique;
	my ($out, $err) = ('', '');
	IPC::Run::run(
		[
			'pgbench', '-n', '-c', 16, '-j', 2, '-T', $SECONDS, "--random-seed=$seed",
			'-f', $script, '-h', $node->host, '-p', $node->port, 'postgres'
		],
		'<', \undef, '>', \$out, '2>', \$err) or die "pgbench: $err";
	$node->test_point_over;
	my $count = $node->sql('SELECT sum(n) FROM counter');
	ok($node->wait_drained($DRAIN_S), "$name: everything is published without a sweep");
	$consumer->wait_count($before + $count);

	my %last;
	my $wrong = 0;
	my @records = $consumer->records;
	foreach my $record (@records[$before .. $#records])
	{
		my $n = $record->{body};
		$wrong++ if $n != ($last{ $record->{aggregate_id} } // 0) + 1;
		$last{ $record->{aggregate_id} } = $n;
	}
	is($wrong, 0, "$name: $count messages of 16 sessions come in the order of their counters");
	is(scalar @records, $before + $count, "$name: nothing came twice");
}
$consumer->stop;
$node->stop;
done_testing();
