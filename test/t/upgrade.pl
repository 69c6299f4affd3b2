# ALTER EXTENSION UPDATE from each older script: the extension is then, object by object,
# what CREATE EXTENSION makes, and everything that users have put into it is still there.
# And what runs while library and extension differ.
#
# The oldest version, and one to come, are those of test/modules/outbox_chain.  The
# library of another version is this one, told so by its environment.
#
# suite: test

use strict;
use warnings;

use Test::More;
use Time::HiRes qw(time);
use PostgreSQL::Test::Utils;
use OutboxTest::Catalog;
use OutboxTest::FakeBroker;
use OutboxTest::Node;
use OutboxTest::Util;

my $STATE = 'SELECT state FROM outbox_status';

my $fake = OutboxTest::FakeBroker->start;
my $node = OutboxTest::Node->create(broker => $fake, extension => 0,
	conf => "autovacuum = off\noutbox.poll_interval = 5s\nmax_worker_processes = 20");

my $sharedir = $node->config_data('--sharedir') . '/extension';
my $NEWEST = $node->sql(q{SELECT default_version FROM pg_available_extensions WHERE name = 'outbox'});
my @versions = sort { $a <=> $b } map { m{outbox--([\d.]+)\.sql$} } glob "$sharedir/outbox--*.sql";
my @older = grep { $_ < $NEWEST } @versions;
my ($OLDEST, $TO_COME) = @versions[0, -1];
ok($OLDEST < $NEWEST && $NEWEST < $TO_COME, "this is $NEWEST; the scripts are of " . join ', ', @versions);

sub same_catalog
{
	my ($name, $catalog, $expected) = @_;
	my @differences = differences($catalog, $expected);
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	is(scalar @differences, 0, "$name: nothing in the catalog differs")
	  or diag join "\n", "$name:", @differences;
	return;
}

sub state_soon
{
	my ($state, $dbname) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	return $node->wait_sql($STATE, $state, undef, $dbname);
}

# Restarts the server with a library of that version.
sub library
{
	my ($version) = @_;
	local $ENV{OUTBOX_TEST_VERSION} = $version;
	$node->restart;
	return;
}

# The partitions of these days; where versions differ, the relay makes none.
sub partitions
{
	my ($dbname, $make) = @_;
	$node->sql(q{SELECT outbox_internal.outbox_archive_maintain('1 day') FROM generate_series(1, 3)}, $dbname) if $make;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	return $node->wait_sql(q{SELECT count(*) > 3 FROM pg_inherits WHERE inhparent = 'outbox_archive'::regclass}, 't', undef, $dbname);
}

# --- object by object

$node->sql('CREATE ROLE app; CREATE ROLE worker; CREATE ROLE operator; CREATE ROLE heir');
$node->sql("CREATE DATABASE $_") foreach qw(fresh updated ahead ahead_fresh);
$node->set('outbox.enabled', 'off');
$node->sql('CREATE EXTENSION outbox', 'fresh');
partitions('fresh');
my $fresh = catalog($node, 'fresh');
cmp_ok(scalar keys %$fresh, '>', 100, 'an extension of ' . (keys %$fresh) . ' objects');

foreach my $version (reverse @older)
{
	$node->sql('DROP EXTENSION IF EXISTS outbox', 'updated');
	$node->sql("CREATE EXTENSION outbox VERSION '$version'", 'updated');
	partitions('updated', 1);
	my $before = catalog($node, 'updated');
	cmp_ok(scalar differences($before, $fresh), '>', 10, "$version is another version");
	$node->sql('ALTER EXTENSION outbox UPDATE', 'updated');
	same_catalog("$version to $NEWEST", catalog($node, 'updated'), $fresh);
}

# Two updates in one statement.
$node->sql("CREATE EXTENSION outbox VERSION '$OLDEST'; ALTER EXTENSION outbox UPDATE TO '$TO_COME'", 'ahead');
$node->sql("CREATE EXTENSION outbox VERSION '$TO_COME'", 'ahead_fresh');
partitions($_, 1) foreach qw(ahead ahead_fresh);
same_catalog("$OLDEST to $TO_COME", map { catalog($node, $_) } qw(ahead ahead_fresh));
$node->sql('DROP DATABASE ahead');
$node->sql('DROP DATABASE ahead_fresh');

# Would it notice?
my @changes = (
	[ q{COMMENT ON COLUMN outbox.seq IS 'other'}, 'table public.outbox: comment 1' ],
	[ 'GRANT SELECT (id) ON outbox TO app', 'table public.outbox: columns 2' ],
	[ 'GRANT INSERT ON outbox TO app', 'table public.outbox: rights of relation' ],
	[ 'ALTER TABLE outbox_route OWNER TO heir', 'table public.outbox_route: relation' ],
	[ 'ALTER TABLE outbox ALTER event_type SET STORAGE EXTERNAL', 'table public.outbox: columns 4' ],
	[ 'ALTER TABLE outbox ALTER aggregate_type SET STATISTICS 7', 'table public.outbox: columns 5' ],
	[ 'ALTER TABLE outbox ALTER aggregate_id SET (n_distinct = -1)', 'table public.outbox: columns 6' ],
	[ 'ALTER TABLE outbox ALTER origin DROP NOT NULL', 'table public.outbox: columns 17' ],
	[ q{ALTER TABLE outbox ALTER status SET DEFAULT 'failed'}, 'default value for column status of table public.outbox: default' ],
	[ 'ALTER TABLE outbox ADD COLUMN more integer', 'table public.outbox: columns 22' ],
	[ 'ALTER TABLE outbox RESET (autovacuum_vacuum_cost_delay)', 'table public.outbox: relation' ],
	[ 'ALTER TABLE outbox_route ENABLE TRIGGER outbox_route_changed',
		'trigger outbox_route_changed on table public.outbox_route: trigger' ],
	[ 'ALTER TABLE outbox_route DROP CONSTRAINT outbox_route_allowed',
		'constraint outbox_route_allowed on table public.outbox_route: is missing' ],
	[ 'ALTER INDEX outbox_ready SET (fillfactor = 70)', 'index public.outbox_ready: relation' ],
	[ 'CREATE INDEX another ON outbox (id)', 'index public.another: is there, and should not' ],
	[ 'ALTER SEQUENCE outbox_seq_seq CACHE 5', 'sequence public.outbox_seq_seq: sequence' ],
	[ 'ALTER FUNCTION outbox_uuid7() COST 5', 'function public.outbox_uuid7(): function' ],
	[ 'GRANT EXECUTE ON FUNCTION outbox_version() TO app', 'function public.outbox_version(): rights of function' ],
	[ q{UPDATE pg_init_privs SET initprivs = initprivs[1:1] WHERE objoid = 'outbox_version()'::regprocedure},
		'function public.outbox_version(): initial rights' ],
	[ 'ALTER SCHEMA outbox_internal OWNER TO heir', 'schema outbox_internal: schema' ],
	[ 'ALTER FUNCTION outbox_version() OWNER TO heir', 'function public.outbox_version(): dependencies on roles' ],
	[ 'ALTER FUNCTION outbox_version() DEPENDS ON EXTENSION plpgsql', 'function public.outbox_version(): dependencies' ],
	[ 'ALTER VIEW outbox_failed RESET (security_barrier)', 'view public.outbox_failed: relation' ],
	[ q{CREATE OR REPLACE VIEW outbox_workers AS SELECT * FROM outbox_internal.outbox_worker_stats() WHERE pid > 0},
		'rule _RETURN on view public.outbox_workers: rule' ],
	[ 'ALTER EXTENSION outbox DROP FUNCTION outbox_internal.outbox_origin()', 'function outbox_internal.outbox_origin(): is missing' ],
	[ q{UPDATE pg_extension SET extcondition[3] = 'WHERE seq > 1' WHERE extname = 'outbox'}, 'extension outbox: extension' ],
	[ 'DROP TRIGGER outbox_removed ON outbox', 'trigger outbox_removed on table public.outbox: is missing' ]);
my @found = map { /(.*)/ } differences(
	catalog($node, 'updated', before => join(";\n", map { $_->[0] } @changes)), $fresh);
foreach my $change (@changes)
{
	my ($sql, $difference) = @$change;
	ok((grep { $_ eq $difference } @found), "it would notice: $sql") or diag join "\n", @found;
}

# --- what users have put into it, with a library that is newer

$node->unset('outbox.enabled');
my $offset = $node->log_end;
$node->sql("CREATE EXTENSION outbox VERSION '$OLDEST'");
partitions('postgres', 1);
state_soon('version mismatch');
like($node->sql('SELECT hint FROM outbox_status'), qr/run ALTER EXTENSION outbox UPDATE in this database/,
	'a library that is newer: the hint names the command');
is($node->sql('SELECT last_error FROM outbox_status'),
	"the extension has version $OLDEST, the library $NEWEST", 'and the error both versions');

$node->sql(<<'SQL');
GRANT EXECUTE ON FUNCTION outbox_enqueue TO app;
GRANT INSERT (event_type, payload, route, aggregate_id) ON outbox TO worker;
GRANT SELECT ON outbox_failed TO operator;
GRANT SELECT (seq, status), UPDATE (status) ON outbox TO operator;
GRANT USAGE ON SEQUENCE outbox_seq_seq TO heir;
GRANT EXECUTE ON FUNCTION outbox_pause(text), outbox_resume(text) TO operator WITH GRANT OPTION;
SET ROLE operator;
GRANT EXECUTE ON FUNCTION outbox_pause(text) TO heir;
RESET ROLE;
REVOKE EXECUTE ON FUNCTION outbox_version() FROM pg_monitor;
GRANT SELECT ON outbox_messages TO PUBLIC;
INSERT INTO outbox_route (name, exchange, max_attempts, on_failed, enqueue_roles) VALUES
	('own', 'own', 3, 'block', '{app,worker}'), ('resting', 'resting', 5, 'skip', NULL);
UPDATE outbox_route SET max_attempts = 4 WHERE name = 'default';
SELECT outbox_pause('resting');
CREATE INDEX added ON outbox (created_at);
ALTER TABLE outbox ADD COLUMN theirs timestamptz;
CREATE VIEW users AS SELECT count(*) AS n FROM outbox_failed;
UPDATE outbox_control SET adopted_origins = '{42}';

INSERT INTO outbox (event_type, payload, aggregate_id) SELECT 'broken', to_jsonb(n), 'broken ' || n FROM generate_series(1, 5) n;
UPDATE outbox SET status = 'failed', attempts = 4, last_error = 'NO_ROUTE';
SELECT outbox_enqueue('keyed', to_jsonb(n), 'thing', (n % 3)::text, headers => '{"h": [1, null]}', properties => '{"priority": 3}')
	FROM generate_series(1, 30) n;
SELECT outbox_enqueue_bytes('bytes', '\x00ff', content_type => 'image/png', routing_key => 'other');
SELECT outbox_enqueue('later', '{}', available_at => '2100-01-01');
SELECT outbox_enqueue('rests', '{}', route => 'resting');
COPY outbox (event_type, payload) FROM STDIN;
copied	{"a": 1}
copied	{"a": 2}
\.
SET ROLE worker;
INSERT INTO outbox (event_type, payload, route, aggregate_id) VALUES ('inserted', '{}', 'own', 'k');
SET ROLE app;
SELECT outbox_enqueue('by app', '{}', route => 'own');
RESET ROLE;
BEGIN;
SELECT outbox_enqueue('never', '{}');
ROLLBACK;
BEGIN;
SELECT outbox_enqueue('prepared', '{}');
PREPARE TRANSACTION 'enqueued';
COMMIT PREPARED 'enqueued';
INSERT INTO outbox_archive (seq, id, route, event_type, payload, created_at, attempts, published_at)
	SELECT -n, gen_random_uuid(), 'default', 'was', to_jsonb(n), now() - interval '2 hours', 0, now() - n * interval '1 second'
	FROM generate_series(1, 50) n;
SQL
$node->sql(q{SELECT * FROM outbox_status; SELECT * FROM outbox_workers; SELECT * FROM outbox_messages;
	SELECT * FROM outbox_failed; SELECT * FROM outbox_held_keys; SELECT * FROM outbox_internal.outbox_claims()});
my ($discarded, $again) = split /\n/, $node->sql(q{SELECT id FROM outbox_failed ORDER BY seq LIMIT 2});
is($node->sql("SELECT outbox_discard('$discarded'), outbox_requeue('$again'), outbox_requeue_failed(last_error_like => 'no such')"),
	't|t|0', 'a library that is newer: the functions for operators work');
like($node->sql_fails(q{INSERT INTO outbox (event_type, payload) VALUES ('', '{}')}), qr/event_type/,
	'and messages are checked');

# Rows as those columns that were there, as other columns may come.
my %columns = map { $_ => $node->sql(
		"SELECT string_agg(quote_ident(attname), ', ' ORDER BY attnum) FROM pg_attribute WHERE attrelid = '$_'::regclass AND attnum > 0") }
  qw(outbox outbox_archive outbox_route outbox_control);

sub content
{
	my ($where) = @_;
	return join "\n", map { my $if = $_ eq 'outbox' ? $where // '' : '';
		"$_: " . $node->sql("SELECT count(*), md5(string_agg(r::text, E'\\n' ORDER BY r::text)) FROM (SELECT $columns{$_} FROM $_ $if) r") }
	  sort keys %columns;
}

# Of whom, on what.
my $RIGHTS = q{SELECT x.name, a.grantee::regrole, a.privilege_type, a.is_grantable
	FROM (SELECT oid::regprocedure::text, proacl FROM pg_proc WHERE proname ~ '^outbox'
		UNION ALL SELECT oid::regclass::text, relacl FROM pg_class WHERE relname ~ '^outbox' AND relkind <> 'i'
		UNION ALL SELECT attrelid::regclass || '.' || attname, attacl FROM pg_attribute WHERE attrelid::regclass::text ~ '^outbox')
		x(name, acl), aclexplode(acl) a
	WHERE a.grantee <> 10 ORDER BY 1, 2, 3, 4};
my $stays = q{WHERE status = 'failed' OR available_at > now() OR route = 'resting'};
my ($content, $lasting) = (content(), content($stays));
my %rights = map { $_ => 1 } split /\n/, $node->sql($RIGHTS);
is(scalar(() = $fake->published), 0, 'nothing is published while they differ');

$node->sql('BEGIN; ALTER EXTENSION outbox UPDATE; ROLLBACK');
is(content(), $content, 'an update that is rolled back changes nothing');
is($node->sql($STATE), 'version mismatch', 'and the relay still waits');
my $start = time;
$node->sql(q{DO $$ BEGIN EXECUTE 'ALTER EXTENSION outbox UPDATE'; END $$});
state_soon('idle');
# far less than the minute after which it looks by itself
cmp_ok(time - $start, '<', 20, 'the relay goes on at once');
$node->wait_sql("SELECT count(*) FROM outbox WHERE NOT ((SELECT true FROM (SELECT outbox.*) o $stays) IS TRUE)", 0);
is(content($stays), $lasting =~ s/^outbox_archive: .*$/content($stays) =~ m{^(outbox_archive: .*)$}m ? $1 : ''/mer,
	'what had failed, is scheduled or rests is still there, and so are routes and what was adopted');
is($node->sql(q{SELECT count(*) FROM outbox_archive WHERE event_type = 'was'}), '50', 'and the archive');
my %sent;
$sent{ $_->{type} }++ foreach $fake->published;
is_deeply(\%sent,
	{ broken => 1, keyed => 30, bytes => 1, copied => 2, inserted => 1, 'by app' => 1, prepared => 1 },
	'what was pending has gone out, once');
my %order;
push @{ $order{ $_->{aggregate_id} } }, $_->{body} foreach grep { $_->{type} eq 'keyed' } $fake->published;
is_deeply(\%order, { map { my $k = $_; $k => [ grep { $_ % 3 == $k } 1 .. 30 ] } 0 .. 2 }, 'in order');
my %rights_now = map { $_ => 1 } split /\n/, $node->sql($RIGHTS);
# By their new names: arguments that a function has got since.
my %signature = map { ("$_(text)" => "$_(text,text)") } qw(outbox_pause outbox_resume);
%rights = map { s/^([^|]*)/$signature{$1} || $1/er => 1 } keys %rights;
is(join("\n", grep { !$rights_now{$_} } sort keys %rights), '', 'no right is lost');
is($node->sql(q{SELECT has_function_privilege('pg_monitor', 'outbox_version()', 'EXECUTE')}), 'f',
	'and none that was taken is back');
is($node->sql('SELECT n FROM users'), '3', 'a view of the user works');
my @lines = $node->log_text($offset) =~ /(outbox relay is paused: .*)\n/g;
is(scalar @lines, 1, 'one line in the log said that they differ') or diag join "\n", @lines;
like($node->log_text($offset), qr/HINT:  Run ALTER EXTENSION outbox UPDATE/, 'with the command');

# --- a session whose library is newer, beside an update that adds columns

library($TO_COME);
$node->sql('CREATE DATABASE columns');
$node->sql('CREATE EXTENSION outbox; ALTER TABLE outbox ADD COLUMN theirs timestamptz', 'columns');
state_soon('version mismatch', 'columns');
my $session = $node->background_psql('columns', on_error_stop => 0);
my $two = q{SELECT outbox_enqueue('session', '{}', 'thing', 'one');
	INSERT INTO outbox (event_type, payload, aggregate_id) VALUES ('session', '{}', 'two')};
$session->query_safe($two);
$node->sql("BEGIN; SELECT outbox_pause(); ALTER EXTENSION outbox UPDATE TO '$TO_COME'; COMMIT", 'columns');
$session->query_safe($two);
is($session->query_safe('SELECT chain_note, theirs IS NULL, count(*) FROM outbox GROUP BY 1, 2'), 'none|t|4',
	'a session reads a column that has come behind one of the user, and goes on');
$session->query_safe('SELECT outbox_resume()');
$session->quit;
$node->wait_drained(undef, 'columns');
is(scalar(grep { $_->{type} eq 'session' } $fake->published), 4, 'what it enqueued has gone out, once');
$node->sql('DROP EXTENSION outbox', 'columns');

# --- a library that is older

$offset = $node->log_end;
library($OLDEST);
state_soon('version mismatch');
is($node->sql('SELECT outbox_version()'), $OLDEST, 'now the library is older');
like($node->sql('SELECT hint FROM outbox_status'), qr/install the package.*restart the server/,
	'the hint says what to do');
$node->sql(<<'SQL');
SELECT outbox_enqueue('called', '{}');
SELECT outbox_enqueue_bytes('called', '\x00');
INSERT INTO outbox (event_type, payload) VALUES ('inserted', '{}');
COPY outbox (event_type, payload) FROM STDIN;
copied	{"a": 3}
\.
SQL
is($node->sql(q{SELECT backlog FROM outbox_status}), '5', 'enqueue works, and what is pending stays');
@lines = grep { /outbox relay is paused/ } split /\n/, $node->log_text($offset);
like($lines[0], qr/the extension has version $NEWEST, the library $OLDEST/, 'the log has both versions');
like($node->log_text($offset), qr/HINT:  Install the package of version $NEWEST and restart the server/, 'and says what to do');

# An update that makes the extension newer than the library is heard of, too.
$node->sql('CREATE DATABASE ahead');
$node->sql("CREATE EXTENSION outbox VERSION '$OLDEST'", 'ahead');
$node->sql('SELECT outbox_enqueue_bytes(\'before\', \'\')', 'ahead');
$node->sql('ALTER EXTENSION outbox UPDATE', 'ahead');
state_soon('version mismatch', 'ahead');
$node->sql('SELECT outbox_enqueue_bytes(\'after\', \'\')', 'ahead');

$fake->begin_case;
$node->restart;
$node->wait_drained(undef, 'ahead');
$node->wait_sql("SELECT backlog FROM outbox_status", 1);
is(join(' ', sort map { $_->{type} } grep { $_->{type} ne 'before' } $fake->of_case),
	'after called called copied inserted', 'with the library of the extension all of it goes out');

# Several workers, all of which hear of it: the statement finds nothing to do.
$node->set('outbox.workers', 2);
$node->wait_sql(q{SELECT count(*) FROM outbox_workers WHERE state = 'idle'}, 2);
$offset = $node->log_end;
foreach my $version ('2.0', $NEWEST)
{
	$node->sql("BEGIN; UPDATE pg_extension SET extversion = '$version' WHERE extname = 'outbox'; ALTER EXTENSION outbox UPDATE TO '$version'; COMMIT");
	$node->wait_sql(q{SELECT string_agg(DISTINCT state, ' ') FROM outbox_workers},
		$version eq $NEWEST ? 'idle' : 'version mismatch', 20);
}
is(scalar(() = $node->log_text($offset) =~ /outbox relay is paused/g), 1, 'one line for all workers');
$node->unset('outbox.workers');
unlike($node->log_text(0), qr/terminated by signal|PANIC|TRAP/, 'no process has crashed');

# --- rights, owners: functions change their signatures, other objects are new

$node->sql('CREATE ROLE keeper SUPERUSER');
foreach my $dbname (qw(chain chain_fresh))
{
	my $version = $dbname eq 'chain' ? '1.0' : '2.0';
	my ($argument, $default) = $dbname eq 'chain' ? ('text', 'integer') : ('text, integer', 'bigint');

	$node->sql("CREATE DATABASE $dbname");
	$node->sql("SET ROLE keeper; CREATE EXTENSION outbox_chain VERSION '$version'", $dbname);
	$node->sql(<<"SQL", $dbname);
GRANT CREATE ON SCHEMA public TO heir;
REASSIGN OWNED BY keeper TO heir;
GRANT EXECUTE ON FUNCTION outbox_chain_argument($argument) TO app WITH GRANT OPTION;
GRANT EXECUTE ON FUNCTION outbox_chain_argument($argument) TO worker;
REVOKE EXECUTE ON FUNCTION outbox_chain_argument($argument) FROM pg_monitor;
GRANT EXECUTE ON FUNCTION outbox_chain_result() TO PUBLIC;
REVOKE EXECUTE ON FUNCTION outbox_chain_default($default) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION outbox_chain_default($default) TO app;
SQL
}
$node->sql('ALTER EXTENSION outbox_chain UPDATE', 'chain');
my ($chain, $chain_fresh) = map { catalog($node, $_, extension => 'outbox_chain') } qw(chain chain_fresh);
same_catalog('functions that change', $chain, $chain_fresh);
my ($dump) = run_command([ 'pg_dump', '--schema-only', '-d', $node->connstr('chain') ]);
my ($dump_fresh) = run_command([ 'pg_dump', '--schema-only', '-d', $node->connstr('chain_fresh') ]);
# a token of each dump
s/^\\(un)?restrict .*$//mg foreach $dump, $dump_fresh;
like($dump, qr/GRANT ALL ON FUNCTION public\.outbox_chain_argument\(a text, b integer\) TO app WITH GRANT OPTION/,
	'a dump has the rights that an administrator has given');
is($dump, $dump_fresh, 'a dump is that of a fresh installation');

done_testing();
