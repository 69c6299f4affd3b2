# Three servers under Patroni with synchronous mode, a store of one etcd: under load
# the primary is switched over, and killed with its Patroni, in turns.  Nothing is
# lost, nothing was published that the new primary does not know, keys are in
# order.  All servers have the same name of their environment, and none is adopted.
# (Without Patroni: failover.pl.)
#
# OUTBOX_TEST_FULL=1: more rounds.

use strict;
use warnings;

use HTTP::Tiny;
use IO::Socket::INET;
use JSON::PP;
use Test::More;
use Time::HiRes qw(time);
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use OutboxTest::Checker;
use OutboxTest::Consumer;
use OutboxTest::Node;
use OutboxTest::Rabbit;
use OutboxTest::Util;

foreach my $program ('patroni', 'etcd')
{
	plan skip_all => "$program is not installed (make test-trade installs it)"
	  unless grep { -x "$_/$program" } split /:/, $ENV{PATH};
}

my $FULL = $ENV{OUTBOX_TEST_FULL};
my @ROUNDS = $FULL ? ('switchover', 'failover') x 5 : ('switchover', 'failover') x 2;
my $FLOW = $FULL ? 3000 : 800;
my $WINDOW = 100;
my $WORKERS = 2;
# Patroni's lock must outlive a machine that is busy with other things.
my $TTL = 20;
my $PATIENCE = 180;

# --- programs

my %running;

sub start_program
{
	my ($name, $log, @command) = @_;

	local $ENV{OUTBOX_ENVIRONMENT} = 'production';
	$running{$name} = IPC::Run::start(\@command, '<', \undef, '>>', $log, '2>&1',
		init => sub { chdir $PostgreSQL::Test::Utils::tmp_check });
	return;
}

sub kill_program
{
	my ($name) = @_;
	my $run = delete $running{$name} or return;

	$run->signal('KILL');
	eval { $run->finish };
	return;
}

# Below the range of ports that the system gives away.
sub free_port
{
	for (1 .. 100)
	{
		my $port = 12000 + int rand 16000;
		my $probe = IO::Socket::INET->new(Listen => 1, LocalAddr => '127.0.0.1', LocalPort => $port, ReuseAddr => 1);
		return $port if $probe;
	}
	die 'no free port';
}

seed();
my $rabbit = OutboxTest::Rabbit->start;
my $consumer = OutboxTest::Consumer->start($rabbit, exchange => 'outbox');
my $dir = "$PostgreSQL::Test::Utils::tmp_check/patroni";
mkdir $dir;
my ($etcd, $peer) = (free_port(), free_port());
start_program(
	'etcd', "$dir/etcd.log", 'etcd', '--name', 'one',
	'--data-dir', "$dir/etcd",
	'--listen-client-urls', "http://127.0.0.1:$etcd",
	'--advertise-client-urls', "http://127.0.0.1:$etcd",
	'--listen-peer-urls', "http://127.0.0.1:$peer",
	'--initial-advertise-peer-urls', "http://127.0.0.1:$peer",
	'--initial-cluster', "one=http://127.0.0.1:$peer");

my $superuser = getpwuid $<;
my ($bindir) = grep { -x "$_/initdb" } split /:/, $ENV{PATH};
my (%nodes, %rest);

sub add_node
{
	my ($name) = @_;
	my $node = $nodes{$name} = OutboxTest::Node->new($name);

	$rest{$name} = free_port();
	append_to_file("$dir/$name.yml", JSON::PP->new->canonical->encode({
		scope => 'trade',
		name => $name,
		restapi => { listen => "127.0.0.1:$rest{$name}", connect_address => "127.0.0.1:$rest{$name}" },
		etcd3 => { host => "127.0.0.1:$etcd" },
		bootstrap => {
			dcs => {
				ttl => $TTL, loop_wait => 1, retry_timeout => 5,
				synchronous_mode => JSON::PP::true,
				postgresql => {
					use_pg_rewind => JSON::PP::true,
					parameters => {
						wal_log_hints => 'on',
						max_connections => 100,
						max_prepared_transactions => 20,
						shared_preload_libraries => 'outbox',
						'outbox.broker_uri' => $rabbit->uri,
						'outbox.window' => $WINDOW,
						'outbox.workers' => $WORKERS,
						'outbox.poll_interval' => '200ms',
					} } },
			initdb => [ { encoding => 'UTF8' }, 'no-locale', { auth => 'trust' } ],
		},
		postgresql => {
			listen => '127.0.0.1:' . $node->port,
			connect_address => '127.0.0.1:' . $node->port,
			data_dir => $node->data_dir,
			bin_dir => $bindir,
			pgpass => "$dir/$name.pgpass",
			use_unix_socket => JSON::PP::true,
			remove_data_directory_on_diverged_timelines => JSON::PP::true,
			parameters => { unix_socket_directories => $node->host, log_line_prefix => '%m [%p] %b %q%a ' },
			pg_hba => [
				'local all all trust',
				'host all all 127.0.0.1/32 trust',
				'host replication all 127.0.0.1/32 trust',
			],
			authentication => {
				superuser => { username => $superuser, password => 'x' },
				replication => { username => 'replicator', password => 'x' },
				rewind => { username => $superuser, password => 'x' },
			},
		},
	}));
	start_patroni($name);
	return;
}

sub start_patroni
{
	my ($name) = @_;
	return start_program($name, $nodes{$name}->logfile, 'patroni', "$dir/$name.yml");
}

END
{
	my $status = $?;
	kill_program($_) foreach keys %running;
	foreach my $node (values %nodes)
	{
		kill_server($node) if -e $node->data_dir . '/postmaster.pid';
	}
	$? = $status;
}

# As a power failure does it.
sub kill_server
{
	my ($node) = @_;
	my ($pid) = slurp_file($node->data_dir . '/postmaster.pid') =~ /^(\d+)/;

	$node->{_pid} = $pid;
	$node->crash;
	return;
}

# --- what Patroni says

sub members
{
	foreach my $name (sort keys %rest)
	{
		my $answer = HTTP::Tiny->new(timeout => 5)->get("http://127.0.0.1:$rest{$name}/cluster");
		return @{ decode_json($answer->{content})->{members} // [] } if $answer->{success};
	}
	return;
}

sub by_role
{
	my ($role) = @_;
	my @names = map { $_->{name} }
	  grep { $_->{role} =~ /^($role)$/ && $_->{state} =~ /^(running|streaming)$/ } members();
	return @names;
}

sub leader { return (by_role('leader'))[0] // '' }

sub wait_whole
{
	my ($what) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;

	return wait_until("$what: three servers, one of them a synchronous standby",
		sub { by_role('leader') == 1 && by_role('sync_standby') == 1 && by_role('replica|sync_standby') == 2 },
		$PATIENCE);
}

# --- load

my $node;
my $checker;
my @load;

sub start_load
{
	@load = map {
		$checker->of($node)->run("SET client_min_messages = warning;\n"
			  . "SELECT test_enqueue(@{[ 1 + int rand 4 ]}, $_, 'l$_.'); SELECT pg_sleep(0.005);\n" x 20_000);
	} (2, 10, 40, 0);
	return;
}

sub stop_load
{
	$_->stop foreach @load;
	@load = ();
	return;
}

sub wait_flow
{
	my ($what, $n) = @_;
	my $before = $consumer->unique;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	return wait_until("messages flow: $what", sub { $consumer->unique > $before + $n }, $PATIENCE);
}

# --- the cluster

add_node('n1');
wait_until('a first leader', sub { leader() eq 'n1' }, $PATIENCE);
add_node($_) foreach 'n2', 'n3';
wait_whole('the cluster');
$node = $nodes{n1};
$node->sql('CREATE EXTENSION outbox');
$checker = OutboxTest::Checker->install($node);
is($node->sql('SELECT environment FROM outbox_control'), 'production',
	'Patroni passes the name of the environment on');
like($node->sql('SHOW synchronous_standby_names'), qr/n[23]/, 'a standby is synchronous');

my $round = 0;
foreach my $event (@ROUNDS)
{
	my $old = leader();
	my $name = "$event " . ++$round;

	note "--- $name, from $old";
	$node = $nodes{$old};
	$node->wait_drained;
	$node->sql('TRUNCATE test_sent');
	$consumer->stop;
	$consumer = OutboxTest::Consumer->start($rabbit, exchange => 'outbox');
	$node->sql(q{BEGIN; SELECT test_enqueue(5, 5, 'prepared'); PREPARE TRANSACTION 'open'});
	my ($candidate) = by_role('sync_standby');
	start_load();
	wait_flow("from $old", $FLOW);
	my $start = time;
	if ($event eq 'switchover')
	{
		my $answer = HTTP::Tiny->new(timeout => $PATIENCE)->post(
			"http://127.0.0.1:$rest{$old}/switchover",
			{ content => encode_json({ leader => $old, candidate => $candidate }) });
		is($answer->{status}, 200, "$name: Patroni did it") or diag $answer->{content};
	}
	else
	{
		kill_program($old);
		kill_server($node);
	}
	stop_load();
	wait_until("$name: another leader", sub { leader() ne '' && leader() ne $old }, $PATIENCE);
	is(leader(), $candidate, "$name: the synchronous standby took over");
	$node = $nodes{$candidate};
	$node->wait_sql('SELECT NOT pg_is_in_recovery()', 't', $PATIENCE);
	my $writable = time - $start;
	$node->sql(q{SELECT test_enqueue(1, 1, 'first')});
	my $id = $node->sql(q{SELECT id FROM test_sent WHERE key LIKE 'first%'});
	wait_until("$name: a message arrives from the new leader",
		sub { grep { ($_->{id} // '') eq $id } $consumer->records }, $PATIENCE);
	note sprintf '%s: %s takes writes after %.1f s, a message arrives %.2f s after that',
	  $name, $candidate, $writable, time - $start - $writable;
	start_load();
	wait_flow("from $candidate", $FLOW);
	stop_load();
	$node->sql(q{COMMIT PREPARED 'open'});
	start_patroni($old) if $event eq 'failover';
	$node->wait_sql(
		q{SELECT count(*) FROM pg_stat_activity WHERE query LIKE 'SELECT test_enqueue%' AND pid <> pg_backend_pid()},
		0, $PATIENCE);
	$node->wait_drained($PATIENCE);
	my $copy = $checker->of($node);
	wait_until("$name: the last message arrives", sub {
		my %got = map { ($_->{id} // '') => 1 } $consumer->records;
		return !grep { !$got{$_} } keys %{ $copy->committed };
	}, $PATIENCE);
	my $v = $copy->check("Patroni: $name under load", [ $consumer->records ],
		interruptions => $event eq 'failover' ? 1 : 0, window => 2 * $WINDOW * $WORKERS,
		case => "Patroni: $event");
	note sprintf '%s: %d messages, lost %d, ghosts %d, inversions %d, duplicates %d', $name, $v->{committed},
	  map({ scalar @{ $v->{$_} } } qw(lost ghosts disorder)), $v->{duplicates};
	is($node->sql('SELECT count(*) FROM outbox_workers WHERE state IN (\'idle\', \'publishing\')'),
		$WORKERS, "$name: nobody had to adopt anything");
	wait_whole("$name, after it");
}

done_testing();
