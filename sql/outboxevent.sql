-- The view outboxevent: what Debezium's own clients write, and nothing else of them.
SET client_min_messages = error;
SET search_path = public, outbox_regress;
\set SHOW_CONTEXT never
TRUNCATE outbox;
CREATE ROLE regress_outbox_event;
GRANT INSERT, SELECT, DELETE ON outboxevent TO regress_outbox_event;
INSERT INTO outbox_route (name, enqueue_roles) VALUES ('Order', NULL), ('Secret', '{}');
CREATE VIEW outbox_regress.stored AS
	SELECT route, event_type, aggregate_type, aggregate_id, payload, body,
		headers, properties, created_at = '2026-01-02 03:04:05Z' AS dated FROM outbox ORDER BY seq;

SET ROLE regress_outbox_event;

-- Insert and delete in one transaction, as they do: a message
BEGIN;
INSERT INTO outboxevent (aggregateid, aggregatetype, payload, timestamp, tracingspancontext, type, id)
VALUES ('7', 'Order', '{"b": 1, "a": 2, "a": 1.50}', '2026-01-02 03:04:05Z',
	E'#\n#Mon Jan 05 10:00:00 UTC 2026\ntraceparent=00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01\ntracestate=a\\=1,b\\=2\n',
	'OrderCreated', 'f0000000-0000-4000-8000-000000000001');
SELECT * FROM outboxevent;
DELETE FROM outboxevent WHERE id = 'f0000000-0000-4000-8000-000000000001';
\echo :ROW_COUNT
DELETE FROM outboxevent WHERE id = 'f0000000-0000-4000-8000-000000000001';
\echo :ROW_COUNT
COMMIT;
SELECT count(*) FROM outboxevent;
-- A type without a route goes to the default one; types by assignment; RETURNING
INSERT INTO outboxevent (aggregatetype, aggregateid, type, payload)
VALUES ('Customer'::varchar, 42::bigint, 'json', '[1]'::jsonb), ('Customer', 'c'::char(1), 'json', '{"x": null}'::json)
RETURNING id IS NOT NULL AS has_id, aggregatetype, aggregateid, type, payload;
-- Other text, none, and what is JSON and no jsonb
INSERT INTO outboxevent (aggregatetype, aggregateid, type, payload) VALUES
	('t', '1', 'text', 'plain text'), ('t', '1', 'empty', ''), ('t', '1', 'null', NULL), ('t', '1', 'number', '12');
INSERT INTO outboxevent (aggregatetype, aggregateid, type, payload) VALUES ('t', '1', 'zero', '"\u0000"');
\echo :LAST_ERROR_SQLSTATE
-- Bytes come as text, and are bytes again
INSERT INTO outboxevent (aggregatetype, aggregateid, type, payload) VALUES ('t', '1', 'bytes', '\x00ff'::bytea), ('t', '1', 'none', '\x'),
	('t', '1', 'odd', '\x0'), ('t', '1', 'no digits', '\xyz0');
-- A trace that is none
INSERT INTO outboxevent (aggregatetype, aggregateid, type, payload, tracingspancontext) VALUES
	('t', '1', 'trace', '1', 'traceparent=nonsense'), ('t', '1', 'trace', '1', 'uber-trace-id=1:2'), ('t', '1', 'trace', '1', ''),
	('t', '1', 'trace', '1', E'tracestate: broken\\\n  state\ntraceparent : 00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00');
-- Its errors are those of every message
INSERT INTO outboxevent (aggregatetype, aggregateid, type, payload) VALUES ('t', '1', NULL, '1');
\echo :LAST_ERROR_SQLSTATE
INSERT INTO outboxevent (aggregatetype, aggregateid, type, payload) VALUES ('Secret', '1', 'e', '1');
\echo :LAST_ERROR_SQLSTATE
-- No UPDATE, of no row either
RESET ROLE;
GRANT UPDATE ON outboxevent TO regress_outbox_event;
SET ROLE regress_outbox_event;
UPDATE outboxevent SET payload = '2' WHERE id = 'f0000000-0000-4000-8000-00000000000f';
\echo :LAST_ERROR_SQLSTATE
BEGIN;
INSERT INTO outboxevent (aggregatetype, aggregateid, type, payload) VALUES ('t', '1', 'updated', '1');
UPDATE outboxevent SET payload = '2';
\echo :LAST_ERROR_SQLSTATE
ROLLBACK;
-- ... but of what is as it was, as Hibernate sends it before its DELETE
BEGIN;
INSERT INTO outboxevent (id, aggregatetype, aggregateid, type, payload, timestamp, tracingspancontext)
	VALUES ('f0000000-0000-4000-8000-00000000000e', 't', '1', 'same', '{"a": 1}', '2030-01-02 03:04:05Z', NULL);
UPDATE outboxevent SET payload = '{"a": 1}' WHERE id = 'f0000000-0000-4000-8000-00000000000e';
\echo :ROW_COUNT
UPDATE outboxevent SET aggregatetype = 't', aggregateid = '1', type = 'same', payload = '{"a": 1}', timestamp = '2030-01-02 03:04:05Z', tracingspancontext = NULL
	WHERE id = 'f0000000-0000-4000-8000-00000000000e';
\echo :ROW_COUNT
SAVEPOINT s;
UPDATE outboxevent SET payload = '{"a":1}';
ROLLBACK TO s;
UPDATE outboxevent SET tracingspancontext = 'traceparent=x';
ROLLBACK TO s;
UPDATE outboxevent SET timestamp = '2030-01-02 03:04:06Z';
ROLLBACK TO s;
UPDATE outboxevent SET id = 'f0000000-0000-4000-8000-00000000000d';
ROLLBACK TO s;
DELETE FROM outboxevent WHERE id = 'f0000000-0000-4000-8000-00000000000e';
\echo :ROW_COUNT
UPDATE outboxevent SET payload = '{"a": 1}' WHERE id = 'f0000000-0000-4000-8000-00000000000e';
ROLLBACK;
-- Nobody else's, and what a savepoint has taken back
INSERT INTO outboxevent (id, type, payload) VALUES ('f0000000-0000-4000-8000-000000000002', 'before', '1');
DELETE FROM outboxevent WHERE id = 'f0000000-0000-4000-8000-000000000002';
\echo :ROW_COUNT
BEGIN;
INSERT INTO outboxevent (id, type, payload) VALUES ('f0000000-0000-4000-8000-000000000003', 'kept', '1');
SAVEPOINT s;
INSERT INTO outboxevent (id, type, payload) VALUES ('f0000000-0000-4000-8000-000000000004', 'gone', '1');
DELETE FROM outboxevent WHERE id = 'f0000000-0000-4000-8000-000000000003';
\echo :ROW_COUNT
SELECT id FROM outboxevent;
ROLLBACK TO s;
SELECT id FROM outboxevent;
SAVEPOINT s;
DELETE FROM outboxevent WHERE id = 'f0000000-0000-4000-8000-000000000003';
RELEASE s;
SELECT id FROM outboxevent;
COMMIT;
BEGIN;
INSERT INTO outboxevent (type, payload) VALUES ('gone', '1');
ROLLBACK;
SELECT count(*) FROM outboxevent;
-- Deeper: what comes back is in its place, and only what was rolled back
BEGIN;
INSERT INTO outboxevent (id, type, payload) SELECT ('f0000000-0000-4000-8000-00000000001' || i)::uuid, 'deep', '1' FROM generate_series(0, 3) i;
SAVEPOINT a;
DELETE FROM outboxevent WHERE id = 'f0000000-0000-4000-8000-000000000011';
INSERT INTO outboxevent (id, type, payload) VALUES ('f0000000-0000-4000-8000-000000000014', 'deep', '1');
SAVEPOINT b;
DELETE FROM outboxevent WHERE id IN ('f0000000-0000-4000-8000-000000000010', 'f0000000-0000-4000-8000-000000000014');
INSERT INTO outboxevent (id, type, payload) VALUES ('f0000000-0000-4000-8000-000000000015', 'deep', '1');
SAVEPOINT c;
DELETE FROM outboxevent WHERE id IN ('f0000000-0000-4000-8000-000000000012', 'f0000000-0000-4000-8000-000000000015');
SELECT right(id::text, 1) AS id FROM outboxevent;
ROLLBACK TO c;
SELECT right(id::text, 1) AS id FROM outboxevent;
DELETE FROM outboxevent WHERE id = 'f0000000-0000-4000-8000-000000000013';
RELEASE b;
SELECT right(id::text, 1) AS id FROM outboxevent;
SAVEPOINT b;
DELETE FROM outboxevent;
RELEASE b;
SELECT count(*) FROM outboxevent;
ROLLBACK TO a;
SELECT right(id::text, 1) AS id FROM outboxevent;
SAVEPOINT d;
DELETE FROM outboxevent;
RELEASE a;
SELECT count(*) FROM outboxevent;
ROLLBACK;
-- A pair of INSERT and DELETE costs the same after hundreds of them in savepoints that stay
CREATE TEMP TABLE pairs (n integer, at timestamptz);
BEGIN;
\set ECHO none
SELECT format('INSERT INTO pairs VALUES (%s, clock_timestamp())', n), 'SAVEPOINT s',
	format('INSERT INTO outboxevent (id, type, payload) VALUES (%L, %L, 1)', id, 'pair'), 'SAVEPOINT s',
	format('DELETE FROM outboxevent WHERE id = %L', id)
FROM generate_series(1, 800) n, LATERAL (SELECT md5(n::text)::uuid) r(id)
\gexec
\set ECHO all
SELECT least(min(d) FILTER (WHERE n > 700) / min(d) FILTER (WHERE n <= 100), 5) < 5 AS alike
FROM (SELECT n, extract(epoch FROM lead(at) OVER (ORDER BY n) - at) AS d FROM pairs) p;
ROLLBACK;
DROP TABLE pairs;
-- More than are remembered at first, deleted all at once
BEGIN;
INSERT INTO outboxevent (type, payload) SELECT 'many', '1' FROM generate_series(1, 40);
DELETE FROM outboxevent;
\echo :ROW_COUNT
COPY outboxevent (type, payload) FROM stdin;
copied	{"x": 1}
\.
COMMIT;
-- That is all that the rights are good for
SELECT count(*) FROM outbox;
\echo :LAST_ERROR_SQLSTATE
RESET ROLE;
-- The table of routes is not read for each type that has none
BEGIN;
INSERT INTO outboxevent (aggregatetype, type, payload) SELECT 'type ' || n, 'types', '1' FROM generate_series(1, 300) n;
INSERT INTO outboxevent (aggregatetype, type, payload) VALUES ('Order', 'types', '1');
SELECT route, count(*) FROM stored WHERE event_type = 'types' GROUP BY 1 ORDER BY 1;
SELECT least(seq_scan + idx_scan, 10) < 10 AS few FROM pg_stat_xact_user_tables WHERE relid = 'public.outbox_route'::regclass;
ROLLBACK;
SELECT * FROM stored WHERE event_type <> 'many' OR payload <> '1';
SELECT count(*) FROM outbox WHERE event_type = 'many';
-- The trigger is for views
CREATE TEMP TABLE plain (id uuid);
CREATE TRIGGER misplaced BEFORE INSERT ON plain FOR EACH ROW EXECUTE FUNCTION outbox_internal.outbox_event_trigger();
INSERT INTO plain VALUES (NULL);
\echo :LAST_ERROR_SQLSTATE
CREATE VIEW pg_temp.other AS SELECT 1 AS id;
CREATE TRIGGER misplaced INSTEAD OF INSERT ON other FOR EACH ROW EXECUTE FUNCTION outbox_internal.outbox_event_trigger();
INSERT INTO other VALUES (1);
\echo :LAST_ERROR_SQLSTATE

TRUNCATE outbox;
DROP VIEW outbox_regress.stored, other;
DROP TABLE plain;
DELETE FROM outbox_route WHERE name IN ('Order', 'Secret');
REVOKE ALL ON outboxevent FROM regress_outbox_event;
DROP ROLE regress_outbox_event;

-- A restored row of the outlet 'cdc' was in a table: it stays, for the workers
BEGIN;
SET LOCAL check_function_bodies = off;
SELECT pg_catalog.set_config('search_path', '', true) = '' AS restores;
INSERT INTO public.outbox (event_type, payload, outlet) VALUES ('restored', '1', 'cdc');
SELECT outlet FROM public.outbox WHERE event_type = 'restored';
ROLLBACK;
