-- A message is a row of the transaction that enqueued it.
SET client_min_messages = error;	-- a server without the library preloaded warns

-- Everything at its default
SELECT outbox_enqueue('order.created', '{"id": 1}') AS id \gset
SELECT id = :'id' AS same_id, route, event_type, aggregate_type, aggregate_id,
	payload, body, headers, properties, routing_key, available_at, attempts,
	last_error, status, created_at BETWEEN now() - interval '1 minute'
		AND clock_timestamp() AS now
FROM outbox \gx

-- Everything given
INSERT INTO outbox_route (name, exchange) VALUES ('other', 'amq.topic');
SELECT outbox_enqueue(event_type => 'order.paid', payload => '[1, null]',
	aggregate_id => '42', aggregate_type => 'order',
	headers => '{"traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"}',
	route => 'other', routing_key => 'a.b',
	properties => '{"priority": 3, "expiration": "60000"}',
	available_at => '2100-01-01 00:00+00',
	message_id => '01890a5d-ac96-774b-bcce-b302099a8057');
SELECT route, event_type, aggregate_type, aggregate_id, payload, body, headers,
	properties, routing_key, available_at AT TIME ZONE 'UTC' AS available_at, status
FROM outbox WHERE id = '01890a5d-ac96-774b-bcce-b302099a8057' \gx

-- Bytes; the type of the content is a property, unless it is the default
TRUNCATE outbox;
SELECT length(outbox_enqueue_bytes('b', '\x00ff')::text);
SELECT length(outbox_enqueue_bytes('b', '', content_type => 'text/plain')::text);
SELECT length(outbox_enqueue_bytes('b', '\x01', content_type => NULL)::text);
SELECT length(outbox_enqueue_bytes('b', '\x01', content_type => 'image/png',
	properties => '{"content_type": "text/plain", "app_id": "x"}')::text);
SELECT length(outbox_enqueue_bytes('b', '\x01', 'type', 'id',
	'{"h": 1}', 'other', 'key', '{"app_id": "x"}', '2100-01-01',
	'01890a5d-ac96-774b-bcce-b302099a8058', 'application/octet-stream')::text);
SELECT route, aggregate_type, aggregate_id, payload, body, headers, properties,
	routing_key, available_at
FROM outbox ORDER BY seq;

-- Untyped literals resolve, named and positional
SELECT length(outbox_enqueue('x', '{}', 'order', '1', NULL, 'default')::text);

-- Order of seq is the order of enqueue; ids are of version 7
TRUNCATE outbox;
DO $$
BEGIN
	FOR i IN 1..1000 LOOP
		PERFORM outbox_enqueue('n', to_jsonb(i));
	END LOOP;
END
$$;
SELECT count(*), count(DISTINCT id) AS ids,
	bool_and(payload::int = n) AS ordered,
	bool_and(substr(id::text, 15, 1) = '7') AS version_7,
	bool_and(substr(id::text, 20, 1) ~ '[89ab]') AS variant,
	bool_and(id::text >= before OR left(id::text, 18) >= left(before, 18)) AS ascending,
	bool_and(abs(extract(epoch FROM created_at) * 1000
		- ('x' || lpad(left(replace(id::text, '-', ''), 12), 16, '0'))::bit(64)::bigint) < 1000)
		AS milliseconds
FROM (SELECT *, row_number() OVER (ORDER BY seq) AS n,
		lag(id::text, 1, '') OVER (ORDER BY seq) AS before FROM outbox) o;
SELECT count(DISTINCT outbox_uuid7()) FROM generate_series(1, 10000);

-- A time that has come takes the hot path, one to come waits
TRUNCATE outbox;
SELECT outbox_regress.outcome($$SELECT outbox_enqueue('e', '{}', available_at => t)
	FROM unnest(ARRAY['-infinity', '2000-01-01', now()]::timestamptz[]) t$$);
SELECT outbox_regress.outcome($$SELECT outbox_enqueue('e', '{}', available_at => 'infinity')$$);
INSERT INTO outbox (event_type, payload, available_at) VALUES
	('-infinity', '{}', '-infinity'), ('past', '{}', '2000-01-01'),
	('now', '{}', now()), ('future', '{}', '2100-01-01');
INSERT INTO outbox (event_type, payload, available_at) VALUES ('infinity', '{}', 'infinity');
UPDATE outbox SET available_at = 'infinity' WHERE event_type = 'future';
SELECT event_type, available_at IS NULL AS at_once FROM outbox ORDER BY seq;

-- INSERT of many rows and COPY: the same defaults
TRUNCATE outbox;
INSERT INTO outbox (event_type, payload) SELECT 'i', to_jsonb(i) FROM generate_series(1, 3) i;
COPY outbox (event_type, body, aggregate_id) FROM stdin;
c	\\x0102	7
c	\\x	\N
\.
SELECT route, event_type, payload, body, aggregate_id, status, attempts,
	substr(id::text, 15, 1) AS version
FROM outbox ORDER BY seq;

-- JSON null is what mappers write for None: no headers, no properties, and no payload beside a body
TRUNCATE outbox;
INSERT INTO outbox (event_type, payload, body, headers, properties) VALUES
	('bytes', 'null', '\x01', 'null', 'null'), ('json', 'null', NULL, 'null', 'null');
SELECT outbox_enqueue('function', 'null', headers => 'null', properties => 'null') IS NOT NULL AS ok;
SELECT outbox_enqueue_bytes('function', '\x02', properties => 'null', content_type => 'text/plain') IS NOT NULL AS ok;
SELECT event_type, payload, body, headers, properties FROM outbox ORDER BY seq;

-- seq is not for users to choose
INSERT INTO outbox (seq, event_type, payload) VALUES (1, 'e', '{}');
-- nor is an id to be used twice
\set VERBOSITY sqlstate
SELECT outbox_enqueue('e', '{}', message_id => id) FROM outbox ORDER BY seq LIMIT 1;
INSERT INTO outbox (id, event_type, payload) SELECT id, 'e', '{}' FROM outbox LIMIT 1;
\set VERBOSITY default

-- RETURNING, as ORMs use it
INSERT INTO outbox (event_type, payload) VALUES ('r', '{}')
RETURNING seq > 0 AS seq, id IS NOT NULL AS id, status;

-- The hash by which keys are divided
SELECT outbox_internal.outbox_key_hash('r', 'a', NULL) IS NULL AND outbox_internal.outbox_key_hash(NULL, 'a', 'x') IS NULL AS no_key,
	outbox_internal.outbox_key_hash('r', 'a', 'x') <> outbox_internal.outbox_key_hash('s', 'a', 'x') AS route_counts,
	outbox_internal.outbox_key_hash('r', NULL, 'x') <> outbox_internal.outbox_key_hash('r', 'a', 'x')
		AND outbox_internal.outbox_key_hash('r', NULL, 'x') <> outbox_internal.outbox_key_hash('r', '', 'x') AS type_counts,
	outbox_internal.outbox_key_hash('r', 'ab', 'c') <> outbox_internal.outbox_key_hash('r', 'a', 'bc')
		AND outbox_internal.outbox_key_hash('ra', 'b', 'c') <> outbox_internal.outbox_key_hash('r', 'ab', 'c') AS border_counts,
	outbox_internal.outbox_key_hash('r', 'a', 'x') = outbox_internal.outbox_key_hash('r', 'a', 'x') AS same;

-- A rule that replaces the INSERT is refused, and forgotten with the rule
CREATE RULE added AS ON INSERT TO outbox DO INSTEAD NOTHING;
SELECT outbox_enqueue('e', '{}');
DROP RULE added ON outbox;
SELECT outbox_enqueue('e', '{}') IS NOT NULL AS stored;

-- Triggers in places where they do not belong
CREATE TABLE misplaced (name text);
CREATE TRIGGER t BEFORE INSERT ON misplaced
	FOR EACH ROW EXECUTE FUNCTION outbox_internal.outbox_row_trigger();
INSERT INTO misplaced VALUES ('e');
DROP TABLE misplaced;
CREATE TABLE misplaced AS SELECT * FROM outbox LIMIT 1;
CREATE TRIGGER t BEFORE INSERT ON misplaced
	FOR EACH STATEMENT EXECUTE FUNCTION outbox_internal.outbox_row_trigger();
CREATE TRIGGER d BEFORE DELETE ON misplaced
	FOR EACH ROW EXECUTE FUNCTION outbox_internal.outbox_row_trigger();
INSERT INTO misplaced (event_type) VALUES ('e');
DELETE FROM misplaced;
DROP TABLE misplaced;
CREATE TABLE misplaced AS SELECT * FROM outbox_route LIMIT 1;
CREATE TRIGGER t BEFORE INSERT ON misplaced
	FOR EACH STATEMENT EXECUTE FUNCTION outbox_internal.outbox_route_trigger();
CREATE TRIGGER d BEFORE DELETE ON misplaced
	FOR EACH ROW EXECUTE FUNCTION outbox_internal.outbox_route_trigger();
INSERT INTO misplaced (name) VALUES ('e');
DELETE FROM misplaced;
DROP TABLE misplaced;
CREATE TABLE misplaced AS SELECT * FROM outbox_route LIMIT 1;
CREATE TRIGGER t AFTER INSERT OR TRUNCATE ON misplaced
	FOR EACH STATEMENT EXECUTE FUNCTION outbox_internal.outbox_failed_route_trigger();
CREATE TRIGGER d BEFORE DELETE ON misplaced
	FOR EACH ROW EXECUTE FUNCTION outbox_internal.outbox_failed_route_trigger();
CREATE TRIGGER u AFTER UPDATE ON misplaced
	FOR EACH ROW EXECUTE FUNCTION outbox_internal.outbox_failed_route_trigger();
INSERT INTO misplaced (name) VALUES ('e');
TRUNCATE misplaced;
DELETE FROM misplaced;
DROP TABLE misplaced;

TRUNCATE outbox;
DELETE FROM outbox_route WHERE name = 'other';
