-- Failed attempts: retry, failed, requeue.
SELECT outbox_test_worker_session();
\set SHOW_CONTEXT never

-- The name of a message is its event_type here.
CREATE FUNCTION pg_temp.fail(names text, error text DEFAULT 'nacked', retry_ms bigint DEFAULT 3600000,
	final boolean DEFAULT false, reason text DEFAULT 'queue refuses') RETURNS void
LANGUAGE sql AS $$
	SELECT outbox_test_fail(array_agg(id), error::bytea, retry_ms, final, reason => reason)
	FROM outbox WHERE event_type = ANY (string_to_array(names, ' '))
$$;
CREATE VIEW pg_temp.state AS
	SELECT event_type, status, attempts, last_error, last_error_reason,
		CASE WHEN available_at > clock_timestamp() THEN 'later' WHEN available_at IS NULL THEN 'no time'
			ELSE 'due' END AS available
	FROM outbox ORDER BY seq;
INSERT INTO outbox (event_type, payload, aggregate_type, aggregate_id) VALUES
	('a', '1', 't', '1'), ('b', '2', 't', '1'), ('c', '3', NULL, NULL), ('d', '4', NULL, '4');

-- An attempt is counted, with its error, the reason and the time of the next
SELECT pg_temp.fail('a c', 'returned: 312 NO_ROUTE', reason => 'unroutable');
SELECT * FROM pg_temp.state;
SELECT available_at - clock_timestamp() BETWEEN interval '59 minutes' AND interval '1 hour' AS wait
FROM outbox WHERE event_type IN ('a', 'c');
SELECT string_agg(event_type, ' ') FROM outbox_test_claim();
SELECT string_agg(event_type, ' ') FROM outbox_test_claim_due();
SELECT outbox_test_next_due() = min(available_at) AS next FROM outbox;
SELECT outbox_test_next_due(max(available_at)) IS NULL AS none FROM outbox;
-- and the next one the same
SELECT pg_temp.fail('a', 'nacked');
SELECT * FROM pg_temp.state WHERE event_type = 'a';

-- Due messages come by time, then by seq; the cursor of a claim is both
SELECT pg_temp.fail('c', retry_ms => 0);
SELECT pg_temp.fail('a', retry_ms => 0);
SELECT * FROM pg_temp.state;
SELECT event_type, attempts FROM outbox_test_claim_due();
UPDATE outbox SET available_at = '2000-01-01';
SELECT string_agg(event_type, ' ') FROM outbox_test_claim_due();
SELECT event_type, outbox_test_next_due(available_at, seq) = available_at AS next FROM outbox ORDER BY seq;
SELECT string_agg(c.event_type, ' ') FROM outbox o, outbox_test_claim_due(after => o.seq, after_due => o.available_at) c
WHERE o.event_type = 'b';
SELECT string_agg(event_type, ' ') FROM outbox_test_claim_due(max_rows => 2);
SELECT string_agg(event_type, ' ') FROM outbox_test_claim_due(excluded_routes => '{default}');
SELECT string_agg(event_type, ' ') FROM outbox_test_claim_due(after_due => '2000-01-01 00:00:01');
SELECT count(*) FROM generate_series(0, 2) w, outbox_test_claim_due(worker => w, nworkers => 3);
UPDATE outbox SET available_at = NULL WHERE attempts = 0;
-- whatever else is scheduled
INSERT INTO outbox (event_type, payload, available_at) SELECT 'other', '{}', '2100-01-01' FROM generate_series(1, 500);
BEGIN;
SELECT sum(pg_stat_get_xact_tuples_returned(indexrelid)) AS before FROM pg_index WHERE indrelid = 'outbox'::regclass \gset
SELECT count(*) FROM outbox_test_claim_due();
SELECT sum(pg_stat_get_xact_tuples_returned(indexrelid)) - :before < 20 AS few_read FROM pg_index WHERE indrelid = 'outbox'::regclass;
ROLLBACK;
DELETE FROM outbox WHERE event_type = 'other';

-- Given up: failed, waits for an operator and not for a time
SELECT pg_temp.fail('a', 'returned: 312 NO_ROUTE', final => true, reason => 'unroutable');
SELECT * FROM pg_temp.state;
SELECT event_type, attempts, last_error, last_error_reason FROM outbox_failed;
SELECT event_type, failed_at > created_at AND failed_at <= clock_timestamp() AS now FROM outbox WHERE failed_at IS NOT NULL;
SELECT backlog, scheduled, retrying, failed FROM outbox_status;
SELECT string_agg(event_type, ' ') FROM outbox_test_claim();
-- A late verdict on it changes nothing, nor does one on a message that is gone
SELECT pg_temp.fail('a', 'late');
SELECT * FROM pg_temp.state WHERE event_type = 'a';
SELECT outbox_test_fail('{00000000-0000-0000-0000-000000000000}', 'x');

-- Who holds the key: a retry; and of what has failed, the oldest
SELECT pg_temp.fail('d');
SELECT o.aggregate_type, o.aggregate_id, event_type, keyed, key_hash = outbox_internal.outbox_key_hash(o.route, o.aggregate_type, o.aggregate_id) AS hash
FROM outbox_test_list_retries() h JOIN outbox o USING (seq) ORDER BY seq;
SELECT count(*), count(DISTINCT seq) FROM generate_series(0, 2) w, outbox_test_list_retries(w, 3);
CREATE FUNCTION pg_temp.key_of(o outbox) RETURNS bigint
RETURN CASE WHEN o.aggregate_id IS NULL THEN 0 ELSE outbox_internal.outbox_key_hash(o.route, o.aggregate_type, o.aggregate_id) END;
-- Of a key the oldest one
INSERT INTO outbox (event_type, payload, route, aggregate_type, aggregate_id, status)
	SELECT 'later', '{}', route, aggregate_type, aggregate_id, 'failed' FROM outbox WHERE event_type = 'a';
SELECT o.event_type, h.keyed, key_hash = pg_temp.key_of(o) AS hash
FROM outbox_test_visit_failed((SELECT array_agg(DISTINCT pg_temp.key_of(o)) FROM outbox o)) h JOIN outbox o USING (seq);
DELETE FROM outbox WHERE event_type = 'later';
-- and none of another route, though an aggregate_id is chosen for the same hash
INSERT INTO outbox_route (name) VALUES ('other');
INSERT INTO outbox (event_type, payload, route, aggregate_type, aggregate_id, status)
	VALUES ('later', '{}', 'other', 't', 'cnv1FYHbiB8i', 'failed');
SELECT count(DISTINCT pg_temp.key_of(o)) FROM outbox o WHERE event_type IN ('a', 'later');
SELECT r.route, o.event_type FROM unnest('{default,other}'::text[]) r (route),
	outbox_test_visit_failed(ARRAY[outbox_internal.outbox_key_hash('default', 't', '1')], ARRAY[r.route]) h JOIN outbox o USING (seq);
SELECT r.route, outbox_test_check_holders(ARRAY[id], ARRAY[pg_temp.key_of(o)], ARRAY[r.route])
FROM outbox o, unnest('{default,other}'::text[]) r (route) WHERE event_type = 'later';
DELETE FROM outbox WHERE event_type = 'later';
DELETE FROM outbox_route WHERE name = 'other';
-- By the index of that key, whatever else has failed
INSERT INTO outbox (event_type, payload, aggregate_type, aggregate_id, status)
	SELECT 'other', '{}', 't', n::text, 'failed' FROM generate_series(1, 500) n;
BEGIN;
SELECT sum(pg_stat_get_xact_tuples_returned(indexrelid)) AS before FROM pg_index WHERE indrelid = 'outbox'::regclass \gset
SELECT count(*) FROM outbox_test_visit_failed(ARRAY[outbox_internal.outbox_key_hash('default', 't', '500')]);
SELECT sum(pg_stat_get_xact_tuples_returned(indexrelid)) - :before < 20 AS few_read FROM pg_index WHERE indrelid = 'outbox'::regclass;
ROLLBACK;
DELETE FROM outbox WHERE event_type = 'other';
SELECT outbox_test_check_holders(array_agg(id ORDER BY seq), array_agg(pg_temp.key_of(o) ORDER BY seq)) FROM outbox o;
-- Not those of another key, where somebody has put it
SELECT outbox_test_check_holders(array_agg(id ORDER BY seq), array_agg(seq ORDER BY seq)) FROM outbox o;
-- Requeued, it holds no more, and is claimed as a new one with its old place
SELECT outbox_requeue(id) FROM outbox WHERE event_type = 'a';
SELECT outbox_test_check_holders(array_agg(id ORDER BY seq), array_agg(pg_temp.key_of(o) ORDER BY seq)) FROM outbox o;
SELECT string_agg(event_type || ' ' || attempts, ', ') FROM outbox_test_claim();
SELECT * FROM pg_temp.state WHERE event_type = 'a';
SELECT outbox_discard(id) FROM outbox WHERE event_type = 'd';
SELECT event_type FROM outbox_test_list_retries() JOIN outbox USING (seq);

-- The broker's words are not ours to trust
TRUNCATE outbox;
INSERT INTO outbox (event_type, payload) VALUES ('bad', '{}'), ('good', '{}'), ('empty', '{}');
SELECT outbox_test_fail(array_agg(id), '\x6e6f20e971756575653a20ff') FROM outbox WHERE event_type = 'bad';
SELECT outbox_test_fail(array_agg(id), 'no quéué €'::bytea) FROM outbox WHERE event_type = 'good';
SELECT outbox_test_fail(array_agg(id), '') FROM outbox WHERE event_type = 'empty';
SELECT event_type, last_error FROM outbox ORDER BY seq;

-- A publish failure is visible and recoverable, and the business row untouched
TRUNCATE outbox;
CREATE TEMP TABLE orders (id int, status text);
BEGIN;
INSERT INTO orders VALUES (7, 'new');
SELECT outbox_enqueue('order', '{"id": 7}', aggregate_type => 'order', aggregate_id => '7') AS id \gset
COMMIT;
SELECT xmin, ctid FROM orders \gset
SELECT pg_temp.fail('order', 'returned: 312 NO_ROUTE');
SELECT status, attempts, last_error FROM outbox_messages;
SELECT pg_temp.fail('order', 'returned: 312 NO_ROUTE', final => true);
SELECT status, attempts, last_error FROM outbox_messages;
SELECT *, xmin = :'xmin' AND ctid = :'ctid' AS untouched FROM orders;
SELECT outbox_requeue(:'id');
SELECT outbox_test_settle(array_agg(tid), array_agg(id)) FROM outbox_test_claim();
SELECT id = :'id' AS same, status, attempts, payload, aggregate_id FROM outbox_messages;
SELECT *, xmin = :'xmin' AND ctid = :'ctid' AS untouched FROM orders;
TRUNCATE outbox, outbox_archive;

-- Very many at once, with a plan of one: a row is found by its id, and not compared with all others (which took minutes)
SET statement_timeout = '20s';
INSERT INTO outbox (event_type, payload) SELECT 'one', '{}';
VACUUM ANALYZE outbox;
SELECT pg_temp.fail('one');
INSERT INTO outbox (event_type, payload) SELECT 'many', '{}' FROM generate_series(1, 6000);
SELECT pg_temp.fail('many');
SELECT attempts, last_error, count(*) FROM outbox GROUP BY 1, 2;
RESET statement_timeout;
TRUNCATE outbox;

-- A trigger that keeps the row would have the attempt forgotten, and the message never sent again
CREATE FUNCTION pg_temp.keep() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END';
CREATE TRIGGER a_keep BEFORE UPDATE ON outbox FOR EACH ROW WHEN (NEW.event_type = 'kept') EXECUTE FUNCTION pg_temp.keep();
INSERT INTO outbox (event_type, payload) VALUES ('kept', '{}');
SELECT pg_temp.fail('kept');
DROP TRIGGER a_keep ON outbox;
TRUNCATE outbox;
