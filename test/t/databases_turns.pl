# Databases that take turns, at the edges: a broker that is slow to connect to, a
# row that is locked when its database makes room, more workers than there are
# processes for, and what they leave to others.
#
# suite: test faults

use strict;
use warnings;

use Test::More;
use Time::HiRes qw(time usleep);
use PostgreSQL::Test::Utils;
use OutboxTest::FakeBroker;
use OutboxTest::Node;
use OutboxTest::Proxy;
use OutboxTest::Util;

my $fake = OutboxTest::FakeBroker->start;
my $proxy = OutboxTest::Proxy->start($fake);
# Launchers of outbox and of logical replication need one each: one is left.
my $node = OutboxTest::Node->create(
	broker => $fake,
	extension => 0,
	conf => "max_worker_processes = 3\noutbox.max_workers = 3");
foreach my $db (qw(one busy))
{
	$node->sql("CREATE DATABASE $db");
	$node->sql('CREATE EXTENSION outbox', $db);
	ok($node->wait_sql('SELECT outbox_enqueue($$first$$, $${}$$) IS NOT NULL', 't', undef, $db), "$db: is there");
	ok($node->wait_drained(30, $db), "$db: has a relay");
}

sub pending
{
	my ($db) = @_;
	return $node->sql(q{SELECT count(*) FROM outbox WHERE status = 'pending'}, $db);
}

# Keeps the other database busy until this one is drained; seconds it took.
sub drained_beside
{
	my ($db, $seconds) = @_;
	my $at = time;

	while (pending($db) > 0 && time < $at + $seconds)
	{
		$node->sql(q{SELECT outbox_enqueue('beside', '{}')}, 'busy');
	}
	return pending($db) > 0 ? undef : time - $at;
}

# --- connecting takes longer than an idle database is left alone

$node->sql("ALTER DATABASE one SET outbox.broker_uri = '" . $proxy->uri . q{'});
$proxy->do('delay both 100');
ok($node->wait_drained(30, 'busy'), 'slow broker: nothing is left of before');
$node->sql('SELECT outbox_worker_restart()', 'one');
$node->sql(q{SELECT outbox_enqueue('slow', '{}')}, 'one');
my $s = drained_beside('one', 30);
ok(defined $s, 'slow broker: its database is served beside a busy one');
note sprintf 'slow broker: after %.1f s', $s // 30;
$proxy->do('forward');
$node->sql('ALTER DATABASE one RESET outbox.broker_uri');
$node->sql('SELECT outbox_worker_restart()', 'one');
# the first worker after that says that it is connected
$node->sql(q{SELECT outbox_enqueue('again', '{}')}, 'one');
ok($node->wait_drained(90, $_), "$_: drained") foreach qw(one busy);

# --- the broker takes longer to confirm than a worker that stops waits for it

# All the time something is in flight in both, for some turns.
$fake->do('answer delay 1500');
$fake->begin_case('slow confirms');
my $end = time + 12;
while (time < $end)
{
	$node->sql(q{SELECT outbox_enqueue('slow confirms', '{}')}, $_) foreach qw(one busy);
	usleep(50_000);
}
$fake->do('forget');
ok($node->wait_drained(90, $_), "$_: drained") foreach qw(one busy);
my %copies;
$copies{ $_->{id} }++ foreach $fake->of_case;
my @twice = grep { $copies{$_} > 1 } keys %copies;
is(scalar @twice, 0, 'slow confirms: no message is published twice, of ' . keys %copies);

# --- a row is locked while its database makes room

my $log = $node->log_end;
$node->sql('SELECT outbox_pause()', 'one');
$node->sql(q{SELECT outbox_enqueue('locked', '{}', aggregate_type => 'k', aggregate_id => 'k') FROM generate_series(1, 2)}, 'one');
my $session = $node->session('one');
$session->query_safe('BEGIN');
$session->query_safe('SELECT FROM outbox ORDER BY seq LIMIT 1 FOR UPDATE');
$node->sql('SELECT outbox_resume()', 'one');
# until its worker has left and another has come
my %workers;
wait_until('its database makes room', sub {
	$node->sql(q{SELECT outbox_enqueue('beside', '{}')}, 'busy');
	$workers{ $_->[0] } = 1 foreach $node->rows(q{SELECT pid FROM pg_stat_activity WHERE backend_type = 'outbox relay' AND datname = 'one'});
	return keys %workers > 1;
});
is(pending('one'), 2, 'locked row: it waits');
$session->query_safe('ROLLBACK');
$session->quit;
$s = drained_beside('one', 30);
ok(defined $s, 'locked row: it goes out when the lock is gone');
note sprintf 'locked row: after %.1f s', $s // 30;
unlike($node->log_text($log), qr/is connected to the broker/, 'the log has no line for each turn');
ok($node->wait_drained(90, $_), "$_: drained") foreach qw(one busy);

# --- more databases than slots, and a broker that does not let them ask for twins

my @four = qw(one busy three four);
foreach my $db (@four[ 2, 3 ])
{
	$node->sql("CREATE DATABASE $db");
	$node->sql('CREATE EXTENSION outbox', $db);
}
$log = $node->log_end;
$fake->do('stage queue : channel-close 403 "ACCESS_REFUSED - configure access to queue refused"');
foreach my $round (1 .. 3)
{
	foreach my $db (@four)
	{
		$node->sql(q{SELECT outbox_enqueue('round', '{}')}, $db);
		ok($node->wait_drained(60, $db), "no right to ask, round $round: $db is served");
	}
}
my $told = () = $node->log_text($log) =~ /cannot tell whether another relay/g;
cmp_ok($told, '<=', 4, 'the log has a line for each database, and none for each turn');
$fake->do('forget');
$node->sql("DROP DATABASE $_") foreach @four[ 2, 3 ];

# --- more workers than there are processes for

$node->sql('DROP DATABASE busy');
$node->sql('ALTER DATABASE one SET outbox.workers = 3');
$node->sql('SELECT outbox_worker_restart()', 'one');
my $at = time;
$node->sql(q{SELECT outbox_enqueue('many', '{}', aggregate_type => 'k', aggregate_id => i::text) FROM generate_series(1, 50) i}, 'one');
ok($node->wait_drained(30, 'one'), 'workers: the one that there is does all');
note sprintf 'workers: after %.1f s', time - $at;

# --- all databases together leave half of the processes to others

sub relays
{
	return $node->sql(q{SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'outbox relay'});
}

my ($databases, $processes) = $ENV{OUTBOX_TEST_FULL} ? (28, 20) : (6, 8);
my @names = ('one', map { "db$_" } 2 .. $databases);
$node->sql('ALTER DATABASE one RESET outbox.workers');
$node->adjust_conf('postgresql.conf', 'max_worker_processes', $processes);
$node->adjust_conf('postgresql.conf', 'wal_level', 'logical');
$node->adjust_conf('postgresql.conf', 'max_wal_senders', 4);
$node->adjust_conf('postgresql.conf', 'outbox.max_workers', undef);
$log = $node->log_end;
$node->restart;
foreach my $db (@names[ 1 .. $#names ])
{
	$node->sql("CREATE DATABASE $db");
	$node->sql('CREATE EXTENSION outbox', $db);
}
my $most = 0;
foreach my $round (1 .. 3)
{
	foreach my $db (@names)
	{
		$node->sql(q{SELECT outbox_enqueue('half', '{}') FROM generate_series(1, 20)}, $db);
		$most = $most > relays() ? $most : relays();
	}
	ok($node->wait_drained(60, $_), "max_workers, round $round: $_ is served") foreach @names;
}
is($most, $processes / 2, "max_workers: $databases databases have $most of $processes processes");
like($node->sql(q{SELECT detail FROM outbox_preflight() WHERE "check" = 'processes'}, 'one'),
	qr/max_workers.* $most .*max_worker_processes = $processes/, 'max_workers: outbox_preflight() says so');
$node->sql('CREATE TABLE many AS SELECT g FROM generate_series(1, 1000) g; ALTER TABLE many SET (parallel_workers = 2)');
like($node->sql('SET parallel_setup_cost = 0; SET parallel_tuple_cost = 0; SET min_parallel_table_scan_size = 0;
	EXPLAIN (ANALYZE, COSTS OFF, TIMING OFF, SUMMARY OFF) SELECT count(*) FROM many'),
	qr/Workers Launched: 2/, 'max_workers: a parallel query gets its workers');
$node->sql('CREATE DATABASE subscriber');
$node->sql('CREATE TABLE many (g integer)', 'subscriber');
$node->sql(q{CREATE PUBLICATION many FOR TABLE many; SELECT pg_create_logical_replication_slot('many', 'pgoutput')});
my $connection = $node->connstr('postgres') =~ s/'/''/gr;
$node->sql("CREATE SUBSCRIPTION many CONNECTION '$connection' PUBLICATION many WITH (create_slot = false)", 'subscriber');
foreach my $db (@names)
{
	$node->sql(q{SELECT outbox_enqueue('half', '{}') FROM generate_series(1, 20)}, $db);
}
$node->sql('INSERT INTO many VALUES (0)');
ok($node->wait_sql('SELECT count(*) FROM many', 1001, 30, 'subscriber'), 'max_workers: so does a subscription');
$node->sql(q{ALTER SUBSCRIPTION many DISABLE; ALTER SUBSCRIPTION many SET (slot_name = NONE); DROP SUBSCRIPTION many}, 'subscriber');
ok($node->wait_drained(60, $_), "max_workers, a subscription: $_ is served") foreach @names;

# --- fewer still, while it runs

$node->append_conf('postgresql.conf', 'outbox.max_workers = 1');
$node->reload;
ok($node->wait_sql(q{SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'outbox relay'}, 1, 15), 'max_workers: lowered, one is left');
my $seen = '';
$node->sql(q{SELECT outbox_enqueue('waits', '{}')}, 'db2');
wait_until('max_workers: a database that waits for its turn says so', sub {
	$node->sql(q{SELECT outbox_enqueue('beside', '{}') FROM generate_series(1, 20)}, 'one');
	$seen = $node->sql(q{SELECT severity, hint FROM outbox_problems WHERE problem = 'no process free'}, 'db2');
	$node->sql(q{SELECT outbox_enqueue('waits', '{}')}, 'db2') if $seen eq '';
	return $seen ne '';
});
like($seen, qr/^critical\|.* 1 workers that outbox\.max_workers allows: raise it/, 'max_workers: with what to do');
ok($node->wait_drained(90, $_), "max_workers: $_ drained") foreach qw(one db2);

ok($node->wait_sql(q{SELECT state, (SELECT count(*) FROM outbox_problems), (SELECT ok FROM outbox_preflight() WHERE "check" = 'workers') FROM outbox_status}, 'idle|0|t', 60, $_),
	"max_workers: nothing is wrong with $_, which has nothing to do") foreach @names;
is(relays(), 1, 'max_workers: and five of them have no worker') if !$ENV{OUTBOX_TEST_FULL};

# --- one whose table is locked when its worker comes

$session = $node->session('one');
$session->query_safe('BEGIN; LOCK TABLE outbox IN ACCESS EXCLUSIVE MODE');
$node->sql('ALTER DATABASE one CONNECTION LIMIT -1');
wait_until('locked table: its worker tries', sub {
	return $node->sql(q{SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'outbox relay' AND datname = 'one'}) eq '1';
});
foreach my $round (1 .. 3)
{
	$node->sql(q{SELECT outbox_enqueue('beside', '{}')}, 'db2');
	ok($node->wait_drained(30, 'db2'), "locked table, round $round: another database is served");
	$node->sql('ALTER DATABASE one CONNECTION LIMIT -1');
}
$session->query_safe('ROLLBACK');
$session->quit;

# --- one whose worker hangs in its start, where the lock comes behind the launcher's look

my $late_lock = $node->data_dir . '/outbox_test_point.lock';
my $waits_for_lock = q{SELECT string_agg(pid::text, ' ') FROM pg_locks WHERE NOT granted AND classid = 'pg_database'::regclass};
append_to_file($late_lock, '');
$session = $node->session;
$session->query_safe('BEGIN; ALTER DATABASE one RENAME TO other_name');
my $hangs = wait_until('renamed database: its worker hangs', sub { return $node->sql($waits_for_lock) });
$node->sql(q{SELECT outbox_enqueue('beside', '{}')}, 'db2');
ok($node->wait_drained(60, 'db2'), 'renamed database: another database is served');

# --- where it was there before, none is started

unlink $late_lock;
kill 'TERM', $hangs if $node->sql($waits_for_lock);
wait_until('the worker has gone', sub { !OutboxTest::Node::alive($hangs) });
my $waiting = 0;
my $look_until = time + 5;
while (time < $look_until)
{
	$node->sql(q{SELECT outbox_enqueue('beside', '{}')}, 'db2');
	$node->wait_drained(20, 'db2') or last;
	$waiting++ if $node->sql($waits_for_lock);
}
is($waiting, 0, 'renamed database: no worker waits for the lock');
$session->query_safe('ROLLBACK');
$session->quit;
$node->sql(q{SELECT outbox_enqueue('renamed', '{}')}, 'one');
ok($node->wait_drained(60, 'one'), 'renamed database: it is served when it can start');
like($node->log_text($log), qr/"outbox\.max_workers" allows no more/, 'max_workers: the log says what limits them');
$node->stop;
done_testing();
