-- Where a message goes that is given up: what failed_route may be.
SET client_min_messages = error;
SET search_path = public, outbox_regress;
\set SHOW_CONTEXT never
\pset format unaligned
\pset tuples_only on

-- One statement may make a chain, in any order; and take it away
INSERT INTO outbox_route (name, failed_route) VALUES ('a', 'b'), ('b', 'c'), ('c', NULL);
SELECT name, failed_route FROM outbox_route WHERE name <> 'default' ORDER BY name;

-- It names a route, and a chain has an end
SELECT statement || ': ' || outcome(statement) FROM unnest(ARRAY[
	$$INSERT INTO outbox_route (name, failed_route) VALUES ('d', 'd')$$,
	$$INSERT INTO outbox_route (name, failed_route) VALUES ('d', 'nowhere')$$,
	$$INSERT INTO outbox_route (name, failed_route) VALUES ('d', '')$$,
	$$INSERT INTO outbox_route (name, failed_route) VALUES ('d', 'a')$$,
	$$INSERT INTO outbox_route (name, failed_route) VALUES ('x', 'y'), ('y', 'x')$$,
	$$UPDATE outbox_route SET failed_route = 'c' WHERE name = 'c'$$,
	$$UPDATE outbox_route SET failed_route = 'a' WHERE name = 'c'$$,
	$$UPDATE outbox_route SET failed_route = 'b' WHERE name = 'c'$$,
	$$UPDATE outbox_route SET failed_route = 'default' WHERE name = 'c'$$,
	$$UPDATE outbox_route SET failed_route = CASE name WHEN 'a' THEN NULL ELSE 'a' END WHERE name IN ('a', 'c')$$,
	$$UPDATE outbox_route SET failed_route = NULL$$]) statement;

-- A route that others lead to stays, with its name
SELECT statement || ': ' || outcome(statement) FROM unnest(ARRAY[
	$$DELETE FROM outbox_route WHERE name = 'c'$$,
	$$UPDATE outbox_route SET name = 'd' WHERE name = 'b'$$,
	$$UPDATE outbox_route SET name = 'd' WHERE name = 'a'$$,
	$$UPDATE outbox_route SET name = 'b', failed_route = 'b' WHERE name = 'a'$$,
	$$DELETE FROM outbox_route WHERE name IN ('a', 'b', 'c')$$]) statement;

-- With a snapshot that is older than what others have committed, too
BEGIN ISOLATION LEVEL REPEATABLE READ;
SELECT count(*) FROM outbox_route WHERE failed_route IS NOT NULL;
SELECT outcome($$UPDATE outbox_route SET failed_route = 'a' WHERE name = 'b'$$);
ROLLBACK;

-- A role without the owner's rights restores nothing, whatever it sets
CREATE ROLE regress_outbox_router;
GRANT SELECT, INSERT, UPDATE ON outbox_route TO regress_outbox_router;
BEGIN;
SET LOCAL check_function_bodies = off;
SELECT set_config('search_path', '', true);
SAVEPOINT router;
SET LOCAL ROLE regress_outbox_router;
UPDATE public.outbox_route SET failed_route = 'a' WHERE name = 'c';
ROLLBACK TO router;
SET LOCAL ROLE regress_outbox_router;
INSERT INTO public.outbox_route (name, enqueue_roles) VALUES ('d', '{regress_outbox_none}');
ROLLBACK;
DROP OWNED BY regress_outbox_router;
DROP ROLE regress_outbox_router;

-- A restore brings routes one by one
BEGIN;
SET LOCAL check_function_bodies = off;
SELECT set_config('search_path', '', true);
INSERT INTO public.outbox_route (name, failed_route) VALUES ('r', 'later');
INSERT INTO public.outbox_route (name) VALUES ('later');
UPDATE public.outbox_route SET exchange_type = 'topic' WHERE name = 'default';
INSERT INTO public.outbox_route (name, exchange, failed_route) VALUES ('default', 'restored', 'later');
SELECT name, exchange, failed_route FROM public.outbox_route WHERE name IN ('r', 'default') ORDER BY name;
ROLLBACK;

DELETE FROM outbox_route WHERE name <> 'default';
SELECT name, failed_route IS NULL FROM outbox_route;
