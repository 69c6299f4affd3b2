# What an administrator adds to the tables counts, or is refused by name: a
# matrix of additions (indexes of each kind, constraints, defaults, columns,
# triggers, rules, policies, publications, storage), each added and removed while
# messages are in flight and sessions that have enqueued before stay connected.
# doc/dev/fault-cases.md K1 to K6.
#
# Each addition goes through the same cycle: enqueue by outbox_enqueue(), INSERT
# ... SELECT, single INSERT and COPY, one message of them nacked and tried again,
# all settled into the archive; maintenance beside it; and in the end a look
# whether each message arrived once, whether the indexes have all rows and no
# others, and whether the addition was honoured.
#
# The owner of the tables is a role without special rights, so that what runs as
# the owner can be told from what runs as the superuser, and policies count.
#
# OUTBOX_TEST_FULL=1: maintenance of every kind beside every addition, and the
# whole list with two workers as well.
#
# suite: test faults
# takes: 44 s

use strict;
use warnings;

use Test::More;
use Time::HiRes qw(time);
use PostgreSQL::Test::Utils;
use OutboxTest::Additions;
use OutboxTest::Checker;
use OutboxTest::FakeBroker;
use OutboxTest::Node;
use OutboxTest::Util;

my $FULL = $ENV{OUTBOX_TEST_FULL};

# make test-valgrind takes an hour
my $fake = OutboxTest::FakeBroker->start(lifetime => 4 * 3600);
my $node = OutboxTest::Node->create(
	broker => $fake,
	extension => 0,
	allows_streaming => 'logical',
	conf => <<'END');
fsync = off
outbox.poll_interval = 100ms
outbox.retry_initial = 10ms
outbox.retry_max = 50ms
max_parallel_workers_per_gather = 0
END
my $matrix = OutboxTest::Additions->new($node, $fake);

foreach my $case ($matrix->cases)
{
	next if $ENV{OUTBOX_TEST_CASE} && $case->{name} !~ /$ENV{OUTBOX_TEST_CASE}/;
	$matrix->run($case);
}
$matrix->locked_catalogs;
$matrix->finish('K1 to K6: additions');

if ($FULL)
{
	$node->set('outbox.workers', 2);
	$node->wait_sql('SELECT count(*) FROM outbox_workers', 2);
	$matrix->several;
	$matrix->run($_) foreach $matrix->cases;
	$matrix->finish('K1 to K6: additions, two workers');
}
$node->stop('fast');
done_testing();
