-- Whose rights outbox_capture() has: those of the table's owner, and no others.
SET client_min_messages = error;
SELECT outbox_version() IS NOT NULL AS loaded;
CREATE ROLE regress_outbox_owner;
CREATE ROLE regress_outbox_writer;
CREATE ROLE regress_outbox_author;
CREATE SCHEMA regress_own AUTHORIZATION regress_outbox_owner;
CREATE SCHEMA regress_types AUTHORIZATION regress_outbox_author;
GRANT USAGE ON SCHEMA regress_own, regress_types, outbox_regress TO PUBLIC;
SET search_path = regress_own, public, outbox_regress;
INSERT INTO outbox_route (name, enqueue_roles) VALUES ('closed', '{}'), ('writers', '{regress_outbox_writer}'),
	('owners', '{regress_outbox_owner}');
\pset format unaligned
\pset tuples_only on

-- Without EXECUTE there is no trigger
SET ROLE regress_outbox_owner;
CREATE TABLE orders (id integer PRIMARY KEY, v text);
GRANT INSERT, UPDATE, DELETE ON orders TO regress_outbox_writer;
SELECT outcome('CREATE TRIGGER e AFTER INSERT ON orders FOR EACH ROW EXECUTE FUNCTION outbox_capture()');
RESET ROLE;
GRANT EXECUTE ON FUNCTION outbox_capture TO regress_outbox_owner;
SET ROLE regress_outbox_owner;
CREATE TRIGGER e AFTER INSERT ON orders FOR EACH ROW EXECUTE FUNCTION outbox_capture('route=owners');
RESET ROLE;

-- Who writes needs nothing more, and has nothing more
SET ROLE regress_outbox_writer;
INSERT INTO orders VALUES (1, 'by the writer');
SELECT outcome(statement) FROM unnest(ARRAY[$$SELECT outbox_enqueue('e', '{}')$$,
	'SELECT * FROM outbox', 'SELECT outbox_capture()',
	'CREATE TRIGGER w AFTER INSERT ON orders FOR EACH ROW EXECUTE FUNCTION outbox_capture()']) statement;
-- neither to be silent by what a restore sets
SET check_function_bodies = off;
SELECT set_config('search_path', '', false);
INSERT INTO regress_own.orders VALUES (5, 'no restore');
RESET check_function_bodies;
SET search_path = regress_own, public, outbox_regress;
RESET ROLE;
INSERT INTO orders VALUES (2, 'by a superuser');
SELECT route, event_type, payload FROM outbox ORDER BY seq;
DELETE FROM outbox;

-- A route that the owner may not use, whoever writes, and whatever he may
SET ROLE regress_outbox_owner;
CREATE OR REPLACE TRIGGER e AFTER INSERT ON orders FOR EACH ROW EXECUTE FUNCTION outbox_capture('route=writers');
SELECT outcome('INSERT INTO orders VALUES (3)');
SET ROLE regress_outbox_writer;
INSERT INTO orders VALUES (3);
RESET ROLE;
INSERT INTO orders VALUES (3);
SET ROLE regress_outbox_owner;
CREATE OR REPLACE TRIGGER e AFTER INSERT ON orders FOR EACH ROW EXECUTE FUNCTION outbox_capture('route=closed');
RESET ROLE;
SELECT outcome('INSERT INTO orders VALUES (3)');
SET ROLE regress_outbox_owner;
CREATE OR REPLACE TRIGGER e AFTER INSERT ON orders FOR EACH ROW EXECUTE FUNCTION outbox_capture();
-- What is revoked ends, and comes with no change of the owner
RESET ROLE;
REVOKE EXECUTE ON FUNCTION outbox_capture FROM regress_outbox_owner;
SELECT outcome('INSERT INTO orders VALUES (3)');
GRANT EXECUTE ON FUNCTION outbox_capture TO regress_outbox_owner;
ALTER TABLE orders OWNER TO regress_outbox_author;
SELECT outcome('INSERT INTO orders VALUES (3)');
ALTER TABLE orders OWNER TO regress_outbox_owner;
INSERT INTO orders VALUES (3);
DELETE FROM outbox;
-- Whoever may create triggers on somebody's table, publishes it as him
GRANT TRIGGER ON orders TO regress_outbox_author;
GRANT EXECUTE ON FUNCTION outbox_capture TO regress_outbox_author;
SET ROLE regress_outbox_author;
CREATE TRIGGER f AFTER INSERT ON orders FOR EACH ROW EXECUTE FUNCTION outbox_capture('route=owners');
RESET ROLE;
INSERT INTO orders VALUES (4);
SELECT route FROM outbox ORDER BY 1;
DELETE FROM outbox;
DROP TRIGGER f ON orders;
-- A partition of another owner's is judged as the table that has the trigger
SET ROLE regress_outbox_owner;
CREATE TABLE parts (id integer PRIMARY KEY) PARTITION BY RANGE (id);
CREATE TABLE part PARTITION OF parts DEFAULT;
CREATE TRIGGER e AFTER INSERT ON parts FOR EACH ROW EXECUTE FUNCTION outbox_capture('route=owners');
RESET ROLE;
ALTER TABLE part OWNER TO regress_outbox_writer;
SET ROLE regress_outbox_writer;
INSERT INTO part VALUES (1);
RESET ROLE;
SELECT route, event_type FROM outbox;
DELETE FROM outbox;

-- A cast to json is code of a type's author: it runs as the owner of the table, who
-- has chosen the type, and not as who writes, nor as the owner of outbox
SET ROLE regress_outbox_author;
CREATE TYPE regress_types.evil AS ENUM ('x', 'y');
CREATE FUNCTION regress_types.to_json(regress_types.evil) RETURNS json LANGUAGE plpgsql AS $$
DECLARE
	found json := json_build_object('user', current_user, 'path', current_setting('search_path'));
	trial text;
	state text;
BEGIN
	FOREACH trial IN ARRAY ARRAY['RESET ROLE', 'SET SESSION AUTHORIZATION DEFAULT',
		'CREATE TEMP TABLE t ()', 'SELECT * FROM public.outbox', 'SELECT * FROM mine', 'TRUNCATE mine',
		'INSERT INTO public.outbox (event_type, payload, route) VALUES (''e'', ''{}'', ''closed'')',
		'SELECT public.outbox_enqueue(''e'', ''{}'')', 'SET LOCAL outbox.as_owner = off; SELECT * FROM mine'] LOOP
		BEGIN
			EXECUTE trial;
			state := 'done';
		EXCEPTION WHEN OTHERS THEN
			state := sqlstate;
		END;
		found := found::jsonb || jsonb_build_object(trial, state);
	END LOOP;
	RETURN found;
END
$$;
CREATE CAST (regress_types.evil AS json) WITH FUNCTION regress_types.to_json;
GRANT USAGE ON TYPE regress_types.evil TO PUBLIC;
SET ROLE regress_outbox_owner;
CREATE TABLE trap (id integer PRIMARY KEY, v regress_types.evil, a regress_types.evil[]);
GRANT INSERT ON trap TO regress_outbox_writer;
CREATE TRIGGER e AFTER INSERT ON trap FOR EACH ROW EXECUTE FUNCTION outbox_capture();
CREATE TRIGGER s AFTER INSERT ON trap REFERENCING NEW TABLE AS n
	FOR EACH STATEMENT EXECUTE FUNCTION outbox_capture('event=statement', 'columns=v');
SET ROLE regress_outbox_writer;
CREATE TEMP TABLE mine (x integer);
INSERT INTO trap VALUES (1, 'x', '{y}');
SELECT current_user, current_setting('outbox.as_owner') AS as_owner;
RESET ROLE;
SELECT event_type, jsonb_pretty(payload) FROM outbox ORDER BY seq;
DELETE FROM outbox;
-- also when it fails
SET ROLE regress_outbox_author;
CREATE OR REPLACE FUNCTION regress_types.to_json(regress_types.evil) RETURNS json LANGUAGE plpgsql AS $$
BEGIN
	RAISE EXCEPTION 'no';
END
$$;
SET timezone = 'Asia/Tokyo';
SET ROLE regress_outbox_writer;
DO $$
BEGIN
	INSERT INTO trap VALUES (2, 'x');
EXCEPTION WHEN raise_exception THEN
	NULL;
END
$$;
SELECT current_user, current_setting('outbox.as_owner'), current_setting('timezone');
RESET ROLE;
RESET timezone;
DROP TABLE mine;

-- The owner of a table with triggers cannot name outbox's own tables
SELECT outcome('CREATE TRIGGER e AFTER INSERT ON outbox_route FOR EACH ROW EXECUTE FUNCTION outbox_capture()');
SELECT count(*) FROM outbox;

DROP OWNED BY regress_outbox_owner, regress_outbox_writer, regress_outbox_author CASCADE;
DROP ROLE regress_outbox_owner, regress_outbox_writer, regress_outbox_author;
DELETE FROM outbox_route WHERE name <> 'default';
RESET search_path;
