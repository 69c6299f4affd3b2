-- outbox_capture(): changes of a table as messages.
SET client_min_messages = error;
SELECT outbox_version() IS NOT NULL AS loaded;
CREATE SCHEMA regress_shop;
SET search_path = regress_shop, public, outbox_regress;
\pset format unaligned
\pset tuples_only on

-- What was enqueued since the last look
CREATE FUNCTION taken() RETURNS TABLE (event_type text, aggregate_type text, aggregate_id text, payload jsonb)
LANGUAGE sql AS $$
	WITH gone AS (DELETE FROM outbox RETURNING *)
	SELECT event_type, aggregate_type, aggregate_id, payload FROM gone ORDER BY seq
$$;

-- Nothing but the defaults: names of the table, its primary key, the whole row
CREATE TABLE orders (id integer PRIMARY KEY, status text, amount numeric(10, 2));
CREATE TRIGGER events AFTER INSERT OR UPDATE OR DELETE ON orders
	FOR EACH ROW EXECUTE FUNCTION outbox_capture();
CREATE TRIGGER truncated AFTER TRUNCATE ON orders
	FOR EACH STATEMENT EXECUTE FUNCTION outbox_capture();
INSERT INTO orders VALUES (1, 'new', 1.5), (2, 'new', NULL);
UPDATE orders SET status = 'paid' WHERE id = 1;
DELETE FROM orders WHERE id = 2;
SELECT * FROM taken();
-- an update of nothing; of the key, which is a row gone and a row new
UPDATE orders SET status = 'paid';
SELECT * FROM taken();
UPDATE orders SET id = 10;
TRUNCATE orders;
SELECT * FROM taken();

-- Only what its transaction commits; COPY, upsert and MERGE
BEGIN;
INSERT INTO orders VALUES (1, 'lost', 0);
ROLLBACK;
COPY orders FROM STDIN;
1	copied	1
2	copied	2
\.
INSERT INTO orders VALUES (1, 'upserted', 3), (3, 'upserted', 3)
	ON CONFLICT (id) DO UPDATE SET status = excluded.status;
INSERT INTO orders VALUES (1, 'ignored', 3) ON CONFLICT DO NOTHING;
MERGE INTO orders o USING (VALUES (1), (2), (4)) v(id) ON v.id = o.id
	WHEN MATCHED AND o.id = 2 THEN DELETE
	WHEN MATCHED THEN UPDATE SET status = 'merged'
	WHEN NOT MATCHED THEN INSERT VALUES (v.id, 'merged', 0);
SELECT * FROM taken();
-- no trigger fires for who replicates or restores with it
SET session_replication_role = replica;
UPDATE orders SET status = 'replicated';
RESET session_replication_role;
SELECT * FROM taken();
-- one that always fires makes messages like any others; so does a function
INSERT INTO outbox_route (name, sequence) VALUES ('numbered', 'key');
INSERT INTO outbox_route (name, relay) VALUES ('leased', 'external');
CREATE TABLE followed (id int PRIMARY KEY, v text);
CREATE TRIGGER numbered AFTER UPDATE ON followed FOR EACH ROW EXECUTE FUNCTION outbox_capture('route=numbered');
CREATE TRIGGER leased AFTER UPDATE ON followed REFERENCING OLD TABLE AS o NEW TABLE AS n
	FOR EACH STATEMENT EXECUTE FUNCTION outbox_capture('route=leased');
ALTER TABLE followed ENABLE ALWAYS TRIGGER numbered;
ALTER TABLE followed ENABLE REPLICA TRIGGER leased;
INSERT INTO followed VALUES (1, 'first');
UPDATE followed SET v = 'local';
SET session_replication_role = replica;
UPDATE followed SET v = 'applied';
SELECT outbox_enqueue('e', '{}', 'followed', '1', route => 'numbered') IS NOT NULL;
SELECT count(*) FROM outbox_enqueue_batch('[{"event_type": "batch", "payload": {}, "aggregate_type": "followed", "aggregate_id": 1, "route": "numbered"}]');
SELECT outbox_enqueue_once('once', 'e', '{}', 'followed', '1', route => 'numbered') IS NOT NULL;
SELECT outbox_enqueue('e', NULL);
UPDATE outbox SET status = 'failed' WHERE event_type = 'batch';
SELECT outbox_edit(id, route => 'leased') FROM outbox WHERE event_type = 'batch';
SHOW session_replication_role;
RESET session_replication_role;
SELECT event_type, route, outlet, payload->>'v' AS v, headers->>'x-outbox-key-seq' AS key_seq FROM outbox ORDER BY seq;
TRUNCATE outbox, outbox_key_number;
DELETE FROM outbox_route WHERE name <> 'default';
DROP TABLE followed;
-- the trigger's own condition
DROP TRIGGER events ON orders;
CREATE TRIGGER events AFTER UPDATE OF status ON orders
	FOR EACH ROW WHEN (OLD.status IS DISTINCT FROM NEW.status AND NEW.status = 'paid')
	EXECUTE FUNCTION outbox_capture('event_type=order.paid', 'aggregate_type=order',
		'columns=id,amount', 'unchanged=emit');
UPDATE orders SET status = 'shipped' WHERE id = 1;
UPDATE orders SET status = 'paid' WHERE id = 1;
UPDATE orders SET amount = 4 WHERE id = 1;
SELECT * FROM taken();
DROP TRIGGER events ON orders;

-- Arguments: each payload, for each operation
INSERT INTO outbox_route (name) VALUES ('shop');
TRUNCATE orders;
CREATE TABLE payloads (payload text);
DO $$
DECLARE
	kind text;
BEGIN
	FOREACH kind IN ARRAY ARRAY['row', 'changed', 'both', 'diff'] LOOP
		EXECUTE format('CREATE TRIGGER %I AFTER INSERT OR UPDATE OR DELETE ON orders
			FOR EACH ROW EXECUTE FUNCTION outbox_capture(%L, %L, %L, %L, %L)', kind,
			'payload=' || kind, 'event=' || kind, 'route=shop', 'routing_key={schema}.{table}.{op}',
			'headers=op, schema,table,txid');
	END LOOP;
END
$$;
INSERT INTO orders VALUES (1, 'new', 1);
UPDATE orders SET status = 'paid', amount = 1;
DELETE FROM orders;
SELECT event_type, payload FROM outbox WHERE event_type ~ '\.' ORDER BY event_type COLLATE "C";
SELECT DISTINCT route, routing_key, headers - 'txid' FROM outbox
	WHERE headers IS NOT NULL ORDER BY routing_key;
BEGIN;
INSERT INTO orders VALUES (1);
SELECT count(*) FROM outbox WHERE (headers->>'txid')::xid8 = pg_current_xact_id();
ROLLBACK;
DROP TABLE orders, payloads;
TRUNCATE outbox;
DELETE FROM outbox_route WHERE name = 'shop';

-- columns and except; what is not captured changes nothing
CREATE TABLE people (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, name text,
	password text, "Quoted, it is" text, gone text, seen timestamptz,
	initial text GENERATED ALWAYS AS (left(name, 1)) STORED);
ALTER TABLE people DROP COLUMN gone;
CREATE TRIGGER listed AFTER INSERT OR UPDATE ON people FOR EACH ROW
	EXECUTE FUNCTION outbox_capture('event=listed', 'columns=id, NAME,"Quoted, it is"');
CREATE TRIGGER others AFTER INSERT OR UPDATE ON people FOR EACH ROW
	EXECUTE FUNCTION outbox_capture('event=others', 'except=password,seen', 'payload=changed');
INSERT INTO people (name, password) VALUES ('ann', 'secret');
UPDATE people SET password = 'changed', seen = '2026-01-01';
UPDATE people SET name = 'Ann';
UPDATE people SET "Quoted, it is" = 'q';
SELECT * FROM taken();
-- a column that is renamed is not found any more; one that is new is taken
ALTER TABLE people RENAME name TO full_name;
SELECT outcome('UPDATE people SET seen = now()');
DROP TRIGGER listed ON people;
ALTER TABLE people ADD since integer DEFAULT 7;
UPDATE people SET since = 8;
SELECT * FROM taken();
DROP TABLE people;

-- virtual generated ones (from 18 on) are not there for triggers
DO $$
BEGIN
	EXECUTE 'CREATE TABLE virtuals (id integer PRIMARY KEY' ||
		CASE WHEN current_setting('server_version_num')::integer >= 180000
			THEN ', twice integer GENERATED ALWAYS AS (id * 2) VIRTUAL' ELSE '' END || ')';
END
$$;
CREATE TRIGGER e AFTER INSERT OR UPDATE ON virtuals FOR EACH ROW EXECUTE FUNCTION outbox_capture('payload=both');
INSERT INTO virtuals VALUES (1);
UPDATE virtuals SET id = id;
SELECT * FROM taken();
SELECT outcome('CREATE TRIGGER f AFTER INSERT ON virtuals FOR EACH ROW EXECUTE FUNCTION outbox_capture(''key=twice'')')
	~ '^(0A000|42703) ';
DROP TABLE virtuals;

-- Keys: composite, in the order of the primary key; of any column; none
CREATE TABLE pairs (a text, b integer, c text, PRIMARY KEY (b, a) INCLUDE (c));
CREATE TRIGGER e AFTER INSERT ON pairs FOR EACH ROW EXECUTE FUNCTION outbox_capture('columns=c');
CREATE TRIGGER f AFTER INSERT ON pairs FOR EACH ROW EXECUTE FUNCTION outbox_capture('columns=c', 'key=c,A');
CREATE TRIGGER g AFTER INSERT ON pairs FOR EACH ROW EXECUTE FUNCTION outbox_capture('columns=c', 'key=c');
CREATE TRIGGER h AFTER INSERT ON pairs FOR EACH ROW EXECUTE FUNCTION outbox_capture('columns=c', 'key=');
INSERT INTO pairs VALUES ('x"y, z', 1, NULL), ('', 2, 'c');
SELECT * FROM taken();
SELECT DISTINCT json_build_array(b::text, a)::text FROM pairs ORDER BY 1;
SELECT outcome($$INSERT INTO pairs VALUES ('', 3, '')$$);
DROP TABLE pairs;
CREATE TABLE pairs (a integer PRIMARY KEY DEFERRABLE);
CREATE TRIGGER e AFTER INSERT ON pairs FOR EACH ROW EXECUTE FUNCTION outbox_capture();
INSERT INTO pairs VALUES (1);
SELECT * FROM taken();
DROP TABLE pairs;

-- Types, and the settings of the session that show them
CREATE DOMAIN cents AS integer CHECK (VALUE >= 0);
CREATE TYPE mood AS ENUM ('sad', 'ok');
CREATE TYPE point3 AS (x integer, y cents, moods mood[]);
CREATE TABLE kinds (at timestamptz PRIMARY KEY, d date, i interval, f double precision, n numeric,
	b bytea, a integer[], t text[], r daterange, j json, jb jsonb, m mood, p point3, c cents, ip inet, nothing text);
CREATE TRIGGER e AFTER INSERT OR UPDATE ON kinds FOR EACH ROW EXECUTE FUNCTION outbox_capture();
SET datestyle = 'German'; SET intervalstyle = 'iso_8601'; SET timezone = 'America/New_York';
SET extra_float_digits = -5; SET bytea_output = 'escape';
INSERT INTO kinds VALUES ('2026-03-04 05:06:07+00', '2026-03-04', '1 day 2 hours', 0.1::float8 + 0.2, 'NaN', '\x00ff',
	'{{1,2},{3,NULL}}', '{a,NULL,"b c"}', '[2026-03-04,2026-03-05)', '{"a":  1}', '{"a":  1}', 'ok',
	(1, 2, '{ok,sad}'), 3, '10.0.0.1/8', NULL);
SELECT aggregate_id, jsonb_pretty(payload) FROM taken();
SHOW timezone;
RESET datestyle; RESET intervalstyle; RESET timezone; RESET extra_float_digits; RESET bytea_output;
-- each setting alone
CREATE TABLE shown (id integer PRIMARY KEY, at timestamptz, d date, b bytea, f double precision, i interval, c regclass, v integer);
CREATE TRIGGER r AFTER INSERT OR UPDATE OR DELETE ON shown FOR EACH ROW
	EXECUTE FUNCTION outbox_capture('event=row', 'payload=diff', 'key=at,d,b,f,i,c');
CREATE TRIGGER s AFTER UPDATE ON shown REFERENCING OLD TABLE AS o NEW TABLE AS n FOR EACH STATEMENT
	EXECUTE FUNCTION outbox_capture('event=statement', 'payload=both', 'key=at,d,b,f,i,c');
CREATE FUNCTION alone(name text, value text, OUT setting text, OUT shows boolean, OUT messages jsonb) LANGUAGE plpgsql AS $$
DECLARE
	usual text;
BEGIN
	PERFORM set_config(v.name, v.value, true) FROM (VALUES ('TimeZone', 'UTC'), ('DateStyle', 'ISO, MDY'), ('bytea_output', 'hex'),
		('extra_float_digits', '1'), ('IntervalStyle', 'postgres'), ('quote_all_identifiers', 'off')) v(name, value);
	INSERT INTO shown VALUES (0, '2026-03-04 05:06:07+00', '2026-03-04', '\x00ff', 0.1::float8 + 0.2, '1 day 2 hours', 'shown', 1);
	DELETE FROM outbox;
	SELECT s::text INTO usual FROM shown s;
	PERFORM set_config(alone.name, alone.value, true);
	SELECT s::text <> usual INTO shows FROM shown s;
	INSERT INTO shown SELECT 1, at, d, b, f, i, c, v FROM shown;
	UPDATE shown SET v = 2 WHERE id = 1;
	DELETE FROM shown WHERE id = 1;
	SELECT jsonb_agg(to_jsonb(t)) INTO messages FROM taken() t;
	TRUNCATE shown;
	setting := alone.name || ' = ' || alone.value;
END
$$;
CREATE TABLE alones AS SELECT a.* FROM (VALUES ('TimeZone', 'UTC'), ('TimeZone', 'Asia/Tokyo'), ('DateStyle', 'German'),
	('bytea_output', 'escape'), ('extra_float_digits', '-5'), ('IntervalStyle', 'iso_8601'), ('quote_all_identifiers', 'on')) v(name, value),
	alone(v.name, v.value) a;
SELECT setting, shows, jsonb_array_length(messages), messages = first_value(messages) OVER (ORDER BY shows) AS same FROM alones ORDER BY setting COLLATE "C";
SELECT message->>'event_type', message->>'aggregate_id', message->'payload' FROM alones, jsonb_array_elements(messages) message WHERE NOT shows;
DROP TABLE shown, alones;
DROP FUNCTION alone;
-- a change of the value's bytes is one, equal or not
UPDATE kinds SET n = 'NaN', f = f + 0, t = t || '{}', jb = '{"a": 1}', j = '{"a":  1}';
SELECT * FROM taken();
UPDATE kinds SET n = 1.0;
UPDATE kinds SET n = 1.00;
SELECT payload->'n' FROM taken();
DROP TABLE kinds;

-- Large values, left alone in their place
CREATE TABLE large (id integer PRIMARY KEY, other integer, value text);
ALTER TABLE large ALTER value SET STORAGE EXTERNAL;
CREATE TRIGGER e AFTER INSERT OR UPDATE OR DELETE ON large
	FOR EACH ROW EXECUTE FUNCTION outbox_capture('payload=diff');
INSERT INTO large VALUES (1, 1, repeat('x', 100000));
SELECT length(payload #>> '{new,value}') FROM taken();
UPDATE large SET other = 2;
SELECT payload FROM taken();
UPDATE large SET value = repeat('x', 100000);
SELECT payload FROM taken();
UPDATE large SET value = repeat('y', 100000);
SELECT length(payload #>> '{old,value}'), left(payload #>> '{new,value}', 3) FROM taken();
DELETE FROM large;
SELECT length(payload #>> '{old,value}') FROM taken();
DROP TABLE large;

-- Deferred to the commit, and in a trigger of another table
CREATE TABLE heads (id integer PRIMARY KEY, items integer);
CREATE TABLE items (id integer PRIMARY KEY, head integer);
CREATE CONSTRAINT TRIGGER e AFTER INSERT OR UPDATE ON heads DEFERRABLE INITIALLY DEFERRED
	FOR EACH ROW EXECUTE FUNCTION outbox_capture();
CREATE FUNCTION count_items() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
	UPDATE heads SET items = items + 1 WHERE id = NEW.head;
	RETURN NULL;
END
$$;
CREATE TRIGGER counts AFTER INSERT ON items FOR EACH ROW EXECUTE FUNCTION count_items();
CREATE TRIGGER e AFTER INSERT ON items FOR EACH ROW EXECUTE FUNCTION outbox_capture();
BEGIN;
INSERT INTO heads VALUES (1, 0);
INSERT INTO items VALUES (1, 1), (2, 1);
SELECT * FROM taken();
COMMIT;
SELECT * FROM taken();
DROP TABLE heads, items;
DROP FUNCTION count_items;

-- Partitions: the table that CREATE TRIGGER named, whichever columns have moved
CREATE TABLE log (id integer, day date, note text, PRIMARY KEY (day, id)) PARTITION BY RANGE (day);
CREATE TRIGGER e AFTER INSERT OR UPDATE OR DELETE ON log
	FOR EACH ROW EXECUTE FUNCTION outbox_capture('headers=table');
CREATE TABLE log_1 PARTITION OF log FOR VALUES FROM ('2026-01-01') TO ('2026-02-01');
CREATE TABLE log_2 (dropped integer, note text, id integer NOT NULL, day date NOT NULL);
ALTER TABLE log_2 DROP COLUMN dropped;
ALTER TABLE log ATTACH PARTITION log_2 FOR VALUES FROM ('2026-02-01') TO ('2026-03-01');
INSERT INTO log VALUES (1, '2026-01-01', 'one'), (2, '2026-02-01', 'two');
INSERT INTO log_2 (id, day, note) VALUES (3, '2026-02-02', 'three');
UPDATE log SET day = '2026-02-05' WHERE id = 1;
SELECT * FROM taken();
UPDATE log_2 SET note = 'changed' WHERE id = 2;
SELECT headers, event_type, aggregate_id FROM outbox;
TRUNCATE outbox;
DROP TABLE log;
-- inherited tables have triggers of their own
CREATE TABLE parents (id integer PRIMARY KEY);
CREATE TABLE children (PRIMARY KEY (id), more text) INHERITS (parents);
CREATE TRIGGER e AFTER UPDATE ON parents FOR EACH ROW EXECUTE FUNCTION outbox_capture();
CREATE TRIGGER e AFTER UPDATE ON children FOR EACH ROW EXECUTE FUNCTION outbox_capture('unchanged=emit');
INSERT INTO children VALUES (1, 'more');
UPDATE parents SET id = id;
SELECT * FROM taken();
DROP TABLE parents CASCADE;

-- Bad arguments: refused when the trigger is created
CREATE TABLE plain (id integer, v text);
CREATE VIEW plain_view AS SELECT * FROM plain;
SELECT args, outcome('CREATE TRIGGER e AFTER INSERT ON plain FOR EACH ROW
	EXECUTE FUNCTION outbox_capture(' || args || ')') FROM unnest(ARRAY[
	'', '''id''', '''keys=id''', '''key=nothing''', '''key=id,id''', '''key=id,''', '''key=id;v''', '''key=ID''', '''key="ID"''',
	'''key=id'', ''key=v''', '''key=id'', ''event=''', '''key=id'', ''event={op}''', '''key=id'', ''event_type={column}''',
	'''key=id'', ''event_type={op''', '''key=id'', ''event=a'', ''event_type=b''', '''key=id'', ''columns=id'', ''except=id''',
	'''key=id'', ''columns=''', '''key=id'', ''columns=nothing''', '''key=id'', ''except=nothing''',
	'''key=id'', ''payload=all''', '''key=id'', ''unchanged=no''', '''key=id'', ''headers=op,user''', '''key=id'', ''headers=''',
	'''key=id'', ''routing_key={aggregate_id}''', '''key=id'', ''aggregate_type={op}''', '''key=id'', ''route=''',
	'''key=id'', ''route=nowhere''']) args;
SELECT outcome('CREATE TRIGGER e ' || at || ' EXECUTE FUNCTION outbox_capture(''key=id'')') FROM unnest(ARRAY[
	'BEFORE INSERT ON plain FOR EACH ROW', 'BEFORE DELETE ON plain FOR EACH STATEMENT',
	'INSTEAD OF UPDATE ON plain_view FOR EACH ROW', 'AFTER UPDATE ON plain_view FOR EACH STATEMENT',
	'AFTER INSERT ON plain FOR EACH STATEMENT', 'AFTER UPDATE ON plain REFERENCING NEW TABLE AS n FOR EACH STATEMENT',
	'AFTER DELETE ON outbox FOR EACH ROW', 'AFTER INSERT ON outbox_archive FOR EACH ROW',
	'AFTER INSERT ON outbox_internal.outbox_archive_default FOR EACH ROW', 'AFTER TRUNCATE ON plain FOR EACH STATEMENT']) at;
SELECT outcome('SELECT outbox_capture()');
-- or when they fire
CREATE TRIGGER e AFTER INSERT ON plain FOR EACH ROW EXECUTE FUNCTION outbox_capture('key=id', 'route=nowhere');
SELECT outcome('INSERT INTO plain VALUES (1)');
DROP TRIGGER e ON plain;
SET check_function_bodies = off;
SELECT set_config('search_path', '', false);
CREATE TRIGGER e AFTER INSERT ON regress_shop.plain FOR EACH ROW EXECUTE FUNCTION public.outbox_capture('nothing=1');
CREATE TRIGGER b BEFORE UPDATE ON regress_shop.plain FOR EACH ROW EXECUTE FUNCTION public.outbox_capture();
RESET check_function_bodies;
SET search_path = regress_shop, public, outbox_regress;
SELECT outcome('INSERT INTO plain VALUES (1)');
-- a restore of rows only
DROP TRIGGER e ON plain;
CREATE TRIGGER e AFTER INSERT ON plain FOR EACH ROW EXECUTE FUNCTION outbox_capture('key=id');
SET check_function_bodies = off;
SELECT set_config('search_path', '', false);
INSERT INTO regress_shop.plain VALUES (2);
RESET check_function_bodies;
INSERT INTO regress_shop.plain VALUES (3);
SET search_path = regress_shop, public, outbox_regress;
SELECT * FROM taken();
ALTER TABLE plain DISABLE TRIGGER e;
INSERT INTO plain VALUES (1);
SELECT outcome('UPDATE plain SET v = 1');
DROP TABLE plain CASCADE;

-- A trigger that was all right once is a problem: off, a column or a right gone, arguments that a restore let in
CREATE ROLE regress_outbox_clerk;
GRANT USAGE, CREATE ON SCHEMA regress_shop TO regress_outbox_clerk;
GRANT EXECUTE ON FUNCTION outbox_capture TO regress_outbox_clerk;
INSERT INTO outbox_route (name) VALUES ('soon gone');
CREATE TABLE good (id integer PRIMARY KEY, v text);
CREATE TRIGGER e AFTER INSERT ON good FOR EACH ROW EXECUTE FUNCTION outbox_capture('columns=v', 'headers=txid');
CREATE TABLE off (LIKE good INCLUDING ALL) PARTITION BY LIST (id);
CREATE TABLE off_1 PARTITION OF off DEFAULT;
CREATE TRIGGER e AFTER INSERT ON off FOR EACH ROW EXECUTE FUNCTION outbox_capture();
CREATE TABLE keyless (LIKE good INCLUDING ALL);
CREATE TRIGGER e AFTER INSERT ON keyless FOR EACH ROW EXECUTE FUNCTION outbox_capture();
CREATE TABLE columns (LIKE good INCLUDING ALL);
CREATE TRIGGER e AFTER INSERT ON columns FOR EACH ROW EXECUTE FUNCTION outbox_capture('columns=v');
CREATE TABLE routes (LIKE good INCLUDING ALL);
CREATE TRIGGER e AFTER INSERT ON routes FOR EACH ROW EXECUTE FUNCTION outbox_capture('route=soon gone');
CREATE TABLE rights (LIKE good INCLUDING ALL);
CREATE TRIGGER e AFTER INSERT ON rights FOR EACH ROW EXECUTE FUNCTION outbox_capture();
CREATE TABLE restored (LIKE good INCLUDING ALL);
SELECT count(*) FROM outbox_problems WHERE problem = 'capture broken';
ALTER TABLE off_1 DISABLE TRIGGER e;
ALTER TABLE keyless DROP COLUMN id;
ALTER TABLE columns RENAME v TO renamed;
DELETE FROM outbox_route WHERE name = 'soon gone';
ALTER TABLE rights OWNER TO regress_outbox_clerk;
REVOKE EXECUTE ON FUNCTION outbox_capture FROM regress_outbox_clerk;
SET check_function_bodies = off;
SELECT set_config('search_path', '', false);
CREATE TRIGGER e BEFORE INSERT ON regress_shop.restored FOR EACH ROW EXECUTE FUNCTION public.outbox_capture();
CREATE TRIGGER f AFTER INSERT ON regress_shop.restored FOR EACH ROW EXECUTE FUNCTION public.outbox_capture('nothing=1');
RESET check_function_bodies;
SET search_path = regress_shop, public, outbox_regress;
SELECT severity, subject, detail, hint, command FROM outbox_problems WHERE problem = 'capture broken' ORDER BY subject COLLATE "C";
-- the next row meets the same error
SELECT t, outcome(format('INSERT INTO %I VALUES (7)', t)) FROM unnest('{keyless,columns,routes,rights,restored}'::text[]) t;
-- to ask takes no transaction id, and keeps no lock of the tables
BEGIN;
SELECT count(*) FROM outbox_problems WHERE problem = 'capture broken';
SELECT pg_current_xact_id_if_assigned();
SELECT l.relation::regclass FROM pg_locks l JOIN pg_class c ON c.oid = l.relation
WHERE l.pid = pg_backend_pid() AND c.relnamespace = 'regress_shop'::regnamespace;
-- and of many it has some, the worst first
DO $$
BEGIN
	FOR i IN 1 .. 20 LOOP
		EXECUTE format('CREATE TRIGGER off%s AFTER INSERT ON good FOR EACH ROW EXECUTE FUNCTION outbox_capture()', i);
	END LOOP;
	ALTER TABLE good DISABLE TRIGGER USER;
END
$$;
SELECT severity, count(*) FROM outbox_problems WHERE problem = 'capture broken' GROUP BY 1 ORDER BY 1;
ROLLBACK;
DROP TABLE rights;
DROP OWNED BY regress_outbox_clerk;
DROP ROLE regress_outbox_clerk;

DROP FUNCTION taken;
DROP SCHEMA regress_shop CASCADE;
DELETE FROM outbox_route WHERE name <> 'default';
RESET search_path;
