-- Given up, and to another route: the row of a dead letter.
SELECT outbox_test_worker_session();
\set SHOW_CONTEXT never

INSERT INTO outbox_route (name, exchange, routing_key) VALUES ('dead', 'dlx', 'dead.{event_type}');
-- the one that stays is not among those that go
INSERT INTO outbox (event_type, payload, aggregate_type, aggregate_id, headers, routing_key, attempts, available_at) VALUES
	('plain', '1', 't', '1', NULL, NULL, 2, '2000-01-01'),
	('more', '2', NULL, NULL, '{"h": 1, "x-outbox-death": "forged"}', 'own', 0, NULL),
	('again', '3', NULL, NULL, '{"x-outbox-death": [{"route": "first"}]}', NULL, 0, NULL),
	('stays', '4', NULL, NULL, NULL, NULL, 0, NULL);
CREATE TEMP TABLE before AS SELECT * FROM outbox;
SELECT outbox_test_fail(array_agg(id), 'NO_ROUTE "k"', final => true, target => 'dead', reason => 'unroutable')
FROM outbox WHERE event_type <> 'stays';
SELECT event_type, route, status, attempts, available_at, last_error, last_error_reason, routing_key FROM outbox ORDER BY seq;
-- its id and content are what they were; it is the last one of its new route
SELECT count(*), count(*) FILTER (WHERE o.seq > (SELECT max(seq) FROM before)) AS last
FROM outbox o JOIN before b USING (id, event_type, created_at, origin)
WHERE (o.payload, o.aggregate_type, o.aggregate_id, o.properties)
	IS NOT DISTINCT FROM (b.payload, b.aggregate_type, b.aggregate_id, b.properties);
SELECT event_type, headers - 'x-outbox-death' AS other, jsonb_array_length(headers -> 'x-outbox-death') AS deaths,
	(headers #> '{x-outbox-death,0}') - 'time' AS newest
FROM outbox WHERE event_type <> 'stays' ORDER BY seq;
SELECT headers #> '{x-outbox-death,1}' AS first,
	(headers #>> '{x-outbox-death,0,time}')::timestamptz BETWEEN now() - interval '1 minute' AND clock_timestamp() AS now,
	headers #>> '{x-outbox-death,0,time}' LIKE '20__-__-__T__:__:__.___Z' AS iso
FROM outbox WHERE event_type = 'again';

-- It is claimed like any other
SELECT event_type, route, attempts FROM outbox_test_claim() ORDER BY seq;
SELECT outbox_test_fence_is_commit();

-- But not sent before the transaction that has made it one is on disk, nor is what a trigger has enqueued in it
BEGIN;
SELECT outbox_test_fail(array_agg(id), 'NO_ROUTE', final => true, target => 'dead') FROM outbox WHERE event_type = 'stays';
SELECT route FROM outbox_test_claim() WHERE event_type = 'stays';
SELECT outbox_test_fence_is_commit();
ROLLBACK;
BEGIN;
SAVEPOINT of_a_trigger;
SELECT outbox_enqueue('followed', '{}') IS NOT NULL AS ok;
RELEASE of_a_trigger;
SELECT event_type FROM outbox_test_claim() WHERE event_type = 'followed';
SELECT outbox_test_fence_is_commit();
ROLLBACK;
SELECT count(*) FROM outbox_test_claim();
SELECT outbox_test_fence_is_commit();

-- A route that has gone meanwhile gets nothing; the row remains, for another verdict
SELECT outbox_test_fail(array_agg(id), 'late', final => true, target => 'gone') FROM outbox WHERE event_type = 'stays';
SELECT route, status, attempts, last_error FROM outbox WHERE event_type = 'stays';

-- What is not pending, or not there, is nobody's
UPDATE outbox SET status = 'failed' WHERE event_type = 'stays';
SELECT outbox_test_fail(array_agg(id), 'late', final => true, target => 'dead') FROM outbox WHERE event_type = 'stays';
SELECT outbox_test_fail('{00000000-0000-0000-0000-000000000000}', 'x', final => true, target => 'dead');
SELECT route, status FROM outbox WHERE event_type = 'stays';

-- On a route that numbers it gets the number of a new message
UPDATE outbox_route SET sequence = 'key' WHERE name IN ('dead', 'default');
SELECT outbox_enqueue('counted', '{}', 'order', 'n', route => 'dead') IS NOT NULL AS ok;
SELECT outbox_enqueue(e, '{}', 'order', 'n') IS NOT NULL AS ok FROM unnest('{one,two}'::text[]) e;
SELECT outbox_test_fail(array_agg(id), 'NO_ROUTE', final => true, target => 'dead') FROM outbox WHERE event_type = 'two';
SELECT event_type, route, headers->'x-outbox-key-seq' AS key_seq, (headers->>'x-outbox-seq')::bigint = seq AS its_seq
FROM outbox WHERE aggregate_id = 'n' ORDER BY seq;

-- A trigger may take its id away: then it is not found
BEGIN;
ALTER TABLE outbox DROP CONSTRAINT outbox_pkey, ALTER id DROP NOT NULL;
CREATE FUNCTION pg_temp.take_id() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN NEW.id := NULL; RETURN NEW; END';
CREATE TRIGGER added BEFORE UPDATE ON outbox FOR EACH ROW EXECUTE FUNCTION pg_temp.take_id();
SELECT outbox_test_fail(array_agg(id), 'x', final => true) FROM outbox WHERE event_type = 'one';
ROLLBACK;

-- Very many at once, with a plan of one: a row is found by its id, and not compared with all others (which took minutes)
TRUNCATE outbox;
SET statement_timeout = '20s';
INSERT INTO outbox (event_type, payload) SELECT 'one', '{}';
VACUUM ANALYZE outbox;
SELECT outbox_test_fail(array_agg(id), 'NO_ROUTE', final => true, target => 'dead') FROM outbox;
INSERT INTO outbox (event_type, payload) SELECT 'many', '{}' FROM generate_series(1, 6000);
SELECT FROM (SELECT outbox_test_fail(array_agg(id), 'NO_ROUTE', final => true, target => 'dead') FROM outbox) s;
SELECT route, count(*) FROM outbox GROUP BY 1;
RESET statement_timeout;

TRUNCATE outbox, outbox_key_number;
UPDATE outbox_route SET sequence = NULL WHERE name = 'default';
DELETE FROM outbox_route WHERE name = 'dead';
