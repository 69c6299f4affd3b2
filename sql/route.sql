-- Routes: where messages go.
SET client_min_messages = error;
SET search_path = public, outbox_regress;
UPDATE outbox_control SET paused = false;

SELECT * FROM outbox_route \gx

-- What a route may be
\pset format unaligned
\pset tuples_only on
SELECT col, outcome('INSERT INTO outbox_route (name, ' || col || ') VALUES (''r'', ' || value || ')')
FROM (VALUES ('exchange', ''''''), ('exchange', 'repeat(''x'', 255)'),
	('exchange', 'repeat(''x'', 256)'), ('exchange', 'repeat(''é'', 128)'), ('exchange', 'NULL'),
	('exchange_type', '''direct'''), ('exchange_type', '''topic'''),
	('exchange_type', '''fanout'''), ('exchange_type', '''headers'''),
	('exchange_type', '''x-consistent-hash'''), ('exchange_type', '''queue'''),
	('exchange_type', ''''''),
	('routing_key', ''''''), ('routing_key', 'repeat(''x'', 256)'), ('routing_key', 'NULL'),
	('max_attempts', '1'), ('max_attempts', '0'), ('max_attempts', 'NULL'),
	('ordering', '''none'''), ('ordering', '''pipelined'''), ('ordering', '''strict'''), ('ordering', 'NULL'),
	('on_failed', '''block'''), ('on_failed', '''stop'''),
	('archive', '''metadata'''), ('archive', '''none'''), ('archive', '''body'''), ('archive', 'NULL'),
	('paused', 'true'), ('paused', 'NULL'),
	('enqueue_roles', '''{}'''), ('enqueue_roles', '''{no_such_role}''')) v(col, value);
SELECT outcome('INSERT INTO outbox_route (name) VALUES (' || value || ')')
FROM unnest(ARRAY['''''', 'NULL', 'repeat(''x'', 255)', 'repeat(''x'', 256)', '''a b''']) value;
-- the default exchange is nobody's to declare
SELECT outcome($$INSERT INTO outbox_route (name, exchange, exchange_type) VALUES ('r', '', 'direct')$$);

-- Templates
INSERT INTO outbox_route (name, exchange, routing_key) VALUES
	('q', '', 'queue'),
	('t', 'x', '{aggregate_type}.{event_type}.{aggregate_id}'),
	('twice', 'x', '{event_type}{event_type}');
SELECT outcome('INSERT INTO outbox_route (name, routing_key) VALUES (''r'', ' || quote_literal(t) || ')')
FROM unnest(ARRAY['{event_type}', 'a.{aggregate_id}.b', '{event}', '{}', '{', '}', 'a}',
	'{event_type', '{{event_type}}', '{Event_type}', '{ event_type }']) t;
SELECT outcome('UPDATE outbox_route SET routing_key = ''{id}'' WHERE name = ''t''');
-- The key that comes out must fit
SELECT outcome('SELECT outbox_enqueue(' || args || ')') FROM unnest(ARRAY[
	'repeat(''x'', 127), ''{}'', route => ''twice''',
	'repeat(''x'', 128), ''{}'', route => ''twice''',
	'repeat(''é'', 64), ''{}'', route => ''twice''',
	'repeat(''x'', 128), ''{}'', route => ''twice'', routing_key => ''k''',
	'''e'', ''{}'', route => ''t''',
	'''e'', ''{}'', route => ''t'', aggregate_type => repeat(''t'', 100), aggregate_id => repeat(''i'', 152)',
	'''e'', ''{}'', route => ''t'', aggregate_type => repeat(''t'', 100), aggregate_id => repeat(''i'', 153)']) args;
\pset format aligned
\pset tuples_only off

-- A route that messages use stays, with its name
SELECT outbox_enqueue('e', '{}', route => 't') IS NOT NULL AS ok;
SELECT statement, outcome(statement)
FROM unnest(ARRAY['DELETE FROM outbox_route WHERE name = ''t''',
	'UPDATE outbox_route SET name = ''u'' WHERE name = ''t''']) statement;
SELECT outcome('TRUNCATE outbox_route');
TRUNCATE outbox;
UPDATE outbox_route SET name = 'u' WHERE name = 't';
DELETE FROM outbox_route WHERE name = 'u';

-- Changes are seen by a session that has used the route before
SELECT outbox_enqueue('e', '{}', route => 'twice') IS NOT NULL AS ok;
UPDATE outbox_route SET routing_key = repeat('x', 243) || '{event_type}' WHERE name = 'twice';
SELECT split_part(outcome($$SELECT outbox_enqueue('1234567890123', '{}', route => 'twice')$$), E'\n', 1);
TRUNCATE outbox;
DELETE FROM outbox_route WHERE name = 'twice';
SELECT outcome($$SELECT outbox_enqueue('e', '{}', route => 'twice')$$);
INSERT INTO outbox_route (name) VALUES ('twice');
SELECT outcome($$SELECT outbox_enqueue('e', '{}', route => 'twice')$$);
BEGIN;
DELETE FROM outbox_route WHERE name = 'twice';
SELECT outcome($$SELECT outbox_enqueue('e', '{}', route => 'twice')$$);
ROLLBACK;
SELECT outcome($$SELECT outbox_enqueue('e', '{}', route => 'twice')$$);

-- What a migration adds for safety leaves the default route as it is, and who
-- means to change it can
UPDATE outbox_route SET exchange = 'ours', paused = true WHERE name = 'default';
INSERT INTO outbox_route (name) VALUES ('default') ON CONFLICT DO NOTHING;
INSERT INTO outbox_route (name) VALUES ('default') ON CONFLICT (name) DO NOTHING;
INSERT INTO outbox_route (name) VALUES ('default');
\echo :LAST_ERROR_SQLSTATE
SET check_function_bodies = off;
INSERT INTO outbox_route (name) VALUES ('default');
\echo :LAST_ERROR_SQLSTATE
RESET check_function_bodies;
BEGIN;
SELECT set_config('search_path', '', true);
INSERT INTO public.outbox_route (name) VALUES ('default');
\echo :LAST_ERROR_SQLSTATE
ROLLBACK;
SELECT name, exchange, exchange_type, routing_key, max_attempts, ordering, on_failed, paused, enqueue_roles
FROM outbox_route WHERE name = 'default' \gx
INSERT INTO outbox_route (name, exchange_type) VALUES ('default', 'topic')
	ON CONFLICT (name) DO UPDATE SET exchange = EXCLUDED.exchange, paused = EXCLUDED.paused;
SELECT name, exchange, exchange_type, routing_key, max_attempts, ordering, on_failed, paused, enqueue_roles
FROM outbox_route WHERE name = 'default' \gx

-- A restore, which sets these two, replaces the row that CREATE EXTENSION made,
-- and only that one
SET check_function_bodies = off;
SELECT set_config('search_path', '', false);
INSERT INTO public.outbox_route VALUES ('default', 'restored', 'fanout', 'k', 3, 'none', 'block', false, '{regress_outbox_none}');
SELECT name, exchange, exchange_type, routing_key, max_attempts, ordering, on_failed, paused, enqueue_roles
FROM public.outbox_route WHERE name = 'default' \gx
COPY public.outbox_route (name, exchange, exchange_type, routing_key, max_attempts, ordering, on_failed, paused, enqueue_roles) FROM stdin;
default	outbox	topic	{event_type}	10	key	skip	f	\N
\.
\echo :LAST_ERROR_SQLSTATE
UPDATE public.outbox_route SET exchange = 'outbox', exchange_type = 'topic', routing_key = DEFAULT,
	max_attempts = DEFAULT, ordering = DEFAULT, on_failed = DEFAULT, enqueue_roles = NULL
WHERE name = 'default';
INSERT INTO public.outbox_route (name, exchange_type, relay, relay_roles, archive) VALUES ('default', 'topic', 'external', '{regress_outbox_none}', 'metadata');
SELECT relay, relay_roles, archive FROM public.outbox_route WHERE name = 'default';
UPDATE public.outbox_route SET relay = DEFAULT, relay_roles = NULL WHERE name = 'default';
-- but not one whose archive somebody has set
INSERT INTO public.outbox_route (name, exchange, exchange_type) VALUES ('default', 'late', 'topic');
\echo :LAST_ERROR_SQLSTATE
UPDATE public.outbox_route SET archive = DEFAULT WHERE name = 'default';
COPY public.outbox_route (name, exchange, exchange_type, routing_key, max_attempts, ordering, on_failed, paused, enqueue_roles) FROM stdin;
default	copied	topic	{event_type}	10	key	skip	f	\N
other	copied	topic	{event_type}	10	key	skip	f	\N
\.
SELECT name, exchange FROM public.outbox_route ORDER BY name;
RESET check_function_bodies;
SET search_path = public, outbox_regress;
DELETE FROM outbox_route WHERE name = 'other';
UPDATE outbox_route SET exchange = 'outbox' WHERE name = 'default';
BEGIN;
DELETE FROM outbox_route WHERE name = 'default';
SELECT outcome($$SELECT outbox_enqueue('e', '{}')$$);
INSERT INTO outbox_route (name, exchange, exchange_type) VALUES ('default', 'outbox', 'topic');
SELECT outcome($$SELECT outbox_enqueue('e', '{}')$$);
COMMIT;

-- Pause and resume, one route or all
SELECT outbox_pause('q');
SELECT name, paused FROM outbox_route ORDER BY name;
SELECT outbox_resume('q');
SELECT bool_or(paused) FROM outbox_route;
SELECT outcome($$SELECT outbox_pause('nowhere')$$);
SELECT outcome($$SELECT outbox_resume('nowhere')$$);
BEGIN;
SELECT outbox_resume();
SELECT singleton, paused FROM outbox_control;
SELECT outbox_pause(NULL);
SELECT singleton, paused FROM outbox_control;
ROLLBACK;
SELECT singleton, paused FROM outbox_control;
-- one row, always; a restore replaces the one that CREATE EXTENSION made
SELECT outcome('INSERT INTO outbox_control VALUES (' || v || ')')
FROM unnest(ARRAY['true, false, 1, 2', 'true, true, 3, 4) ON CONFLICT DO NOTHING --']) v;
BEGIN;
SET LOCAL check_function_bodies = off;
SELECT set_config('search_path', '', true);
INSERT INTO public.outbox_control VALUES (true, false, 1, 2);
SELECT singleton, paused, system_identifier, database_oid FROM public.outbox_control;
SAVEPOINT once;
INSERT INTO public.outbox_control VALUES (true, false, 1, 2);
\echo :LAST_ERROR_SQLSTATE
ROLLBACK TO once;
INSERT INTO public.outbox_control VALUES (true, false, 3, 4) ON CONFLICT DO NOTHING;
SELECT singleton, paused, system_identifier, database_oid FROM public.outbox_control;
ROLLBACK;
-- (these tests run paused, install.sql, and a pause stays)
BEGIN;
UPDATE outbox_control SET paused = false;
SET LOCAL check_function_bodies = off;
SELECT set_config('search_path', '', true);
INSERT INTO public.outbox_control VALUES (true, false, 1, 2);
SELECT singleton, paused, system_identifier, database_oid FROM public.outbox_control;
ROLLBACK;
SELECT regexp_replace(outcome('UPDATE outbox_control SET singleton = false'), '\(f,.*', '(f, ...') AS outcome;

-- A message that the removing command itself writes counts as well
INSERT INTO outbox_route (name) VALUES ('leaving');
WITH d AS (DELETE FROM outbox_route WHERE name = 'leaving' RETURNING 1)
INSERT INTO outbox (route, event_type, payload) SELECT 'leaving', 'e', '{}' FROM d;
WITH d AS (UPDATE outbox_route SET name = 'left' WHERE name = 'leaving' RETURNING 1)
INSERT INTO outbox (route, event_type, payload) SELECT 'leaving', 'e', '{}' FROM d;
WITH d AS (DELETE FROM outbox_route WHERE name = 'leaving' RETURNING 1)
SELECT outbox_enqueue('e', '{}', route => 'leaving') FROM d;
SELECT count(*) FROM outbox WHERE route = 'leaving';

DELETE FROM outbox_route WHERE name <> 'default';

-- Many routes that go, or get another name, are looked for in the messages at once
INSERT INTO outbox_route (name) SELECT 'many ' || i FROM generate_series(1, 20) i;
INSERT INTO outbox (route, event_type, payload) SELECT 'many 7', 'e', '{}';
SELECT statement, outcome(statement)
FROM unnest(ARRAY['DELETE FROM outbox_route WHERE name LIKE ''many %''',
	'UPDATE outbox_route SET name = ''more '' || name WHERE name LIKE ''many %''']) statement;
TRUNCATE outbox;
CREATE FUNCTION scans(statement text) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
	relations constant oid[] := ARRAY(SELECT indexrelid FROM pg_index WHERE indrelid = 'outbox'::regclass) || 'outbox'::regclass::oid;
	before constant bigint := (SELECT sum(pg_stat_get_xact_numscans(r)) FROM unnest(relations) r);
BEGIN
	EXECUTE statement;
	RETURN (SELECT sum(pg_stat_get_xact_numscans(r)) FROM unnest(relations) r) - before;
END
$$;
SELECT scans($$UPDATE outbox_route SET name = 'more ' || name WHERE name LIKE 'many %'$$) AS renamed;
SELECT scans($$UPDATE outbox_route SET max_attempts = 3 WHERE name LIKE 'more %'$$) AS changed;
SELECT scans($$DELETE FROM outbox_route WHERE name LIKE 'more %'$$) AS deleted;
DROP FUNCTION scans(text);

-- Two UPDATEs of one query share a firing of the trigger: both are looked at
BEGIN;
INSERT INTO outbox_route (name) VALUES ('in use');
SELECT outbox_enqueue('e', '1', route => 'in use') IS NOT NULL AS ok;
WITH renamed AS (UPDATE outbox_route SET name = 'other' WHERE name = 'in use' RETURNING 1)
UPDATE outbox_route SET max_attempts = 5 WHERE name = 'default' AND (SELECT count(*) FROM renamed) = 1;
ROLLBACK;

-- A role in enqueue_roles or relay_roles is meant by its name and its OID
CREATE ROLE regress_outbox_meant;
GRANT EXECUTE ON FUNCTION outbox_enqueue, outbox_claim TO regress_outbox_meant;
INSERT INTO outbox_route (name, relay, enqueue_roles, relay_roles, enqueue_role_oids)
VALUES ('meant', 'external', '{regress_outbox_meant}', '{regress_outbox_meant}', '{10}');
SELECT enqueue_role_oids = relay_role_oids AND enqueue_role_oids[1]::regrole = 'regress_outbox_meant'::regrole FROM outbox_route WHERE name = 'meant';
ALTER ROLE regress_outbox_meant RENAME TO regress_outbox_renamed;
CREATE ROLE regress_outbox_meant;
GRANT EXECUTE ON FUNCTION outbox_enqueue, outbox_claim TO regress_outbox_meant;
UPDATE outbox_route SET enqueue_role_oids = ARRAY['regress_outbox_meant'::regrole::oid], max_attempts = 3 WHERE name = 'meant';
SELECT problem, subject, detail, command FROM outbox_problems WHERE subject = 'route "meant"' ORDER BY detail;
SET ROLE regress_outbox_meant;
SELECT outcome($$SELECT outbox_enqueue('e', '{}', route => 'meant')$$), outcome($$SELECT outbox_claim('meant')$$);
SET ROLE regress_outbox_renamed;
SELECT outcome($$SELECT outbox_enqueue('e', '{}', route => 'meant')$$), outcome($$SELECT outbox_claim('meant')$$);
RESET ROLE;
UPDATE outbox_route SET enqueue_roles = enqueue_roles, relay_roles = relay_roles WHERE name = 'meant';
SELECT problem FROM outbox_problems WHERE subject = 'route "meant"';
SET ROLE regress_outbox_meant;
SELECT outcome($$SELECT outbox_enqueue('e', '{}', route => 'meant')$$), outcome($$SELECT outbox_claim('meant')$$);
RESET ROLE;
DELETE FROM outbox_route WHERE name = 'meant';
DROP OWNED BY regress_outbox_meant, regress_outbox_renamed;
DROP ROLE regress_outbox_meant, regress_outbox_renamed;

-- What is allowed is said also where triggers do not fire
SET session_replication_role = replica;
INSERT INTO outbox_route (name, routing_key) VALUES ('r', '{payload}');
INSERT INTO outbox_route (name, format) VALUES ('r', 'avro');
INSERT INTO outbox_route (name, relay, failed_route) VALUES ('r', 'cdc', 'default');
INSERT INTO outbox_route (name, relay) VALUES ('r', 'else');
INSERT INTO outbox_route (name, ordering) VALUES ('r', 'fifo');
INSERT INTO outbox_route (name, ordering) VALUES ('r', NULL);
RESET session_replication_role;
