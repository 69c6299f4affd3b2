# DDL against a relay that works: databases dropped and copied under load, the
# extension dropped with a full window in flight, the table rewritten, locked,
# and an event trigger that forbids everything.  doc/dev/fault-cases.md B3, B4, B7, B8, B15
# to B17.
#
# OUTBOX_TEST_FULL=1: larger loads, more rounds, longer locks.
#
# suite: test faults
# takes: 50 s

use strict;
use warnings;

use Test::More;
use Time::HiRes qw(time);
use PostgreSQL::Test::Utils;
use OutboxTest::Checker;
use OutboxTest::FakeBroker;
use OutboxTest::Node;
use OutboxTest::Util;

my $FULL = $ENV{OUTBOX_TEST_FULL};
my $WINDOW = 100;
my $HEARTBEAT = $FULL ? 5 : 2;
my $BACK = 5;

my $fake = OutboxTest::FakeBroker->start;
my $node = OutboxTest::Node->create(
	broker => $fake,
	conf => <<"END");
outbox.window = $WINDOW
outbox.heartbeat = ${HEARTBEAT}s
outbox.retry_initial = 20ms
outbox.retry_max = 100ms
autovacuum = off
max_worker_processes = 20
END
my $checker = OutboxTest::Checker->install($node);
my $mark = 0;

$node->wait_sql('SELECT state FROM outbox_status', 'idle');

# What has arrived since begin(); with a prefix, of the keys that begin so.
sub begin
{
	my ($what) = @_;

	note "--- $what";
	$fake->do('forget');
	$node->wait_drained;
	$node->sql('TRUNCATE test_sent');
	$mark = () = $fake->published;
	return;
}

sub arrived
{
	my ($prefix) = @_;
	my @all = $fake->published;

	splice @all, 0, $mark;
	return @all unless defined $prefix;
	return grep { ($_->{aggregate_id} // '') =~ /^\Q$prefix\E/ } @all;
}

sub acked
{
	return grep { $_->{fate} eq 'ack' } arrived(@_);
}

# Four writers, each with keys of its own.
sub loads
{
	my ($count, %params) = @_;
	return map {
		$checker->load($count, keys => 13, prefix => "$params{prefix}$_.",
			per_tx => 5)
	} 1 .. 4;
}

# No complaint of ours, and no crash, since $offset.
sub quiet_log
{
	my ($name, $offset, $allowed) = @_;
	my @bad = grep {
		/outbox (?:relay|launcher) (?:WARNING|ERROR|FATAL|PANIC):|terminated by signal/
	} split /\n/, $node->log_text($offset);

	@bad = grep { !/$allowed/ } @bad if $allowed;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	is(scalar @bad, 0, "$name: nothing in the log")
	  or diag join "\n", @bad[ 0 .. ($#bad > 4 ? 4 : $#bad) ];
	return;
}

# --- B3: a command that fails, for a session that stays, says why and does no harm

begin('B3, fails');
$node->sql('CREATE ROLE owner LOGIN CREATEDB');
$node->sql('CREATE DATABASE stays OWNER owner');
$node->sql('CREATE EXTENSION outbox', 'stays');
my $theirs = OutboxTest::Checker->install($node, dbname => 'stays');
my $open = $node->session('stays');
$open->query_safe('SELECT 1');
$theirs->enqueue(2000, keys => 200, prefix => 'stays');
like($node->sql_fails('DROP DATABASE stays'),
	qr/being accessed by other users/,
	'B3: DROP DATABASE with another session is the usual error');
timed('B3: and its worker is back', $BACK, sub { $node->wait_workers('stays', 1) });
$open->quit;
$node->wait_drained(60, 'stays');
my $worker = q{SELECT pid, backend_start FROM pg_stat_activity
	WHERE backend_type = 'outbox relay' AND datname = 'stays'};
my $before = $node->sql($worker);
$node->sql('CREATE ROLE stranger');
foreach my $command ('DROP DATABASE stays', 'ALTER DATABASE stays RENAME TO gone', 'CREATE DATABASE made TEMPLATE stays')
{
	like($node->sql_fails("SET ROLE stranger; $command"), qr/must be owner|permission denied/,
		"B3: $command by a stranger is refused");
}
is($node->sql($worker), $before, 'B3: and has not stopped its worker');
$theirs->check('B3: DROP DATABASE that failed, under load',
	[ acked('stays') ], case => 'B3: DROP DATABASE that fails');

# The workers have left, and the launcher that frees their slots is frozen.
my ($frozen) = $node->backend_pids('outbox launcher');
kill 'STOP', $frozen;
timed('B3: a command does not wait for the launcher', 2, sub { $node->sql('ALTER DATABASE stays RENAME TO renamed') });
kill 'CONT', $frozen;
$node->wait_workers('renamed', 1);
$node->sql('DROP DATABASE renamed');

# --- B8: an extension that never was, and a schema that looks like one

begin('B8');
my $offset = $node->log_end;
$node->sql('CREATE DATABASE half');
$open = $node->session('half');
$open->query_safe('BEGIN; CREATE EXTENSION outbox;');

# the launcher looks at all databases when it starts
my ($launcher) = $node->backend_pids('outbox launcher');
$node->sql("SELECT pg_terminate_backend($launcher)");
$node->wait_sql(
	"SELECT count(*) = 1 FROM pg_stat_activity WHERE backend_type = 'outbox launcher' AND pid <> $launcher"
);
$node->wait_sql('SELECT state FROM outbox_status', 'idle');
$node->wait_workers('half', 0);
$open->query_safe('ROLLBACK;');
$open->quit;
$node->sql('CREATE SCHEMA outbox; CREATE TABLE outbox.outbox (seq bigint, id uuid);
	CREATE TABLE outbox.outbox_control (singleton boolean)', 'half');
$node->restart;
$node->wait_sql('SELECT state FROM outbox_status', 'idle');
$node->wait_workers('half', 0);
quiet_log('B8: half an extension', $offset, qr/terminating background worker/);
$node->sql('CREATE EXTENSION outbox SCHEMA public', 'half');
$node->wait_sql('SELECT state FROM outbox_status', 'idle', undef, 'half');
my $id = $node->sql(q{SELECT outbox_enqueue('half', '{}')}, 'half');
wait_until('B8: the extension works beside a schema of its name',
	sub { grep { $_->{id} eq $id } arrived() });
$node->sql('DROP DATABASE half');

# --- B7: the extension goes while the window is in flight

begin('B7');
$offset = $node->log_end;
$node->sql('CREATE VIEW watching AS SELECT count(*) FROM outbox');
$fake->do('answer hold');
$checker->enqueue($WINDOW * 3, keys => $WINDOW, prefix => 'gone');
$node->wait_sql('SELECT in_flight FROM outbox_status', $WINDOW);
timed('B7: DROP EXTENSION CASCADE with the window in flight',
	10, sub { $node->sql('DROP EXTENSION outbox CASCADE') });
$node->wait_workers('postgres', 0);
$fake->do('answer ack');
$node->sql('CREATE EXTENSION outbox');
$node->sql('TRUNCATE test_sent');
$checker->enqueue(500, keys => 20, prefix => 'again');
$node->wait_drained;
$checker->check('B7: the extension is dropped and created again',
	[ acked('again') ], case => 'B7: DROP EXTENSION CASCADE, CREATE EXTENSION',
	window => $WINDOW);
is(scalar(() = arrived('gone')),
	$WINDOW, 'B7: nothing of the dropped table went out after it was gone');

# the same in one transaction; the answers come when the new one is there
$node->sql('TRUNCATE test_sent');
$mark = () = $fake->published;
$fake->do('answer hold');
$checker->enqueue($WINDOW * 3, keys => $WINDOW, prefix => 'gone');
$node->wait_sql('SELECT in_flight FROM outbox_status', $WINDOW);
$node->sql(
	'BEGIN; DROP EXTENSION outbox CASCADE; CREATE EXTENSION outbox; COMMIT');
$node->sql('TRUNCATE test_sent');
$checker->enqueue(500, keys => 20, prefix => 'again');
$fake->release;
$node->wait_drained;
$checker->check('B7: both in one transaction', [ acked('again') ],
	case => 'B7: DROP EXTENSION, CREATE EXTENSION in one transaction',
	window => $WINDOW);
is(scalar(() = arrived('gone')),
	$WINDOW, 'B7: the new extension sends nothing of the old one');
# CREATE EXTENSION may hold its locks for longer than the relay waits.
quiet_log('B7', $offset, qr/due to lock timeout/);

# --- B15: the table is rewritten under load

begin('B15');
$offset = $node->log_end;
my $connections = $fake->stats->{connections};
$fake->do('answer delay 20');
my @loads = loads($FULL ? 6000 : 1200, prefix => 'rewrite');
my @rewrites = (
	'VACUUM FULL outbox',
	'REINDEX TABLE outbox',
	'CLUSTER outbox USING outbox_pkey',
	'ALTER TABLE outbox ADD COLUMN test_extra int DEFAULT 1',
	'REINDEX TABLE CONCURRENTLY outbox',
	'ALTER TABLE outbox ALTER COLUMN test_extra TYPE text',
	'VACUUM FULL outbox_route, outbox_control',
	'ALTER TABLE outbox DROP COLUMN test_extra',
	'VACUUM (FREEZE) outbox');
my $rewritten = 0;
wait_until('the table is rewritten until the load is over', sub {
	$node->sql($rewrites[ $rewritten++ % @rewrites ]);
	return $rewritten >= @rewrites && !grep { $_->running } @loads;
}, 120);
ok($_->wait, 'B15: the load went through') || diag $_->error foreach @loads;
$fake->do('answer ack');
$node->wait_drained;
note "$rewritten commands";
$checker->check('B15: VACUUM FULL, REINDEX, CLUSTER, ALTER TABLE under load',
	[ acked() ], case => 'B15: rewrites of the table under load');
is($fake->stats->{connections}, $connections, 'B15: one connection all the time');

# --- B16: the table is locked for longer than the broker would wait

begin('B16');
$node->sql('CREATE DATABASE neighbour');
$node->sql('CREATE EXTENSION outbox', 'neighbour');
$node->wait_sql('SELECT state FROM outbox_status', 'idle', undef, 'neighbour');

# the worker to be locked has the newest connection, which is the one released
$node->sql('SELECT outbox_worker_restart()');
wait_until('B16: it has connected again',
	sub { $fake->stats->{connections} > $connections + 1 });
$node->wait_sql('SELECT state FROM outbox_status', 'idle');
$connections = $fake->stats->{connections};
$fake->do('answer hold');
$checker->enqueue($WINDOW * 2, keys => 150, prefix => 'locked');
$node->wait_sql('SELECT in_flight FROM outbox_status', $WINDOW);
my $locker = $node->session;
$locker->query_safe('BEGIN; LOCK TABLE outbox IN ACCESS EXCLUSIVE MODE;');
$fake->release;
my $locked_until = time + 3 * $HEARTBEAT;
my ($probes, $slowest, $slowest_ddl) = (0, 0, 0);
while (time < $locked_until)
{
	my $start = time;
	my $probe = $node->sql(q{SELECT outbox_enqueue('probe', '{}')}, 'neighbour');
	wait_until('B16: the neighbour is served',
		sub { grep { $_->{id} eq $probe } arrived() });
	my $took = time - $start;
	$slowest = $took if $took > $slowest;
	$probes++;
	next if $probes % 5;
	$start = time;
	$node->sql('CREATE DATABASE probe');
	$node->sql('DROP DATABASE probe');
	$took = time - $start;
	$slowest_ddl = $took if $took > $slowest_ddl;
}
like($locker->query_safe(
		q{SELECT string_agg(state, ',') FROM outbox_internal.outbox_worker_stats()}),
	qr/database error/, 'B16: the view says so');

# Its lock timeout and the barrier reach the worker in the same moment.
my $waits_for_lock =
  q{SELECT pid FROM pg_stat_activity WHERE backend_type = 'outbox relay' AND wait_event_type = 'Lock'};
my $waiter = wait_until('B16: it waits for the lock', sub { $node->sql($waits_for_lock) });
kill 'STOP', $waiter;
$node->sql('CREATE DATABASE probe');
my $drop = $node->session;
$drop->query_until(qr/asked/, "\\echo asked\nDROP DATABASE probe;\n\\echo dropped\n");
$node->wait_sql(
	q{SELECT count(*) > 0 FROM pg_stat_activity WHERE wait_event = 'ProcSignalBarrier'});
my $stopped_until = time + 1;
wait_until('B16: the lock timeout has passed', sub { time > $stopped_until });
kill 'CONT', $waiter;
$node->wait_sql(
	q{SELECT count(*) FROM pg_stat_activity WHERE state = 'active' AND query LIKE 'DROP DATABASE%'},
	0);
$drop->quit;
$locker->query_safe('COMMIT;');
$locker->quit;
cmp_ok($slowest, '<', $BACK, 'B16: the neighbour is served within the limit');
cmp_ok($slowest_ddl, '<', 6, 'B16: so are CREATE and DROP DATABASE');
note sprintf '%d probes, slowest %.2f s, slowest CREATE and DROP %.2f s',
  $probes, $slowest, $slowest_ddl;
$checker->enqueue(100, keys => 10, prefix => 'after');
$node->wait_drained;
$checker->check("B16: LOCK TABLE for three heartbeats",
	[ grep { $_->{type} ne 'probe' } acked() ],
	case => 'B16: ACCESS EXCLUSIVE lock for three heartbeats');
is($fake->stats->{connections},
	$connections, 'B16: the connections survive');
$node->sql('DROP DATABASE neighbour');

# --- B17: an event trigger that forbids all DDL

begin('B17');
$node->sql(<<'SQL');
CREATE TABLE outbox_internal.outbox_archive_p20200101 (LIKE outbox_archive INCLUDING ALL);
ALTER TABLE outbox_archive ATTACH PARTITION outbox_internal.outbox_archive_p20200101
	FOR VALUES FROM ('2020-01-01 00:00:00+00') TO ('2020-01-02 00:00:00+00');
ALTER EXTENSION outbox ADD TABLE outbox_internal.outbox_archive_p20200101;
CREATE FUNCTION test_forbid() RETURNS event_trigger LANGUAGE plpgsql AS $$
BEGIN
	RAISE EXCEPTION 'no DDL here: %', tg_tag;
END
$$;
CREATE EVENT TRIGGER test_forbid ON ddl_command_start
	EXECUTE FUNCTION test_forbid();
SQL
$offset = $node->log_end;
$node->sql('SELECT outbox_worker_restart()');
$node->wait_sql(
	q{SELECT last_error LIKE 'no DDL here%' FROM outbox_status});
like($node->sql('SELECT last_error FROM outbox_workers'),
	qr/no DDL here/, 'B17: the view says that retention failed');
@loads = loads(300, prefix => 'ddl');
ok($_->wait, 'B17: the load went through') foreach @loads;
$node->wait_drained;
$checker->check('B17: an event trigger forbids DDL', [ acked() ],
	case => 'B17: event trigger that raises on any DDL');
is($node->sql(q{SELECT to_regclass('outbox_internal.outbox_archive_p20200101') IS NOT NULL}),
	't', 'B17: the old partition is still there');
is(scalar(() = $node->log_text($offset) =~ /no DDL here/g),
	1, 'B17: the log says it once');
$node->sql('ALTER EVENT TRIGGER test_forbid DISABLE');
$node->sql('SELECT outbox_worker_restart()');
$node->wait_sql(q{SELECT to_regclass('outbox_internal.outbox_archive_p20200101') IS NULL});
$node->sql('DROP EVENT TRIGGER test_forbid');

# --- B4: the database is a template while it publishes

begin('B4');
my $backlog = $FULL ? 20000 : 6000;
$node->sql('CREATE DATABASE own');
$node->sql('CREATE EXTENSION outbox', 'own');
my $own = OutboxTest::Checker->install($node, dbname => 'own');
$fake->do('answer delay 50');
$own->enqueue($backlog, keys => 200, prefix => 'own');
wait_until('B4: it publishes', sub { arrived('own') > 200 });
timed('B4: a session in the database copies it', $BACK, sub { $node->sql('CREATE DATABASE copy_own TEMPLATE own', 'own') });
$node->sql('DROP DATABASE copy_own');
foreach my $i (1 .. ($FULL ? 10 : 2))
{
	# a slow machine has published the first by the time of the last copy
	$own->enqueue(3000, keys => 200, prefix => 'own')
		if $node->sql('SELECT count(*) FROM outbox', 'own') < 3000;
	timed("B4: CREATE DATABASE TEMPLATE of a database that publishes ($i)",
		$BACK, sub { $node->sql("CREATE DATABASE copy$i TEMPLATE own") });
	my $pending = $node->sql('SELECT count(*) FROM outbox', "copy$i");
	cmp_ok($pending, '>', 0, "B4: the copy has a backlog ($pending)");
	my $before = () = arrived('own');
	wait_until("B4: the original goes on ($i)",
		sub { arrived('own') > $before }, $BACK);
	note sprintf 'back after %.2f s', $OutboxTest::Util::waited;
	$node->wait_sql('SELECT state FROM outbox_status',
		'not adopted', undef, "copy$i");
	$node->sql(
		q{SELECT outbox_enqueue('copied', '{}', aggregate_id => 'silent')},
		"copy$i");
}
$node->wait_drained(60, 'own');
$own->check('B4: CREATE DATABASE TEMPLATE under load', [ acked('own') ],
	case => 'B4: template of a database that publishes');
is(scalar(() = arrived('silent')), 0, 'B4: no copy has published anything');

# an adopted copy publishes what it has
my $in_copy = $node->sql('SELECT count(*) FROM outbox', 'copy1');
$mark = () = $fake->published;
$node->sql('SELECT outbox_adopt()', 'copy1');
$node->wait_drained(60, 'copy1');
is(scalar(() = acked()), $in_copy, 'B4: until it is adopted');
$node->sql("DROP DATABASE copy$_") foreach 1 .. ($FULL ? 10 : 2);

# a template is for everybody with CREATEDB, who could not send a worker home
$node->sql('CREATE ROLE maker CREATEDB');
$node->wait_workers('own', 1);
$node->sql('BEGIN; ALTER DATABASE own IS_TEMPLATE true; ALTER DATABASE own CONNECTION LIMIT 50; ALTER DATABASE postgres CONNECTION LIMIT -1; COMMIT');
$node->wait_workers('own', 0);
is($node->sql_fails('SET ROLE maker; CREATE DATABASE made TEMPLATE own'), undef, 'B4: a template can be copied by who does not own it');
$node->sql('ALTER DATABASE own IS_TEMPLATE false');
$node->wait_workers('own', 1);
$node->sql('DROP DATABASE made');

# --- B3: the database is dropped while it publishes

begin('B3');
$fake->do('answer delay 20');
foreach my $force ('', ' WITH (FORCE)')
{
	my $dbname = $force ? 'forced' : 'plain';
	$node->sql("CREATE DATABASE $dbname OWNER owner");
	$node->sql('CREATE EXTENSION outbox', $dbname);
	my $theirs = OutboxTest::Checker->install($node, dbname => $dbname);
	$node->sql('GRANT EXECUTE ON FUNCTION outbox_enqueue TO owner;
		GRANT ALL ON test_sent, test_sent_n TO owner', $dbname);
	my $oid =
	  $node->sql("SELECT oid FROM pg_database WHERE datname = '$dbname'");
	@loads = loads($FULL ? 3000 : 600, prefix => 'main');
	{
		local $ENV{PGUSER} = 'owner';
		$theirs->enqueue(3000, keys => 200, prefix => $dbname);
		push @loads,
		  $theirs->load(100000, keys => 20, prefix => $dbname, per_tx => 1)
		  if $force;
	}
	wait_until("B3: $dbname publishes", sub { arrived($dbname) > 100 });
	$offset = $node->log_end;
	timed("B3: DROP DATABASE$force by its owner, while it publishes",
		$BACK, sub {
			local $ENV{PGUSER} = 'owner';
			$node->sql("DROP DATABASE $dbname$force");
		});
	if ($force)
	{
		my $gone = pop @loads;
		$gone->wait;
		is($gone->complaints, '', 'B3: the load of the dropped database ends with it, and not before');
	}
	ok($_->wait, 'B3: the load of the other database went through')
	  foreach @loads;
	my $count = () = arrived($dbname);

	# a launcher that looks again at everything must not find it either
	$node->sql('CREATE DATABASE probe');
	$node->sql('DROP DATABASE probe');
	$node->wait_drained;
	unlike(
		$node->log_text($offset),
		qr/database $oid|database "$dbname" does not exist|outbox relay (?:ERROR|FATAL)/,
		"B3: nobody tries to start a worker of the dropped database ($dbname)");
	is(scalar(() = arrived($dbname)),
		$count, "B3: nothing more comes from it ($dbname)");
}

$checker->check('B3: the other database meanwhile', [ acked('main') ],
	case => 'B3: another database is dropped');

unlike($node->log_text(0), qr/terminated by signal|PANIC/,
	'no process has crashed');
$node->stop('fast');

done_testing();
