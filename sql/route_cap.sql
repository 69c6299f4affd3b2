-- outbox_route.max_pending: how many messages a route may have.
-- Who else's messages count: test/isolation/specs/route-cap.spec.
SET client_min_messages = error;
SET search_path = public, outbox_regress;
\pset format unaligned
\pset tuples_only on
TRUNCATE outbox;
SELECT outcome('INSERT INTO outbox_route (name, max_pending) VALUES (''r'', ' || v || ')')
FROM unnest(ARRAY['1', '2147483647', '0', '-1', 'NULL']) v;
INSERT INTO outbox_route (name, max_pending) VALUES ('tenant', 3), ('mate', 3);
INSERT INTO outbox_route (name) VALUES ('free');

-- A route that was full is looked at again after a moment
CREATE FUNCTION outbox_regress.wait_room(route text DEFAULT 'tenant') RETURNS text LANGUAGE plpgsql AS $$
BEGIN
	FOR i IN 1 .. 6000 LOOP
		IF NOT outbox_internal.outbox_route_is_full(route, (SELECT max_pending FROM outbox_route WHERE name = route)) THEN
			RETURN 'room';
		END IF;
		PERFORM pg_sleep(0.01);
	END LOOP;
	RETURN 'full';
END
$$;
CREATE FUNCTION outbox_regress.fill(n int, route text DEFAULT 'tenant') RETURNS bigint LANGUAGE sql AS
	$$SELECT count(outbox_enqueue('e', '{}', route => route)) FROM generate_series(1, n)$$;
CREATE VIEW outbox_regress.by_route AS
	SELECT route, count(*), count(counted) AS counted FROM outbox GROUP BY route ORDER BY route;

-- As many as it may have, by every way
SELECT fill(3), fill(5, 'free');
CREATE TABLE outbox_regress.orders (id int PRIMARY KEY);
CREATE TRIGGER c AFTER INSERT ON outbox_regress.orders
	FOR EACH ROW EXECUTE FUNCTION outbox_capture('event=order', 'route=tenant');
SELECT outcome($$SELECT outbox_enqueue('e', '{}', route => 'tenant')$$);
SELECT split_part(outcome(statement), E'\n', 1) FROM unnest(ARRAY[
	$$SELECT outbox_enqueue_bytes('e', '\x00', route => 'tenant')$$,
	$$SELECT outbox_enqueue_text('e', '{}', route => 'tenant')$$,
	$$SELECT outbox_enqueue_batch('[{"event_type": "e", "payload": 1, "route": "free"}, {"event_type": "e", "payload": 1, "route": "tenant"}]')$$,
	$$SELECT outbox_enqueue_once('k', 'e', '{}', route => 'tenant')$$,
	$$INSERT INTO outbox (event_type, payload, route) VALUES ('e', '{}', 'tenant')$$,
	$$INSERT INTO outbox (event_type, payload, route, counted) VALUES ('e', '{}', 'tenant', false)$$,
	$$INSERT INTO outbox_new (event_type, payload, route) VALUES ('e', '{}', 'tenant')$$,
	$$INSERT INTO outbox_regress.orders VALUES (1)$$,
	$$SELECT outbox_enqueue('e', '{}', route => 'free')$$,
	$$SELECT outbox_enqueue('e', '{}', route => 'mate')$$]) statement;
\set VERBOSITY sqlstate
COPY outbox (event_type, payload, route) FROM stdin;
e	{}	tenant
\.
\set VERBOSITY default
SELECT * FROM by_route;
SELECT outbox_enqueue_once('k', 'e', '{}', route => 'mate') IS NOT NULL;

-- Is it seen?
SELECT route, max_pending FROM outbox_routes_status ORDER BY route;
SELECT severity, problem, subject, since, detail, hint, command FROM outbox_problems WHERE problem = 'route full';

-- What has failed counts, and what is scheduled; what is gone does not
UPDATE outbox SET status = 'failed' WHERE seq = (SELECT min(seq) FROM outbox WHERE route = 'tenant');
UPDATE outbox SET available_at = '2100-01-01' WHERE seq = (SELECT max(seq) FROM outbox WHERE route = 'tenant');
SELECT outbox_internal.outbox_route_is_full('tenant', 3) IS NOT FALSE;
SELECT split_part(outcome($$SELECT fill(1)$$), E'\n', 1);
DELETE FROM outbox WHERE route = 'tenant' AND status = 'failed';
SELECT wait_room(), fill(1);
SELECT count(*) FROM outbox_problems WHERE problem = 'route full';
SELECT split_part(outcome($$SELECT fill(1)$$), E'\n', 1);

-- What is rolled back gives its place back, also to the same transaction
DELETE FROM outbox WHERE route = 'tenant';
SELECT wait_room();
BEGIN;
SELECT fill(3);
ROLLBACK;
BEGIN;
SAVEPOINT s;
SELECT fill(3);
ROLLBACK TO s;
SELECT fill(3);
SAVEPOINT t;
SELECT split_part(outcome($$SELECT fill(1)$$), E'\n', 1);
DELETE FROM outbox WHERE route = 'tenant';
SELECT wait_room(), fill(3);
COMMIT;
SELECT outcome($$SELECT fill(1)$$) LIKE '53400%';
SELECT * FROM by_route WHERE route = 'tenant';
-- a batch, or a transaction, that does not fit is not stored at all
DELETE FROM outbox WHERE route = 'tenant';
SELECT wait_room(), outcome('SELECT fill(4)') LIKE '53400%';
SELECT wait_room(), fill(3);

-- The limit changes: what was stored without one does not count, and goes on
UPDATE outbox_route SET max_pending = 5 WHERE name = 'tenant';
SELECT fill(2), outcome('SELECT fill(1)') LIKE '53400%';
UPDATE outbox_route SET max_pending = 2 WHERE name = 'tenant';
SELECT outcome('SELECT fill(1)') LIKE '53400%';
UPDATE outbox_route SET max_pending = NULL WHERE name = 'tenant';
SELECT fill(1);
UPDATE outbox_route SET max_pending = 2 WHERE name = 'free';
SELECT fill(2, 'free'), outcome($$SELECT fill(1, 'free')$$) LIKE '53400%';
SELECT * FROM by_route;

-- A limit that cannot be kept is none that is forgotten
BEGIN;
DROP INDEX outbox_counted;
UPDATE outbox_route SET max_pending = 7 WHERE name = 'tenant';
SELECT outcome('SELECT fill(1)');
UPDATE outbox_route SET max_pending = NULL WHERE name = 'tenant';
SELECT fill(1);
ROLLBACK;
BEGIN;
DROP INDEX outbox_counted;
CREATE INDEX outbox_counted ON outbox (route) WHERE counted;
UPDATE outbox_route SET max_pending = 9 WHERE name = 'free';
SELECT outbox_internal.outbox_route_is_full('free', 9), count(*) >= 0 FROM outbox_problems;
SELECT split_part(outcome($$SELECT fill(1, 'free')$$), E'\n', 1);
ROLLBACK;

DROP TABLE outbox_regress.orders;
DROP VIEW outbox_regress.by_route;
DROP FUNCTION outbox_regress.wait_room, outbox_regress.fill;
TRUNCATE outbox, outbox_internal.outbox_once;
DELETE FROM outbox_route WHERE name IN ('tenant', 'mate', 'free');
