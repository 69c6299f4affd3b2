# A copy of a database has the backlog of the original and must not publish it:
# dumps in every format, restored while the relay runs, base backups, recovery
# to a point in time, standbys, and logical replication.  doc/dev/fault-cases.md B11 to B14;
# doc/copies.md.  (Template copies: ddl.pl.)
#
# OUTBOX_TEST_FULL=1: a larger backlog, and the wait for the sweep.
#
# suite: test faults
# takes: 45 s

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
my $BACKLOG = $FULL ? 20000 : 3000;
my $WINDOW = 100;
my $BACK = 5;
my $SWEEP = 60;
my $CONF = <<"END";
outbox.window = $WINDOW
outbox.poll_interval = 100ms
outbox.retry_initial = 20ms
outbox.retry_max = 100ms
END
my $STATE = 'SELECT state FROM outbox_status';

my $fake = OutboxTest::FakeBroker->start;
my $node = OutboxTest::Node->create(
	name => 'original',
	broker => $fake,
	allows_streaming => 'logical',
	has_archiving => 1,
	conf => $CONF);
my $checker = OutboxTest::Checker->install($node);

$node->wait_sql($STATE, 'idle');

# The relay is at the end of a turn that began after now.
sub idle_round
{
	my ($server, $dbname) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	my $now = $server->sql('SELECT clock_timestamp()', $dbname);
	$server->sql('SELECT outbox_worker_restart()', $dbname);
	return $server->wait_sql(
		"SELECT bool_and(started_at > '$now' AND state NOT IN ('starting', 'connecting')) FROM outbox_workers",
		't', undef, $dbname);
}

# Nothing comes from there, although its relay has had the occasion.
sub silent
{
	my ($name, $server, $dbname, $state) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;

	$server->wait_sql($STATE, $state // 'not adopted', undef, $dbname);
	idle_round($server, $dbname);
	$server->wait_sql($STATE, $state // 'not adopted', undef, $dbname);
	is(scalar(() = $fake->of_case), 0, "$name: nothing is published");
	return;
}

# --- whatever commits together is seen together: messages, and that they are
# not ours to publish.  The relay has taken its news already when they commit.

my $order = $node->data_dir . '/outbox_test_point';

foreach my $case (
	[ 'the mark of a copy', 'UPDATE outbox_control SET database_oid = 1', 'not adopted', 'SELECT outbox_adopt()' ],
	[ 'outbox_pause()', 'SELECT outbox_pause()', 'paused', 'SELECT outbox_resume()' ])
{
	my ($name, $command, $state, $undo) = @$case;

	$fake->begin_case($name);
	append_to_file("$order.new", "before_claim wait 1\n");
	rename "$order.new", $order or die "$order: $!";
	# a poll claims where a transaction has ended
	$node->sql('SELECT pg_current_xact_id()');
	wait_until('the relay is about to claim', sub { -e "$order.hit" });
	$node->sql("BEGIN; $command; SELECT test_enqueue(10, 2, 'late'); COMMIT");
	unlink "$order.hit";
	silent("$name, with messages of its own transaction",
		$node, 'postgres', $state);
	$node->sql($undo);
	$node->wait_drained;
	$checker->check("$name, undone", [ $fake->of_case ]);
	$node->sql('TRUNCATE test_sent');

	# nobody is told of what was prepared
	$node->sql("BEGIN; $command; PREPARE TRANSACTION 'quietly'");
	$node->sql(q{COMMIT PREPARED 'quietly'});
	$node->wait_sql($STATE, $state);
	$node->sql("BEGIN; $undo; PREPARE TRANSACTION 'quietly'");
	$node->sql(q{COMMIT PREPARED 'quietly'});
	$node->wait_sql($STATE, 'idle');
}

# --- outbox_adopt() commits between a claim of what it has not seen and the look
# at the control row: what was claimed is not sent for it

$fake->begin_case('adopted in between');
my $adopts = $node->session;
$adopts->query_safe('BEGIN; SELECT outbox_adopt();');
append_to_file("$order.new", "after_claim_commit wait 1\n");
rename "$order.new", $order or die "$order: $!";
# as a restore does
sub as_restored
{
	my ($rows) = @_;
	$node->sql("SET check_function_bodies = off; SELECT pg_catalog.set_config('search_path', '', false);
		INSERT INTO public.outbox (event_type, payload, origin) VALUES $rows");
	return;
}
as_restored(q{('foreign', '{}', 1)});
wait_until('the relay has claimed', sub { -e "$order.hit" });
$adopts->query_safe('COMMIT;');
$adopts->quit;
unlink "$order.hit";
silent('adopted before it came', $node, 'postgres');
$node->sql('DELETE FROM outbox; SELECT outbox_adopt()');
$node->wait_sql($STATE, 'idle');
is(scalar(() = $fake->of_case), 0, 'and it was not sent later');

# --- each message of a claim is asked: one that is adopted says nothing about the next

$fake->begin_case('two origins');
as_restored(q{('foreign', '{}', 1)});
$node->wait_sql($STATE, 'not adopted');
is($node->sql('SELECT outbox_adopt()'), 't', 'adopted');
$node->wait_drained;
is(scalar(() = $fake->of_case), 1, 'and sent');
$node->hold_relay;
as_restored(q{('adopted', '{}', 1), ('strange', '{}', 2), ('adopted', '{}', 1)});
$node->test_point_over;
$node->wait_sql($STATE, 'not adopted');
is(join(' ', $fake->types), 'foreign', 'a strange one between them is not sent');
$node->sql('DELETE FROM outbox; SELECT outbox_adopt()');
$node->wait_sql($STATE, 'idle');

# --- B11: pending, scheduled, failed and published messages, routes, rights

$fake->begin_case('B11');
my @ROLES = qw(app biller operator);
my $roles = join ';', map { "CREATE ROLE $_" } @ROLES;
$node->sql($roles);
$node->sql(<<'SQL');
GRANT EXECUTE ON FUNCTION outbox_enqueue TO app, biller;
GRANT INSERT (event_type, payload) ON outbox TO app;
GRANT SELECT ON outbox_status, outbox_failed TO operator;
GRANT EXECUTE ON FUNCTION outbox_internal.outbox_relay_state, outbox_internal.outbox_backlog, outbox_database_stats, outbox_internal.outbox_problem_list, outbox_requeue TO operator;
UPDATE outbox_route SET max_attempts = 1 WHERE name = 'default';
INSERT INTO outbox_route (name, exchange, enqueue_roles)
	VALUES ('billing', 'billing', '{biller}');
INSERT INTO outbox_route (name, exchange, paused, on_failed)
	VALUES ('later', 'later', true, 'block');
SQL
$fake->do('when type=poison : return 312 NO_ROUTE');
$checker->enqueue(40, keys => 7, prefix => 'failed', event_type => 'poison');
$checker->enqueue(60, keys => 7, prefix => 'published');
$node->wait_drained;
$fake->do('forget');
$node->set('outbox.enabled', 'off');
$node->wait_sql($STATE, 'disabled');
my @before = $fake->of_case;
$fake->begin_case('B11: dumps');
$checker->enqueue($BACKLOG, keys => 50, size => 200, prefix => 'pending');
$node->sql(<<'SQL');
SELECT outbox_enqueue('kept', '{"n": 1.50}', aggregate_type => 't', aggregate_id => 'k', headers => '{"h": [1, null]}',
	properties => '{"priority": 3}');
SELECT outbox_enqueue_bytes('kept', '\x00ff', available_at => now() + '1 day');
SELECT outbox_enqueue('kept', '{}', route => 'later');
CREATE TABLE of_the_application AS SELECT g FROM generate_series(1, 1000) g;
ALTER TABLE of_the_application ADD PRIMARY KEY (g);
CREATE TRIGGER events AFTER INSERT OR UPDATE OR DELETE ON of_the_application
	FOR EACH ROW EXECUTE FUNCTION outbox_capture('event=row', 'headers=op');
SQL

my $target = OutboxTest::Node->create(
	name => 'target',
	broker => $fake,
	extension => 0,
	conf => "$CONF\nmax_worker_processes = 20");
$target->sql($roles);
my %dumps = map { $_ => $node->basedir . "/$_" } qw(plain custom directory);
command_ok([ 'pg_dump', '-d', $node->connstr('postgres'), '-f', $dumps{plain} ],
	'B11: pg_dump, plain');
command_ok([
		'pg_dump', '-Fc', '-d', $node->connstr('postgres'), '-f', $dumps{custom}
	], 'B11: pg_dump -Fc');
command_ok([
		'pg_dump', '-Fd', '-j2', '-d', $node->connstr('postgres'), '-f', $dumps{directory}
	], 'B11: pg_dump -Fd');

my %same = (
	'messages, with their numbers' =>
	  q{SELECT count(*), md5(string_agg(o::text, '|' ORDER BY seq)) FROM outbox o},
	'failed messages' =>
	  q{SELECT count(*), md5(string_agg(o::text, '|' ORDER BY seq)) FROM outbox_failed o},
	# which roles are meant is known by name, as OIDs differ
	'routes' => q{SELECT to_jsonb(r) - '{enqueue_role_oids,relay_role_oids}'::text[], r.enqueue_role_oids::regrole[] FROM outbox_route r ORDER BY name},
	'triggers of the application' =>
	  q{SELECT pg_get_triggerdef(oid) FROM pg_trigger WHERE tgrelid = 'of_the_application'::regclass},
	'whose messages they are' => 'SELECT * FROM outbox_control',
	'rights on functions' =>
	  q{SELECT oid::regprocedure, a.grantee::regrole, a.privilege_type
		FROM pg_proc, aclexplode(proacl) a
		WHERE proname LIKE 'outbox%' AND a.grantee <> 0
		ORDER BY oid::regprocedure::text, a.grantee::regrole::text, 3},
	'rights on tables and views' =>
	  q{SELECT oid::regclass, a.grantee::regrole, a.privilege_type
		FROM pg_class, aclexplode(relacl) a
		WHERE relname LIKE 'outbox%' AND relname NOT LIKE 'outbox_archive_p%'
			AND a.grantee <> 0 ORDER BY relname, a.grantee::regrole::text, 3},
	'rights on columns' =>
	  q{SELECT attname, a.grantee::regrole, a.privilege_type
		FROM pg_attribute, aclexplode(attacl) a
		WHERE attrelid = 'outbox'::regclass ORDER BY 1, 2::text, 3});

sub restored
{
	my ($name, $server, $dbname) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;

	foreach my $what (sort keys %same)
	{
		my $original = $node->sql($same{$what});
		is($server->sql($same{$what}, $dbname), $original, "$name: $what");
		isnt($original, '', "$name: $what: there are some");
	}
	cmp_ok($server->sql('SELECT last_value FROM outbox_seq_seq', $dbname),
		'>=', $node->sql('SELECT max(seq) FROM outbox'),
		"$name: the numbers go on");
	is($server->sql('SELECT count(*) FROM outbox_archive', $dbname),
		'0', "$name: published messages are not in it");
	is($server->sql(q{SELECT count(*) FROM pg_trigger
			WHERE tgrelid = 'outbox'::regclass AND tgenabled = 'O' AND NOT tgisinternal}, $dbname),
		'3', "$name: the checks are on");
	is( $server->sql(
			q{SET ROLE app; SELECT outbox_enqueue('x', '{}') IS NOT NULL}, $dbname),
		't', "$name: who might enqueue may");
	like(
		$server->sql_fails(
			q{SET ROLE app; SELECT outbox_enqueue('x', '{}', route => 'billing')}, $dbname),
		qr/permission denied/, "$name: and not on the route of others");
	$server->sql('DELETE FROM of_the_application WHERE g = 7', $dbname);
	is($server->sql(q{SELECT event_type, aggregate_id, payload FROM outbox WHERE aggregate_type = 'row'}, $dbname),
		'row.deleted|7|{"g": 7}', "$name: its rows were no events, and changes are");
	$server->sql(q{DELETE FROM outbox WHERE event_type = 'x' OR aggregate_type = 'row'}, $dbname);
	silent($name, $server, $dbname);
	cmp_ok($server->sql('SELECT backlog FROM outbox_status', $dbname),
		'>', $BACKLOG, "$name: the view tells what would go out");
	return;
}

sub restore
{
	my ($name, $server, $dbname, @command) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;

	$server->sql("CREATE DATABASE $dbname");
	$server->sql("ALTER DATABASE $dbname SET outbox.enabled = on");
	my $start = time;
	command_ok([ @command, '-d', $server->connstr($dbname) ],
		"$name: restores without an error");
	note sprintf '%s: %.1f s', $name, time - $start;
	restored($name, $server, $dbname);
	return;
}

restore('B11: plain', $target, 'plain', 'psql', '-XAtq', '-o', '/dev/null',
	'-v', 'ON_ERROR_STOP=1', '-f', $dumps{plain});
restore('B11: custom', $target, 'custom', 'pg_restore', '-e', $dumps{custom});
restore('B11: custom, one transaction', $target, 'single', 'pg_restore', '-1', $dumps{custom});
restore('B11: directory', $target, 'directory', 'pg_restore', '-e', $dumps{directory});
restore('B11: the same server, another name',
	$node, 'again', 'pg_restore', '-e', $dumps{custom});

# adopted, it goes on where the original was
$target->sql('SELECT outbox_adopt()', 'directory');
$target->wait_sql(q{SELECT count(*) FROM outbox JOIN test_sent USING (id) WHERE status = 'pending'},
	'0', 60, 'directory');
my $adopted = $checker->of($target, 'directory');
$adopted->check('B11: an adopted restore publishes the backlog in order',
	[ @before, grep { $_->{type} ne 'kept' } $fake->of_case ],
	case => 'B11: pg_dump, pg_restore, adopt', failed => 40);
is($target->sql('SELECT outbox_requeue_failed()', 'directory'),
	'40', 'B11: failed messages can be requeued there');
$target->wait_sql(q{SELECT count(*) FROM outbox JOIN test_sent USING (id)}, '0', 60, 'directory');
$fake->begin_case('B11: parts');

# the schema alone is a new extension, and the data alone make a copy of it
$target->sql('CREATE DATABASE parts');
command_ok([ 'pg_restore', '-e', '--schema-only', '-d', $target->connstr('parts'), $dumps{custom} ],
	'B11: --schema-only restores');
$target->wait_sql($STATE, 'idle', undef, 'parts');
is($target->sql('SELECT count(*) FROM outbox', 'parts'),
	'0', 'B11: --schema-only has no messages');
is($target->sql(q{SELECT string_agg(name, ',') FROM outbox_route}, 'parts'),
	'default', 'B11: nor routes of its own');
command_ok([
		'pg_restore', '-e', '--data-only', '-d', $target->connstr('parts'), $dumps{directory}
	], 'B11: --data-only restores into it');
restored('B11: --data-only', $target, 'parts');

# Into a database that is in use: what somebody has set stays, and is said.
$fake->begin_case('B11: in use');
$target->sql('CREATE DATABASE used');
$target->sql(q{CREATE EXTENSION outbox; SELECT outbox_pause(); UPDATE outbox_route SET exchange = 'theirs'}, 'used');
command_fails_like(
	[ 'pg_restore', '--data-only', '-d', $target->connstr('used'), $dumps{directory} ],
	qr/unique constraint "outbox_route_pkey"/,
	'B11: a default route that was changed is not replaced');
is($target->sql(q{SELECT exchange FROM outbox_route WHERE name = 'default'}, 'used'),
	'theirs', 'B11: and stays');
is( $target->sql('SELECT paused, system_identifier FROM outbox_control', 'used'),
	't|' . $node->sql('SELECT system_identifier FROM outbox_control'),
	'B11: the record is replaced, the pause stays');
$target->sql('DROP DATABASE used');

# Where ALTER has the setting off, a restore does not set it itself.
sub restore_altered
{
	my ($options) = @_;

	$target->sql('CREATE DATABASE altered');
	$target->sql('ALTER DATABASE altered SET check_function_bodies = off');
	local $ENV{PGOPTIONS} = $options;
	return (run_command([ 'pg_restore', '-d', $target->connstr('altered'), $dumps{custom} ]))[1];
}

$fake->begin_case('B11: altered');
my $errors = restore_altered('');
like($errors, qr/COPY failed for table "$_->[0]": ERROR:  $_->[1]/, "B11: not recognised: $_->[0]")
  foreach [ 'outbox', 'origin of a message must be that of this database' ],
	[ 'outbox_route', 'duplicate key' ], [ 'outbox_control', 'duplicate key' ];
is($target->sql('SELECT count(*) FROM outbox', 'altered'), '0', 'B11: not recognised: no message');
$target->sql('TRUNCATE of_the_application; SELECT outbox_pause()', 'altered');
command_ok([ 'pg_restore', '-e', '--data-only', '-t', 'of_the_application', '-d', $target->connstr('altered'), $dumps{custom} ],
	'B11: not recognised: --data-only');
is($target->sql(q{SELECT count(*) FROM outbox WHERE event_type = 'row.inserted'}, 'altered'), '1000', 'B11: not recognised: captured');
$target->sql('DROP DATABASE altered');
is(restore_altered('-c check_function_bodies=on'), '', 'B11: recognised with PGOPTIONS');
restored('B11: recognised with PGOPTIONS', $target, 'altered');
$target->sql('DROP DATABASE altered');

# --- B11: parallel restore, which loads the tables in any order

$fake->begin_case('B11: parallel');
$node->sql('CREATE DATABASE large');
$node->sql('CREATE EXTENSION outbox', 'large');
my $large = OutboxTest::Checker->install($node, dbname => 'large');
$large->enqueue(1000, keys => 20, prefix => 'large');

# tables that take their time, as large ones do, and are smaller than the outbox
$node->sql(<<'SQL', 'large');
CREATE FUNCTION slowly(text) RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN PERFORM pg_sleep(1); RETURN true; END $$;
CREATE TABLE slow1 (t text CHECK (slowly(t)));
CREATE TABLE slow2 (t text CHECK (slowly(t)));
INSERT INTO slow1 SELECT string_agg(md5(g::text), '') FROM generate_series(1, 20) g;
INSERT INTO slow2 SELECT string_agg(md5(g::text), '') FROM generate_series(1, 20) g;
SQL
my $parallel = $node->basedir . '/parallel';
command_ok([ 'pg_dump', '-Fd', '-d', $node->connstr('large'), '-f', $parallel ],
	'B11: pg_dump -Fd');

# The archive has no dependencies between the tables of an extension, so that
# the messages can be loaded before the row that says whose they are, and
# before their routes.
foreach my $jobs (2, 4)
{
	my $name = "B11: pg_restore -j$jobs, relay on";
	my $dbname = "slow$jobs";

	$fake->begin_case($name);
	$target->sql("CREATE DATABASE $dbname");
	command_ok([ 'pg_restore', '-e', "-j$jobs", '-d', $target->connstr($dbname), $parallel ],
		"$name: restores without an error");
	silent($name, $target, $dbname);
	is($target->sql('SELECT * FROM outbox_control', $dbname),
		$node->sql('SELECT * FROM outbox_control', 'large'),
		"$name: whose messages they are");
	is($target->sql('SELECT outbox_adopt()', $dbname), 't', "$name: adopted");
	$target->wait_drained(60, $dbname);
	$checker->of($target, $dbname)->check("$name, adopt", [ $fake->of_case ],
		case => "$name, adopt");
}
$node->sql('DROP DATABASE large');

# a dump with messages of other routes
$fake->begin_case('B11: parallel, routes');
restore("B11: pg_restore -j$_, routes", $target, "jobs$_", 'pg_restore', '-e', "-j$_", $dumps{directory})
  foreach 2, 4;

# --- the worst order: messages, later their routes, and never the control row

$fake->begin_case('messages first');
my ($contents) = run_command([ 'pg_restore', '-l', $dumps{directory} ]);
my @list = grep { / TABLE DATA / } split /\n/, $contents;

sub load_data
{
	my ($dbname, @tables) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	my $list = $target->basedir . '/list';

	unlink $list;
	foreach my $table (@tables)
	{
		append_to_file($list, "$_\n") foreach grep { / public \Q$table\E / } @list;
	}
	return command_ok([
			'pg_restore', '-e', '--data-only', '-L', $list,
			'-d', $target->connstr($dbname), $dumps{directory}
		], "B11: loads @tables");
}

$target->sql('CREATE DATABASE first');
command_ok([ 'pg_restore', '-e', '--schema-only', '-d', $target->connstr('first'), $dumps{directory} ],
	'B11: the schema');
$target->wait_sql($STATE, 'idle', undef, 'first');
my $log = $target->log_end;
load_data('first', 'outbox', 'test_sent');
silent('B11: messages first', $target, 'first');
like($target->log_text($log), qr/outbox relay is silent/, 'B11: and the log says so');
is( $target->sql(
		q{SELECT c.system_identifier = s.system_identifier AND c.database_oid = d.oid
			FROM outbox_control c, pg_control_system() s, pg_database d
			WHERE d.datname = current_database()}, 'first'),
	't', 'B11: although the control row knows of no other database');
my $own = $target->sql(q{SELECT outbox_enqueue('own', '{}')}, 'first');
silent('B11: messages first, and one that was enqueued here', $target, 'first');
load_data('first', 'outbox_route');
silent('B11: messages first, then routes', $target, 'first');

# it does not look at the messages again and again
my $xid = '';
my $since = time;
wait_until(
	'B11: no transaction id is used while nothing is adopted',
	sub {
		my $now = $target->sql('SELECT pg_snapshot_xmax(pg_current_snapshot())');
		$since = time if $now ne $xid;
		$xid = $now;
		return time - $since > 1.5;
	});

is($target->sql('SELECT outbox_adopt()', 'first'), 't', 'B11: adopted');
is($target->sql('SELECT outbox_adopt()', 'first'), 'f', 'B11: once is enough');
$target->wait_sql(q{SELECT count(*) FROM outbox WHERE status = 'pending' AND route = 'default' AND available_at IS NULL},
	'0', 60, 'first');
$target->sql(q{SELECT outbox_resume('later')}, 'first');
$target->wait_sql(q{SELECT count(*) FROM outbox WHERE status = 'pending' AND available_at IS NULL},
	'0', 60, 'first');
is(scalar(grep { $_->{id} eq $own } $fake->of_case), 1, 'B11: with what was enqueued here');
is(join(',', map { $_->{exchange} } grep { $_->{type} eq 'kept' } $fake->of_case),
	'outbox,later', 'B11: by their routes');
$checker->of($target, 'first')->check('B11: messages, then routes, adopted',
	[ @before, grep { $_->{type} !~ /^(kept|own)$/ } $fake->of_case ],
	case => 'B11: messages restored before routes, no control row, adopt', failed => 40);

# --- a base backup that is started beside the original

$node->sql('DROP DATABASE again');
$node->sql('SELECT outbox_discard(id) FROM outbox_failed');
$node->sql(q{DELETE FROM outbox WHERE event_type = 'kept'; DELETE FROM outbox WHERE status = 'pending'});
$node->sql(q{TRUNCATE test_sent; UPDATE outbox_route SET max_attempts = 10});
$checker->enqueue(200, keys => 10, prefix => 'backup');
$node->backup('base');
$fake->begin_case('a base backup that is started');
my $clone = OutboxTest::Node->new('clone');
$clone->init_from_backup($node, 'base');
$clone->append_conf('postgresql.conf', "outbox.enabled = off\narchive_mode = off");
$clone->start;
silent('a clone with outbox.enabled = off', $clone, 'postgres', 'disabled');
is($clone->sql('SELECT backlog FROM outbox_status'),
	'200', 'a clone shows what it would publish');
is($clone->sql('SELECT outbox_adopt()'),
	'f', 'it has the identity of the original, unless somebody names it (copies_environment.pl)');
$clone->stop('fast');

# --- B14: recovery to a point in time

$fake->begin_case('B14');
my $replayed = 150;
$node->set('outbox.enabled', 'on');
$node->wait_drained;
$node->set('outbox.enabled', 'off');
$node->wait_sql($STATE, 'disabled');
$checker->enqueue($replayed, keys => 10, prefix => 'target');
my $sent_at_target = $node->sql('SELECT max(n) FROM test_sent');
$node->sql(q{SELECT pg_create_restore_point('target')});
$node->set('outbox.enabled', 'on');
$node->wait_drained;
$checker->enqueue(100, keys => 10, prefix => 'after');
$node->wait_drained;
$checker->check('B14: the original', [ $fake->of_case ], case => 'B14: the original');
my @original = $fake->of_case;
my $segment = $node->sql('SELECT pg_walfile_name(pg_current_wal_lsn())');
$node->sql('SELECT pg_switch_wal()');
$node->wait_sql("SELECT last_archived_wal >= '$segment' FROM pg_stat_archiver");

$fake->begin_case('B14: recovered');
my $pitr = OutboxTest::Node->new('pitr');
$pitr->init_from_backup($node, 'base', has_restoring => 1, standby => 0);
$pitr->append_conf('postgresql.conf', <<'END');
outbox.enabled = off
recovery_target_name = 'target'
recovery_target_action = promote
archive_mode = off
END
$pitr->start;
$pitr->wait_sql('SELECT NOT pg_is_in_recovery()');
silent('B14: recovered with outbox.enabled = off', $pitr, 'postgres', 'disabled');
is($pitr->sql('SELECT backlog FROM outbox_status'),
	$replayed, 'B14: the view shows how many would be published again');
is($pitr->sql('SELECT max(n) FROM test_sent'),
	$sent_at_target, 'B14: it has what was there at the target');
$pitr->set('outbox.enabled', 'on');
silent('B14: recovered and enabled', $pitr, 'postgres');
is($pitr->sql('SELECT outbox_adopt()'), 't', 'B14: adopted');
$pitr->wait_drained;
$checker->of($pitr)->check('B14: after the recovery',
	[
		grep({ $_->{aggregate_id} !~ /^after/ } @original),
		$fake->of_case
	],
	interruptions => $replayed / 10, window => 10, skip_order => 1,
	case => 'B14: recovery to a point in time, adopted');
is(scalar(() = $fake->of_case),
	$replayed, 'B14: exactly what was pending at the target goes out twice');

# By which the two are told apart (copies_environment.pl).
sub history_reason
{
	my ($server) = @_;
	my @files = sort glob $server->data_dir . '/pg_wal/*.history';
	my ($last) = slurp_file($files[-1]) =~ /\t([^\t\n]*)\n*\z/;
	return $last;
}
note 'timeline history after a recovery to a point in time: '
  . history_reason($pitr);
$pitr->stop('fast');

# --- B13: a standby is promoted under load, with synchronous replication

$fake->begin_case('B13');
$node->sql('TRUNCATE test_sent');
my $standby = OutboxTest::Node->new('standby');
$standby->init_from_backup($node, 'base', has_streaming => 1);
$standby->adjust_conf('postgresql.auto.conf', 'outbox.enabled', undef);
$standby->start;
$node->set('synchronous_standby_names', 'standby');
$node->wait_sql(q{SELECT sync_state FROM pg_stat_replication}, 'sync');
is($standby->sql(q{SELECT count(*) FROM pg_stat_activity WHERE backend_type LIKE 'outbox%'}),
	'0', 'B13: a standby has no relay');
my $start = time;
$node->sql('CREATE DATABASE passing');
$node->sql('DROP DATABASE passing');
$node->wait_for_catchup($standby, 'replay', $node->lsn('insert'));
cmp_ok(time - $start, '<', $BACK, 'B13: DROP DATABASE is replayed without a stall');
$fake->do('answer delay 10');
my @loads = map {
	$checker->load(100000, keys => 13, prefix => "w$_.", per_tx => 2)
} 1 .. 4;
wait_until('B13: messages flow', sub { (() = $fake->of_case) > ($FULL ? 3000 : 1000) });
$node->crash;
foreach my $load (@loads)
{
	$load->wait;
	is($load->complaints, '', 'B13: producers end with the primary, and not before');
}
$standby->adjust_conf('postgresql.conf', 'synchronous_standby_names', undef);
$standby->promote;
$start = time;
my $promoted = $checker->of($standby);
my $first = $standby->sql(q{SELECT outbox_enqueue('first', '{}')});
wait_until('B13: a message arrives after the promotion',
	sub { grep { $_->{id} eq $first } $fake->of_case });
cmp_ok(time - $start, '<', $BACK, 'B13: soon');
note sprintf 'B13: delivers %.2f s after the promotion', time - $start;
$standby->wait_drained(180);
my $v = $promoted->check('B13: a synchronous standby is promoted under load',
	[ grep { $_->{type} ne 'first' } $fake->of_case ],
	interruptions => 1, window => 2 * $WINDOW,
	case => 'B13: a synchronous standby is promoted under load');
note "B13: $v->{duplicates} duplicates with window $WINDOW";
note 'timeline history after a promotion: ' . history_reason($standby);
$fake->do('forget');

# The old primary comes back without its standby: claims wait for it, also when
# the postmaster dies during that, which ends the wait.
$fake->begin_case('B13: the old primary');
$node->start;
$node->wait_sql(
	q{SELECT wait_event = 'SyncRep' FROM pg_stat_activity WHERE backend_type = 'outbox relay' AND datname = 'postgres'}
);
my ($relay) = $node->backend_pids;
$node->kill9;
wait_until('the relay ends with its postmaster',
	sub { !OutboxTest::Node::alive($relay) });
is(scalar(() = $fake->of_case), 0,
	'B13: the old primary publishes nothing that its standby lacks');

# --- B12: logical replication

$fake->begin_case('B12');
# what replication applies tells nobody
$target->forgets;
$standby->sql('CREATE DATABASE pub');
$standby->sql('ALTER DATABASE pub SET outbox.enabled = off');
$standby->sql('CREATE EXTENSION outbox', 'pub');
my $pub = OutboxTest::Checker->install($standby, dbname => 'pub');
$pub->enqueue(200, keys => 10, prefix => 'first');
$standby->sql(q{INSERT INTO outbox_route (name, exchange) VALUES ('more', 'more')}, 'pub');
$standby->sql('CREATE PUBLICATION everything FOR ALL TABLES', 'pub');
$target->sql('CREATE DATABASE sub');
$target->sql('CREATE EXTENSION outbox', 'sub');
OutboxTest::Checker->install($target, dbname => 'sub');
$target->wait_sql($STATE, 'idle', undef, 'sub');
# A subscriber must have the tables of its publisher: partitions of today and two days more.
$target->wait_sql(q{SELECT count(*) > 3 FROM pg_inherits WHERE inhparent = 'outbox_archive'::regclass}, 't', undef, 'sub');
my $connstr = $standby->connstr('pub') =~ s/'/''/gr;
$target->sql("CREATE SUBSCRIPTION everything CONNECTION '$connstr' PUBLICATION everything", 'sub');
$pub->enqueue(300, keys => 10, prefix => 'more');
$target->wait_sql('SELECT count(*) FROM test_sent', '500', 30, 'sub');
$target->wait_sql('SELECT count(*) FROM outbox', '500', 30, 'sub');
silent('B12: a subscriber of all tables', $target, 'sub');

# What a subscriber that has adopted gets by apply it delivers, unasked: new
# numbers at the next poll, older ones at the next sweep.
is($target->sql('SELECT outbox_adopt()', 'sub'), 't', 'B12: adopted');
$pub->enqueue(100, keys => 10, prefix => 'later');
$target->wait_sql('SELECT count(*) FROM test_sent', '600', 30, 'sub');
$target->wait_drained($SWEEP + 10, 'sub');
my $subscriber = $checker->of($target, 'sub');
$subscriber->check('B12: applied rows are delivered once they are adopted',
	[ $fake->of_case ], case => 'B12: applied rows on an adopted subscriber',
	skip_order => 1);
if ($FULL)
{
	my $late = $standby->session('pub');
	$late->query_safe(q{BEGIN; SELECT test_enqueue(1, 1, 'late');});
	$pub->enqueue(5, keys => 5, prefix => 'early');
	$target->wait_sql('SELECT count(*) FROM test_sent', '605', 30, 'sub');
	$target->wait_drained($SWEEP, 'sub');
	$late->query_safe('COMMIT;');
	$late->quit;
	$target->wait_sql('SELECT count(*) FROM test_sent', '606', 30, 'sub');
	$start = time;
	$target->wait_drained($SWEEP + 10, 'sub');
	note sprintf 'B12: the sweep delivered after %.1f s', time - $start;
	$subscriber->check('B12: the sweep delivers an older number', [ $fake->of_case ],
		case => 'B12: sweep on an adopted subscriber', skip_order => 1);
}

$_->stop('fast') foreach $target, $standby;
done_testing();
