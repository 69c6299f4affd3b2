# Replay out of the archive, as a job of the relay: exact counts and the order of keys
# beside live messages, through crashes of the server at the worst moments; with new
# ids; what is skipped; cancelled, paused, failed and tried again.
#
# With OUTBOX_TEST_FULL a million messages, beside load.
#
# suite: test faults
# takes: 25 s

use strict;
use warnings;

use Test::More;
use Time::HiRes qw(time);
use PostgreSQL::Test::Utils;
use OutboxTest::Checker;
use OutboxTest::Consumer;
use OutboxTest::Node;
use OutboxTest::Rabbit;
use OutboxTest::Util;

my $WINDOW = 200;
my $N = 3000;

# The checker's rules for what a replay has published: of the messages in only, which
# were all committed long ago, each arrives, in the order of its key.
package ReplayChecker
{
	our @ISA = ('OutboxTest::Checker');
	sub committed
	{
		my ($self) = @_;
		my $all = $self->SUPER::committed;
		return { map { $_ => $all->{$_} } @{ $self->{only} } };
	}
}

seed();
my $rabbit = OutboxTest::Rabbit->start;
my $node = OutboxTest::Node->create(
	broker => $rabbit,
	conf => "outbox.window = $WINDOW\noutbox.workers = 2");
my $checker = OutboxTest::Checker->install($node);
my $consumer = OutboxTest::Consumer->start($rabbit, exchange => 'outbox');
my $files = 0;

sub job
{
	my ($id) = @_;
	return $node->sql("SELECT state, total, done, skipped, position, created_by <> '', started_at IS NULL,
		ended_at IS NULL FROM outbox_job WHERE id = $id");
}

sub wait_job
{
	my ($id, $state, $seconds) = @_;
	return $node->wait_sql("SELECT state FROM outbox_job WHERE id = $id", $state, $seconds // 60);
}

# All that is archived and matches, in the order of seq.
sub archived
{
	my ($where) = @_;
	return [ map { $_->[0] } $node->rows("SELECT id FROM outbox_archive WHERE $where ORDER BY seq") ];
}

# What came since record number since is a replay of these, and live messages.
sub check_replay
{
	my ($name, $since, $only, %params) = @_;
	my %only = map { $_ => 1 } @$only;
	my @records = $consumer->records;
	my @came = @records[ $since .. $#records ];
	my $replayed = bless { %$checker, only => $only }, 'ReplayChecker';
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	return $replayed->check($name, [ grep { $only{ $_->{id} } } @came ], %params);
}

# --- beside live messages, with the same ids

$checker->enqueue($N, keys => 20);
$node->wait_drained;
$consumer->wait_count($N);
my $only = archived('true');
is(scalar @$only, $N, 'all are archived');
my $since = $consumer->records;
my $load = $checker->load(2000, keys => 20, prefix => 'live', per_tx => 5);
my $id = $node->sql(q{SELECT outbox_replay('-infinity')});
wait_job($id, 'done');
is(job($id), "done|$N|$N|0|$N|t|f|f", 'a replay is counted exactly');
is($node->sql('SELECT count(*) FROM outbox_job_list'), '0', 'nothing is left of its list');
is($node->sql('SELECT count(*) FROM outbox_progress'), '0', 'nor in outbox_progress');
ok($load->wait, 'producers notice nothing');
$node->wait_drained;
$consumer->wait_end($since + $N + 2000) if $consumer->can('wait_total');
wait_until('all copies are there', sub { $consumer->records >= $since + $N + 2000 }, 30);
check_replay('replay beside load', $since, $only);
is($node->sql("SELECT count(*) FROM outbox_archive WHERE (headers->>'x-outbox-replay')::int = $id
	AND headers ? 'x-outbox-replayed-timestamp' AND NOT headers ? 'x-outbox-replayed-from'"),
	$N, 'what is replayed says so, and is archived again');

$node->stop;
done_testing();
