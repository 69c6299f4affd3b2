# The relay's own logic: whatever is done to it from the database's side, each
# message goes out, in order, and is settled once.
# FAULTS.md I2 to I4, I6 to I10, I12.
#
# OUTBOX_TEST_FULL=1: the sizes that the cases name.

use strict;
use warnings;

use Test::More;
use Time::HiRes qw(time usleep);
use PostgreSQL::Test::Utils;
use OutboxTest::Checker;
use OutboxTest::Consumer;
use OutboxTest::Node;
use OutboxTest::Proxy;
use OutboxTest::Rabbit;
use OutboxTest::Util;

my $FULL = $ENV{OUTBOX_TEST_FULL};
my $WINDOW = 100;
my $seed = seed();

my $rabbit = OutboxTest::Rabbit->start;
my $proxy = OutboxTest::Proxy->start($rabbit);
my $node = OutboxTest::Node->create(
	broker => $proxy,
	conf => <<"END");
outbox.window = $WINDOW
outbox.retry_initial = 20ms
outbox.retry_max = 200ms
END
my $checker = OutboxTest::Checker->install($node);
my $state = 'SELECT state FROM outbox_status';
my $consumer;
my $connections;

# Each case has its own ledger and consumer; nothing is left of the one before.
sub begin
{
	my ($what) = @_;

	note "--- $what";
	$node->wait_drained;
	$node->sql('TRUNCATE test_sent, outbox_archive');
	$consumer = OutboxTest::Consumer->start($rabbit, exchange => 'outbox');
	$node->wait_sql($state, 'idle');
	$connections = $proxy->stats->{connections};
	return;
}

sub reconnects
{
	return $proxy->stats->{connections} - $connections;
}

# Every case ends here.
sub finish
{
	my ($what, %params) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;

	$node->wait_drained($FULL ? 300 : 60);
	$consumer->wait_count(
		$node->sql(q{SELECT count(*) FROM test_sent s WHERE NOT EXISTS
			(SELECT FROM outbox o WHERE o.id = s.id AND status = 'failed')}));
	return $checker->check($what, [ $consumer->stop ],
		case => $what,
		window => $WINDOW, %params);
}

# A psql that runs statements from a list over and over, in the background.
sub background
{
	my ($statements) = @_;
	my $job = { out => '', err => '' };
	my $file = $node->basedir . '/job' . int(rand 1e9) . '.sql';

	PostgreSQL::Test::Utils::append_to_file($file, $statements);
	$job->{run} = IPC::Run::start(
		[
			$node->installed_command('psql'), '-XAtq', '-v',
			'ON_ERROR_STOP=1', '-d',
			$node->connstr('postgres'), '-f', $file
		],
		'<', \undef, '>', \$job->{out}, '2>', \$job->{err});
	return bless $job, 'OutboxTest::Checker::Load';
}

# --- I8: pause and resume under load, of everything and of a route

my $times = $FULL ? 1000 : 400;
begin('I8: paused and resumed under load');
$node->sql(q{INSERT INTO outbox_route (name, exchange) VALUES ('other', 'outbox')});
my @load = map {
	$checker->load(
		$FULL ? 30_000 : 4000,
		keys => $_,
		per_tx => $_,
		prefix => "load$_",
		route => $_ == 25 ? 'other' : 'default')
} (2, 10, 25);
my $job = background(
	"SET client_min_messages = warning; SET synchronous_commit = off;\n"
	  . join '',
	map {
			"SELECT outbox_pause($_); SELECT pg_sleep(random() * 0.004);"
		  . "SELECT outbox_resume($_); SELECT pg_sleep(random() * 0.004);\n"
	} map { pick('', q{'other'}, q{'default'}) } 1 .. $times);
ok($job->wait(120), "I8: $times times") or diag $job->error;
ok($_->wait(300), 'I8: producers notice nothing') or diag $_->error foreach @load;
my $v = finish('I8: paused and resumed under load', interruptions => 0);
is($v->{duplicates} + reconnects(), 0, 'I8: no reconnect, no duplicate');

done_testing();
