-- Failed messages: looked at, requeued, discarded.
SET client_min_messages = error;
SET search_path = public, outbox_regress;
\set SHOW_CONTEXT never

CREATE PROCEDURE outbox_regress.fill()
LANGUAGE sql AS $$
	TRUNCATE outbox;
	INSERT INTO outbox (event_type, payload, aggregate_type, aggregate_id, status,
		attempts, last_error, last_error_reason, created_at)
	SELECT CASE WHEN i <= 3 THEN 'a' ELSE 'b' END, to_jsonb(i), 'order', (i % 2)::text,
		'failed', 10, CASE WHEN i % 3 = 0 THEN 'returned: 312 NO_ROUTE' ELSE 'nacked' END,
		CASE WHEN i % 3 = 0 THEN 'unroutable' ELSE 'queue refuses' END,
		timestamptz '2024-01-01' + i * interval '1 day'
	FROM generate_series(1, 6) i;
	INSERT INTO outbox (event_type, payload, attempts, available_at, last_error)
	VALUES ('retry', '7', 2, '2100-01-01', 'nacked');
	INSERT INTO outbox (event_type, payload) VALUES ('new', '8');
$$;
CALL fill();
SELECT event_type, aggregate_id, payload, attempts, last_error, last_error_reason FROM outbox_failed ORDER BY seq;
-- When each failed: those that have, and only those
SELECT status, bool_and(failed_at BETWEEN clock_timestamp() - interval '1 minute' AND clock_timestamp()) AS failed_now,
	count(failed_at) FROM outbox GROUP BY 1 ORDER BY 1;

-- Requeue one: its attempts count from 0, its error and the reason stay
SELECT id FROM outbox WHERE payload = '1' \gset
SELECT outbox_requeue(:'id');
SELECT status, attempts, available_at, last_error, last_error_reason, failed_at FROM outbox WHERE id = :'id';
-- again: it is pending already, as are others
SELECT outbox_requeue(:'id');
SELECT outbox_requeue(id), payload FROM outbox WHERE payload IN ('7', '8') ORDER BY seq;
SELECT attempts, available_at IS NULL AS at_once FROM outbox WHERE payload = '7';
SELECT outbox_requeue('00000000-0000-0000-0000-000000000000');
\echo :LAST_ERROR_SQLSTATE
SELECT outbox_requeue(NULL);
\echo :LAST_ERROR_SQLSTATE

-- Requeue many: all filters, and no others than failed ones
SELECT outbox_requeue_failed();
SELECT outbox_requeue_failed();
SELECT payload, status, attempts FROM outbox ORDER BY seq;
CREATE FUNCTION requeued(args text) RETURNS text
LANGUAGE plpgsql AS $$
DECLARE
	n bigint;
	result text;
BEGIN
	CALL outbox_regress.fill();
	EXECUTE 'SELECT outbox_requeue_failed(' || args || ')' INTO n;
	SELECT n || ': ' || coalesce(string_agg(payload::text, ' ' ORDER BY seq), '') INTO result
	FROM outbox WHERE status = 'pending' AND payload::int <= 6;
	RETURN result;
END
$$;
INSERT INTO outbox_route (name) VALUES ('x');
SELECT args, requeued(args) FROM unnest(ARRAY['', 'route => ''default''', 'route => ''x''',
	'event_type => ''a''', 'event_type => ''retry''', 'aggregate_type => ''order''',
	'aggregate_id => ''1''', 'aggregate_type => ''order'', aggregate_id => ''0''',
	'last_error_like => ''%NO_ROUTE%''', 'last_error_like => ''no_route''',
	'created_before => ''2024-01-04''', 'max_messages => 2', 'max_messages => 0',
	'max_messages => 100', 'event_type => ''b'', aggregate_id => ''0'', max_messages => 1',
	'''default'', ''a'', ''order'', ''1'', ''nack%'', ''2025-01-01'', 5']) args;
DELETE FROM outbox_route WHERE name = 'x';
SELECT outbox_requeue_failed(max_messages => -1);
\echo :LAST_ERROR_SQLSTATE

-- Discard: failed or waiting, not twice
CALL fill();
SELECT outbox_discard(id), payload FROM outbox WHERE payload IN ('1', '7', '8') ORDER BY seq;
SELECT outbox_discard(:'id');
SELECT outbox_discard(NULL);
SELECT payload FROM outbox ORDER BY seq;
-- the archive gets nothing of it
SELECT count(*) FROM outbox_archive;

-- All of it can be rolled back
BEGIN;
SELECT outbox_discard(id) FROM outbox WHERE payload = '2';
SELECT outbox_requeue_failed();
ROLLBACK;
SELECT payload, status FROM outbox ORDER BY seq;

-- What is repaired is checked as a new message is
UPDATE outbox SET routing_key = 'right.key' WHERE payload = '2';
SELECT outbox_requeue(id) FROM outbox WHERE payload = '2';
SELECT routing_key, status FROM outbox WHERE payload = '2';

-- but what stays as it is was accepted once, whatever has changed since: one such
-- message does not hold up the others
INSERT INTO outbox_route (name, exchange) VALUES ('longer', 'x');
UPDATE outbox SET route = 'longer', event_type = repeat('e', 255), status = 'failed', routing_key = NULL
WHERE payload = '2';
UPDATE outbox_route SET routing_key = 'x.{event_type}' WHERE name = 'longer';
SELECT outbox_requeue_failed(), outbox_requeue_failed('longer');
SELECT status FROM outbox WHERE payload = '2';
-- to change it is to write it anew
SELECT outbox_edit(id, payload => '3') FROM outbox WHERE payload = '2';
UPDATE outbox SET available_at = 'infinity' WHERE payload = '2';
SELECT outbox_edit(id, payload => '3', routing_key => 'right') FROM outbox WHERE payload = '2';

DROP FUNCTION requeued(text);
DROP PROCEDURE fill();
TRUNCATE outbox;
DELETE FROM outbox_route WHERE name = 'longer';
