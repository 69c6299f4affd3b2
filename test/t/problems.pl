# States of a server, its copies, its archive and its tables: staged and pasted as those of
# states.pl.  And what goes on beside them: views that answer whatever is locked, crashes
# that are none, quotes in commands.
#
# suite: test
# takes: 90 s

use strict;
use warnings;

use Test::More;
use PostgreSQL::Test::Utils;
use OutboxTest::FakeBroker;
use OutboxTest::Node;
use OutboxTest::States;
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
my $states = OutboxTest::States->new($node);
my $restart = sub { $node->restart };
my $idle = 'SELECT state FROM outbox_status';

sub all_rows
{
	my ($dbname) = @_;
	return join "\n", map { join '|', map { $_ // '' } @$_ } $node->rows('SELECT * FROM outbox_problems', $dbname);
}

$node->wait_sql($idle, 'idle');
ok($node->wait_sql('SELECT count(*) FROM outbox_problems', 0), 'nothing is wrong') or diag all_rows();
is($node->sql('SELECT problems FROM outbox_status'), 0, 'and the status says so');

# --- a copy, before anybody else is in the database

$states->run(
	[ 'a copy of a database', 'not adopted', sub {
			$node->sql(q{SELECT outbox_enqueue('original', '{}', available_at => '2100-01-01')});
			$node->forgets;
			$node->psql('template1', 'CREATE DATABASE copy TEMPLATE postgres', on_error_die => 1);
			$node->sql('SELECT outbox_discard(id) FROM outbox');
		}, 'fixes', db => 'copy', within => 20, severity => 'critical', subject => qr/^database copy$/, detail => qr/of origin -?\d+/,
		also => sub { $node->sql('SELECT outbox_discard(id) FROM outbox', 'copy') } ]);

# One that is a minute old at the end; its relay is silent meanwhile.
$node->sql('ALTER DATABASE copy SET outbox.enabled = off; SELECT outbox_worker_restart()', 'copy');
$node->wait_sql($idle, 'disabled', 30, 'copy');
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

# --- commands

# A name that a shell would read otherwise is quoted, and one that a terminal would act on is not filled in.
$node->set('outbox.broker_uri', 'amqp://it%27s%20me@127.0.0.1:' . $fake->port . '/%E2%82%AC');
$node->wait_sql('SELECT reason FROM outbox_workers', 'no password');
is($node->sql(q{SELECT command FROM outbox_internal.outbox_reason_hint('virtual host not allowed', true, NULL, NULL)}),
	q{rabbitmqctl set_permissions -p '€' 'it'\\''s me' '^outbox(-identity\\..*)?$' '.*' ''}, 'quoted for a shell');
$node->unset('outbox.broker_uri');
foreach my $name (q{E'x\ny'}, q{E'x\u009by'})
{
	is($node->sql(qq{SELECT command FROM outbox_internal.outbox_reason_hint('another relay''s route', true, NULL, $name)}),
		q{UPDATE public.outbox SET outlet = 'external' WHERE outlet IS NULL AND route = <ROUTE>}, "not with a control character: $name");
}
# The schema's owner gives it any name.
$node->sql(qq{CREATE DATABASE renamed});
$node->sql(qq{CREATE EXTENSION outbox; ALTER SCHEMA public RENAME TO "it's \e[201~""mine"""}, 'renamed');
is($node->sql(q{SELECT command FROM outbox_internal.outbox_reason_hint('lock timeout', true, NULL, NULL)}, 'renamed'),
	q{SELECT * FROM "it's ?[201~""mine""".outbox_table_lockers()}, 'nor such a schema');
$node->sql(q{DROP DATABASE renamed WITH (FORCE)});
$node->wait_sql($idle, 'idle');
$node->sql(q{INSERT INTO outbox_route (name, exchange, relay) VALUES ('hooks', '', 'external')});

# --- nobody is waited for

my $session = $node->session;
foreach my $command ('LOCK TABLE outbox IN ACCESS EXCLUSIVE MODE', 'LOCK TABLE outbox_internal.outbox_lease IN ACCESS EXCLUSIVE MODE', 'REINDEX INDEX outbox_ready')
{
	# Old enough that leases are looked at.
	$node->sql(q{SELECT outbox_enqueue('e', '{}', route => 'hooks'); UPDATE outbox SET created_at = now() - interval '1 day'}) if $command =~ /lease/;
	$session->query_safe("BEGIN; $command");
	foreach my $view (qw(outbox_problems outbox_status outbox_metrics outbox_routes_status outbox_top()))
	{
		is($node->sql_fails("SET statement_timeout = '5s'; SELECT count(*) FROM $view"), undef, "$view: answers beside $command");
	}
	is($node->sql(q{SELECT string_agg(subject, ',') FROM outbox_problems WHERE problem = 'table locked'}),
		$command =~ /lease/ ? 'table outbox_lease' : 'table outbox', "one row says so: $command");
	next unless $command =~ /TABLE outbox /;
	is($node->sql('SELECT state IS NOT NULL, estimated, problems > 0 FROM outbox_status'), 't|t|t', 'the status answers although the table is locked');
	ok($node->sql('SELECT count(*) FROM outbox_metrics') > 50, 'and so do the metrics');
	is($node->sql(q{SELECT count(*) FILTER (WHERE value = 0) FROM outbox_metrics
			WHERE name IN ('outbox_backlog_messages', 'outbox_failed_messages', 'outbox_paused')}),
		0, 'which say nothing rather than 0 of what they cannot see');
}
continue
{
	$session->query_safe('ROLLBACK');
}
# One row, also with subtransactions.
$node->sql(q{BEGIN; SAVEPOINT one; SELECT outbox_enqueue('one', '{}'); SAVEPOINT two; SELECT outbox_enqueue('two', '{}');
	LOCK TABLE outbox IN ACCESS EXCLUSIVE MODE; PREPARE TRANSACTION 'it''s locked'});
is($node->sql(q{SELECT count(*), min(command) FROM outbox_problems WHERE problem = 'table locked'}),
	q{1|SELECT * FROM pg_prepared_xacts WHERE gid = 'it''s locked'}, 'one row, which shows what would be lost');
$node->sql(q{ROLLBACK PREPARED 'it''s locked'; DELETE FROM outbox; DELETE FROM outbox_route WHERE name = 'hooks'});

# Enqueue waits: for a table, for an index that another session waits for, and for the sequence.
foreach my $case ([ 'outbox_job', 'LOCK TABLE outbox_job IN ACCESS EXCLUSIVE MODE' ], [ 'outbox_route', 'SELECT name FROM outbox_route', 'REINDEX TABLE outbox_route' ],
	[ 'outbox', 'ALTER SEQUENCE outbox_seq_seq CACHE 20' ], [ 'outbox_key_number', 'LOCK TABLE outbox_key_number' ], [ 'outbox_once', 'LOCK TABLE outbox_internal.outbox_once IN SHARE MODE' ])
{
	my ($table, $holds, $waiting) = @$case;
	$session->query_safe("BEGIN; $holds");
	my $other = $waiting && $node->session;
	$other->query_until(qr/now/, "\\echo now\n$waiting;\n") if $other;
	$node->wait_sql(q{SELECT severity, subject FROM outbox_problems WHERE problem = 'table locked'}, "critical|table $table");
	$session->query_safe('ROLLBACK');
	$other->quit if $other;
	$node->wait_sql(q{SELECT count(*) FROM outbox_problems WHERE problem = 'table locked'}, 0);
}
# Partitions of other days are no matter; one that cannot be looked at and that nobody has locked is said.
$session->query_safe(q{BEGIN; SELECT format('LOCK TABLE outbox_internal.outbox_archive_p%s IN SHARE MODE', to_char((now() AT TIME ZONE 'UTC')::date + 2, 'YYYYMMDD')) AS command \gset
:command});
select undef, undef, undef, 1.1;
is($node->sql(q{SELECT count(*) FROM outbox_problems WHERE problem = 'table locked'}), 0, 'the day after tomorrow is nobody\'s matter');
$session->query_safe('ROLLBACK');
$node->sql('ALTER TABLE outbox_job RENAME TO other');
is($node->sql(q{SELECT severity, subject, detail, command FROM outbox_problems WHERE problem = 'table locked'}),
	'warning|tables of outbox|one was renamed or moved, or its lock has just ended|SELECT * FROM public.outbox_table_lockers()', 'no rows for want of a table: it says so');
$node->sql('ALTER TABLE other RENAME TO outbox_job');

# --- versions; there is an update from 0.99, of test/modules/outbox_chain, which upgrade.pl runs

$node->sql(q{UPDATE pg_extension SET extversion = '2.0' WHERE extname = 'outbox'; SELECT outbox_worker_restart()});
$node->wait_sql(q{SELECT detail FROM outbox_problems WHERE problem = 'version mismatch'}, 'the library has version 1.0, the extension 2.0');
# As without the files of the extension.
$node->sql('ALTER FUNCTION pg_catalog.pg_extension_update_paths(name) RENAME TO no_paths');
is($node->sql(q{SELECT count(*) FROM outbox_problems WHERE problem = 'version mismatch'}), 1, 'also when the ways to it cannot be read');
$node->sql('ALTER FUNCTION pg_catalog.no_paths(name) RENAME TO pg_extension_update_paths');
$node->sql(q{UPDATE pg_extension SET extversion = '0.99' WHERE extname = 'outbox'});
$node->wait_sql(q{SELECT command FROM outbox_problems WHERE problem = 'version mismatch'}, q{ALTER EXTENSION outbox UPDATE TO '1.0'});
$node->sql(q{UPDATE pg_extension SET extversion = '1.0' WHERE extname = 'outbox'; SELECT outbox_worker_restart()});
$node->wait_sql($idle, 'idle');

# Dropped and created again while its versions differ, and one of its tables renamed.
$node->sql('CREATE DATABASE made');
my $differs = q{UPDATE pg_extension SET extversion = '0.9' WHERE extname = 'outbox'; SELECT outbox_worker_restart()};
foreach my $again (1, 0)
{
	$node->sql('CREATE EXTENSION IF NOT EXISTS outbox', 'made');
	$node->wait_sql($idle, 'idle', 30, 'made');
	$node->sql($differs, 'made');
	$node->wait_sql('SELECT state FROM outbox_status', 'version mismatch', 30, 'made');
	$node->sql('DROP EXTENSION outbox', 'made');
	if (!$again)
	{
		ok($node->wait_sql(q{SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'outbox relay' AND datname = 'made'}, 0, 15), 'dropped: its worker leaves');
		next;
	}
	$node->sql(q{CREATE EXTENSION outbox}, 'made');
	$node->sql(q{SELECT outbox_enqueue('made again', '{}')}, 'made');
	ok($node->wait_drained(15, 'made'), 'made again: it publishes');
}
$node->sql('CREATE EXTENSION outbox', 'made');
$node->wait_sql($idle, 'idle', 30, 'made');
# Another role puts one of its own there, whose code nobody runs.
$node->sql(<<'SQL', 'made');
CREATE ROLE eve;
GRANT CREATE, USAGE ON SCHEMA public TO eve;
CREATE TABLE seen (who text);
GRANT INSERT ON seen TO PUBLIC;
CREATE FUNCTION see(text) RETURNS boolean LANGUAGE plpgsql AS $$ BEGIN INSERT INTO public.seen VALUES (current_user); RETURN true; END $$;
SQL
foreach my $table (qw(outbox_archive outbox_route outbox_control outbox))
{
	$node->sql("SELECT outbox_enqueue('renamed', '{}'); ALTER TABLE $table RENAME TO other;"
		. ($table eq 'outbox_archive' ? q{
CREATE TABLE outbox_archive (LIKE other, CHECK (see(event_type))) PARTITION BY RANGE (published_at);
CREATE TABLE theirs PARTITION OF outbox_archive DEFAULT;
ALTER TABLE theirs OWNER TO eve;
ALTER TABLE outbox_archive OWNER TO eve;
SELECT outbox_enqueue('renamed', '{}')} : "CREATE VIEW $table AS SELECT * FROM other; ALTER VIEW $table OWNER TO eve"), 'made');
	ok($node->wait_sql('SELECT state, last_error FROM outbox_workers', qq{database error|table "$table" of the extension "outbox" was renamed or moved}, 15, 'made'), "$table renamed: it says so");
	$node->sql(($table eq 'outbox_archive' ? 'DROP TABLE' : 'DROP VIEW') . " $table; ALTER TABLE other RENAME TO $table", 'made');
	ok($node->wait_drained(30, 'made'), "$table named back: it publishes");
}
# and one from which a worker reads whether a key of a dead letter is being numbered
$node->sql(<<'SQL', 'made');
INSERT INTO outbox_route (name, routing_key, sequence) VALUES ('dead', 'dead', 'key');
INSERT INTO outbox_route (name, routing_key, max_attempts, failed_route) VALUES ('refused', 'refused', 1, 'dead');
ALTER TABLE outbox_key_number RENAME TO other;
CREATE TABLE outbox_key_number (LIKE other) PARTITION BY LIST (route);
ALTER TABLE outbox_key_number OWNER TO eve;
SQL
$fake->do('answer nack');
$node->sql(q{SELECT outbox_enqueue('refused', '{}', 'order', '1', route => 'refused')}, 'made');
ok($node->wait_sql('SELECT state, last_error FROM outbox_workers', 'database error|table "outbox_key_number" of the extension "outbox" was renamed or moved', 15, 'made'), 'outbox_key_number renamed: it says so');
$fake->do('answer ack');
$node->sql('DROP TABLE outbox_key_number; ALTER TABLE other RENAME TO outbox_key_number', 'made');
ok($node->wait_drained(30, 'made'), 'outbox_key_number named back: it publishes');
is($node->sql('SELECT count(*) FROM seen', 'made'), 0, 'nothing of the other role was run');
is($node->sql(q{SELECT count(*) FROM outbox_archive WHERE event_type = 'renamed'}, 'made'), 5, 'and nothing is lost');
$node->sql('DROP DATABASE made');

# --- the archive

clear_of_midnight(60);
my $archive = $session->query_safe('SELECT pg_backend_pid()');
$states->run(
	[ 'a reader of the archive', 'archive maintenance', sub {
			$session->query_safe('BEGIN; LOCK TABLE outbox_archive IN ACCESS SHARE MODE');
			$node->sql(<<'SQL');
SET lock_timeout = '5s';
UPDATE pg_class SET relname = relname || '_renamed' WHERE relname ~ '^outbox_archive_p[0-9]{8}$'
	AND to_date(right(relname, 8), 'YYYYMMDD') > (now() AT TIME ZONE 'UTC')::date;
SQL
			$node->sql('SELECT outbox_worker_restart()');
		}, 'shows', within => 20, stays => 1, severity => 'warning', subject => qr/^archive$/, detail => qr/\b$archive\b/, out => qr/^$archive\|/m ],
	[ 'a reader of the archive for days', 'archive partition missing', sub {
			return sub {
				$node->sql(q{UPDATE pg_class SET relname = left(relname, 24) WHERE relname ~ '^outbox_archive_p.*_renamed$'});
				$session->query_safe('COMMIT');
			};
		}, 'shows', severity => 'warning', subject => qr/^archive$/, detail => qr/the last partition is that of \d/, out => qr/\b$archive\b/ ]);
$node->wait_sql(q{SELECT count(*) FROM outbox_problems WHERE problem = 'archive maintenance'}, 0);
$session->quit;
$node->wait_sql('SELECT count(*) FROM outbox_problems WHERE severity = $$critical$$', 0);

# --- vacuum

# The server vacuums by itself what is as old as that, once nothing is in its way.
my $keeps = $node->session;
$states->run(
	[ 'dead rows that an old snapshot keeps', 'vacuum held back', sub { }, 'fixes', within => 90, since => 'before', severity => 'warning',
		subject => qr/^process $reader_pid$/, detail => qr/table outbox has \d{6} dead rows/,
		also => sub { $keeps->query_safe('BEGIN; LOCK TABLE outbox IN SHARE UPDATE EXCLUSIVE MODE') } ],
	[ 'a table that no vacuum freezes', 'wraparound', sub { }, 'fixes', severity => 'warning', subject => qr/^table outbox/,
		detail => qr/its oldest transaction is \d{6} old/, also => sub { $keeps->query_safe('COMMIT') } ],
	[ 'dead rows that autovacuum leaves', 'vacuum behind', sub {
			my $before = $node->sql(q{SELECT pg_stat_get_vacuum_count('outbox'::regclass)});
			return server_tells($node, 'pg_stat_get_dead_tuples', 'oid', 'bigint', "CASE WHEN pg_stat_get_vacuum_count(\$1) > $before THEN 0 ELSE 6000000 END");
		}, 'fixes', since => 'any', severity => 'warning', subject => qr/^table outbox$/ ]);
$keeps->quit;
eval { $reader->quit };
ok($node->wait_sql('SELECT count(*) FROM outbox_problems', 0), 'nothing is wrong any more') or diag all_rows();
$states->run(
	[ 'a forgotten prepared transaction', 'prepared transaction', sub { return sub { $node->sql(q{COMMIT PREPARED 'forgotten'}, 'copy') } },
		'shows', out => qr/\|forgotten\|/, db => 'copy', within => 90, since => 'before', severity => 'warning',
		subject => qr/^prepared transaction "forgotten"$/, detail => qr/^of \w+, it has written to outbox$/ ]);
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
$node->wait_sql($idle, 'idle', 30, 'crashing');
$node->sql('SELECT pg_terminate_backend(pid) FROM outbox_workers', 'crashing');
$node->wait_sql($idle, 'idle', 30, 'crashing');
$node->test_point('start wait 1');
$node->sql('SELECT outbox_worker_restart()', 'crashing');
my $starting = $node->wait_test_point('start');
$node->sql("SELECT pg_terminate_backend($starting)");
$node->test_point_over;
$node->wait_sql("SELECT state FROM outbox_workers WHERE pid <> $starting", 'idle', 30, 'crashing');
is($node->sql('SELECT count(*) FROM outbox_problems', 'crashing'), 0, 'a worker that was told to leave has not crashed, nor one that starts');
$states->run(
	[ 'workers that end with an error again and again', 'worker missing', sub {
			$node->test_point('connecting fatal 0');
			$node->sql('SELECT outbox_worker_restart()', 'crashing');
			$node->wait_sql(q{SELECT detail ~ ' [2-9] times since' FROM outbox_problems WHERE problem = 'crashed'}, 't', 30, 'crashing');
			return sub { $node->test_point_over };
		}, 'shows', within => 20, db => 'crashing', severity => 'critical', detail => qr/^0 of 1 workers run$/ ],
	[ 'workers that have ended with an error', 'crashed', sub { }, 'shows', db => 'crashing', stays => 1, since => 'before', severity => 'warning',
		subject => qr/^workers of database crashing$/, detail => qr/^a worker ended with an error [2-9] times since/, out => qr/outbox relay/ ]);
$node->wait_sql($idle, 'idle', 60, 'crashing');
is($node->sql(q{SELECT count(*) FROM outbox_problems}), 0, 'other databases do not show it');
$node->sql('DROP DATABASE crashing');

# --- processes

$states->run(
	[ 'a worker that is stopped while it leaves', 'worker stopped', sub {
			$fake->do('answer hold');
			$node->sql(q{SELECT outbox_enqueue('held', '{}')});
			$node->wait_sql('SELECT sum(in_flight) FROM outbox_workers', 1);
			my ($pid) = $node->backend_pids('outbox relay');
			$node->sql("SELECT pg_terminate_backend($pid)");
			wait_until('it is leaving', sub { $node->sql("SELECT state FROM outbox_workers WHERE pid = $pid") eq 'stopping' });
			kill 'STOP', $pid;
			return sub { kill 'CONT', $pid; $fake->do('answer ack') };
		}, 'shows', within => 25, severity => 'warning', subject => qr/^worker 0$/, detail => qr/^stopping$/, out => qr/^\d+\|/ ],
	[ 'a process that is killed', 'crashed', sub {
			$node->kill_backends('KILL');
			$node->wait_restarted;
			$node->wait_sql($idle, 'idle');
		}, 'shows', within => 30, stays => 1, subject => qr/^server$/, detail => qr/restarted all of them once since/,
		out => qr/background worker "outbox relay.*was terminated by signal 9/ ]);

# --- the server

$states->run(
	[ 'a URI that the server starts with', 'URI unusable', sub {
			$node->append_conf('postgresql.conf', "outbox.broker_uri = 'http://broker'");
			$node->restart;
			return sub { $node->append_conf('postgresql.conf', "outbox.broker_uri = '" . $fake->uri . "'"); $node->restart };
		}, 'shows', within => 20 ],
	[ 'too few worker processes', 'no process free', sub {
			$node->append_conf('postgresql.conf', "outbox.workers = 2\nmax_worker_processes = 2\nmax_logical_replication_workers = 0");
			$node->restart;
			$node->wait_workers('postgres', 1);
			return sub { $node->append_conf('postgresql.conf', 'max_worker_processes = 8'); $node->restart };
		}, 'shows', within => 20, severity => 'warning', subject => qr/^server$/, detail => qr/^1 of 2 workers run$/, out => qr/^outbox relay\|1$/m ],
	[ 'no worker processes', 'launcher missing', sub {
			$node->append_conf('postgresql.conf', 'max_worker_processes = 0');
			$node->restart;
			return sub { $node->append_conf('postgresql.conf', 'max_worker_processes = 8'); $node->restart };
		}, 'shows', within => 20, severity => 'critical', subject => qr/^server$/, detail => qr/^0 of 2 workers run$/, out => qr/^0$/ ],
	[ 'a library that is not preloaded', 'not preloaded', sub {
			$node->append_conf('postgresql.conf', "shared_preload_libraries = '\$libdir/auto_explain, \"auth_delay\"'");
			$node->restart;
		}, 'fixes', within => 20, severity => 'critical', subject => qr/^server$/, detail => qr/\$libdir\/auto_explain/, after => $restart ]);

note "more: $_" foreach split /\n/, $states->table($node->basedir);
done_testing();
