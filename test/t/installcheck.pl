# make installcheck, as README's own server has it: the library preloaded, its broker there, the extension
# in another database, no prepared transactions, and the encoding of a machine without a locale.  It passes,
# and nothing of it reaches the broker.
#
# suite: test

use strict;
use warnings;

use IPC::Run ();
use Test::More;
use PostgreSQL::Test::Utils;
use OutboxTest::Node;
use OutboxTest::Rabbit;

my $rabbit = OutboxTest::Rabbit->start;
my $node = OutboxTest::Node->create(broker => $rabbit, conf => 'max_prepared_transactions = 0', extra => [ '-E', 'SQL_ASCII' ]);

$rabbit->amqp(split / /, 'exchange outbox topic , queue all , bind all outbox #');
$node->sql(q{SELECT outbox_enqueue('before', '{}')});
$node->wait_drained;
is($rabbit->depth('all'), 1, 'the relay of another database publishes');

# The private installation has no development files, and the checkout is this test's own user's.
local $ENV{PGHOST} = $node->host;
local $ENV{PGPORT} = $node->port;
local $ENV{LC_ALL} = 'C';
my $output = '';
my $passed = IPC::Run::run(
	[ 'make', '-s', 'with_llvm=no', "PG_CONFIG=$ENV{OUTBOX_TEST_PG_CONFIG}", 'installcheck' ],
	'>&', \$output);
ok($passed, 'make installcheck passes')
  or diag $output, map { slurp_file($_) } grep { -e } 'regression.diffs', 'output_iso/regression.diffs';
is($rabbit->depth('all'), 1, 'and nothing of it is published');

done_testing();
