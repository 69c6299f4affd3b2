# A role that may only enqueue, and create what every role may in a schema "public" as
# PostgreSQL 14 had it: does anything of its run with the rights of somebody else?
# doc/dev/fault-cases.md H8, K3.  What it creates, and what it meets, is generated from the
# catalog.
#
# What it creates: overloads of each function of ours with each argument of another
# type, variadic and polymorphic ones, operators for each pair of types, casts,
# domains and tables of the names of PostgreSQL's, in "public", in a schema of its own,
# and among its temporary objects; tables of the names that the archive will need.
# What it meets: each function of ours (called by itself, by the superuser, by an
# operator), each view, each way of enqueue, the relay with all that it does, and
# additions of an administrator with names that have no schema.
#
# Each trojan draws a number from a sequence, which no rollback takes back.
#
# suite: test
# takes: 15 s

use strict;
use warnings;

use IPC::Run ();
use Test::More;
use PostgreSQL::Test::Utils;
use OutboxTest::FakeBroker;
use OutboxTest::Node;
use OutboxTest::Util;

my $fake = OutboxTest::FakeBroker->start;
my $node = OutboxTest::Node->create(
	broker => $fake,
	# autovacuum would evaluate the administrator's careless index as he would
	conf => "outbox.retry_initial = 10ms\noutbox.retry_max = 100ms\noutbox.retention = 1d\nautovacuum = off");

$node->sql(<<'SQL');
CREATE EXTENSION outbox_inbox;
CREATE ROLE attacker;
CREATE ROLE operator IN ROLE pg_monitor;
GRANT CREATE ON SCHEMA public TO PUBLIC;
CREATE SCHEMA attacker AUTHORIZATION attacker;
GRANT USAGE ON SCHEMA attacker TO PUBLIC;
GRANT EXECUTE ON FUNCTION outbox_enqueue, outbox_enqueue_bytes, outbox_enqueue_text, outbox_enqueue_batch, outbox_enqueue_once,
	outbox_wait, outbox_capture, outbox_inbox_accept, outbox_inbox_accept_in_order TO attacker;
GRANT INSERT (id, event_type, payload, body, aggregate_type, aggregate_id, headers, properties, route, routing_key, created_at, available_at) ON outbox TO attacker;
GRANT INSERT, SELECT ON outbox_new TO attacker;
GRANT INSERT, SELECT, DELETE ON outboxevent TO attacker;
DO $$
DECLARE
	f regprocedure;
BEGIN
	FOR f IN SELECT p.oid FROM pg_proc p WHERE p.proname LIKE 'outbox%' AND p.prosecdef LOOP
		EXECUTE format('GRANT EXECUTE ON FUNCTION %s TO operator', f);
	END LOOP;
END
$$;
-- Functions of ours, with their types, before there are others of their names
CREATE TABLE ours AS
	SELECT p.oid, p.proname AS name, p.proargtypes::oid[] AS types, p.prorettype, p.pronargs AS n
	FROM pg_proc p JOIN pg_depend d ON d.classid = 'pg_proc'::regclass AND d.objid = p.oid AND d.deptype = 'e'
		JOIN pg_extension e ON d.refclassid = 'pg_extension'::regclass AND d.refobjid = e.oid
	WHERE e.extname LIKE 'outbox%';
GRANT SELECT ON ours TO PUBLIC;
CREATE SCHEMA canary;
GRANT USAGE ON SCHEMA canary TO PUBLIC;
CREATE SEQUENCE canary.others;
CREATE SEQUENCE canary.own;
GRANT USAGE ON SEQUENCE canary.others, canary.own TO PUBLIC;
-- Who wrote it is known by the name of the role; whose rights it has got is current_user.
CREATE FUNCTION canary.note(what text) RETURNS boolean LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog AS $$
BEGIN
	IF current_user = 'attacker' THEN
		PERFORM nextval('canary.own');
	ELSE
		PERFORM nextval('canary.others');
		RAISE LOG 'canary: % as %, session of %', what, current_user, session_user;
	END IF;
	RETURN true;
END
$$;
SQL

# --- what it creates

sub as_attacker
{
	my ($sql) = @_;
	return $node->sql("SET SESSION AUTHORIZATION attacker;\nSET client_min_messages = warning;\nSET search_path = pg_catalog;\n$sql");
}

as_attacker(<<'SQL');
CREATE FUNCTION attacker.op(anyelement, anyelement) RETURNS boolean LANGUAGE sql AS $$SELECT canary.note('polymorphic operator')$$;
DO $do$
DECLARE
	types constant text[] := '{text,name,varchar,bool,int2,int4,int8,oid,float8,numeric,jsonb,json,uuid,bytea,timestamptz,timestamp,interval,regclass,text[],uuid[]}';
	body constant text := 'LANGUAGE plpgsql AS $f$BEGIN PERFORM canary.note(%L); RETURN NULL; END$f$';
	own constant text[] := '{attacker,public}';
	o record;
	schema text;
	t text;
	i int;
	arguments text[];
BEGIN
	FOREACH schema IN ARRAY own LOOP
		FOR o IN SELECT * FROM public.ours LOOP
			arguments := ARRAY(SELECT format_type(a, NULL) FROM unnest(o.types) WITH ORDINALITY u(a, n) ORDER BY n);
			FOR i IN 1 .. o.n LOOP
				FOREACH t IN ARRAY types LOOP
					BEGIN
						EXECUTE format('CREATE FUNCTION %I.%I(%s) RETURNS text ' || body, schema, o.name,
							array_to_string(arguments[:i - 1] || t || arguments[i + 1:], ', '), o.name || ' with ' || t);
					EXCEPTION WHEN duplicate_function OR insufficient_privilege THEN NULL;
					END;
				END LOOP;
			END LOOP;
			FOREACH t IN ARRAY ARRAY['VARIADIC text[]', 'VARIADIC anyarray', array_to_string(array_fill('anyelement'::text, ARRAY[o.n]), ', '),
				array_to_string(array_fill('text'::text, ARRAY[o.n]), ', '), array_to_string(arguments || 'VARIADIC text[]'::text, ', ')] LOOP
				BEGIN
					EXECUTE format('CREATE FUNCTION %I.%I(%s) RETURNS text ' || body, schema, o.name, t, o.name || ' ' || t);
				EXCEPTION WHEN duplicate_function OR insufficient_privilege THEN NULL;
				END;
			END LOOP;
		END LOOP;
	END LOOP;
	FOREACH schema IN ARRAY own LOOP
		FOREACH t IN ARRAY types LOOP
			EXECUTE format('CREATE FUNCTION %I.op_%s(%s, %s) RETURNS boolean ' || body, schema, replace(t, '[]', 's'), t, t, 'operator of ' || t);
			FOR o IN SELECT unnest('{=,<>,<,>,<=,>=,||,+,-,->>,~,~~,@>,&&}'::text[]) AS name LOOP
				EXECUTE format('CREATE OPERATOR %I.%s (LEFTARG = %s, RIGHTARG = %s, FUNCTION = %1$I.op_%5$s)', schema, o.name, t, t, replace(t, '[]', 's'));
			END LOOP;
		END LOOP;
		FOR o IN SELECT DISTINCT p.proname AS name FROM pg_proc p WHERE p.pronamespace = 'pg_catalog'::regnamespace
				AND EXISTS (SELECT FROM pg_proc f JOIN public.ours u ON u.oid = f.oid WHERE f.prosrc ~ ('\m' || p.proname::text || '\(')) LOOP
			FOREACH t IN ARRAY ARRAY['text', 'text, text', 'bigint', 'integer', 'interval', 'timestamptz', 'jsonb', 'anyelement', 'text, VARIADIC text[]',
				'anyelement, anyelement', 'timestamptz, text', 'text, text, text', 'VARIADIC text[]'] LOOP
				EXECUTE format('CREATE FUNCTION %I.%I(%s) RETURNS text ' || body, schema, o.name, t, o.name || ' of pg_catalog');
			END LOOP;
		END LOOP;
		FOREACH t IN ARRAY '{jsonb,uuid,timestamptz,regclass,interval,bigint,name}'::text[] LOOP
			EXECUTE format('CREATE DOMAIN %I.%I AS pg_catalog.text CHECK (canary.note(%L))', schema, t, 'domain ' || t);
		END LOOP;
		FOREACH t IN ARRAY '{pg_class,pg_roles,pg_extension,pg_locks,pg_stat_activity,pg_database,pg_settings}'::text[] LOOP
			EXECUTE format('CREATE VIEW %I.%I AS SELECT *, canary.note(%L) FROM pg_catalog.%2$I', schema, t, 'view ' || t);
		END LOOP;
		EXECUTE format('CREATE TYPE %I.mood AS ENUM (''e'')', schema);
		EXECUTE format('CREATE FUNCTION %I.to_json_of(%1$I.mood) RETURNS json ' || replace(body, 'RETURN NULL', 'RETURN pg_catalog.to_json(1)'), schema, 'cast to json');
		EXECUTE format('CREATE CAST (%I.mood AS json) WITH FUNCTION %1$I.to_json_of(%1$I.mood) AS ASSIGNMENT', schema);
		EXECUTE format('CREATE COLLATION %I."C" FROM "POSIX"', schema);
		EXECUTE format('CREATE TEXT SEARCH CONFIGURATION %I.simple (COPY = pg_catalog.simple)', schema);
		EXECUTE format('CREATE AGGREGATE %I.count(*) (SFUNC = int8inc, STYPE = int8, INITCOND = 0)', schema);
	END LOOP;
	EXECUTE 'CREATE TABLE public.note_of_admin (t text)';
	/* What the relay will want to call a partition, and a table that it drops. */
	FOR i IN 0 .. 5 LOOP
		BEGIN
			EXECUTE format('CREATE TABLE public.outbox_archive_p%s (t text)', to_char(now() AT TIME ZONE 'UTC' + i * interval '1 day', 'YYYYMMDD'));
		EXCEPTION WHEN duplicate_table THEN NULL;
		END;
	END LOOP;
END
$do$;
SQL
my ($functions, $operators, $others) = split /\|/, $node->sql(<<'SQL');
SELECT (SELECT count(*) FROM pg_proc WHERE proowner = 'attacker'::regrole), (SELECT count(*) FROM pg_operator WHERE oprowner = 'attacker'::regrole),
	(SELECT count(*) FROM pg_class WHERE relowner = 'attacker'::regrole) + (SELECT count(*) FROM pg_type WHERE typowner = 'attacker'::regrole)
SQL
cmp_ok($functions, '>', 1000, "$functions functions, $operators operators, $others relations and types lie in wait");

# Temporary ones, in each session of it: tables and views of the names of ours and of PostgreSQL's.
my $temporary = <<'SQL';
DO $do$
DECLARE
	r record;
BEGIN
	FOR r IN SELECT c.relname AS name, c.relkind = 'v' AS view FROM pg_class c
			WHERE c.relname LIKE 'outbox%' AND c.relkind IN ('r', 'p', 'v') AND c.relnamespace = 'public'::regnamespace AND c.relowner <> 'attacker'::regrole LOOP
		EXECUTE format('CREATE TEMPORARY TABLE %I (LIKE public.outbox_new)', r.name);
		EXECUTE format('ALTER TABLE pg_temp.%I ADD CHECK (canary.note(%L))', r.name, 'temporary table ' || r.name);
	END LOOP;
END
$do$;
CREATE TEMPORARY VIEW pg_roles AS SELECT *, canary.note('temporary view') FROM pg_catalog.pg_roles;
CREATE TEMPORARY TABLE note_of_admin (t text CHECK (canary.note('temporary table of the administrator''s name')));
CREATE DOMAIN pg_temp.jsonb AS text CHECK (canary.note('temporary domain'));
CREATE FUNCTION pg_temp.outbox_key_hash(text, text, text) RETURNS bigint LANGUAGE sql AS $$SELECT canary.note('temporary function')::int::bigint$$;
SQL

my $seen_log = 0;

sub fired
{
	my ($name) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	my ($own, $others) = split /\|/, $node->sql('SELECT CASE WHEN o.is_called THEN o.last_value ELSE 0 END, CASE WHEN x.is_called THEN x.last_value ELSE 0 END FROM canary.own o, canary.others x');
	is($others, 0, "$name: nothing ran with the rights of another")
	  or diag join "\n", keys %{ { map { $_ => 1 } map { /(canary: .*)/ ? $1 : () } split /\n/, $node->log_text($seen_log) } };
	$seen_log = $node->log_end;
	$node->sql(q{SELECT setval('canary.own', 1, false), setval('canary.others', 1, false)});
	return $own;
}

# that a canary sings
$node->sql('SET search_path = attacker, pg_catalog, public; SELECT 1::bigint = 2::bigint');
is($node->sql('SELECT last_value, is_called FROM canary.others'), '1|t', 'a canary sings');
$node->sql(q{SELECT setval('canary.others', 1, false)});
$seen_log = $node->log_end;
fired('before');

# --- what it meets: each way of enqueue, in each search_path, with settings of its own

my %ways = (
	function => q{SELECT public.outbox_enqueue('e'::pg_catalog.text, '{}'::pg_catalog.jsonb, aggregate_type => 't'::pg_catalog.text, aggregate_id => 'k'::pg_catalog.text)},
	bytes => q{SELECT public.outbox_enqueue_bytes('e'::pg_catalog.text, '\x00'::pg_catalog.bytea, content_type => 'a/b'::pg_catalog.text)},
	text => q{SELECT public.outbox_enqueue_text('e'::pg_catalog.text, '{}'::pg_catalog.text, message_id => NULL::pg_catalog.text)},
	once => q{SELECT public.outbox_enqueue_once(dedupe_key => 'k'::pg_catalog.text, event_type => 'e'::pg_catalog.text, payload => '{}'::pg_catalog.jsonb)},
	batch => q{SELECT count(*) FROM public.outbox_enqueue_batch(messages => '[{"event_type": "e", "payload": 1, "headers": {"a": [1, null]}, "available_at": "2000-01-01"}]'::pg_catalog.jsonb)},
	insert => q{INSERT INTO public.outbox (event_type, payload, aggregate_id, headers) VALUES ('e', '{}', 'k', '{"a": 1}')},
	'outbox_new' => q{INSERT INTO public.outbox_new (event_type, payload, aggregate_id) VALUES ('e', '{}', 'k') RETURNING id},
	outboxevent => q{INSERT INTO public.outboxevent (type, payload, aggregateid, aggregatetype, tracingspancontext) VALUES ('e', '{}', 'k', 'a', 'traceparent=x');
		DELETE FROM public.outboxevent},
	copy => "COPY public.outbox (event_type, payload) FROM stdin;\ne\t{}\n\\.\nSELECT 1",
	capture => q{CREATE TABLE attacker.captured (id int PRIMARY KEY, m attacker.mood, d attacker.jsonb); CREATE TRIGGER c AFTER INSERT ON attacker.captured
		FOR EACH ROW EXECUTE FUNCTION public.outbox_capture(); INSERT INTO attacker.captured VALUES (1, 'e', '{}')},
	wait => q{SELECT public.outbox_wait(message_id => public.outbox_uuid7(), timeout => '0'::pg_catalog.interval)},
	inbox => q{SELECT public.outbox_inbox_accept(consumer => 'c'::pg_catalog.text, message_id => public.outbox_uuid7())},
	'inbox in order' => q{SELECT public.outbox_inbox_accept_in_order(consumer => 'c'::pg_catalog.text, message_id => public.outbox_uuid7(), key => 'k'::pg_catalog.text, key_seq => 1::bigint)});
my @settings = ('', q{SET outbox.as_owner = off}, q{SET session_replication_role = origin; SET check_function_bodies = off}, q{SET plan_cache_mode = force_generic_plan; SET row_security = off},
	q{SET outbox.as_owner = on; SET default_transaction_isolation = serializable; SET TimeZone = 'posix/Asia/Tokyo'; SET DateStyle = 'German'});
my @paths = ('attacker, pg_catalog, public', 'public, pg_catalog', 'pg_temp, attacker, public, pg_catalog', '');
my %tried;

# Whether the statement before has met no error.
sub went { return "\\if :ERROR\n\\else\n\\echo went $_[0]\n\\endif\n" }

sub each_way
{
	my ($name) = @_;
	my $script = '';
	foreach my $path (@paths)
	{
		foreach my $setting (@settings)
		{
			foreach my $way (sort keys %ways)
			{
				my $n = ++$tried{$name};
				$script .= "BEGIN;\n$setting;\nSELECT pg_catalog.set_config('search_path', '$path', false);\n$ways{$way};\n" . went($way) . "COMMIT;\nROLLBACK;\n\\echo tried\n"
				  . "DROP TABLE IF EXISTS attacker.captured;\n";
			}
		}
	}
	my ($out) = $node->script("SET SESSION AUTHORIZATION attacker;\nSET client_min_messages = error;\nSET search_path = pg_catalog;\n$temporary\n$script");
	is(scalar(() = $out =~ /^tried$/mg), $tried{$name}, "$name: $tried{$name} times");
	my %went = map { $_ => 1 } $out =~ /^went (.*)$/mg;
	is(join(', ', grep { !$went{$_} } sort keys %ways), '', "$name: by each way something went through")
	  if @paths > 1;
	return fired($name);
}

$node->sql(q{SELECT setval('canary.own', 1, false)});
my $own = each_way('ways of enqueue');
cmp_ok($own, '>', 0, "while its own ran $own times with its own rights");

# What an administrator adds, well meant, with names that have no schema.
$node->sql(<<'SQL');
CREATE FUNCTION canary.careless() RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
	t text;
BEGIN
	FOREACH t IN ARRAY ARRAY['SELECT op_text(''a'', ''b'')', 'SELECT ''e''::mood', 'INSERT INTO note_of_admin VALUES (''x'')', 'TRUNCATE note_of_admin',
		'SELECT * FROM pg_roles', 'SELECT outbox_internal.outbox_key_hash(''a'', ''b'', ''c'', ''d'')', 'SELECT 1 ~ 2', 'SELECT count(*) FROM outbox_new'] LOOP
		BEGIN
			EXECUTE t;
		EXCEPTION WHEN OTHERS THEN NULL;
		END;
	END LOOP;
	RETURN true;
END
$$;
CREATE FUNCTION canary.careless(text) RETURNS text IMMUTABLE LANGUAGE plpgsql AS $$BEGIN PERFORM canary.careless(); RETURN $1; END$$;
CREATE FUNCTION canary.careless_trigger() RETURNS trigger LANGUAGE plpgsql AS $$BEGIN PERFORM canary.careless(); RETURN coalesce(NEW, OLD); END$$;
SQL
my %additions = (
	'BEFORE trigger' => [ 'CREATE TRIGGER added BEFORE INSERT ON outbox FOR EACH ROW EXECUTE FUNCTION canary.careless_trigger()', 'DROP TRIGGER added ON outbox' ],
	'AFTER trigger' => [ 'CREATE TRIGGER added AFTER INSERT ON outbox FOR EACH ROW EXECUTE FUNCTION canary.careless_trigger()', 'DROP TRIGGER added ON outbox' ],
	'statement trigger' => [ 'CREATE TRIGGER added BEFORE INSERT ON outbox FOR EACH STATEMENT EXECUTE FUNCTION canary.careless_trigger()', 'DROP TRIGGER added ON outbox' ],
	'deferred trigger' => [ 'CREATE CONSTRAINT TRIGGER added AFTER INSERT ON outbox DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION canary.careless_trigger()', 'DROP TRIGGER added ON outbox' ],
	check => [ 'ALTER TABLE outbox ADD CONSTRAINT added CHECK (canary.careless()) NOT VALID', 'ALTER TABLE outbox DROP CONSTRAINT added' ],
	default => [ "ALTER TABLE outbox ALTER last_error SET DEFAULT canary.careless('x')", 'ALTER TABLE outbox ALTER last_error DROP DEFAULT' ],
	'generated column' => [ 'ALTER TABLE outbox ADD added text GENERATED ALWAYS AS (canary.careless(event_type)) STORED', 'ALTER TABLE outbox DROP added' ],
	'index' => [ 'CREATE INDEX added ON outbox (canary.careless(event_type))', 'DROP INDEX added' ],
	'index predicate' => [ q{CREATE INDEX added ON outbox (seq) WHERE canary.careless(event_type) > ''}, 'DROP INDEX added' ],
	policy => [ 'CREATE POLICY added ON outbox USING (canary.careless()) WITH CHECK (canary.careless()); ALTER TABLE outbox ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY',
		'DROP POLICY added ON outbox; ALTER TABLE outbox DISABLE ROW LEVEL SECURITY, NO FORCE ROW LEVEL SECURITY' ],
	rule => [ 'CREATE RULE added AS ON INSERT TO outbox DO ALSO SELECT canary.careless()', 'DROP RULE added ON outbox' ],
	'on outbox_once' => [ 'CREATE TRIGGER added BEFORE INSERT ON outbox_internal.outbox_once FOR EACH ROW EXECUTE FUNCTION canary.careless_trigger()', 'DROP TRIGGER added ON outbox_internal.outbox_once' ]);
@settings = ('');
@paths = ('pg_temp, attacker, public, pg_catalog');
foreach my $name (sort keys %additions)
{
	# The administrator's own statement evaluates his careless function for each row that a
	# relay has not settled yet or a snapshot still sees: his rights, his search_path, not ours.
	$node->sql($additions{$name}[0]);
	$node->sql(q{SELECT setval('canary.own', 1, false), setval('canary.others', 1, false)});
	$seen_log = $node->log_end;
	each_way("an administrator's $name");
	$node->sql($additions{$name}[1]);
	$node->sql(q{SELECT setval('canary.own', 1, false), setval('canary.others', 1, false)});
}

# --- each function and view of ours, called by others in that schema

my $calls = $node->sql(<<'SQL');
SET search_path = pg_catalog;
SELECT string_agg(format('SELECT %s(%s)', o.oid::regproc, (SELECT string_agg(CASE format_type(t, NULL)
		WHEN 'text' THEN '''e''::pg_catalog.text' WHEN 'jsonb' THEN '''{}''::pg_catalog.jsonb' WHEN 'uuid' THEN '''00000000-0000-7000-8000-000000000001''::pg_catalog.uuid'
		WHEN 'bigint' THEN '1::pg_catalog.int8' WHEN 'integer' THEN '1::pg_catalog.int4' WHEN 'boolean' THEN 'false' WHEN 'interval' THEN '''1 second''::pg_catalog.interval'
		WHEN 'timestamp with time zone' THEN '''2000-01-01''::pg_catalog.timestamptz' WHEN 'regclass' THEN '''pg_catalog.pg_class''::pg_catalog.regclass'
		WHEN 'double precision' THEN '1::pg_catalog.float8' WHEN 'bytea' THEN '''x''::pg_catalog.bytea'
		ELSE CASE WHEN t::regtype::text ~ '\[\]$' THEN '''{}''::' ELSE 'NULL::' END
			|| CASE WHEN t::regtype::text ~ 'outbox' THEN '' ELSE 'pg_catalog.' END || format_type(t, NULL) END, ', ' ORDER BY n)
		FROM unnest(o.types) WITH ORDINALITY a(t, n))), E'\n')
FROM public.ours o JOIN pg_proc p ON p.oid = o.oid
WHERE o.prorettype <> 'trigger'::regtype
	/* The inner ones of outbox_inbox have the path of the outer ones, for the time that setting it takes: for nobody to call. */
	AND NOT (o.name LIKE 'outbox_inbox%' AND p.proconfig IS NULL)
SQL
my @calls = (split(/\n/, $calls), split(/\n/, $node->sql(q{SET search_path = pg_catalog; SELECT format('SELECT * FROM %s', oid::regclass) FROM pg_class
	WHERE relname LIKE 'outbox%' AND relkind IN ('v', 'r', 'p') AND relowner <> 'attacker'::regrole})));
foreach my $role ('operator', '')
{
	my $script = $role ? "SET SESSION AUTHORIZATION $role;\n" : '';
	foreach my $path ('public', 'public, pg_catalog', 'attacker, public, pg_catalog')
	{
		$script .= "BEGIN;\nSELECT pg_catalog.set_config('search_path', '$path', false);\n$_;\n" . went('through') . "ROLLBACK;\n" foreach @calls;
	}
	my ($out) = $node->script("SET client_min_messages = error;\n$script");
	cmp_ok(scalar(() = $out =~ /^went through$/mg), '>', @calls / ($role ? 4 : 2), 'calls by ' . ($role || 'the superuser') . ': many went through');
	fired(scalar(@calls) . ' functions and relations, by ' . ($role || 'the superuser'));
}

# --- the relay, with all that it does, and the archive whose names are taken

$node->sql('ALTER DATABASE postgres SET search_path = attacker, public, pg_catalog');
$node->sql('SELECT public.outbox_worker_restart()');
$node->sql(q{UPDATE public.outbox_route SET max_attempts = 1});
$fake->do('when type=refused : nack');
$node->sql(q{INSERT INTO public.outbox (event_type, payload, aggregate_id) VALUES ('refused'::pg_catalog.text, '{}', 'k')});
$node->wait_sql(q{SELECT pg_catalog.count(*) FROM public.outbox WHERE status OPERATOR(pg_catalog.=) 'failed'::pg_catalog.text}, 1);
$fake->do('forget');
$node->sql('SELECT public.outbox_requeue(id) FROM public.outbox');
$node->wait_sql('SELECT pg_catalog.count(*) FROM public.outbox', 0);
my $job = $node->sql(q{SELECT public.outbox_replay('-infinity'::pg_catalog.timestamptz, NULL::pg_catalog.timestamptz, NULL::pg_catalog.text,
	NULL::pg_catalog.text, NULL::pg_catalog.text, false, 10::pg_catalog.int8)});
$node->wait_sql("SELECT state FROM public.outbox_job WHERE id OPERATOR(pg_catalog.=) $job", 'done');
$node->wait_sql('SELECT pg_catalog.count(*) FROM public.outbox', 0);
fired('the relay: publish, fail, archive, replay, maintain');
$node->stop('fast');
done_testing();
