# The worker is nobody's ladder: doc/dev/fault-cases.md H4.  What the owner of the tables
# adds to them runs in the worker as that owner, whatever it tries, and leaves
# nothing behind in the worker's session that the superuser, as whom the process
# looks at catalogs, would meet later.  A table that was given to somebody else is
# refused, as what he adds to it would run as the owner of the others.
#
# suite: test
# takes: 6 s

use strict;
use warnings;

use Test::More;
use PostgreSQL::Test::Utils;
use OutboxTest::FakeBroker;
use OutboxTest::Node;
use OutboxTest::Util;

seed();
my $fake = OutboxTest::FakeBroker->start;
my $node = OutboxTest::Node->create(
	broker => $fake,
	extension => 0,
	conf => <<'END');
outbox.retry_initial = 10ms
outbox.retry_max = 100ms
outbox.poll_interval = 100ms
END
my ($superuser) = $node->sql('SELECT current_user');

# A role that owns the extension, is no superuser, and would like to be one.
$node->sql(<<'SQL');
CREATE ROLE keeper SUPERUSER;
CREATE ROLE app;
GRANT pg_read_all_stats TO keeper;
CREATE ROLE orm;
GRANT CREATE ON SCHEMA public TO keeper;
SET ROLE keeper;
CREATE EXTENSION outbox;
GRANT EXECUTE ON FUNCTION outbox_enqueue TO app;
GRANT INSERT ON outbox TO orm;
RESET ROLE;
ALTER ROLE keeper NOSUPERUSER;
CREATE SCHEMA evil AUTHORIZATION keeper;
SQL
$node->sql(<<"SQL");
SET ROLE keeper;
GRANT USAGE ON SCHEMA evil TO PUBLIC;
-- Who ran it, by whose session, as far as a function can know.
CREATE TABLE evil.ran (place text, who name, superuser boolean, backend text, session name);
CREATE TABLE evil.got (rung text, place text, backend text);
GRANT ALL ON evil.ran, evil.got TO PUBLIC;
CREATE FUNCTION evil.note(place text) RETURNS boolean LANGUAGE sql SET search_path = pg_catalog AS \$\$
	INSERT INTO evil.ran SELECT DISTINCT place, current_user, r.rolsuper,
		(SELECT a.backend_type FROM pg_stat_activity a WHERE a.pid = pg_backend_pid()), session_user
	FROM pg_roles r WHERE r.rolname = current_user
	RETURNING true
\$\$;
-- Operators that fit what the worker's superuser compares.
CREATE FUNCTION evil.eq(oid, oid) RETURNS boolean LANGUAGE plpgsql SET search_path = pg_catalog AS
	\$\$BEGIN PERFORM evil.note('operator'); RETURN \$1 = \$2; END\$\$;
CREATE FUNCTION evil.eq(name, text) RETURNS boolean LANGUAGE plpgsql SET search_path = pg_catalog AS
	\$\$BEGIN PERFORM evil.note('operator'); RETURN \$1 = \$2; END\$\$;
CREATE FUNCTION evil.eq(name, name) RETURNS boolean LANGUAGE plpgsql SET search_path = pg_catalog AS
	\$\$BEGIN PERFORM evil.note('operator'); RETURN \$1 = \$2; END\$\$;
CREATE OPERATOR evil.= (LEFTARG = oid, RIGHTARG = oid, FUNCTION = evil.eq);
CREATE OPERATOR evil.= (LEFTARG = name, RIGHTARG = text, FUNCTION = evil.eq);
CREATE OPERATOR evil.= (LEFTARG = name, RIGHTARG = name, FUNCTION = evil.eq);
CREATE FUNCTION evil.late() RETURNS trigger LANGUAGE plpgsql AS
	\$\$BEGIN PERFORM evil.note('deferred'); RETURN NULL; END\$\$;
CREATE TABLE evil.later (t text);
CREATE CONSTRAINT TRIGGER late AFTER INSERT ON evil.later DEFERRABLE INITIALLY DEFERRED
	FOR EACH ROW EXECUTE FUNCTION evil.late();
CREATE TABLE evil.soon (t text);
CREATE CONSTRAINT TRIGGER late AFTER INSERT ON evil.soon DEFERRABLE INITIALLY IMMEDIATE
	FOR EACH ROW EXECUTE FUNCTION evil.late();
GRANT ALL ON evil.later, evil.soon TO PUBLIC;
-- The rungs.  What succeeds is noted; what must not is looked for.
CREATE TABLE evil.rungs (n int GENERATED ALWAYS AS IDENTITY, rung text, may boolean DEFAULT false);
GRANT SELECT ON evil.rungs TO PUBLIC;
INSERT INTO evil.rungs (rung) VALUES
	('SET ROLE $superuser'), ('SET LOCAL ROLE $superuser'), ('RESET ROLE'), ('SET ROLE NONE'),
	('SET SESSION AUTHORIZATION $superuser'), ('RESET SESSION AUTHORIZATION'), ('SET SESSION AUTHORIZATION DEFAULT'),
	('SELECT set_config(''role'', ''$superuser'', false)'), ('SELECT set_config(''session_authorization'', ''$superuser'', false)'),
	('ALTER ROLE keeper SUPERUSER'), ('GRANT pg_execute_server_program TO keeper'),
	('UPDATE pg_authid SET rolsuper = true WHERE rolname = ''keeper'''),
	('SET session_replication_role = replica'), ('SET allow_system_table_mods = on'), ('SET dynamic_library_path = ''/tmp'''),
	('SET session_preload_libraries = ''evil'''), ('SET outbox.broker_uri = ''amqp://elsewhere'''),
	('LOAD ''/tmp/evil.so'''), ('CREATE LANGUAGE c2 HANDLER plpgsql_call_handler'),
	('CREATE FUNCTION evil.c() RETURNS int LANGUAGE c AS ''/tmp/evil.so'''), ('CREATE EVENT TRIGGER e ON ddl_command_end EXECUTE FUNCTION evil.e()'),
	('COPY evil.ran TO PROGRAM ''true'''), ('COPY evil.ran TO ''/tmp/outbox_evil'''), ('SELECT pg_read_file(''PG_VERSION'')'),
	('SELECT lo_import(''/etc/passwd'')'), ('SELECT pg_ls_dir(''.'')'), ('ALTER SYSTEM SET port = 1'), ('CHECKPOINT'),
	('DECLARE evil CURSOR WITH HOLD FOR SELECT evil.note(''held cursor'')'), ('LISTEN evil'), ('PREPARE evil AS SELECT 1'),
	('CREATE TEMPORARY TABLE pg_extension (t text) ON COMMIT DROP'), ('CREATE TEMPORARY VIEW pg_class AS SELECT evil.note(''view'')'),
	('CREATE TABLE pg_temp.outbox (t text)'), ('CREATE TEMPORARY SEQUENCE s'),
	('INSERT INTO evil.later VALUES (''x'')'), ('SET CONSTRAINTS ALL DEFERRED; INSERT INTO evil.soon VALUES (''x'')'),
	('COMMIT'), ('ROLLBACK'), ('CREATE TABLE pg_catalog.evil (t text)'), ('CREATE FUNCTION pg_catalog.evil() RETURNS int LANGUAGE sql AS ''SELECT 1''');
-- What it may do with its own rights, and what has to be undone afterwards; NULL: as the server likes.
INSERT INTO evil.rungs (rung, may) VALUES
	('SELECT set_config(''search_path'', ''evil, pg_catalog'', false)', true), ('SET search_path = evil, pg_catalog', true),
	('SET client_encoding = LATIN1', true), ('SET default_transaction_read_only = on', true), ('SET enable_indexscan = off', true),
	('SET default_transaction_isolation = serializable', true), ('SET row_security = on', true), ('SET statement_timeout = 3000', true),
	('SET default_tablespace = pg_default', true), ('SET plan_cache_mode = force_custom_plan', true),
	('SELECT pg_try_advisory_lock_shared(1)', true), ('NOTIFY evil', true), ('SELECT setseed(0)', true),
	('CREATE DOMAIN pg_temp.text AS pg_catalog.text CHECK (evil.note(''domain''))', NULL),
	('CREATE DOMAIN pg_temp.regclass AS pg_catalog.text CHECK (evil.note(''domain''))', NULL),
	('CREATE FUNCTION pg_temp.quote_ident(text) RETURNS text LANGUAGE sql AS ''SELECT evil.note(''''temporary function'''')::text''', NULL);
CREATE FUNCTION evil.climb(place text) RETURNS boolean LANGUAGE plpgsql AS \$\$
DECLARE
	r record;
	process text := (SELECT a.backend_type FROM pg_catalog.pg_stat_activity a WHERE a.pid = pg_catalog.pg_backend_pid());
BEGIN
	PERFORM evil.note(place);
	/* Once for each place and kind of process: it takes 20 ms. */
	IF EXISTS (SELECT FROM evil.got g WHERE g.place OPERATOR(pg_catalog.=) climb.place AND g.backend OPERATOR(pg_catalog.=) process)
		OR process IS NULL OR process !~ 'outbox' THEN
		RETURN true;
	END IF;
	INSERT INTO evil.got VALUES (NULL, place, process);
	FOR r IN SELECT g.rung FROM evil.rungs g ORDER BY g.n LOOP
		BEGIN
			EXECUTE r.rung;
			INSERT INTO evil.got VALUES (r.rung, place, process);
		EXCEPTION WHEN OTHERS THEN NULL;
		END;
	END LOOP;
	RETURN true;
END
\$\$;
SQL

# --- what an owner can add to each table of ours, found in the catalog

my @tables = split /\n/, $node->sql(<<'SQL');
SELECT c.oid::regclass FROM pg_class c JOIN pg_depend d ON d.classid = 'pg_class'::regclass AND d.objid = c.oid
	JOIN pg_extension e ON d.refclassid = 'pg_extension'::regclass AND d.refobjid = e.oid AND d.deptype = 'e'
WHERE e.extname = 'outbox' AND c.relkind IN ('r', 'p') ORDER BY c.relname
SQL
cmp_ok(scalar @tables, '>', 10, scalar(@tables) . ' tables');
$node->sql(<<'SQL');
SET ROLE keeper;
CREATE FUNCTION evil.fires() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
	PERFORM evil.climb(TG_WHEN || ' ' || TG_LEVEL || ' ' || TG_OP || ' ' || CASE WHEN TG_TABLE_NAME ~ '_p\d+' THEN 'partition' ELSE TG_TABLE_NAME END);
	RETURN coalesce(NEW, OLD);
END
$$;
CREATE FUNCTION evil.try(statement text) RETURNS text LANGUAGE plpgsql AS
	$$BEGIN EXECUTE statement; RETURN ''; EXCEPTION WHEN OTHERS THEN RETURN SQLERRM; END$$;
CREATE FUNCTION evil.value(text) RETURNS text IMMUTABLE LANGUAGE plpgsql AS $$BEGIN PERFORM evil.climb($1); RETURN 'x'; END$$;
SQL
my $additions = 0;
my @unexpected;
foreach my $table (@tables)
{
	my @add = map { my $when = $_; map { my $level = $_;
			"CREATE TRIGGER a_${when}_$level $when INSERT OR UPDATE OR DELETE ON $table FOR EACH $level EXECUTE FUNCTION evil.fires()" } qw(ROW STATEMENT) }
	  qw(BEFORE AFTER);
	push @add, "CREATE TRIGGER a_truncate BEFORE TRUNCATE ON $table FOR EACH STATEMENT EXECUTE FUNCTION evil.fires()";
	push @add, "ALTER TABLE $table ADD CONSTRAINT added CHECK (evil.climb('check of $table')) NOT VALID",
	  "ALTER TABLE $table ADD added_default text", "ALTER TABLE $table ALTER added_default SET DEFAULT evil.value('default of $table')",
	  "CREATE INDEX ON $table (evil.value('index of $table'))",
	  "CREATE INDEX ON $table ((1)) WHERE evil.value('predicate of $table') = 'x'",
	  "CREATE STATISTICS evil.s_" . ($table =~ s/.*[.]//r) . " ON evil.value('statistics of $table'), (2) FROM $table",
	  "CREATE POLICY added ON $table USING (evil.climb('policy of $table')) WITH CHECK (evil.climb('policy of $table'))",
	  "ALTER TABLE $table ENABLE ROW LEVEL SECURITY", "ALTER TABLE $table FORCE ROW LEVEL SECURITY";
	foreach my $add (@add)
	{
		my ($error) = $node->sql('SET ROLE keeper; SELECT evil.try(' . join(', ', map { "'" . s/'/''/gr . "'" } $add) . ')');
		# columns and constraints come down from the partitioned table
		push @unexpected, "$add: $error" if $error ne '' && $error !~ /inherited|partition|already exists/;
		$additions++ if $error eq '';
	}
}
cmp_ok($additions, '>', 10 * @tables, "$additions additions");
is(join("\n", @unexpected), '', 'and none was refused that should not be');
$node->sql('SET ROLE keeper; TRUNCATE evil.ran, evil.got');

# --- and the worker at all that it does

sub enqueue
{
	my ($type) = @_;
	$node->sql("SET ROLE app; SELECT outbox_enqueue('$type', '{}', aggregate_type => 't', aggregate_id => 'k')");
	$node->sql("SET ROLE orm; INSERT INTO outbox (event_type, payload) VALUES ('$type', '{}')");
	return;
}

sub attach_again
{
	$node->sql('SET ROLE keeper; ALTER TABLE outbox SET (fillfactor = ' . (50 + int(rand 40)) . ')');
	return;
}

$node->sql(q{UPDATE outbox_route SET max_attempts = 2, sequence = 'key'});
enqueue('e');
$node->wait_sql('SELECT count(*) FROM outbox', 0);
attach_again();
enqueue('e');
$node->wait_sql('SELECT count(*) FROM outbox', 0);
$fake->do('when type=refused : nack');
enqueue('refused');
$node->wait_sql('SELECT count(*) FROM outbox_failed', 2);
$fake->do('forget');
is($node->sql('SELECT outbox_requeue_failed()'), 2, 'requeued');
$node->wait_sql('SELECT count(*) FROM outbox', 0);
my $job = $node->sql(q{SELECT outbox_replay('-infinity'::timestamptz)});
$node->wait_sql("SELECT state FROM outbox_job WHERE id = $job", 'done');
$node->wait_sql('SELECT count(*) FROM outbox', 0);
# A partition to be made, and the maintenance that makes it.  It is still to come when
# the day ends meanwhile, so the same one is made again.
my ($partition) = $node->sql(q{SELECT max(c.relname) FROM pg_class c WHERE c.relname ~ '^outbox_archive_p[0-9]{8}$'});
$node->sql("SET ROLE keeper; ALTER EXTENSION outbox DROP TABLE outbox_internal.$partition; DROP TABLE outbox_internal.$partition");
$node->sql('SELECT outbox_worker_restart()');
$node->wait_sql("SELECT count(*) FROM pg_class c WHERE c.relname = '$partition'", 1);
attach_again();
enqueue('e');
$node->wait_sql('SELECT count(*) FROM outbox', 0);

my $places = q{SELECT DISTINCT place FROM evil.ran WHERE backend LIKE 'outbox%' ORDER BY 1};
cmp_ok(scalar split(/\n/, $node->sql($places)), '>', 10, 'they ran in the worker, at many places');
is($node->sql(q{SELECT DISTINCT place, who, superuser FROM evil.ran WHERE backend LIKE 'outbox%' AND (who <> 'keeper' OR superuser)}),
	'', 'as their owner, each of them');
is($node->sql(q{SELECT DISTINCT place, who FROM evil.ran WHERE session IN ('app', 'orm') AND who NOT IN ('keeper', 'orm')}),
	'', 'and in sessions of applications as the owner, or as the one who INSERTs');
my $climbed = 'SELECT DISTINCT g.rung FROM evil.got g JOIN evil.rungs r USING (rung) WHERE %s r.may ORDER BY 1';
is($node->sql(sprintf $climbed, 'NOT'), '', 'no rung led anywhere');
is($node->sql('SELECT rung FROM evil.rungs WHERE may AND rung NOT IN (SELECT rung FROM evil.got WHERE rung IS NOT NULL)'),
	'', 'what an owner may do in a trigger he could do');
is($node->sql('SELECT rolsuper FROM pg_roles WHERE rolname = \'keeper\''), 'f', 'he is no superuser');
$node->wait_sql(q{SELECT count(*) FROM pg_locks l JOIN pg_stat_activity a USING (pid) WHERE a.backend_type LIKE 'outbox%'
	AND l.locktype = 'relation' AND l.mode <> 'AccessShareLock'}, 0); # between two statements
$node->sql('DROP EXTENSION outbox; DROP OWNED BY keeper CASCADE');

# --- all of it was given to somebody else, but for the table

$node->sql(<<'SQL');
ALTER ROLE keeper SUPERUSER;
SET ROLE keeper;
CREATE EXTENSION outbox;
RESET ROLE;
ALTER ROLE keeper NOSUPERUSER;
REASSIGN OWNED BY keeper TO app;
-- as of a trusted extension that another role has put there
CREATE FUNCTION outbox_internal.of_superuser() RETURNS integer LANGUAGE sql RETURN 1;
SQL
$node->wait_sql('SELECT state FROM outbox_internal.outbox_relay_state()', 'idle');
is($node->sql_fails(q{SELECT outbox_enqueue('e', '{}')}), undef, 'in outbox_internal may be functions of a superuser');
$node->sql("ALTER TABLE outbox OWNER TO $superuser");
like($node->sql_fails(q{SELECT outbox_enqueue('e', '{}')}),
	qr/ERROR: +schema "outbox_internal" belongs to role "app", and the table "outbox" to "$superuser"/,
	'the table alone is a superuser\'s: refused');
$node->wait_sql('SELECT state FROM outbox_internal.outbox_relay_state()', 'database error');
$node->sql('DROP EXTENSION outbox CASCADE');

# --- a part of it that was given to somebody else

$node->sql(<<'SQL');
CREATE ROLE tenant;
GRANT CREATE, USAGE ON SCHEMA public TO tenant;
CREATE EXTENSION outbox;
CREATE TABLE ran (who name, backend text);
GRANT INSERT ON ran TO PUBLIC;
CREATE FUNCTION theirs() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
	INSERT INTO public.ran SELECT current_user, a.backend_type FROM pg_catalog.pg_stat_activity a
		WHERE a.pid = pg_catalog.pg_backend_pid();
	RETURN coalesce(NEW, OLD);
END
$$;
CREATE FUNCTION note() RETURNS void LANGUAGE sql AS $$
	INSERT INTO public.ran SELECT current_user, a.backend_type FROM pg_catalog.pg_stat_activity a
		WHERE a.pid = pg_catalog.pg_backend_pid()
$$;
CREATE FUNCTION folded() RETURNS int IMMUTABLE LANGUAGE plpgsql AS $$BEGIN PERFORM public.note(); RETURN 1; END$$;
GRANT EXECUTE ON FUNCTION outbox_enqueue, outbox_requeue_failed, outbox_discard_messages, outbox_pause, outbox_resume TO app;
SQL
my @given = split /\n/, $node->sql(<<'SQL');
SELECT format('%s %s', CASE c.relkind WHEN 'v' THEN 'VIEW' ELSE 'TABLE' END, c.oid::regclass)
FROM pg_class c JOIN pg_depend d ON d.classid = 'pg_class'::regclass AND d.objid = c.oid
	JOIN pg_extension e ON d.refclassid = 'pg_extension'::regclass AND d.refobjid = e.oid AND d.deptype = 'e'
WHERE e.extname = 'outbox' AND c.relkind IN ('r', 'p', 'v') ORDER BY 1
SQL
$node->wait_sql('SELECT state FROM outbox_status', 'idle');
$node->sql('GRANT USAGE ON SCHEMA outbox_internal TO tenant');
foreach my $given (@given)
{
	my ($kind, $name) = split / /, $given;
	my $table = $kind eq 'TABLE';
	my $index = $name =~ /^outbox_internal[.]/ ? '' : "CREATE INDEX given ON ONLY $name ((folded()));";
	$node->sql("ALTER $given OWNER TO tenant");
	# of a partitioned table he does not own the partitions
	my $rows = $name eq 'outbox_archive' ? 'STATEMENT' : 'ROW';
	$node->sql(<<"SQL") if $table;
SET ROLE tenant;
CREATE TRIGGER a BEFORE INSERT OR UPDATE OR DELETE ON $name FOR EACH $rows EXECUTE FUNCTION theirs();
CREATE TRIGGER b BEFORE INSERT OR UPDATE OR DELETE ON $name FOR EACH STATEMENT EXECUTE FUNCTION theirs();
$index
RESET ROLE;
TRUNCATE ran;
SQL
	# to one who has not the functions
	my $refused = $name eq 'outbox'
	  ? qr/ERROR: +function "\w+" belongs to role "$superuser", and the table "outbox" to "tenant"/
	  : qr/ERROR: +relation "\w+" belongs to role "tenant", and the table "outbox" to "$superuser"/;
	my @refused = map { $node->sql_fails("SET ROLE app; $_") // 'done' }
	  q{SELECT outbox_enqueue('e', '{}', aggregate_id => 'k')}, 'SELECT outbox_pause()', 'SELECT outbox_requeue_failed()',
	  q{SELECT outbox_discard_messages('r', 'failed')};
	like($refused[$_], $refused, "$name is given away: " . (qw(enqueue pause requeue discard))[$_] . ' is refused') foreach 0 .. $#refused;
	$node->wait_sql(q{SELECT state FROM outbox_internal.outbox_relay_state()}, 'database error');
	is($node->sql('SELECT * FROM ran'), '', "$name: and nothing of theirs has run");
	$node->sql(<<"SQL") if $table;
DROP TRIGGER a ON $name;
DROP TRIGGER b ON $name;
DROP INDEX IF EXISTS given;
SQL
	$node->sql("ALTER $given OWNER TO $superuser");
	$node->wait_sql(q{SELECT state FROM outbox_internal.outbox_relay_state()}, 'idle');
}
# The schema in which all of it looks for names: given away, open to others, renamed.
# Tables: a child, and a partition of another role's table.
foreach my $case (
	[ 'ALTER SCHEMA outbox_internal OWNER TO tenant', "ALTER SCHEMA outbox_internal OWNER TO $superuser", qr/schema "outbox_internal" belongs to role "tenant"/ ],
	[ 'GRANT CREATE ON SCHEMA outbox_internal TO tenant', 'REVOKE CREATE ON SCHEMA outbox_internal FROM tenant', qr/role "tenant" may create in schema "outbox_internal"/ ],
	[ 'GRANT CREATE ON SCHEMA outbox_internal TO PUBLIC', 'REVOKE CREATE ON SCHEMA outbox_internal FROM PUBLIC', qr/role "public" may create in schema "outbox_internal"/ ],
	[ 'ALTER SCHEMA outbox_internal RENAME TO ours', 'ALTER SCHEMA ours RENAME TO outbox_internal', qr/"outbox_internal" of the extension "outbox" was renamed to "ours"/ ],
	[ 'CREATE TABLE child () INHERITS (outbox)', 'DROP TABLE child', qr/table "child" inherits from table "outbox"/ ],
	[ 'CREATE TABLE whole (LIKE outbox_route) PARTITION BY LIST (name); ALTER TABLE whole ATTACH PARTITION outbox_route DEFAULT; ALTER TABLE whole OWNER TO tenant',
		'ALTER TABLE whole DETACH PARTITION outbox_route', qr/relation "whole" belongs to role "tenant"/ ])
{
	my ($up, $down, $refused) = @$case;
	$node->sql($up);
	like($node->sql_fails(q{SELECT outbox_enqueue('e', '{}')}), $refused, "$up: enqueue is refused");
	$node->wait_sql('SELECT state FROM outbox_internal.outbox_relay_state()', 'database error') if $up =~ /TABLE/;
	$node->sql($down);
	is($node->sql_fails(q{SELECT outbox_enqueue('e', '{}')}), undef, "$down: and is not any more");
}

# --- what the owner of a database sets for each session

my $client = $node->client;
$client->query('ALTER DATABASE postgres SET outbox.as_owner = on');
is($node->sql_fails('CREATE TEMPORARY TABLE t (i int); INSERT INTO t VALUES (1)'), undef,
	'outbox.as_owner of a database does not keep sessions from their temporary tables');
$client->query('ALTER DATABASE postgres RESET outbox.as_owner');
$client->query($_)
  foreach 'ALTER TABLE ran ADD session name DEFAULT session_user',
  'CREATE TRIGGER ran BEFORE DELETE ON outbox FOR EACH ROW EXECUTE FUNCTION theirs()',
  'ALTER DATABASE postgres SET session_authorization = tenant', 'SELECT outbox_worker_restart()';
wait_until('a message was deleted', sub { $client->query(q{SELECT outbox_enqueue('e', '{}')}); $client->query('SELECT count(*) FROM ran') });
is($client->query('SELECT DISTINCT session FROM ran'), $superuser, 'the worker has its own session_authorization');
$node->stop('fast');
done_testing();
