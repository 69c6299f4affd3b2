-- Keys that wait for one of their messages, and how many wait behind it
SET client_min_messages = error;
SET search_path = public, outbox_regress;
TRUNCATE outbox;
BEGIN;
INSERT INTO outbox_route (name, on_failed) VALUES ('blocking', 'block');
INSERT INTO outbox_route (name, on_failed, ordering) VALUES ('unordered', 'block', 'none');
INSERT INTO outbox (event_type, payload, route, aggregate_type, aggregate_id)
	SELECT k || i, '{}', CASE WHEN k = 'u' THEN 'unordered' WHEN k = 's' THEN 'default' ELSE 'blocking' END,
		CASE WHEN k <> 'n' THEN 'order' END, k
	FROM unnest(ARRAY['a', 'b', 'n', 's', 'u', 'free']) k, generate_series(1, 3) i;
INSERT INTO outbox (event_type, payload, route) VALUES ('no key', '{}', 'blocking');

-- failed ones hold where the route says so; a retry does everywhere
UPDATE outbox SET status = 'failed', attempts = 10, last_error = 'returned'
	WHERE event_type IN ('a1', 'n2', 's1', 'u1', 'no key');
UPDATE outbox SET available_at = '2100-01-01 00:00+00', attempts = 2, last_error = 'nacked'
	WHERE event_type IN ('b1', 'a2');
-- scheduled, not tried: holds nothing
UPDATE outbox SET available_at = '2100-01-01 00:00+00' WHERE event_type = 'free1';
SELECT h.aggregate_type, h.aggregate_id, reason, event_type, h.seq = o.seq AS seq, h.route, h.attempts,
	retry_at = o.available_at AS retry_at, h.last_error, behind
FROM outbox_held_keys h JOIN outbox o USING (id) ORDER BY h.aggregate_id;

-- after that the key is free, or the next one holds it
UPDATE outbox_route SET ordering = 'pipelined' WHERE name = 'blocking';
SELECT outbox_requeue(id) FROM outbox WHERE event_type = 'n2';
SELECT outbox_discard(id) FROM outbox WHERE event_type = 'a1';
SELECT aggregate_id, reason, behind FROM outbox_held_keys ORDER BY 1;
ROLLBACK;

-- Rows of one key are found by an index, and not by looking at all that are ready
BEGIN;
INSERT INTO outbox (event_type, payload, aggregate_id)
	SELECT 'x', '{}', (i % 1000)::text FROM generate_series(1, 5000) i;
EXPLAIN (COSTS OFF)
SELECT seq FROM outbox
WHERE status = 'pending' AND available_at IS NULL AND outlet IS NULL AND seq > 10 AND seq <= 9223372036854775807
	AND aggregate_id IS NOT NULL AND outbox_internal.outbox_key_hash(route, aggregate_type, aggregate_id) = 4711
ORDER BY seq LIMIT 128 FOR UPDATE SKIP LOCKED;
-- and so is the oldest of them that has failed
SET LOCAL enable_sort = off;
EXPLAIN (COSTS OFF)
SELECT r.* FROM unnest('{4711,4712}'::bigint[]) k (hash),
	LATERAL (SELECT seq FROM outbox
		WHERE aggregate_id IS NOT NULL AND outlet IS NULL
			AND (status = 'failed' OR available_at IS NOT NULL AND attempts > 0)
			AND outbox_internal.outbox_key_hash(route, aggregate_type, aggregate_id) = k.hash AND status <= 'failed'
		ORDER BY outbox_internal.outbox_key_hash(route, aggregate_type, aggregate_id), status, seq LIMIT 1) r;
-- A claim of an external relay has it too
EXPLAIN (COSTS OFF)
SELECT seq FROM outbox h
WHERE h.outlet = 'external' AND h.aggregate_id IS NOT NULL AND (h.status = 'failed' OR h.available_at IS NOT NULL AND h.attempts > 0)
	AND outbox_internal.outbox_key_hash(h.route, h.aggregate_type, h.aggregate_id) = 4711 AND h.status >= 'pending' AND h.seq < 100;
ROLLBACK;
