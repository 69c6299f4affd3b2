-- outbox_top(): what it shows of rows, how numbers look, and what it costs nobody.
SET client_min_messages = error;

-- Numbers and times
SELECT v, outbox_internal.outbox_show_count(v) FROM unnest(ARRAY[NULL, 0, 7, 1000, 9999999, 10000000, 123456789,
	9999900000, 12000000000]::bigint[]) v;
SELECT v, outbox_internal.outbox_show_span(v) FROM unnest(ARRAY[NULL, 0, 0.00004, 0.0012, 0.00994, 0.012, 0.5, 1, 3.25, 99,
	100, 3600, 7200, 300000, 8640000]::float8[]) v;

-- Without such characters in the client's encoding, other ones
SET client_encoding = 'LATIN1';
SELECT v, '[' || outbox_internal.outbox_show_bar(v, 1000, 10) || ']' AS bar FROM unnest(ARRAY[NULL, 0, 1, 100, 500, 1000, 5000]::float8[]) v;
SELECT outbox_internal.outbox_show_bar(0, 0, 10) = '' AS none;
SELECT cardinality(outbox_internal.outbox_published_seconds());

-- What changes from run to run is taken out: the first line and that of the state
CREATE FUNCTION pg_temp.top() RETURNS SETOF text LANGUAGE sql AS $$
	SELECT regexp_replace(t, ' +[0-9.]+ (ms|s|min)\y', ' TIME', 'g')
	FROM (SELECT t, row_number() OVER () AS n FROM outbox_top() t) x WHERE n > 2 AND t !~ '^ {10}'
$$;
SELECT pg_temp.top();

INSERT INTO outbox_route (name, exchange, on_failed) VALUES ('orders', 'orders', 'block'), ('a' || chr(10) || 'b', 'x', 'skip');
SELECT outbox_pause('orders');
SELECT count(outbox_enqueue('created', '1', aggregate_type => 'order', aggregate_id => (i % 3)::text, route => 'orders'))
FROM generate_series(1, 12) i;
SELECT outbox_enqueue('created', '1') IS NOT NULL AS ok;
UPDATE outbox SET status = 'failed', attempts = 3, last_error = E'no\nqueue'
WHERE id IN (SELECT id FROM outbox WHERE route = 'orders' ORDER BY seq LIMIT 2);
UPDATE outbox SET available_at = now() + interval '1 minute', attempts = 1, last_error = 'nacked'
WHERE route = 'default';
SELECT pg_temp.top();

-- Nothing is wider than 100 columns, whatever names and errors are
INSERT INTO outbox_route (name, exchange) VALUES (repeat('long', 50), 'x');
SELECT count(outbox_enqueue('long', '1', aggregate_type => repeat('t', 200), aggregate_id => repeat('i', 200),
	route => repeat('long', 50))) FROM generate_series(1, 3);
UPDATE outbox SET status = 'failed', attempts = 3, last_error = repeat('error ', 200) WHERE event_type = 'long';
SELECT max(length(t)) <= 100 AS fits, bool_or(t ~ '[[:cntrl:]]') AS control FROM outbox_top() t;

-- EXECUTE is all that is needed, and nobody has it
CREATE ROLE top_looks;
SET SESSION AUTHORIZATION top_looks;
SELECT count(*) > 5 AS some FROM outbox_top();
RESET SESSION AUTHORIZATION;
GRANT EXECUTE ON FUNCTION outbox_top() TO top_looks;
SET SESSION AUTHORIZATION top_looks;
SELECT count(*) > 5 AS some FROM outbox_top();
RESET SESSION AUTHORIZATION;
DROP OWNED BY top_looks;
DROP ROLE top_looks;

DELETE FROM outbox;
DELETE FROM outbox_route WHERE name <> 'default';
RESET client_encoding;

-- In a database whose encoding has no such characters
SELECT current_database() AS here \gset
CREATE DATABASE regress_outbox_latin1 ENCODING 'LATIN1' LOCALE 'C' TEMPLATE template0;
ALTER DATABASE regress_outbox_latin1 SET outbox.enabled = off;
\c regress_outbox_latin1
CREATE EXTENSION outbox;
SELECT outbox_enqueue('e', '1') IS NOT NULL AS ok;
SELECT count(*) > 5 AS some FROM outbox_top();
\c :here
DROP DATABASE regress_outbox_latin1 WITH (FORCE);
