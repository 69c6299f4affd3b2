# The tables are dumped and restored in each mode, upgraded with pg_upgrade, and
# given to other owners: afterwards they are what CREATE EXTENSION has made
# (triggers, constraints, defaults, rights), a message costs what it cost, and
# what was pending goes out once it may.  doc/dev/fault-cases.md K7, B10.
#
# copies.pl has what a restored backlog must not do, and the orders in which
# its tables are loaded.  OUTBOX_TEST_FULL=1: more formats of dumps.
#
# suite: test faults
# takes: 53 s

use strict;
use warnings;

use Test::More;
use PostgreSQL::Test::Utils;
use OutboxTest::Checker;
use OutboxTest::FakeBroker;
use OutboxTest::Node;
use OutboxTest::Shape;
use OutboxTest::Util;

my $STATE = 'SELECT state FROM outbox_status';
my $CONF = "outbox.poll_interval = 100ms\nautovacuum = off\nfull_page_writes = off\nfsync = off";

my $fake = OutboxTest::FakeBroker->start;
my $node = OutboxTest::Node->create(broker => $fake, conf => $CONF);
my $checker = OutboxTest::Checker->install($node);
my $archive = $node->basedir . '/dump';

sub same_shape
{
	my ($name, $expected, $server, $dbname, @except) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	my $shape = shape($server, $dbname);

	foreach my $what (sort keys %$expected)
	{
		next if grep { $_ eq $what } @except;
		is($shape->{$what}, $expected->{$what}, "$name: $what");
	}
	return;
}

# Bytes of WAL and microseconds a message.  A row lock on the route for each
# message would show.
sub cost
{
	my ($server, $dbname) = @_;

	return split /\|/, $server->sql(<<'SQL', $dbname);
BEGIN;
CREATE TEMPORARY TABLE cost AS SELECT pg_current_wal_insert_lsn() AS lsn, clock_timestamp() AS at;
CREATE TEMPORARY TABLE ids AS SELECT outbox_enqueue('cost', '{"a": 1}', aggregate_id => 'cost', available_at => '2100-01-01')
	FROM generate_series(1, 2000);
SELECT (pg_current_wal_insert_lsn() - lsn) / 2000, extract(epoch FROM clock_timestamp() - at) * 1e6 / 2000 FROM cost;
ROLLBACK;
SQL
}

sub least
{
	my ($least, @cost) = @_;
	foreach my $i (0, 1)
	{
		$least->[$i] = $cost[$i]
		  if !defined $least->[$i] || $cost[$i] < $least->[$i];
	}
	return;
}

# Compared with the original, in turns, as others may load the machine; or with
# what that once cost.
my $COST;

sub same_cost
{
	my ($name, $server, $dbname) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	my ($original, $copy) = ([], []);

	foreach my $try (1 .. 10)
	{
		least($copy, cost($server, $dbname));
		least($original, $COST ? @$COST : cost($node, 'postgres'));
		last if $try > 2 && $copy->[1] < $original->[1] * 2;
	}
	note sprintf '%s: %.0f bytes of WAL and %.1f us a message, the original %.0f and %.1f',
	  $name, @$copy, @$original;
	cmp_ok($copy->[0], '<', $original->[0] * 1.1 + 5, "$name: a message costs as much WAL");
	cmp_ok($copy->[1], '<', $original->[1] * 3, "$name: and as much time");
	$_->[0]->sql('VACUUM outbox', $_->[1])
	  foreach [ $server, $dbname ], $COST ? () : [ $node, 'postgres' ];
	return;
}

$node->sql(<<'SQL');
CREATE ROLE app;
CREATE ROLE heir;
GRANT EXECUTE ON FUNCTION outbox_enqueue TO app;
GRANT INSERT ON outbox TO app;
INSERT INTO outbox_route (name, exchange, enqueue_roles) VALUES ('own', 'own', '{app}');
SQL
$checker->enqueue(20, keys => 3, prefix => 'before');
$node->wait_drained;
$node->set('outbox.enabled', 'off');
$node->wait_sql($STATE, 'disabled');
$checker->enqueue(100, keys => 7, prefix => 'pending');
$node->sql(q{SELECT outbox_enqueue('kept', '{}', route => 'own', available_at => '2100-01-01')});
my $made = shape($node, 'postgres');
my $messages = $node->sql(q{SELECT count(*), md5(string_agg(o::text, '|' ORDER BY seq)) FROM outbox o});

# Enqueue by each way works and wakes the relay; then what came with the restore
# goes out.  By then it is known that nothing did so unasked.
sub alive
{
	my ($name, $server, $dbname, %params) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	my $before = () = $fake->published;

	$server->wait_sql($STATE, 'not adopted', undef, $dbname);
	is(scalar(() = $fake->published), $before, "$name: nothing is published");
	like($server->sql_fails(q{INSERT INTO outbox (event_type, payload) VALUES ('', '{}')}, $dbname),
		qr/event_type/, "$name: messages are checked");
	like($server->sql_fails(q{INSERT INTO outbox (event_type, payload, route) VALUES ('e', '{}', 'none')}, $dbname),
		qr/route "none" does not exist/, "$name: so are routes");
	$server->sql('SELECT outbox_adopt()', $dbname);
	$server->wait_sql(q{SELECT NOT EXISTS (SELECT FROM outbox WHERE status = 'pending' AND available_at IS NULL)},
		't', undef, $dbname);
	is($server->sql(q{SELECT count(*) FROM outbox WHERE route = 'own' AND event_type = 'kept'}, $dbname),
		'1', "$name: what is scheduled stays");
	is((() = $fake->published) - $before, $params{pending} // 100, "$name: what was pending goes out");
	$server->sql(q{SET ROLE app; INSERT INTO outbox (event_type, payload, route) VALUES ('e', '{}', 'own')}, $dbname);
	$server->wait_sql(q{SELECT count(*) FROM outbox_archive WHERE route = 'own'}, 1, undef, $dbname);
	# a change of a route is heard by a session that has it in its cache
	my $session = $server->session($dbname, on_error_stop => 0);
	$session->query_safe(q{SELECT outbox_enqueue('e', '{}', route => 'own')});
	$server->sql(q{UPDATE outbox_route SET enqueue_roles = '{heir}' WHERE name = 'own'}, $dbname);
	$session->query(q{SET ROLE app});
	$session->query(q{SELECT outbox_enqueue('e', '{}', route => 'own')});
	like($session->{stderr}, qr/permission denied for route/, "$name: a change of a route is heard");
	$session->{stderr} = '';
	$session->quit;
	return;
}

# --- dumps

my $target = OutboxTest::Node->create(
	name => 'target', broker => $fake, extension => 0, conf => $CONF);
$target->sql('CREATE ROLE app; CREATE ROLE heir');

sub dump_it
{
	my (@options) = @_;
	return command_ok([ 'pg_dump', '-d', $node->connstr('postgres'), '-f', $archive, @options ],
		"pg_dump @options");
}

# Restores with what came from dump_it(); dies not, but says what was refused.
sub load_it
{
	my ($dbname, @options) = @_;
	my ($out, $err) = ('', '');
	my @command =
	  @options && $options[0] eq 'psql'
	  ? ('psql', '-Xq', '-o', '/dev/null', '-f', $archive)
	  : ('pg_restore', @options, $archive);

	@command = ($command[0], '-d', $target->connstr($dbname), @command[ 1 .. $#command ]);
	IPC::Run::run(\@command, '<', \undef, '>', \$out, '2>', \$err);
	return $err;
}

my @modes = (
	[ 'plain, --inserts', ['--inserts'], ['psql'] ],
	[ 'custom, one transaction', ['-Fc'], ['-1'] ],
	[ 'custom, --clean into a database that has it', ['-Fc'], [ '--clean', '--if-exists' ], 'CREATE EXTENSION outbox' ]);
push @modes,
  [ 'plain', [], ['psql'] ],
  [ 'plain, --column-inserts, several rows', [ '--column-inserts', '--rows-per-insert=50' ], ['psql'] ],
  [ 'custom', ['-Fc'], [] ],
  [ 'tar', ['-Ft'], [] ],
  if $ENV{OUTBOX_TEST_FULL};
my $number = 0;

foreach my $mode (@modes)
{
	my ($name, $dump, $load, $prepare) = @$mode;
	my $dbname = 'restored' . ++$number;

	unlink $archive;
	dump_it(@$dump);
	$target->sql("CREATE DATABASE $dbname");
	$target->sql($prepare, $dbname) if $prepare;
	is(load_it($dbname, @$load), '', "$name: restores without an error");
	is($target->sql(q{SELECT count(*), md5(string_agg(o::text, '|' ORDER BY seq)) FROM outbox o}, $dbname),
		$messages, "$name: messages");
	same_shape($name, $made, $target, $dbname);
	same_cost($name, $target, $dbname) if $ENV{OUTBOX_TEST_FULL};
	alive($name, $target, $dbname);
	$target->sql("DROP DATABASE $dbname");
}

# Of the chosen schema alone: the same rows of users' tables as of the whole database, as none
# of these tables is in outbox_internal.
{
	my ($whole) = run_command([ 'pg_dump', '-d', $node->connstr('postgres') ]);
	my ($part) = run_command([ 'pg_dump', '-n', 'public', '-d', $node->connstr('postgres') ]);
	my ($rows, $same) = map { join "\n", sort $_ =~ /^(COPY \S*outbox\w* .*?^\\\.$|SELECT pg_catalog\.setval[^\n]*outbox[^\n]*)$/gms } $whole, $part;
	cmp_ok(length $rows, '>', 10_000, 'pg_dump has the rows of ' . (() = $rows =~ /^COPY/mg) . ' tables of the extension');
	ok($same eq $rows, 'and so has pg_dump -n of the chosen schema');
}
my $dbname = 'schema_alone';
unlink $archive;
dump_it('-Fc', '-n', 'public');
$target->sql("CREATE DATABASE $dbname");
$target->sql('CREATE EXTENSION outbox', $dbname);
OutboxTest::Checker->install($target, dbname => $dbname);
is(load_it($dbname, '--data-only'), '', 'pg_dump -n: restores without an error');
is($target->sql(q{SELECT count(*), md5(string_agg(o::text, '|' ORDER BY seq)) FROM outbox o}, $dbname), $messages, 'pg_dump -n: messages');
$target->sql("DROP DATABASE $dbname");

# --- into the database itself, which has published its backlog since the dump

$dbname = 'in_place';
$target->sql("CREATE DATABASE $dbname");
$target->sql("ALTER DATABASE $dbname SET outbox.enabled = off");
$target->sql('CREATE EXTENSION outbox', $dbname);
$target->wait_sql($STATE, 'disabled', undef, $dbname);
$target->sql(q{SELECT outbox_enqueue('in place', '{}', 'order', i::text) FROM generate_series(1, 30) i}, $dbname);
command_ok([ 'pg_dump', '-Fc', '-d', $target->connstr($dbname), '-f', "$archive.own" ], 'in place: pg_dump');
$target->sql("ALTER DATABASE $dbname RESET outbox.enabled; SELECT outbox_worker_restart()", $dbname);
$target->wait_drained(30, $dbname);

# The second --data-only finds an adopted copy, whose record it does not replace.
foreach my $case ([ '--data-only' ], [ '--data-only' ], [ '--clean', '--if-exists' ], [ '--clean', '--if-exists', '-1' ])
{
	my $name = "in place: @$case";
	my $before = () = $fake->published;

	run_command([ 'pg_restore', @$case, '-d', $target->connstr($dbname), "$archive.own" ]);
	$target->wait_sql($STATE, 'not adopted', undef, $dbname);
	is($target->sql('SELECT count(*) FROM outbox', $dbname), '30', "$name: the messages wait");
	is((() = $fake->published) - $before, 0, "$name: nothing is published twice");
	$target->sql('SELECT outbox_adopt()', $dbname);
	$target->wait_drained(30, $dbname);
	is((() = $fake->published) - $before, 30, "$name: until they are adopted");
}
$target->sql("DROP DATABASE $dbname");

# Data alone, into an extension that was made there, checks off or on, and one
# table alone.
unlink $archive;
dump_it('-Fc');
foreach my $mode (
	[ 'data only', ['--data-only'] ],
	[ 'data only, --disable-triggers', [ '--data-only', '--disable-triggers' ] ],
	[ 'one table', [ '--data-only', '-t', 'outbox' ] ],
	[ 'one table, --disable-triggers', [ '--data-only', '--disable-triggers', '-t', 'outbox' ] ],
	[ 'one table, its routes first', [ '--data-only', '-t', 'outbox_route' ], [ '--data-only', '-t', 'outbox' ] ])
{
	my ($name, @loads) = @$mode;
	my $dbname = 'restored' . ++$number;

	$target->sql("CREATE DATABASE $dbname");
	$target->sql('CREATE EXTENSION outbox; GRANT INSERT ON outbox TO app; GRANT EXECUTE ON FUNCTION outbox_enqueue TO app', $dbname);
	OutboxTest::Checker->install($target, dbname => $dbname);
	my $clean = shape($target, $dbname);
	# it enables all that it has disabled, ENABLE ALWAYS is not among what it knows
	$clean->{triggers} =~ s/^(outbox_(?:route|control)\|.*)\|A\|/$1|O|/mg
	  if $name eq 'data only, --disable-triggers';
	foreach my $load (@loads)
	{
		my $err = load_it($dbname, @$load);
		note "$name: $err" if $err ne '';
		# what has the same name there cannot be loaded without the triggers
		# that replace it
		$err =~ s/pg_restore: error: COPY failed for table "outbox_(control|route)": ERROR:  duplicate key.*\n(DETAIL|CONTEXT):.*\n(CONTEXT:.*\n)?//g
		  if "@$load" =~ /disable-triggers/;
		$err =~ s/pg_restore: warning: errors ignored on restore: 2\n//;
		is($err, '', "$name: restores without an error");
	}
	is($target->sql(q{SELECT count(*), md5(string_agg(o::text, '|' ORDER BY seq)) FROM outbox o}, $dbname),
		$messages, "$name: messages");
	same_shape($name, $clean, $target, $dbname);
	same_cost($name, $target, $dbname) if $name =~ /disable-triggers/ || $ENV{OUTBOX_TEST_FULL};
	$target->sql(q{INSERT INTO outbox_route (name, exchange, enqueue_roles) SELECT 'own', 'own', '{app}'
		WHERE NOT EXISTS (SELECT FROM outbox_route WHERE name = 'own')}, $dbname);
	alive($name, $target, $dbname);
	$target->sql("DROP DATABASE $dbname");
}

# The schema alone is a new extension
unlink $archive;
dump_it('--schema-only');
$target->sql('CREATE DATABASE schema_only');
is(load_it('schema_only', 'psql'), '', 'schema only: restores without an error');
same_shape('schema only', $made, $target, 'schema_only');
same_cost('schema only', $target, 'schema_only');
$target->wait_sql($STATE, 'idle', undef, 'schema_only');
$target->sql('DROP DATABASE schema_only');

# --- owners

$target->sql('CREATE ROLE keeper SUPERUSER; CREATE DATABASE owned');
$target->sql('SET ROLE keeper; CREATE EXTENSION outbox', 'owned');
my $keepers = shape($target, 'owned');
$target->wait_sql($STATE, 'idle', undef, 'owned');
my $stays = $target->session('owned');
$stays->query_safe(q{SELECT outbox_enqueue('e', '{}')});
foreach my $move (
	'REASSIGN OWNED BY keeper TO heir',
	'REASSIGN OWNED BY heir TO keeper',
	'BEGIN; ALTER TABLE outbox OWNER TO heir; ALTER TABLE outbox OWNER TO keeper; COMMIT')
{
	my $log = $target->log_end;
	$target->sql("GRANT CREATE ON SCHEMA public TO heir; $move", 'owned');
	same_shape($move, $keepers, $target, 'owned', 'functions', 'rights');
	same_cost($move, $target, 'owned');
	$stays->query_safe(q{SELECT outbox_enqueue('e', '{}')});
	$target->sql(q{SELECT outbox_enqueue('e', '{}')}, 'owned');
	$target->wait_drained(undef, 'owned');
	unlike($target->log_text($log), qr/ERROR|signal/, "$move: without an error");
}
$stays->quit;
like($target->sql_fails('CREATE SCHEMA elsewhere; ALTER EXTENSION outbox SET SCHEMA elsewhere', 'owned'),
	qr/does not support SET SCHEMA/, 'ALTER EXTENSION SET SCHEMA is refused');
$target->stop('fast');

# --- pg_upgrade, to the same version: it takes the same way as to another one

SKIP:
{
	my $pg_upgrade = $node->config_data('--bindir') . '/pg_upgrade';
	skip 'no pg_upgrade', 1 unless -x $pg_upgrade;

	# it brings what was added to the tables, which a dump does not
	$node->sql(<<'SQL');
CREATE INDEX added ON outbox USING gin (headers) WITH (fastupdate = off);
CREATE FUNCTION noted() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NEW; END';
CREATE TRIGGER added AFTER INSERT ON outbox FOR EACH ROW EXECUTE FUNCTION noted();
ALTER TABLE outbox ADD CONSTRAINT added CHECK (event_type <> 'refused');
SQL
	my ($schema_dump) = run_command([ 'pg_dump', '--schema-only', '-d', $node->connstr('postgres') ]);
	unlike($schema_dump, qr/added/, 'a dump leaves out what was added to the tables');
	my $shape = shape($node, 'postgres');
	my $identity = $node->sql('SELECT system_identifier, database_oid FROM outbox_control');
	$COST = [];
	least($COST, cost($node, 'postgres')) foreach 1 .. 5;
	$node->stop('fast');
	my $new = OutboxTest::Node->create(
		name => 'upgraded', broker => $fake, start => 0, extension => 0, conf => $CONF);
	my $dir = $node->basedir . '/upgrade';
	my $bindir = $node->config_data('--bindir');
	mkdir $dir or die "$dir: $!";
	chdir $dir or die "$dir: $!";
	command_ok([
			$pg_upgrade, '-b', $bindir, '-B', $bindir,
			'-d', $node->data_dir, '-D', $new->data_dir,
			'-p', $node->port, '-P', $new->port, '-s', $new->host
		], 'pg_upgrade');
	$new->start;
	same_shape('pg_upgrade', $shape, $new, 'postgres');
	isnt($new->sql('SELECT system_identifier, oid FROM pg_control_system(), pg_database WHERE datname = current_database()'),
		$identity, 'pg_upgrade: another server');
	is($new->sql('SELECT system_identifier, database_oid FROM outbox_control'), $identity,
		'pg_upgrade: which knows whose messages they are');
	same_cost('pg_upgrade', $new, 'postgres');
	is($new->sql(q{SELECT count(*), md5(string_agg(o::text, '|' ORDER BY seq)) FROM outbox o}), $messages,
		'pg_upgrade: messages');
	alive('pg_upgrade', $new, 'postgres');
	like($new->sql_fails(q{SELECT outbox_enqueue('refused', '{}')}), qr/check constraint "added"/,
		'pg_upgrade: what was added counts');
	$new->stop('fast');
}
done_testing();
