# outbox_problems: each thing that can be wrong is produced, one by one, and seen as a
# row with the words of who complained and with what to do; and goes when it is over.
# What was seen is in its output, in lines that begin with "transcript".
#
# suite: test
# takes: 60 s

use strict;
use warnings;

use IO::Socket::INET;
use Test::More;
use PostgreSQL::Test::Utils;
use OutboxTest::FakeBroker;
use OutboxTest::LineTool;
use OutboxTest::Node;
use OutboxTest::Util;

my $fake = OutboxTest::FakeBroker->start;
my $node = OutboxTest::Node->create(
	broker => $fake,
	conf => <<'END');
outbox.retry_initial = 50ms
outbox.retry_max = 500ms
autovacuum = off
autovacuum_freeze_max_age = 100000
max_prepared_transactions = 2
END
my $port = $fake->port;

# Nothing says since when; it is a time in the past, thirty days before a certificate ends,
# or the day after which a partition is due.
my %SINCE = (
	(map { $_ => '' } 'route full', 'archive partition missing', 'wraparound', 'no process free', 'launcher missing', 'not preloaded',
		'trigger off', 'index missing', 'capture broken'),
	(map { $_ => 'before' } 'certificate expires', 'archive behind'));
my $began = $node->sql('SELECT clock_timestamp()');

sub row_of
{
	my ($on, $problem, $dbname) = @_;
	my ($row) = $on->rows(qq{SELECT severity, problem, subject, CASE WHEN since < '$began' THEN 'before' WHEN since <= clock_timestamp() THEN 'now' END, detail, hint, command
		FROM outbox_problems WHERE problem = '$problem'}, $dbname);
	return $row;
}

sub all_rows
{
	my ($on, $dbname) = @_;
	return join "\n", map { join '|', map { $_ // '' } @$_ } ($on // $node)->rows('SELECT * FROM outbox_problems', $dbname);
}

# It is there, says what it is about, and what to do.
sub problem
{
	my ($problem, $severity, $subject, $detail, %how) = @_;
	my $on = $how{node} // $node;
	local $Test::Builder::Level = $Test::Builder::Level + 1;

	$on->wait_sql(qq{SELECT count(*) > 0 FROM outbox_problems WHERE problem = '$problem'}, 't', $how{within} // 30, $how{db})
	  or diag all_rows($on, $how{db});
	my $row = row_of($on, $problem, $how{db}) // [];
	my ($seen, undef, $about, $since, $words, $hint, $command) = map { $_ // '' } @$row;
	is($seen, $severity, "$problem: severity");
	like($about, $subject, "$problem: subject");
	like($words, $detail, "$problem: detail");
	isnt($hint, '', "$problem: what to do");
	like($command, $how{command} // qr/./, "$problem: a command");
	is($since, $SINCE{$problem} // 'now', "$problem: since when");
	note 'transcript: | ', join(' | ', "`$problem`", map { s/\|/\\|/gr } $severity, $about, $words,
		$command eq '' ? '' : "`$command`"), ' |';
	return;
}

sub over
{
	my ($problem, %how) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;

	ok(($how{node} // $node)->wait_sql(
			qq{SELECT count(*) FROM outbox_problems WHERE problem = '$problem'}, '0', 30, $how{db}),
		"$problem: gone when it is over");
	return;
}

sub command_of
{
	my ($problem, $db) = @_;
	return $node->sql("SELECT command FROM outbox_problems WHERE problem = '$problem' LIMIT 1", $db);
}

# Its command, as an operator would paste it, ends it.
sub paste
{
	my ($problem) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	my $command = command_of($problem);

	note "pasted: $command";
	$node->sql($command);
	over($problem);
	return;
}

# The command finds in the log what its detail counts.
sub logged_crash
{
	my ($db, $line) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	my $command = command_of('crashed', $db);

	$command =~ s/LOGFILE$/$node->logfile/e;
	note "pasted: $command";
	like(scalar `$command`, $line, 'what to search the log for');
	return;
}

sub broker_is
{
	my ($uri, @problem) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;

	$node->set('outbox.broker_uri', $uri);
	problem(@problem);
	return;
}

sub stage_is
{
	my ($stage, @problem) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;

	$node->unset('outbox.broker_uri');
	$node->wait_sql('SELECT state FROM outbox_status', 'idle');
	$fake->do($stage, 'now fin');
	problem(@problem);
	$fake->do('forget');
	over($problem[0]);
	return;
}

$node->wait_sql('SELECT state FROM outbox_status', 'idle');
ok($node->wait_sql('SELECT count(*) FROM outbox_problems', 0), 'nothing is wrong') or diag all_rows();
is($node->sql('SELECT problems FROM outbox_status'), 0, 'and the status says so');

# --- a copy, before anybody else is in the database

$node->sql(q{SELECT outbox_enqueue('original', '{}', available_at => '2100-01-01')});
$node->forgets;
$node->psql('template1', 'CREATE DATABASE copy TEMPLATE postgres', on_error_die => 1);
$node->sql('SELECT outbox_discard(id) FROM outbox');
problem('not adopted', 'critical', qr/^database copy$/, qr/of origin -?\d+/, db => 'copy');
$node->sql('SELECT outbox_discard(id) FROM outbox; SELECT outbox_adopt()', 'copy');
over('not adopted', db => 'copy');

# One that is a minute old at the end; its relay is silent meanwhile.
$node->sql('ALTER DATABASE copy SET outbox.enabled = off; SELECT outbox_worker_restart()', 'copy');
$node->wait_sql('SELECT state FROM outbox_status', 'disabled', 30, 'copy');
$node->sql(q{BEGIN; SELECT outbox_enqueue('forgotten', '{}'); PREPARE TRANSACTION 'forgotten'}, 'copy');

# --- dead rows that a transaction keeps, and an age that wants a vacuum

my $reader = $node->session;
$reader->query_safe('BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT 1');
my $reader_pid = $reader->query_safe('SELECT pg_backend_pid()');
$node->sql(<<'SQL');
SELECT outbox_pause(reason => 'many rows');
INSERT INTO outbox (event_type, payload) SELECT 'dead', '{}' FROM generate_series(1, 101000);
DELETE FROM outbox WHERE event_type = 'dead';
CREATE UNLOGGED TABLE burnt (n integer);
DO $$
BEGIN
	FOR i IN 1 .. 155000 LOOP
		BEGIN
			INSERT INTO burnt VALUES (i);
		EXCEPTION WHEN division_by_zero THEN
		END;
	END LOOP;
END
$$;
SELECT outbox_resume();
SQL

# --- the way to the broker

broker_is('amqp://guest@127.0.0.1:1', 'connection refused', 'critical', qr/^worker 0$/, qr/Connection refused/);
is($node->sql('SELECT problems > 0, worst_problem FROM outbox_status'),
	't|connection refused: worker 0', 'the status names the worst');
broker_is('amqp://guest@no-such-host.invalid', 'host unknown', 'critical', qr/worker 0/, qr/could not resolve/, command => qr/^getent ahosts no-such-host\.invalid$/);
my $hole = IO::Socket::INET->new(LocalAddr => '127.0.0.1', Listen => 1) or die $!;
my @clients = map {
	IO::Socket::INET->new(PeerAddr => '127.0.0.1', PeerPort => $hole->sockport, Blocking => 0)
} 1 .. 4;
broker_is('amqp://guest@127.0.0.1:' . $hole->sockport, 'connection timed out', 'critical', qr/worker 0/, qr/timed out/,
	command => qr{^timeout 3 openssl s_client -connect 127\.0\.0\.1:\d+ </dev/null$});
broker_is('amqp://app@127.0.0.1:' . $port, 'no password', 'critical', qr/worker 0/, qr/passfile/, command => qr/^SHOW outbox\.passfile$/);
stage_is('stage start-ok : connection-close 403 "ACCESS_REFUSED - Login was refused"',
	'login refused', 'critical', qr/worker 0/, qr/Login was refused/, command => qr/^rabbitmqctl authenticate_user guest$/);
stage_is('stage open : connection-close 530 "NOT_ALLOWED - vhost shop not found"',
	'virtual host missing', 'critical', qr/worker 0/, qr/vhost shop not found/, command => qr{^rabbitmqctl add_vhost /$});
# A name that a shell would read otherwise is quoted, and one that a terminal would act on is not filled in.
broker_is("amqp://it%27s%20me\@127.0.0.1:$port/%E2%82%AC", 'no password', 'warning', qr/worker 0/, qr/passfile/);
is($node->sql(q{SELECT command FROM outbox_internal.outbox_reason_hint('virtual host not allowed', true, NULL, NULL)}),
	q{rabbitmqctl set_permissions -p '€' 'it'\\''s me' '^$' '.*' '^$'}, 'quoted for a shell');
foreach my $name (q{E'x\ny'}, q{E'x\u009by'})
{
	is($node->sql(qq{SELECT command FROM outbox_internal.outbox_reason_hint('another relay''s route', true, NULL, $name)}),
		q{UPDATE outbox SET outlet = 'external' WHERE outlet IS NULL AND route = ROUTE}, "not with a control character: $name");
}
$node->unset('outbox.broker_uri');
$node->wait_sql('SELECT state FROM outbox_status', 'idle');
$fake->do('now blocked low on memory');
problem('memory alarm', 'critical', qr/worker 0/, qr/low on memory/);
$fake->do('now unblocked');
over('memory alarm');

my $dir = PostgreSQL::Test::Utils::tempdir();
system('openssl', 'req', '-x509', '-newkey', 'rsa:2048', '-nodes', '-days', '20', '-subj', '/CN=good',
	'-addext', 'subjectAltName=DNS:localhost,IP:127.0.0.1',
	'-keyout', "$dir/good.key", '-out', "$dir/good.crt") == 0 or die 'no certificate';
append_to_file("$dir/good.pem", slurp_file("$dir/good.crt") . slurp_file("$dir/good.key"));
my $front = OutboxTest::LineTool->start_tool('tls-front', '--to', $port, '--cert', "$dir/good.pem");
broker_is('amqps://guest@localhost:' . $front->port, 'certificate not trusted', 'critical', qr/worker 0/, qr/certificate/);
$node->set('outbox.tls_ca_file', "$dir/good.crt");
problem('certificate expires', 'warning', qr/worker 0/, qr/is valid until/);
$node->unset($_) foreach qw(outbox.broker_uri outbox.tls_ca_file);
over('certificate expires');

# --- settings, pauses

$node->set('outbox.enabled', 'off');
problem('disabled', 'warning', qr/worker 0/, qr/outbox\.enabled is off/);
$node->sql(command_of('disabled'));
$node->sql('SELECT pg_reload_conf()');
over('disabled');
$node->unset('outbox.enabled');
$node->sql('ALTER DATABASE postgres SET outbox.enabled = off; SELECT outbox_worker_restart()');
problem('disabled', 'warning', qr/worker 0/, qr/outbox\.enabled is off/, command => qr/^ALTER DATABASE postgres /);
paste('disabled');
$node->sql('ALTER DATABASE postgres RESET outbox.enabled; SELECT outbox_worker_restart()');
$node->sql(q{SELECT outbox_pause(reason => 'broker maintenance')});
problem('paused', 'warning', qr/^database postgres$/, qr/^by \w+: broker maintenance$/);
$node->sql('SELECT outbox_resume()');
over('paused');
$node->sql(q{INSERT INTO outbox_route (name, exchange) VALUES ('billing', 'billing')});
$node->sql(q{SELECT outbox_pause('billing', 'wrong amounts'); SELECT outbox_enqueue('e', '{}', route => 'billing')});
problem('route paused', 'warning', qr/^route "billing"$/, qr/^by \w+: wrong amounts; 1 message waits$/);
$node->set('outbox.backlog_warning_age', '1s');
problem('backlog old', 'warning', qr/^route "billing"$/, qr/^1 message waits.*, the oldest for/);
$node->sql(q{INSERT INTO outbox_route (name, exchange, relay) VALUES ('hooks', '', 'external'); SELECT outbox_enqueue('e', '{}', route => 'hooks')});
problem('external relay missing', 'warning', qr/^route "hooks"$/, qr/^1 message waits, and no relay has leased any$/);
$node->sql(q{SELECT outbox_ack((SELECT max(token) FROM outbox_claim('hooks')))});
over('external relay missing');
$node->unset('outbox.backlog_warning_age');
over('backlog old');
$node->sql(q{UPDATE outbox_route SET max_pending = 1 WHERE name = 'billing'; SELECT outbox_enqueue('e', '{}', route => 'billing')});
problem('route full', 'warning', qr/^route "billing"$/, qr/^the route has reached max_pending \(1 message\);/);
$node->sql(q{SELECT outbox_resume('billing')});
over('route full');
$node->sql(q{UPDATE outbox_route SET max_pending = NULL WHERE name = 'billing'});
$node->wait_drained;

# --- routes and messages

$fake->do(q{stage declare exchange=billing : channel-close 404 "NOT_FOUND - no exchange 'billing' in vhost '/'"});
$node->sql('SELECT outbox_worker_restart()');
$node->wait_sql('SELECT state FROM outbox_status', 'idle');
$node->sql(q{SELECT outbox_enqueue('e', '{}', route => 'billing')});
problem('exchange missing', 'critical', qr/^route "billing"$/, qr/no exchange 'billing'.*; 1 message waits, next attempt at/);
is($node->sql(q{SELECT reason FROM outbox_routes_status WHERE route = 'billing'}), 'exchange missing',
	'and its status has the reason');
$fake->do('forget');
$node->wait_drained;
over('exchange missing');

$node->sql(q{UPDATE outbox_route SET on_failed = 'block', max_attempts = 2 WHERE name = 'billing'});
$node->set('outbox.retry_initial', '20s');
$node->set('outbox.retry_max', '30s');
$fake->do('when type=lost : return 312 NO_ROUTE', 'when type=full : nack',
	'when type=bad : channel-close 406 "PRECONDITION_FAILED - what says basic.nack"');
$node->sql(q{SELECT outbox_enqueue('lost', '{}'); SELECT outbox_enqueue('full', '{}', 'order', '7', route => 'billing');
	SELECT outbox_enqueue('behind', '{}', 'order', '7', route => 'billing'); SELECT outbox_enqueue('bad', '{}')});
problem('unroutable', 'warning', qr/^route "default"$/, qr/312 NO_ROUTE.*: 1 message, after 1 attempt$/);
problem('queue refuses', 'warning', qr/^route "billing"$/, qr/basic\.nack.*: 1 message, after 1 attempt$/);
problem('message refused', 'warning', qr/^route "default"$/, qr/PRECONDITION_FAILED.*basic\.nack: 1 message, after 1 attempt$/);
problem('key held', 'info', qr/^key "order" "7" of route "billing"$/, qr/is tried again at .*; 1 message waits behind it$/);
$node->set('outbox.retry_initial', '50ms');
$node->set('outbox.retry_max', '500ms');
$node->sql(q{UPDATE outbox SET available_at = now() WHERE available_at IS NOT NULL});
$node->wait_sql(q{SELECT count(*) FROM outbox_failed WHERE route = 'billing'}, 1);
problem('failed messages', 'warning', qr/^route "billing"$/, qr/^1 message, .*basic\.nack/);
is((row_of($node, 'key held') // [])->[0], 'warning', 'a key that a failed message holds is a warning');
$fake->do('forget');
$node->sql('SELECT outbox_requeue(id) FROM outbox_failed');
$node->wait_drained;
over($_) foreach 'failed messages', 'key held', 'unroutable', 'queue refuses', 'message refused';

$node->sql('SELECT outbox_pause()');
$node->wait_sql('SELECT state FROM outbox_status', 'paused');
my $id = $node->sql(q{SELECT outbox_enqueue('locked', '{}', 'order', '8')});
my $session = $node->session;
my $pid = $session->query_safe('SELECT pg_backend_pid()');
$session->query_safe("BEGIN; SELECT FROM outbox WHERE id = '$id' FOR UPDATE");
$node->sql('SELECT outbox_resume()');
problem('row locked', 'warning', qr/^process $pid$/, qr/^message $id of key "order" "8" waits for the row locks of process $pid$/);
$session->query_safe('COMMIT');
$node->wait_drained;
over('row locked');

# --- the database

$session->query_safe('BEGIN; LOCK TABLE outbox IN ACCESS EXCLUSIVE MODE');
problem('table locked', 'critical', qr/^table outbox$/, qr/^AccessExclusiveLock held by process $pid\b/);
is($node->sql('SELECT state IS NOT NULL, estimated, problems > 0 FROM outbox_status'), 't|t|t',
	'the status answers although the table is locked');
ok($node->sql('SELECT count(*) FROM outbox_metrics') > 50, 'and so do the metrics');
is($node->sql(q{SELECT count(*) FILTER (WHERE value = 0) FROM outbox_metrics
		WHERE name IN ('outbox_backlog_messages', 'outbox_failed_messages', 'outbox_paused')}),
	0, 'which say nothing rather than 0 of what they cannot see');
$session->query_safe('COMMIT');
over('table locked');
# One row, also with subtransactions.
$node->sql(q{BEGIN; SAVEPOINT one; SELECT outbox_enqueue('one', '{}'); SAVEPOINT two; SELECT outbox_enqueue('two', '{}');
	LOCK TABLE outbox IN ACCESS EXCLUSIVE MODE; PREPARE TRANSACTION 'it''s locked'});
problem('table locked', 'critical', qr/^table outbox$/, qr/^AccessExclusiveLock held by prepared transaction "it's locked"$/);
is($node->sql(q{SELECT count(*), min(command) FROM outbox_problems WHERE problem = 'table locked'}),
	q{1|SELECT * FROM pg_prepared_xacts WHERE gid = 'it''s locked'}, 'one row, which shows what would be lost');
like($node->sql(command_of('table locked')), qr/\|it's locked\|/, 'pasted');
$node->sql(q{ROLLBACK PREPARED 'it''s locked'});
over('table locked');

$node->sql(<<'SQL');
CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS
	$$BEGIN RAISE EXCEPTION 'could not extend file "base/1/2": No space left on device' USING ERRCODE = 'disk_full'; END$$;
CREATE TRIGGER refuse BEFORE DELETE ON outbox FOR EACH ROW EXECUTE FUNCTION refuse();
SELECT outbox_enqueue('full disk', '{}');
SQL
problem('disk full', 'critical', qr/worker 0/, qr/No space left/);
$node->sql('DROP TRIGGER refuse ON outbox');
$node->wait_drained;
over('disk full');

$node->set('synchronous_standby_names', 'berlin');
# Whether a commit waits for standbys, the checkpointer tells the others when it has read the setting.
$session->query_safe('SET synchronous_commit = local');
wait_until('a claim waits for the standby', sub {
	$session->query_safe(q{SELECT outbox_enqueue('e', '{}')});
	return $node->sql(q{SELECT count(*) > 0 FROM outbox_problems WHERE problem = 'standby missing' AND subject = 'worker 0'}) eq 't';
});
problem('standby missing', 'critical', qr/worker 0/, qr/synchronous_standby_names = 'berlin'; connected: none/);
$node->unset('synchronous_standby_names');
$node->wait_drained;
over('standby missing');

$node->sql(q{UPDATE pg_extension SET extversion = '2.0' WHERE extname = 'outbox'; SELECT outbox_worker_restart()});
problem('version mismatch', 'critical', qr/worker 0/, qr/the library has version 1\.0, the extension 2\.0/,
	command => qr/^SELECT version, installed FROM pg_available_extension_versions/);
like($node->sql(row_of($node, 'version mismatch')->[6]), qr/^1\.0\|/m, 'which shows the versions that could be had');
# As without the files of the extension.
$node->sql('ALTER FUNCTION pg_catalog.pg_extension_update_paths(name) RENAME TO no_paths');
is($node->sql(q{SELECT count(*) FROM outbox_problems WHERE problem = 'version mismatch'}), 1, 'also when the ways to it cannot be read');
$node->sql('ALTER FUNCTION pg_catalog.no_paths(name) RENAME TO pg_extension_update_paths');
# There is an update from 0.99, of test/modules/outbox_chain, which upgrade.pl runs.
$node->sql(q{UPDATE pg_extension SET extversion = '0.99' WHERE extname = 'outbox'});
problem('version mismatch', 'critical', qr/worker 0/, qr/the extension (?:0\.99|2\.0)/);
$node->wait_sql(q{SELECT command FROM outbox_problems WHERE problem = 'version mismatch'}, q{ALTER EXTENSION outbox UPDATE TO '1.0'});
$node->sql(q{UPDATE pg_extension SET extversion = '1.0' WHERE extname = 'outbox'; SELECT outbox_worker_restart()});
over('version mismatch');

# --- damage to objects

$node->sql('ALTER TABLE outbox DISABLE TRIGGER outbox_row');
problem('trigger off', 'critical', qr/^table outbox$/, qr/^trigger outbox_row is disabled$/);
$node->sql(row_of($node, 'trigger off')->[6]);
over('trigger off');
$node->sql('ALTER INDEX outbox_failed_seq RENAME TO other');
problem('index missing', 'warning', qr/^table outbox$/, qr/^index outbox_failed_seq is missing$/);
$node->sql('ALTER INDEX other RENAME TO outbox_failed_seq');
over('index missing');
$node->sql(<<'SQL');
CREATE TABLE captured (id integer PRIMARY KEY);
CREATE TRIGGER changes AFTER INSERT ON captured FOR EACH ROW EXECUTE FUNCTION outbox_capture('key=id');
ALTER TABLE captured RENAME id TO number;
SQL
problem('capture broken', 'critical', qr/^trigger changes on table public\.captured$/, qr/^argument "key" of trigger "changes" names column "id", which table "captured" does not have$/);
$node->sql('ALTER TABLE captured RENAME number TO id');
over('capture broken');

# --- a route that is gone

$node->sql(<<'SQL');
SET session_replication_role = replica;
DELETE FROM outbox_route WHERE name = 'billing';
INSERT INTO outbox (event_type, payload, route) VALUES ('e', '{}', 'billing');
SQL
problem('route missing', 'critical', qr/^route "billing"$/, qr/^1 message has a route that is not in outbox_route$/);
$node->sql(q{SELECT outbox_discard(id) FROM outbox WHERE route = 'billing'});
over('route missing');

# --- the archive

clear_of_midnight(60);
$session->query_safe('BEGIN; LOCK TABLE outbox_archive IN ACCESS SHARE MODE');
$node->sql(<<'SQL');
SET lock_timeout = '5s';
DO $$
DECLARE
	part text;
BEGIN
	FOR part IN SELECT relname FROM pg_class WHERE relname ~ '^outbox_archive_p[0-9]{8}$'
		AND to_date(right(relname, 8), 'YYYYMMDD') > (now() AT TIME ZONE 'UTC')::date
	LOOP
		EXECUTE format('UPDATE pg_class SET relname = relname || %L WHERE relname = %L', '_renamed', part);
	END LOOP;
END
$$;
SQL
$node->sql('SELECT outbox_worker_restart()');
problem('archive partition missing', 'warning', qr/^archive$/, qr/the last partition is that of \d/);
problem('archive maintenance', 'warning', qr/^archive$/, qr/\b$pid\b/);
$node->sql(q{UPDATE pg_class SET relname = left(relname, 24) WHERE relname ~ '^outbox_archive_p.*_renamed$'});
over('archive partition missing');
$session->query_safe('COMMIT');
over('archive maintenance');
my $last = $node->sql(q{SELECT max(relname) FROM pg_class WHERE relname ~ '^outbox_archive_p[0-9]{8}$'});
$node->sql(qq{UPDATE pg_class SET relname = 'outbox_archive_p20200101' WHERE relname = '$last'});
problem('archive behind', 'warning', qr/^archive$/, qr/the partition of 2020-01-01 is still there/);
$node->sql(qq{UPDATE pg_class SET relname = '$last' WHERE relname = 'outbox_archive_p20200101'});
over('archive behind');

$node->sql(q{INSERT INTO outbox_job (kind, state, arguments, created_by, total, last_error, ended_at)
	VALUES ('replay', 'failed', '{}', 'postgres', 5, 'permission denied for table orders', now())});
problem('job failed', 'warning', qr/^job \d+$/, qr/^0 of 5 messages done: permission denied/);
$node->sql('DELETE FROM outbox_job');
over('job failed');

# --- nobody is waited for

foreach my $command ('LOCK TABLE outbox IN ACCESS EXCLUSIVE MODE', 'REINDEX INDEX outbox_ready')
{
	$session->query_safe("BEGIN; $command");
	foreach my $view (qw(outbox_problems outbox_status outbox_metrics outbox_routes_status outbox_top()))
	{
		is($node->sql_fails("SET statement_timeout = '5s'; SELECT count(*) FROM $view"), undef,
			"$view: answers beside $command");
	}
	$session->query_safe('ROLLBACK');
}
$node->wait_sql('SELECT count(*) FROM outbox_problems WHERE severity = $$critical$$', 0);

# --- vacuum

problem('vacuum held back', 'warning', qr/^process $reader_pid$/, qr/table outbox has \d{6} dead rows/, within => 90);
problem('wraparound', 'warning', qr/^table outbox/, qr/its oldest transaction is \d{6} old/);
$reader->query_safe('COMMIT');
$node->sql('VACUUM (FREEZE) outbox');
$node->sql('VACUUM (FREEZE) outbox_route');
$node->sql('VACUUM (FREEZE) outbox_control');
over($_) foreach 'vacuum held back', 'wraparound';
$reader->quit;
$session->quit;
ok($node->wait_sql('SELECT count(*) FROM outbox_problems', 0), 'nothing is wrong any more')
  or diag all_rows();

problem('prepared transaction', 'warning', qr/^prepared transaction "forgotten"$/, qr/^of \w+, it has written to outbox$/, db => 'copy', within => 90);
$node->sql(row_of($node, 'prepared transaction', 'copy')->[6], 'copy');
over('prepared transaction', db => 'copy');
is($node->sql('SELECT event_type FROM outbox', 'copy'), 'forgotten', 'its message is there');
$node->sql('DROP DATABASE copy');

# --- crashes: when, how often, and what to look for; and a new extension

$node->sql('CREATE DATABASE crashing');
$node->sql(<<'SQL', 'crashing');
CREATE EXTENSION outbox;
CREATE FUNCTION seen() RETURNS SETOF text LANGUAGE plpgsql AS $$
BEGIN
	FOR i IN 1 .. 80 LOOP
		RETURN QUERY SELECT problem FROM outbox_problems WHERE problem LIKE 'archive%';
		PERFORM pg_sleep(0.01);
	END LOOP;
END
$$;
SQL
is($node->sql('SELECT DISTINCT seen()', 'crashing'), '', 'a new archive has no problem in its first seconds');
$node->wait_sql('SELECT state FROM outbox_status', 'idle', 30, 'crashing');
$node->sql('SELECT pg_terminate_backend(pid) FROM outbox_workers', 'crashing');
$node->wait_sql('SELECT state FROM outbox_status', 'idle', 30, 'crashing');
$node->test_point('start wait 1');
$node->sql('SELECT outbox_worker_restart()', 'crashing');
my $starting = $node->wait_test_point('start');
$node->sql("SELECT pg_terminate_backend($starting)");
$node->test_point_over;
$node->wait_sql("SELECT state FROM outbox_workers WHERE pid <> $starting", 'idle', 30, 'crashing');
is($node->sql('SELECT count(*) FROM outbox_problems', 'crashing'), 0, 'a worker that was told to leave has not crashed, nor one that starts');
$node->test_point('connecting fatal 0');
$node->sql('SELECT outbox_worker_restart()', 'crashing');
$node->wait_sql(q{SELECT detail ~ ' [2-9] times since' FROM outbox_problems WHERE problem = 'crashed'}, 't', 30, 'crashing');
problem('crashed', 'warning', qr/^workers of database crashing$/, qr/^a worker ended with an error [2-9] times since/, db => 'crashing');
$node->test_point_over;
$node->wait_sql('SELECT state FROM outbox_status', 'idle', 30, 'crashing');
logged_crash('crashing', qr/outbox relay/);
$node->wait_sql('SELECT state FROM outbox_status', 'idle');
is($node->sql(q{SELECT count(*) FROM outbox_problems}), 0, 'other databases do not show it');
$node->sql('DROP DATABASE crashing');
$node->kill_backends('KILL');
$node->wait_restarted;
$node->wait_sql('SELECT state FROM outbox_status', 'idle');
problem('crashed', 'warning', qr/^server$/, qr/restarted all of them once since/);
logged_crash('postgres', qr/background worker "outbox relay.*was terminated by signal 9/);

# --- the server

$node->append_conf('postgresql.conf', "outbox.workers = 2\nmax_worker_processes = 2\nmax_logical_replication_workers = 0");
$node->restart;
$node->wait_workers('postgres', 1);
problem('no process free', 'warning', qr/^server$/, qr/^1 of 2 workers run$/);
$node->append_conf('postgresql.conf', 'max_worker_processes = 0');
$node->restart;
problem('launcher missing', 'critical', qr/^server$/, qr/^0 of 2 workers run$/);
$node->append_conf('postgresql.conf', "shared_preload_libraries = ''\nmax_worker_processes = 8");
$node->restart;
problem('not preloaded', 'critical', qr/^server$/, qr/shared_preload_libraries = ''/);

done_testing();
