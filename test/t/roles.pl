# Who may do what, with each object of the extension: the matrix of doc/security.md,
# whose statements are executed here, against the catalog and against what really
# happens.  doc/dev/fault-cases.md H1.  An object that is neither in those statements nor
# in the list of what nobody needs fails the test.
#
# suite: test
# takes: 4 s

use strict;
use warnings;

use JSON::PP ();
use Test::More;
use PostgreSQL::Test::Utils;
use OutboxTest::FakeBroker;
use OutboxTest::Node;
use OutboxTest::Util;

my $MARKER = 'Pay10adMarker';

# What is for the owner, and other functions.  So is outbox_internal, but for what is granted.
my %NOBODY = map { $_ => 1 } qw(outbox_adopt outbox_key_number outbox_archive outbox_seq_seq outbox_history_id_seq outbox_job_id_seq);
my @EVERYBODY = qw(outbox_uuid7 outbox_internal.outbox_claim_hash
	outbox_internal.outbox_origin outbox_internal.outbox_key_hash outbox_internal.outbox_printable
  outbox_internal.outbox_restoring outbox_internal.outbox_route_allowed outbox_internal.outbox_event_rows);

my $fake = OutboxTest::FakeBroker->start;
my $node = OutboxTest::Node->create(broker => $fake, conf => "outbox.retention = 1d");

# --- the statements of the document

my $page = slurp_file("doc/security.md");
my ($roles) = $page =~ /^## Roles\n(.*?)^## /ms;
my @grants = map { s/--.*$//mgr } map { /^(GRANT .*?;)/msg } $roles =~ /^```sql\n(.*?)^```/msg;
my %kinds;
my %documented;
foreach my $grant (@grants)
{
	next if $grant =~ /^GRANT pg_\w+ TO /;    # of no object of the extension
	my ($privileges, $objects, $role) = $grant =~ /^GRANT (.*?) ON (?:FUNCTION )?(.*?) TO (\w+)\s*;/s
	  or die "not understood: $grant";
	$kinds{$role} = 1;
	foreach my $object (split /\s*,\s*/, $objects)
	{
		# a list in parentheses: of columns
		my $rest = $privileges =~ s/\s+/ /gr;
		while ($rest =~ s/^(\w+)(?: ?\([^)]*\))?(?:, )?//) { $documented{$role}{$object}{$1} = 1; }
	}
}
cmp_ok(scalar @grants, '>=', 8, scalar(@grants) . ' statements, for ' . join(', ', sort keys %kinds));
$node->sql('CREATE ROLE nobody; CREATE ROLE server_monitor IN ROLE pg_monitor;'
	  . join '', map { "CREATE ROLE $_;" } sort keys %kinds);
$node->sql($_) foreach @grants;
# What INSERT evaluates is everybody's; and pg_monitor has what the script gives it.
foreach my $role (keys %kinds, 'nobody', 'server_monitor')
{
	$documented{$role}{$_}{EXECUTE} = 1 foreach @EVERYBODY;
}
%{ $documented{server_monitor} } = (%{ $documented{server_monitor} }, %{ $documented{monitor} });
$documented{$_}{outbox_version}{EXECUTE} = 1 foreach qw(server_monitor);

# --- the objects of the catalog

my @objects = map { [ split /\|/ ] } split /\n/, $node->sql(<<'SQL');
SELECT coalesce(c.relkind::text, 'function'),
	CASE WHEN 'outbox_internal'::regnamespace IN (c.relnamespace, p.pronamespace) THEN 'outbox_internal.' ELSE '' END
		|| coalesce(c.relname, p.proname), coalesce(c.oid, p.oid),
	coalesce((SELECT string_agg(CASE format_type(t, NULL)
		WHEN 'text' THEN '''e''::text' WHEN 'jsonb' THEN '''{}''::jsonb' WHEN 'uuid' THEN '''00000000-0000-7000-8000-000000000001''::uuid'
		WHEN 'bigint' THEN '1::bigint' WHEN 'integer' THEN '1' WHEN 'boolean' THEN 'false' WHEN 'interval' THEN '''1 day''::interval'
		WHEN 'double precision' THEN '1::float8' WHEN 'bytea' THEN '''x''::bytea'
		WHEN 'regclass' THEN '''pg_class''::regclass' WHEN 'tid' THEN '''(0,0)''::tid' WHEN 'oid' THEN '1::oid' WHEN 'date' THEN '''2000-01-01''::date'
		WHEN 'timestamp with time zone' THEN '''2000-01-01''::timestamptz'
		ELSE CASE WHEN format_type(t, NULL) ~ '\[\]$' THEN '''{}''::' ELSE 'NULL::' END || format_type(t, NULL) END, ', ' ORDER BY n)
		FROM unnest(p.proargtypes::oid[]) WITH ORDINALITY a(t, n)), ''),
	coalesce((SELECT quote_ident(a.attname) FROM pg_attribute a WHERE a.attrelid = c.oid AND a.attnum > 0 AND a.attgenerated = '' AND a.attidentity = ''
		ORDER BY attnum LIMIT 1), '')
FROM pg_depend d JOIN pg_extension e ON d.refclassid = 'pg_extension'::regclass AND d.refobjid = e.oid AND d.deptype = 'e'
	LEFT JOIN pg_class c ON d.classid = 'pg_class'::regclass AND c.oid = d.objid
	LEFT JOIN pg_proc p ON d.classid = 'pg_proc'::regclass AND p.oid = d.objid
WHERE e.extname = 'outbox' AND coalesce(c.oid, p.oid) IS NOT NULL ORDER BY 2, 3
SQL
cmp_ok(scalar @objects, '>', 130, scalar(@objects) . ' functions, tables, views and sequences');
my %granted = map { %{ $documented{$_} } } keys %kinds;
is_deeply([ grep { !$granted{$_} && !$NOBODY{$_} && $_ !~ /^outbox_internal[.]|^outbox_(uuid7|version)$/ } map { $_->[1] } @objects ],
	[], 'each is granted to somebody in doc/security.md, or in the list of what nobody needs');
my %there = map { $_->[1] => 1 } @objects;
is_deeply([ grep { !$there{$_} } sort keys %NOBODY, sort keys %granted ], [], 'and those lists name nothing that is not there');

# --- what the catalog says

$node->sql(<<'SQL');
CREATE SCHEMA tried;
GRANT ALL ON SCHEMA tried TO PUBLIC;
CREATE FUNCTION tried.rights(who name, object oid, kind text) RETURNS text LANGUAGE sql AS $$
	SELECT coalesce(string_agg(p, ' ' ORDER BY p), '') FROM unnest(CASE kind WHEN 'function' THEN '{EXECUTE}'
		WHEN 'S' THEN '{SELECT,UPDATE,USAGE}' ELSE '{SELECT,INSERT,UPDATE,DELETE,TRUNCATE,REFERENCES,TRIGGER}' END::text[]) p
	WHERE CASE WHEN kind = 'function' THEN has_function_privilege(who, object, p)
		WHEN kind = 'S' THEN has_sequence_privilege(who, object, p)
		WHEN p IN ('SELECT', 'INSERT', 'UPDATE', 'REFERENCES') THEN has_any_column_privilege(who, object, p)
		ELSE has_table_privilege(who, object, p) END
$$;
-- What a statement says, all of it, and what it returns.
CREATE FUNCTION tried.outcome(statement text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	said text;
	detail text;
	hint text;
	context text;
	result text;
BEGIN
	BEGIN
		IF statement ~* '^(SELECT|TABLE|WITH)' THEN
			EXECUTE format('SELECT string_agg(t::text, '','') FROM (%s) t', statement) INTO result;
		ELSIF statement ~* 'RETURNING|^EXPLAIN' THEN
			FOR said IN EXECUTE statement LOOP
				result := concat_ws(E'\n', result, said);
			END LOOP;
		ELSE
			EXECUTE statement;
		END IF;
		RAISE EXCEPTION USING ERRCODE = 'ZZ000', MESSAGE = 'done ' || coalesce(result, '');
	EXCEPTION WHEN OTHERS THEN
		GET STACKED DIAGNOSTICS said = MESSAGE_TEXT, detail = PG_EXCEPTION_DETAIL, hint = PG_EXCEPTION_HINT, context = PG_EXCEPTION_CONTEXT;
		RETURN SQLSTATE || ' ' || said || E'\n' || concat_ws(E'\n', detail, hint, context);
	END;
END
$$;
CREATE TABLE tried.todo (n int GENERATED ALWAYS AS IDENTITY, who name, what text, statement text, outcome text);
GRANT ALL ON ALL TABLES IN SCHEMA tried TO PUBLIC;
SQL
foreach my $role (sort keys %kinds, 'nobody', 'server_monitor')
{
	my $rights = join ' UNION ALL ', map { "SELECT '$_->[1]', tried.rights('$role', $_->[2], '$_->[0]')" } @objects;
	my %is;
	foreach my $line (split /\n/, $node->sql("SELECT * FROM ($rights) r(object, rights) WHERE rights <> ''"))
	{
		my ($object, $has) = split /\|/, $line;
		$is{$object} = $has;
	}
	is_deeply(\%is, { map { $_ => join ' ', sort keys %{ $documented{$role}{$_} } } keys %{ $documented{$role} } },
		"$role has what is documented, and nothing else");
}

# --- what really happens

$node->sql("UPDATE outbox_route SET max_attempts = 1");
$node->sql(q{INSERT INTO outbox_route (name, enqueue_roles) VALUES ('granted', '{app, orm}'), ('other', '{}')});
$fake->do('when type=secret : nack');
foreach my $n (1 .. 3)
{
	$node->sql(qq{SELECT outbox_enqueue('secret', '{"a": "$MARKER"}', headers => '{"h": "$MARKER"}', aggregate_id => 'k$n')});
}
$node->wait_sql('SELECT count(*) FROM outbox_failed', 3);
$node->sql(qq{SELECT outbox_enqueue('open', '{"a": "$MARKER"}', aggregate_id => 'k')});
$node->wait_sql(q{SELECT count(*) FROM outbox_archive WHERE event_type = 'open'}, 1);
$node->sql('SELECT outbox_pause()');
$node->sql('ANALYZE outbox, outbox_archive');
my $id = $node->sql(q{SELECT id FROM outbox LIMIT 1});

my @todo;
foreach my $object (@objects)
{
	my ($kind, $name, undef, $arguments, $column) = @$object;
	my $called = $name =~ /[.]/ ? $name : "public.$name";
	my %statements =
	    $kind eq 'function' ? (EXECUTE => "SELECT $called($arguments)")
	  : $kind eq 'S' ? (SELECT => "SELECT last_value FROM $called", USAGE => "SELECT nextval('$called')", UPDATE => "SELECT setval('$called', 1)")
	  : ( SELECT => "SELECT * FROM $called", INSERT => "INSERT INTO $called DEFAULT VALUES",
		UPDATE => "UPDATE $called SET $column = $column", DELETE => "DELETE FROM $called",
		TRUNCATE => "TRUNCATE $called",
		TRIGGER => "CREATE TRIGGER t AFTER INSERT ON $called EXECUTE FUNCTION suppress_redundant_updates_trigger()",
		REFERENCES => "CREATE TABLE tried.refers (c text, FOREIGN KEY (c) REFERENCES $called ($column))");
	push @todo, map { [ $name, $_, $statements{$_} ] } sort keys %statements;
}

# Ways around: what is to be seen of others' messages by who may enqueue.
my @around = (
	'SELECT * FROM pg_stats WHERE tablename ~ \'outbox\'', 'SELECT * FROM pg_stats_ext', 'SELECT * FROM pg_stats_ext_exprs',
	'SELECT * FROM pg_statistic', 'SELECT * FROM pg_statistic_ext_data', 'SELECT * FROM pg_largeobject', 'SELECT * FROM pg_toast.pg_toast_1255',
	'SELECT lastval()', q{SELECT currval('public.outbox_seq_seq')}, q{SELECT currval('public.outbox_history_id_seq')},
	"INSERT INTO public.outbox_new (id, event_type, payload) VALUES ('$id', 'e', '{}')",
	"INSERT INTO public.outbox_new (id, event_type, payload) VALUES ('$id', 'e', '{}') ON CONFLICT DO NOTHING RETURNING *",
	"INSERT INTO public.outbox_new (id, event_type, payload) VALUES ('$id', 'e', '{}') ON CONFLICT (id) DO UPDATE SET event_type = 'x' RETURNING *",
	"INSERT INTO public.outbox (id, event_type, payload) VALUES ('$id', 'e', '{}')",
	"INSERT INTO public.outbox (id, event_type, payload) VALUES ('$id', 'e', '{}') ON CONFLICT DO NOTHING RETURNING id",
	"INSERT INTO public.outbox AS o (id, event_type, payload) VALUES ('$id', 'e', '{}') ON CONFLICT (id) DO UPDATE SET event_type = o.event_type RETURNING o.payload",
	"INSERT INTO public.outbox (id, event_type, payload) SELECT id, event_type, payload FROM public.outbox",
	"INSERT INTO public.outbox (event_type, payload, body) VALUES ('e', '{}', 'x')",
	"INSERT INTO public.outbox (event_type, payload) VALUES ('', '{}')", "INSERT INTO public.outbox (event_type) VALUES (NULL)",
	"SELECT public.outbox_enqueue('e', '{}', id => '$id')", "SELECT public.outbox_enqueue('e', '{}', properties => '{\"x\": 1}')",
	"EXPLAIN (ANALYZE, VERBOSE) SELECT * FROM public.outbox_new", "EXPLAIN SELECT * FROM public.outbox WHERE payload::text ~ 'x'",
	"EXPLAIN (ANALYZE, VERBOSE) INSERT INTO public.outbox_new (event_type, payload) VALUES ('e', '{}')",
	'SELECT * FROM public.outbox_new WHERE tried.leak(payload::text)', 'SELECT * FROM public.outbox_new WHERE payload::text OPERATOR(tried.~~~) \'x\'',
	'SELECT * FROM public.outbox_status WHERE tried.leak(outbox_status::text)',
	'SELECT * FROM public.outbox_problems WHERE tried.leak(outbox_problems::text)', 'SELECT * FROM public.outbox_routes_status WHERE tried.leak(outbox_routes_status::text)',
	'UPDATE public.outbox_new SET event_type = event_type', 'DELETE FROM public.outbox_new', 'SELECT * FROM public.outboxevent WHERE tried.leak(outboxevent::text)',
	'UPDATE public.outboxevent SET type = type', 'DELETE FROM public.outboxevent RETURNING *', 'SELECT * FROM public.outbox_new FOR UPDATE',
	'CREATE TABLE tried.mine (LIKE public.outbox INCLUDING ALL)', 'CREATE TABLE tried.mine () INHERITS (public.outbox)',
	'CREATE RULE r AS ON INSERT TO public.outbox DO ALSO NOTHING', 'CREATE INDEX ON public.outbox (id)', 'CREATE STATISTICS tried.s ON id, route FROM public.outbox',
	'CREATE PUBLICATION p FOR TABLE public.outbox', 'CREATE POLICY p ON public.outbox', 'COMMENT ON TABLE public.outbox IS NULL',
	'ALTER TABLE public.outbox DISABLE TRIGGER ALL', 'ALTER TABLE public.outbox OWNER TO CURRENT_USER', 'DROP TABLE public.outbox', 'DROP EXTENSION outbox',
	'ALTER FUNCTION public.outbox_pause SECURITY INVOKER', 'ALTER EXTENSION outbox DROP TABLE public.outbox', 'LOCK TABLE public.outbox IN ACCESS EXCLUSIVE MODE',
	'CREATE TABLE tried.mine PARTITION OF public.outbox_archive DEFAULT', 'CREATE VIEW tried.v AS SELECT * FROM public.outbox',
	'CREATE FUNCTION tried.f() RETURNS trigger LANGUAGE c AS \'$libdir/outbox\', \'outbox_row_trigger\'',
	'CREATE TABLE tried.mine (id text); CREATE TRIGGER t BEFORE INSERT ON tried.mine FOR EACH ROW EXECUTE FUNCTION outbox_internal.outbox_row_trigger()',
	'CREATE TABLE tried.mine (id text); CREATE TRIGGER t BEFORE INSERT ON tried.mine FOR EACH STATEMENT EXECUTE FUNCTION outbox_internal.outbox_change_trigger()');
$node->sql(<<'SQL');
CREATE FUNCTION tried.leak(text) RETURNS boolean LANGUAGE plpgsql COST 0.0000001 AS
	$$BEGIN INSERT INTO tried.todo (what, outcome) VALUES ('leaked', $1); RAISE NOTICE 'leaked %', $1; RETURN true; END$$;
CREATE FUNCTION tried.leak(text, text) RETURNS boolean LANGUAGE sql COST 0.0000001 AS $$SELECT tried.leak($1)$$;
CREATE OPERATOR tried.~~~ (LEFTARG = text, RIGHTARG = text, FUNCTION = tried.leak);
SQL
# For these only: what an administrator shows to them
my %SEES = (operator => 1, forwarder => 1);
my $tried = 0;
foreach my $role (sort keys %kinds, 'nobody', 'server_monitor')
{
	my $values = join ",\n", map { my @t = @$_; join ', ', "('$role'", map({ "'" . s/'/''/gr . "'" } @t), "'')" =~ s/''/NULL/r } @todo,
	  map { [ 'around', 'AROUND', $_ ] } @around;
	my $output = $node->sql(<<"SQL");
CREATE TEMPORARY TABLE t AS SELECT * FROM (VALUES $values) t(who, object, privilege, statement, outcome);
GRANT ALL ON t TO PUBLIC;
SET SESSION AUTHORIZATION $role;
SET client_min_messages = warning;
UPDATE t SET outcome = tried.outcome(statement);
RESET SESSION AUTHORIZATION;
SELECT jsonb_agg(t) FROM t;
SQL
	my $json = JSON::PP->new->decode((split /\n/, $output)[-1]);
	my @wrong;
	foreach my $row (@$json)
	{
		my ($object, $privilege, $outcome) = @$row{qw(object privilege outcome)};
		$tried++;
		push @wrong, "$row->{statement}: $outcome" if !$SEES{$role} && $outcome =~ /$MARKER/;
		next if $privilege eq 'AROUND';
		my $may = $documented{$role}{$object}{$privilege};
		my $denied = $outcome =~ /^42501/;
		# views over views, and columns
		push @wrong, "$row->{statement}: $outcome" if !$may && !$denied && $outcome !~ /^(42809|0A000|55000|42830|428C9)/;
		push @wrong, "$row->{statement}: $outcome"
		  if $may && $privilege eq 'SELECT' && $object ne 'outbox' && $outcome !~ /^ZZ000/;
		push @wrong, "$row->{statement}: $outcome"
		  if $may && $denied && $outcome =~ /permission denied for (function|view|table) $object\b/ && $privilege !~ /^(INSERT|SELECT)$/;
	}
	is(join("\n", @wrong), '', "$role: tried with " . scalar(@$json) . ' statements');
}
note "$tried statements";
is($node->sql(qq{SELECT count(*) FROM tried.todo WHERE outcome ~ '$MARKER'}), 0, 'nothing leaked');
is($node->sql('SELECT count(*) FROM outbox WHERE event_type = \'secret\''), 3, 'and nothing was changed');

# --- a tenant, and the routes that are given to it, by each way there is

$node->sql(<<'SQL');
CREATE ROLE tenant;
GRANT app, orm TO tenant;
UPDATE outbox_route SET enqueue_roles = '{tenant}' WHERE name = 'granted';
GRANT CREATE ON SCHEMA public TO tenant;
SET ROLE tenant;
CREATE TABLE tenants_granted (id int PRIMARY KEY);
CREATE TABLE tenants_other (id int PRIMARY KEY);
SQL
my $message = q{'e', '{}', route => 'ROUTE'};
my %ways = (
	'outbox_enqueue()' => "SELECT outbox_enqueue($message)",
	'outbox_enqueue_bytes()' => "SELECT outbox_enqueue_bytes($message)",
	'outbox_enqueue_text()' => "SELECT outbox_enqueue_text($message)",
	'outbox_enqueue_once()' => "SELECT outbox_enqueue_once('key ROUTE', $message)",
	'outbox_enqueue_batch()' => q{SELECT outbox_enqueue_batch('[{"event_type": "e", "payload": 1, "route": "ROUTE"}]')},
	'INSERT' => q{INSERT INTO outbox (event_type, payload, route) VALUES ('e', '{}', 'ROUTE')},
	'INSERT ... SELECT' => q{INSERT INTO outbox (event_type, payload, route) SELECT 'e', '{}', 'ROUTE' FROM generate_series(1, 3)},
	'COPY' => qq{COPY outbox (event_type, payload, route) FROM stdin;\ne\t{}\tROUTE\n\\.\n},
	'outbox_new' => q{INSERT INTO outbox_new (event_type, payload, route) VALUES ('e', '{}', 'ROUTE')},
	'outboxevent' => q{INSERT INTO outboxevent (type, payload, aggregatetype) VALUES ('e', '{}', 'ROUTE')},
	'outbox_capture()' => q{CREATE TRIGGER captured AFTER INSERT ON tenants_ROUTE FOR EACH ROW EXECUTE FUNCTION outbox_capture('route=ROUTE');
		INSERT INTO tenants_ROUTE VALUES (1)},
	'a function of the owner' => q{SELECT lent('ROUTE')},
	'a prepared statement' => q{PREPARE p AS SELECT outbox_enqueue('e', '{}', route => 'ROUTE'); EXECUTE p; EXECUTE p},
	'a default' => q{CREATE TABLE by_default (id uuid DEFAULT outbox_enqueue('e', '{}', route => 'ROUTE'), n int); INSERT INTO by_default (n) VALUES (1)});
$node->sql(q{CREATE FUNCTION lent(route text) RETURNS uuid LANGUAGE sql SECURITY INVOKER SET search_path = public AS $$SELECT outbox_enqueue('e', '{}', route => $1)$$});
foreach my $way (sort keys %ways)
{
	foreach my $route (qw(granted other))
	{
		my $error = $node->sql_fails("SET SESSION AUTHORIZATION tenant;\nBEGIN;\n" . $ways{$way} =~ s/ROUTE/$route/gr . ";\nROLLBACK;");
		if ($route eq 'granted') { is($error, undef, "$way: to the route that is given to it"); }
		else { like($error // 'done', qr/permission denied for route "other"/, "$way: to no other"); }
	}
}

# --- SECURITY DEFINER

is($node->sql(<<'SQL'), '', 'each SECURITY DEFINER function has its search_path and outbox.as_owner set');
SELECT p.oid::regprocedure FROM pg_proc p JOIN pg_depend d ON d.classid = 'pg_proc'::regclass AND d.objid = p.oid AND d.deptype = 'e'
	JOIN pg_extension e ON d.refclassid = 'pg_extension'::regclass AND d.refobjid = e.oid AND e.extname = 'outbox'
WHERE p.prosecdef AND NOT coalesce(p.proconfig, '{}') @> '{"search_path=pg_catalog, pg_temp", outbox.as_owner=on}'
SQL
is($node->sql(<<'SQL'), '', 'and begins with outbox_act_as_owner(), which loads the library');
SELECT p.oid::regprocedure FROM pg_proc p JOIN pg_depend d ON d.classid = 'pg_proc'::regclass AND d.objid = p.oid AND d.deptype = 'e'
	JOIN pg_extension e ON d.refclassid = 'pg_extension'::regclass AND d.refobjid = e.oid AND e.extname = 'outbox',
	regexp_match(coalesce(pg_get_function_sqlbody(p.oid), p.prosrc), '^(.*?)\mBEGIN( ATOMIC)?\s+(PERFORM|SELECT) outbox_internal\.outbox_act_as_owner\(\)') m
WHERE p.prosecdef AND (m IS NULL OR m[1] ~ '\mBEGIN\M|outbox_internal\.outbox_\w+\(')
SQL
# Called in the search_path of a trigger's condition, which is empty: src/sql/route.sql.
is($node->sql(<<'SQL'), "outbox_control_restore_trigger\noutbox_route_default_trigger", 'each other one that is not bound has its search_path set, but for those of a restore');
SELECT p.proname FROM pg_proc p JOIN pg_depend d ON d.classid = 'pg_proc'::regclass AND d.objid = p.oid AND d.deptype = 'e'
	JOIN pg_extension e ON d.refclassid = 'pg_extension'::regclass AND d.refobjid = e.oid AND e.extname = 'outbox'
	JOIN pg_language l ON l.oid = p.prolang
WHERE l.lanname <> 'c' AND p.prosqlbody IS NULL AND NOT coalesce(p.proconfig, '{}') @> '{"search_path=pg_catalog, pg_temp"}' ORDER BY 1
SQL
$node->sql('CREATE EXTENSION outbox_inbox');
is($node->sql(<<'SQL'), '', 'so has each SECURITY DEFINER function of outbox_inbox, and nothing of it is for PUBLIC');
SELECT p.oid::regprocedure FROM pg_proc p JOIN pg_depend d ON d.classid = 'pg_proc'::regclass AND d.objid = p.oid AND d.deptype = 'e'
	JOIN pg_extension e ON d.refclassid = 'pg_extension'::regclass AND d.refobjid = e.oid AND e.extname = 'outbox_inbox'
WHERE p.prosecdef AND NOT coalesce(p.proconfig, '{}') @> '{"search_path=pg_catalog, pg_temp"}' OR has_function_privilege('nobody', p.oid, 'EXECUTE')
UNION ALL
SELECT c.oid::regclass::text::regprocedure FROM pg_class c JOIN pg_depend d ON d.classid = 'pg_class'::regclass AND d.objid = c.oid AND d.deptype = 'e'
	JOIN pg_extension e ON d.refclassid = 'pg_extension'::regclass AND d.refobjid = e.oid AND e.extname = 'outbox_inbox'
WHERE c.relacl IS NOT NULL AND has_table_privilege('nobody', c.oid, 'SELECT, INSERT, UPDATE, DELETE, TRUNCATE, REFERENCES, TRIGGER')
SQL
$node->stop('fast');

# --- not preloaded: in a session whose first statement of ours is an operator's

my $plain = OutboxTest::Node->create(name => 'plain', preload => 0);
my $failed = '00000000-0000-7000-8000-000000000001';
$plain->sql(<<"SQL");
CREATE ROLE operator;
CREATE ROLE bob;
GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA public TO operator;
INSERT INTO outbox (id, event_type, payload) VALUES ('$failed', 'e', '{}');
UPDATE outbox SET status = 'failed';
CREATE SEQUENCE ran;
GRANT USAGE ON SEQUENCE ran TO PUBLIC;
CREATE FUNCTION careless() RETURNS trigger LANGUAGE plpgsql AS \$\$BEGIN INSERT INTO audit VALUES (NEW.id); RETURN NEW; END\$\$;
CREATE TRIGGER aaa BEFORE UPDATE ON outbox FOR EACH ROW EXECUTE FUNCTION careless();
SQL
like($plain->sql_fails(<<"SQL"), qr/temporary relation "audit" cannot be used/, 'not preloaded: a temporary table is refused');
SET ROLE operator;
CREATE TEMPORARY TABLE audit (id uuid);
CREATE FUNCTION pg_temp.fires() RETURNS trigger LANGUAGE plpgsql AS \$\$BEGIN PERFORM pg_catalog.nextval('public.ran'); RETURN NEW; END\$\$;
CREATE TRIGGER fires BEFORE INSERT ON audit FOR EACH ROW EXECUTE FUNCTION pg_temp.fires();
SELECT public.outbox_requeue('$failed');
SQL
$plain->sql(<<'SQL');
DROP TRIGGER aaa ON outbox;
CREATE OR REPLACE FUNCTION careless() RETURNS trigger LANGUAGE plpgsql AS $$BEGIN PERFORM pg_catalog.nextval('public.ran'); RETURN NEW; END$$;
CREATE OR REPLACE FUNCTION outbox_internal.outbox_relation(name text) RETURNS oid LANGUAGE plpgsql
	AS $$BEGIN PERFORM pg_catalog.nextval('public.ran'); RETURN 'public.outbox_seq_seq'::regclass; END$$;
CREATE OR REPLACE FUNCTION outbox_internal.outbox_ids_given(ids uuid[]) RETURNS boolean LANGUAGE plpgsql
	AS $$BEGIN PERFORM pg_catalog.nextval('public.ran'); RETURN false; END$$;
ALTER FUNCTION careless() OWNER TO bob;
ALTER TABLE outbox OWNER TO bob;
SET ROLE bob;
CREATE TRIGGER aaa BEFORE UPDATE ON outbox FOR EACH ROW EXECUTE FUNCTION careless();
SQL
like($plain->sql_fails("SET ROLE operator;\nSELECT public.$_"), qr/belongs to role/, "not preloaded: $_ of a table that somebody else owns")
  foreach "outbox_requeue('$failed')", 'outbox_requeue_failed()', "outbox_discard('$failed')", 'outbox_pause()', 'outbox_locked_rows()',
  "outbox_discard_messages('r')", 'outbox_adopt()';
is($plain->sql('SELECT is_called FROM ran'), 'f', 'not preloaded: and nothing of either ran');
done_testing();
