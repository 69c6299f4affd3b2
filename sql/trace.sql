-- Trace context at enqueue: the message's headers, else the settings, else a
-- comment at the end of the statement; and the spans that the archive is read as.
SET client_min_messages = error;
CREATE ROLE regress_outbox_traced;
GRANT USAGE ON SCHEMA outbox_regress TO PUBLIC;
GRANT EXECUTE ON FUNCTION outbox_enqueue, outbox_enqueue_bytes TO regress_outbox_traced;
GRANT INSERT ON outbox TO regress_outbox_traced;
SET search_path = public, outbox_regress;
\pset format unaligned
\pset tuples_only on
\set parent 00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01
\set other 00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00

CREATE FUNCTION taken() RETURNS SETOF text LANGUAGE sql AS $$
	WITH gone AS (DELETE FROM outbox RETURNING seq, event_type, headers)
	SELECT pg_catalog.concat_ws(': ', event_type, headers) FROM gone ORDER BY seq
$$;

-- Every way in, by anybody
SET ROLE regress_outbox_traced;
BEGIN;
SET LOCAL outbox.traceparent = :'parent';
SELECT outbox_enqueue('function', '{}') IS NOT NULL, outbox_enqueue_bytes('bytes', '') IS NOT NULL;
INSERT INTO outbox (event_type, payload) VALUES ('insert', '{}'), ('insert', '{}');
COPY outbox (event_type, payload) FROM stdin;
copy	{}
\.
SET LOCAL outbox.tracestate = 'rojo=00f067aa0ba902b7,congo="t\61"';
SELECT outbox_enqueue('state', '{}') IS NOT NULL;
-- other headers stay; a traceparent of the message's own wins, null too; so does a tracestate
SELECT outbox_enqueue('headers', '{}', headers => '{"a": [1], "aa": 2}') IS NOT NULL;
SELECT outbox_enqueue('own', '{}', headers => '{"traceparent": "mine"}') IS NOT NULL;
SELECT outbox_enqueue('none', '{}', headers => '{"traceparent": null}') IS NOT NULL;
SELECT outbox_enqueue('own state', '{}', headers => '{"tracestate": "a=1"}') IS NOT NULL;
INSERT INTO outbox (event_type, payload, headers) VALUES ('JSON null', '{}', 'null');
-- empty: none
SET LOCAL outbox.traceparent = '';
SELECT outbox_enqueue('empty', '{}') IS NOT NULL;
-- what is later than version 00 is written as that
SET LOCAL outbox.traceparent = 'cc-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-ff-more';
SET LOCAL outbox.tracestate = '';
SELECT outbox_enqueue('later', '{}') IS NOT NULL;
COMMIT;
SELECT outbox_enqueue('over', '{}') IS NOT NULL, outbox_enqueue('over', '{}', headers => '{"a": 1}') IS NOT NULL;
RESET ROLE;
SELECT taken();

-- Headers that are no object are the same error with it
SET outbox.traceparent = :'parent';
SELECT outcome($$SELECT outbox_enqueue('e', '{}', headers => '[]')$$);
RESET outbox.traceparent;

-- What is no trace context is refused where it is set
SET outbox.traceparent = 'nonsense';
SET outbox.traceparent = '00-4BF92F3577B34DA6A3CE929D0E0E4736-00f067aa0ba902b7-01';
SET outbox.traceparent = '00-00000000000000000000000000000000-00f067aa0ba902b7-01';
SET outbox.traceparent = '00-4bf92f3577b34da6a3ce929d0e0e4736-0000000000000000-01';
SET outbox.traceparent = 'ff-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01';
SET outbox.traceparent = '00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01-';
SET outbox.tracestate = 'no list';
SELECT outcome($$SELECT set_config('outbox.traceparent', '0', true)$$);

-- sqlcommenter
SELECT outbox_enqueue('function', '{}') IS NOT NULL /*traceparent='00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01'*/;
INSERT INTO outbox (event_type, payload) VALUES ('insert', '{}'), ('insert', '{}')
/*action='%2Fa',traceparent='00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01',tracestate='congo%3Dt61%2Crojo%3D1'*/;
COPY outbox (event_type, payload) FROM stdin /*traceparent='00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01'*/;
copy	{}
copy	{}
\.
-- of the client's statement, in functions and triggers, deferred ones too
CREATE TABLE fires (what text);
CREATE FUNCTION fire() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
	INSERT INTO outbox (event_type, payload)
		VALUES (TG_NAME, '{}') /*traceparent='00-11111111111111111111111111111111-1111111111111111-01'*/;
	RETURN NULL;
END $$;
CREATE TRIGGER at_once AFTER INSERT ON fires FOR EACH ROW EXECUTE FUNCTION fire();
CREATE CONSTRAINT TRIGGER deferred AFTER INSERT ON fires DEFERRABLE INITIALLY DEFERRED
	FOR EACH ROW EXECUTE FUNCTION fire();
BEGIN;
INSERT INTO fires VALUES ('x') /*traceparent='00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01'*/;
COMMIT /*traceparent='00-22222222222222222222222222222222-2222222222222222-00'*/;
INSERT INTO fires VALUES ('/*traceparent=''00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01''*/');
-- one after the other in one statement that the client sent; that of all is at the end
SELECT outbox_enqueue('first', '{}') IS NOT NULL\; SELECT outbox_enqueue('second', '{}') IS NOT NULL /*traceparent='00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01'*/;
-- the setting comes before the comment; what is malformed says nothing
SET outbox.traceparent = :'other';
SELECT outbox_enqueue('setting', '{}') IS NOT NULL /*traceparent='00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01'*/;
RESET outbox.traceparent;
SELECT outbox_enqueue('bad', '{}') IS NOT NULL /*traceparent='00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-1'*/;
SELECT outbox_enqueue('worse', '{}') IS NOT NULL /*traceparent='","x":"*/;
-- off
SET outbox.sqlcommenter = off;
SELECT outbox_enqueue('off', '{}') IS NOT NULL /*traceparent='00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01'*/;
RESET outbox.sqlcommenter;
-- EXECUTE in SQL is a statement of its own
PREPARE prepared AS SELECT outbox_enqueue('prepared', '{}') IS NOT NULL /*traceparent='00-11111111111111111111111111111111-1111111111111111-01'*/;
EXECUTE prepared /*traceparent='00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01'*/;
EXECUTE prepared;
DEALLOCATE prepared;
SELECT taken();

-- A change of a message is no enqueue
SELECT outbox_enqueue('e', '{}') IS NOT NULL;
UPDATE outbox SET available_at = now() + interval '1 day' /*traceparent='00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01'*/;
SELECT taken();

DROP TABLE fires;
DROP FUNCTION fire, taken;
DROP OWNED BY regress_outbox_traced;
DROP ROLE regress_outbox_traced;

-- Spans: of what was published and what was given up, with a sampled traceparent
\getenv abs_srcdir PG_ABS_SRCDIR
\set spans :abs_srcdir '/examples/tracing/spans.sql'
\set ECHO none
\i :spans
\set ECHO all
CREATE ROLE regress_outbox_tracing;
SET ROLE regress_outbox_tracing;
SELECT outcome('SELECT * FROM outbox_spans');
RESET ROLE;
GRANT SELECT ON outbox_spans TO regress_outbox_tracing;
BEGIN;
INSERT INTO outbox_route (name, exchange, routing_key) VALUES
	('template', 'ex', '{aggregate_type}.{event_type}.{aggregate_id}'), ('queue', '', 'in'), ('bare', '', '');
INSERT INTO outbox_route (name, relay) VALUES ('outside', 'external');
INSERT INTO outbox_archive (seq, id, route, event_type, aggregate_type, aggregate_id, routing_key, headers, properties, payload, created_at, attempts, published_at)
SELECT n, ('01890a5d-ac96-774b-8' || lpad(to_hex(n), 3, '0') || '-b302099a8057')::uuid, route, 'e', 'a', key, rk, headers, properties, '{}',
	'2026-01-01 00:00:00.000001+00', n, '2026-01-01 00:00:01+00'
FROM (VALUES
	(0, 'default', NULL, NULL, jsonb_build_object('traceparent', :'parent'), NULL::jsonb),
	(1, 'default', NULL, 'own', jsonb_build_object('traceparent', :'parent', 'tracestate', 'a=1'), '{"correlation_id": "c"}'),
	(2, 'template', '{event_type}', NULL, jsonb_build_object('traceparent', :'parent'), NULL),
	(3, 'queue', NULL, NULL, jsonb_build_object('traceparent', 'cc' || substr(:'parent', 3) || '-more'), NULL),
	(4, 'bare', NULL, NULL, jsonb_build_object('traceparent', :'parent'), NULL),
	(5, 'gone', NULL, NULL, jsonb_build_object('traceparent', :'parent'), NULL),
	(6, 'outside', NULL, NULL, jsonb_build_object('traceparent', :'parent'), NULL),
	(7, 'default', NULL, NULL, jsonb_build_object('traceparent', :'other'), NULL),
	(8, 'default', NULL, NULL, '{"traceparent": 1}', NULL),
	(9, 'default', NULL, NULL, '{"traceparent": "mine"}', NULL),
	(10, 'default', NULL, NULL, '{"traceparent": null}', NULL),
	(11, 'default', NULL, NULL, jsonb_build_object('traceparent', :'parent' || '-'), NULL),
	(12, 'default', NULL, NULL, jsonb_build_object('traceparent', 'ff' || substr(:'parent', 3)), NULL),
	(13, 'default', NULL, NULL, jsonb_build_object('traceparent', upper(:'parent')), NULL),
	(14, 'default', NULL, NULL, jsonb_build_object('traceparent', translate(:'parent', '123456789abcdef', '000000000000000')), NULL),
	(15, 'default', NULL, NULL, NULL, NULL)) v (n, route, key, rk, headers, properties);
UPDATE outbox_archive SET aggregate_id = 'k' WHERE route = 'template';
INSERT INTO outbox (id, event_type, payload, headers, status, attempts, last_error, last_error_reason)
SELECT ('00000000-0000-0000-0000-0000' || lpad(n::text, 8, '0'))::uuid, 'e', '{}', jsonb_build_object('traceparent', :'parent'), 'failed', 10, error, reason
FROM (VALUES (0, 'no basic.nack', 'unroutable'), (1, 'returned by the broker', 'queue refuses'), (2, 'too large', NULL)) v (n, error, reason);
SET ROLE regress_outbox_tracing;
SET TIME ZONE 'UTC';
SELECT trace_id, span_id, parent_span_id, trace_state, name, kind, start_time, end_time, attributes FROM outbox_spans
WHERE start_time < '2026-01-02' ORDER BY span_id;
SELECT span_id, name, end_time IS NOT NULL, attributes FROM outbox_spans
WHERE start_time > '2026-01-02' ORDER BY attributes ->> 'messaging.message.id';
ROLLBACK;
RESET ROLE;
DROP VIEW outbox_spans;
DROP OWNED BY regress_outbox_tracing;
DROP ROLE regress_outbox_tracing;
