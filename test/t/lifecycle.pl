# The relay comes and goes with the extension, the database, the settings and the
# server, and is back within seconds after whatever was done to it.
#
# suite: test faults
# takes: 43 s

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

my $BACK = 5;

my $rabbit = OutboxTest::Rabbit->start;
my $node = OutboxTest::Node->create(
	broker => $rabbit,
	allows_streaming => 1,
	conf => "outbox.retry_max = 1s");
my $consumer = OutboxTest::Consumer->start($rabbit, exchange => 'outbox');
my $start_offset = $node->log_end;
my $state = 'SELECT state FROM outbox_status';

sub seen
{
	my ($id) = @_;
	return grep { ($_->{id} // '') eq $id } $consumer->records;
}

# A message that is enqueued now arrives within the time that a relay may need to
# come back.
sub delivers
{
	my ($name, $dbname) = @_;
	my $id =
	  $node->sql(q{SELECT outbox_enqueue('life.event', '{}')}, $dbname);
	my $start = time;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	wait_until("$name: message arrives", sub { seen($id) });
	cmp_ok(time - $start, '<', $BACK, "$name: delivered soon");
	note sprintf '%s: %.2f s', $name, time - $start if time - $start > 0.5;
	return;
}

delivers('the first database');

# --- databases and the extension

$node->sql('CREATE DATABASE two');
$node->sql('CREATE DATABASE bare');
$node->sql('CREATE EXTENSION outbox', 'two');
delivers('extension created later, in a second database', 'two');
delivers('and the first goes on');
is($node->sql('SELECT count(*) FROM outbox_workers'),
	'1', 'a database sees its own workers only');

# Who creates a database tells the launcher of that one, and not of their own.
my $bare = $node->sql(q{SELECT oid FROM pg_database WHERE datname = 'bare'});
$node->set('log_min_messages', 'debug1');
my $offset = $node->log_end;
$node->sql('CREATE DATABASE three', 'bare');
my $three = $node->sql(q{SELECT oid FROM pg_database WHERE datname = 'three'});
$node->wait_log(qr/starting background worker process "outbox relay 0 of database $three"/, $offset);
unlike($node->log_text($offset), qr/outbox relay 0 of database $bare\b/,
	'no worker looks at the database of the session');
$node->unset('log_min_messages');
$node->sql('DROP DATABASE three');

$node->sql('BEGIN; CREATE EXTENSION outbox; ROLLBACK', 'bare');
$node->sql('CREATE EXTENSION outbox', 'bare');
delivers('extension created after a try that was rolled back', 'bare');
timed('DROP EXTENSION does not wait for the relay',
	$BACK, sub { $node->sql('DROP EXTENSION outbox', 'bare') });
$node->wait_workers('bare', 0);
$node->sql('CREATE EXTENSION outbox', 'bare');
delivers('extension created again', 'bare');
$node->sql('BEGIN; DROP EXTENSION outbox; ROLLBACK', 'bare');
delivers('DROP EXTENSION rolled back', 'bare');
$node->sql(
	'BEGIN; DROP EXTENSION outbox; CREATE EXTENSION outbox; COMMIT', 'bare');
delivers('dropped and created again in one transaction', 'bare');
$node->sql('CREATE SCHEMA events; DROP EXTENSION outbox; CREATE EXTENSION outbox SCHEMA events',
	'bare');
my $in_schema = $node->sql(
	q{SELECT events.outbox_enqueue('life.event', '{}')}, 'bare');
wait_until('message arrives from another schema', sub { seen($in_schema) });
ok(seen($in_schema), 'the schema is that of CREATE EXTENSION');

# --- commands that need a database without sessions

timed('CREATE DATABASE TEMPLATE while a worker runs',
	$BACK, sub { $node->sql('CREATE DATABASE copy TEMPLATE two') });
delivers('CREATE DATABASE TEMPLATE: the original', 'two');
timed('CREATE DATABASE TEMPLATE from a session in the template',
	$BACK, sub { $node->sql('CREATE DATABASE from_inside TEMPLATE two', 'two') });
$node->sql('DROP DATABASE from_inside');

# a copy must not publish what the original publishes, until somebody says so
my $in_copy = $node->sql(q{SELECT outbox_enqueue('life.event', '{}')}, 'copy');
$node->wait_sql($state, 'not adopted', undef, 'copy');
isnt($node->sql('SELECT hint FROM outbox_status', 'copy'),
	'', 'a copy is silent, and says what to do');
is(scalar seen($in_copy), 0, 'and sends nothing');
$node->sql('SELECT outbox_adopt()', 'copy');
wait_until('message of the copy arrives', sub { seen($in_copy) });
delivers('CREATE DATABASE TEMPLATE: the adopted copy', 'copy');
timed('ALTER DATABASE RENAME while a worker runs',
	$BACK, sub { $node->sql('ALTER DATABASE copy RENAME TO renamed') });
delivers('ALTER DATABASE RENAME', 'renamed');
timed('the same in a function',
	$BACK, sub { $node->sql(q{DO 'BEGIN ALTER DATABASE renamed RENAME TO moved; END'}) });
delivers('ALTER DATABASE RENAME in a function', 'moved');
timed('DROP DATABASE while a worker runs',
	$BACK, sub { $node->sql('DROP DATABASE moved') });
like($node->sql_fails('DROP DATABASE nonesuch'),
	qr/does not exist/, 'DROP DATABASE of none is the usual error');

# a command that fails lets the relay come back
my $open = $node->session('two');
like($node->sql_fails('ALTER DATABASE two RENAME TO three'),
	qr/being accessed by other users/,
	'RENAME with another session fails as ever');
$open->quit;
delivers('after a RENAME that failed', 'two');
timed('DROP DATABASE',
	$BACK, sub { $node->sql("DROP DATABASE $_") foreach qw(two bare) });
delivers('the first database after all that');

# --- workers that are told to leave, and that are killed politely

sub worker_pid
{
	return $node->sql('SELECT pid FROM outbox_workers');
}

my $pid = worker_pid();
ok($node->wait_sql('SELECT outbox_worker_restart()', '1'),
	'outbox_worker_restart() says how many it told');
delivers('outbox_worker_restart()');
$node->wait_sql(
	"SELECT pid <> $pid FROM outbox_workers WHERE pid IS NOT NULL");
foreach my $function (qw(pg_terminate_backend pg_cancel_backend))
{
	$node->wait_sql('SELECT pid IS NOT NULL FROM outbox_workers');
	is($node->sql("SELECT $function(pid) FROM outbox_workers"),
		't', "$function() of the worker");
	delivers($function);
}

# --- the launcher ends, and the next one takes over what runs

$consumer->stop;
my $checker = OutboxTest::Checker->install($node);
$consumer = OutboxTest::Consumer->start($rabbit, exchange => 'outbox');
my ($launcher) = $node->backend_pids('outbox launcher');
$pid = worker_pid();
$node->sql("SELECT pg_cancel_backend($launcher)");
$node->sql('SELECT outbox_worker_restart()');
$node->wait_sql("SELECT pid <> $pid FROM outbox_workers WHERE pid IS NOT NULL");
is(($node->backend_pids('outbox launcher'))[0], $launcher, 'a launcher that is cancelled goes on');
my $load = $checker->load(2000, keys => 20, per_tx => 1);
$node->sql("SELECT pg_terminate_backend($launcher)");
my $most = 0;
wait_until(
	'another launcher',
	sub {
		my $now = $node->sql(
			q{SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'outbox relay'}
		);
		$most = $now if $now > $most;
		if (!$load->running)
		{
			ok($load->wait, 'the load before went through') or diag $load->error;
			$load = $checker->load(500, keys => 20, prefix => 'more', per_tx => 1);
		}
		return $node->sql(
			"SELECT count(*) > 0 FROM pg_stat_activity WHERE backend_type = 'outbox launcher' AND pid <> $launcher"
		) eq 't';
	});
ok($load->wait, 'the load went through');
$checker->enqueue(500, keys => 20);
$consumer->wait_count($node->sql('SELECT count(*) FROM test_sent'));
$node->wait_drained;
is($most, 1, 'there was never a second worker beside the first');
$node->sql('SELECT outbox_worker_restart()');
$checker->enqueue(10);
$consumer->wait_count($node->sql('SELECT count(*) FROM test_sent'));
$node->wait_drained;
is($node->sql('SELECT count(*) FROM outbox_workers'),
	'1', 'the new launcher restarts workers, and there is one, not two');
$checker->check('the launcher was terminated under load',
	[ $consumer->stop ], interruptions => 0);

# --- settings, under load

$node->sql('TRUNCATE test_sent');
$consumer = OutboxTest::Consumer->start($rabbit, exchange => 'outbox');
my @loads =
  map { $checker->load(3000, keys => 50, prefix => "l$_.", per_tx => 5) }
  1 .. 2;
foreach my $n (3, 1, 2, 1)
{
	my $before = $consumer->unique;
	$node->set('outbox.workers', $n);
	$node->wait_sql(
		"SELECT count(pid) = $n AND count(*) FILTER (WHERE state IN ('idle', 'publishing')) = $n FROM outbox_workers"
	);
	wait_until("messages flow with $n workers",
		sub { $consumer->unique > $before + 100 || !$loads[0]->running });
}
ok($_->wait, 'the load went through') foreach @loads;
$consumer->wait_count(6000, 60);
$node->wait_drained;
$checker->check('outbox.workers 1, 3, 1, 2, 1 under load',
	[ $consumer->stop ], interruptions => 0);
$node->unset('outbox.workers');

# another broker, here a virtual host of its own
$rabbit->ctl('add_vhost', 'second');
$rabbit->ctl('set_permissions', '-p', 'second', 'guest', '.*', '.*', '.*');
$node->sql('TRUNCATE test_sent');
$consumer = OutboxTest::Consumer->start($rabbit, exchange => 'outbox');
my $second = OutboxTest::Consumer->start(
	$rabbit,
	vhost => 'second',
	exchange => 'outbox');
$load = $checker->load(4000, keys => 50, per_tx => 5);
$consumer->wait_count(500);
$node->set('outbox.broker_uri', $rabbit->uri . '/second');
ok($load->wait, 'the load went through');
wait_until('both brokers have got all of it',
	sub { $consumer->unique + $second->unique >= 4000 }, 60);
$node->wait_drained;
cmp_ok($second->unique, '>', 0, 'the second broker has got some');
# Whatever the first has comes before what the second has; when each consumer got
# around to it tells nothing.
$checker->check(
	'outbox.broker_uri changed under load',
	[ $consumer->records, $second->records ],
	interruptions => 0);
$node->unset('outbox.broker_uri');
delivers('outbox.broker_uri set back');
$second->stop;

# --- settings that cannot be used

like(
	$node->sql_fails(q{ALTER SYSTEM SET outbox.broker_uri = 'http://nowhere'}),
	qr/invalid value for parameter "outbox.broker_uri"/,
	'a bad URI is refused when it is set');
$node->append_conf('postgresql.conf', "outbox.broker_uri = 'http://nowhere'");
$node->reload;
delivers('a bad URI in the file is ignored at reload');
$offset = $node->log_end;
$node->restart;
$node->wait_sql($state, 'config error');
isnt($node->sql('SELECT hint FROM outbox_status'),
	'', 'a bad URI at start is a config error, with a hint');
is($node->sql(q{SELECT last_error <> '' FROM outbox_status}),
	't', 'and the reason');
is($node->sql('SELECT reason FROM outbox_workers'), 'URI unusable', 'also as a kind');
my $waits = $node->sql(q{SELECT outbox_enqueue('life.event', '{}')});
like($node->log_text($offset), qr/outbox relay cannot use its settings/,
	'the log says it');
$node->adjust_conf('postgresql.conf', 'outbox.broker_uri', undef);
$node->append_conf('postgresql.conf',
	"outbox.broker_uri = '" . $rabbit->uri . "'");
$node->reload;
wait_until('message arrives after the URI is corrected',
	sub { seen($waits) });
$node->wait_sql($state, 'idle');
is($node->sql('SELECT hint IS NULL FROM outbox_status'),
	't', 'a reload is enough after the URI is corrected');

my $passfile = $node->basedir . '/passfile';
foreach my $case (
	[ 'missing passfile', sub { unlink $passfile } ],
	[
		'passfile that others may read',
		sub {
			PostgreSQL::Test::Utils::append_to_file($passfile,
				"*:*:*:guest:guest\n");
			chmod 0644, $passfile;
		}
	])
{
	my ($name, $break) = @$case;
	$break->();
	$node->set('outbox.passfile', $passfile);
	$node->wait_sql(q{SELECT reason LIKE 'password file %' FROM outbox_workers}, 't');
	like($node->sql('SELECT last_error FROM outbox_status'),
		qr/passfile|password file|\Q$passfile\E/,
		"$name: with the reason");
	$node->unset('outbox.passfile');
	delivers("$name, corrected");
}
chmod 0600, $passfile;
$node->set('outbox.passfile', $passfile);
delivers('good passfile');
unlike($node->log_text($start_offset), qr/guest:guest/,
	'no password in the log');
$node->unset('outbox.passfile');

# --- a standby, and its promotion

$node->backup('base');
my $standby = OutboxTest::Node->new('standby');
$standby->init_from_backup($node, 'base', has_streaming => 1);
$standby->start;
is($standby->sql('SELECT state, workers FROM outbox_status'),
	'standby|0', 'a standby says that it is one, and has no worker');
isnt($standby->sql('SELECT hint FROM outbox_status'), '', 'with a hint');
like(
	$standby->sql_fails(
		"\\set VERBOSITY sqlstate\nSELECT outbox_enqueue('life.event', '{}')"),
	qr/ERROR:  25006/,
	'C7: enqueue on a standby is refused');
$node->set('outbox.enabled', 'off');
$node->wait_sql($state, 'disabled');
my $failover =
  $node->sql(q{SELECT outbox_enqueue('life.event', '{"failover": 1}')});
$node->wait_for_catchup($standby, 'replay', $node->lsn('insert'));
is( $standby->sql("SELECT status FROM outbox_messages WHERE id = '$failover'"),
	'pending', 'a standby shows the messages');

# --- dump and restore

$node->sql(<<'SQL');
CREATE TABLE kept AS SELECT 1;
UPDATE outbox SET status = 'failed', attempts = 3, last_error = 'why';
SELECT outbox_enqueue('kept.event', '{"n": 1}', aggregate_id => 'k', aggregate_type => 't',
	headers => '{"h": [1, null]}', properties => '{"priority": 3}');
SELECT outbox_enqueue_bytes('kept.event', '\x00ff', available_at => now() + '1 day');
INSERT INTO outbox_route (name, exchange, max_attempts, archive) VALUES ('extra', 'extra', 7, 'metadata');
UPDATE outbox_route SET max_attempts = 5 WHERE name = 'default';
SELECT outbox_enqueue('kept.event', '{"n": 2}', route => 'extra');
CREATE DATABASE restored;
ALTER DATABASE restored SET outbox.enabled = on;
SQL
my $dump = $node->basedir . '/dump.sql';
command_ok(
	[
		'pg_dump', '-d', $node->connstr('postgres'), '-f', $dump,
		'--exclude-table=test_sent*'
	],
	'pg_dump');
command_ok(
	[
		'psql', '-XAtq', '-v', 'ON_ERROR_STOP=1', '-d',
		$node->connstr('restored'), '-f', $dump
	],
	'the dump restores without an error');
my $all = 'SELECT * FROM outbox ORDER BY seq';
is($node->sql($all, 'restored'), $node->sql($all),
	'pending, scheduled and failed messages are in the copy, unchanged');
is(scalar(() = $node->sql($all) =~ /^\d+\|/mg), 4, 'all four of them');
$node->wait_sql($state, 'not adopted', undef, 'restored');
is( $node->sql('SELECT * FROM outbox_route ORDER BY name', 'restored'),
	$node->sql('SELECT * FROM outbox_route ORDER BY name'),
	'and the routes');
cmp_ok(
	$node->sql(
		q{WITH i AS (INSERT INTO outbox (event_type, payload) VALUES ('x', '{}') RETURNING seq)
		  SELECT seq FROM i}, 'restored'),
	'>',
	$node->sql('SELECT max(seq) FROM outbox'),
	'the numbers go on where they were');
$node->sql('DROP DATABASE restored');

# --- promotion: the primary is gone, its messages are not

is(scalar seen($failover), 0, 'nothing has sent that message yet');
$node->sql("SELECT outbox_requeue('$failover')");
$node->wait_for_catchup($standby, 'replay', $node->lsn('insert'));
$node->stop('fast');
$standby->promote;
my $start = time;
wait_until('message arrives after the promotion', sub { seen($failover) });
cmp_ok(time - $start, '<', $BACK,
	'the relay follows the promotion by itself, within seconds');
$standby->stop('fast');

# --- hygiene over all of it

my $log = $node->log_text($start_offset);
my @errors =
  grep { /outbox (relay|launcher) (ERROR|FATAL|PANIC|WARNING):/ } split /\n/,
  $log;
# DROP EXTENSION locks one table after the other: a relay between two of them gives way.
@errors = grep {
	!/terminating background worker|due to (?:administrator command|user request|lock timeout)/
} @errors;
is(scalar @errors, 0, 'no worker has stumbled on any of it')
  or diag join "\n", @errors[ 0 .. ($#errors > 9 ? 9 : $#errors) ];
unlike($log, qr/terminated by signal|PANIC|server process .* exited/,
	'no process has crashed');
$consumer->stop;

# --- without shared_preload_libraries

my $plain = OutboxTest::Node->create(name => 'plain', preload => 0);
my ($rc, $out, $err) = $plain->psql('postgres', <<'SQL');
SELECT outbox_enqueue('a', '{}') IS NOT NULL;
SELECT outbox_enqueue('a', '{}') IS NOT NULL;
INSERT INTO outbox (event_type, payload) VALUES ('a', '{}');
SQL
is($out, "t\nt", 'not preloaded: enqueue works');
is(scalar(() = $err =~ /WARNING/g), 1,
	'not preloaded: one WARNING in a session');
like($err, qr/shared_preload_libraries/, 'not preloaded: it says what to set');
($rc, $out, $err) = $plain->psql('postgres',
	q{INSERT INTO outbox (event_type, payload) VALUES ('a', '{}')});
like($err, qr/WARNING.*/, 'not preloaded: a WARNING in the next session, too');
is($plain->sql('SELECT state, backlog, workers FROM outbox_status'),
	'not preloaded|4|0', 'not preloaded: the view says so');
like($plain->sql('SELECT hint FROM outbox_status'),
	qr/shared_preload_libraries/, 'not preloaded: with a hint');
is($plain->sql(q{SELECT DISTINCT outbox_wait(id, '1 hour') FROM outbox}), 'pending',
	'not preloaded: nobody waits for a relay that is not there');
($rc, $out, $err) = $plain->psql('postgres',
	q{LOAD 'outbox'; SELECT outbox_enqueue('a', '{}') IS NOT NULL; SELECT outbox_enqueue('a', '{}') IS NOT NULL}
);
is($out, "t\nt", 'A20: loaded by LOAD only: enqueue works');
is(scalar(() = $err =~ /WARNING/g), 1, 'A20: with one WARNING');
unlike($plain->log_text(0), qr/PANIC|terminated by signal/, 'A20: nothing crashed');
$plain->stop('fast');

done_testing();
