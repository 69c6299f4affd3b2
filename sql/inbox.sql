-- The extension outbox_inbox: each message is accepted once.
SET client_min_messages = error;
\set VERBOSITY terse
\set SHOW_CONTEXT never
CREATE SCHEMA "In % Box";
CREATE ROLE regress_inbox_consumer;
CREATE ROLE regress_inbox_owner;
DO $$ BEGIN EXECUTE format('GRANT CREATE ON DATABASE %I TO regress_inbox_owner', current_database()); END $$;

-- The owner's name is not folded to that of another role: nobody else may execute anything
BEGIN;
CREATE ROLE "Regress_Inbox_Owner" SUPERUSER;
SET LOCAL ROLE "Regress_Inbox_Owner";
CREATE EXTENSION outbox_inbox SCHEMA "In % Box";
SELECT p.proname FROM pg_proc p WHERE p.pronamespace = '"In % Box"'::regnamespace
	AND has_function_privilege('regress_inbox_consumer', p.oid, 'EXECUTE');
ROLLBACK;

-- and may contain a percent sign
BEGIN;
CREATE ROLE "regress_inbox_50%" SUPERUSER;
SET LOCAL ROLE "regress_inbox_50%";
CREATE EXTENSION outbox_inbox SCHEMA "In % Box";
ROLLBACK;

-- but not into a schema where they may not create
BEGIN;
SET LOCAL ROLE regress_inbox_owner;
CREATE EXTENSION outbox_inbox SCHEMA "In % Box";
ROLLBACK;

-- Whoever may create in the database installs it, and owns all of it
SET ROLE regress_inbox_owner;
CREATE SCHEMA inbox;
ALTER DEFAULT PRIVILEGES GRANT ALL ON TABLES TO regress_inbox_consumer;
ALTER DEFAULT PRIVILEGES GRANT ALL ON SEQUENCES TO regress_inbox_consumer;
ALTER DEFAULT PRIVILEGES GRANT ALL ON FUNCTIONS TO regress_inbox_consumer;
ALTER DEFAULT PRIVILEGES GRANT ALL ON SCHEMAS TO regress_inbox_consumer;
CREATE EXTENSION outbox_inbox SCHEMA inbox;
ALTER DEFAULT PRIVILEGES REVOKE ALL ON TABLES FROM regress_inbox_consumer;
ALTER DEFAULT PRIVILEGES REVOKE ALL ON SEQUENCES FROM regress_inbox_consumer;
ALTER DEFAULT PRIVILEGES REVOKE ALL ON FUNCTIONS FROM regress_inbox_consumer;
ALTER DEFAULT PRIVILEGES REVOKE ALL ON SCHEMAS FROM regress_inbox_consumer;
RESET ROLE;
SELECT count(*), count(*) FILTER (WHERE o.owner = 'regress_inbox_owner'::regrole) AS of_owner
FROM pg_depend d
	JOIN (SELECT oid, relowner AS owner FROM pg_class UNION ALL SELECT oid, proowner FROM pg_proc) o ON o.oid = d.objid
WHERE d.refobjid = (SELECT oid FROM pg_extension WHERE extname = 'outbox_inbox') AND d.deptype = 'e';
SELECT nspowner::regrole, nspacl FROM pg_namespace WHERE nspname = 'outbox_inbox_internal';
SELECT cardinality(extconfig) AS dumped FROM pg_extension WHERE extname = 'outbox_inbox';

-- Nobody else may do anything, and a consumer only what it was granted
SELECT p.proname FROM pg_proc p
WHERE p.pronamespace IN ('inbox'::regnamespace, 'outbox_inbox_internal'::regnamespace)
	AND has_function_privilege('regress_inbox_consumer', p.oid, 'EXECUTE');
SELECT c.relname FROM pg_class c
WHERE c.relnamespace IN ('inbox'::regnamespace, 'outbox_inbox_internal'::regnamespace) AND c.relkind IN ('r', 'p', 'v')
	AND has_table_privilege('regress_inbox_consumer', c.oid, 'SELECT,INSERT,UPDATE,DELETE,TRUNCATE,TRIGGER')
UNION ALL SELECT 'schema' WHERE has_schema_privilege('regress_inbox_consumer', 'outbox_inbox_internal', 'CREATE,USAGE');
SET ROLE regress_inbox_owner;
GRANT USAGE ON SCHEMA inbox TO regress_inbox_consumer;
GRANT EXECUTE ON FUNCTION inbox.outbox_inbox_accept, inbox.outbox_inbox_accept_in_order, inbox.outbox_inbox_uuid
	TO regress_inbox_consumer;
SET ROLE regress_inbox_consumer;
SET search_path = inbox;

-- The first time; a consumer is not another one
SELECT outbox_inbox_accept('mail', '00000000-0000-0000-0000-000000000001') AS first,
	outbox_inbox_accept('mail', '00000000-0000-0000-0000-000000000001') AS again,
	outbox_inbox_accept('stock', '00000000-0000-0000-0000-000000000001') AS other;
SELECT outbox_inbox_accept('mail', outbox_inbox_uuid('order-17')) AS first,
	outbox_inbox_accept('mail', outbox_inbox_uuid('order-17'), '1 hour') AS again;
SELECT outbox_inbox_uuid('0190D1F0-0000-7000-8000-000000000001') AS itself, outbox_inbox_uuid('0190d1f0-0000-7000-8000-00000000000') AS shorter,
	outbox_inbox_accept('mail', '0190d1f0-0000-7000-8000-000000000009') AS first,
	outbox_inbox_accept('mail', outbox_inbox_uuid('0190d1f0-0000-7000-8000-000000000009')) AS again;
-- What is rolled back was not accepted
BEGIN;
SELECT outbox_inbox_accept('mail', '00000000-0000-0000-0000-000000000002');
ROLLBACK;
BEGIN;
SAVEPOINT s;
SELECT outbox_inbox_accept('mail', '00000000-0000-0000-0000-000000000002');
ROLLBACK TO s;
SELECT outbox_inbox_accept('mail', '00000000-0000-0000-0000-000000000002');
SELECT outbox_inbox_accept('mail', '00000000-0000-0000-0000-000000000002');
COMMIT;
-- also with a snapshot that is kept
BEGIN ISOLATION LEVEL REPEATABLE READ;
SELECT outbox_inbox_accept('mail', '00000000-0000-0000-0000-000000000003') AS first,
	outbox_inbox_accept('mail', '00000000-0000-0000-0000-000000000002') AS again;
COMMIT;
BEGIN ISOLATION LEVEL SERIALIZABLE;
SELECT outbox_inbox_accept('mail', '00000000-0000-0000-0000-000000000004') AS first,
	outbox_inbox_accept('mail', '00000000-0000-0000-0000-000000000003') AS again;
COMMIT;

-- What is wrong is said
\set VERBOSITY default
SELECT outbox_inbox_accept(NULL, '00000000-0000-0000-0000-000000000001');
SELECT outbox_inbox_accept('mail', NULL);
SELECT outbox_inbox_accept('', '00000000-0000-0000-0000-000000000001');
SELECT outbox_inbox_accept(repeat('x', 256), '00000000-0000-0000-0000-000000000001');
SELECT outbox_inbox_accept('mail', '00000000-0000-0000-0000-000000000001', '0');
SELECT outbox_inbox_accept('mail', '00000000-0000-0000-0000-000000000001', '8 days');
SELECT outbox_inbox_accept_in_order('mail', gen_random_uuid(), NULL, 1);
SELECT outbox_inbox_accept_in_order('mail', gen_random_uuid(), 'k', NULL);
SELECT outbox_inbox_accept_in_order('mail', gen_random_uuid(), repeat('x', 1025), 1);
SELECT outbox_inbox_accept_in_order('mail', gen_random_uuid(), '', 1);
SELECT outbox_inbox_set_retention('8 days');
\set VERBOSITY terse
RESET ROLE;
SET search_path = inbox, public;
SELECT outbox_inbox_set_retention('40 days');
SELECT outbox_inbox_set_retention(NULL);

-- In the order of the key's numbers
CREATE FUNCTION in_order(n integer, key text, seq bigint, gapless boolean DEFAULT false) RETURNS text LANGUAGE sql
RETURN inbox.outbox_inbox_accept_in_order('stock', ('00000000-0000-0000-0001-' || to_char(n, 'FM000000000000'))::uuid, key, seq, gapless);
SELECT in_order(1, 'a', 10), in_order(2, 'a', 20), in_order(2, 'a', 20) AS same, in_order(1, 'a', 10) AS before,
	in_order(3, 'a', 15), in_order(3, 'a', 15) AS again, in_order(4, 'b', 1), in_order(8, 'a', 20) AS same_number;
SELECT in_order(5, 'g', 7, true) AS whatever_is_first, in_order(7, 'g', 9, true), in_order(6, 'g', 8, true), in_order(7, 'g', 9, true);
-- A message that was enqueued twice has two numbers, and the second one counts as well
SELECT in_order(11, 'twice', 1, true), in_order(11, 'twice', 2, true) AS again, in_order(12, 'twice', 3, true), in_order(12, 'twice', 3, true) AS same;
SELECT in_order(9, 'n', 1, NULL) AS without_gapless, in_order(10, 'n', 3, NULL);
SELECT consumer, key, last_seq FROM outbox_inbox_key ORDER BY 2;

-- From day to day: known for the ttl at least, until the end of a day (UTC)
CREATE FUNCTION on_day(consumer text, n integer, ttl interval, days integer, of_day interval DEFAULT '12 hours') RETURNS boolean LANGUAGE sql
RETURN outbox_inbox_internal.outbox_inbox_accept_at(consumer, ('00000000-0000-0000-0002-' || to_char(n, 'FM000000000000'))::uuid, ttl,
	(date_trunc('day', now() AT TIME ZONE 'UTC') + days * interval '1 day' + of_day) AT TIME ZONE 'UTC');
SELECT on_day('mail', 1, '1 hour', 1, '23:59:59.999999') AS first;
SELECT on_day('mail', 1, '1 hour', 2, '00:00:00') AS midnight;
SELECT on_day('mail', 1, '1 hour', 2, '00:59:59.999999') AS at_the_edge;
SELECT on_day('mail', 1, '1 hour', 2, '01:00:00') AS after_it;
SELECT on_day('mail', 1, '1 hour', 2, '01:00:00') AS again;
SELECT on_day('mail', 2, NULL, 3, '00:00:00') AS first;
SELECT n, on_day('mail', 2, NULL, n, '23:59:59.999999') AS accepted FROM generate_series(3, 11) n;
SELECT on_day('mail', 2, NULL, 18, '00:00:00') AS seven_days_and_a_bit, on_day('mail', 2, NULL, 19, '00:00:00') AS eight;
-- The clock is set back: the day is not
SELECT on_day('mail', 2, NULL, 18), on_day('mail', 3, NULL, 18), on_day('mail', 3, NULL, 19);
-- Days go, also when nothing has come for months
SELECT count(DISTINCT day) AS days FROM outbox_inbox;
SELECT count(*) FILTER (WHERE on_day('mail', 4, NULL, 19 + n)) FROM generate_series(1, 80) n;
SELECT count(DISTINCT day) < 10 AS few FROM outbox_inbox;
SELECT on_day('mail', 5, NULL, 400), on_day('mail', 5, NULL, 407), on_day('mail', 5, NULL, 408);
SELECT count(*) FROM outbox_inbox;
-- up to 31 days
SELECT outbox_inbox_set_retention('31 days');
SELECT on_day('mail', 6, NULL, 410, '00:00:00'), on_day('mail', 7, NULL, 410, '23:59:59');
SELECT n FROM generate_series(411, 445) n WHERE on_day('mail', 6, NULL, n, '00:00:00');
SELECT outbox_inbox_set_retention('1 day');
SELECT outbox_inbox_maintain() > 0 AS ok, outbox_inbox_maintain();
SELECT n FROM generate_series(446, 450) n WHERE on_day('mail', 8, NULL, n);
-- Keys without messages are forgotten
UPDATE outbox_inbox_key SET last_at = last_at - interval '2 days' WHERE key <> 'g';
SELECT outbox_inbox_maintain() >= 0 AS ok;
SELECT key FROM outbox_inbox_key;

-- A clock that was ahead: an acceptance looks into each partition once; the repair of doc/consumers.md
SELECT on_day('far', 1, NULL, 2, '00:00:00'), on_day('far', 2, NULL, 1000000);
SET statement_timeout = '5s';
SELECT on_day('far', 3, NULL, 2), on_day('far', 2, NULL, 2), on_day('far', 3, NULL, 2);
RESET statement_timeout;
WITH ahead AS (
	DELETE FROM outbox_inbox USING outbox_inbox_internal.outbox_inbox_day_of(now()) AS today WHERE day > today
	RETURNING message_id, consumer, today)
INSERT INTO outbox_inbox (message_id, consumer, day, slot)
SELECT message_id, consumer, today, today % 35 FROM ahead ON CONFLICT DO NOTHING;
SELECT setval('outbox_inbox_internal.outbox_inbox_day', today) = today AND setval('outbox_inbox_internal.outbox_inbox_settled', today - 1) < today AS ok
FROM outbox_inbox_internal.outbox_inbox_day_of(now()) AS today;
SELECT on_day('far', 2, NULL, 1), on_day('far', 3, NULL, 3);
SELECT max(day) - outbox_inbox_internal.outbox_inbox_day_of(now()) AS days FROM outbox_inbox;

-- One that leaps does not empty what is kept, nor what is older than the day that was on
SELECT outbox_inbox_set_retention('7 days');
TRUNCATE outbox_inbox, outbox_inbox_key;
SELECT count(*) FILTER (WHERE on_day('leap', n, NULL, n)) FROM generate_series(1, 9) n;
SELECT on_day('leap', 10, NULL, 54) AS ahead;
SELECT count(*) FILTER (WHERE on_day('leap', n, NULL, 9)) AS again FROM generate_series(2, 10) n;
TRUNCATE outbox_inbox;
SELECT setval('outbox_inbox_internal.outbox_inbox_day', day) = day AND setval('outbox_inbox_internal.outbox_inbox_settled', day - 1) < day AS ok
FROM outbox_inbox_internal.outbox_inbox_day_of(now() - interval '45 days') AS day;
SELECT on_day('leap', 12, NULL, -45),
	outbox_inbox_internal.outbox_inbox_accept_in_order_at('leap', gen_random_uuid(), 'k', 1, false, NULL, now() - interval '45 days');
SELECT outbox_inbox_maintain() AS emptied;
SELECT on_day('leap', 12, NULL, -45) AS again, count(*) AS keys FROM outbox_inbox_key;
SELECT outbox_inbox_maintain() AS emptied;
SELECT count(*) AS keys FROM outbox_inbox_key;
-- With each retention, and however far apart: none is forgotten, and few are kept
CREATE PROCEDURE walk(retention integer, step integer, fewer integer) LANGUAGE plpgsql AS $$
DECLARE
	today constant integer := outbox_inbox_internal.outbox_inbox_day_of(now());
	days constant integer := 36 * step;
	oldest integer;
	most integer := 0;
	again integer := 0;
BEGIN
	TRUNCATE outbox_inbox;
	PERFORM outbox_inbox_set_retention(retention * interval '1 day'),
		setval('outbox_inbox_internal.outbox_inbox_day', today), setval('outbox_inbox_internal.outbox_inbox_settled', today - 1);
	FOR n IN 0 .. days BY step LOOP
		PERFORM on_day('walk', n, NULL, n);
		COMMIT;		-- with it the locks on what was emptied
		oldest := (greatest(n - retention, 0) + step - 1) / step * step;		-- of those that are kept
		again := again + on_day('walk', oldest, NULL, n)::integer;
		most := greatest(most, (SELECT count(DISTINCT i.day) FROM outbox_inbox i)::integer);
	END LOOP;
	RAISE INFO 'retention % step %: again %, few %', retention, step, again, most < fewer;
END
$$;
CALL walk(7, 1, 11);
CALL walk(31, 1, 35);
CALL walk(7, 2, 11);
CALL walk(7, 30, 11);
DROP PROCEDURE walk;

-- The same without an extension
DROP FUNCTION in_order, on_day;
RESET search_path;
DROP EXTENSION outbox_inbox;
SELECT relname FROM pg_class WHERE relname LIKE 'outbox_inbox%' UNION ALL SELECT proname FROM pg_proc WHERE proname LIKE 'outbox_inbox%';
\getenv abs_srcdir PG_ABS_SRCDIR
\set single_file :abs_srcdir '/inbox/outbox_inbox.sql'
SET search_path = "In % Box";
\set ECHO none
\i :single_file
\set ECHO all
SHOW search_path;
SELECT outbox_inbox_accept('mail', '00000000-0000-0000-0000-000000000001') AS first,
	outbox_inbox_accept('mail', '00000000-0000-0000-0000-000000000001') AS again;
SELECT outbox_inbox_accept_in_order('mail', gen_random_uuid(), 'k', 1);
SELECT count(*) FROM pg_proc p WHERE p.pronamespace = '"In % Box"'::regnamespace
	AND has_function_privilege('regress_inbox_consumer', p.oid, 'EXECUTE');
RESET search_path;

-- The schema's owner renames it, and makes another one of its name with functions and
-- relations of our names in it: none of them is called, and all goes on.
CREATE SCHEMA impostor;
CREATE FUNCTION impostor.runs(name text) RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
	RAISE INFO 'an impostor of % runs as %', name, CASE WHEN usesuper THEN 'superuser' ELSE 'its owner' END
		FROM pg_catalog.pg_user WHERE usename = current_user;
	RETURN true;
END
$$;
-- Of all that the inbox in those two schemas has, with the same arguments, and with such as
-- would fit better.
CREATE FUNCTION impostor.make(schema name, internal name, target name) RETURNS TABLE (functions bigint, relations bigint)
LANGUAGE plpgsql AS $$
DECLARE
	o record;
BEGIN
	functions := 0;
	relations := 0;
	FOR o IN SELECT p.proname, a.arguments FROM pg_proc p,
			LATERAL (VALUES (oidvectortypes(p.proargtypes)), (replace(oidvectortypes(p.proargtypes), 'text', 'varchar')),
				(replace(oidvectortypes(p.proargtypes), 'bigint', 'integer'))) a(arguments)
			WHERE p.pronamespace IN (SELECT n.oid FROM pg_namespace n WHERE n.nspname IN (schema, internal))
			GROUP BY 1, 2 LOOP
		BEGIN
			EXECUTE format('CREATE FUNCTION %I.%I(%s) RETURNS text LANGUAGE plpgsql AS %L', target, o.proname, o.arguments,
				format('BEGIN PERFORM impostor.runs(%L); RETURN NULL; END', o.proname));
			functions := functions + 1;
		EXCEPTION WHEN duplicate_function THEN NULL;
		END;
	END LOOP;
	FOR o IN SELECT DISTINCT c.relname FROM pg_class c
			WHERE c.relkind IN ('r', 'p', 'v', 'S') AND target <> schema
				AND c.relnamespace IN (SELECT n.oid FROM pg_namespace n WHERE n.nspname IN (schema, internal)) LOOP
		EXECUTE format('CREATE VIEW %I.%I AS SELECT impostor.runs(%L), 1::bigint AS last_value', target, o.relname, o.relname);
		relations := relations + 1;
	END LOOP;
	RETURN NEXT;
END
$$;
CREATE PROCEDURE impostor.calls(schema name, internal name) LANGUAGE plpgsql AS $$
DECLARE
	noon constant text := $c$((now() AT TIME ZONE 'UTC')::date + interval '%s days 12 hours') AT TIME ZONE 'UTC'$c$;
	id constant text := $c$'00000000-0000-0000-0003-00000000000%s'::uuid$c$;
	c text;
	answer text;
BEGIN
	FOREACH c IN ARRAY ARRAY[
		format($c$%I.outbox_inbox_accept('c', %s)$c$, schema, format(id, 1)), format($c$%I.outbox_inbox_accept('c', %s)$c$, schema, format(id, 1)),
		format($c$%I.outbox_inbox_accept_in_order('c', %s, 'k', 1)$c$, schema, format(id, 2)),
		format($c$%I.outbox_inbox_accept_in_order('c', %s, 'k', 3, true)$c$, schema, format(id, 3)),
		format($c$%I.outbox_inbox_accept_in_order('c', %s, 'k', 3)$c$, schema, format(id, 3)),
		format($c$%I.outbox_inbox_accept_in_order('c', %s, 'k', 1)$c$, schema, format(id, 4)),
		format($c$%I.outbox_inbox_accept_in_order('c', %s, 'k', 1)$c$, schema, format(id, 2)),
		format($c$%I.outbox_inbox_uuid('order-17')$c$, schema),
		format($c$%I.outbox_inbox_set_retention('9 days')$c$, schema), format($c$%I.outbox_inbox_maintain()$c$, schema),
		format($c$%I.outbox_inbox_accept_at('c', %s, NULL, %s)$c$, internal, format(id, 1), format(noon, 1)),
		format($c$%I.outbox_inbox_accept_at('c', %s, NULL, %s)$c$, internal, format(id, 5), format(noon, 4)),
		format($c$%I.outbox_inbox_accept_at('c', %s, NULL, %s)$c$, internal, format(id, 5), format(noon, 6)),
		format($c$%I.outbox_inbox_accept_at('c', %s, NULL, %s)$c$, internal, format(id, 6), format(noon, 20)),
		format($c$%I.outbox_inbox_maintain()$c$, schema)]
	LOOP
		DISCARD PLANS;
		BEGIN
			EXECUTE 'SELECT ' || c INTO answer;
		EXCEPTION WHEN OTHERS THEN
			answer := SQLSTATE || ' ' || SQLERRM;
		END;
		RAISE INFO '%: %', regexp_replace(c, '^.*(outbox_inbox_\w+).*$', '\1'), answer;
	END LOOP;
END
$$;
CREATE ROLE regress_inbox_evil;
DO $$ BEGIN EXECUTE format('GRANT CREATE ON DATABASE %I TO regress_inbox_evil', current_database()); END $$;
-- the extension of a superuser
CREATE SCHEMA taken AUTHORIZATION regress_inbox_evil;
CREATE EXTENSION outbox_inbox SCHEMA taken;
SELECT * FROM impostor.make('taken', 'outbox_inbox_internal', 'taken');
BEGIN;
CALL impostor.calls('taken', 'outbox_inbox_internal');
ROLLBACK;
SET ROLE regress_inbox_evil;
ALTER SCHEMA taken RENAME TO moved;
CREATE SCHEMA taken;
RESET ROLE;
SELECT * FROM impostor.make('moved', 'outbox_inbox_internal', 'taken');
BEGIN ISOLATION LEVEL REPEATABLE READ;
CALL impostor.calls('moved', 'outbox_inbox_internal');
ROLLBACK;
CALL impostor.calls('moved', 'outbox_inbox_internal');
SELECT p.proname FROM pg_proc p WHERE p.pronamespace IN ('moved'::regnamespace, 'outbox_inbox_internal'::regnamespace)
	AND p.prosqlbody IS NULL AND p.prosrc ~ '\m(taken|moved|impostor)\M' AND p.prosrc !~ 'impostor.runs';
-- dropped with it, as anywhere
DROP SCHEMA taken CASCADE;
DROP SCHEMA moved CASCADE;
SELECT extname FROM pg_extension WHERE extname = 'outbox_inbox' UNION ALL SELECT nspname FROM pg_namespace WHERE nspname ~ 'outbox_inbox';
-- the single file
ALTER SCHEMA "In % Box" OWNER TO regress_inbox_evil;
SET ROLE regress_inbox_evil;
ALTER SCHEMA "In % Box" RENAME TO moved;
CREATE SCHEMA "In % Box";
RESET ROLE;
SELECT * FROM impostor.make('moved', 'In % Box_internal', 'In % Box');
BEGIN ISOLATION LEVEL REPEATABLE READ;
CALL impostor.calls('moved', 'In % Box_internal');
ROLLBACK;
CALL impostor.calls('moved', 'In % Box_internal');
SELECT p.proname FROM pg_proc p WHERE p.pronamespace IN ('moved'::regnamespace, '"In % Box_internal"'::regnamespace)
	AND p.prosqlbody IS NULL AND p.prosrc ~ '"?In % Box"?\.';
DROP SCHEMA "In % Box" CASCADE;
DROP SCHEMA moved, "In % Box_internal" CASCADE;
-- the schema of what only the inbox uses is its own
CREATE SCHEMA outbox_inbox_internal;
CREATE EXTENSION outbox_inbox SCHEMA inbox;
CREATE EXTENSION outbox_inbox SCHEMA outbox_inbox_internal;
DROP SCHEMA outbox_inbox_internal;
SELECT 'inbox_' || repeat('x', 49) AS name \gset
CREATE SCHEMA :name;
SET search_path = :name;
SELECT pg_read_file(:'single_file') AS script \gset
\set ECHO none
:script
\set ECHO all
RESET search_path;
DROP SCHEMA :name;

DROP SCHEMA impostor CASCADE;
DROP SCHEMA inbox CASCADE;
DO $$ BEGIN EXECUTE format('REVOKE CREATE ON DATABASE %I FROM regress_inbox_owner, regress_inbox_evil', current_database()); END $$;
DROP ROLE regress_inbox_consumer, regress_inbox_owner, regress_inbox_evil;
