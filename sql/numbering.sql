-- Numbers for consumers: outbox_route.sequence.

SET client_min_messages = warning;
INSERT INTO outbox_route (name, sequence) VALUES ('plain', NULL), ('seq', 'seq'), ('key', 'key');
INSERT INTO outbox_route (name, sequence) VALUES ('bad', 'x');
INSERT INTO outbox_route (name, sequence, ordering) VALUES ('bad', 'key', 'none');
BEGIN;
INSERT INTO outbox_route (name, sequence, ordering) VALUES ('pipelined', 'key', 'pipelined');
ROLLBACK;

CREATE FUNCTION numbers(OUT id text, OUT seq_is_header boolean, OUT key_seq text, OUT rest jsonb)
RETURNS SETOF record LANGUAGE sql AS $$
	SELECT o.aggregate_id, o.seq = (o.headers->>'x-outbox-seq')::bigint, o.headers->>'x-outbox-key-seq',
		o.headers - 'x-outbox-seq' - 'x-outbox-key-seq'
	FROM outbox o ORDER BY o.seq
$$;

-- every way in, with headers and without
SELECT count(outbox_enqueue('e', '{}', 'order', i::text, route => r))
FROM unnest('{plain,seq,key}'::text[]) r, generate_series(1, 2) i;
SELECT count(outbox_enqueue('e', '{}', 'order', '1', '{"a": 1}', 'key')) FROM generate_series(1, 2);
INSERT INTO outbox (event_type, payload, aggregate_id, route, headers)
SELECT 'e', '{}', (i % 2 + 1)::text, 'key', '{"b": 2}' FROM generate_series(1, 4) i;
COPY outbox (event_type, payload, aggregate_type, aggregate_id, route) FROM stdin;
e	{}	order	1	key
\.
SELECT outbox_enqueue_bytes('e', 'x', 'order', '2', route => 'key') IS NOT NULL;
-- without a key there is none to count
SELECT outbox_enqueue('e', '{}', route => 'key') IS NOT NULL;
SELECT * FROM numbers();

-- nobody makes up his own, on any route and by any way
TRUNCATE outbox;
SELECT outbox_enqueue('e', '{}', 'order', '1', route => r) IS NOT NULL FROM unnest('{plain,seq,key}'::text[]) r;
SELECT r, h, outbox_regress.outcome(format('SELECT outbox_enqueue(''e'', ''{}'', ''order'', ''1'', ''{"%s": 7}'', %L)', h, r)),
	outbox_regress.outcome(format('INSERT INTO outbox (event_type, payload, headers, route) VALUES (''e'', ''{}'', ''{"%s": null}'', %L)', h, r)) = i
FROM unnest('{plain,seq,key}'::text[]) r, unnest('{x-outbox-seq,x-outbox-key-seq}'::text[]) h,
	outbox_regress.outcome(format('SELECT outbox_enqueue_batch(''[{"event_type": "e", "payload": {}, "headers": {"%s": 7}}]'')', h)) i;
SELECT outbox_regress.outcome($$UPDATE outbox SET headers = coalesce(headers, '{}') || '{"x-outbox-seq": 7}' WHERE route = $$ || quote_literal(r))
FROM unnest('{plain,seq,key}'::text[]) r;
UPDATE outbox SET headers = headers || '{"a": 1}' WHERE headers IS NOT NULL;
SELECT * FROM numbers();
-- JSON null and NULL, and what is no object
SELECT outbox_enqueue('e', '{}', 'order', '1', 'null', 'key') IS NOT NULL;
SELECT outbox_enqueue('e', '{}', 'order', '1', '[1]', 'key');
SELECT * FROM numbers();

-- a rollback gives the number back
TRUNCATE outbox;
BEGIN;
SELECT outbox_enqueue('e', '{}', 'order', '1', route => 'key') IS NOT NULL;
SAVEPOINT s;
SELECT outbox_enqueue('e', '{}', 'order', '1', route => 'key') IS NOT NULL;
ROLLBACK TO s;
SELECT outbox_enqueue('e', '{}', 'order', '1', route => 'key') IS NOT NULL;
COMMIT;
BEGIN;
SELECT outbox_enqueue('e', '{}', 'order', '1', route => 'key') IS NOT NULL;
ROLLBACK;
SELECT outbox_enqueue('e', '{}', 'order', '1', route => 'key') IS NOT NULL;
SELECT key_seq FROM numbers();
SELECT route, key_hash = outbox_internal.outbox_key_hash(route, 'order', '1') AS first, last FROM outbox_key_number ORDER BY last DESC LIMIT 1;

-- an operator's repair changes none
UPDATE outbox SET status = 'failed' WHERE headers->>'x-outbox-key-seq' = '9';
SELECT outbox_requeue_failed('key');
SELECT key_seq FROM numbers();

-- on another route the count is another one, and it outlives the route
INSERT INTO outbox_route (name, sequence) VALUES ('key2', 'key');
SELECT outbox_enqueue('e', '{}', 'order', '1', route => 'key2') IS NOT NULL;
SELECT headers->>'x-outbox-key-seq' AS key_seq FROM outbox WHERE route = 'key2';
TRUNCATE outbox;
DELETE FROM outbox_route WHERE name = 'key2';
INSERT INTO outbox_route (name, sequence) VALUES ('key2', 'key');
SELECT outbox_enqueue('e', '{}', 'order', '1', route => 'key2') IS NOT NULL;
SELECT headers->>'x-outbox-key-seq' AS key_seq FROM outbox WHERE route = 'key2';

-- a message that changes its route gets the number of a new message there, at the end
SELECT outbox_enqueue('moves', '{}', 'order', '1', '{"own": 1}', 'plain', message_id => '00000000-0000-7000-8000-000000000001') IS NOT NULL;
UPDATE outbox SET status = 'failed' WHERE event_type = 'moves';
SELECT outbox_edit('00000000-0000-7000-8000-000000000001', route => 'key2');
SELECT headers - 'x-outbox-seq' AS headers, (headers->>'x-outbox-seq')::bigint = seq AS its_seq,
	seq = (SELECT max(seq) FROM outbox) AS last FROM outbox WHERE event_type = 'moves';
SELECT outbox_edit('00000000-0000-7000-8000-000000000001', headers => '{"own": 2}');
SELECT headers - 'x-outbox-seq' AS headers, (headers->>'x-outbox-seq')::bigint = seq AS its_seq FROM outbox WHERE event_type = 'moves';
SELECT outbox_edit('00000000-0000-7000-8000-000000000001', clear => '{headers}');
SELECT headers - 'x-outbox-seq' AS headers FROM outbox WHERE event_type = 'moves';
SELECT outbox_edit('00000000-0000-7000-8000-000000000001', route => 'plain');
SELECT headers FROM outbox WHERE event_type = 'moves';

-- who may enqueue needs no right on the counter, and has none
CREATE ROLE regress_outbox_writer;
GRANT EXECUTE ON FUNCTION outbox_enqueue TO regress_outbox_writer;
GRANT INSERT (event_type, payload, aggregate_id, route) ON outbox TO regress_outbox_writer;
SET ROLE regress_outbox_writer;
SELECT outbox_enqueue('e', '{}', NULL, '7', route => 'key') IS NOT NULL;
INSERT INTO outbox (event_type, payload, aggregate_id, route) VALUES ('e', '{}', '7', 'key');
TABLE outbox_key_number;
RESET ROLE;
SELECT key_seq FROM numbers() WHERE id = '7';
-- a trigger of an administrator's
CREATE FUNCTION leave_out() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END';
CREATE TRIGGER leave_out BEFORE INSERT ON outbox_key_number FOR EACH ROW EXECUTE FUNCTION leave_out();
SELECT outbox_enqueue('e', '{}', NULL, '8', route => 'key');
DROP TRIGGER leave_out ON outbox_key_number;

-- what is not stored takes none, and does not lock the row of another route that has the id
TRUNCATE outbox, outbox_key_number;
INSERT INTO outbox_new (id, event_type, payload, route) VALUES ('00000000-0000-7000-8000-000000000001', 'e', '{}', 'plain');
INSERT INTO outbox_new (id, event_type, payload, aggregate_id, route) VALUES ('00000000-0000-7000-8000-000000000001', 'e', '{}', '1', 'key')
ON CONFLICT (id) DO NOTHING;
SELECT outbox_enqueue('e', '{}', NULL, '1', route => 'key', message_id => '00000000-0000-7000-8000-000000000001') IS NULL;
SELECT xmax FROM outbox;
INSERT INTO outbox_new (id, event_type, payload, aggregate_id, route)
SELECT format('00000000-0000-7000-8000-%s', lpad(n::text, 12, '0'))::uuid, 'e', '{}', '1', 'key'
FROM unnest('{2, 2, 3}'::int[]) n
ON CONFLICT (id) DO NOTHING;
INSERT INTO outbox_new (id, event_type, payload, aggregate_id, route)
VALUES ('00000000-0000-7000-8000-000000000003', 'e', '{}', '1', 'key'), ('00000000-0000-7000-8000-000000000004', 'e', '{}', '1', 'key')
ON CONFLICT (id) DO NOTHING;
BEGIN;
WITH gone AS (DELETE FROM outbox WHERE id = '00000000-0000-7000-8000-000000000004' RETURNING id)
INSERT INTO outbox_new (id, event_type, payload, aggregate_id, route) SELECT id, 'again', '{}', '1', 'key' FROM gone
ON CONFLICT (id) DO NOTHING;
SELECT headers->>'x-outbox-key-seq' AS key_seq FROM outbox WHERE event_type = 'again';
ROLLBACK;
SELECT key_seq FROM numbers();

-- raised after a failover (doc/consumers.md); a route with a new name begins at 1
TRUNCATE outbox;
UPDATE outbox_key_number SET last = last + 1000000;
SELECT outbox_enqueue('e', '{}', NULL, '1', route => 'key') IS NOT NULL;
SELECT key_seq FROM numbers();
TRUNCATE outbox;
UPDATE outbox_route SET name = 'renamed' WHERE name = 'key';
SELECT outbox_enqueue('e', '{}', NULL, '1', route => 'renamed') IS NOT NULL;
SELECT key_seq FROM numbers();

TRUNCATE outbox, outbox_key_number;
DELETE FROM outbox_route WHERE name <> 'default';
REVOKE ALL ON FUNCTION outbox_enqueue FROM regress_outbox_writer;
REVOKE INSERT (event_type, payload, aggregate_id, route) ON outbox FROM regress_outbox_writer;
DROP ROLE regress_outbox_writer;
DROP FUNCTION numbers(), leave_out();
