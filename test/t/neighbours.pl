# The relay is a good neighbour whatever its broker does: in each of these states
# a fast shutdown ends in time, other databases can be created, dropped and
# moved, and no process of ours outlives a killed postmaster for long.  doc/dev/fault-cases.md
# A1 to A8, A10, A12, A23, B1, B2, F8 and the invariant I6.
#
# Each state is an entry of the table @states: how the relay gets there, how one
# sees that it is there, and how it is healed.
#
# OUTBOX_TEST_FULL=1: more rounds of the probes, ALTER DATABASE SET TABLESPACE in
# every state, a killed postmaster in each of the worst states (else in one of
# them by chance, beside the one with a missing standby), 50 restarts under load;
# and the times as a table, in stop-times.md beside the file OUTBOX_TEST_SUMMARY.
# OUTBOX_TEST_STATES=REGEXP: only states whose name, and cases whose number,
# matches.
#
# suite: test faults
# takes: 71 s

use strict;
use warnings;

use File::Basename ();
use IO::Socket::INET;
use List::Util qw(max shuffle);
use Test::More;
use Time::HiRes qw(time usleep);
use PostgreSQL::Test::Utils;
use OutboxTest::Checker;
use OutboxTest::Consumer;
use OutboxTest::FakeBroker;
use OutboxTest::Node;
use OutboxTest::Proxy;
use OutboxTest::Rabbit;
use OutboxTest::Util;

my $FULL = $ENV{OUTBOX_TEST_FULL};
my $WINDOW = 100;
my $STOP_LIMIT = 5;
my $DDL_LIMIT = 6;
my $WATCHDOG = 3;
my $ROUNDS = $FULL ? 4 : 1;
my $RESTARTS = $FULL ? 50 : 3;
my $LARGE = 12_000_000;                 # more than the kernel takes for a socket

seed();
my $rabbit = OutboxTest::Rabbit->start;
my $proxy = OutboxTest::Proxy->start($rabbit);
my $fake = OutboxTest::FakeBroker->start;
my $node = OutboxTest::Node->create(
	broker => $proxy,
	conf => <<"END");
outbox.window = $WINDOW
outbox.retry_initial = 20ms
outbox.retry_max = 100ms
END
my $checker = OutboxTest::Checker->install($node);
my $consumer = OutboxTest::Consumer->start($rabbit, exchange => 'outbox');
my $state = 'SELECT state FROM outbox_status';
my $relay = q{FROM pg_stat_activity WHERE backend_type = 'outbox relay'};
my $trying = q{SELECT state IN ('connecting', 'broker down') FROM outbox_workers};

# Asked by nobody but the C library, answered by nobody.
my $resolver = IO::Socket::INET->new(
	Proto => 'udp',
	LocalAddr => '127.0.0.1') or die "no UDP socket: $!";

my ($preload) = grep { -e } map { "$_/silent-resolver.so" } split /:/, $ENV{PATH};

# --- seeing where the relay is

# It waits neither for its latch nor for a lock: it is inside a call of a
# library, where it hears nothing.
my $deaf = q{(wait_event IS NULL OR wait_event LIKE 'OutboxBroker%')};

sub wait_deaf
{
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	return $node->wait_sql("SELECT $deaf $relay");
}

# Bytes that the kernel holds for a broker, because nobody reads them.
sub unread_bytes
{
	my ($broker) = @_;
	my $port = sprintf '%04X', $broker->port;
	my $bytes = 0;
	foreach my $line (split /\n/, slurp_file('/proc/net/tcp'))
	{
		my (undef, undef, $remote, $tcp_state, $queues) = split ' ', $line;
		next unless $tcp_state eq '01' && $remote =~ /:$port$/;
		$bytes += hex((split /:/, $queues)[0]);
	}
	return $bytes;
}

sub wait_full_socket
{
	my ($broker) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	return wait_until('the socket of the relay is full',
		sub { unread_bytes($broker) > 1_000_000 });
}

sub resolver_asked
{
	my $asked = 0;
	my $in = '';
	vec($in, $resolver->fileno, 1) = 1;
	while (select(my $ready = $in, undef, undef, 0))
	{
		$resolver->recv(my $query, 4096);
		$asked++;
	}
	return $asked;
}

my $broker_log_mark;

sub broker_log
{
	return slurp_file($rabbit->log, $broker_log_mark);
}

# --- getting it there

# Rows that the broker has confirmed, and that a prepared transaction has locked
# meanwhile.  The relay waits for nobody: it looks again from time to time.
my $holds = 0;

sub hold_rows
{
	# one message that declares the exchange and finds all settled
	release_row_locks();
	$checker->enqueue(1);
	$node->wait_drained;
	$proxy->do('stall down');
	$checker->enqueue(20);
	$node->wait_sql('SELECT count(*) FROM outbox_internal.outbox_claims() WHERE in_flight', 20);
	$holds++;
	$node->sql(<<"SQL");
BEGIN;
SELECT FROM outbox FOR UPDATE;
PREPARE TRANSACTION 'hold$holds';
SQL
	$proxy->do('forward');
	# all that waits is in flight, and stays there
	$node->wait_turn foreach 1 .. 2;
	is($node->sql("SELECT coalesce(wait_event_type, '') = 'Lock' $relay"),
		'f', 'row lock: the relay does not wait for it');
	is($node->sql('SELECT count(*) FROM outbox_internal.outbox_claims() WHERE in_flight'),
		20, 'row lock: it keeps what is confirmed');
	return;
}

sub release_row_locks
{
	$node->sql("ROLLBACK PREPARED '$_'")
	  foreach split /\n/, $node->sql('SELECT gid FROM pg_prepared_xacts');
	return;
}

# Entries: name, case; enter brings the running relay there, is_there sees that
# it is.  again (default is_there) is called before each stop and kill, since
# some states end by themselves; after a restart too, where the fault goes on.
# heal ends it.
#
# uri, env, pgoptions: of the server and of the sessions while it lasts.
# restarted (default is_there): sees that it is there after a restart, too.
# interruptions: of which each may bring as many duplicates as the window.
# orphan: one of the worst, where the postmaster is killed as well.
# barrier_limit: of the probes, if it is not $DDL_LIMIT.
# quiet: nothing is published meanwhile.
# stopped: called after the stop.
my @states = (
	{
		name => 'idle',
		case => 'A1',
		enter => sub { },
		is_there => sub { $node->wait_sql($state, 'idle') },
		stopped => \&closed_orderly,
		heal => sub { },
	},
	{
		name => 'mid-drain, confirms after 300 ms',
		case => 'A2',
		enter => sub {
			$proxy->do('delay both 150');
			$checker->enqueue($FULL ? 8000 : 2000);
			$checker->enqueue(500, keys => 200);
		},
		is_there => sub {
			$node->wait_sql('SELECT in_flight FROM outbox_status', $WINDOW);
		},
		heal => sub { $proxy->do('forward') },
	},
	{
		name => 'memory alarm, in a large message',
		case => 'A3',
		uri => sub { $rabbit->uri },
		enter => sub {
			$rabbit->memory_alarm(1);
			$checker->enqueue(3, size => $LARGE, per_tx => 1);
		},
		# heard between two frames: the rest is not even given to the kernel
		is_there => sub { $node->wait_sql($state, 'blocked') },
		heal => sub { $rabbit->memory_alarm(0) },
		interruptions => 1,
		barrier_limit => $WATCHDOG + 1,
		quiet => 1,
	},
	{
		name => 'publish blocked, nobody reads',
		case => 'B1 B2 A12',
		uri => sub { $fake->uri },
		enter => sub {
			# after a small message that comes first
			$fake->do('when exchange=outbox : deaf');
			$checker->enqueue(1);
			$checker->enqueue(3, size => $LARGE, per_tx => 1);
		},
		is_there => sub { wait_full_socket($fake) },
		heal => sub { },
		orphan => 1,
		barrier_limit => $WATCHDOG + 1,
		quiet => 1,
	},
	{
		name => 'handshake silent',
		case => 'A6',
		enter => sub {
			$proxy->do('silent', 'rst');
			$checker->enqueue(20, keys => 5);
		},
		is_there => sub { $node->wait_sql($trying); wait_deaf() },
		heal => sub { $proxy->do('accept', 'rst') },
		quiet => 1,
	},
	{
		name => 'SYN black-holed',
		case => 'A4 A12',
		enter => sub {
			$proxy->do('blackhole', 'rst');
			$checker->enqueue(20, keys => 5);
		},
		is_there => sub {
			$node->wait_sql($trying);
			wait_until('a SYN is not answered', \&unanswered_syn);
		},
		heal => sub { $proxy->do('accept', 'rst') },
		orphan => 1,
		quiet => 1,
	},
	{
		name => 'TLS silent',
		case => 'A5 A12',
		uri => sub { 'amqps://guest@127.0.0.1:' . $proxy->port },
		enter => sub {
			$proxy->do('silent', 'rst');
			$checker->enqueue(20, keys => 5);
		},
		is_there => sub { $node->wait_sql($trying); wait_deaf() },
		heal => sub { $proxy->do('accept', 'rst') },
		orphan => 1,
		quiet => 1,
	},
	{
		name => 'broker stopped (SIGSTOP)',
		case => 'F3',
		enter => sub {
			$rabbit->pause;
			$checker->enqueue(50, keys => 10);
		},
		is_there => sub {
			$node->wait_sql('SELECT in_flight > 0 FROM outbox_status');
		},
		restarted => sub { $node->wait_sql($trying) },
		heal => sub { $rabbit->resume },
		interruptions => 1,
		quiet => 1,
	},
	{
		name => 'synchronous standby missing',
		case => 'A9 A12',
		pgoptions => '-c synchronous_commit=local',
		enter => sub {
			$node->set('synchronous_standby_names', 'ghost');
			$checker->enqueue(20, keys => 5);
		},
		is_there => sub { $node->wait_sql("SELECT wait_event = 'SyncRep' $relay") },
		heal => sub { $node->unset('synchronous_standby_names') },
		orphan => 1,
		quiet => 1,
	},
	{
		name => 'row lock',
		case => 'A8 A12',
		enter => \&hold_rows,
		is_there => sub {
			$node->wait_sql('SELECT in_flight > 0 FROM outbox_status');
		},
		again => \&hold_rows,
		heal => \&release_row_locks,
		interruptions => 1,
		orphan => 1,
	},
	{
		name => 'resolver silent',
		case => 'A7',
		uri => sub { 'amqp://guest@broker.outbox.test:' . $proxy->port },
		env => {
			SILENT_RESOLVER_PORT => $resolver->sockport,
			SILENT_RESOLVER_COUNT => 2
		},
		enter => sub { $checker->enqueue(20, keys => 5) },
		is_there => sub {
			resolver_asked();
			wait_until('the resolver is asked', \&resolver_asked);
			wait_deaf();
		},
		heal => sub { },
		quiet => 1,
	},);

# The broker's log tells a goodbye from a connection that broke off.
sub closed_orderly
{
	wait_until('the broker logs the end of the connection',
		sub { broker_log() =~ /closing AMQP connection/ });
	unlike(broker_log(), qr/unexpectedly closed/,
		'the broker sees an orderly connection.close');
	return;
}

# A connection of the relay, not one of the proxy's own, in the state SYN_SENT.
sub unanswered_syn
{
	my $port = sprintf '%04X', $proxy->port;
	my ($pid) = $node->backend_pids;
	my %sockets;

	foreach my $line (split /\n/, slurp_file('/proc/net/tcp'))
	{
		my (undef, undef, $remote, $tcp_state, undef, undef, undef, undef,
			undef, $inode) = split ' ', $line;
		$sockets{"socket:[$inode]"} = 1
		  if $tcp_state eq '02' && $remote =~ /:$port$/;
	}
	return grep { $sockets{ readlink // '' } } glob "/proc/$pid/fd/*";
}

# --- the neighbours

my $base = $node->basedir;
mkdir "$base/$_" or die "$base/$_: $!" foreach qw(space moved);
$node->sql('CREATE DATABASE neighbour');
$node->sql('CREATE DATABASE moving');
$node->sql("CREATE TABLESPACE moved LOCATION '$base/moved'");

sub timed_command
{
	my ($sql, $dbname) = @_;
	my $start = time;
	my ($rc, $out, $err) = $node->psql($dbname // 'neighbour',
		"SET statement_timeout = '30s'; $sql", on_error_stop => 1);
	my $took = time - $start;
	ok($rc == 0, $sql) or diag $err;
	return $took;
}

# What somebody else does meanwhile, and how long it takes: the longest of each.
# Until the next checkpoint a dropped table leaves a file behind: without one,
# DROP TABLESPACE would need nobody else.
sub probe
{
	my ($times, $moves) = @_;
	my @probes = (
		[ 'SELECT' => 'SELECT count(*) > 0 FROM pg_class' ],
		[ 'CREATE DATABASE' => 'CREATE DATABASE probe' ],
		[ 'DROP DATABASE' => 'DROP DATABASE probe' ],
		[ 'CREATE TABLESPACE' => "CREATE TABLESPACE space LOCATION '$base/space'" ],
		[ 'CREATE TABLE' => 'CREATE TABLE left_over () TABLESPACE space' ],
		[ 'DROP TABLE' => 'DROP TABLE left_over' ],
		[ 'DROP TABLESPACE' => 'DROP TABLESPACE space' ]);
	push @probes,
	  [ 'SET TABLESPACE' => 'ALTER DATABASE moving SET TABLESPACE moved' ],
	  [ 'SET TABLESPACE' => 'ALTER DATABASE moving SET TABLESPACE pg_default' ]
	  if $moves;
	foreach (@probes)
	{
		my ($name, $sql) = @$_;
		my $took = timed_command($sql);
		$times->{$name} = max($times->{$name} // 0, $took);
	}
	return;
}

sub set_uri
{
	my ($uri) = @_;
	$node->adjust_conf('postgresql.conf', 'outbox.broker_uri', "'$uri'");
	return;
}

sub stop_server
{
	my ($name) = @_;
	my $offset = $node->log_end;
	my $start = time;
	$node->stop('fast');
	my $took = time - $start;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	cmp_ok($took, '<', $STOP_LIMIT, "$name: pg_ctl stop -m fast ends in time");
	unlike($node->log_text($offset), qr/PANIC|TRAP:|terminated by signal/,
		"$name: and without violence");
	return $took;
}

sub start_server
{
	my ($entry) = @_;
	my $env = $entry->{env};

	# the resolver of the postmaster's children, not that of psql
	local @ENV{ keys %$env } = values %$env if $env;
	local $ENV{LD_PRELOAD} = $preload if $env;
	$node->start;
	return;
}

# Kills the postmaster alone.  Returns how long the relay and its launcher went
# on; a new postmaster does not start beside any process of the old one.
sub kill_postmaster
{
	my ($name) = @_;
	my $postmaster = $node->postmaster_pid;
	my @ours = map { $node->backend_pids($_) } 'outbox relay', 'outbox launcher';
	my @children = OutboxTest::Node::_children_of($postmaster);

	local $Test::Builder::Level = $Test::Builder::Level + 1;
	is(scalar @ours, 2, "$name: there are a relay and a launcher");
	my $start = time;
	kill 'KILL', $postmaster;
	wait_until("$name: relay and launcher gone",
		sub { !grep { OutboxTest::Node::alive($_) } @ours });
	my $took = time - $start;
	cmp_ok($took, '<', $STOP_LIMIT + $WATCHDOG,
		"$name: relay and launcher do not outlive a killed postmaster");
	wait_until('all children gone',
		sub { !grep { OutboxTest::Node::alive($_) } @children });
	$node->{_pid} = undef;

	# see OutboxTest::Node::crash
	unlink $node->data_dir . '/postmaster.pid',
	  $node->host . '/.s.PGSQL.' . $node->port . '.lock'
	  if kill 0, $postmaster;
	return $took;
}

# Everything that was committed since the consumer had so many records.
sub wait_arrived
{
	my ($before) = @_;
	my $committed = $node->sql('SELECT count(*) FROM test_sent');
	my @records;
	wait_until(
		"$committed messages arrive",
		sub {
			@records = $consumer->records;
			splice @records, 0, $before;
			my %ids = map { $_->{id} => 1 } @records;
			return keys %ids >= $committed;
		},
		60);
	return @records;
}

# --- one state after the other

my @worst = map { $_->{name} } grep { $_->{orphan} } @states;
my %killed = map { $_ => 1 } $FULL ? @worst : (shuffle @worst)[0];

# Always here, as an orphan must not take the end of its wait for the standby.
$killed{'synchronous standby missing'} = 1;
my $wanted = $ENV{OUTBOX_TEST_STATES};
my @results;

sub run_state
{
	my ($entry) = @_;
	my ($name, $is_there) = @{$entry}{qw(name is_there)};
	my $again = $entry->{again} // $is_there;
	my $restarted = $entry->{restarted} // $is_there;
	my %times;
	my $begun = time;

	note "--- $name ($entry->{case})";
	local $ENV{PGOPTIONS} = $entry->{pgoptions} if $entry->{pgoptions};
	$node->wait_drained;
	$node->wait_sql($state, 'idle');
	$node->sql('TRUNCATE test_sent');
	my $before = $consumer->records;
	if ($entry->{uri})
	{
		set_uri($entry->{uri}->());
		$node->stop('fast');
		start_server($entry);
	}
	$entry->{enter}->();
	$is_there->();
	my $arrived = $consumer->records;
	for my $round (1 .. $ROUNDS)
	{
		probe(\%times, $FULL || $entry->{case} =~ /B2/);
		usleep(rand 1_000_000) if $FULL;
	}
	$is_there->();
	is(scalar($consumer->records), $arrived, "$name: nothing was published")
	  if $entry->{quiet};
	$again->();
	$broker_log_mark = -s $rabbit->log;
	$times{stop} = stop_server($name);
	$entry->{stopped}->() if $entry->{stopped};
	start_server($entry);

	if ($killed{$name})
	{
		$again->();
		$times{killed} = kill_postmaster($name);
		start_server($entry);
	}
	if ($entry->{quiet})
	{
		$restarted->();
		is(scalar($consumer->records),
			$arrived, "$name: nor after the restart");
	}

	$entry->{heal}->();
	if ($entry->{uri})
	{
		set_uri($proxy->uri);
		$entry->{env} ? $node->restart : $node->reload;
	}
	$checker->enqueue(10, keys => 5, prefix => 'after');
	$node->wait_drained(60);
	my @records = wait_arrived($before);
	$checker->check("$entry->{case}: $name", \@records,
		case => "$entry->{case}: $name",
		interruptions => ($entry->{interruptions} // 0)
		  * ($killed{$name} ? 2 : 1),
		window => $WINDOW);
	is( $node->sql(
			'SELECT (SELECT count(*) FROM outbox_archive WHERE attempts > 0)
				+ (SELECT count(*) FROM outbox WHERE attempts > 0)'),
		'0',
		"$name: no attempt is counted");

	my $limit = $entry->{barrier_limit} // $DDL_LIMIT;
	foreach my $probe (sort grep { !/^(stop|killed)$/ } keys %times)
	{
		cmp_ok($times{$probe}, '<', $limit, "$name: $probe is not delayed");
	}
	note "$name: ", join ', ',
	  map { sprintf '%s %.2f s', $_, $times{$_} } sort keys %times;
	note sprintf '%s: %.1f s', $name, time - $begun;
	push @results, { %$entry, times => \%times };
	return;
}

# --- A8: a backlog is locked, of which more than a window is in flight.  The others go
# on, beside the lock, as long as the number of those is bounded.

my $claims = 'FROM outbox_internal.outbox_claims()';
my $row_locked = q{FROM outbox_problems WHERE problem = 'row locked'};

# Everything is locked while it has two windows of it, and is confirmed then.
sub lock_claimed
{
	my ($window, $prefix, $lock) = @_;
	my $had = $node->sql("SELECT count(*) $claims");

	$proxy->do('stall down');
	$checker->enqueue(6 * $window, keys => 6 * $window, prefix => $prefix);
	$node->wait_sql("SELECT count(*) $claims", $had + 2 * $window);
	$lock->();
	$proxy->do('forward');
	return;
}

sub others_arrive
{
	my ($what, $count, $prefix) = @_;

	$checker->enqueue($count, keys => 7, prefix => $prefix);
	return wait_until($what,
		sub { (grep { ($_->{aggregate_id} // '') =~ /^$prefix/ } $consumer->records) >= $count }, 20);
}

sub locked_backlog
{
	my $window = 10;
	my $both = 2 * $window;
	my $session = $node->session;
	my $pid = $session->query_safe('SELECT pg_backend_pid()');

	$node->adjust_conf('postgresql.conf', 'outbox.window', $window);
	$node->reload;
	$node->sql('TRUNCATE test_sent');
	$node->wait_sql($state, 'idle');
	my $before = $consumer->records;
	# one message that declares the exchange
	$checker->enqueue(1);
	$node->wait_drained;
	lock_claimed($window, 'held', sub { $session->query_safe('BEGIN; SELECT FROM outbox FOR UPDATE') });

	ok(others_arrive('others are published beside the locked backlog', 50, 'beside'),
		'A8: publishing goes on beside a locked backlog');
	$node->wait_sql("SELECT detail $row_locked",
		"$both messages in flight wait for the row locks of process $pid");
	is($node->sql("SELECT subject, hint LIKE '%keys%', command $row_locked"),
		"process $pid|t|SELECT pg_terminate_backend($pid)", 'A8: the problem says who it is');
	is($node->sql("SELECT count(*) $claims WHERE in_flight"), $both, 'A8: what is confirmed stays known');

	# later ones of the keys that are held, and some rounds that try again
	$checker->enqueue(6 * $window, keys => 6 * $window, prefix => 'held');
	sleep 3;
	my @records = $consumer->records;
	my %held = map { $_->{id} => 1 } grep { ($_->{aggregate_id} // '') =~ /^held/ } @records;
	is(scalar(keys %held), $both, 'A8: nothing of the locked keys is sent beside what was in flight');
	is(scalar @records, scalar(keys %{ { map { $_->{id} => 1 } @records } }), 'A8: and nothing twice');

	# more than a second statement may keep: it is said, and ends with that lock
	lock_claimed($window, 'more',
		sub { $node->sql("BEGIN; SELECT FROM outbox FOR UPDATE SKIP LOCKED; PREPARE TRANSACTION 'more'") });
	my $all = 3 * $window;
	my $stopped = 'nothing is published meanwhile by worker 0, with three times outbox.window of them';
	my $said = "SELECT string_agg(detail, E'\n' ORDER BY subject DESC) $row_locked";
	my $both_lockers = join "\n",
		map { "$all messages in flight wait for row locks, $_; $stopped" }
		  "$both of them for those of process $pid", qq{$window of them for those of prepared transaction "more"};
	$node->wait_sql($said, $both_lockers);
	is($node->sql("SELECT command $row_locked AND subject = 'prepared transaction \"more\"'"), q{SELECT * FROM pg_prepared_xacts WHERE gid = 'more'},
		'A8: the one that came later is named as well');
	is($node->sql("SELECT count(*) $claims WHERE in_flight"), 3 * $window, 'A8: what is locked in flight is bounded');
	$checker->enqueue(5, keys => 5, prefix => 'last');
	sleep 2;
	is($node->sql($said), $both_lockers, 'A8: both are named as long as they are there');
	is(scalar(grep { ($_->{aggregate_id} // '') =~ /^last/ } $consumer->records), 0, 'A8: with too many nothing is sent');
	$node->sql(q{ROLLBACK PREPARED 'more'});
	wait_until('it goes on without the second lock',
		sub { (grep { ($_->{aggregate_id} // '') =~ /^last/ } $consumer->records) == 5 }, 10);

	my $start = time;
	$session->query_safe('COMMIT');
	$session->quit;
	$node->wait_drained(20);
	cmp_ok(time - $start, '<', 5, 'A8: all are settled soon after the lock');
	is($node->sql("SELECT count(*) $row_locked"), 0, 'A8: and the problem is over');
	@records = wait_arrived($before);
	my $v = $checker->check('A8: a locked backlog', \@records, case => 'A8: a locked backlog');
	is($v->{duplicates}, 0, 'A8: without duplicates');
	$node->adjust_conf('postgresql.conf', 'outbox.window', $WINDOW);
	$node->reload;
	return;
}

locked_backlog() if !defined $wanted || 'A8' =~ $wanted;

my @selected = grep { !defined $wanted || $_->{name} =~ $wanted } @states;
run_state($_) foreach @selected;
is(scalar @results, scalar @selected, 'all states were tested');

# --- F8: a disk alarm while idle, then small messages: they are blocked, and the
# relay is not; the connection stays

sub disk_alarm_while_idle
{
	$node->sql('TRUNCATE test_sent');
	$node->wait_sql($state, 'idle');
	my $before = $consumer->records;
	my $connections = $proxy->stats->{connections};
	my %times;

	$rabbit->disk_alarm(1);
	$checker->enqueue(3);
	$node->wait_sql($state, 'blocked');
	my $start = time;
	my $times_deaf = 0;
	wait_until(
		'longer than the watchdog',
		sub {
			$times_deaf++ if $node->sql("SELECT $deaf $relay") eq 't';
			return time - $start > $WATCHDOG + 0.5;
		});
	cmp_ok($times_deaf, '<=', 2, 'F8: a blocked relay waits where it can be woken');
	probe(\%times);
	cmp_ok(max(values %times), '<', $DDL_LIMIT, 'F8: nobody is delayed');
	is(scalar($consumer->records), $before, 'F8: nothing was published');
	$rabbit->disk_alarm(0);
	$start = time;
	my @records = wait_arrived($before);

	# rabbitmqctl itself returns some time after the alarm is cleared
	my $took = time - $start;
	$start = time;
	$checker->enqueue(3);
	@records = wait_arrived($before);
	cmp_ok($took, '<', 2 + 10 * (time - $start), 'F8: it goes on at once');
	$node->wait_drained;
	my $v = $checker->check('F8: disk alarm while idle', \@records,
		case => 'F8: disk alarm while idle');
	is($v->{duplicates}, 0, 'F8: without duplicates');
	is($proxy->stats->{connections}, $connections,
		'F8: on the same connection');
	return;
}

# --- A10: smart shutdown with a client

sub smart_stop
{
	$node->sql('TRUNCATE test_sent');
	my $before = $consumer->records;
	my $client = $node->session;
	my $postmaster = $node->postmaster_pid;

	$client->query_safe('SELECT test_enqueue(100, 10)');
	system_or_bail('pg_ctl', '-D', $node->data_dir, '-m', 'smart', '-W', 'stop');
	wait_until('new sessions are refused',
		sub { scalar $node->psql('postgres', 'SELECT') != 0 });
	$client->query_safe('SELECT test_enqueue(100, 10)');
	wait_until('all are settled',
		sub { $client->query_safe('SELECT count(*) FROM outbox') eq '0' });
	is($client->query_safe(
			q{SELECT count(*) FROM outbox_workers WHERE pid IS NOT NULL}),
		'1', 'A10: the relay goes on until the last client leaves');
	$client->quit;
	my $start = time;
	wait_until('the server is gone',
		sub { !OutboxTest::Node::alive($postmaster) });
	my $took = time - $start;
	cmp_ok($took, '<', $STOP_LIMIT, 'A10: then the server stops in time');
	note sprintf 'smart shutdown: %.2f s', $took;
	$node->{_pid} = undef;
	$node->start;
	my @records = wait_arrived($before);
	$checker->check('A10: smart shutdown with a client', \@records,
		case => 'A10: smart shutdown with a client');
	return;
}

# Of a key that is out of order: when each message came, and when it was enqueued.
sub tell_history
{
	my ($text, @records) = @_;
	my ($key) = $text =~ /^key (\S+):/ or return;
	my %sent = map { $_->[0] => $_ } $node->rows(
		"SELECT id, n, seq, xmin, extract(epoch FROM created_at), extract(epoch FROM published_at) FROM (SELECT s.id, n, seq, a.xmin, created_at, published_at FROM test_sent s JOIN outbox_archive a USING (id) WHERE key = '$key') s");
	diag $text;
	diag join ' ', sprintf('%.6f', $_->{us} / 1e6), $_->{redelivered}, map { $_ // '' } @{ $sent{ $_->{id} } }
	  foreach grep { ($_->{aggregate_id} // '') eq $key } @records;
	return;
}

# --- A23: one restart after the other, under load

sub restarts_under_load
{
	my @times;

	$node->sql('TRUNCATE test_sent');
	my $before = $consumer->records;
	for my $i (1 .. $RESTARTS)
	{
		my @loads = map {
			$checker->load(100_000, keys => 12, prefix => "r$i.$_.", per_tx => 5)
		} 1 .. 4;
		my $now = $consumer->records;
		wait_until('messages flow', sub { $consumer->records > $now + 100 });
		usleep(rand 300_000);
		push @times, stop_server("A23: restart $i");
		$_->wait foreach @loads;
		is(join('', map { $_->complaints } @loads), '', "A23: restart $i: producers end with the server, and not before");
		$node->start;
	}
	$node->wait_drained(120);
	my @records = wait_arrived($before);
	my $v = $checker->check("A23: restarts under load", \@records,
		case => 'A23: restarts under load');
	tell_history($_, @records) foreach @{ $v->{disorder} };
	note sprintf '%d restarts, %d messages, longest stop %.2f s', $RESTARTS,
	  $v->{committed}, max @times;
	return;
}

foreach (
	[ 'F8' => \&disk_alarm_while_idle ],
	[ 'A10' => \&smart_stop ],
	[ 'A23' => \&restarts_under_load ])
{
	my ($case, $code) = @$_;
	$code->() if !defined $wanted || $case =~ $wanted;
}
$consumer->stop;

# --- the table

sub cell
{
	my ($seconds) = @_;
	return defined $seconds ? sprintf '%.2f', $seconds : '';
}

my @columns = (
	[ 'pg_ctl stop -m fast' => 'stop' ],
	map({ [ $_ => $_ ] } 'CREATE DATABASE', 'DROP DATABASE', 'DROP TABLESPACE',
		'SET TABLESPACE'),
	[ 'relay gone after kill -9 of the postmaster' => 'killed' ]);
my @table = (
	[ 'state', map { $_->[0] } @columns ],
	[ '---', map { '---:' } @columns ],
	map {
		my $result = $_;
		[ $result->{name}, map { cell($result->{times}{ $_->[1] }) } @columns ]
	} @results);
my $table = join '', map { '| ' . join(' | ', @$_) . " |\n" } @table;
note $table;
if ($FULL && $ENV{OUTBOX_TEST_SUMMARY} && !defined $wanted)
{
	my @now = localtime;
	my $date = sprintf '%d-%02d-%02d', $now[5] + 1900, $now[4] + 1, $now[3];
	my $version = $node->sql('SHOW server_version');
	PostgreSQL::Test::Utils::append_to_file(
		File::Basename::dirname($ENV{OUTBOX_TEST_SUMMARY}) . '/stop-times.md',
		<<"END" . $table);
# How long others wait for the relay

Written by test/t/neighbours.pl (`make test-faults`) on $date, of commit $ENV{OUTBOX_TEST_COMMIT}, with PostgreSQL
$version. Seconds: of a command the longest of $ROUNDS rounds, of a stop and a kill the only
one. The databases and the tablespace are others than the relay's. Limits: stop $STOP_LIMIT s,
commands $DDL_LIMIT s, end after the postmaster was killed ${\ ($STOP_LIMIT + $WATCHDOG)} s.

END
}

done_testing();
