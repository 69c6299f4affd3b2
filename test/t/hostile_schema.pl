# CREATE and ALTER EXTENSION in a schema where others may create: doc/dev/fault-cases.md H8. Operators,
# functions and types of theirs fit better than PostgreSQL's own and are never
# called, by the scripts or by anything that they have made; what has our names already
# makes CREATE EXTENSION or ALTER EXTENSION fail, and nothing of theirs becomes ours.
# Nor does anything of a schema's owner run who renames it while others call.
#
# The update is that of test/modules/outbox_chain.
#
# OUTBOX_TEST_FULL=1: each function of the update taken before, instead of some.
#
# suite: test
# takes: 30 s

use strict;
use warnings;

use Test::More;
use PostgreSQL::Test::Utils;
use OutboxTest::Checker;
use OutboxTest::FakeBroker;
use OutboxTest::Node;
use OutboxTest::Util;

seed();
my $fake = OutboxTest::FakeBroker->start;
my $node = OutboxTest::Node->create(
	broker => $fake,
	extension => 0,
	conf => "outbox.retry_initial = 10ms\noutbox.retry_max = 100ms");

# The names that the script could mean: every function of PostgreSQL's that it
# calls, wherever it is put, and every operator of two arguments.
my $OLDER = '0.99';
my $scripts = $node->config_data('--sharedir') . '/extension/outbox';
my $script = slurp_file("$scripts--1.0.sql");
unlike($script, qr/\bOR\s+REPLACE\b|\bIF\s+NOT\s+EXISTS\b/i,
	'the script takes nothing over that is there already');
my $update = slurp_file("$scripts--$OLDER--1.0.sql");
my %words = map { $_ => 1 } "$script$update" =~ /\b([a-z_][a-z0-9_]*)\(/g;
my $words = join ',', sort keys %words;

# What the script makes, in whatever schema its calls could mean.
$node->sql('CREATE DATABASE first');
my $ours = $node->sql(<<'SQL', 'first');
CREATE EXTENSION outbox;
SELECT string_agg(format('(%L, %L)', proname, arguments), ',') FROM (
	SELECT DISTINCT p.proname, (SELECT string_agg('pg_catalog.' || CASE WHEN t = 'text'::regtype THEN 'name' WHEN t = 'bigint'::regtype THEN 'int4'
		WHEN t = 'integer'::regtype THEN 'int8' WHEN t = 'oid'::regtype THEN 'regclass' WHEN t = 'double precision'::regtype THEN 'numeric'
		WHEN t = 'float8[]'::regtype THEN 'numeric[]' ELSE 'text' END, ', ' ORDER BY n)
		FROM unnest(p.proargtypes::oid[]) WITH ORDINALITY u(t, n)) AS arguments
	FROM pg_proc p JOIN pg_depend d ON d.classid = 'pg_proc'::regclass AND d.objid = p.oid AND d.deptype = 'e' WHERE p.proname LIKE 'outbox%' AND p.pronargs > 0) f
SQL

$node->sql(<<"SQL");
CREATE ROLE attacker;
CREATE ROLE operator IN ROLE pg_monitor;
CREATE SCHEMA shared;
GRANT ALL ON SCHEMA shared TO attacker;
GRANT USAGE ON SCHEMA shared TO PUBLIC;
CREATE TABLE words AS
	SELECT DISTINCT p.proname FROM pg_proc p
	WHERE p.pronamespace = 'pg_catalog'::regnamespace AND p.proname = ANY ('{$words}');
CREATE TABLE ours (name name, arguments text);
INSERT INTO ours VALUES $ours;
GRANT SELECT ON words, ours TO attacker;
SQL

# Functions for every combination of one, two and three types, and operators for
# every pair.  What they return does not matter for being chosen.
my $trojans = <<'SQL';
SET ROLE attacker;
CREATE TABLE shared.canary (what text, who name);
GRANT INSERT ON shared.canary TO PUBLIC;
CREATE DOMAIN shared.text AS pg_catalog.text;
CREATE DOMAIN shared.timestamptz AS pg_catalog.timestamptz;
CREATE DOMAIN shared.jsonb AS pg_catalog.jsonb;
CREATE DOMAIN shared.regclass AS pg_catalog.regclass;
CREATE TABLE shared.pg_class (LIKE pg_catalog.pg_class);
CREATE TABLE shared.pg_database (LIKE pg_catalog.pg_database);
CREATE TABLE shared.pg_inherits (LIKE pg_catalog.pg_inherits);
DO $do$
DECLARE
	ours constant pg_catalog.text[] := '{bool,oid,regclass,text,name,varchar,int2,int4,int8,int8[],text[],float8,timestamptz,timestamp,date,interval,jsonb,uuid,bytea,"\"char\""}';
	few constant pg_catalog.text[] := '{oid,regclass,text,name,int4,int8,timestamptz,interval,anyelement}';
	body constant pg_catalog.text := 'LANGUAGE plpgsql SET search_path = pg_catalog AS
		$f$BEGIN INSERT INTO shared.canary VALUES (%L, current_user); RETURN NULL; END$f$';
	l pg_catalog.text;
	r pg_catalog.text;
	o pg_catalog.text;
	n pg_catalog.name;
BEGIN
	FOREACH l IN ARRAY ours LOOP
		FOREACH r IN ARRAY ours LOOP
			EXECUTE format('CREATE FUNCTION shared.trojan(pg_catalog.%s, pg_catalog.%s) RETURNS boolean ' || body,
				l, r, 'operator of ' || l || ' and ' || r);
			FOREACH o IN ARRAY ARRAY['=', '<>', '<', '<=', '>', '>=', '~~', '!~~', '~', '||', '+', '-', '->>'] LOOP
				EXECUTE format('CREATE OPERATOR shared.%s (LEFTARG = pg_catalog.%s, RIGHTARG = pg_catalog.%s, FUNCTION = shared.trojan)',
					o, l, r);
			END LOOP;
		END LOOP;
	END LOOP;
	FOR n IN SELECT proname FROM public.words LOOP
		EXECUTE format('CREATE FUNCTION shared.%I(VARIADIC pg_catalog.text[] DEFAULT ''{}'') RETURNS text ' || body,
			n, n || ' variadic');
		FOREACH l IN ARRAY array_remove(ours, 'text[]') || '{anyelement}' LOOP
			EXECUTE format('CREATE FUNCTION shared.%I(pg_catalog.%s) RETURNS text ' || body, n, l, n || ' ' || l);
		END LOOP;
		FOREACH l IN ARRAY few LOOP
			FOREACH r IN ARRAY few LOOP
				EXECUTE format('CREATE FUNCTION shared.%I(pg_catalog.%s, pg_catalog.%s) RETURNS text ' || body,
					n, l, r, n || ' ' || l || ' ' || r);
			END LOOP;
			EXECUTE format('CREATE FUNCTION shared.%I(pg_catalog.text, pg_catalog.%s, pg_catalog.%2$s) RETURNS text ' || body,
				n, l, n || ' text ' || l || ' ' || l);
		END LOOP;
	END LOOP;
	/* Overloads of ours, each argument of another type; those that could be meant as well come later. */
	FOR n, l IN SELECT o.name, o.arguments FROM public.ours o LOOP
		EXECUTE format('CREATE FUNCTION shared.%I(%s) RETURNS bigint ' || body, n, l, n || ' ' || l);
	END LOOP;
END
$do$;
RESET ROLE;
SQL
$node->sql($trojans);
my $count = $node->sql(
	q{SELECT count(*) FROM pg_operator WHERE oprnamespace = 'shared'::regnamespace});
my $functions = $node->sql(
	q{SELECT count(DISTINCT proname) FROM pg_proc WHERE pronamespace = 'shared'::regnamespace});
cmp_ok($functions, '>', 15, "$count operators and overloads of $functions functions lie in wait");
my $fired = 'SELECT DISTINCT what, who FROM shared.canary ORDER BY 1, 2';
my ($superuser) = $node->sql('SELECT current_user');
is($node->sql("SET search_path = shared; SELECT '1'::oid = 'public.words'::pg_catalog.regclass; $fired"),
	"\noperator of oid and regclass|$superuser", 'and would say so');
$node->sql('TRUNCATE shared.canary');

# --- the script

is($node->sql_fails('CREATE EXTENSION outbox SCHEMA shared'), undef,
	'CREATE EXTENSION beside them');
is($node->sql($fired), '', 'no trojan was called by it');
my $stolen = <<'SQL';
SELECT pg_describe_object(classid, objid, objsubid)
FROM pg_depend
	LEFT JOIN pg_class c ON classid = 'pg_class'::regclass AND c.oid = objid
	LEFT JOIN pg_proc p ON classid = 'pg_proc'::regclass AND p.oid = objid
WHERE refclassid = 'pg_extension'::regclass AND deptype = 'e'
	AND refobjid = (SELECT oid FROM pg_extension WHERE extname = 'outbox')
	AND coalesce(relowner, proowner) = 'attacker'::regrole
SQL
is($node->sql($stolen), '', 'nothing of the attacker is a member');
my $leaning = <<'SQL';
SELECT DISTINCT pg_describe_object(d.refclassid, d.refobjid, d.refobjsubid)
FROM pg_depend d JOIN pg_depend e ON e.deptype = 'e' AND e.refclassid = 'pg_extension'::regclass
		AND e.refobjid = (SELECT oid FROM pg_extension WHERE extname = 'outbox')
	JOIN pg_proc p ON d.refclassid = 'pg_proc'::regclass AND d.refobjid = p.oid
WHERE p.proowner = 'attacker'::regrole
	AND d.deptype = 'n' AND (d.classid, d.objid) NOT IN (
		SELECT 'pg_operator'::regclass, oid FROM pg_operator WHERE oprowner = 'attacker'::regrole)
SQL
is($node->sql($leaning), '', 'and nothing depends on it');

# What runs meets them one by one in t/overloads.pl; here the test's own calls would.
$node->sql(<<'SQL');
DO $$
DECLARE
	f regprocedure;
BEGIN
	FOR f IN SELECT oid FROM pg_proc WHERE proowner = 'attacker'::regrole AND proname LIKE 'outbox%' LOOP
		EXECUTE format('DROP FUNCTION %s', f);
	END LOOP;
END
$$;
SQL

# --- the whole cycle, in sessions that find the extension by their search_path,
# first as a rule and then with PostgreSQL's own at the end

my $checker = OutboxTest::Checker->install($node);
foreach my $path ('shared, public', 'shared, public, pg_catalog')
{
	my $s = "SET search_path = $path;";
	my $id;

	$node->sql("ALTER DATABASE postgres SET search_path = $path");
	$node->sql('SELECT shared.outbox_worker_restart()');
	$node->sql(<<"SQL");
$s
INSERT INTO public.test_sent SELECT pg_catalog.nextval('public.test_sent_n'),
	shared.outbox_enqueue('test.event', '{}', aggregate_type => 'test', aggregate_id => k), k
FROM pg_catalog.unnest('{a,b,c,a,b,c,a,b,c,a,b,c}'::pg_catalog.text[]) k;
SQL
	$node->wait_sql('SELECT pg_catalog.count(*) OPERATOR(pg_catalog.=) 0 FROM shared.outbox');

	# settled as failed, shown, requeued, discarded
	$fake->do('when type=refused : nack', 'when type=later : ack');
	$node->sql("$s UPDATE shared.outbox_route SET max_attempts = 2");
	foreach my $n (1, 2)
	{
		$node->sql(
			qq{$s SELECT shared.outbox_enqueue('refused', '{}', aggregate_type => 't', aggregate_id => 'k', headers => '{"a": 1}', properties => '{"priority": 1}')}
		);
	}
	$node->wait_sql(
		q{SELECT pg_catalog.count(*) OPERATOR(pg_catalog.=) 2 FROM shared.outbox_failed});
	$node->sql(<<"SQL");
$s
SELECT pg_catalog.count(*) FROM shared.outbox_enqueue_batch('[{"event_type": "later", "payload": 1, "aggregate_type": "t", "aggregate_id": 7,
	"headers": {"h": 1}, "properties": {"priority": 1}, "available_at": "2000-01-01"}, {"event_type": "later", "body_base64": "AA==", "content_type": "a/b"}]');
INSERT INTO shared.outbox_new (event_type, payload, route, created_at) VALUES ('later', '{}', NULL, NULL);
SQL
	foreach my $view (qw(outbox_status outbox_workers outbox_messages outbox_failed outbox_held_keys outbox_new))
	{
		like($node->sql("$s SELECT pg_catalog.count(*) FROM shared.$view"), qr/^\d+$/m, "$view, $path");
	}
	like($node->sql("SET ROLE operator; $s SELECT failed FROM shared.outbox_status"),
		qr/^2$/m, "outbox_status of pg_monitor, $path");
	$id = $node->sql('SELECT id FROM shared.outbox_failed LIMIT 1');
	is($node->sql("$s SELECT shared.outbox_discard('$id'::uuid)"), 't', "discard, $path");
	$fake->do('forget');
	is($node->sql("$s SELECT shared.outbox_requeue(id) FROM shared.outbox_failed"),
		't', "requeue, $path");
	is( $node->sql(
			"$s SELECT shared.outbox_requeue_failed('default'::pg_catalog.text, 'x', 'y', 'z', '%w%', '2000-01-01', 5)"
		),
		0, "requeue of many, $path");
	$node->wait_sql('SELECT pg_catalog.count(*) OPERATOR(pg_catalog.=) 0 FROM shared.outbox');
	my $job = $node->sql("$s SELECT shared.outbox_replay('-infinity'::pg_catalog.timestamptz, NULL, 'default', 't', 'k', true, 1)");
	$node->wait_sql("SELECT state, total, done FROM shared.outbox_job WHERE id OPERATOR(pg_catalog.=) $job", 'done|1|1');
	is($node->sql("$s SELECT shared.outbox_job_cancel($job), shared.outbox_job_retry($job), count FROM
			(SELECT pg_catalog.count(*) FROM shared.outbox_progress) p"), 'f|f|0', "replay, $path");
	$node->wait_sql('SELECT pg_catalog.count(*) OPERATOR(pg_catalog.=) 0 FROM shared.outbox');
	$node->sql(<<"SQL");
$s
SELECT shared.outbox_pause(), shared.outbox_resume(), shared.outbox_pause('default'), shared.outbox_resume('default'), shared.outbox_adopt();
SELECT outbox_internal.outbox_archive_maintain('1 day'::pg_catalog.interval) FROM pg_catalog.generate_series(1, 4);
SELECT outbox_internal.outbox_archive_maintain('-3 days'::pg_catalog.interval) FROM pg_catalog.generate_series(1, 4);
INSERT INTO shared.outbox_route (name, exchange_type, routing_key) VALUES ('more', 'topic', '{event_type}');
UPDATE shared.outbox_route SET name = 'less' WHERE name OPERATOR(pg_catalog.=) 'more'::pg_catalog.text;
DELETE FROM shared.outbox_route WHERE name OPERATOR(pg_catalog.=) 'less'::pg_catalog.text;
SET check_function_bodies = off;
SELECT pg_catalog.set_config('search_path', '', false);
UPDATE shared.outbox_route SET max_attempts = 10;
INSERT INTO shared.outbox_route (name, exchange_type) VALUES ('default', 'topic');
INSERT INTO shared.outbox_control SELECT * FROM shared.outbox_control;
SELECT shared.outbox_adopt();
SQL
	is($node->sql($fired), '', "no trojan was called by anything, $path");
}
$checker->check('hostile schema', [ grep { $_->{type} !~ /^(refused|later)$/ } $fake->records ],
	case => 'H8: the extension in a schema of hostile overloads', drained => 0);
$node->sql('ALTER DATABASE postgres RESET search_path');
$node->sql('SET search_path = shared; DROP EXTENSION outbox');

# --- a schema whose owner puts another one in its place, again and again, while it calls:
# no text of the server's own (a foreign key's check, for one) names it

$node->sql('CREATE ROLE dbo; CREATE DATABASE renamed OWNER dbo');
$node->sql(<<'SQL', 'renamed');
CREATE SCHEMA o AUTHORIZATION dbo;
CREATE EXTENSION outbox SCHEMA o;
GRANT ALL ON ALL TABLES IN SCHEMA o TO dbo;
GRANT ALL ON ALL FUNCTIONS IN SCHEMA o TO dbo;
INSERT INTO o.outbox_archive (seq, id, route, event_type, payload, created_at, attempts, published_at)
VALUES (1, o.outbox_uuid7(), 'default', 'e', '1', now(), 0, now());
CREATE SEQUENCE public.fired;
GRANT USAGE ON SEQUENCE public.fired TO PUBLIC;
SET ROLE dbo;
CREATE SCHEMA f;
GRANT USAGE ON SCHEMA f TO PUBLIC;
CREATE FUNCTION public.fires(of anyelement) RETURNS SETOF anyelement LANGUAGE plpgsql AS $$
BEGIN
	IF current_user <> 'dbo' THEN
		PERFORM pg_catalog.nextval('public.fired');
	END IF;
END
$$;
DO $$
DECLARE
	r name;
BEGIN
	FOR r IN SELECT relname FROM pg_class WHERE relnamespace = 'o'::regnamespace AND relkind IN ('r', 'p', 'v') LOOP
		EXECUTE format('CREATE VIEW f.%I AS SELECT r.* FROM public.fires(NULL::o.%1$I) r; GRANT ALL ON f.%1$I TO PUBLIC', r);
	END LOOP;
END
$$;
CREATE FUNCTION public.replay() RETURNS bigint BEGIN ATOMIC SELECT o.outbox_replay('-infinity'); END;
CREATE FUNCTION public.route() RETURNS void BEGIN ATOMIC INSERT INTO o.outbox_route (name) VALUES ('renamed'); END;
CREATE FUNCTION public.message() RETURNS uuid BEGIN ATOMIC SELECT o.outbox_enqueue('e', '{}'); END;
CREATE PROCEDURE public.rename(seconds float8) LANGUAGE plpgsql AS $$
DECLARE
	upto timestamptz := clock_timestamp() + seconds * interval '1 s';
BEGIN
	WHILE clock_timestamp() < upto LOOP
		ALTER SCHEMA o RENAME TO g;
		ALTER SCHEMA f RENAME TO o;
		ALTER SCHEMA g RENAME TO f;
		COMMIT;
	END LOOP;
END
$$;
CREATE FUNCTION public.call(f regproc, seconds float8) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	upto timestamptz := clock_timestamp() + seconds * interval '1 s';
	done int := 0;
	refused text;
BEGIN
	WHILE clock_timestamp() < upto AND NOT (SELECT is_called FROM public.fired) LOOP
		BEGIN
			EXECUTE format('SELECT %s()', f);
			RAISE EXCEPTION USING ERRCODE = 'UNDO1';
		EXCEPTION
			WHEN SQLSTATE 'UNDO1' THEN done := done + 1;
			WHEN OTHERS THEN refused := SQLERRM;
		END;
	END LOOP;
	RETURN concat_ws(' ', CASE WHEN done > 0 THEN 'called' END, refused);
END
$$;
SQL
$node->sql('GRANT SELECT ON SEQUENCE public.fired TO dbo', 'renamed');
my $owner = $node->session('renamed');
$owner->query_safe('SET synchronous_commit = off; SET ROLE dbo');
foreach my $call (qw(replay route message))
{
	$owner->query_until(qr/^renames$/m, "\\echo renames\nCALL public.rename(2);\n");
	is($node->sql("SET ROLE dbo; SELECT public.call('public.$call', 1.5)", 'renamed'), 'called', "$call, while the schema is renamed");
	$owner->query_safe('SELECT 1');
	is($node->sql('SELECT is_called FROM public.fired', 'renamed'), 'f', "$call: nothing of the schema's owner ran as another role");
	$node->sql(q{SELECT setval('public.fired', 1, false)}, 'renamed');
}
$owner->quit;
$node->sql('SELECT FROM f.outbox_job; SELECT FROM o.outbox_job', 'renamed');
is($node->sql('SELECT is_called FROM public.fired', 'renamed'), 't', 'and it would say so');
$node->sql('DROP DATABASE renamed WITH (FORCE)');

# --- the update, of an extension that has messages

$node->sql(<<"SQL");
CREATE EXTENSION outbox SCHEMA shared VERSION '$OLDER';
INSERT INTO shared.outbox (event_type, payload) VALUES ('old', '{}');
TRUNCATE shared.canary;
/* Of what the update makes for itself: each fits plain literals as well or better. */
SET ROLE attacker;
DO \$do\$
DECLARE
	arguments pg_catalog.text;
BEGIN
	FOREACH arguments IN ARRAY ARRAY['text, pg_catalog.text', 'text, pg_catalog.regprocedure',
			'regprocedure, pg_catalog.text', 'regproc, pg_catalog.regproc'] LOOP
		EXECUTE pg_catalog.format('CREATE FUNCTION shared.outbox_update_rights(pg_catalog.%s) RETURNS pg_catalog.void
			LANGUAGE plpgsql SET search_path = pg_catalog AS
			\$f\$BEGIN INSERT INTO shared.canary VALUES (%L, current_user); END\$f\$', arguments, 'outbox_update_rights ' || arguments);
	END LOOP;
END
\$do\$;
RESET ROLE;
SET search_path = shared, pg_catalog;
ALTER EXTENSION outbox UPDATE;
SQL
is($node->sql($fired), '', 'no trojan was called by ALTER EXTENSION');
is($node->sql($stolen) . $node->sql($leaning), '', 'nothing of the attacker is a member, or depended on');
$node->sql('SET search_path = shared; DROP EXTENSION outbox');

# What the update replaces is what the first version has made.
my $first = slurp_file("$scripts--$OLDER.sql");
my @replaced = $update =~ /^CREATE OR REPLACE (\w+ [\w@]+\.\w+)/mg;
cmp_ok(scalar @replaced, '>', 1, 'the update replaces some');
foreach my $object (@replaced)
{
	like($first, qr/^CREATE \Q$object\E\b/m, "$object is replaced, and was there");
}
unlike($update, qr/\bIF\s+NOT\s+EXISTS\b/i, 'the update takes nothing over that is there already');

# --- what is there already under one of our names

$node->sql('CREATE DATABASE taken');
my ($members) = $node->sql(<<'SQL', 'taken');
CREATE EXTENSION outbox;
SELECT string_agg(relname || ' ' || relkind::text, ',') FROM pg_class
WHERE relnamespace = 'public'::regnamespace AND relname !~ '_p\d{8}|^outbox_archive_default_' OR relname = 'outbox_archive_default_id_idx';
SQL
my @relations = map { [ split ] } split /,/, $members;
my @functions = split /\n/, $node->sql(<<'SQL', 'taken');
SELECT format('%I(%s) RETURNS %s%s', proname, pg_get_function_arguments(oid),
	CASE WHEN proretset THEN 'SETOF ' ELSE '' END, prorettype::regtype)
FROM pg_proc WHERE pronamespace = 'public'::regnamespace AND proname LIKE 'outbox%'
	/* One of a type of ours cannot be there before that type, and that is looked for above. */
	AND NOT EXISTS (SELECT FROM pg_type t
		WHERE t.oid = ANY (proargtypes::oid[] || prorettype) AND t.typname ~ '^_?outbox')
SQL
my %old = map { $_ => 1 } split /\n/, $node->sql(<<"SQL", 'taken');
DROP EXTENSION outbox;
CREATE EXTENSION outbox VERSION '$OLDER';
SELECT relname FROM pg_class WHERE relnamespace = 'public'::regnamespace UNION
SELECT proname FROM pg_proc WHERE pronamespace = 'public'::regnamespace;
SQL
$node->sql('DROP EXTENSION outbox', 'taken');
cmp_ok(scalar @relations, '>', 15, scalar(@relations) . ' relations');
cmp_ok(scalar @functions, '>', 20, scalar(@functions) . ' functions');

sub taken
{
	my ($what, $ddl, %may) = @_;
	# Names that are new are taken before the update: with the first version there.
	my $old = $may{updated} ? "CREATE EXTENSION outbox SCHEMA theirs VERSION '$OLDER'" : '';
	my $new = $may{updated} ? 'ALTER EXTENSION outbox UPDATE' : 'CREATE EXTENSION outbox SCHEMA theirs';
	my $error = $node->sql_fails(<<"SQL", 'taken');
BEGIN;
CREATE SCHEMA theirs AUTHORIZATION attacker;
$old;
SET LOCAL ROLE attacker;
SET LOCAL search_path = theirs;
$ddl;
RESET ROLE;
SET LOCAL search_path = public;
$new;
SELECT theirs.outbox_enqueue('e', '{}', aggregate_id => '1');
SELECT 1 / count(*) FROM theirs.outbox WHERE seq = 1;
SELECT theirs.outbox_requeue(id) FROM theirs.outbox;
SELECT 1 / (count(*) = 0)::int FROM pg_depend
	LEFT JOIN pg_class c ON classid = 'pg_class'::regclass AND c.oid = objid
	LEFT JOIN pg_proc p ON classid = 'pg_proc'::regclass AND p.oid = objid
WHERE refclassid = 'pg_extension'::regclass AND deptype = 'e'
	AND refobjid = (SELECT oid FROM pg_extension WHERE extname = 'outbox')
	AND coalesce(relowner, proowner) = 'attacker'::regrole;
ROLLBACK;
SQL
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	if (defined $error)
	{
		like($error, qr/already exists|is not a member of the extension|is not unique/,
			"$what is taken: $new says so");
	}
	else
	{
		ok($may{other}, "$what is taken: another name is found");
	}
	return;
}

foreach my $relation (@relations)
{
	my ($name, $kind) = @$relation;
	my $index = $kind =~ /^[iI]$/ ? 1 : 0;
	# The server chooses these names, and takes another one; no index is found by them.
	my $chosen = $name =~ /(_idx|_id_seq)$/ ? 1 : 0;

	taken("relation $name", "CREATE TABLE $name ()", other => $chosen);
	taken("type $name", "CREATE TYPE $name AS ENUM ('a')", other => $index);
	taken("relation $name", "CREATE TABLE $name ()", other => $chosen, updated => 1) unless $old{$name};
}
foreach my $function (@functions)
{
	my ($name) = $function =~ /^(\w+)/;
	my $body = $function =~ /RETURNS trigger/ ? 'BEGIN RETURN NEW; END' : 'BEGIN END';
	taken("function $name", "CREATE FUNCTION $function LANGUAGE plpgsql AS '$body'");
	taken("function $name", "CREATE FUNCTION $function LANGUAGE plpgsql AS '$body'", updated => 1)
	  unless $old{$name} || !$ENV{OUTBOX_TEST_FULL} && rand() > 0.3;
}
# Not the same function, but one that a call without arguments could mean.
foreach my $name (qw(outbox_uuid7 outbox_database_stats outbox_locked_rows outbox_table_lockers outbox_version))
{
	taken("$name with a default", "CREATE FUNCTION $name(integer DEFAULT 0) RETURNS bigint LANGUAGE plpgsql AS 'BEGIN END'");
}
is($node->sql(q{SELECT count(*) FROM pg_namespace WHERE nspname = 'theirs'}, 'taken'),
	0, 'and leaves nothing behind');
done_testing();
