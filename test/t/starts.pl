# Starts, logins and databases that fail: the relay neither hangs nor storms nor
# floods the log, others are not affected, and it is back by itself when the cause
# is gone.  doc/dev/fault-cases.md A17, A18, A19, A21, A22, A24, B6, B8, B9, B18, F21, F22.
#
# OUTBOX_TEST_FULL=1: the sizes of the cases, but a login is refused for three minutes
# and not for ten (the largest wait, 30 s, is reached within one).
#
# suite: test faults
# takes: 88 s

use strict;
use warnings;

use List::Util qw(max min sum);
use Test::More;
use Time::HiRes qw(time);
use PostgreSQL::Test::Utils;
use OutboxTest::Checker;
use OutboxTest::Consumer;
use OutboxTest::Node;
use OutboxTest::Rabbit;
use OutboxTest::Util;

my $begun = time;
my $FULL = $ENV{OUTBOX_TEST_FULL};
my $WINDOW = 100;
my $STOP = 5;
my $BACK = 10;
# Largest wait between two connects, and how long a login stays refused.
my $RETRY_MAX_S = $FULL ? 30 : 2;
my $REFUSED_S = $FULL ? 180 : 8;
my $ERRORS_S = $FULL ? 60 : 5;
my $RESTARTS = $FULL ? 1000 : 20;

seed();
my $rabbit = OutboxTest::Rabbit->start;
$rabbit->ctl('add_user', 'relay', 'first');
$rabbit->ctl('set_permissions', '-p', '/', 'relay', '.*', '.*', '.*');
my $passfile = "$PostgreSQL::Test::Utils::tmp_check/starts_passfile";
my $broken_passfile = "$passfile.broken";
my $relay_uri = 'amqp://relay@127.0.0.1:' . $rabbit->port;

sub write_passfile
{
	my ($file, $password) = @_;
	unlink "$file.new";
	append_to_file("$file.new", "*:*:*:relay:$password\n");
	chmod 0600, "$file.new";
	rename "$file.new", $file or die "$file: $!";
	return;
}

write_passfile($passfile, 'first');
write_passfile($broken_passfile, 'wrong');
my $node = OutboxTest::Node->create(
	conf => <<"END");
outbox.broker_uri = '$relay_uri'
outbox.passfile = '$passfile'
outbox.window = $WINDOW
outbox.retry_initial = 200ms
outbox.retry_max = ${RETRY_MAX_S}s
END
my $checker = OutboxTest::Checker->install($node);
my $consumer = OutboxTest::Consumer->start($rabbit, exchange => 'outbox');
my $state = 'SELECT state FROM outbox_status';
my $order = $node->data_dir . '/outbox_test_point';
my $rabbit_log = $rabbit->log;

sub relay_lines
{
	my ($offset) = @_;
	return grep {
		/(LOG|WARNING|ERROR|FATAL|PANIC):/
		  && /outbox (relay|launcher)|background worker "outbox/
	} split /\n/, $node->log_text($offset);
}

# The login is refused so often from this offset of the broker's log on; times in
# seconds.
sub refusals
{
	my ($offset, $what) = @_;
	my @times;
	foreach (split /\n/, slurp_file($rabbit_log, $offset))
	{
		push @times, $1 * 3600 + $2 * 60 + $3
		  if /^\S+ (\d+):(\d+):([\d.]+)\S* .*$what/;
	}
	return @times;
}

sub backend_cpu_s
{
	my ($pid) = @_;
	my @stat = split / /, slurp_file("/proc/$pid/stat") =~ s/^.*\) //sr;

	# its own and that of its children, of which these are those that have ended
	return sum(@stat[ 11 .. 14 ]) / 100;
}

# Everything enqueued since the last call has arrived.
my $seen = 0;

sub check_all
{
	my ($name, %params) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	$node->wait_drained($params{back} // $BACK);
	$consumer->wait_count($seen + $node->sql('SELECT count(*) FROM test_sent'));
	my @records = $consumer->records;
	splice @records, 0, $params{before} // 0;
	$checker->check($name, \@records, case => $name, %params);
	return;
}

# A subtest's own messages: returns the number of records before.
sub begin
{
	note sprintf 'after %.0f s', time - $begun;
	$node->sql('TRUNCATE test_sent');
	$seen = $consumer->unique;
	return scalar(@{ [ $consumer->records ] });
}

sub no_attempts
{
	my ($name) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	is( $node->sql(q{SELECT count(*) FROM outbox WHERE attempts > 0 OR status = 'failed'}),
		0, "$name: no message pays for it");
	return;
}

# --- A21, A22: settings that change under load

my $before = begin();
my @loads = map {
	$checker->load(
		$FULL ? 20_000 : 3000,
		keys => 50,
		prefix => "l$_.",
		per_tx => 5)
} 1 .. 2;
wait_until('messages flow', sub { $consumer->unique > $seen + 200 });
my $offset = $node->log_end;
$rabbit->ctl('change_password', 'relay', 'second');
write_passfile($passfile, 'second');
my $start = time;
$node->reload;
$node->wait_sql('SELECT reconnects >= 1 FROM outbox_workers');
cmp_ok(time - $start, '<', 5, 'A21: a new password is used soon after the reload');
my $at = $consumer->unique;
wait_until('messages flow', sub { $consumer->unique > $at || !$loads[0]->running });

chmod 0644, $passfile;
$node->reload;
$node->wait_sql(q{SELECT severity || problem FROM outbox_problems}, 'warningpassword file not private');
like($node->sql('SELECT last_error FROM outbox_status'),
	qr/group or world access/, 'A22: a password file that others may read is told');
$at = $consumer->unique;
my $extra = $checker->load(300, keys => 10, prefix => 'more');
wait_until('messages flow on the old connection',
	sub { $consumer->unique >= $at + 300 });
$extra->wait;
$node->append_conf('postgresql.conf', "outbox.broker_uri = 'http://nowhere'");
$node->reload;
$node->wait_log(qr/invalid value for parameter "outbox.broker_uri"/, $offset);
$extra = $checker->load(300, keys => 10, prefix => 'evenmore');
wait_until('messages flow', sub { $consumer->unique >= $at + 600 });
$extra->wait;
chmod 0600, $passfile;
$node->adjust_conf('postgresql.conf', 'outbox.broker_uri', undef);
$node->append_conf('postgresql.conf', "outbox.broker_uri = '$relay_uri'");
$node->reload;
$node->wait_sql("SELECT state IN ('idle', 'publishing') FROM outbox_status");
ok($_->wait, 'A21, A22: the load went through') foreach @loads;
check_all('A21, A22: password changed, password file and URI unusable, under load',
	before => $before, back => 60);
is($node->sql('SELECT reconnects FROM outbox_workers'),
	1, 'A22: no connection was lost for settings that cannot be used');
is($node->sql('SELECT hint IS NULL FROM outbox_status'), 't', 'A22: no hint is left');
no_attempts('A21, A22');

# --- F21: the login is refused for long

$before = begin();
$offset = $node->log_end;
my $rabbit_offset = -s $rabbit_log;
write_passfile($passfile, 'wrong');
$node->sql('SELECT outbox_worker_restart()');
$checker->enqueue(300, keys => 30);
$node->wait_sql($state, 'broker down');
$start = time;
wait_until("login refused for $REFUSED_S s",
	sub { time - $start > $REFUSED_S }, $REFUSED_S + 10);
like($node->sql('SELECT last_error FROM outbox_status'),
	qr/login was refused.*ACCESS_REFUSED/, 'F21: the broker\'s words');
my @lines = relay_lines($offset);
cmp_ok(scalar @lines, '<=', 1, 'F21: one line in the log') or diag join "\n", @lines;
my @times = refusals($rabbit_offset, 'login refused|refused: user');
cmp_ok(scalar @times, '>=', 5, 'F21: it tries again');
# 0.2 s doubled up to the largest wait, spread by a quarter
my ($expected, $wait) = (1, 0.2);
for (my $sum = 0; $sum <= time - $start + 1; $wait = $wait * 2 > $RETRY_MAX_S ? $RETRY_MAX_S : $wait * 2)
{
	$sum += 0.75 * $wait;
	$expected++;
}
cmp_ok(scalar @times, '<=', $expected, 'F21: one attempt a step of the backoff');
note sprintf 'F21: %d attempts in %.0f s, waits %s', scalar @times, time - $start,
  join ' ', map { sprintf '%.1f', $times[$_] - $times[ $_ - 1 ] } 1 .. $#times;
cmp_ok(max(map { $times[$_] - $times[ $_ - 1 ] } 1 .. $#times),
	'>', 0.7 * $RETRY_MAX_S, 'F21: the waits grow');
no_attempts('F21');
write_passfile($passfile, 'second');
$start = time;
$node->reload;
check_all('F21: password file mended, reload', before => $before, back => 5);
cmp_ok(time - $start, '<', 5, 'F21: it is back at once');
@lines = relay_lines($offset);
cmp_ok(scalar @lines, '<=', 2, 'F21: and one line for the end of it')
  or diag join "\n", @lines;

# --- F22: other reasons not to be let in

sub refused
{
	my ($name, $told, $break, $mend) = @_;
	my $records = begin();
	my $log = $node->log_end;

	$break->();
	$checker->enqueue(200, keys => 20);
	$node->wait_sql($state, 'broker down');
	my $tries = sub { $node->sql(q{SELECT extract(epoch FROM last_error_at) FROM outbox_status}) };
	my %seen_at;
	wait_until("$name: three attempts",
		sub { $seen_at{ $tries->() } = 1; keys %seen_at >= 3 });
	like($node->sql('SELECT last_error FROM outbox_status'), $told, "$name: the reason");
	isnt($node->sql(q{SELECT coalesce(hint, '') FROM outbox_status}), '', "$name: a hint");
	no_attempts($name);
	my @said = relay_lines($log);
	cmp_ok(scalar @said, '<=', 2, "$name: log lines") or diag join "\n", @said;
	$mend->();
	my $mended = time;
	check_all($name, before => $records, interruptions => 1, window => $WINDOW,
		back => $RETRY_MAX_S * 1.25 + 5);
	note sprintf '%s: back after %.1f s', $name, time - $mended;
	return;
}

refused(
	'F22: virtual host missing',
	qr/could not open virtual host "shop".*vhost shop not found/s,
	sub { $node->set('outbox.broker_uri', "$relay_uri/shop") },
	sub {
		$node->unset('outbox.broker_uri');
	});
my @reasons = (
	[
		'F22: no right on the virtual host',
		qr/could not open virtual host.*refused/s,
		sub { $rabbit->ctl('clear_permissions', '-p', '/', 'relay') },
		sub { $rabbit->ctl('set_permissions', '-p', '/', 'relay', '.*', '.*', '.*') }
	],
	[
		'F22: connection limit of the user reached',
		qr/connection limit/,
		sub { $rabbit->ctl('set_user_limits', 'relay', '{"max-connections": 0}') },
		sub { $rabbit->ctl('clear_user_limits', 'relay', 'max-connections') }
	],
	[
		'F22: connection limit of the virtual host reached',
		qr/connection limit/,
		sub { $rabbit->ctl('set_vhost_limits', '-p', '/', '{"max-connections": 0}') },
		sub { $rabbit->ctl('clear_vhost_limits', '-p', '/') }
	]);
foreach ($FULL ? @reasons : pick(@reasons))
{
	my ($name, $told, $break, $mend) = @$_;
	refused($name, $told,
		sub { $break->(); $node->sql('SELECT outbox_worker_restart()') }, $mend);
}
$consumer->stop;
$consumer = OutboxTest::Consumer->start($rabbit, exchange => 'outbox');
refused(
	'F22: node put into maintenance (320)',
	qr/refused|CONNECTION_FORCED/,
	sub { $rabbit->erlang('rabbit_maintenance:drain()') },
	sub { $rabbit->erlang('rabbit_maintenance:revive()') });

# --- B18: the neighbour has a login that is refused, or a password file that is
# not there

$node->sql(<<'SQL');
CREATE DATABASE broken;
ALTER DATABASE broken SET outbox.enabled = off;
SQL
$node->sql('CREATE EXTENSION outbox', 'broken');
my %in = (
	postgres => $checker,
	broken => OutboxTest::Checker->install($node, dbname => 'broken'));
$node->wait_sql($state, 'disabled', undef, 'broken');
my $script = "$PostgreSQL::Test::Utils::tmp_check/starts_load.sql";
unlink $script;
append_to_file($script, "SELECT test_enqueue(1, 5, 'c' || :client_id || '.');\n");

# A steady load on both; milliseconds from enqueue to settling in the healthy one.
sub steady_load
{
	my @runs = map {
		IPC::Run::start(
			[
				'pgbench', '-n', '-c', 2, '-R', 100, '-T', $FULL ? 10 : 2, '-f', $script,
				'-h', $node->host, '-p', $node->port, $_
			],
			'<', \undef, '>', \my $out, '2>', \my $err)
	} sort keys %in;
	$_->finish foreach @runs;
	$node->wait_drained;
	return map { $_->[0] } $node->rows(<<'SQL');
SELECT extract(epoch FROM published_at - created_at) * 1000 FROM outbox_archive
WHERE id IN (SELECT id FROM test_sent)
SQL
}

# In turns, and the best of each: whatever else the machine does makes it worse at
# times, what the neighbour does would make it worse each time.
my (%p99, %median);
foreach my $round (1 .. 3)
{
	foreach my $neighbour ('disabled', 'broker down')
	{
		$node->sql("ALTER DATABASE broken SET outbox.passfile = '$broken_passfile'");
		$node->sql('ALTER DATABASE broken SET outbox.enabled = '
			  . ($neighbour eq 'disabled' ? 'off' : 'on'));
		$node->sql('SELECT outbox_worker_restart()', 'broken');
		$node->wait_sql($state, $neighbour, undef, 'broken');
		$before = begin();
		my @ms = steady_load();
		check_all("B18: load beside a database that is: $neighbour ($round)",
			before => $before, case => "B18: beside a database that is: $neighbour");
		push @{ $p99{$neighbour} }, percentile(99, @ms);
		push @{ $median{$neighbour} }, median(@ms);
	}
}
foreach my $neighbour (sort keys %p99)
{
	note sprintf 'B18: beside %s: median %s ms, p99 %s ms', $neighbour,
	  join(' ', map { sprintf '%.1f', $_ } @{ $median{$neighbour} }),
	  join(' ', map { sprintf '%.1f', $_ } @{ $p99{$neighbour} });
}
# Beside other tests the best of three is no measure of a p99 either (seen: 229 and 62 ms).
cmp_ok(min(@{ $p99{'broker down'} }), '<', ($FULL ? 2 : 4) * min(@{ $p99{disabled} }) + ($FULL ? 50 : 250),
	'B18: its p99 is as before');
cmp_ok(min(@{ $median{'broker down'} }), '<', 2 * min(@{ $median{disabled} }) + 50, 'B18: and its median');
is($node->sql($state, 'broken'), 'broker down', 'B18: the broken one says so');
is($node->sql('SELECT (SELECT count(*) FROM outbox) = (SELECT count(*) FROM test_sent), max(attempts) FROM outbox', 'broken'),
	't|0', 'B18: its messages wait');

# --- A17: SIGTERM to a worker that is stuck in the start

# Databases whose rename is not committed: nobody can connect.
sub rename_and_wait
{
	my @sessions;
	foreach my $database (@_)
	{
		my $session = $node->session;
		$session->query_safe('BEGIN');
		$session->query_safe("ALTER DATABASE $database RENAME TO new_$database");
		push @sessions, $session;
	}
	return @sessions;
}

my $stuck = q{SELECT string_agg(pid::text, ' ') FROM pg_locks WHERE NOT granted AND locktype = 'object' AND classid = 'pg_database'::regclass};
$node->sql('CREATE DATABASE another');
$node->sql('CREATE EXTENSION outbox', 'another');
$node->wait_sql($state, 'idle', undef, 'another');
# The lock comes between the launcher's look for it and the start.
my $late_lock = $node->data_dir . '/outbox_test_point.lock';
append_to_file($late_lock, '');
my @sessions = rename_and_wait(qw(broken another));
my @stuck = split / /,
  wait_until('two workers wait in their start',
	sub { my $pids = $node->sql($stuck); $pids =~ / / && $pids })
  // '';
$offset = $node->log_end;
kill 'TERM', $stuck[0];
wait_until('terminated worker gone', sub { !OutboxTest::Node::alive($stuck[0]) });
cmp_ok($OutboxTest::Util::waited, '<', 2, 'A17: SIGTERM ends a worker in its start');
unlike($node->log_text($offset), qr/terminated by signal|PANIC/, 'A17: without a crash');
wait_until('the next one waits',
	sub { my $pids = $node->sql($stuck); $pids =~ / / && $pids !~ /\b$stuck[0]\b/ });

# Nor do they keep others from starting.
$before = begin();
$checker->enqueue(100, keys => 10);
$node->sql('SELECT outbox_worker_restart()');
$checker->enqueue(100, keys => 10);
$start = time;
check_all('A17: another database, whose worker starts anew meanwhile',
	before => $before, back => 15);
note sprintf 'A17: another database was back after %.1f s', time - $start;
$node->sql('ALTER SYSTEM SET outbox.passfile = ' . "'$passfile'");
$start = time;
$_->quit foreach @sessions;
$node->sql('ALTER DATABASE broken RESET outbox.passfile');
$node->sql('SELECT outbox_worker_restart()', 'broken');
$node->wait_drained(30, 'broken');
note sprintf 'A17: %.1f s after the start was possible', time - $start;
@sessions = rename_and_wait('broken');
wait_until('a worker waits in its start', sub { $node->sql($stuck) });
$start = time;
$node->stop('fast');
cmp_ok(time - $start, '<', $STOP, 'A17: a fast stop with a worker stuck in its start');
eval { $_->{run}->kill_kill } foreach @sessions;
unlink $late_lock;
$node->start;
$node->sql("DROP DATABASE $_") foreach qw(broken another);

# --- B6, B8: databases that cannot be connected to, or have nothing

$node->sql(<<'SQL');
CREATE DATABASE closed;
CREATE DATABASE revoked;
CREATE DATABASE plain;
CREATE DATABASE interrupted;
REVOKE CONNECT ON DATABASE revoked FROM PUBLIC;
SQL
$node->sql('CREATE EXTENSION outbox', $_) foreach qw(closed revoked interrupted);
$node->sql('BEGIN; CREATE EXTENSION outbox; ROLLBACK; CREATE SCHEMA outbox; CREATE TABLE outbox.outbox (a int); CREATE TABLE outbox (a int)',
	'plain');
$node->wait_sql($state, 'idle', undef, $_) foreach qw(closed revoked interrupted);
$node->set('outbox.enabled', 'off');
$node->wait_sql($state, 'disabled', undef, 'closed');
my $left = $node->sql(q{SELECT outbox_enqueue('closed', '1')}, 'closed');
$node->sql('ALTER DATABASE closed ALLOW_CONNECTIONS false');
$node->sql(q{UPDATE pg_database SET datconnlimit = -2 WHERE datname = 'interrupted'});
$node->stop('fast');
$offset = $node->log_end;
$node->start;
$node->unset('outbox.enabled');
my $id = $node->sql(q{SELECT outbox_enqueue('revoked', '1')}, 'revoked');
wait_until('B6: message of the database with CONNECT revoked',
	sub { grep { $_->{id} eq $id } $consumer->records });
$before = begin();
$checker->enqueue(100, keys => 10);
check_all('B6: databases that cannot be connected to', before => $before);
is( $node->sql(
		q{SELECT string_agg(datname, ' ' ORDER BY datname) FROM pg_stat_activity WHERE backend_type = 'outbox relay'}
	),
	'postgres revoked',
	'B6, B8: workers are in no other database');
@lines = grep { !/is connected to the broker/ } relay_lines($offset);
is(scalar @lines, 0, 'B6, B8: and the log says nothing of them')
  or diag join "\n", @lines;
$node->sql('ALTER DATABASE closed ALLOW_CONNECTIONS true');
ok( wait_until('B6: message left in a database that takes connections again',
		sub { grep { $_->{id} eq $left } $consumer->records }),
	'B6: what was left in a database goes out when it takes connections again');
$node->sql(q{UPDATE pg_database SET datconnlimit = -1 WHERE datname = 'interrupted'});
$node->sql("DROP DATABASE $_") foreach qw(closed revoked plain interrupted);

# --- B9: extension and library of different versions

$before = begin();
$offset = $node->log_end;
$node->sql(q{UPDATE pg_extension SET extversion = '0.99' WHERE extname = 'outbox'});
$node->sql('SELECT outbox_worker_restart()');
$node->wait_sql($state, 'version mismatch');
$checker->enqueue(200, keys => 20);
isnt($node->sql('SELECT hint FROM outbox_status'), '', 'B9: with a hint');
is($node->sql('SELECT count(*) FROM outbox'), 200, 'B9: enqueue works, nothing is sent');
@lines = grep { /outbox relay is paused: the extension has version 0\.99/ } relay_lines($offset);
is(scalar @lines, 1, 'B9: one clear line');
$node->sql(q{UPDATE pg_extension SET extversion = outbox_version() WHERE extname = 'outbox'});
$node->sql('SELECT outbox_worker_restart()');
check_all('B9: resumes when they fit', before => $before);

# --- A19: an ERROR in each turn of the loop

sub fault_times
{
	my ($from, $what) = @_;
	my @at;
	foreach (split /\n/, $node->log_text($from))
	{
		push @at, $1 * 3600 + $2 * 60 + $3
		  if /^\S+ (\d+):(\d+):([\d.]+) .*outbox test point at $what/;
	}
	return @at;
}

foreach my $point (qw(turn before_claim))
{
	$before = begin();
	$node->wait_sql($state, 'idle');
	$offset = $node->log_end;
	append_to_file("$order.new", "$point error 0\n");
	rename "$order.new", $order or die "$order: $!";
	$checker->enqueue(300, keys => 30);
	$node->wait_log(qr/outbox test point at $point/, $offset);
	# Workers that leave are counted with the postmaster, one that stays is not.
	my @pids = ($node->postmaster_pid, $point eq 'turn' ? () : $node->backend_pids);
	my $cpu = sum(map { backend_cpu_s($_) } @pids);
	$start = time;
	wait_until("an ERROR at $point for $ERRORS_S s",
		sub { time - $start > $ERRORS_S }, $ERRORS_S + 10);
	$cpu = (sum(map { backend_cpu_s($_) } @pids) - $cpu) / (time - $start);
	my @at = fault_times($offset, $point);
	@lines = relay_lines($offset);
	note sprintf 'A19: ERROR at %s for %.0f s: %d lines, CPU %.1f %%, after %s s',
	  $point, time - $start, scalar @lines, 100 * $cpu,
	  join ' ', map { sprintf '%.1f', $at[$_] - $at[ $_ - 1 ] } 1 .. $#at;
	cmp_ok($cpu, '<', 0.05, "A19: ERROR at $point: hardly any CPU time");
	cmp_ok(scalar @lines, '<', 30 * max(1, $ERRORS_S / 60), "A19: ERROR at $point: few log lines");
	if ($point eq 'turn')
	{
		cmp_ok($at[1] - $at[0], '>', 0.7, 'A19: the first wait is about a second');
		cmp_ok($at[2] - $at[1], '>', 1.4, 'A19: the second one two');
	}
	else
	{
		is(scalar @at, 1, 'A19: an ERROR in the transaction is logged once');
		is($node->sql($state), 'database error', 'A19: and shown');
	}
	unlink $order;
	check_all("A19: an ERROR at each $point, and none any more",
		before => $before, back => $FULL ? 65 : 15);
}

# --- A24: many starts with an unreachable broker

sub memory_kb
{
	my ($p) = @_;
	my ($kb) = slurp_file("/proc/$p/status") =~ /^RssAnon:\s+(\d+)/m;
	return $kb;
}

sub descriptors { return scalar(@{ [ glob "/proc/$_[0]/fd/*" ] }) }

$before = begin();
$node->set('outbox.broker_uri', 'amqp://relay@127.0.0.1:1');
$node->wait_sql($state, 'broker down');
$checker->enqueue(100, keys => 10);
my ($launcher) = $node->backend_pids('outbox launcher');
my $session = $node->session;
my ($fds, $kb);
$offset = $node->log_end;
my $starts = 0;
my $pid_of = q{SELECT coalesce((SELECT pid FROM outbox_workers WHERE state = 'broker down'), 0)};
while ($starts < $RESTARTS)
{
	my $old = $session->query_safe($pid_of);
	$session->query_safe('SELECT outbox_worker_restart()');
	wait_until('another worker',
		sub { my $new = $session->query_safe($pid_of); $new != 0 && $new != $old })
	  or last;
	# after a while, when all is warm
	($fds, $kb) = (descriptors($launcher), memory_kb($launcher))
	  if ++$starts == int($RESTARTS / 4);
}
$session->quit;
is($starts, $RESTARTS, "A24: $RESTARTS starts");
is(descriptors($launcher), $fds, 'A24: the launcher has no more descriptors');
my $growth = memory_kb($launcher) - $kb;
cmp_ok($growth, '<', 200, 'A24: and no more memory');
@lines = relay_lines($offset);
cmp_ok(scalar @lines, '<=', $RESTARTS, 'A24: at most a line a start')
  or diag join "\n", @lines[ 0 .. 5 ];
note "A24: launcher $fds descriptors, $kb kB, $growth kB more after " . ($RESTARTS - int($RESTARTS / 4)) . " starts, "
  . scalar(@lines) . " lines";
no_attempts('A24');
$node->unset('outbox.broker_uri');
check_all('A24: the broker is reachable again', before => $before);
unlike($node->log_text(0), qr/TRAP:|PANIC:|terminated by signal/, 'no process crashed');
$node->stop;

# --- A18: no worker process is free: a parallel query sleeps in the only one

my $small = OutboxTest::Node->create(
	name => 'small',
	broker => $rabbit,
	extension => 0,
	conf => <<'END');
max_worker_processes = 2
max_logical_replication_workers = 0
END
my ($sleep_out, $sleep_err) = ('', '');
my $sleeper;

# Where the launcher looks at the databases just then, there is no process left for it,
# and the query runs without: then once more.
foreach my $try (1 .. 20)
{
	$sleeper = IPC::Run::start(
		[
			$small->installed_command('psql'), '-XAtq', '-d', $small->connstr('postgres'),
			'-c', q{SELECT set_config(name, 'on', false) FROM pg_settings WHERE name IN ('force_parallel_mode', 'debug_parallel_query')},
			'-c', 'SELECT pg_sleep(600)'
		],
		'<', \undef, '>', \$sleep_out, '2>', \$sleep_err);
	$small->wait_sql(q{SELECT count(*) FROM pg_stat_activity WHERE query LIKE 'SELECT pg_sleep(600)%' AND wait_event = 'PgSleep'
		AND backend_type IN ('client backend', 'parallel worker')}, 1);
	last if $small->sql(q{SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'parallel worker'});
	$sleeper->kill_kill;
	$small->sql(q{SELECT count(pg_terminate_backend(pid, 10000)) FROM pg_stat_activity WHERE query LIKE 'SELECT pg_sleep(600)%' AND pid <> pg_backend_pid()});
}
my $asleep = q{SELECT pid FROM pg_stat_activity WHERE query LIKE 'SELECT pg_sleep(600)%' AND backend_type = 'client backend'};
$small->wait_sql(q{SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'parallel worker'}, 1);
$small->sql('CREATE EXTENSION outbox');
my $second = OutboxTest::Checker->install($small);
$second->enqueue(200, keys => 20);
$small->wait_log(qr/no worker process is free/, 0);
$small->wait_sql(q{SELECT hint LIKE '%max_worker_processes%' FROM outbox_status});
$start = time;
my $tries = $FULL ? 30 : 6;
wait_until('another try of the launcher', sub { time - $start > $tries }, $tries + 5);
is(scalar(() = $small->log_text(0) =~ /no worker process is free/g),
	1, 'A18: one line in the log');
like($small->log_text(0), qr/HINT:.*max_worker_processes/, 'A18: with a hint');
like($small->sql('SELECT hint FROM outbox_status'),
	qr/max_worker_processes/, 'A18: the view says what to do');
is($small->sql('SELECT backlog FROM outbox_status'),
	200, 'A18: enqueue works, messages wait');
my $records = @{ [ $consumer->records ] };
$seen = $consumer->unique;
$start = time;
$small->sql("SELECT pg_cancel_backend(($asleep))");
$small->wait_drained($BACK);
note sprintf 'A18: delivered %.1f s after a process became free', time - $start;
$consumer->wait_count($seen + 200);
$sleeper->finish;
my @records = $consumer->stop;
splice @records, 0, $records;
$second->check('A18: no worker process was free', \@records,
	case => 'A18: max_worker_processes used up');
unlike($small->log_text(0), qr/TRAP:|PANIC:|terminated by signal/, 'no process crashed');
$small->stop;
done_testing();
