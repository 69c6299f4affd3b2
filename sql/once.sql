-- outbox_enqueue_once(): one message for each key of a route, within a window.
-- Who waits for whom: test/isolation/specs/once.spec.
SET client_min_messages = error;
SET search_path = public, outbox_regress;
\set SHOW_CONTEXT never
CREATE ROLE regress_outbox_app;
GRANT EXECUTE ON FUNCTION outbox_enqueue_once TO regress_outbox_app;
GRANT USAGE ON SCHEMA outbox_regress TO PUBLIC;
INSERT INTO outbox_route (name, enqueue_roles) VALUES ('other', NULL), ('closed', '{}');
TRUNCATE outbox, outbox_internal.outbox_once;
CREATE FUNCTION outbox_regress.n(id uuid) RETURNS text LANGUAGE sql AS
	$$SELECT ltrim(right(id::text, 12), '0')$$;
CREATE FUNCTION outbox_regress.once(key text, n int, route text DEFAULT 'default') RETURNS text LANGUAGE sql AS $$
	SELECT n(outbox_enqueue_once(key, 'e', to_jsonb(n), route => route,
		message_id => format('00000000-0000-7000-8000-%s', lpad(n::text, 12, '0'))::uuid))
$$;

-- the id is that of the first; each route has its own keys
SELECT once('a', 1), once('a', 2), once('b', 3), once('a', 4, 'other');
SELECT n(id), route, payload FROM outbox ORDER BY seq;
SELECT once('c', i) FROM generate_series(10, 12) i;
-- twice in a statement
BEGIN;
SELECT outbox_enqueue_once('twice', 'e', '{}') = outbox_enqueue_once('twice', 'e', '{}') AS same;
ROLLBACK;
-- also when it was published, or discarded
DELETE FROM outbox;
SELECT once('a', 5);
SELECT count(*) FROM outbox;

INSERT INTO outbox_internal.outbox_once VALUES ('closed', 'known', outbox_uuid7(), now());
-- whoever may call it needs no right on the tables; a role that may not use the route learns nothing
SET ROLE regress_outbox_app;
SELECT n(outbox_enqueue_once('a', 'e', '{}'));
SELECT outbox_enqueue_once('new', 'order.placed', '{"n": 1}', 'order', '7', '{"h": 1}', 'default', 'k',
	'{"priority": 3}', '2100-01-01') IS NOT NULL;
SELECT outbox_enqueue_once('a', 'e', '{}', route => 'closed');
SELECT outbox_enqueue_once('known', 'e', '{}', route => 'closed');
SELECT outbox_enqueue_once('a', 'e', '{}', route => 'nowhere');
SELECT outbox_enqueue_once('a', 'e', '{}', route => NULL);
SELECT outbox_enqueue_once(NULL, 'e', '{}');
SELECT outbox_enqueue_once('', 'e', '{}');
SELECT outbox_enqueue_once(repeat('x', 256), 'e', '{}');
SELECT outbox_enqueue_once(repeat('x', 255), 'e', '{}') IS NOT NULL;
SELECT count(*) FROM outbox_internal.outbox_once;
RESET ROLE;
SELECT event_type, aggregate_type, aggregate_id, payload, headers, route, routing_key, properties, available_at AT TIME ZONE 'UTC'
	FROM outbox WHERE event_type = 'order.placed';

-- what is refused, rolled back, or left out by a trigger leaves no key
SELECT outbox_enqueue_once('refused', '', '{}');
BEGIN;
SAVEPOINT s;
SELECT once('back', 20);
SELECT once('back', 21);
ROLLBACK TO s;
SELECT once('back', 22);
ROLLBACK;
CREATE FUNCTION outbox_regress.leave_out() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END';
CREATE TRIGGER leave_out BEFORE INSERT ON outbox FOR EACH ROW EXECUTE FUNCTION leave_out();
SELECT outbox_enqueue_once('left out', 'e', '{}');
DROP TRIGGER leave_out ON outbox;
SELECT key FROM outbox_internal.outbox_once WHERE key IN ('refused', 'back', 'left out');

-- the window: across midnight, to its end, and after it
SHOW outbox.once_window;
TRUNCATE outbox, outbox_internal.outbox_once;
SELECT once('day', 30), once('old', 31), once('older', 32);
UPDATE outbox_internal.outbox_once SET at = CASE key WHEN 'day' THEN now() - interval '23:59' ELSE now() - interval '24:01' END;
SELECT once('day', 33), once('old', 34), once('old', 35);
SELECT key, n(id), at > now() - interval '1 minute' AS new FROM outbox_internal.outbox_once ORDER BY key;
-- the relay removes what is older
SELECT outbox_internal.outbox_once_maintain('1 day', '-infinity') < now() - interval '1 day' AS removed, outbox_internal.outbox_once_maintain('1 day', '-infinity');
SELECT key FROM outbox_internal.outbox_once ORDER BY key;
INSERT INTO outbox_internal.outbox_once SELECT 'default', i::text, outbox_uuid7(), now() - interval '1 year' FROM generate_series(1, 1500) i;
SELECT outbox_internal.outbox_once_maintain('1 day', now() - interval '1 month');	-- others are not read
SELECT outbox_internal.outbox_once_maintain('1 day', '-infinity') < now() FROM generate_series(1, 3);

-- one without an id has none to return: the key is free
SELECT once('null', 40);
ALTER TABLE outbox_internal.outbox_once ALTER id DROP NOT NULL;
UPDATE outbox_internal.outbox_once SET id = NULL WHERE key = 'null';
SELECT once('null', 41), once('null', 42);
ALTER TABLE outbox_internal.outbox_once ALTER id SET NOT NULL;

-- a trigger that leaves the row out is an error, and not an endless loop
CREATE FUNCTION leave_once_out() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END';
CREATE TRIGGER leave_out BEFORE INSERT ON outbox_internal.outbox_once FOR EACH ROW EXECUTE FUNCTION leave_once_out();
SELECT outbox_enqueue_once('never', 'e', '{}');
DROP FUNCTION leave_once_out CASCADE;
TRUNCATE outbox, outbox_internal.outbox_once;
DELETE FROM outbox_route WHERE name IN ('other', 'closed');
REVOKE EXECUTE ON FUNCTION outbox_enqueue_once FROM regress_outbox_app;
DROP ROLE regress_outbox_app;
DROP FUNCTION once, n, leave_out;
