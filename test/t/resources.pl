# Resources and clocks: a wall clock that somebody sets, no memory, no
# descriptors, no connection slots, a relay that is terminated again and again:
# nothing is lost, nothing hangs, nothing leaks.  doc/dev/fault-cases.md A13, A14, A15, A24,
# F5, F25, G4, G5, G6, G7, G8.
#
# OUTBOX_TEST_FULL=1: the full sizes.  OUTBOX_TEST_SOAK=SECONDS (make
# test-soak): G5 alone, for so long.
#
# suite: test faults
# takes: 72 s

use strict;
use warnings;

use IO::Socket::UNIX;
use Test::More;
use Time::HiRes qw(time usleep);
use PostgreSQL::Test::Utils;
use OutboxTest::Checker;
use OutboxTest::FakeBroker;
use OutboxTest::LineTool;
use OutboxTest::Node;
use OutboxTest::Preload;
use OutboxTest::Proxy;
use OutboxTest::Util;

my $FULL = $ENV{OUTBOX_TEST_FULL};
my $SOAK = $ENV{OUTBOX_TEST_SOAK};
my $WINDOW = 100;
my $BACK = 5;                           # T_back, seconds
my $HOUR = 3600;
my $DAY = 24 * $HOUR;
seed();

# What is used after it was freed, or never set, is not zero by chance.
$ENV{MALLOC_PERTURB_} = 165;

my @lifetime = (lifetime => 3600 + ($SOAK // 0));
my $fake = OutboxTest::FakeBroker->start(@lifetime);
my $proxy = OutboxTest::Proxy->start($fake, @lifetime);
my $preload = OutboxTest::Preload->build;
my $node = OutboxTest::Node->create(
	broker => $proxy,
	start => 0,
	conf => <<"END");
max_connections = 20
max_files_per_process = 64
outbox.window = $WINDOW
outbox.retry_initial = 20ms
outbox.retry_max = 100ms
outbox.confirm_timeout = 20s
outbox.poll_interval = 1s
END
$preload->start($node);
$node->sql('CREATE EXTENSION outbox');
my $checker = OutboxTest::Checker->install($node);
$node->sql(q{UPDATE outbox_route SET max_attempts = 1000});
my $state = 'SELECT state FROM outbox_status';
my $fault = $node->data_dir . '/outbox_test_point';
my $log_mark = 0;
my $clock = 0;

# A case of its own: nothing is left of the one before.
sub begin
{
	my ($what) = @_;

	note "--- $what";
	$fake->do('forget');
	$proxy->do('forward', 'accept');
	set_clock(0);
	$node->wait_drained;
	$node->sql('DELETE FROM outbox; TRUNCATE test_sent, outbox_archive');
	$node->wait_sql($state, 'idle');
	$fake->begin_case;
	$log_mark = $node->log_end;
	$proxy->mark_connections;
	return;
}

# Every case ends here.  Only what was acked counts as received.
sub finish
{
	my ($what, %params) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;

	$fake->do('answer ack');
	$node->wait_drained($FULL ? 180 : 60);
	return $checker->check_copies($what, [ $fake->of_case ], window => $WINDOW, %params);
}

sub set_clock
{
	my ($offset) = @_;
	$clock = $offset;
	$preload->set_clock($clock);
	return;
}

sub jump
{
	my ($seconds) = @_;
	set_clock($clock + $seconds);
	return;
}

# Some messages, by a session that stays; none: its end.
my $producer;

sub trickle
{
	my ($n) = @_;

	$producer //= $node->session;
	return $producer->query_safe("SELECT test_enqueue($n, 3, 'trickle')") if $n;
	$producer->quit;
	$producer = undef;
	return;
}

# Is soon true, for what a clock that was set back would delay for so long.
sub soon
{
	my ($what, $seconds, $code) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	ok(wait_until($what, $code, $seconds + $BACK), $what) or return;
	note sprintf '%s: %.2f s', $what, $OutboxTest::Util::waited;
	return;
}

sub drained
{
	return $node->sql('SELECT count(*) FROM outbox') eq '0';
}

goto SOAK if $SOAK;

# --- G7: the wall clock is set, under load

begin('G7: the clock is set under load');
my $load = $checker->load($FULL ? 20_000 : 4000, keys => 50, per_tx => 5);
my $jumps = 0;
while ($load->running)
{
	jump(pick(grep { abs($clock + $_) <= $DAY } -$DAY, -$HOUR, $HOUR, $DAY));
	$jumps++;
	my $before = $fake->stats->{published};
	wait_until('messages flow after a jump',
		sub { $fake->stats->{published} > $before || !$load->running });
	usleep(rand 200_000);
}
ok($load->wait, 'producers notice nothing') or diag $load->error;
note "$jumps jumps";
finish("G7: the clock is set under load, by an hour or a day");
is($proxy->reconnects, 0, 'G7: and the connection is kept');

begin('G7: forward while confirms are waited for');
$fake->do('answer hold');
$checker->enqueue(20);
$fake->wait_case(20);
jump($DAY);
$checker->enqueue(1);
$fake->wait_case(21);
is($proxy->reconnects, 0, 'G7: a day forward is no confirm timeout');
$proxy->do('rst');
$fake->do('answer ack');
finish('G7: a day forward while confirms are waited for', interruptions => 1);

# --- G7: set back while something is waited for

begin('G7: back during a backoff');
$proxy->do('refuse', 'rst');
$checker->enqueue(20, keys => 5);
$node->wait_sql($state, 'broker down');
jump(-$DAY);
$proxy->do('accept');
soon('G7: connected again after a day back', 0.1, \&drained);
finish('G7: a day back during a backoff');

begin('G7: back while a connect hangs');
$proxy->do('blackhole', 'rst');
wait_until('the worker connects',
	sub { $node->sql($state) =~ /broker down|connecting/ });
jump(-$HOUR);
$checker->enqueue(20, keys => 5);
soon('G7: the connect is given up', 3,
	sub {
		$node->sql(q{SELECT last_error LIKE '%timed out' FROM outbox_workers})
		  eq 't';
	});
$proxy->do('accept');
soon('G7: connected again', 3.1, \&drained);
finish('G7: an hour back while a connect hangs');

begin('G7: back while a message makes no progress');
# It is given up after two heartbeats, ten seconds at least.
$node->set('outbox.heartbeat', '5s');
wait_until('reconnect with another heartbeat', sub { $proxy->reconnects > 0 });
$node->wait_sql($state, 'idle');
# The first message of a connection waits for its exchange's declaration.
$checker->enqueue(1);
wait_until('the exchange is declared', \&drained);
$proxy->mark_connections;
$proxy->do('stall up');
$checker->enqueue(1, size => 12_000_000);
wait_until(
	'the worker is in the midst of it',
	sub { $node->sql('SELECT count(*) FROM outbox_internal.outbox_claims()') eq '1' });
my $pid = $node->worker;
wait_until(
	'and sleeps there',
	sub {
		my $stat = slurp_file("/proc/$pid/stat");
		return $stat =~ /^\d+ \(.*\) S /s;
	});
jump(-$HOUR);
soon('G7: it is given up for lack of progress', 11, sub { $proxy->reconnects > 0 });
$proxy->do('forward', 'rst');
finish('G7: an hour back while a message makes no progress', interruptions => $proxy->reconnects);
$proxy->mark_connections;
$node->unset('outbox.heartbeat');
wait_until('reconnect with the old heartbeat', sub { $proxy->reconnects > 0 });

begin('G7: back while a confirm is waited for');
$node->set('outbox.confirm_timeout', '1s');
# here only: what is sent again must not wait for a second timeout
$fake->do('when conn=' . $fake->stats->{connections} . ' : silent');
$checker->enqueue(20);
$fake->wait_case(20);
jump(-$HOUR);
soon('G7: confirm timeout', 1, sub { $proxy->reconnects > 0 });
# The second connection has them before an answer is given again.
finish('G7: an hour back while a confirm is waited for', interruptions => 2);
$node->set('outbox.confirm_timeout', '20s');

begin('G7: back while the table is locked');
$fake->do('answer hold');
$checker->enqueue(1, keys => 1);
$fake->wait_case(1);
my $locker = $node->session;
$locker->query_safe('BEGIN; LOCK TABLE outbox');
my $waiting = q{SELECT count(*) FROM pg_stat_activity
	WHERE backend_type = 'outbox relay' AND wait_event_type = 'Lock'};
$fake->do('now ack');
wait_until('the worker waits for the table', sub { $node->sql($waiting) eq '1' });
jump(-$HOUR);
soon('G7: it does not wait for long', 1.75, sub { $node->sql($waiting) eq '0' });
$locker->query_safe('COMMIT');
$locker->quit;
$fake->do('answer ack');
$checker->enqueue(10, prefix => 'other', keys => 5);
soon('G7: it settles, and other messages go on', 1, \&drained);
finish('G7: an hour back while the table is locked');

begin('G7: back while a worker is to be restarted');
append_to_file($fault, "before_claim fatal 1\n");
$checker->enqueue(20, keys => 5);
$node->wait_log(qr/outbox test point at before_claim/, $log_mark);
jump(-$DAY);
soon('G7: a worker is back', 1.25, \&drained);
finish('G7: a day back while a worker is to be restarted');

begin('G7: back while nobody tells');
$node->sql(q{BEGIN; SELECT test_enqueue(10, 2); PREPARE TRANSACTION 'clock'});
$node->sql('SELECT pg_sleep(0.1)');
jump(-$HOUR);
$node->sql(q{COMMIT PREPARED 'clock'});
soon('G7: the poll finds it', 1, \&drained);
finish('G7: an hour back with a prepared transaction');

# --- G7: what is scheduled goes by the wall clock

sub schedule
{
	my ($when) = @_;
	$node->sql(<<"SQL");
INSERT INTO test_sent SELECT nextval('test_sent_n'),
	outbox_enqueue('test.event', '{}', available_at => now() + interval '$when')
SQL
	return;
}

begin('G7: scheduled');
schedule('1 hour');
schedule('23 hours');
$node->wait_sql($state, 'idle');
jump($HOUR);
soon('G7: a scheduled message after a jump over its time', 1,
	sub { (() = $fake->of_case) == 1 });
jump(-2 * $HOUR);
schedule('1 second');
soon('G7: one that is scheduled before what is gone', 2,
	sub { (() = $fake->of_case) == 2 });
jump($DAY);
finish('G7: scheduled messages');

# --- G6: no memory in librabbitmq, in OpenSSL, in palloc

# Terminated, so that the launcher does not count it as a crash, which would
# make the next one wait.
sub fresh_worker
{
	my $old = $node->worker;
	$node->sql("SELECT pg_terminate_backend($old)") if $old;
	wait_until('another worker',
		sub { my $new = $node->worker; $new && $new != ($old // 0) });
	$node->wait_sql($state, 'idle');
	return;
}

# Which of n allocations fail: all of them, or a choice.
sub choose
{
	my ($n, $most) = @_;
	my %chosen = (1 => 1);

	return 1 .. $n if $n <= $most;
	$chosen{ 1 + int rand $n } = 1 while keys %chosen < $most;
	return sort { $a <=> $b } keys %chosen;
}

# A connection, and messages on it: small ones and one of several frames.
sub connect_and_publish
{
	my $before = $proxy->stats->{connections};
	$proxy->do('rst');
	$node->sql('SELECT test_enqueue(4, 2), test_enqueue(1, 0, size => 200000)');
	return
	  wait_until('delivered',
		sub { drained() && $proxy->stats->{connections} > $before });
}

# Fails each chosen allocation in turn.
sub no_memory
{
	my ($what, $most, $code, %params) = @_;
	my $failed = 0;

	begin($what);
	$preload->fail(1 << 40, pid => $node->worker, %params);
	$code->();
	my $n = $preload->counted;
	$preload->fail(0);
	cmp_ok($n, '>', 0, "$what: there are allocations");
	my $start = time;
	foreach my $nth (choose($n, $most))
	{
		my $pid = $node->worker;
		$preload->fail($nth, pid => $pid, %params);
		$code->() or diag "$what: allocation $nth";
		$failed += $preload->failed;
		$preload->fail(0);
		fresh_worker() unless ($node->worker // 0) == $pid;
	}
	note sprintf '%s: %d allocations, %d failed, %.1f s', $what, $n, $failed,
	  time - $start;
	cmp_ok($failed, '>', 0, "$what: some failed");
	finish($what, interruptions => 1 + $proxy->reconnects);
	unlike($node->log_text($log_mark),
		qr/terminated by signal|PANIC|TRAP:/,
		"$what: nothing crashes");
	return;
}

no_memory('G6: malloc fails in librabbitmq',
	$FULL ? 10_000 : 6, \&connect_and_publish, callers => 'librabbitmq');

# Large rows, as small chunks come out of blocks that are there already.
no_memory(
	'G6: palloc fails',
	$FULL ? 200 : 4,
	sub {
		$node->sql('SELECT test_enqueue(8, 3, size => 20000)');
		return connect_and_publish();
	},
	callers => 'server');

my $tls_dir = PostgreSQL::Test::Utils::tempdir();
my $certificate = "$tls_dir/certificate.pem";
system( 'openssl', 'req', '-x509', '-newkey', 'rsa:2048', '-nodes', '-days',
	'7', '-subj', '/CN=localhost', '-addext', 'subjectAltName=IP:127.0.0.1',
	'-keyout', "$tls_dir/key.pem", '-out', $certificate) == 0
  or BAIL_OUT('no certificate');
append_to_file($certificate, slurp_file("$tls_dir/key.pem"));
my $front = OutboxTest::LineTool->start_tool('tls-front', '--to',
	$proxy->port, '--cert', $certificate);
$node->set('outbox.tls_ca_file', $certificate);
$node->set('outbox.broker_uri',
	'amqps://guest@127.0.0.1:' . $front->port);
$node->wait_log(qr/connected to the broker at "127.0.0.1:@{[ $front->port ]}"/,
	0);
no_memory('G6: malloc fails in OpenSSL',
	$FULL ? 100 : 4, \&connect_and_publish, callers => 'openssl');
no_memory('G6: malloc fails in librabbitmq with TLS',
	$FULL ? 10_000 : 3, \&connect_and_publish, callers => 'librabbitmq');
$node->set('outbox.broker_uri', $proxy->uri);
$node->wait_log(qr/connected to the broker at "127.0.0.1:@{[ $proxy->port ]}"/,
	$log_mark);

# --- G4: no descriptors

# Lets a process open so many more descriptors, and no further one.
sub leave_descriptors
{
	my ($pid, $n) = @_;
	my %used = map { (m{(\d+)$})[0] => 1 } glob "/proc/$pid/fd/*";
	my $limit = 0;

	for (my $free = 0; $free < $n || $used{$limit}; $limit++)
	{
		$free++ unless $used{$limit};
	}
	system('prlimit', '--pid', $pid, "--nofile=$limit:") == 0
	  or die "prlimit failed\n";
	return;
}

begin('G4: no descriptors');
foreach my $left (0 .. ($FULL ? 10 : 2))
{
	fresh_worker();
	leave_descriptors($node->worker, $left);
	$proxy->do('rst');
	$checker->enqueue(20, keys => 5);
	wait_until("delivered with $left descriptors left", \&drained);
}
fresh_worker();
my %refused = map { $_ => 1 }
  $node->log_text($log_mark) =~ /: +(.*Too many open files.*)/gi;
note $_ foreach sort keys %refused;
ok(%refused, 'G4: the worker runs out of them');
finish('G4: a worker without descriptors', interruptions => $proxy->reconnects + 1);
unlike($node->log_text($log_mark), qr/PANIC|terminated by signal|TRAP:/,
	'G4: no crash');

begin('G4: ulimit -n');
$node->stop;
system('prlimit', '--pid', $$, '--nofile=80:') == 0 or die "prlimit failed\n";
$preload->start($node);
my ($hard) = slurp_file("/proc/$$/limits") =~ /^Max open files +\d+ +(\d+)/m;
system('prlimit', '--pid', $$, "--nofile=$hard:") == 0 or die "prlimit failed\n";
$node->wait_sql('SELECT count(*) FROM outbox_workers WHERE pid IS NOT NULL', 1);
like(slurp_file('/proc/' . $node->worker . '/limits'),
	qr/^Max open files +80 /m, 'G4: the worker has few descriptors');
$load = $checker->load($FULL ? 20_000 : 1000, keys => 20, per_tx => 10);
while ($load->running)
{
	usleep(rand 100_000);
	$proxy->do('rst');
}
ok($load->wait, 'producers notice nothing') or diag $load->error;
finish('G4: all processes with ulimit -n 80', interruptions => $proxy->reconnects + 1);
$node->stop;
$preload->start($node);

# --- G8: no connection slot is left

begin('G8: max_connections');
my $session = $node->session;
my @clients;
my $user = getpwuid $>;
for (1 .. 40)
{
	my $client = IO::Socket::UNIX->new(Peer => $node->host . '/.s.PGSQL.' . $node->port)
	  or die "cannot connect: $!";
	my $startup = pack('N', 196608) . "user\0$user\0database\0postgres\0\0";
	my $answer;
	$client->syswrite(pack('N', 4 + length $startup) . $startup);
	$client->sysread($answer, 1);
	last if $answer eq 'E';
	push @clients, $client;
}
like($node->sql_fails('SELECT 1'), qr/too many clients|remaining connection slots/,
	'G8: nobody can connect');
note scalar(@clients) . ' more sessions';
my $relay = q{SELECT pid FROM pg_stat_activity WHERE backend_type = 'outbox relay'};
my $first = $session->query_safe($relay);
$session->query_safe('SELECT test_enqueue(50, 5)');
$fake->wait_case(50);
$session->query_safe("SELECT pg_terminate_backend($first)");
wait_until('a new worker without a connection slot',
	sub { my $now = $session->query_safe($relay); $now && $now ne $first }, $BACK);
$session->query_safe('SELECT test_enqueue(50, 5)');
$fake->wait_case(100);
$session->quit;
close $_ foreach @clients;
$node->wait_sql('SELECT true');
finish('G8: max_connections exhausted');

# --- A13, A14, A15: terminated, cancelled, killed, under load

my $loads = 0;

# Runs code while messages flow.
sub under_load
{
	my ($code) = @_;
	$load = $checker->load(
		$FULL ? 5000 : 1000,
		keys => 20,
		per_tx => 5,
		prefix => 'load' . ++$loads . '_')
	  unless $load && $load->running;
	return $code->();
}

sub workers
{
	return $node->sql(q{SELECT count(*) FILTER (WHERE backend_type = 'outbox relay')
		|| ' ' || count(*) FILTER (WHERE backend_type = 'outbox launcher')
		FROM pg_stat_activity});
}

begin('A13: terminated');
my $longest = 0;
my $two = 0;
for (1 .. ($FULL ? 200 : 6))
{
	usleep(rand 200_000);
	under_load(
		sub {
			my $old = $node->worker or return;
			$node->sql("SELECT pg_terminate_backend($old)");
			wait_until(
				'another worker',
				sub {
					my @pids = $node->backend_pids;
					$two++ if @pids > 1;
					return @pids && $pids[0] != $old;
				});
			$longest = $OutboxTest::Util::waited
			  if $OutboxTest::Util::waited > $longest;
		});
}
$load->wait;
cmp_ok($longest, '<', $BACK, 'A13: a terminated worker is back in time');
is($two, 0, 'A13: never two workers');
note sprintf 'longest: %.2f s', $longest;
my $v = finish('A13: pg_terminate_backend of the worker under load');
is($v->{duplicates}, 0, 'A13: not a single duplicate');

begin('A14: cancelled');
$pid = $node->worker;
for (1 .. ($FULL ? 200 : 30))
{
	usleep(rand 30_000);
	under_load(
		sub {
			# as often in one go as there are signals in a bad night
			$node->sql("SELECT pg_cancel_backend($pid) FROM generate_series(1, 5)");
		});
}
$load->wait;
$v = finish('A14: pg_cancel_backend of the worker under load');
is($v->{duplicates}, 0, 'A14: not a single duplicate');
is($node->worker, $pid, 'A14: the worker stays');
is($proxy->reconnects, 0, 'A14: and its connection');

begin('A15: killed');
my $kills = $FULL ? 10 : 1;
for (1 .. $kills)
{
	under_load(
		sub {
			$node->wait_sql('SELECT EXISTS (SELECT FROM test_sent)');
			usleep(rand 200_000);
			my @pids = $node->kill_backends('KILL');
			wait_until('killed worker gone',
				sub { !grep { OutboxTest::Node::alive($_) } @pids });
		});
	$node->wait_restarted;
	$load->wait;
	wait_until('one launcher and one worker', sub { workers() eq '1 1' });
}
finish('A15: kill -9 of the worker under load', interruptions => $kills);
my $end = time + 1;
my %seen;
$seen{ workers() }++ while time < $end;
is(join(', ', keys %seen), '1 1', 'A15: one launcher, one worker, for good');

# --- A24: a broker that is not there

# Of anonymous memory and without files, of which the server keeps some open.
sub footprint
{
	my ($pid) = @_;
	my ($memory) = slurp_file("/proc/$pid/status") =~ /^RssAnon:\s+(\d+) kB/m;
	my $descriptors = grep { (readlink // '') =~ /^(socket|anon_inode|pipe):/ }
	  glob "/proc/$pid/fd/*";
	return ($memory, $descriptors);
}

# In the server, as a thousand times is much for a psql each.
sub restart_worker
{
	my ($times) = @_;
	return $node->sql(<<"SQL");
DO \$\$
DECLARE
	old int := 0;
	new int;
BEGIN
	FOR i IN 1 .. $times LOOP
		FOR wait IN 1 .. 6000 LOOP
			PERFORM pg_stat_clear_snapshot();
			SELECT pid INTO new FROM pg_stat_activity
				WHERE backend_type = 'outbox relay' AND state = 'idle';
			EXIT WHEN new <> old;
			PERFORM pg_sleep(0.005);
		END LOOP;
		IF new IS NULL OR new = old THEN
			RAISE 'no worker came';
		END IF;
		PERFORM pg_terminate_backend(new);
		old := new;
	END LOOP;
END\$\$;
SQL
}

$node->set('outbox.retry_initial', '10ms');
$node->set('outbox.retry_max', '10ms');
begin('A24: unreachable');
$proxy->do('refuse', 'rst');
$node->wait_sql($state, 'broker down');
my ($launcher) = $node->backend_pids('outbox launcher');
my $starts = $FULL ? 1000 : 24;
$log_mark = $node->log_end;
restart_worker($starts / 4);
my $before = [ footprint($launcher) ];
restart_worker($starts - $starts / 4);
$checker->enqueue(20, keys => 5);
$node->wait_sql($state, 'broker down');

# a worker that stays says it once, however often it tries
my $failures = $FULL ? 300 : 20;
my $last = '';
wait_until(
	"$failures more failures",
	sub {
		my $at = $node->sql('SELECT last_error_at FROM outbox_status');
		$failures-- if $at ne $last;
		$last = $at;
		return $failures <= 0;
	},
	$FULL ? 300 : undef);
my $after = [ footprint($launcher) ];
note "launcher: @$before, then @$after (kB, descriptors)";
is($after->[1], $before->[1], 'A24: descriptors of the launcher are flat');
cmp_ok($after->[0] - $before->[0], '<=', 64, 'A24: and its memory');
my $lines = () = $node->log_text($log_mark) =~ /could not connect to the broker/g;
cmp_ok($lines, '<=', $starts + 1, 'A24: at most a line for each worker');
$proxy->do('accept');
finish('A24: workers started anew with an unreachable broker');

# --- F25: frames that a broker would not send

my @frames = map { pack 'H*', s/\s//gr } (
	'01 0001 0000000d 003c 0050 7f12345678abcdef 00 ce',          # ack
	'01 0001 0000000d 003c 0050 7f12345678abcdef 01 ce',          # multiple
	'01 0001 0000000d 003c 0078 7f12345678abcdef 00 ce',          # nack
	'01 0001 00000010 003c 0032 0138 024e4f 04 6e6f6e65 00 ce',   # return
	'02 0001 0000000e 003c 0000 0000000000000005 0000 ce',        # header
	'02 0001 00000018 003c 0000 0000000000000005 2000 00000006 01 61 74 00000001 ce',
	'03 0001 00000005 68656c6c6f ce',                             # body
	'08 0000 00000000 ce',                                        # heartbeat
	'01 0000 00000008 000a 003c 03 6c6f77 ce',                    # blocked
	'01 0000 00000004 000a 003d ce',                              # unblocked
	'01 0001 0000000d 0014 0028 01f4 02 4e4f 00000000 ce',        # channel.close
	'01 0000 0000000d 000a 0032 0140 02 4e4f 00000000 ce',        # connection.close
	'01 0001 00000004 0028 000b ce',                              # declare-ok
	'01 0000 00000015 000a 000a 00 09 0000000e 01 61 46 00000007 01 62 74 01 01 63 56 ce'
);

sub mutated
{
	my $bytes = join '', map { pick(@frames) } 1 .. 1 + rand 3;

	for (1 .. rand 4)
	{
		my $at = int rand length $bytes;
		my $how = int rand 5;
		if ($how == 0) { substr($bytes, $at, 1) = chr int rand 256 }
		elsif ($how == 1) { substr($bytes, $at, 1) = chr pick(0, 1, 127, 128, 255) }
		elsif ($how == 2) { substr($bytes, $at, 1 + rand 4) = '' }
		elsif ($how == 3)
		{
			substr($bytes, $at, 0) = join '', map { chr rand 256 } 1 .. 1 + rand 8;
		}
		else { substr($bytes, $at, 0) = substr $bytes, $at, rand 16 }
		last if $bytes eq '';
	}
	return $bytes;
}

begin('F25: mutated frames');
my $seconds = $FULL ? 60 : 3;
my $start = time;
my $sent = 0;
$pid = $node->worker;
while (time - $start < $seconds)
{
	my $hex = unpack 'H*', mutated() || next;
	if (rand() < 0.3)
	{
		my $stage = pick(qw(connect start-ok open channel confirm declare));
		$fake->do("stage $stage times=1 : raw $hex");
		$proxy->do('rst');
	}
	else
	{
		$fake->do("when times=1 : raw $hex");
	}
	trickle(5);
	$sent++;
	usleep(rand 20_000);
	if ($sent % 100 == 0)
	{
		$fake->do('forget');
		$proxy->do('rst');
	}
}
$fake->do('forget');
$proxy->do('rst');
note "$sent mutations, " . $proxy->reconnects . ' reconnects';
is($node->worker, $pid, 'F25: the worker is still the same');
finish("F25: mutated frames for $seconds s", case => 'F25: mutated frames',
	interruptions => $proxy->reconnects + 1);

SOAK:

# --- G5, F5: a connection that is reset again and again

my $resets = $FULL ? 2000 : 150;
$node->set('outbox.retry_initial', '10ms');
$node->set('outbox.retry_max', '10ms');
begin('G5: resets');
my $resets_done = 0;
my $soak_until = time + ($SOAK // 0);
my @samples;
my %pids = (worker => $node->worker, launcher => $node->backend_pids('outbox launcher'));
while ($SOAK ? time < $soak_until : $resets_done < $resets)
{
	my $n = $proxy->reconnects;
	trickle(10);
	usleep($SOAK ? rand 500_000 : rand 10_000);
	$proxy->do('rst');
	$proxy->wait_reconnects($n + 1);
	next if ++$resets_done % 20;
	push @samples,
	  { resets => $resets_done, time => time,
		map { $_ => [ footprint($pids{$_}) ] } keys %pids };
}
trickle();
finish('G5: reset again and again', interruptions => $proxy->reconnects + 1,
	case => 'G5, F5: connection reset again and again');
is($node->worker, $pids{worker}, 'G5: the worker is still the same');
foreach my $who (sort keys %pids)
{
	# the first third is for caches to fill
	my ($from, $to) = @samples[ $#samples / 3, -1 ];
	my ($memory, $descriptors) = map { $to->{$who}[$_] - $from->{$who}[$_] } 0, 1;
	note sprintf '%s: %+d kB, %+d descriptors in %d resets, %.0f s (%s kB)',
	  $who, $memory, $descriptors, $to->{resets} - $from->{resets},
	  $to->{time} - $from->{time}, $to->{$who}[0];
	# a socket and an epoll set come and go
	cmp_ok($descriptors, '<=', 2, "G5: descriptors of the $who");
	cmp_ok($memory, '<=', 512 + ($SOAK // 0) / 3600 * 1024,
		"G5: memory of the $who");
}

ok($node->log_text(0) !~ /PANIC|terminated by signal (?!9:)|TRAP:/,
	'the server survives all of it');
done_testing();
