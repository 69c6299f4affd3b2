# External relays: processes that claim, publish and acknowledge, beside producers,
# and are killed with SIGKILL in the middle of it, once with the whole server.  The
# target is a file to which each of them appends.  Nothing is lost, nothing is a
# ghost, keys keep their order, and what comes twice is bounded by what was leased.
# Then the route goes back to the workers.
#
# suite: test faults
# takes: 10 s

use strict;
use warnings;

use DBI ();
use POSIX ();
use Test::More;
use Time::HiRes qw(sleep);
use PostgreSQL::Test::Utils;
use OutboxTest::Checker;
use OutboxTest::Client;
use OutboxTest::FakeBroker;
use OutboxTest::Node;
use OutboxTest::States;
use OutboxTest::Util;

my $BATCH = 20;
my $LEASE = '3 s';
my $KILLS = 6;
my $N = 3000;

seed();
my $fake = OutboxTest::FakeBroker->start;
my $node = OutboxTest::Node->create(broker => $fake);
my $checker = OutboxTest::Checker->install($node);
my $target = $node->basedir . '/target';
my $errors = $node->basedir . '/errors';
append_to_file($_, '') foreach $target, $errors;
$node->sql(q{INSERT INTO outbox_route (name, exchange, relay, max_attempts) VALUES ('ext', '', 'external', 1000)});

# A line in one write: another process's is before it or after it.
sub publish
{
	my ($line) = @_;
	open my $file, '>>', $target or die "$target: $!";
	syswrite $file, "$line\n" or die "$target: $!";
	close $file;
	return;
}

sub settle
{
	my ($client, $statement) = @_;
	return if eval { $client->query($statement); 1 };
	die $@ unless $@ =~ /is not held any more/;
	publish('fenced');
	return;
}

# Claims, publishes, and has a message refused now and then.
sub round
{
	my ($client, $name) = @_;
	my @rows = map { [ split /\|/, $_, -1 ] }
	  split /\n/, $client->query("SELECT token, id, aggregate_id FROM outbox_claim('ext', $BATCH, '$LEASE', '$name')");
	my (@done, %left);

	sleep 0.02 unless @rows;
	foreach my $row (@rows)
	{
		my ($token, $id, $key) = @$row;
		next if $left{$key};
		if (rand() < 0.02)
		{
			settle($client, "SELECT outbox_nack($token, '$id', 'refused', '10 ms')");
			$left{$key} = 1;
			next;
		}
		publish($id);
		push @done, $id;
	}
	settle($client, "SELECT outbox_ack($rows[0][0], '{" . join(',', @done) . "}')") if @done;
	return;
}

sub start_relay
{
	my ($name) = @_;
	my $pid = fork;
	die "fork: $!" unless defined $pid;
	return $pid if $pid;

	my $stop = 0;
	local $SIG{TERM} = sub { $stop = 1 };
	srand($$);
	eval {
		my $client = OutboxTest::Client->connect($node->connstr('postgres'));
		round($client, $name) until $stop;
		1;
	} or append_to_file($errors, $@ =~ s/\n(?!\z)/ /gr);
	# Neither the test's plan nor its servers are this process's.
	POSIX::_exit(0);
}

my %relays = map { $_ => start_relay("relay $_") } 1 .. 3;

# One that has ended with the server's connection is started anew.
sub replace_ended
{
	foreach my $n (keys %relays)
	{
		$relays{$n} = start_relay("relay $n") if waitpid($relays{$n}, POSIX::WNOHANG()) != 0;
	}
	return;
}

sub published
{
	return grep { $_ ne 'fenced' } split /\n/, slurp_file($target);
}

my $interruptions = 0;
my $load = $checker->load($N, keys => 50, per_tx => 50, rollback => 0.1, route => 'ext', pause_ms => 10);
foreach my $kill (1 .. $KILLS)
{
	my $before = published();
	wait_until('relays publish', sub { replace_ended(); published() > $before + 50 || !$load->running });
	if ($kill == $KILLS / 2)
	{
		$load->running;
		is($load->error, '', 'producers go through until the crash');
		$load->stop;
		$node->crash;
		$node->start;
		$interruptions += keys %relays;
		$load = $checker->load($N / 2, keys => 50, per_tx => 50, rollback => 0.1, route => 'ext', pause_ms => 10);
		next;
	}
	my $n = pick(sort keys %relays);
	kill KILL => $relays{$n};
	waitpid $relays{$n}, 0;
	$interruptions++;
	$relays{$n} = start_relay("relay $n");
}
ok($load->wait, 'producers went through') or diag $load->error;
wait_until('all is acknowledged', sub {
	replace_ended();
	$node->sql('SELECT count(*) FROM outbox') eq '0';
}, 90);
kill TERM => values %relays;
waitpid $_, 0 foreach values %relays;

# One that was too slow is as one that was killed: it says so when it is refused.
my @lines = split /\n/, slurp_file($target);
my $fenced = grep { $_ eq 'fenced' } @lines;
note "$interruptions killed, $fenced refused after a takeover";
$checker->check('relays that are killed', [ map { { id => $_ } } grep { $_ ne 'fenced' } @lines ],
	interruptions => $interruptions + $fenced, window => $BATCH, late_copies => 1);
is($node->sql('SELECT count(*) FROM outbox_archive'), $node->sql('SELECT count(*) FROM test_sent'),
	'what was acknowledged is in the archive, once');
is(scalar(() = $fake->published), 0, 'the workers have published none of it');
my @errors = grep { !/terminating connection|server closed the connection|connection failed/ } split /\n/, slurp_file($errors);
is(scalar @errors, 0, 'no relay has met an error, but that the server was gone') or diag join "\n", @errors[ 0 .. ($#errors > 4 ? 4 : $#errors) ];

# --- triggers that are disabled leave the mark of the route's relay out

my $problem = q{SELECT severity, subject, detail FROM outbox_problems WHERE problem = 'another relay''s route'};
$node->sql(<<'SQL');
BEGIN;
ALTER TABLE outbox DISABLE TRIGGER USER;
INSERT INTO outbox (event_type, payload, route) VALUES ('theirs', '{}', 'ext');
INSERT INTO outbox (event_type, payload, route, available_at) VALUES ('theirs', '{}', 'ext', now());
ALTER TABLE outbox ENABLE TRIGGER USER;
SELECT outbox_enqueue('ours', '{}');
COMMIT;
SQL
$node->wait_sql(q{SELECT count(*) FROM outbox WHERE route <> 'ext'}, 0);
$node->wait_turn;
is(scalar(() = $fake->published), 1, 'the workers publish none, whatever the row says');
$node->wait_sql($problem, q{critical|route "ext"|messages of another relay's route are marked as the workers'; 2 messages wait});
paste_problem($node, "another relay's route");
is($node->sql($problem), '', 'it is over when they are marked');
is($node->sql(q{SELECT count(*) FROM outbox_claim('ext', 10)}), 2, 'and their relay has them');
$node->sql('SELECT outbox_ack(token) FROM outbox_leases');

# --- back to the workers

$node->sql(q{SELECT test_enqueue(20, 5, route => 'ext')});
$node->sql(q{UPDATE outbox_route SET relay = 'internal' WHERE name = 'ext'});
$node->wait_drained;
is(scalar(() = $fake->published), 21, 'a route that goes back to the workers takes along what waits');

done_testing();
