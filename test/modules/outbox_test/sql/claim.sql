-- Claims: which rows, in which order, and whether all of a row arrives.
SELECT outbox_test_worker_session();
INSERT INTO outbox_route (name) VALUES ('a'), ('b');

-- Everything of a message
SELECT outbox_enqueue('é€', '{"k": [1, "ü", null]}', 'type', 'id 1', '{"h": {"x": 1}}', 'a',
	'r.k', '{"priority": 1}', NULL, '01890a5d-ac96-774b-bcce-b302099a8057') IS NOT NULL AS ok;
SELECT outbox_enqueue_bytes('empty', '\x') IS NOT NULL AS ok;
SELECT outbox_enqueue_bytes('nul', '\x00ff00') IS NOT NULL AS ok;
-- compressed, and out of line
SELECT outbox_enqueue_bytes('toast', (SELECT string_agg(sha256(i::text::bytea), '') FROM generate_series(1, 1000) i)) IS NOT NULL AS ok;
SELECT outbox_enqueue('toast', to_jsonb(repeat('x', 500000)), headers => jsonb_build_object('h', repeat('y', 100000))) IS NOT NULL AS ok;
SELECT event_type, route, aggregate_type, aggregate_id, routing_key, payload, headers,
	properties, attempts, available_at, key_hash = outbox_internal.outbox_key_hash('a', 'type', 'id 1') AS hash
FROM outbox_test_claim(max_rows => 1) \gx
SELECT count(*),
	bool_and((c.id, c.route, c.event_type, c.created_at, c.attempts, c.tid)
		= (o.id, o.route, o.event_type, o.created_at, o.attempts, o.ctid)) AS same,
	bool_and((c.payload, c.body, c.headers, c.properties, c.aggregate_type, c.aggregate_id, c.routing_key)
		IS NOT DISTINCT FROM (o.payload, o.body, o.headers, o.properties, o.aggregate_type, o.aggregate_id, o.routing_key)) AS same_or_null,
	bool_and(c.key_hash = coalesce(outbox_internal.outbox_key_hash(o.route, o.aggregate_type, o.aggregate_id), 0)) AS hash
FROM outbox_test_claim() c JOIN outbox o USING (seq);
SELECT event_type, length(body), length(payload::text), length(headers::text)
FROM outbox_test_claim() ORDER BY seq;

-- Bounds, limit, and a stop in between
TRUNCATE outbox RESTART IDENTITY;
INSERT INTO outbox (event_type, payload, route, aggregate_type, aggregate_id)
	SELECT 'e', to_jsonb(i), CASE WHEN i % 2 = 0 THEN 'a' ELSE 'b' END,
		CASE WHEN i % 3 <> 0 THEN 't' END, CASE WHEN i % 4 <> 0 THEN (i % 4)::text END
	FROM generate_series(1, 12) i;
CREATE FUNCTION pg_temp.seqs(args text, what text DEFAULT 'claim') RETURNS text
LANGUAGE plpgsql AS $$
DECLARE
	result text;
BEGIN
	EXECUTE format('SELECT string_agg(seq::text, '' '') FROM outbox_test_%s(%s)', what, args)
		INTO result;
	RETURN coalesce(result, 'none');
END
$$;
SELECT args, pg_temp.seqs(args), pg_temp.seqs(args, 'list') AS list FROM unnest(ARRAY['',
	'after => 4', 'upto => 4', 'after => 4, upto => 7', 'after => 7, upto => 4',
	'after => 12', 'max_rows => 3', 'after => 2, max_rows => 3', 'max_rows => 0']) args;
SELECT pg_temp.seqs('stop_after => 2');

-- Routes and keys that wait are passed over
SELECT args, pg_temp.seqs(args), pg_temp.seqs(args, 'list') AS list FROM unnest(ARRAY[
	'excluded_routes => ''{a}''', 'excluded_routes => ''{a,b}''',
	'excluded_routes => ''{none}''', 'excluded_routes => ''{}''',
	'key_routes => ''{b}'', excluded_keys => ARRAY[outbox_internal.outbox_key_hash(''b'', ''t'', ''1'')]',
	'key_routes => ''{a}'', excluded_keys => ARRAY[outbox_internal.outbox_key_hash(''a'', ''t'', ''1'')]',
	'key_routes => ''{b,b}'', excluded_keys => ARRAY[outbox_internal.outbox_key_hash(''b'', NULL, ''3''), outbox_internal.outbox_key_hash(''b'', ''t'', ''1'')]',
	'excluded_keys => ARRAY[0]',
	'excluded_routes => ''{b}'', key_routes => ''{a}'', excluded_keys => ARRAY[outbox_internal.outbox_key_hash(''a'', ''t'', ''2'')]',
	'excluded_routes => ''{a}'', max_rows => 2']) args;

-- One key only
SELECT args, pg_temp.seqs(args), pg_temp.seqs(args, 'list') AS list FROM unnest(ARRAY[
	'key_routes => ''{b}'', only_key => outbox_internal.outbox_key_hash(''b'', ''t'', ''1'')', 'key_routes => ''{a}'', only_key => outbox_internal.outbox_key_hash(''a'', ''t'', ''1'')',
	'key_routes => ''{b}'', only_key => outbox_internal.outbox_key_hash(''b'', NULL, ''1'')', 'key_routes => ''{b}'', only_key => outbox_internal.outbox_key_hash(''b'', NULL, ''3'')',
	'key_routes => ''{b}'', only_key => outbox_internal.outbox_key_hash(''b'', ''t'', ''9'')',
	'key_routes => ''{b}'', only_key => outbox_internal.outbox_key_hash(''b'', ''t'', ''1''), excluded_routes => ''{b}''',
	'key_routes => ''{b}'', only_key => outbox_internal.outbox_key_hash(''b'', ''t'', ''1''), after => 1, max_rows => 1']) args;

-- A key of another route is another one, though an aggregate_id is chosen for the same hash
TRUNCATE outbox;
INSERT INTO outbox (event_type, payload, route, aggregate_type, aggregate_id) VALUES
	('a', '1', 'a', 't', 'rzE7JsclWdIk'), ('b', '2', 'b', 't', '1');
SELECT count(DISTINCT outbox_internal.outbox_key_hash(route, aggregate_type, aggregate_id)) FROM outbox;
CREATE FUNCTION pg_temp.types(args text) RETURNS text
LANGUAGE plpgsql AS $$
DECLARE
	result text;
BEGIN
	EXECUTE format('SELECT string_agg(event_type, '' '') FROM (SELECT outbox_internal.outbox_key_hash(''b'', ''t'', ''1'') AS hash) k, outbox_test_claim(%s)', args)
		INTO result;
	RETURN coalesce(result, 'none');
END
$$;
SELECT args, pg_temp.types(args) FROM unnest(ARRAY[
	'excluded_keys => ARRAY[hash], key_routes => ''{a}''', 'excluded_keys => ARRAY[hash], key_routes => ''{b}''',
	'only_key => hash, key_routes => ''{a}''', 'only_key => hash, key_routes => ''{b}''']) args;

-- Workers share the keys: all of them, each in one share only
TRUNCATE outbox;
INSERT INTO outbox (event_type, payload, aggregate_type, aggregate_id)
	SELECT 'e', to_jsonb(i), CASE WHEN i % 2 = 0 THEN 't' END, NULLIF(i % 199, 0)::text
	FROM generate_series(1, 2000) i;
CREATE TEMP TABLE shares AS
	SELECT w, c.seq, c.aggregate_type, c.aggregate_id
	FROM generate_series(0, 3) w, outbox_test_claim(max_rows => 10000, worker => w, nworkers => 4) c;
SELECT count(*), count(DISTINCT seq), count(DISTINCT w) AS workers, min(n) > 300 AS even
FROM shares, LATERAL (SELECT count(*) AS n FROM shares s WHERE s.w = shares.w) n;
SELECT count(*) FROM (SELECT FROM shares WHERE aggregate_id IS NOT NULL
	GROUP BY aggregate_type, aggregate_id HAVING count(DISTINCT w) > 1) keys;
SELECT count(DISTINCT w) AS workers FROM shares WHERE aggregate_id IS NULL;
SELECT bool_and(ascending) AS ascending
FROM (SELECT seq > lag(seq, 1, 0::bigint) OVER (PARTITION BY w) AS ascending FROM shares) s;
SELECT count(*) FROM outbox_test_list(max_rows => 10000, worker => 1, nworkers => 4)
	FULL JOIN (SELECT seq FROM shares WHERE w = 1) s USING (seq)
WHERE s.seq IS NULL OR id IS NULL;

-- What waits or has failed is not ready
TRUNCATE outbox;
INSERT INTO outbox (event_type, payload, available_at, status, attempts) VALUES
	('ready', '{}', NULL, 'pending', 0), ('past', '{}', '2000-01-01', 'pending', 0),
	('future', '{}', '2100-01-01', 'pending', 0), ('retry', '{}', '2000-01-01', 'pending', 1),
	('failed', '{}', NULL, 'failed', 1), ('requeued', '{}', NULL, 'pending', 0);
SELECT event_type FROM outbox_test_claim();
SELECT event_type, attempts FROM outbox_test_claim_due();

-- Claims read as much of the index as they take, however much stands in front
TRUNCATE outbox;
CREATE FUNCTION pg_temp.plan(query text) RETURNS SETOF text
LANGUAGE plpgsql AS $$
DECLARE
	line text;
BEGIN
	FOR line IN EXECUTE 'EXPLAIN (COSTS OFF) ' || query LOOP
		IF line ~ 'Limit|LockRows|Scan|Sort' THEN
			RETURN NEXT line;
		END IF;
	END LOOP;
END
$$;
SELECT pg_temp.plan($$SELECT ctid, seq FROM outbox
	WHERE status = 'pending' AND available_at IS NULL AND outlet IS NULL AND seq > 1 AND seq <= 1000
	ORDER BY seq LIMIT 10 FOR UPDATE SKIP LOCKED$$);
SELECT pg_temp.plan($$SELECT ctid, seq FROM outbox
	WHERE status = 'pending' AND available_at IS NOT NULL AND outlet IS NULL AND (available_at, seq) > ('2000-01-01', 1)
		AND available_at <= '2100-01-01'
	ORDER BY available_at, seq LIMIT 10 FOR UPDATE SKIP LOCKED$$);

-- What has an outlet is no worker's, whatever it is called and whatever its route says
ALTER TABLE outbox DISABLE TRIGGER USER;
INSERT INTO outbox (event_type, payload, aggregate_id, outlet, available_at)
SELECT 'e', '1', i, (ARRAY['external', 'internal', 'else', ''])[i % 4 + 1], CASE WHEN i > 4 THEN timestamptz '2000-01-01' END
FROM generate_series(1, 8) i;
ALTER TABLE outbox ENABLE TRIGGER USER;
SELECT count(*) FROM outbox;
SELECT count(*) FROM outbox_test_claim();
SELECT count(*) FROM outbox_test_claim_due();
TRUNCATE outbox;

-- Of a transaction that has not committed there is nothing
BEGIN;
SELECT outbox_enqueue('e', '{}') IS NOT NULL AS ok;
ROLLBACK;
SELECT count(*) FROM outbox_test_claim();

-- Entries of deleted rows count, and numbers without one do not
BEGIN;
SELECT setval('outbox_seq_seq', 1000000000);
INSERT INTO outbox (event_type, payload) SELECT 'e', '{}' FROM generate_series(1, 5000);
DELETE FROM outbox;
INSERT INTO outbox (event_type, payload) VALUES ('e', '{}');
SELECT lo, hi, n, outbox_test_reach(lo, hi, n) FROM (VALUES (1, 2000000000::bigint, 2000),
	(1000000990, 1000001000, 2000), (1000000991, 1000001000, 10), (1000004000, 9223372036854775807, 2000),
	(1, 1000, 10), (1, 0, 10), (1000005002, 9223372036854775807, 10)) v (lo, hi, n);
SELECT outbox_test_last_entry();
-- Where there is no such index, the claim's LIMIT alone bounds a step
DROP INDEX outbox_ready;
SELECT outbox_test_reach(1, 2000000000, 2000), outbox_test_reach(1, 10, 2000);
SELECT outbox_test_last_entry();
ROLLBACK;

DELETE FROM outbox_route WHERE name <> 'default';
