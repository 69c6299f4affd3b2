-- Trace context at enqueue: the message's headers, else the settings, else a
-- comment at the end of the statement.
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
